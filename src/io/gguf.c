/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "io/gguf_parse.h"

static const struct swiglu_gguf_type gguf_types[] = {
#define TYPE(number, name, elems, bytes) {number, name, elems, bytes},
#include "io/gguf_type.def"
#undef TYPE
};

const struct swiglu_gguf_type *swiglu_gguf_type_find(uint32_t type) {
    for (size_t i = 0; i < sizeof gguf_types / sizeof gguf_types[0]; i++)
        if (gguf_types[i].type == type) return &gguf_types[i];
    return NULL;
}

enum swiglu_status swiglu_gguf_fail(const struct swiglu_gguf *g, struct swiglu_error *error, enum swiglu_status code,
                                    uint64_t offset, const char *format, ...) {
    char text[sizeof((struct swiglu_error *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (offset == SWIGLU_NO_OFFSET) return swiglu_fail(error, code, offset, 0, "%s: %s", g->file.shown, text);
    return swiglu_fail(error, code, offset, 0, "%s: %s (at byte %llu)", g->file.shown, text,
                       (unsigned long long)offset);
}

enum swiglu_status swiglu_gguf_warn(struct swiglu_gguf *g, struct swiglu_error *error, uint64_t offset,
                                    const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (g->strict) return swiglu_gguf_fail(g, error, SWIGLU_E_FORMAT, offset, "%s", text);
    if (swiglu_names_push(&g->warnings, text, strlen(text)))
        return swiglu_gguf_fail(g, error, SWIGLU_E_MEMORY, offset, "out of memory for a warning");
    return SWIGLU_OK;
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

enum swiglu_status swiglu_gguf_open(struct swiglu_gguf *g, const char *path, int strict, struct swiglu_error *error) {
    *g = (struct swiglu_gguf){.strict = strict, .alignment = 32};
    enum swiglu_status status = swiglu_file_open(&g->file, path, error);
    if (status == SWIGLU_OK) {
        status = swiglu_gguf_parse(g, error);
        if (status != SWIGLU_OK) swiglu_gguf_close(g);
    }
    return status;
}

void swiglu_gguf_close(struct swiglu_gguf *g) {
    swiglu_file_close(&g->file);
    swiglu_names_free(&g->keys);
    swiglu_names_free(&g->names);
    swiglu_names_free(&g->warnings);
    swiglu_free(g->kvs);
    swiglu_free(g->values);
    swiglu_free(g->tensors);
    g->kvs = NULL, g->values = NULL, g->tensors = NULL;
}
