/* SPDX-License-Identifier: Apache-2.0 */
#include "noise.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"

/* splitmix64 (Steele, Lea, Flood 2014): a counter times the golden ratio through a bijective mixer. */
#define GOLDEN 0x9e3779b97f4a7c15u

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t stream_key(uint64_t seed, unsigned stream) { return mix(seed + (stream + 1) * GOLDEN); }

uint64_t cli_noise_bits(uint64_t seed, unsigned stream, uint64_t i) {
    return mix(stream_key(seed, stream) + (i + 1) * GOLDEN);
}

/* The top 23 bits as an odd integer within 2^23: exact in f32 and symmetric; sqrt(3) makes the mean square 1. */
static float unit(uint64_t bits) {
    return (float)((int32_t)(bits >> 41) * 2 + 1 - (1 << 23)) * 0x1.bb67aep-23f;
}

void cli_noise_fill(uint64_t seed, unsigned stream, uint64_t first, size_t n, float *dst) {
    uint64_t key = stream_key(seed, stream);
    for (size_t i = 0; i < n; i++) dst[i] = unit(mix(key + (first + i + 1) * GOLDEN));
}

static enum swiglu_status read_noise(void *ctx, uint64_t byte, void *dst, size_t n_bytes,
                                     struct swiglu_error *error) {
    enum { PART = 256 }; /* values; whole blocks of every format */
    (void)error; /* nothing here can fail but a caller that splits a block */
    const struct cli_noise_matrix *matrix = ctx;
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    if (swiglu_dtype_query(matrix->dtype, &info) || PART % info.block_elems) return SWIGLU_E_UNSUPPORTED;
    if (byte % info.block_bytes || n_bytes % info.block_bytes) return SWIGLU_E_ARGUMENT;
    uint64_t at = byte / info.block_bytes * info.block_elems;
    char *out = dst;
    for (size_t n = n_bytes / info.block_bytes * info.block_elems; n;) {
        float values[PART];
        size_t part = n < PART ? n : PART;
        cli_noise_fill(matrix->seed, matrix->stream, at, part, values);
        for (size_t i = 0; i < part; i++) values[i] *= matrix->scale;
        enum swiglu_status status = swiglu_encode(matrix->dtype, values, part, out);
        if (status) return status;
        out += part / info.block_elems * info.block_bytes;
        at += part;
        n -= part;
    }
    return SWIGLU_OK;
}

static struct swiglu_matrix matrix_of(struct cli_noise_matrix *own, uint64_t seed, unsigned stream, int dtype,
                                      size_t rows, size_t cols) {
    *own = (struct cli_noise_matrix){seed, stream, cols ? (float)(1 / sqrt((double)cols)) : 0, dtype};
    return (struct swiglu_matrix){.read = read_noise, .ctx = own, .dtype = dtype, .rows = rows, .cols = cols};
}

void cli_noise_block_init(struct cli_noise_block *own, uint64_t seed, size_t d, size_t f, int dtype,
                          const struct swiglu_act *act, struct swiglu_desc *desc) {
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    cli_require(swiglu_dtype_query(dtype, &info), NULL, "weights");
    if (d % info.block_elems || f % info.block_elems)
        cli_fail(CLI_USAGE, "%s weights need widths that are multiples of %zu, not %zu and %zu", info.name,
                 (size_t)info.block_elems, d, f);
    *own = (struct cli_noise_block){.kept = {NULL}};
    swiglu_desc_init(desc);
    desc->d_in = desc->d_out = d;
    desc->d_ff = f;
    desc->act = *act;
    desc->gate = matrix_of(&own->gate, seed, CLI_STREAM_GATE, dtype, f, d);
    desc->up = matrix_of(&own->up, seed, CLI_STREAM_UP, dtype, f, d);
    desc->down = matrix_of(&own->down, seed, CLI_STREAM_DOWN, dtype, d, f);
}

void cli_noise_block_keep(struct cli_noise_block *own, struct swiglu_desc *desc) {
    struct swiglu_matrix *const matrices[] = {&desc->gate, &desc->up, &desc->down};
    for (int i = 0; i < 3; i++) {
        struct swiglu_matrix *w = matrices[i];
        struct swiglu_dtype_info info = {.struct_size = sizeof info};
        cli_require(swiglu_dtype_query(w->dtype, &info), NULL, "weights");
        const size_t n_bytes = w->rows * (w->cols / info.block_elems) * info.block_bytes;
        own->kept[i] = cli_alloc(n_bytes, 1);
        cli_require(w->read(w->ctx, 0, own->kept[i], n_bytes, NULL), NULL, "weights");
        w->data = own->kept[i], w->read = NULL;
    }
}

void cli_noise_block_free(struct cli_noise_block *own) {
    for (int i = 0; i < 3; i++) free(own->kept[i]), own->kept[i] = NULL;
}
