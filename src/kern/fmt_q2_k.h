/* SPDX-License-Identifier: Apache-2.0 */
/* Q2_K: a lane has f16 d, f16 dmin, then for each four parts 8 bytes of a scale (low nibble) and a minimum (high) and 8 dwords of
 * two bits.
 * Value d sc q - dmin m. */
#define Q_NAME q2_k
#define Q_FORM SWIGLU_FORM_Q2_K
#define Q_KIND Q_HALVES_MIN
#define Q_PARTS 8
#define Q_TURN 4
#define Q_PAIRED 0
#define Q_BYTES 84
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g) Q_BITS(Q_DWORD(p, 12 + (part) / 4 * 40, g, j), (part) % 4 * 2, 0x03030303)
#define Q_A(p, j, part) Q_F16(p, 0, j)
#define Q_AM(p, j, part) Q_F16(p, 2, j)
#define Q_S(p, j, part, half) vi_and(Q_U8(p, 4 + (part) / 4 * 40, (part) % 4 * 2 + (half), j), vi_set1(15))
#define Q_M(p, j, part, half) vi_shr(Q_U8(p, 4 + (part) / 4 * 40, (part) % 4 * 2 + (half), j), 4)
