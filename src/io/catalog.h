/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader of a format finds: the tensors of a checkpoint, in one file or several, and the warnings on the way. */
#ifndef SWIGLU_CATALOG_H
#define SWIGLU_CATALOG_H

#include "io/file.h"
#include "io/limits.h"
#include "io/names.h"

struct swiglu_tensor {
    uint32_t type; /* GGUF's number, or one of st_type.def */
    uint16_t n_dims, file;
    uint64_t dims[SWIGLU_LIMIT_DIMS]; /* outermost first; of a higher rank the last is a product */
    uint64_t offset, bytes;           /* of the data in the file */
    uint64_t entry;                   /* of its entry in the header */
};

struct swiglu_catalog {
    int strict;
    bool indexed;       /* an index lists which tensor is in which file */
    bool partial;       /* one file that was asked for by name, of several by that name: tensors may be in the others */
    bool fastest_first; /* the format lists dimensions in that order: for messages */
    struct swiglu_file *files;
    size_t n_files, files_capacity;
    struct swiglu_names names; /* of the tensors */
    struct swiglu_tensor *tensors;
    size_t tensors_capacity;
    struct swiglu_names warnings;
    struct swiglu_names keys, values; /* __metadata__ of the first safetensors file that has one; long values are cut */
};

/* Opens one more file; it is the last one of the list. */
enum swiglu_status swiglu_catalog_add_file(struct swiglu_catalog *c, const char *path, struct swiglu_error *error);

/* The same for a file that need not be there: *found tells. */
enum swiglu_status swiglu_catalog_try_file(struct swiglu_catalog *c, const char *path, bool *found,
                                           struct swiglu_error *error);

/* Of a type that a format knows; those of dtype.def can be evaluated. */
const char *swiglu_tensor_type_name(const struct swiglu_tensor *tensor);

/* When all files were read: sorts the names and refuses the first one that comes twice. */
enum swiglu_status swiglu_catalog_sort(struct swiglu_catalog *c, struct swiglu_error *error);

void swiglu_catalog_close(struct swiglu_catalog *c);

/* "FILE: text (at byte N)"; offset SWIGLU_NO_OFFSET leaves the last part out. */
enum swiglu_status swiglu_catalog_fail(const struct swiglu_catalog *c, size_t file, struct swiglu_error *error,
                                       enum swiglu_status code, uint64_t offset, const char *format, ...)
    SW_PRINTF(6, 7);
/* Adds a warning; with strict it is an error, E_FORMAT. */
enum swiglu_status swiglu_catalog_warn(struct swiglu_catalog *c, size_t file, struct swiglu_error *error,
                                       uint64_t offset, const char *format, ...) SW_PRINTF(5, 6);

#endif
