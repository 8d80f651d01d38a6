/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all. The bytes go to a temporary file beside the target, which is synced, renamed
 * over the target and made durable by syncing the folder; until the rename the target is as it was.
 *   mode      that of a regular file which is replaced is kept (without set-id bits), a new file's follows the umask;
 *             the owner is whoever writes
 *   links     a symbolic link is replaced by the file, what it points to stays; anything else that is no regular file
 *             is refused
 *   leftovers a temporary is locked while its writer lives; unlocked ones of the same target are removed at the next
 *             start, unless they are an input
 */
#ifndef SWIGLU_WRITE_H
#define SWIGLU_WRITE_H

#include <stdbool.h>

#include "io/file.h"

struct swiglu_writer {
    int fd;
    uint64_t at; /* bytes written */
    char *target, *folder, *temporary; /* paths */
    char shown[SWIGLU_SHOWN_BYTES];
};

/* What is written comes from the inputs: none of them is a leftover, whatever its name is. E_OPEN, E_MEMORY. After success
 * the writer must go to swiglu_writer_close. */
enum swiglu_status swiglu_writer_open(struct swiglu_writer *w, const char *path, const struct swiglu_file *inputs,
                                      size_t n_inputs, struct swiglu_error *error);
enum swiglu_status swiglu_writer_put(struct swiglu_writer *w, const void *data, size_t n, struct swiglu_error *error);
/* Bytes of zero up to byte `to` of the file. */
enum swiglu_status swiglu_writer_pad(struct swiglu_writer *w, uint64_t to, struct swiglu_error *error);
/* The bytes are on the disk when it returns. */
enum swiglu_status swiglu_writer_sync(struct swiglu_writer *w, struct swiglu_error *error);
/* After a sync: the target is the new file. Only a failure that names the folder comes after the rename. */
enum swiglu_status swiglu_writer_commit(struct swiglu_writer *w, struct swiglu_error *error);
/* Whether something, a dangling link as well, has this name. */
bool swiglu_writer_exists(const char *path);
/* Removes the target again where the writer has put it there; one that replaced another file is not undone. */
void swiglu_writer_undo(struct swiglu_writer *w);
/* Removes the temporary unless it was committed, and frees. */
void swiglu_writer_close(struct swiglu_writer *w);

#endif
