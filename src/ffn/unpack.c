/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared block's weights back out of their panels. */
#include <string.h>

#include "base/half.h"
#include "dtype/dtype.h"
#include "ffn/block.h"

/* One element where swiglu_product_pack put it: exact as f32, and NaN keep their bits. */
static uint32_t element_bits(const struct swiglu_product *p, const char *panel, size_t lanes, size_t slot, size_t k) {
    const struct swiglu_form_info *form = &swiglu_forms[p->path->form];
    const char *const at = panel + (k / form->k_block * lanes + slot) * form->lane_bytes;
    uint32_t f;
    uint16_t h;
    if (p->path->form == SWIGLU_FORM_F32) {
        memcpy(&f, at, sizeof f);
        return f;
    }
    memcpy(&h, at + k % form->k_block * sizeof h, sizeof h);
    return p->path->form == SWIGLU_FORM_F16 ? swiglu_f32_bits(swiglu_f16_widen(h)) : (uint32_t)h << 16;
}

static void store_bits(char *dst, int dtype, uint32_t bits) {
    uint16_t h = (uint16_t)(bits >> 16);
    if (dtype == SWIGLU_F32) {
        memcpy(dst, &bits, sizeof bits);
        return;
    }
    if (dtype == SWIGLU_F16)
        h = swiglu_f16_store(swiglu_f32_from_bits(bits));
    else if (bits & 0xFFFFu)
        h = swiglu_bf16_store(swiglu_f32_from_bits(bits));
    memcpy(dst, &h, sizeof h);
}

enum swiglu_status swiglu_block_unpack(const struct swiglu_block *block, int part, int dtype, void *dst, size_t ld_elems) {
    if (!block || part < SWIGLU_PART_GATE || part > SWIGLU_PART_DOWN || !swiglu_dtype_is_float(dtype)) return SWIGLU_E_ARGUMENT;
    if (part == SWIGLU_PART_GATE && !block->gated) return SWIGLU_E_ARGUMENT;
    const struct swiglu_product *const p = part == SWIGLU_PART_DOWN ? &block->down : &block->up;
    const size_t ld = ld_elems ? ld_elems : p->k, bytes = swiglu_float_bytes(dtype), lanes = 2 * (size_t)block->kern->vl;
    if (ld < p->k) return SWIGLU_E_SHAPE;
    if (p->n_units == 0 || p->k == 0) return SWIGLU_OK;
    if (!dst) return SWIGLU_E_ARGUMENT;
    const size_t slot0 = part == SWIGLU_PART_UP && block->gated ? p->units_per_panel : 0;
    for (size_t unit = 0; unit < p->n_units; unit++) {
        const char *const panel = p->data + unit / p->units_per_panel * p->panel_bytes;
        const size_t slot = slot0 + unit % p->units_per_panel;
        for (size_t k = 0; k < p->k; k++)
            store_bits((char *)dst + (unit * ld + k) * bytes, dtype, element_bits(p, panel, lanes, slot, k));
    }
    return SWIGLU_OK;
}
