/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512F/BW/VL: 24 accumulators, 4 weight vectors and a broadcast in 32 registers. bf16 pairs are widened. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL avx512
#define LEVEL_ISA SWIGLU_ISA_AVX512
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 2
#define LEVEL_TARGET "avx512f,avx512bw,avx512vl,fma,f16c"

#include "kern/vec_avx512.h"
#include "kern/inst.tmpl.h"
SW_TARGET_END
#endif
