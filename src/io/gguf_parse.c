/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"

enum { WINDOW = 1 << 16 };

/* The reading position, and the field being read: "kv[3].key", "tensor[0].name", "tensor blk.0.x dims[1]", "magic". */
struct gguf_parser {
    struct swiglu_gguf *g;
    struct swiglu_error *error;
    uint64_t at, window_at;
    size_t window_bytes;
    const char *group; /* "kv", "tensor", or NULL */
    uint64_t index;
    const char *name; /* of the tensor, once it is known */
    const char *part;
    unsigned char window[WINDOW];
    unsigned char text[WINDOW]; /* the name or short value that was read last */
};

typedef unsigned long long ull;

size_t swiglu_kv_bytes(unsigned type) {
    static const unsigned char bytes[SWIGLU_KV_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < SWIGLU_KV_TYPES ? bytes[type] : 0;
}

static uint64_t gguf_left(const struct gguf_parser *p) { return swiglu_gguf_file(p->g)->bytes - p->at; }

/* FILE: FIELD text (at byte N) */
static SW_PRINTF(4, 5) enum swiglu_status gguf_bad(const struct gguf_parser *p, uint64_t at, enum swiglu_status code,
                                                   const char *format, ...) {
    char text[200], shown[100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!p->group) {
        shown[0] = 0;
    } else if (p->name) {
        snprintf(shown, sizeof shown, "tensor %.80s ", p->name);
    } else {
        snprintf(shown, sizeof shown, "%s[%llu].", p->group, (ull)p->index);
    }
    return swiglu_catalog_fail(p->g->catalog, p->g->file, p->error, code, at, "%s%s%s", shown, p->part, text);
}

static enum swiglu_status gguf_no_memory(const struct gguf_parser *p) {
    return gguf_bad(p, p->at, SWIGLU_E_MEMORY, ": out of memory");
}

static enum swiglu_status gguf_refill(struct gguf_parser *p) {
    p->window_bytes = 0;
    const size_t n = gguf_left(p) < WINDOW ? (size_t)gguf_left(p) : WINDOW;
    TRY(swiglu_file_read(swiglu_gguf_file(p->g), p->at, p->window, n, p->error));
    p->window_at = p->at, p->window_bytes = n;
    return SWIGLU_OK;
}

static enum swiglu_status gguf_need(const struct gguf_parser *p, uint64_t n) {
    if (n <= gguf_left(p)) return SWIGLU_OK;
    return gguf_bad(p, p->at, SWIGLU_E_FORMAT, ": truncated: %llu bytes needed, %llu left", (ull)n, (ull)gguf_left(p));
}

static enum swiglu_status gguf_take(struct gguf_parser *p, void *dst, size_t n) {
    char *out = dst;
    TRY(gguf_need(p, n));
    while (n) {
        if (p->at < p->window_at || p->at >= p->window_at + p->window_bytes) TRY(gguf_refill(p));
        const size_t skip = (size_t)(p->at - p->window_at), got = swiglu_min(n, p->window_bytes - skip);
        memcpy(out, p->window + skip, got);
        out += got, n -= got, p->at += got;
    }
    return SWIGLU_OK;
}

static enum swiglu_status gguf_u32(struct gguf_parser *p, const char *part, uint32_t *v) {
    p->part = part;
    return gguf_take(p, v, sizeof *v);
}

static enum swiglu_status gguf_u64(struct gguf_parser *p, const char *part, uint64_t *v) {
    p->part = part;
    return gguf_take(p, v, sizeof *v);
}

/* ---- magic, version, counts ---- */

static enum swiglu_status gguf_magic(struct gguf_parser *p) {
    static const char *const old[] = {"lmgg", "fmgg", "tjgg", "algg"};
    char magic[4], shown[24];
    p->part = "file size";
    if (swiglu_gguf_file(p->g)->bytes == 0) return gguf_bad(p, 0, SWIGLU_E_FORMAT, " 0: at least 24 bytes needed");
    p->part = "magic";
    TRY(gguf_take(p, magic, sizeof magic));
    if (!memcmp(magic, "GGUF", 4)) return SWIGLU_OK;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (!memcmp(magic, old[i], 4))
            return gguf_bad(p, 0, SWIGLU_E_FORMAT, " \"%s\": old ggml format, convert the file to GGUF", old[i]);
    return gguf_bad(p, 0, SWIGLU_E_FORMAT, " \"%s\": a GGUF file begins with \"GGUF\"",
                    swiglu_escape(shown, sizeof shown, magic, sizeof magic));
}

static enum swiglu_status gguf_version(struct gguf_parser *p) {
    uint32_t v;
    TRY(gguf_u32(p, "version", &v));
    p->g->version = v;
    if (v == 2 || v == 3) return SWIGLU_OK;
    if (v && !(v & 0xFFFFu))
        return gguf_bad(p, 4, SWIGLU_E_UNSUPPORTED, " 0x%08x: big-endian file, the byte order differs", v);
    return gguf_bad(p, 4, v ? SWIGLU_E_UNSUPPORTED : SWIGLU_E_FORMAT, " %u: only 2 and 3 can be read", v);
}

static enum swiglu_status gguf_check_count(struct gguf_parser *p, const char *part, uint64_t at, uint64_t n,
                                           unsigned entry_bytes) {
    p->part = part;
    const uint64_t room = gguf_left(p) / entry_bytes;
    if (n > room + (gguf_left(p) % entry_bytes != 0)) /* an entry that is cut short explains itself better */
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: the %llu bytes left hold at most %llu", (ull)n,
                        (ull)gguf_left(p), (ull)room);
    if (n > SWIGLU_LIMIT_COUNT)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: limit %llu", (ull)n, (ull)SWIGLU_LIMIT_COUNT);
    return SWIGLU_OK;
}

/* ---- metadata ---- */

static enum swiglu_status gguf_key(struct gguf_parser *p) {
    uint64_t n;
    char shown[80];
    const uint64_t at = p->at;
    TRY(gguf_u64(p, "key", &n));
    if (n == 0) return gguf_bad(p, at, SWIGLU_E_FORMAT, ": empty");
    if (n > SWIGLU_LIMIT_KEY)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " length %llu: limit %d", (ull)n, SWIGLU_LIMIT_KEY);
    TRY(gguf_take(p, p->text, (size_t)n));
    for (size_t i = 0; i < n; i++) {
        if (p->text[i] != 0 && p->text[i] < 0x80) continue;
        const size_t from = i < 8 ? 0 : i - 8;
        return gguf_bad(p, at + 8 + i, SWIGLU_E_FORMAT, ": byte %u in \"%s\": only ASCII without byte 0 is allowed",
                        p->text[i],
                        swiglu_escape(shown, sizeof shown, p->text + from, swiglu_min((size_t)n - from, 16)));
    }
    if (swiglu_names_push(&p->g->keys, p->text, (size_t)n)) return gguf_no_memory(p);
    return SWIGLU_OK;
}

/* Appends n bytes to the kept values. */
static enum swiglu_status gguf_keep(struct gguf_parser *p, struct swiglu_kv *kv, const void *bytes, size_t n) {
    struct swiglu_gguf *g = p->g;
    if (swiglu_grow(&g->values, &g->values_capacity, g->values_bytes + n, 1)) return gguf_no_memory(p);
    if (n) memcpy(g->values + g->values_bytes, bytes, n); /* an empty array in front has no values to point to */
    kv->value = g->values_bytes;
    g->values_bytes += n;
    return SWIGLU_OK;
}

static enum swiglu_status gguf_string_length(struct gguf_parser *p, uint64_t *n) {
    const uint64_t at = p->at;
    TRY(gguf_take(p, n, sizeof *n));
    if (*n > gguf_left(p))
        return gguf_bad(p, at, SWIGLU_E_FORMAT, ": string length %llu: %llu bytes left", (ull)*n, (ull)gguf_left(p));
    return SWIGLU_OK;
}

static enum swiglu_status gguf_string(struct gguf_parser *p, struct swiglu_kv *kv) {
    char shown[1024]; /* enough for a name; a longer text is cut */
    TRY(gguf_string_length(p, &kv->count));
    if (kv->count > SWIGLU_LIMIT_KEPT) {
        p->at += kv->count;
        return SWIGLU_OK;
    }
    TRY(gguf_take(p, p->text, (size_t)kv->count));
    swiglu_escape(shown, sizeof shown, p->text, (size_t)kv->count);
    return gguf_keep(p, kv, shown, strlen(shown) + 1);
}

/* n values of a fixed size: bools are looked at, short ones kept, the rest stepped over. */
static enum swiglu_status gguf_values(struct gguf_parser *p, struct swiglu_kv *kv, uint64_t bytes) {
    const bool keep = bytes <= SWIGLU_LIMIT_KEPT;
    if (!keep && kv->type != SWIGLU_KV_BOOL) {
        p->at += bytes;
        return SWIGLU_OK;
    }
    for (uint64_t left = bytes; left;) {
        const size_t n = left < WINDOW ? (size_t)left : WINDOW;
        const uint64_t at = p->at;
        TRY(gguf_take(p, p->text, n));
        for (size_t i = 0; kv->type == SWIGLU_KV_BOOL && i < n; i++)
            if (p->text[i] > 1)
                return gguf_bad(p, at + i, SWIGLU_E_FORMAT, ": bool value %u: only 0 and 1 are allowed", p->text[i]);
        left -= n;
    }
    return keep ? gguf_keep(p, kv, p->text, (size_t)bytes) : SWIGLU_OK;
}

static enum swiglu_status gguf_array(struct gguf_parser *p, struct swiglu_kv *kv) {
    uint32_t type;
    const uint64_t at = p->at;
    TRY(gguf_u32(p, "array", &type));
    if (type == SWIGLU_KV_ARRAY)
        return gguf_bad(p, at, SWIGLU_E_UNSUPPORTED, " element type 9: a nested array (array of arrays) is not read");
    if (type >= SWIGLU_KV_TYPES)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " element type %u: limit %d", type, SWIGLU_KV_TYPES - 1);
    TRY(gguf_u64(p, "array", &kv->count));
    kv->type = type;
    const size_t size = type == SWIGLU_KV_STRING ? SWIGLU_MIN_STRING_BYTES : swiglu_kv_bytes(type);
    if (kv->count > gguf_left(p) / size)
        return gguf_bad(p, at + 4, SWIGLU_E_FORMAT, " count %llu: the %llu bytes left hold at most %llu",
                        (ull)kv->count, (ull)gguf_left(p), (ull)(gguf_left(p) / size));
    if (type != SWIGLU_KV_STRING) return gguf_values(p, kv, kv->count * size);
    for (uint64_t i = 0, n; i < kv->count; i++) {
        TRY(gguf_string_length(p, &n));
        p->at += n;
    }
    return SWIGLU_OK;
}

static enum swiglu_status gguf_kv(struct gguf_parser *p) {
    struct swiglu_gguf *g = p->g;
    uint32_t type;
    if (swiglu_grow(&g->kvs, &g->kvs_capacity, (size_t)p->index + 1, sizeof *g->kvs)) return gguf_no_memory(p);
    struct swiglu_kv *kv = &g->kvs[p->index];
    *kv = (struct swiglu_kv){.count = 1, .value = SWIGLU_KV_NOT_KEPT, .offset = p->at};
    TRY(gguf_key(p));
    const uint64_t at = p->at;
    TRY(gguf_u32(p, "type", &type));
    if (type >= SWIGLU_KV_TYPES)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %u: limit %d (key %.60s)", type, SWIGLU_KV_TYPES - 1,
                        swiglu_names_at(&g->keys, p->index));
    kv->type = type;
    kv->is_array = type == SWIGLU_KV_ARRAY;
    p->part = "value";
    if (kv->is_array) return gguf_array(p, kv);
    if (type == SWIGLU_KV_STRING) return gguf_string(p, kv);
    TRY(gguf_need(p, swiglu_kv_bytes(type)));
    return gguf_values(p, kv, swiglu_kv_bytes(type));
}

static enum swiglu_status gguf_alignment(struct gguf_parser *p) {
    struct swiglu_gguf *g = p->g;
    const struct swiglu_kv *kv = swiglu_gguf_find(g, "general.alignment");
    uint64_t a;
    if (!kv) return SWIGLU_OK;
    p->part = "general.alignment";
    if (kv->type != SWIGLU_KV_U32 || kv->is_array)
        return gguf_bad(p, kv->offset, SWIGLU_E_FORMAT, " type %u%s: must be %d (uint32)", kv->type,
                        kv->is_array ? " array" : "", SWIGLU_KV_U32);
    swiglu_gguf_integer(g, kv, 0, &a);
    if (a == 0 || a > SWIGLU_LIMIT_ALIGNMENT)
        return gguf_bad(p, kv->offset, SWIGLU_E_FORMAT, " %llu: limits 1 and %d", (ull)a, SWIGLU_LIMIT_ALIGNMENT);
    if (a & (a - 1))
        return gguf_bad(p, kv->offset, SWIGLU_E_FORMAT,
                        " %llu: not a power of two (the format's text allows it, ggml refuses it)", (ull)a);
    g->alignment = a;
    if (a >= 8) return SWIGLU_OK;
    return swiglu_catalog_warn(g->catalog, g->file, p->error, kv->offset,
                               "general.alignment %llu: the format asks for a multiple of 8",
                            (ull)a);
}

/* A list was read as far as it is right: a name that stands twice in it is told before what else is wrong. */
static enum swiglu_status gguf_end_list(struct gguf_parser *p, struct swiglu_names *names, const char *part,
                                        enum swiglu_status status) {
    const struct swiglu_gguf *g = p->g;
    const bool is_key = names == &g->keys;
    size_t first, second;
    if (status != SWIGLU_OK && status != SWIGLU_E_FORMAT) return status;
    const bool repeated = swiglu_names_repeated(names, &first, &second);
    if (!names->order) return gguf_no_memory(p);
    if (!repeated) return status;
    if (!is_key && first < g->first) return swiglu_catalog_sort(g->catalog, p->error); /* in another file */
    const size_t before = is_key ? 0 : g->first;
    p->index = second - before, p->name = NULL, p->part = part;
    return gguf_bad(p, is_key ? g->kvs[second].offset : g->catalog->tensors[second].entry, SWIGLU_E_FORMAT,
                    " %.80s: duplicate of %s[%zu].%s", swiglu_names_at(names, second), p->group, first - before, part);
}

static enum swiglu_status gguf_metadata(struct gguf_parser *p, uint64_t n_kv) {
    struct swiglu_gguf *g = p->g;
    enum swiglu_status status = SWIGLU_OK;
    p->group = "kv";
    for (p->index = 0; p->index < n_kv && status == SWIGLU_OK; p->index++) status = gguf_kv(p);
    TRY(gguf_end_list(p, &g->keys, "key", status));
    p->group = NULL;
    g->list_at = p->at;
    return gguf_alignment(p);
}

/* ---- tensors ---- */

static enum swiglu_status gguf_tensor_name(struct gguf_parser *p) {
    uint64_t n;
    const uint64_t at = p->at;
    TRY(gguf_u64(p, "name", &n));
    if (n == 0 || n > SWIGLU_LIMIT_NAME)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " length %llu: limits 1 and %d", (ull)n, SWIGLU_LIMIT_NAME);
    TRY(gguf_take(p, p->text, (size_t)n));
    const unsigned char *zero = memchr(p->text, 0, (size_t)n);
    if (zero)
        return gguf_bad(p, at + 8 + (uint64_t)(zero - p->text), SWIGLU_E_FORMAT, ": byte 0 at place %d of %llu",
                        (int)(zero - p->text), (ull)n);
    if (swiglu_names_push(&p->g->catalog->names, p->text, (size_t)n)) return gguf_no_memory(p);
    p->name = swiglu_names_at(&p->g->catalog->names, p->g->first + p->index);
    return SWIGLU_OK;
}

/* The file lists the fastest dimension first; the catalog the outermost. */
static enum swiglu_status gguf_dims(struct gguf_parser *p, struct swiglu_tensor *t, uint64_t *elems) {
    static const char *const part[SWIGLU_LIMIT_DIMS] = {"dims[0]", "dims[1]", "dims[2]", "dims[3]"};
    uint64_t at = p->at;
    uint32_t n;
    TRY(gguf_u32(p, "n_dims", &n));
    if (n > SWIGLU_LIMIT_DIMS) return gguf_bad(p, at, SWIGLU_E_FORMAT, " %u: limit %d", n, SWIGLU_LIMIT_DIMS);
    t->n_dims = (uint16_t)n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *dim = &t->dims[n - 1 - i];
        at = p->at;
        TRY(gguf_u64(p, part[i], dim));
        if (*dim > SWIGLU_LIMIT_ELEMS)
            return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: limit %llu", (ull)*dim, (ull)SWIGLU_LIMIT_ELEMS);
        if (SW_MUL(*elems, *dim, elems) || *elems > SWIGLU_LIMIT_ELEMS) {
            p->part = "dims product";
            return gguf_bad(p, at, SWIGLU_E_FORMAT, " up to dims[%u] %llu: limit %llu", i, (ull)*dim,
                            (ull)SWIGLU_LIMIT_ELEMS);
        }
    }
    return SWIGLU_OK;
}

/* Which earlier tensor holds the byte `offset`; only asked when the file is wrong, so it may be slow. */
static enum swiglu_status gguf_misplaced(struct gguf_parser *p, const struct swiglu_tensor *t, uint64_t expected,
                                         uint64_t at) {
    const struct swiglu_gguf *g = p->g;
    if (t->offset > expected)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: a hole, the tensors before it end at %llu", (ull)t->offset,
                        (ull)expected);
    for (size_t i = g->first; i < g->first + p->index; i++) {
        const struct swiglu_tensor *o = &g->catalog->tensors[i];
        if (t->offset + t->bytes > o->offset && t->offset < o->offset + o->bytes)
            return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: overlaps %.63s, which has %llu bytes from %llu on",
                            (ull)t->offset, swiglu_names_at(&g->catalog->names, i), (ull)o->bytes, (ull)o->offset);
    }
    return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: out of order, ggml expects %llu here", (ull)t->offset,
                    (ull)expected);
}

/* One entry of the list. *expected: where its data must begin, as in ggml: each right after the one before. */
static enum swiglu_status gguf_tensor(struct gguf_parser *p, uint64_t *expected) {
    const uint64_t alignment = p->g->alignment;
    struct swiglu_catalog *c = p->g->catalog;
    uint64_t elems = 1, end, at = p->at;
    p->name = NULL;
    if (swiglu_grow(&c->tensors, &c->tensors_capacity, c->names.n + 1, sizeof *c->tensors)) return gguf_no_memory(p);
    struct swiglu_tensor *t = &c->tensors[c->names.n];
    *t = (struct swiglu_tensor){.file = (uint16_t)p->g->file, .entry = at};
    TRY(gguf_tensor_name(p));
    TRY(gguf_dims(p, t, &elems));
    at = p->at;
    TRY(gguf_u32(p, "type", &t->type));
    const struct swiglu_gguf_type *type = swiglu_gguf_type_find(t->type);
    if (!type) return gguf_bad(p, at, SWIGLU_E_FORMAT, " %u: unknown, or removed from the format", t->type);
    const uint64_t row = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    p->part = "dims[0]";
    if (row % type->block_elems)
        return gguf_bad(p, t->entry, SWIGLU_E_FORMAT, " %llu: not a multiple of %u, the block of %s", (ull)row,
                        type->block_elems, type->name);
    p->part = "bytes";
    if (SW_MUL(elems / type->block_elems, (uint64_t)type->block_bytes, &t->bytes))
        return gguf_bad(p, at, SWIGLU_E_FORMAT, ": %llu values of %s overflow 64 bits", (ull)elems, type->name);
    if (t->bytes > SWIGLU_LIMIT_BYTES)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: limit %llu", (ull)t->bytes, (ull)SWIGLU_LIMIT_BYTES);
    at = p->at;
    TRY(gguf_u64(p, "offset", &t->offset));
    if (t->offset % alignment)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: not a multiple of the alignment %llu", (ull)t->offset,
                        (ull)alignment);
    if (t->offset > SWIGLU_LIMIT_BYTES)
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu: limit %llu", (ull)t->offset, (ull)SWIGLU_LIMIT_BYTES);
    if (t->offset != *expected) return gguf_misplaced(p, t, *expected, at);
    if (SW_ADD(t->offset, t->bytes, &end) || swiglu_align_up(end, alignment, expected))
        return gguf_bad(p, at, SWIGLU_E_FORMAT, " %llu + %llu bytes overflow 64 bits", (ull)t->offset, (ull)t->bytes);
    return SWIGLU_OK;
}

/* The data section: where it begins, that it holds every tensor, and what follows it. */
static enum swiglu_status gguf_data(struct gguf_parser *p, uint64_t data_end) {
    struct swiglu_gguf *g = p->g;
    const uint64_t file_bytes = swiglu_gguf_file(g)->bytes;
    const size_t n = g->catalog->names.n - g->first;
    p->group = NULL, p->name = NULL, p->part = "data section";
    if (swiglu_align_up(p->at, g->alignment, &g->data_start) || (n && g->data_start > file_bytes))
        return gguf_bad(p, p->at, SWIGLU_E_FORMAT, ": starts at %llu, past the end of the file at %llu",
                        (ull)g->data_start, (ull)file_bytes);
    const uint64_t data_bytes = g->data_start < file_bytes ? file_bytes - g->data_start : 0;
    p->group = "tensor", p->part = "offset";
    for (p->index = 0; p->index < n; p->index++) {
        struct swiglu_tensor *t = &g->catalog->tensors[g->first + p->index];
        p->name = swiglu_names_at(&g->catalog->names, g->first + p->index);
        if (t->offset + t->bytes > data_bytes)
            return gguf_bad(p, t->entry, SWIGLU_E_FORMAT,
                            " %llu + %llu > data %llu bytes: the tensor ends past the end of the file",
                            (ull)t->offset, (ull)t->bytes, (ull)data_bytes);
        t->offset += g->data_start;
    }
    if (data_bytes <= data_end) return SWIGLU_OK;
    return swiglu_catalog_warn(g->catalog, g->file, p->error, g->data_start + data_end,
                               "%llu trailing bytes after the last tensor",
                            (ull)(data_bytes - data_end));
}

static enum swiglu_status gguf_header(struct gguf_parser *p) {
    struct swiglu_gguf *g = p->g;
    uint64_t n_tensors, n_kv, data_end = 0;
    enum swiglu_status status = SWIGLU_OK;
    TRY(gguf_magic(p));
    TRY(gguf_version(p));
    TRY(gguf_u64(p, "n_tensors", &n_tensors));
    TRY(gguf_u64(p, "n_kv", &n_kv));
    TRY(gguf_check_count(p, "n_tensors", 8, n_tensors, SWIGLU_MIN_TENSOR_BYTES));
    TRY(gguf_check_count(p, "n_kv", 16, n_kv, SWIGLU_MIN_KV_BYTES));
    TRY(gguf_metadata(p, n_kv));
    p->group = "tensor";
    for (p->index = 0; p->index < n_tensors && status == SWIGLU_OK; p->index++) status = gguf_tensor(p, &data_end);
    if (status == SWIGLU_OK) status = gguf_data(p, data_end);
    p->group = "tensor";
    /* Of several files the names are sorted once, when all were read. */
    return status == SWIGLU_OK && g->file ? SWIGLU_OK : gguf_end_list(p, &g->catalog->names, "name", status);
}

enum swiglu_status swiglu_gguf_parse(struct swiglu_gguf *g, struct swiglu_error *error) {
    struct gguf_parser *p = swiglu_alloc(sizeof *p);
    if (!p) return swiglu_catalog_fail(g->catalog, g->file, error, SWIGLU_E_MEMORY, 0, "out of memory");
    p->g = g, p->error = error;
    const enum swiglu_status status = gguf_header(p);
    swiglu_free(p);
    return status;
}
