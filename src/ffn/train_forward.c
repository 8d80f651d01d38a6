/* SPDX-License-Identifier: Apache-2.0 */
/* The forward of a training step: forward.c over weights that are packed a slice at a time, while they are in use. Packing
 * them all first would cost 5 % of 512 rows at d = 2048, since they go to memory and back. */
#include "ffn/train.h"

#include <string.h>

#include "base/checked.h"
#include "ffn/forward.h"
#include "ffn/tiles.h"
#include "ffn/schedule.h"

/* A block whose weights stay raw, and where its packed biases and the rest of the workspace lie. */
struct forward_layout {
    struct swiglu_block block;
    struct swiglu_forward_train train;
    size_t up_bias, down_bias, work, total;
};

static bool lay_out(const struct swiglu_step *s, unsigned n_threads, struct forward_layout *l) {
    const struct swiglu_desc *d = s->desc;
    const struct swiglu_half down = swiglu_desc_down(d);
    struct swiglu_block *b = &l->block;
    size_t forward;
    memset(l, 0, sizeof *l);
    *b = (struct swiglu_block){.kern = s->kern, .d_in = d->d_in, .d_ff = d->d_ff, .d_out = d->d_out,
                               .gated = swiglu_step_halves(s) == 2, .act = d->act};
    b->first = (struct swiglu_product){.path = swiglu_train_path(s->kern, s->compute_first), .k = d->d_in, .n_units = d->d_ff};
    b->down = (struct swiglu_product){.path = swiglu_train_path(s->kern, s->compute_down), .k = d->d_ff, .n_units = d->d_out};
    l->train.first = swiglu_step_raw(s);
    l->train.down = (struct swiglu_raw){.view = {swiglu_view_half(&down)}, .n_views = 1};
    return swiglu_product_shape(&b->first, s->kern, b->gated) || swiglu_product_shape(&b->down, s->kern, 0) ||
           swiglu_reserve(&l->total, swiglu_product_lanes(&b->first, s->kern->vl), sizeof(float), &l->up_bias) ||
           swiglu_reserve(&l->total, swiglu_product_lanes(&b->down, s->kern->vl), sizeof(float), &l->down_bias) ||
           swiglu_forward_size(b, &l->train, s->m, n_threads, &forward) || swiglu_reserve(&l->total, 1, forward, &l->work);
}

struct swiglu_raw swiglu_step_raw(const struct swiglu_step *s) {
    struct swiglu_half halves[2];
    struct swiglu_raw raw = {.n_views = (unsigned)swiglu_desc_halves(s->desc, halves)};
    for (unsigned v = 0; v < raw.n_views; v++) raw.view[v] = swiglu_view_half(&halves[v]);
    return raw;
}

bool swiglu_train_forward_size(const struct swiglu_step *s, unsigned n_threads, size_t *work) {
    struct forward_layout l;
    if (lay_out(s, n_threads, &l)) return true;
    *work = l.total;
    return false;
}

/* What no tile writes of the totals kept becomes +0: saved then has the same bits in every run. */
static void clear_padding(const struct swiglu_step *s, const struct swiglu_product *up, float *saved) {
    const size_t per_row = swiglu_kept_per_row(s->desc->d_ff, swiglu_step_halves(s) == 2);
    for (size_t row = 0; row < s->m; row += SWIGLU_ROW_BLOCK) {
        const unsigned n = (unsigned)swiglu_min(s->m - row, SWIGLU_ROW_BLOCK);
        const struct swiglu_tiles rows = swiglu_tiles_of(s->kern, n);
        const size_t written = swiglu_tiles_row(&rows, swiglu_tiles_count(&rows)), kept = swiglu_kept_rows(n);
        const size_t panels = swiglu_path_panels(up->path, swiglu_tiles_shape(&rows, 0)), lanes = panels * 2 * s->kern->vl;
        const size_t groups = swiglu_ceil_div(up->n_panels, panels);
        float *const at = saved + row * per_row;
        for (size_t g = 0; g < groups && written < kept; g++)
            memset(at + (g * kept + written) * lanes, 0, (kept - written) * lanes * sizeof(float));
        memset(at + groups * kept * lanes, 0, (per_row - groups * lanes) * kept * sizeof(float));
    }
}

void swiglu_train_forward_run(const struct swiglu_step *s, struct swiglu_crows x, struct swiglu_rows y, float *saved,
                              char *work, const struct swiglu_runner *runner) {
    const struct swiglu_half down = swiglu_desc_down(s->desc);
    struct swiglu_half halves[2];
    const int n_halves = swiglu_desc_halves(s->desc, halves);
    struct forward_layout l;
    (void)lay_out(s, swiglu_runner_threads(runner), &l); /* the same numbers as when the size was checked */
    float *const up_bias = (float *)(work + l.up_bias), *const down_bias = (float *)(work + l.down_bias);
    l.train.saved = saved;
    if (saved) clear_padding(s, &l.block.first, saved);
    if (swiglu_product_bias(&l.block.first, s->kern->vl, halves, n_halves, 0, up_bias))
        l.block.first.bias = up_bias;
    if (swiglu_product_bias(&l.block.down, s->kern->vl, &down, 1, 0, down_bias)) l.block.down.bias = down_bias;
    swiglu_forward_run(&l.block, &l.train, s->m, x, y, work + l.work, runner);
}
