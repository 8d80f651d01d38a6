/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json: which tensor is in which shard. */
#ifndef SWIGLU_INDEX_H
#define SWIGLU_INDEX_H

#include "io/catalog.h"

struct swiglu_index {
    bool present;
    size_t file;                /* in the catalog */
    struct swiglu_names names;  /* of the tensors, sorted */
    uint64_t *offset;           /* per tensor: of its entry in the index */
    uint16_t *shard_of;         /* per tensor */
    size_t offset_capacity, shard_of_capacity;
    struct swiglu_names shards; /* plain file names, each once, sorted */
    uint32_t *shard_tensor;     /* per shard: the first tensor that should be in it */
    size_t shard_tensor_capacity;
};

/* Reads the file at path, adding it to the catalog; where there is none, nothing is present. swiglu_index_free is due
 * whatever happens. */
enum swiglu_status swiglu_index_read(struct swiglu_index *index, struct swiglu_catalog *catalog, const char *path,
                                     struct swiglu_error *error);
void swiglu_index_free(struct swiglu_index *index);

#endif
