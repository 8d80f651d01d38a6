/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step as docs/numerics.md words it, in plain loops of f32: the order of every sum, the roundings, the masks.
 * Only the activation and its derivative come from the library (its generic level). Subnormal results are not in play:
 * the flush of bf16 compute is judged without its rare exact case. No SiTU.
 */
#ifndef SWIGLU_TEST_PLAIN_H
#define SWIGLU_TEST_PLAIN_H

#include "train.h"

enum { PLAIN_CHUNK = 1024, PLAIN_TOKENS = 512, PLAIN_RUN = 128 };

/* One term more: f32, or bf16 with its flush. */
UNUSED_FN float plain_fma(int compute, float a, float b, float c) {
    const float r = fmaf(a, b, c);
    return compute == SWIGLU_COMPUTE_BF16 && fabsf(r) < 0x1p-126f ? copysignf(0, r) : r;
}

/* ((old + c_0) + c_1) ...; without old the first chunk starts the total. */
UNUSED_FN float plain_chain(int compute, const float *a, const float *b, size_t k, size_t chunk, const float *old) {
    float total = old ? *old : 0;
    for (size_t done = 0; done < k || done == 0; done += chunk) {
        const size_t end = k - done < chunk ? k : done + chunk;
        float c = 0;
        if (compute == SWIGLU_COMPUTE_F32)
            for (size_t i = done; i < end; i++) c = plain_fma(compute, a[i], b[i], c);
        else
            for (size_t i = done; i < end; i += 2) { /* pairs, the odd one first; an odd end pairs with +0 */
                c = i + 1 < end ? plain_fma(compute, a[i + 1], b[i + 1], c) : plain_fma(compute, 0, 0, c);
                c = plain_fma(compute, a[i], b[i], c);
            }
        total = old || done ? total + c : c;
    }
    return total;
}

struct plain {
    const struct swiglu_desc *desc;
    size_t m;
    unsigned n_halves;
    int up, down;                /* computes */
    float *w[2], *w_down;        /* as they enter, [outputs][inputs] */
    float *x, *dy, *h, *d[2];    /* token by token; h, dg and du as they enter their products */
    float *a, *b;                /* the terms of one chain */
    struct outcome *out;
    int add;                     /* weight gradients go on from what out holds */
};

UNUSED_FN float plain_clamp(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }

/* Gate or up of one token, its bias added. */
UNUSED_FN float plain_total(const struct plain *p, unsigned half, size_t t, size_t j) {
    const struct swiglu_desc *d = p->desc;
    const struct swiglu_vector *bias = half_bias(d, half);
    const float c = plain_chain(p->up, p->x + t * d->d_in, p->w[half] + j * d->d_in, d->d_in, PLAIN_CHUNK, NULL);
    return bias->data ? c + get_float(bias->data, bias->dtype, half_output(d, half, j)) : c;
}

UNUSED_FN void plain_unit(struct plain *p, size_t t, size_t j) {
    const struct swiglu_desc *d = p->desc;
    const struct swiglu_act *act = &d->act;
    const size_t at = t * d->d_ff + j;
    const float g = plain_total(p, 0, t, j);
    const float inner = act->clamp_after ? g : plain_clamp(g, act->gate_lo, act->gate_hi);
    float raw, slope, dy[2048], w[2048];
    assert_int_equal(swiglu_act_eval(act, 1, &inner, &raw), SWIGLU_OK);
    assert_int_equal(swiglu_act_derivative(act, 1, &inner, &slope), SWIGLU_OK);
    const float a = act->clamp_after ? plain_clamp(raw, act->gate_lo, act->gate_hi) : raw;
    for (size_t o = 0; o < d->d_out; o++) dy[o] = p->dy[t * d->d_out + o], w[o] = p->w_down[o * d->d_ff + j];
    const float dh = plain_chain(p->down, dy, w, d->d_out, PLAIN_CHUNK, NULL), judged = act->clamp_after ? raw : g;
    float h = a, dg = dh;
    if (p->n_halves == 2) {
        const float u = plain_total(p, 1, t, j);
        float up = plain_clamp(u, act->up_lo, act->up_hi), du = dh * a;
        if (act->up_offset != 0) up += act->up_offset;
        h = a * up;
        dg = dh * up;
        if (u < act->up_lo || u > act->up_hi) du = 0;
        p->d[1][at] = entered(du, p->up);
    }
    dg *= slope;
    if (judged < act->gate_lo || judged > act->gate_hi) dg = 0;
    p->h[at] = entered(h, p->down);
    p->d[0][at] = entered(dg, p->up);
}

UNUSED_FN void plain_y(struct plain *p) {
    const struct swiglu_desc *d = p->desc;
    for (size_t t = 0; t < p->m; t++)
        for (size_t o = 0; o < d->d_out; o++) {
            const float c = plain_chain(p->down, p->h + t * d->d_ff, p->w_down + o * d->d_ff, d->d_ff, PLAIN_CHUNK, NULL);
            p->out->part[Y][t * d->d_out + o] =
                d->down_bias.data ? c + get_float(d->down_bias.data, d->down_bias.dtype, o) : c;
        }
}

/* Runs of 128 units of gate, then as many of up; in bf16 each run is padded to even. */
UNUSED_FN void plain_dx(struct plain *p) {
    const struct swiglu_desc *d = p->desc;
    for (size_t t = 0; t < p->m; t++)
        for (size_t i = 0; i < d->d_in; i++) {
            size_t n = 0;
            for (size_t run = 0; run < d->d_ff; run += PLAIN_RUN)
                for (unsigned half = 0; half < p->n_halves; half++) {
                    for (size_t j = run; j < d->d_ff && j < run + PLAIN_RUN; j++, n++)
                        p->a[n] = p->d[half][t * d->d_ff + j], p->b[n] = p->w[half][j * d->d_in + i];
                    if (p->up == SWIGLU_COMPUTE_BF16 && n % 2) p->a[n] = p->b[n] = 0, n++;
                }
            p->out->part[DX][t * d->d_in + i] = plain_chain(p->up, p->a, p->b, n, PLAIN_CHUNK, NULL);
        }
}

/* sum over tokens of value[t][row] factor[t][col]; factor NULL: 1. */
UNUSED_FN void plain_tokens(struct plain *p, int compute, const float *value, size_t n_rows, size_t row, const float *factor,
                            size_t n_cols, size_t col, float *to) {
    for (size_t t = 0; t < p->m; t++)
        p->a[t] = value[t * n_rows + row], p->b[t] = factor ? factor[t * n_cols + col] : 1;
    *to = plain_chain(compute, p->a, p->b, p->m, PLAIN_TOKENS, p->add ? to : NULL);
}

UNUSED_FN void plain_weights(struct plain *p) {
    const struct swiglu_desc *d = p->desc;
    const size_t f = d->d_ff;
    for (unsigned half = 0; half < p->n_halves; half++) {
        const int part = half_part(d, half);
        const struct swiglu_matrix *m = half_matrix(d, half);
        for (size_t j = 0; j < f; j++) {
            const size_t output = half_output(d, half, j);
            for (size_t i = 0; i < d->d_in; i++)
                plain_tokens(p, p->up, p->d[half], f, j, p->x, d->d_in, i, &p->out->part[part][weight_at(m, output, i)]);
            plain_tokens(p, p->up, p->d[half], f, j, NULL, 0, 0, &p->out->part[part + D_GATE_BIAS - D_GATE][output]);
        }
    }
    for (size_t o = 0; o < d->d_out; o++) {
        for (size_t j = 0; j < f; j++)
            plain_tokens(p, p->down, p->dy, d->d_out, o, p->h, f, j, &p->out->part[D_DOWN][weight_at(&d->down, o, j)]);
        plain_tokens(p, p->down, p->dy, d->d_out, o, NULL, 0, 0, &p->out->part[D_DOWN_BIAS][o]);
    }
}

UNUSED_FN float *plain_rows(const float *rows, size_t n, int compute) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n && rows; i++) p[i] = entered(rows[i], compute);
    return p;
}

/* Everything that a step of the lesson writes, into out; add: SWIGLU_TRAIN_ACCUMULATE. */
UNUSED_FN void plain_step(const struct lesson *l, int compute, int add, struct outcome *out) {
    const struct swiglu_desc *d = &l->block.desc;
    struct plain p = {.desc = d, .m = l->m, .n_halves = n_halves(d), .up = compute_of_up(d, compute),
                      .down = compute_of_down(d, compute), .out = out, .add = add};
    const size_t f = d->d_ff, longest = 2 * f + l->m + 64;
    p.x = plain_rows(l->x_data, l->m * d->d_in, p.up), p.dy = plain_rows(l->dy_data, l->m * d->d_out, p.down);
    p.w_down = plain_rows(NULL, d->d_out * f, 0), p.h = plain_rows(NULL, l->m * f, 0);
    p.a = plain_rows(NULL, longest, 0), p.b = plain_rows(NULL, longest, 0);
    for (unsigned half = 0; half < p.n_halves; half++) {
        p.d[half] = plain_rows(NULL, l->m * f, 0), p.w[half] = plain_rows(NULL, f * d->d_in, 0);
        for (size_t j = 0; j < f; j++)
            for (size_t i = 0; i < d->d_in; i++)
                p.w[half][j * d->d_in + i] = entered_weight(half_matrix(d, half), half_output(d, half, j), i, p.up);
    }
    for (size_t o = 0; o < d->d_out; o++)
        for (size_t j = 0; j < f; j++) p.w_down[o * f + j] = entered_weight(&d->down, o, j, p.down);
    for (size_t t = 0; t < l->m; t++)
        for (size_t j = 0; j < f; j++) plain_unit(&p, t, j);
    plain_y(&p);
    plain_dx(&p);
    plain_weights(&p);
    void *const all[] = {p.x, p.dy, p.w_down, p.h, p.a, p.b, p.d[0], p.d[1], p.w[0], p.w[1]};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

#endif
