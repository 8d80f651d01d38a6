/* SPDX-License-Identifier: Apache-2.0 */
/* Q5_1: a lane has f16 d, f16 m, fifth bits and 4 dwords as Q5_0. Value d q + m. */
#define Q_NAME q5_1
#define Q_FORM SWIGLU_FORM_Q5_1
#define Q_KIND Q_MINIMUM
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 1
#define Q_BYTES 24
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g) \
    vi_or(Q_NIBBLE(Q_DWORD(p, 8, (g) % 4, j), (g) / 4), vi_shl(Q_BITS(Q_DWORD(p, 4, 0, j), g, 0x01010101), 4))
#define Q_A(p, j, part) Q_F16(p, 0, j)
#define Q_B(p, j, part) Q_F16(p, 2, j)
