/* SPDX-License-Identifier: Apache-2.0 */
/* Activation names and parameter sets, and the check of a caller's parameters. */
#ifndef SWIGLU_ACT_H
#define SWIGLU_ACT_H

#include "base/status.h"

/* The defaults: SiLU with alpha 1, no bounds, no offset. */
struct swiglu_act swiglu_act_default(void);

/* Checks *act (whose struct_size was normalised) and explains what is wrong. gated: 0 refuses an up side. */
enum swiglu_status swiglu_act_check(const struct swiglu_act *act, int gated, struct swiglu_error *error);

#endif
