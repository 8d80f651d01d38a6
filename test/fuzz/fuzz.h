/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is linked with libFuzzer (make fuzz T=gguf), or with replay.c in `make test`. */
#ifndef SWIGLU_TEST_FUZZ_H
#define SWIGLU_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "swiglu/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A property that every input must have; both drivers take an abort for a finding. */
#define MUST(condition)                                                                    \
    do                                                                                     \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    while (0)

/* The path of a file with these bytes in the folder of the process. The next call of its name replaces it. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t n);

/* A refusal is one that a file can cause, names the file and a place in it, and holds printable text only. */
void fuzz_refused(enum swiglu_status status, const struct swiglu_error *error, const char *path, size_t n);

/* Opens the model of n bytes, and uses whatever is accepted: reads each tensor, describes and prepares each block. named:
 * what a refusal must name, the path, or the folder of several files. */
void fuzz_model(const char *path, const char *named, size_t n);

/* Two files of these names in one input, four bytes with the length of the first before them; the second is opened. */
void fuzz_pair(const char *first, const char *second, const uint8_t *data, size_t n);

#endif
