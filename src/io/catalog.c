/* SPDX-License-Identifier: Apache-2.0 */
#include "io/catalog.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/gguf.h"
#include "io/safetensors.h"

enum swiglu_status swiglu_catalog_fail(const struct swiglu_catalog *c, size_t file, struct swiglu_error *error,
                                       enum swiglu_status code, uint64_t offset, const char *format, ...) {
    const char *shown = c->files[file].shown;
    char text[sizeof((struct swiglu_error *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (offset == SWIGLU_NO_OFFSET) return swiglu_fail(error, code, offset, 0, "%s: %s", shown, text);
    return swiglu_fail(error, code, offset, 0, "%s: %s (at byte %llu)", shown, text, (unsigned long long)offset);
}

enum swiglu_status swiglu_catalog_warn(struct swiglu_catalog *c, size_t file, struct swiglu_error *error,
                                       uint64_t offset, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->strict) return swiglu_catalog_fail(c, file, error, SWIGLU_E_FORMAT, offset, "%s", text);
    if (swiglu_names_push(&c->warnings, text, strlen(text)))
        return swiglu_catalog_fail(c, file, error, SWIGLU_E_MEMORY, offset, "out of memory for a warning");
    return SWIGLU_OK;
}

enum swiglu_status swiglu_catalog_add_file(struct swiglu_catalog *c, const char *path, struct swiglu_error *error) {
    REQUIRE(c->n_files < SWIGLU_LIMIT_FILES, SWIGLU_E_UNSUPPORTED, "more than %d files", SWIGLU_LIMIT_FILES);
    REQUIRE(!swiglu_grow(&c->files, &c->files_capacity, c->n_files + 1, sizeof *c->files), SWIGLU_E_MEMORY,
            "out of memory");
    TRY(swiglu_file_open(&c->files[c->n_files], path, error));
    c->n_files++;
    return SWIGLU_OK;
}

enum swiglu_status swiglu_catalog_try_file(struct swiglu_catalog *c, const char *path, bool *found,
                                           struct swiglu_error *error) {
    struct swiglu_error why = {.struct_size = sizeof why};
    const enum swiglu_status status = swiglu_catalog_add_file(c, path, &why);
    *found = status == SWIGLU_OK;
    if (status == SWIGLU_OK || (status == SWIGLU_E_OPEN && why.os_errno == ENOENT)) return SWIGLU_OK;
    if (error) (void)swiglu_struct_out(error, &why, sizeof why);
    return status;
}

const char *swiglu_tensor_type_name(const struct swiglu_tensor *tensor) {
    const struct swiglu_gguf_type *type = swiglu_gguf_type_find(tensor->type);
    return type ? type->name : swiglu_safetensors_type_name(tensor->type);
}

enum swiglu_status swiglu_catalog_sort(struct swiglu_catalog *c, struct swiglu_error *error) {
    size_t first, second;
    if (swiglu_names_sort(&c->names))
        return swiglu_catalog_fail(c, 0, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory");
    swiglu_names_duplicate(&c->names, &first, &second);
    if (second == c->names.n) return SWIGLU_OK;
    const struct swiglu_tensor *a = &c->tensors[first], *b = &c->tensors[second];
    const char *name = swiglu_names_at(&c->names, second);
    if (a->file == b->file)
        return swiglu_catalog_fail(c, b->file, error, SWIGLU_E_FORMAT, b->entry,
                                   "tensor %.80s: duplicate key, first at byte %llu", name,
                                   (unsigned long long)a->entry);
    return swiglu_catalog_fail(c, b->file, error, SWIGLU_E_FORMAT, b->entry, "tensor %.80s: also in %s", name,
                               c->files[a->file].shown);
}

void swiglu_catalog_close(struct swiglu_catalog *c) {
    for (size_t i = 0; i < c->n_files; i++) swiglu_file_close(&c->files[i]);
    swiglu_free(c->files);
    swiglu_names_free(&c->names);
    swiglu_free(c->tensors);
    swiglu_names_free(&c->warnings);
    swiglu_names_free(&c->keys);
    swiglu_names_free(&c->values);
    *c = (struct swiglu_catalog){0};
}
