/* SPDX-License-Identifier: Apache-2.0 */
/* One product of a block: its numbers, its panels, its packed biases. pack.c fills the panels. */
#ifndef SWIGLU_PRODUCT_H
#define SWIGLU_PRODUCT_H

#include <stdbool.h>

#include "ffn/desc.h"
#include "kern/kern.h"

struct swiglu_product {
    const struct swiglu_path *path; /* of the block's table */
    size_t k;                       /* depth: d_in, or d_ff */
    size_t n_units;                 /* hidden units, or columns of y */
    size_t units_per_panel;         /* vl where a panel holds gate and up, else 2 vl */
    size_t n_panels;                /* that hold units; memory is padded to what a tile of many rows reads */
    size_t panel_bytes, data_bytes;
    char *data;
    float *bias;                    /* [panels][2][vl], or NULL */
};

/* Fills in the numbers of a product of depth p->k for p->n_units on p->path. two: a panel holds gate and up. True means that
 * a size overflows. */
bool swiglu_product_shape(struct swiglu_product *p, const struct swiglu_kern *kern, int two);

/* Lanes of all panels, those that pad them to a tile's panels among them. */
static inline size_t swiglu_product_lanes(const struct swiglu_product *p, unsigned vl) {
    return p->data_bytes / p->panel_bytes * 2 * vl;
}

/* Packed biases of units [unit0, unit0 + p->n_units): [panels][2][vl]; without any, returns false and writes nothing. A half
 * without a bias beside one that has it gets -0, which changes no sum. */
bool swiglu_product_bias(const struct swiglu_product *p, unsigned vl, const struct swiglu_half *halves, int n_halves,
                         size_t unit0, float *bias);

/* Allocates p->data and p->bias (the numbers are set) and fills the biases; swiglu_product_free frees them, also after an
 * error. */
enum swiglu_status swiglu_product_allocate(struct swiglu_product *p, const struct swiglu_kern *kern,
                                           const struct swiglu_half *halves, int n_halves, const char *name,
                                           struct swiglu_error *error);
void swiglu_product_free(struct swiglu_product *p);

/* Lane `slot` (of 2 vl) of the panel of a unit, as k values of a float dtype, rounded once where that is narrower. */
void swiglu_product_unpack(const struct swiglu_product *p, const struct swiglu_kern *kern, size_t unit, size_t slot,
                           int dtype, char *dst);

#endif
