/* SPDX-License-Identifier: Apache-2.0 */
/* The level of avx512 with the dot product of bytes (VNNI), whose weights are unsigned: signed ones carry a bias. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL avx512vnni
#define LEVEL_ISA SWIGLU_ISA_AVX512VNNI
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 2
#define LEVEL_TARGET "avx512f,avx512bw,avx512vl,avx512vnni,fma,f16c"
#define V_DOT4_BIAS 128

#include "kern/vec_avx512.h"
#include "kern/inst.tmpl.h"
SW_TARGET_END
#endif
