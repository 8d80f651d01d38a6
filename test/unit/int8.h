/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of quantised weights, and int8 compute of them as the plain f32 loops of the clause. */
#ifndef SWIGLU_TEST_INT8_H
#define SWIGLU_TEST_INT8_H

#include "support.h"

#include "dtype/dtype.h"

#include "check/int8_oracle.c" /* it belongs to another program */

static const int formats[] = {SWIGLU_Q4_0, SWIGLU_Q4_1, SWIGLU_Q5_0, SWIGLU_Q5_1, SWIGLU_Q8_0, SWIGLU_MXFP4, SWIGLU_Q2_K,
                              SWIGLU_Q3_K, SWIGLU_Q4_K, SWIGLU_Q5_K, SWIGLU_Q6_K};

/* ---- blocks of a format ---- */

struct int8_block {
    struct swiglu_desc desc;
    unsigned char *memory[3];
    float *bias[3]; /* of gate, up and down */
    size_t row_bytes[3];
};

UNUSED_FN void encode_matrix(struct int8_block *b, int which, struct swiglu_matrix *m, int dtype, size_t rows, size_t cols,
                             uint64_t *seed) {
    const struct swiglu_dtype_row *t = swiglu_dtype_find(dtype);
    float *values = new_floats(SWIGLU_F32, rows * cols, 1 / sqrt((double)cols), seed);
    b->row_bytes[which] = cols / t->block_elems * t->block_bytes;
    b->memory[which] = malloc(rows * b->row_bytes[which]);
    assert_int_equal(swiglu_encode(dtype, values, rows * cols, b->memory[which]), SWIGLU_OK);
    *m = (struct swiglu_matrix){.data = b->memory[which], .dtype = dtype, .rows = rows, .cols = cols, .ld_elems = cols};
    free(values);
}

/* Down's format may be a float; the clause is then another. */
UNUSED_FN struct int8_block new_int8(size_t d_in, size_t d_ff, size_t d_out, const char *act, int first, int down,
                                     uint64_t seed) {
    struct int8_block b;
    memset(&b, 0, sizeof b);
    swiglu_desc_init(&b.desc);
    b.desc.d_in = d_in, b.desc.d_ff = d_ff, b.desc.d_out = d_out;
    assert_int_equal(swiglu_act_init(&b.desc.act, act), SWIGLU_OK);
    encode_matrix(&b, 0, &b.desc.gate, first, d_ff, d_in, &seed);
    encode_matrix(&b, 1, &b.desc.up, first, d_ff, d_in, &seed);
    encode_matrix(&b, 2, &b.desc.down, down, d_out, d_ff, &seed);
    return b;
}

UNUSED_FN void add_biases(struct int8_block *b, uint64_t seed) {
    struct swiglu_vector *const vectors[] = {&b->desc.gate_bias, &b->desc.up_bias, &b->desc.down_bias};
    for (int i = 0; i < 3; i++) {
        b->bias[i] = new_floats(SWIGLU_F32, i == 2 ? b->desc.d_out : b->desc.d_ff, 0.1, &seed);
        *vectors[i] = (struct swiglu_vector){b->bias[i], SWIGLU_F32};
    }
}

UNUSED_FN void free_int8(struct int8_block *b) {
    for (int i = 0; i < 3; i++) free(b->memory[i]), free(b->bias[i]);
}

/* ---- the clause in f32 ---- */

/* Wrong on purpose: what is done to a staged row before it meets the weights. */
typedef void spoil_fn(struct swiglu_int8_group *x, size_t n);

UNUSED_FN void chains(const struct int8_block *b, int which, size_t k, size_t n, const float *x, spoil_fn *spoil, float *out) {
    const struct swiglu_matrix *m = which == 0 ? &b->desc.gate : which == 1 ? &b->desc.up : &b->desc.down;
    struct swiglu_int8_group *staged = calloc(k / 32 + 1, sizeof *staged);
    oracle_int8_stage_row(x, k, staged);
    if (spoil) spoil(staged, k / 32);
    for (size_t j = 0; j < n; j++)
        out[j] = oracle_int8_chain(m->dtype, b->memory[which] + j * b->row_bytes[which], staged, k, 0, 0) +
                 (b->bias[which] ? b->bias[which][j] : -0.0f);
    free(staged);
}

/* Of activations without clamps. */
UNUSED_FN void oracle_hidden_row(const struct int8_block *b, const float *x, spoil_fn *spoil, float *h) {
    const size_t n = b->desc.d_ff;
    float *u = malloc(n * sizeof *u);
    chains(b, 0, b->desc.d_in, n, x, spoil, h);
    chains(b, 1, b->desc.d_in, n, x, spoil, u);
    assert_int_equal(swiglu_act_eval(&b->desc.act, n, h, h), SWIGLU_OK);
    for (size_t j = 0; j < n; j++) h[j] *= u[j];
    free(u);
}

#endif
