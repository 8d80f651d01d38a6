/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF model in several files, as gguf-split makes them: NAME-00001-of-00003.gguf and its siblings. Each shard is a
 * whole GGUF file; split.no counts them from 0, split.count is how many there are, split.tensors.count how many tensors
 * they hold together. The metadata of the model stand in the first.
 */
#ifndef SWIGLU_GGUF_SET_H
#define SWIGLU_GGUF_SET_H

#include "io/gguf.h"

/* The header of the catalog's only file, which path names, or of the whole set that it is a shard of: the catalog then holds
 * all of it in order, and g the first. Whatever happens, swiglu_gguf_free is due. */
enum swiglu_status swiglu_gguf_open(struct swiglu_gguf *g, struct swiglu_catalog *catalog, const char *path,
                                    struct swiglu_error *error);

/* The n files of a set, in order, whatever they are called; one file: a model of its own. The catalog is empty before.
 * The errors of a file that is not there say what `from` is. */
enum swiglu_status swiglu_gguf_read_set(struct swiglu_gguf *g, struct swiglu_catalog *catalog, char *const *paths, size_t n,
                                        const char *from, struct swiglu_error *error);

/* Whether the key is about the set, not about the model. */
bool swiglu_gguf_is_split_key(const char *key);

#endif
