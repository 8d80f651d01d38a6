/* SPDX-License-Identifier: Apache-2.0 */
#include "io/safetensors.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "io/json.h"
#include "io/order.h"

typedef unsigned long long ull;

struct st_type { uint32_t number; const char *name; unsigned bits; };

static const struct st_type st_types[] = {
#define TYPE(number, name, bits) {number, #name, bits},
#include "io/st_type.def"
#undef TYPE
};

struct st_parser {
    struct swiglu_catalog *catalog;
    size_t file, first; /* the file, and the first of its tensors in the catalog */
    struct swiglu_error *error;
    uint64_t data_start, data_bytes;
    bool told_field;
    const char *name; /* of the tensor that is being read */
    struct swiglu_names metadata, values;
    struct swiglu_json json;
};

/* The fields of a tensor's entry as they stand in the header. */
struct st_fields {
    const struct st_type *type;
    uint64_t elems, begin, end;
    uint64_t shape_at, offsets_at; /* in the file; 0 = not seen yet */
};

const char *swiglu_safetensors_type_name(uint32_t type) {
    for (size_t i = 0; i < sizeof st_types / sizeof st_types[0]; i++)
        if (st_types[i].number == type) return st_types[i].name;
    return NULL;
}

static enum swiglu_status st_no_memory(const struct st_parser *p) {
    return swiglu_catalog_fail(p->catalog, p->file, p->error, SWIGLU_E_MEMORY, p->json.at, "header: out of memory");
}

/* "tensor NAME field: WANTED is expected, not what stands there" */
static enum swiglu_status st_unexpected(const struct st_parser *p, const char *field, const char *wanted) {
    char shown[256];
    return swiglu_json_fail(&p->json, p->json.offset, "tensor %.80s %s: %s is expected, not %s", p->name, field, wanted,
                            swiglu_json_show(&p->json, shown, sizeof shown));
}

/* ---- one tensor ---- */

static enum swiglu_status st_once(const struct st_parser *p, const char *field, bool seen) {
    if (!seen) return SWIGLU_OK;
    return swiglu_json_fail(&p->json, p->json.offset, "tensor %.80s: duplicate field %s", p->name, field);
}

static enum swiglu_status st_dtype(struct st_parser *p, struct st_fields *f) {
    struct swiglu_json *json = &p->json;
    TRY(st_once(p, "dtype", f->type != NULL));
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_STRING) return st_unexpected(p, "dtype", "a string");
    for (size_t i = 0; i < sizeof st_types / sizeof st_types[0]; i++)
        if (json->text_bytes == strlen(st_types[i].name) && !memcmp(json->text, st_types[i].name, json->text_bytes))
            f->type = &st_types[i];
    return f->type ? SWIGLU_OK : st_unexpected(p, "dtype", "a type of the format, such as \"F32\"");
}

static enum swiglu_status st_product(const struct st_parser *p, unsigned i) {
    return swiglu_json_fail(&p->json, p->json.offset,
                            "tensor %.80s shape product up to shape[%u] %llu: limit 18446744073709551615", p->name, i,
                            (ull)p->json.integer);
}

static enum swiglu_status st_shape(struct st_parser *p, struct swiglu_tensor *t, struct st_fields *f) {
    struct swiglu_json *json = &p->json;
    TRY(st_once(p, "shape", f->shape_at != 0));
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_ARRAY) return st_unexpected(p, "shape", "an array");
    f->shape_at = json->offset;
    for (unsigned i = 0;; i++) {
        char shown[256];
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_ARRAY_END) break;
        if (json->token != SWIGLU_JSON_INTEGER)
            return swiglu_json_fail(json, json->offset,
                                    "tensor %.80s shape[%u]: an integer from 0 to 18446744073709551615 is expected, "
                                    "not %s",
                                    p->name, i, swiglu_json_show(json, shown, sizeof shown));
        if (i == SWIGLU_LIMIT_RANK)
            return swiglu_json_fail(json, json->offset, "tensor %.80s shape: more than %d dimensions", p->name,
                                    SWIGLU_LIMIT_RANK);
        if (SW_MUL(f->elems, json->integer, &f->elems))
            return st_product(p, i);
        if (i < SWIGLU_LIMIT_DIMS) {
            t->dims[t->n_dims++] = json->integer;
        } else if (SW_MUL(t->dims[SWIGLU_LIMIT_DIMS - 1], json->integer, &t->dims[SWIGLU_LIMIT_DIMS - 1])) {
            return st_product(p, i); /* only where an earlier dimension is 0 */
        }
    }
    return SWIGLU_OK;
}

static enum swiglu_status st_offsets(struct st_parser *p, struct st_fields *f) {
    struct swiglu_json *json = &p->json;
    uint64_t *const to[2] = {&f->begin, &f->end};
    TRY(st_once(p, "data_offsets", f->offsets_at != 0));
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_ARRAY) return st_unexpected(p, "data_offsets", "an array");
    f->offsets_at = json->offset;
    for (int i = 0; i < 2; i++) {
        TRY(swiglu_json_next(json));
        if (json->token != SWIGLU_JSON_INTEGER)
            return st_unexpected(p, "data_offsets", "an integer from 0 to 18446744073709551615");
        *to[i] = json->integer;
    }
    TRY(swiglu_json_next(json));
    return json->token == SWIGLU_JSON_ARRAY_END ? SWIGLU_OK : st_unexpected(p, "data_offsets", "the end of the array");
}

/* What a tensor's entry says fits together and into the file. */
static enum swiglu_status st_check(const struct st_parser *p, struct swiglu_tensor *t, const struct st_fields *f) {
    const struct swiglu_json *json = &p->json;
    const char *missing = !f->type ? "dtype" : !f->shape_at ? "shape" : !f->offsets_at ? "data_offsets" : NULL;
    uint64_t bits;
    if (missing) return swiglu_json_fail(json, json->offset, "tensor %.80s: %s missing", p->name, missing);
    if (f->begin > f->end)
        return swiglu_json_fail(json, f->offsets_at, "tensor %.80s data_offsets reversed: begin %llu > end %llu",
                                p->name, (ull)f->begin, (ull)f->end);
    if (f->end > p->data_bytes)
        return swiglu_json_fail(json, f->offsets_at, "tensor %.80s data_offsets end %llu > data %llu bytes", p->name,
                                (ull)f->end, (ull)p->data_bytes);
    if (SW_MUL(f->elems, (uint64_t)f->type->bits, &bits))
        return swiglu_json_fail(json, f->shape_at, "tensor %.80s bytes: shape product %llu times %u bits of %s: limit "
                                "18446744073709551615", p->name, (ull)f->elems, f->type->bits, f->type->name);
    if (bits % 8)
        return swiglu_json_fail(json, f->shape_at, "tensor %.80s shape: %llu values of %s are %llu bits, not whole bytes",
                                p->name, (ull)f->elems, f->type->name, (ull)bits);
    t->type = f->type->number;
    t->offset = f->begin, t->bytes = bits / 8;
    if (t->bytes == f->end - f->begin) return SWIGLU_OK;
    return swiglu_json_fail(json, f->offsets_at, "tensor %.80s data_offsets hold %llu bytes, %llu values of %s need %llu",
                            p->name, (ull)(f->end - f->begin), (ull)f->elems, f->type->name, (ull)t->bytes);
}

/* The reference reader ignores further fields; so do we, and say so once. */
static enum swiglu_status st_further_field(struct st_parser *p) {
    char shown[256];
    if (!p->told_field)
        TRY(swiglu_catalog_warn(p->catalog, p->file, p->error, p->json.offset, "tensor %.80s: %s is ignored", p->name,
                                swiglu_json_show(&p->json, shown, sizeof shown)));
    p->told_field = true;
    return swiglu_json_skip(&p->json);
}

/* After the key that is its name. */
static enum swiglu_status st_tensor(struct st_parser *p) {
    struct swiglu_catalog *c = p->catalog;
    struct swiglu_json *json = &p->json;
    struct st_fields f = {.elems = 1};
    if (c->names.n == SWIGLU_LIMIT_COUNT)
        return swiglu_json_fail(json, json->offset, "header: more than %llu tensors", (ull)SWIGLU_LIMIT_COUNT);
    if (swiglu_grow(&c->tensors, &c->tensors_capacity, c->names.n + 1, sizeof *c->tensors) ||
        swiglu_names_push(&c->names, json->text, json->text_bytes))
        return st_no_memory(p);
    struct swiglu_tensor *t = &c->tensors[c->names.n - 1];
    *t = (struct swiglu_tensor){.file = (uint16_t)p->file, .entry = json->offset};
    p->name = swiglu_names_at(&c->names, c->names.n - 1);
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_ARRAY) { /* broken JSON is told before a value of the wrong kind */
        const uint64_t at = json->offset;
        while (json->depth > 1) TRY(swiglu_json_next(json));
        return swiglu_json_fail(json, at, "tensor %.80s entry: an object is expected, not an array", p->name);
    }
    if (json->token != SWIGLU_JSON_OBJECT) return st_unexpected(p, "entry", "an object");
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return st_check(p, t, &f);
        if (!strcmp(json->text, "dtype") && json->text_bytes == 5) {
            TRY(st_dtype(p, &f));
        } else if (!strcmp(json->text, "shape") && json->text_bytes == 5) {
            TRY(st_shape(p, t, &f));
        } else if (!strcmp(json->text, "data_offsets") && json->text_bytes == 12) {
            TRY(st_offsets(p, &f));
        } else {
            TRY(st_further_field(p));
        }
    }
}

/* ---- the header ---- */

/* __metadata__ maps strings to strings. Nothing in it says anything about feed-forward blocks. */
static enum swiglu_status st_metadata(struct st_parser *p) {
    struct swiglu_json *json = &p->json;
    char shown[256];
    size_t first, second;
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK; /* as the reference reader: the same as none */
    if (json->token != SWIGLU_JSON_OBJECT)
        return swiglu_json_fail(json, json->offset, "__metadata__: an object is expected, not %s",
                                swiglu_json_show(json, shown, sizeof shown));
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) break;
        if (json->cut)
            return swiglu_json_fail(json, json->offset, "__metadata__: a key of more than %d bytes", SWIGLU_LIMIT_KEY);
        if (swiglu_names_push(&p->metadata, json->text, json->text_bytes)) return st_no_memory(p);
        TRY(swiglu_json_next(json));
        if (json->token != SWIGLU_JSON_STRING)
            return swiglu_json_fail(json, json->offset, "__metadata__.%.80s: a string is expected, not %s",
                                    swiglu_names_at(&p->metadata, p->metadata.n - 1),
                                    swiglu_json_show(json, shown, sizeof shown));
        if (!p->catalog->keys.n &&
            swiglu_names_push(&p->values, json->text, swiglu_min(json->text_bytes, (size_t)SWIGLU_LIMIT_KEPT)))
            return st_no_memory(p);
    }
    if (swiglu_names_sort(&p->metadata)) return st_no_memory(p);
    swiglu_names_duplicate(&p->metadata, &first, &second);
    if (second == p->metadata.n) return SWIGLU_OK;
    return swiglu_json_fail(json, json->offset, "__metadata__: duplicate key %.80s",
                            swiglu_names_at(&p->metadata, second));
}

static enum swiglu_status st_header(struct st_parser *p) {
    struct swiglu_json *json = &p->json;
    bool metadata = false;
    char shown[256];
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_OBJECT)
        return swiglu_json_fail(json, json->offset, "header: an object is expected, not %s",
                                swiglu_json_show(json, shown, sizeof shown));
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) break;
        if (json->cut)
            return swiglu_json_fail(json, json->offset, "header: a name of more than %d bytes", SWIGLU_LIMIT_KEY);
        if (strcmp(json->text, "__metadata__") || json->text_bytes != 12) {
            TRY(st_tensor(p));
        } else if (metadata) {
            return swiglu_json_fail(json, json->offset, "header: duplicate key __metadata__");
        } else {
            metadata = true;
            TRY(st_metadata(p));
        }
    }
    return swiglu_json_next(json); /* nothing follows */
}

/* ---- where the tensors lie ---- */

static bool st_after(const void *ctx, uint32_t a, uint32_t b) {
    const struct swiglu_tensor *t = ctx;
    return t[a].offset != t[b].offset ? t[a].offset > t[b].offset : t[a].bytes > t[b].bytes;
}

/* In the order of their offsets the tensors touch each other and fill the data. */
static enum swiglu_status st_layout(struct st_parser *p) {
    const struct swiglu_catalog *c = p->catalog;
    struct swiglu_tensor *tensors = c->tensors ? c->tensors + p->first : NULL;
    const size_t n = c->names.n - p->first;
    uint64_t end = 0;
    enum swiglu_status status = SWIGLU_OK;
    uint32_t *order = swiglu_order_make(n, st_after, tensors);
    if (!order) return st_no_memory(p);
    for (size_t i = 0; i < n && status == SWIGLU_OK; i++) {
        struct swiglu_tensor *t = &tensors[order[i]];
        p->name = swiglu_names_at(&c->names, p->first + order[i]);
        if (t->offset > end)
            status = swiglu_json_fail(&p->json, t->entry, "tensor %.80s data_offsets begin %llu: a hole, the tensors "
                                      "before it end at %llu", p->name, (ull)t->offset, (ull)end);
        if (t->offset < end)
            status = swiglu_json_fail(&p->json, t->entry, "tensor %.80s data_offsets begin %llu: overlaps %.80s, which "
                                      "ends at %llu", p->name, (ull)t->offset,
                                      swiglu_names_at(&c->names, p->first + order[i - 1]), (ull)end);
        end = t->offset + t->bytes;
        t->offset += p->data_start;
    }
    swiglu_free(order);
    TRY(status);
    if (end == p->data_bytes) return SWIGLU_OK;
    return swiglu_json_fail(&p->json, p->data_start + end, "data: %llu trailing bytes after the last tensor",
                            (ull)(p->data_bytes - end));
}

static enum swiglu_status st_read(struct st_parser *p) {
    const struct swiglu_file *file = &p->catalog->files[p->file];
    struct swiglu_json *json = &p->json;
    unsigned char length[8];
    swiglu_json_begin(json, file, "header", 8, 0, p->error);
    if (file->bytes < sizeof length)
        return swiglu_json_fail(json, 0, "header length: truncated: 8 bytes needed, the file has %llu",
                                (ull)file->bytes);
    TRY(swiglu_file_read(file, 0, length, sizeof length, p->error));
    const uint64_t n = swiglu_le64(length), left = file->bytes - sizeof length;
    if (n == 0) return swiglu_json_fail(json, 0, "header length 0: the header is empty");
    if (n > SWIGLU_LIMIT_HEADER)
        return swiglu_json_fail(json, 0, "header length %llu: limit %d", (ull)n, SWIGLU_LIMIT_HEADER);
    if (n > left)
        return swiglu_json_fail(json, 0, "header length %llu > %llu bytes left in the file", (ull)n, (ull)left);
    p->data_start = sizeof length + n, p->data_bytes = left - n;
    swiglu_json_begin(json, file, "header", sizeof length, n, p->error);
    TRY(st_header(p));
    return st_layout(p);
}

/* A name that stands twice is the cause of whatever else is wrong with its places. */
static enum swiglu_status st_read_all(struct st_parser *p) {
    size_t first, second;
    const enum swiglu_status status = st_read(p);
    if (status == SWIGLU_E_FORMAT && swiglu_names_repeated(&p->catalog->names, &first, &second))
        return swiglu_catalog_sort(p->catalog, p->error);
    return status;
}

enum swiglu_status swiglu_safetensors_read(struct swiglu_catalog *catalog, size_t file, struct swiglu_error *error) {
    struct st_parser *p = swiglu_alloc(sizeof *p);
    if (!p) return swiglu_catalog_fail(catalog, file, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory");
    p->catalog = catalog, p->file = file, p->first = catalog->names.n, p->error = error;
    const enum swiglu_status status = st_read_all(p);
    if (status == SWIGLU_OK && !catalog->keys.n) {
        catalog->keys = p->metadata, catalog->values = p->values;
        p->metadata = p->values = (struct swiglu_names){0};
    }
    swiglu_names_free(&p->metadata);
    swiglu_names_free(&p->values);
    swiglu_free(p);
    return status;
}
