/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON primitives with the dot product of bytes. Opens the level's target region; the includer closes it. */
#include <arm_neon.h>

SW_TARGET_BEGIN("arch=armv8.2-a+dotprod")

#define V_DOT4(acc, w, x) \
    vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(acc), vreinterpretq_s8_u32(w), vreinterpretq_s8_u32(x)))
#include "kern/vec_neon.h"
