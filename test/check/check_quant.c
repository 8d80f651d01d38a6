/* SPDX-License-Identifier: Apache-2.0 */
/* Block formats: lanes packed and unpacked, slices opened, staged int8 rows, and the int8 tiles of every shape. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"
#include "check/int8_oracle.h"
#include "dtype/dtype.h"
#include "kern/lane.h"

enum { MAX_K = 2304, MAX_ROWS = 10, MAX_LANES = 32, ROW_BYTES = MAX_K / 32 * 34 };
enum { SLOT_X = 0, SLOT_W, SLOT_SLICE, SLOT_C };

static unsigned char file_of[MAX_LANES][ROW_BYTES];
static float x_of[MAX_ROWS][MAX_K], c_before[MAX_ROWS][MAX_LANES];
static struct swiglu_int8_group staged_of[MAX_ROWS][MAX_K / 32];

struct call {
    const struct swiglu_kern *kern;
    const struct swiglu_dtype_row *type;
    const struct swiglu_path *path;
    struct swiglu_shape shape;
    int form, side, add;
    size_t k, cut; /* cut: depth of a first call, 0 = all at once */
    char *x, *panel, *slice;
    float *c;
};

static size_t lanes_of(const struct call *t) { return 2 * (size_t)t->kern->vl; }
static size_t row_bytes_of(const struct call *t) { return t->k / t->type->block_elems * t->type->block_bytes; }

/* ---- data ---- */

/* Scales as files have them, at times none, of any sign, denormal, infinite or NaN. */
static uint16_t any_scale(int ordinary) {
    static const uint16_t odd[] = {0, 0x8000, 1, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00};
    if (!ordinary && check_random() % 8 == 0) return odd[check_random() % COUNT(odd)];
    return swiglu_f16_store(check_normal() * 0.01f);
}

static void fill_files(const struct call *t, int ordinary) {
    for (size_t l = 0; l < lanes_of(t); l++) {
        unsigned char *b = file_of[l];
        for (size_t i = 0; i < row_bytes_of(t); i++) b[i] = (unsigned char)check_random();
        if (check_random() % 4 == 0) memset(b, 0x80, row_bytes_of(t)); /* the bytes that a sum of 16 bits cannot hold */
        for (size_t i = 0; i < row_bytes_of(t); i += t->type->block_bytes, b += t->type->block_bytes) {
            for (unsigned s = 0; s < t->type->scales.n_f16; s++) {
                const uint16_t h = any_scale(ordinary);
                memcpy(b + t->type->scales.at[s], &h, sizeof h);
            }
            if (t->type->scales.n_e8m0 && (ordinary || check_random() % 4))
                b[t->type->scales.at[0]] = (unsigned char)(110 + check_random() % 20);
        }
    }
}

/* Ordinary rows, and blocks of zeros, of one huge value, tiny ones, those that end at +-127 everywhere, NaN and infinity. */
static void fill_rows(const struct call *t, enum check_data data) {
    for (unsigned r = 0; r < MAX_ROWS; r++) {
        for (size_t k = 0; k < t->k; k += 32) {
            const uint64_t kind = check_random() % (data == CHECK_NORMAL ? 4 : 8);
            for (size_t i = k; i < k + 32; i++) {
                float f = check_value(kind == 7 ? data : CHECK_NORMAL);
                if (kind == 1) f = check_random() & 1 ? 3.0f : -3.0f;
                if (kind == 2) f = i == k + 5 ? 1e4f : f * 0.01f;
                if (kind == 5) f *= 0x1p-101f;
                if (kind == 6) f = i & 1 ? -0.0f : 0.0f;
                x_of[r][i] = f;
            }
        }
        oracle_int8_stage_row(x_of[r], t->k, staged_of[r]);
        for (unsigned l = 0; l < MAX_LANES; l++) c_before[r][l] = check_normal();
    }
}

/* ---- lanes and slices ---- */

static int judge_lanes(const struct call *t) {
    static unsigned char back[ROW_BYTES];
    for (size_t l = 0; l < lanes_of(t); l++) {
        swiglu_lane_unpack(t->kern, t->form, t->panel, l, t->k / t->type->block_elems, back);
        if (memcmp(back, file_of[l], row_bytes_of(t)))
            return check_differs("%s: lane %zu of depth %zu comes back as other bytes", t->type->name, l, t->k);
    }
    return 1;
}

static void open_slice(void *arg) {
    const struct call *t = arg;
    const struct swiglu_open_args args = {.src = t->panel, .n_k = t->k, .dst = t->slice};
    t->path->open(&args);
}

/* What f32 and bf16 compute read is what the decoder gives, rounded for pairs. */
static int check_opened(struct call *t, int arith) {
    static float decoded[MAX_K];
    t->path = t->kern->path[t->form][arith];
    t->slice = check_memory(SLOT_SLICE, t->side, swiglu_form_bytes(t->path->slice_form, lanes_of(t), t->k));
    if (!check_survives(open_slice, t)) return 0;
    for (size_t l = 0; l < lanes_of(t); l++) {
        t->type->decode(file_of[l], t->k / t->type->block_elems, decoded);
        for (size_t k = 0; k < t->k; k++) {
            const int pair = t->path->slice_form == SWIGLU_FORM_BF16_PAIR;
            const char *const at = t->slice + (pair ? (k / 2 * lanes_of(t) + l) * 4 + k % 2 * 2 : (k * lanes_of(t) + l) * 4);
            const float got = pair ? swiglu_bf16_widen(swiglu_le16(at)) : swiglu_f32_from_bits(swiglu_le32(at));
            const float want = pair ? swiglu_bf16_widen(swiglu_bf16_staging(decoded[k])) : decoded[k];
            if (!check_same(got, want))
                return check_differs("%s opened: lane %zu, k %zu: %a instead of %a", t->path->kernel, l, k, (double)got,
                                     (double)want);
        }
    }
    return 1;
}

/* ---- tiles ---- */

static void run_tile(void *arg) {
    struct call *t = arg;
    const size_t n_k = t->cut ? t->cut : t->k, mr = t->shape.mr;
    const int form = t->shape.few ? t->path->few_form : t->path->slice_form;
    const struct swiglu_fetch out[2] = {{(const char *)t->c, 64, 1, 0}, {t->x, 1, 3, 100}};
    const char *const w = t->shape.few ? t->panel : t->slice;
    const struct swiglu_stage_args stage = {.src = x_of, .dtype = SWIGLU_F32, .ld_bytes = sizeof x_of[0], .rows = (unsigned)mr,
                                            .mr = (unsigned)mr, .k = t->k, .x = SWIGLU_X_INT8, .dst = t->x};
    struct swiglu_tile_args args = {.x = t->x, .w0 = w, .n_k = n_k, .c = t->c, .add = t->add, .next_x = t->x, .next_w = w,
                                    .next_w_stride = 64, .out = out, .out_last = out + 1};
    t->kern->stage(&stage);
    if (!t->shape.few) open_slice(t);
    swiglu_path_tile(t->path, &t->shape)(&args);
    if (!t->cut) return;
    args.x += swiglu_staged_at(SWIGLU_X_INT8, t->shape.mr, t->cut);
    args.w0 += swiglu_form_bytes(form, lanes_of(t), t->cut);
    args.n_k = t->k - t->cut;
    args.add = 1;
    swiglu_path_tile(t->path, &t->shape)(&args);
}

static int judge_tile(const struct call *t) {
    for (unsigned r = 0; r < t->shape.mr; r++)
        for (size_t l = 0; l < lanes_of(t); l++) {
            const float want = oracle_int8_chain(t->type->dtype, file_of[l], staged_of[r], t->k, t->add, c_before[r][l]);
            const float got = t->c[r * lanes_of(t) + l];
            if (!check_same(got, want))
                return check_differs("%s: k %zu row %u lane %zu: %a instead of %a", t->path->kernel, t->k, r, l, (double)got,
                                     (double)want);
        }
    return 1;
}

static int check_shape(struct call *t) {
    const size_t n = lanes_of(t), mr = t->shape.mr, last = swiglu_staged_at(SWIGLU_X_INT8, t->shape.mr, t->k - 32);
    t->x = check_memory(SLOT_X, t->side, last + SWIGLU_INT8_BYTES + (mr - 1) * SWIGLU_RECORD_BYTES);
    t->slice = check_memory(SLOT_SLICE, t->side, swiglu_form_bytes(t->path->slice_form, n, t->k));
    t->c = check_memory(SLOT_C, t->side, mr * n * sizeof(float));
    t->add = check_random() & 1;
    t->cut = t->k > SWIGLU_CHUNK && check_random() & 1 ? SWIGLU_CHUNK : 0;
    for (size_t r = 0; r < mr; r++)
        for (size_t l = 0; l < n; l++) t->c[r * n + l] = t->add ? c_before[r][l] : NAN;
    return check_survives(run_tile, t) && judge_tile(t);
}

int check_quant(const struct swiglu_kern *kern, int dtype) {
    static const size_t depths[] = {256, 768, 1024, 1280, 2304};
    struct call t = {.kern = kern, .type = swiglu_dtype_find(dtype), .form = swiglu_lane_form(dtype)};
    for (size_t d = 0; d < 2 * COUNT(depths); d++) {
        t.side = d & 1, t.k = depths[d / 2] - (t.type->block_elems == 32 ? d % 3 * 32 : 0);
        fill_files(&t, d % 3 != 0);
        fill_rows(&t, d % 2 ? CHECK_SPECIAL : CHECK_NORMAL);
        t.panel = check_memory(SLOT_W, t.side, swiglu_form_bytes(t.form, lanes_of(&t), t.k));
        for (size_t l = 0; l < lanes_of(&t); l++)
            swiglu_lane_pack(kern, t.form, file_of[l], t.k / t.type->block_elems, l, t.panel);
        if (!judge_lanes(&t) || !check_opened(&t, SWIGLU_ARITH_F32) || !check_opened(&t, SWIGLU_ARITH_BF16)) return 0;
        t.path = kern->path[t.form][SWIGLU_ARITH_INT8];
        for (unsigned i = 0; i < SWIGLU_N_MANY + SWIGLU_N_FEW; i++) {
            const uint8_t few = i >= SWIGLU_N_MANY, n = (uint8_t)(few ? i - SWIGLU_N_MANY : i);
            t.shape = (struct swiglu_shape){few ? kern->rows_few[n] : kern->rows_many[n], few, n};
            if (t.shape.mr && !check_shape(&t)) return 0;
        }
    }
    return 1;
}

/* ---- staging ---- */

struct staging {
    const struct swiglu_kern *kern;
    struct swiglu_stage_args args;
};
static void run_stage(void *arg) {
    const struct staging *t = arg;
    t->kern->stage(&t->args);
}

/* Any float dtype, rows without data, a block in the middle of a record. */
int check_stage_int8(const struct swiglu_kern *kern, int dtype) {
    static char rows[MAX_ROWS][MAX_K * 4];
    const struct swiglu_dtype_row *type = swiglu_dtype_find(dtype);
    for (int repeat = 0; repeat < 12; repeat++) {
        const struct call data = {.k = repeat % 2 ? MAX_K - 32 : 32};
        const unsigned mr = 1 + (unsigned)(check_random() % MAX_ROWS), n = 1 + (unsigned)(check_random() % mr);
        const size_t last = swiglu_staged_at(SWIGLU_X_INT8, mr, data.k - 32) + (mr - 1) * SWIGLU_RECORD_BYTES + SWIGLU_INT8_BYTES;
        fill_rows(&data, repeat % 4 < 2 ? CHECK_SPECIAL : CHECK_NORMAL);
        for (unsigned r = 0; r < n; r++) {
            type->encode(x_of[r], data.k, rows[r]);
            type->decode(rows[r], data.k, x_of[r]);
            oracle_int8_stage_row(x_of[r], data.k, staged_of[r]);
        }
        struct staging t = {kern, {.src = rows, .dtype = dtype, .ld_bytes = sizeof rows[0], .rows = n, .mr = mr, .k = data.k,
                                   .x = SWIGLU_X_INT8}};
        t.args.dst = check_memory(SLOT_X, repeat & 1, last);
        if (!check_survives(run_stage, &t)) return 0;
        for (unsigned r = 0; r < mr; r++)
            for (size_t k = 0; k < data.k; k += 32) {
                static const struct swiglu_int8_group none;
                const struct swiglu_int8_group *want = r < n ? &staged_of[r][k / 32] : &none;
                const char *got = t.args.dst + swiglu_staged_at(SWIGLU_X_INT8, mr, k) + r * SWIGLU_RECORD_BYTES;
                if (memcmp(got, want->q, 32) || memcmp(got + SWIGLU_INT8_D, &want->d, 4) ||
                    memcmp(got + SWIGLU_INT8_E, &want->e, 4) || memcmp(got + SWIGLU_INT8_S, &want->s, 4) ||
                    memcmp(got + SWIGLU_INT8_S1, &want->s1, 4))
                    return check_differs("row %u of %u, k %zu: another block", r, mr, k);
            }
    }
    return 1;
}
