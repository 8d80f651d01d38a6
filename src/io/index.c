/* SPDX-License-Identifier: Apache-2.0 */
#include "io/index.h"

#include <string.h>

#include "base/alloc.h"
#include "io/json.h"

struct index_parser {
    struct swiglu_index *index;
    struct swiglu_catalog *catalog;
    struct swiglu_error *error;
    uint16_t by_name[SWIGLU_LIMIT_FILES]; /* the shards in the order of their names */
    struct swiglu_json json;
};

static enum swiglu_status index_no_memory(const struct index_parser *p) {
    return swiglu_catalog_fail(p->catalog, p->index->file, p->error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET,
                               "out of memory");
}

/* A name in the same folder, of bytes that every message and file system shows alike. */
static bool index_plain_name(const struct swiglu_json *json) {
    if (json->cut || json->text_bytes == 0 || json->text_bytes > SWIGLU_LIMIT_FILE_NAME || json->text[0] == '.')
        return false;
    for (size_t i = 0; i < json->text_bytes; i++)
        if (json->text[i] <= ' ' || json->text[i] >= 0x7F || json->text[i] == '/' || json->text[i] == '\\') return false;
    return true;
}

/* The number of the shard whose name the reader has at hand; a new one is kept. */
static enum swiglu_status index_shard(struct index_parser *p, size_t tensor, uint16_t *shard) {
    struct swiglu_index *index = p->index;
    struct swiglu_json *json = &p->json;
    size_t lo = 0, hi = index->shards.n;
    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        const int order = strcmp(swiglu_names_at(&index->shards, p->by_name[middle]), json->text);
        *shard = p->by_name[middle];
        if (order == 0) return SWIGLU_OK;
        if (order < 0) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    if (index->shards.n == SWIGLU_LIMIT_FILES)
        return swiglu_json_fail(json, json->offset, "weight_map: more than %d shards", SWIGLU_LIMIT_FILES);
    *shard = (uint16_t)index->shards.n;
    if (swiglu_grow(&index->shard_tensor, &index->shard_tensor_capacity, index->shards.n + 1,
                    sizeof *index->shard_tensor) ||
        swiglu_names_push(&index->shards, json->text, json->text_bytes))
        return index_no_memory(p);
    memmove(p->by_name + lo + 1, p->by_name + lo, (index->shards.n - 1 - lo) * sizeof p->by_name[0]);
    p->by_name[lo] = *shard;
    index->shard_tensor[*shard] = (uint32_t)tensor;
    return SWIGLU_OK;
}

static enum swiglu_status index_weight_map(struct index_parser *p) {
    struct swiglu_index *index = p->index;
    struct swiglu_json *json = &p->json;
    char shown[256];
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_OBJECT)
        return swiglu_json_fail(json, json->offset, "weight_map: an object is expected, not %s",
                                swiglu_json_show(json, shown, sizeof shown));
    for (size_t n = 0;; n++) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        if (json->cut)
            return swiglu_json_fail(json, json->offset, "weight_map: a name of more than %d bytes", SWIGLU_LIMIT_KEY);
        if (n == SWIGLU_LIMIT_COUNT ||
            swiglu_grow(&index->offset, &index->offset_capacity, n + 1, sizeof *index->offset) ||
            swiglu_grow(&index->shard_of, &index->shard_of_capacity, n + 1, sizeof *index->shard_of) ||
            swiglu_names_push(&index->names, json->text, json->text_bytes))
            return index_no_memory(p);
        index->offset[n] = json->offset;
        TRY(swiglu_json_next(json));
        if (json->token != SWIGLU_JSON_STRING || !index_plain_name(json))
            return swiglu_json_fail(json, json->offset,
                                    "weight_map: tensor %.80s: a plain file name of this folder is expected, not %s",
                                    swiglu_names_at(&index->names, n), swiglu_json_show(json, shown, sizeof shown));
        TRY(index_shard(p, n, &index->shard_of[n]));
    }
}

static enum swiglu_status index_object(struct index_parser *p) {
    struct swiglu_json *json = &p->json;
    bool found = false;
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_OBJECT) return swiglu_json_fail(json, json->offset, "an object is expected");
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) break;
        if (strcmp(json->text, "weight_map") || json->text_bytes != strlen("weight_map")) {
            TRY(swiglu_json_skip(json));
        } else if (found) {
            return swiglu_json_fail(json, json->offset, "duplicate key weight_map");
        } else {
            found = true;
            TRY(index_weight_map(p));
        }
    }
    if (!found) return swiglu_json_fail(json, json->offset, "weight_map is missing");
    return swiglu_json_next(json); /* nothing follows */
}

/* A name that stands twice is told before what else is wrong. */
static enum swiglu_status index_whole(struct index_parser *p) {
    struct swiglu_index *index = p->index;
    size_t first, second;
    const enum swiglu_status status = index_object(p);
    if (status != SWIGLU_OK && status != SWIGLU_E_FORMAT) return status;
    const bool repeated = swiglu_names_repeated(&index->names, &first, &second);
    if (!index->names.order || swiglu_names_sort(&index->shards)) return index_no_memory(p);
    if (!repeated) return status;
    return swiglu_json_fail(&p->json, index->offset[second], "weight_map: duplicate key %.80s, first at byte %llu",
                            swiglu_names_at(&index->names, second), (unsigned long long)index->offset[first]);
}

enum swiglu_status swiglu_index_read(struct swiglu_index *index, struct swiglu_catalog *catalog, const char *path,
                                     struct swiglu_error *error) {
    TRY(swiglu_catalog_try_file(catalog, path, &index->present, error));
    if (!index->present) return SWIGLU_OK;
    index->file = catalog->n_files - 1;
    struct index_parser *p = swiglu_alloc(sizeof *p);
    if (!p) return swiglu_catalog_fail(catalog, index->file, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory");
    p->index = index, p->catalog = catalog, p->error = error;
    const struct swiglu_file *file = &catalog->files[index->file];
    swiglu_json_begin(&p->json, file, "index", 0, file->bytes, error);
    const enum swiglu_status status = file->bytes <= SWIGLU_LIMIT_HEADER
                 ? index_whole(p)
                 : swiglu_json_fail(&p->json, 0, "index of %llu bytes: limit %d", (unsigned long long)file->bytes,
                                    SWIGLU_LIMIT_HEADER);
    swiglu_free(p);
    swiglu_file_close(&catalog->files[index->file]); /* its name is still needed, for messages */
    return status;
}

void swiglu_index_free(struct swiglu_index *index) {
    swiglu_names_free(&index->names);
    swiglu_names_free(&index->shards);
    swiglu_free(index->offset);
    swiglu_free(index->shard_of);
    swiglu_free(index->shard_tensor);
    *index = (struct swiglu_index){0};
}
