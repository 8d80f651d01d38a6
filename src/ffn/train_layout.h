/* SPDX-License-Identifier: Apache-2.0 */
/* What backward keeps in its workspace, and the shapes of its products. */
#ifndef SWIGLU_TRAIN_LAYOUT_H
#define SWIGLU_TRAIN_LAYOUT_H

#include "ffn/tiles.h"
#include "ffn/train.h"

enum {
    SWIGLU_TURN_UNITS = 128,      /* hidden units of gate, then as many of up, in the depth of dx */
    SWIGLU_ROW_PADDING = 8, /* above any tile's rows without data */
    SWIGLU_BACK_SLICE = 512 << 10 /* bytes of weights that stay in L2 */
};

/* The products of one block of hidden units and one chunk of tokens. Rows x depth x outputs:
 *   gate_up tokens x d_in  x units      dh tokens x d_out x units      dx tokens x combined x d_in
 *   x       units  x tokens x d_in  (dWgate, dWup; the panels are x. With heads: their columns)
 *   h       d_out  x tokens x units (dWdown; the panels are h. With heads: its rows)
 *   d       d_in   x tokens x units (panels of dg and of du: their lanes are turned into rows for the products above, and for
 *           [in, out] matrices they are the panels)
 *   dy      units  x tokens x d_out (dWdown of an [in, out] matrix; the panels are dy)
 *   ones_*  units or d_out x tokens x 1 (biases) */
struct swiglu_back_products {
    struct swiglu_product gate_up, dh, dx, x, h, d, dy, ones_up, ones_down;
    struct swiglu_tiles tokens, units, outs, down, inputs; /* outs: columns of y; down: those whose weights are trained */
    size_t n_tokens, n_units;
};

struct swiglu_back_layout {
    size_t block_units, n_blocks, n_chunks; /* hidden units per block, blocks, token chunks */
    size_t x_row, dy_row, d_row;            /* bytes of staged rows of x, dy, and of dg and du */
    size_t rows;                            /* tokens of a chunk, padded */
    size_t block_bias;                      /* packed biases of a block of hidden units */
    size_t x_rows, dy_rows, x_panels, dy_turned, ones_up, ones_down, bias, gate, h, dg, du, d_rows, dg_turned,
        du_turned, dx_totals, total;
    size_t x_turned, dy_panels, h_turned; /* only where a gradient is computed the other way round; else 0 */
    size_t sums[3]; /* of the gradients of gate, up and down, [stored rows][stored columns] of f32, where they are needed */
    size_t scratch, scratch_bytes, totals_bytes, buffer_bytes; /* per thread: totals of a tile's panels, a slice of weights */
    size_t panel_bytes;
};

/* Depth of dx for n units: pairs do not straddle gate and up. */
size_t swiglu_back_depth(const struct swiglu_step *s, size_t n_units);
bool swiglu_back_products(const struct swiglu_step *s, size_t n_tokens, size_t n_units, struct swiglu_back_products *p);
bool swiglu_back_layout(const struct swiglu_step *s, unsigned n_threads, struct swiglu_back_layout *l);

#endif
