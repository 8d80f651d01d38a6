/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON primitives with the dot product. */
#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_NEON
#include "kern/vec_neondot.h"
#define PRIMS check_prims_neondot
#include "check/prim.tmpl.h"
SW_TARGET_END
#endif
