/* SPDX-License-Identifier: Apache-2.0 */
#include "io/checkpoint.h"

#include <string.h>

#include "base/alloc.h"
#include "io/folder.h"
#include "io/foreign.h"
#include "io/gguf_layers.h"
#include "io/gguf_set.h"
#include "io/hf_layers.h"
#include "io/safetensors.h"
#include "io/shard_name.h"

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
    TRY(swiglu_foreign_check(&m->catalog.files[0], error));
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
    static const enum swiglu_role role[3] = {SWIGLU_ROLE_GATE, SWIGLU_ROLE_UP, SWIGLU_ROLE_DOWN};
    for (size_t i = 0; i < m->layers.n; i++) {
        struct swiglu_layer *layer = &m->layers.at[i];
        for (int k = 0; k < 3; k++) {
            layer->read[k].model = m;
            const struct swiglu_scaled *q = &layer->quant[k];
            if (layer->tensor[role[k]] < 0) continue;
            layer->read[k].tensor = swiglu_layer_part(&m->catalog, layer, role[k]);
            if (!q->kind) continue;
            const bool in_out = swiglu_scaled_in_out(q);
            layer->read[k].quant = q;
            layer->read[k].tensor = (struct swiglu_tensor){.type = SWIGLU_F32, .n_dims = 2,
                                                           .dims = {in_out ? q->cols : q->rows, in_out ? q->rows : q->cols},
                                                           .bytes = q->rows * q->cols * sizeof(float)};
        }
    }
}

enum swiglu_status swiglu_checkpoint_open(struct swiglu_model *m, const char *path, const struct swiglu_model_options *o,
                                          struct swiglu_error *error) {
    swiglu_file_show(m->shown, path);
    m->catalog.strict = o->strict;
    TRY(model_read_headers(m, path, o->scan, error));
    TRY(model_find_layers(m, o, error));
    model_set_sources(m);
    return SWIGLU_OK;
}

void swiglu_checkpoint_close(struct swiglu_model *m) {
    swiglu_layers_free(&m->layers);
    swiglu_gguf_free(&m->gguf);
    swiglu_config_free(&m->config);
    swiglu_catalog_close(&m->catalog);
}

const char *swiglu_model_architecture(const struct swiglu_model *m) {
    return m->is_gguf ? swiglu_gguf_architecture(&m->gguf) : swiglu_config_model_type(&m->config);
}

enum swiglu_status swiglu_checkpoint_read(const struct swiglu_model *m, size_t i, uint64_t byte, void *dst, size_t n_bytes,
                                          struct swiglu_error *error) {
    const struct swiglu_tensor *t = &m->catalog.tensors[i];
    return swiglu_file_read(&m->catalog.files[t->file], t->offset + byte, dst, n_bytes, error);
}

/* ---- descriptions ---- */

static enum swiglu_status model_read_source(void *ctx, uint64_t byte, void *dst, size_t n_bytes,
                                            struct swiglu_error *error) {
    const struct swiglu_source *s = ctx;
    const struct swiglu_tensor *t = &s->tensor;
    REQUIRE(byte <= t->bytes && n_bytes <= t->bytes - byte, SWIGLU_E_ARGUMENT,
            "bytes %llu + %zu of a weight: it has %llu", (unsigned long long)byte, n_bytes,
            (unsigned long long)t->bytes);
    if (s->quant) return swiglu_scaled_read(s->quant, &s->model->catalog, byte, dst, n_bytes, error);
    return swiglu_file_read(&s->model->catalog.files[t->file], t->offset + byte, dst, n_bytes, error);
}

/* The rows of a weight are its outputs; in_out: it is stored the other way round. */
static struct swiglu_matrix model_matrix(struct swiglu_source *source, int stored_in_out) {
    const int in_out = source->quant ? swiglu_scaled_in_out(source->quant) : stored_in_out;
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
        const enum swiglu_status status = swiglu_checkpoint_read(model, (size_t)tensor, 0, mine, (size_t)t->bytes, error);
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

enum swiglu_status swiglu_checkpoint_describe(struct swiglu_model *m, size_t i, struct swiglu_desc *desc,
                                              struct swiglu_error *error) {
    struct swiglu_layer *layer = &m->layers.at[i];
    const struct swiglu_model_block_info *info = &layer->info;
    *desc = (struct swiglu_desc){.struct_size = sizeof *desc, .d_in = info->d_in, .d_ff = info->d_ff, .d_out = info->d_out,
                                 .layout = info->layout, .act = info->act};
    if (info->gate >= 0) desc->gate = model_matrix(&layer->read[0], info->in_out);
    if (info->up >= 0) desc->up = model_matrix(&layer->read[1], info->in_out);
    desc->down = model_matrix(&layer->read[2], info->in_out);
    TRY(model_bias(m, layer, 0, info->gate_bias, &desc->gate_bias, error));
    TRY(model_bias(m, layer, 1, info->up_bias, &desc->up_bias, error));
    return model_bias(m, layer, 2, info->down_bias, &desc->down_bias, error);
}
