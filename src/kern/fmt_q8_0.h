/* SPDX-License-Identifier: Apache-2.0 */
/* Q8_0: a lane has f16 d, then 8 dwords of signed bytes plus V_DOT4_BIAS. Value d q. */
#define Q_NAME q8_0
#define Q_FORM SWIGLU_FORM_Q8_0
#define Q_KIND Q_SYMMETRIC
#define Q_PARTS 1
#define Q_TURN 1
#define Q_PAIRED 0
#define Q_BYTES 34
#define Q_ZERO V_DOT4_BIAS
#define Q_ANY 1
#define Q_GROUP(p, j, part, g) Q_DWORD(p, 2, g, j)
#define Q_A(p, j, part) Q_F16(p, 0, j)
