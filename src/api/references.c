/* SPDX-License-Identifier: Apache-2.0 */
/* The block in double precision. */
#include "swiglu/swiglu.h"

#include "api/fenv.h"
#include "api/rows.h"
#include "dtype/dtype.h"
#include "ffn/desc.h"
#include "ref/reference.h"

enum swiglu_status swiglu_reference_run(const struct swiglu_desc *desc, size_t m, struct swiglu_crows x,
                                        const struct swiglu_reference *out, struct swiglu_error *error) {
    struct swiglu_desc checked;
    struct swiglu_reference full = {.struct_size = sizeof full};
    struct swiglu_span span;
    fenv_t caller;
    TRY(swiglu_desc_check(desc, &checked, error));
    REQUIRE(swiglu_struct_in(&full, sizeof full, out) == SWIGLU_OK && full.y, SWIGLU_E_ARGUMENT,
            "reference: NULL, a bad struct_size, or no y");
    REQUIRE(swiglu_compute_known(full.compute), SWIGLU_E_ARGUMENT,
            "reference: compute %d is unknown", full.compute);
    REQUIRE(swiglu_dtype_is_float(full.y_dtype), SWIGLU_E_ARGUMENT, "reference: y dtype %d is not f32, f16 or bf16",
            full.y_dtype);
    const enum swiglu_status fits = swiglu_rows_check(&x, m, checked.d_in, &span);
    REQUIRE(fits == SWIGLU_OK, fits, "reference: x (dtype %d, stride %zu) does not fit %zu rows of %zu", x.dtype, x.ld_elems, m,
            checked.d_in);
    TRY(swiglu_desc_compute_check(&checked, full.compute, error));
    if (m == 0 || (checked.d_out == 0 && !full.hidden && !full.hidden_bound)) return SWIGLU_OK;
    REQUIRE(!swiglu_desc_has_heads(&checked), SWIGLU_E_UNSUPPORTED, "reference: a head is for a training step only");
    swiglu_fenv_enter(&caller);
    const enum swiglu_status status = swiglu_reference_compute(&checked, m, x, &full, error);
    swiglu_fenv_leave(&caller);
    return status;
}
