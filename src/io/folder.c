/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "io/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "io/index.h"
#include "io/safetensors.h"
#include "io/shard_name.h"

#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"
#define CONFIG "config.json"
#define ST_END ".safetensors"
#define INDEX_END ".safetensors.index.json"
#define GGUF_END ".gguf"

static bool folder_is_index(const char *path) {
    const size_t n = strlen(path), end = strlen(INDEX_END);
    return n >= end && !strcmp(path + n - end, INDEX_END);
}

bool swiglu_folder_is(const char *path) {
    struct stat st;
    return folder_is_index(path) || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* FOLDER/NAME, to be freed; NULL when memory is short. */
static char *folder_path(const char *folder, const char *name) {
    const size_t n = strlen(folder), bytes = n + strlen(name) + 2;
    char *path = swiglu_alloc(bytes);
    if (path) snprintf(path, bytes, "%s%s%s", folder, n && folder[n - 1] != '/' ? "/" : "", name);
    return path;
}

static enum swiglu_status folder_fail(const char *folder, enum swiglu_status code, int err, const char *what,
                                      struct swiglu_error *error) {
    char shown[SWIGLU_SHOWN_BYTES];
    swiglu_file_show(shown, folder);
    return swiglu_fail(error, code, SWIGLU_NO_OFFSET, err, "%s: %s", shown, what);
}

static enum swiglu_status folder_add(struct swiglu_catalog *catalog, const char *folder, const char *name, bool *found,
                                     struct swiglu_error *error) {
    char *path = folder_path(folder, name);
    if (!path) return folder_fail(folder, SWIGLU_E_MEMORY, 0, "out of memory", error);
    const enum swiglu_status status = swiglu_catalog_try_file(catalog, path, found, error);
    swiglu_free(path);
    return status;
}

/* The names of the folder's files that end so, sorted. */
static enum swiglu_status folder_list(struct swiglu_names *names, const char *folder, const char *end,
                                      struct swiglu_error *error) {
    bool short_of_memory = false;
    DIR *dir = opendir(folder);
    if (!dir) return folder_fail(folder, SWIGLU_E_OPEN, errno, "the folder cannot be listed", error);
    for (const struct dirent *entry; !short_of_memory && (entry = readdir(dir));) {
        const size_t n = strlen(entry->d_name);
        if (n > strlen(end) && !strcmp(entry->d_name + n - strlen(end), end))
            short_of_memory = swiglu_names_push(names, entry->d_name, n);
    }
    closedir(dir);
    if (short_of_memory || swiglu_names_sort(names))
        return folder_fail(folder, SWIGLU_E_MEMORY, 0, "out of memory", error);
    return SWIGLU_OK;
}

/* ---- with an index ---- */

/* The shards of the index become the files after the index and the config, in the order of the index. */
static enum swiglu_status folder_open_shards(struct swiglu_catalog *catalog, const struct swiglu_index *index,
                                             const struct swiglu_names *present, const char *folder,
                                             struct swiglu_error *error) {
    for (size_t i = 0; i < index->shards.n; i++) {
        bool found = false;
        const char *shard = swiglu_names_at(&index->shards, i);
        TRY(folder_add(catalog, folder, shard, &found, error));
        if (!found)
            return swiglu_catalog_fail(catalog, index->file, error, SWIGLU_E_OPEN, index->offset[index->shard_tensor[i]],
                                       "weight_map: shard %.80s is not in the folder, but tensor %.80s should be in it%s",
                                       shard, swiglu_names_at(&index->names, index->shard_tensor[i]),
                                       present->n ? "; other .safetensors files are there, so the index may be stale: "
                                                    "the option scan reads them without it"
                                                  : "");
    }
    return SWIGLU_OK;
}

/* Each tensor of the index is where the index says, and each tensor is in the index. */
static enum swiglu_status folder_check_index(struct swiglu_catalog *catalog, const struct swiglu_index *index,
                                             size_t first_shard, struct swiglu_error *error) {
    for (size_t i = 0; i < index->names.n; i++) {
        const char *name = swiglu_names_at(&index->names, i);
        const char *shard = swiglu_names_at(&index->shards, index->shard_of[i]);
        const size_t t = swiglu_names_find(&catalog->names, name);
        if (t == catalog->names.n)
            return swiglu_catalog_fail(catalog, index->file, error, SWIGLU_E_FORMAT, index->offset[i],
                                       "weight_map: tensor %.80s: shard %.80s has no tensor of that name", name, shard);
        if (catalog->tensors[t].file != first_shard + index->shard_of[i])
            return swiglu_catalog_fail(catalog, index->file, error, SWIGLU_E_FORMAT, index->offset[i],
                                       "weight_map: tensor %.80s is not in shard %.80s, but in %s", name, shard,
                                       catalog->files[catalog->tensors[t].file].shown);
    }
    for (size_t t = 0; t < catalog->names.n; t++) {
        const char *name = swiglu_names_at(&catalog->names, t);
        if (swiglu_names_find(&index->names, name) < index->names.n) continue;
        return swiglu_catalog_warn(catalog, catalog->tensors[t].file, error, catalog->tensors[t].entry,
                                   "tensor %.80s is in a shard, but not in the index; %zu tensors, the index has %zu", name,
                                   catalog->names.n, index->names.n);
    }
    return SWIGLU_OK;
}

static enum swiglu_status folder_warn_strays(struct swiglu_catalog *catalog, const struct swiglu_index *index,
                                             const struct swiglu_names *present, struct swiglu_error *error) {
    for (size_t i = 0; i < present->n; i++) {
        const char *name = swiglu_names_at(present, present->order[i]);
        if (swiglu_names_find(&index->shards, name) < index->shards.n) continue;
        TRY(swiglu_catalog_warn(catalog, index->file, error, SWIGLU_NO_OFFSET,
                                "%.120s is in the folder, but not in the index: not read", name));
    }
    return SWIGLU_OK;
}

static enum swiglu_status folder_indexed(struct swiglu_catalog *catalog, struct swiglu_index *index,
                                         const struct swiglu_names *present, const char *folder,
                                         struct swiglu_error *error) {
    const size_t first = catalog->n_files;
    catalog->indexed = true;
    TRY(folder_open_shards(catalog, index, present, folder, error));
    for (size_t i = first; i < catalog->n_files; i++) TRY(swiglu_safetensors_read(catalog, i, error));
    TRY(swiglu_catalog_sort(catalog, error));
    TRY(folder_check_index(catalog, index, first, error));
    return folder_warn_strays(catalog, index, present, error);
}

/* ---- without ---- */

static enum swiglu_status folder_plain(struct swiglu_catalog *catalog, const struct swiglu_names *present,
                                       const char *folder, bool scan, struct swiglu_error *error) {
    const size_t first = catalog->n_files;
    if (!scan && swiglu_names_find(present, SINGLE) == present->n)
        return folder_fail(folder, SWIGLU_E_OPEN, EISDIR,
                           present->n ? "Is a directory without " INDEX " or " SINGLE "; open one of its .safetensors "
                                        "files by name, or use the option scan"
                                      : "Is a directory without " INDEX ", " SINGLE " or a GGUF file",
                           error);
    if (scan && !present->n)
        return folder_fail(folder, SWIGLU_E_OPEN, EISDIR, "Is a directory without .safetensors files", error);
    for (size_t i = 0; i < present->n; i++) {
        const char *name = swiglu_names_at(present, present->order[i]);
        if (scan && strchr(name, '\\'))
            return folder_fail(folder, SWIGLU_E_UNSUPPORTED, 0, "a .safetensors file whose name is not plain ASCII", error);
        bool found = true;
        if (scan || !strcmp(name, SINGLE)) TRY(folder_add(catalog, folder, name, &found, error));
        if (!found) return folder_fail(folder, SWIGLU_E_OPEN, ENOENT, "a file has gone while the folder was read", error);
    }
    for (size_t i = first; i < catalog->n_files; i++) TRY(swiglu_safetensors_read(catalog, i, error));
    TRY(swiglu_catalog_sort(catalog, error));
    for (size_t i = 0; i < present->n && !scan; i++) {
        const char *name = swiglu_names_at(present, present->order[i]);
        if (strcmp(name, SINGLE))
            TRY(swiglu_catalog_warn(catalog, first, error, SWIGLU_NO_OFFSET,
                                    "%.120s is in the folder beside " SINGLE ": not read", name));
    }
    return SWIGLU_OK;
}

/* must: the index was asked for by name. */
static enum swiglu_status folder_read(struct swiglu_catalog *catalog, const char *folder, const char *index_path,
                                      bool must, bool scan, struct swiglu_error *error) {
    struct swiglu_index index = {0};
    struct swiglu_names present = {0};
    enum swiglu_status status = folder_list(&present, folder, ST_END, error);
    if (status == SWIGLU_OK && !scan) status = swiglu_index_read(&index, catalog, index_path, error);
    if (status == SWIGLU_OK)
        status = index.present  ? folder_indexed(catalog, &index, &present, folder, error)
                 : must && !scan ? folder_fail(index_path, SWIGLU_E_OPEN, ENOENT, "there is no such index", error)
                                : folder_plain(catalog, &present, folder, scan, error);
    swiglu_names_free(&present);
    swiglu_index_free(&index);
    return status;
}

/* ---- GGUF ---- */

/* Of several files all must be shards of one set; *path is then the first by name. */
static enum swiglu_status folder_choose(const struct swiglu_names *names, const char *folder, char **path,
                                        struct swiglu_error *error) {
    struct swiglu_shard_name first, other;
    const char *name = swiglu_names_at(names, names->order[0]);
    const bool set = swiglu_shard_name(name, GGUF_END, &first);
    for (size_t i = 0; i < names->n; i++) {
        const char *also = swiglu_names_at(names, names->order[i]);
        if (strchr(also, '\\'))
            return folder_fail(folder, SWIGLU_E_UNSUPPORTED, 0, "a .gguf file whose name is not plain ASCII", error);
        if (i == 0 || (set && swiglu_shard_name(also, GGUF_END, &other) && other.count == first.count &&
                       other.stem_bytes == first.stem_bytes && !memcmp(also, name, first.stem_bytes)))
            continue;
        char what[300];
        snprintf(what, sizeof what, "Is a directory with several models, so one must be named: %.100s, %.100s", name, also);
        return folder_fail(folder, SWIGLU_E_OPEN, EISDIR, what, error);
    }
    *path = folder_path(folder, name);
    return *path ? SWIGLU_OK : folder_fail(folder, SWIGLU_E_MEMORY, 0, "out of memory", error);
}

enum swiglu_status swiglu_folder_gguf(const char *folder, char **path, struct swiglu_error *error) {
    struct swiglu_names st = {0}, gguf = {0};
    *path = NULL;
    if (folder_is_index(folder)) return SWIGLU_OK;
    enum swiglu_status status = folder_list(&st, folder, ST_END, error);
    if (status == SWIGLU_OK) status = folder_list(&st, folder, INDEX_END, error);
    if (status == SWIGLU_OK && !st.n) status = folder_list(&gguf, folder, GGUF_END, error);
    if (status == SWIGLU_OK && gguf.n) status = folder_choose(&gguf, folder, path, error);
    swiglu_names_free(&st);
    swiglu_names_free(&gguf);
    return status;
}

static char *folder_copy(const char *path, size_t n) {
    char *copy = swiglu_alloc(n + 1);
    return copy ? memcpy(copy, path, n) : NULL;
}

/* The path of the folder that a file lies in, to be freed. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? folder_copy(path, (size_t)(slash - path) + (slash == path)) : folder_copy(".", 1);
}

enum swiglu_status swiglu_folder_config(struct swiglu_catalog *catalog, struct swiglu_config *config, const char *path,
                                        struct swiglu_error *error) {
    char *folder = folder_of(path), *config_path = folder ? folder_path(folder, CONFIG) : NULL;
    swiglu_free(folder);
    if (!config_path) return folder_fail(path, SWIGLU_E_MEMORY, 0, "out of memory", error);
    const enum swiglu_status status = swiglu_config_read(config, catalog, config_path, error);
    swiglu_free(config_path);
    return status;
}

enum swiglu_status swiglu_folder_read(struct swiglu_catalog *catalog, struct swiglu_config *config, const char *path,
                                      bool scan, struct swiglu_error *error) {
    const bool is_index = folder_is_index(path);
    char *index_path = is_index ? folder_copy(path, strlen(path)) : folder_path(path, INDEX);
    if (!index_path) return folder_fail(path, SWIGLU_E_MEMORY, 0, "out of memory", error);
    char *folder = folder_of(index_path);
    enum swiglu_status status = swiglu_folder_config(catalog, config, index_path, error);
    if (status == SWIGLU_OK)
        status = folder ? folder_read(catalog, folder, index_path, is_index, scan, error)
                        : folder_fail(path, SWIGLU_E_MEMORY, 0, "out of memory", error);
    swiglu_free(folder);
    swiglu_free(index_path);
    return status;
}
