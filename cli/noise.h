/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator behind --seed: value i of a stream is a pure function of (seed, stream, i), made of integer operations
 * and one f32 multiplication, so that NumPy repeats it bit for bit (the lines are in swiglu(1)) and any part of a
 * weight can be made alone. Uniform with mean 0 and root mean square 1.
 */
#ifndef CLI_NOISE_H
#define CLI_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/swiglu.h>

enum cli_stream { CLI_STREAM_X = 0, CLI_STREAM_GATE = 1, CLI_STREAM_UP = 2, CLI_STREAM_DOWN = 3, CLI_STREAM_ROWS = 4 };

uint64_t cli_noise_bits(uint64_t seed, unsigned stream, uint64_t i);
void cli_noise_fill(uint64_t seed, unsigned stream, uint64_t first, size_t n, float *dst);

/* A weight that exists nowhere: noise times scale, rounded to dtype, made when it is read. */
struct cli_noise_matrix {
    uint64_t seed;
    unsigned stream;
    float scale;
    int dtype;
};

struct cli_noise_block {
    struct cli_noise_matrix gate, up, down;
    void *kept[3];
};

/* A gated block of widths d, f, d: separate layout, weights times 1 / sqrt(fan in), no bias. desc refers to *own. */
void cli_noise_block_init(struct cli_noise_block *own, uint64_t seed, size_t d, size_t f, int dtype,
                          const struct swiglu_act *act, struct swiglu_desc *desc);

/* Makes the weights, once, where many blocks are made of them: encoding takes longer than packing. */
void cli_noise_block_keep(struct cli_noise_block *own, struct swiglu_desc *desc);
void cli_noise_block_free(struct cli_noise_block *own);

#endif
