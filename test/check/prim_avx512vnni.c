/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 primitives with VNNI. */
#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL_TARGET "avx512f,avx512bw,avx512vl,avx512vnni,fma,f16c"
#define V_DOT4_BIAS 128
#include "kern/vec_avx512.h"
#define PRIMS check_prims_avx512vnni
#include "check/prim.tmpl.h"
SW_TARGET_END
#endif
