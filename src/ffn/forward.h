/* SPDX-License-Identifier: Apache-2.0 */
/* y = block(x) over tickets. */
#ifndef SWIGLU_FORWARD_H
#define SWIGLU_FORWARD_H

#include <stdbool.h>

#include "base/checked.h"
#include "ffn/block.h"
#include "ffn/weights.h"

enum { SWIGLU_ROW_BLOCK = 512 }; /* rows that share one pass over the weights; bounds the workspace */

/* What a training step adds: weights that are still raw (the block then has shapes and biases only), and gate and up of all
 * rows kept in saved: the totals of the first product just as its tiles leave them (before biases and clamps), one row
 * block after the other. */
struct swiglu_forward_train {
    struct swiglu_raw first, down;
    float *saved; /* or NULL */
};

/* Room for kept totals: rows and units are padded to more than any level's tiles, so that the size depends on no level.
 * Values of a row (d_ff was checked), and rows of a row block. */
enum { SWIGLU_KEPT_ROW_STEP = 8, SWIGLU_KEPT_UNIT_STEP = 64 };
static inline size_t swiglu_kept_per_row(size_t d_ff, int gated) {
    return (gated ? 2 : 1) * swiglu_ceil_div(d_ff, SWIGLU_KEPT_UNIT_STEP) * SWIGLU_KEPT_UNIT_STEP;
}
static inline size_t swiglu_kept_rows(size_t rows) {
    return swiglu_ceil_div(rows, SWIGLU_KEPT_ROW_STEP) * SWIGLU_KEPT_ROW_STEP;
}

/* train may be NULL. True means that the size overflows. */
bool swiglu_forward_size(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                         unsigned n_threads, size_t *bytes);

/* Everything was checked: m > 0, widths and strides fit, work is large enough. */
void swiglu_forward_run(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                        struct swiglu_crows x, struct swiglu_rows y, void *work, const struct swiglu_runner *runner);

/* The two halves of a forward, with its workspace. h is f32, or bf16 (no other) where down computes in bf16. */
void swiglu_hidden_run(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows h, void *work,
                       const struct swiglu_runner *runner);
void swiglu_down_run(const struct swiglu_block *block, size_t m, struct swiglu_crows h, struct swiglu_rows y, void *work,
                     const struct swiglu_runner *runner);

#endif
