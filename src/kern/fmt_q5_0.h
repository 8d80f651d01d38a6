/* SPDX-License-Identifier: Apache-2.0 */
/* Q5_0: a lane has f16 d, a dword of fifth bits (bit g of byte i is that of k 4 g + i), then 4 dwords as
 * Q4_0. Value d (q - 16). */
#define Q_NAME q5_0
#define Q_FORM SWIGLU_FORM_Q5_0
#define Q_KIND Q_SYMMETRIC
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 1
#define Q_BYTES 22
#define Q_ZERO 16
#define Q_GROUP(p, j, part, g) \
    vi_or(Q_NIBBLE(Q_DWORD(p, 6, (g) % 4, j), (g) / 4), vi_shl(Q_BITS(Q_DWORD(p, 2, 0, j), g, 0x01010101), 4))
#define Q_A(p, j, part) Q_F16(p, 0, j)
