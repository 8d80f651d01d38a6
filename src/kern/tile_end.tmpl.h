/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a chunk in tile.tmpl.h: totals of earlier chunks are added, and the sums stored. */
float *const c = t->c;
if (add) {
    SW_UNROLL for (int r = 0; r < TILE_MR; r++)
        SW_UNROLL for (int j = 0; j < TILE_NV; j++)
            acc[r][j] = v_add(v_load(c + (r * TILE_NV + j) * VL), acc[r][j]);
}
#if TILE_PREFETCH == 2
if (done == n_steps && t->store && epi_is_plain(t->store, TILE_MR, TILE_NV)) {
#define TILE_DTYPE SWIGLU_F32
#include "kern/tile_store.tmpl.h"
#define TILE_DTYPE SWIGLU_BF16
#include "kern/tile_store.tmpl.h"
}
#endif
SW_UNROLL for (int r = 0; r < TILE_MR; r++)
    SW_UNROLL for (int j = 0; j < TILE_NV; j++) v_store(c + (r * TILE_NV + j) * VL, acc[r][j]);
