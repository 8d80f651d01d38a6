/* SPDX-License-Identifier: Apache-2.0 */
/* model.h: arguments checked, then down to what the files hold (io/checkpoint.c) and what becomes of it (io/convert.c). */
#include <stdio.h>
#include <string.h>

#include "base/act.h"
#include "base/alloc.h"
#include "dtype/dtype.h"
#include "io/convert.h"
#include "io/checkpoint.h"

enum swiglu_status swiglu_model_open(const char *path, const struct swiglu_model_options *options,
                                     struct swiglu_model **model, struct swiglu_error *error) {
    struct swiglu_model_options o = {.struct_size = sizeof o};
    struct swiglu_act act;
    REQUIRE(model, SWIGLU_E_ARGUMENT, "model is NULL");
    *model = NULL;
    REQUIRE(path, SWIGLU_E_ARGUMENT, "path is NULL");
    if (options)
        REQUIRE(!swiglu_struct_in(&o, sizeof o, options), SWIGLU_E_ARGUMENT,
                "options.struct_size %zu: this library knows %zu", options->struct_size, sizeof o);
    REQUIRE(!o.activation || !swiglu_act_init(&act, o.activation), SWIGLU_E_ARGUMENT, "activation \"%.80s\" is unknown",
            o.activation);
    struct swiglu_model *m = swiglu_alloc(sizeof *m);
    REQUIRE(m, SWIGLU_E_MEMORY, "out of memory");
    const enum swiglu_status status = swiglu_checkpoint_open(m, path, &o, error);
    if (status == SWIGLU_OK) {
        *model = m;
    } else {
        swiglu_model_close(m);
    }
    return status;
}

void swiglu_model_close(struct swiglu_model *model) {
    if (!model) return;
    swiglu_checkpoint_close(model);
    swiglu_free(model);
}

enum swiglu_status swiglu_model_query(const struct swiglu_model *model, struct swiglu_model_info *info) {
    if (!model || !info) return SWIGLU_E_ARGUMENT;
    const struct swiglu_gguf *g = &model->gguf;
    const struct swiglu_catalog *c = &model->catalog;
    const char *name = model->is_gguf ? swiglu_gguf_text(g, swiglu_gguf_find(g, "general.name")) : NULL;
    struct swiglu_model_info full = {.struct_size = sizeof full,
                                     .format = model->is_gguf ? "gguf" : "safetensors",
                                     .format_version = g->version,
                                     .architecture = swiglu_model_architecture(model),
                                     .name = name ? name : "",
                                     .n_tensors = c->names.n,
                                     .n_blocks = model->layers.n,
                                     .n_warnings = c->warnings.n,
                                     .n_metadata = model->is_gguf ? g->keys.n : c->keys.n};
    for (size_t i = 0; i < c->n_files; i++)
        if (c->files[i].fd >= 0) full.file_bytes += c->files[i].bytes, full.n_files++; /* config and index are closed */
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_model_metadata(const struct swiglu_model *model, size_t i, struct swiglu_metadata_info *info,
                                         char *value, size_t value_bytes) {
    if (!model || !info || !value || !value_bytes) return SWIGLU_E_ARGUMENT;
    struct swiglu_metadata_info full = {.struct_size = sizeof full, .type = "string", .kept = 1, .count = 1};
    const struct swiglu_names *keys = model->is_gguf ? &model->gguf.keys : &model->catalog.keys;
    if (i >= keys->n) return SWIGLU_E_ARGUMENT;
    full.key = swiglu_names_at(keys, i);
    if (model->is_gguf) {
        const struct swiglu_kv *kv = &model->gguf.kvs[i];
        full.type = swiglu_kv_type_name(kv->type);
        full.is_array = (int)kv->is_array;
        full.kept = kv->value != SWIGLU_KV_NOT_KEPT;
        if (kv->is_array) full.count = kv->count;
        swiglu_gguf_words(&model->gguf, kv, value, value_bytes);
    } else {
        snprintf(value, value_bytes, "%s", swiglu_names_at(&model->catalog.values, i));
    }
    return swiglu_struct_out(info, &full, sizeof full);
}

const char *swiglu_model_warning(const struct swiglu_model *model, size_t i) {
    return model && i < model->catalog.warnings.n ? swiglu_names_at(&model->catalog.warnings, i) : NULL;
}

enum swiglu_status swiglu_model_tensor(const struct swiglu_model *model, size_t i, struct swiglu_tensor_info *info) {
    if (!model || !info || i >= model->catalog.names.n) return SWIGLU_E_ARGUMENT;
    const struct swiglu_tensor *t = &model->catalog.tensors[i];
    struct swiglu_tensor_info full = {.struct_size = sizeof full,
                                      .name = swiglu_names_at(&model->catalog.names, i),
                                      .dtype = (int)t->type,
                                      .dtype_name = swiglu_tensor_type_name(t),
                                      .n_dims = t->n_dims,
                                      .offset = t->offset,
                                      .bytes = t->bytes,
                                      .file = model->catalog.files[t->file].shown};
    memcpy(full.dims, t->dims, sizeof full.dims);
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_model_read(const struct swiglu_model *model, size_t i, uint64_t byte, void *dst,
                                     size_t n_bytes, struct swiglu_error *error) {
    REQUIRE(model && (dst || n_bytes == 0), SWIGLU_E_ARGUMENT, "model or dst is NULL");
    const struct swiglu_catalog *c = &model->catalog;
    REQUIRE(i < c->names.n, SWIGLU_E_ARGUMENT, "tensor %zu: the file has %zu", i, c->names.n);
    const struct swiglu_tensor *t = &c->tensors[i];
    REQUIRE(byte <= t->bytes && n_bytes <= t->bytes - byte, SWIGLU_E_ARGUMENT,
            "tensor %.80s: bytes %llu + %zu: it has %llu", swiglu_names_at(&c->names, i), (unsigned long long)byte,
            n_bytes, (unsigned long long)t->bytes);
    return swiglu_checkpoint_read(model, i, byte, dst, n_bytes, error);
}

enum swiglu_status swiglu_model_block(const struct swiglu_model *model, size_t i,
                                      struct swiglu_model_block_info *info) {
    if (!model || !info || i >= model->layers.n) return SWIGLU_E_ARGUMENT;
    return swiglu_struct_out(info, &model->layers.at[i].info, sizeof *info);
}

enum swiglu_status swiglu_model_desc(struct swiglu_model *model, size_t i, struct swiglu_desc *desc,
                                     struct swiglu_error *error) {
    struct swiglu_desc full;
    REQUIRE(model && desc, SWIGLU_E_ARGUMENT, "model or desc is NULL");
    REQUIRE(i < model->layers.n, SWIGLU_E_ARGUMENT, "block %zu: the file has %zu", i, model->layers.n);
    const struct swiglu_model_block_info *info = &model->layers.at[i].info;
    REQUIRE(info->usable, SWIGLU_E_UNSUPPORTED, "%s: layer %zu is left out: %s", model->shown, info->layer,
            info->reason);
    TRY(swiglu_checkpoint_describe(model, i, &full, error));
    REQUIRE(!swiglu_struct_out(desc, &full, sizeof full), SWIGLU_E_ARGUMENT, "desc.struct_size %zu", desc->struct_size);
    return SWIGLU_OK;
}

/* ---- converting ---- */

static enum swiglu_status convert_check(const struct swiglu_convert_options *o, struct swiglu_error *error) {
    REQUIRE(o->dtype == SWIGLU_DTYPE_KEEP || swiglu_dtype_find(o->dtype), SWIGLU_E_ARGUMENT, "options.dtype %d",
            o->dtype);
    REQUIRE(o->repack >= SWIGLU_REPACK_KEEP && o->repack <= SWIGLU_REPACK_GATE_UP, SWIGLU_E_ARGUMENT,
            "options.repack %d", o->repack);
    REQUIRE(o->format >= SWIGLU_FORMAT_KEEP && o->format <= SWIGLU_FORMAT_SAFETENSORS, SWIGLU_E_ARGUMENT,
            "options.format %d", o->format);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_model_convert(const struct swiglu_model *model, const char *out_path,
                                        const struct swiglu_convert_options *options, struct swiglu_error *error) {
    struct swiglu_convert_options o = {.struct_size = sizeof o, .dtype = SWIGLU_DTYPE_KEEP};
    REQUIRE(model && out_path && options, SWIGLU_E_ARGUMENT, "model, out_path or options is NULL");
    REQUIRE(!swiglu_struct_in(&o, sizeof o, options), SWIGLU_E_ARGUMENT,
            "options.struct_size %zu: this library knows %zu", options->struct_size, sizeof o);
    TRY(convert_check(&o, error));
    return swiglu_convert(model, out_path, &o, error);
}
