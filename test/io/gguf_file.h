/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a small GGUF file from C, and opens and uses whatever a file turned out to be. */
#ifndef SWIGLU_TEST_GGUF_FILE_H
#define SWIGLU_TEST_GGUF_FILE_H

#include "unit/support.h"

#include <fcntl.h>
#include <unistd.h>

#include "swiglu/model.h"

struct file_bytes { unsigned char at[1 << 23]; size_t n; };

UNUSED_FN void put(struct file_bytes *f, const void *bytes, size_t n) {
    assert_true(f->n + n <= sizeof f->at);
    memcpy(f->at + f->n, bytes, n);
    f->n += n;
}
UNUSED_FN void put_u32(struct file_bytes *f, uint32_t v) { put(f, &v, sizeof v); }
UNUSED_FN void put_u64(struct file_bytes *f, uint64_t v) { put(f, &v, sizeof v); }
UNUSED_FN void put_string(struct file_bytes *f, const char *s) { put_u64(f, strlen(s)), put(f, s, strlen(s)); }
UNUSED_FN void put_kv_u32(struct file_bytes *f, const char *key, uint32_t v) {
    put_string(f, key), put_u32(f, 4), put_u32(f, v);
}
UNUSED_FN void put_kv_string(struct file_bytes *f, const char *key, const char *v) {
    put_string(f, key), put_u32(f, 8), put_string(f, v);
}

/* A llama block of f32 weights with biases, and metadata of every kind. Returns the bytes of the header. */
UNUSED_FN size_t put_model(struct file_bytes *f, uint64_t d, uint64_t ff) {
    const struct { const char *name; uint64_t cols, rows; } tensors[] = {
        {"blk.0.ffn_norm.weight", d, 0},  {"blk.0.ffn_gate.weight", d, ff}, {"blk.0.ffn_up.weight", d, ff},
        {"blk.0.ffn_down.weight", ff, d}, {"blk.0.ffn_up.bias", ff, 0},     {"blk.0.ffn_down.bias", d, 0},
    };
    uint64_t offset = 0, seed = 1;
    f->n = 0;
    put(f, "GGUF", 4), put_u32(f, 3), put_u64(f, COUNT(tensors)), put_u64(f, 8);
    put_kv_string(f, "general.architecture", "llama");
    put_kv_string(f, "general.name", "small");
    put_kv_u32(f, "general.alignment", 32);
    put_kv_u32(f, "llama.block_count", 1);
    put_kv_u32(f, "llama.embedding_length", (uint32_t)d);
    put_kv_u32(f, "llama.feed_forward_length", (uint32_t)ff);
    put_string(f, "tokens"), put_u32(f, 9), put_u32(f, 8), put_u64(f, 2), put_string(f, "a"), put_string(f, "bc");
    put_string(f, "flags"), put_u32(f, 9), put_u32(f, 7), put_u64(f, 3), put(f, "\1\0\1", 3);
    for (size_t i = 0; i < COUNT(tensors); i++) {
        const uint64_t rows = tensors[i].rows ? tensors[i].rows : 1;
        put_string(f, tensors[i].name), put_u32(f, tensors[i].rows ? 2 : 1), put_u64(f, tensors[i].cols);
        if (tensors[i].rows) put_u64(f, rows);
        put_u32(f, SWIGLU_F32), put_u64(f, offset);
        offset += 4 * rows * tensors[i].cols;
    }
    const size_t header = f->n;
    put(f, (char[32]){0}, -f->n % 32);
    for (uint64_t i = 0; i < offset / 4; i++) {
        const float value = 0.1f * next_normal(&seed);
        put(f, &value, sizeof value);
    }
    return header;
}

/* A temporary file of these bytes, open for writing; path is the caller's, and unlinked by the caller. */
UNUSED_FN int new_file(char path[64], const void *bytes, size_t n) {
    strcpy(path, "/tmp/swiglu-test-XXXXXX");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, 0), (ssize_t)n);
    return fd;
}

/* Reads every byte that the model shows, describes, prepares and runs every usable block. The last status that was not
 * success, or success. */
UNUSED_FN enum swiglu_status use_model(struct swiglu_model *model, struct swiglu_error *error) {
    enum swiglu_status worst = SWIGLU_OK;
    struct swiglu_model_info info = {.struct_size = sizeof info};
    assert_int_equal(swiglu_model_query(model, &info), SWIGLU_OK);
    for (size_t i = 0; i < info.n_warnings; i++) assert_true(strlen(swiglu_model_warning(model, i)) > 0);
    for (size_t i = 0; i < info.n_tensors; i++) {
        struct swiglu_tensor_info t = {.struct_size = sizeof t};
        assert_int_equal(swiglu_model_tensor(model, i, &t), SWIGLU_OK);
        assert_true(t.offset + t.bytes <= info.file_bytes);
        void *data = malloc(t.bytes ? t.bytes : 1);
        assert_int_equal(swiglu_model_read(model, i, 0, data, t.bytes, error), SWIGLU_OK);
        free(data);
    }
    for (size_t i = 0; i < info.n_blocks; i++) {
        struct swiglu_block *block = NULL;
        struct swiglu_desc desc = {.struct_size = sizeof desc};
        struct swiglu_model_block_info b = {.struct_size = sizeof b};
        assert_int_equal(swiglu_model_block(model, i, &b), SWIGLU_OK);
        assert_int_equal(b.usable, b.reason[0] == 0);
        enum swiglu_status status = swiglu_model_desc(model, i, &desc, error);
        if (!b.usable) assert_int_equal(status, SWIGLU_E_UNSUPPORTED);
        if (status == SWIGLU_OK) status = swiglu_block_create(&desc, NULL, &block, error);
        if (status == SWIGLU_OK) {
            size_t bytes;
            assert_int_equal(swiglu_forward_bytes(block, 1, 1, &bytes), SWIGLU_OK);
            float *x = calloc(desc.d_in, sizeof *x), *y = calloc(desc.d_out, sizeof *y);
            struct swiglu_work work = {.data = malloc(bytes), .bytes = bytes};
            assert_int_equal(swiglu_forward(block, 1, (struct swiglu_crows){x, SWIGLU_F32, 0},
                                            (struct swiglu_rows){y, SWIGLU_F32, 0}, work, NULL), SWIGLU_OK);
            free(x), free(y), free(work.data);
        } else {
            worst = status;
        }
        swiglu_block_destroy(block);
    }
    return worst;
}

#endif
