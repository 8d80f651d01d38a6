/* SPDX-License-Identifier: Apache-2.0 */
/* From a number of rows to tiles. */
#ifndef SWIGLU_TILES_H
#define SWIGLU_TILES_H

#include "kern/kern.h"

/* Rows of one block as n_a tiles of shape a, then n_b of shape b. Only the last tile may have rows without data. */
struct swiglu_tiles {
    struct swiglu_shape a, b;
    unsigned n_a, n_b;
};
struct swiglu_tiles swiglu_tiles_of(const struct swiglu_kern *kern, unsigned rows);

static inline unsigned swiglu_tiles_count(const struct swiglu_tiles *p) { return p->n_a + p->n_b; }
static inline const struct swiglu_shape *swiglu_tiles_shape(const struct swiglu_tiles *p, unsigned i) {
    return i < p->n_a ? &p->a : &p->b;
}
static inline unsigned swiglu_tiles_row(const struct swiglu_tiles *p, unsigned i) { /* first row of tile i */
    return i < p->n_a ? i * p->a.mr : p->n_a * p->a.mr + (i - p->n_a) * p->b.mr;
}

#endif
