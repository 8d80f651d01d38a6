/* SPDX-License-Identifier: Apache-2.0 */
/* Opened slices: 8 dwords of integers, f32 a, f32 dmin, scales and minima of both halves. */
#define Q_NAME i8_halves_min
#define Q_FORM SWIGLU_FORM_I8_HALVES_MIN
#define Q_KIND Q_HALVES_MIN
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 0
#define Q_BYTES 56
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g) Q_DWORD(p, 0, g, j)
#define Q_A(p, j, part) Q_F32(p, 32, j)
#define Q_AM(p, j, part) Q_F32(p, 36, j)
#define Q_S(p, j, part, half) Q_I32(p, 40 + 4 * (half), j)
#define Q_M(p, j, part, half) Q_I32(p, 48 + 4 * (half), j)
