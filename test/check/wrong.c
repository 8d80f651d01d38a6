/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliberately wrong kernels: mistakes that real ones could make. Each replaces one function of a copy of the generic
 * table, and the check of that function must fail; one that passes is a hole in the checker.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"
#include "kern/flush.h"
#include "kern/isa.h"

/* ---- tiles of one row, one panel, one lane a vector ---- */

enum flaw {
    SHORT_CHUNK, SPLIT_K, TWO_ROUNDINGS, DROPPED_LAST_K, OVER_READ, EVEN_FIRST, NO_FLUSH, FLUSH_AS_ROUNDED,
    FORGOTTEN_TOTAL, ZERO_SKIPPED, F16_FLUSHED, NAN_AS_IT_IS, DENORMAL_FLUSHED, STORED_WITHOUT_BIAS, NOTHING
};

static float step(enum flaw flaw, float w, float x, float sum) {
    if (flaw == TWO_ROUNDINGS) {
        const volatile float product = w * x;
        return product + sum;
    }
    if (flaw == ZERO_SKIPPED && x == 0) return sum;
    if (flaw == F16_FLUSHED && fabsf(w) < 0x1p-14f) w = 0;
    return fmaf(w, x, sum);
}

static float pair_step(enum flaw flaw, float w, float x, float sum) {
    if (flaw == NO_FLUSH) return fmaf(w, x, sum);
    if (flaw == FLUSH_AS_ROUNDED) { /* 2^-126 - 2^-150 flushes although it rounds up to 2^-126 */
        const float r = fmaf(w, x, sum);
        return fabsf(r) < 0x1p-126f ? copysignf(0, r) : r;
    }
    return swiglu_fma_flush(w, x, sum);
}

static float load(const char *w, int form) {
    return form == SWIGLU_FORM_F32 ? swiglu_f32_from_bits(swiglu_le32(w)) : swiglu_f16_widen(swiglu_le16(w));
}

static float staged(const struct swiglu_tile_args *t, size_t e) {
    float f;
    memcpy(&f, t->x + e / SWIGLU_RECORD * SWIGLU_RECORD_BYTES + e % SWIGLU_RECORD * 4, 4);
    return f;
}

static float wrong_chunk(const struct swiglu_tile_args *t, int form, enum flaw flaw, unsigned vector,
                         size_t first, size_t n) {
    const size_t lane = form == SWIGLU_FORM_F16 ? 2 : 4;
    float sum = 0, other = 0;
    for (size_t s = first; s < first + n; s++) {
        const char *w = t->w0 + (2 * s + vector) * lane;
        if (form != SWIGLU_FORM_BF16_PAIR) {
            float *to = flaw == SPLIT_K && s % 2 ? &other : &sum;
            *to = step(flaw, load(w, form), staged(t, s), *to);
            continue;
        }
        const float even = swiglu_bf16_widen(swiglu_le16(w)), odd = swiglu_bf16_widen(swiglu_le16(w + 2));
        if (flaw == EVEN_FIRST) sum = pair_step(flaw, even, staged(t, 2 * s), sum);
        sum = pair_step(flaw, odd, staged(t, 2 * s + 1), sum);
        if (flaw != EVEN_FIRST) sum = pair_step(flaw, even, staged(t, 2 * s), sum);
    }
    return flaw == SPLIT_K ? sum + other : sum;
}

/* The shortcut that whole tiles take, taken too often. */
static void wrong_store(const struct swiglu_store_args *t, enum flaw flaw) {
    struct swiglu_store_args a = *t;
    float c[64];
    if (flaw == STORED_WITHOUT_BIAS) a.bias = NULL;
    for (unsigned i = 0; i < t->rows * t->vectors && flaw == DENORMAL_FLUSHED; i++) {
        c[i] = t->dtype == SWIGLU_BF16 && fabsf(t->c[i]) < 0x1p-126f ? copysignf(0, t->c[i]) : t->c[i];
        a.c = c;
    }
    swiglu_kern_table_generic.store(&a);
    if (flaw != NAN_AS_IT_IS || t->dtype != SWIGLU_F32 || t->bias || t->sum) return;
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned j = 0; j < t->vectors && j < t->valid; j++)
            memcpy((char *)t->y + r * t->ld_bytes + 4 * j, &t->c[r * t->vectors + j], 4);
}

static void wrong_tile(const struct swiglu_tile_args *t, int form, enum flaw flaw) {
    const size_t chunk = (flaw == SHORT_CHUNK ? 512 : SWIGLU_CHUNK) / swiglu_forms[form].k_block;
    size_t steps = (t->n_k + swiglu_forms[form].k_block - 1) / swiglu_forms[form].k_block;
    if (flaw == DROPPED_LAST_K && steps % 2) steps--;
    for (unsigned v = 0; v < 2; v++) {
        float total = t->c[v];
        int add = t->add && flaw != FORGOTTEN_TOTAL;
        for (size_t done = 0; done < steps || done == 0; done += chunk) {
            const size_t n = steps - done < chunk ? steps - done : chunk;
            const float c = wrong_chunk(t, form, flaw, v, done, n);
            total = add || done ? total + c : c;
        }
        t->c[v] = total;
    }
    if (t->store) wrong_store(t->store, flaw);
    if (flaw == OVER_READ) *(volatile float *)t->c += 0 * *(const volatile char *)(t->w0 + 8 * t->n_k);
}

#define WRONG_TILE(name, form, flaw) \
    static void name(const struct swiglu_tile_args *t) { wrong_tile(t, SWIGLU_FORM_##form, flaw); }
WRONG_TILE(short_chunk, F32, SHORT_CHUNK)
WRONG_TILE(split_k, F32, SPLIT_K)
WRONG_TILE(two_roundings, F32, TWO_ROUNDINGS)
WRONG_TILE(dropped_last_k, F32, DROPPED_LAST_K)
WRONG_TILE(over_read, F32, OVER_READ)
WRONG_TILE(forgotten_total, F32, FORGOTTEN_TOTAL)
WRONG_TILE(zero_skipped, F32, ZERO_SKIPPED)
WRONG_TILE(nan_as_it_is, F32, NAN_AS_IT_IS)
WRONG_TILE(denormal_flushed, F32, DENORMAL_FLUSHED)
WRONG_TILE(stored_without_bias, F32, STORED_WITHOUT_BIAS)
WRONG_TILE(nothing_wrong, F32, NOTHING)
WRONG_TILE(f16_flushed, F16, F16_FLUSHED)
WRONG_TILE(even_first, BF16_PAIR, EVEN_FIRST)
WRONG_TILE(no_flush, BF16_PAIR, NO_FLUSH)
WRONG_TILE(flush_as_rounded, BF16_PAIR, FLUSH_AS_ROUNDED)
WRONG_TILE(short_pair_chunk, BF16_PAIR, SHORT_CHUNK)

/* ---- epilogues: the right function on wrong arguments, or its result spoilt ---- */

static const struct swiglu_kern *const right = &swiglu_kern_table_generic;

static void swapped_gate_up(const struct swiglu_hidden_args *t) {
    float c[64], bias[8];
    struct swiglu_hidden_args a = *t;
    if (t->gated) {
        for (unsigned i = 0; i < t->mr * t->vectors; i++) c[i] = t->c[i ^ 1];
        for (unsigned i = 0; i < t->vectors && t->bias; i++) bias[i] = t->bias[i ^ 1];
        a.c = c;
        if (t->bias) a.bias = bias;
    }
    right->hidden(&a);
}

/* a (u + offset) as a u + a offset: what a compiler may make of it. */
static void contracted_offset(const struct swiglu_hidden_args *t) {
    right->hidden(t);
    if (!t->gated || t->act->up_offset == 0 || t->x != SWIGLU_X_F32) return;
    for (unsigned r = 0; r < t->mr; r++)
        for (unsigned j = 0; j < t->vectors && j / 2 < t->valid; j += 2) {
            const float *c = t->c + r * t->vectors + j;
            float gate = c[0], up = c[1], a, h;
            if (t->bias) gate += t->bias[j], up += t->bias[j + 1];
            gate = gate > t->act->gate_hi ? t->act->gate_hi : gate < t->act->gate_lo ? t->act->gate_lo : gate;
            up = up > t->act->up_hi ? t->act->up_hi : up < t->act->up_lo ? t->act->up_lo : up;
            right->act(t->act, 1, &gate, &a);
            h = fmaf(a, up, a * t->act->up_offset);
            memcpy(t->h + r * SWIGLU_RECORD_BYTES + j / 2 * 4, &h, 4);
        }
}

static void clamp_drops_nan(const struct swiglu_hidden_args *t) {
    float c[64];
    struct swiglu_hidden_args a = *t;
    for (unsigned i = 0; i < t->mr * t->vectors; i++)
        c[i] = fminf(t->act->gate_hi, t->c[i]); /* fmin prefers the number */
    if (isfinite(t->act->gate_hi) && !t->act->clamp_after) a.c = c;
    right->hidden(&a);
}

static void padding_not_zero(const struct swiglu_hidden_args *t) {
    struct swiglu_hidden_args a = *t;
    a.valid = SIZE_MAX;
    right->hidden(&a);
}

static void hidden_keeps_denormals(const struct swiglu_hidden_args *t) {
    static char h[8 * SWIGLU_RECORD_BYTES];
    struct swiglu_hidden_args a = *t;
    a.x = SWIGLU_X_F32, a.h = h;
    right->hidden(&a);
    for (unsigned r = 0; r < t->mr; r++)
        for (unsigned i = 0; i < t->vectors / (t->gated ? 2 : 1); i++) {
            const size_t at = r * SWIGLU_RECORD_BYTES + 4 * i;
            const float f = swiglu_bf16_widen(swiglu_bf16_store(swiglu_f32_from_bits(swiglu_le32(h + at))));
            memcpy(t->h + at, &f, 4);
        }
}

static void dropped_last_column(const struct swiglu_store_args *t) {
    struct swiglu_store_args a = *t;
    if (a.valid % 2 && a.valid > 1) a.valid--;
    right->store(&a);
}

static void column_too_many(const struct swiglu_store_args *t) {
    struct swiglu_store_args a = *t;
    if (a.valid % 2) a.valid++;
    right->store(&a);
}

static void raw_nan(const struct swiglu_store_args *t) {
    right->store(t);
    for (unsigned r = 0; r < t->rows && t->dtype == SWIGLU_F32; r++)
        for (size_t i = 0; i < t->valid && i < t->vectors; i++) {
            const float f = t->bias ? t->c[r * t->vectors + i] + t->bias[i] : t->c[r * t->vectors + i];
            if (isnan(f)) memcpy((char *)t->y + r * t->ld_bytes + 4 * i, &(uint32_t){0xFFC00000}, 4);
        }
}

static void truncated_bf16(const struct swiglu_store_args *t) {
    right->store(t);
    for (unsigned r = 0; r < t->rows && t->dtype == SWIGLU_BF16; r++)
        for (size_t i = 0; i < t->valid && i < t->vectors; i++) {
            const float f = t->bias ? t->c[r * t->vectors + i] + t->bias[i] : t->c[r * t->vectors + i];
            const uint16_t h = (uint16_t)(swiglu_f32_bits(f) >> 16);
            memcpy((char *)t->y + r * t->ld_bytes + 2 * i, &h, 2);
        }
}

static void stage_over_reads(const struct swiglu_stage_args *t) {
    const char *row = (const char *)t->src + (t->rows - 1) * t->ld_bytes;
    right->stage(t);
    t->dst[0] = (char)(t->dst[0] + 0 * *(const volatile char *)(row + t->k * 4));
}

static void stage_keeps_denormals(const struct swiglu_stage_args *t) {
    right->stage(t);
    for (size_t i = 0; i < t->k && i < SWIGLU_RECORD && t->x == SWIGLU_X_BF16_IN_F32; i++) {
        const float x = swiglu_f32_from_bits(swiglu_le32((const char *)t->src + 4 * i));
        const float f = swiglu_bf16_widen(swiglu_bf16_store(x));
        memcpy(t->dst + 4 * i, &f, 4);
    }
}

static void relu_without_minus_zero(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    right->act(act, n, x, y);
    for (size_t i = 0; i < n; i++) y[i] += 0.0f;
}

static void silu_without_limit(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    right->act(act, n, x, y);
    for (size_t i = 0; i < n; i++)
        if (isinf(x[i])) y[i] = x[i] / (1 + expf(-act->alpha * x[i])); /* -Inf / Inf */
}

static void relu_slope_at_zero(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    right->act_grad(act, n, x, y);
    for (size_t i = 0; i < n; i++)
        if (x[i] == 0) y[i] = 1;
}

/* One lane: unit i is vector i. */
static size_t gate_at(const struct swiglu_grad_args *t, unsigned r, size_t i) {
    return r * t->row_elems + i / t->per_group * t->group_elems + i % t->per_group * t->vector_elems;
}

/* A gradient exactly on the bound passes; this one is cut off there. */
static void bound_cuts_off(const struct swiglu_grad_args *t) {
    right->grad(t);
    for (unsigned r = 0; r < t->rows && t->form_d == SWIGLU_FORM_F32; r++)
        for (size_t i = 0; i < t->valid && i < t->vectors; i++)
            if (t->gate[gate_at(t, r, i)] == t->act->gate_hi && !t->act->clamp_after)
                memset(t->dg + i / 2 * t->panel_d_bytes + (r * 2 + i % 2) * 4, 0, 4);
}

static void swapped_gradients(const struct swiglu_grad_args *t) {
    struct swiglu_grad_args a = *t;
    if (t->gated) a.dg = t->du, a.du = t->dg;
    right->grad(&a);
}

static void last_row_dropped(const struct swiglu_grad_args *t) {
    struct swiglu_grad_args a = *t;
    if (t->rows > 1) a.rows--;
    right->grad(&a);
}

static void odd_token_dropped(const struct swiglu_pack_args *t) {
    struct swiglu_pack_args a = *t;
    right->pack_rows(t);
    if (t->n_k % 2 && t->n_k > 1 && t->form == SWIGLU_FORM_BF16_PAIR) {
        a.n_k--;
        memset(t->dst + t->n_k / 2 * 8, 0, 4 * t->n_lanes);
        right->pack_rows(&a);
    }
}

static void columns_over_read(const struct swiglu_pack_args *t) {
    const size_t row = t->n_k * (t->dtype == SWIGLU_F32 ? 4 : 2);
    right->pack_cols(t);
    t->dst[0] = (char)(t->dst[0] + 0 * *((const volatile char *)t->src + (t->n_lanes - 1) * t->ld_bytes + row));
}

static void turned_even_for_odd(const struct swiglu_turn_args *t) {
    right->turn(t);
    for (size_t s = 0; s < t->n_blocks && t->x == SWIGLU_X_BF16_IN_F32; s++) {
        char pair[8];
        memcpy(pair, t->rows[0] + 8 * s + 4, 4), memcpy(pair + 4, t->rows[0] + 8 * s, 4);
        memcpy(t->rows[0] + 8 * s, pair, 8);
    }
}

static void forgets_to_add(const struct swiglu_store_args *t) {
    struct swiglu_store_args a = *t;
    a.sum = NULL;
    right->store(&a);
}

static unsigned read_half(const void *p, size_t bytes) { return right->read_sum[0](p, bytes / 2); }

/* ---- trying them ---- */

static size_t n_caught, n_missed;

static void must_fail(const char *name, int passed) {
    if (!passed) n_caught++;
    else n_missed++, printf("NOT CAUGHT: %s\n", name);
}

/* The tile of one row of a form replaced. */
static int check_one_row(int form, swiglu_tile_fn *fn) {
    const int arith = form == SWIGLU_FORM_BF16_PAIR ? SWIGLU_ARITH_BF16 : SWIGLU_ARITH_F32;
    struct swiglu_path path = *right->path[form][arith];
    path.few[0] = fn;
    return check_tile(right, &path, arith, (struct swiglu_shape){1, 1, 0});
}

#define TRY_TILE(fn, form) must_fail(#fn, check_one_row(SWIGLU_FORM_##form, fn))
#define TRY_ENTRY(member, fn, call)                                                        \
    do {                                                                                   \
        struct swiglu_kern wrong = *right;                                                 \
        wrong.member = fn;                                                                 \
        must_fail(#fn, call);                                                              \
    } while (0)

/* The tile that flaws are put into is right itself, or all would be caught for another reason. */
static void must_pass_unflawed(void) {
    if (!check_one_row(SWIGLU_FORM_F32, nothing_wrong)) n_missed++, printf("WRONGLY CAUGHT: nothing_wrong\n");
}

size_t check_wrong_kernels(size_t *caught) {
    must_pass_unflawed();
    TRY_TILE(short_chunk, F32);
    TRY_TILE(split_k, F32);
    TRY_TILE(two_roundings, F32);
    TRY_TILE(dropped_last_k, F32);
    TRY_TILE(over_read, F32);
    TRY_TILE(forgotten_total, F32);
    TRY_TILE(zero_skipped, F32);
    TRY_TILE(nan_as_it_is, F32);
    TRY_TILE(denormal_flushed, F32);
    TRY_TILE(stored_without_bias, F32);
    TRY_TILE(f16_flushed, F16);
    TRY_TILE(even_first, BF16_PAIR);
    TRY_TILE(no_flush, BF16_PAIR);
    TRY_TILE(flush_as_rounded, BF16_PAIR);
    TRY_TILE(short_pair_chunk, BF16_PAIR);
    TRY_ENTRY(hidden, swapped_gate_up, check_hidden(&wrong, SWIGLU_ACT_SILU, SWIGLU_X_F32));
    TRY_ENTRY(hidden, contracted_offset, check_hidden(&wrong, SWIGLU_ACT_SILU, SWIGLU_X_F32));
    TRY_ENTRY(hidden, clamp_drops_nan, check_hidden(&wrong, SWIGLU_ACT_SILU, SWIGLU_X_F32));
    TRY_ENTRY(hidden, padding_not_zero, check_hidden(&wrong, SWIGLU_ACT_SIGMOID, SWIGLU_X_F32));
    TRY_ENTRY(hidden, hidden_keeps_denormals, check_hidden(&wrong, SWIGLU_ACT_IDENTITY, SWIGLU_X_BF16_IN_F32));
    TRY_ENTRY(store, dropped_last_column, check_store(&wrong, SWIGLU_F32));
    TRY_ENTRY(store, column_too_many, check_store(&wrong, SWIGLU_F32));
    TRY_ENTRY(store, raw_nan, check_store(&wrong, SWIGLU_F32));
    TRY_ENTRY(store, truncated_bf16, check_store(&wrong, SWIGLU_BF16));
    TRY_ENTRY(stage, stage_over_reads, check_stage(&wrong, SWIGLU_F32, SWIGLU_X_F32));
    TRY_ENTRY(stage, stage_keeps_denormals, check_stage(&wrong, SWIGLU_F32, SWIGLU_X_BF16_IN_F32));
    TRY_ENTRY(act, relu_without_minus_zero, check_act(&wrong, SWIGLU_ACT_RELU, 0));
    TRY_ENTRY(act, silu_without_limit, check_act(&wrong, SWIGLU_ACT_SILU, 0));
    TRY_ENTRY(store, forgets_to_add, check_store(&wrong, SWIGLU_F32));
    TRY_ENTRY(act_grad, relu_slope_at_zero, check_act(&wrong, SWIGLU_ACT_RELU, 1));
    TRY_ENTRY(grad, bound_cuts_off, check_grad(&wrong, SWIGLU_ACT_SILU, 0));
    TRY_ENTRY(grad, swapped_gradients, check_grad(&wrong, SWIGLU_ACT_SILU, 0));
    TRY_ENTRY(grad, last_row_dropped, check_grad(&wrong, SWIGLU_ACT_SILU, 1));
    TRY_ENTRY(pack_rows, odd_token_dropped, check_pack(&wrong, 1, SWIGLU_F32));
    TRY_ENTRY(pack_cols, columns_over_read, check_pack(&wrong, 0, SWIGLU_BF16));
    TRY_ENTRY(turn, turned_even_for_odd, check_turn(&wrong, SWIGLU_X_BF16_IN_F32));
    TRY_ENTRY(read_sum[0], read_half, check_read_sum(&wrong, 0));
    *caught = n_caught;
    return n_missed;
}
