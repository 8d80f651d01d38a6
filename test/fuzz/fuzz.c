/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* mkdtemp, pwrite, ftruncate */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 2 };

static char folder[] = "/tmp/swiglu-fuzz-XXXXXX", paths[FILES][128];
static int fds[FILES];
static size_t n_files;

static void remove_files(void) {
    for (size_t i = 0; i < n_files; i++) unlink(paths[i]);
    rmdir(folder);
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t n) {
    size_t i = 0;
    while (i < n_files && strcmp(paths[i] + sizeof folder, name)) i++;
    if (i == n_files) {
        MUST(i < FILES);
        if (i == 0) MUST(mkdtemp(folder) && !atexit(remove_files));
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
        fds[i] = open(paths[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        MUST(fds[i] >= 0);
        n_files++;
    }
    MUST(!ftruncate(fds[i], (off_t)n));
    MUST(pwrite(fds[i], data, n, 0) == (ssize_t)n);
    return paths[i];
}

void fuzz_refused(enum swiglu_status status, const struct swiglu_error *error, const char *file, size_t n) {
    MUST(status == SWIGLU_E_FORMAT || status == SWIGLU_E_UNSUPPORTED);
    MUST(error->status == status);
    MUST(error->offset <= n || error->offset == UINT64_MAX);
    MUST(strstr(error->text, file));
    for (const char *p = error->text; *p; p++) MUST(*p >= ' ' && *p <= '~');
}

static void use_tensors(const struct swiglu_model *model, size_t n_tensors, size_t n) {
    for (size_t i = 0; i < n_tensors; i++) {
        struct swiglu_tensor_info t = {.struct_size = sizeof t};
        MUST(!swiglu_model_tensor(model, i, &t));
        MUST(t.offset <= n && t.bytes <= n - t.offset);
        for (const char *p = t.name; *p; p++) MUST(*p >= ' ' && *p <= '~');
        void *bytes = malloc(t.bytes + 1);
        MUST(bytes && !swiglu_model_read(model, i, 0, bytes, t.bytes, NULL));
        free(bytes);
    }
}

static void use_metadata(const struct swiglu_model *model, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct swiglu_metadata_info m = {.struct_size = sizeof m};
        char words[5000];
        for (size_t room = 1; room <= sizeof words; room = room == 1 ? 20 : 250 * room) {
            MUST(!swiglu_model_metadata(model, i, &m, words, room) && strlen(words) < room && m.type[0]);
            for (const char *p = words; *p; p++) MUST(*p >= ' ' && *p <= '~');
        }
    }
}

static void use_blocks(struct swiglu_model *model, size_t n_blocks, const char *file, size_t n) {
    for (size_t i = 0; i < n_blocks; i++) {
        struct swiglu_block *block = NULL;
        struct swiglu_error error = {.struct_size = sizeof error};
        struct swiglu_desc desc = {.struct_size = sizeof desc};
        struct swiglu_model_block_info info = {.struct_size = sizeof info};
        MUST(!swiglu_model_block(model, i, &info));
        MUST(info.usable == !info.reason[0]);
        enum swiglu_status status = swiglu_model_desc(model, i, &desc, &error);
        MUST(info.usable || status == SWIGLU_E_UNSUPPORTED);
        if (status) {
            fuzz_refused(status, &error, file, n);
            continue;
        }
        status = swiglu_block_create(&desc, NULL, &block, &error);
        MUST(status == SWIGLU_OK || error.text[0]);
        swiglu_block_destroy(block);
    }
}

void fuzz_model(const char *path, const char *named, size_t n) {
    struct swiglu_model *model = NULL;
    struct swiglu_error error = {.struct_size = sizeof error};
    const struct swiglu_model_options options = {.struct_size = sizeof options, .experts = (int)(n % 2)};
    const enum swiglu_status status = swiglu_model_open(path, &options, &model, &error);
    MUST(!status == !!model);
    if (status) {
        fuzz_refused(status, &error, named, n);
        return;
    }
    struct swiglu_model_info info = {.struct_size = sizeof info};
    MUST(!swiglu_model_query(model, &info));
    MUST(info.file_bytes == n || (named != path && info.file_bytes < n)); /* one of several may be a model of its own */
    for (size_t i = 0; i < info.n_warnings; i++) MUST(swiglu_model_warning(model, i)[0]);
    use_tensors(model, info.n_tensors, n);
    use_metadata(model, info.n_metadata);
    use_blocks(model, info.n_blocks, named, n);
    swiglu_model_close(model);
}

void fuzz_pair(const char *first, const char *second, const uint8_t *data, size_t n) {
    uint32_t split;
    if (n < sizeof split) return;
    memcpy(&split, data, sizeof split);
    data += sizeof split, n -= sizeof split;
    if (split > n) split = (uint32_t)n;
    fuzz_file(first, data, split);
    fuzz_model(fuzz_file(second, data + split, n - split), folder, n);
}
