/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows go through in blocks of 512, each in three phases: stage x, then h = act(gate) up for all hidden units, then y. Two
 * passes over the weights beat a fused down projection by 0.5 to 1 %, and need only h of one row block. The halves of a
 * forward are the same phases: the first two, then h to the caller's rows; or the caller's h staged, then the last.
 */
#include "ffn/forward.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "dtype/dtype.h"
#include "ffn/pass.h"
#include "ffn/schedule.h"
#include "ffn/train.h"

enum {
    PAD_ROWS = 8,          /* above any tile's rows without data */
    FIRST_SLICE = 512 << 10,
    DOWN_SLICE = 256 << 10, /* less: h competes with it for L2 */
    STRIP = 64 /* hidden units of a tile at most; and what int8 rounds at once divides it */
};

/* Where things lie in the workspace. */
struct layout {
    size_t x, h, scratch, scratch_bytes, totals_bytes, total; /* scratch: totals and a slice of raw weights per thread */
    size_t strip_bytes;                         /* between them: h of a group of units in f32, until int8 rounds it */
    size_t x_row, h_row;                        /* bytes of a staged row */
};

/* How h is staged where the caller gets it: the f32 values, if down rounds them to integers. */
static int kept_x(const struct swiglu_block *b) {
    return b->down.path->x == SWIGLU_X_INT8 ? SWIGLU_X_F32 : b->down.path->x;
}

static bool lay_out(const struct swiglu_block *b, bool raw, size_t m, unsigned n_threads, struct layout *l) {
    const size_t rows = swiglu_min(m, SWIGLU_ROW_BLOCK) + PAD_ROWS, threads = n_threads ? n_threads : 1;
    const size_t vectors = 2 * swiglu_max(b->first.path->panels, b->down.path->panels);
    memset(l, 0, sizeof *l);
    l->x_row = swiglu_staged_bytes(b->first.path->x, b->d_in);
    l->h_row = swiglu_staged_bytes(b->down.path->x, b->d_ff);
    const size_t h_kept = swiglu_staged_bytes(kept_x(b), b->d_ff);
    l->totals_bytes = rows * vectors * b->kern->vl * sizeof(float);
    if (b->down.path->x == SWIGLU_X_INT8) l->strip_bytes = rows * STRIP * sizeof(float);
    raw |= b->first.path->open || b->down.path->open;
    l->scratch_bytes = l->totals_bytes + l->strip_bytes;
    if (raw) l->scratch_bytes += swiglu_max(swiglu_weights_buffer(&b->first, b->kern->vl, FIRST_SLICE),
                                            swiglu_weights_buffer(&b->down, b->kern->vl, DOWN_SLICE));
    return swiglu_reserve(&l->total, rows, l->x_row, &l->x) ||
           swiglu_reserve(&l->total, rows, swiglu_max(l->h_row, h_kept), &l->h) ||
           swiglu_reserve(&l->total, threads, l->scratch_bytes, &l->scratch);
}

bool swiglu_forward_size(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                         unsigned n_threads, size_t *bytes) {
    struct layout l;
    return lay_out(block, train, m, n_threads, &l) || SW_ADD(l.total, (size_t)64, bytes); /* 64: to align a pointer */
}

enum phase { STAGE, FIRST, DOWN, KEEP_HIDDEN, STAGE_HIDDEN, N_PHASES };

/* How one row block is cut: row tiles by groups, panels by tickets. */
struct cut {
    struct swiglu_tiles rows;
    unsigned n_rows, n_groups;
    size_t first_panels, down_panels; /* per ticket */
    size_t n_tickets[N_PHASES];
};

struct job {
    const struct swiglu_block *block;
    const enum phase *phases; /* of each row block */
    size_t n_phases;
    int x_hidden;             /* enum swiglu_x: how h is staged */
    struct swiglu_crows in;   /* x, or h for STAGE_HIDDEN */
    struct swiglu_rows out;   /* y, or h for KEEP_HIDDEN */
    const struct swiglu_forward_train *train; /* or NULL */
    size_t n_blocks;
    struct cut full, last; /* of every row block but the last, and of the last */
    struct layout at;
    char *work;
};

/* Where row 0 of a tile of h begins, at a hidden unit. */
static char *hidden_at(const struct job *job, unsigned mr, size_t row, size_t unit) {
    return job->work + job->at.h + row * job->at.h_row + swiglu_staged_at(job->x_hidden, mr, unit);
}

static void aim_hidden(void *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel, struct swiglu_fetches *list) {
    const struct job *job = ctx;
    const struct swiglu_block *b = job->block;
    const struct swiglu_shape *t = swiglu_tiles_shape(p->rows, tile);
    const size_t units = swiglu_path_panels(b->first.path, t) * b->first.units_per_panel;
    if (job->x_hidden == SWIGLU_X_INT8) return; /* the strip is near */
    swiglu_fetch_add(list, hidden_at(job, t->mr, swiglu_tiles_row(p->rows, tile), panel * b->first.units_per_panel), t->mr,
                    SWIGLU_RECORD_BYTES, units * swiglu_staged_k_bytes(job->x_hidden));
}

/* h of int8 has a scale per 32 units, and a tile may hold fewer: they gather as f32 in the thread's strip, and are staged as x
 * is when the last of a group has come. Panels of a ticket begin at a group. */
static void finish_int8(const struct job *job, const struct swiglu_pass *p, struct swiglu_hidden_args *a, size_t row,
                        size_t unit) {
    const struct swiglu_block *b = job->block;
    const size_t units = a->vectors / (b->gated ? 2 : 1) * b->kern->vl, group = unit / 32 * 32;
    const size_t end = swiglu_min(unit + units, b->d_ff);
    char *const strip = (char *)p->scratch + job->at.totals_bytes +
                        (row - swiglu_tiles_row(p->rows, p->tile)) * STRIP * sizeof(float);
    a->x = SWIGLU_X_F32, a->row_bytes = STRIP * sizeof(float);
    a->h = strip + (unit - group) * sizeof(float);
    b->kern->hidden(a);
    if (end % 32) return;
    const struct swiglu_stage_args stage = {.src = strip, .dtype = SWIGLU_F32, .ld_bytes = STRIP * sizeof(float), .rows = a->mr,
                                            .mr = a->mr, .k = end - group, .x = SWIGLU_X_INT8,
                                            .dst = hidden_at(job, a->mr, row, group)};
    b->kern->stage(&stage);
}

static void finish_hidden(void *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel, const float *c) {
    const struct job *job = ctx;
    const struct swiglu_block *b = job->block;
    const struct swiglu_shape *t = swiglu_tiles_shape(p->rows, tile);
    const size_t unit = panel * b->first.units_per_panel, row = swiglu_tiles_row(p->rows, tile);
    struct swiglu_hidden_args a = {.c = c, .act = &b->act, .mr = t->mr, .vectors = 2 * swiglu_path_panels(b->first.path, t),
                                   .gated = b->gated, .valid = b->d_ff - unit, .x = job->x_hidden,
                                   .row_bytes = SWIGLU_RECORD_BYTES};
    if (b->first.bias) a.bias = b->first.bias + panel * 2 * b->kern->vl;
    if (a.x == SWIGLU_X_INT8) {
        finish_int8(job, p, &a, row, unit);
        return;
    }
    a.h = hidden_at(job, t->mr, row, unit);
    b->kern->hidden(&a);
}

/* row0: of the row block, in the caller's rows */
static void stage_tile(const struct job *job, size_t row0, const struct cut *c, unsigned tile, int hidden) {
    const struct swiglu_block *b = job->block;
    const struct swiglu_shape *t = swiglu_tiles_shape(&c->rows, tile);
    const struct swiglu_product *product = hidden ? &b->down : &b->first;
    const size_t ld_bytes = job->in.ld_elems * swiglu_float_bytes(job->in.dtype), row = swiglu_tiles_row(&c->rows, tile);
    char *const to = hidden ? hidden_at(job, t->mr, row, 0) : job->work + job->at.x + row * job->at.x_row;
    const struct swiglu_stage_args a = {.src = (const char *)job->in.data + (row0 + row) * ld_bytes,
                                        .dtype = job->in.dtype, .ld_bytes = ld_bytes,
                                        .rows = (unsigned)swiglu_min(t->mr, c->n_rows - row), .mr = t->mr,
                                        .k = product->k, .x = product->path->x, .dst = to};
    b->kern->stage(&a);
}

/* n hidden units of one record, to f32 or, where that is exact, to bf16. Which NaN it is differs from level to level. */
static void copy_hidden(const char *src, int x, size_t n, char *dst, int dtype) {
    for (size_t i = 0; i < n; i++) {
        float f;
        if (x == SWIGLU_X_BF16_PAIR) f = swiglu_bf16_widen(swiglu_le16(src + 2 * i));
        else memcpy(&f, src + 4 * i, sizeof f);
        const uint32_t bits = isnan(f) ? 0x7FC00000 : swiglu_f32_bits(f);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == SWIGLU_BF16) memcpy(dst + 2 * i, &half, sizeof half);
        else memcpy(dst + 4 * i, &bits, sizeof bits);
    }
}

static void keep_tile(const struct job *job, size_t row0, const struct cut *c, unsigned tile) {
    const struct swiglu_shape *t = swiglu_tiles_shape(&c->rows, tile);
    const size_t row = swiglu_tiles_row(&c->rows, tile), bytes = swiglu_float_bytes(job->out.dtype);
    const size_t d_ff = job->block->d_ff, rows = swiglu_min(t->mr, c->n_rows - row);
    const int x = job->x_hidden;
    const size_t record = swiglu_staged_record_k(x);
    for (size_t r = 0; r < rows; r++)
        for (size_t unit = 0; unit < d_ff; unit += record)
            copy_hidden(hidden_at(job, t->mr, row, unit) + r * SWIGLU_RECORD_BYTES, x, swiglu_min(d_ff - unit, record),
                        (char *)job->out.data + ((row0 + row + r) * job->out.ld_elems + unit) * bytes, job->out.dtype);
}

static const struct cut *cut_of(const struct job *job, size_t row_block) {
    return row_block + 1 == job->n_blocks ? &job->last : &job->full;
}

static size_t count_tickets(const void *ctx, size_t phase) {
    const struct job *job = ctx;
    return cut_of(job, phase / job->n_phases)->n_tickets[job->phases[phase % job->n_phases]];
}

static void run_product(struct job *job, unsigned thread, size_t row0, const struct cut *c, int down, size_t ticket) {
    const struct swiglu_block *b = job->block;
    const unsigned tiles = swiglu_tiles_count(&c->rows), group = (unsigned)(ticket % c->n_groups);
    const size_t per_ticket = down ? c->down_panels : c->first_panels;
    const size_t y_bytes = job->out.ld_elems * swiglu_float_bytes(job->out.dtype);
    const struct swiglu_result y = {.y = (char *)job->out.data + row0 * y_bytes, .dtype = job->out.dtype,
                                    .ld_bytes = y_bytes, .n_rows = c->n_rows, .bias = b->down.bias};
    struct swiglu_pass p = {.kern = b->kern,
                            .rows = &c->rows,
                            .staged = job->work + (down ? job->at.h : job->at.x),
                            .row_bytes = down ? job->at.h_row : job->at.x_row,
                            .slice_bytes = down ? DOWN_SLICE : FIRST_SLICE,
                            .scratch = (float *)(job->work + job->at.scratch + thread * job->at.scratch_bytes),
                            .panel = ticket / c->n_groups * per_ticket,
                            .tile = tiles * group / c->n_groups,
                            .tile_end = tiles * (group + 1) / c->n_groups,
                            .result = down ? &y : NULL,
                            .aim = down ? NULL : aim_hidden,
                            .finish = down ? NULL : finish_hidden,
                            .ctx = job};
    p.weights.product = down ? &b->down : &b->first;
    if (job->train) {
        p.weights.kind = SWIGLU_RAW;
        p.weights.raw = down ? job->train->down : job->train->first;
    } else if (swiglu_weights_open(p.weights.product->path, swiglu_tiles_shape(&c->rows, 0))) {
        p.weights.kind = SWIGLU_OPENED;
    }
    p.weights.buffer = (char *)p.scratch + job->at.totals_bytes + job->at.strip_bytes;
    p.panel_end = swiglu_min(p.panel + per_ticket, p.weights.product->n_panels);
    if (job->train && job->train->saved && !down) {
        p.totals = job->train->saved + row0 * swiglu_kept_per_row(b->d_ff, b->gated);
        p.rows_padded = swiglu_kept_rows(c->n_rows);
    }
    swiglu_pass_run(&p);
}

static void run_ticket(void *ctx, unsigned thread, size_t phase, size_t ticket) {
    struct job *const job = ctx;
    const struct cut *c = cut_of(job, phase / job->n_phases);
    const enum phase kind = job->phases[phase % job->n_phases];
    const size_t row0 = phase / job->n_phases * SWIGLU_ROW_BLOCK, tiles = swiglu_tiles_count(&c->rows);
    if (kind == FIRST || kind == DOWN) {
        run_product(job, thread, row0, c, kind == DOWN, ticket);
        return;
    }
    const size_t n = c->n_tickets[kind], end = tiles * (ticket + 1) / n;
    for (size_t i = tiles * ticket / n; i < end; i++) {
        if (kind == KEEP_HIDDEN) keep_tile(job, row0, c, (unsigned)i);
        else stage_tile(job, row0, c, (unsigned)i, kind == STAGE_HIDDEN);
    }
}

static struct cut cut_rows(const struct swiglu_block *b, bool raw, unsigned rows, unsigned n_threads) {
    struct cut c = {.n_rows = rows, .rows = swiglu_tiles_of(b->kern, rows), .n_groups = 1};
    const unsigned tiles = swiglu_tiles_count(&c.rows);
    c.n_tickets[STAGE] = 1;
    if (n_threads > 1 && tiles > 16) {
        /* at d = 576 panel x half of the rows is 4 % ahead of panel x all rows; raw weights would be packed twice */
        c.n_groups = raw ? 1 : 2;
        c.n_tickets[STAGE] = swiglu_min(4 * (size_t)n_threads, tiles);
    }
    c.first_panels = swiglu_pass_panels(&b->first, &c.rows, rows / c.n_groups, n_threads);
    if (b->down.path->x == SWIGLU_X_INT8) { /* whole groups of 32 units */
        const size_t group = swiglu_max(32 / b->first.units_per_panel, 1);
        c.first_panels = swiglu_ceil_div(c.first_panels, group) * group;
    }
    c.down_panels = swiglu_pass_panels(&b->down, &c.rows, rows / c.n_groups, n_threads);
    c.n_tickets[FIRST] = swiglu_ceil_div(b->first.n_panels, c.first_panels) * c.n_groups;
    c.n_tickets[DOWN] = swiglu_ceil_div(b->down.n_panels, c.down_panels) * c.n_groups;
    c.n_tickets[KEEP_HIDDEN] = c.n_tickets[STAGE_HIDDEN] = c.n_tickets[STAGE];
    return c;
}

/* Other threads where there is enough for them: waking them and waiting takes about a microsecond. */
static const struct swiglu_runner *threads_for(const struct swiglu_block *b, size_t m, const struct swiglu_runner *runner) {
    const double us_alone = 7, weights = (double)b->first.data_bytes + (double)b->down.data_bytes;
    const double flops = 2 * (double)m * (double)b->d_ff * ((double)b->d_in * (b->gated ? 2 : 1) + (double)b->d_out);
    return weights / 15e3 < us_alone && flops / 100e3 < us_alone ? NULL : runner; /* rates as in swiglu_pass_panels */
}

static void run_phases(struct job job, size_t m, void *workspace, const struct swiglu_runner *runner) {
    runner = threads_for(job.block, m, runner);
    const unsigned n_threads = swiglu_runner_threads(runner);
    const bool raw = job.train;
    job.n_blocks = swiglu_ceil_div(m, SWIGLU_ROW_BLOCK);
    (void)lay_out(job.block, raw, m, n_threads, &job.at); /* the same numbers as when the size was checked */
    job.x_hidden = job.phases[job.n_phases - 1] == KEEP_HIDDEN ? kept_x(job.block) : job.block->down.path->x;
    job.at.h_row = swiglu_staged_bytes(job.x_hidden, job.block->d_ff);
    job.work = (char *)workspace + (-(uintptr_t)workspace & 63);
    job.last = cut_rows(job.block, raw, (unsigned)(m - (job.n_blocks - 1) * SWIGLU_ROW_BLOCK), n_threads);
    job.full = job.n_blocks > 1 ? cut_rows(job.block, raw, SWIGLU_ROW_BLOCK, n_threads) : job.last;
    struct swiglu_schedule schedule = {.ctx = &job, .n_phases = job.n_blocks * job.n_phases, .n_tickets = count_tickets,
                                       .run = run_ticket};
    swiglu_schedule_run(&schedule, runner);
}

void swiglu_forward_run(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                        struct swiglu_crows x, struct swiglu_rows y, void *work, const struct swiglu_runner *runner) {
    static const enum phase phases[] = {STAGE, FIRST, DOWN};
    run_phases((struct job){.block = block, .phases = phases, .n_phases = 3, .in = x, .out = y, .train = train}, m, work,
               runner);
}

void swiglu_hidden_run(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows h, void *work,
                       const struct swiglu_runner *runner) {
    static const enum phase phases[] = {STAGE, FIRST, KEEP_HIDDEN};
    run_phases((struct job){.block = block, .phases = phases, .n_phases = 3, .in = x, .out = h}, m, work, runner);
}

void swiglu_down_run(const struct swiglu_block *block, size_t m, struct swiglu_crows h, struct swiglu_rows y, void *work,
                     const struct swiglu_runner *runner) {
    static const enum phase phases[] = {STAGE_HIDDEN, DOWN};
    run_phases((struct job){.block = block, .phases = phases, .n_phases = 2, .in = h, .out = y}, m, work, runner);
}
