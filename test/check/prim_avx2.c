/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 primitives. */
#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_X86
#define LEVEL_TARGET "avx2,fma,f16c"
#include "kern/vec_avx2.h"
#define PRIMS check_prims_avx2
#include "check/prim.tmpl.h"
SW_TARGET_END
#endif
