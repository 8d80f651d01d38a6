/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file made of that of others: names, shapes and metadata as they stand there. Tensors are
 * sorted by the size of their values, then by name, so that each is aligned to its own values. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "io/convert.h"
#include "io/json.h"
#include "io/order.h"
#include "io/safetensors.h"

typedef unsigned long long ull;

enum { HEADER_AT = 8, HEADER_ALIGN = 8 };

struct st_text { char *at; size_t bytes, capacity; };

/* One tensor of the input: where its name, as JSON text, and the rest of its shape (",3,5" of [2,3,5]) stand. */
struct st_source { size_t name, shape; unsigned rank; };

struct st_rewriter {
    struct swiglu_conversion *c;
    const struct swiglu_catalog *catalog;
    struct swiglu_error *error;
    struct swiglu_json *json;
    struct st_text text, metadata, header; /* of sources, as it stands in the file, of the output */
    struct st_source *sources;
    char **names; /* of the outputs */
};

static enum swiglu_status st_append(struct st_rewriter *r, struct st_text *t, const void *bytes, size_t n) {
    struct swiglu_error *error = r->error;
    REQUIRE(!swiglu_grow(&t->at, &t->capacity, t->bytes + n, 1), SWIGLU_E_MEMORY, "out of memory for the header");
    memcpy(t->at + t->bytes, bytes, n);
    t->bytes += n;
    return SWIGLU_OK;
}

static SW_PRINTF(3, 4) enum swiglu_status st_print(struct st_rewriter *r, struct st_text *t, const char *format, ...) {
    char line[160];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return st_append(r, t, line, (size_t)n);
}

/* ---- the input's headers ---- */

static enum swiglu_status st_changed(const struct st_rewriter *r) {
    return swiglu_fail(r->error, SWIGLU_E_READ, r->json->offset, 0, "%s: the file has changed since it was opened",
                       r->json->file->shown);
}

static enum swiglu_status st_expect(struct st_rewriter *r, enum swiglu_json_token token) {
    TRY(swiglu_json_next(r->json));
    return r->json->token == token ? SWIGLU_OK : st_changed(r);
}

/* The inside of a JSON string: what must be escaped is, byte 0 among it; all else is the UTF-8 that it was. */
static enum swiglu_status st_escaped(struct st_rewriter *r, struct st_text *t, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\') {
            TRY(st_print(r, t, "\\%c", s[i]));
        } else if ((unsigned char)s[i] < 0x20) {
            TRY(st_print(r, t, "\\u%04x", (unsigned)s[i]));
        } else {
            TRY(st_append(r, t, s + i, 1));
        }
    }
    return st_append(r, t, "", 1);
}

static enum swiglu_status st_shape(struct st_rewriter *r, struct st_source *source) {
    TRY(st_expect(r, SWIGLU_JSON_ARRAY));
    source->shape = r->text.bytes, source->rank = 0;
    for (;;) {
        TRY(swiglu_json_next(r->json));
        if (r->json->token == SWIGLU_JSON_ARRAY_END) break;
        if (r->json->token != SWIGLU_JSON_INTEGER) return st_changed(r);
        if (source->rank++) TRY(st_print(r, &r->text, ",%llu", (ull)r->json->integer));
    }
    return st_append(r, &r->text, "", 1);
}

/* After the key that is its name. */
static enum swiglu_status st_entry(struct st_rewriter *r, struct st_source *source) {
    source->name = r->text.bytes;
    TRY(st_escaped(r, &r->text, r->json->text, r->json->text_bytes));
    TRY(st_expect(r, SWIGLU_JSON_OBJECT));
    for (;;) {
        TRY(swiglu_json_next(r->json));
        if (r->json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        if (!strcmp(r->json->text, "shape")) {
            TRY(st_shape(r, source));
        } else {
            TRY(swiglu_json_skip(r->json));
        }
    }
}

/* The object as it stands in the file. Several files must agree on it: it speaks of the whole. */
static enum swiglu_status st_metadata(struct st_rewriter *r, bool first_file) {
    struct swiglu_error *error = r->error;
    TRY(swiglu_json_next(r->json));
    if (r->json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    const uint64_t from = r->json->offset;
    while (r->json->depth > 1) TRY(swiglu_json_next(r->json));
    const uint64_t n = r->json->offset + 1 - from;
    REQUIRE(n <= SWIGLU_LIMIT_HEADER, SWIGLU_E_UNSUPPORTED, "__metadata__ of %llu bytes", (ull)n);
    char *object = swiglu_alloc((size_t)n);
    REQUIRE(object, SWIGLU_E_MEMORY, "out of memory for the header");
    enum swiglu_status status = swiglu_file_read(r->json->file, from, object, (size_t)n, error);
    if (status == SWIGLU_OK && first_file) {
        status = st_append(r, &r->metadata, object, (size_t)n);
    } else if (status == SWIGLU_OK && (n != r->metadata.bytes || memcmp(object, r->metadata.at, (size_t)n))) {
        status = swiglu_fail(error, SWIGLU_E_UNSUPPORTED, from, 0,
                             "%s: __metadata__ is not that of the first file, so the whole has none",
                             r->json->file->shown);
    }
    swiglu_free(object);
    return status;
}

/* The header of the file that holds tensor *i; *i moves to the first one of the next file. */
static enum swiglu_status st_file(struct st_rewriter *r, size_t *i) {
    const size_t n = r->catalog->names.n, index = r->catalog->tensors[*i].file;
    const struct swiglu_file *file = &r->catalog->files[index];
    const bool first_file = *i == 0;
    bool has_metadata = false;
    uint64_t bytes;
    TRY(swiglu_file_read(file, 0, &bytes, sizeof bytes, r->error));
    swiglu_json_begin(r->json, file, "header", HEADER_AT, bytes, r->error);
    if (bytes > file->bytes - HEADER_AT) return st_changed(r);
    TRY(st_expect(r, SWIGLU_JSON_OBJECT));
    for (;;) {
        TRY(swiglu_json_next(r->json));
        if (r->json->token == SWIGLU_JSON_OBJECT_END) break;
        if (!strcmp(r->json->text, "__metadata__")) {
            TRY(st_metadata(r, first_file));
            has_metadata = r->json->token != SWIGLU_JSON_NULL;
        } else {
            if (*i == n || r->catalog->tensors[*i].file != index) return st_changed(r);
            TRY(st_entry(r, &r->sources[(*i)++]));
        }
    }
    if (has_metadata == (r->metadata.bytes > 0)) return SWIGLU_OK;
    return swiglu_fail(r->error, SWIGLU_E_UNSUPPORTED, HEADER_AT, 0,
                       "%s: no __metadata__, unlike the first file, so the whole has none", file->shown);
}

/* ---- the output's header ---- */

static uint64_t st_value_bits(const struct swiglu_output *o) { return o->elems ? o->bytes * 8 / o->elems : 0; }

static bool st_after(const void *ctx, uint32_t a, uint32_t b) {
    const struct st_rewriter *r = ctx;
    const uint64_t bits_a = st_value_bits(&r->c->at[a]), bits_b = st_value_bits(&r->c->at[b]);
    if (bits_a != bits_b) return bits_a < bits_b;
    return strcmp(r->names[a], r->names[b]) > 0;
}

static enum swiglu_status st_sort(struct st_rewriter *r) {
    struct swiglu_conversion *c = r->c;
    struct swiglu_error *error = r->error;
    uint32_t *order = swiglu_order_make(c->n, st_after, r);
    struct swiglu_output *at = swiglu_alloc_array(c->n, sizeof *at);
    char **names = swiglu_alloc_array(c->n, sizeof *names);
    const bool made = order && at && names;
    for (size_t i = 0; made && i < c->n; i++) at[i] = c->at[order[i]], names[i] = r->names[order[i]];
    if (made) {
        memcpy(c->at, at, c->n * sizeof *at);
        memcpy(r->names, names, c->n * sizeof *names);
    }
    swiglu_free(order);
    swiglu_free(at);
    swiglu_free(names);
    REQUIRE(made, SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    return SWIGLU_OK;
}

static enum swiglu_status st_output(struct st_rewriter *r, struct swiglu_output *o, const char *name) {
    const struct st_source *source = &r->sources[o->piece[0].tensor];
    struct swiglu_error *error = r->error;
    uint64_t end;
    o->offset = r->c->files[0].bytes;
    REQUIRE(!SW_ADD(o->offset, o->bytes, &end), SWIGLU_E_UNSUPPORTED, "the file would exceed 64 bits");
    if (r->header.at[r->header.bytes - 1] != '{') TRY(st_append(r, &r->header, ",", 1));
    TRY(st_append(r, &r->header, "\"", 1));
    TRY(st_append(r, &r->header, name, strlen(name)));
    TRY(st_print(r, &r->header, "\":{\"dtype\":\"%s\",\"shape\":[", swiglu_safetensors_type_name((uint32_t)o->type)));
    if (source->rank) TRY(st_print(r, &r->header, "%llu", (ull)o->rows));
    TRY(st_append(r, &r->header, r->text.at + source->shape, strlen(r->text.at + source->shape)));
    r->c->files[0].bytes = end;
    return st_print(r, &r->header, "],\"data_offsets\":[%llu,%llu]}", (ull)o->offset, (ull)end);
}

static enum swiglu_status st_header(struct st_rewriter *r) {
    struct swiglu_error *error = r->error;
    r->c->files[0].bytes = 0;
    TRY(st_append(r, &r->header, "{", 1));
    if (r->metadata.bytes) {
        TRY(st_print(r, &r->header, "\"__metadata__\":"));
        TRY(st_append(r, &r->header, r->metadata.at, r->metadata.bytes));
    }
    for (size_t i = 0; i < r->c->n; i++) TRY(st_output(r, &r->c->at[i], r->names[i]));
    TRY(st_append(r, &r->header, "}", 1));
    while (r->header.bytes % HEADER_ALIGN) TRY(st_append(r, &r->header, " ", 1));
    REQUIRE(r->header.bytes <= SWIGLU_LIMIT_HEADER, SWIGLU_E_UNSUPPORTED, "a header of %zu bytes: limit %d",
            r->header.bytes, SWIGLU_LIMIT_HEADER);
    return SWIGLU_OK;
}

static enum swiglu_status st_make(struct st_rewriter *r) {
    struct swiglu_error *error = r->error;
    r->json = swiglu_alloc(sizeof *r->json);
    r->sources = swiglu_alloc_array(r->catalog->names.n, sizeof *r->sources);
    r->names = swiglu_alloc_array(r->c->n, sizeof *r->names);
    REQUIRE(r->json && r->sources && r->names, SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    for (size_t i = 0; i < r->catalog->names.n;) TRY(st_file(r, &i));
    for (size_t i = 0; i < r->c->n; i++) {
        const struct swiglu_output *o = &r->c->at[i];
        r->names[i] = swiglu_output_name(o, r->text.at + r->sources[o->piece[0].tensor].name);
        REQUIRE(r->names[i], SWIGLU_E_MEMORY, "out of memory for the list of tensors");
    }
    TRY(st_sort(r));
    return st_header(r);
}

enum swiglu_status swiglu_safetensors_write(struct swiglu_conversion *c, const struct swiglu_catalog *catalog,
                                            struct swiglu_writer *w, struct swiglu_error *error) {
    struct st_rewriter r = {.c = c, .catalog = catalog, .error = error};
    enum swiglu_status status = st_make(&r);
    const uint64_t bytes = r.header.bytes, start = HEADER_AT + bytes;
    if (status == SWIGLU_OK) status = swiglu_writer_put(w, &bytes, sizeof bytes, error);
    if (status == SWIGLU_OK) status = swiglu_writer_put(w, r.header.at, r.header.bytes, error);
    for (size_t i = 0; r.names && i < c->n; i++) swiglu_free(r.names[i]);
    swiglu_free(r.names);
    swiglu_free(r.sources);
    swiglu_free(r.json);
    swiglu_free(r.text.at);
    swiglu_free(r.metadata.at);
    swiglu_free(r.header.at);
    TRY(status);
    for (size_t i = 0; i < c->n; i++) c->at[i].offset += start;
    REQUIRE(!SW_ADD(c->files[0].bytes, start, &c->files[0].bytes), SWIGLU_E_UNSUPPORTED, "the file would exceed 64 bits");
    return SWIGLU_OK;
}
