/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: prepare, ask, unpack. */
#include "swiglu/swiglu.h"

#include "api/fenv.h"
#include "dtype/dtype.h"
#include "ffn/desc.h"
#include "ffn/prepare.h"

enum swiglu_status swiglu_block_create(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                       struct swiglu_block **block, struct swiglu_error *error) {
    struct swiglu_desc checked;
    struct swiglu_options chosen;
    fenv_t caller;
    REQUIRE(block, SWIGLU_E_ARGUMENT, "block: NULL");
    *block = NULL;
    TRY(swiglu_desc_check(desc, &checked, error));
    TRY(swiglu_options_check(options, &chosen, error));
    swiglu_fenv_enter(&caller);
    const enum swiglu_status status = swiglu_block_prepare(&checked, &chosen, block, error);
    swiglu_fenv_leave(&caller);
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
        swiglu_product_unpack(p, block->kern, unit, slot0 + unit % p->units_per_panel, dtype,
                              (char *)dst + unit * ld * swiglu_float_bytes(dtype));
    return SWIGLU_OK;
}
