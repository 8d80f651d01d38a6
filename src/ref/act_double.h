/* SPDX-License-Identifier: Apache-2.0 */
/* The activations in double precision, and what the error bound of the reference needs to know about each. */
#ifndef SWIGLU_ACT_DOUBLE_H
#define SWIGLU_ACT_DOUBLE_H

#include "swiglu/swiglu.h"

/* act(a): kind, alpha and param, no clamps. Takes the limits at +-Inf; NaN stays NaN. */
double swiglu_ref_act(const struct swiglu_act *act, double a);

/* A safe upper bound of |act'| on [lo, hi], a kink counted with the steeper side. lo <= hi, not NaN. */
double swiglu_ref_act_slope(const struct swiglu_act *act, double lo, double hi);

/* The height of the steps of act within [lo, hi]; 0 for the continuous ones, all but xIELU with e < 0. */
double swiglu_ref_act_jump(const struct swiglu_act *act, double lo, double hi);

/* How far an f32 evaluation of act may be from act(a) for an exact argument. */
double swiglu_ref_act_noise(const struct swiglu_act *act, double a);

/* The same for the up side: the identity, but b2 tanh(u / b2) for SiTU. */
double swiglu_ref_up(const struct swiglu_act *act, double u);
double swiglu_ref_up_slope(const struct swiglu_act *act, double lo, double hi);
double swiglu_ref_up_noise(const struct swiglu_act *act, double u);

#endif
