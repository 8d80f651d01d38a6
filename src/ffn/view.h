/* SPDX-License-Identifier: Apache-2.0 */
/* A raw matrix as training sees it: any two strides, packed into panels from either side. */
#ifndef SWIGLU_VIEW_H
#define SWIGLU_VIEW_H

#include "ffn/block.h"
#include "ffn/desc.h"

struct swiglu_view {
    const char *data;
    int dtype; /* f32, f16, bf16 */
    size_t row, col; /* elements from one row (output, or token) and from one column (input) to the next */
};

/* Rows are the outputs of a half, or of down; columns are the inputs. */
struct swiglu_view swiglu_view_half(const struct swiglu_half *half);
struct swiglu_view swiglu_view_turn(struct swiglu_view v); /* rows and columns exchanged */

/* Lanes [lane, lane + n_lanes) = rows, k = columns [k, k + n_k), to dst: a panel of form wt at that first k and lane. */
void swiglu_view_pack(const struct swiglu_kern *kern, struct swiglu_view v, size_t lane, size_t n_lanes, size_t k, size_t n_k,
                      int wt, char *dst);

#endif
