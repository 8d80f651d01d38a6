/* SPDX-License-Identifier: Apache-2.0 */
/* y = block(x) over tickets. */
#ifndef SWIGLU_FORWARD_H
#define SWIGLU_FORWARD_H

#include <stdbool.h>

#include "ffn/block.h"

enum { SWIGLU_ROW_BLOCK = 512 }; /* rows that share one pass over the weights; bounds the workspace */

/* True means that the size overflows. */
bool swiglu_forward_size(const struct swiglu_block *block, size_t m, unsigned n_threads, size_t *bytes);

/* Everything was checked: m > 0, widths and strides fit, work is large enough. */
void swiglu_forward_run(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                        void *work, const struct swiglu_runner *runner);

/* The same, and gate and up of all rows (before clamps, biases added) are kept: rows of d_ff, or gated of d_ff gate and then
 * d_ff up. saved may be NULL. */
void swiglu_forward_saving(const struct swiglu_block *block, size_t m, struct swiglu_crows x, struct swiglu_rows y,
                           float *saved, void *work, const struct swiglu_runner *runner);

#endif
