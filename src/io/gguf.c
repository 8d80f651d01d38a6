/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "io/gguf_parse.h"

static const struct swiglu_gguf_type gguf_types[] = {
#define DTYPE(NAME, text, elems, bytes, file_type, scales, name) {SWIGLU_##NAME, #NAME, elems, bytes},
#include "dtype/dtype.def"
#undef DTYPE
#define TYPE(number, name, elems, bytes) {number, name, elems, bytes},
#include "io/gguf_type.def"
#undef TYPE
};

const struct swiglu_gguf_type *swiglu_gguf_type_find(uint32_t type) {
    for (size_t i = 0; i < sizeof gguf_types / sizeof gguf_types[0]; i++)
        if (gguf_types[i].type == type) return &gguf_types[i];
    return NULL;
}

const struct swiglu_kv *swiglu_gguf_find(const struct swiglu_gguf *g, const char *key) {
    const size_t i = swiglu_names_find(&g->keys, key);
    return i < g->keys.n ? &g->kvs[i] : NULL;
}

const char *swiglu_gguf_text(const struct swiglu_gguf *g, const struct swiglu_kv *kv) {
    if (!kv || kv->type != SWIGLU_KV_STRING || kv->is_array || kv->value == SWIGLU_KV_NOT_KEPT) return NULL;
    return g->values + kv->value;
}

/* The bytes of value i, or NULL. */
static const char *gguf_element(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i) {
    if (!kv || kv->type == SWIGLU_KV_STRING || kv->value == SWIGLU_KV_NOT_KEPT || i >= kv->count) return NULL;
    return g->values + kv->value + i * swiglu_kv_bytes(kv->type);
}

bool swiglu_gguf_integer(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, uint64_t *out) {
    const char *p = gguf_element(g, kv, i);
    if (!p) return false;
    int64_t v;
    int8_t small;
    switch (kv->type) {
    case SWIGLU_KV_U8: v = (unsigned char)*p; break;
    case SWIGLU_KV_I8: memcpy(&small, p, 1), v = small; break;
    case SWIGLU_KV_U16: v = swiglu_le16(p); break;
    case SWIGLU_KV_I16: v = (int16_t)swiglu_le16(p); break;
    case SWIGLU_KV_U32: v = swiglu_le32(p); break;
    case SWIGLU_KV_I32: v = (int32_t)swiglu_le32(p); break;
    case SWIGLU_KV_U64: *out = swiglu_le64(p); return true;
    case SWIGLU_KV_I64: v = (int64_t)swiglu_le64(p); break;
    default: return false;
    }
    *out = (uint64_t)v;
    return v >= 0;
}

bool swiglu_gguf_real(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, double *out) {
    const char *p = gguf_element(g, kv, i);
    if (!p) return false;
    if (kv->type == SWIGLU_KV_F32) {
        *out = (double)swiglu_f32_from_bits(swiglu_le32(p));
        return true;
    }
    if (kv->type != SWIGLU_KV_F64) return false;
    memcpy(out, p, sizeof *out);
    return true;
}

const char *swiglu_kv_type_name(uint32_t type) {
    static const char *const names[SWIGLU_KV_TYPES] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
    return type < SWIGLU_KV_TYPES ? names[type] : "";
}

/* Value i of one that is no string. */
static void gguf_word(const struct swiglu_gguf *g, const struct swiglu_kv *kv, uint64_t i, char dst[32]) {
    uint64_t integer;
    double real;
    if (kv->type == SWIGLU_KV_BOOL) {
        snprintf(dst, 32, "%s", *gguf_element(g, kv, i) ? "true" : "false");
    } else if (swiglu_gguf_real(g, kv, i, &real)) {
        snprintf(dst, 32, "%.*g", kv->type == SWIGLU_KV_F32 ? 9 : 17, real);
    } else if (swiglu_gguf_integer(g, kv, i, &integer)) {
        snprintf(dst, 32, "%llu", (unsigned long long)integer);
    } else { /* a negative integer, and nothing else */
        snprintf(dst, 32, "%lld", (long long)integer);
    }
}

void swiglu_gguf_words(const struct swiglu_gguf *g, const struct swiglu_kv *kv, char *dst, size_t n) {
    static const char more[] = "...";
    size_t at = 0;
    dst[0] = 0;
    if (kv->value == SWIGLU_KV_NOT_KEPT) return;
    if (kv->type == SWIGLU_KV_STRING) {
        const char *text = g->values + kv->value;
        const bool cut = strlen(text) >= n && n > sizeof more;
        snprintf(dst, n, "%.*s%s", cut ? (int)(n - sizeof more) : (int)n, text, cut ? more : "");
        return;
    }
    for (uint64_t i = 0; i < kv->count; i++) {
        char word[32];
        gguf_word(g, kv, i, word);
        const size_t bytes = strlen(word) + (i ? 2 : 0);
        const bool last = i + 1 == kv->count;
        if (at + bytes + (last ? 1 : sizeof more + 2) > n) {
            snprintf(dst + at, n - at, "%s%s", i ? ", " : "", more);
            return;
        }
        at += (size_t)snprintf(dst + at, n - at, "%s%s", i ? ", " : "", word);
    }
}

enum swiglu_status swiglu_gguf_read(struct swiglu_gguf *g, struct swiglu_catalog *catalog, size_t file,
                                    struct swiglu_error *error) {
    *g = (struct swiglu_gguf){.catalog = catalog, .file = file, .first = catalog->names.n, .alignment = 32};
    catalog->fastest_first = true;
    return swiglu_gguf_parse(g, error);
}

void swiglu_gguf_free(struct swiglu_gguf *g) {
    swiglu_names_free(&g->keys);
    swiglu_free(g->kvs);
    swiglu_free(g->values);
    g->kvs = NULL, g->values = NULL;
    g->kvs_capacity = g->values_bytes = g->values_capacity = 0;
}
