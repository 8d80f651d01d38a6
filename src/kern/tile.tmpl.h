/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tile of a product: TILE_MR staged rows times TILE_PANELS packed panels, totals in c or in rows of a matrix.
 *
 * Parameters (defined before each inclusion, undefined at its end):
 *   TILE_NAME      the function
 *   TILE_MR        rows, a literal: GCC keeps accumulators in registers only for literal array sizes
 *   TILE_PANELS    1 or 2 adjacent panels, two vectors each
 *   TILE_PREFETCH  0 none (up to 4 rows the hardware prefetcher is best alone), 1 the weight stream 16 KB ahead (few rows
 *                  that keep it waiting), 2 the next tile's rows and the next weights, a line per two steps (many rows)
 * and from a wt_*.h: W_K_STEP, W_LANE_BYTES, W_SUBSTEPS (staged elements a step reads, highest k first), W_LOAD(p, s)
 *   a vector of weights for substep s, W_DOT(acc, w, x), W_ENTER, W_LEAVE and W_PIN2/W_PIN4 around a chain.
 * Tested combinations: test/check runs every function that a table names.
 */
#define TILE_NV (2 * TILE_PANELS)
#define TILE_PANEL_BYTES ((size_t)(2 * VL * W_LANE_BYTES)) /* of one step */
#if TILE_PANELS == 2
#define TILE_PIN(row) W_PIN4(row[0], row[1], row[2], row[3])
#else
#define TILE_PIN(row) W_PIN2(row[0], row[1])
#endif

SW_KERNEL void TILE_NAME(const struct swiglu_tile_args *t) {
    const size_t chunk_steps = SWIGLU_CHUNK / W_K_STEP, record_steps = SWIGLU_RECORD / W_SUBSTEPS;
    const char *record = t->x, *w0 = t->w0;
    const size_t n_steps = (t->n_k + W_K_STEP - 1) / W_K_STEP;
    size_t done = 0;
#if TILE_PANELS == 2
    const char *w1 = t->w1;
#else
    const char *const w1 = w0; /* never read */
#endif
#if TILE_PREFETCH == 2
    const char *next_x = t->next_x;
#include "kern/fetch_begin.tmpl.h"
#endif
    V acc[TILE_MR][TILE_NV];
    do {
        size_t chunk = n_steps - done < chunk_steps ? n_steps - done : chunk_steps;
        const int add = done ? 1 : t->add;
        done += chunk;
        SW_UNROLL for (int r = 0; r < TILE_MR; r++)
            SW_UNROLL for (int j = 0; j < TILE_NV; j++) acc[r][j] = v_set1(0.0f);
        W_ENTER();
        SW_UNROLL for (int r = 0; r < TILE_MR; r++) TILE_PIN(acc[r]);
        while (chunk) {
            const char *x = record;
            size_t n = chunk < record_steps ? chunk : record_steps;
            chunk -= n;
            record += (size_t)TILE_MR * SWIGLU_RECORD_BYTES;
            for (; n >= 2; n -= 2) { /* unroll 1 costs 3 % on Zen 4, 4 and more spill */
#if TILE_PREFETCH == 1
                SW_UNROLL for (size_t i = 0; i < 2 * TILE_PANEL_BYTES; i += 64) SW_PREFETCH_L2(w0 + 16384 + i);
#elif TILE_PREFETCH == 2
                SW_UNROLL for (int s = 0; s < W_SUBSTEPS; s++) SW_PREFETCH_L2(next_x + 64 * s); /* a tile is soon through */
                next_x += 64 * W_SUBSTEPS;
#include "kern/fetch.tmpl.h"
#endif
#define TILE_STEP 0
#include "kern/tile_step.tmpl.h"
#define TILE_STEP 1
#include "kern/tile_step.tmpl.h"
                x += 2 * W_SUBSTEPS * 4;
                w0 += 2 * TILE_PANEL_BYTES;
#if TILE_PANELS == 2
                w1 += 2 * TILE_PANEL_BYTES;
#endif
            }
            if (n) { /* only at the end of k */
#define TILE_STEP 0
#include "kern/tile_step.tmpl.h"
            }
        }
        SW_UNROLL for (int r = 0; r < TILE_MR; r++) TILE_PIN(acc[r]);
        W_LEAVE();
        SW_UNROLL for (int r = 0; r < TILE_MR; r++) TILE_PIN(acc[r]);
#include "kern/tile_end.tmpl.h"
    } while (done < n_steps);
    if (t->store) KERN_FN(store)(t->store);
}

#undef TILE_PANEL_BYTES
#undef TILE_PIN
#undef TILE_NV
#undef TILE_NAME
#undef TILE_MR
#undef TILE_PANELS
#undef TILE_PREFETCH
