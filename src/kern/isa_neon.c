/* SPDX-License-Identifier: Apache-2.0 */
/* AArch64 NEON: 24 accumulators, 4 weight vectors and a broadcast in 32 registers. bf16 pairs are widened and flushed. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_NEON
#define LEVEL neon
#define LEVEL_ISA SWIGLU_ISA_NEON
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 2
#define ROWS_FEW_C 4
#define ROWS_FEW_D 8
#define ROWS_FEW_E 0
#define FEW_ROWS 8

#include "kern/vec_neon.h"
#include "kern/inst.tmpl.h"
#endif
