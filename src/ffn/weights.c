/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/weights.h"

#include <string.h>

#include "base/checked.h"
#include "dtype/dtype.h"

/* ---- packed ---- */

static size_t panel_at(const struct swiglu_weights *s, const struct swiglu_kern *kern, size_t panel, size_t k) {
    return panel * s->product->panel_bytes + swiglu_form_bytes(s->product->path->form, 2 * (size_t)kern->vl, k);
}

/* Spreads the prefetch over the last tiles. A new line every eight steps slows them down half as much as one every two; where
 * there are too few tiles for that, more often. */
static void aim_packed(struct swiglu_tile_args *a, size_t fetches, const char *next, size_t slice, size_t panels,
                       size_t panel_bytes, size_t i, size_t n) {
    size_t stride = 16, per_tile = fetches * stride;
    for (; stride < 64 && per_tile * n < slice; stride *= 2) per_tile *= 2;
    const size_t needed = per_tile ? slice / per_tile + 1 : n + 1;
    if (needed <= n && i < n - needed) return;
    const size_t done = (needed <= n ? i - (n - needed) : i) * per_tile, half = slice / panels;
    if (done >= slice) return;
    a->next_w = done < half ? next + done : next + panel_bytes + (done - half);
    a->next_w_stride = stride;
}

/* ---- opened ---- */

/* Panels into the buffer, one after the other; the bytes of one. */
static size_t open_panels(const struct swiglu_weights *s, const struct swiglu_kern *kern, size_t panel, size_t panels, size_t k,
                          size_t n) {
    const size_t bytes = swiglu_form_bytes(s->product->path->slice_form, 2 * (size_t)kern->vl, n);
    for (size_t i = 0; i < panels; i++) {
        const struct swiglu_open_args args = {.src = s->product->data + panel_at(s, kern, panel + i, k), .n_k = n,
                                              .dst = s->buffer + i * bytes};
        s->product->path->open(&args);
    }
    return bytes;
}

/* ---- raw ---- */

size_t swiglu_raw_turn(const struct swiglu_raw *raw, int form, size_t col, int half) {
    const size_t n = swiglu_min(raw->turn, raw->n_cols - col), pair = swiglu_forms[form].k_block - 1;
    return col * raw->n_views + (half ? n + (pair & n) : 0);
}

/* Depths [k, k + n_k) of n_panels panels from `panel` on, one panel after the other. */
static void pack_raw(const struct swiglu_raw *raw, const struct swiglu_kern *kern, const struct swiglu_product *product,
                     size_t panel, size_t n_panels, size_t k, size_t n_k, char *dst) {
    const int form = product->path->form;
    const size_t vector = (size_t)kern->vl * swiglu_forms[form].lane_bytes;
    const size_t bytes = swiglu_form_bytes(form, 2 * (size_t)kern->vl, n_k);
    for (size_t i = 0; i < n_panels; i++, dst += bytes) {
        const size_t lane = swiglu_min((panel + i) * product->units_per_panel, product->n_units);
        const size_t n_lanes = swiglu_min(product->units_per_panel, product->n_units - lane);
        if (n_lanes < product->units_per_panel) memset(dst, 0, bytes); /* lanes that are none */
        if (n_lanes == 0) continue;
        if (raw->turn) {
            for (size_t col = 0; col < raw->n_cols; col += raw->turn)
                for (unsigned v = 0; v < raw->n_views; v++)
                    swiglu_view_pack(kern, raw->view[v], raw->row + lane, n_lanes, raw->col + col,
                                     swiglu_min(raw->turn, raw->n_cols - col), form,
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
static void aim_raw(const struct swiglu_raw *raw, const struct swiglu_product *product, size_t panel, size_t n_panels,
                    size_t k, size_t n_k, size_t i, size_t n, struct swiglu_tile_args *args) {
    const size_t lane = panel * product->units_per_panel, n_lanes = swiglu_min(n_panels * product->units_per_panel,
                                                                               product->n_units - lane);
    const size_t reach = swiglu_max(args->n_k / product->path->fetch_k, 1);
    const struct swiglu_grid *v = &raw->view[0].main;
    if (raw->turn) n_k = raw->n_cols;
    k = raw->col + (raw->turn ? 0 : k);
    const size_t bytes = swiglu_float_bytes(v->dtype), head_rows = raw->view[0].head_rows, head_cols = raw->view[0].head_cols;
    const size_t parts = v->row == 1 ? swiglu_ceil_div(n_k, reach) * swiglu_ceil_div(n_lanes * bytes, 64) : n_lanes;
    const size_t needed = parts * raw->n_views, from = needed < n ? n - needed : 0;
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

/* ---- either ---- */

size_t swiglu_weights_buffer(const struct swiglu_product *product, unsigned vl, size_t slice_bytes) {
    const struct swiglu_path *path = product->path;
    return swiglu_max(slice_bytes, swiglu_form_bytes(path->slice_form, 2 * (size_t)vl * path->panels, SWIGLU_CHUNK));
}

struct swiglu_slice swiglu_weights_slice(const struct swiglu_weights *s, const struct swiglu_kern *kern, size_t panel,
                                        size_t panels, size_t k, size_t n) {
    const char *w0 = s->buffer;
    size_t panel_bytes = swiglu_form_bytes(s->product->path->form, 2 * (size_t)kern->vl, n);
    if (s->kind == SWIGLU_RAW)
        pack_raw(&s->raw, kern, s->product, panel, panels, k, n, s->buffer);
    else if (s->kind == SWIGLU_OPENED)
        panel_bytes = open_panels(s, kern, panel, panels, k, n);
    else
        w0 = s->product->data + panel_at(s, kern, panel, k), panel_bytes = s->product->panel_bytes;
    return (struct swiglu_slice){panel, k, n, w0, w0 + panel_bytes};
}

void swiglu_weights_aim(const struct swiglu_weights *s, const struct swiglu_kern *kern, const struct swiglu_slice *next,
                       size_t panels, size_t i, size_t n, struct swiglu_tile_args *args) {
    const struct swiglu_product *p = s->product;
    args->next_w = args->w0;
    args->next_w_stride = 0;
    if (!next) return;
    if (s->kind == SWIGLU_RAW)
        aim_raw(&s->raw, p, next->panel, panels, next->k, next->n, i, n, args);
    else
        aim_packed(args, args->n_k / p->path->fetch_k, p->data + panel_at(s, kern, next->panel, next->k),
                   swiglu_form_bytes(p->path->form, panels * 2 * kern->vl, next->n), panels, p->panel_bytes, i, n);
}
