/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/train_layout.h"

#include <string.h>

#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/forward.h"
#include "ffn/pass.h"

static size_t padded(const struct swiglu_step *s, size_t n) { /* even where depths are eaten in pairs */
    return s->compute_first == SWIGLU_COMPUTE_BF16 ? n + n % 2 : n;
}

size_t swiglu_back_depth(const struct swiglu_step *s, size_t n_units) {
    return swiglu_step_halves(s) * padded(s, n_units);
}

static bool shape(struct swiglu_product *p, const struct swiglu_kern *kern, int compute, size_t k, size_t n_units, int two) {
    *p = (struct swiglu_product){.path = swiglu_train_path(kern, compute), .k = k, .n_units = n_units};
    return swiglu_product_shape(p, kern, two);
}

/* Panels whose depth is the tokens of a chunk have room for the rows that pad its last tile. */
static bool shape_tokens(struct swiglu_product *p, const struct swiglu_kern *kern, int compute, size_t n_tokens, size_t n_units) {
    if (shape(p, kern, compute, n_tokens + SWIGLU_ROW_PADDING, n_units, 0)) return true;
    p->k = n_tokens;
    return false;
}

bool swiglu_back_products(const struct swiglu_step *s, size_t n_tokens, size_t n_units, struct swiglu_back_products *p) {
    const struct swiglu_desc *d = s->desc;
    const struct swiglu_kern *k = s->kern;
    const int up = s->compute_first, down = s->compute_down;
    p->n_tokens = n_tokens;
    p->n_units = n_units;
    p->tokens = swiglu_tiles_of(k, n_tokens);
    p->units = swiglu_tiles_of(k, n_units);
    p->outs = swiglu_tiles_of(k, d->d_out);
    p->down = swiglu_tiles_of(k, (unsigned)swiglu_desc_trained(d, 2)->rows);
    p->inputs = swiglu_tiles_of(k, (unsigned)swiglu_step_trained_inputs(s));
    return shape(&p->gate_up, k, up, d->d_in, n_units, swiglu_step_halves(s) == 2) ||
           shape(&p->dh, k, down, d->d_out, n_units, 0) ||
           shape(&p->dx, k, up, swiglu_back_depth(s, n_units), d->d_in, 0) ||
           shape_tokens(&p->x, k, up, n_tokens, swiglu_step_trained_inputs(s)) ||
           shape_tokens(&p->h, k, down, n_tokens, n_units) ||
           shape_tokens(&p->dy, k, down, n_tokens, swiglu_desc_trained(d, 2)->rows) ||
           shape_tokens(&p->d, k, up, n_tokens, n_units) || shape_tokens(&p->ones_up, k, up, n_tokens, 1) ||
           shape_tokens(&p->ones_down, k, down, n_tokens, 1);
}

/* bf16 gradients of more than one token chunk are summed elsewhere first. */
static bool reserve_sums(const struct swiglu_step *s, size_t *total, size_t *sums) {
    if (!(s->flags & SWIGLU_TRAIN_BF16_GRADIENTS) || s->m <= SWIGLU_TOKEN_CHUNK) return false;
    for (int i = 0; i < 3; i++) {
        const struct swiglu_matrix *const m = swiglu_desc_trained(s->desc, i);
        const size_t rows = swiglu_matrix_stored_rows(m), cols = swiglu_matrix_stored_cols(m);
        if (m->data && (cols > SIZE_MAX / sizeof(float) || swiglu_reserve(total, rows, cols * sizeof(float), &sums[i])))
            return true;
    }
    return false;
}

bool swiglu_back_layout(const struct swiglu_step *s, unsigned n_threads, struct swiglu_back_layout *l) {
    const struct swiglu_desc *d = s->desc;
    const unsigned vl = s->kern->vl;
    const size_t n_tokens = swiglu_min(s->m, SWIGLU_TOKEN_CHUNK);
    struct swiglu_back_products p;
    memset(l, 0, sizeof *l);
    l->block_units = SWIGLU_CHUNK / swiglu_step_halves(s); /* the depth of dx that a block adds is exactly one chunk */
    l->n_blocks = swiglu_max(swiglu_ceil_div(d->d_ff, l->block_units), 1);
    l->n_chunks = swiglu_ceil_div(s->m, SWIGLU_TOKEN_CHUNK);
    const size_t n_units = swiglu_min(d->d_ff, l->block_units), rows = n_tokens + SWIGLU_ROW_PADDING;
    if (swiglu_back_products(s, n_tokens, n_units, &p)) return true;
    l->rows = rows;
    l->block_bias = swiglu_product_lanes(&p.gate_up, vl);
    l->x_row = swiglu_staged_bytes(p.gate_up.path->x, d->d_in);
    l->dy_row = swiglu_staged_bytes(p.dh.path->x, d->d_out);
    l->d_row = swiglu_staged_bytes(p.dx.path->x, swiglu_back_depth(s, l->block_units));
    l->panel_bytes = swiglu_max(p.h.panel_bytes, p.d.panel_bytes);
    const size_t turned = n_units + SWIGLU_ROW_PADDING;
    size_t *const t = &l->total;
    bool bad = swiglu_reserve(t, rows, l->x_row, &l->x_rows) || swiglu_reserve(t, rows, l->dy_row, &l->dy_rows) ||
               swiglu_reserve(t, 1, p.x.data_bytes, &l->x_panels) ||
               swiglu_reserve(t, d->d_out + SWIGLU_ROW_PADDING, SWIGLU_RECORD_BYTES, &l->dy_turned) ||
               swiglu_reserve(t, 1, p.ones_up.data_bytes, &l->ones_up) ||
               swiglu_reserve(t, 1, p.ones_down.data_bytes, &l->ones_down) ||
               swiglu_reserve(t, l->n_blocks, l->block_bias * sizeof(float), &l->bias) ||
               swiglu_reserve(t, swiglu_product_lanes(&p.gate_up, vl), rows * sizeof(float), &l->gate) ||
               swiglu_reserve(t, 1, p.h.data_bytes, &l->h) || swiglu_reserve(t, 1, p.d.data_bytes, &l->dg) ||
               swiglu_reserve(t, 1, p.d.data_bytes, &l->du) || swiglu_reserve(t, rows, l->d_row, &l->d_rows) ||
               swiglu_reserve(t, turned, SWIGLU_RECORD_BYTES, &l->dg_turned) ||
               swiglu_reserve(t, turned, SWIGLU_RECORD_BYTES, &l->du_turned) ||
               swiglu_reserve(t, swiglu_product_lanes(&p.dx, vl), rows * sizeof(float), &l->dx_totals);
    if (swiglu_step_turned(s, 0) || swiglu_step_turned(s, 1))
        bad = bad || swiglu_reserve(t, swiglu_step_trained_inputs(s) + SWIGLU_ROW_PADDING, SWIGLU_RECORD_BYTES, &l->x_turned);
    if (swiglu_step_turned(s, 2))
        bad = bad || swiglu_reserve(t, 1, p.dy.data_bytes, &l->dy_panels) ||
              swiglu_reserve(t, turned, SWIGLU_RECORD_BYTES, &l->h_turned);
    const struct swiglu_product *const raw[3] = {&p.gate_up, &p.dh, &p.dx};
    l->buffer_bytes = l->panel_bytes; /* of one panel of dy, or a slice of weights */
    for (int i = 0; i < 3; i++) {
        l->buffer_bytes = swiglu_max(l->buffer_bytes, swiglu_weights_buffer(raw[i], vl, SWIGLU_BACK_SLICE));
        l->totals_bytes = swiglu_max(l->totals_bytes, rows * 2 * vl * raw[i]->path->panels * sizeof(float));
    }
    return bad || reserve_sums(s, t, l->sums) || swiglu_align_up(l->totals_bytes + l->buffer_bytes, 64, &l->scratch_bytes) ||
           swiglu_reserve(t, n_threads ? n_threads : 1, l->scratch_bytes, &l->scratch);
}

bool swiglu_train_backward_size(const struct swiglu_step *s, unsigned n_threads, size_t *work) {
    struct swiglu_back_layout l;
    if (swiglu_back_layout(s, n_threads, &l)) return true;
    *work = l.total;
    return false;
}

bool swiglu_train_size(const struct swiglu_step *s, unsigned n_threads, size_t *work, size_t *saved) {
    size_t forward = 0, backward = 0, per_row = 0, rows = 0;
    *saved = 0;
    if (s->m == 0) {
        *work = 64;
        return false;
    }
    if (swiglu_train_forward_size(s, n_threads, &forward) || swiglu_train_backward_size(s, n_threads, &backward)) return true;
    if (s->flags & SWIGLU_TRAIN_KEEP_GATE_UP) {
        per_row = swiglu_kept_per_row(s->desc->d_ff, swiglu_step_halves(s) == 2) * sizeof(float);
        if (swiglu_align_up(s->m, SWIGLU_KEPT_ROW_STEP, &rows)) return true;
    }
    return SW_ADD(swiglu_max(forward, backward), (size_t)64, work) || /* 64: to align a caller's pointer */
           SW_MUL(per_row, rows, saved);
}
