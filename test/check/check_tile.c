/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: every depth around the unrolling, the records and the chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"

enum { MAX_K = 2049, MAX_ROWS = 10, MAX_LANES = 64, SLOT_X = 0, SLOT_W0, SLOT_W1, SLOT_C, SLOT_Y };

/* The numbers of one call, unpacked: rows of x, and of w one row per output. */
static float x_of[MAX_ROWS][MAX_K], w_of[MAX_LANES][MAX_K], c_before[MAX_ROWS][MAX_LANES];
static float bias_of[MAX_LANES], sum_of[MAX_ROWS][MAX_LANES];

struct call {
    const struct swiglu_kern *kern;
    const struct swiglu_path *path;
    const struct swiglu_form_info *form;
    struct swiglu_shape shape;
    int arith;
    unsigned panels;
    size_t k;
    int side, add;
    size_t cut; /* depth of a first call, 0 = all at once */
    char *x, *w[2];
    float *c;
    struct swiglu_store_args store; /* y NULL: only the totals are wanted */
};

/* ---- packing, as kern.h describes it ---- */

static float rounded(int form, float f) {
    switch (form) {
    case SWIGLU_FORM_F16: return swiglu_f16_widen(swiglu_f16_store(f));
    case SWIGLU_FORM_BF16: return swiglu_bf16_widen(swiglu_bf16_store(f));
    case SWIGLU_FORM_BF16_PAIR: return swiglu_bf16_widen(swiglu_bf16_staging(f));
    default: return f;
    }
}

static void put_weight(char *lane, int form, const float *w, size_t i, size_t k) {
    const uint16_t even = swiglu_bf16_store(w[i]), odd = i + 1 < k ? swiglu_bf16_store(w[i + 1]) : 0;
    const uint16_t f16 = swiglu_f16_store(w[i]);
    switch (form) {
    case SWIGLU_FORM_F32: memcpy(lane, &w[i], 4); break;
    case SWIGLU_FORM_F16: memcpy(lane, &f16, 2); break;
    case SWIGLU_FORM_BF16: memcpy(lane, &even, 2); break;
    default: memcpy(lane, &even, 2), memcpy(lane + 2, &odd, 2);
    }
}

static void pack_panel(const struct call *t, unsigned panel) {
    const unsigned lanes = 2 * t->kern->vl;
    for (size_t k = 0; k < t->k; k += t->form->k_block)
        for (unsigned l = 0; l < lanes; l++)
            put_weight(t->w[panel] + swiglu_form_bytes(t->path->form, lanes, k) + l * t->form->lane_bytes, t->path->form,
                       w_of[panel * lanes + l], k, t->k);
}

/* Staged depth: even where k are eaten in pairs. */
static size_t depth_of(const struct call *t) { return t->k + (t->form->k_block == 2 ? t->k % 2 : 0); }

static void stage_row(const struct call *t, unsigned r) {
    for (size_t k = 0; k < depth_of(t); k++) {
        char *at = t->x + swiglu_staged_at(t->path->x, t->shape.mr, k) + r * SWIGLU_RECORD_BYTES;
        const float f = k < t->k ? x_of[r][k] : 0;
        const uint16_t h = swiglu_bf16_store(f);
        memcpy(at, t->path->x == SWIGLU_X_BF16_PAIR ? (const void *)&h : &f, swiglu_staged_k_bytes(t->path->x));
    }
}

/* Exactly the bytes that the call may touch, so that one more is on the guard page. */
static void lay_out(struct call *t) {
    const size_t depth = depth_of(t), mr = t->shape.mr, lanes = 2 * t->kern->vl;
    const size_t last = depth ? swiglu_staged_at(t->path->x, t->shape.mr, depth - 1) + swiglu_staged_k_bytes(t->path->x) : 0;
    t->x = check_memory(SLOT_X, t->side, depth ? last + (mr - 1) * SWIGLU_RECORD_BYTES : 0);
    for (unsigned p = 0; p < 2; p++)
        t->w[p] = check_memory(SLOT_W0 + (int)p, t->side, swiglu_form_bytes(t->path->form, lanes, t->k));
    t->c = check_memory(SLOT_C, t->side, mr * t->panels * lanes * sizeof(float));
    for (unsigned p = 0; p < t->panels; p++) pack_panel(t, p);
    for (unsigned r = 0; r < mr; r++) stage_row(t, r);
}

/* ---- calling and judging ---- */

static void run(void *arg) {
    const struct call *t = arg;
    const size_t cut_bytes = swiglu_form_bytes(t->path->form, 2 * t->kern->vl, t->cut);
    const struct swiglu_fetch out[3] = {{(const char *)t->c, 64, 1, 0}, {t->x, 1, 3, 100}, {t->x, 200, 2, 300}};
    const struct swiglu_store_args *const store = t->store.y ? &t->store : NULL;
    struct swiglu_tile_args args = {.x = t->x, .w0 = t->w[0], .w1 = t->panels == 2 ? t->w[1] : NULL,
                                    .n_k = t->cut ? t->cut : t->k, .c = t->c, .add = t->add,
                                    .next_x = t->x, .next_w = t->w[0], .next_w_stride = 64,
                                    .store = t->cut ? NULL : store, .out = out, .out_last = out + 2};
    swiglu_path_tile(t->path, &t->shape)(&args);
    if (!t->cut) return;
    args.x = t->x + swiglu_staged_at(t->path->x, t->shape.mr, t->cut);
    args.w0 += cut_bytes;
    if (args.w1) args.w1 += cut_bytes;
    args.n_k = t->k - t->cut;
    args.add = 1;
    args.store = store;
    swiglu_path_tile(t->path, &t->shape)(&args);
}

static float stored_value(const char *at, int dtype) {
    if (dtype == SWIGLU_F32) return swiglu_f32_from_bits(swiglu_le32(at));
    return dtype == SWIGLU_F16 ? swiglu_f16_widen(swiglu_le16(at)) : swiglu_bf16_widen(swiglu_le16(at));
}

static int judge_stored(const struct call *t, float total, unsigned r, unsigned l) {
    const char *at = (const char *)t->store.y + r * t->store.ld_bytes + l * (t->store.dtype == SWIGLU_F32 ? 4 : 2);
    if (r >= t->store.rows || l >= t->store.valid) return 1; /* not a place of y: a guard page or other columns */
    if (t->store.bias) total += bias_of[l];
    if (t->store.sum) total = sum_of[r][l] + total;
    return check_stored(at, t->store.dtype, total) ||
           check_differs("k %zu row %u column %u of y: %a instead of %a", t->k, r, l,
                         (double)stored_value(at, t->store.dtype), (double)total);
}

static int judge_gaps(const struct call *t) {
    const unsigned n = t->panels * 2 * t->kern->vl;
    const size_t written = (t->store.valid < n ? t->store.valid : n) * (t->store.dtype == SWIGLU_F32 ? 4 : 2);
    for (unsigned r = 0; t->store.y && r + 1 < t->store.rows; r++)
        for (size_t b = written; b < t->store.ld_bytes; b++)
            if (((const unsigned char *)t->store.y)[r * t->store.ld_bytes + b] != 0xA5)
                return check_differs("k %zu row %u: byte %zu behind the columns of y overwritten", t->k, r, b);
    return 1;
}

static int judge(const struct call *t) {
    const unsigned n = t->panels * 2 * t->kern->vl;
    for (unsigned r = 0; r < t->shape.mr; r++) {
        for (unsigned l = 0; l < n; l++) {
            const float want = oracle_chain(t->arith, x_of[r], w_of[l], t->k, t->add, c_before[r][l]);
            if (t->store.y) {
                if (!judge_stored(t, want, r, l)) return 0;
            } else if (!check_same(t->c[r * n + l], want))
                return check_differs("k %zu row %u lane %u: %a instead of %a", t->k, r, l, (double)t->c[r * n + l],
                                     (double)want);
        }
    }
    return judge_gaps(t);
}

/* Where the totals go, from their first column to column valid: exactly those bytes and the gaps between rows. */
static void lay_out_store(struct call *t, int dtype, unsigned rows, size_t valid) {
    struct swiglu_store_args *const s = &t->store;
    const size_t row_bytes = valid * (dtype == SWIGLU_F32 ? 4 : 2);
    *s = (struct swiglu_store_args){.c = t->c, .rows = rows, .vectors = 2 * t->panels, .valid = valid,
                                    .dtype = dtype, .sum_bytes = sizeof sum_of[0]};
    s->ld_bytes = row_bytes + check_random() % 40;
    s->y = check_memory(SLOT_Y, t->side, (rows - 1) * s->ld_bytes + row_bytes);
}

static const int store_dtypes[] = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16};

/* Often all of them, as they are, and sometimes ragged, with a bias or a sum. */
static void choose_store(struct call *t, enum check_data data) {
    const unsigned n = t->panels * 2 * t->kern->vl, mr = t->shape.mr;
    t->store.y = NULL;
    if (check_random() & 1) return;
    const int ragged = check_random() % 3 == 0, dtype = store_dtypes[check_random() % COUNT(store_dtypes)];
    lay_out_store(t, dtype, ragged ? 1 + (unsigned)(check_random() % mr) : mr, ragged ? 1 + check_random() % n : n);
    for (unsigned l = 0; l < n; l++) bias_of[l] = check_value(data);
    for (unsigned r = 0; r < mr; r++)
        for (unsigned l = 0; l < n; l++) sum_of[r][l] = check_value(data);
    if (check_random() % 4 == 0) t->store.bias = bias_of;
    if (check_random() % 4 == 0) t->store.sum = sum_of[0];
}

/* Sums that stand at 2^-126 when a product around 2^-150 moves them: the flush of bf16 compute hangs on one bit. */
static float threshold_value(size_t i) {
    const uint64_t r = check_random();
    const float m = 1 + (float)(r >> 8 & 127) / 128, sign = r & 1 ? -1 : 1;
    return sign * (i % 2 ? 0x1p-63f : (r & 2 ? 1 : m) * (r & 4 ? 0x1p-75f : 0x1p-76f));
}

static void fill(float *row, size_t k, int form, enum check_data data) {
    /* special values sparsely: in a long chain one of them is in every sum */
    const size_t rare = data == CHECK_SPECIAL ? 1 + k / 2 : 1;
    for (size_t i = 0; i < k; i++) row[i] = rounded(form, check_value(check_random() % rare ? CHECK_NORMAL : data));
}

static int check_call(struct call *t, enum check_data data) {
    const unsigned n = t->panels * 2 * t->kern->vl;
    const int at_threshold = data == CHECK_TINY && check_random() & 1;
    for (unsigned r = 0; r < t->shape.mr; r++)
        fill(x_of[r], t->k, t->arith == SWIGLU_ARITH_BF16 ? SWIGLU_FORM_BF16_PAIR : SWIGLU_FORM_F32, data);
    for (unsigned l = 0; l < n; l++) /* zero times NaN is NaN */
        fill(w_of[l], t->k, t->path->form, data == CHECK_ZERO ? CHECK_SPECIAL : data);
    for (size_t i = 0; i < t->k && at_threshold; i++) {
        for (unsigned r = 0; r < t->shape.mr; r++) x_of[r][i] = threshold_value(i);
        for (unsigned l = 0; l < n; l++) w_of[l][i] = rounded(t->path->form, threshold_value(i));
    }
    lay_out(t);
    choose_store(t, data);
    for (unsigned r = 0; r < t->shape.mr; r++)
        for (unsigned l = 0; l < n; l++) t->c[r * n + l] = c_before[r][l] = check_value(data);
    return check_survives(run, t) && judge(t);
}

/* Each special value as a total that is stored whole, in each type: in sums most of them are too rare to wait for. */
static int check_ends(struct call *t) {
    const unsigned n = t->panels * 2 * t->kern->vl, mr = t->shape.mr;
    float value;
    t->add = 1, t->cut = 0;
    for (t->k = 0; t->k < 3; t->k++) {
        for (unsigned r = 0; r < mr && t->k; r++) x_of[r][t->k - 1] = 0;
        for (unsigned l = 0; l < n && t->k; l++) w_of[l][t->k - 1] = 1;
        for (size_t d = 0; d < COUNT(store_dtypes); d++)
            for (size_t i = 0; check_special(i, &value); i++) {
                lay_out(t);
                lay_out_store(t, store_dtypes[d], mr, n);
                for (unsigned r = 0; r < mr; r++)
                    for (unsigned l = 0; l < n; l++) t->c[r * n + l] = c_before[r][l] = value;
                if (!check_survives(run, t) || !judge(t)) return 0;
            }
    }
    return 1;
}

int check_tile(const struct swiglu_kern *kern, const struct swiglu_path *path, int arith, struct swiglu_shape shape) {
    static const size_t depths[] = {0,   1,   2,    3,    4,    5,    6,    7,    63,   64,   255,
                                    511, 512, 513, 1023, 1024, 1025, 1026, 1537, 2047, 2048, 2049};
    struct call t = {.kern = kern, .path = path, .form = &swiglu_forms[path->form], .arith = arith, .shape = shape,
                     .panels = swiglu_path_panels(path, &shape)};
    for (size_t i = 0; i < COUNT(depths); i++) {
        t.k = depths[i];
        for (unsigned repeat = 0; repeat < CHECK_N_DATA * (t.k < 300 ? check_repeats(kern) : 1); repeat++) {
            t.side = (int)(check_random() & 1);
            t.add = (int)(check_random() & 1);
            t.cut = t.k > SWIGLU_CHUNK && check_random() & 1 ? SWIGLU_CHUNK : 0;
            if (!check_call(&t, (enum check_data)(repeat % CHECK_N_DATA))) return 0;
        }
    }
    return check_ends(&t);
}
