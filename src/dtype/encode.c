/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32, f16, bf16 and the blocks of 32. These have one encoder that everybody uses, that of the Python package gguf, and
 * its operations and their order are followed to the bit (test_encode.py).
 */
#include "dtype/encode.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/half.h"

typedef unsigned char byte;

void swiglu_encode_f32(const float *src, size_t n_blocks, void *dst) {
    for (size_t i = 0; i < n_blocks; i++) {
        const uint32_t bits = isnan(src[i]) ? 0x7FC00000u : swiglu_f32_bits(src[i]);
        swiglu_put_le32((byte *)dst + 4 * i, bits);
    }
}

void swiglu_encode_f16(const float *src, size_t n_blocks, void *dst) {
    for (size_t i = 0; i < n_blocks; i++) swiglu_put_le16((byte *)dst + 2 * i, swiglu_f16_store(src[i]));
}

void swiglu_encode_bf16(const float *src, size_t n_blocks, void *dst) {
    for (size_t i = 0; i < n_blocks; i++) swiglu_put_le16((byte *)dst + 2 * i, swiglu_bf16_store(src[i]));
}

/* The first of the values that are largest in magnitude, with its sign. */
static float peak(const float *x) {
    float found = x[0];
    for (int i = 1; i < 32; i++)
        if (fabsf(x[i]) > fabsf(found)) found = x[i];
    return found;
}

static float inverse(float d) { return d == 0 ? 0 : 1 / d; }

/* Downward to 0..high. Where d is so small that 1 / d overflows there is no quotient; any integer will do, as the stored
 * scale is 0 then. */
static int whole(float quotient, int high) {
    if (!isfinite(quotient)) return 0;
    return quotient >= (float)high ? high : (int)quotient;
}

/* The low four bits of 32 integers; the fifth ones are returned. */
static uint32_t pack_32(const int q[32], byte *low) {
    uint32_t high = 0;
    for (int i = 0; i < 16; i++) low[i] = (byte)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (int i = 0; i < 32; i++) high |= (uint32_t)(q[i] >> 4) << i;
    return high;
}

/* y = d (q - zero), q in 0..2 zero - 1: the peak gets q = 0. Scale to b, integers to low. */
static uint32_t encode_symmetric(const float *x, int zero, byte *b, byte *low) {
    const float d = peak(x) / (float)-zero, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) q[i] = whole(x[i] * id + ((float)zero + 0.5f), 2 * zero - 1);
    swiglu_put_le16(b, swiglu_f16_store(d));
    return pack_32(q, low);
}

/* y = d q + m, q in 0..high. */
static uint32_t encode_affine(const float *x, int high, byte *b, byte *low) {
    float max = x[0], min = x[0];
    for (int i = 1; i < 32; i++) {
        max = x[i] > max ? x[i] : max;
        min = x[i] < min ? x[i] : min;
    }
    const float d = (max - min) / (float)high, id = inverse(d);
    int q[32];
    for (int i = 0; i < 32; i++) q[i] = whole((x[i] - min) * id + 0.5f, high);
    swiglu_put_le16(b, swiglu_f16_store(d));
    swiglu_put_le16(b + 2, swiglu_f16_store(min));
    return pack_32(q, low);
}

void swiglu_encode_q4_0(const float *src, size_t n_blocks, void *dst) {
    for (byte *b = dst; n_blocks--; b += 18, src += 32) encode_symmetric(src, 8, b, b + 2);
}

void swiglu_encode_q4_1(const float *src, size_t n_blocks, void *dst) {
    for (byte *b = dst; n_blocks--; b += 20, src += 32) encode_affine(src, 15, b, b + 4);
}

void swiglu_encode_q5_0(const float *src, size_t n_blocks, void *dst) {
    for (byte *b = dst; n_blocks--; b += 22, src += 32) swiglu_put_le32(b + 2, encode_symmetric(src, 16, b, b + 6));
}

void swiglu_encode_q5_1(const float *src, size_t n_blocks, void *dst) {
    for (byte *b = dst; n_blocks--; b += 24, src += 32) swiglu_put_le32(b + 4, encode_affine(src, 31, b, b + 8));
}

void swiglu_encode_q8_0(const float *src, size_t n_blocks, void *dst) {
    for (byte *b = dst; n_blocks--; b += 34, src += 32) {
        const float d = fabsf(peak(src)) / 127, id = inverse(d);
        swiglu_put_le16(b, swiglu_f16_store(d));
        for (int i = 0; i < 32; i++) {
            const float q = roundf(src[i] * id); /* halves away from zero */
            b[2 + i] = (byte)(isfinite(q) ? (int)q : 0);
        }
    }
}

/*
 * floor(log2(a)) for a > 0, as the reference has it: of a logarithm that was rounded to f32. Just below a power of two, 2^k,
 * that rounds up to k. j steps below, the logarithm is k - j 2^-24 / ln 2; it rounds up within half the spacing of floats
 * there, which is 2^(e - 24) for 2^e <= |k| < 2^(e + 1), and half of that below a positive power of two.
 */
static int floor_log2(float a) {
    int k;
    const float half = frexpf(a, &k); /* a = half 2^k, 0.5 <= half < 1 */
    const float below = (1 - half) * 0x1p24f; /* j */
    int e;
    if (k == 0) return -1;
    frexpf((float)abs(k), &e);
    const bool power = (k & (k - 1)) == 0;
    const float near = ldexpf(0.69314718f, e - 1 - (k > 0 && power));
    return below < near ? k : k - 1;
}

/* The decoder has what the nibbles stand for. Of two that are equally near, the first is taken. Where the exponent would be
 * negative it is 0; the reference leaves it to the machine what becomes of such an exponent. */
void swiglu_encode_mxfp4(const float *src, size_t n_blocks, void *dst) {
    static const float value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (byte *b = dst; n_blocks--; b += 17, src += 32) {
        const float a = fabsf(peak(src));
        const int e = a > 0 ? floor_log2(a) + 125 : 0;
        b[0] = (byte)(e > 0 ? e : 0);
        const float d = swiglu_e8m0_half(b[0]);
        int q[32];
        for (int i = 0; i < 32; i++) {
            float least = INFINITY;
            for (int k = 0; k < 16; k++) {
                const float off = fabsf(d * value[k] - src[i]);
                if (off < least) least = off, q[i] = k;
            }
        }
        pack_32(q, b + 1);
    }
}
