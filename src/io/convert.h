/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion as a list of output tensors, and what a format does with it: names, header, places of the data. */
#ifndef SWIGLU_CONVERT_H
#define SWIGLU_CONVERT_H

#include "io/gguf.h"
#include "io/write.h"
#include "swiglu/model.h"

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
    char *name;        /* NULL: as the first piece's tensor */
};

struct swiglu_conversion {
    const struct swiglu_model *model;
    struct swiglu_convert_options options;
    struct swiglu_model_info info;
    struct swiglu_output *at; /* in the order of the file */
    size_t n;
    uint64_t end;             /* of the file, once the header is written */
};

/* The header of the input, or NULL where it is no GGUF file (model.c). */
const struct swiglu_gguf *swiglu_model_gguf(const struct swiglu_model *model);

/* What a format calls the two ways to store gate and up: the parts of a name by which they differ. */
struct swiglu_pair_names { const char *gate, *up, *packed; };

/* Writes everything before the data, and sets offset and end (write_gguf.c). */
enum swiglu_status swiglu_gguf_write(struct swiglu_conversion *c, const struct swiglu_gguf *g, struct swiglu_writer *w,
                                     struct swiglu_error *error);

#endif
