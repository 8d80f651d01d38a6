/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a GGUF file after another: its metadata byte for byte, a new list of tensors. */
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "io/convert.h"
#include "io/gguf_parse.h"
#include "io/gguf_set.h"

enum { COPY_BYTES = 1 << 16, COUNTS_AT = 8, METADATA_AT = 24 };

/* The list of tensors in the making. */
struct gguf_list { unsigned char *data; size_t bytes, capacity; };

/* Room for n bytes at the end, which count as used; NULL when memory is short. */
static unsigned char *list_extend(struct gguf_list *list, size_t n) {
    if (swiglu_grow(&list->data, &list->capacity, list->bytes + n, 1)) return NULL;
    list->bytes += n;
    return list->data + list->bytes - n;
}

static enum swiglu_status list_append_name(struct gguf_list *list, const char *name, struct swiglu_error *error) {
    const uint64_t n = strlen(name);
    unsigned char *at = list_extend(list, sizeof n + (size_t)n);
    REQUIRE(at, SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    memcpy(at, &n, sizeof n);
    memcpy(at + sizeof n, name, (size_t)n);
    return SWIGLU_OK;
}

/* The name is read from the file again: the catalog has it escaped. */
static enum swiglu_status list_name(struct gguf_list *list, const struct swiglu_output *o, const struct swiglu_gguf *g,
                                    struct swiglu_error *error) {
    const struct swiglu_tensor *t = &g->catalog->tensors[o->piece[0].tensor];
    const struct swiglu_file *file = &g->catalog->files[t->file];
    char raw[SWIGLU_LIMIT_NAME + 1] = {0};
    uint64_t n;
    TRY(swiglu_file_read(file, t->entry, &n, sizeof n, error));
    REQUIRE(n && n <= SWIGLU_LIMIT_NAME, SWIGLU_E_READ, "%s: tensor name of %llu bytes: the file has changed", file->shown,
            (unsigned long long)n);
    TRY(swiglu_file_read(file, t->entry + sizeof n, raw, (size_t)n, error));
    char *name = swiglu_output_name(o, raw);
    REQUIRE(name, SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    const enum swiglu_status status = list_append_name(list, name, error);
    swiglu_free(name);
    return status;
}

/* The rest of the entry. *next: where the data may begin, counted from the data section; moves behind them. */
static enum swiglu_status list_shape(struct gguf_list *list, struct swiglu_output *o, const struct swiglu_gguf *g,
                                     uint64_t *next, struct swiglu_error *error) {
    const struct swiglu_tensor *t = &g->catalog->tensors[o->piece[0].tensor];
    const uint32_t n_dims = t->n_dims, type = (uint32_t)o->type;
    uint64_t dims[SWIGLU_LIMIT_DIMS], end;
    for (uint32_t k = 0; k < n_dims; k++) dims[n_dims - 1 - k] = k ? t->dims[k] : o->rows; /* fastest first */
    o->offset = *next;
    REQUIRE(!SW_ADD(o->offset, o->bytes, &end) && !swiglu_align_up(end, g->alignment, next), SWIGLU_E_UNSUPPORTED,
            "the file would exceed 64 bits");
    unsigned char *at = list_extend(list, 16 + 8 * (size_t)n_dims);
    REQUIRE(at, SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    memcpy(at, &n_dims, 4);
    memcpy(at + 4, dims, 8 * (size_t)n_dims);
    memcpy(at + 4 + 8 * (size_t)n_dims, &type, 4);
    memcpy(at + 8 + 8 * (size_t)n_dims, &o->offset, 8);
    return SWIGLU_OK;
}

static enum swiglu_status list_build(struct gguf_list *list, struct swiglu_conversion *c, const struct swiglu_gguf *g,
                                     struct swiglu_output_file *file, struct swiglu_error *error) {
    file->bytes = 0;
    for (size_t i = file->begin; i < file->end; i++) {
        TRY(list_name(list, &c->at[i], g, error));
        TRY(list_shape(list, &c->at[i], g, &file->bytes, error));
    }
    return SWIGLU_OK;
}

/* general.file_type: that of the new type where most values have it now, else the old value. */
static uint32_t file_type(const struct swiglu_conversion *c, uint32_t old) {
    uint64_t all = 0, of_type = 0;
    for (size_t i = 0; i < c->n; i++) {
        all += c->at[i].elems;
        if (c->at[i].type == c->options.dtype) of_type += c->at[i].elems;
    }
    return of_type > all / 2 ? swiglu_dtype_find(c->options.dtype)->file_type : old;
}

static enum swiglu_status copy_range(struct swiglu_writer *w, const struct swiglu_file *file, uint64_t from,
                                     uint64_t to, struct swiglu_error *error) {
    unsigned char *buffer = swiglu_alloc(COPY_BYTES);
    REQUIRE(buffer, SWIGLU_E_MEMORY, "out of memory");
    enum swiglu_status status = SWIGLU_OK;
    while (from < to && status == SWIGLU_OK) {
        const size_t n = to - from < COPY_BYTES ? (size_t)(to - from) : COPY_BYTES;
        status = swiglu_file_read(file, from, buffer, n, error);
        if (status == SWIGLU_OK) status = swiglu_writer_put(w, buffer, n, error);
        from += n;
    }
    swiglu_free(buffer);
    return status;
}

/* ---- metadata ---- */

/* Entry i of the metadata with its bytes, but for general.file_type. */
static enum swiglu_status write_key(const struct swiglu_conversion *c, const struct swiglu_gguf *g, size_t i,
                                    struct swiglu_writer *w, struct swiglu_error *error) {
    static const char file_type_key[] = "general.file_type";
    const struct swiglu_kv *kv = &g->kvs[i];
    const uint64_t end = i + 1 < g->keys.n ? g->kvs[i + 1].offset : g->list_at;
    uint64_t old;
    if (strcmp(swiglu_names_at(&g->keys, i), file_type_key) || kv->type != SWIGLU_KV_U32 || kv->is_array ||
        !swiglu_gguf_integer(g, kv, 0, &old))
        return copy_range(w, swiglu_gguf_file(g), kv->offset, end, error);
    const uint32_t value = file_type(c, (uint32_t)old);
    TRY(copy_range(w, swiglu_gguf_file(g), kv->offset, end - sizeof value, error));
    return swiglu_writer_put(w, &value, sizeof value, error);
}

/* A set's later shards have nothing of the model's metadata but what places their tensors; what an input's own shards
 * say of themselves goes. */
static bool keeps_key(const struct swiglu_gguf *g, size_t i, size_t file) {
    const char *key = swiglu_names_at(&g->keys, i);
    return file ? !strcmp(key, "general.alignment") : !swiglu_gguf_is_split_key(key);
}

static enum swiglu_status write_split_key(struct swiglu_writer *w, const char *key, uint32_t type, uint64_t value,
                                          struct swiglu_error *error) {
    const uint64_t n = strlen(key);
    TRY(swiglu_writer_put(w, &n, sizeof n, error));
    TRY(swiglu_writer_put(w, key, (size_t)n, error));
    TRY(swiglu_writer_put(w, &type, sizeof type, error));
    return swiglu_writer_put(w, &value, swiglu_kv_bytes(type), error); /* little-endian, as the host is */
}

static enum swiglu_status write_header(const struct swiglu_conversion *c, const struct swiglu_gguf *g, size_t file,
                                       const struct gguf_list *list, struct swiglu_writer *w,
                                       struct swiglu_error *error) {
    enum { SPLIT_KEYS = 3 };
    unsigned char head[METADATA_AT];
    const uint64_t n_tensors = c->files[file].end - c->files[file].begin;
    uint64_t n_kv = c->n_files > 1 ? SPLIT_KEYS : 0;
    for (size_t i = 0; i < g->keys.n; i++) n_kv += keeps_key(g, i, file);
    TRY(swiglu_file_read(swiglu_gguf_file(g), 0, head, sizeof head, error));
    memcpy(head + COUNTS_AT, &n_tensors, sizeof n_tensors);
    memcpy(head + COUNTS_AT + sizeof n_tensors, &n_kv, sizeof n_kv);
    TRY(swiglu_writer_put(w, head, sizeof head, error));
    for (size_t i = 0; i < g->keys.n; i++)
        if (keeps_key(g, i, file)) TRY(write_key(c, g, i, w, error));
    if (c->n_files > 1) {
        TRY(write_split_key(w, "split.no", SWIGLU_KV_U16, file, error));
        TRY(write_split_key(w, "split.count", SWIGLU_KV_U16, c->n_files, error));
        TRY(write_split_key(w, "split.tensors.count", SWIGLU_KV_I32, c->n, error));
    }
    return swiglu_writer_put(w, list->data, list->bytes, error);
}

enum swiglu_status swiglu_gguf_write(struct swiglu_conversion *c, const struct swiglu_gguf *g, size_t file,
                                     struct swiglu_writer *w, struct swiglu_error *error) {
    struct gguf_list list = {0};
    struct swiglu_output_file *f = &c->files[file];
    uint64_t start;
    REQUIRE(c->n_files == 1 || c->n <= INT32_MAX, SWIGLU_E_UNSUPPORTED, "%zu tensors: limit of a set %d", c->n, INT32_MAX);
    enum swiglu_status status = list_build(&list, c, g, f, error);
    if (status == SWIGLU_OK) status = write_header(c, g, file, &list, w, error);
    swiglu_free(list.data);
    TRY(status);
    REQUIRE(!swiglu_align_up(w->at, g->alignment, &start) && !SW_ADD(f->bytes, start, &f->bytes), SWIGLU_E_UNSUPPORTED,
            "the file would exceed 64 bits");
    for (size_t i = f->begin; i < f->end; i++) c->at[i].offset += start;
    return SWIGLU_OK;
}
