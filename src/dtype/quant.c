/* SPDX-License-Identifier: Apache-2.0 */
#include "dtype/quant.h"

#include <string.h>

#include "base/half.h"
#include "dtype/part.h"

void swiglu_decode_f32(const void *src, size_t n_blocks, float *dst) { memcpy(dst, src, n_blocks * sizeof *dst); }

void swiglu_decode_f16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_f16_widen(swiglu_le16((const char *)src + 2 * i));
}

void swiglu_decode_bf16(const void *src, size_t n_blocks, float *dst) {
    for (size_t i = 0; i < n_blocks; i++) dst[i] = swiglu_bf16_widen(swiglu_le16((const char *)src + 2 * i));
}

/*
 * The block formats of 32. 4-bit formats hold element i in the low and element i + 16 in the high nibble of byte i.
 */

typedef unsigned char byte;

static float scale_at(const byte *p) { return swiglu_f16_widen(swiglu_le16(p)); }

/* Both nibbles of 16 bytes, with a fifth bit per element from `high`, as integers 0..31 less zero. */
static void unpack(const byte *low, uint32_t high, int zero, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(((low[i] & 15) | (int)(high >> i & 1) << 4) - zero);
        q[i + 16] = (int8_t)((low[i] >> 4 | (int)(high >> (i + 16) & 1) << 4) - zero);
    }
}

/* One f16 scale, and where minimum is given an f16 minimum. */
static void put_scales(struct swiglu_quant_part *p, const byte *scale, const byte *minimum) {
    p->kind = minimum ? SWIGLU_QUANT_MINIMUM : SWIGLU_QUANT_SYMMETRIC;
    p->a = scale_at(scale);
    if (minimum) p->b = scale_at(minimum);
}

void swiglu_part_q4_0(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    (void)part;
    put_scales(p, block, NULL);
    unpack(block + 2, 0, 8, p->q);
}
SWIGLU_DECODE_PARTS(q4_0, 18, 1)

void swiglu_part_q4_1(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    (void)part;
    put_scales(p, block, block + 2);
    unpack(block + 4, 0, 0, p->q);
}
SWIGLU_DECODE_PARTS(q4_1, 20, 1)

void swiglu_part_q5_0(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    (void)part;
    put_scales(p, block, NULL);
    unpack(block + 6, swiglu_le32(block + 2), 16, p->q);
}
SWIGLU_DECODE_PARTS(q5_0, 22, 1)

void swiglu_part_q5_1(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    (void)part;
    put_scales(p, block, block + 2);
    unpack(block + 8, swiglu_le32(block + 4), 0, p->q);
}
SWIGLU_DECODE_PARTS(q5_1, 24, 1)

void swiglu_part_q8_0(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    (void)part;
    put_scales(p, block, NULL);
    memcpy(p->q, block + 2, sizeof p->q);
}
SWIGLU_DECODE_PARTS(q8_0, 34, 1)

/* An E8M0 exponent e stands for 2^(e - 127); the E2M1 values are kept doubled, so half of it is what they multiply.
 * 255, which the OCP text calls NaN, is 2^127 here as in the format's other readers. */
static float e8m0_half(byte e) {
    return swiglu_f32_from_bits(e < 2 ? (uint32_t)0x00200000 << e : (uint32_t)(e - 1) << 23);
}

void swiglu_part_mxfp4(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    static const int8_t value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    (void)part;
    p->kind = SWIGLU_QUANT_SYMMETRIC;
    p->a = e8m0_half(block[0]);
    for (int i = 0; i < 16; i++) {
        p->q[i] = value[block[1 + i] & 15];
        p->q[i + 16] = value[block[1 + i] >> 4];
    }
}
SWIGLU_DECODE_PARTS(mxfp4, 17, 1)
