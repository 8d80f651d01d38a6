/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors checkpoint as it lies on disk: one file, or a folder with its shards, index and config. */
#ifndef SWIGLU_FOLDER_H
#define SWIGLU_FOLDER_H

#include "io/config.h"

/* A folder, or a file called *.safetensors.index.json, which stands for its folder. */
bool swiglu_folder_is(const char *path);

/* Reads what the folder holds: the index and the files that it lists, else model.safetensors; with scan every file called
 * *.safetensors and no index. Files that are there and not read are warnings. */
enum swiglu_status swiglu_folder_read(struct swiglu_catalog *catalog, struct swiglu_config *config, const char *path,
                                      bool scan, struct swiglu_error *error);

/* Where the folder holds no safetensors checkpoint but GGUF files: *path is that of the only one, or of the first shard of the
 * only set, to be freed; else NULL. */
enum swiglu_status swiglu_folder_gguf(const char *folder, char **path, struct swiglu_error *error);

/* The config.json beside a file. */
enum swiglu_status swiglu_folder_config(struct swiglu_catalog *catalog, struct swiglu_config *config, const char *path,
                                        struct swiglu_error *error);

#endif
