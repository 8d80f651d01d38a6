/* SPDX-License-Identifier: Apache-2.0 */
/* The panel is outermost, then k in slices of a panel that fit L2, then the row tiles; while the last tiles of a slice
 * run, the next one is prefetched: a point of the peak, and the next tile's rows are worth four. */
#include "ffn/pass.h"

#include "base/checked.h"
#include "dtype/dtype.h"

/* Called for tile i of n: spreads the prefetch of the next slice over the last tiles. A new line every eight steps slows them
 * down half as much as one every two; where there are too few tiles for that, more often. */
static void aim_prefetch(struct swiglu_tile_args *a, const char *next, size_t slice, size_t panels, size_t panel_bytes,
                         size_t i, size_t n) {
    size_t stride = 16, per_tile = a->n_steps / 2 * stride;
    for (; stride < 64 && per_tile * n < slice; stride *= 2) per_tile *= 2;
    const size_t needed = per_tile ? slice / per_tile + 1 : n + 1;
    a->next_w = a->w0;
    a->next_w_stride = 0;
    if (!next || (needed <= n && i < n - needed)) return;
    const size_t done = (needed <= n ? i - (n - needed) : i) * per_tile, half = slice / panels;
    if (done >= slice) return;
    a->next_w = done < half ? next + done : next + panel_bytes + (done - half);
    a->next_w_stride = stride;
}

static size_t slice_steps_of(const struct swiglu_pass *p, size_t tile_step_bytes) {
    const size_t chunk = SWIGLU_CHUNK / p->product->info->k_step;
    const size_t fit = p->slice_bytes / tile_step_bytes / chunk * chunk;
    if (p->tile_end - p->tile == 1 && !p->raw) return swiglu_max(p->product->n_steps, 1); /* nothing is read again */
    return swiglu_max(fit, chunk);
}

/* A slice is a whole number of chunks, at least one. */
size_t swiglu_pass_buffer(const struct swiglu_kern *kern, size_t slice_bytes) {
    return swiglu_max(slice_bytes, (size_t)SWIGLU_CHUNK * 2 * kern->vl * kern->prefill[0].panels * 4);
}

/* Steps [step, step + n) of the panels of one tile: where they are, and what to prefetch while they run. */
struct slice {
    size_t panel, step, n;
    const char *w0, *w1;
};

static struct slice slice_at(const struct swiglu_pass *p, size_t panels, size_t panel, size_t step, size_t n) {
    const struct swiglu_product *w = p->product;
    const size_t panel_step = 2 * (size_t)p->kern->vl * w->info->lane_bytes;
    if (p->raw) {
        swiglu_raw_pack(p->raw, p->kern, w, panel, panels, step, n, p->buffer);
        return (struct slice){panel, step, n, p->buffer, p->buffer + n * panel_step};
    }
    const char *const w0 = w->data + panel * w->panel_bytes + step * panel_step;
    return (struct slice){panel, step, n, w0, w0 + w->panel_bytes};
}

/* What the row tiles of a panel have in common. */
static struct swiglu_store_args store_of(const struct swiglu_pass *p, size_t panel, size_t panels) {
    const struct swiglu_result *r = p->result;
    const size_t column = panel * p->product->units_per_panel;
    return (struct swiglu_store_args){.bias = r->bias ? r->bias + column : NULL, .vectors = 2 * (unsigned)panels,
                                      .valid = p->product->n_units - column, .dtype = r->dtype, .ld_bytes = r->ld_bytes,
                                      .sum_bytes = r->sum_bytes};
}

/* The rest, for one of them. */
static void aim_store(const struct swiglu_pass *p, const struct swiglu_tile *t, size_t row, size_t panel,
                      struct swiglu_store_args *a, struct swiglu_runs *runs) {
    const struct swiglu_result *r = p->result;
    const size_t column = panel * p->product->units_per_panel, bytes = swiglu_float_bytes(r->dtype);
    const size_t columns = swiglu_min(a->valid, t->panels * p->product->units_per_panel);
    a->rows = (unsigned)swiglu_min(t->mr, r->n_rows - row);
    a->y = r->y + row * r->ld_bytes + column * bytes;
    swiglu_runs_add(runs, a->y, a->rows, r->ld_bytes, columns * bytes);
    if (!r->sum) return;
    a->sum = (const float *)((const char *)r->sum + row * r->sum_bytes) + column;
    if (a->sum != a->y) swiglu_runs_add(runs, a->sum, a->rows, r->sum_bytes, columns * sizeof(float));
}

static void run_slice(const struct swiglu_pass *p, const struct slice *s, size_t panels, const struct slice *next, float *c,
                      size_t c_per_row) {
    const struct swiglu_product *w = p->product;
    const size_t first_row = swiglu_plan_row(p->rows, p->tile), n_tiles = p->tile_end - p->tile;
    const size_t per_row = panels * 2 * p->kern->vl, record = s->step * w->info->elems_per_step / SWIGLU_RECORD;
    const size_t next_bytes = next ? next->n * per_row * w->info->lane_bytes : 0;
    const size_t row_bytes = s->n * w->info->elems_per_step * 4;
    const int last = s->step + s->n == w->n_steps;
    struct swiglu_runs runs;
    struct swiglu_store_args store;
    struct swiglu_tile_args a = {.w0 = s->w0, .w1 = s->w1, .n_steps = s->n, .add = s->step > 0 || p->add, .out = runs.at};
    if (last && p->result) store = store_of(p, s->panel, panels), a.store = &store;
    for (unsigned i = p->tile; i < p->tile_end; i++) {
        const struct swiglu_tile *t = swiglu_plan_tile(p->rows, i);
        const size_t row = swiglu_plan_row(p->rows, i);
        a.x = p->staged + row * p->row_bytes + record * t->mr * SWIGLU_RECORD_BYTES;
        a.next_x = i + 1 < p->tile_end ? a.x + t->mr * p->row_bytes : a.x;
        a.c = c + (row - first_row) * c_per_row;
        if (p->raw && next)
            swiglu_raw_aim(p->raw, w, next->panel, panels, next->step, next->n, i - p->tile, n_tiles, &a);
        else
            aim_prefetch(&a, next ? next->w0 : NULL, next_bytes, panels, w->panel_bytes, i - p->tile, n_tiles);
        runs.n = 0;
        if (a.store) store.c = a.c, aim_store(p, t, row, s->panel, &store, &runs);
        if (last && p->aim) p->aim(p->ctx, p, i, s->panel, &runs);
        if (row_bytes < SWIGLU_RECORD * 4 && i + 1 < p->tile_end) { /* line by line, half of what is fetched would be gaps */
            swiglu_runs_add(&runs, a.next_x, t->mr, SWIGLU_RECORD_BYTES, row_bytes);
            a.next_x = a.x;
        }
        swiglu_runs_add(&runs, a.c, 1, 0, t->mr * per_row * sizeof(float)); /* last: it repeats, and short rows cost more */
        a.out_last = runs.at + runs.n - 1;
        t->run[w->wt](&a);
        if (last && p->finish) p->finish(p->ctx, p, i, s->panel, a.c);
    }
}

void swiglu_pass_run(const struct swiglu_pass *p) {
    const struct swiglu_product *w = p->product;
    const size_t panels = swiglu_plan_tile(p->rows, p->tile)->panels, panel_step = 2 * (size_t)p->kern->vl * w->info->lane_bytes;
    const size_t slice_steps = slice_steps_of(p, panel_step * panels), per_row = panels * 2 * p->kern->vl;
    const size_t first_row = swiglu_plan_row(p->rows, p->tile);
    /* one slice and no outliving totals: they stay in one small tile */
    const size_t c_per_row = w->n_steps > slice_steps || p->totals ? per_row : 0;
    for (size_t panel = p->panel; panel < p->panel_end; panel += panels) {
        float *const c = p->totals ? p->totals + (panel / panels * p->rows_padded + first_row) * per_row : p->scratch;
        size_t step = 0;
        do {
            const struct slice s = slice_at(p, panels, panel, step, swiglu_min(slice_steps, w->n_steps - step));
            const int last = step + s.n == w->n_steps;
            struct slice next = {.panel = last ? panel + panels : panel, .step = last ? 0 : step + s.n};
            next.n = swiglu_min(slice_steps, w->n_steps - next.step);
            const int more = next.panel < p->panel_end;
            if (more && !p->raw) next.w0 = w->data + next.panel * w->panel_bytes + next.step * panel_step;
            run_slice(p, &s, panels, more ? &next : NULL, c, c_per_row);
            step += s.n;
        } while (step < w->n_steps);
    }
}

size_t swiglu_pass_panels(const struct swiglu_product *product, const struct swiglu_row_plan *rows, size_t n_rows,
                          unsigned n_threads) {
    const size_t step = rows->a->panels, all = swiglu_max(swiglu_ceil_div(product->n_panels, step) * step, step);
    /* 100 GFLOP/s and 15 GB/s are round figures of a recent core: only the size of tickets depends on them */
    const double flops = 4 * (double)n_rows * (double)product->k * (double)product->units_per_panel;
    const double us = swiglu_max((size_t)(flops / 100e3), (size_t)((double)product->panel_bytes / 15e3)) + 0.1;
    if (n_threads <= 1) return all;
    const size_t fair = swiglu_max(all / (4 * (size_t)n_threads), 1); /* enough tickets to even out */
    return swiglu_ceil_div(swiglu_min((size_t)(100 / us) + 1, fair), step) * step;
}
