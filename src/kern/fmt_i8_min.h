/* SPDX-License-Identifier: Apache-2.0 */
/* Opened slices: 8 dwords of integers, f32 a, f32 b. */
#define Q_NAME i8_min
#define Q_FORM SWIGLU_FORM_I8_MIN
#define Q_KIND Q_MINIMUM
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 0
#define Q_BYTES 40
#define Q_ZERO 0
#define Q_GROUP(p, j, part, g) Q_DWORD(p, 0, g, j)
#define Q_A(p, j, part) Q_F32(p, 32, j)
#define Q_B(p, j, part) Q_F32(p, 36, j)
