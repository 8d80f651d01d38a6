/* SPDX-License-Identifier: Apache-2.0 */
/* Q4_0: a lane has f16 d, then 4 dwords as in the file: low nibbles are k 0..15, high ones 16..31. Value d (q - 8). */
#define Q_NAME q4_0
#define Q_FORM SWIGLU_FORM_Q4_0
#define Q_KIND Q_SYMMETRIC
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 1
#define Q_BYTES 18
#define Q_ZERO 8
#define Q_GROUP(p, j, part, g) Q_NIBBLE(Q_DWORD(p, 2, (g) % 4, j), (g) / 4)
#define Q_A(p, j, part) Q_F16(p, 0, j)
