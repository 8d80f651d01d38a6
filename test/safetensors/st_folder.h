/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a small sharded checkpoint from C: a folder with config.json, an index and two shards. */
#ifndef SWIGLU_TEST_ST_FOLDER_H
#define SWIGLU_TEST_ST_FOLDER_H

#include "io/gguf_file.h"

enum { FOLDER_D = 4, FOLDER_FF = 8, FOLDER_FILES = 4 };

static const char *const folder_names[FOLDER_FILES] = {"config.json", "model.safetensors.index.json", "a.safetensors",
                                                       "b.safetensors"};

struct folder {
    char path[64];
    struct { char path[128]; unsigned char at[4096]; size_t n; } file[FOLDER_FILES];
};

UNUSED_FN void folder_put(struct folder *f, int file, const void *bytes, size_t n) {
    assert_true(f->file[file].n + n <= sizeof f->file[file].at);
    memcpy(f->file[file].at + f->file[file].n, bytes, n);
    f->file[file].n += n;
}
UNUSED_FN void folder_text(struct folder *f, int file, const char *text) { folder_put(f, file, text, strlen(text)); }

/* A shard: its tensors one after the other, each of rows x cols f32 (or a vector of rows). */
UNUSED_FN void folder_shard(struct folder *f, int file, int layer) {
    const struct { const char *name; int rows, cols; } tensors[] = {
        {"mlp.gate_proj.weight", FOLDER_FF, FOLDER_D}, {"mlp.up_proj.weight", FOLDER_FF, FOLDER_D},
        {"mlp.down_proj.weight", FOLDER_D, FOLDER_FF}, {"mlp.down_proj.bias", FOLDER_D, 0},
        {"post_attention_layernorm.weight", FOLDER_D, 0},
    };
    char header[1024] = "{\"__metadata__\":{\"format\":\"pt\"}";
    uint64_t at = 0, seed = 1;
    for (size_t i = 0; i < COUNT(tensors); i++) {
        const int cols = tensors[i].cols ? tensors[i].cols : 1, bytes = 4 * tensors[i].rows * cols;
        char shape[32], entry[256];
        snprintf(shape, sizeof shape, tensors[i].cols ? "%d,%d" : "%d", tensors[i].rows, cols);
        snprintf(entry, sizeof entry, ",\"model.layers.%d.%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
                 layer, tensors[i].name, shape, (int)at, (int)at + bytes);
        strcat(header, entry);
        at += (uint64_t)bytes;
    }
    strcat(header, "}");
    const uint64_t n = strlen(header);
    folder_put(f, file, &n, sizeof n);
    folder_text(f, file, header);
    for (uint64_t i = 0; i < at / 4; i++) {
        const float value = 0.1f * next_normal(&seed);
        folder_put(f, file, &value, sizeof value);
    }
}

UNUSED_FN void folder_write(const struct folder *f, int file) {
    FILE *out = fopen(f->file[file].path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f->file[file].at, 1, f->file[file].n, out), f->file[file].n);
    assert_int_equal(fclose(out), 0);
}

UNUSED_FN void folder_make(struct folder *f) {
    static const char *const parts[] = {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                                        "mlp.down_proj.bias", "post_attention_layernorm.weight"};
    char entry[128], path[] = "/tmp/swiglu-test-XXXXXX";
    memset(f, 0, sizeof *f);
    assert_non_null(mkdtemp(path));
    strcpy(f->path, path);
    for (int i = 0; i < FOLDER_FILES; i++)
        snprintf(f->file[i].path, sizeof f->file[i].path, "%s/%s", path, folder_names[i]);
    folder_text(f, 0, "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":4,\"intermediate_size\":[8,8],"
                      "\"num_hidden_layers\":2,\"rope\":{\"x\":[1.5,NaN]},\"text_config\":{\"hidden_act\":\"gelu\"}}");
    folder_text(f, 1, "{\"metadata\":{\"total_size\":800},\"weight_map\":{");
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < COUNT(parts); i++) {
            snprintf(entry, sizeof entry, "%s\"model.layers.%d.%s\":\"%s\"", layer || i ? "," : "", layer, parts[i],
                     folder_names[2 + layer]);
            folder_text(f, 1, entry);
        }
    folder_text(f, 1, "}}");
    for (int layer = 0; layer < 2; layer++) folder_shard(f, 2 + layer, layer);
    for (int i = 0; i < FOLDER_FILES; i++) folder_write(f, i);
}

UNUSED_FN void folder_remove(const struct folder *f) {
    for (int i = 0; i < FOLDER_FILES; i++) unlink(f->file[i].path);
    rmdir(f->path);
}

#endif
