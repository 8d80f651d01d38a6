/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the totals of a tile: hidden (bias, clamps, activation, times up, rounded to the form of h) and store
 * (bias, canonical NaN, rounded to y). They run once per output where the k loop runs k times, so they read the totals
 * back from the tile's scratch, and the activation is a switch made from act.def outside the loops.
 *
 * Parameters: HIDDEN_NAME, STORE_NAME (the functions); the primitives of a vec_*.h; act.tmpl.h before.
 */

SW_ALWAYS_INLINE V epi_canonical(V a) { return v_select(v_is_nan(a), v_from_bits(vi_set1(0x7FC00000)), a); }

/* The two named roundings of base/half.h, in the high half of each lane. */
SW_ALWAYS_INLINE VI epi_bf16_store(V a) {
    const VI u = v_bits(epi_canonical(a));
    return vi_and(vi_add(u, vi_add(vi_set1(0x7FFF), vi_and(vi_shr(u, 16), vi_set1(1)))), vi_set1((int)0xFFFF0000));
}
SW_ALWAYS_INLINE V epi_bf16_staging(V a) {
#if defined(V_BF16_STAGING)
    return V_BF16_STAGING(a);
#else
    const VM tiny = vi_is_zero(vi_and(v_bits(a), vi_set1(0x7F800000)));
    return v_select(tiny, act_signed_zero(a), v_from_bits(epi_bf16_store(a)));
#endif
}

/* Both rounded by the staging rule: a in the low halves, b in the high ones. */
SW_ALWAYS_INLINE V epi_bf16_pair(V a, V b) {
#if defined(V_BF16_PAIR)
    return V_BF16_PAIR(a, b);
#else
    return v_from_bits(vi_or(vi_shr(v_bits(epi_bf16_staging(a)), 16), v_bits(epi_bf16_staging(b))));
#endif
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

/* Gate (or the only product) and up of one vector of hidden units. */
SW_ALWAYS_INLINE V epi_hidden(const float *c, const float *bias, const struct swiglu_act *act,
                              V (*f)(V, const struct swiglu_act *), int kind, int gated, int bounded) {
    V g = v_load(c);
    if (bias) g = v_add(g, v_load(bias));
    if (bounded && !act->clamp_after) g = v_min(v_set1(act->gate_hi), v_max(v_set1(act->gate_lo), g));
    V a = f(g, act);
    if (bounded && act->clamp_after) a = v_min(v_set1(act->gate_hi), v_max(v_set1(act->gate_lo), a));
    if (!gated) return a;
    V u = v_load(c + VL);
    if (bias) u = v_add(u, v_load(bias + VL));
    if (bounded) u = v_min(v_set1(act->up_hi), v_max(v_set1(act->up_lo), u));
    if (kind == SWIGLU_ACT_SITU) u = act_situ_up(u, act);
    if (bounded && act->up_offset != 0) u = v_add(u, v_set1(act->up_offset));
    return v_mul(a, u);
}

/* With one lane no vector reaches the +0 that pads an odd depth: the one after the last unit is written always.
 * One loop for every activation: f, kind and bounded are literals at each call. Stores may alias anything, so what
 * the loop needs is copied out of t first. */
SW_ALWAYS_INLINE void epi_hidden_loop(const struct swiglu_hidden_args *t, V (*f)(V, const struct swiglu_act *), int kind,
                                      int gated, int bounded) {
    const struct swiglu_act act = *t->act;
    const float *const bias = t->bias, *c = t->c;
    const int x = t->x;
    const unsigned stride = gated ? 2 : 1, vectors = t->vectors, mr = t->mr;
    const size_t valid = t->valid, out_bytes = x == SWIGLU_X_BF16_PAIR ? 2 * VL : 4 * VL;
    char *rows = t->h;
    const size_t row_bytes = t->row_bytes;
    for (unsigned r = 0; r < mr; r++, rows += row_bytes, c += (size_t)vectors * VL) {
        size_t first = 0;
        char *h = rows;
        for (unsigned j = 0; j < vectors; j += stride, first += VL, h += out_bytes) {
            V a = epi_hidden(c + j * VL, bias ? bias + j * VL : NULL, &act, f, kind, gated, bounded);
            if (first + VL > valid) a = v_keep_first(a, valid > first ? valid - first : 0);
            epi_put_hidden(h, x, a);
        }
        if (VL == 1 && x == SWIGLU_X_BF16_IN_F32 && first >= valid) memset(rows + valid * 4, 0, 4);
    }
}

static inline int epi_is_bounded(const struct swiglu_act *a) {
    return a->gate_lo != -INFINITY || a->gate_hi != INFINITY || a->up_lo != -INFINITY || a->up_hi != INFINITY ||
           a->up_offset != 0;
}

/* Gated blocks without bounds are the rule for these, and get a loop without clamps; the bits are the same. */
SW_ALWAYS_INLINE int epi_is_common(int kind, int gated, const struct swiglu_act *a) {
    const int listed = (kind == SWIGLU_ACT_SILU && a->alpha == 1) || kind == SWIGLU_ACT_GELU_TANH || kind == SWIGLU_ACT_GELU_ERF;
    return listed && gated && !epi_is_bounded(a);
}

SW_ALWAYS_INLINE void epi_hidden_any(const struct swiglu_hidden_args *t, V (*f)(V, const struct swiglu_act *), int kind) {
    if (epi_is_common(kind, t->gated, t->act))
        epi_hidden_loop(t, kind == SWIGLU_ACT_SILU ? act_silu_one : f, kind, 1, 0);
    else
        epi_hidden_loop(t, f, kind, t->gated, 1);
}

SW_KERNEL void HIDDEN_NAME(const struct swiglu_hidden_args *t) {
    switch (t->act->kind) {
#define ACT(KIND, name) \
    case SWIGLU_ACT_##KIND: epi_hidden_any(t, act_##name, SWIGLU_ACT_##KIND); break;
#include "kern/act.def"
#undef ACT
    }
}

/* Totals of a whole tile that only have to be rounded. */
SW_ALWAYS_INLINE int epi_is_plain(const struct swiglu_store_args *t, unsigned mr, unsigned vectors) {
    return t->rows == mr && t->valid >= (size_t)vectors * VL && !t->bias && !t->sum;
}

/* Whether epi_put_quick would store other bits than the rule for a value of a or b; the dtype is a literal. */
SW_ALWAYS_INLINE int epi_is_odd(V a, V b, int dtype) {
    if (dtype == SWIGLU_F32) return v_any_nan(a, b); /* to be made canonical */
#if defined(V_BF16_TWO)
    if (dtype == SWIGLU_BF16) return V_BF16_ODD(a, b);
#endif
    return 1;
}
SW_ALWAYS_INLINE void epi_put_quick(char *y, V a, V b, int dtype) {
    if (dtype == SWIGLU_F32) {
        v_store(y, a);
        v_store(y + VL * 4, b);
        return;
    }
#if defined(V_BF16_TWO)
    v_store(y, V_BF16_TWO(a, b));
#endif
}

/* dtype and whole (every lane is a column) are literals at each call. */
SW_ALWAYS_INLINE void epi_store_loop(const struct swiglu_store_args *t, int dtype, int whole) {
    const float *const bias = t->bias, *c = t->c;
    const char *sum = (const char *)t->sum;
    const size_t valid = t->valid, ld_bytes = t->ld_bytes, sum_bytes = t->sum_bytes;
    const unsigned rows = t->rows, vectors = t->vectors;
    char *y = t->y;
    for (unsigned r = 0; r < rows; r++, c += (size_t)vectors * VL, y += ld_bytes)
        for (unsigned j = 0; j < vectors && (whole || (size_t)j * VL < valid); j++) {
            const size_t n = whole ? VL : valid - (size_t)j * VL;
            V a = v_load(c + j * VL);
            if (bias) a = v_add(a, v_load(bias + j * VL));
            if (sum) a = v_add(v_load_first(sum + r * sum_bytes + (size_t)j * VL * 4, n), a);
            a = epi_canonical(a);
            if (dtype == SWIGLU_F32)
                v_store_first(y + (size_t)j * VL * 4, a, n);
            else
                vi_store16_first(y + (size_t)j * VL * 2, dtype == SWIGLU_F16 ? v_to_f16(a) : vi_shr(epi_bf16_store(a), 16), n);
        }
}

SW_ALWAYS_INLINE void epi_store_any(const struct swiglu_store_args *t, int dtype) {
    if (t->valid >= (size_t)t->vectors * VL)
        epi_store_loop(t, dtype, 1);
    else
        epi_store_loop(t, dtype, 0);
}

SW_KERNEL void STORE_NAME(const struct swiglu_store_args *t) {
    if (t->dtype == SWIGLU_F32)
        epi_store_any(t, SWIGLU_F32);
    else if (t->dtype == SWIGLU_F16)
        epi_store_any(t, SWIGLU_F16);
    else
        epi_store_any(t, SWIGLU_BF16);
}

#undef HIDDEN_NAME
#undef STORE_NAME
