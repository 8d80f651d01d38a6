/* SPDX-License-Identifier: Apache-2.0 */
/* Q5_K: as Q4_K, with 2 dwords of fifth bits (one of each part, as Q5_0) before the 8. */
#define Q_NAME q5_k
#define Q_FORM SWIGLU_FORM_Q5_K
#define Q_KIND Q_MINIMUM
#define Q_PARTS 8
#define Q_TURN 2
#define Q_PAIRED 0
#define Q_BYTES 180
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g)                                             \
    vi_or(Q_NIBBLE(Q_DWORD(p, 16 + (part) / 2 * 44, g, j), (part) % 2), \
          vi_shl(Q_BITS(Q_DWORD(p, 8 + (part) / 2 * 44, (part) % 2, j), g, 0x01010101), 4))
#define Q_A(p, j, part) v_mul(Q_F16(p, 0, j), vi_to_f32(Q_U8(p, 4 + (part) / 2 * 44, (part) % 2, j)))
#define Q_B(p, j, part) v_neg(v_mul(Q_F16(p, 2, j), vi_to_f32(Q_U8(p, 6 + (part) / 2 * 44, (part) % 2, j))))
