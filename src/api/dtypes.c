/* SPDX-License-Identifier: Apache-2.0 */
/* Weight formats: what they are, decoding, encoding. */
#include "swiglu/swiglu.h"

#include <math.h>

#include "api/fenv.h"
#include "base/status.h"
#include "dtype/dtype.h"

enum swiglu_status swiglu_dtype_query(int dtype, struct swiglu_dtype_info *info) {
    const struct swiglu_dtype_row *row = swiglu_dtype_find(dtype);
    if (!row) return SWIGLU_E_ARGUMENT;
    const struct swiglu_dtype_info full = {sizeof full, row->name, row->block_elems, row->block_bytes,
                                           row->scales};
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_decode(int dtype, const void *src, size_t n, float *dst) {
    const struct swiglu_dtype_row *row = swiglu_dtype_find(dtype);
    fenv_t caller;
    if (!row || ((!src || !dst) && n)) return SWIGLU_E_ARGUMENT;
    if (n % row->block_elems) return SWIGLU_E_SHAPE;
    if (n == 0) return SWIGLU_OK;
    swiglu_fenv_enter(&caller);
    row->decode(src, n / row->block_elems, dst);
    swiglu_fenv_leave(&caller);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_encode(int dtype, const float *src, size_t n, void *dst) {
    const struct swiglu_dtype_row *row = swiglu_dtype_find(dtype);
    fenv_t caller;
    if (!row || ((!src || !dst) && n)) return SWIGLU_E_ARGUMENT;
    if (n % row->block_elems) return SWIGLU_E_SHAPE;
    for (size_t i = 0; i < n && row->block_elems > 1; i++)
        if (!isfinite(src[i])) return SWIGLU_E_UNSUPPORTED;
    swiglu_fenv_enter(&caller);
    row->encode(src, n / row->block_elems, dst);
    swiglu_fenv_leave(&caller);
    return SWIGLU_OK;
}
