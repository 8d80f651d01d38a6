/* SPDX-License-Identifier: Apache-2.0 */
#include "ref/reference.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/half.h"
#include "dtype/dtype.h"
#include "ref/act_double.h"
#include "ref/int8.h"

static const double U = 0x1p-24;     /* unit roundoff of f32 */
static const double SAFE = 0x1p126;  /* sums of magnitudes below it cannot overflow in f32 */
static const double CHUNK = 1024;    /* L of the contract */

/* Every error is kept twice: with the worst case of a chain and with its typical size. */
enum { WORST, TYPICAL, N_BOUNDS };

struct estimate {
    double value, error[N_BOUNDS];
    int sure; /* 0: f32 may overflow or reach another class, so nothing is known */
};

struct sums {
    double value, magnitude;
    int sure; /* before magnitudes are looked at */
};

/* A matrix of the description: as f32, row-major [outputs][inputs], and where int8 compute reads it as it is stored, too. */
struct matrix {
    float *values;
    const struct swiglu_dtype_row *type;
    const unsigned char *stored;
    void *owned; /* NULL, or what stored points to */
    size_t ld_bytes;
};
struct weights { struct matrix gate, up, down; };

/* One row of a matrix as its product takes it. */
struct line {
    double *values;
    struct swiglu_quant_part *parts; /* int8 */
};

/* m rows of depth k as their product takes them. */
struct staged {
    int compute;
    size_t k;
    double *values;                  /* rounded where that computes in bf16; int8: as they are */
    struct swiglu_ref_group *groups; /* int8: what stands for them */
};

/* One evaluation: rounded for these computes, into these arrays (all but y may be NULL). */
struct evaluation {
    const struct swiglu_desc *desc;
    const struct weights *weights;
    size_t m;
    int compute_first, compute_down, y_dtype;
    struct staged x, h;
    struct line gate, line;    /* of gate; of up or down */
    double *error[N_BOUNDS];   /* m x d_ff, of h; infinite where the value is not sure */
    char *sure;                /* m */
    double *y, *bound[N_BOUNDS];
};

static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; } /* an error of 0 stays 0 */

static double growth(const struct staged *x, const struct line *w, int kind) {
    const double depth = (double)x->k;
    if (x->compute == SWIGLU_COMPUTE_INT8) return swiglu_ref_int8_growth(w->parts, x->k, kind == TYPICAL);
    return U * (kind == WORST ? fmin(depth, CHUNK) + ceil(depth / CHUNK) : 4 * sqrt(depth));
}

/* Each operation may lose this much to underflow, or to the flush of bf16 compute. */
static double underflow(const struct staged *x) {
    if (x->compute == SWIGLU_COMPUTE_INT8) return swiglu_ref_int8_underflow(x->k);
    return (double)x->k * (x->compute == SWIGLU_COMPUTE_BF16 ? 0x1p-126 : 0x1p-149);
}

static float enter(float f, int compute) {
    return compute == SWIGLU_COMPUTE_BF16 ? swiglu_bf16_widen(swiglu_bf16_staging(f)) : f;
}

static void enter_row(const float *src, size_t n, int compute, double *dst) {
    for (size_t i = 0; i < n; i++) dst[i] = enter(src[i], compute);
}

/* ---- products ---- */

static struct sums dot(const double *x, const double *w, size_t k) {
    struct sums s = {0, 0, 1};
    for (size_t i = 0; i < k; i++) {
        const double term = x[i] * w[i];
        s.value += term;
        s.magnitude += fabs(term);
    }
    if (isfinite(s.magnitude)) return s;
    s.magnitude = 0; /* an infinity decides the class by itself: whether the rest can overflow is what counts */
    for (size_t i = 0; i < k; i++)
        if (isfinite(x[i] * w[i])) s.magnitude += fabs(x[i] * w[i]);
    return s;
}

static struct sums product(const struct staged *x, size_t row, const struct line *w) {
    if (x->compute != SWIGLU_COMPUTE_INT8) return dot(x->values + row * x->k, w->values, x->k);
    const struct swiglu_ref_folds f = swiglu_ref_int8_dot(w->parts, x->groups + row * x->k / SWIGLU_QUANT_PART, x->k);
    return (struct sums){f.value, f.magnitude, f.sure};
}

static void read_line(const struct matrix *m, size_t row, const struct staged *x, const struct line *line) {
    if (x->compute != SWIGLU_COMPUTE_INT8) {
        enter_row(m->values + row * x->k, x->k, x->compute, line->values);
        return;
    }
    const unsigned per_block = (unsigned)(m->type->block_elems / SWIGLU_QUANT_PART);
    for (size_t i = 0; i < x->k / SWIGLU_QUANT_PART; i++)
        m->type->part(m->stored + row * m->ld_bytes + i / per_block * m->type->block_bytes, (unsigned)(i % per_block),
                      &line->parts[i]);
}

static struct estimate first_product(const struct evaluation *e, size_t row, const struct line *w, double bias) {
    const struct sums s = product(&e->x, row, w);
    struct estimate p = {s.value + bias, {0, 0}, s.sure && s.magnitude + (isfinite(bias) ? fabs(bias) : 0) < SAFE};
    if (!isfinite(p.value)) return p;
    for (int i = 0; i < N_BOUNDS; i++)
        p.error[i] = growth(&e->x, w, i) * s.magnitude + U * fabs(p.value) + underflow(&e->x);
    return p;
}

/* ---- between the products ---- */

/* Clamps let NaN through. */
static double clamp(double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; }

static struct estimate gate_side(const struct swiglu_act *act, struct estimate g) {
    const int before = !act->clamp_after;
    const double at = before ? clamp(g.value, act->gate_lo, act->gate_hi) : g.value;
    const double value = swiglu_ref_act(act, at);
    struct estimate a = {before ? value : clamp(value, act->gate_lo, act->gate_hi), {0, 0}, g.sure};
    if (!isfinite(at) || !isfinite(value)) return a;
    const double noise = swiglu_ref_act_noise(act, at);
    a.sure &= fabs(value) < SAFE;
    for (int i = 0; i < N_BOUNDS; i++) {
        double lo = g.value - g.error[i], hi = g.value + g.error[i];
        if (before) lo = clamp(lo, act->gate_lo, act->gate_hi), hi = clamp(hi, act->gate_lo, act->gate_hi);
        a.error[i] = times(swiglu_ref_act_slope(act, lo, hi), g.error[i]) + swiglu_ref_act_jump(act, lo, hi) +
                     noise;
    }
    return a;
}

static struct estimate up_side(const struct swiglu_act *act, struct estimate u) {
    const double at = clamp(u.value, act->up_lo, act->up_hi), offset = act->up_offset;
    const double value = swiglu_ref_up(act, at);
    struct estimate up = {value + offset, {0, 0}, u.sure};
    if (!isfinite(at)) return up;
    up.sure &= fabs(up.value) < SAFE;
    for (int i = 0; i < N_BOUNDS; i++) {
        const double lo = clamp(u.value - u.error[i], act->up_lo, act->up_hi);
        const double hi = clamp(u.value + u.error[i], act->up_lo, act->up_hi);
        up.error[i] = times(swiglu_ref_up_slope(act, lo, hi), u.error[i]) + swiglu_ref_up_noise(act, at) +
                      (offset != 0 ? U * fabs(up.value) : 0);
    }
    return up;
}

/* Infinite times something that f32 may see with the other sign, or as zero. */
static int class_hangs(struct estimate a, struct estimate b) {
    return isinf(a.value) && b.error[WORST] > 0 && fabs(b.value) <= b.error[WORST];
}

static struct estimate multiply(struct estimate a, struct estimate b) {
    struct estimate h = {a.value * b.value, {0, 0}, a.sure && b.sure && !class_hangs(a, b) && !class_hangs(b, a)};
    if (!isfinite(h.value)) return h;
    for (int i = 0; i < N_BOUNDS; i++)
        h.error[i] = times(fabs(b.value), a.error[i]) + times(fabs(a.value), b.error[i]) + a.error[i] * b.error[i] +
                     U * fabs(h.value) + 0x1p-149;
    return h;
}

/* h enters the down product. Where that computes in bf16 it is rounded here as well, so that it is off only where the error
 * may carry it across a boundary of that rounding. */
static struct estimate enter_down(struct estimate h, int compute) {
    if (!isfinite(h.value)) return h;
    h.sure &= fabs(h.value) + h.error[WORST] < SAFE;
    if (compute != SWIGLU_COMPUTE_BF16 || !h.sure) return h;
    const double exact = h.value;
    h.value = enter((float)exact, compute);
    for (int i = 0; i < N_BOUNDS; i++)
        h.error[i] = fmax(enter((float)(exact + h.error[i]), compute) - h.value,
                          h.value - enter((float)(exact - h.error[i]), compute));
    return h;
}

/* ---- the two passes ---- */

static size_t gate_row(const struct swiglu_desc *d, size_t j) {
    switch (d->layout) {
    case SWIGLU_UP_GATE: return d->d_ff + j;
    case SWIGLU_INTERLEAVED: return 2 * j;
    default: return j;
    }
}

static size_t up_row(const struct swiglu_desc *d, size_t j) {
    switch (d->layout) {
    case SWIGLU_GATE_UP: return d->d_ff + j;
    case SWIGLU_INTERLEAVED: return 2 * j + 1;
    default: return j;
    }
}

static int is_packed(const struct swiglu_desc *d) {
    return d->layout == SWIGLU_GATE_UP || d->layout == SWIGLU_UP_GATE || d->layout == SWIGLU_INTERLEAVED;
}

static double bias_at(const struct swiglu_vector *v, size_t i) { return v->data ? swiglu_vector_at(v, i) : 0; }

static struct estimate hidden_value(const struct evaluation *e, size_t r, size_t j) {
    const struct swiglu_desc *d = e->desc;
    const struct swiglu_vector *up_bias = is_packed(d) ? &d->gate_bias : &d->up_bias;
    const struct estimate u = first_product(e, r, &e->line, bias_at(up_bias, up_row(d, j)));
    if (d->layout == SWIGLU_UNGATED) return gate_side(&d->act, u);
    const struct estimate g = first_product(e, r, &e->gate, bias_at(&d->gate_bias, gate_row(d, j)));
    return multiply(gate_side(&d->act, g), up_side(&d->act, u));
}

static void first_pass(const struct evaluation *e) {
    const struct swiglu_desc *d = e->desc;
    memset(e->sure, 1, e->m);
    for (size_t j = 0; j < d->d_ff; j++) {
        read_line(is_packed(d) ? &e->weights->gate : &e->weights->up, up_row(d, j), &e->x, &e->line);
        if (d->layout != SWIGLU_UNGATED) read_line(&e->weights->gate, gate_row(d, j), &e->x, &e->gate);
        for (size_t r = 0; r < e->m; r++) {
            const struct estimate h = enter_down(hidden_value(e, r, j), e->compute_down);
            const size_t at = r * d->d_ff + j;
            e->h.values[at] = h.value;
            for (int i = 0; i < N_BOUNDS; i++) e->error[i][at] = h.sure ? h.error[i] : INFINITY;
            e->sure[r] &= h.sure;
        }
    }
}

/* The caller's h stands for that of x: nothing before it counts. */
static void take_hidden(const struct evaluation *e, const float *h) {
    const size_t n = e->m * e->desc->d_ff;
    enter_row(h, n, e->compute_down, e->h.values);
    for (int i = 0; i < N_BOUNDS; i++) memset(e->error[i], 0, n * sizeof **e->error);
    memset(e->sure, 1, e->m);
}

/* int8: what stands for h in down. A given h is known exactly. */
static void round_hidden(const struct evaluation *e, const float *given) {
    const size_t per_row = e->h.k / SWIGLU_QUANT_PART;
    for (size_t i = 0; i < e->m * per_row; i++) {
        const size_t at = i * SWIGLU_QUANT_PART;
        double *const error[N_BOUNDS] = {e->error[WORST] + at, e->error[TYPICAL] + at};
        if (given) swiglu_ref_int8_enter(given + at, &e->h.groups[i]);
        else e->sure[i / per_row] &= swiglu_ref_int8_round(e->h.values + at, error, &e->h.groups[i]);
    }
}

/* sum |w| error. Weights that are not finite decide the class: an infinite one hangs on the sign of h. */
static double carried_error(const struct staged *rows, size_t row, const struct line *line, const double *error) {
    const double *const w = line->values, *const h = rows->values + row * rows->k;
    const size_t k = rows->k;
    double sum = 0;
    if (rows->compute == SWIGLU_COMPUTE_INT8)
        return swiglu_ref_int8_carried(line->parts, error, k, growth(rows, line, WORST));
    for (size_t i = 0; i < k; i++) sum += fabs(w[i]) * error[i];
    if (isfinite(sum)) return sum;
    sum = 0;
    for (size_t i = 0; i < k; i++) {
        if (isfinite(w[i])) sum += fabs(w[i]) * error[i];
        else if (isinf(w[i]) && error[i] > 0 && fabs(h[i]) <= error[i]) return INFINITY;
    }
    return sum;
}

/* Rounding of y: relative, then half the smallest subnormal; and from where on it may become infinite. */
static double round_y(int dtype, double y, double error) {
    switch (dtype) {
    case SWIGLU_F16: return fabs(y) + error >= 65520 ? INFINITY : 0x1p-11 * fabs(y) + 0x1p-25;
    case SWIGLU_BF16: return 0x1p-8 * fabs(y) + 0x1p-134;
    default: return 0;
    }
}

static void second_pass(const struct evaluation *e) {
    const size_t k = e->h.k, n = e->desc->d_out;
    for (size_t j = 0; j < n; j++) {
        const double bias = bias_at(&e->desc->down_bias, j);
        read_line(&e->weights->down, j, &e->h, &e->line);
        for (size_t r = 0; r < e->m; r++) {
            const struct sums s = product(&e->h, r, &e->line);
            const double y = s.value + bias;
            const int sure = e->sure[r] && s.sure && s.magnitude + (isfinite(bias) ? fabs(bias) : 0) < SAFE;
            e->y[r * n + j] = y;
            for (int i = 0; i < N_BOUNDS; i++) {
                if (!e->bound[i]) continue;
                const double carried = carried_error(&e->h, r, &e->line, e->error[i] + r * k);
                double bound = carried + growth(&e->h, &e->line, i) * s.magnitude + U * fabs(y) + underflow(&e->h);
                if (!isfinite(y) && isfinite(carried)) bound = 0; /* the class is certain */
                else bound += round_y(e->y_dtype, y, bound);
                e->bound[i][r * n + j] = sure ? bound : INFINITY;
            }
        }
    }
}

/* ---- memory ---- */

/* A matrix as f32, row-major [rows][cols] however it is stored. */
static enum swiglu_status decode_matrix(const struct swiglu_matrix *m, float **out, struct swiglu_error *error) {
    const size_t rows = swiglu_matrix_stored_rows(m), cols = swiglu_matrix_stored_cols(m);
    enum swiglu_status status = SWIGLU_OK;
    size_t n, bytes;
    REQUIRE(!SW_MUL(rows, cols, &n) && !SW_MUL(n, sizeof **out, &bytes), SWIGLU_E_SHAPE,
            "reference: %zu x %zu overflows", rows, cols);
    float *w = *out = swiglu_alloc(bytes); /* freed by the caller, on errors too */
    float *line = swiglu_alloc_array(cols, sizeof *line);
    void *scratch = swiglu_alloc(swiglu_matrix_row_bytes(m));
    if (!w || !line || !scratch)
        status = swiglu_fail(error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, 0, "reference: no memory for %zu x %zu weights",
                             rows, cols);
    for (size_t i = 0; i < rows && cols && !status; i++) { /* without values there may be no data either */
        status = swiglu_matrix_row(m, i, m->in_out ? line : w + i * cols, scratch, error);
        if (m->in_out)
            for (size_t j = 0; j < cols && !status; j++) w[j * rows + i] = line[j];
    }
    swiglu_free(scratch);
    swiglu_free(line);
    return status;
}

/* The stored rows themselves: the caller's memory, or what read gives. */
static enum swiglu_status keep_stored(const struct swiglu_matrix *m, struct matrix *out, struct swiglu_error *error) {
    const size_t bytes = swiglu_matrix_row_bytes(m);
    out->type = swiglu_dtype_find(m->dtype);
    out->ld_bytes = m->data ? swiglu_matrix_ld_bytes(m) : bytes;
    out->stored = m->data ? (const unsigned char *)m->data + m->start : NULL;
    if (m->data || !bytes) return SWIGLU_OK;
    out->stored = out->owned = swiglu_alloc_array(m->rows, bytes);
    REQUIRE(out->owned, SWIGLU_E_MEMORY, "reference: no memory for %zu rows of %zu bytes", m->rows, bytes);
    for (size_t i = 0; i < m->rows; i++)
        TRY(m->read(m->ctx, m->start + (uint64_t)i * swiglu_matrix_ld_bytes(m), (char *)out->owned + i * bytes, bytes, error));
    return SWIGLU_OK;
}

static enum swiglu_status read_matrix(const struct swiglu_matrix *m, int compute, struct matrix *out,
                                      struct swiglu_error *error) {
    TRY(decode_matrix(m, &out->values, error));
    return compute == SWIGLU_COMPUTE_INT8 ? keep_stored(m, out, error) : SWIGLU_OK;
}

static enum swiglu_status read_weights(const struct evaluation *e, struct weights *w, struct swiglu_error *error) {
    const struct swiglu_desc *d = e->desc;
    if (d->layout != SWIGLU_UNGATED) TRY(read_matrix(&d->gate, e->compute_first, &w->gate, error));
    if (!is_packed(d)) TRY(read_matrix(&d->up, e->compute_first, &w->up, error));
    return read_matrix(&d->down, e->compute_down, &w->down, error);
}

static void free_matrix(struct matrix *m) {
    swiglu_free(m->values);
    swiglu_free(m->owned);
}

static void load_x(const struct evaluation *e, struct swiglu_crows x) {
    const struct swiglu_dtype_row *type = swiglu_dtype_find(x.dtype);
    const size_t width = e->desc->d_in;
    for (size_t r = 0; r < e->m; r++) {
        const char *src = (const char *)x.data + r * x.ld_elems * type->block_bytes;
        for (size_t i = 0; i < width; i++) {
            float f;
            type->decode(src + i * type->block_bytes, 1, &f);
            e->x.values[r * width + i] = enter(f, e->compute_first);
        }
    }
}

static void round_x(const struct evaluation *e) {
    const size_t per_row = e->x.k / SWIGLU_QUANT_PART;
    for (size_t i = 0; i < e->m * per_row; i++) {
        float x[SWIGLU_QUANT_PART];
        for (size_t k = 0; k < SWIGLU_QUANT_PART; k++) x[k] = (float)e->x.values[i * SWIGLU_QUANT_PART + k]; /* exact */
        swiglu_ref_int8_enter(x, &e->x.groups[i]);
    }
}

static double *doubles(size_t rows, size_t cols) {
    size_t n;
    return SW_MUL(rows, cols, &n) ? NULL : swiglu_alloc_array(n, sizeof(double));
}

static void fill(struct evaluation *e, struct swiglu_crows x, const struct swiglu_reference *out, double *own_y) {
    const size_t n = e->m * e->desc->d_ff;
    load_x(e, x);
    if (e->x.compute == SWIGLU_COMPUTE_INT8) round_x(e);
    first_pass(e);
    if (out->hidden) memcpy(out->hidden, e->h.values, n * sizeof *out->hidden);
    if (out->hidden_bound) memcpy(out->hidden_bound, e->error[WORST], n * sizeof *out->hidden_bound);
    if (own_y) {
        struct evaluation own = *e;
        own.y = own_y;
        own.bound[WORST] = own.bound[TYPICAL] = NULL;
        second_pass(&own);
    }
    if (out->h) take_hidden(e, out->h);
    if (e->h.compute == SWIGLU_COMPUTE_INT8) round_hidden(e, out->h);
    second_pass(e);
}

static int allocate_rows(struct staged *rows, int compute, size_t m, size_t k) {
    *rows = (struct staged){.compute = compute, .k = k, .values = doubles(m, k)};
    size_t n;
    if (compute != SWIGLU_COMPUTE_INT8) return rows->values != NULL;
    if (!SW_MUL(m, k / SWIGLU_QUANT_PART, &n)) rows->groups = swiglu_alloc_array(n, sizeof *rows->groups);
    return rows->values && rows->groups;
}

static int allocate_line(struct line *line, size_t k) {
    *line = (struct line){doubles(1, k), swiglu_alloc_array(k / SWIGLU_QUANT_PART + 1, sizeof *line->parts)};
    return line->values && line->parts;
}

/* Fills y and the bounds of *e and what out wants of h; own_y, or NULL: y of x where out gives another h. */
static enum swiglu_status evaluate(struct evaluation e, struct swiglu_crows x, const struct swiglu_reference *out,
                                   double *own_y, struct swiglu_error *error) {
    const struct swiglu_desc *d = e.desc;
    const size_t widest = swiglu_max(d->d_in, d->d_ff);
    enum swiglu_status status = SWIGLU_OK;
    int enough = allocate_rows(&e.x, e.compute_first, e.m, d->d_in) & allocate_rows(&e.h, e.compute_down, e.m, d->d_ff) &
                 allocate_line(&e.gate, widest) & allocate_line(&e.line, widest);
    for (int i = 0; i < N_BOUNDS; i++) enough &= (e.error[i] = doubles(e.m, d->d_ff)) != NULL;
    enough &= (e.sure = swiglu_alloc(e.m)) != NULL;
    if (enough) fill(&e, x, out, own_y);
    else status = swiglu_fail(error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, 0, "reference: no memory for %zu rows", e.m);
    void *const all[] = {e.x.values, e.x.groups, e.h.values, e.h.groups, e.gate.values, e.gate.parts, e.line.values,
                         e.line.parts, e.error[WORST], e.error[TYPICAL], e.sure};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) swiglu_free(all[i]);
    return status;
}

static enum swiglu_status run(struct evaluation e, struct swiglu_crows x, const struct swiglu_reference *out,
                              struct swiglu_error *error) {
    /* f32 compute takes every value as it is */
    const int as_is = e.compute_first == SWIGLU_COMPUTE_F32 && e.compute_down == SWIGLU_COMPUTE_F32;
    TRY(evaluate(e, x, out, as_is && out->h ? out->plain : NULL, error));
    if (!out->plain || (as_is && out->h)) return SWIGLU_OK;
    if (as_is) {
        memcpy(out->plain, out->y, e.m * e.desc->d_out * sizeof *out->plain);
        return SWIGLU_OK;
    }
    const struct swiglu_reference nothing = {0};
    e.compute_first = e.compute_down = SWIGLU_COMPUTE_F32;
    e.y = out->plain;
    e.bound[WORST] = e.bound[TYPICAL] = NULL;
    return evaluate(e, x, &nothing, NULL, error);
}

enum swiglu_status swiglu_reference_compute(const struct swiglu_desc *desc, size_t m, struct swiglu_crows x,
                                            const struct swiglu_reference *out, struct swiglu_error *error) {
    const int first = desc->layout == SWIGLU_UNGATED ? desc->up.dtype : desc->gate.dtype;
    const int second = desc->layout == SWIGLU_SEPARATE ? desc->up.dtype : first;
    struct weights weights = {0};
    const struct evaluation e = {
        .desc = desc, .weights = &weights, .m = m, .y_dtype = out->y_dtype, .y = out->y, .bound = {out->bound, out->typical},
        .compute_first = swiglu_compute_resolve(out->compute, first, second),
        .compute_down = swiglu_compute_resolve(out->compute, desc->down.dtype, desc->down.dtype)};
    if (m == 0) return SWIGLU_OK;
    enum swiglu_status status = read_weights(&e, &weights, error);
    if (!status) status = run(e, x, out, error);
    free_matrix(&weights.gate);
    free_matrix(&weights.up);
    free_matrix(&weights.down);
    return status;
}
