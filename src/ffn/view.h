/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of floats in memory with any two strides, and the one way from them into panels. */
#ifndef SWIGLU_VIEW_H
#define SWIGLU_VIEW_H

#include "ffn/desc.h"
#include "kern/kern.h"

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

/* Lanes [lane, lane + n_lanes) = rows, k = columns [k, k + n_k), to dst: a panel of that form at that first k and lane. k is a
 * multiple of the form's block. */
void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int form, char *dst);

#endif
