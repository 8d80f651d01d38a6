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
enum { SAMPLE = 8 };

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
static size_t choose_rows(const struct swiglu_desc *desc, size_t m, const float *y, uint64_t seed, size_t *rows) {
    double work = (double)m * (double)desc->d_ff * (2 * (double)desc->d_in + (double)desc->d_out);
    size_t n = 0, n_chosen = 0;
    if (m <= SAMPLE || work <= ALL_ROWS_MAX) {
        for (; n < m; n++) rows[n] = n;
        return m;
    }
    n = add_row(rows, n, 0);
    n = add_row(rows, n, m - 1);
    for (uint64_t i = 0; n < SAMPLE; i++)
        n = add_row(rows, n, 1 + (size_t)(cli_noise_bits(seed, CLI_STREAM_ROWS, i) % (m - 2)));
    for (size_t r = 0; r < m && n_chosen < SAMPLE; r++) {
        struct cli_classes classes = cli_classes_of(y + r * desc->d_out, desc->d_out);
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

static void find_terms(const struct swiglu_desc *desc, const double *hidden, struct cli_verdict *verdict) {
    float *weight = cli_alloc(desc->d_ff, sizeof *weight);
    if (read_row(&desc->down, verdict->col, weight)) verdict->n_terms = 0;
    else
        for (size_t i = 0; i < desc->d_ff; i++) {
            struct cli_term term = {i, hidden[i], (double)weight[i]};
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

struct figures {
    double *y, *bound, *typical, *plain, *hidden;
};

static void compare(const struct figures *f, size_t d_out, const size_t *rows, const float *y,
                    struct cli_verdict *verdict) {
    double difference = 0, size = 0;
    size_t worst_at = 0;
    for (size_t r = 0; r < verdict->n_rows; r++)
        for (size_t c = 0; c < d_out; c++) {
            size_t at = r * d_out + c;
            double got = (double)y[rows[r] * d_out + c], q = ratio(got, f->y[at], f->bound[at]);
            double typical = ratio(got, f->y[at], f->typical[at]);
            if (typical > verdict->typical) verdict->typical = typical;
            verdict->n_open += !isfinite(f->bound[at]) && !isnan(f->y[at]);
            verdict->kept &= q <= 1;
            if (isfinite(f->y[at]) && !isfinite(got)) q = INFINITY;
            if (isfinite(f->plain[at])) {
                difference += (got - f->plain[at]) * (got - f->plain[at]);
                size += f->plain[at] * f->plain[at];
            }
            if (at && !(q > verdict->worst)) continue;
            worst_at = at;
            verdict->worst = q, verdict->y = got, verdict->reference = f->y[at], verdict->bound = f->bound[at];
        }
    verdict->frobenius = size > 0 || difference != 0 ? sqrt(difference / size) : 0;
    if (verdict->n_rows && d_out) verdict->row = worst_at / d_out, verdict->col = worst_at % d_out;
}

static float *gather(size_t n, const size_t *rows, size_t width, const float *x) {
    float *part = cli_alloc(n * width, sizeof *part);
    for (size_t r = 0; r < n && width; r++) memcpy(part + r * width, x + rows[r] * width, width * sizeof *part);
    return part;
}

void cli_judge(const struct swiglu_desc *desc, int compute, size_t m, const float *x, const float *y, uint64_t seed,
               struct cli_verdict *verdict, const char *what) {
    size_t *rows = cli_alloc(m < 2 * SAMPLE ? 2 * SAMPLE : m, sizeof *rows), n = choose_rows(desc, m, y, seed, rows);
    *verdict = (struct cli_verdict){.n_rows = n, .kept = 1, .classes = cli_classes_of(y, m * desc->d_out)};
    size_t n_out = n * desc->d_out;
    double *figures = cli_alloc(4 * n_out + n * desc->d_ff, sizeof *figures);
    struct figures f = {figures, figures + n_out, figures + 2 * n_out, figures + 3 * n_out, figures + 4 * n_out};
    float *part = gather(n, rows, desc->d_in, x);
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_reference reference = {.struct_size = sizeof reference, .compute = compute, .y_dtype = SWIGLU_F32,
                                         .y = f.y, .bound = f.bound, .typical = f.typical, .plain = f.plain,
                                         .hidden = f.hidden};
    cli_require(swiglu_reference_run(desc, n, (struct swiglu_crows){part, SWIGLU_F32, 0}, &reference, &error), &error,
                what);
    compare(&f, desc->d_out, rows, y, verdict);
    if (!cli_verdict_passed(verdict)) find_terms(desc, f.hidden + verdict->row * desc->d_ff, verdict);
    if (n) verdict->row = rows[verdict->row];
    free(part);
    free(figures);
    free(rows);
}

int cli_verdict_passed(const struct cli_verdict *verdict) { return verdict->worst <= 1; }

int cli_verdict_finite(const struct cli_verdict *verdict) {
    return !verdict->classes.n_nan && !verdict->classes.n_inf && !verdict->n_open;
}

void cli_verdict_explain(const struct cli_verdict *verdict, const char *what, const char *command) {
    char terms[512] = "";
    cli_note("check failed: %s, row %zu, column %zu: y %.9g, reference %.9g, bound %.3g, |y - reference| / bound %.4g",
             what, verdict->row, verdict->col, verdict->y, verdict->reference, verdict->bound, verdict->worst);
    for (size_t i = 0; i < verdict->n_terms; i++) {
        const struct cli_term *t = &verdict->term[i];
        snprintf(terms + strlen(terms), sizeof terms - strlen(terms), "%s h[%zu] %.7g x %.7g = %.7g", i ? "," : "",
                 t->index, t->hidden, t->weight, t->hidden * t->weight);
    }
    cli_note("  largest terms of the down sum (hidden value x weight):%s", terms);
    cli_note("  to see it again: %s", command);
}
