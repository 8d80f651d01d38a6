/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file, read by position into memory of our own: never mapped, so a file that shrinks is a short read. */
#ifndef SWIGLU_FILE_H
#define SWIGLU_FILE_H

#include <stdbool.h>

#include "base/status.h"

enum { SWIGLU_SHOWN_BYTES = 192 };

struct swiglu_file {
    int fd;
    uint64_t bytes;                 /* size at open */
    int64_t changed_s, changed_ns;  /* when it was last written to, at open */
    char shown[SWIGLU_SHOWN_BYTES]; /* the path for messages: escaped, a long one by its end */
};

/* Opens path for reading. Only a regular file is taken, and a FIFO does not block. On failure nothing is left open. */
enum swiglu_status swiglu_file_open(struct swiglu_file *file, const char *path, struct swiglu_error *error);
void swiglu_file_close(struct swiglu_file *file);

/* Reads exactly n bytes from byte `at` on, or fails with E_READ: also where the file has been written to since it was opened,
 * so that nothing is made of two states of it. A file of its name that took its place does not matter. */
enum swiglu_status swiglu_file_read(const struct swiglu_file *file, uint64_t at, void *dst, size_t n,
                                    struct swiglu_error *error);

/* Whether the path names this open file. */
bool swiglu_file_is(const struct swiglu_file *file, const char *path);

/* A path for messages: escaped, a long one by its end. */
void swiglu_file_show(char shown[SWIGLU_SHOWN_BYTES], const char *path);
/* E_OPEN for what is neither a regular file nor a folder; err is for error->os_errno. */
enum swiglu_status swiglu_file_irregular(const char *shown, int err, struct swiglu_error *error);
/* "SHOWN: what: the text of err" */
enum swiglu_status swiglu_file_fail(const char *shown, enum swiglu_status code, const char *what, int err,
                                    struct swiglu_error *error);

#endif
