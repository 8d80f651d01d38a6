/* SPDX-License-Identifier: Apache-2.0 */
/* y = block(x) over tickets. */
#ifndef SWIGLU_FORWARD_H
#define SWIGLU_FORWARD_H

#include <stdbool.h>

#include "ffn/block.h"
#include "ffn/raw.h"

enum { SWIGLU_ROW_BLOCK = 512 }; /* rows that share one pass over the weights; bounds the workspace */

/* What a training step adds: weights that are still raw (the block then has shapes and biases only), and gate and up of all
 * rows kept in saved (before clamps, biases added): rows of d_ff, or gated of d_ff gate and then d_ff up. */
struct swiglu_forward_train {
    struct swiglu_raw up, down;
    float *saved; /* or NULL */
};

/* train may be NULL. True means that the size overflows. */
bool swiglu_forward_size(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                         unsigned n_threads, size_t *bytes);

/* Everything was checked: m > 0, widths and strides fit, work is large enough. */
void swiglu_forward_run(const struct swiglu_block *block, const struct swiglu_forward_train *train, size_t m,
                        struct swiglu_crows x, struct swiglu_rows y, void *work, const struct swiglu_runner *runner);

#endif
