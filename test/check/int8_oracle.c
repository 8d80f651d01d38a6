/* SPDX-License-Identifier: Apache-2.0 */
#include "check/int8_oracle.h"

#include <math.h>

#include "dtype/dtype.h"

enum { CHUNK = 1024 };

void oracle_int8_stage_row(const float *x, size_t k, struct swiglu_int8_group *staged) {
    for (size_t i = 0; i < k; i += 32) swiglu_int8_stage(x + i, staged + i / 32);
}

float oracle_int8_fold(const struct swiglu_quant_part *w, const struct swiglu_int8_group *x, float acc) {
    const float t = w->a * x->d;
    acc = fmaf((float)swiglu_int8_sum(w, x->q), t, acc);
    if (w->kind == SWIGLU_QUANT_MINIMUM) acc = fmaf(w->b, x->e, acc);
    if (w->kind == SWIGLU_QUANT_HALVES_MIN) {
        const int32_t m = w->m[0] * (x->s - x->s1) + w->m[1] * x->s1;
        const float t2 = w->am * x->d;
        acc = fmaf(-(float)m, t2, acc);
    }
    return acc;
}

float oracle_int8_chain(int dtype, const void *row, const struct swiglu_int8_group *x, size_t k, int add, float total) {
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
