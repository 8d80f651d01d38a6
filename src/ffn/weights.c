/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/weights.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/half.h"
#include "dtype/dtype.h"

/* n lanes of one step, from `slot` on: v[0], v[stride], ... at depth k of panel. */
static void put_lanes(const struct swiglu_product *p, unsigned vl, char *panel, size_t k, size_t slot, const float *v,
                      size_t stride, size_t n) {
    const struct swiglu_form_info *form = &swiglu_forms[p->path->form];
    char *const at = panel + (k / form->k_block * 2 * vl + slot) * form->lane_bytes;
    float *const f = (void *)at;
    uint16_t *const h = (void *)at;
    switch (p->path->form) {
    case SWIGLU_FORM_F32:
        for (size_t i = 0; i < n; i++) f[i] = v[i * stride];
        break;
    case SWIGLU_FORM_F16: /* exact: the weights were f16 */
        for (size_t i = 0; i < n; i++) h[i] = swiglu_f16_store(v[i * stride]);
        break;
    case SWIGLU_FORM_BF16: /* exact: the weights were bf16 */
        for (size_t i = 0; i < n; i++) h[i] = (uint16_t)(swiglu_f32_bits(v[i * stride]) >> 16);
        break;
    case SWIGLU_FORM_BF16_PAIR:
        for (size_t i = 0; i < n; i++) h[2 * i + k % 2] = swiglu_bf16_staging(v[i * stride]);
        break;
    }
}

struct packer {
    struct swiglu_product *p;
    unsigned vl;
    float *rows;    /* decoded rows of one panel half, or one stored row of an in_out matrix */
    void *scratch;  /* undecoded row of a matrix behind a callback */
    struct swiglu_progress *progress;
    struct swiglu_error *error;
    const char *name;
};

static enum swiglu_status report(struct packer *c, const struct swiglu_matrix *m, size_t n_rows) {
    struct swiglu_progress *g = c->progress;
    struct swiglu_error *const error = c->error;
    g->done += n_rows * swiglu_matrix_row_bytes(m);
    REQUIRE(!g->call || !g->call(g->ctx, g->done < g->total ? g->done : g->total, g->total), SWIGLU_E_CANCELLED,
            "packing %s: cancelled", c->name);
    return SWIGLU_OK;
}

/* Rows are outputs: the rows of one vector of lanes are decoded side by side, then written down k. */
static enum swiglu_status pack_out_in(struct packer *c, const struct swiglu_half *half, size_t slot0, size_t n_slots) {
    const struct swiglu_product *p = c->p;
    const size_t k = p->k;
    for (size_t panel = 0; panel < p->n_panels; panel++) {
        const size_t unit0 = panel * p->units_per_panel, n = swiglu_min(n_slots, p->n_units - unit0);
        for (size_t i = 0; i < n; i++)
            TRY(swiglu_matrix_row(half->matrix, half->first + (unit0 + i) * half->stride, c->rows + i * k, c->scratch,
                                  c->error));
        for (size_t kk = 0; kk < k; kk++)
            put_lanes(p, c->vl, p->data + panel * p->panel_bytes, kk, slot0, c->rows + kk, k, n);
        TRY(report(c, half->matrix, n));
    }
    return SWIGLU_OK;
}

/* Rows are depths: one stored row holds this depth of every output. */
static enum swiglu_status pack_in_out(struct packer *c, const struct swiglu_half *half, size_t slot0, size_t n_slots) {
    const struct swiglu_product *p = c->p;
    for (size_t kk = 0; kk < p->k; kk++) {
        TRY(swiglu_matrix_row(half->matrix, kk, c->rows, c->scratch, c->error));
        for (size_t panel = 0; panel < p->n_panels; panel++) {
            const size_t unit0 = panel * p->units_per_panel, n = swiglu_min(n_slots, p->n_units - unit0);
            put_lanes(p, c->vl, p->data + panel * p->panel_bytes, kk, slot0, c->rows + half->first + unit0 * half->stride,
                      half->stride, n);
        }
        TRY(report(c, half->matrix, 1));
    }
    return SWIGLU_OK;
}

static enum swiglu_status pack_half(struct packer *c, const struct swiglu_half *half, size_t slot0, size_t n_slots) {
    struct swiglu_error *const error = c->error;
    const struct swiglu_matrix *const m = half->matrix;
    size_t n, bytes;
    const int overflow = m->in_out ? SW_MUL(swiglu_matrix_stored_cols(m), sizeof(float), &n)
                                   : SW_MUL(n_slots * sizeof(float), c->p->k, &n);
    REQUIRE(!overflow && !SW_ADD(n, (size_t)64, &bytes), SWIGLU_E_SHAPE, "packing %s: a row block overflows", c->name);
    c->rows = swiglu_alloc(bytes);
    c->scratch = m->data ? NULL : swiglu_alloc(swiglu_matrix_row_bytes(m));
    enum swiglu_status status = SWIGLU_OK;
    if (!c->rows || (!m->data && !c->scratch))
        status = swiglu_fail(error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, 0, "packing %s: no memory for a row block of %zu bytes",
                             c->name, bytes);
    if (!status) status = m->in_out ? pack_in_out(c, half, slot0, n_slots) : pack_out_in(c, half, slot0, n_slots);
    swiglu_free(c->rows);
    swiglu_free(c->scratch);
    return status;
}

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

enum swiglu_status swiglu_product_pack(struct swiglu_product *p, const struct swiglu_kern *kern,
                                       const struct swiglu_half *halves, int n_halves, const char *name,
                                       struct swiglu_progress *progress, struct swiglu_error *error) {
    const size_t n_slots = 2 * (size_t)kern->vl / (size_t)n_halves;
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
    struct packer c = {.p = p, .vl = kern->vl, .progress = progress, .error = error, .name = name};
    for (int i = 0; i < n_halves && p->k; i++) TRY(pack_half(&c, &halves[i], (size_t)i * n_slots, n_slots));
    return SWIGLU_OK;
}

void swiglu_product_free(struct swiglu_product *p) {
    swiglu_free_big(p->data, p->data_bytes);
    swiglu_free(p->bias);
    p->data = NULL;
    p->bias = NULL;
}
