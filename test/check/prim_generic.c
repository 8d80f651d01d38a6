/* SPDX-License-Identifier: Apache-2.0 */
/* The plain C primitives. */
#include "base/attr.h"
#include "kern/isa.h"

#include "kern/vec_generic.h"
#define PRIMS check_prims_generic
#include "check/prim.tmpl.h"
