/* SPDX-License-Identifier: Apache-2.0 */
/* Widths and counts: the one place for both. */
#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/desc.h"

enum swiglu_status swiglu_width(int rule, size_t d_model, size_t multiple_of, double multiplier, size_t *d_ff) {
    size_t h, t;
    if (!d_ff || rule < SWIGLU_WIDTH_NONE || rule > SWIGLU_WIDTH_NEAREST || !(multiplier >= 0)) return SWIGLU_E_ARGUMENT;
    if (rule != SWIGLU_WIDTH_NONE && multiple_of == 0) return SWIGLU_E_ARGUMENT;
    if (SW_MUL(d_model, (size_t)8, &t)) return SWIGLU_E_SHAPE;
    h = t / 3; /* int(8 d / 3), int(2/3 4 d) and 8 d // 3 agree for all widths in use */
    if (multiplier > 0) {
        const double scaled = multiplier * (double)h;
        if (!(scaled < 0x1p62)) return SWIGLU_E_SHAPE;
        h = (size_t)scaled;
    }
    if (rule != SWIGLU_WIDTH_NONE) {
        const size_t add = rule == SWIGLU_WIDTH_UP ? multiple_of - 1 : multiple_of / 2;
        if (SW_ADD(h, add, &t)) return SWIGLU_E_SHAPE;
        h = t / multiple_of * multiple_of;
    }
    *d_ff = h;
    return SWIGLU_OK;
}

/* a * b added to *sum; true if it overflows. */
static bool add_product(uint64_t a, uint64_t b, uint64_t *sum) {
    uint64_t t;
    return SW_MUL(a, b, &t) || SW_ADD(*sum, t, sum);
}

static bool add_matrix(const struct swiglu_matrix *m, uint64_t rows, uint64_t cols, struct swiglu_counts *c) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(m->dtype);
    const uint64_t stored_rows = m->in_out ? cols : rows, stored_cols = m->in_out ? rows : cols;
    const uint64_t row_bytes = (stored_cols + t->block_elems - 1) / t->block_elems * t->block_bytes;
    return add_product(rows, cols, &c->parameters) || add_product(2 * rows, cols, &c->flops_per_token) ||
           add_product(stored_rows, row_bytes, &c->weight_bytes);
}

static bool add_bias(const struct swiglu_vector *v, uint64_t n, struct swiglu_counts *c) {
    return v->data && (SW_ADD(c->parameters, n, &c->parameters) ||
                       add_product(n, swiglu_float_bytes(v->dtype), &c->weight_bytes));
}

enum swiglu_status swiglu_count(const struct swiglu_desc *desc, struct swiglu_counts *counts) {
    struct swiglu_desc d;
    struct swiglu_counts c = {.struct_size = sizeof c};
    swiglu_desc_init(&d);
    if (!counts || swiglu_struct_in(&d, sizeof d, desc)) return SWIGLU_E_ARGUMENT;
    if (d.layout < SWIGLU_SEPARATE || d.layout > SWIGLU_UNGATED) return SWIGLU_E_ARGUMENT;
    const int packed = swiglu_desc_is_packed(&d), gated = d.layout != SWIGLU_UNGATED;
    const struct swiglu_matrix *const used[3] = {gated ? &d.gate : &d.up, packed ? &d.gate : &d.up, &d.down};
    for (int i = 0; i < 3; i++)
        if (!swiglu_dtype_find(used[i]->dtype)) return SWIGLU_E_ARGUMENT;
    const uint64_t limit = (uint64_t)1 << 40, f = d.d_ff;
    if (d.d_in > limit || f > limit || d.d_out > limit) return SWIGLU_E_SHAPE;
    bool overflow = false;
    if (gated) overflow |= add_matrix(&d.gate, packed ? 2 * f : f, d.d_in, &c) || add_bias(&d.gate_bias, packed ? 2 * f : f, &c);
    if (!packed) overflow |= add_matrix(&d.up, f, d.d_in, &c) || add_bias(&d.up_bias, f, &c);
    overflow |= add_matrix(&d.down, d.d_out, f, &c) || add_bias(&d.down_bias, d.d_out, &c);
    return overflow ? SWIGLU_E_SHAPE : swiglu_struct_out(counts, &c, sizeof c);
}
