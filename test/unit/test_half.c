/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 to and from f32: every value both ways, and rounding against a search in double. */
#include "support.h"

/* The value of a finite half from its fields, computed with ldexp alone. */
static double half_value(uint16_t h, int exp_bits, int man_bits) {
    const int exp = h >> man_bits & ((1 << exp_bits) - 1), man = h & ((1 << man_bits) - 1);
    const int bias = (1 << (exp_bits - 1)) - 1;
    const double v = exp ? ldexp((1 << man_bits) + man, exp - bias - man_bits) : ldexp(man, 1 - bias - man_bits);
    return h >> 15 ? -v : v;
}

static int half_class(uint16_t h, int man_bits) { /* 0 finite, 1 infinite, 2 NaN */
    const uint16_t inf = (uint16_t)(0x7FFF >> man_bits << man_bits), a = h & 0x7FFF;
    return a < inf ? 0 : a == inf ? 1 : 2;
}

static void every_half_widens_exactly(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t h = (uint16_t)i;
        const float f16 = swiglu_f16_widen(h), bf16 = swiglu_bf16_widen(h);
        switch (half_class(h, 10)) {
        case 0: assert_true((double)f16 == half_value(h, 5, 10) && !signbit(f16) == !(h >> 15)); break;
        case 1: assert_true(isinf(f16) && !signbit(f16) == !(h >> 15)); break;
        default: assert_true(isnan(f16));
        }
        switch (half_class(h, 7)) {
        case 0: assert_true((double)bf16 == half_value(h, 8, 7) && !signbit(bf16) == !(h >> 15)); break;
        case 1: assert_true(isinf(bf16) && !signbit(bf16) == !(h >> 15)); break;
        default: assert_true(isnan(bf16));
        }
    }
}

static void every_half_comes_back(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t h = (uint16_t)i;
        assert_int_equal(swiglu_f16_store(swiglu_f16_widen(h)), half_class(h, 10) == 2 ? 0x7E00 : h);
        assert_int_equal(swiglu_bf16_store(swiglu_bf16_widen(h)), half_class(h, 7) == 2 ? 0x7FC0 : h);
    }
    /* C032: bf16 to bf16 through f32 keeps subnormals */
    assert_int_equal(swiglu_bf16_store(swiglu_bf16_widen(0x0001)), 0x0001);
    assert_int_equal(swiglu_bf16_store(swiglu_bf16_widen(0x8001)), 0x8001);
    assert_int_equal(swiglu_bf16_store(swiglu_bf16_widen(0x7F7F)), 0x7F7F);
}

/* Nearest even by comparing with both neighbours in double; low is the half at or below |f|. */
static uint16_t nearest(double f, uint16_t low, int exp_bits, int man_bits) {
    const uint16_t inf = (uint16_t)(0x7FFF >> man_bits << man_bits), high = (uint16_t)(low + 1);
    const double a = half_value(low, exp_bits, man_bits);
    /* the neighbour of the largest finite value is where the next binade would begin */
    const double b = high == inf ? 2 * half_value((uint16_t)(inf - (1 << man_bits)), exp_bits, man_bits)
                                 : half_value(high, exp_bits, man_bits);
    if (f - a < b - f) return low;
    if (f - a > b - f) return high;
    return low & 1 ? high : low;
}

static void check_around(uint16_t low, int exp_bits, int man_bits, uint16_t (*store)(float), float (*widen)(uint16_t)) {
    const uint16_t inf = (uint16_t)(0x7FFF >> man_bits << man_bits);
    const double a = widen(low);
    const double b = low + 1 == inf ? 2 * widen((uint16_t)(inf - (1 << man_bits))) : widen((uint16_t)(low + 1));
    const float tie = (float)((a + b) / 2); /* exact: one bit more than the half has */
    const float points[] = {(float)a, nextafterf((float)a, INFINITY), nextafterf(tie, 0), tie,
                            nextafterf(tie, INFINITY), nextafterf((float)b, 0)};
    for (size_t i = 0; i < COUNT(points); i++) {
        if (isinf(points[i]) || points[i] >= b) continue;
        const uint16_t want = nearest(points[i], low, exp_bits, man_bits);
        assert_int_equal(store(points[i]), want);
        assert_int_equal(store(-points[i]), want | 0x8000);
    }
}

static void stores_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t low = 0; low < 0x7C00; low++) check_around((uint16_t)low, 5, 10, swiglu_f16_store, swiglu_f16_widen);
    for (uint32_t low = 0; low < 0x7F80; low++) check_around((uint16_t)low, 8, 7, swiglu_bf16_store, swiglu_bf16_widen);
}

static void nan_never_becomes_infinite(void **state) { /* C034 */
    (void)state;
    static const uint32_t nans[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F80FFFF};
    for (size_t i = 0; i < COUNT(nans); i++) {
        const float f = swiglu_f32_from_bits(nans[i]);
        assert_int_equal(swiglu_bf16_store(f), 0x7FC0);
        assert_int_equal(swiglu_bf16_staging(f), 0x7FC0);
        assert_int_equal(swiglu_f16_store(f), 0x7E00);
    }
}

static void ends_of_the_range(void **state) {
    (void)state;
    const float max = swiglu_f32_from_bits(0x7F7FFFFF);
    assert_int_equal(swiglu_bf16_store(max), 0x7F80);
    assert_int_equal(swiglu_bf16_store(-max), 0xFF80);
    assert_int_equal(swiglu_f16_store(max), 0x7C00);
    assert_int_equal(swiglu_f16_store(65519.996f), 0x7BFF);
    assert_int_equal(swiglu_f16_store(65520.0f), 0x7C00);
    assert_int_equal(swiglu_f16_store(-0.0f), 0x8000);
    assert_int_equal(swiglu_bf16_store(-0.0f), 0x8000);
    assert_int_equal(swiglu_f16_store(0x1p-25f), 0x0000); /* a tie with 0 */
    assert_int_equal(swiglu_f16_store(0x1.000002p-25f), 0x0001);
    assert_int_equal(swiglu_f16_store(INFINITY), 0x7C00);
}

static void staging_flushes_before_rounding(void **state) {
    (void)state;
    /* the largest f32 subnormal would round up to 2^-126, but its exponent field is 0 */
    assert_int_equal(swiglu_bf16_staging(swiglu_f32_from_bits(0x007FFFFF)), 0x0000);
    assert_int_equal(swiglu_bf16_staging(swiglu_f32_from_bits(0x807FFFFF)), 0x8000);
    assert_int_equal(swiglu_bf16_store(swiglu_f32_from_bits(0x007FFFFF)), 0x0080);
    assert_int_equal(swiglu_bf16_staging(0x1p-126f), 0x0080);
    uint64_t seed = 1;
    for (int i = 0; i < 100000; i++) {
        const float f = swiglu_f32_from_bits((uint32_t)next_u64(&seed));
        if ((swiglu_f32_bits(f) & 0x7F800000) == 0) continue;
        assert_int_equal(swiglu_bf16_staging(f), swiglu_bf16_store(f));
    }
}

static void encode_and_decode_agree_with_the_rules(void **state) {
    (void)state;
    enum { N = 1000 };
    static float in[N], out[N];
    static uint16_t half[N];
    uint64_t seed = 2;
    for (int i = 0; i < N; i++) in[i] = swiglu_f32_from_bits((uint32_t)next_u64(&seed));
    assert_int_equal(swiglu_encode(SWIGLU_BF16, in, N, half), SWIGLU_OK);
    for (int i = 0; i < N; i++) assert_int_equal(half[i], swiglu_bf16_store(in[i]));
    assert_int_equal(swiglu_encode(SWIGLU_F16, in, N, half), SWIGLU_OK);
    for (int i = 0; i < N; i++) assert_int_equal(half[i], swiglu_f16_store(in[i]));
    assert_int_equal(swiglu_decode(SWIGLU_F16, half, N, out), SWIGLU_OK);
    for (int i = 0; i < N; i++) assert_true(same_float(out[i], swiglu_f16_widen(half[i])));

    assert_int_equal(swiglu_encode(-1, in, 1, half), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_encode(SWIGLU_F16, NULL, 1, half), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_decode(SWIGLU_Q8_0, half, 33, out), SWIGLU_E_SHAPE);
    assert_int_equal(swiglu_decode(4, half, 32, out), SWIGLU_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(stores_round_to_nearest_even),
        cmocka_unit_test(nan_never_becomes_infinite),
        cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(staging_flushes_before_rounding),
        cmocka_unit_test(encode_and_decode_agree_with_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
