/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 and bf16 to and from f32. Two rounding rules, by name (docs/numerics.md):
 *   store    rounds once to nearest even, keeps subnormals, every NaN becomes the canonical quiet one
 *   staging  what vcvtneps2bf16 does: an exponent field of 0 counts as zero before rounding; then as store
 */
#ifndef SWIGLU_HALF_H
#define SWIGLU_HALF_H

#include "base/bytes.h"

static inline float swiglu_bf16_widen(uint16_t h) { return swiglu_f32_from_bits((uint32_t)h << 16); }

static inline float swiglu_f16_widen(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exp = (h >> 10) & 31u, man = h & 0x3FFu;
    if (exp == 31) return swiglu_f32_from_bits(sign | 0x7F800000u | man << 13);
    if (exp != 0) return swiglu_f32_from_bits(sign | (exp + 112) << 23 | man << 13);
    const float f = (float)man * 0x1p-24f; /* zero and subnormals, exact */
    return swiglu_f32_from_bits(sign | swiglu_f32_bits(f));
}

/* An E8M0 exponent e stands for 2^(e - 127); the E2M1 values of MXFP4 are kept doubled, so half of it is what they multiply.
 * 255, which the OCP text calls NaN, is 2^127 here as in the format's other readers. */
static inline float swiglu_e8m0_half(unsigned char e) {
    return swiglu_f32_from_bits(e < 2 ? (uint32_t)0x00200000 << e : (uint32_t)(e - 1) << 23);
}

static inline uint16_t swiglu_bf16_store(float f) {
    const uint32_t u = swiglu_f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static inline uint16_t swiglu_bf16_staging(float f) {
    const uint32_t u = swiglu_f32_bits(f);
    if ((u & 0x7F800000u) == 0) return (uint16_t)(u >> 16 & 0x8000u);
    return swiglu_bf16_store(f);
}

static inline uint16_t swiglu_f16_store(float f) {
    const uint32_t u = swiglu_f32_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return 0x7E00;
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and above round to infinity */
    if (a >= 0x38800000u) {                                  /* normal f16 */
        const uint32_t r = a + 0xFFFu + (a >> 13 & 1u);
        return (uint16_t)(sign | ((r - 0x38000000u) >> 13));
    }
    /* subnormal: adding 0.5 aligns the last f16 bit with the last f32 bit; the addition rounds to nearest even */
    const uint32_t r = swiglu_f32_bits(swiglu_f32_from_bits(a) + 0.5f) - 0x3F000000u;
    return (uint16_t)(sign | r);
}

#endif
