/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared block evaluated, whole or by halves. */
#include "swiglu/swiglu.h"

#include "api/rows.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/forward.h"
#include "ffn/schedule.h"

enum swiglu_status swiglu_forward_bytes(const struct swiglu_block *block, size_t m, unsigned n_threads, size_t *bytes) {
    if (!block || !bytes) return SWIGLU_E_ARGUMENT;
    return swiglu_forward_size(block, NULL, m, n_threads, bytes) ? SWIGLU_E_SHAPE : SWIGLU_OK;
}

enum swiglu_status swiglu_rows_check(struct swiglu_crows *rows, size_t m, size_t n, struct swiglu_span *span) {
    size_t elems = 0;
    *span = (struct swiglu_span){rows->data, 0};
    if (!swiglu_dtype_is_float(rows->dtype)) return SWIGLU_E_ARGUMENT;
    if (rows->ld_elems == 0) rows->ld_elems = n;
    if (rows->ld_elems < n) return SWIGLU_E_SHAPE;
    if (m == 0 || n == 0) return SWIGLU_OK;
    if (!rows->data) return SWIGLU_E_ARGUMENT;
    if (SW_MUL(m - 1, rows->ld_elems, &elems) || SW_ADD(elems, n, &elems) ||
        SW_MUL(elems, swiglu_float_bytes(rows->dtype), &span->bytes))
        return SWIGLU_E_SHAPE;
    return SWIGLU_OK;
}

bool swiglu_spans_meet(struct swiglu_span a, struct swiglu_span b) {
    const uintptr_t pa = (uintptr_t)a.data, pb = (uintptr_t)b.data;
    return a.bytes && b.bytes && pa < pb + b.bytes && pb < pa + a.bytes;
}

/* swiglu_rows_check, and what does not fit in words. */
static enum swiglu_status check_rows(const char *name, struct swiglu_crows *rows, size_t m, size_t n, struct swiglu_span *span,
                                     struct swiglu_error *error) {
    const enum swiglu_status status = swiglu_rows_check(rows, m, n, span);
    if (status == SWIGLU_OK) return status;
    REQUIRE(swiglu_dtype_is_float(rows->dtype), status, "%s: dtype %d is not f32, f16 or bf16", name, rows->dtype);
    REQUIRE(rows->ld_elems >= n, status, "%s: a stride of %zu values, but rows of %zu", name, rows->ld_elems, n);
    REQUIRE(rows->data, status, "%s: data is NULL, but there are %zu rows of %zu values", name, m, n);
    return swiglu_fail(error, status, SWIGLU_NO_OFFSET, 0, "%s: %zu rows with a stride of %zu values exceed the address space",
                       name, m, rows->ld_elems);
}

/* What forward and its halves check before anything is written: rows of n_in and n_out values, and the workspace. *empty
 * where there is nothing to do. */
static enum swiglu_status check_call(const struct swiglu_block *block, size_t m, struct swiglu_crows *in, size_t n_in,
                                     struct swiglu_rows *out, size_t n_out, struct swiglu_work work,
                                     const struct swiglu_runner *runner, bool *empty, struct swiglu_error *error) {
    struct swiglu_span in_span, out_span, work_span = {work.data, 0};
    struct swiglu_crows to = {out->data, out->dtype, out->ld_elems};
    TRY(check_rows("x", in, m, n_in, &in_span, error));
    TRY(check_rows("y", &to, m, n_out, &out_span, error));
    out->ld_elems = to.ld_elems;
    *empty = m == 0 || n_out == 0; /* m may be anything where rows are empty */
    if (*empty) return SWIGLU_OK;
    REQUIRE(!swiglu_forward_size(block, NULL, m, swiglu_runner_threads(runner), &work_span.bytes), SWIGLU_E_SHAPE,
            "m: the workspace of %zu rows exceeds the address space", m);
    REQUIRE(work.data && work.bytes >= work_span.bytes, SWIGLU_E_WORKSPACE, "work: %zu bytes%s, but %zu rows on %u threads need "
            "%zu", work.bytes, work.data ? "" : " at NULL", m, swiglu_runner_threads(runner), work_span.bytes);
    const bool same = in->data == to.data && in->dtype == to.dtype && in->ld_elems == to.ld_elems;
    REQUIRE(!swiglu_spans_meet(in_span, out_span) || same, SWIGLU_E_ALIAS,
            "y: overlaps x and is not x itself, with its dtype and stride");
    REQUIRE(!swiglu_spans_meet(work_span, in_span), SWIGLU_E_ALIAS, "work: overlaps x");
    REQUIRE(!swiglu_spans_meet(work_span, out_span), SWIGLU_E_ALIAS, "work: overlaps y");
    return SWIGLU_OK;
}

enum swiglu_status swiglu_forward_check(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                                        struct swiglu_work work, const struct swiglu_runner *runner,
                                        struct swiglu_error *error) {
    bool empty;
    REQUIRE(block, SWIGLU_E_ARGUMENT, "block: NULL");
    return check_call(block, m, &x, block->d_in, &y, block->d_out, work, runner, &empty, error);
}

enum swiglu_status swiglu_forward(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                                  struct swiglu_work work, const struct swiglu_runner *runner) {
    bool empty;
    if (!block) return SWIGLU_E_ARGUMENT;
    TRY(check_call(block, m, &x, block->d_in, &y, block->d_out, work, runner, &empty, NULL));
    if (!empty) swiglu_forward_run(block, NULL, m, x, y, work.data, runner);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_hidden(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows h,
                                 struct swiglu_work work, const struct swiglu_runner *runner) {
    bool empty;
    if (!block) return SWIGLU_E_ARGUMENT;
    if (h.dtype != SWIGLU_F32 && !(h.dtype == SWIGLU_BF16 && block->compute_down == SWIGLU_COMPUTE_BF16))
        return SWIGLU_E_ARGUMENT; /* it would round h once more than forward does */
    TRY(check_call(block, m, &x, block->d_in, &h, block->d_ff, work, runner, &empty, NULL));
    if (!empty) swiglu_hidden_run(block, m, x, h, work.data, runner);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_down(const struct swiglu_block *block, size_t m, struct swiglu_crows h, struct swiglu_rows y,
                               struct swiglu_work work, const struct swiglu_runner *runner) {
    bool empty;
    if (!block) return SWIGLU_E_ARGUMENT;
    TRY(check_call(block, m, &h, block->d_ff, &y, block->d_out, work, runner, &empty, NULL));
    if (!empty) swiglu_down_run(block, m, h, y, work.data, runner);
    return SWIGLU_OK;
}
