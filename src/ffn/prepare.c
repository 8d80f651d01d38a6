/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/prepare.h"

#include "base/alloc.h"
#include "dtype/dtype.h"
#include "ffn/pack.h"

const char *swiglu_prepare_why(int weight_dtype, int compute_asked) {
    if (compute_asked == SWIGLU_COMPUTE_F32) return "f32 compute was asked for";
    if (compute_asked == SWIGLU_COMPUTE_BF16) return "bf16 compute was asked for";
    if (compute_asked == SWIGLU_COMPUTE_INT8) return "int8 compute was asked for";
    if (weight_dtype == SWIGLU_BF16) return "auto: bf16 weights compute in bf16";
    if (weight_dtype == SWIGLU_F16) return "auto: f16 weights compute in f32, widened in registers";
    if (weight_dtype == SWIGLU_F32) return "auto: f32 weights compute in f32";
    return "auto: block formats are decoded to f32 at prepare; int8 computes from their own bits";
}

/* Packed bytes per weight above the file's, by more than what widens sub-scales of 6 bits: a block format was decoded, or a
 * pair of two dtypes widened. */
static int is_expanded(const struct swiglu_product *p, const struct swiglu_matrix *m) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(m->dtype);
    const struct swiglu_form_info *form = &swiglu_forms[p->path->form];
    return (uint64_t)form->lane_bytes * t->block_elems * 20 > (uint64_t)t->block_bytes * form->k_block * 21;
}

static uint64_t matrix_bytes(const struct swiglu_matrix *m) {
    return (uint64_t)swiglu_matrix_stored_rows(m) * swiglu_matrix_row_bytes(m);
}

static enum swiglu_status pack_all(struct swiglu_block *b, const struct swiglu_desc *desc,
                                   const struct swiglu_options *options, struct swiglu_error *error) {
    struct swiglu_packing packings[2] = {{.product = &b->first, .name = b->gated ? "gate and up" : "up"},
                                         {.product = &b->down, .n_halves = 1, .name = "down"}};
    struct swiglu_packing *const first = &packings[0], *const down = &packings[1];
    first->n_halves = swiglu_desc_halves(desc, first->half);
    down->half[0] = swiglu_desc_down(desc);
    TRY(swiglu_product_allocate(&b->first, b->kern, first->half, first->n_halves, first->name, error));
    TRY(swiglu_product_allocate(&b->down, b->kern, down->half, 1, down->name, error));
    TRY(swiglu_pack(b->kern, packings, 2, options, b->file_bytes, error));
    b->packed_bytes = sizeof *b + b->first.data_bytes + b->down.data_bytes;
    return SWIGLU_OK;
}

enum swiglu_status swiglu_block_prepare(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                        struct swiglu_block **block, struct swiglu_error *error) {
    REQUIRE(!swiglu_desc_has_heads(desc), SWIGLU_E_UNSUPPORTED, "a head: only a training step reads it");
    TRY(swiglu_desc_compute_check(desc, options->compute, error));
    const int gated = desc->layout != SWIGLU_UNGATED;
    struct swiglu_half halves[2];
    const int n_halves = swiglu_desc_halves(desc, halves);
    const struct swiglu_matrix *const gate = halves[0].matrix, *const up = halves[n_halves - 1].matrix;
    REQUIRE(options->compute != SWIGLU_COMPUTE_INT8 || gate->dtype == up->dtype, SWIGLU_E_UNSUPPORTED,
            "int8 compute: gate is %s and up %s; this version has kernels for gate and up of one format",
            swiglu_dtype_find(gate->dtype)->name, swiglu_dtype_find(up->dtype)->name);
    const int compute_first = swiglu_compute_resolve(options->compute, gate->dtype, up->dtype);
    const int compute_down = swiglu_compute_resolve(options->compute, desc->down.dtype, desc->down.dtype);
    const struct swiglu_need needs[2] = {swiglu_kern_need(compute_first, gate->dtype, up->dtype),
                                         swiglu_kern_need(compute_down, desc->down.dtype, desc->down.dtype)};
    const struct swiglu_kern *kern = swiglu_kern_select(options->isa_mask, needs, 2);
    REQUIRE(kern, SWIGLU_E_HARDWARE, "no instruction-set level is left: mask 0x%llx",
            (unsigned long long)options->isa_mask);
    struct swiglu_block *b = swiglu_alloc(sizeof *b);
    REQUIRE(b, SWIGLU_E_MEMORY, "no memory for a block");
    b->kern = kern;
    b->d_in = desc->d_in, b->d_ff = desc->d_ff, b->d_out = desc->d_out;
    b->gated = gated;
    b->act = desc->act;
    b->compute_first = compute_first, b->compute_down = compute_down;
    b->first.path = kern->path[needs[0].form][needs[0].arith];
    b->down.path = kern->path[needs[1].form][needs[1].arith];
    b->first.k = desc->d_in, b->first.n_units = desc->d_ff;
    b->down.k = desc->d_ff, b->down.n_units = desc->d_out;
    b->why = swiglu_prepare_why(gate->dtype == up->dtype ? gate->dtype : SWIGLU_F32, options->compute);
    b->file_bytes = matrix_bytes(gate) + (gate == up ? 0 : matrix_bytes(up)) + matrix_bytes(&desc->down);
    const enum swiglu_status status = pack_all(b, desc, options, error);
    if (status != SWIGLU_OK) {
        swiglu_block_free(b);
        return status;
    }
    b->expanded = is_expanded(&b->first, gate) || is_expanded(&b->first, up) || is_expanded(&b->down, &desc->down);
    *block = b;
    return SWIGLU_OK;
}

void swiglu_block_free(struct swiglu_block *block) {
    swiglu_product_free(&block->first);
    swiglu_product_free(&block->down);
    swiglu_free(block);
}
