/* SPDX-License-Identifier: Apache-2.0 */
/* Q3_K: a lane has f16 d, then for each four parts 8 signed scales, 4 dwords of high bits (set: nothing to subtract; one of each
 * part, as the fifth bits of Q5_0) and 8 of two bits.
 * Value d sc (q - 4). */
#define Q_NAME q3_k
#define Q_FORM SWIGLU_FORM_Q3_K
#define Q_KIND Q_HALVES
#define Q_PARTS 8
#define Q_TURN 4
#define Q_PAIRED 0
#define Q_BYTES 114
#define Q_ZERO 4
#define Q_GROUP(p, j, part, g)                                                                     \
    vi_or(Q_BITS(Q_DWORD(p, 26 + (part) / 4 * 56, g, j), (part) % 4 * 2, 0x03030303), \
          vi_shl(Q_BITS(Q_DWORD(p, 10 + (part) / 4 * 56, (part) % 4, j), g, 0x01010101), 2))
#define Q_A(p, j, part) Q_F16(p, 0, j)
#define Q_S(p, j, part, half) Q_I8(p, 2 + (part) / 4 * 56, (part) % 4 * 2 + (half), j)
