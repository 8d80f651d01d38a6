/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/raw.h"

#include <string.h>

#include "base/checked.h"
#include "dtype/dtype.h"

static struct swiglu_grid grid_of(const struct swiglu_matrix *m, size_t first, size_t stride) {
    const size_t ld = m->ld_elems, at = first * (m->in_out ? 1 : ld);
    return (struct swiglu_grid){.data = swiglu_offset(m->data, at * swiglu_float_bytes(m->dtype)),
                                .dtype = m->dtype,
                                .row = stride * (m->in_out ? 1 : ld),
                                .col = m->in_out ? ld : 1};
}

struct swiglu_view swiglu_view_half(const struct swiglu_half *half) {
    struct swiglu_view v = {.main = grid_of(half->matrix, half->first, half->stride)};
    if (!half->head->data) return v;
    v.head = grid_of(half->head, half->first, half->stride);
    *(half->head_rows ? &v.head_rows : &v.head_cols) = half->head_rows ? half->head->rows : half->head->cols;
    return v;
}

struct swiglu_view swiglu_view_turn(struct swiglu_view v) {
    const struct swiglu_view t = {{v.main.data, v.main.dtype, v.main.col, v.main.row},
                                  {v.head.data, v.head.dtype, v.head.col, v.head.row}, v.head_cols, v.head_rows};
    return t;
}

/* Neither side contiguous (an interleaved [in, out] matrix): a few depths at a time through a local of f32. */
static void pack_gathered(const struct swiglu_kern *kern, struct swiglu_grid v, struct swiglu_pack_args a) {
    enum { DEPTHS = 16, LANES = 32 };
    float local[DEPTHS][LANES];
    const size_t bytes = swiglu_float_bytes(v.dtype), n_k = a.n_k, k_block = swiglu_forms[a.form].k_block;
    const struct swiglu_dtype_row *type = swiglu_dtype_find(v.dtype);
    char *const dst = a.dst;
    a.src = local;
    a.dtype = SWIGLU_F32;
    a.ld_bytes = sizeof local[0];
    for (size_t k = 0; k < n_k; k += DEPTHS) {
        a.n_k = swiglu_min(n_k - k, DEPTHS);
        for (size_t i = 0; i < a.n_k; i++)
            for (size_t l = 0; l < a.n_lanes; l++)
                type->decode(v.data + (l * v.row + (k + i) * v.col) * bytes, 1, &local[i][l]);
        a.dst = dst + k / k_block * 2 * kern->vl * 4;
        kern->pack_rows(&a);
    }
}

static void pack_grid(const struct swiglu_kern *kern, struct swiglu_grid v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst) {
    const size_t bytes = swiglu_float_bytes(v.dtype);
    v.data = swiglu_offset(v.data, (lane * v.row + k * v.col) * bytes);
    struct swiglu_pack_args a = {.src = v.data, .dtype = v.dtype, .n_k = n_k, .n_lanes = n_lanes, .form = form, .dst = dst};
    if (v.row == 1) { /* the lanes of one depth lie side by side */
        a.ld_bytes = v.col * bytes;
        kern->pack_rows(&a);
    } else if (v.col == 1) { /* the depths of one lane lie side by side */
        a.ld_bytes = v.row * bytes;
        kern->pack_cols(&a);
    } else {
        pack_gathered(kern, v, a);
    }
}

void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst) {
    if (lane < v.head_rows) { /* and so are all of the panel's lanes */
        pack_grid(kern, v.head, lane, n_lanes, k, n_k, form, dst);
        return;
    }
    if (k < v.head_cols) {
        const size_t n = swiglu_min(n_k, v.head_cols - k), k_block = swiglu_forms[form].k_block;
        pack_grid(kern, v.head, lane, n_lanes, k, n, form, dst);
        if (n == n_k) return;
        dst += n / k_block * 2 * kern->vl * 4;
        k += n;
        n_k -= n;
    }
    pack_grid(kern, v.main, lane - v.head_rows, n_lanes, k - v.head_cols, n_k, form, dst);
}

size_t swiglu_raw_turn(const struct swiglu_raw *raw, int form, size_t col, int half) {
    const size_t n = swiglu_min(raw->run, raw->n_cols - col), pair = swiglu_forms[form].k_block - 1;
    return col * raw->n_views + (half ? n + (pair & n) : 0);
}

void swiglu_raw_pack(const struct swiglu_raw *raw, const struct swiglu_kern *kern, const struct swiglu_product *product,
                     size_t panel, size_t n_panels, size_t k, size_t n_k, char *dst) {
    const int form = product->path->form;
    const size_t vector = (size_t)kern->vl * 4, bytes = swiglu_form_bytes(form, 2 * (size_t)kern->vl, n_k);
    for (size_t i = 0; i < n_panels; i++, dst += bytes) {
        const size_t lane = swiglu_min((panel + i) * product->units_per_panel, product->n_units);
        const size_t n_lanes = swiglu_min(product->units_per_panel, product->n_units - lane);
        if (n_lanes < product->units_per_panel) memset(dst, 0, bytes); /* lanes that are none */
        if (n_lanes == 0) continue;
        if (raw->run) {
            for (size_t col = 0; col < raw->n_cols; col += raw->run)
                for (unsigned v = 0; v < raw->n_views; v++)
                    swiglu_view_pack(kern, raw->view[v], raw->row + lane, n_lanes, raw->col + col,
                                     swiglu_min(raw->run, raw->n_cols - col), form,
                                     dst + swiglu_form_bytes(form, 2 * (size_t)kern->vl,
                                                             swiglu_raw_turn(raw, form, col, (int)v)));
            continue;
        }
        for (unsigned v = 0; v < raw->n_views; v++)
            swiglu_view_pack(kern, raw->view[v], raw->row + lane, n_lanes, raw->col + k, n_k, form,
                             dst + v * vector);
    }
}

/* Tiles prefetch lines at a fixed stride, half as many as they have steps. Where depths are contiguous, a tile takes one
 * lane; where lanes are, a tile takes one line of each of its depths. */
void swiglu_raw_aim(const struct swiglu_raw *raw, const struct swiglu_product *product, size_t panel, size_t n_panels,
                    size_t k, size_t n_k, size_t i, size_t n, struct swiglu_tile_args *args) {
    const size_t lane = panel * product->units_per_panel, n_lanes = swiglu_min(n_panels * product->units_per_panel,
                                                                               product->n_units - lane);
    const size_t reach = swiglu_max(args->n_k / product->path->fetch_k, 1);
    const struct swiglu_grid *v = &raw->view[0].main;
    if (raw->run) n_k = raw->n_cols;
    k = raw->col + (raw->run ? 0 : k);
    const size_t bytes = swiglu_float_bytes(v->dtype), head_rows = raw->view[0].head_rows, head_cols = raw->view[0].head_cols;
    const size_t parts = v->row == 1 ? swiglu_ceil_div(n_k, reach) * swiglu_ceil_div(n_lanes * bytes, 64) : n_lanes;
    const size_t needed = parts * raw->n_views, from = needed < n ? n - needed : 0;
    args->next_w = args->w0;
    args->next_w_stride = 0;
    if (i < from || i - from >= needed || raw->row + lane < head_rows || k < head_cols) return; /* a head is small */
    v = &raw->view[(i - from) / parts].main;
    const size_t part = (i - from) % parts;
    if (v->row == 1) {
        const size_t per_line = swiglu_ceil_div(n_k, reach), line = part / per_line, depth = part % per_line * reach;
        const size_t at = raw->row + lane - head_rows + (k - head_cols + depth) * v->col;
        args->next_w = swiglu_offset(v->data, at * bytes + line * 64);
        args->next_w_stride = v->col * bytes;
    } else {
        const size_t at = (raw->row + lane - head_rows + part) * v->row + (k - head_cols) * v->col;
        args->next_w = swiglu_offset(v->data, at * bytes);
        args->next_w_stride = 64;
    }
}
