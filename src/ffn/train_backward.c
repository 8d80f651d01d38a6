/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens go through in chunks of 512, the length of a weight gradient's chain; hidden units in blocks whose share of the
 * depth of dx is one chunk of the contract. Per chunk: x and dy are staged, and turned into panels and rows whose depth is
 * the tokens. Per block: its weights are packed; gate and up (unless kept); dh, whose epilogue leaves h, dg and du as
 * panels over tokens and dg, du as rows of dx; those are turned; then dx and the weight gradients in one phase. Nothing of
 * size m x d_ff is kept: a block of 512 tokens x 512 units is a few megabytes and stays near.
 */
#include <string.h>

#include "base/checked.h"
#include "dtype/dtype.h"
#include "ffn/forward.h"
#include "ffn/pass.h"
#include "ffn/schedule.h"
#include "ffn/train_layout.h"

/* Phases of a token chunk: one that prepares it, then these for each block of hidden units. */
enum { GATE_UP, HIDDEN, TURN, PRODUCTS, PHASES_PER_BLOCK };

/* The products of the last phase, each with tickets of its own. */
enum { DX, DW_DOWN, DW_GATE, DW_UP, DB_GATE, DB_UP, DB_DOWN, N_PRODUCTS };

struct back {
    const struct swiglu_step *step;
    struct swiglu_crows x, dy;
    const float *saved;
    struct swiglu_grads grads;
    struct swiglu_half half[2], down; /* half[0]: gate, or the only one */
    struct swiglu_raw first;          /* weights of the first product */
    unsigned n_halves, n_threads;
    const float *bias;                /* of all blocks, or NULL */
    struct swiglu_back_layout at;
    char *work;
};

/* Where in the job a ticket works. */
struct spot {
    const struct back *job;
    size_t chunk, block, token, unit; /* numbers, and the first token and unit */
    struct swiglu_back_products p;
    unsigned thread;
};

static struct spot spot_of(const struct back *job, size_t chunk, size_t block) {
    struct spot s = {.job = job, .chunk = chunk, .block = block};
    s.token = chunk * SWIGLU_TOKEN_CHUNK;
    s.unit = block * job->at.block_units;
    (void)swiglu_back_products(job->step, swiglu_min(job->step->m - s.token, SWIGLU_TOKEN_CHUNK),
                               swiglu_min(job->step->desc->d_ff - s.unit, job->at.block_units), &s.p); /* sizes were checked */
    return s;
}

static size_t share(size_t n, size_t ticket, size_t n_tickets) { return n * ticket / n_tickets; }
static size_t spread(const struct back *job) { return job->n_threads > 1 ? 8 * (size_t)job->n_threads : 1; }

/* ---- preparing a chunk of tokens ---- */

static void stage_tile(const struct spot *s, unsigned tile, const struct swiglu_crows *from, size_t k, size_t row_bytes,
                       int x, char *to) {
    const struct swiglu_shape *t = swiglu_tiles_shape(&s->p.tokens, tile);
    const unsigned row = swiglu_tiles_row(&s->p.tokens, tile);
    const size_t ld_bytes = from->ld_elems * swiglu_float_bytes(from->dtype);
    const struct swiglu_stage_args a = {.src = (const char *)from->data + (s->token + row) * ld_bytes, .dtype = from->dtype,
                                        .ld_bytes = ld_bytes, .rows = (unsigned)swiglu_min(t->mr, s->p.n_tokens - row),
                                        .mr = t->mr, .k = k, .x = x, .dst = to + row * row_bytes};
    s->job->step->kern->stage(&a);
}

/* Panel `panel` of product, packed from tokens of a matrix of activations. */
static void pack_tokens(const struct spot *s, const struct swiglu_product *p, size_t panel, const struct swiglu_crows *from,
                        char *to) {
    const struct swiglu_view v = {.main = {from->data, from->dtype, 1, from->ld_elems}};
    const size_t lane = panel * p->units_per_panel;
    swiglu_view_pack(s->job->step->kern, v, lane, swiglu_min(p->units_per_panel, p->n_units - lane), s->token, s->p.n_tokens,
                     p->path->form, to);
}

/* Rows [lane, lane + 2 vl) of a matrix of n rows, from a panel over tokens. */
static void turn_panel(const struct spot *s, const struct swiglu_product *p, const char *panel, size_t lane, size_t n,
                       char *rows) {
    const struct swiglu_kern *kern = s->job->step->kern;
    for (size_t j = 0; j < 2 && lane + j * kern->vl < n; j++) {
        struct swiglu_turn_args a = {.src = panel + j * kern->vl * 4, .x = p->path->x};
        a.n_blocks = swiglu_ceil_div(p->k, swiglu_forms[p->path->form].k_block);
        a.n_lanes = swiglu_min(kern->vl, n - lane - j * kern->vl);
        for (size_t l = 0; l < a.n_lanes; l++) a.rows[l] = rows + (lane + j * kern->vl + l) * SWIGLU_RECORD_BYTES;
        kern->turn(&a);
    }
}

static void fill_ones(const struct swiglu_product *p, unsigned vl, size_t n_tokens, char *data) {
    memset(data, 0, p->data_bytes);
    for (size_t k = 0; k < n_tokens; k += swiglu_forms[p->path->form].k_block) {
        uint32_t one = 0x3F800000;
        if (p->path->form == SWIGLU_FORM_BF16_PAIR) one = k + 1 < n_tokens ? 0x3F803F80 : 0x3F80;
        memcpy(data + swiglu_form_bytes(p->path->form, 2 * (size_t)vl, k), &one, sizeof one);
    }
}

static void prepare_chunk(const struct spot *s, size_t ticket) {
    const struct back *job = s->job;
    const struct swiglu_desc *d = job->step->desc;
    const unsigned vl = job->step->kern->vl;
    const size_t tiles = swiglu_tiles_count(&s->p.tokens), x_panels = s->p.x.n_panels;
    const size_t n = tiles + x_panels + swiglu_ceil_div(d->d_out, 2 * (size_t)vl), n_tickets = spread(job);
    char *const buffer = job->work + job->at.scratch + s->thread * job->at.scratch_bytes + job->at.totals_bytes;
    struct swiglu_product dy = s->p.h; /* the shape of panels of dy over tokens */
    dy.n_units = d->d_out;
    for (size_t i = share(n, ticket, n_tickets); i < share(n, ticket + 1, n_tickets); i++) {
        if (i < tiles) {
            stage_tile(s, (unsigned)i, &job->x, d->d_in, job->at.x_row, s->p.gate_up.path->x, job->work + job->at.x_rows);
            stage_tile(s, (unsigned)i, &job->dy, d->d_out, job->at.dy_row, s->p.dh.path->x, job->work + job->at.dy_rows);
        } else if (i < tiles + x_panels) {
            char *const panel = job->work + job->at.x_panels + (i - tiles) * s->p.x.panel_bytes;
            pack_tokens(s, &s->p.x, i - tiles, &job->x, panel);
            if (job->at.x_turned)
                turn_panel(s, &s->p.x, panel, (i - tiles) * 2 * vl, s->p.x.n_units, job->work + job->at.x_turned);
        } else {
            const size_t panel = i - tiles - x_panels;
            const int kept = job->at.dy_panels && panel < s->p.dy.n_panels;
            char *const to = kept ? job->work + job->at.dy_panels + panel * s->p.dy.panel_bytes : buffer;
            pack_tokens(s, &dy, panel, &job->dy, to);
            turn_panel(s, &dy, to, panel * 2 * vl, d->d_out, job->work + job->at.dy_turned);
        }
    }
    if (ticket) return;
    fill_ones(&s->p.ones_up, vl, s->p.n_tokens, job->work + job->at.ones_up);
    fill_ones(&s->p.ones_down, vl, s->p.n_tokens, job->work + job->at.ones_down);
}

/* ---- a block of hidden units ---- */

/* Depths of dx are units, runs of gate and of up in turn; lanes are columns of x. */
static struct swiglu_raw raw_dx(const struct spot *s) {
    struct swiglu_raw raw = s->job->first;
    for (unsigned v = 0; v < raw.n_views; v++) raw.view[v] = swiglu_view_turn(raw.view[v]);
    raw.turn = SWIGLU_TURN_UNITS;
    raw.col = s->unit;
    raw.n_cols = s->p.n_units;
    return raw;
}

/* Gate and up of a tile: totals of the tiles that computed them just now, or in forward. */
static void find_gate(const struct spot *s, struct swiglu_grad_args *a, const struct swiglu_kern *kern, unsigned panels,
                      size_t row, size_t unit) {
    const struct back *job = s->job;
    const size_t vl = kern->vl, per_row = 2 * vl * panels, kept = swiglu_kept_per_row(job->step->desc->d_ff, job->n_halves == 2);
    const float *const totals = job->saved ? job->saved + s->token * kept : (const float *)(job->work + job->at.gate);
    a->row_elems = per_row;
    a->vector_elems = job->n_halves * vl;
    a->per_group = 2 * panels / job->n_halves;
    a->group_elems = swiglu_kept_rows(s->p.n_tokens) * per_row;
    a->gate = totals + ((job->saved ? s->unit : 0) + unit) / vl / a->per_group * a->group_elems + row * per_row;
    a->up = a->gate + vl;
    if (job->bias) a->bias = job->bias + s->block * job->at.block_bias + unit * job->n_halves;
}

/* What the epilogue of dh needs; args are those of one tile, from aim to finish. */
struct hidden {
    const struct spot *spot;
    struct swiglu_raw dx;
    struct swiglu_grad_args args;
};

static void aim_grad(struct hidden *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel) {
    const struct spot *s = ctx->spot;
    const struct back *job = s->job;
    struct swiglu_grad_args *a = &ctx->args;
    const struct swiglu_shape *t = swiglu_tiles_shape(p->rows, tile);
    const size_t unit = panel * p->weights.product->units_per_panel, row = swiglu_tiles_row(p->rows, tile);
    const unsigned panels = swiglu_path_panels(p->weights.product->path, t);
    *a = (struct swiglu_grad_args){.act = &job->step->desc->act, .mr = t->mr,
                                   .rows = (unsigned)swiglu_min(t->mr, s->p.n_tokens - row), .vectors = 2 * panels,
                                   .gated = job->n_halves == 2, .valid = s->p.n_units - unit, .form_h = s->p.h.path->form,
                                   .form_d = s->p.d.path->form, .panel_h_bytes = s->p.h.panel_bytes,
                                   .panel_d_bytes = s->p.d.panel_bytes, .x = s->p.dx.path->x};
    find_gate(s, a, p->kern, panels, row, unit);
    const size_t lanes = 2 * (size_t)p->kern->vl, d_at = panel * s->p.d.panel_bytes + swiglu_form_bytes(a->form_d, lanes, row);
    a->h = job->work + job->at.h + panel * s->p.h.panel_bytes + swiglu_form_bytes(a->form_h, lanes, row);
    a->dg = job->work + job->at.dg + d_at;
    a->du = job->work + job->at.du + d_at;
    const size_t run = unit / SWIGLU_TURN_UNITS * SWIGLU_TURN_UNITS, in_run = unit % SWIGLU_TURN_UNITS;
    char *rows[2];
    for (int half = 0; half < 2; half++) {
        const size_t k = swiglu_raw_turn(&ctx->dx, s->p.dx.path->form, run, half) + in_run;
        rows[half] = job->work + job->at.d_rows + row * job->at.d_row + swiglu_staged_at(a->x, t->mr, k);
    }
    a->row_dg = rows[0];
    a->row_du = rows[1];
}

static void aim_hidden(void *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel, struct swiglu_fetches *list) {
    struct hidden *const hidden = ctx;
    const struct swiglu_grad_args *const a = &hidden->args;
    const struct swiglu_back_products *products = &hidden->spot->p;
    const size_t vl = p->kern->vl, panels = swiglu_path_panels(p->weights.product->path, swiglu_tiles_shape(p->rows, tile));
    aim_grad(hidden, p, tile, panel);
    const size_t h = swiglu_form_bytes(products->h.path->form, 2 * vl, a->mr);
    const size_t d = swiglu_form_bytes(products->d.path->form, 2 * vl, a->mr);
    const size_t row = a->vectors * vl * swiglu_staged_k_bytes(a->x);
    swiglu_fetch_add(list, a->gate, swiglu_ceil_div(a->vectors, a->per_group), a->group_elems * sizeof(float),
                    a->mr * a->row_elems * sizeof(float));
    swiglu_fetch_add(list, a->h, panels, a->panel_h_bytes, h);
    for (unsigned half = 0; half < hidden->spot->job->n_halves; half++) {
        swiglu_fetch_add(list, half ? a->du : a->dg, panels, a->panel_d_bytes, d);
        swiglu_fetch_add(list, half ? a->row_du : a->row_dg, a->mr, SWIGLU_RECORD_BYTES, row);
    }
}

static void finish_hidden(void *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel, const float *c) {
    struct hidden *const hidden = ctx;
    (void)tile, (void)panel;
    hidden->args.c = c;
    p->kern->grad(&hidden->args);
}

static void turn_block(const struct spot *s, size_t ticket) {
    const struct back *job = s->job;
    const size_t panels = s->p.d.n_panels, n_tickets = spread(job);
    const size_t n = panels * (job->n_halves + (job->at.h_turned != 0)); /* dg, du, h */
    for (size_t i = share(n, ticket, n_tickets); i < share(n, ticket + 1, n_tickets); i++) {
        const size_t half = i / panels, panel = i % panels;
        if (half == job->n_halves) {
            turn_panel(s, &s->p.h, job->work + job->at.h + panel * s->p.h.panel_bytes, panel * s->p.h.units_per_panel,
                       s->p.n_units, job->work + job->at.h_turned);
            continue;
        }
        turn_panel(s, &s->p.d, job->work + (half ? job->at.du : job->at.dg) + panel * s->p.d.panel_bytes,
                   panel * s->p.d.units_per_panel, s->p.n_units,
                   job->work + (half ? job->at.du_turned : job->at.dg_turned));
    }
}

/* ---- gradients ---- */

/* Values with two strides, in elements. */
struct grid {
    void *at; /* of the first row and column, or NULL */
    size_t row, col;
    int dtype;
};

/* One product of the last phase: what its rows are, and where the gradient of (row, column) goes. */
struct target {
    const struct swiglu_product *product;
    const struct swiglu_tiles *rows;
    size_t n_rows;
    const char *staged, *panels; /* panels: NULL where the weights are raw */
    struct swiglu_raw raw;
    size_t row_bytes;
    struct grid to;  /* at NULL: not wanted */
    struct grid sum; /* f32, added first; at NULL: nothing */
};

static char *grid_at(const struct grid *g, size_t row, size_t col) {
    return (char *)g->at + (row * g->row + col * g->col) * swiglu_float_bytes(g->dtype);
}

/* Interleaved [in, out] weights: neither side is contiguous. */
static void finish_scattered(void *ctx, const struct swiglu_pass *p, unsigned tile, size_t panel, const float *c) {
    const struct target *g = ctx;
    const struct swiglu_shape *t = swiglu_tiles_shape(p->rows, tile);
    const size_t column = panel * p->weights.product->units_per_panel, row = swiglu_tiles_row(p->rows, tile);
    const size_t lanes = 2 * (size_t)swiglu_path_panels(p->weights.product->path, t) * p->kern->vl;
    const size_t valid = swiglu_min(p->weights.product->n_units - column, lanes);
    const size_t rows = swiglu_min(t->mr, g->n_rows - row);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < valid; j++) {
            const float lane[16] = {c[r * lanes + j]}; /* store reads a whole vector */
            struct swiglu_store_args one = {.c = lane, .rows = 1, .vectors = 1, .valid = 1,
                                            .y = grid_at(&g->to, row + r, column + j), .dtype = g->to.dtype};
            if (g->sum.at) one.sum = (const float *)grid_at(&g->sum, row + r, column + j);
            p->kern->store(&one);
        }
}

/* Sends the gradient of weight `which` (gate, up, down) to the matrix, from an output and an input on, and says what is added.
 * Rows of the target are outputs, or inputs where the product is computed the other way round. */
static void send_weight(const struct spot *s, int which, size_t output, size_t output_stride, size_t input, struct target *t) {
    const struct back *job = s->job;
    const struct swiglu_matrix *const m = swiglu_desc_trained(job->step->desc, which);
    const struct swiglu_rows *const g = which == 0 ? &job->grads.gate : which == 1 ? &job->grads.up : &job->grads.down;
    const int add = s->chunk > 0 || job->step->flags & SWIGLU_TRAIN_ACCUMULATE, turned = swiglu_step_turned(job->step, which);
    const int by_rows = m->in_out == turned; /* a row of the target is a stored row */
    if (!g->data) return;
    t->to = (struct grid){g->data, by_rows ? g->ld_elems : 1, by_rows ? 1 : g->ld_elems, g->dtype};
    if (job->step->flags & SWIGLU_TRAIN_BF16_GRADIENTS && job->at.n_chunks > 1) {
        const size_t ld = swiglu_matrix_stored_cols(m);
        t->sum = (struct grid){job->work + job->at.sums[which], by_rows ? ld : 1, by_rows ? 1 : ld, SWIGLU_F32};
        if (s->chunk + 1 < job->at.n_chunks) t->to = t->sum;
    } else {
        t->sum = t->to;
    }
    struct grid *const grids[2] = {&t->to, &t->sum};
    for (int i = 0; i < 2; i++) {
        grids[i]->at = turned ? grid_at(grids[i], input, output) : grid_at(grids[i], output, input);
        *(turned ? &grids[i]->col : &grids[i]->row) *= output_stride;
    }
    if (!add) t->sum.at = NULL;
}

/* Rows are hidden units: dg or du over tokens. */
static struct target unit_rows(const struct spot *s, int half) {
    const struct back *job = s->job;
    return (struct target){.rows = &s->p.units, .n_rows = s->p.n_units, .row_bytes = SWIGLU_RECORD_BYTES,
                           .staged = job->work + (half ? job->at.du_turned : job->at.dg_turned)};
}

static struct target weight_target(const struct spot *s, int half) {
    const struct back *job = s->job;
    const struct swiglu_half *h = &job->half[half];
    const int which = h->matrix == &job->step->desc->gate ? 0 : 1;
    struct target t = unit_rows(s, half);
    t.product = &s->p.x;
    t.panels = job->work + job->at.x_panels;
    if (swiglu_step_turned(job->step, which))
        t = (struct target){.product = &s->p.d, .rows = &s->p.inputs, .n_rows = swiglu_step_trained_inputs(job->step),
                            .staged = job->work + job->at.x_turned, .row_bytes = SWIGLU_RECORD_BYTES,
                            .panels = job->work + (half ? job->at.du : job->at.dg)};
    send_weight(s, which, h->first + s->unit * h->stride, h->stride, 0, &t);
    return t;
}

static struct target down_target(const struct spot *s) {
    const struct back *job = s->job;
    struct target t = {.product = &s->p.h, .rows = &s->p.down, .n_rows = swiglu_desc_trained(job->step->desc, 2)->rows,
                       .staged = job->work + job->at.dy_turned, .panels = job->work + job->at.h,
                       .row_bytes = SWIGLU_RECORD_BYTES};
    if (swiglu_step_turned(job->step, 2))
        t = (struct target){.product = &s->p.dy, .rows = &s->p.units, .n_rows = s->p.n_units,
                            .staged = job->work + job->at.h_turned, .panels = job->work + job->at.dy_panels,
                            .row_bytes = SWIGLU_RECORD_BYTES};
    send_weight(s, 2, 0, 1, s->unit, &t);
    return t;
}

static void send_bias(const struct spot *s, float *bias, size_t stride, struct target *t) {
    t->to = (struct grid){bias, stride, 1, SWIGLU_F32};
    t->sum = s->chunk > 0 || s->job->step->flags & SWIGLU_TRAIN_ACCUMULATE ? t->to : (struct grid){0};
}

static struct target bias_target(const struct spot *s, int half) {
    const struct back *job = s->job;
    const struct swiglu_half *h = &job->half[half];
    float *const bias = h->bias == &job->step->desc->gate_bias ? job->grads.gate_bias : job->grads.up_bias;
    struct target t = unit_rows(s, half);
    t.product = &s->p.ones_up;
    t.panels = job->work + job->at.ones_up;
    send_bias(s, bias ? bias + h->first + s->unit * h->stride : NULL, h->stride, &t);
    return t;
}

static struct target target_of(const struct spot *s, int what) {
    const struct back *job = s->job;
    struct target t = {.rows = &s->p.outs, .n_rows = job->step->desc->d_out, .staged = job->work + job->at.dy_turned,
                       .row_bytes = SWIGLU_RECORD_BYTES};
    switch (what) {
    case DX:
        return (struct target){.product = &s->p.dx, .rows = &s->p.tokens, .n_rows = s->p.n_tokens,
                               .staged = job->work + job->at.d_rows, .raw = raw_dx(s),
                               .row_bytes = job->at.d_row, .to = {.at = job->grads.dx.data}};
    case DW_GATE: return weight_target(s, 0);
    case DW_UP: return job->n_halves == 2 ? weight_target(s, 1) : (struct target){0};
    case DB_GATE: return bias_target(s, 0);
    case DB_UP: return job->n_halves == 2 ? bias_target(s, 1) : (struct target){0};
    case DB_DOWN:
        t.product = &s->p.ones_down;
        t.panels = job->work + job->at.ones_down;
        send_bias(s, s->block ? NULL : job->grads.down_bias, 1, &t);
        return t;
    default: return down_target(s);
    }
}

static unsigned groups_of(const struct back *job, const struct target *t) {
    return job->n_threads > 1 && t->panels && swiglu_tiles_count(t->rows) > 16 ? 2 : 1; /* raw: or it would be packed twice */
}

static size_t panels_of(const struct back *job, const struct target *t) {
    return swiglu_pass_panels(t->product, t->rows, t->n_rows / groups_of(job, t), job->n_threads);
}

static size_t target_tickets(const struct spot *s, int what) {
    const struct target t = target_of(s, what);
    if (!t.to.at || t.n_rows == 0) return 0;
    return swiglu_ceil_div(t.product->n_panels, panels_of(s->job, &t)) * groups_of(s->job, &t);
}

/* p says what becomes of the totals; the rest of it is set here. */
static void run_pass(const struct spot *s, const struct target *t, size_t ticket, struct swiglu_pass p) {
    const struct back *job = s->job;
    const unsigned groups = groups_of(job, t), group = (unsigned)(ticket % groups), tiles = swiglu_tiles_count(t->rows);
    const size_t per_ticket = panels_of(job, t);
    char *const scratch = job->work + job->at.scratch + s->thread * job->at.scratch_bytes;
    struct swiglu_product product = *t->product;
    product.data = (char *)t->panels; /* only read */
    p.kern = job->step->kern;
    p.weights = (struct swiglu_weights){t->panels ? SWIGLU_PACKED : SWIGLU_RAW, &product, t->raw, scratch + job->at.totals_bytes};
    p.rows = t->rows;
    p.staged = t->staged;
    p.row_bytes = t->row_bytes;
    p.slice_bytes = SWIGLU_BACK_SLICE;
    p.scratch = (float *)scratch;
    p.rows_padded = swiglu_kept_rows(s->p.n_tokens);
    p.panel = ticket / groups * per_ticket;
    p.panel_end = swiglu_min(p.panel + per_ticket, product.n_panels);
    p.tile = tiles * group / groups;
    p.tile_end = tiles * (group + 1) / groups;
    swiglu_pass_run(&p);
}

static struct swiglu_result dx_result(const struct spot *s) {
    const struct swiglu_rows *dx = &s->job->grads.dx;
    const size_t ld_bytes = dx->ld_elems * swiglu_float_bytes(dx->dtype);
    return (struct swiglu_result){.y = (char *)dx->data + s->token * ld_bytes, .dtype = dx->dtype, .ld_bytes = ld_bytes,
                                  .n_rows = s->p.n_tokens};
}

static void run_products(struct spot *s, size_t ticket) {
    const struct back *job = s->job;
    int what = 0;
    for (size_t n; ticket >= (n = target_tickets(s, what)); what++) ticket -= n;
    struct target t = target_of(s, what);
    if (what == DX) {
        const struct swiglu_result dx = dx_result(s);
        run_pass(s, &t, ticket, (struct swiglu_pass){.totals = (float *)(job->work + job->at.dx_totals), .add = s->block > 0,
                                                     .result = s->block + 1 == job->at.n_blocks ? &dx : NULL});
        return;
    }
    const struct swiglu_result dw = {.y = t.to.at, .dtype = t.to.dtype, .ld_bytes = t.to.row * swiglu_float_bytes(t.to.dtype),
                                     .n_rows = t.n_rows, .sum = t.sum.at, .sum_bytes = t.sum.row * sizeof(float)};
    if (t.to.col == 1)
        run_pass(s, &t, ticket, (struct swiglu_pass){.result = &dw});
    else
        run_pass(s, &t, ticket, (struct swiglu_pass){.finish = finish_scattered, .ctx = &t});
}

/* ---- phases ---- */

static struct target gate_up_target(const struct spot *s) {
    const struct back *job = s->job;
    struct swiglu_raw raw = job->first;
    raw.row = s->unit;
    return (struct target){.product = &s->p.gate_up, .rows = &s->p.tokens, .n_rows = s->p.n_tokens,
                           .staged = job->work + job->at.x_rows, .raw = raw, .row_bytes = job->at.x_row};
}

static struct target hidden_target(const struct spot *s) {
    const struct back *job = s->job;
    const struct swiglu_raw raw = {.view = {swiglu_view_turn(swiglu_view_half(&job->down))}, .n_views = 1, .row = s->unit};
    return (struct target){.product = &s->p.dh, .rows = &s->p.tokens, .n_rows = s->p.n_tokens,
                           .staged = job->work + job->at.dy_rows, .raw = raw, .row_bytes = job->at.dy_row};
}

static struct spot spot_of_phase(const struct back *job, size_t phase, int *kind) {
    const size_t per_chunk = 1 + job->at.n_blocks * PHASES_PER_BLOCK, in_chunk = phase % per_chunk;
    *kind = in_chunk ? (int)((in_chunk - 1) % PHASES_PER_BLOCK) : -1;
    return spot_of(job, phase / per_chunk, in_chunk ? (in_chunk - 1) / PHASES_PER_BLOCK : 0);
}

static size_t count_tickets(const void *ctx, size_t phase) {
    const struct back *job = ctx;
    int kind;
    const struct spot s = spot_of_phase(job, phase, &kind);
    const struct target t = kind == GATE_UP ? gate_up_target(&s) : hidden_target(&s);
    size_t n = 0;
    switch (kind) {
    case GATE_UP:
        if (job->saved) return 0; /* fall through */
    case HIDDEN: return swiglu_ceil_div(t.product->n_panels, panels_of(job, &t)) * groups_of(job, &t);
    case PRODUCTS:
        for (int what = 0; what < N_PRODUCTS; what++) n += target_tickets(&s, what);
        return n;
    default: return spread(job);
    }
}

static void run_ticket(void *ctx, unsigned thread, size_t phase, size_t ticket) {
    const struct back *job = ctx;
    int kind;
    struct spot s = spot_of_phase(ctx, phase, &kind);
    const struct target t = kind == GATE_UP ? gate_up_target(&s) : hidden_target(&s);
    s.thread = thread;
    switch (kind) {
    case GATE_UP: run_pass(&s, &t, ticket, (struct swiglu_pass){.totals = (float *)(job->work + job->at.gate)}); break;
    case HIDDEN:
        run_pass(&s, &t, ticket, (struct swiglu_pass){.finish = finish_hidden, .aim = aim_hidden,
                                                      .ctx = &(struct hidden){&s, raw_dx(&s), {0}}});
        break;
    case TURN: turn_block(&s, ticket); break;
    case PRODUCTS: run_products(&s, ticket); break;
    default: prepare_chunk(&s, ticket); break;
    }
}

void swiglu_train_backward_run(const struct swiglu_step *s, struct swiglu_crows x, struct swiglu_crows dy, const float *saved,
                               const struct swiglu_grads *grads, char *work, const struct swiglu_runner *runner) {
    struct back job = {.step = s, .x = x, .dy = dy, .saved = saved, .grads = *grads, .down = swiglu_desc_down(s->desc),
                       .n_threads = swiglu_runner_threads(runner), .work = work};
    job.n_halves = (unsigned)swiglu_desc_halves(s->desc, job.half);
    job.first = swiglu_step_raw(s);
    (void)swiglu_back_layout(s, job.n_threads, &job.at); /* the same numbers as when the size was checked */
    float *const bias = (float *)(work + job.at.bias);
    for (size_t block = 0; block < job.at.n_blocks; block++) {
        const struct spot spot = spot_of(&job, 0, block);
        if (swiglu_product_bias(&spot.p.gate_up, s->kern->vl, job.half, (int)job.n_halves, spot.unit,
                                bias + block * job.at.block_bias))
            job.bias = bias;
    }
    struct swiglu_schedule schedule = {.ctx = &job, .n_phases = job.at.n_chunks * (1 + job.at.n_blocks * PHASES_PER_BLOCK),
                                       .n_tickets = count_tickets, .run = run_ticket};
    swiglu_schedule_run(&schedule, runner);
}
