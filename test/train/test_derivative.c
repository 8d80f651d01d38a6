/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double derivatives of slope.h against central differences of the reference activations, and swiglu_act_derivative
 * against them: every f16 and bf16 value and a dense sample of f32; with SWIGLU_LONG=1 every f32 bit pattern.
 */
#include <float.h>

#include "slope.h"

static struct swiglu_act named(const char *name) {
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, name), SWIGLU_OK);
    return act;
}

static struct swiglu_act silu_with(float alpha) {
    struct swiglu_act act = named("silu");
    act.alpha = alpha;
    return act;
}

static struct swiglu_act with_params(const char *name, float p0, float p1, float p2, float p3) {
    struct swiglu_act act = named(name);
    memcpy(act.param, (float[]){p0, p1, p2, p3}, 4 * sizeof(float));
    return act;
}

/* ---- the judge itself ---- */

/* Steps of 1e-5 leave 1e-10 of truncation (|act'''| is below 5 here) and 1e-11 times |act| of rounding. */
static void doubles_agree_with_central_differences(void **state) {
    (void)state;
    const double step = 1e-5;
    const char *name;
    for (size_t i = 0; (name = swiglu_act_name(i, NULL)); i++) {
        const struct swiglu_act act = named(name);
        for (int n = -3000; n < 3000; n++) {
            const double a = (n + 0.3) * 0.01; /* no difference across a kink at 0 */
            const double found = (swiglu_ref_act(&act, a + step) - swiglu_ref_act(&act, a - step)) / (2 * step);
            const double up = (swiglu_ref_up(&act, a + step) - swiglu_ref_up(&act, a - step)) / (2 * step);
            if (slope_jump(&act, a - step, a + step) == 0 && !(fabs(found - slope_of(&act, a)) < 1e-8 * (1 + fabs(a))))
                fail_msg("%s: %g instead of %g at %g", name, slope_of(&act, a), found, a);
            assert_true(fabs(up - slope_of_up(&act, a)) < 1e-8);
        }
    }
}

static void curvature_bounds_the_change_of_a_slope(void **state) {
    (void)state;
    const double step = 1e-3;
    const char *name;
    for (size_t i = 0; (name = swiglu_act_name(i, NULL)); i++) {
        const struct swiglu_act act = named(name);
        for (int n = -30000; n < 30000; n++) {
            const double a = n * step;
            const double change = fabs(slope_of(&act, a + step) - slope_of(&act, a));
            const double up = fabs(slope_of_up(&act, a + step) - slope_of_up(&act, a));
            if (!(change <= curvature(&act) * step * (1 + 1e-9) + slope_jump(&act, a, a + step) + 1e-15))
                fail_msg("%s: the slope changes by %g at %g", name, change, a);
            assert_true(up <= curvature_of_up(&act) * step + 1e-15);
        }
    }
}

/* ---- accuracy ---- */

struct worst { double ulp; float at; };

static void look_at(const struct swiglu_act *act, float x, float y, struct worst *worst) {
    const double f = slope_of(act, x);
    if (isnan(f) || isnan(y)) {
        if (!isnan(f) || !isnan(y)) fail_msg("act'(%a) = %a", (double)x, (double)y);
        return;
    }
    if (fabs(f) > FLT_MAX) { /* rounds to FLT_MAX or overflows */
        assert_true(fabs((double)y) > FLT_MAX * (1 - 0x1p-22) && !signbit(y) == !signbit(f));
        return;
    }
    const double ulp = 4 * fabs(y - f) / slope_noise(f);
    if (!(ulp <= worst->ulp)) worst->ulp = ulp, worst->at = x;
}

static void look_at_all(const struct swiglu_act *act, uint64_t stride, float (*value)(uint64_t), uint64_t end,
                        struct worst *worst) {
    enum { BATCH = 4096 };
    static float x[BATCH], y[BATCH];
    for (uint64_t i = 0; i < end;) {
        size_t n = 0;
        for (; n < BATCH && i < end; i += stride) x[n++] = value(i);
        assert_int_equal(swiglu_act_derivative(act, n, x, y), SWIGLU_OK);
        for (size_t j = 0; j < n; j++) look_at(act, x[j], y[j], worst);
    }
}

static float as_f32(uint64_t i) { return swiglu_f32_from_bits((uint32_t)i); }
static float as_f16(uint64_t i) { return swiglu_f16_widen((uint16_t)i); }
static float as_bf16(uint64_t i) { return swiglu_bf16_widen((uint16_t)i); }

static void accurate(const char *what, struct swiglu_act act) {
    const int all = getenv("SWIGLU_LONG") != NULL;
    struct worst worst = {0, 0};
    look_at_all(&act, 1, as_f16, 65536, &worst);
    look_at_all(&act, 1, as_bf16, 65536, &worst);
    look_at_all(&act, all ? 1 : 5003, as_f32, (uint64_t)1 << 32, &worst);
    print_message("%-20s %.3f ulp(max(|f'|, 1/8)) at %a\n", what, worst.ulp, (double)worst.at);
    if (!(worst.ulp <= 4)) fail_msg("%s: %.3f ulp at %a", what, worst.ulp, (double)worst.at);
}

static void derivatives_are_accurate(void **state) {
    (void)state;
    static const float alphas[] = {1.702f, 0.5f, 4, -1, 0.3f, 0x1p-20f, -0x1.fffffep-1f, 0x1p20f, -0x1p20f};
    static const char *const names[] = {"identity", "relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "xielu", "situ"};
    for (size_t i = 0; i < COUNT(names); i++) accurate(names[i], named(names[i]));
    for (size_t i = 0; i < COUNT(alphas); i++) {
        char what[40];
        snprintf(what, sizeof what, "silu alpha %g", (double)alphas[i]);
        accurate(what, silu_with(alphas[i]));
    }
    accurate("xielu, other p n b e", with_params("xielu", 0.1f, 3, 0.25f, -0.01f));
    accurate("xielu, b = e = 0", with_params("xielu", 0.8f, 0.1f, 0, 0));
    accurate("situ b1 0.7", with_params("situ", 0.7f, 25, 0, 0));
}

/* ---- special values (docs/numerics.md) ---- */

static float derivative(struct swiglu_act act, float x) {
    float y;
    assert_int_equal(swiglu_act_derivative(&act, 1, &x, &y), SWIGLU_OK);
    return y;
}

static void assert_bits(float got, float want) {
    if (!same_float(got, want)) fail_msg("%a instead of %a", (double)got, (double)want);
}

static void limits_are_taken(void **state) {
    (void)state;
    static const char *const smooth[] = {"silu", "quick_gelu", "gelu", "gelu_tanh"};
    for (size_t i = 0; i < COUNT(smooth); i++) {
        const struct swiglu_act act = named(smooth[i]);
        assert_bits(derivative(act, 0.0f), 0.5f);
        assert_bits(derivative(act, -0.0f), 0.5f);
        assert_bits(derivative(act, INFINITY), 1);
        assert_bits(derivative(act, -INFINITY), -0.0f);
        assert_bits(derivative(act, FLT_MAX), 1);
        assert_bits(derivative(act, 1e-40f), 0.5f);
        assert_bits(derivative(act, -100), -0.0f);
    }
    assert_bits(derivative(silu_with(-1), INFINITY), -0.0f);
    assert_bits(derivative(silu_with(-1), -INFINITY), 1);
    assert_bits(derivative(named("sigmoid"), INFINITY), 0.0f);
    assert_bits(derivative(named("sigmoid"), -INFINITY), 0.0f);
    assert_bits(derivative(named("sigmoid"), FLT_MAX), 0.0f);
    assert_bits(derivative(named("sigmoid"), -100), 0.0f);
    assert_bits(derivative(named("sigmoid"), 1e-40f), 0.25f);
    assert_bits(derivative(named("sigmoid"), -0.0f), 0.25f);
    assert_bits(derivative(named("situ"), INFINITY), 0.0f);
    assert_true(derivative(named("situ"), -INFINITY) == 0);
    const struct swiglu_act xielu = named("xielu");
    assert_bits(derivative(xielu, -INFINITY), (float)((double)xielu.param[2] - (double)xielu.param[1]));
    assert_bits(derivative(xielu, INFINITY), INFINITY);
}

static void relu_has_no_slope_at_zero_and_nan_stays(void **state) {
    (void)state;
    const char *name;
    for (size_t i = 0; (name = swiglu_act_name(i, NULL)); i++) assert_true(isnan(derivative(named(name), NAN)));
    static const char *const relus[] = {"relu", "relu2"};
    for (size_t i = 0; i < COUNT(relus); i++) {
        assert_bits(derivative(named(relus[i]), 0.0f), 0);
        assert_true(derivative(named(relus[i]), -0.0f) == 0);
        assert_true(derivative(named(relus[i]), -INFINITY) == 0);
    }
    assert_bits(derivative(named("relu"), 1e-45f), 1);
    assert_bits(derivative(named("relu"), INFINITY), 1);
    assert_bits(derivative(named("relu2"), INFINITY), INFINITY);
}

static void what_cannot_be_done_is_refused(void **state) {
    (void)state;
    float x = 1, y = 5;
    struct swiglu_act act = named("silu");
    assert_int_equal(swiglu_act_derivative(NULL, 1, &x, &y), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_act_derivative(&act, 1, NULL, &y), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_act_derivative(&act, 1, &x, NULL), SWIGLU_E_ARGUMENT);
    act.kind = 77;
    assert_int_equal(swiglu_act_derivative(&act, 1, &x, &y), SWIGLU_E_ARGUMENT);
    assert_true(y == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_agree_with_central_differences),
        cmocka_unit_test(curvature_bounds_the_change_of_a_slope),
        cmocka_unit_test(derivatives_are_accurate),
        cmocka_unit_test(limits_are_taken),
        cmocka_unit_test(relu_has_no_slope_at_zero_and_nan_stays),
        cmocka_unit_test(what_cannot_be_done_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
