/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the totals of a tile: hidden (bias, clamps, activation, times up, rounded to the form of h) and store
 * (bias, canonical NaN, rounded to y). They run once per output where the k loop runs k times, so they read the totals
 * back from the tile's scratch, and the activation is a switch made from act.def outside the loops.
 *
 * Parameters: HIDDEN_NAME, STORE_NAME, ACT_NAME (the functions); the primitives of a vec_*.h; act.tmpl.h before.
 */

SW_ALWAYS_INLINE V epi_canonical(V a) { return v_select(v_is_nan(a), v_from_bits(vi_set1(0x7FC00000)), a); }

/* The two named roundings of base/half.h, in the high half of each lane. */
SW_ALWAYS_INLINE VI epi_bf16_store(V a) {
    const VI u = v_bits(epi_canonical(a));
    return vi_and(vi_add(u, vi_add(vi_set1(0x7FFF), vi_and(vi_shr(u, 16), vi_set1(1)))), vi_set1((int)0xFFFF0000));
}
SW_ALWAYS_INLINE V epi_bf16_staging(V a) {
    const VM tiny = vi_is_zero(vi_and(v_bits(a), vi_set1(0x7F800000)));
    return v_select(tiny, act_signed_zero(a), v_from_bits(epi_bf16_store(a)));
}

SW_ALWAYS_INLINE void epi_put_hidden(char *h, int x, V a) {
#if defined(V_STORE_BF16_STAGING)
    if (x == SWIGLU_X_BF16_PAIR) {
        V_STORE_BF16_STAGING(h, a);
        return;
    }
#endif
    v_store(h, x == SWIGLU_X_F32 ? a : epi_bf16_staging(a));
}

/* One loop for every activation: f and kind are literals at each call, so it is compiled once per row of act.def. */
SW_ALWAYS_INLINE void epi_hidden_loop(const struct swiglu_hidden_args *t, V (*f)(V, const struct swiglu_act *), int kind) {
    const struct swiglu_act *const act = t->act;
    const V gate_lo = v_set1(act->gate_lo), gate_hi = v_set1(act->gate_hi);
    const V up_lo = v_set1(act->up_lo), up_hi = v_set1(act->up_hi), offset = v_set1(act->up_offset);
    const unsigned stride = t->gated ? 2 : 1;
    const size_t out_bytes = t->x == SWIGLU_X_BF16_PAIR ? 2 * VL : 4 * VL;
    for (unsigned r = 0; r < t->mr; r++) {
        const float *c = t->c + (size_t)r * t->vectors * VL;
        char *h = t->h + (size_t)r * SWIGLU_RECORD_BYTES;
        for (unsigned j = 0; j < t->vectors; j += stride) {
            V g = v_load(c + j * VL);
            if (t->bias) g = v_add(g, v_load(t->bias + j * VL));
            if (!act->clamp_after) g = v_min(gate_hi, v_max(gate_lo, g));
            V a = f(g, act);
            if (act->clamp_after) a = v_min(gate_hi, v_max(gate_lo, a));
            if (t->gated) {
                V u = v_load(c + (j + 1) * VL);
                if (t->bias) u = v_add(u, v_load(t->bias + (j + 1) * VL));
                u = v_min(up_hi, v_max(up_lo, u));
                if (kind == SWIGLU_ACT_SITU) u = act_situ_up(u, act);
                if (act->up_offset != 0) u = v_add(u, offset);
                a = v_mul(a, u);
            }
            const size_t first = (size_t)(j / stride) * VL;
            if (first + VL > t->valid) a = v_keep_first(a, t->valid > first ? t->valid - first : 0);
            epi_put_hidden(h, t->x, a);
            h += out_bytes;
        }
    }
}

SW_KERNEL void HIDDEN_NAME(const struct swiglu_hidden_args *t) {
    switch (t->act->kind) {
#define ACT(KIND, name) \
    case SWIGLU_ACT_##KIND: epi_hidden_loop(t, act_##name, SWIGLU_ACT_##KIND); break;
#include "kern/act.def"
#undef ACT
    }
}

SW_KERNEL void STORE_NAME(const struct swiglu_store_args *t) {
    for (unsigned r = 0; r < t->rows; r++) {
        const float *c = t->c + (size_t)r * t->vectors * VL;
        char *y = (char *)t->y + r * t->ld_bytes;
        for (unsigned j = 0; j < t->vectors && (size_t)j * VL < t->valid; j++) {
            const size_t n = t->valid - (size_t)j * VL;
            V a = v_load(c + j * VL);
            if (t->bias) a = v_add(a, v_load(t->bias + j * VL));
            a = epi_canonical(a);
            if (t->dtype == SWIGLU_F32)
                v_store_first(y + (size_t)j * VL * 4, a, n);
            else
                vi_store16_first(y + (size_t)j * VL * 2, t->dtype == SWIGLU_F16 ? v_to_f16(a) : vi_shr(epi_bf16_store(a), 16), n);
        }
    }
}

SW_KERNEL void ACT_NAME(const struct swiglu_act *act, size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i += VL) {
        float t[VL] = {0};
        V a;
        memcpy(t, x + i, sizeof(float) * (n - i < VL ? n - i : VL));
        a = v_load(t);
        switch (act->kind) {
#define ACT(KIND, name) \
    case SWIGLU_ACT_##KIND: a = act_##name(a, act); break;
#include "kern/act.def"
#undef ACT
        }
        v_store_first(y + i, epi_canonical(a), n - i);
    }
}

#undef HIDDEN_NAME
#undef STORE_NAME
#undef ACT_NAME
