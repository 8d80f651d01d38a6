/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a caller's x into tiles; the activation on arrays; the read sums. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"
#include "kern/isa.h"

enum { SLOT_SRC = 0, SLOT_DST };

/* ---- staging ---- */

struct stage_call {
    const struct swiglu_kern *kern;
    struct swiglu_stage_args args;
};

static void run_stage(void *arg) {
    const struct stage_call *t = arg;
    t->kern->stage(&t->args);
}

static float source_value(const struct swiglu_stage_args *a, unsigned r, size_t i) {
    const char *row = (const char *)a->src + r * a->ld_bytes;
    float f;
    if (a->dtype == SWIGLU_F16) return swiglu_f16_widen(swiglu_le16(row + 2 * i));
    if (a->dtype == SWIGLU_BF16) return swiglu_bf16_widen(swiglu_le16(row + 2 * i));
    memcpy(&f, row + 4 * i, 4);
    return f;
}

/* What the tile functions will read as the value of k = i; n values are read, one more than k for an odd pair. */
static float staged_value(const struct swiglu_stage_args *a, unsigned r, size_t i) {
    const size_t per = a->x == SWIGLU_X_BF16_PAIR ? 2 * SWIGLU_RECORD : SWIGLU_RECORD;
    const char *row = a->dst + (i / per * a->mr + r) * SWIGLU_RECORD_BYTES;
    float f;
    if (a->x == SWIGLU_X_BF16_PAIR) return swiglu_bf16_widen(swiglu_le16(row + i % per * 2));
    memcpy(&f, row + i % per * 4, 4);
    return f;
}

static int judge_stage(const struct swiglu_stage_args *a) {
    const size_t n = a->x == SWIGLU_X_F32 ? a->k : a->k + a->k % 2;
    for (unsigned r = 0; r < a->mr; r++)
        for (size_t i = 0; i < n; i++) {
            float want = r < a->rows && i < a->k ? source_value(a, r, i) : 0;
            if (a->x != SWIGLU_X_F32) want = swiglu_bf16_widen(swiglu_bf16_staging(want));
            if (!check_same(staged_value(a, r, i), want))
                return check_differs("k %zu: row %u value %zu is %a, not %a", a->k, r, i, (double)staged_value(a, r, i),
                                     (double)want);
        }
    return 1;
}

static int check_stage_call(const struct swiglu_kern *kern, int dtype, int x, size_t k, int data) {
    const size_t size = dtype == SWIGLU_F32 ? 4 : 2, per = x == SWIGLU_X_BF16_PAIR ? 2 * SWIGLU_RECORD : SWIGLU_RECORD;
    const int side = (int)(check_random() & 1);
    struct stage_call t = {.kern = kern, .args = {.dtype = dtype, .x = x, .k = k}};
    struct swiglu_stage_args *a = &t.args;
    a->mr = 1 + (unsigned)(check_random() % 8);
    a->rows = 1 + (unsigned)(check_random() % a->mr);
    a->ld_bytes = k * size + check_random() % 70; /* odd strides: x has any alignment */
    char *src = check_memory(SLOT_SRC, side, (a->rows - 1) * a->ld_bytes + k * size);
    for (unsigned r = 0; r < a->rows; r++)
        for (size_t i = 0; i < k; i++) {
            const float f = check_value((enum check_data)data);
            const uint16_t h = dtype == SWIGLU_F16 ? swiglu_f16_store(f) : swiglu_bf16_store(f);
            memcpy(src + r * a->ld_bytes + i * size, dtype == SWIGLU_F32 ? (const void *)&f : &h, size);
        }
    a->src = src;
    a->dst = check_memory(SLOT_DST, side, (k + per - 1) / per * a->mr * SWIGLU_RECORD_BYTES);
    return check_survives(run_stage, &t) && judge_stage(a);
}

int check_stage(const struct swiglu_kern *kern, int dtype, int x) {
    static const size_t depths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 511, 512, 513, 1023, 1024, 1025, 2047, 2049};
    for (size_t i = 0; i < COUNT(depths); i++)
        for (int data = 0; data < CHECK_N_DATA; data++)
            for (int repeat = 0; repeat < 3; repeat++)
                if (!check_stage_call(kern, dtype, x, depths[i], data)) return 0;
    return 1;
}

/* ---- activations on arrays ---- */

typedef void act_fn(const struct swiglu_act *act, size_t n, const float *x, float *y);

struct act_call {
    act_fn *fn, *right;
    const struct swiglu_act *act;
    size_t n;
    const float *x;
    float *y;
};

static void run_act(void *arg) {
    const struct act_call *t = arg;
    t->fn(t->act, t->n, t->x, t->y);
}

/* A stored NaN is canonical, so the bits must be equal. */
static int judge_act(const struct act_call *t) {
    for (size_t i = 0; i < t->n; i++) {
        float want;
        t->right(t->act, 1, &t->x[i], &want);
        if (swiglu_f32_bits(t->y[i]) != swiglu_f32_bits(want))
            return check_differs("f(%a) at %zu of %zu: %a instead of %a", (double)t->x[i], i, t->n, (double)t->y[i],
                                 (double)want);
        if (isnan(t->x[i]) && swiglu_f32_bits(want) != 0x7FC00000) return check_differs("NaN is not canonical");
    }
    return 1;
}

static int check_act_call(act_fn *fn, act_fn *right, const struct swiglu_act *act, size_t n, int bits) {
    const int side = (int)(check_random() & 1);
    float *x = check_memory(SLOT_SRC, side, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = bits ? swiglu_f32_from_bits((uint32_t)check_random()) : 30 * check_value(CHECK_SPECIAL);
    struct act_call t = {.fn = fn, .right = right, .act = act, .n = n, .x = x};
    t.y = check_memory(SLOT_DST, side, n * sizeof *x);
    return check_survives(run_act, &t) && judge_act(&t);
}

int check_act(const struct swiglu_kern *kern, int kind, int derivative) {
    const struct swiglu_kern *generic = &swiglu_kern_table_generic;
    act_fn *const fn = derivative ? kern->act_grad : kern->act;
    act_fn *const right = derivative ? generic->act_grad : generic->act;
    for (int variant = 0; variant < CHECK_ACT_VARIANTS; variant++) {
        const struct swiglu_act act = check_act_of(kind, variant);
        for (size_t n = 0; n < 40; n++)
            if (!check_act_call(fn, right, &act, n, 0)) return 0;
        for (int bits = 0; bits < 2; bits++)
            if (!check_act_call(fn, right, &act, 20000, bits)) return 0;
    }
    return 1;
}

/* ---- read sums ---- */

struct read_call {
    unsigned (*read_sum)(const void *p, size_t bytes);
    const void *p;
    size_t bytes;
    unsigned sum;
};

static void run_read(void *arg) {
    struct read_call *t = arg;
    t->sum = t->read_sum(t->p, t->bytes);
}

/* Every word counts, or the bandwidth that is measured with it would be of less than all bytes. */
int check_read_sum(const struct swiglu_kern *kern, size_t which) {
    for (size_t bytes = 4096; bytes <= 5 * 4096; bytes += 4096) {
        uint32_t *p = check_memory(SLOT_SRC, 1, bytes), want = 0;
        for (size_t i = 0; i < bytes / 4; i++) want += p[i] = (uint32_t)check_random();
        struct read_call t = {kern->read_sum[which], p, bytes, 0};
        if (!check_survives(run_read, &t)) return 0;
        if (t.sum != want) return check_differs("sum of %zu bytes: %u instead of %u", bytes, t.sum, (unsigned)want);
    }
    return 1;
}
