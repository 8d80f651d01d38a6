/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block formats as integers times scales (dtype/part.h). That the decoders, which are this formula, are the formats is
 * shown by test_decode.py; here it is what int8 compute and kernels count on.
 */
#include "support.h"

#include "dtype/dtype.h"

/* Runs fn over every block format, with every f16 (or e8m0 byte) as each of its scales and random bytes elsewhere. */
static void each_part(void (*fn)(const struct swiglu_dtype_row *, const struct swiglu_quant_part *, const float *)) {
    for (size_t i = 0; swiglu_dtype_at(i) >= 0; i++) {
        const struct swiglu_dtype_row *t = swiglu_dtype_find(swiglu_dtype_at(i));
        const struct swiglu_scales *s = &t->scales;
        if (!t->part) continue;
        uint64_t seed = 40 + i;
        unsigned char block[256];
        float values[256];
        assert_true(t->block_bytes <= sizeof block);
        for (unsigned scale = 0; scale < (s->n_f16 ? 65536 : 256); scale++) {
            for (size_t b = 0; b < t->block_bytes; b++) block[b] = (unsigned char)next_u64(&seed);
            for (unsigned n = 0; n < s->n_f16; n++) {
                const uint16_t half = (uint16_t)(scale * (n ? 40503u : 1u)); /* odd: the other one meets all of them, too */
                memcpy(block + s->at[n], &half, 2);
            }
            if (s->n_e8m0) block[s->at[0]] = (unsigned char)scale;
            t->decode(block, 1, values);
            for (unsigned part = 0; part < t->block_elems / 32; part++) {
                struct swiglu_quant_part p;
                t->part(block, part, &p);
                fn(t, &p, values + 32 * part);
            }
        }
    }
}

static int has_halves(const struct swiglu_quant_part *p) {
    return p->kind == SWIGLU_QUANT_HALVES || p->kind == SWIGLU_QUANT_HALVES_MIN;
}
static float scale_of(const struct swiglu_quant_part *p, int i) {
    const int half = i / 16;
    return has_halves(p) ? p->a * (float)p->sc[half] : p->a;
}
static int has_minimum(const struct swiglu_quant_part *p) {
    return p->kind == SWIGLU_QUANT_MINIMUM || p->kind == SWIGLU_QUANT_HALVES_MIN;
}
static float minimum_of(const struct swiglu_quant_part *p, int i) {
    const int half = i / 16;
    return has_halves(p) ? -(p->am * (float)p->m[half]) : p->b;
}

static int same_value(float a, float b) { return same_float(a, b) || (isnan(a) && isnan(b)); }

/* fl(fl(a q) + b): the decoder's value; and as the product is exact, that of one fused multiply-add. */
static void check_value(const struct swiglu_dtype_row *t, const struct swiglu_quant_part *p, const float *value) {
    (void)t;
    for (int i = 0; i < 32; i++) {
        const float a = scale_of(p, i), q = p->q[i], product = a * q;
        const double exact = (double)p->a * (has_halves(p) ? p->sc[i / 16] : 1) * p->q[i];
        if (fabs(exact) < 0x1p128) assert_true((double)product == exact); /* mxfp4 alone reaches beyond */
        if (!has_minimum(p)) {
            assert_true(same_value(value[i], product));
        } else {
            assert_true(same_value(value[i], product + minimum_of(p, i)));
            assert_true(same_value(value[i], fmaf(a, q, minimum_of(p, i))));
        }
    }
}

static void values_are_scale_times_integer_plus_minimum(void **state) {
    (void)state;
    each_part(check_value);
}

/* What |Q| and |Q sc| may be, so that the integer of a fold stays below 2^24 with |q| <= 127. */
static void check_ranges(const struct swiglu_dtype_row *t, const struct swiglu_quant_part *p, const float *value) {
    static const struct { int dtype, low, high; } ranges[] = {
        {SWIGLU_Q4_0, -8, 7}, {SWIGLU_Q4_1, 0, 15}, {SWIGLU_Q5_0, -16, 15}, {SWIGLU_Q5_1, 0, 31}, {SWIGLU_Q8_0, -128, 127},
        {SWIGLU_MXFP4, -12, 12}, {SWIGLU_Q2_K, 0, 3}, {SWIGLU_Q3_K, -4, 3}, {SWIGLU_Q4_K, 0, 15}, {SWIGLU_Q5_K, 0, 31},
        {SWIGLU_Q6_K, -32, 31}};
    long sum = 0, low_sum = 0;
    size_t row = 0;
    (void)value;
    while (ranges[row].dtype != t->dtype) row++;
    for (int i = 0; i < 32; i++) {
        assert_in_range(p->q[i] + 128, ranges[row].low + 128, ranges[row].high + 128);
        sum += labs(p->q[i] * (has_halves(p) ? p->sc[i / 16] : 1)) * 127;
    }
    if (p->kind == SWIGLU_QUANT_HALVES_MIN) low_sum = (p->m[0] + p->m[1]) * 16 * 127;
    assert_true(sum < 1 << 24 && low_sum < 1 << 24);
}

static void integers_stay_below_2_24(void **state) {
    (void)state;
    each_part(check_ranges);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_scale_times_integer_plus_minimum),
        cmocka_unit_test(integers_stay_below_2_24),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
