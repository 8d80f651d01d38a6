/* SPDX-License-Identifier: Apache-2.0 */
/* Opened slices: 8 dwords of integers plus V_DOT4_BIAS, f32 a. */
#define Q_NAME i8
#define Q_FORM SWIGLU_FORM_I8
#define Q_KIND Q_SYMMETRIC
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 0
#define Q_BYTES 36
#define Q_ZERO V_DOT4_BIAS
#define Q_ANY 1
#define Q_GROUP(p, j, part, g) Q_DWORD(p, 0, g, j)
#define Q_A(p, j, part) Q_F32(p, 32, j)
