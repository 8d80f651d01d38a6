/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of dh: h = act(g) u', dg = (dh u') act'(g), du = dh act(g), in that order of roundings, then the clamp masks
 * (a value exactly on a bound passes). For bf16 compute each is rounded once by the staging rule, and everything that
 * follows reads the rounded values.
 *
 * Parameters: GRAD_NAME; the primitives of a vec_*.h; epilogue.tmpl.h before.
 */
typedef struct { V h, dg, du; } grad_three;

SW_ALWAYS_INLINE V grad_mask(V d, V x, float lo, float hi) {
    const V zero = v_set1(0.0f);
    return v_select(v_lt(x, v_set1(lo)), zero, v_select(v_lt(v_set1(hi), x), zero, d));
}

SW_ALWAYS_INLINE grad_three grad_unit(V dh, V g, V u, const struct swiglu_act *act, V (*f)(V, const struct swiglu_act *),
                                      V (*df)(V, const struct swiglu_act *), int kind, int gated, int bounded) {
    V inner = g, a, slope, up = u;
    if (bounded && !act->clamp_after) inner = v_min(v_set1(act->gate_hi), v_max(v_set1(act->gate_lo), g));
    const V raw = f(inner, act);
    a = raw;
    slope = df(inner, act);
    if (bounded && act->clamp_after) a = v_min(v_set1(act->gate_hi), v_max(v_set1(act->gate_lo), raw));
    if (bounded) up = v_min(v_set1(act->up_hi), v_max(v_set1(act->up_lo), u));
    const V clamped = up;
    if (kind == SWIGLU_ACT_SITU) up = act_situ_up(clamped, act);
    if (bounded && act->up_offset != 0) up = v_add(up, v_set1(act->up_offset));
    grad_three r = {gated ? v_mul(a, up) : a, v_mul(gated ? v_mul(dh, up) : dh, slope), v_mul(dh, a)};
    if (kind == SWIGLU_ACT_SITU) r.du = v_mul(r.du, act_grad_situ_up(clamped, act));
    if (bounded) r.dg = grad_mask(r.dg, act->clamp_after ? raw : g, act->gate_lo, act->gate_hi);
    if (bounded) r.du = grad_mask(r.du, u, act->up_lo, act->up_hi);
    return r;
}

/* Rows r and r + 1 of a panel over tokens; r is even. */
SW_ALWAYS_INLINE void grad_put_panel(char *panel, int wt, unsigned r, size_t lane_offset, V a, V b) {
    char *const at = panel + (size_t)(wt == SWIGLU_WT_F32 ? r : r / 2) * 2 * VL * 4 + lane_offset;
    if (wt == SWIGLU_WT_F32) {
        v_store(at, a);
        v_store(at + 2 * VL * 4, b);
    } else {
        v_store(at, v_from_bits(vi_or(vi_shr(v_bits(epi_bf16_staging(a)), 16), v_bits(epi_bf16_staging(b)))));
    }
}

/* n values of a staged row: whole vectors as they are, the ragged end without touching what follows it. */
SW_ALWAYS_INLINE void grad_put_row(char *at, int x, V a, size_t n) {
    if (n >= VL)
        epi_put_hidden(at, x, a);
    else if (x == SWIGLU_X_BF16_PAIR)
        vi_store16_first(at, vi_shr(v_bits(epi_bf16_staging(a)), 16), n);
    else
        v_store_first(at, x == SWIGLU_X_F32 ? a : epi_bf16_staging(a), n);
}

/* Row r, vector j of hidden units: three values, +0 where there is no row or no unit. */
SW_ALWAYS_INLINE grad_three grad_at(const struct swiglu_grad_args *t, const struct swiglu_act *act, unsigned r, unsigned j,
                                    V (*f)(V, const struct swiglu_act *), V (*df)(V, const struct swiglu_act *), int kind,
                                    int gated, int bounded) {
    const size_t first = (size_t)j * VL, left = t->valid - first;
    const size_t at = r * t->row_elems + j / t->per_group * t->group_elems + j % t->per_group * t->vector_elems;
    grad_three o = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
    if (r >= t->rows) return o;
    V g = v_load_first(t->gate + at, left), u = gated ? v_load_first(t->up + at, left) : g;
    if (t->bias) { /* [panels][2][vl], in the order of the first product's panels */
        const size_t b = gated ? 2 * first : first;
        g = v_add(g, v_load(t->bias + b));
        if (gated) u = v_add(u, v_load(t->bias + b + VL));
    }
    o = grad_unit(v_load(t->c + ((size_t)r * t->vectors + j) * VL), g, u, act, f, df, kind, gated, bounded);
    if (left < VL) {
        o.h = v_keep_first(o.h, left);
        o.dg = v_keep_first(o.dg, left);
        o.du = v_keep_first(o.du, left);
    }
    return o;
}

SW_ALWAYS_INLINE void grad_loop(const struct swiglu_grad_args *args, V (*f)(V, const struct swiglu_act *),
                                V (*df)(V, const struct swiglu_act *), int kind, int gated, int bounded) {
    const struct swiglu_grad_args t = *args;
    const struct swiglu_act act = *t.act;
    const size_t elem = t.x == SWIGLU_X_BF16_PAIR ? 2 : 4, even = t.x == SWIGLU_X_F32 ? t.valid : t.valid + t.valid % 2;
    for (unsigned r = 0; r < t.mr; r += 2)
        for (unsigned j = 0; j < t.vectors && (size_t)j * VL < t.valid; j++) {
            const size_t first = (size_t)j * VL, panel = j / 2, lanes = (size_t)(j % 2) * VL * 4;
            grad_three o[2];
            for (unsigned i = 0; i < 2; i++) o[i] = grad_at(&t, &act, r + i, j, f, df, kind, gated, bounded);
            char *const dg = t.row_dg + r * SWIGLU_RECORD_BYTES + first * elem, *const du = t.row_du + (dg - t.row_dg);
            grad_put_panel(t.h + panel * t.panel_h_bytes, t.wt_h, r, lanes, o[0].h, o[1].h);
            grad_put_panel(t.dg + panel * t.panel_d_bytes, t.wt_d, r, lanes, o[0].dg, o[1].dg);
            grad_put_row(dg, t.x, o[0].dg, even - first);
            if (r + 1 < t.mr) grad_put_row(dg + SWIGLU_RECORD_BYTES, t.x, o[1].dg, even - first);
            if (!gated) continue;
            grad_put_panel(t.du + panel * t.panel_d_bytes, t.wt_d, r, lanes, o[0].du, o[1].du);
            grad_put_row(du, t.x, o[0].du, even - first);
            if (r + 1 < t.mr) grad_put_row(du + SWIGLU_RECORD_BYTES, t.x, o[1].du, even - first);
        }
    if (VL > 1 || t.x == SWIGLU_X_F32 || t.valid % 2 == 0 || t.valid >= t.vectors) return;
    for (unsigned r = 0; r < t.mr; r++) { /* no lane reaches the +0 that pads an odd run */
        memset(t.row_dg + r * SWIGLU_RECORD_BYTES + t.valid * elem, 0, elem);
        if (gated) memset(t.row_du + r * SWIGLU_RECORD_BYTES + t.valid * elem, 0, elem);
    }
}

SW_ALWAYS_INLINE void grad_any(const struct swiglu_grad_args *t, V (*f)(V, const struct swiglu_act *),
                               V (*df)(V, const struct swiglu_act *), int kind) {
    if (epi_is_common(kind, t->gated, t->act))
        grad_loop(t, f, df, kind, 1, 0);
    else
        grad_loop(t, f, df, kind, t->gated, 1);
}

SW_KERNEL void GRAD_NAME(const struct swiglu_grad_args *t) {
    switch (t->act->kind) {
#define ACT(KIND, name) \
    case SWIGLU_ACT_##KIND: grad_any(t, act_##name, act_grad_##name, SWIGLU_ACT_##KIND); break;
#include "kern/act.def"
#undef ACT
    }
}
#undef GRAD_NAME
