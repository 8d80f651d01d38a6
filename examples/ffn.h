/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SwiGLU block initialised as a framework would: every weight uniform in +-1/sqrt(fan_in), the default of PyTorch's
 * nn.Linear, from a seeded generator, so that each run sees the same block.
 */
#ifndef EXAMPLES_FFN_H
#define EXAMPLES_FFN_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <swiglu/swiglu.h>

struct ffn {
    struct swiglu_desc desc; /* its matrices point at the weights below */
    float *gate, *up, *down;
    struct swiglu_block *block;
};

/* Ends the program when a call failed: an example has nobody to report to. */
static void must(enum swiglu_status status, const char *what, const struct swiglu_error *error) {
    if (status == SWIGLU_OK) return;
    fprintf(stderr, "%s: %s: %s\n", what, swiglu_status_name(status), error ? error->text : "");
    exit(1);
}

static void *must_alloc(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p) must(SWIGLU_E_MEMORY, "allocation", NULL);
    return p;
}

/* The next number of splitmix64, as a double in [0, 1). */
static double next_uniform(uint64_t *seed) {
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* n values of a standard normal distribution (Box and Muller). */
static void fill_normal(float *x, size_t n, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) {
        const double radius = sqrt(-2 * log(1 - next_uniform(seed)));
        x[i] = (float)(radius * cos(6.283185307179586 * next_uniform(seed)));
    }
}

/* A weight of [outputs, inputs]. */
static struct swiglu_matrix linear(float **w, size_t outputs, size_t inputs, uint64_t *seed) {
    const double bound = 1 / sqrt((double)inputs);
    *w = must_alloc(outputs * inputs, sizeof **w);
    for (size_t i = 0; i < outputs * inputs; i++) (*w)[i] = (float)((2 * next_uniform(seed) - 1) * bound);
    return (struct swiglu_matrix){.data = *w, .dtype = SWIGLU_F32, .rows = outputs, .cols = inputs};
}

static struct ffn ffn_create(size_t d_model, size_t d_ff, uint64_t *seed) {
    struct ffn ffn;
    struct swiglu_error error = {.struct_size = sizeof error};
    swiglu_desc_init(&ffn.desc);
    ffn.desc.d_in = ffn.desc.d_out = d_model;
    ffn.desc.d_ff = d_ff;
    ffn.desc.gate = linear(&ffn.gate, d_ff, d_model, seed);
    ffn.desc.up = linear(&ffn.up, d_ff, d_model, seed);
    ffn.desc.down = linear(&ffn.down, d_model, d_ff, seed);
    must(swiglu_block_create(&ffn.desc, NULL, &ffn.block, &error), "block", &error);
    return ffn;
}

static void ffn_destroy(struct ffn *ffn) {
    swiglu_block_destroy(ffn->block);
    free(ffn->gate), free(ffn->up), free(ffn->down);
}

/* y = block(x) for m rows, on as many threads as this process may use. */
static void ffn_forward(const struct ffn *ffn, size_t m, const float *x, float *y) {
    struct swiglu_pool *pool;
    size_t bytes;
    must(swiglu_pool_create(0, &pool), "pool", NULL);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    must(swiglu_forward_bytes(ffn->block, m, runner.n_threads, &bytes), "workspace", NULL);
    void *work = must_alloc(bytes, 1);
    must(swiglu_forward(ffn->block, m, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0},
                        (struct swiglu_work){work, bytes}, &runner),
         "forward", NULL);
    free(work);
    swiglu_pool_destroy(pool);
}

/* 1 when row `row` of y is within the documented error bound of the double-precision reference. */
static int ffn_row_is_right(const struct ffn *ffn, size_t row, const float *x, const float *y) {
    const size_t d_in = ffn->desc.d_in, d_out = ffn->desc.d_out;
    double *reference = must_alloc(2 * d_out, sizeof *reference), *bound = reference + d_out;
    const struct swiglu_reference out = {.struct_size = sizeof out, .y = reference, .bound = bound};
    struct swiglu_error error = {.struct_size = sizeof error};
    must(swiglu_reference_run(&ffn->desc, 1, (struct swiglu_crows){x + row * d_in, SWIGLU_F32, 0}, &out, &error),
         "reference", &error);
    int right = 1;
    for (size_t i = 0; i < d_out; i++) right &= fabs((double)y[row * d_out + i] - reference[i]) <= bound[i];
    free(reference);
    return right;
}

#endif
