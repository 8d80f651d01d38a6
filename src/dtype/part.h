/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What block formats are made of: integers times scales, 32 consecutive values at a time. The decoders, the reference and
 * the kernels' checks all read formats through this; a decoder is the formula below over all parts of a block.
 */
#ifndef SWIGLU_PART_H
#define SWIGLU_PART_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum { SWIGLU_QUANT_PART = 32 };

/* The value of integer q; of two halves, the first 16 values have index h = 0, the others 1. Every product of scales and
 * integers is exact in f32, so that only the last addition rounds. */
enum swiglu_quant_kind {
    SWIGLU_QUANT_SYMMETRIC,  /* a q */
    SWIGLU_QUANT_MINIMUM,    /* a q + b */
    SWIGLU_QUANT_HALVES,     /* (a sc[h]) q */
    SWIGLU_QUANT_HALVES_MIN  /* (a sc[h]) q - am m[h] */
};

struct swiglu_quant_part {
    enum swiglu_quant_kind kind;
    int8_t q[SWIGLU_QUANT_PART];
    float a, b, am;
    int sc[2], m[2];
};

/* Values [32 part, 32 part + 32) of a block that lies anywhere. */
typedef void swiglu_part_fn(const unsigned char *block, unsigned part, struct swiglu_quant_part *p);
#define DTYPE(NAME, text, elems, bytes, file_type, scales, name) swiglu_part_fn swiglu_part_##name; /* floats have none */
#include "dtype/dtype.def"
#undef DTYPE

static inline void swiglu_part_decode(const struct swiglu_quant_part *p, float *dst) {
    const int halves = p->kind == SWIGLU_QUANT_HALVES || p->kind == SWIGLU_QUANT_HALVES_MIN;
    for (int h = 0; h < 2; h++, dst += SWIGLU_QUANT_PART / 2) {
        const int8_t *q = p->q + h * SWIGLU_QUANT_PART / 2;
        const float a = halves ? p->a * (float)p->sc[h] : p->a;
        if (p->kind == SWIGLU_QUANT_SYMMETRIC || p->kind == SWIGLU_QUANT_HALVES) {
            for (int i = 0; i < SWIGLU_QUANT_PART / 2; i++) dst[i] = a * (float)q[i];
        } else {
            const float b = halves ? -(p->am * (float)p->m[h]) : p->b;
            for (int i = 0; i < SWIGLU_QUANT_PART / 2; i++) dst[i] = a * (float)q[i] + b;
        }
    }
}

/* Defines the decoder of a format from its parts. */
#define SWIGLU_DECODE_PARTS(name, block_bytes, n_parts)                                              \
    void swiglu_decode_##name(const void *src, size_t n_blocks, float *dst) {                        \
        const unsigned char *block = src;                                                            \
        for (; n_blocks--; block += (block_bytes))                                                   \
            for (unsigned part = 0; part < (n_parts); part++, dst += SWIGLU_QUANT_PART) {                  \
                struct swiglu_quant_part p;                                                         \
                swiglu_part_##name(block, part, &p);                                                 \
                swiglu_part_decode(&p, dst);                                                         \
            }                                                                                        \
    }

#endif
