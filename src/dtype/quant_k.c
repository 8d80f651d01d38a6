/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The K formats: blocks of 256 with f16 scales of the block and small integer scales of its parts. 2-bit fields run over 32
 * consecutive bytes at one shift before the next shift.
 */
#include "base/half.h"
#include "dtype/part.h"
#include "dtype/quant.h"

typedef unsigned char byte;

static float half_at(const byte *p) { return swiglu_f16_widen(swiglu_le16(p)); }

/* 16 halves. scales[16] (low nibble scale, high nibble minimum), q[64] of 2 bits, d, dmin. */
void swiglu_part_q2_k(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    const byte *q = block + 16 + part / 4 * 32;
    const unsigned shift = part % 4 * 2;
    p->kind = SWIGLU_QUANT_HALVES_MIN;
    p->a = half_at(block + 80), p->am = half_at(block + 82);
    for (int h = 0; h < 2; h++) p->sc[h] = block[2 * part + h] & 15, p->m[h] = block[2 * part + h] >> 4;
    for (int i = 0; i < SWIGLU_QUANT_PART; i++) p->q[i] = (int8_t)(q[i] >> shift & 3);
}
SWIGLU_DECODE_PARTS(q2_k, 84, 8)

/* 16 halves. hmask[32] (bit set: nothing to subtract), q[64] of 2 bits, 16 scales of 6 bits in 12 bytes, d. */
void swiglu_part_q3_k(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    const byte *q = block + 32 + part / 4 * 32, *s = block + 96;
    const unsigned shift = part % 4 * 2;
    p->kind = SWIGLU_QUANT_HALVES;
    p->a = half_at(block + 108);
    for (unsigned h = 0; h < 2; h++) {
        const unsigned half = 2 * part + h;
        p->sc[h] = ((s[half % 8] >> half / 8 * 4 & 15) | (s[8 + half % 4] >> half / 4 * 2 & 3) << 4) - 32;
    }
    for (int i = 0; i < SWIGLU_QUANT_PART; i++) p->q[i] = (int8_t)((q[i] >> shift & 3) - 4 * (~(block[i] >> part) & 1));
}
SWIGLU_DECODE_PARTS(q3_k, 110, 8)

/* The 8 scales and 8 minimums of 6 bits in 12 bytes that Q4_K and Q5_K share. */
static void scale_and_min(const byte *s, unsigned part, int *scale, int *min) {
    if (part < 4) {
        *scale = s[part] & 63, *min = s[part + 4] & 63;
    } else {
        *scale = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
        *min = s[part + 4] >> 4 | s[part] >> 6 << 4;
    }
}

/* Head: d, dmin, 12 bytes of scales. high (NULL for Q4_K) holds bit 4 of part p at its bit p. */
static void part_q45_k(const byte *head, const byte *high, const byte *low, unsigned part, struct swiglu_quant_part *p) {
    const unsigned shift = part % 2 * 4;
    int sc, mn;
    scale_and_min(head + 4, part, &sc, &mn);
    p->kind = SWIGLU_QUANT_MINIMUM;
    p->a = half_at(head) * (float)sc;
    p->b = -(half_at(head + 2) * (float)mn);
    low += part / 2 * 32;
    for (int i = 0; i < SWIGLU_QUANT_PART; i++)
        p->q[i] = (int8_t)((low[i] >> shift & 15) | (high ? (high[i] >> part & 1) << 4 : 0));
}

void swiglu_part_q4_k(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    part_q45_k(block, NULL, block + 16, part, p);
}
SWIGLU_DECODE_PARTS(q4_k, 144, 8)

void swiglu_part_q5_k(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    part_q45_k(block, block + 16, block + 48, part, p);
}
SWIGLU_DECODE_PARTS(q5_k, 176, 8)

/* 16 halves. low[128] of 4 bits, high[64] of 2 bits, 16 signed scales, d. 128 values share 64 low and 32 high bytes. */
void swiglu_part_q6_k(const byte *block, unsigned part, struct swiglu_quant_part *p) {
    const byte *low = block + part / 4 * 64 + part % 2 * 32, *high = block + 128 + part / 4 * 32;
    const unsigned low_shift = part % 4 / 2 * 4, high_shift = part % 4 * 2;
    p->kind = SWIGLU_QUANT_HALVES;
    p->a = half_at(block + 208);
    for (int h = 0; h < 2; h++) p->sc[h] = (int8_t)block[192 + 2 * part + (unsigned)h];
    for (int i = 0; i < SWIGLU_QUANT_PART; i++)
        p->q[i] = (int8_t)(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
}
SWIGLU_DECODE_PARTS(q6_k, 210, 8)
