/* SPDX-License-Identifier: Apache-2.0 */
/* The fused multiply-add of bf16 compute, in plain C. */
#ifndef SWIGLU_FLUSH_H
#define SWIGLU_FLUSH_H

#include <math.h>

/* a b + c where a result below 2^-126 becomes a signed zero. "Below" as x86 flush-to-zero judges it: after rounding to
 * 24 bits with an unbounded exponent, so where the f32 result is 2^-126 the exact sum decides. a and b are bf16 values:
 * their product is exact in double, and the error of the sum tells on which side of the threshold the sum lies. */
static inline float swiglu_fma_flush(float a, float b, float c) {
    const float r = fmaf(a, b, c);
    if (!(fabsf(r) <= 0x1p-126f)) return r;
    if (fabsf(r) == 0x1p-126f) {
        const double p = (double)a * (double)b, d = (double)c, s = p + d, t = s - p, e = (p - (s - t)) + (d - t);
        const double over = fabs(s) - (0x1p-126 - 0x1p-151);
        if (over > 0 || (over == 0 && (s > 0 ? e : -e) >= 0)) return r;
    }
    return copysignf(0.0f, r);
}

#endif
