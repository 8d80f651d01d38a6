/* SPDX-License-Identifier: Apache-2.0 */
/* From the options to the list of output tensors. */
#ifndef SWIGLU_CONVERT_PLAN_H
#define SWIGLU_CONVERT_PLAN_H

#include "io/convert.h"

/* model and options are filled in. On failure nothing is held. */
enum swiglu_status swiglu_conversion_plan(struct swiglu_conversion *c, struct swiglu_error *error);
void swiglu_conversion_free(struct swiglu_conversion *c);

#endif
