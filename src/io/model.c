/* SPDX-License-Identifier: Apache-2.0 */
/* The public entries of model.h: arguments checked, then down to the header (gguf.c) and the layers (layers.c). */
#include <string.h>

#include "base/act.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "io/convert.h"
#include "io/experts.h"
#include "io/folder.h"
#include "io/gguf_set.h"
#include "io/gguf_layers.h"
#include "io/hf_layers.h"
#include "io/safetensors.h"
#include "io/shard_name.h"

struct swiglu_model {
    bool is_gguf;
    char shown[SWIGLU_SHOWN_BYTES]; /* what was opened, for messages */
    struct swiglu_catalog catalog;
    struct swiglu_gguf gguf;     /* metadata of the one */
    struct swiglu_config config; /* and of the other format */
    struct swiglu_layers layers;
};

static void model_free(struct swiglu_model *m) {
    swiglu_layers_free(&m->layers);
    swiglu_gguf_free(&m->gguf);
    swiglu_config_free(&m->config);
    swiglu_catalog_close(&m->catalog);
    swiglu_free(m);
}

/* A file is what its name says, and otherwise what it begins with. */
static enum swiglu_status model_format(struct swiglu_model *m, const char *path, struct swiglu_error *error) {
    static const char st[] = ".safetensors", gguf[] = ".gguf";
    const struct swiglu_file *file = &m->catalog.files[0];
    const size_t n = strlen(path);
    char head[9] = {0};
    if (n >= sizeof st - 1 && !strcmp(path + n - (sizeof st - 1), st)) return SWIGLU_OK;
    m->is_gguf = true;
    if (n >= sizeof gguf - 1 && !strcmp(path + n - (sizeof gguf - 1), gguf)) return SWIGLU_OK;
    if (file->bytes >= sizeof head) TRY(swiglu_file_read(file, 0, head, sizeof head, error));
    m->is_gguf = head[sizeof head - 1] != '{' || !memcmp(head, "GGUF", 4);
    return SWIGLU_OK;
}

static enum swiglu_status model_read_file(struct swiglu_model *m, const char *path, struct swiglu_error *error) {
    struct swiglu_shard_name name;
    TRY(swiglu_catalog_add_file(&m->catalog, path, error));
    TRY(model_format(m, path, error));
    if (m->is_gguf) return swiglu_gguf_open(&m->gguf, &m->catalog, path, error);
    m->catalog.partial = swiglu_shard_name(path, ".safetensors", &name) && name.count > 1;
    TRY(swiglu_safetensors_read(&m->catalog, 0, error));
    TRY(swiglu_catalog_sort(&m->catalog, error));
    return swiglu_folder_config(&m->catalog, &m->config, path, error);
}

static enum swiglu_status model_read_headers(struct swiglu_model *m, const char *path, bool scan,
                                             struct swiglu_error *error) {
    char *gguf;
    if (!swiglu_folder_is(path)) return model_read_file(m, path, error);
    TRY(swiglu_folder_gguf(path, &gguf, error));
    if (!gguf) return swiglu_folder_read(&m->catalog, &m->config, path, scan, error);
    const enum swiglu_status status = model_read_file(m, gguf, error);
    swiglu_free(gguf);
    return status;
}

static enum swiglu_status model_find_layers(struct swiglu_model *m, const struct swiglu_model_options *o,
                                            struct swiglu_error *error) {
    if (m->is_gguf) return swiglu_gguf_layers(&m->layers, &m->gguf, o->activation, o->experts, error);
    return swiglu_hf_layers(&m->layers, &m->catalog, &m->config, o->activation, o->experts, error);
}

/* Where each block's matrices are read from. */
static void model_set_sources(struct swiglu_model *m) {
    for (size_t i = 0; i < m->layers.n; i++) {
        struct swiglu_layer *layer = &m->layers.at[i];
        const bool packed = layer->info.up < 0 && layer->info.gate >= 0;
        const enum swiglu_role role[3] = {packed ? SWIGLU_ROLE_UP : SWIGLU_ROLE_GATE, SWIGLU_ROLE_UP, SWIGLU_ROLE_DOWN};
        for (int k = 0; k < 3; k++) {
            layer->read[k].model = m;
            if (layer->tensor[role[k]] >= 0) layer->read[k].tensor = swiglu_layer_part(&m->catalog, layer, role[k]);
        }
    }
}

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
    swiglu_file_show(m->shown, path);
    m->catalog.strict = o.strict;
    enum swiglu_status status = model_read_headers(m, path, o.scan, error);
    if (status == SWIGLU_OK) status = model_find_layers(m, &o, error);
    if (status != SWIGLU_OK) {
        model_free(m);
        return status;
    }
    model_set_sources(m);
    *model = m;
    return SWIGLU_OK;
}

void swiglu_model_close(struct swiglu_model *model) {
    if (model) model_free(model);
}

enum swiglu_status swiglu_model_query(const struct swiglu_model *model, struct swiglu_model_info *info) {
    if (!model || !info) return SWIGLU_E_ARGUMENT;
    const struct swiglu_gguf *g = &model->gguf;
    const struct swiglu_catalog *c = &model->catalog;
    const char *name = model->is_gguf ? swiglu_gguf_text(g, swiglu_gguf_find(g, "general.name")) : NULL;
    struct swiglu_model_info full = {.struct_size = sizeof full,
                                     .format = model->is_gguf ? "gguf" : "safetensors",
                                     .format_version = g->version,
                                     .architecture = model->is_gguf ? swiglu_gguf_architecture(g)
                                                                    : swiglu_config_model_type(&model->config),
                                     .name = name ? name : "",
                                     .n_tensors = c->names.n,
                                     .n_blocks = model->layers.n,
                                     .n_warnings = c->warnings.n};
    for (size_t i = 0; i < c->n_files; i++)
        if (c->files[i].fd >= 0) full.file_bytes += c->files[i].bytes, full.n_files++; /* config and index are closed */
    return swiglu_struct_out(info, &full, sizeof full);
}

const struct swiglu_gguf *swiglu_model_gguf(const struct swiglu_model *model) {
    return model->is_gguf ? &model->gguf : NULL;
}

const struct swiglu_catalog *swiglu_model_catalog(const struct swiglu_model *model) { return &model->catalog; }

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
                                      .bytes = t->bytes};
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
    return swiglu_file_read(&c->files[t->file], t->offset + byte, dst, n_bytes, error);
}

enum swiglu_status swiglu_model_block(const struct swiglu_model *model, size_t i,
                                      struct swiglu_model_block_info *info) {
    if (!model || !info || i >= model->layers.n) return SWIGLU_E_ARGUMENT;
    return swiglu_struct_out(info, &model->layers.at[i].info, sizeof *info);
}

/* ---- descriptions ---- */

static enum swiglu_status model_read_source(void *ctx, uint64_t byte, void *dst, size_t n_bytes,
                                            struct swiglu_error *error) {
    const struct swiglu_source *s = ctx;
    const struct swiglu_tensor *t = &s->tensor;
    REQUIRE(byte <= t->bytes && n_bytes <= t->bytes - byte, SWIGLU_E_ARGUMENT,
            "bytes %llu + %zu of a weight: it has %llu", (unsigned long long)byte, n_bytes,
            (unsigned long long)t->bytes);
    return swiglu_file_read(&s->model->catalog.files[t->file], t->offset + byte, dst, n_bytes, error);
}

/* The rows of a weight are its outputs; in_out: it is stored the other way round. */
static struct swiglu_matrix model_matrix(struct swiglu_source *source, int in_out) {
    const struct swiglu_tensor *t = &source->tensor;
    const size_t outer = t->n_dims > 1 ? (size_t)t->dims[0] : 1, inner = (size_t)t->dims[t->n_dims - 1];
    return (struct swiglu_matrix){.read = model_read_source,
                                  .any_thread = 1,
                                  .ctx = source,
                                  .dtype = (int)t->type,
                                  .in_out = in_out,
                                  .rows = in_out ? inner : outer,
                                  .cols = in_out ? outer : inner};
}

/* A bias is read once and kept. Two threads may both read it; one copy stays. */
static enum swiglu_status model_bias(struct swiglu_model *model, struct swiglu_layer *layer, int k, long tensor,
                                     struct swiglu_vector *bias, struct swiglu_error *error) {
    *bias = (struct swiglu_vector){NULL, SWIGLU_F32};
    if (tensor < 0) return SWIGLU_OK;
    const struct swiglu_tensor *t = &model->catalog.tensors[tensor];
    void *have = atomic_load(&layer->bias[k]);
    if (!have) {
        void *mine = swiglu_alloc((size_t)t->bytes);
        REQUIRE(mine, SWIGLU_E_MEMORY, "tensor %.80s: out of memory for %llu bytes",
                swiglu_names_at(&model->catalog.names, (size_t)tensor), (unsigned long long)t->bytes);
        const enum swiglu_status status = swiglu_model_read(model, (size_t)tensor, 0, mine, (size_t)t->bytes, error);
        if (status == SWIGLU_OK && atomic_compare_exchange_strong(&layer->bias[k], &have, mine)) {
            have = mine;
        } else {
            swiglu_free(mine);
        }
        TRY(status);
    }
    *bias = (struct swiglu_vector){have, (int)t->type};
    return SWIGLU_OK;
}

enum swiglu_status swiglu_model_desc(struct swiglu_model *model, size_t i, struct swiglu_desc *desc,
                                     struct swiglu_error *error) {
    REQUIRE(model && desc, SWIGLU_E_ARGUMENT, "model or desc is NULL");
    REQUIRE(i < model->layers.n, SWIGLU_E_ARGUMENT, "block %zu: the file has %zu", i, model->layers.n);
    struct swiglu_layer *layer = &model->layers.at[i];
    const struct swiglu_model_block_info *info = &layer->info;
    REQUIRE(info->usable, SWIGLU_E_UNSUPPORTED, "%s: layer %zu is left out: %s", model->shown, info->layer,
            info->reason);
    struct swiglu_desc full = {.struct_size = sizeof full, .d_in = info->d_in, .d_ff = info->d_ff, .d_out = info->d_out,
                               .layout = info->layout, .act = info->act};
    if (info->gate >= 0) full.gate = model_matrix(&layer->read[0], info->in_out);
    if (info->up >= 0) full.up = model_matrix(&layer->read[1], info->in_out);
    full.down = model_matrix(&layer->read[2], info->in_out);
    TRY(model_bias(model, layer, 0, info->gate_bias, &full.gate_bias, error));
    TRY(model_bias(model, layer, 1, info->up_bias, &full.up_bias, error));
    TRY(model_bias(model, layer, 2, info->down_bias, &full.down_bias, error));
    REQUIRE(!swiglu_struct_out(desc, &full, sizeof full), SWIGLU_E_ARGUMENT, "desc.struct_size %zu", desc->struct_size);
    return SWIGLU_OK;
}
