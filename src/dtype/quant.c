/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype/quant.h"

#include <string.h>

#include "base/half.h"

void swiglu_decode_f32(const void *src, size_t n_blocks, float *dst) { memcpy(dst, src, n_blocks * sizeof *dst); }

void swiglu_decode_f16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_f16_widen(swiglu_le16((const char *)src + 2 * i));
}

void swiglu_decode_bf16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_bf16_widen(swiglu_le16((const char *)src + 2 * i));
}

/*
 * The block formats. Each decoder is written in the order of operations of the format's definition, one rounding per
 * operation: a product of scales first, then times the integer, then minus or plus the offset. Any other grouping would
 * differ in the last bit. 4-bit formats hold element i in the low and element i + half in the high nibble of byte i.
 */

typedef unsigned char byte;

static float scale_at(const byte *p) { return swiglu_f16_widen(swiglu_le16(p)); }

/* Both nibbles of 16 bytes, with a fifth bit per element from `high`, as integers 0..31. */
static void unpack_32(const byte *low, uint32_t high, int q[32]) {
    for (int i = 0; i < 16; i++) {
        q[i] = (low[i] & 15) | (int)(high >> i & 1) << 4;
        q[i + 16] = low[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
    }
}

/* Blocks of 32 with one f16 scale: y = d (q - zero). */
static void decode_symmetric(const byte *low, uint32_t high, float d, int zero, float *dst) {
    int q[32];
    unpack_32(low, high, q);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)(q[i] - zero);
}

/* Blocks of 32 with f16 scale and minimum: y = d q + m. */
static void decode_affine(const byte *low, uint32_t high, float d, float m, float *dst) {
    int q[32];
    unpack_32(low, high, q);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)q[i] + m;
}

void swiglu_decode_q4_0(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 18, dst += 32) decode_symmetric(b + 2, 0, scale_at(b), 8, dst);
}

void swiglu_decode_q4_1(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 20, dst += 32) decode_affine(b + 4, 0, scale_at(b), scale_at(b + 2), dst);
}

void swiglu_decode_q5_0(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 22, dst += 32) decode_symmetric(b + 6, swiglu_le32(b + 2), scale_at(b), 16, dst);
}

void swiglu_decode_q5_1(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 24, dst += 32)
        decode_affine(b + 8, swiglu_le32(b + 4), scale_at(b), scale_at(b + 2), dst);
}

void swiglu_decode_q8_0(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 34, dst += 32) {
        const float d = scale_at(b);
        for (int i = 0; i < 32; i++) dst[i] = d * (float)(int8_t)b[2 + i];
    }
}

void swiglu_decode_mxfp4(const void *src, size_t n_blocks, float *dst) {
    static const signed char value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const byte *b = src;
    for (; n_blocks--; b += 17, dst += 32) {
        const float d = swiglu_e8m0_half(b[0]);
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)value[b[1 + i] & 15];
            dst[i + 16] = d * (float)value[b[1 + i] >> 4];
        }
    }
}
