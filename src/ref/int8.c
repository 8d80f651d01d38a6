/* SPDX-License-Identifier: Apache-2.0 */
#include "ref/int8.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"

enum { GROUP = 32, FOLDS_PER_CHUNK = 32 };

static const double U = 0x1p-24;      /* unit roundoff of f32 */
static const double LARGE = 0x1p100;  /* products of scales below it cannot overflow in f32 */
static const double SMALL = 0x1p-100; /* rows whose largest value is below it count as zero */

void swiglu_int8_stage(const float x[32], struct swiglu_int8_group *g) {
    uint32_t u = 0;
    memset(g, 0, sizeof *g);
    for (int i = 0; i < GROUP; i++) {
        const uint32_t magnitude = swiglu_f32_bits(x[i]) & 0x7FFFFFFF;
        if (magnitude > u) u = magnitude;
    }
    if (u >= 0x7F800000) { /* a NaN or an infinity among them */
        g->d = g->e = swiglu_f32_from_bits(0x7FC00000);
        return;
    }
    if (u < 0x0D800000) return; /* SMALL */
    const float largest = swiglu_f32_from_bits(u), r = 127.0f / largest;
    g->d = largest / 127.0f;
    for (int i = 0; i < GROUP; i++) {
        g->q[i] = (int8_t)rintf(x[i] * r);
        g->s += g->q[i];
        if (i >= GROUP / 2) g->s1 += g->q[i];
    }
    g->e = g->d * (float)g->s;
}

static int has_halves(const struct swiglu_quant_part *w) {
    return w->kind == SWIGLU_QUANT_HALVES || w->kind == SWIGLU_QUANT_HALVES_MIN;
}
static int has_minimum(const struct swiglu_quant_part *w) {
    return w->kind == SWIGLU_QUANT_MINIMUM || w->kind == SWIGLU_QUANT_HALVES_MIN;
}

int32_t swiglu_int8_sum(const struct swiglu_quant_part *w, const int8_t q[32]) {
    int32_t half[2] = {0, 0};
    for (int i = 0; i < GROUP; i++) half[i / (GROUP / 2)] += w->q[i] * q[i];
    return has_halves(w) ? half[0] * w->sc[0] + half[1] * w->sc[1] : half[0] + half[1];
}

void swiglu_ref_int8_enter(const float x[32], struct swiglu_ref_group *g) {
    struct swiglu_int8_group exact;
    swiglu_int8_stage(x, &exact);
    memcpy(g->q, exact.q, sizeof g->q);
    g->s = exact.s, g->s1 = exact.s1, g->d = (double)exact.d, g->e = (double)exact.e;
}

/* Steps from q to the farthest integer that p may round to. */
static double steps(double p, double off) {
    const double q = rint(p);
    return fmax(rint(p + off) - q, q - rint(p - off));
}

static void add_errors(const double h[32], double largest, double *error, const struct swiglu_ref_group *g) {
    double off = 0; /* of the largest */
    for (int i = 0; i < GROUP; i++) off = fmax(off, error[i]);
    const double scale_off = off / 127 + 2 * U * g->d;
    for (int i = 0; i < GROUP; i++) {
        const double q = g->q[i];
        if (largest - off < SMALL) { /* it may count as zero, or have another scale altogether */
            error[i] += fabs(q) * g->d + fabs(h[i]) + 1.001 * (largest + off) / 254;
            continue;
        }
        const double p_off = 127 * (error[i] + fabs(h[i]) * off / largest) / (largest - off) + 0x1p-15;
        error[i] = fabs(q) * scale_off + steps(127 * h[i] / largest, p_off) * (g->d + scale_off);
    }
}

int swiglu_ref_int8_round(const double h[32], double *const error[2], struct swiglu_ref_group *g) {
    double largest = 0, off = 0;
    memset(g, 0, sizeof *g);
    for (int i = 0; i < GROUP; i++) {
        if (!isfinite(h[i])) g->d = g->e = NAN;
        largest = fmax(largest, fabs(h[i]));
        off = fmax(off, error[0][i]);
    }
    if (isnan(g->d)) { /* whatever the others are */
        for (int k = 0; k < 2; k++) memset(error[k], 0, GROUP * sizeof *error[k]);
        return 1;
    }
    if (!(largest + off < LARGE)) return 0;
    if (largest >= SMALL) {
        g->d = largest / 127;
        for (int i = 0; i < GROUP; i++) {
            g->q[i] = (int8_t)rint(127 * h[i] / largest);
            g->s += g->q[i];
            if (i >= GROUP / 2) g->s1 += g->q[i];
        }
        g->e = g->d * g->s;
    }
    for (int k = 0; k < 2; k++)
        if (largest + off >= SMALL) add_errors(h, largest, error[k], g);
    return 1;
}

/* The two products of scales of a fold, and what they multiply. */
static void fold(const struct swiglu_quant_part *w, const struct swiglu_ref_group *x, double term[2]) {
    term[0] = swiglu_int8_sum(w, x->q) * ((double)w->a * x->d);
    term[1] = 0;
    if (w->kind == SWIGLU_QUANT_MINIMUM) term[1] = (double)w->b * x->e;
    if (w->kind == SWIGLU_QUANT_HALVES_MIN)
        term[1] = -(double)(w->m[0] * (x->s - x->s1) + w->m[1] * x->s1) * ((double)w->am * x->d);
}

static int is_large(double a, double d) { return isfinite(a) && isfinite(d) && fabs(a) * d >= LARGE; }

struct swiglu_ref_folds swiglu_ref_int8_dot(const struct swiglu_quant_part *w, const struct swiglu_ref_group *x, size_t k) {
    struct swiglu_ref_folds f = {0, 0, 1};
    for (size_t i = 0; i < k / GROUP; i++) {
        double term[2];
        fold(&w[i], &x[i], term);
        f.value += term[0] + term[1];
        /* an infinity decides the class by itself: whether the rest can overflow is what counts */
        for (int n = 0; n < 2; n++)
            if (isfinite(term[n])) f.magnitude += fabs(term[n]);
        f.sure &= !is_large((double)w[i].a, x[i].d) && !is_large(128, x[i].d);
    }
    return f;
}

/* Value and magnitude of weight i. */
static double weight(const struct swiglu_quant_part *w, int i, double *magnitude) {
    const int h = i / (GROUP / 2);
    const double a = (double)w->a * (has_halves(w) ? w->sc[h] : 1) * w->q[i];
    const double b = !has_minimum(w) ? 0 : has_halves(w) ? -(double)w->am * w->m[h] : (double)w->b;
    *magnitude = fabs(a) + fabs(b);
    return a + b;
}

double swiglu_ref_int8_carried(const struct swiglu_quant_part *w, const double *error, size_t k, double growth) {
    double sum = 0;
    for (size_t i = 0; i < k; i++) {
        double magnitude;
        const double value = weight(&w[i / GROUP], (int)(i % GROUP), &magnitude);
        if (error[i] == 0) continue;
        if (!isfinite(value)) return INFINITY;
        sum += (fabs(value) + growth * magnitude) * error[i];
    }
    return sum;
}

double swiglu_ref_int8_growth(const struct swiglu_quant_part *w, size_t k, int typical) {
    const double folds = ceil((double)k / GROUP), n = k && has_minimum(w) ? 2 : 1;
    if (typical) return U * (1 + 4 * sqrt(n * folds));
    return U * (1 + n * fmin(folds, FOLDS_PER_CHUNK) + ceil(folds / FOLDS_PER_CHUNK));
}

double swiglu_ref_int8_underflow(size_t k) { return 0x1p-126 * ceil((double)k / GROUP); }
