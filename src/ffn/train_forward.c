/* SPDX-License-Identifier: Apache-2.0 */
/* The forward of a training step: the weights are packed into the workspace as a prepared block would hold them, then
 * forward.c runs. Packing all at once costs 1 to 2 % of a step of 512 rows. */
#include "ffn/train.h"

#include <string.h>

#include "base/checked.h"
#include "ffn/forward.h"
#include "ffn/schedule.h"
#include "ffn/view.h"
#include "ffn/weights.h"

void swiglu_save_totals(const float *c, const float *bias, unsigned rows, unsigned vectors, unsigned vl, int gated,
                        size_t valid, float *gate, float *up, size_t ld_elems) {
    for (unsigned r = 0; r < rows; r++)
        for (unsigned j = 0; j < vectors; j++) {
            const size_t unit = (size_t)(gated ? j / 2 : j) * vl;
            const float *from = c + ((size_t)r * vectors + j) * vl, *b = bias ? bias + (size_t)j * vl : NULL;
            float *to = (gated && j % 2 ? up : gate) + r * ld_elems + unit;
            if (unit >= valid) continue;
            const size_t n = swiglu_min(valid - unit, vl);
            for (size_t i = 0; i < n; i++) to[i] = b ? from[i] + b[i] : from[i];
        }
}

struct forward_layout {
    struct swiglu_block block; /* its data pointers are offsets until place_block */
    size_t up, down, up_bias, down_bias, work, total;
};

static bool lay_out(const struct swiglu_step *s, unsigned n_threads, struct forward_layout *l) {
    const struct swiglu_desc *d = s->desc;
    struct swiglu_block *b = &l->block;
    size_t forward;
    memset(l, 0, sizeof *l);
    *b = (struct swiglu_block){.kern = s->kern, .d_in = d->d_in, .d_ff = d->d_ff, .d_out = d->d_out,
                               .gated = swiglu_step_halves(s) == 2, .act = d->act};
    b->up = (struct swiglu_product){.wt = swiglu_train_wt(s->compute_up), .k = d->d_in, .n_units = d->d_ff};
    b->down = (struct swiglu_product){.wt = swiglu_train_wt(s->compute_down), .k = d->d_ff, .n_units = d->d_out};
    return swiglu_product_shape(&b->up, s->kern, b->gated) || swiglu_product_shape(&b->down, s->kern, 0) ||
           swiglu_reserve(&l->total, 1, b->up.data_bytes, &l->up) ||
           swiglu_reserve(&l->total, 1, b->down.data_bytes, &l->down) ||
           swiglu_reserve(&l->total, swiglu_product_lanes(&b->up, s->kern->vl), sizeof(float), &l->up_bias) ||
           swiglu_reserve(&l->total, swiglu_product_lanes(&b->down, s->kern->vl), sizeof(float), &l->down_bias) ||
           swiglu_forward_size(b, s->m, n_threads, &forward) || swiglu_reserve(&l->total, 1, forward, &l->work);
}

bool swiglu_train_forward_size(const struct swiglu_step *s, unsigned n_threads, size_t *work) {
    struct forward_layout l;
    if (lay_out(s, n_threads, &l)) return true;
    *work = l.total;
    return false;
}

struct pack_job {
    const struct swiglu_step *step;
    struct swiglu_block *block;
    float *up_bias, *down_bias;
    size_t n_tickets;
};

static size_t pack_tickets(const void *ctx, size_t phase) {
    (void)phase;
    return ((const struct pack_job *)ctx)->n_tickets;
}

static void pack_ticket(void *ctx, unsigned thread, size_t phase, size_t ticket) {
    const struct pack_job *job = ctx;
    struct swiglu_block *b = job->block;
    const struct swiglu_half down = {&job->step->desc->down, &job->step->desc->down_bias, 0, 1};
    const struct swiglu_half halves[2] = {swiglu_desc_half(job->step->desc, b->gated ? 0 : 1),
                                          swiglu_desc_half(job->step->desc, 1)};
    const unsigned vl = b->kern->vl;
    const size_t n = b->up.n_panels + b->down.n_panels, end = n * (ticket + 1) / job->n_tickets;
    (void)thread;
    (void)phase;
    for (size_t i = n * ticket / job->n_tickets; i < end; i++) {
        const int is_down = i >= b->up.n_panels;
        const struct swiglu_product *p = is_down ? &b->down : &b->up;
        const size_t panel = is_down ? i - b->up.n_panels : i, unit = panel * p->units_per_panel;
        const size_t n_units = swiglu_min(p->units_per_panel, p->n_units - unit);
        for (int half = 0; half < (is_down || !b->gated ? 1 : 2); half++)
            swiglu_view_pack(b->kern, swiglu_view_half(is_down ? &down : &halves[half]), unit, n_units, 0, p->k, (int)p->wt,
                             p->data + panel * p->panel_bytes + (size_t)half * vl * 4);
    }
    if (ticket) return;
    if (swiglu_product_bias(&b->up, vl, halves, b->gated ? 2 : 1, 0, job->up_bias)) b->up.bias = job->up_bias;
    if (swiglu_product_bias(&b->down, vl, &down, 1, 0, job->down_bias)) b->down.bias = job->down_bias;
}

void swiglu_train_forward_run(const struct swiglu_step *s, struct swiglu_crows x, struct swiglu_rows y, float *saved,
                              char *work, const struct swiglu_runner *runner) {
    const unsigned n_threads = swiglu_runner_threads(runner);
    struct forward_layout l;
    (void)lay_out(s, n_threads, &l); /* the same numbers as when the size was checked */
    l.block.up.data = work + l.up;
    l.block.down.data = work + l.down;
    struct pack_job job = {.step = s, .block = &l.block, .up_bias = (float *)(work + l.up_bias),
                           .down_bias = (float *)(work + l.down_bias), .n_tickets = n_threads > 1 ? 8 * n_threads : 1};
    struct swiglu_schedule schedule = {.ctx = &job, .n_phases = 1, .n_tickets = pack_tickets, .run = pack_ticket};
    swiglu_schedule_run(&schedule, runner);
    swiglu_forward_saving(&l.block, s->m, x, y, saved, work + l.work, runner);
}
