/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 compute (docs/numerics.md): the rule by which 32 values become integers with one scale, exactly as kernels must
 * apply it; and one product of it in double precision, with what its bound is made of.
 */
#ifndef SWIGLU_REF_INT8_H
#define SWIGLU_REF_INT8_H

#include <stddef.h>
#include <stdint.h>

#include "dtype/part.h"

/* 32 values: x[i] is about q[i] d. s is the sum of all q, s1 that of the second 16; e = d s. */
struct swiglu_int8_group {
    int8_t q[32];
    float d, e;
    int32_t s, s1;
};

void swiglu_int8_stage(const float x[32], struct swiglu_int8_group *g);

/* The integer of a fold: the sum of Q q, halves times their scales. Below 2^24 in magnitude. */
int32_t swiglu_int8_sum(const struct swiglu_quant_part *w, const int8_t q[32]);

/* The same, where the values are known up to errors only. */
struct swiglu_ref_group {
    int8_t q[32];
    int32_t s, s1;
    double d, e;
};

/* Exact values. */
void swiglu_ref_int8_enter(const float x[32], struct swiglu_ref_group *g);

/* Values h with an error each become q d with an error each: steps where h or the scale may carry it across rounding
 * boundaries. Two kinds of errors at once. 0: so large that f32 may overflow later on. */
int swiglu_ref_int8_round(const double h[32], double *const error[2], struct swiglu_ref_group *g);

/* One row of weights times one row of k values. The magnitude is that of the folds; 0 in sure: f32 may overflow. */
struct swiglu_ref_folds {
    double value, magnitude;
    int sure;
};
struct swiglu_ref_folds swiglu_ref_int8_dot(const struct swiglu_quant_part *w, const struct swiglu_ref_group *x, size_t k);

/* What errors of the k values come to; infinite where the class of the result hangs on one. growth is that of the folds. */
double swiglu_ref_int8_carried(const struct swiglu_quant_part *w, const double *error, size_t k, double growth);

/* Relative growth of rounding errors over the folds, in the worst case or as it usually is, and absolute loss to underflow. */
double swiglu_ref_int8_growth(const struct swiglu_quant_part *w, size_t k, int typical);
double swiglu_ref_int8_underflow(size_t k);

#endif
