/* SPDX-License-Identifier: Apache-2.0 */
/* Every limit that a file can run into. Each is printed in the error that it causes (docs/files.md). */
#ifndef SWIGLU_LIMITS_H
#define SWIGLU_LIMITS_H

#include <stdint.h>

enum {
    SWIGLU_LIMIT_KEY = 65535,        /* bytes of a metadata key, and of a string that JSON text holds */
    SWIGLU_LIMIT_NAME = 63,          /* bytes of a tensor name, as in ggml */
    SWIGLU_LIMIT_DIMS = 4,           /* dimensions of a tensor */
    SWIGLU_LIMIT_WEIGHT_DIMS = 2,    /* and of a weight */
    SWIGLU_LIMIT_ALIGNMENT = 1 << 20,
    SWIGLU_LIMIT_LAYER = 9999,       /* layer number in a tensor name */
    SWIGLU_LIMIT_EXPERT = 65535,     /* expert number in a tensor name */
    SWIGLU_LIMIT_EXPERT_PARTS = 1 << 18, /* weights of experts, slices counted one by one */
    SWIGLU_LIMIT_KEPT = 4096,        /* metadata values up to this many bytes are kept, longer ones stepped over */
    SWIGLU_LIMIT_JSON_DEPTH = 32,    /* objects and arrays in each other */
    SWIGLU_LIMIT_RANK = 64,          /* dimensions of a safetensors tensor */
    SWIGLU_LIMIT_FILES = 4096,       /* files of a checkpoint */
    SWIGLU_LIMIT_FILE_NAME = 255,    /* bytes of a shard's name */
    SWIGLU_LIMIT_HEADER = 100000000  /* bytes of a safetensors header, as in the reference reader */
};

/* The smallest entry of each kind: a count is compared with the bytes left before anything is reserved. */
enum {
    SWIGLU_MIN_KV_BYTES = 14,     /* key length 8, key 1, type 4, value 1 */
    SWIGLU_MIN_TENSOR_BYTES = 25, /* name length 8, name 1, n_dims 4, type 4, offset 8 */
    SWIGLU_MIN_STRING_BYTES = 8   /* its length */
};

#define SWIGLU_LIMIT_COUNT ((uint64_t)UINT32_MAX) /* tensors, metadata entries */
#define SWIGLU_LIMIT_ELEMS ((uint64_t)INT64_MAX)  /* values of a tensor */
#define SWIGLU_LIMIT_BYTES ((uint64_t)INT64_MAX)  /* of a tensor, and its offset: their sum fits 64 bits */

#endif
