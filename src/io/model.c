/* SPDX-License-Identifier: Apache-2.0 */
/* The public entries of model.h: arguments checked, then down to the header (gguf.c) and the layers (layers.c). */
#include <string.h>

#include "base/act.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "io/convert.h"
#include "io/layers.h"

struct swiglu_model {
    struct swiglu_gguf gguf;
    struct swiglu_layers layers;
};

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
    enum swiglu_status status = swiglu_gguf_open(&m->gguf, path, o.strict, error);
    if (status == SWIGLU_OK) {
        status = swiglu_layers_find(&m->layers, &m->gguf, o.activation, error);
        if (status != SWIGLU_OK) swiglu_gguf_close(&m->gguf);
    }
    if (status != SWIGLU_OK) {
        swiglu_free(m);
        return status;
    }
    for (size_t i = 0; i < m->layers.n; i++) {
        struct swiglu_layer *layer = &m->layers.at[i];
        const long tensor[3] = {layer->info.gate, layer->info.up, layer->info.down};
        for (int k = 0; k < 3; k++) layer->read[k] = (struct swiglu_source){m, tensor[k] < 0 ? 0 : (size_t)tensor[k]};
    }
    *model = m;
    return SWIGLU_OK;
}

void swiglu_model_close(struct swiglu_model *model) {
    if (!model) return;
    swiglu_layers_free(&model->layers);
    swiglu_gguf_close(&model->gguf);
    swiglu_free(model);
}

enum swiglu_status swiglu_model_query(const struct swiglu_model *model, struct swiglu_model_info *info) {
    if (!model || !info) return SWIGLU_E_ARGUMENT;
    const struct swiglu_gguf *g = &model->gguf;
    const char *name = swiglu_gguf_text(g, swiglu_gguf_find(g, "general.name"));
    const struct swiglu_model_info full = {.struct_size = sizeof full,
                                           .format = "gguf",
                                           .format_version = g->version,
                                           .architecture = swiglu_gguf_architecture(g),
                                           .name = name ? name : "",
                                           .file_bytes = g->file.bytes,
                                           .n_tensors = g->names.n,
                                           .n_blocks = model->layers.n,
                                           .n_warnings = g->warnings.n};
    return swiglu_struct_out(info, &full, sizeof full);
}

const struct swiglu_gguf *swiglu_model_gguf(const struct swiglu_model *model) { return &model->gguf; }

const char *swiglu_model_warning(const struct swiglu_model *model, size_t i) {
    return model && i < model->gguf.warnings.n ? swiglu_names_at(&model->gguf.warnings, i) : NULL;
}

enum swiglu_status swiglu_model_tensor(const struct swiglu_model *model, size_t i, struct swiglu_tensor_info *info) {
    if (!model || !info || i >= model->gguf.names.n) return SWIGLU_E_ARGUMENT;
    const struct swiglu_tensor *t = &model->gguf.tensors[i];
    struct swiglu_tensor_info full = {.struct_size = sizeof full,
                                      .name = swiglu_names_at(&model->gguf.names, i),
                                      .dtype = (int)t->type,
                                      .dtype_name = swiglu_gguf_type_find(t->type)->name,
                                      .n_dims = t->n_dims,
                                      .offset = t->offset,
                                      .bytes = t->bytes};
    for (uint32_t k = 0; k < t->n_dims; k++) full.dims[k] = t->dims[t->n_dims - 1 - k];
    return swiglu_struct_out(info, &full, sizeof full);
}

enum swiglu_status swiglu_model_read(const struct swiglu_model *model, size_t i, uint64_t byte, void *dst,
                                     size_t n_bytes, struct swiglu_error *error) {
    REQUIRE(model && (dst || n_bytes == 0), SWIGLU_E_ARGUMENT, "model or dst is NULL");
    const struct swiglu_gguf *g = &model->gguf;
    REQUIRE(i < g->names.n, SWIGLU_E_ARGUMENT, "tensor %zu: the file has %zu", i, g->names.n);
    const struct swiglu_tensor *t = &g->tensors[i];
    REQUIRE(byte <= t->bytes && n_bytes <= t->bytes - byte, SWIGLU_E_ARGUMENT,
            "tensor %.80s: bytes %llu + %zu: it has %llu", swiglu_names_at(&g->names, i), (unsigned long long)byte,
            n_bytes, (unsigned long long)t->bytes);
    return swiglu_file_read(&g->file, t->offset + byte, dst, n_bytes, error);
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
    return swiglu_model_read(s->model, s->tensor, byte, dst, n_bytes, error);
}

static struct swiglu_matrix model_matrix(struct swiglu_source *source) {
    const struct swiglu_tensor *t = &source->model->gguf.tensors[source->tensor];
    return (struct swiglu_matrix){.read = model_read_source,
                                  .ctx = source,
                                  .dtype = (int)t->type,
                                  .rows = t->n_dims > 1 ? (size_t)t->dims[1] : 1,
                                  .cols = (size_t)t->dims[0]};
}

/* A bias is read once and kept. Two threads may both read it; one copy stays. */
static enum swiglu_status model_bias(struct swiglu_model *model, struct swiglu_layer *layer, int k, long tensor,
                                     struct swiglu_vector *bias, struct swiglu_error *error) {
    *bias = (struct swiglu_vector){NULL, SWIGLU_F32};
    if (tensor < 0) return SWIGLU_OK;
    const struct swiglu_tensor *t = &model->gguf.tensors[tensor];
    void *have = atomic_load(&layer->bias[k]);
    if (!have) {
        void *mine = swiglu_alloc((size_t)t->bytes);
        REQUIRE(mine, SWIGLU_E_MEMORY, "tensor %.80s: out of memory for %llu bytes",
                swiglu_names_at(&model->gguf.names, (size_t)tensor), (unsigned long long)t->bytes);
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
    REQUIRE(info->usable, SWIGLU_E_UNSUPPORTED, "%s: layer %zu is left out: %s", model->gguf.file.shown, info->layer,
            info->reason);
    struct swiglu_desc full = {.struct_size = sizeof full, .d_in = info->d_in, .d_ff = info->d_ff, .d_out = info->d_out,
                               .layout = info->layout, .act = info->act};
    if (info->gate >= 0) full.gate = model_matrix(&layer->read[0]);
    if (info->up >= 0) full.up = model_matrix(&layer->read[1]);
    full.down = model_matrix(&layer->read[2]);
    TRY(model_bias(model, layer, 0, info->gate_bias, &full.gate_bias, error));
    TRY(model_bias(model, layer, 1, info->up_bias, &full.up_bias, error));
    TRY(model_bias(model, layer, 2, info->down_bias, &full.down_bias, error));
    REQUIRE(!swiglu_struct_out(desc, &full, sizeof full), SWIGLU_E_ARGUMENT, "desc.struct_size %zu", desc->struct_size);
    return SWIGLU_OK;
}
