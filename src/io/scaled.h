/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weight that is stored as several tensors: numbers of few bits, scales, zeros. Its values are
 *     (q - zero) * scale, or of MLX q * scale + bias
 * in f32, each operation rounded once. The tensors' shapes were checked when it was described (hf_quant.c), so that a place in
 * them is never outside.
 */
#ifndef SWIGLU_SCALED_H
#define SWIGLU_SCALED_H

#include "io/catalog.h"

enum swiglu_scaled_form {
    SWIGLU_SCALED_NONE,   /* the tensor is the weight */
    SWIGLU_SCALED_GRID, /* [out, in] of 8-bit values, a grid of scales, and of zeros of its shape */
    SWIGLU_SCALED_WORDS,  /* [out, words] of 32 bits, the low bits first (compressed-tensors) */
    SWIGLU_SCALED_MLX,    /* the same of whole numbers, with biases in place of zeros */
    SWIGLU_SCALED_GPTQ,   /* [words, out], the words along the inputs */
    SWIGLU_SCALED_AWQ     /* [in, words], eight outputs a word in AWQ's order */
};

struct swiglu_scaled {
    enum swiglu_scaled_form kind;
    unsigned bits;
    uint64_t rows, cols;            /* outputs, inputs */
    uint64_t row_group, col_group;  /* outputs and inputs that share a scale */
    uint64_t n_groups;              /* of inputs */
    long weight, scale, zero, g_idx; /* tensors; zero (of MLX: biases), g_idx: -1 = none */
    unsigned zero_offset;           /* GPTQ 1 stores zeros minus 1 */
};

/* Whether it is read as [in, out]. */
static inline bool swiglu_scaled_in_out(const struct swiglu_scaled *q) {
    return q->kind == SWIGLU_SCALED_GPTQ || q->kind == SWIGLU_SCALED_AWQ;
}

/* n_bytes of the weight as f32, stored row by row, from byte `byte` on; both multiples of 4 and within it. */
enum swiglu_status swiglu_scaled_read(const struct swiglu_scaled *q, const struct swiglu_catalog *catalog, uint64_t byte,
                                     void *dst, size_t n_bytes, struct swiglu_error *error);

#endif
