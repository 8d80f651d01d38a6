/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: against the formula written down once more, in long double and one output at a time; its bound against
 * errors that must be seen; the slopes behind the bound against the function itself.
 */
#include "forward.h"

#include "ref/act_double.h"
#include "ref/reference.h"

/* ---- the formula ---- */

static long double act_of(const struct swiglu_act *a, long double t) {
    const float *p = a->param;
    switch (a->kind) {
    case SWIGLU_ACT_IDENTITY: return t;
    case SWIGLU_ACT_RELU: return t > 0 ? t : 0;
    case SWIGLU_ACT_RELU2: return t > 0 ? t * t : 0;
    case SWIGLU_ACT_SIGMOID: return 1 / (1 + expl(-t));
    case SWIGLU_ACT_SILU: return t / (1 + expl(-a->alpha * t));
    case SWIGLU_ACT_GELU_ERF: return t * (1 + erfl(t / sqrtl(2))) / 2;
    case SWIGLU_ACT_GELU_TANH: return t * (1 + tanhl(sqrtl(2 / acosl(-1)) * (t + 0.044715L * t * t * t))) / 2;
    case SWIGLU_ACT_XIELU:
        return t > 0 ? p[0] * t * t + p[2] * t : (expm1l(t < p[3] ? t : p[3]) - t) * p[1] + p[2] * t;
    default: return p[0] * tanhl(t / p[0]) / (1 + expl(-t));
    }
}

static long double limit(long double v, long double lo, long double hi) { return fminl(fmaxl(v, lo), hi); }

static long double weight(const struct swiglu_matrix *m, size_t row, size_t col) {
    return get_float(m->data, m->dtype, m->in_out ? col * m->ld_elems + row : row * m->ld_elems + col);
}

/* Unit j of the first product: which = 0 gate, 1 up. */
static long double first_product(const struct swiglu_desc *d, int which, size_t j, const float *x) {
    const struct swiglu_matrix *m = &d->gate;
    const struct swiglu_vector *bias = &d->gate_bias;
    size_t row = j;
    if (d->layout == SWIGLU_GATE_UP) row = which ? d->d_ff + j : j;
    if (d->layout == SWIGLU_UP_GATE) row = which ? j : d->d_ff + j;
    if (d->layout == SWIGLU_INTERLEAVED) row = 2 * j + (size_t)which;
    if (which && (d->layout == SWIGLU_SEPARATE || d->layout == SWIGLU_UNGATED)) m = &d->up, bias = &d->up_bias;
    long double sum = bias->data ? get_float(bias->data, bias->dtype, row) : 0;
    for (size_t k = 0; k < d->d_in; k++) sum += weight(m, row, k) * x[k];
    return sum;
}

/* h enters down as it is, or rounded to bf16. */
static long double output(const struct swiglu_desc *d, const float *x, size_t o, int rounded) {
    const struct swiglu_act *a = &d->act;
    long double sum = d->down_bias.data ? get_float(d->down_bias.data, d->down_bias.dtype, o) : 0;
    for (size_t j = 0; j < d->d_ff; j++) {
        const int gated = d->layout != SWIGLU_UNGATED;
        long double g = first_product(d, !gated, j, x), h;
        if (!a->clamp_after) g = limit(g, a->gate_lo, a->gate_hi);
        h = act_of(a, g);
        if (a->clamp_after) h = limit(h, a->gate_lo, a->gate_hi);
        if (gated) {
            long double u = limit(first_product(d, 1, j, x), a->up_lo, a->up_hi);
            if (a->kind == SWIGLU_ACT_SITU) u = a->param[1] * tanhl(u / a->param[1]);
            h *= u + a->up_offset;
        }
        if (rounded) h = swiglu_bf16_widen(swiglu_bf16_staging((float)h));
        sum += weight(&d->down, o, j) * h;
    }
    return sum;
}

enum { D_IN = 13, D_FF = 17, D_OUT = 9, ROWS = 3 };

static void reference_is_the_formula(void **state) {
    (void)state;
    uint64_t seed = 5;
    const char *name;
    for (size_t i = 0; (name = swiglu_act_name(i, NULL)); i++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
            for (int in_out = 0; in_out < 2; in_out++) {
                struct block_data b = new_block(D_IN, D_FF, D_OUT, layout, name, SWIGLU_F32, in_out, in_out, seed);
                float *x = new_floats(SWIGLU_F32, ROWS * D_IN, 4, &seed); /* large enough to meet the clamps */
                double y[ROWS * D_OUT], plain[ROWS * D_OUT], hidden[ROWS * D_FF];
                const struct swiglu_reference out = {.struct_size = sizeof out, .y = y, .plain = plain,
                                                     .hidden = hidden};
                assert_int_equal(swiglu_reference_compute(&b.desc, ROWS, (struct swiglu_crows){x, SWIGLU_F32, D_IN},
                                                          &out, NULL), SWIGLU_OK);
                for (size_t r = 0; r < ROWS; r++)
                    for (size_t o = 0; o < D_OUT; o++) {
                        const double want = (double)output(&b.desc, x + r * D_IN, o, 0);
                        assert_true(fabs(y[r * D_OUT + o] - want) <= 1e-11 * (1 + fabs(want)));
                        assert_true(plain[r * D_OUT + o] == y[r * D_OUT + o]);
                    }
                free(x);
                free_block(&b);
            }
}

static void bf16_compute_rounds_its_inputs_and_h(void **state) {
    (void)state;
    uint64_t seed = 6;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 7);
    float *x = new_floats(SWIGLU_F32, D_IN, 1, &seed), rounded[D_IN];
    double y[D_OUT], plain[D_OUT];
    const struct swiglu_reference out = {.struct_size = sizeof out, .compute = SWIGLU_COMPUTE_BF16, .y = y,
                                         .plain = plain};
    x[3] = 1e-39f; /* counts as zero in bf16 compute */
    assert_int_equal(swiglu_reference_compute(&b.desc, 1, (struct swiglu_crows){x, SWIGLU_F32, D_IN}, &out, NULL),
                     SWIGLU_OK);
    for (size_t o = 0; o < D_OUT; o++) assert_true(fabs(plain[o] - (double)output(&b.desc, x, o, 0)) < 1e-13);
    for (size_t k = 0; k < D_IN; k++) rounded[k] = swiglu_bf16_widen(swiglu_bf16_store(x[k]));
    rounded[3] = 0;
    for (int i = 0; i < 3; i++) {
        float *w = b.memory[i];
        const size_t n = i == 2 ? D_OUT * D_FF : D_FF * D_IN;
        for (size_t k = 0; k < n; k++) w[k] = swiglu_bf16_widen(swiglu_bf16_store(w[k]));
    }
    for (size_t o = 0; o < D_OUT; o++) {
        assert_true(fabs(y[o] - (double)output(&b.desc, rounded, o, 1)) < 1e-13);
        assert_true(fabs(y[o] - plain[o]) > 1e-6);
    }
    free(x);
    free_block(&b);
}

/* ---- the bound ---- */

/* How far from the reference a block is, in bounds, whose weight at the given place was dropped. */
static double ratio_without(struct block_data *b, int which, size_t place, size_t d_in, size_t d_out) {
    uint64_t seed = 8;
    float *x = new_floats(SWIGLU_F32, d_in, 1, &seed), *w = b->memory[which];
    double *y = calloc(3 * d_out, sizeof *y), *bound = y + d_out, *broken = y + 2 * d_out, worst = 0;
    const struct swiglu_crows rows = {x, SWIGLU_F32, d_in};
    struct swiglu_reference out = {.struct_size = sizeof out, .y = y, .bound = bound};
    assert_int_equal(swiglu_reference_compute(&b->desc, 1, rows, &out, NULL), SWIGLU_OK);
    const float kept = w[place];
    w[place] = 0;
    out = (struct swiglu_reference){.struct_size = sizeof out, .y = broken};
    assert_int_equal(swiglu_reference_compute(&b->desc, 1, rows, &out, NULL), SWIGLU_OK);
    w[place] = kept;
    for (size_t o = 0; o < d_out; o++) worst = fmax(worst, judge(broken[o], y[o], bound[o]));
    free(x);
    free(y);
    return worst;
}

/* The test of the test: one k term of typical size left out is seen, in each product of a block of 128 and in the down
 * product of a small model's width. (In a wide first product the worst case of all 1536 chains hides one term of one
 * chain; there equality of bits with the generic level decides.) */
static void a_dropped_term_exceeds_the_bound(void **state) {
    (void)state;
    struct block_data small = new_block(128, 128, 128, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 9);
    struct block_data wide = new_block(576, 1536, 576, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 10);
    for (int which = 0; which < 3; which++) {
        ((float *)small.memory[which])[5 * 128 + 77] = 0.09f; /* 1 / sqrt(128) */
        assert_true(ratio_without(&small, which, 5 * 128 + 77, 128, 128) > 1);
    }
    ((float *)wide.memory[2])[5 * 1536 + 700] = 0.025f;
    assert_true(ratio_without(&wide, 2, 5 * 1536 + 700, 576, 576) > 1);
    free_block(&small);
    free_block(&wide);
}

/* ---- one half at a time ---- */

/* The place in a sum of n products whose magnitude is nearest the root mean square. */
static size_t typical_term(const float *w, const float *x, size_t n) {
    double square = 0, nearest = INFINITY;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) square += (double)w[i] * x[i] * w[i] * x[i];
    for (size_t i = 0; i < n; i++) {
        const double off = fabs(fabs((double)w[i] * x[i]) - sqrt(square / (double)n));
        if (off < nearest) nearest = off, found = i;
    }
    return found;
}

/* h, and y of that h (or of the h that is given), of the library. */
static void halves(const struct swiglu_desc *d, int compute, const float *x, const float *given, float *h, float *y) {
    struct swiglu_block *block = prepare(d, compute, 0);
    struct swiglu_work work;
    assert_int_equal(swiglu_forward_bytes(block, 1, 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    assert_int_equal(swiglu_hidden(block, 1, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){h, SWIGLU_F32, 0},
                                   work, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_down(block, 1, (struct swiglu_crows){given ? given : h, SWIGLU_F32, 0},
                                 (struct swiglu_rows){y, SWIGLU_F32, 0}, work, NULL), SWIGLU_OK);
    free(work.data);
    swiglu_block_destroy(block);
}

enum { WIDE_IN = 2048, WIDE_FF = 5632, NARROW = 8 };

struct half_judge {
    double hidden[WIDE_FF], hidden_bound[WIDE_FF], y[NARROW], bound[NARROW];
};

static double judge_half(const float *got, const double *want, const double *bound, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, judge(got[i], want[i], bound[i]));
    return worst;
}

/* In bf16 h itself hides what moves it by less than two steps. */
static int is_seen(int compute, float h, float broken) {
    return compute == SWIGLU_COMPUTE_F32 || fabs((double)h - broken) > 0x1p-6 * fabs((double)h);
}

/* The test of the test: in f32 and in bf16 one term of root-mean-square size left out of a sum of 5632 in down, or of 2048
 * in gate or up, is outside the bound of its half, whichever output it is. */
static void a_dropped_term_exceeds_the_bound_of_its_half(void **state) {
    (void)state;
    static float x[WIDE_IN], h[WIDE_FF], broken_h[WIDE_FF];
    static struct half_judge ref;
    float y[NARROW], broken_y[NARROW];
    uint64_t seed = 20;
    for (size_t i = 0; i < WIDE_IN; i++) x[i] = swiglu_bf16_widen(swiglu_bf16_store(next_normal(&seed)));
    for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++)
        for (int which = 0; which < 3; which++) {
            const size_t d_in = which == 2 ? NARROW : WIDE_IN, d_ff = which == 2 ? WIDE_FF : NARROW;
            const size_t k = which == 2 ? d_ff : d_in;
            struct block_data b = new_block(d_in, d_ff, NARROW, SWIGLU_SEPARATE, "identity", SWIGLU_F32, 0, 0, 21);
            halves(&b.desc, compute, x, NULL, h, y);
            const struct swiglu_reference out = {.struct_size = sizeof out, .compute = compute, .y = ref.y,
                                                 .bound = ref.bound, .hidden = ref.hidden,
                                                 .hidden_bound = ref.hidden_bound, .h = h};
            assert_int_equal(swiglu_reference_compute(&b.desc, 1, (struct swiglu_crows){x, SWIGLU_F32, d_in}, &out, NULL),
                             SWIGLU_OK);
            int n_seen = 0;
            assert_true(judge_half(h, ref.hidden, ref.hidden_bound, d_ff) <= 1);
            assert_true(judge_half(y, ref.y, ref.bound, NARROW) <= 1);
            for (size_t o = 0; o < NARROW; o++) {
                float *row = (float *)b.memory[which] + o * k, *const term = row + typical_term(row, which == 2 ? h : x, k);
                const float kept = *term;
                *term = 0;
                halves(&b.desc, compute, x, h, broken_h, broken_y);
                *term = kept;
                if (which == 2) n_seen++, assert_true(judge(broken_y[o], ref.y[o], ref.bound[o]) > 1);
                else if (is_seen(compute, h[o], broken_h[o]))
                    n_seen++, assert_true(judge(broken_h[o], ref.hidden[o], ref.hidden_bound[o]) > 1);
            }
            assert_true(n_seen >= (compute == SWIGLU_COMPUTE_F32 || which == 2 ? NARROW : NARROW / 2));
            free_block(&b);
        }
}

/* With h given, y is down of that h and nothing else; what is said of x is said as without it. */
static void a_given_h_stands_for_that_of_x(void **state) {
    (void)state;
    enum { M = 2 };
    uint64_t seed = 22;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 23);
    float *x = new_floats(SWIGLU_F32, M * D_IN, 1, &seed), *h = new_floats(SWIGLU_F32, M * D_FF, 1, &seed);
    h[D_FF + 2] = NAN;
    for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
        double y[2][M * D_OUT], bound[2][M * D_OUT], plain[2][M * D_OUT], hidden[2][M * D_FF];
        for (int given = 0; given < 2; given++) {
            const struct swiglu_reference out = {.struct_size = sizeof out, .compute = compute, .y = y[given],
                                                 .bound = bound[given], .plain = plain[given], .hidden = hidden[given],
                                                 .h = given ? h : NULL};
            assert_int_equal(swiglu_reference_compute(&b.desc, M, (struct swiglu_crows){x, SWIGLU_F32, D_IN}, &out, NULL),
                             SWIGLU_OK);
        }
        assert_memory_equal(plain[0], plain[1], sizeof plain[0]);
        assert_memory_equal(hidden[0], hidden[1], sizeof hidden[0]);
        for (size_t i = 0; i < M * D_OUT; i++) {
            long double want = get_float(b.desc.down_bias.data, SWIGLU_F32, i % D_OUT);
            for (size_t j = 0; j < D_FF; j++) {
                float at = h[i / D_OUT * D_FF + j], w = (float)weight(&b.desc.down, i % D_OUT, j);
                if (compute == SWIGLU_COMPUTE_BF16)
                    at = swiglu_bf16_widen(swiglu_bf16_store(at)), w = swiglu_bf16_widen(swiglu_bf16_store(w));
                want += (long double)at * w;
            }
            if (i < D_OUT) assert_true(fabs(y[1][i] - (double)want) < 1e-13 && bound[1][i] < 1e-5);
            else assert_true(isnan(y[1][i]) && bound[1][i] == 0);
        }
    }
    free(x), free(h);
    free_block(&b);
}

static double bound_of(struct block_data *b, const float *x, int y_dtype, int compute, double *y) {
    double bound;
    const struct swiglu_reference out = {.struct_size = sizeof out, .compute = compute, .y_dtype = y_dtype, .y = y,
                                         .bound = &bound};
    assert_int_equal(swiglu_reference_compute(&b->desc, 1, (struct swiglu_crows){x, SWIGLU_F32, 1}, &out, NULL),
                     SWIGLU_OK);
    return bound;
}

/* Halfway between two bf16 values either may enter down; elsewhere none but the nearest. */
static void h_is_off_only_at_a_boundary(void **state) {
    (void)state;
    struct block_data b = new_block(1, 1, 1, SWIGLU_SEPARATE, "identity", SWIGLU_F32, 0, 0, 12);
    float *gate = b.memory[0], *up = b.memory[1], *down = b.memory[2], x = 1;
    double y;
    *gate = 1.5f, *down = 1;
    *up = 1 + 0x1p-6f; /* h = 195 / 128 */
    assert_true(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_BF16, &y) < 1e-6 && y == 195 * 0x1p-7);
    *up = 1 + 0x1p-7f; /* 193.5 / 128 */
    const double either = bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_BF16, &y);
    assert_true(y == 194 * 0x1p-7 && either > 0x1p-7 && either < 1.001 * 0x1p-7);
    free_block(&b);
}

static void bound_knows_where_nothing_is_known(void **state) {
    (void)state;
    struct block_data b = new_block(1, 1, 1, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 11);
    float *gate = b.memory[0], *up = b.memory[1], *down = b.memory[2], x = 1;
    double y;
    *gate = 2, *up = 3, *down = 1;
    const double f32 = bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y);
    assert_true(f32 > 1e-7 && f32 < 1e-5);
    assert_true(fabs(y - 6 / (1 + exp(-2))) < 1e-15);
    assert_true(bound_of(&b, &x, SWIGLU_BF16, SWIGLU_COMPUTE_F32, &y) > 0x1p-8 * 5);
    assert_true(bound_of(&b, &x, SWIGLU_F16, SWIGLU_COMPUTE_F32, &y) > 0x1p-11 * 5);
    assert_true(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_BF16, &y) < 1e-5); /* h = 5.2848 is far from a boundary */
    assert_true(y == 5.28125);

    *down = 1e4f; /* 52847.8: an f16 output is finite; 105695 is not */
    assert_true(isfinite(bound_of(&b, &x, SWIGLU_F16, SWIGLU_COMPUTE_F32, &y)));
    *down = 2e4f;
    assert_true(isinf(bound_of(&b, &x, SWIGLU_F16, SWIGLU_COMPUTE_F32, &y)));
    assert_true(isfinite(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y)));

    *up = 3e38f; /* act(gate) * up overflows f32 */
    assert_true(isinf(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y)));
    *up = INFINITY; /* certain: Inf */
    assert_true(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y) == 0 && y == INFINITY);
    *up = NAN;
    assert_true(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y) == 0 && isnan(y));
    *up = 1, *down = NAN, x = 0; /* a zero activation does not hide a NaN weight */
    assert_true(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y) == 0 && isnan(y));
    *up = INFINITY, *down = 1, *gate = 1e-44f, x = 0.5f; /* f32 may round the gate to 0, and Inf to NaN */
    assert_true(isinf(bound_of(&b, &x, SWIGLU_F32, SWIGLU_COMPUTE_F32, &y)));
    free_block(&b);
}

static void empty_widths_give_the_bias(void **state) { /* C059 */
    (void)state;
    struct block_data b = new_block(0, 0, 3, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 12);
    double y[6], bound[6];
    const float *bias = b.memory[5];
    const struct swiglu_reference out = {.struct_size = sizeof out, .y = y, .bound = bound};
    assert_int_equal(swiglu_reference_compute(&b.desc, 2, (struct swiglu_crows){NULL, SWIGLU_F32, 0}, &out, NULL),
                     SWIGLU_OK);
    for (int i = 0; i < 6; i++) assert_true(y[i] == (double)bias[i % 3] && bound[i] < 1e-7);
    assert_int_equal(swiglu_reference_compute(&b.desc, 0, (struct swiglu_crows){NULL, SWIGLU_F32, 0}, &out, NULL),
                     SWIGLU_OK);
    free_block(&b);
}

/* ---- slopes ---- */

static struct swiglu_act any_act(size_t i, uint64_t *seed) {
    static const char *const names[] = {"identity", "relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "xielu",
                                        "situ"};
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, names[i % COUNT(names)]), SWIGLU_OK);
    if (act.kind == SWIGLU_ACT_SILU) act.alpha = (float)next_between(seed, -4, 4);
    if (act.kind == SWIGLU_ACT_SITU) act.param[0] = (float)next_between(seed, 0.5, 8);
    if (act.kind == SWIGLU_ACT_SITU) act.param[1] = (float)next_between(seed, 0.5, 30);
    if (act.kind == SWIGLU_ACT_XIELU)
        for (int p = 0; p < 4; p++) act.param[p] = (float)next_between(seed, p == 3 ? -0.5 : -1, p == 3 ? 0 : 2);
    return act;
}

/* |act(s) - act(t)| <= slope |s - t| + jump for any s, t within the interval; and on short intervals the slope is not
 * far above the steepest chord, or the bound would see nothing. */
static void slopes_bound_the_function(void **state) {
    (void)state;
    uint64_t seed = 13;
    for (size_t i = 0; i < 20000; i++) {
        const struct swiglu_act act = any_act(i, &seed);
        const double wide = next_between(&seed, 0, 1) < 0.5 ? 1e-3 : 8, lo = next_between(&seed, -12, 12);
        const double hi = lo + wide * next_unit(&seed);
        const double slope = swiglu_ref_act_slope(&act, lo, hi), jump = swiglu_ref_act_jump(&act, lo, hi);
        const double up = swiglu_ref_up_slope(&act, lo, hi);
        double steepest = 0;
        for (int k = 0; k < 40; k++) {
            const double s = lo + (hi - lo) * k / 40, t = lo + (hi - lo) * (k + 1) / 40;
            const double f = swiglu_ref_act(&act, s), g = swiglu_ref_act(&act, t), dust = 1e-14 * (1 + fabs(f));
            assert_true(fabs(f - g) <= slope * (t - s) + jump + dust);
            assert_true(fabs(swiglu_ref_up(&act, s) - swiglu_ref_up(&act, t)) <= up * (t - s) + dust);
            if (t - s > 1e-6) steepest = fmax(steepest, (fabs(f - g) - dust) / (t - s));
        }
        if (hi - lo > 1e-4 && wide < 1) assert_true(slope <= 1.2 * steepest + 0.01);
    }
}

static void slopes_at_the_ends(void **state) {
    (void)state;
    uint64_t seed = 14;
    for (size_t i = 0; i < 9; i++) {
        const struct swiglu_act act = any_act(i, &seed);
        assert_false(isnan(swiglu_ref_act_slope(&act, -INFINITY, -INFINITY)));
        assert_false(isnan(swiglu_ref_act_slope(&act, INFINITY, INFINITY)));
        assert_true(isnan(swiglu_ref_act(&act, NAN)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_the_formula),
        cmocka_unit_test(bf16_compute_rounds_its_inputs_and_h),
        cmocka_unit_test(a_dropped_term_exceeds_the_bound),
        cmocka_unit_test(a_dropped_term_exceeds_the_bound_of_its_half),
        cmocka_unit_test(a_given_h_stands_for_that_of_x),
        cmocka_unit_test(h_is_off_only_at_a_boundary),
        cmocka_unit_test(bound_knows_where_nothing_is_known),
        cmocka_unit_test(empty_widths_give_the_bias),
        cmocka_unit_test(slopes_bound_the_function),
        cmocka_unit_test(slopes_at_the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
