/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 + FMA + F16C: 12 accumulators, 2 weight vectors and a broadcast in 16 registers. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL avx2
#define LEVEL_ISA SWIGLU_ISA_AVX2
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 1
#define ROWS_FEW_C 6
#define ROWS_FEW_D 0
#define ROWS_FEW_E 0
#define FEW_ROWS 6
#define LEVEL_TARGET "avx2,fma,f16c"

#include "kern/vec_avx2.h"
#include "kern/inst.tmpl.h"
SW_TARGET_END
#endif
