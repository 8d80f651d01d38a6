/* SPDX-License-Identifier: Apache-2.0 */
/* Step TILE_STEP of the unrolled k loop of tile.tmpl.h: each weight vector is loaded once and used for every row. */
SW_UNROLL for (int s = 0; s < W_SUBSTEPS; s++) {
    V w[TILE_NV];
    SW_UNROLL for (int j = 0; j < TILE_NV; j++) {
        const char *panel = j < 2 ? w0 : w1;
        w[j] = W_LOAD(panel + TILE_STEP * TILE_PANEL_BYTES + (size_t)((j & 1) * VL * W_LANE_BYTES), s);
        V_KEEP(w[j]);
    }
    SW_UNROLL for (int r = 0; r < TILE_MR; r++) {
        const V b = v_bcast(x + r * SWIGLU_RECORD_BYTES + (TILE_STEP * W_SUBSTEPS + W_SUBSTEPS - 1 - s) * 4);
        SW_UNROLL for (int j = 0; j < TILE_NV; j++) acc[r][j] = W_DOT(acc[r][j], w[j], b);
    }
}
#undef TILE_STEP
