/* SPDX-License-Identifier: Apache-2.0 */
/* Where a pass gets the weights of a product from, a slice at a time. */
#ifndef SWIGLU_WEIGHTS_H
#define SWIGLU_WEIGHTS_H

#include "ffn/product.h"
#include "ffn/view.h"

enum swiglu_weights_kind {
    SWIGLU_PACKED, /* the product's panels lie in memory */
    SWIGLU_OPENED, /* likewise, in a form that tiles of many rows do not read: slices are opened into a buffer */
    SWIGLU_RAW     /* they are packed from row-major weights into a buffer that stays in L2 */
};

/* Row-major weights of a product, as a training step reads them. */
struct swiglu_raw {
    struct swiglu_view view[2];
    unsigned n_views;   /* 2: gate and up */
    size_t row, col;    /* where the product begins in the views */
    size_t turn;        /* 0: a panel holds a vector of lanes of each view. Else, for dx: the views share all lanes and take
                           turns along k, `turn` columns each */
    size_t n_cols;      /* with turns: columns of each view */
};

/* Depth at which view `half` begins its turn that starts at column `col`: pairs do not straddle two views. */
size_t swiglu_raw_turn(const struct swiglu_raw *raw, int form, size_t col, int half);

struct swiglu_weights {
    int kind; /* enum swiglu_weights_kind */
    const struct swiglu_product *product;
    struct swiglu_raw raw;
    char *buffer; /* of the thread, swiglu_weights_buffer bytes; none for PACKED */
};

/* Whether tiles of this shape read another form than that of the panels. */
static inline int swiglu_weights_open(const struct swiglu_path *path, const struct swiglu_shape *shape) {
    return (shape->few ? path->few_form : path->slice_form) != path->form;
}

/* Depths [k, k + n) of adjacent panels: where a tile finds them. */
struct swiglu_slice {
    size_t panel, k, n;
    const char *w0, *w1;
};

/* Bytes of a buffer for slices of about slice_bytes: whole chunks, at least one. */
size_t swiglu_weights_buffer(const struct swiglu_product *product, unsigned vl, size_t slice_bytes);

/* Brings a slice; with turns it is the whole depth. A slice in a buffer is gone with the next one. */
struct swiglu_slice swiglu_weights_slice(const struct swiglu_weights *s, const struct swiglu_kern *kern, size_t panel,
                                        size_t panels, size_t k, size_t n);

/* Aims the prefetch of tile i of n at its part of what slice `next` (w0 and w1 unset; NULL: there is none) will read, so that
 * together they cover it. */
void swiglu_weights_aim(const struct swiglu_weights *s, const struct swiglu_kern *kern, const struct swiglu_slice *next,
                       size_t panels, size_t i, size_t n, struct swiglu_tile_args *args);

#endif
