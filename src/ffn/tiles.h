/* SPDX-License-Identifier: Apache-2.0 */
/* From a number of rows to tiles. */
#ifndef SWIGLU_TILES_H
#define SWIGLU_TILES_H

#include "kern/kern.h"

enum { SWIGLU_TILE_SHAPES = 3 };

/* Rows of one block as n[0] tiles of shape[0], then n[1] of shape[1], ... All are of few rows or all are of many. Only the
 * last tile may have rows without data, fewer than 8. */
struct swiglu_tiles {
    struct swiglu_shape shape[SWIGLU_TILE_SHAPES];
    unsigned n[SWIGLU_TILE_SHAPES];
};
struct swiglu_tiles swiglu_tiles_of(const struct swiglu_kern *kern, unsigned rows);

static inline unsigned swiglu_tiles_count(const struct swiglu_tiles *p) { return p->n[0] + p->n[1] + p->n[2]; }
static inline const struct swiglu_shape *swiglu_tiles_shape(const struct swiglu_tiles *p, unsigned i) {
    return &p->shape[(i >= p->n[0]) + (i >= p->n[0] + p->n[1])];
}
static inline unsigned swiglu_tiles_row(const struct swiglu_tiles *p, unsigned i) { /* first row of tile i */
    unsigned row = 0;
    for (int s = 0; s < SWIGLU_TILE_SHAPES; s++) {
        const unsigned n = i < p->n[s] ? i : p->n[s];
        row += n * p->shape[s].mr;
        i -= n;
    }
    return row;
}

#endif
