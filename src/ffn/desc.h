/* SPDX-License-Identifier: Apache-2.0 */
/* A checked description: what every later step may take for granted. */
#ifndef SWIGLU_DESC_H
#define SWIGLU_DESC_H

#include <stdbool.h>

#include "base/status.h"

/* Copies a caller's description and options with defaults filled in (ld_elems, bias dtypes), or says what is wrong with
 * them. Afterwards: widths, strides and dtypes fit together, no size overflows, unused matrices are empty. */
enum swiglu_status swiglu_desc_check(const struct swiglu_desc *in, struct swiglu_desc *out, struct swiglu_error *error);
/* E_UNSUPPORTED where the compute does not take the weights of a product. */
enum swiglu_status swiglu_desc_compute_check(const struct swiglu_desc *desc, int compute, struct swiglu_error *error);

enum swiglu_status swiglu_options_check(const struct swiglu_options *in, struct swiglu_options *out,
                                        struct swiglu_error *error);

static inline int swiglu_desc_is_packed(const struct swiglu_desc *d) {
    return d->layout == SWIGLU_GATE_UP || d->layout == SWIGLU_UP_GATE || d->layout == SWIGLU_INTERLEAVED;
}

/* Where the outputs of one half of the first product are stored: output i is row first + i * stride of matrix. */
struct swiglu_half {
    const struct swiglu_matrix *matrix;
    const struct swiglu_vector *bias;
    size_t first, stride;
    const struct swiglu_matrix *head; /* empty, or stored alike: what comes before the columns of matrix */
    bool head_rows;                   /* or, for down, before its rows */
};
/* Gate and up, or the only first product: how many there are. */
int swiglu_desc_halves(const struct swiglu_desc *d, struct swiglu_half halves[2]);
struct swiglu_half swiglu_desc_down(const struct swiglu_desc *d);

/* Heads are made of whole panels of every level, so that no panel or pair of depths straddles their end. */
enum { SWIGLU_HEAD_STEP = 32 };
bool swiglu_desc_has_heads(const struct swiglu_desc *d);
/* What a step trains: the head where there are heads. 0: gate, 1: up, 2: down. */
const struct swiglu_matrix *swiglu_desc_trained(const struct swiglu_desc *d, int which);

#endif
