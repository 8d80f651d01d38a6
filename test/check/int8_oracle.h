/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 compute as docs/numerics.md defines it, as plainly as it can be written: rows of 32 values with one scale, one fold
 * per 32 k, chunks of 1024 k. Kernels must give these bits. Weights are read block by block as they lie in a file, through
 * dtype/part.h.
 */
#ifndef SWIGLU_INT8_ORACLE_H
#define SWIGLU_INT8_ORACLE_H

#include <stddef.h>
#include <stdint.h>

#include "dtype/part.h"

/* 32 staged values: x[i] is about q[i] d. s is the sum of all q, s1 that of the second 16; e = d s. */
struct oracle_int8 {
    int8_t q[32];
    float d, e;
    int32_t s, s1;
};

void oracle_int8_stage(const float x[32], struct oracle_int8 *staged);

/* k values of a row, a multiple of 32. */
void oracle_int8_stage_row(const float *x, size_t k, struct oracle_int8 *staged);

/* The integer of a fold: the sum of Q q, halves times their scales. Below 2^24 in magnitude. */
int32_t oracle_int8_sum(const struct swiglu_quant_part *w, const struct oracle_int8 *x);

/* acc after the fold of these 32 k. */
float oracle_int8_fold(const struct swiglu_quant_part *w, const struct oracle_int8 *x, float acc);

/* One output: a row of weights of a block format, k values (whole blocks), times a staged row. total is that of earlier
 * chunks and counts where add is set; k = 0 gives +0. No bias. */
float oracle_int8_chain(int dtype, const void *row, const struct oracle_int8 *x, size_t k, int add, float total);

#endif
