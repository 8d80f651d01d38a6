/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's .npy files: versions 1.0 to 3.0, little-endian f32 or f16 in C order; written as f32, version 1.0. A file is
 * read with a parser of its own that knows exactly the dictionary that NumPy writes: nothing is evaluated, nothing
 * recurses, and every count is compared with the bytes that are there before anything is reserved.
 */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <stddef.h>

enum { CLI_NPY_HEADER_MAX = 10000, CLI_NPY_RANK_MAX = 8 };

struct cli_npy {
    size_t rank, shape[CLI_NPY_RANK_MAX];
    size_t n_elems;
    float *data; /* f16 is widened exactly; owned by the caller */
};

/* Fails with CLI_USAGE on a file that cannot be opened or breaks the format, CLI_IO when a read or memory fails. */
void cli_npy_read(const char *path, struct cli_npy *array);
/* To the output that is open, which is then complete. */
void cli_npy_write(const struct cli_npy *array);

#endif
