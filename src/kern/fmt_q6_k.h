/* SPDX-License-Identifier: Apache-2.0 */
/* Q6_K: a lane has f16 d, then for each four parts 8 signed scales of 16 k each, 8 dwords of low nibbles in turn with 8 of
 * high two bits, and 8 of low nibbles. Value d sc (q - 32). */
#define Q_NAME q6_k
#define Q_FORM SWIGLU_FORM_Q6_K
#define Q_KIND Q_HALVES
#define Q_PARTS 8
#define Q_TURN 4
#define Q_PAIRED 0
#define Q_BYTES 210
#define Q_ZERO 32
#define Q_GROUP(p, j, part, g)                                                                                       \
    vi_or(Q_NIBBLE(Q_DWORD(p, 10 + (part) / 4 * 104, (part) % 2 ? 16 + (g) : 2 * (g), j), (part) / 2 % 2), \
          vi_shl(Q_BITS(Q_DWORD(p, 10 + (part) / 4 * 104, 2 * (g) + 1, j), (part) % 4 * 2, 0x03030303), 4))
#define Q_A(p, j, part) Q_F16(p, 0, j)
#define Q_S(p, j, part, half) Q_I8(p, 2 + (part) / 4 * 104, (part) % 4 * 2 + (half), j)
