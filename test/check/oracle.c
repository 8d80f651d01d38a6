/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels must equal, written as plainly as it can be: no vectors, no packing, no tiles. */
#include <math.h>

#include "check/check.h"
#include "kern/isa.h"

/* A fused multiply-add of bf16 values whose result below 2^-126 counts as zero, judged after rounding with an unbounded
 * exponent: computed 2^64 higher, where nothing underflows. Where that could overflow the result is far from tiny. */
static float fma_flush(float a, float b, float c) {
    const float r = fmaf(a, b, c);
    if (!(fabsf(r) < 0x1p-100f) || fabsf(c) >= 0x1p60f) return r;
    const float small = fabsf(a) < fabsf(b) ? a : b, large = fabsf(a) < fabsf(b) ? b : a;
    if (fabsf(small) >= 0x1p60f) return r;
    const float high = fmaf(small * 0x1p64f, large, c * 0x1p64f);
    return fabsf(high) < 0x1p-62f ? copysignf(0, high) : high * 0x1p-64f;
}

static float chunk_chain(const float *x, const float *w, size_t k) {
    float sum = 0;
    for (size_t i = 0; i < k; i++) sum = fmaf(x[i], w[i], sum);
    return sum;
}

/* Pairs, the odd k first; an odd depth is padded with +0 and the padded pair runs. */
static float chunk_pairs(const float *x, const float *w, size_t k) {
    float sum = 0;
    for (size_t i = 0; i < k; i += 2) {
        sum = i + 1 < k ? fma_flush(x[i + 1], w[i + 1], sum) : fma_flush(0, 0, sum);
        sum = fma_flush(x[i], w[i], sum);
    }
    return sum;
}

float oracle_chain(int arith, const float *x, const float *w, size_t k, int add, float total) {
    for (size_t done = 0; done < k || done == 0; done += SWIGLU_CHUNK) {
        const size_t n = k - done < SWIGLU_CHUNK ? k - done : SWIGLU_CHUNK;
        const float c = arith == SWIGLU_ARITH_BF16 ? chunk_pairs(x + done, w + done, n)
                                                 : chunk_chain(x + done, w + done, n);
        total = add || done ? total + c : c;
    }
    return total;
}

static float clamp(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }

/* The activation itself is the generic level's: test/unit/test_activation.c judges it against double precision. */
static float activate(const struct swiglu_act *act, float a) {
    float y;
    swiglu_kern_table_generic.act(act, 1, &a, &y);
    return y;
}

/* What becomes of up has no table entry of its own: it is seen through one hidden unit of the generic level. */
static float situ_hidden(const struct swiglu_act *act, float gate, float up) {
    const float c[2] = {gate, up};
    float h;
    const struct swiglu_hidden_args args = {.c = c, .act = act, .mr = 1, .vectors = 2, .gated = 1, .valid = 1,
                                            .x = SWIGLU_X_F32, .h = (char *)&h, .row_bytes = sizeof h};
    swiglu_kern_table_generic.hidden(&args);
    return h;
}

static float slope_of(const struct swiglu_act *act, float a) {
    float y;
    swiglu_kern_table_generic.act_grad(act, 1, &a, &y);
    return y;
}

/* As situ_hidden, for the gradients. */
static struct oracle_grad situ_grad(const struct swiglu_act *act, float dh, float gate, float up) {
    struct oracle_grad o;
    float rows[2], h[4], dg[4], du[4]; /* panels hold whole pairs of rows */
    const struct swiglu_grad_args args = {
        .c = &dh, .gate = &gate, .up = &up, .per_group = 1, .act = act, .mr = 1, .rows = 1, .vectors = 1, .gated = 1,
        .valid = 1, .form_h = SWIGLU_FORM_F32, .form_d = SWIGLU_FORM_F32, .h = (char *)h, .dg = (char *)dg,
        .du = (char *)du, .x = SWIGLU_X_F32, .row_dg = (char *)&rows[0], .row_du = (char *)&rows[1]};
    swiglu_kern_table_generic.grad(&args);
    o.h = h[0], o.dg = dg[0], o.du = du[0];
    return o;
}

struct oracle_grad oracle_grad(const struct swiglu_act *act, int gated, float dh, float gate, float up) {
    if (gated && act->kind == SWIGLU_ACT_SITU) return situ_grad(act, dh, gate, up);
    const float inner = act->clamp_after ? gate : clamp(gate, act->gate_lo, act->gate_hi), raw = activate(act, inner);
    const float a = act->clamp_after ? clamp(raw, act->gate_lo, act->gate_hi) : raw;
    const float judged = act->clamp_after ? raw : gate; /* on a bound exactly the gradient passes */
    float u = clamp(up, act->up_lo, act->up_hi);
    if (act->up_offset != 0) u = u + act->up_offset;
    struct oracle_grad o = {gated ? a * u : a, (gated ? dh * u : dh) * slope_of(act, inner), dh * a};
    if (judged < act->gate_lo || judged > act->gate_hi) o.dg = 0;
    if (up < act->up_lo || up > act->up_hi) o.du = 0;
    return o;
}

float oracle_hidden(const struct swiglu_act *act, int gated, float gate, float up) {
    if (gated && act->kind == SWIGLU_ACT_SITU) return situ_hidden(act, gate, up);
    float a = activate(act, act->clamp_after ? gate : clamp(gate, act->gate_lo, act->gate_hi));
    if (act->clamp_after) a = clamp(a, act->gate_lo, act->gate_hi);
    if (!gated) return a;
    float u = clamp(up, act->up_lo, act->up_hi);
    if (act->up_offset != 0) u = u + act->up_offset;
    return a * u;
}
