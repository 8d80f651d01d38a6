/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tile of an int8 product: TILE_MR staged rows times one panel of a fmt_*.h. 32 k are one fold: the integer sum times the
 * scales of weights and row, as docs/numerics.md defines it.
 *
 * Parameters (defined before each inclusion, undefined at its end):
 *   TILE_NAME      the function
 *   TILE_MR        rows; TILE_GROUP of them and TILE_VECTORS of the panel's two vectors go through a chunk at once, so that
 *                  accumulators and sums fit the registers (literals: see tile.tmpl.h)
 *   TILE_PREFETCH  0 none, 1 the weight stream (few rows), 2 the next tile's rows and the next weights (many)
 */
#define TILE_PASSES ((2 / TILE_VECTORS) * (TILE_MR / TILE_GROUP))
#define TILE_LINES ((int)((Q_BLOCK_BYTES / Q_PARTS / TILE_PASSES + 63) / 64)) /* of weights, per 32 k of a pass */

SW_KERNEL void TILE_NAME(const struct swiglu_tile_args *t) {
    const char *record = t->x, *w = t->w0;
    size_t left = t->n_k;
    int add = t->add;
#if TILE_PREFETCH == 2
    const char *next_x = t->next_x;
#include "kern/fetch_begin.tmpl.h"
#endif
    do {
        const size_t n = left < SWIGLU_CHUNK ? left : SWIGLU_CHUNK, w_bytes = n / (32 * Q_PARTS) * Q_BLOCK_BYTES;
#if TILE_PREFETCH == 1
        const char *ahead = w + (TILE_PASSES == 1 ? TILE_AHEAD : w_bytes); /* each pass fetches its share of the next chunk */
#endif
        left -= n;
        SW_UNROLL for (int j0 = 0; j0 < 2; j0 += TILE_VECTORS) for (int r0 = 0; r0 < TILE_MR; r0 += TILE_GROUP) {
            const char *x = record + (size_t)r0 * SWIGLU_RECORD_BYTES, *p = w;
            V acc[TILE_GROUP][TILE_VECTORS];
            SW_UNROLL for (int r = 0; r < TILE_GROUP; r++)
                SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) acc[r][j] = v_set1(0.0f);
            for (size_t k = 0; k < n; k += 32 * Q_PARTS, p += Q_BLOCK_BYTES)
                for (unsigned turn = 0; turn < Q_PARTS / Q_TURN; turn++)
                    SW_UNROLL for (unsigned i_part = 0; i_part < Q_TURN; i_part++, x += SWIGLU_INT8_BYTES) {
                    const unsigned part = turn * Q_TURN + i_part;
                    (void)part;
#if TILE_PREFETCH == 1
                    SW_UNROLL for (int i = 0; i < TILE_LINES; i++) SW_PREFETCH_L2(ahead + 64 * i);
                    ahead += 64 * TILE_LINES;
#endif
#include "kern/tile_fold.tmpl.h"
                }
            float *const c = t->c + (r0 * 2 + j0) * VL;
            SW_UNROLL for (int r = 0; r < TILE_GROUP; r++) SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) {
                float *const to = c + (r * 2 + j) * VL;
                v_store(to, add ? v_add(v_load(to), acc[r][j]) : acc[r][j]);
            }
        }
        record += (size_t)TILE_MR * SWIGLU_RECORD_BYTES;
        w += w_bytes;
        add = 1;
    } while (left);
    if (t->store) KERN_FN(store)(t->store);
}

#undef TILE_PASSES
#undef TILE_LINES
#undef TILE_NAME
#undef TILE_MR
#undef TILE_GROUP
#undef TILE_VECTORS
#undef TILE_PREFETCH
#undef TILE_AHEAD
