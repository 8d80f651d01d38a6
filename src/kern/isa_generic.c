/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C: always there, and what every other level must equal bit for bit. */
#include <math.h>
#include <string.h>

#include "base/attr.h"
#include "kern/isa.h"

#if 1
#define LEVEL generic
#define LEVEL_ISA SWIGLU_ISA_GENERIC
#define PREFILL_A 4
#define PREFILL_B 2
#define PREFILL_PANELS 2
#define DECODE_8 0

#include "kern/vec_generic.h"
#include "kern/inst.tmpl.h"
#endif
