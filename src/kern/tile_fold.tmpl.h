/* SPDX-License-Identifier: Apache-2.0 */
/* 32 k of tile_int8.tmpl.h: integer sums, then the fold. With Q_PAIRED a dword holds groups g and g + 4. */
VI sum[TILE_GROUP][TILE_VECTORS];
#if Q_KIND >= Q_HALVES
VI first[TILE_GROUP][TILE_VECTORS];
#endif
SW_UNROLL for (int r = 0; r < TILE_GROUP; r++) {
    const char *const q = x + r * SWIGLU_RECORD_BYTES;
#if Q_KIND >= Q_HALVES
    const VI second_sum = vi_bcast(q + SWIGLU_INT8_S1);
    const VI start = vi_mul_zero(second_sum, Q_ZERO);
    const VI start0 = vi_mul_zero(vi_sub(vi_bcast(q + SWIGLU_INT8_S), second_sum), Q_ZERO);
    SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) first[r][j] = start0;
#else
    const VI start = vi_mul_zero(vi_bcast(q + SWIGLU_INT8_S), Q_ZERO);
#endif
    SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[r][j] = start;
}
SW_UNROLL for (int i = 0; i < 8; i++) {
    const int g = Q_PAIRED ? i % 2 * 4 + i / 2 : i; /* ascending in memory, or the hardware fetches nothing ahead */
    VI weight[TILE_VECTORS];
    SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) {
        weight[j] = Q_GROUP(p, j0 + j, part, g);
        V_KEEP(weight[j]);
    }
    SW_UNROLL for (int r = 0; r < TILE_GROUP; r++) {
        const VI q = vi_bcast(x + r * SWIGLU_RECORD_BYTES + 4 * g);
#if Q_KIND >= Q_HALVES
        SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) {
            VI *const to = g < 4 ? &first[r][j] : &sum[r][j];
            *to = v_dot4(*to, weight[j], q);
        }
#elif defined(Q_ANY)
        SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[r][j] = v_dot4_any(sum[r][j], weight[j], q);
#else
        SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[r][j] = v_dot4(sum[r][j], weight[j], q);
#endif
    }
#if TILE_PREFETCH == 2
    if (i % (TILE_MR / TILE_GROUP) == 0) {
        SW_PREFETCH_L2(next_x);
        next_x += 64;
#include "kern/fetch.tmpl.h"
    }
#endif
}
SW_UNROLL for (int j = 0; j < TILE_VECTORS; j++) {
    const V a = Q_A(p, j0 + j, part);
#if Q_KIND == Q_MINIMUM
    const V b = Q_B(p, j0 + j, part);
#elif Q_KIND >= Q_HALVES
    const VI s0 = Q_S(p, j0 + j, part, 0), s1 = Q_S(p, j0 + j, part, 1);
#endif
#if Q_KIND == Q_HALVES_MIN
    const V am = Q_AM(p, j0 + j, part);
    const VI m0 = Q_M(p, j0 + j, part, 0), m1 = Q_M(p, j0 + j, part, 1);
#endif
    SW_UNROLL for (int r = 0; r < TILE_GROUP; r++) {
        const char *const q = x + r * SWIGLU_RECORD_BYTES;
        const V d = v_bcast(q + SWIGLU_INT8_D);
#if Q_KIND >= Q_HALVES
        sum[r][j] = vi_add(vi_mul(first[r][j], s0), vi_mul(sum[r][j], s1));
#endif
        acc[r][j] = v_fma(vi_to_f32(sum[r][j]), v_mul(a, d), acc[r][j]);
#if Q_KIND == Q_MINIMUM
        acc[r][j] = v_fma(b, v_bcast(q + SWIGLU_INT8_E), acc[r][j]);
#elif Q_KIND == Q_HALVES_MIN
        const VI second = vi_bcast(q + SWIGLU_INT8_S1), head = vi_sub(vi_bcast(q + SWIGLU_INT8_S), second);
        acc[r][j] = v_fnma(vi_to_f32(vi_add(vi_mul(m0, head), vi_mul(m1, second))), v_mul(am, d), acc[r][j]);
#endif
    }
}
