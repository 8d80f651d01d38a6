/* SPDX-License-Identifier: Apache-2.0 */
/* What several test programs need: numbers from a seed, blocks made of them, and the judge of an output. */
#ifndef SWIGLU_TEST_SUPPORT_H
#define SWIGLU_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "swiglu/swiglu.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define UNUSED_FN __attribute__((unused)) static

/* 1 where a sanitizer stands in for the allocator, or watches threads. */
#if defined(__has_feature)
#define ADDRESS_SANITIZED __has_feature(address_sanitizer)
#define THREAD_SANITIZED __has_feature(thread_sanitizer)
#else
#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#else
#define THREAD_SANITIZED 0
#endif
#endif

/* ---- numbers ---- */

/* SplitMix64. */
UNUSED_FN uint64_t next_u64(uint64_t *seed) {
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
UNUSED_FN double next_unit(uint64_t *seed) { return (double)(next_u64(seed) >> 11) * 0x1p-53; }
UNUSED_FN double next_between(uint64_t *seed, double lo, double hi) { return lo + (hi - lo) * next_unit(seed); }
/* Twelve uniforms: variance 1, close enough to normal for data. */
UNUSED_FN float next_normal(uint64_t *seed) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += next_unit(seed);
    return (float)sum;
}

/* ---- arrays of a float dtype ---- */

UNUSED_FN size_t float_bytes(int dtype) { return dtype == SWIGLU_F32 ? 4 : 2; }

UNUSED_FN void put_float(void *array, int dtype, size_t i, float f) {
    if (dtype == SWIGLU_F32) {
        memcpy((char *)array + 4 * i, &f, 4);
    } else {
        const uint16_t h = dtype == SWIGLU_F16 ? swiglu_f16_store(f) : swiglu_bf16_store(f);
        memcpy((char *)array + 2 * i, &h, 2);
    }
}

UNUSED_FN float get_float(const void *array, int dtype, size_t i) {
    if (dtype == SWIGLU_F32) {
        float f;
        memcpy(&f, (const char *)array + 4 * i, 4);
        return f;
    }
    const uint16_t h = swiglu_le16((const char *)array + 2 * i);
    return dtype == SWIGLU_F16 ? swiglu_f16_widen(h) : swiglu_bf16_widen(h);
}

/* n normal values of the given standard deviation; freed by the caller. */
UNUSED_FN void *new_floats(int dtype, size_t n, double scale, uint64_t *seed) {
    void *array = calloc(n ? n : 1, float_bytes(dtype));
    assert_non_null(array);
    for (size_t i = 0; i < n; i++) put_float(array, dtype, i, (float)(scale * next_normal(seed)));
    return array;
}

/* ---- blocks ---- */

/* A block that owns its numbers. */
struct block_data {
    struct swiglu_desc desc;
    void *memory[6];
};

UNUSED_FN int is_packed(int layout) {
    return layout == SWIGLU_GATE_UP || layout == SWIGLU_UP_GATE || layout == SWIGLU_INTERLEAVED;
}

UNUSED_FN struct swiglu_matrix new_matrix(void **memory, int dtype, size_t rows, size_t cols, int in_out,
                                          uint64_t *seed) {
    *memory = new_floats(dtype, rows * cols, 1 / sqrt((double)cols + 1e-9), seed);
    return (struct swiglu_matrix){.data = *memory, .dtype = dtype, .in_out = in_out, .rows = rows, .cols = cols,
                                  .ld_elems = in_out ? rows : cols};
}

/* Weights as nn.Linear scales them, biases of 0.1. */
UNUSED_FN struct block_data new_block(size_t d_in, size_t d_ff, size_t d_out, int layout, const char *act, int dtype,
                                      int in_out, int biased, uint64_t seed) {
    struct block_data b;
    struct swiglu_desc *d = &b.desc;
    const size_t n_gate = is_packed(layout) ? 2 * d_ff : layout == SWIGLU_UNGATED ? 0 : d_ff;
    const size_t n_up = is_packed(layout) ? 0 : d_ff;
    memset(&b, 0, sizeof b);
    swiglu_desc_init(d);
    d->d_in = d_in, d->d_ff = d_ff, d->d_out = d_out, d->layout = layout;
    assert_int_equal(swiglu_act_init(&d->act, act), SWIGLU_OK);
    if (layout == SWIGLU_UNGATED) d->act.up_offset = 0, d->act.up_lo = -INFINITY, d->act.up_hi = INFINITY;
    if (layout != SWIGLU_UNGATED) d->gate = new_matrix(&b.memory[0], dtype, n_gate, d_in, in_out, &seed);
    if (!is_packed(layout)) d->up = new_matrix(&b.memory[1], dtype, n_up, d_in, in_out, &seed);
    d->down = new_matrix(&b.memory[2], dtype, d_out, d_ff, in_out, &seed);
    if (!biased) return b;
    if (n_gate) d->gate_bias.data = b.memory[3] = new_floats(dtype, n_gate, 0.1, &seed);
    if (n_up) d->up_bias.data = b.memory[4] = new_floats(dtype, n_up, 0.1, &seed);
    d->down_bias.data = b.memory[5] = new_floats(dtype, d_out, 0.1, &seed);
    d->gate_bias.dtype = d->up_bias.dtype = d->down_bias.dtype = dtype;
    return b;
}

UNUSED_FN void free_block(struct block_data *b) {
    for (size_t i = 0; i < COUNT(b->memory); i++) free(b->memory[i]);
}

/* ---- judging ---- */

/* |y - ref| / bound; above 1 is wrong. Class first; a bound that is not finite promises nothing. */
UNUSED_FN double judge(double y, double ref, double bound) {
    if (!isfinite(bound)) return 0;
    if (isnan(ref)) return isnan(y) ? 0 : INFINITY;
    if (isinf(ref) || !isfinite(y)) return y == ref ? 0 : INFINITY;
    const double off = fabs(y - ref);
    return off == 0 ? 0 : off / bound;
}

UNUSED_FN int same_float(float a, float b) { return swiglu_f32_bits(a) == swiglu_f32_bits(b); }

#endif
