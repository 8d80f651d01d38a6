/* SPDX-License-Identifier: Apache-2.0 */
/* From totals to h and to y: every activation, clamp, form and ragged width, specials in every lane. */
#include <math.h>
#include <string.h>

#include "base/act.h"
#include "base/half.h"
#include "check/check.h"

enum { SLOT_C = 0, SLOT_BIAS, SLOT_OUT, MAX_ROWS = 8, MAX_VECTORS = 4, MAX_LANES = 64 };

struct swiglu_act check_act_of(int kind, int variant) {
    struct swiglu_act act = swiglu_act_default();
    act.kind = kind;
    if (kind == SWIGLU_ACT_XIELU) memcpy(act.param, (float[]){0.8f, 1.3f, 0.5f, -1e-6f}, 4 * sizeof(float));
    if (kind == SWIGLU_ACT_SITU) memcpy(act.param, (float[]){4, 25}, 2 * sizeof(float));
    if (variant == 0) return act;
    act.alpha = variant == 2 ? -0.37f : 1.702f;
    act.gate_hi = 7, act.up_lo = -7, act.up_hi = 7;
    if (variant == 2) act.gate_lo = -1.5f;
    act.up_offset = variant == 3 ? 0 : 1;
    act.clamp_after = variant == 3;
    return act;
}

/* ---- hidden ---- */

struct hidden_call {
    const struct swiglu_kern *kern;
    struct swiglu_hidden_args args;
};

static void run_hidden(void *arg) {
    const struct hidden_call *t = arg;
    t->kern->hidden(&t->args);
}

static float hidden_wanted(const struct hidden_call *t, unsigned r, size_t unit) {
    const unsigned vl = t->kern->vl, stride = t->args.gated ? 2 : 1;
    const size_t v = unit / vl * stride, lane = unit % vl;
    const float *c = t->args.c + (size_t)r * t->args.vectors * vl, *bias = t->args.bias;
    float in[2] = {0, 0};
    if (unit >= t->args.valid) return 0;
    for (unsigned s = 0; s < stride; s++) {
        in[s] = c[(v + s) * vl + lane];
        if (bias) in[s] = in[s] + bias[(v + s) * vl + lane];
    }
    return oracle_hidden(t->args.act, t->args.gated, in[0], in[1]);
}

static float hidden_got(const struct hidden_call *t, unsigned r, size_t unit) {
    const char *row = t->args.h + (size_t)r * SWIGLU_RECORD_BYTES;
    float f;
    if (t->args.x == SWIGLU_X_BF16_PAIR) return swiglu_bf16_widen(swiglu_le16(row + 2 * unit));
    memcpy(&f, row + 4 * unit, 4);
    return f;
}

static int judge_hidden(const struct hidden_call *t, size_t units, size_t row_bytes) {
    for (unsigned r = 0; r < t->args.mr; r++) {
        for (size_t i = 0; i < units; i++) {
            float want = hidden_wanted(t, r, i);
            const float got = hidden_got(t, r, i);
            if (t->args.x != SWIGLU_X_F32) want = swiglu_bf16_widen(swiglu_bf16_staging(want));
            if (!check_same(got, want))
                return check_differs("row %u unit %zu of %zu: %a instead of %a", r, i, t->args.valid, (double)got,
                                     (double)want);
        }
        for (size_t b = row_bytes; b < SWIGLU_RECORD_BYTES && r + 1 < t->args.mr; b++)
            if ((unsigned char)t->args.h[r * SWIGLU_RECORD_BYTES + b] != 0xA5)
                return check_differs("row %u: byte %zu behind %zu units overwritten", r, b, units);
    }
    return 1;
}

static int check_hidden_call(struct hidden_call *t, const struct swiglu_act *act, unsigned vectors, int data) {
    const unsigned vl = t->kern->vl;
    const size_t n = (size_t)vectors * vl, lanes = n / (t->args.gated ? 2 : 1);
    t->args.valid = check_random() & 1 ? 1 + check_random() % (lanes + 3) : lanes;
    /* one lane writes the +0 that pads an odd depth, too */
    const size_t units = lanes + (vl == 1 && t->args.x == SWIGLU_X_BF16_IN_F32 && t->args.valid == lanes);
    const size_t row_bytes = units * (t->args.x == SWIGLU_X_BF16_PAIR ? 2 : 4);
    const int side = (int)(check_random() & 1);
    const unsigned mr = 1 + (unsigned)(check_random() % MAX_ROWS);
    float *c = check_memory(SLOT_C, side, mr * n * sizeof *c), *bias = NULL;
    for (size_t i = 0; i < mr * n; i++) c[i] = 3 * check_value((enum check_data)data);
    if (check_random() & 1) {
        bias = check_memory(SLOT_BIAS, side, n * sizeof *bias);
        for (size_t i = 0; i < n; i++) bias[i] = check_value((enum check_data)data);
    }
    t->args.c = c, t->args.bias = bias, t->args.act = act, t->args.mr = mr, t->args.vectors = vectors;
    t->args.row_bytes = SWIGLU_RECORD_BYTES;
    t->args.h = check_memory(SLOT_OUT, side, (mr - 1) * (size_t)SWIGLU_RECORD_BYTES + row_bytes);
    return check_survives(run_hidden, t) && judge_hidden(t, units, row_bytes);
}

int check_hidden(const struct swiglu_kern *kern, int kind, int x) {
    for (int variant = 0; variant < CHECK_ACT_VARIANTS; variant++) {
        const struct swiglu_act act = check_act_of(kind, variant);
        struct swiglu_act plain = act; /* an ungated block has no up side */
        plain.up_offset = 0, plain.up_lo = -INFINITY, plain.up_hi = INFINITY;
        for (int gated = 0; gated < 2; gated++)
            for (unsigned vectors = 2; vectors <= MAX_VECTORS; vectors += 2)
                for (int data = 0; data < CHECK_N_DATA; data++) {
                    struct hidden_call t = {.kern = kern, .args = {.gated = gated, .x = x}};
                    for (unsigned repeat = 0; repeat < check_repeats(kern); repeat++)
                        if (!check_hidden_call(&t, gated ? &act : &plain, vectors, data)) return 0;
                }
    }
    return 1;
}

/* ---- store ---- */

struct store_call {
    const struct swiglu_kern *kern;
    struct swiglu_store_args args;
};

static void run_store(void *arg) {
    const struct store_call *t = arg;
    t->kern->store(&t->args);
}

/* What the call adds to, in an f32 y or elsewhere; the whole fits MAX_ROWS rows of MAX_LANES. */
static float y_before[MAX_ROWS][MAX_LANES];

static float store_total(const struct store_call *t, unsigned r, size_t i) {
    const float c = t->args.c[(size_t)r * t->args.vectors * t->kern->vl + i];
    const float total = t->args.bias ? c + t->args.bias[i] : c;
    return t->args.sum ? y_before[r][i] + total : total;
}

static int judge_store(const struct store_call *t) {
    const size_t size = t->args.dtype == SWIGLU_F32 ? 4 : 2, n = t->args.vectors * t->kern->vl;
    const size_t written = t->args.valid < n ? t->args.valid : n;
    for (unsigned r = 0; r < t->args.rows; r++) {
        const char *row = (const char *)t->args.y + r * t->args.ld_bytes;
        for (size_t i = 0; i < written; i++)
            if (!check_stored(row + i * size, t->args.dtype, store_total(t, r, i)))
                return check_differs("row %u column %zu of %zu is not %a", r, i, written, (double)store_total(t, r, i));
        for (size_t b = written * size; b < t->args.ld_bytes && r + 1 < t->args.rows; b++)
            if ((unsigned char)row[b] != 0xA5)
                return check_differs("row %u: byte %zu behind %zu columns overwritten", r, b, written);
    }
    return 1;
}

static int check_store_call(struct store_call *t, unsigned vectors, size_t valid, int data) {
    const size_t n = vectors * t->kern->vl, size = t->args.dtype == SWIGLU_F32 ? 4 : 2;
    const size_t written = valid < n ? valid : n;
    const int side = (int)(check_random() & 1);
    const unsigned rows = 1 + (unsigned)(check_random() % MAX_ROWS);
    float *c = check_memory(SLOT_C, side, rows * n * sizeof *c), *bias = NULL;
    for (size_t i = 0; i < rows * n; i++) c[i] = check_value((enum check_data)data) * (i % 7 ? 1 : 1e4f);
    if (check_random() & 1) {
        bias = check_memory(SLOT_BIAS, side, n * sizeof *bias);
        for (size_t i = 0; i < n; i++) bias[i] = check_value((enum check_data)data);
    }
    t->args.c = c, t->args.bias = bias, t->args.rows = rows, t->args.vectors = vectors, t->args.valid = valid;
    t->args.ld_bytes = written * size + check_random() % 40; /* odd strides: y has any alignment */
    char *y = t->args.y = check_memory(SLOT_OUT, side, (rows - 1) * t->args.ld_bytes + written * size);
    t->args.sum = NULL;
    if (check_random() & 1) {
        const int in_place = t->args.dtype == SWIGLU_F32 && check_random() & 1;
        t->args.sum_bytes = in_place ? t->args.ld_bytes : sizeof y_before[0];
        t->args.sum = in_place ? (const float *)(const void *)y : y_before[0];
        for (unsigned r = 0; r < rows; r++) {
            for (size_t i = 0; i < written; i++) y_before[r][i] = check_value((enum check_data)data);
            if (in_place) memcpy(y + r * t->args.ld_bytes, y_before[r], written * size);
        }
    }
    return check_survives(run_store, t) && judge_store(t);
}

int check_store(const struct swiglu_kern *kern, int dtype) {
    for (unsigned vectors = 2; vectors <= MAX_VECTORS; vectors += 2)
        for (size_t valid = 1; valid <= vectors * kern->vl + 1; valid++)
            for (int data = 0; data < CHECK_N_DATA; data++) {
                struct store_call t = {.kern = kern, .args = {.dtype = dtype}};
                for (unsigned repeat = 0; repeat < check_repeats(kern); repeat++)
                    if (!check_store_call(&t, vectors, valid, data)) return 0;
            }
    return 1;
}
