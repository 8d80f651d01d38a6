/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file, read by position into memory of our own: never mapped, so a file that shrinks is a short read. */
#ifndef SWIGLU_FILE_H
#define SWIGLU_FILE_H

#include "base/status.h"

struct swiglu_file {
    int fd;
    uint64_t bytes;  /* size at open */
    char shown[192]; /* the path for messages: escaped, a long one by its end */
};

/* Opens path for reading. Only a regular file is taken, and a FIFO does not block. On failure nothing is left open. */
enum swiglu_status swiglu_file_open(struct swiglu_file *file, const char *path, struct swiglu_error *error);
void swiglu_file_close(struct swiglu_file *file);

/* Reads exactly n bytes from byte `at` on, or fails with E_READ. */
enum swiglu_status swiglu_file_read(const struct swiglu_file *file, uint64_t at, void *dst, size_t n,
                                    struct swiglu_error *error);

#endif
