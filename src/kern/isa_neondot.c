/* SPDX-License-Identifier: Apache-2.0 */
/* The level of neon with the dot product of bytes. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if SWIGLU_HAVE_NEON
#define LEVEL neondot
#define LEVEL_ISA SWIGLU_ISA_NEONDOT
#define ROWS_MANY_A 6
#define ROWS_MANY_B 4
#define MANY_PANELS 2
#define ROWS_FEW_C 4
#define ROWS_FEW_D 8
#define ROWS_FEW_E 0
#define FEW_ROWS 8

#include "kern/vec_neondot.h"
#include "kern/inst.tmpl.h"
SW_TARGET_END
#endif
