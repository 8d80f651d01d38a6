/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/product.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/half.h"
#include "dtype/dtype.h"
#include "kern/lane.h"

bool swiglu_product_bias(const struct swiglu_product *p, unsigned vl, const struct swiglu_half *halves, int n_halves,
                         size_t unit0, float *bias) {
    const size_t n_slots = 2 * (size_t)vl / (size_t)n_halves;
    int any = 0;
    for (int i = 0; i < n_halves; i++) any |= halves[i].bias->data != NULL;
    if (!any) return false;
    memset(bias, 0, swiglu_product_lanes(p, vl) * sizeof *bias);
    for (int i = 0; i < n_halves; i++) {
        const struct swiglu_vector *v = halves[i].bias;
        for (size_t unit = 0; unit < p->n_units; unit++)
            bias[unit / p->units_per_panel * 2 * vl + (size_t)i * n_slots + unit % p->units_per_panel] =
                v->data ? swiglu_vector_at(v, halves[i].first + (unit0 + unit) * halves[i].stride) : -0.0f;
    }
    return true;
}

bool swiglu_product_shape(struct swiglu_product *p, const struct swiglu_kern *kern, int two) {
    const struct swiglu_form_info *form = &swiglu_forms[p->path->form];
    const size_t blocks = swiglu_ceil_div(p->k, form->k_block);
    size_t panels;
    p->units_per_panel = two ? kern->vl : 2 * (size_t)kern->vl;
    p->n_panels = swiglu_ceil_div(p->n_units, p->units_per_panel);
    /* with k = 0 every sum is empty, but a panel keeps its place */
    return SW_MUL(swiglu_max(blocks, 1), 2 * (size_t)kern->vl * form->lane_bytes, &p->panel_bytes) ||
           swiglu_align_up(p->n_panels, p->path->panels, &panels) || SW_MUL(panels, p->panel_bytes, &p->data_bytes);
}

enum swiglu_status swiglu_product_allocate(struct swiglu_product *p, const struct swiglu_kern *kern,
                                           const struct swiglu_half *halves, int n_halves, const char *name,
                                           struct swiglu_error *error) {
    REQUIRE(!swiglu_product_shape(p, kern, n_halves == 2), SWIGLU_E_SHAPE, "packing %s: %zu panels of depth %zu overflow",
            name, p->n_panels, p->k);
    if (p->n_units == 0) return SWIGLU_OK;
    p->data = swiglu_alloc_big(p->data_bytes);
    float *bias = swiglu_alloc_array(swiglu_product_lanes(p, kern->vl), sizeof *bias);
    if (bias && swiglu_product_bias(p, kern->vl, halves, n_halves, 0, bias))
        p->bias = bias;
    else
        swiglu_free(bias);
    REQUIRE(p->data && bias, SWIGLU_E_MEMORY, "packing %s: no memory for %zu bytes", name, p->data_bytes);
    return SWIGLU_OK;
}

void swiglu_product_free(struct swiglu_product *p) {
    swiglu_free_big(p->data, p->data_bytes);
    swiglu_free(p->bias);
    p->data = NULL;
    p->bias = NULL;
}

/* Element k of a lane at `at`: exact as f32. Values as they were packed keep their bits; what is held in pairs has gone
 * through the staging rounding, whose NaN is the canonical one on every level. */
static uint32_t element_bits(int form, const char *at, size_t k) {
    uint32_t f;
    uint16_t h;
    if (form == SWIGLU_FORM_F32) {
        memcpy(&f, at, sizeof f);
        return f;
    }
    memcpy(&h, at + k % swiglu_forms[form].k_block * sizeof h, sizeof h);
    if (form == SWIGLU_FORM_F16) return swiglu_f32_bits(swiglu_f16_widen(h));
    if (form == SWIGLU_FORM_BF16_PAIR) h = swiglu_bf16_store(swiglu_bf16_widen(h));
    return (uint32_t)h << 16;
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

/* A lane of a block format, decoded. */
static void unpack_blocks(const struct swiglu_product *p, const struct swiglu_kern *kern, const char *panel, size_t lane,
                          int dtype, char *dst) {
    const struct swiglu_dtype_row *type = swiglu_dtype_find(swiglu_lane_dtype(p->path->form));
    unsigned char block[256];
    float values[256];
    for (size_t k = 0; k < p->k; k += type->block_elems) {
        const char *const at = panel + swiglu_form_bytes(p->path->form, 2 * (size_t)kern->vl, k);
        swiglu_lane_unpack(kern, p->path->form, at, lane, 1, block);
        type->decode(block, 1, values);
        for (size_t i = 0; i < type->block_elems; i++)
            store_bits(dst + (k + i) * swiglu_float_bytes(dtype), dtype, swiglu_f32_bits(values[i]));
    }
}

void swiglu_product_unpack(const struct swiglu_product *p, const struct swiglu_kern *kern, size_t unit, size_t slot, int dtype,
                           char *dst) {
    const unsigned vl = kern->vl;
    const int form = p->path->form;
    const size_t step = 2 * (size_t)vl * swiglu_forms[form].lane_bytes, bytes = swiglu_float_bytes(dtype);
    const char *const lane = p->data + unit / p->units_per_panel * p->panel_bytes + slot * swiglu_forms[form].lane_bytes;
    if (swiglu_lane_dtype(form) >= 0) {
        unpack_blocks(p, kern, p->data + unit / p->units_per_panel * p->panel_bytes, slot, dtype, dst);
        return;
    }
    for (size_t k = 0; k < p->k; k++)
        store_bits(dst + k * bytes, dtype, element_bits(form, lane + k / swiglu_forms[form].k_block * step, k));
}
