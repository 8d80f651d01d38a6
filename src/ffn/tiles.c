/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/tiles.h"

#include <limits.h>

/* Time of a tile in rows: below 2 it waits for its weights, which lie in L2 from the second tile on. */
static unsigned cost_of(unsigned mr) { return mr < 2 ? 2 : mr; }

/* n tiles of shape i, then at most two more for the rest. */
static unsigned try_few(const struct swiglu_kern *kern, unsigned rows, uint8_t i, unsigned n, struct swiglu_tiles *p) {
    const unsigned done = n * kern->rows_few[i], left = done < rows ? rows - done : 0;
    unsigned best = UINT_MAX;
    *p = (struct swiglu_tiles){.shape = {{kern->rows_few[i], 1, i}}, .n = {n}};
    if (!left) return 2 * n * cost_of(kern->rows_few[i]) + n;
    for (uint8_t j = 0; j < SWIGLU_N_FEW && kern->rows_few[j]; j++)
        for (int k = -1; k <= j; k++) {
            const unsigned a = kern->rows_few[j], b = k < 0 ? 0 : kern->rows_few[k];
            const unsigned cost = 2 * (cost_of(a) + (b ? cost_of(b) : 0)) + 1 + (b != 0);
            if (a + b < left || cost >= best) continue;
            best = cost;
            p->shape[1] = (struct swiglu_shape){a, 1, j}, p->n[1] = 1;
            p->shape[2] = (struct swiglu_shape){b, 1, k < 0 ? 0 : (uint8_t)k}, p->n[2] = b != 0;
        }
    return best == UINT_MAX ? best : best + 2 * n * cost_of(kern->rows_few[i]) + n;
}

/* They read the weights as one linear stream, which the hardware follows, and are through a panel before tiles of many rows
 * have fetched theirs. One tile where one can hold the rows: the first is as fast as memory, any further costs its time.
 * Of plans that cost the same, the one of fewer tiles. */
static struct swiglu_tiles few(const struct swiglu_kern *kern, unsigned rows) {
    struct swiglu_tiles p = {0}, t;
    unsigned best = UINT_MAX;
    for (uint8_t i = 0; i < SWIGLU_N_FEW && kern->rows_few[i]; i++)
        if (kern->rows_few[i] >= rows) return (struct swiglu_tiles){.shape = {{kern->rows_few[i], 1, i}}, .n = {1}};
    for (uint8_t i = 0; i < SWIGLU_N_FEW && kern->rows_few[i]; i++)
        for (unsigned n = rows / kern->rows_few[i]; n <= rows / kern->rows_few[i] + 1; n++) {
            const unsigned cost = n ? try_few(kern, rows, i, n, &t) : best;
            if (cost < best) best = cost, p = t;
        }
    return p;
}

/* The large tile, and as few rows without data as the small one allows: 512 rows are 84 x 6 + 2 x 4. */
static struct swiglu_tiles many(const struct swiglu_kern *kern, unsigned rows) {
    struct swiglu_tiles p = {.shape = {{kern->rows_many[0], 0, 0}, {kern->rows_many[1], 0, 1}}};
    const unsigned a = kern->rows_many[0], b = kern->rows_many[1];
    unsigned best = UINT_MAX;
    for (unsigned n_b = 0; n_b < a && n_b * b < rows + b; n_b++) { /* more than a - 1 small tiles never help */
        const unsigned left = n_b * b < rows ? rows - n_b * b : 0, n_a = (left + a - 1) / a;
        const unsigned padding = n_a * a + n_b * b - rows;
        if (padding < best) best = padding, p.n[0] = n_a, p.n[1] = n_b;
    }
    return p;
}

struct swiglu_tiles swiglu_tiles_of(const struct swiglu_kern *kern, unsigned rows) {
    return rows <= kern->few ? few(kern, rows) : many(kern, rows);
}
