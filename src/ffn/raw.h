/* SPDX-License-Identifier: Apache-2.0 */
/* Raw row-major weights as a training step reads them: packed a slice at a time into a buffer that stays in L2. */
#ifndef SWIGLU_RAW_H
#define SWIGLU_RAW_H

#include "ffn/block.h"
#include "ffn/desc.h"

/* Values with any two strides; rows become lanes, columns depths. */
struct swiglu_grid {
    const char *data;
    int dtype; /* f32, f16, bf16 */
    size_t row, col; /* elements from one row to the next, and from one column to the next */
};

/* A matrix, whose first rows or first columns may lie elsewhere. */
struct swiglu_view {
    struct swiglu_grid main, head;
    size_t head_rows, head_cols; /* one of them is 0 */
};

/* Rows are the outputs of a half, or of down; columns are the inputs. */
struct swiglu_view swiglu_view_half(const struct swiglu_half *half);
struct swiglu_view swiglu_view_turn(struct swiglu_view v); /* rows and columns exchanged */

/* Lanes [lane, lane + n_lanes) = rows, k = columns [k, k + n_k), to dst: a panel of that form at that first k and lane. */
void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst);

/* The weights of a product. */
struct swiglu_raw {
    struct swiglu_view view[2];
    unsigned n_views;   /* 2: gate and up */
    size_t row, col;    /* where the product begins in the views */
    size_t run;         /* 0: a panel holds a vector of lanes of each view. Else, for dx: the views share all lanes and take
                           turns along k, `run` columns each */
    size_t n_cols;      /* with run: columns of each view */
};

/* Depth at which view `half` begins its turn that starts at column `col`: pairs do not straddle two views. */
size_t swiglu_raw_turn(const struct swiglu_raw *raw, int form, size_t col, int half);

/* Packs depths [k, k + n_k) of n_panels panels from `panel` on, one panel after the other. With runs the slice is
 * the whole depth. */
void swiglu_raw_pack(const struct swiglu_raw *raw, const struct swiglu_kern *kern, const struct swiglu_product *product,
                     size_t panel, size_t n_panels, size_t k, size_t n_k, char *dst);

/* Aims the prefetch of tile i of n at a part of that slice's raw bytes, so that together they cover it. */
void swiglu_raw_aim(const struct swiglu_raw *raw, const struct swiglu_product *product, size_t panel, size_t n_panels,
                    size_t k, size_t n_k, size_t i, size_t n, struct swiglu_tile_args *args);

#endif
