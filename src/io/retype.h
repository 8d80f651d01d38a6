/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on their way from one type to another: decoded, encoded, compared. */
#ifndef SWIGLU_RETYPE_H
#define SWIGLU_RETYPE_H

#include "swiglu/model.h"

/* A piece of a tensor, chunk by chunk. */
struct swiglu_retype {
    const struct swiglu_model *model;
    size_t tensor;
    int from, to;
    float *values, *back; /* room for a chunk each */
    uint64_t n;           /* values so far, and what became of those that are finite */
    double squares, error_squares, largest_error;
};

/* n values, whole blocks of both types, which begin at byte `at` of the tensor. E_UNSUPPORTED: a value that the type cannot
 * hold, by name. */
enum swiglu_status swiglu_retype_chunk(struct swiglu_retype *r, uint64_t at, const void *in, size_t n, void *out,
                                       struct swiglu_error *error);

/* The piece is complete; tells the caller of the conversion. */
void swiglu_retype_report(const struct swiglu_retype *r, const struct swiglu_convert_options *options);

#endif
