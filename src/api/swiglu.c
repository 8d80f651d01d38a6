/* SPDX-License-Identifier: Apache-2.0 */
/* Public entries: validate, then call down. Whatever computes with floats runs in the default floating-point environment
 * and puts the caller's back, so that a caller's flush-to-zero or rounding mode changes no result. */
#include "swiglu/swiglu.h"

#include <fenv.h>
#include <math.h>

#include "api/rows.h"
#include "base/act.h"
#include "base/checked.h"
#include "base/half.h"
#include "cpu/cpu.h"
#include "dtype/dtype.h"
#include "ffn/forward.h"
#include "ffn/measure.h"
#include "ffn/prepare.h"
#include "ffn/schedule.h"
#include "ref/reference.h"

static void enter_default(fenv_t *caller) {
    fegetenv(caller);
    fesetenv(FE_DFL_ENV);
}

/* ---- data types ---- */

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
    enter_default(&caller);
    row->decode(src, n / row->block_elems, dst);
    fesetenv(&caller);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_encode(int dtype, const float *src, size_t n, void *dst) {
    const struct swiglu_dtype_row *row = swiglu_dtype_find(dtype);
    fenv_t caller;
    if (!row || ((!src || !dst) && n)) return SWIGLU_E_ARGUMENT;
    if (n % row->block_elems) return SWIGLU_E_SHAPE;
    for (size_t i = 0; i < n && row->block_elems > 1; i++)
        if (!isfinite(src[i])) return SWIGLU_E_UNSUPPORTED;
    enter_default(&caller);
    row->encode(src, n / row->block_elems, dst);
    fesetenv(&caller);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_act_array(const struct swiglu_act *act, size_t n, const float *x, float *y, int derivative) {
    struct swiglu_act full = swiglu_act_default();
    struct swiglu_error *const error = NULL;
    fenv_t caller;
    const struct swiglu_kern *generic = swiglu_kern_select(SWIGLU_ISA_GENERIC, NULL, 0);
    if (swiglu_struct_in(&full, sizeof full, act) || ((!x || !y) && n)) return SWIGLU_E_ARGUMENT;
    TRY(swiglu_act_check(&full, 1, error));
    enter_default(&caller);
    (derivative ? generic->act_grad : generic->act)(&full, n, x, y);
    fesetenv(&caller);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_act_eval(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    return swiglu_act_array(act, n, x, y, 0);
}

/* ---- block ---- */

enum swiglu_status swiglu_block_create(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                       struct swiglu_block **block, struct swiglu_error *error) {
    struct swiglu_desc checked;
    struct swiglu_options chosen;
    fenv_t caller;
    REQUIRE(block, SWIGLU_E_ARGUMENT, "block: NULL");
    *block = NULL;
    TRY(swiglu_desc_check(desc, &checked, error));
    TRY(swiglu_options_check(options, &chosen, error));
    enter_default(&caller);
    const enum swiglu_status status = swiglu_block_prepare(&checked, &chosen, block, error);
    fesetenv(&caller);
    return status;
}

enum swiglu_status swiglu_block_query(const struct swiglu_block *block, struct swiglu_block_info *info) {
    if (!block) return SWIGLU_E_ARGUMENT;
    const struct swiglu_block_info full = {
        .struct_size = sizeof full, .d_in = block->d_in, .d_ff = block->d_ff, .d_out = block->d_out,
        .gated = block->gated, .compute_first = block->compute_first, .compute_down = block->compute_down,
        .isa = block->kern->isa, .kernel_first = block->first.path->kernel, .kernel_down = block->down.path->kernel,
        .why = block->why, .packed_bytes = block->packed_bytes, .file_bytes = block->file_bytes,
        .expanded = block->expanded};
    return swiglu_struct_out(info, &full, sizeof full);
}

void swiglu_block_destroy(struct swiglu_block *block) {
    if (block) swiglu_block_free(block);
}

enum swiglu_status swiglu_block_unpack(const struct swiglu_block *block, int part, int dtype, void *dst, size_t ld_elems) {
    if (!block || part < SWIGLU_PART_GATE || part > SWIGLU_PART_DOWN || !swiglu_dtype_is_float(dtype)) return SWIGLU_E_ARGUMENT;
    if (part == SWIGLU_PART_GATE && !block->gated) return SWIGLU_E_ARGUMENT;
    const struct swiglu_product *const p = part == SWIGLU_PART_DOWN ? &block->down : &block->first;
    const size_t ld = ld_elems ? ld_elems : p->k;
    if (ld < p->k) return SWIGLU_E_SHAPE;
    if (p->n_units == 0 || p->k == 0) return SWIGLU_OK;
    if (!dst) return SWIGLU_E_ARGUMENT;
    const size_t slot0 = part == SWIGLU_PART_UP && block->gated ? p->units_per_panel : 0;
    for (size_t unit = 0; unit < p->n_units; unit++)
        swiglu_product_unpack(p, block->kern->vl, unit, slot0 + unit % p->units_per_panel, dtype,
                              (char *)dst + unit * ld * swiglu_float_bytes(dtype));
    return SWIGLU_OK;
}

/* ---- forward ---- */

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

/* ---- reference ---- */

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
    enter_default(&caller);
    const enum swiglu_status status = swiglu_reference_compute(&checked, m, x, &full, error);
    fesetenv(&caller);
    return status;
}

/* ---- machine ---- */

static uint64_t compiled_levels(void) {
    uint64_t levels = 0;
    for (size_t i = 0; swiglu_kern_table(i); i++) levels |= swiglu_kern_table(i)->isa;
    return levels;
}

enum swiglu_status swiglu_cpu_query(struct swiglu_cpu_info *info) {
    const struct swiglu_cpu_counts counts = swiglu_cpu_counts();
    struct swiglu_cpu_info full = {.struct_size = sizeof full, .can = swiglu_cpu_levels(), .compiled = compiled_levels(),
                                   .n_cpus = counts.n_cpus, .n_cores = counts.n_cores};
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_level_query(size_t i, struct swiglu_level_info *info) {
    const struct swiglu_level_row *row = swiglu_level_row(i);
    if (!row) return SWIGLU_E_ARGUMENT;
    const struct swiglu_level_info full = {.struct_size = sizeof full, .name = row->name, .bit = row->bit,
                                           .limit = swiglu_level_limit(row), .can = (swiglu_cpu_levels() & row->bit) != 0,
                                           .compiled = (compiled_levels() & row->bit) != 0,
                                           .why = swiglu_cpu_why(row->bit)};
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_kernel_query(int weight_dtype, int compute, uint64_t isa_mask, const char **kernel,
                                       const char **why) {
    if (!swiglu_compute_known(compute)) return SWIGLU_E_ARGUMENT;
    if (!swiglu_dtype_find(weight_dtype) || compute == SWIGLU_COMPUTE_INT8) return SWIGLU_E_UNSUPPORTED;
    const int resolved = swiglu_compute_resolve(compute, weight_dtype, weight_dtype);
    const struct swiglu_need need = swiglu_kern_need(resolved, weight_dtype, weight_dtype);
    const struct swiglu_kern *kern = swiglu_kern_select(isa_mask, &need, 1);
    if (!kern) return SWIGLU_E_HARDWARE;
    if (kernel) *kernel = kern->path[need.form][need.arith]->kernel;
    if (why) *why = swiglu_prepare_why(weight_dtype, compute);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_measure(uint64_t isa_mask, double seconds, const void *buffer, size_t bytes,
                                  const struct swiglu_runner *runner, struct swiglu_limits *limits) {
    const size_t head = buffer ? -(uintptr_t)buffer & 4095 : 0, least = 2 << 20;
    struct swiglu_limits full = {.struct_size = sizeof full};
    fenv_t caller;
    if (!buffer || !limits || !(seconds > 0 && seconds <= 60) || bytes < least + head) return SWIGLU_E_ARGUMENT;
    const struct swiglu_kern *kern = swiglu_kern_select(isa_mask, NULL, 0);
    if (!kern) return SWIGLU_E_HARDWARE;
    enter_default(&caller);
    swiglu_measure_run(kern, seconds, (const char *)buffer + head, bytes - head, runner, &full);
    fesetenv(&caller);
    return swiglu_struct_out(limits, &full, sizeof full);
}

/* ---- build ---- */

enum swiglu_status swiglu_version(struct swiglu_build *build) {
    const struct swiglu_build full = {sizeof full, SWIGLU_VERSION_STRING, __VERSION__, SWIGLU_ABI, SWIGLU_CONTRACT};
    return swiglu_struct_out(build, &full, sizeof full);
}
