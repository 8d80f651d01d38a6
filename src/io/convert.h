/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion as a list of output tensors, and what a format does with it: names, header, places of the data. */
#ifndef SWIGLU_CONVERT_H
#define SWIGLU_CONVERT_H

#include "io/checkpoint.h"
#include "io/write.h"

/* Bytes of a tensor of the input. */
struct swiglu_piece { size_t tensor; uint64_t from, bytes; };

/* One tensor of the output: its pieces, one after the other. A piece of another type is decoded and rounded. */
struct swiglu_output {
    struct swiglu_piece piece[2];
    unsigned n_pieces; /* 0: not in the output */
    int type;
    uint64_t rows;     /* outermost dimension; the others are those of the first piece's tensor */
    uint64_t elems, bytes;
    uint64_t offset;   /* in the file, once the header is written */
    const char *part, *by; /* a part of the first piece's name, and what stands in its place; NULL: the name stays */
};

/* A file of the output and its tensors. */
struct swiglu_output_file {
    char *path;
    size_t begin, end; /* in the order of the output */
    uint64_t bytes;    /* once the header is written */
};

struct swiglu_conversion {
    const struct swiglu_model *model;
    struct swiglu_convert_options options;
    const char *out_path;
    struct swiglu_output *at; /* in the order of the input, then of the output */
    size_t n;
    struct swiglu_output_file *files; /* more than one: a set of GGUF shards */
    size_t n_files;
};

/* What the file says; options are checked (convert.c). */
enum swiglu_status swiglu_convert(const struct swiglu_model *model, const char *out_path,
                                  const struct swiglu_convert_options *options, struct swiglu_error *error);

/* The output's name, made of that of its first piece; to be freed, NULL when memory is short. */
char *swiglu_output_name(const struct swiglu_output *o, const char *name);

/* Write everything before the data, set offset and bytes, and put the outputs into the order of the file (write_gguf.c,
 * write_safetensors.c). file: its number. */
enum swiglu_status swiglu_gguf_write(struct swiglu_conversion *c, const struct swiglu_gguf *g, size_t file,
                                     struct swiglu_writer *w, struct swiglu_error *error);
enum swiglu_status swiglu_safetensors_write(struct swiglu_conversion *c, const struct swiglu_catalog *catalog,
                                            struct swiglu_writer *w, struct swiglu_error *error);

#endif
