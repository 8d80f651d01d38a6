/* SPDX-License-Identifier: Apache-2.0 */
/* Q4_K: a lane has f16 d, f16 dmin, then for each two parts 2 bytes of scales, 2 of minima and 8 dwords (low and high
 * nibbles). Value d sc q - dmin mn. */
#define Q_NAME q4_k
#define Q_FORM SWIGLU_FORM_Q4_K
#define Q_KIND Q_MINIMUM
#define Q_PARTS 8
#define Q_TURN 2
#define Q_PAIRED 0
#define Q_BYTES 148
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g) Q_NIBBLE(Q_DWORD(p, 8 + (part) / 2 * 36, g, j), (part) % 2)
#define Q_A(p, j, part) v_mul(Q_F16(p, 0, j), vi_to_f32(Q_U8(p, 4 + (part) / 2 * 36, (part) % 2, j)))
#define Q_B(p, j, part) v_neg(v_mul(Q_F16(p, 2, j), vi_to_f32(Q_U8(p, 6 + (part) / 2 * 36, (part) % 2, j))))
