/* SPDX-License-Identifier: Apache-2.0 */
/* From a description to a prepared block, and from a number of rows to tiles. */
#ifndef SWIGLU_PLAN_H
#define SWIGLU_PLAN_H

#include "ffn/block.h"

/* desc and options were checked. */
enum swiglu_status swiglu_block_prepare(const struct swiglu_desc *desc, const struct swiglu_options *options,
                                        struct swiglu_block **block, struct swiglu_error *error);

/* Why a product with these weights runs as it does; a static string. */
const char *swiglu_plan_why(int weight_dtype, int compute_asked);

/* Rows of one block as n_a tiles of shape a, then n_b of shape b. Only the last tile may have rows without data. */
struct swiglu_row_plan {
    struct swiglu_shape a, b;
    unsigned n_a, n_b;
};
struct swiglu_row_plan swiglu_plan_rows(const struct swiglu_kern *kern, unsigned rows);

static inline unsigned swiglu_plan_tiles(const struct swiglu_row_plan *p) { return p->n_a + p->n_b; }
static inline const struct swiglu_shape *swiglu_plan_shape(const struct swiglu_row_plan *p, unsigned i) {
    return i < p->n_a ? &p->a : &p->b;
}
static inline unsigned swiglu_plan_row(const struct swiglu_row_plan *p, unsigned i) { /* first row of tile i */
    return i < p->n_a ? i * p->a.mr : p->n_a * p->a.mr + (i - p->n_a) * p->b.mr;
}

#endif
