/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of dh: h = act(g) u', dg = (dh u') act'(g), du = dh act(g), in that order of roundings, then the clamp masks
 * (a value exactly on a bound passes). For bf16 compute each is rounded once by the staging rule, and everything that
 * follows reads the rounded values.
 *
 * Parameters: GRAD_NAME; the primitives of a vec_*.h; epilogue.tmpl.h before.
 */
#if defined(V_DOT_PAIR)
#define GRAD_PAIRS SWIGLU_X_BF16_PAIR
#else
#define GRAD_PAIRS SWIGLU_X_BF16_IN_F32
#endif
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
SW_ALWAYS_INLINE void grad_put_panel(char *panel, int form, unsigned r, V a, V b) {
    char *const at = panel + (size_t)(form == SWIGLU_FORM_F32 ? r : r / 2) * 2 * VL * 4;
    if (form == SWIGLU_FORM_F32) {
        v_store(at, a);
        v_store(at + 2 * VL * 4, b);
    } else {
        v_store(at, epi_bf16_pair(a, b));
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

/* One vector of hidden units, down the rows of a tile. */
typedef struct {
    const float *c, *gate, *up; /* at row 0 */
    V gate_bias, up_bias;       /* -0 adds nothing */
    size_t left;                /* units from the first lane on */
    char *h, *dg, *du, *row_dg, *row_du;
} grad_column;

SW_ALWAYS_INLINE grad_column grad_column_of(const struct swiglu_grad_args *t, unsigned j, int gated) {
    const size_t first = (size_t)j * VL, panel = j / 2, lanes = (size_t)(j % 2) * VL * 4;
    const size_t at = j / t->per_group * t->group_elems + j % t->per_group * t->vector_elems;
    const float *const bias = t->bias ? t->bias + (gated ? 2 * first : first) : NULL;
    return (grad_column){
        .c = t->c + first, .gate = t->gate + at, .up = t->up + at, .left = t->valid - first,
        .gate_bias = bias ? v_load(bias) : v_set1(-0.0f), .up_bias = bias && gated ? v_load(bias + VL) : v_set1(-0.0f),
        .h = t->h + panel * t->panel_h_bytes + lanes, .dg = t->dg + panel * t->panel_d_bytes + lanes,
        .du = t->du + panel * t->panel_d_bytes + lanes,
        .row_dg = t->row_dg + first * (t->x == SWIGLU_X_BF16_PAIR ? 2 : 4),
        .row_du = t->row_du + first * (t->x == SWIGLU_X_BF16_PAIR ? 2 : 4)};
}

/* The functions and facts that are literals in a loop. */
typedef struct {
    V (*f)(V, const struct swiglu_act *), (*df)(V, const struct swiglu_act *);
    int kind, gated, bounded;
    int whole;           /* every row has data, every lane is a unit, rows are even */
    int form_h, form_d, x;   /* forms, as in the arguments */
} grad_kind;

/* Three values of row r, +0 where there is no row or no unit. */
SW_ALWAYS_INLINE grad_three grad_at(const struct swiglu_grad_args *t, const grad_column *k, const struct swiglu_act *act,
                                    unsigned r, grad_kind is) {
    grad_three o = {v_set1(0.0f), v_set1(0.0f), v_set1(0.0f)};
    if (!is.whole && r >= t->rows) return o;
    const V g = v_add(v_load(k->gate + r * t->row_elems), k->gate_bias);
    const V u = is.gated ? v_add(v_load(k->up + r * t->row_elems), k->up_bias) : g;
    o = grad_unit(v_load(k->c + (size_t)r * t->vectors * VL), g, u, act, is.f, is.df, is.kind, is.gated, is.bounded);
    if (!is.whole && k->left < VL) {
        o.h = v_keep_first(o.h, k->left);
        o.dg = v_keep_first(o.dg, k->left);
        o.du = v_keep_first(o.du, k->left);
    }
    return o;
}

SW_ALWAYS_INLINE void grad_put_rows(const struct swiglu_grad_args *t, char *row, unsigned r, V a, V b, size_t staged,
                                    grad_kind is) {
    row += r * (size_t)SWIGLU_RECORD_BYTES;
    grad_put_row(row, is.x, a, is.whole ? VL : staged);
    if (is.whole || r + 1 < t->mr) grad_put_row(row + SWIGLU_RECORD_BYTES, is.x, b, is.whole ? VL : staged);
}

SW_ALWAYS_INLINE void grad_loop(const struct swiglu_grad_args *args, grad_kind is) {
    const struct swiglu_grad_args t = *args;
    const struct swiglu_act act = *t.act;
    const size_t even = is.x == SWIGLU_X_F32 ? t.valid : t.valid + t.valid % 2;
    for (unsigned j = 0; j < t.vectors && (size_t)j * VL < t.valid; j++) {
        const grad_column k = grad_column_of(&t, j, is.gated);
        const size_t staged = even - (size_t)j * VL;
        for (unsigned r = 0; r < t.mr; r += 2) {
            const grad_three a = grad_at(&t, &k, &act, r, is), b = grad_at(&t, &k, &act, r + 1, is);
            grad_put_panel(k.h, is.form_h, r, a.h, b.h);
            grad_put_panel(k.dg, is.form_d, r, a.dg, b.dg);
            grad_put_rows(&t, k.row_dg, r, a.dg, b.dg, staged, is);
            if (!is.gated) continue;
            grad_put_panel(k.du, is.form_d, r, a.du, b.du);
            grad_put_rows(&t, k.row_du, r, a.du, b.du, staged, is);
        }
    }
    if (VL > 1 || is.x == SWIGLU_X_F32 || t.valid % 2 == 0 || t.valid >= t.vectors) return;
    for (unsigned r = 0; r < t.mr; r++) { /* no lane reaches the +0 that pads an odd run; such a level has no pairs */
        memset(t.row_dg + r * SWIGLU_RECORD_BYTES + t.valid * 4, 0, 4);
        if (is.gated) memset(t.row_du + r * SWIGLU_RECORD_BYTES + t.valid * 4, 0, 4);
    }
}

/* The rule gets loops of its own; everything else shares one. */
SW_ALWAYS_INLINE void grad_any(const struct swiglu_grad_args *t, V (*f)(V, const struct swiglu_act *),
                               V (*df)(V, const struct swiglu_act *), int kind) {
    grad_kind is = {f, df, kind, t->gated, 1, 0, t->form_h, t->form_d, t->x};
    const int whole = t->rows == t->mr && t->mr % 2 == 0 && t->valid >= (size_t)t->vectors * VL && t->form_h == t->form_d;
    if (!whole || !epi_is_common(kind, t->gated, t->act)) {
        grad_loop(t, is);
        return;
    }
    is = (grad_kind){kind == SWIGLU_ACT_SILU ? act_silu_one : f, kind == SWIGLU_ACT_SILU ? act_grad_silu_one : df, kind, 1, 0, 1,
                     SWIGLU_FORM_F32, SWIGLU_FORM_F32, SWIGLU_X_F32};
    if (t->form_h == SWIGLU_FORM_F32) {
        grad_loop(t, is);
        return;
    }
    is.form_h = is.form_d = SWIGLU_FORM_BF16_PAIR;
    is.x = GRAD_PAIRS;
    grad_loop(t, is);
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
#undef GRAD_PAIRS
