/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a GGUF file (v2, v3), read and checked as a whole: metadata, tensor list, where the data lies. It knows
 * nothing of models. Each header field is read once, into private memory; counts reserve nothing.
 */
#ifndef SWIGLU_GGUF_H
#define SWIGLU_GGUF_H

#include "io/file.h"
#include "io/limits.h"
#include "io/names.h"

enum swiglu_kv_type {
    SWIGLU_KV_U8, SWIGLU_KV_I8, SWIGLU_KV_U16, SWIGLU_KV_I16, SWIGLU_KV_U32, SWIGLU_KV_I32, SWIGLU_KV_F32,
    SWIGLU_KV_BOOL, SWIGLU_KV_STRING, SWIGLU_KV_ARRAY, SWIGLU_KV_U64, SWIGLU_KV_I64, SWIGLU_KV_F64, SWIGLU_KV_TYPES
};

#define SWIGLU_KV_NOT_KEPT UINT64_MAX

struct swiglu_kv {
    uint32_t type; /* of the value, or of an array's elements */
    uint32_t is_array;
    uint64_t count;  /* values of an array, bytes of a string, else 1 */
    uint64_t value;  /* where it lies in `values`, or SWIGLU_KV_NOT_KEPT */
    uint64_t offset; /* of the entry in the file */
};

struct swiglu_tensor {
    uint32_t type, n_dims;
    uint64_t dims[SWIGLU_LIMIT_DIMS]; /* as in the file: fastest first */
    uint64_t offset, bytes;           /* of the data in the file */
    uint64_t entry;                   /* of its entry in the header */
};

struct swiglu_gguf_type { uint32_t type; const char *name; uint32_t block_elems, block_bytes; };

struct swiglu_gguf {
    struct swiglu_file file;
    int strict;
    uint32_t version;
    uint64_t alignment, data_start;
    struct swiglu_names keys, names; /* of kvs and of tensors */
    struct swiglu_kv *kvs;
    size_t kvs_capacity;
    char *values; /* strings escaped and NUL-terminated, everything else as in the file */
    size_t values_bytes, values_capacity;
    struct swiglu_tensor *tensors;
    size_t tensors_capacity;
    struct swiglu_names warnings;
};

/* On failure nothing is held and *g is zero. */
enum swiglu_status swiglu_gguf_open(struct swiglu_gguf *g, const char *path, int strict, struct swiglu_error *error);
void swiglu_gguf_close(struct swiglu_gguf *g);

const struct swiglu_gguf_type *swiglu_gguf_type_find(uint32_t type); /* NULL: no such type */

/* Metadata. NULL or false where the key is missing, of another type, not kept, or i is past the end. A scalar counts as
 * an array of one; integers are of any width and not negative. */
const struct swiglu_kv *swiglu_gguf_find(const struct swiglu_gguf *g, const char *key);
const char *swiglu_gguf_text(const struct swiglu_gguf *g, const struct swiglu_kv *kv);
bool swiglu_gguf_integer(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, uint64_t *out);
bool swiglu_gguf_real(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, double *out);

/* "FILE: text (at byte N)"; offset SWIGLU_NO_OFFSET leaves the last part out. */
enum swiglu_status swiglu_gguf_fail(const struct swiglu_gguf *g, struct swiglu_error *error, enum swiglu_status code,
                                    uint64_t offset, const char *format, ...) SW_PRINTF(5, 6);
/* Adds a warning; with strict it is an error, E_FORMAT. */
enum swiglu_status swiglu_gguf_warn(struct swiglu_gguf *g, struct swiglu_error *error, uint64_t offset,
                                    const char *format, ...) SW_PRINTF(4, 5);

#endif
