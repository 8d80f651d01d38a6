/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's matrices into the panels of a block, on the threads of a runner. */
#ifndef SWIGLU_PACK_H
#define SWIGLU_PACK_H

#include "ffn/product.h"

/* One product to fill: allocated, and where its weights come from. */
struct swiglu_packing {
    const struct swiglu_product *product;
    struct swiglu_half half[2];
    int n_halves;
    const char *name; /* in messages */
};

/* Fills the panels of n products. Work is cut by groups of panels, or by depths where a stored row is a depth; whatever is
 * not in memory is read in pieces of at most one group. Matrices whose read may not be called from any thread are packed by
 * the calling thread alone, and progress is called from it. The error is that of the first piece that failed, in order.
 * Memory: a buffer of one group per thread. */
enum swiglu_status swiglu_pack(const struct swiglu_kern *kern, const struct swiglu_packing *packings, size_t n,
                               const struct swiglu_options *options, uint64_t total_bytes, struct swiglu_error *error);

#endif
