/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The K formats: blocks of 256 with f16 scales of the block and small integer scales of its parts. As in quant.c the
 * order of operations is the format. 2-bit fields run over 32 consecutive bytes at one shift before the next shift.
 */
#include "dtype/quant.h"

#include "base/half.h"

typedef unsigned char byte;

static float half_at(const byte *p) { return swiglu_f16_widen(swiglu_le16(p)); }

/* 16 parts of 16. scales[16] (low nibble scale, high nibble minimum), q[64] of 2 bits, d, dmin. */
void swiglu_decode_q2_k(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 84, dst += 256) {
        const byte *q = b + 16;
        const float d = half_at(b + 80), dmin = half_at(b + 82);
        for (int part = 0; part < 16; part++) {
            const float scale = d * (float)(b[part] & 15), low = dmin * (float)(b[part] >> 4);
            const byte *p = q + part / 8 * 32 + part % 2 * 16;
            const int shift = part % 8 / 2 * 2;
            for (int i = 0; i < 16; i++) dst[16 * part + i] = scale * (float)(p[i] >> shift & 3) - low;
        }
    }
}

/* 16 parts of 16. hmask[32] (bit set: nothing to subtract), q[64] of 2 bits, 16 scales of 6 bits in 12 bytes, d. */
void swiglu_decode_q3_k(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 110, dst += 256) {
        const byte *q = b + 32, *s = b + 96;
        const float d = half_at(b + 108);
        for (int part = 0; part < 16; part++) {
            const int low = s[part % 8] >> part / 8 * 4 & 15, high = s[8 + part % 4] >> part / 4 * 2 & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            const byte *p = q + part / 8 * 32 + part % 2 * 16, *h = b + part % 2 * 16;
            const int shift = part % 8 / 2 * 2;
            for (int i = 0; i < 16; i++) {
                const int absent = ~(h[i] >> part / 2) & 1;
                dst[16 * part + i] = scale * (float)((p[i] >> shift & 3) - 4 * absent);
            }
        }
    }
}

/* The 8 scales and 8 minimums of 6 bits in 12 bytes that Q4_K and Q5_K share. */
static void scale_and_min(const byte *s, int part, int *scale, int *min) {
    if (part < 4) {
        *scale = s[part] & 63, *min = s[part + 4] & 63;
    } else {
        *scale = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
        *min = s[part + 4] >> 4 | s[part] >> 6 << 4;
    }
}

/* 8 parts of 32. Head: d, dmin, 12 bytes of scales. high (NULL for Q4_K) holds bit 4 of part p at its bit p. */
static void decode_q45_k(const byte *head, const byte *high, const byte *low, float *dst) {
    const float d = half_at(head), dmin = half_at(head + 2);
    for (int part = 0; part < 8; part++) {
        int sc, mn;
        scale_and_min(head + 4, part, &sc, &mn);
        const float scale = d * (float)sc, min = dmin * (float)mn;
        for (int i = 0; i < 32; i++) {
            const int bit4 = high ? (high[i] >> part & 1) << 4 : 0;
            const int q = (low[part / 2 * 32 + i] >> part % 2 * 4 & 15) | bit4;
            dst[32 * part + i] = scale * (float)q - min;
        }
    }
}

void swiglu_decode_q4_k(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 144, dst += 256) decode_q45_k(b, NULL, b + 16, dst);
}

void swiglu_decode_q5_k(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 176, dst += 256) decode_q45_k(b, b + 16, b + 48, dst);
}

/* 16 parts of 16. low[128] of 4 bits, high[64] of 2 bits, 16 signed scales, d. */
void swiglu_decode_q6_k(const void *src, size_t n_blocks, float *dst) {
    const byte *b = src;
    for (; n_blocks--; b += 210, dst += 256) {
        const byte *high = b + 128, *scales = b + 192;
        const float d = half_at(b + 208);
        for (int i = 0; i < 256; i++) {
            const int group = i / 128, j = i % 128; /* 128 values share 64 low and 32 high bytes */
            const int lo = b[group * 64 + j % 64] >> j / 64 * 4 & 15, hi = high[group * 32 + j % 32] >> j / 32 * 2 & 3;
            const float scale = d * (float)(int8_t)scales[i / 16];
            dst[i] = scale * (float)((lo | hi << 4) - 32);
        }
    }
}
