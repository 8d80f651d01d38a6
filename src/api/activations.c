/* SPDX-License-Identifier: Apache-2.0 */
/* Activations over arrays. */
#include "swiglu/swiglu.h"

#include "api/fenv.h"
#include "base/act.h"
#include "kern/kern.h"

/* act or its derivative, on the generic level. */
static enum swiglu_status act_array(const struct swiglu_act *act, size_t n, const float *x, float *y, int derivative) {
    struct swiglu_act full = swiglu_act_default();
    struct swiglu_error *const error = NULL;
    fenv_t caller;
    const struct swiglu_kern *generic = swiglu_kern_select(SWIGLU_ISA_GENERIC, NULL, 0);
    if (swiglu_struct_in(&full, sizeof full, act) || ((!x || !y) && n)) return SWIGLU_E_ARGUMENT;
    TRY(swiglu_act_check(&full, 1, error));
    swiglu_fenv_enter(&caller);
    (derivative ? generic->act_grad : generic->act)(&full, n, x, y);
    swiglu_fenv_leave(&caller);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_act_eval(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    return act_array(act, n, x, y, 0);
}

enum swiglu_status swiglu_act_derivative(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    return act_array(act, n, x, y, 1);
}
