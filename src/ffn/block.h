/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared block: two packed products and what joins them. Immutable after swiglu_block_create. */
#ifndef SWIGLU_BLOCK_H
#define SWIGLU_BLOCK_H

#include "ffn/product.h"

struct swiglu_block {
    const struct swiglu_kern *kern;
    size_t d_in, d_ff, d_out;
    int gated;
    int compute_first, compute_down;
    struct swiglu_act act;
    struct swiglu_product first, down; /* gate|up or the only first product, and down */
    const char *why;
    uint64_t packed_bytes, file_bytes;
    int expanded;
};

#endif
