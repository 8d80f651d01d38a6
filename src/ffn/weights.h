/* SPDX-License-Identifier: Apache-2.0 */
/* Packing a caller's matrices into panels. */
#ifndef SWIGLU_WEIGHTS_H
#define SWIGLU_WEIGHTS_H

#include "ffn/block.h"

struct swiglu_progress {
    int (*call)(void *ctx, uint64_t done, uint64_t total); /* or NULL */
    void *ctx;
    uint64_t done, total; /* bytes of weights at their size in the file */
};

/* Packs product p (its numbers are set, its memory is not) from one half, or from gate and up. Allocates p->data and
 * p->bias; swiglu_product_free frees them, also after an error. */
enum swiglu_status swiglu_product_pack(struct swiglu_product *p, const struct swiglu_kern *kern,
                                       const struct swiglu_half *halves, int n_halves, const char *name,
                                       struct swiglu_progress *progress, struct swiglu_error *error);
void swiglu_product_free(struct swiglu_product *p);

#endif
