/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The K formats, whose encoders are free to choose. Each part of 16 or 32 values tries several steps between its integers,
 * fits scale (and minimum) to the integers of each by least squares, and keeps what errs least. The parts' scales are
 * rounded to the block's own small integers, each to the one that errs least beside its neighbours, and the values are
 * rounded anew with what the decoder will multiply them with.
 *
 * A block is brought to a largest magnitude in [1, 2) first, by a power of two, so that no square over- or underflows.
 */
#include <math.h>
#include <stdbool.h>

#include "base/half.h"
#include "dtype/encode.h"

typedef unsigned char byte;

enum { N_TRIES = 24 }; /* a multiple of any vector width, as the loops over tries are the inner ones */

/* To the nearest integer, for |v| < 2^22. */
static float round_small(float v) { return v + 0x1.8p23f - 0x1.8p23f; }
static float clamp(float v, float lo, float hi) { return v < lo ? lo : v > hi ? hi : v; }
static float rounded(float v, float lo, float hi) { return clamp(round_small(v), lo, hi); }
static float largest(const float *x, int n) {
    float found = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(found)) found = x[i];
    return found;
}

/* What a part's integers may be, and how many values it has. Affine: x = scale q - min with min >= 0. */
struct part { int n; float lo, hi; };
struct fit { float scale, min; };

static float error_of(const float *x, const struct part *p, struct fit f) {
    const float inverse = f.scale != 0 ? 1 / f.scale : 0;
    float sum = 0;
    for (int i = 0; i < p->n; i++) {
        const float off = f.scale * rounded((x[i] + f.min) * inverse, p->lo, p->hi) - f.min - x[i];
        sum += off * off;
    }
    return sum;
}

/* The k-th try makes the integers as if the range of values had some more or fewer steps than integers. */
static void try_inverses(float range, float steps, float inverse[N_TRIES]) {
    const int middle = N_TRIES / 2;
    for (int k = 0; k < N_TRIES; k++) inverse[k] = (steps + 0.1f * (float)(k - middle)) / range;
}

/* Sums over the values of x q and q q and q, for all tries at once. */
struct sums { float xq[N_TRIES], qq[N_TRIES], q1[N_TRIES]; };

static void sum_tries(const float *x, const struct part *p, float min, const float *inverse, struct sums *restrict s) {
    const float lo = p->lo, hi = p->hi;
    *s = (struct sums){0};
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < N_TRIES; k++) {
            const float q = rounded((x[i] + min) * inverse[k], lo, hi);
            s->xq[k] += x[i] * q, s->qq[k] += q * q, s->q1[k] += q;
        }
}

static struct fit fit_symmetric(const float *x, const struct part *p) {
    const float top = largest(x, p->n);
    float inverse[N_TRIES], best = 0;
    struct fit f = {0, 0};
    struct sums s;
    if (top == 0) return f;
    try_inverses(top, p->lo, inverse); /* the largest gets the integer that has no opposite */
    sum_tries(x, p, 0, inverse, &s);
    for (int k = 0; k < N_TRIES; k++)
        if (s.xq[k] * s.xq[k] > best * s.qq[k]) best = s.xq[k] * s.xq[k] / s.qq[k], f.scale = s.xq[k] / s.qq[k];
    return f;
}

/* By how much scale q - min reduces the squared error that 0 would have. */
static double gain(const struct sums *s, int k, double n, double sum, struct fit f) {
    const double a = (double)f.scale, b = (double)f.min;
    return 2 * (a * (double)s->xq[k] - b * sum + a * b * (double)s->q1[k]) - a * a * (double)s->qq[k] - n * b * b;
}

static struct fit fit_affine(const float *x, const struct part *p) {
    float min = 0, max = x[0], inverse[N_TRIES], sum = 0;
    for (int i = 0; i < p->n; i++) {
        min = x[i] < min ? x[i] : min, max = x[i] > max ? x[i] : max;
        sum += x[i];
    }
    struct fit f = {0, -min};
    struct sums s;
    if (max == min) return f;
    try_inverses(max - min, p->hi, inverse);
    sum_tries(x, p, -min, inverse, &s);
    const float n = (float)p->n;
    double most = -INFINITY;
    for (int k = 0; k < N_TRIES; k++) {
        const float det = n * s.qq[k] - s.q1[k] * s.q1[k];
        struct fit try = {0, 0};
        if (det > 0) try.scale = (n * s.xq[k] - sum * s.q1[k]) / det, try.min = (try.scale * s.q1[k] - sum) / n;
        if (!(try.min > 0)) try = (struct fit){s.qq[k] > 0 ? s.xq[k] / s.qq[k] : 0, 0}; /* a minimum only lowers */
        const double found = gain(&s, k, (double)n, (double)sum, try);
        if (try.scale > 0 && found > most) most = found, f = try;
    }
    return f;
}

/* A block on its way: values brought to about 1, parts, and what they were divided by. */
struct block {
    float x[256];
    int exponent; /* x = source 2^-exponent */
    int n_parts;
    struct part part;
    float d, dmin;      /* as the decoder sees them, times 2^-exponent */
    uint16_t d16, dmin16;
    int scale[16], min[16];
    int q[256];
};

static void load_block(struct block *b, const float *src) {
    float top = largest(src, 256);
    b->exponent = 0;
    if (top != 0) (void)frexpf(top, &b->exponent);
    for (int i = 0; i < 256; i++) b->x[i] = ldexpf(src[i], -b->exponent);
}

/* A scale as f16, and what is left of it. A subnormal one is rounded away from 0: the integers that multiply it have room
 * below, not above. */
static uint16_t store_scale(const struct block *b, float *d) {
    const float exact = ldexpf(*d, b->exponent);
    uint16_t d16 = swiglu_f16_store(exact);
    if (fabsf(exact) < 0x1p-14f && fabsf(swiglu_f16_widen(d16)) < fabsf(exact)) d16++;
    *d = ldexpf(swiglu_f16_widen(d16), -b->exponent);
    return d16;
}

/* The integers nearby that err least, or 0 where nothing errs less than no values at all. */
static void choose_scale(struct block *b, int part, struct fit f, int lo, int top, int min_top) {
    const float *x = b->x + part * b->part.n;
    const int s0 = b->d != 0 ? (int)rounded(f.scale / b->d, (float)lo, (float)top) : 0;
    const int m0 = b->dmin != 0 ? (int)rounded(f.min / b->dmin, 0, (float)min_top) : 0;
    float least = error_of(x, &b->part, (struct fit){0, 0});
    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            if (s < lo || s > top || m < 0 || m > min_top) continue;
            const struct fit try = {b->d * (float)s, b->dmin * (float)m};
            const float error = error_of(x, &b->part, try);
            if (error < least) least = error, b->scale[part] = s, b->min[part] = m;
        }
}

/* lo, top: of the integers that scale a part; min_top of its minimum, 0: symmetric. An infinite scale stays so, and its
 * integers mean nothing. */
static void encode_block(struct block *b, const float *src, struct part part, int lo, int top, int min_top) {
    struct fit fit[16];
    float scale = 0, min = 0;
    load_block(b, src);
    b->part = part, b->n_parts = 256 / part.n;
    for (int p = 0; p < b->n_parts; p++) {
        fit[p] = min_top ? fit_affine(b->x + p * part.n, &part) : fit_symmetric(b->x + p * part.n, &part);
        if (fabsf(fit[p].scale) > fabsf(scale)) scale = fit[p].scale;
        if (fit[p].min > min) min = fit[p].min;
    }
    b->d = scale / (float)(lo < 0 ? lo : top), b->dmin = min_top ? min / (float)min_top : 0;
    b->d16 = store_scale(b, &b->d), b->dmin16 = store_scale(b, &b->dmin);
    const bool lost = !isfinite(b->d) || !isfinite(b->dmin);
    for (int p = 0; p < b->n_parts; p++) {
        b->scale[p] = b->min[p] = 0;
        if (!lost) choose_scale(b, p, fit[p], lo, top, min_top);
        const float d = lost ? 0 : b->d * (float)b->scale[p], low = lost ? 0 : b->dmin * (float)b->min[p];
        const float inverse = d != 0 ? 1 / d : 0;
        for (int i = p * part.n; i < (p + 1) * part.n; i++) b->q[i] = (int)rounded((b->x[i] + low) * inverse, part.lo, part.hi);
    }
}

/* 2 bits of each value, in the order in which quant_k.c reads them. */
static void put_2_bits(const int q[256], byte *to) {
    for (int i = 0; i < 64; i++) {
        const int *v = q + i / 32 * 128 + i % 32;
        to[i] = (byte)((v[0] & 3) | (v[32] & 3) << 2 | (v[64] & 3) << 4 | (v[96] & 3) << 6);
    }
}

void swiglu_encode_q2_k(const float *src, size_t n_blocks, void *dst) {
    struct block k;
    for (byte *b = dst; n_blocks--; b += 84, src += 256) {
        encode_block(&k, src, (struct part){16, 0, 3}, 0, 15, 15);
        for (int p = 0; p < 16; p++) b[p] = (byte)(k.scale[p] | k.min[p] << 4);
        put_2_bits(k.q, b + 16);
        swiglu_put_le16(b + 80, k.d16);
        swiglu_put_le16(b + 82, k.dmin16);
    }
}

void swiglu_encode_q3_k(const float *src, size_t n_blocks, void *dst) {
    struct block k;
    for (byte *b = dst; n_blocks--; b += 110, src += 256) {
        encode_block(&k, src, (struct part){16, -4, 3}, -32, 31, 0);
        memset(b, 0, 110);
        for (int i = 0; i < 256; i++) { /* the mask says where nothing is to be subtracted */
            b[i % 32] |= (byte)((k.q[i] >= 0) << i / 32);
            k.q[i] += k.q[i] < 0 ? 4 : 0;
        }
        put_2_bits(k.q, b + 32);
        for (int p = 0; p < 16; p++) {
            const int s = k.scale[p] + 32;
            b[96 + p % 8] |= (byte)((s & 15) << p / 8 * 4);
            b[104 + p % 4] |= (byte)(s >> 4 << p / 4 * 2);
        }
        swiglu_put_le16(b + 108, k.d16);
    }
}

/* The 8 scales and 8 minimums of 6 bits in 12 bytes that Q4_K and Q5_K share. */
static void put_head(const struct block *k, byte *head) {
    byte *s = head + 4;
    swiglu_put_le16(head, k->d16);
    swiglu_put_le16(head + 2, k->dmin16);
    for (int p = 0; p < 4; p++) {
        const int sc = k->scale[p + 4], mn = k->min[p + 4];
        s[p] = (byte)(k->scale[p] | sc >> 4 << 6);
        s[p + 4] = (byte)(k->min[p] | mn >> 4 << 6);
        s[p + 8] = (byte)((sc & 15) | (mn & 15) << 4);
    }
}

static void put_4_bits(const int q[256], byte *to) {
    for (int i = 0; i < 128; i++) {
        const int *v = q + i / 32 * 64 + i % 32;
        to[i] = (byte)((v[0] & 15) | (v[32] & 15) << 4);
    }
}

void swiglu_encode_q4_k(const float *src, size_t n_blocks, void *dst) {
    struct block k;
    for (byte *b = dst; n_blocks--; b += 144, src += 256) {
        encode_block(&k, src, (struct part){32, 0, 15}, 0, 63, 63);
        put_head(&k, b);
        put_4_bits(k.q, b + 16);
    }
}

void swiglu_encode_q5_k(const float *src, size_t n_blocks, void *dst) {
    struct block k;
    for (byte *b = dst; n_blocks--; b += 176, src += 256) {
        encode_block(&k, src, (struct part){32, 0, 31}, 0, 63, 63);
        put_head(&k, b);
        memset(b + 16, 0, 32);
        for (int i = 0; i < 256; i++) b[16 + i % 32] |= (byte)(k.q[i] >> 4 << i / 32);
        put_4_bits(k.q, b + 48);
    }
}

void swiglu_encode_q6_k(const float *src, size_t n_blocks, void *dst) {
    struct block k;
    for (byte *b = dst; n_blocks--; b += 210, src += 256) {
        encode_block(&k, src, (struct part){16, -32, 31}, -128, 127, 0);
        for (int i = 0; i < 256; i++) k.q[i] += 32;
        for (int i = 0; i < 128; i++) { /* byte i holds value v and, in its high nibble, v + 64 */
            const int *v = k.q + i / 64 * 128 + i % 64;
            b[i] = (byte)((v[0] & 15) | (v[64] & 15) << 4);
        }
        for (int i = 0; i < 256; i++) k.q[i] >>= 4;
        put_2_bits(k.q, b + 128);
        for (int p = 0; p < 16; p++) b[192 + p] = (byte)k.scale[p];
        swiglu_put_le16(b + 208, k.d16);
    }
}
