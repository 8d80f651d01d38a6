/* SPDX-License-Identifier: Apache-2.0 */
#include "check/int8_oracle.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "dtype/dtype.h"

enum { CHUNK = 1024 };

void oracle_int8_stage(const float x[32], struct oracle_int8 *staged) {
    uint32_t u = 0;
    memset(staged, 0, sizeof *staged);
    for (int i = 0; i < 32; i++) {
        const uint32_t magnitude = swiglu_f32_bits(x[i]) & 0x7FFFFFFF;
        if (magnitude > u) u = magnitude;
    }
    if (u >= 0x7F800000) { /* a NaN or an infinity among them */
        staged->d = staged->e = swiglu_f32_from_bits(0x7FC00000);
        return;
    }
    if (u < 0x0D800000) return; /* 2^-100 */
    const float amax = swiglu_f32_from_bits(u), r = 127.0f / amax;
    staged->d = amax / 127.0f;
    for (int i = 0; i < 32; i++) {
        staged->q[i] = (int8_t)rintf(x[i] * r);
        staged->s += staged->q[i];
        if (i >= 16) staged->s1 += staged->q[i];
    }
    staged->e = staged->d * (float)staged->s;
}

void oracle_int8_stage_row(const float *x, size_t k, struct oracle_int8 *staged) {
    for (size_t i = 0; i < k; i += 32) oracle_int8_stage(x + i, staged + i / 32);
}

int32_t oracle_int8_sum(const struct swiglu_quant_part *w, const struct oracle_int8 *x) {
    int32_t half[2] = {0, 0};
    for (int i = 0; i < 32; i++) half[i / 16] += w->q[i] * x->q[i];
    if (w->kind == SWIGLU_QUANT_HALVES || w->kind == SWIGLU_QUANT_HALVES_MIN)
        return half[0] * w->sc[0] + half[1] * w->sc[1];
    return half[0] + half[1];
}

float oracle_int8_fold(const struct swiglu_quant_part *w, const struct oracle_int8 *x, float acc) {
    const float t = w->a * x->d;
    acc = fmaf((float)oracle_int8_sum(w, x), t, acc);
    if (w->kind == SWIGLU_QUANT_MINIMUM) acc = fmaf(w->b, x->e, acc);
    if (w->kind == SWIGLU_QUANT_HALVES_MIN) {
        const int32_t m = w->m[0] * (x->s - x->s1) + w->m[1] * x->s1;
        const float t2 = w->am * x->d;
        acc = fmaf(-(float)m, t2, acc);
    }
    return acc;
}

float oracle_int8_chain(int dtype, const void *row, const struct oracle_int8 *x, size_t k, int add, float total) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(dtype);
    const unsigned char *blocks = row;
    for (size_t done = 0; done < k || done == 0; done += CHUNK) {
        float acc = 0;
        for (size_t i = done; i < k && i < done + CHUNK; i += 32) {
            struct swiglu_quant_part w;
            t->part(blocks + i / t->block_elems * t->block_bytes, (unsigned)(i % t->block_elems / 32), &w);
            acc = oracle_int8_fold(&w, x + i / 32, acc);
        }
        total = add || done ? total + acc : acc;
    }
    return total;
}
