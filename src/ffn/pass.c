/* SPDX-License-Identifier: Apache-2.0 */
/* The panel is outermost, then k in slices of a panel that fit L2, then the row tiles; while the last tiles of a slice
 * run, the next one is prefetched: a point of the peak, and the next tile's rows are worth four. */
#include "ffn/pass.h"

#include "base/checked.h"
#include "dtype/dtype.h"

static size_t slice_k_of(const struct swiglu_pass *p, size_t lanes) {
    const struct swiglu_path *path = p->weights.product->path;
    const int form = p->weights.kind == SWIGLU_OPENED ? path->slice_form : path->form;
    const size_t chunks = p->slice_bytes / swiglu_form_bytes(form, lanes, SWIGLU_CHUNK);
    if (p->tile_end - p->tile == 1 && p->weights.kind == SWIGLU_PACKED)
        return swiglu_max(p->weights.product->k, 1); /* nothing is read again */
    return swiglu_max(chunks, 1) * SWIGLU_CHUNK;
}

/* What the row tiles of a panel have in common. */
static struct swiglu_store_args store_of(const struct swiglu_pass *p, size_t panel, size_t panels) {
    const struct swiglu_result *r = p->result;
    const size_t column = panel * p->weights.product->units_per_panel;
    return (struct swiglu_store_args){.bias = r->bias ? r->bias + column : NULL, .vectors = 2 * (unsigned)panels,
                                      .valid = p->weights.product->n_units - column, .dtype = r->dtype, .ld_bytes = r->ld_bytes,
                                      .sum_bytes = r->sum_bytes};
}

/* The rest, for one of them. */
static void aim_store(const struct swiglu_pass *p, unsigned mr, size_t row, size_t panel,
                      struct swiglu_store_args *a, struct swiglu_fetches *list) {
    const struct swiglu_result *r = p->result;
    const size_t column = panel * p->weights.product->units_per_panel, bytes = swiglu_float_bytes(r->dtype);
    const size_t columns = swiglu_min(a->valid, (size_t)a->vectors * p->kern->vl);
    a->rows = (unsigned)swiglu_min(mr, r->n_rows - row);
    a->y = r->y + row * r->ld_bytes + column * bytes;
    swiglu_fetch_add(list, a->y, a->rows, r->ld_bytes, columns * bytes);
    if (!r->sum) return;
    a->sum = (const float *)((const char *)r->sum + row * r->sum_bytes) + column;
    if (a->sum != a->y) swiglu_fetch_add(list, a->sum, a->rows, r->sum_bytes, columns * sizeof(float));
}

static void run_slice(const struct swiglu_pass *p, const struct swiglu_slice *s, size_t panels,
                      const struct swiglu_slice *next, float *c, size_t c_per_row) {
    const struct swiglu_product *w = p->weights.product;
    const size_t first_row = swiglu_tiles_row(p->rows, p->tile), n_tiles = p->tile_end - p->tile;
    const size_t per_row = panels * 2 * p->kern->vl;
    const size_t row_bytes = swiglu_staged_span(w->path->x, s->n);
    const int last = s->k + s->n == w->k;
    struct swiglu_fetches list;
    struct swiglu_store_args store;
    struct swiglu_tile_args a = {.w0 = s->w0, .w1 = s->w1, .n_k = s->n, .add = s->k > 0 || p->add, .out = list.at};
    if (last && p->result) store = store_of(p, s->panel, panels), a.store = &store;
    for (unsigned i = p->tile; i < p->tile_end; i++) {
        const struct swiglu_shape *t = swiglu_tiles_shape(p->rows, i);
        const size_t row = swiglu_tiles_row(p->rows, i);
        a.x = p->staged + row * p->row_bytes + swiglu_staged_at(w->path->x, t->mr, s->k);
        a.next_x = i + 1 < p->tile_end ? a.x + t->mr * p->row_bytes : a.x;
        a.c = c + (row - first_row) * c_per_row;
        swiglu_weights_aim(&p->weights, p->kern, next, panels, i - p->tile, n_tiles, &a);
        list.n = 0;
        if (a.store) store.c = a.c, aim_store(p, t->mr, row, s->panel, &store, &list);
        if (last && p->aim) p->aim(p->ctx, p, i, s->panel, &list);
        if (row_bytes < SWIGLU_RECORD * 4 && i + 1 < p->tile_end) { /* line by line, half of what is fetched would be gaps */
            swiglu_fetch_add(&list, a.next_x, t->mr, SWIGLU_RECORD_BYTES, row_bytes);
            a.next_x = a.x;
        }
        swiglu_fetch_add(&list, a.c, 1, 0, t->mr * per_row * sizeof(float)); /* last: it repeats, and short rows cost more */
        a.out_last = list.at + list.n - 1;
        swiglu_path_tile(w->path, t)(&a);
        if (last && p->finish) p->finish(p->ctx, p, i, s->panel, a.c);
    }
}

void swiglu_pass_run(const struct swiglu_pass *p) {
    const struct swiglu_product *w = p->weights.product;
    const size_t panels = swiglu_path_panels(w->path, swiglu_tiles_shape(p->rows, p->tile));
    const size_t per_row = panels * 2 * p->kern->vl;
    const size_t slice_k = slice_k_of(p, per_row);
    const size_t first_row = swiglu_tiles_row(p->rows, p->tile);
    /* one slice and no outliving totals: they stay in one small tile */
    const size_t c_per_row = w->k > slice_k || p->totals ? per_row : 0;
    for (size_t panel = p->panel; panel < p->panel_end; panel += panels) {
        float *const c = p->totals ? p->totals + (panel / panels * p->rows_padded + first_row) * per_row : p->scratch;
        size_t k = 0;
        do {
            const struct swiglu_slice s =
                swiglu_weights_slice(&p->weights, p->kern, panel, panels, k, swiglu_min(slice_k, w->k - k));
            const int last = k + s.n == w->k;
            struct swiglu_slice next = {.panel = last ? panel + panels : panel, .k = last ? 0 : k + s.n};
            next.n = swiglu_min(slice_k, w->k - next.k);
            run_slice(p, &s, panels, next.panel < p->panel_end ? &next : NULL, c, c_per_row);
            k += s.n;
        } while (k < w->k);
    }
}

size_t swiglu_pass_panels(const struct swiglu_product *product, const struct swiglu_tiles *rows, size_t n_rows,
                          unsigned n_threads) {
    const size_t step = swiglu_path_panels(product->path, swiglu_tiles_shape(rows, 0));
    const size_t all = swiglu_max(swiglu_ceil_div(product->n_panels, step) * step, step);
    /* 100 GFLOP/s and 15 GB/s are round figures of a recent core: only the size of tickets depends on them */
    const double flops = 4 * (double)n_rows * (double)product->k * (double)product->units_per_panel;
    const double us = swiglu_max((size_t)(flops / 100e3), (size_t)((double)product->panel_bytes / 15e3)) + 0.1;
    if (n_threads <= 1) return all;
    const size_t fair = swiglu_max(all / (4 * (size_t)n_threads), 1); /* enough tickets to even out */
    return swiglu_ceil_div(swiglu_min((size_t)(100 / us) + 1, fair), step) * step;
}
