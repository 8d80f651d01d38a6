/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf_set.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/gguf_parse.h"
#include "io/shard_name.h"

typedef unsigned long long ull;

#define NO "split.no"
#define COUNT "split.count"
#define TENSORS "split.tensors.count"
#define ALIGNMENT "general.alignment"

bool swiglu_gguf_is_split_key(const char *key) { return !strcmp(key, NO) || !strcmp(key, COUNT) || !strcmp(key, TENSORS); }

static enum swiglu_status set_bad_key(const struct swiglu_gguf *g, const char *key, const char *text,
                                      struct swiglu_error *error) {
    const struct swiglu_kv *kv = swiglu_gguf_find(g, key);
    return swiglu_catalog_fail(g->catalog, g->file, error, SWIGLU_E_FORMAT, kv ? kv->offset : SWIGLU_NO_OFFSET,
                               "%.60s%s", key, text);
}

/* ---- one shard among the others ---- */

static enum swiglu_status set_number(const struct swiglu_gguf *g, const char *key, uint64_t *value,
                                     struct swiglu_error *error) {
    if (swiglu_gguf_integer(g, swiglu_gguf_find(g, key), 0, value)) return SWIGLU_OK;
    if (!swiglu_gguf_find(g, key)) return set_bad_key(g, key, " is missing: a shard of a set has it", error);
    return set_bad_key(g, key, ": an integer from 0 on is expected", error);
}

/* "KEY value, but SHOWN wants ...". */
static enum swiglu_status set_expect(const struct swiglu_gguf *g, const char *key, uint64_t value, uint64_t expected,
                                     const char *why, struct swiglu_error *error) {
    char text[320];
    if (value == expected) return SWIGLU_OK;
    snprintf(text, sizeof text, " %llu: must be %llu, %s", (ull)value, (ull)expected, why);
    return set_bad_key(g, key, text, error);
}

static bool set_same_value(const struct swiglu_gguf *a, const struct swiglu_kv *x, const struct swiglu_gguf *b,
                           const struct swiglu_kv *y) {
    if (x->type != y->type || x->is_array != y->is_array || x->count != y->count) return false;
    if (x->value == SWIGLU_KV_NOT_KEPT || y->value == SWIGLU_KV_NOT_KEPT) return x->value == y->value;
    if (x->type == SWIGLU_KV_STRING) return !strcmp(a->values + x->value, b->values + y->value);
    return !memcmp(a->values + x->value, b->values + y->value, (size_t)x->count * swiglu_kv_bytes(x->type));
}

/* What a later shard says of the model, the first one says too: readers look there. Alignments are each file's own. */
static enum swiglu_status set_check_keys(const struct swiglu_gguf *first, const struct swiglu_gguf *g,
                                         struct swiglu_error *error) {
    for (size_t i = 0; i < g->keys.n; i++) {
        const char *key = swiglu_names_at(&g->keys, i);
        if (swiglu_gguf_is_split_key(key) || !strcmp(key, ALIGNMENT)) continue;
        const struct swiglu_kv *kv = swiglu_gguf_find(first, key);
        if (!kv) return set_bad_key(g, key, ": the first shard, whose metadata count, has no such key", error);
        if (!set_same_value(first, kv, g, &g->kvs[i]))
            return set_bad_key(g, key, ": the first shard, whose metadata count, has another value", error);
    }
    return SWIGLU_OK;
}

static enum swiglu_status set_check_shard(const struct swiglu_gguf *first, const struct swiglu_gguf *g, size_t i, size_t n,
                                          struct swiglu_error *error) {
    const struct swiglu_catalog *c = g->catalog;
    char why[256];
    uint64_t no, count, tensors, all;
    TRY(set_number(g, COUNT, &count, error));
    TRY(set_number(g, NO, &no, error));
    TRY(set_number(g, TENSORS, &tensors, error));
    snprintf(why, sizeof why, "as the shards are called -of-%0*zu", SWIGLU_SHARD_DIGITS, n);
    TRY(set_expect(g, COUNT, count, n, why, error));
    snprintf(why, sizeof why, "as it is called %0*zu and this counts from 0", SWIGLU_SHARD_DIGITS, i + 1);
    TRY(set_expect(g, NO, no, i, why, error));
    if (i == 0) return SWIGLU_OK;
    TRY(set_number(first, TENSORS, &all, error));
    snprintf(why, sizeof why, "as in %.200s", c->files[first->file].shown);
    TRY(set_expect(g, TENSORS, tensors, all, why, error));
    if (g->version != first->version)
        return swiglu_catalog_fail(c, g->file, error, SWIGLU_E_FORMAT, 4, "version %u: that of %s is %u", g->version,
                                   c->files[first->file].shown, first->version);
    return set_check_keys(first, g, error);
}

/* ---- all of them ---- */

static enum swiglu_status set_add_file(struct swiglu_catalog *catalog, const char *path, const char *from,
                                       struct swiglu_error *error) {
    char shown[SWIGLU_SHOWN_BYTES], shown_from[SWIGLU_SHOWN_BYTES];
    const char *slash = strrchr(path, '/');
    bool found;
    TRY(swiglu_catalog_try_file(catalog, path, &found, error));
    if (found) return SWIGLU_OK;
    swiglu_file_show(shown, slash ? slash + 1 : path);
    swiglu_file_show(shown_from, from);
    return swiglu_fail(error, SWIGLU_E_OPEN, SWIGLU_NO_OFFSET, 0, "%s: " COUNT ": shard %s is not in its folder",
                       shown_from, shown);
}

static enum swiglu_status set_read_shard(struct swiglu_gguf *first, struct swiglu_catalog *catalog, size_t i, size_t n,
                                         struct swiglu_error *error) {
    struct swiglu_gguf other = {0}, *g = i ? &other : first;
    enum swiglu_status status = swiglu_gguf_read(g, catalog, catalog->n_files - 1, error);
    if (status == SWIGLU_OK && n > 1) status = set_check_shard(first, g, i, n, error);
    swiglu_gguf_free(&other);
    return status;
}

enum swiglu_status swiglu_gguf_read_set(struct swiglu_gguf *g, struct swiglu_catalog *catalog, char *const *paths, size_t n,
                                        const char *from, struct swiglu_error *error) {
    uint64_t tensors;
    for (size_t i = 0; i < n; i++) {
        TRY(set_add_file(catalog, paths[i], from, error));
        TRY(set_read_shard(g, catalog, i, n, error));
    }
    if (n == 1) return SWIGLU_OK;
    char why[64];
    TRY(set_number(g, TENSORS, &tensors, error));
    snprintf(why, sizeof why, "as the %zu shards hold so many", n);
    TRY(set_expect(g, TENSORS, tensors, catalog->names.n, why, error));
    return swiglu_catalog_sort(catalog, error);
}

/* ---- from one of them ---- */

static enum swiglu_status set_open(struct swiglu_gguf *g, struct swiglu_catalog *catalog, const char *path,
                                   const struct swiglu_shard_name *name, struct swiglu_error *error) {
    const int strict = catalog->strict;
    char **paths = swiglu_alloc_array(name->count, sizeof *paths);
    enum swiglu_status status = paths ? SWIGLU_OK : SWIGLU_E_MEMORY;
    for (unsigned i = 0; i < name->count && status == SWIGLU_OK; i++) {
        paths[i] = swiglu_shard_path(path, ".gguf", name, i + 1);
        if (!paths[i]) status = SWIGLU_E_MEMORY;
    }
    swiglu_gguf_free(g);
    swiglu_catalog_close(catalog);
    catalog->strict = strict;
    if (status == SWIGLU_OK) {
        status = swiglu_gguf_read_set(g, catalog, paths, name->count, path, error);
    } else {
        status = swiglu_fail(error, status, SWIGLU_NO_OFFSET, 0, "out of memory for the names of %u shards", name->count);
    }
    for (unsigned i = 0; paths && i < name->count; i++) swiglu_free(paths[i]);
    swiglu_free(paths);
    return status;
}

enum swiglu_status swiglu_gguf_open(struct swiglu_gguf *g, struct swiglu_catalog *catalog, const char *path,
                                    struct swiglu_error *error) {
    struct swiglu_shard_name name;
    uint64_t count = 0;
    TRY(swiglu_gguf_read(g, catalog, 0, error));
    const bool named = swiglu_shard_name(path, ".gguf", &name);
    const bool known = swiglu_gguf_find(g, COUNT) != NULL;
    if (known) TRY(set_number(g, COUNT, &count, error));
    if (count > SWIGLU_LIMIT_FILES) {
        char text[80];
        snprintf(text, sizeof text, " %llu: limit %d", (ull)count, SWIGLU_LIMIT_FILES);
        return set_bad_key(g, COUNT, text, error);
    }
    if (count > 1 && !named)
        return set_bad_key(g, COUNT, ": one shard of several, and its name, which does not end like -00001-of-00002.gguf, "
                                     "does not tell the others", error);
    if (count > 1 || (known && named && name.count > 1)) {
        char why[64];
        snprintf(why, sizeof why, "as the file is called -of-%05u", name.count);
        TRY(set_expect(g, COUNT, count, name.count, why, error));
        return set_open(g, catalog, path, &name, error);
    }
    if (known || !named || name.count < 2) return SWIGLU_OK;
    return swiglu_catalog_warn(catalog, 0, error, SWIGLU_NO_OFFSET,
                               "called shard %u of %u, but it has no " COUNT ": read as a model of its own", name.number,
                               name.count);
}
