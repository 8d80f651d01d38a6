/* SPDX-License-Identifier: Apache-2.0 */
/* One product over a range of panels and row tiles: the loop order that all of forward and backward share. */
#ifndef SWIGLU_PASS_H
#define SWIGLU_PASS_H

#include "ffn/block.h"
#include "ffn/tiles.h"
#include "ffn/weights.h"

struct swiglu_pass;

/* The totals of one tile are complete: c is [mr][vectors][vl], for tile number `tile` of the row plan, from panel on. */
typedef void swiglu_finish_fn(void *ctx, const struct swiglu_pass *pass, unsigned tile, size_t panel, const float *c);

/* What a tile and its finish will touch, to be fetched meanwhile. */
struct swiglu_fetches {
    size_t n;
    struct swiglu_fetch at[8];
};
static inline void swiglu_fetch_add(struct swiglu_fetches *l, const void *at, size_t rows, size_t stride, size_t bytes) {
    if (rows && bytes) l->at[l->n++] = (struct swiglu_fetch){at, bytes, rows, stride};
}

/* Called before the tile that completes the totals; finish follows it. Adds at most 6 runs. */
typedef void swiglu_aim_fn(void *ctx, const struct swiglu_pass *pass, unsigned tile, size_t panel, struct swiglu_fetches *list);

/* A matrix that the totals become: its rows are those of the pass, its columns the units of the product. */
struct swiglu_result {
    char *y; /* row 0, column 0 */
    int dtype;
    size_t ld_bytes, n_rows;
    const float *bias; /* NULL, or as the product's panels lie */
    const float *sum;  /* NULL, or row 0, column 0 of what is added, from row to row sum_bytes */
    size_t sum_bytes;
};

struct swiglu_pass {
    const struct swiglu_kern *kern;
    struct swiglu_weights weights;
    const struct swiglu_tiles *rows;
    const char *staged;      /* tiles of rows; row r begins row_bytes * r after it */
    size_t row_bytes;
    size_t slice_bytes;      /* of a tile's panels that stay in L2 while the row tiles pass over them */
    size_t panel, panel_end; /* whole tiles' panels */
    unsigned tile, tile_end;
    float *scratch;          /* for the pass's rows x vectors of a tile */
    float *totals;           /* NULL, or totals that outlive the pass: [panel group][row][vectors][vl], rows_padded rows */
    size_t rows_padded;
    int add;                 /* totals hold sums of earlier chunks */
    const struct swiglu_result *result; /* NULL: the totals go to finish, or only they are wanted */
    swiglu_finish_fn *finish;           /* or NULL */
    swiglu_aim_fn *aim;                 /* NULL: nothing to fetch for finish */
    void *ctx;
};

void swiglu_pass_run(const struct swiglu_pass *pass);

/* Panels per ticket for about a tenth of a millisecond, in multiples of a tile's panels; one thread takes all at once. */
size_t swiglu_pass_panels(const struct swiglu_product *product, const struct swiglu_tiles *rows, size_t n_rows,
                          unsigned n_threads);

#endif
