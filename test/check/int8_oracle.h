/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 compute as docs/numerics.md defines it, as plainly as it can be written: rows of 32 values with one scale, one fold
 * per 32 k, chunks of 1024 k. Kernels must give these bits. Weights are read block by block as they lie in a file, through
 * dtype/part.h.
 */
#ifndef SWIGLU_INT8_ORACLE_H
#define SWIGLU_INT8_ORACLE_H

#include <stddef.h>

#include "ref/int8.h" /* the rule of 32 values, and the integer of a fold */

/* k values of a row, a multiple of 32. */
void oracle_int8_stage_row(const float *x, size_t k, struct swiglu_int8_group *staged);

/* acc after the fold of these 32 k. */
float oracle_int8_fold(const struct swiglu_quant_part *w, const struct swiglu_int8_group *x, float acc);

/* One output: a row of weights of a block format, k values (whole blocks), times a staged row. total is that of earlier
 * chunks and counts where add is set; k = 0 gives +0. No bias. */
float oracle_int8_chain(int dtype, const void *row, const struct swiglu_int8_group *x, size_t k, int add, float total);

#endif
