/* SPDX-License-Identifier: Apache-2.0 */
/* What a training step needs beside tiles: raw matrices into panels, panels into staged rows, the epilogue of dh. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"

enum { SLOT_SRC = 0, SLOT_DST, SLOT_H, SLOT_DG, SLOT_DU, SLOT_ROWS, MOST_ROWS = 6, MOST_UNITS = 64 };

static size_t float_bytes(int dtype) { return dtype == SWIGLU_F32 ? 4 : 2; }

static float load_float(const char *at, int dtype) {
    if (dtype == SWIGLU_F16) return swiglu_f16_widen(swiglu_le16(at));
    if (dtype == SWIGLU_BF16) return swiglu_bf16_widen(swiglu_le16(at));
    return swiglu_f32_from_bits(swiglu_le32(at));
}

static void fill_floats(char *at, int dtype, size_t n, int data) {
    for (size_t i = 0; i < n; i++) {
        const float f = check_value((enum check_data)data);
        const uint16_t h = dtype == SWIGLU_F16 ? swiglu_f16_store(f) : swiglu_bf16_store(f);
        memcpy(at + i * float_bytes(dtype), dtype == SWIGLU_F32 ? (const void *)&f : &h, float_bytes(dtype));
    }
}

/* Lane l at depth k of a panel of f32 or of pairs. */
static float panel_value(const char *panel, unsigned vl, int form, size_t k, size_t l) {
    if (form == SWIGLU_FORM_F32) return load_float(panel + (k * 2 * vl + l) * 4, SWIGLU_F32);
    if (form != SWIGLU_FORM_BF16_PAIR)
        return load_float(panel + (k * 2 * vl + l) * 2, form == SWIGLU_FORM_F16 ? SWIGLU_F16 : SWIGLU_BF16);
    return load_float(panel + (k / 2 * 2 * vl + l) * 4 + k % 2 * 2, SWIGLU_BF16);
}

static float entered(int form, float f) {
    return form != SWIGLU_FORM_BF16_PAIR ? f : swiglu_bf16_widen(swiglu_bf16_staging(f));
}

/* ---- packing ---- */

struct pack_call {
    void (*pack)(const struct swiglu_pack_args *args);
    struct swiglu_pack_args args;
};

static void run_pack(void *arg) {
    const struct pack_call *t = arg;
    t->pack(&t->args);
}

static int judge_pack(const struct swiglu_pack_args *a, unsigned vl, int by_rows) {
    const size_t lanes = (a->n_lanes + vl - 1) / vl * vl, depth = a->n_k + (a->form == SWIGLU_FORM_BF16_PAIR ? a->n_k % 2 : 0);
    for (size_t k = 0; k < depth; k++)
        for (size_t l = 0; l < lanes; l++) {
            const size_t at = by_rows ? k * a->ld_bytes + l * float_bytes(a->dtype)
                                      : l * a->ld_bytes + k * float_bytes(a->dtype);
            const int there = k < a->n_k && l < a->n_lanes;
            const float want = there ? entered(a->form, load_float((const char *)a->src + at, a->dtype)) : 0;
            if (!check_same(panel_value(a->dst, vl, a->form, k, l), want))
                return check_differs("k %zu of %zu lane %zu of %zu is not %a", k, a->n_k, l, a->n_lanes, (double)want);
        }
    return 1;
}

static int check_pack_call(const struct swiglu_kern *kern, int by_rows, int dtype, int form, size_t n_k, int data) {
    const int side = (int)(check_random() & 1);
    struct pack_call t = {by_rows ? kern->pack_rows : kern->pack_cols, {.dtype = dtype, .n_k = n_k, .form = form}};
    struct swiglu_pack_args *a = &t.args;
    a->n_lanes = 1 + check_random() % (2 * kern->vl);
    const size_t rows = by_rows ? n_k : a->n_lanes, width = (by_rows ? a->n_lanes : n_k) * float_bytes(dtype);
    const struct swiglu_form_info *f = &swiglu_forms[form];
    const size_t blocks = (n_k + f->k_block - 1) / f->k_block, last = (a->n_lanes + kern->vl - 1) / kern->vl;
    a->ld_bytes = width + check_random() % 40;
    char *src = check_memory(SLOT_SRC, side, (rows - 1) * a->ld_bytes + width);
    for (size_t r = 0; r < rows; r++) fill_floats(src + r * a->ld_bytes, dtype, width / float_bytes(dtype), data);
    a->src = src;
    a->dst = check_memory(SLOT_DST, side, ((blocks - 1) * 2 + last) * kern->vl * f->lane_bytes);
    return check_survives(run_pack, &t) && judge_pack(a, kern->vl, by_rows);
}

int check_pack(const struct swiglu_kern *kern, int by_rows, int dtype) {
    /* f16 and bf16 also as they are */
    const int forms[] = {SWIGLU_FORM_F32, SWIGLU_FORM_BF16_PAIR, dtype == SWIGLU_F16 ? SWIGLU_FORM_F16 : SWIGLU_FORM_BF16};
    for (size_t i = 0; i < (dtype == SWIGLU_F32 ? 2 : COUNT(forms)); i++)
        for (size_t n_k = 1; n_k < 70; n_k += n_k < 36 ? 1 : 11)
            for (int data = 0; data < CHECK_N_DATA; data++)
                if (!check_pack_call(kern, by_rows, dtype, forms[i], n_k, data)) return 0;
    return 1;
}

/* ---- panels of tokens into staged rows ---- */

struct turn_call {
    const struct swiglu_kern *kern;
    struct swiglu_turn_args args;
};

static void run_turn(void *arg) {
    const struct turn_call *t = arg;
    t->kern->turn(&t->args);
}

/* Element k of a staged row within its record. */
static float record_value(const char *row, int x, size_t k) {
    return x == SWIGLU_X_BF16_PAIR ? load_float(row + 2 * k, SWIGLU_BF16) : load_float(row + 4 * k, SWIGLU_F32);
}

static int check_turn_call(const struct swiglu_kern *kern, int x, size_t n_blocks) {
    const unsigned vl = kern->vl;
    const int form = x == SWIGLU_X_F32 ? SWIGLU_FORM_F32 : SWIGLU_FORM_BF16_PAIR, side = (int)(check_random() & 1);
    struct turn_call t = {kern, {.n_blocks = n_blocks, .n_lanes = 1 + check_random() % vl, .x = x}};
    char *src = check_memory(SLOT_SRC, side, ((n_blocks - 1) * 2 + 1) * vl * 4);
    char *rows = check_memory(SLOT_ROWS, side, t.args.n_lanes * SWIGLU_RECORD_BYTES);
    for (size_t s = 0; s < n_blocks; s++)
        fill_floats(src + s * 2 * vl * 4, form == SWIGLU_FORM_F32 ? SWIGLU_F32 : SWIGLU_BF16,
                    form == SWIGLU_FORM_F32 ? vl : 2 * vl, CHECK_NORMAL);
    t.args.src = src;
    for (size_t l = 0; l < t.args.n_lanes; l++) t.args.rows[l] = rows + l * SWIGLU_RECORD_BYTES;
    if (!check_survives(run_turn, &t)) return 0;
    for (size_t k = 0; k < n_blocks * (form == SWIGLU_FORM_F32 ? 1 : 2); k++)
        for (size_t l = 0; l < t.args.n_lanes; l++)
            if (!check_same(record_value(t.args.rows[l], x, k), panel_value(src, vl, form, k, l)))
                return check_differs("turn: k %zu of %zu steps, lane %zu", k, n_blocks, l);
    return 1;
}

int check_turn(const struct swiglu_kern *kern, int x) {
    const size_t most = x == SWIGLU_X_BF16_IN_F32 ? SWIGLU_RECORD / 2 : SWIGLU_RECORD;
    for (size_t n_blocks = 1; n_blocks <= most; n_blocks += n_blocks < 40 ? 1 : 59)
        if (!check_turn_call(kern, x, n_blocks)) return 0;
    return check_turn_call(kern, x, most);
}

/* ---- the epilogue of dh ---- */

struct grad_call {
    const struct swiglu_kern *kern;
    struct swiglu_grad_args args;
    size_t panel_bytes, rows_bytes;
};

static void run_grad(void *arg) {
    const struct grad_call *t = arg;
    t->kern->grad(&t->args);
}

/* Where gate and up of a unit lie: totals as tiles leave them. */
static size_t gate_at(const struct swiglu_grad_args *a, unsigned vl, unsigned r, size_t unit) {
    const size_t vector = unit / vl;
    return r * a->row_elems + vector / a->per_group * a->group_elems + vector % a->per_group * a->vector_elems + unit % vl;
}

/* [panels][2][vl], in the order of the first product's panels: gated, a vector of gate and one of up. */
static size_t bias_at(const struct swiglu_grad_args *a, unsigned vl, size_t unit) {
    return a->gated ? unit / vl * 2 * vl + unit % vl : unit;
}

static float biased(float total, const float *bias, size_t i) { return bias ? total + bias[i] : total; }

static int judge_unit(const struct grad_call *t, unsigned r, size_t unit) {
    const struct swiglu_grad_args *a = &t->args;
    const unsigned vl = t->kern->vl;
    const size_t panel = unit / (2 * vl), lane = unit % (2 * vl), at = gate_at(a, vl, r, unit);
    struct oracle_grad want = {0, 0, 0};
    if (r < a->rows && unit < a->valid)
        want = oracle_grad(a->act, a->gated, a->c[r * a->vectors * vl + unit],
                           biased(a->gate[at], a->bias, bias_at(a, vl, unit)),
                           a->gated ? biased(a->up[at], a->bias, bias_at(a, vl, unit) + vl) : 0);
    const float h = panel_value(a->h + panel * a->panel_h_bytes, vl, a->form_h, r, lane);
    const float dg = panel_value(a->dg + panel * a->panel_d_bytes, vl, a->form_d, r, lane);
    if (!check_same(h, entered(a->form_h, want.h))) return check_differs("h of row %u unit %zu", r, unit);
    if (!check_same(dg, entered(a->form_d, want.dg))) return check_differs("dg of row %u unit %zu", r, unit);
    if (a->gated && !check_same(panel_value(a->du + panel * a->panel_d_bytes, vl, a->form_d, r, lane),
                                entered(a->form_d, want.du)))
        return check_differs("du of row %u unit %zu", r, unit);
    const size_t staged = a->x == SWIGLU_X_F32 ? a->valid : a->valid + a->valid % 2; /* an odd end pairs with +0 */
    if (unit >= staged) return 1;
    const int form = a->x == SWIGLU_X_F32 ? SWIGLU_FORM_F32 : SWIGLU_FORM_BF16_PAIR;
    const size_t row = r * (size_t)SWIGLU_RECORD_BYTES;
    if (!check_same(record_value(a->row_dg + row, a->x, unit), entered(form, want.dg)))
        return check_differs("staged dg of row %u unit %zu of %zu", r, unit, a->valid);
    if (a->gated && !check_same(record_value(a->row_du + row, a->x, unit), entered(form, want.du)))
        return check_differs("staged du of row %u unit %zu of %zu", r, unit, a->valid);
    return 1;
}

static int judge_grad(const struct grad_call *t) {
    const size_t vl = t->kern->vl, written = (t->args.valid + vl - 1) / vl * vl, most = t->args.vectors * vl;
    for (unsigned r = 0; r < t->args.mr; r++)
        for (size_t unit = 0; unit < (written < most ? written : most); unit++)
            if (!judge_unit(t, r, unit)) return 0;
    return 1;
}

static int check_grad_call(const struct swiglu_kern *kern, const struct swiglu_act *act, int gated, int bf16,
                           int data) {
    enum { MOST = MOST_ROWS * (MOST_UNITS + 3) };
    static float gate[2 * MOST], bias[2 * MOST_UNITS];
    const int form = bf16 ? SWIGLU_FORM_BF16_PAIR : SWIGLU_FORM_F32, side = (int)(check_random() & 1);
    struct grad_call t = {.kern = kern, .args = {.act = act, .gated = gated, .form_h = form, .form_d = form}};
    struct swiglu_grad_args *a = &t.args;
    a->mr = 2 + 2 * (unsigned)(check_random() % (MOST_ROWS / 2));
    a->rows = 1 + (unsigned)(check_random() % a->mr);
    a->vectors = 2 + 2 * (unsigned)(check_random() & 1);
    a->valid = 1 + check_random() % (a->vectors * kern->vl);
    a->x = bf16 ? kern->path[SWIGLU_FORM_BF16_PAIR][SWIGLU_ARITH_BF16]->x : SWIGLU_X_F32;
    const size_t n = a->vectors * kern->vl;
    float *c = check_memory(SLOT_SRC, side, a->mr * n * sizeof *c);
    for (size_t i = 0; i < a->mr * n; i++) c[i] = check_value((enum check_data)data);
    for (size_t i = 0; i < 2 * MOST; i++) gate[i] = 3 * check_value((enum check_data)data);
    a->c = c, a->gate = gate;
    const unsigned wide = 2 + 2 * (unsigned)(check_random() & 1); /* vectors of a tile of the first product */
    a->row_elems = wide * kern->vl, a->group_elems = a->mr * a->row_elems, a->per_group = gated ? wide / 2 : wide;
    a->vector_elems = (gated ? 2 : 1) * kern->vl, a->up = gate + kern->vl;
    for (size_t i = 0; i < 2 * n; i++) bias[i] = check_value((enum check_data)data);
    if (check_random() & 1) a->bias = bias;
    for (unsigned r = 0; r < a->mr && !a->bias; r++) /* exactly on a bound: passes */
        for (size_t unit = check_random() % 8; unit < a->valid; unit += 8) {
            const size_t at = gate_at(a, kern->vl, r, unit);
            gate[at] = act->gate_hi, gate[(size_t)(a->up - gate) + at] = act->up_lo;
        }
    a->panel_h_bytes = a->panel_d_bytes = a->mr / (bf16 ? 2 : 1) * 2 * kern->vl * 4;
    a->h = check_memory(SLOT_H, side, a->vectors / 2 * a->panel_h_bytes);
    a->dg = check_memory(SLOT_DG, side, a->vectors / 2 * a->panel_d_bytes);
    a->du = check_memory(SLOT_DU, side, a->vectors / 2 * a->panel_d_bytes);
    a->row_dg = check_memory(SLOT_ROWS, 0, 2 * a->mr * (size_t)SWIGLU_RECORD_BYTES);
    a->row_du = a->row_dg + a->mr * (size_t)SWIGLU_RECORD_BYTES;
    return check_survives(run_grad, &t) && judge_grad(&t);
}

int check_grad(const struct swiglu_kern *kern, int kind, int bf16) {
    for (int variant = 0; variant < CHECK_ACT_VARIANTS; variant++) {
        const struct swiglu_act act = check_act_of(kind, variant);
        struct swiglu_act plain = act;
        plain.up_offset = 0, plain.up_lo = -INFINITY, plain.up_hi = INFINITY;
        for (int gated = 0; gated < 2; gated++)
            for (int data = 0; data < CHECK_N_DATA; data++)
                for (unsigned repeat = 0; repeat < check_repeats(kern); repeat++)
                    if (!check_grad_call(kern, gated ? &act : &plain, gated, bf16, data)) return 0;
    }
    return 1;
}
