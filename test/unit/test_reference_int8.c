/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference of int8 compute, against the plain f32 loops of the clause (check/int8_oracle.h): they stay within its
 * bound on whatever data, and loops with an error of typical size do not.
 */
#include "int8.h"

#include "ref/reference.h"

/* One row: h and y of the clause, and the reference of both, y once from x and once from that h. */
struct judged {
    float *h, *y;
    double *hidden, *hidden_bound, *from_x, *bound_x, *from_h, *bound_h;
    void *memory[2];
};

static struct judged judge_row(const struct int8_block *b, const float *x) {
    const struct swiglu_desc *d = &b->desc;
    struct judged j;
    float *f = calloc(d->d_ff + d->d_out, sizeof *f);
    double *g = calloc(2 * d->d_ff + 4 * d->d_out, sizeof *g);
    j = (struct judged){.h = f, .y = f + d->d_ff, .hidden = g, .hidden_bound = g + d->d_ff, .from_x = g + 2 * d->d_ff,
                        .memory = {f, g}};
    j.bound_x = j.from_x + d->d_out, j.from_h = j.bound_x + d->d_out, j.bound_h = j.from_h + d->d_out;
    oracle_hidden_row(b, x, NULL, j.h);
    chains(b, 2, d->d_ff, d->d_out, j.h, NULL, j.y);
    const struct swiglu_crows rows = {x, SWIGLU_F32, d->d_in};
    struct swiglu_reference out = {.struct_size = sizeof out, .compute = SWIGLU_COMPUTE_INT8, .y = j.from_x,
                                   .bound = j.bound_x, .hidden = j.hidden, .hidden_bound = j.hidden_bound};
    assert_int_equal(swiglu_reference_compute(d, 1, rows, &out, NULL), SWIGLU_OK);
    out.y = j.from_h, out.bound = j.bound_h, out.h = j.h;
    assert_int_equal(swiglu_reference_compute(d, 1, rows, &out, NULL), SWIGLU_OK);
    return j;
}

static void free_judged(struct judged *j) { free(j->memory[0]), free(j->memory[1]); }

static double worst_of(const float *got, const double *want, const double *bound, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, judge(got[i], want[i], bound[i]));
    return worst;
}

static void check_within(const struct int8_block *b, const float *x) {
    struct judged j = judge_row(b, x);
    assert_true(worst_of(j.h, j.hidden, j.hidden_bound, b->desc.d_ff) <= 1);
    assert_true(worst_of(j.y, j.from_h, j.bound_h, b->desc.d_out) <= 1);
    assert_true(worst_of(j.y, j.from_x, j.bound_x, b->desc.d_out) <= 1);
    free_judged(&j);
}

/* ---- within the bound ---- */

/* Rows of every kind that B.4 of the clause has a rule for. */
static void fill_row(float *x, size_t n, int kind, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) x[i] = next_normal(seed);
    switch (kind) {
    case 1: x[n / 3] = 1e4f; break;                                        /* a massive activation */
    case 2: for (size_t i = 0; i < 32; i++) x[i] = 0; break;               /* a block of zeros, and of small ones */
    case 3: for (size_t i = 0; i < 32; i++) x[i] *= 1e-39f; break;
    case 4: for (size_t i = 0; i < 32; i++) x[i] = i ? -0.0f : 0x1p-100f; break;
    case 5: for (size_t i = 0; i < 32; i++) x[i] = i ? -0.0f : 0x1.fffffep-101f; break;
    case 6: x[n - 1] = NAN; break;
    case 7: x[n - 1] = -INFINITY; break;
    case 8: x[5] = 0x1p123f; break;                                        /* e overflows: nothing is promised, or kept */
    case 9: x[5] = 3e38f; break;
    case 10: for (size_t i = 0; i < n; i++) x[i] *= 1e-30f; break;
    default: break;
    }
}

static void the_clause_is_within_the_bound(void **state) {
    (void)state;
    static const struct { size_t d_in, d_ff, d_out; } shapes[] = {{256, 512, 5}, {1280, 256, 3}, {256, 2304, 4}};
    static const char *const acts[] = {"silu", "relu2", "gelu"};
    uint64_t seed = 50;
    for (size_t f = 0; f < COUNT(formats); f++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            const int down = formats[(f + s) % COUNT(formats)];
            struct int8_block b = new_int8(shapes[s].d_in, shapes[s].d_ff, shapes[s].d_out, acts[s],
                                           formats[f], down, 51 + f);
            if (s == 1) add_biases(&b, 52);
            float *x = malloc(shapes[s].d_in * sizeof *x);
            for (int kind = 0; kind <= 10; kind++) {
                fill_row(x, shapes[s].d_in, kind, &seed);
                check_within(&b, x);
            }
            free(x);
            free_int8(&b);
        }
}

/* Scales of weights: zero of both signs, subnormal, huge, infinite, NaN, and exponents of e8m0. */
static void weights_of_any_scale_are_within_the_bound(void **state) {
    (void)state;
    static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00};
    uint64_t seed = 60;
    for (size_t f = 0; f < COUNT(formats); f++) {
        const struct swiglu_dtype_row *t = swiglu_dtype_find(formats[f]);
        struct int8_block b = new_int8(256, 256, 8, "silu", formats[f], formats[f], 61);
        float x[256];
        fill_row(x, 256, 0, &seed);
        for (unsigned s = 0; s < (t->scales.n_e8m0 ? 256 : COUNT(scales)); s++) {
            if (s >= COUNT(scales) && s < 248 && s % 16) continue;
            for (int which = 0; which < 3; which++) {
                unsigned char *const block = b.memory[which] + (s % 8) * b.row_bytes[which], kept[256];
                memcpy(kept, block, t->block_bytes);
                if (t->scales.n_e8m0) block[t->scales.at[0]] = (unsigned char)s;
                for (unsigned n = 0; n < t->scales.n_f16; n++) memcpy(block + t->scales.at[n], &scales[s], 2);
                check_within(&b, x);
                memcpy(block, kept, t->block_bytes);
            }
        }
        free_int8(&b);
    }
}

/* Where f32 may overflow nothing is promised, whatever the sum comes to; a block of equal weights has folds of their own size
 * although its weights are zero. */
static void huge_rows_are_not_sure(void **state) {
    (void)state;
    struct int8_block b = new_int8(256, 256, 2, "identity", SWIGLU_Q4_1, SWIGLU_Q8_0, 70);
    float x[256] = {0};
    memset(b.memory[1], 0, 256 * b.row_bytes[1]); /* up is 0, and so is h, whatever gate is */
    x[3] = 0x1p100f;
    struct judged j = judge_row(&b, x);
    for (size_t i = 0; i < 256; i++) assert_true(isinf(j.hidden_bound[i]));
    assert_true(isinf(j.bound_x[0]));
    free_judged(&j);
    x[3] = 0x1p99f;
    j = judge_row(&b, x);
    for (size_t i = 0; i < 256; i++) assert_true(isfinite(j.hidden_bound[i]) && j.hidden[i] == 0);
    free_judged(&j);
    memcpy(b.memory[1], b.memory[0], 256 * b.row_bytes[1]);

    const uint16_t one = 0x3C00, less_eight = 0xC800; /* 1 q - 8 */
    for (size_t i = 0; i < 256; i++) x[i] = (float)(i % 7) - 2.7f;
    for (size_t at = 0; at < b.row_bytes[0]; at += 20) {
        memcpy(b.memory[0] + at, &one, 2), memcpy(b.memory[0] + at + 2, &less_eight, 2);
        memset(b.memory[0] + at + 4, 0x88, 16);
    }
    j = judge_row(&b, x);
    assert_true(worst_of(j.h, j.hidden, j.hidden_bound, 256) <= 1);
    free_judged(&j);
    free_int8(&b);
}

static void given_h_is_rounded_by_the_rule_itself(void **state) {
    (void)state;
    struct int8_block b = new_int8(32, 64, 3, "silu", SWIGLU_Q8_0, SWIGLU_Q4_0, 80);
    float x[32], decoded[3 * 64];
    uint64_t seed = 81;
    fill_row(x, 32, 0, &seed);
    struct judged j = judge_row(&b, x);
    assert_int_equal(swiglu_decode(SWIGLU_Q4_0, b.memory[2], COUNT(decoded), decoded), SWIGLU_OK);
    for (size_t o = 0; o < 3; o++) {
        long double want = 0;
        for (size_t g = 0; g < 64; g += 32) {
            float largest = 0;
            for (size_t i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(j.h[g + i]));
            const float d = largest / 127, r = 127 / largest;
            for (size_t i = 0; i < 32; i++) want += (long double)rintf(j.h[g + i] * r) * d * decoded[64 * o + g + i];
        }
        assert_true(fabs(j.from_h[o] - (double)want) < 1e-13 && j.bound_h[o] < 1e-5);
    }
    free_judged(&j);
    free_int8(&b);
}

/* ---- errors that must be seen ---- */

static void drop_sums(struct swiglu_int8_group *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i].e = 0, x[i].s = x[i].s1 = 0;
}
static void swap_sums(struct swiglu_int8_group *x, size_t n) { /* s1 for the first half's */
    for (size_t i = 0; i < n; i++) x[i].s1 = x[i].s - x[i].s1;
}
static void add_minimum(struct swiglu_int8_group *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i].e = -x[i].e, x[i].s = -x[i].s, x[i].s1 = -x[i].s1;
}
static void take_neighbour(struct swiglu_int8_group *x, size_t n) {
    const float first = x[0].d;
    for (size_t i = 0; i < n; i++) x[i].d = i + 1 < n ? x[i + 1].d : first;
}
static void swap_halves(struct swiglu_int8_group *x, size_t n) { /* nibbles swapped: k and k + 16 */
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 16; k++) {
            const int8_t q = x[i].q[k];
            x[i].q[k] = x[i].q[k + 16], x[i].q[k + 16] = q;
        }
}
static void drop_block(struct swiglu_int8_group *x, size_t n) {
    memset(&x[n / 2], 0, sizeof x[n / 2]);
}

static int kind_of(int dtype) {
    const unsigned char zeros[256] = {0};
    struct swiglu_quant_part p;
    swiglu_dtype_find(dtype)->part(zeros, 0, &p);
    return (int)p.kind;
}

enum { WIDE = 5632, OUTPUTS = 8 };

static void an_error_in_down_exceeds_the_bound(void **state) {
    (void)state;
    static const struct { spoil_fn *spoil; int minimum, halves_min; } wrong[] = {
        {drop_sums, 1, 1}, {add_minimum, 1, 1}, {swap_sums, 0, 1}, {take_neighbour, 0, 0}, {swap_halves, 0, 0},
        {drop_block, 0, 0}};
    uint64_t seed = 90;
    for (size_t f = 0; f < COUNT(formats); f++) {
        const int kind = kind_of(formats[f]);
        struct int8_block b = new_int8(32, WIDE, OUTPUTS, "silu", SWIGLU_Q8_0, formats[f], 91);
        float x[32], y[OUTPUTS];
        fill_row(x, 32, 0, &seed);
        struct judged j = judge_row(&b, x);
        assert_true(worst_of(j.y, j.from_h, j.bound_h, OUTPUTS) <= 1);
        for (size_t w = 0; w < COUNT(wrong); w++) {
            if (wrong[w].minimum && kind != SWIGLU_QUANT_MINIMUM && kind != SWIGLU_QUANT_HALVES_MIN) continue;
            if (!wrong[w].minimum && wrong[w].halves_min && kind != SWIGLU_QUANT_HALVES_MIN) continue;
            chains(&b, 2, WIDE, OUTPUTS, j.h, wrong[w].spoil, y);
            size_t n_seen = 0; /* what is wrong may come to nearly nothing in one output by chance */
            for (size_t o = 0; o < OUTPUTS; o++) n_seen += judge(y[o], j.from_h[o], j.bound_h[o]) > 1;
            assert_true(n_seen >= OUTPUTS - 1);
        }
        free_judged(&j);
        free_int8(&b);
    }
}

/* The scale of the block before: of weights. And e = 255 of MXFP4, which is 2^127 here and NaN to others. */
static void a_wrong_scale_exceeds_the_bound(void **state) {
    (void)state;
    uint64_t seed = 95;
    for (size_t f = 0; f < COUNT(formats); f++) {
        const struct swiglu_dtype_row *t = swiglu_dtype_find(formats[f]);
        struct int8_block b = new_int8(32, WIDE, 1, "silu", SWIGLU_Q8_0, formats[f], 96);
        float x[32], y;
        fill_row(x, 32, 0, &seed);
        struct judged j = judge_row(&b, x);
        unsigned char *const block = b.memory[2] + t->block_bytes;
        for (unsigned n = 0; n < t->scales.n_f16; n++) {
            uint16_t scale;
            memcpy(&scale, block - t->block_bytes + t->scales.at[n], 2);
            if (!memcmp(block + t->scales.at[n], &scale, 2)) scale ^= 0x40; /* equal by chance */
            memcpy(block + t->scales.at[n], &scale, 2);
        }
        if (t->scales.n_e8m0) block[t->scales.at[0]]++;
        chains(&b, 2, WIDE, 1, j.h, NULL, &y);
        assert_true(judge(y, j.from_h[0], j.bound_h[0]) > 1);
        free_judged(&j);
        free_int8(&b);
    }
    struct int8_block b = new_int8(32, 32, 1, "silu", SWIGLU_Q8_0, SWIGLU_MXFP4, 97);
    float x[32], tiny[32];
    fill_row(x, 32, 0, &seed);
    for (size_t i = 0; i < 32; i++) tiny[i] = x[i] * 1e-12f; /* h is some 1e-24: 2^127 times it is below 2^100 */
    b.memory[2][0] = 255;
    struct judged j = judge_row(&b, tiny);
    assert_true(isfinite(j.from_h[0]) && isfinite(j.bound_h[0]) && fabs(j.from_h[0]) > 1e10);
    assert_true(worst_of(j.y, j.from_h, j.bound_h, 1) <= 1 && isinf(judge(NAN, j.from_h[0], j.bound_h[0])));
    free_judged(&j);
    free_int8(&b);
}

/* In gate and up, of 2048: an error of one block of 32 is outside the bound of h. */
static void an_error_in_gate_and_up_exceeds_the_bound_of_h(void **state) {
    (void)state;
    enum { WIDE_IN = 2048, UNITS = 32 };
    uint64_t seed = 99;
    for (size_t f = 0; f < COUNT(formats); f++) {
        struct int8_block b = new_int8(WIDE_IN, UNITS, 1, "identity", formats[f], SWIGLU_Q8_0, 100);
        float x[WIDE_IN], h[UNITS];
        fill_row(x, WIDE_IN, 0, &seed);
        struct judged j = judge_row(&b, x);
        oracle_hidden_row(&b, x, drop_block, h);
        size_t n_seen = 0;
        for (size_t i = 0; i < UNITS; i++) n_seen += judge(h[i], j.hidden[i], j.hidden_bound[i]) > 1;
        assert_true(n_seen >= UNITS - 2);
        free_judged(&j);
        free_int8(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clause_is_within_the_bound),
        cmocka_unit_test(weights_of_any_scale_are_within_the_bound),
        cmocka_unit_test(huge_rows_are_not_sure),
        cmocka_unit_test(given_h_is_rounded_by_the_rule_itself),
        cmocka_unit_test(an_error_in_down_exceeds_the_bound),
        cmocka_unit_test(a_wrong_scale_exceeds_the_bound),
        cmocka_unit_test(an_error_in_gate_and_up_exceeds_the_bound_of_h),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
