/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The block in plain double precision, with a bound of what an f32 evaluation by the contract may differ by
 * (docs/numerics.md, accuracy). Shares no kernel with the thing it judges.
 */
#ifndef SWIGLU_REFERENCE_H
#define SWIGLU_REFERENCE_H

#include "base/status.h"

/* desc, x and out were validated and every ld_elems filled in; out->y is not NULL.
 *
 * A bound that is not finite promises nothing: a sum that f32 may overflow midway (magnitudes that add up to 2^126 or
 * more), an f16 output near 65520 or above, or an infinity whose class hangs on rounding. Where y is NaN or infinite
 * and the bound is 0, the output has the same class. */
enum swiglu_status swiglu_reference_compute(const struct swiglu_desc *desc, size_t m, struct swiglu_crows x,
                                            const struct swiglu_reference *out, struct swiglu_error *error);

#endif
