/* SPDX-License-Identifier: Apache-2.0 */
/* Opened slices: 8 dwords of integers plus 32, f32 a, the scales of both halves. */
#define Q_NAME i8_halves
#define Q_FORM SWIGLU_FORM_I8_HALVES
#define Q_KIND Q_HALVES
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 0
#define Q_BYTES 44
#define Q_ZERO 32
#define Q_GROUP(p, j, part, g) Q_DWORD(p, 0, g, j)
#define Q_A(p, j, part) Q_F32(p, 32, j)
#define Q_S(p, j, part, half) Q_I32(p, 36 + 4 * (half), j)
