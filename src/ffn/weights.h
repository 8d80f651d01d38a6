/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a caller's matrices into panels. */
#ifndef SWIGLU_WEIGHTS_H
#define SWIGLU_WEIGHTS_H

#include <stdbool.h>

#include "ffn/block.h"

struct swiglu_progress {
    int (*call)(void *ctx, uint64_t done, uint64_t total); /* or NULL */
    void *ctx;
    uint64_t done, total; /* bytes of weights at their size in the file */
};

/* Fills in the numbers of a product of depth p->k for p->n_units in weight form p->wt: steps, panels, bytes. two: a panel
 * holds gate and up. True means that a size overflows. */
bool swiglu_product_shape(struct swiglu_product *p, const struct swiglu_kern *kern, int two);

/* Packed biases of units [unit0, unit0 + p->n_units): [panels][2][vl]; without any, returns false and writes nothing. A half
 * without a bias beside one that has it gets -0, which changes no sum. */
bool swiglu_product_bias(const struct swiglu_product *p, unsigned vl, const struct swiglu_half *halves, int n_halves,
                         size_t unit0, float *bias);

/* Packs product p (its numbers are set, its memory is not) from one half, or from gate and up. Allocates p->data and
 * p->bias; swiglu_product_free frees them, also after an error. */
enum swiglu_status swiglu_product_pack(struct swiglu_product *p, const struct swiglu_kern *kern,
                                       const struct swiglu_half *halves, int n_halves, const char *name,
                                       struct swiglu_progress *progress, struct swiglu_error *error);
void swiglu_product_free(struct swiglu_product *p);

#endif
