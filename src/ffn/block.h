/* SPDX-License-Identifier: Apache-2.0 */
/* A prepared block: two packed products and what joins them. Immutable after swiglu_block_create. */
#ifndef SWIGLU_BLOCK_H
#define SWIGLU_BLOCK_H

#include "ffn/desc.h"
#include "kern/kern.h"

struct swiglu_product {
    const struct swiglu_path *path;    /* of the block's table */
    size_t k;                          /* depth: d_in, or d_ff */
    size_t n_units;                    /* hidden units, or columns of y */
    size_t units_per_panel;            /* vl where a panel holds gate and up, else 2 vl */
    size_t n_panels;                   /* that hold units; memory is padded to what a tile of many rows reads */
    size_t panel_bytes, data_bytes;
    char *data;
    float *bias;                       /* [panels][2][vl], or NULL */
};

/* Lanes of all panels, those that pad them to a tile's panels among them. */
static inline size_t swiglu_product_lanes(const struct swiglu_product *p, unsigned vl) {
    return p->data_bytes / p->panel_bytes * 2 * vl;
}

struct swiglu_block {
    const struct swiglu_kern *kern;
    size_t d_in, d_ff, d_out;
    int gated;
    int compute_up, compute_down;
    struct swiglu_act act;
    struct swiglu_product up, down; /* gate|up (or the only first product), and down */
    const char *why;
    uint64_t packed_bytes, file_bytes;
    int expanded;
};

#endif
