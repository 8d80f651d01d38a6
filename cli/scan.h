/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and Inf among the weights of a file: values of f32, f16 and bf16, scales of block formats. */
#ifndef CLI_SCAN_H
#define CLI_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/model.h>

struct cli_finding {
    uint64_t n_bad, index, offset; /* how many; the first: element or block, and byte of the file */
    int in_blocks;
    char what[48]; /* such as "NaN scale 0x7e00" */
};

/* 1: every value or scale was looked at, *finding says what was bad; 0: the format has no decoder here. */
int cli_scan_tensor(const struct swiglu_model *model, size_t tensor, struct cli_finding *finding, const char *path);

#endif
