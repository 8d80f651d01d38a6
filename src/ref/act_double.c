/* SPDX-License-Identifier: Apache-2.0 */
#include "ref/act_double.h"

#include <math.h>

static const double U = 0x1p-24; /* unit roundoff of f32 */
static const double SQRT_HALF = 0.70710678118654752440;
static const double SQRT_2_OVER_PI = 0.79788456080286535588;
static const double GELU_CUBIC = 0.044715;

/* exp(-t) instead of 1 - s for negative t keeps the tail's relative accuracy; both overflow and underflow are right. */
static double sigmoid(double t) { return 1 / (1 + exp(-t)); }

static double silu(double a, double alpha) {
    const double t = alpha * a;
    if (isinf(t)) return t > 0 ? a : copysign(0, a);
    return a / (1 + exp(-t));
}

static double gelu_erf(double a) {
    if (isinf(a)) return a > 0 ? a : -0.0;
    return 0.5 * a * erfc(-a * SQRT_HALF);
}

/* (1 + tanh z) / 2 = sigmoid(2 z): no cancellation in the tail. */
static double gelu_tanh(double a) {
    if (isinf(a)) return a > 0 ? a : -0.0;
    return a * sigmoid(2 * SQRT_2_OVER_PI * (a + GELU_CUBIC * a * a * a));
}

static double xielu(double a, const float *param) {
    const double p = param[0], n = param[1], b = param[2], e = param[3];
    if (a > 0) return p * a * a + b * a;
    if (isinf(a)) return n > b ? -a : n < b ? a : -n; /* (b - n) a - n */
    return (expm1(a > e ? e : a) - a) * n + b * a;
}

static double situ(double a, double b1) {
    if (isinf(a)) return a > 0 ? b1 : -0.0;
    return b1 * tanh(a / b1) * sigmoid(a);
}

double swiglu_ref_act(const struct swiglu_act *act, double a) {
    if (isnan(a)) return a;
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_IDENTITY: return a;
    case SWIGLU_ACT_RELU: return 0 > a ? 0 : a;
    case SWIGLU_ACT_RELU2: return a > 0 ? a * a : 0;
    case SWIGLU_ACT_SIGMOID: return sigmoid(a);
    case SWIGLU_ACT_SILU: return silu(a, act->alpha);
    case SWIGLU_ACT_GELU_ERF: return gelu_erf(a);
    case SWIGLU_ACT_GELU_TANH: return gelu_tanh(a);
    case SWIGLU_ACT_XIELU: return xielu(a, act->param);
    case SWIGLU_ACT_SITU: return situ(a, act->param[0]);
    }
    return NAN;
}

/* ---- derivatives: only as upper bounds of their absolute value ---- */

static double sigmoid_slope_at(double t) { return isinf(t) ? 0 : sigmoid(t) * sigmoid(-t); }

static double silu_slope_at(double t) {
    if (isinf(t)) return t > 0 ? 1 : 0;
    return sigmoid(t) * (1 + t * sigmoid(-t));
}

static double gelu_erf_slope_at(double a) {
    if (isinf(a)) return a > 0 ? 1 : 0;
    return 0.5 * erfc(-a * SQRT_HALF) + a * (0.5 * SQRT_2_OVER_PI) * exp(-0.5 * a * a);
}

static double gelu_tanh_slope_at(double a) {
    if (isinf(a)) return a > 0 ? 1 : 0;
    const double z2 = 2 * SQRT_2_OVER_PI * (a + GELU_CUBIC * a * a * a);
    const double dz2 = 2 * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * a * a);
    return sigmoid(z2) + a * sigmoid(z2) * sigmoid(-z2) * dz2;
}

/* |slope| is largest at an end or at an extremum of the slope, which lie at +-peak for all functions of this kind
 * (f'' is even or odd). The extremum is flat, so a peak known to 1e-8 is good to 1e-16; the factor covers rounding. */
static double largest_slope(double (*slope)(double), double peak, double lo, double hi) {
    double largest = fmax(fabs(slope(lo)), fabs(slope(hi)));
    if (lo <= peak && peak <= hi) largest = fmax(largest, fabs(slope(peak)));
    if (lo <= -peak && -peak <= hi) largest = fmax(largest, fabs(slope(-peak)));
    return largest * (1 + 1e-9);
}

static double silu_slope(double alpha, double lo, double hi) {
    static const double PEAK = 2.3993572805; /* t tanh(t / 2) = 2 */
    return alpha > 0 ? largest_slope(silu_slope_at, PEAK, alpha * lo, alpha * hi)
                     : largest_slope(silu_slope_at, PEAK, alpha * hi, alpha * lo);
}

static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; } /* 0 Inf = 0 */

/* Each piece has a monotonic derivative: 2 p a + b above 0, b - n on (e, 0], n (exp(a) - 1) + b below e. */
static double xielu_slope(const float *param, double lo, double hi) {
    const double p = param[0], n = param[1], b = param[2], e = param[3];
    double largest = 0;
    if (hi > 0) largest = fmax(fabs(times(2 * p, fmax(lo, 0)) + b), fabs(times(2 * p, hi) + b));
    if (lo <= 0 && hi > e) largest = fmax(largest, fabs(b - n));
    if (lo <= e) largest = fmax(largest, fmax(fabs(n * expm1(lo) + b), fabs(n * expm1(fmin(hi, e)) + b)));
    return largest * (1 + 1e-9);
}

static double nearest_zero(double lo, double hi) { return lo > 0 ? lo : hi < 0 ? -hi : 0; }

/* 1 - tanh^2, without its cancellation. */
static double sech2(double t) {
    const double c = cosh(t);
    return 1 / (c * c);
}

/* sech2(a / b1) s(a) + b1 tanh(a / b1) s'(a): each of the two terms between its least and its largest. */
static double situ_slope(double b1, double lo, double hi) {
    const double near = nearest_zero(lo, hi), far = fmax(fabs(lo), fabs(hi));
    const double flat = sigmoid_slope_at(far), steep = sigmoid_slope_at(near);
    const double least = sech2(far / b1) * sigmoid(lo) + b1 * tanh(lo / b1) * (lo < 0 ? steep : flat);
    const double most = sech2(near / b1) * sigmoid(hi) + b1 * tanh(hi / b1) * (hi > 0 ? steep : flat);
    return fmax(fabs(least), fabs(most)) * (1 + 1e-9);
}

double swiglu_ref_act_slope(const struct swiglu_act *act, double lo, double hi) {
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_IDENTITY: return 1;
    case SWIGLU_ACT_RELU: return hi > 0 ? 1 : 0;
    case SWIGLU_ACT_RELU2: return hi > 0 ? 2 * hi : 0;
    case SWIGLU_ACT_SIGMOID: return largest_slope(sigmoid_slope_at, 0, lo, hi);
    case SWIGLU_ACT_SILU: return silu_slope(act->alpha, lo, hi);
    case SWIGLU_ACT_GELU_ERF: return largest_slope(gelu_erf_slope_at, 1.4142135624, lo, hi); /* sqrt 2 */
    case SWIGLU_ACT_GELU_TANH: return largest_slope(gelu_tanh_slope_at, 1.4185040078, lo, hi);
    case SWIGLU_ACT_XIELU: return xielu_slope(act->param, lo, hi);
    case SWIGLU_ACT_SITU: return situ_slope(act->param[0], lo, hi);
    }
    return INFINITY;
}

double swiglu_ref_act_jump(const struct swiglu_act *act, double lo, double hi) {
    if (act->kind != SWIGLU_ACT_XIELU || lo > 0 || hi <= 0) return 0;
    return fabs(act->param[1] * expm1(act->param[3])); /* from n expm1(e) at 0 to 0 just above */
}

/* ---- rounding of the f32 evaluation (docs/numerics.md, accuracy) ---- */

enum {
    F32_ROUNDINGS = 4,   /* evaluated in f32: 2 ULP */
    DOUBLE_ROUNDINGS = 2 /* evaluated in double and rounded once: 1 ULP */
};
static const double EXPM1_ERROR = 0x1p-33; /* of the kernels' double exp, relative */

static double xielu_magnitude(double a, const float *param) {
    const double p = param[0], n = param[1], b = param[2], e = param[3];
    if (a > 0) return fabs(p * a * a) + fabs(b * a);
    return (fabs(expm1(a > e ? e : a)) + fabs(a)) * fabs(n) + fabs(b * a);
}

double swiglu_ref_act_noise(const struct swiglu_act *act, double a) {
    const double value = fabs(swiglu_ref_act(act, a));
    /* Below 2^-100 no relative figure is promised: an f32 tail ends where exp(-t) leaves the range, t = alpha a near
     * -88.3, at 88.3 exp(-88.3) < 2^-120 over |alpha|. */
    const double tail = value < 0x1p-100 ? 0x1p-120 : 0;
    switch ((enum swiglu_act_kind)act->kind) {
    case SWIGLU_ACT_XIELU: /* the terms may cancel */
        return DOUBLE_ROUNDINGS * U * value + EXPM1_ERROR * xielu_magnitude(a, act->param) + tail;
    case SWIGLU_ACT_SITU: return DOUBLE_ROUNDINGS * U * value + tail;
    case SWIGLU_ACT_SILU: return F32_ROUNDINGS * U * value + fmax(tail, tail / fabs((double)act->alpha));
    default: return F32_ROUNDINGS * U * value + tail;
    }
}

double swiglu_ref_up(const struct swiglu_act *act, double u) {
    return act->kind == SWIGLU_ACT_SITU ? act->param[1] * tanh(u / act->param[1]) : u;
}

/* sech2 falls with the distance from 0. */
double swiglu_ref_up_slope(const struct swiglu_act *act, double lo, double hi) {
    return act->kind == SWIGLU_ACT_SITU ? sech2(nearest_zero(lo, hi) / act->param[1]) : 1;
}

double swiglu_ref_up_noise(const struct swiglu_act *act, double u) {
    return act->kind == SWIGLU_ACT_SITU ? DOUBLE_ROUNDINGS * U * fabs(swiglu_ref_up(act, u)) + 0x1p-149 : 0;
}
