/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derivatives of the activations as the generic level computes them: against central differences of the functions in
 * double precision, on every f16 and bf16 value and a sample of f32. Special values by table.
 */
#include "support.h"

#include <float.h>

#include "kern/kern.h"
#include "ref/act_double.h"

static struct swiglu_act named(const char *name) {
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, name), SWIGLU_OK);
    return act;
}

static void eval_all(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    swiglu_kern_select(SWIGLU_ISA_GENERIC)->act_grad(act, n, x, y);
}

static float eval(const struct swiglu_act *act, float x) {
    float y;
    eval_all(act, 1, &x, &y);
    return y;
}

/* Differences across a kink say nothing about either side. */
static int near_kink(const struct swiglu_act *act, double x, double step) {
    const double edge = act->kind == SWIGLU_ACT_XIELU ? act->param[3] : 0;
    const int has_kink = act->kind == SWIGLU_ACT_RELU || act->kind == SWIGLU_ACT_RELU2 || act->kind == SWIGLU_ACT_XIELU;
    return has_kink && x >= edge - 2 * step && x <= 2 * step;
}

struct worst { double ratio; float at; };

/* The allowance is 4 ulp(max(|f'|, 1/8)); beside it stands the error of the difference itself: step^2 / 6 times a third
 * derivative of at most 2 max(1, alpha)^2, and rounding of the two values. */
static void look_at(const struct swiglu_act *act, float x, float y, struct worst *worst) {
    const double sharp = act->kind == SWIGLU_ACT_SILU ? fmax(1, fabs((double)act->alpha)) : 1;
    const double step = 1e-4 * fmax(1, fabs((double)x) * 1e-2) / sharp;
    if (!isfinite(x) || fabsf(x) > 1e6f || near_kink(act, x, step)) return;
    const double up = swiglu_ref_act(act, x + step), down = swiglu_ref_act(act, x - step);
    const double f = (up - down) / (2 * step);
    const double difference = step * step * sharp * sharp / 3 + 0x1p-51 * (fabs(up) + fabs(down)) / step;
    const double allowed = 4 * ldexp(1, ilogb(fmax(fabs(f), 0.125)) - 23);
    const double ratio = fmax(0, fabs(y - f) - difference) / allowed;
    if (!(ratio <= worst->ratio)) worst->ratio = ratio, worst->at = x;
}

static void accurate(const char *what, struct swiglu_act act) {
    enum { BATCH = 4096 };
    static float x[BATCH], y[BATCH];
    struct worst worst = {0, 0};
    for (int source = 0; source < 3; source++) {
        const uint64_t end = source == 2 ? (uint64_t)1 << 32 : 65536, stride = source == 2 ? 8191 : 1;
        for (uint64_t i = 0; i < end;) {
            size_t n = 0;
            for (; n < BATCH && i < end; i += stride)
                x[n++] = source == 0   ? swiglu_f16_widen((uint16_t)i)
                         : source == 1 ? swiglu_bf16_widen((uint16_t)i)
                                       : swiglu_f32_from_bits((uint32_t)i);
            eval_all(&act, n, x, y);
            for (size_t j = 0; j < n; j++) look_at(&act, x[j], y[j], &worst);
        }
    }
    print_message("%-20s %.3f of the allowance at %a\n", what, worst.ratio, (double)worst.at);
    if (!(worst.ratio <= 1)) fail_msg("%s: %.3f of the allowance at %a", what, worst.ratio, (double)worst.at);
}

static void derivatives_are_accurate(void **state) {
    (void)state;
    static const char *const names[] = {"identity",   "relu", "relu2",     "sigmoid", "silu",
                                        "quick_gelu", "gelu", "gelu_tanh", "xielu",   "situ"};
    for (size_t i = 0; i < COUNT(names); i++) accurate(names[i], named(names[i]));
    struct swiglu_act act = named("silu");
    act.alpha = -4;
    accurate("silu alpha -4", act);
    act.alpha = 0.1f;
    accurate("silu alpha 0.1", act);
}

static void assert_bits(float got, float want) {
    if (isnan(want)) assert_true(isnan(got));
    else if (!same_float(got, want)) fail_msg("%a instead of %a", (double)got, (double)want);
}

static void limits_are_taken(void **state) {
    (void)state;
    static const char *const smooth[] = {"silu", "gelu", "gelu_tanh"};
    for (size_t i = 0; i < COUNT(smooth); i++) {
        const struct swiglu_act act = named(smooth[i]);
        assert_bits(eval(&act, 0.0f), 0.5f);
        assert_bits(eval(&act, -0.0f), 0.5f);
        assert_bits(eval(&act, 1e-40f), 0.5f);
        assert_bits(eval(&act, INFINITY), 1);
        assert_bits(eval(&act, -INFINITY), -0.0f);
        assert_bits(eval(&act, FLT_MAX), 1);
        assert_bits(eval(&act, NAN), NAN);
        assert_true(fabsf(eval(&act, -100)) < 0x1p-100f);
    }
    static const char *const stepped[] = {"relu", "relu2"};
    for (size_t i = 0; i < COUNT(stepped); i++) {
        const struct swiglu_act act = named(stepped[i]);
        assert_true(eval(&act, 0.0f) == 0 && eval(&act, -0.0f) == 0 && eval(&act, -INFINITY) == 0);
        assert_bits(eval(&act, NAN), NAN);
    }
    const struct swiglu_act sigmoid = named("sigmoid"), identity = named("identity"), situ = named("situ");
    assert_bits(eval(&sigmoid, 0.0f), 0.25f);
    assert_true(eval(&sigmoid, INFINITY) < 0x1p-100f && eval(&sigmoid, -INFINITY) == 0);
    assert_bits(eval(&identity, -INFINITY), 1);
    assert_true(fabsf(eval(&situ, INFINITY)) < 0x1p-50f && fabsf(eval(&situ, -INFINITY)) < 0x1p-50f);
    assert_bits(eval(&situ, NAN), NAN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derivatives_are_accurate),
        cmocka_unit_test(limits_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
