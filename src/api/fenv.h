/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever computes with floats runs in the default floating-point environment and puts the caller's back, so that a caller's
 * flush-to-zero or rounding mode changes no result. */
#ifndef SWIGLU_FENV_H
#define SWIGLU_FENV_H

#include <fenv.h>

static inline void swiglu_fenv_enter(fenv_t *caller) {
    fegetenv(caller);
    fesetenv(FE_DFL_ENV);
}
static inline void swiglu_fenv_leave(const fenv_t *caller) { fesetenv(caller); }

#endif
