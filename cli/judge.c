/* SPDX-License-Identifier: Apache-2.0 */
#include "judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "noise.h"

/* Up to this many products of an x or hidden value and a weight all rows are compared: a fraction of a second. */
#define ALL_ROWS_MAX 0x1p26
enum { SAMPLE = 8, ROW_BLOCK = 512 };

/* 0/0 counts as 0. A bound that is not finite promises nothing but the NaN of the reference. */
static double ratio(double y, double reference, double bound) {
    if (isnan(reference)) return isnan(y) ? 0 : INFINITY;
    if (!isfinite(bound)) return 0;
    if (!isfinite(y) || !isfinite(reference)) return y == reference ? 0 : INFINITY;
    return y == reference ? 0 : fabs(y - reference) / bound;
}

struct cli_classes cli_classes_of(const float *y, size_t n) {
    struct cli_classes classes = {0, 0};
    for (size_t i = 0; i < n; i++) classes.n_nan += !!isnan(y[i]), classes.n_inf += !!isinf(y[i]);
    return classes;
}

const char *cli_classes_words(struct cli_classes classes) {
    static char text[64];
    *text = 0;
    if (classes.n_nan) snprintf(text, sizeof text, " (%zu NaN%s", classes.n_nan, classes.n_inf ? "" : ")");
    if (classes.n_inf)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%zu Inf)", *text ? ", " : " (", classes.n_inf);
    return text;
}

/* Puts a row into the ascending list of n, once; returns the new n. */
static size_t add_row(size_t *rows, size_t n, size_t row) {
    size_t at = n;
    while (at > 0 && rows[at - 1] > row) at--;
    if (at > 0 && rows[at - 1] == row) return n;
    memmove(rows + at + 1, rows + at, (n - at) * sizeof *rows);
    rows[at] = row;
    return n + 1;
}

/* Rows to compare, ascending; the list has room for 2 SAMPLE or m rows. */
static size_t choose_rows(const struct cli_case *c, size_t *rows) {
    const struct swiglu_desc *desc = c->desc;
    double work = (double)c->m * (double)desc->d_ff * (2 * (double)desc->d_in + (double)desc->d_out);
    size_t n = 0, n_chosen = 0, m = c->m;
    if (m <= SAMPLE || work <= ALL_ROWS_MAX) {
        for (; n < m; n++) rows[n] = n;
        return m;
    }
    n = add_row(rows, n, 0);
    n = add_row(rows, n, m - 1);
    for (uint64_t i = 0; n < SAMPLE; i++)
        n = add_row(rows, n, 1 + (size_t)(cli_noise_bits(c->seed, CLI_STREAM_ROWS, i) % (m - 2)));
    for (size_t r = 0; r < m && n_chosen < SAMPLE; r++) {
        struct cli_classes classes = cli_classes_of(c->y + r * desc->d_out, desc->d_out);
        if (!classes.n_nan && !classes.n_inf) continue;
        n = add_row(rows, n, r);
        n_chosen++;
    }
    return n;
}

static enum swiglu_status read_matrix(const struct swiglu_matrix *w, uint64_t byte, void *dst, size_t n_bytes) {
    if (!w->data) return w->read(w->ctx, byte, dst, n_bytes, NULL);
    memcpy(dst, (const char *)w->data + byte, n_bytes);
    return SWIGLU_OK;
}

/* One logical row of a weight as f32. */
static enum swiglu_status read_row(const struct swiglu_matrix *w, size_t row, float *dst) {
    struct swiglu_dtype_info dtype = {.struct_size = sizeof dtype};
    if (swiglu_dtype_query(w->dtype, &dtype)) return SWIGLU_E_UNSUPPORTED;
    size_t ld = w->ld_elems ? w->ld_elems : w->in_out ? w->rows : w->cols;
    if (!w->in_out) {
        size_t n_bytes = w->cols / dtype.block_elems * dtype.block_bytes;
        void *raw = cli_alloc(n_bytes, 1);
        enum swiglu_status status = read_matrix(w, (uint64_t)row * (ld / dtype.block_elems) * dtype.block_bytes, raw,
                                                n_bytes);
        if (!status) status = swiglu_decode(w->dtype, raw, w->cols, dst);
        free(raw);
        return status;
    }
    for (size_t c = 0; c < w->cols; c++) {
        char raw[4];
        uint64_t byte = ((uint64_t)c * ld + row) * dtype.block_bytes;
        enum swiglu_status status = read_matrix(w, byte, raw, dtype.block_bytes);
        if (!status) status = swiglu_decode(w->dtype, raw, 1, &dst[c]);
        if (status) return status;
    }
    return SWIGLU_OK;
}

static void find_terms(const struct swiglu_desc *desc, const float *hidden, struct cli_verdict *verdict) {
    float *weight = cli_alloc(desc->d_ff, sizeof *weight);
    if (read_row(&desc->down, verdict->col, weight)) verdict->n_terms = 0;
    else
        for (size_t i = 0; i < desc->d_ff; i++) {
            struct cli_term term = {i, (double)hidden[i], (double)weight[i]};
            size_t at = verdict->n_terms;
            while (at > 0 && !(fabs(term.hidden * term.weight) <=
                               fabs(verdict->term[at - 1].hidden * verdict->term[at - 1].weight)))
                at--;
            if (at == 3) continue;
            if (verdict->n_terms < 3) verdict->n_terms++;
            memmove(verdict->term + at + 1, verdict->term + at, (verdict->n_terms - 1 - at) * sizeof term);
            verdict->term[at] = term;
        }
    free(weight);
}

/* The rows to compare of h or of y, side by side with what they should be. */
struct half {
    int hidden;
    size_t width;
    const float *got;
    const double *reference, *bound;
};

static void compare(const struct half *half, struct cli_verdict *verdict) {
    for (size_t at = 0; at < verdict->n_rows * half->width; at++) {
        const double got = (double)half->got[at], reference = half->reference[at], bound = half->bound[at];
        double q = ratio(got, reference, bound);
        verdict->n_open += !isfinite(bound) && !isnan(reference);
        verdict->kept &= q <= 1;
        if (isfinite(reference) && !isfinite(got)) q = INFINITY;
        if (half->hidden && q > verdict->worst_hidden) verdict->worst_hidden = q;
        if (!(q > verdict->worst)) continue;
        verdict->worst = q, verdict->in_hidden = half->hidden;
        verdict->row = at / half->width, verdict->col = at % half->width;
        verdict->got = got, verdict->reference = reference, verdict->bound = bound;
    }
}

/* The figures of y that nothing hangs on. */
static void measure(const struct half *y, const double *typical, const double *plain, struct cli_verdict *verdict) {
    double difference = 0, size = 0;
    for (size_t at = 0; at < verdict->n_rows * y->width; at++) {
        const double got = (double)y->got[at], q = ratio(got, y->reference[at], typical[at]);
        if (q > verdict->typical) verdict->typical = q;
        if (!isfinite(plain[at])) continue;
        difference += (got - plain[at]) * (got - plain[at]);
        size += plain[at] * plain[at];
    }
    verdict->frobenius = size > 0 || difference != 0 ? sqrt(difference / size) : 0;
}

static float *gather(size_t n, const size_t *rows, size_t width, const float *from) {
    float *part = cli_alloc(n * width, sizeof *part);
    for (size_t r = 0; r < n && width; r++) memcpy(part + r * width, from + rows[r] * width, width * sizeof *part);
    return part;
}

/* h of these rows as forward computes it: among the rows that share their pass over the weights. */
static float *hidden_rows(const struct cli_case *c, size_t n, const size_t *rows) {
    const size_t d_in = c->desc->d_in, d_ff = c->desc->d_ff, most = c->m < ROW_BLOCK ? c->m : ROW_BLOCK;
    float *part = cli_alloc(n * d_ff, sizeof *part), *h = cli_alloc(most * d_ff, sizeof *h);
    struct swiglu_work work;
    cli_require(swiglu_forward_bytes(c->block, most, c->runner ? c->runner->n_threads : 1, &work.bytes), NULL, c->what);
    work.data = cli_alloc(work.bytes, 1);
    for (size_t r = 0; r < n && d_ff;) {
        const size_t first = rows[r] / ROW_BLOCK * ROW_BLOCK, m = c->m - first < ROW_BLOCK ? c->m - first : ROW_BLOCK;
        cli_require(swiglu_hidden(c->block, m, (struct swiglu_crows){c->x + first * d_in, SWIGLU_F32, 0},
                                  (struct swiglu_rows){h, SWIGLU_F32, 0}, work, c->runner), NULL, c->what);
        for (; r < n && rows[r] - first < m; r++)
            memcpy(part + r * d_ff, h + (rows[r] - first) * d_ff, d_ff * sizeof *h);
    }
    free(work.data);
    free(h);
    return part;
}

void cli_judge(const struct cli_case *c, struct cli_verdict *verdict) {
    const size_t d_ff = c->desc->d_ff, d_out = c->desc->d_out;
    size_t *rows = cli_alloc(c->m < 2 * SAMPLE ? 2 * SAMPLE : c->m, sizeof *rows), n = choose_rows(c, rows);
    double *figures = cli_alloc(4 * n * d_out + 2 * n * d_ff, sizeof *figures), *figures_h = figures + 4 * n * d_out;
    float *x = gather(n, rows, c->desc->d_in, c->x), *y = gather(n, rows, d_out, c->y), *h = hidden_rows(c, n, rows);
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_reference reference = {
        .struct_size = sizeof reference, .compute = c->compute, .y_dtype = SWIGLU_F32, .y = figures,
        .bound = figures + n * d_out, .typical = figures + 2 * n * d_out, .plain = figures + 3 * n * d_out,
        .hidden = figures_h, .hidden_bound = figures_h + n * d_ff, .h = h};
    const struct half half_h = {1, d_ff, h, reference.hidden, reference.hidden_bound};
    const struct half half_y = {0, d_out, y, reference.y, reference.bound};
    cli_require(swiglu_reference_run(c->desc, n, (struct swiglu_crows){x, SWIGLU_F32, 0}, &reference, &error), &error,
                c->what);
    *verdict = (struct cli_verdict){.n_rows = n, .kept = 1, .worst = -1, .classes = cli_classes_of(c->y, c->m * d_out)};
    compare(&half_h, verdict);
    compare(&half_y, verdict);
    if (verdict->worst < 0) verdict->worst = 0; /* nothing was compared */
    measure(&half_y, reference.typical, reference.plain, verdict);
    if (!cli_verdict_passed(verdict) && !verdict->in_hidden) find_terms(c->desc, h + verdict->row * d_ff, verdict);
    if (n) verdict->row = rows[verdict->row];
    free(x), free(y), free(h);
    free(figures);
    free(rows);
}

int cli_verdict_passed(const struct cli_verdict *verdict) { return verdict->worst <= 1; }

int cli_verdict_finite(const struct cli_verdict *verdict) {
    return !verdict->classes.n_nan && !verdict->classes.n_inf && !verdict->n_open;
}

void cli_verdict_explain(const struct cli_verdict *verdict, const char *what, const char *command) {
    const char *name = verdict->in_hidden ? "h" : "y";
    char terms[512] = "";
    cli_note("check failed: %s, row %zu, %s %zu: %s %.9g, reference %.9g, bound %.3g, |%s - reference| / bound %.4g", what,
             verdict->row, verdict->in_hidden ? "hidden unit" : "column", verdict->col, name, verdict->got,
             verdict->reference, verdict->bound, name, verdict->worst);
    for (size_t i = 0; i < verdict->n_terms; i++) {
        const struct cli_term *t = &verdict->term[i];
        snprintf(terms + strlen(terms), sizeof terms - strlen(terms), "%s h[%zu] %.7g x %.7g = %.7g", i ? "," : "",
                 t->index, t->hidden, t->weight, t->hidden * t->weight);
    }
    if (!verdict->in_hidden) cli_note("  largest terms of the down sum (hidden value x weight):%s", terms);
    cli_note("  to see it again: %s", command);
}
