/* SPDX-License-Identifier: Apache-2.0 */
#include "io/retype.h"

#include <math.h>

#include "dtype/dtype.h"
#include "io/checkpoint.h"

typedef unsigned long long ull;

/* "FILE: tensor NAME value N: V what TYPE" */
static enum swiglu_status retype_refuse(const struct swiglu_retype *r, uint64_t at, size_t i, const char *what,
                                        struct swiglu_error *error) {
    const struct swiglu_catalog *catalog = &r->model->catalog;
    const struct swiglu_tensor *t = &catalog->tensors[r->tensor];
    const struct swiglu_dtype_row *from = swiglu_dtype_find(r->from);
    return swiglu_catalog_fail(catalog, t->file, error, SWIGLU_E_UNSUPPORTED,
                               t->offset + at + i / from->block_elems * from->block_bytes,
                               "tensor %.80s value %llu: %.9g %s %s", swiglu_names_at(&catalog->names, r->tensor),
                               (ull)(at / from->block_bytes * from->block_elems + i), (double)r->values[i], what,
                               swiglu_dtype_find(r->to)->name);
}

/* Encoding must not turn a finite weight into an infinity: that is another model, not a rounded one. Blocks have no way to
 * say NaN or infinity of one value. */
static enum swiglu_status retype_compare(struct swiglu_retype *r, uint64_t at, size_t n, struct swiglu_error *error) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(r->values[i])) continue;
        if (!isfinite(r->back[i])) return retype_refuse(r, at, i, "is beyond the range of", error);
        const double value = (double)r->values[i], off = fabs((double)r->back[i] - value);
        r->squares += value * value, r->error_squares += off * off;
        if (off > r->largest_error) r->largest_error = off;
    }
    r->n += n;
    return SWIGLU_OK;
}

enum swiglu_status swiglu_retype_chunk(struct swiglu_retype *r, uint64_t at, const void *in, size_t n, void *out,
                                       struct swiglu_error *error) {
    TRY(swiglu_decode(r->from, in, n, r->values));
    for (size_t i = 0; i < n && !swiglu_dtype_is_float(r->to); i++)
        if (!isfinite(r->values[i])) return retype_refuse(r, at, i, "cannot be stored in", error);
    TRY(swiglu_encode(r->to, r->values, n, out));
    TRY(swiglu_decode(r->to, out, n, r->back));
    return retype_compare(r, at, n, error);
}

void swiglu_retype_report(const struct swiglu_retype *r, const struct swiglu_convert_options *options) {
    struct swiglu_converted c = {.struct_size = sizeof c, .from = r->from, .to = r->to, .n = r->n,
                                 .largest_error = r->largest_error};
    if (!options->converted) return;
    c.name = swiglu_names_at(&r->model->catalog.names, r->tensor);
    c.relative_error = r->squares > 0 ? sqrt(r->error_squares / r->squares) : 0;
    options->converted(options->progress_ctx, &c);
}
