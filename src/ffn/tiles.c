/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/tiles.h"

/* Few rows: one panel at a time, the smallest tile that holds them. Many rows: the large tile, and as few rows without
 * data as the small one allows; 512 rows are 84 x 6 + 2 x 4. */
struct swiglu_tiles swiglu_tiles_of(const struct swiglu_kern *kern, unsigned rows) {
    struct swiglu_tiles p = {.a = {kern->rows_many[0], 0, 0}, .b = {kern->rows_many[1], 0, 1}};
    if (rows <= 8) {
        uint8_t i = 0;
        while (kern->rows_few[i] < rows && i + 1 < SWIGLU_N_FEW && kern->rows_few[i + 1]) i++;
        p.a = p.b = (struct swiglu_shape){kern->rows_few[i], 1, i};
        p.n_a = (rows + p.a.mr - 1) / p.a.mr;
        return p;
    }
    const unsigned a = p.a.mr, b = p.b.mr;
    unsigned best = UINT32_MAX;
    for (unsigned n_b = 0; n_b < a && n_b * b < rows + b; n_b++) { /* more than a - 1 small tiles never help */
        const unsigned left = n_b * b < rows ? rows - n_b * b : 0, n_a = (left + a - 1) / a;
        const unsigned padding = n_a * a + n_b * b - rows;
        if (padding < best) best = padding, p.n_a = n_a, p.n_b = n_b;
    }
    return p;
}
