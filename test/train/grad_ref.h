/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of a block in plain double precision, from the contract's own inputs (x, dy and the weights as rounded for
 * the compute; h, dg and du are not rounded), and beside each value a bound of what an f32 evaluation by docs/numerics.md
 * may differ by.
 *
 * The bound, with u = 2^-24. Every value v below carries an error e, so that the f32 value lies in [v - e, v + e].
 *   chains    A chain of K fused multiply-adds in chunks of length L, chunks added in order, errs by gamma(K) =
 *             (min(K, L) + ceil(K / L)) u times the sum of the magnitudes of its terms, and by K roundings to a subnormal
 *             (2^-149; the flush of bf16 compute: 2^-126). L is 1024, over tokens 512. Factors with errors of their own add
 *             sum |factor| e, and enlarge the terms by as much.
 *   g, u, a   As in the forward reference: B_g, B_u, B_a = S B_g + J + N.
 *   act'(g)   C B_g + jumps of act' within [g - B_g, g + B_g] + 4 ulp(max(|act'|, 1/8)); C bounds |act''|.
 *   products  (v w): |v| e_w + |w| e_v + e_v e_w, then one rounding: u times the largest possible magnitude + 2^-149.
 *             h = a u', p = dh u', dg = p act'(g), du = dh a.
 *   masks     A value that may lie on either side of its clamp bound may be masked or not: then e grows by |v| + e.
 *   bf16      h (in the compute of down), dg and du (in that of up) are rounded: 2^-8 (|v| + e) + 2^-126.
 *   dx        depth 2 f over dg Wg + du Wu; dW over tokens of dg x, du x, dy h; db over tokens of dg, du, dy.
 */
#ifndef SWIGLU_TEST_GRAD_REF_H
#define SWIGLU_TEST_GRAD_REF_H

#include "slope.h"
#include "train.h"

struct est { double v, e; };

/* Values as they enter, row-major; weights [outputs][inputs]. */
struct grad_ref {
    const struct swiglu_desc *desc;
    size_t m;
    unsigned n_halves;
    int compute_first, compute_down;
    double *x, *dy, *w[2], *down, *bias[2], *down_bias;
    struct est *h, *d[2];      /* m x d_ff: h, and dg and du */
    struct est *part[N_PARTS]; /* laid out as a struct outcome; Y stays empty */
};

UNUSED_FN double *ref_doubles(size_t n) {
    double *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- the forward pass in double ---- */

UNUSED_FN double ref_clamp(double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; }

UNUSED_FN double ref_first(const struct grad_ref *r, size_t t, unsigned half, size_t j) {
    const size_t d_in = r->desc->d_in;
    double sum = r->bias[half][j];
    for (size_t i = 0; i < d_in; i++) sum += r->x[t * d_in + i] * r->w[half][j * d_in + i];
    return sum;
}

UNUSED_FN double ref_hidden(const struct grad_ref *r, size_t t, size_t j) {
    const struct swiglu_act *act = &r->desc->act;
    const double g = ref_first(r, t, 0, j);
    const double inner = act->clamp_after ? g : ref_clamp(g, act->gate_lo, act->gate_hi);
    double a = swiglu_ref_act(act, inner);
    if (act->clamp_after) a = ref_clamp(a, act->gate_lo, act->gate_hi);
    if (r->n_halves == 1) return a;
    return a * (swiglu_ref_up(act, ref_clamp(ref_first(r, t, 1, j), act->up_lo, act->up_hi)) + act->up_offset);
}

/* sum dy y: what the gradients are the derivatives of. */
UNUSED_FN double ref_loss(const struct grad_ref *r) {
    const size_t f = r->desc->d_ff, d_out = r->desc->d_out;
    double loss = 0, *h = ref_doubles(f);
    for (size_t t = 0; t < r->m; t++) {
        for (size_t j = 0; j < f; j++) h[j] = ref_hidden(r, t, j);
        for (size_t o = 0; o < d_out; o++) {
            double y = r->down_bias[o];
            for (size_t j = 0; j < f; j++) y += h[j] * r->down[o * f + j];
            loss += r->dy[t * d_out + o] * y;
        }
    }
    free(h);
    return loss;
}

/* ---- gradients, with bounds ---- */

UNUSED_FN double ref_gamma(size_t k, size_t chunk) {
    return 0x1p-24 * ((double)(k < chunk ? k : chunk) + ceil((double)k / (double)chunk));
}
UNUSED_FN double ref_tiny(size_t k, int compute) {
    return (double)k * (compute == SWIGLU_COMPUTE_BF16 ? 0x1p-126 : 0x1p-149);
}

UNUSED_FN struct est ref_times(struct est a, struct est b) {
    const double e = fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e;
    return (struct est){a.v * b.v, e + 0x1p-24 * (fabs(a.v * b.v) + e) + 0x1p-149};
}

UNUSED_FN struct est ref_rounded(struct est v, int compute) {
    if (compute == SWIGLU_COMPUTE_BF16) v.e += 0x1p-8 * (fabs(v.v) + v.e) + 0x1p-126;
    return v;
}

UNUSED_FN struct est ref_masked(struct est d, struct est judged, double lo, double hi) {
    const double below = judged.v - judged.e, above = judged.v + judged.e;
    const int open = (below < lo && above >= lo) || (below <= hi && above > hi);
    if (open) d.e += fabs(d.v) + d.e;
    if (judged.v < lo || judged.v > hi) d.v = 0, d.e = open ? d.e : 0;
    return d;
}

/* A sum of n terms: value, error of the factors, magnitude with that error. */
struct ref_sum { double v, carried, magnitude; };
UNUSED_FN void ref_add(struct ref_sum *s, double exact, struct est v) {
    s->v += exact * v.v;
    s->carried += fabs(exact) * v.e;
    s->magnitude += fabs(exact) * (fabs(v.v) + v.e);
}
UNUSED_FN struct est ref_chain(struct ref_sum s, size_t k, size_t chunk, int compute) {
    return (struct est){s.v, s.carried + ref_gamma(k, chunk) * s.magnitude + ref_tiny(k, compute)};
}

/* The first product with its bias. */
UNUSED_FN struct est ref_total(const struct grad_ref *r, size_t t, unsigned half, size_t j) {
    const size_t d_in = r->desc->d_in;
    struct ref_sum s = {0, 0, 0};
    for (size_t i = 0; i < d_in; i++) ref_add(&s, r->x[t * d_in + i], (struct est){r->w[half][j * d_in + i], 0});
    struct est p = ref_chain(s, d_in, 1024, r->compute_first);
    p.v += r->bias[half][j];
    p.e += 0x1p-24 * (fabs(p.v) + p.e);
    return p;
}

/* f and f' of one side, for an argument with an error. */
struct ref_side { struct est raw, a, slope, judged; };

UNUSED_FN struct ref_side ref_gate_side(const struct swiglu_act *act, struct est g) {
    const int before = !act->clamp_after;
    double lo = g.v - g.e, hi = g.v + g.e, at = g.v;
    if (before) {
        at = ref_clamp(at, act->gate_lo, act->gate_hi);
        lo = ref_clamp(lo, act->gate_lo, act->gate_hi), hi = ref_clamp(hi, act->gate_lo, act->gate_hi);
    }
    struct ref_side s;
    s.raw = (struct est){swiglu_ref_act(act, at), swiglu_ref_act_slope(act, lo, hi) * g.e + swiglu_ref_act_jump(act, lo, hi) +
                                                      swiglu_ref_act_noise(act, at)};
    s.slope = (struct est){slope_of(act, at), 0};
    s.slope.e = curvature(act) * g.e + slope_jump(act, lo, hi) + slope_noise(s.slope.v);
    s.a = s.raw;
    if (act->clamp_after) s.a.v = ref_clamp(s.raw.v, act->gate_lo, act->gate_hi);
    s.judged = before ? g : s.raw;
    return s;
}

UNUSED_FN struct ref_side ref_up_side(const struct swiglu_act *act, struct est u) {
    const double at = ref_clamp(u.v, act->up_lo, act->up_hi);
    struct ref_side s = {.judged = u};
    s.a = (struct est){swiglu_ref_up(act, at) + act->up_offset, u.e + swiglu_ref_up_noise(act, at)};
    if (act->up_offset != 0) s.a.e += 0x1p-24 * (fabs(s.a.v) + s.a.e);
    s.slope = (struct est){slope_of_up(act, at), 0};
    if (act->kind == SWIGLU_ACT_SITU) s.slope.e = curvature_of_up(act) * u.e + slope_noise(s.slope.v);
    return s;
}

UNUSED_FN void ref_unit(struct grad_ref *r, size_t t, size_t j) {
    const struct swiglu_desc *d = r->desc;
    const struct swiglu_act *act = &d->act;
    const size_t at = t * d->d_ff + j;
    struct ref_sum sum = {0, 0, 0};
    for (size_t o = 0; o < d->d_out; o++)
        ref_add(&sum, r->dy[t * d->d_out + o], (struct est){r->down[o * d->d_ff + j], 0});
    const struct est dh = ref_chain(sum, d->d_out, 1024, r->compute_down);
    const struct ref_side gate = ref_gate_side(act, ref_total(r, t, 0, j));
    struct est h = gate.a, p = dh;
    if (r->n_halves == 2) {
        const struct ref_side up = ref_up_side(act, ref_total(r, t, 1, j));
        struct est du = ref_times(dh, gate.a);
        if (act->kind == SWIGLU_ACT_SITU) du = ref_times(du, up.slope);
        h = ref_times(gate.a, up.a);
        p = ref_times(dh, up.a);
        r->d[1][at] = ref_rounded(ref_masked(du, up.judged, act->up_lo, act->up_hi), r->compute_first);
    }
    const struct est dg = ref_masked(ref_times(p, gate.slope), gate.judged, act->gate_lo, act->gate_hi);
    r->h[at] = ref_rounded(h, r->compute_down);
    r->d[0][at] = ref_rounded(dg, r->compute_first);
}

UNUSED_FN void ref_dx(struct grad_ref *r) {
    const size_t f = r->desc->d_ff, d_in = r->desc->d_in;
    for (size_t t = 0; t < r->m; t++)
        for (size_t i = 0; i < d_in; i++) {
            struct ref_sum s = {0, 0, 0};
            for (unsigned half = 0; half < r->n_halves; half++)
                for (size_t j = 0; j < f; j++) ref_add(&s, r->w[half][j * d_in + i], r->d[half][t * f + j]);
            r->part[DX][t * d_in + i] = ref_chain(s, r->n_halves * f, 1024, r->compute_first);
        }
}

/* sum over tokens of value[t][row] factor[t][col]; factor NULL: 1. */
UNUSED_FN struct est ref_over_tokens(const struct grad_ref *r, const struct est *value, size_t n_rows, size_t row,
                                     const double *factor, size_t n_cols, size_t col, int compute) {
    struct ref_sum s = {0, 0, 0};
    for (size_t t = 0; t < r->m; t++) ref_add(&s, factor ? factor[t * n_cols + col] : 1, value[t * n_rows + row]);
    return ref_chain(s, r->m, 512, compute);
}

UNUSED_FN void ref_weights(struct grad_ref *r) {
    const struct swiglu_desc *d = r->desc;
    const size_t f = d->d_ff;
    for (unsigned half = 0; half < r->n_halves; half++) {
        const int part = half_part(d, half);
        for (size_t j = 0; j < f; j++) {
            const size_t output = half_output(d, half, j);
            for (size_t i = 0; i < d->d_in; i++)
                r->part[part][weight_at(half_matrix(d, half), output, i)] =
                    ref_over_tokens(r, r->d[half], f, j, r->x, d->d_in, i, r->compute_first);
            r->part[part + D_GATE_BIAS - D_GATE][output] =
                ref_over_tokens(r, r->d[half], f, j, NULL, 0, 0, r->compute_first);
        }
    }
    for (size_t o = 0; o < d->d_out; o++) {
        struct ref_sum s = {0, 0, 0};
        for (size_t j = 0; j < f; j++)
            r->part[D_DOWN][weight_at(&d->down, o, j)] =
                ref_over_tokens(r, r->h, f, j, r->dy, d->d_out, o, r->compute_down);
        for (size_t t = 0; t < r->m; t++) ref_add(&s, 1, (struct est){r->dy[t * d->d_out + o], 0});
        r->part[D_DOWN_BIAS][o] = ref_chain(s, r->m, 512, r->compute_down);
    }
}

/* ---- from a lesson ---- */

UNUSED_FN double *ref_rows(struct swiglu_crows rows, size_t m, size_t n, int compute) {
    double *p = ref_doubles(m * n);
    const size_t ld = rows.ld_elems ? rows.ld_elems : n;
    for (size_t i = 0; i < m * n; i++) p[i] = entered(get_float(rows.data, rows.dtype, i / n * ld + i % n), compute);
    return p;
}

UNUSED_FN void ref_load_half(struct grad_ref *r, unsigned half) {
    const struct swiglu_desc *d = r->desc;
    const struct swiglu_matrix *m = half_matrix(d, half);
    const struct swiglu_vector *bias = half_bias(d, half);
    r->w[half] = ref_doubles(d->d_ff * d->d_in);
    r->bias[half] = ref_doubles(d->d_ff);
    for (size_t j = 0; j < d->d_ff; j++) {
        const size_t output = half_output(d, half, j);
        if (bias->data) r->bias[half][j] = get_float(bias->data, bias->dtype, output);
        for (size_t i = 0; i < d->d_in; i++)
            r->w[half][j * d->d_in + i] = entered_weight(m, output, i, r->compute_first);
    }
}

UNUSED_FN void ref_evaluate(struct grad_ref *r) {
    for (size_t t = 0; t < r->m; t++)
        for (size_t j = 0; j < r->desc->d_ff; j++) ref_unit(r, t, j);
    ref_dx(r);
    ref_weights(r);
}

UNUSED_FN struct grad_ref new_grad_ref(const struct lesson *l, int compute) {
    const struct swiglu_desc *d = &l->block.desc;
    const struct outcome shape = new_outcome(d, l->m);
    struct grad_ref r = {.desc = d, .m = l->m, .n_halves = n_halves(d),
                         .compute_first = compute_of_up(d, compute), .compute_down = compute_of_down(d, compute)};
    r.x = ref_rows(l->x, l->m, d->d_in, r.compute_first);
    r.dy = ref_rows(l->dy, l->m, d->d_out, r.compute_down);
    for (unsigned half = 0; half < r.n_halves; half++) ref_load_half(&r, half);
    r.down = ref_doubles(d->d_out * d->d_ff);
    r.down_bias = ref_doubles(d->d_out);
    for (size_t o = 0; o < d->d_out; o++) {
        if (d->down_bias.data) r.down_bias[o] = get_float(d->down_bias.data, d->down_bias.dtype, o);
        for (size_t j = 0; j < d->d_ff; j++)
            r.down[o * d->d_ff + j] = entered_weight(&d->down, o, j, r.compute_down);
    }
    struct est **const hidden[] = {&r.h, &r.d[0], &r.d[1]};
    for (size_t i = 0; i < COUNT(hidden); i++) *hidden[i] = calloc(l->m * d->d_ff + 1, sizeof **hidden[i]);
    for (int i = 0; i < N_PARTS; i++) r.part[i] = calloc(shape.n[i] + 1, sizeof *r.part[i]);
    free(shape.all);
    ref_evaluate(&r);
    return r;
}

UNUSED_FN void free_grad_ref(struct grad_ref *r) {
    void *const all[] = {r->x, r->dy, r->w[0], r->w[1], r->down, r->bias[0], r->bias[1], r->down_bias, r->h, r->d[0], r->d[1]};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
    for (int i = 0; i < N_PARTS; i++) free(r->part[i]);
}

/* The worst |gradient - reference| / bound of parts from DX on. */
UNUSED_FN double worst_of(const struct outcome *o, const struct grad_ref *r, int *part) {
    double worst = 0;
    for (int i = DX; i < N_PARTS; i++)
        for (size_t j = 0; j < o->n[i]; j++) {
            const double ratio = judge(o->part[i][j], r->part[i][j].v, r->part[i][j].e);
            if (!(ratio <= worst)) worst = ratio, *part = i;
        }
    return worst;
}

#endif
