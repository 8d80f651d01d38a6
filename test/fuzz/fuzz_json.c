/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text for its reader alone, and as config.json and index of a checkpoint. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/alloc.h"
#include "io/config.h"
#include "io/index.h"

/* Reads all tokens into *hash. The window is filled with `fill` before: what is not of the file must not matter. */
static enum swiglu_status read_tokens(const struct swiglu_file *file, int fill, uint64_t *hash,
                                      struct swiglu_error *error) {
    struct swiglu_json *json = swiglu_alloc(sizeof *json);
    enum swiglu_status status;
    MUST(json);
    memset(json->window, fill, sizeof json->window);
    swiglu_json_begin(json, file, "text", 0, file->bytes, error);
    json->not_finite = file->bytes % 2;
    *hash = 0;
    do {
        status = swiglu_json_next(json);
        if (status) break;
        MUST(json->offset <= file->bytes && json->depth <= SWIGLU_LIMIT_JSON_DEPTH);
        MUST(json->text_bytes <= SWIGLU_LIMIT_KEY && !(json->text_bytes && json->text[json->text_bytes]));
        *hash = 31 * (*hash ^ json->offset) + json->token + json->integer;
        for (size_t i = 0; i < json->text_bytes; i++) *hash = 31 * *hash + (unsigned char)json->text[i];
    } while (json->token != SWIGLU_JSON_END);
    swiglu_free(json);
    return status;
}

static void use_tokens(const char *path, size_t n) {
    struct swiglu_error error[2] = {{.struct_size = sizeof *error}, {.struct_size = sizeof *error}};
    struct swiglu_file file;
    uint64_t hash[2];
    MUST(!swiglu_file_open(&file, path, error));
    const enum swiglu_status status = read_tokens(&file, '1', &hash[0], &error[0]);
    MUST(status == read_tokens(&file, '"', &hash[1], &error[1]) && hash[0] == hash[1]);
    MUST(error[0].offset == error[1].offset && !strcmp(error[0].text, error[1].text));
    if (status) fuzz_refused(status, &error[0], path, n);
    swiglu_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *path = fuzz_file("x.json", data, n);
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_catalog catalog = {0};
    struct swiglu_config config = {0};
    struct swiglu_index index = {0};
    use_tokens(path, n);
    enum swiglu_status status = swiglu_config_read(&config, &catalog, path, &error);
    if (status) fuzz_refused(status, &error, path, n);
    status = swiglu_index_read(&index, &catalog, path, &error);
    if (status) fuzz_refused(status, &error, path, n);
    swiglu_index_free(&index);
    swiglu_config_free(&config);
    swiglu_catalog_close(&catalog);
    return 0;
}
