/* SPDX-License-Identifier: Apache-2.0 */
/* The end of tile.tmpl.h where totals become rows of TILE_DTYPE and only have to be rounded: from registers to memory. Values
 * that the quick conversion rounds in another way than the rule go the long way, through c and the store kernel. */
if (t->store->dtype == TILE_DTYPE) {
    char *row = t->store->y;
    int odd = 0;
    SW_UNROLL for (int r = 0; r < TILE_MR; r++)
        SW_UNROLL for (int j = 0; j < TILE_NV; j += 2) odd |= epi_is_odd(acc[r][j], acc[r][j + 1], TILE_DTYPE);
    if (!odd) {
        SW_UNROLL for (int r = 0; r < TILE_MR; r++, row += t->store->ld_bytes)
            SW_UNROLL for (int j = 0; j < TILE_NV; j += 2)
                epi_put_quick(row + j * VL * (TILE_DTYPE == SWIGLU_F32 ? 4 : 2), acc[r][j], acc[r][j + 1], TILE_DTYPE);
        return;
    }
}
#undef TILE_DTYPE
