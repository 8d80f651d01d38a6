/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows go through in blocks of 512: stage x, then h = act(gate) up for all hidden units, then y. Each of the three passes
 * is cut into tickets, taken in order from one counter by however many threads the runner gives. A ticket waits only for
 * tickets before it, which somebody has already taken, so there is no barrier and nothing depends on how many threads
 * came. Two passes beat a fused down projection by 0.5 to 1 % and need only h of one row block.
 *
 * Within a ticket the panel is outermost, then k in groups that keep a slice of it in L2, then the row tiles; while the
 * last tiles run, the next slice is prefetched.
 */
#include "ffn/forward.h"

#include <fenv.h>
#include <stdint.h>
#include <string.h>

#include "base/checked.h"
#include "ffn/plan.h"
#include "ffn/pool.h"

enum {
    PAD_ROWS = 8,             /* above any tile's rows without data */
    UP_SLICE = 512 << 10,     /* bytes of a panel that stay in L2 while the row tiles pass over it */
    DOWN_SLICE = 256 << 10    /* less: h competes with it */
};

/* Where things lie in the workspace. */
struct layout {
    size_t x, h, scratch, scratch_bytes, total; /* scratch: one per thread */
    size_t x_row, h_row;                        /* bytes of a staged row */
};

static bool lay_out(const struct swiglu_block *b, size_t m, unsigned n_threads, struct layout *l) {
    const size_t rows = swiglu_min(m, SWIGLU_ROW_BLOCK) + PAD_ROWS, threads = n_threads ? n_threads : 1;
    const size_t vectors = 2 * (size_t)b->kern->prefill[0].panels;
    memset(l, 0, sizeof *l);
    l->x_row = swiglu_kern_row_bytes(b->up.info, b->d_in);
    l->h_row = swiglu_kern_row_bytes(b->down.info, b->d_ff);
    l->scratch_bytes = rows * vectors * b->kern->vl * sizeof(float);
    return swiglu_reserve(&l->total, rows, l->x_row, &l->x) || swiglu_reserve(&l->total, rows, l->h_row, &l->h) ||
           swiglu_reserve(&l->total, threads, l->scratch_bytes, &l->scratch);
}

bool swiglu_forward_size(const struct swiglu_block *block, size_t m, unsigned n_threads, size_t *bytes) {
    struct layout l;
    return lay_out(block, m, n_threads, &l) || SW_ADD(l.total, (size_t)64, bytes); /* 64: to align a caller's pointer */
}

/* How one row block is cut. */
struct cut {
    struct swiglu_row_plan rows;
    unsigned n_rows, n_groups;                  /* row tiles are taken by groups */
    size_t up_panels, down_panels;              /* panels per ticket */
    size_t n_stage, n_up, n_down, n_tickets;
};

struct job {
    const struct swiglu_block *block;
    struct swiglu_crows x;
    struct swiglu_rows y;
    size_t m, n_blocks, n_tickets;
    struct cut full, last; /* of every row block but the last, and of the last */
    struct layout at;
    char *work;
    unsigned n_threads;
    atomic_size_t next_ticket, next_thread;
    atomic_size_t stage_done, up_done, down_done; /* tickets, over all row blocks */
};

/* One pass of one ticket: panels [panel, panel_end) of product times row tiles [tile, tile_end) at staged. */
struct pass {
    const struct swiglu_product *product;
    const struct swiglu_row_plan *rows;
    const char *staged;
    size_t row_bytes, slice_bytes;
    float *scratch;
    size_t panel, panel_end;
    unsigned tile, tile_end;
};

typedef void finish_fn(const struct job *job, size_t row0, const struct pass *p, unsigned tile, size_t panel,
                       const float *c);

/* Called for the i-th of n tiles: spreads the prefetch of the next slice over the last of them, a line per two steps. */
static void aim_prefetch(struct swiglu_tile_args *a, const char *next, size_t slice, size_t panels, size_t panel_bytes,
                         size_t i, size_t n) {
    const size_t per_tile = a->n_steps / 2 * 64, needed = per_tile ? slice / per_tile + 1 : n + 1;
    a->next_w = a->w0;
    a->next_w_stride = 0;
    if (!next || (needed <= n && i < n - needed)) return;
    const size_t done = (needed <= n ? i - (n - needed) : i) * per_tile, half = slice / panels;
    if (done >= slice) return;
    a->next_w = done < half ? next + done : next + panel_bytes + (done - half);
    a->next_w_stride = 64;
}

static void run_pass(const struct job *job, size_t row0, const struct pass *p, finish_fn *finish) {
    const struct swiglu_product *w = p->product;
    const unsigned vl = job->block->kern->vl;
    const size_t panels = swiglu_plan_tile(p->rows, p->tile)->panels, n_tiles = p->tile_end - p->tile;
    const size_t panel_step = 2 * (size_t)vl * w->info->lane_bytes, chunk = SWIGLU_CHUNK / w->info->k_step;
    size_t slice_steps = p->slice_bytes / (panel_step * panels) / chunk * chunk;
    if (slice_steps < chunk) slice_steps = chunk;
    if (n_tiles == 1) slice_steps = swiglu_max(w->n_steps, 1);
    const size_t c_per_row = w->n_steps > slice_steps ? panels * 2 * vl : 0; /* one slice: totals stay in one small tile */
    for (size_t panel = p->panel; panel < p->panel_end; panel += panels) {
        const char *const data = w->data + panel * w->panel_bytes;
        size_t step = 0;
        do {
            const size_t n = swiglu_min(slice_steps, w->n_steps - step), end = step + n;
            const int last = end == w->n_steps, more = !last || panel + panels < p->panel_end;
            const char *next = !more ? NULL : last ? data + panels * w->panel_bytes : data + end * panel_step;
            const size_t next_slice = swiglu_min(slice_steps, last ? w->n_steps : w->n_steps - end) * panel_step * panels;
            for (unsigned i = p->tile; i < p->tile_end; i++) {
                const struct swiglu_tile *t = swiglu_plan_tile(p->rows, i);
                const size_t row = swiglu_plan_row(p->rows, i);
                const size_t record = step * w->info->elems_per_step / SWIGLU_RECORD * t->mr * SWIGLU_RECORD_BYTES;
                struct swiglu_tile_args a = {.x = p->staged + row * p->row_bytes + record,
                                             .w0 = data + step * panel_step,
                                             .w1 = data + step * panel_step + w->panel_bytes,
                                             .n_steps = n,
                                             .c = p->scratch + (row - swiglu_plan_row(p->rows, p->tile)) * c_per_row,
                                             .add = step > 0};
                a.next_x = i + 1 < p->tile_end ? a.x + t->mr * p->row_bytes : a.x;
                aim_prefetch(&a, next, next_slice, panels, w->panel_bytes, i - p->tile, n_tiles);
                t->run[w->wt](&a);
                if (last) finish(job, row0, p, i, panel, a.c);
            }
            step = end;
        } while (step < w->n_steps);
    }
}

static void finish_hidden(const struct job *job, size_t row0, const struct pass *p, unsigned tile, size_t panel,
                          const float *c) {
    const struct swiglu_block *b = job->block;
    const struct swiglu_tile *t = swiglu_plan_tile(p->rows, tile);
    const size_t unit = panel * b->up.units_per_panel, row = swiglu_plan_row(p->rows, tile);
    const int x = b->down.info->x;
    const size_t elem = x == SWIGLU_X_BF16_PAIR ? unit / 2 : unit;
    char *const rows = job->work + job->at.h + row * job->at.h_row;
    struct swiglu_hidden_args a = {.c = c, .act = &b->act, .mr = t->mr, .vectors = 2 * t->panels, .gated = b->gated,
                                   .valid = b->d_ff - unit, .x = x};
    (void)row0;
    if (b->up.bias) a.bias = b->up.bias + panel * 2 * b->kern->vl;
    a.h = rows + elem / SWIGLU_RECORD * t->mr * SWIGLU_RECORD_BYTES + elem % SWIGLU_RECORD * 4;
    b->kern->hidden(&a);
    /* an odd d_ff in bf16 pairs with +0; with one lane no vector reaches it */
    if (x == SWIGLU_X_BF16_IN_F32 && b->kern->vl == 1 && b->d_ff % 2 && unit + b->up.units_per_panel * t->panels >= b->d_ff)
        for (unsigned r = 0; r < t->mr; r++)
            memset(rows + (b->d_ff / SWIGLU_RECORD * t->mr + r) * SWIGLU_RECORD_BYTES + b->d_ff % SWIGLU_RECORD * 4, 0, 4);
}

static void finish_y(const struct job *job, size_t row0, const struct pass *p, unsigned tile, size_t panel,
                     const float *c) {
    const struct swiglu_block *b = job->block;
    const struct swiglu_tile *t = swiglu_plan_tile(p->rows, tile);
    const size_t column = panel * b->down.units_per_panel, row = row0 + swiglu_plan_row(p->rows, tile);
    const size_t elem_bytes = job->y.dtype == SWIGLU_F32 ? 4 : 2;
    struct swiglu_store_args a = {.c = c, .rows = (unsigned)swiglu_min(t->mr, job->m - row), .vectors = 2 * t->panels,
                                  .valid = b->d_out - column, .dtype = job->y.dtype,
                                  .ld_bytes = job->y.ld_elems * elem_bytes};
    if (b->down.bias) a.bias = b->down.bias + panel * 2 * b->kern->vl;
    a.y = (char *)job->y.data + row * a.ld_bytes + column * elem_bytes;
    b->kern->store(&a);
}

static void stage_tiles(const struct job *job, size_t row0, const struct cut *c, unsigned tile, unsigned tile_end) {
    const struct swiglu_block *b = job->block;
    const size_t ld_bytes = job->x.ld_elems * (job->x.dtype == SWIGLU_F32 ? 4 : 2);
    for (; tile < tile_end; tile++) {
        const struct swiglu_tile *t = swiglu_plan_tile(&c->rows, tile);
        const unsigned row = swiglu_plan_row(&c->rows, tile);
        const struct swiglu_stage_args a = {.src = (const char *)job->x.data + (row0 + row) * ld_bytes,
                                            .dtype = job->x.dtype, .ld_bytes = ld_bytes,
                                            .rows = (unsigned)swiglu_min(t->mr, c->n_rows - row), .mr = t->mr,
                                            .k = b->d_in, .x = b->up.info->x,
                                            .dst = job->work + job->at.x + row * job->at.x_row};
        b->kern->stage(&a);
    }
}

static void run_product(const struct job *job, size_t row0, const struct cut *c, float *scratch, size_t ticket, int down) {
    const struct swiglu_block *b = job->block;
    const unsigned tiles = swiglu_plan_tiles(&c->rows), group = (unsigned)(ticket % c->n_groups);
    const size_t per_ticket = down ? c->down_panels : c->up_panels;
    struct pass p = {.product = down ? &b->down : &b->up,
                     .rows = &c->rows,
                     .staged = job->work + (down ? job->at.h : job->at.x),
                     .row_bytes = down ? job->at.h_row : job->at.x_row,
                     .slice_bytes = down ? DOWN_SLICE : UP_SLICE,
                     .scratch = scratch,
                     .panel = ticket / c->n_groups * per_ticket,
                     .tile = tiles * group / c->n_groups,
                     .tile_end = tiles * (group + 1) / c->n_groups};
    p.panel_end = swiglu_min(p.panel + per_ticket, p.product->n_panels);
    run_pass(job, row0, &p, down ? finish_y : finish_hidden);
}

static void run_ticket(struct job *job, float *scratch, size_t ticket) {
    const size_t block = swiglu_min(ticket / job->full.n_tickets, job->n_blocks - 1);
    const struct cut *f = &job->full, *c = block == job->n_blocks - 1 ? &job->last : f;
    const size_t row0 = block * SWIGLU_ROW_BLOCK, i = ticket - block * f->n_tickets;
    if (i < c->n_stage) {
        const unsigned tiles = swiglu_plan_tiles(&c->rows);
        swiglu_wait_for(&job->up_done, block * f->n_up); /* the block before has read its staged x */
        stage_tiles(job, row0, c, (unsigned)(tiles * i / c->n_stage), (unsigned)(tiles * (i + 1) / c->n_stage));
        atomic_fetch_add_explicit(&job->stage_done, 1, memory_order_release);
    } else if (i < c->n_stage + c->n_up) {
        swiglu_wait_for(&job->stage_done, block * f->n_stage + c->n_stage);
        swiglu_wait_for(&job->down_done, block * f->n_down); /* the block before has read its h */
        run_product(job, row0, c, scratch, i - c->n_stage, 0);
        atomic_fetch_add_explicit(&job->up_done, 1, memory_order_release);
    } else {
        swiglu_wait_for(&job->up_done, block * f->n_up + c->n_up);
        run_product(job, row0, c, scratch, i - c->n_stage - c->n_up, 1);
        atomic_fetch_add_explicit(&job->down_done, 1, memory_order_release);
    }
}

static void work(void *arg) {
    struct job *job = arg;
    fenv_t caller;
    const size_t thread = atomic_fetch_add_explicit(&job->next_thread, 1, memory_order_relaxed);
    if (thread >= job->n_threads) return; /* no scratch for it */
    float *const scratch = (float *)(job->work + job->at.scratch + thread * job->at.scratch_bytes);
    fegetenv(&caller);
    fesetenv(FE_DFL_ENV); /* nearest even, no flush to zero, on every thread */
    for (;;) {
        const size_t ticket = atomic_fetch_add_explicit(&job->next_ticket, 1, memory_order_relaxed);
        if (ticket >= job->n_tickets) break;
        run_ticket(job, scratch, ticket);
    }
    fesetenv(&caller);
}

/* Panels per ticket for about a tenth of a millisecond, in multiples of a tile's panels; one thread takes all at once. The
 * rates are round figures of a recent core: only the size of tickets depends on them. */
static size_t panels_per_ticket(const struct swiglu_product *p, const struct cut *c, unsigned n_threads) {
    const size_t step = c->rows.a->panels, all = swiglu_max(swiglu_ceil_div(p->n_panels, step) * step, step);
    const double rows = (double)c->n_rows / c->n_groups, bytes = (double)p->panel_bytes;
    const double flops = 2 * rows * (double)p->k * (double)p->units_per_panel * 2;
    const double us = swiglu_max((size_t)(flops / 100e3), (size_t)(bytes / 15e3)) + 0.1;
    if (n_threads <= 1) return all;
    const size_t fair = swiglu_max(all / (4 * (size_t)n_threads), 1); /* enough tickets to even out */
    const size_t n = swiglu_min((size_t)(100 / us) + 1, fair);
    return swiglu_ceil_div(n, step) * step;
}

static struct cut cut_rows(const struct swiglu_block *b, unsigned rows, unsigned n_threads) {
    struct cut c = {.n_rows = rows, .rows = swiglu_plan_rows(b->kern, rows), .n_groups = 1, .n_stage = 1};
    const unsigned tiles = swiglu_plan_tiles(&c.rows);
    if (n_threads > 1 && tiles > 16) {
        c.n_groups = 2; /* at d = 576 panel x half of the rows is 4 % ahead of panel x all rows */
        c.n_stage = swiglu_min(4 * (size_t)n_threads, tiles);
    }
    c.up_panels = panels_per_ticket(&b->up, &c, n_threads);
    c.down_panels = panels_per_ticket(&b->down, &c, n_threads);
    c.n_up = swiglu_ceil_div(b->up.n_panels, c.up_panels) * c.n_groups;
    c.n_down = swiglu_ceil_div(b->down.n_panels, c.down_panels) * c.n_groups;
    c.n_tickets = c.n_stage + c.n_up + c.n_down;
    return c;
}

void swiglu_forward_run(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                        void *workspace, const struct swiglu_runner *runner) {
    struct job job = {.block = block, .x = x, .y = y, .m = m};
    job.n_threads = runner && runner->run && runner->n_threads ? runner->n_threads : 1;
    (void)lay_out(block, m, job.n_threads, &job.at); /* the same numbers as when the size was checked */
    job.work = (char *)workspace + (-(uintptr_t)workspace & 63);
    job.n_blocks = swiglu_ceil_div(m, SWIGLU_ROW_BLOCK);
    job.last = cut_rows(block, (unsigned)(m - (job.n_blocks - 1) * SWIGLU_ROW_BLOCK), job.n_threads);
    job.full = job.n_blocks > 1 ? cut_rows(block, SWIGLU_ROW_BLOCK, job.n_threads) : job.last;
    job.n_tickets = (job.n_blocks - 1) * job.full.n_tickets + job.last.n_tickets;
    if (job.n_threads > 1)
        runner->run(runner->ctx, job.n_threads, work, &job);
    else
        work(&job);
}
