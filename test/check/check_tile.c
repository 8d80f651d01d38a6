/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: every depth around the unrolling, the records and the chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"

enum { MAX_K = 2049, MAX_ROWS = 8, MAX_LANES = 64, SLOT_X = 0, SLOT_W0, SLOT_W1, SLOT_C, SLOT_Y };

/* The numbers of one call, unpacked: rows of x, and of w one row per output. */
static float x_of[MAX_ROWS][MAX_K], w_of[MAX_LANES][MAX_K], c_before[MAX_ROWS][MAX_LANES];
static float bias_of[MAX_LANES], sum_of[MAX_ROWS][MAX_LANES];

struct call {
    const struct swiglu_kern *kern;
    const struct swiglu_tile *tile;
    const struct swiglu_wt_info *info;
    enum swiglu_wt wt;
    size_t k, steps;
    int side, add;
    size_t cut; /* steps of a first call, 0 = all at once */
    char *x, *w[2];
    float *c;
    struct swiglu_store_args store; /* y NULL: only the totals are wanted */
};

/* ---- packing, as kern.h describes it ---- */

static float rounded(enum swiglu_wt wt, float f) {
    switch (wt) {
    case SWIGLU_WT_F16: return swiglu_f16_widen(swiglu_f16_store(f));
    case SWIGLU_WT_BF16: return swiglu_bf16_widen(swiglu_bf16_store(f));
    case SWIGLU_WT_BF16_DOT: return swiglu_bf16_widen(swiglu_bf16_staging(f));
    default: return f;
    }
}

static void put_weight(char *lane, enum swiglu_wt wt, const float *w, size_t i, size_t k) {
    const uint16_t even = swiglu_bf16_store(w[i]), odd = i + 1 < k ? swiglu_bf16_store(w[i + 1]) : 0;
    const uint16_t f16 = swiglu_f16_store(w[i]);
    switch (wt) {
    case SWIGLU_WT_F32: memcpy(lane, &w[i], 4); break;
    case SWIGLU_WT_F16: memcpy(lane, &f16, 2); break;
    case SWIGLU_WT_BF16: memcpy(lane, &even, 2); break;
    default: memcpy(lane, &even, 2), memcpy(lane + 2, &odd, 2);
    }
}

static void pack_panel(const struct call *t, unsigned panel) {
    const unsigned lanes = 2 * t->kern->vl;
    for (size_t s = 0; s < t->steps; s++)
        for (unsigned l = 0; l < lanes; l++)
            put_weight(t->w[panel] + (s * lanes + l) * t->info->lane_bytes, t->wt, w_of[panel * lanes + l],
                       s * t->info->k_step, t->k);
}

/* Where staged element e of row r lies. */
static size_t staged_at(const struct call *t, size_t r, size_t e) {
    return (e / SWIGLU_RECORD * t->tile->mr + r) * SWIGLU_RECORD_BYTES + e % SWIGLU_RECORD * 4;
}

static void stage_row(const struct call *t, unsigned r) {
    const size_t elems = t->steps * t->info->elems_per_step;
    for (size_t e = 0; e < elems; e++) {
        char *at = t->x + staged_at(t, r, e);
        if (t->info->x == SWIGLU_X_BF16_PAIR) {
            put_weight(at, SWIGLU_WT_BF16_DOT, x_of[r], 2 * e, t->k);
        } else {
            const float f = e < t->k ? x_of[r][e] : 0;
            memcpy(at, &f, 4);
        }
    }
}

/* Exactly the bytes that the call may touch, so that one more is on the guard page. */
static void lay_out(struct call *t) {
    const size_t elems = t->steps * t->info->elems_per_step, mr = t->tile->mr, lanes = 2 * t->kern->vl;
    t->x = check_memory(SLOT_X, t->side, elems ? staged_at(t, mr - 1, elems - 1) + 4 : 0);
    t->w[0] = check_memory(SLOT_W0, t->side, t->steps * lanes * t->info->lane_bytes);
    t->w[1] = check_memory(SLOT_W1, t->side, t->steps * lanes * t->info->lane_bytes);
    t->c = check_memory(SLOT_C, t->side, mr * t->tile->panels * lanes * sizeof(float));
    for (unsigned p = 0; p < t->tile->panels; p++) pack_panel(t, p);
    for (unsigned r = 0; r < mr; r++) stage_row(t, r);
}

/* ---- calling and judging ---- */

static void run(void *arg) {
    const struct call *t = arg;
    const size_t lane_bytes = 2 * t->kern->vl * t->info->lane_bytes;
    const struct swiglu_run out[3] = {{(const char *)t->c, 64, 1, 0}, {t->x, 1, 3, 100}, {t->x, 200, 2, 300}};
    const struct swiglu_store_args *const store = t->store.y ? &t->store : NULL;
    struct swiglu_tile_args args = {.x = t->x, .w0 = t->w[0], .w1 = t->tile->panels == 2 ? t->w[1] : NULL,
                                    .n_steps = t->cut ? t->cut : t->steps, .c = t->c, .add = t->add,
                                    .next_x = t->x, .next_w = t->w[0], .next_w_stride = lane_bytes,
                                    .store = t->cut ? NULL : store, .out = out, .out_last = out + 2};
    t->tile->run[t->wt](&args);
    if (!t->cut) return;
    args.x = t->x + t->cut * t->info->elems_per_step / SWIGLU_RECORD * t->tile->mr * SWIGLU_RECORD_BYTES;
    args.w0 += t->cut * lane_bytes;
    if (args.w1) args.w1 += t->cut * lane_bytes;
    args.n_steps = t->steps - t->cut;
    args.add = 1;
    args.store = store;
    t->tile->run[t->wt](&args);
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
    const unsigned n = t->tile->panels * 2 * t->kern->vl;
    const size_t written = (t->store.valid < n ? t->store.valid : n) * (t->store.dtype == SWIGLU_F32 ? 4 : 2);
    for (unsigned r = 0; t->store.y && r + 1 < t->store.rows; r++)
        for (size_t b = written; b < t->store.ld_bytes; b++)
            if (((const unsigned char *)t->store.y)[r * t->store.ld_bytes + b] != 0xA5)
                return check_differs("k %zu row %u: byte %zu behind the columns of y overwritten", t->k, r, b);
    return 1;
}

static int judge(const struct call *t) {
    const unsigned n = t->tile->panels * 2 * t->kern->vl;
    for (unsigned r = 0; r < t->tile->mr; r++) {
        for (unsigned l = 0; l < n; l++) {
            const float want = oracle_chain(t->wt, x_of[r], w_of[l], t->k, t->add, c_before[r][l]);
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
    *s = (struct swiglu_store_args){.c = t->c, .rows = rows, .vectors = 2 * t->tile->panels, .valid = valid,
                                    .dtype = dtype, .sum_bytes = sizeof sum_of[0]};
    s->ld_bytes = row_bytes + check_random() % 40;
    s->y = check_memory(SLOT_Y, t->side, (rows - 1) * s->ld_bytes + row_bytes);
}

static const int store_dtypes[] = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16};

/* Often all of them, as they are, and sometimes ragged, with a bias or a sum. */
static void choose_store(struct call *t, enum check_data data) {
    const unsigned n = t->tile->panels * 2 * t->kern->vl, mr = t->tile->mr;
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

static void fill(float *row, size_t k, enum swiglu_wt form, enum check_data data) {
    /* special values sparsely: in a long chain one of them is in every sum */
    const size_t rare = data == CHECK_SPECIAL ? 1 + k / 2 : 1;
    for (size_t i = 0; i < k; i++) row[i] = rounded(form, check_value(check_random() % rare ? CHECK_NORMAL : data));
}

static int check_call(struct call *t, enum check_data data) {
    const unsigned n = t->tile->panels * 2 * t->kern->vl;
    const int at_threshold = data == CHECK_TINY && check_random() & 1;
    for (unsigned r = 0; r < t->tile->mr; r++)
        fill(x_of[r], t->k, t->wt == SWIGLU_WT_BF16_DOT ? t->wt : SWIGLU_WT_F32, data);
    for (unsigned l = 0; l < n; l++) /* zero times NaN is NaN */
        fill(w_of[l], t->k, t->wt, data == CHECK_ZERO ? CHECK_SPECIAL : data);
    for (size_t i = 0; i < t->k && at_threshold; i++) {
        for (unsigned r = 0; r < t->tile->mr; r++) x_of[r][i] = threshold_value(i);
        for (unsigned l = 0; l < n; l++) w_of[l][i] = rounded(t->wt, threshold_value(i));
    }
    lay_out(t);
    choose_store(t, data);
    for (unsigned r = 0; r < t->tile->mr; r++)
        for (unsigned l = 0; l < n; l++) t->c[r * n + l] = c_before[r][l] = check_value(data);
    return check_survives(run, t) && judge(t);
}

/* Each special value as a total that is stored whole, in each type: in sums most of them are too rare to wait for. */
static int check_ends(struct call *t) {
    const unsigned n = t->tile->panels * 2 * t->kern->vl, mr = t->tile->mr;
    float value;
    t->add = 1, t->cut = 0;
    for (t->k = 0; t->k < 3; t->k++) {
        for (unsigned r = 0; r < mr && t->k; r++) x_of[r][t->k - 1] = 0;
        for (unsigned l = 0; l < n && t->k; l++) w_of[l][t->k - 1] = 1;
        t->steps = swiglu_kern_steps(t->info, t->k);
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

int check_tile(const struct swiglu_kern *kern, const struct swiglu_tile *tile, enum swiglu_wt wt) {
    static const size_t depths[] = {0,   1,   2,    3,    4,    5,    6,    7,    63,   64,   255,
                                    511, 512, 513, 1023, 1024, 1025, 1026, 1537, 2047, 2048, 2049};
    struct call t = {.kern = kern, .tile = tile, .info = &kern->wt[wt], .wt = wt};
    for (size_t i = 0; i < COUNT(depths); i++) {
        t.k = depths[i];
        t.steps = swiglu_kern_steps(t.info, t.k);
        for (unsigned repeat = 0; repeat < CHECK_N_DATA * (t.k < 300 ? check_repeats(kern) : 1); repeat++) {
            t.side = (int)(check_random() & 1);
            t.add = (int)(check_random() & 1);
            t.cut = t.k > SWIGLU_CHUNK && check_random() & 1 ? SWIGLU_CHUNK / t.info->k_step : 0;
            if (!check_call(&t, (enum check_data)(repeat % CHECK_N_DATA))) return 0;
        }
    }
    return check_ends(&t);
}
