/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a GGUF file (v2, v3), read and checked as a whole: metadata, tensor list, where the data lies. It knows
 * nothing of models. Each header field is read once, into private memory; counts reserve nothing.
 */
#ifndef SWIGLU_GGUF_H
#define SWIGLU_GGUF_H

#include "io/catalog.h"

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

struct swiglu_gguf_type { uint32_t type; const char *name; uint32_t block_elems, block_bytes; };

struct swiglu_gguf {
    struct swiglu_catalog *catalog; /* holds the file, its tensors and the warnings */
    size_t file, first;             /* the file in it, and the first of its tensors */
    uint32_t version;
    uint64_t alignment, list_at, data_start; /* list_at: where the metadata end and the list of tensors begins */
    struct swiglu_names keys;
    struct swiglu_kv *kvs;
    size_t kvs_capacity;
    char *values; /* strings escaped and NUL-terminated, everything else as in the file */
    size_t values_bytes, values_capacity;
};

/* Reads the header of the catalog's file and adds its tensors; after several files swiglu_catalog_sort is due. Whatever
 * happens, swiglu_gguf_free is due. */
enum swiglu_status swiglu_gguf_read(struct swiglu_gguf *g, struct swiglu_catalog *catalog, size_t file,
                                    struct swiglu_error *error);
void swiglu_gguf_free(struct swiglu_gguf *g);
static inline const struct swiglu_file *swiglu_gguf_file(const struct swiglu_gguf *g) {
    return &g->catalog->files[g->file];
}

const struct swiglu_gguf_type *swiglu_gguf_type_find(uint32_t type); /* NULL: no such type */

/* Metadata. NULL or false where the key is missing, of another type, not kept, or i is past the end. A scalar counts as
 * an array of one; integers are of any width and not negative. */
const struct swiglu_kv *swiglu_gguf_find(const struct swiglu_gguf *g, const char *key);
const char *swiglu_gguf_text(const struct swiglu_gguf *g, const struct swiglu_kv *kv);
bool swiglu_gguf_integer(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, uint64_t *out);
bool swiglu_gguf_real(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, double *out);

const char *swiglu_kv_type_name(uint32_t type);

/* The value in words: a string as it is kept, numbers, the elements of an array behind commas; "" where it is not kept, "..." at
 * the end where it is cut. */
void swiglu_gguf_words(const struct swiglu_gguf *g, const struct swiglu_kv *kv, char *dst, size_t n);

#endif
