/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C: always there, and what every other level must equal bit for bit. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if 1
#define LEVEL generic
#define LEVEL_ISA SWIGLU_ISA_GENERIC
#define ROWS_MANY_A 4
#define ROWS_MANY_B 2
#define MANY_PANELS 2
#define ROWS_FEW_C 4
#define ROWS_FEW_D 0
#define ROWS_FEW_E 0
#define FEW_ROWS 8

#include "kern/vec_generic.h"
#include "kern/inst.tmpl.h"
#endif
