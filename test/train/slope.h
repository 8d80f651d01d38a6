/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives of the activations in double precision, and what an error bound needs to know about them. */
#ifndef SWIGLU_TEST_SLOPE_H
#define SWIGLU_TEST_SLOPE_H

#include "ref/act_double.h"
#include "unit/support.h"

UNUSED_FN double logistic(double t) { return 1 / (1 + exp(-t)); }

UNUSED_FN double sech2(double t) {
    const double c = cosh(t);
    return 1 / (c * c);
}

UNUSED_FN double slope_gelu_tanh(double a) {
    const double k = 2 * 0.79788456080286535588, z = k * (a + 0.044715 * a * a * a);
    return logistic(z) + a * logistic(z) * logistic(-z) * k * (1 + 3 * 0.044715 * a * a);
}

UNUSED_FN double slope_xielu(double a, const float *param) {
    const double p = param[0], n = param[1], b = param[2], e = param[3];
    return a > 0 ? 2 * p * a + b : a > e ? b - n : n * exp(a) + b - n;
}

/* act'(a): kind, alpha and param, no clamps. Limits at the infinities, 0 for relu at 0. */
UNUSED_FN double slope_of(const struct swiglu_act *act, double a) {
    const double t = act->kind == SWIGLU_ACT_SILU ? act->alpha * a : a, b1 = act->param[0];
    if (isnan(a)) return a;
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_IDENTITY: return 1;
    case SWIGLU_ACT_RELU: return a > 0;
    case SWIGLU_ACT_RELU2: return a > 0 ? 2 * a : 0;
    case SWIGLU_ACT_SIGMOID: return logistic(a) * logistic(-a);
    case SWIGLU_ACT_XIELU: return slope_xielu(a, act->param);
    default: break;
    }
    if (isinf(t)) return act->kind == SWIGLU_ACT_SITU ? 0 : t > 0 ? 1 : -0.0;
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_SILU: return logistic(t) * (1 + t * logistic(-t));
    case SWIGLU_ACT_GELU_ERF: return 0.5 * erfc(-a * 0.70710678118654752440) + a * 0.39894228040143267794 * exp(-0.5 * a * a);
    case SWIGLU_ACT_GELU_TANH: return slope_gelu_tanh(a);
    case SWIGLU_ACT_SITU: return sech2(a / b1) * logistic(a) + b1 * tanh(a / b1) * logistic(a) * logistic(-a);
    default: return NAN;
    }
}

/* Of the up side: b2 tanh(u / b2) for SiTU, else the identity. */
UNUSED_FN double slope_of_up(const struct swiglu_act *act, double u) {
    return act->kind == SWIGLU_ACT_SITU ? sech2(u / act->param[1]) : 1;
}

/* A bound of |act''| everywhere, jumps of act' apart. */
UNUSED_FN double curvature(const struct swiglu_act *act) {
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_RELU2: return 2;
    case SWIGLU_ACT_SIGMOID: return 0.0963;
    case SWIGLU_ACT_SILU: return 0.5 * fabs((double)act->alpha); /* s'(t) (2 - t tanh(t / 2)) alpha, largest at 0 */
    case SWIGLU_ACT_GELU_ERF: return 0.798;                      /* phi(a) (2 - a^2) */
    case SWIGLU_ACT_GELU_TANH: return 0.81;
    case SWIGLU_ACT_XIELU: return fmax(2 * fabs((double)act->param[0]), fabs((double)act->param[1]));
    case SWIGLU_ACT_SITU: /* |(sech^2)'| <= 0.77 / b1, 2 s' sech^2 <= 1/2, b1 |s''| */
        return 0.77 / act->param[0] + 0.5 + 0.0963 * act->param[0];
    default: return 0;
    }
}
UNUSED_FN double curvature_of_up(const struct swiglu_act *act) {
    return act->kind == SWIGLU_ACT_SITU ? 0.77 / act->param[1] : 0;
}

/* The height of the jumps of act' within [lo, hi]. */
UNUSED_FN double slope_jump(const struct swiglu_act *act, double lo, double hi) {
    const double e = act->param[3];
    if (act->kind == SWIGLU_ACT_RELU) return lo <= 0 && hi > 0;
    if (act->kind == SWIGLU_ACT_XIELU) return (lo <= 0 && hi > 0) || (lo <= e && hi > e) ? fabs((double)act->param[1]) : 0;
    return 0;
}

/* What is promised of f32 derivatives: 4 ulp(max(|f'|, 1/8)); ulp(v) <= 2^-23 v. */
UNUSED_FN double slope_noise(double slope) { return 4 * ldexp(1, ilogb(fmax(fabs(slope), 0.125)) - 23); }

#endif
