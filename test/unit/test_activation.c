/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accuracy and special values of the activations, through the public swiglu_act_eval against double precision: every
 * f16 and bf16 value, and a dense sample of f32; with SWIGLU_LONG=1 every f32 bit pattern (minutes).
 */
#include "support.h"

#include <float.h>

#include "ref/act_double.h"

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

/* ---- accuracy ---- */

struct worst { double ulp, noise; float ulp_at, noise_at; };

/* Promised: max_ulp where |f| >= 2^-100 (0 = no such promise), and the noise of the reference everywhere. */
static void look_at(const struct swiglu_act *act, float x, float y, struct worst *worst) {
    const double f = swiglu_ref_act(act, x);
    if (isnan(f)) {
        assert_true(isnan(y));
        return;
    }
    if (fabs(f) > FLT_MAX) { /* rounds to FLT_MAX or overflows */
        assert_true(fabs((double)y) > FLT_MAX * (1 - 0x1p-22) && !signbit(y) == !signbit(f));
        return;
    }
    if (!isfinite(y)) fail_msg("act(%a) = %a, not finite", x, y);
    const double off = fabs(y - f);
    if (off == 0) return;
    const double noise = off / swiglu_ref_act_noise(act, x);
    if (noise > worst->noise) worst->noise = noise, worst->noise_at = x;
    if (fabs(f) < 0x1p-100) return;
    const double ulp = off / ldexp(1, ilogb(f) - 23);
    if (ulp > worst->ulp) worst->ulp = ulp, worst->ulp_at = x;
}

static void look_at_all(const struct swiglu_act *act, uint64_t first, uint64_t stride, float (*value)(uint64_t),
                        uint64_t end, struct worst *worst) {
    enum { BATCH = 4096 };
    static float x[BATCH], y[BATCH];
    for (uint64_t i = first; i < end;) {
        size_t n = 0;
        for (; n < BATCH && i < end; i += stride) x[n++] = value(i);
        assert_int_equal(swiglu_act_eval(act, n, x, y), SWIGLU_OK);
        for (size_t j = 0; j < n; j++) look_at(act, x[j], y[j], worst);
    }
}

static float as_f32(uint64_t i) { return swiglu_f32_from_bits((uint32_t)i); }
static float as_f16(uint64_t i) { return swiglu_f16_widen((uint16_t)i); }
static float as_bf16(uint64_t i) { return swiglu_bf16_widen((uint16_t)i); }

static void accurate(const char *what, struct swiglu_act act, double max_ulp) {
    const int all = getenv("SWIGLU_LONG") != NULL;
    struct worst worst = {0, 0, 0, 0};
    look_at_all(&act, 0, 1, as_f16, 65536, &worst);
    look_at_all(&act, 0, 1, as_bf16, 65536, &worst);
    look_at_all(&act, 0, all ? 1 : 2039, as_f32, (uint64_t)1 << 32, &worst);
    print_message("%-20s %.3f ULP at %a, %.3f of the bound at %a\n", what, worst.ulp, (double)worst.ulp_at, worst.noise,
                  (double)worst.noise_at);
    if (max_ulp > 0 && !(worst.ulp <= max_ulp)) fail_msg("%s: %.3f ULP at %a", what, worst.ulp, (double)worst.ulp_at);
    if (!(worst.noise <= 1)) fail_msg("%s: error above its bound at %a", what, (double)worst.noise_at);
}

static void silu_is_accurate(void **state) {
    (void)state;
    static const float alphas[] = {1, 1.702f, 0.5f, 4, -1, 0.3f, 0x1p-20f, -0x1.fffffep-1f, 0x1p20f, -0x1p20f};
    for (size_t i = 0; i < COUNT(alphas); i++) {
        char what[40];
        snprintf(what, sizeof what, "silu alpha %g", (double)alphas[i]);
        accurate(what, silu_with(alphas[i]), 2);
    }
}

static void sigmoid_is_accurate(void **state) { (void)state; accurate("sigmoid", named("sigmoid"), 2); }
static void gelu_erf_is_accurate(void **state) { (void)state; accurate("gelu_erf", named("gelu"), 2); }
static void gelu_tanh_is_accurate(void **state) { (void)state; accurate("gelu_tanh", named("gelu_tanh"), 2); }

static void exact_ones_are_exact(void **state) {
    (void)state;
    accurate("identity", named("identity"), 0.001);
    accurate("relu", named("relu"), 0.001);
    accurate("relu2", named("relu2"), 0.5);
}

/* Stated figures: 1 ULP for both, and for xIELU 2^-33 of the terms that it adds, which may cancel (act_double.c). */
static void xielu_keeps_its_figure(void **state) {
    (void)state;
    accurate("xielu", named("xielu"), 0);
    struct swiglu_act act = named("xielu");
    act.param[0] = 0.1f, act.param[1] = 3, act.param[2] = 0.25f, act.param[3] = -0.01f;
    accurate("xielu, other p n b e", act, 0);
    act.param[1] = 0.1f, act.param[2] = 0, act.param[3] = 0;
    accurate("xielu, b = e = 0", act, 0);
}

static void situ_keeps_its_figure(void **state) {
    (void)state;
    accurate("situ", named("situ"), 1);
    struct swiglu_act act = named("situ");
    act.param[0] = 0.7f;
    accurate("situ b1 0.7", act, 1);
}

/* ---- special values (docs/numerics.md) ---- */

static float eval(struct swiglu_act act, float x) {
    float y;
    assert_int_equal(swiglu_act_eval(&act, 1, &x, &y), SWIGLU_OK);
    return y;
}

static void assert_bits(float got, float want) {
    if (isnan(want)) assert_true(isnan(got));
    else if (!same_float(got, want)) fail_msg("%a instead of %a", (double)got, (double)want);
}

static void limits_are_taken(void **state) {
    (void)state;
    const struct swiglu_act silu = named("silu"), erf = named("gelu"), tanh_form = named("gelu_tanh");
    const struct swiglu_act smooth[] = {silu, erf, tanh_form};
    for (size_t i = 0; i < COUNT(smooth); i++) {
        assert_bits(eval(smooth[i], 0.0f), 0.0f);
        assert_bits(eval(smooth[i], -0.0f), -0.0f);
        assert_bits(eval(smooth[i], INFINITY), INFINITY);
        assert_bits(eval(smooth[i], -INFINITY), -0.0f);
        assert_bits(eval(smooth[i], NAN), NAN);
        assert_bits(eval(smooth[i], FLT_MAX), FLT_MAX);
        const float tiny = eval(smooth[i], 1e-40f);
        assert_true(fabs(tiny - 5e-41) <= 0x1p-149);
        const float left = eval(smooth[i], -100);
        assert_true(signbit(left) && fabsf(left) < 0x1p-100f);
    }
    assert_bits(eval(erf, -100), -0.0f);
    assert_bits(eval(tanh_form, -100), -0.0f);
    const struct swiglu_act sigmoid = named("sigmoid");
    assert_bits(eval(sigmoid, 0.0f), 0.5f);
    assert_bits(eval(sigmoid, -0.0f), 0.5f);
    assert_bits(eval(sigmoid, INFINITY), 1);
    assert_bits(eval(sigmoid, -INFINITY), 0);
    assert_bits(eval(sigmoid, NAN), NAN);
    assert_bits(eval(sigmoid, FLT_MAX), 1);
    assert_bits(eval(sigmoid, 1e-40f), 0.5f);
    const float left = eval(sigmoid, -100);
    assert_true(!signbit(left) && left < 0x1p-100f);
    assert_bits(eval(silu_with(-1), -INFINITY), -INFINITY);
    assert_bits(eval(silu_with(-1), INFINITY), 0.0f);
}

static void relu_keeps_zero_and_nan(void **state) {
    (void)state;
    const struct swiglu_act relu = named("relu"), relu2 = named("relu2"), identity = named("identity");
    assert_bits(eval(relu, -0.0f), -0.0f);
    assert_bits(eval(relu, -1), 0.0f);
    assert_bits(eval(relu, NAN), NAN);
    assert_bits(eval(relu, INFINITY), INFINITY);
    assert_bits(eval(relu, -INFINITY), 0.0f);
    assert_bits(eval(relu2, -0.0f), 0.0f);
    assert_bits(eval(relu2, NAN), NAN);
    assert_bits(eval(relu2, 1e30f), INFINITY);
    assert_bits(eval(relu2, -INFINITY), 0.0f);
    assert_bits(eval(identity, -0.0f), -0.0f);
    assert_bits(eval(identity, 1e-45f), 1e-45f);
}

static void situ_and_xielu_take_their_limits(void **state) {
    (void)state;
    static const float points[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX};
    const struct swiglu_act acts[] = {named("situ"), named("xielu")};
    for (size_t i = 0; i < COUNT(acts); i++)
        for (size_t j = 0; j < COUNT(points); j++) {
            const float want = (float)swiglu_ref_act(&acts[i], points[j]), got = eval(acts[i], points[j]);
            if (isfinite(want) && want != 0) assert_true(fabs(got - want) <= 1e-6 * fabs(want));
            else assert_true(isnan(want) ? isnan(got) : got == want);
        }
}

static void hugely_negative_gates_are_no_nan(void **state) { /* C023 */
    (void)state;
    static const float gates[] = {-88, -88.5f, -100, -1e4f, -3e38f};
    static const float alphas[] = {1, 1.702f, 0x1p-20f, 0x1p20f};
    for (size_t i = 0; i < COUNT(gates); i++)
        for (size_t j = 0; j < COUNT(alphas); j++) {
            const float y = eval(silu_with(alphas[j]), gates[i]);
            assert_true(signbit(y) && y <= 0 && y >= gates[i]);
        }
    assert_true(eval(named("silu"), -88) > -0x1p-100f);
    assert_bits(eval(named("silu"), -INFINITY), -0.0f);
}

static void tanh_gelu_does_not_overflow(void **state) { /* C025 */
    (void)state;
    const struct swiglu_act act = named("gelu_tanh");
    assert_true(eval(act, -3e38f) == 0);
    assert_true(eval(act, -1e4f) == 0);
    assert_true(fabsf(eval(act, -50)) < 0x1p-100f);
    assert_bits(eval(act, 50), 50);
    assert_bits(eval(act, 1e4f), 1e4f);
    assert_bits(eval(act, 3e38f), 3e38f);
}

/* ---- the activation goes to the gate, and to the gate alone ---- */

/* One input of 1, two hidden units, the identity below: y = act(gate) * up. */
static void two_units(const char *act, int layout, const float *gate, const float *up, double want0, double want1) {
    static const float unit[] = {1, 0, 0, 1}, one = 1;
    static unsigned char work[1 << 16];
    const float packed[] = {gate[0], gate[1], up[0], up[1]};
    float y[2];
    struct swiglu_desc d;
    struct swiglu_block *block;
    swiglu_desc_init(&d);
    d.d_in = 1, d.d_ff = d.d_out = 2, d.layout = layout, d.act = named(act);
    d.gate = (struct swiglu_matrix){.data = packed, .rows = layout == SWIGLU_GATE_UP ? 4 : 2, .cols = 1};
    if (layout == SWIGLU_SEPARATE) d.up = (struct swiglu_matrix){.data = up, .rows = 2, .cols = 1};
    d.down = (struct swiglu_matrix){.data = unit, .rows = 2, .cols = 2};
    assert_int_equal(swiglu_block_create(&d, NULL, &block, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_forward(block, 1, (struct swiglu_crows){&one, SWIGLU_F32, 0},
                                    (struct swiglu_rows){y, SWIGLU_F32, 0}, (struct swiglu_work){work, sizeof work},
                                    NULL), SWIGLU_OK);
    swiglu_block_destroy(block);
    assert_true(fabs(y[0] - want0) < 6e-6 && fabs(y[1] - want1) < 6e-6);
}

static void activation_is_of_the_gate(void **state) {
    (void)state;
    two_units("silu", SWIGLU_SEPARATE, (float[]){2, -1}, (float[]){3, 4}, 5.28478, -1.07577);     /* C002, C013 */
    two_units("silu", SWIGLU_GATE_UP, (float[]){2, -1}, (float[]){3, 4}, 5.28478, -1.07577);
    two_units("gelu_tanh", SWIGLU_GATE_UP, (float[]){1, 2}, (float[]){3, -1}, 2.52358, -1.95460); /* C011 */
}

static void eval_refuses_what_it_cannot_do(void **state) {
    (void)state;
    float x = 1, y = 5;
    struct swiglu_act act = named("silu");
    assert_int_equal(swiglu_act_eval(NULL, 1, &x, &y), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_act_eval(&act, 1, NULL, &y), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_act_eval(&act, 1, &x, NULL), SWIGLU_E_ARGUMENT);
    act.kind = 77;
    assert_int_equal(swiglu_act_eval(&act, 1, &x, &y), SWIGLU_E_ARGUMENT);
    assert_true(y == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silu_is_accurate),
        cmocka_unit_test(sigmoid_is_accurate),
        cmocka_unit_test(gelu_erf_is_accurate),
        cmocka_unit_test(gelu_tanh_is_accurate),
        cmocka_unit_test(exact_ones_are_exact),
        cmocka_unit_test(xielu_keeps_its_figure),
        cmocka_unit_test(situ_keeps_its_figure),
        cmocka_unit_test(limits_are_taken),
        cmocka_unit_test(relu_keeps_zero_and_nan),
        cmocka_unit_test(situ_and_xielu_take_their_limits),
        cmocka_unit_test(hugely_negative_gates_are_no_nan),
        cmocka_unit_test(tanh_gelu_does_not_overflow),
        cmocka_unit_test(activation_is_of_the_gate),
        cmocka_unit_test(eval_refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
