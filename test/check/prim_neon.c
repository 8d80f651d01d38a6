/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON primitives. */
#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_NEON
#include "kern/vec_neon.h"
#define PRIMS check_prims_neon
#include "check/prim.tmpl.h"
#endif
