/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is open: what its files hold, what they say, and its blocks. The public functions are in api/model.c. */
#ifndef SWIGLU_CHECKPOINT_H
#define SWIGLU_CHECKPOINT_H

#include "io/config.h"
#include "io/gguf.h"
#include "io/layers.h"

struct swiglu_model {
    bool is_gguf;
    char shown[SWIGLU_SHOWN_BYTES]; /* what was opened, for messages */
    struct swiglu_catalog catalog;
    struct swiglu_gguf gguf;     /* metadata of the one */
    struct swiglu_config config; /* and of the other format */
    struct swiglu_layers layers;
};

/* Fills a zeroed model. Whatever happens, swiglu_checkpoint_close is due. */
enum swiglu_status swiglu_checkpoint_open(struct swiglu_model *m, const char *path, const struct swiglu_model_options *o,
                                          struct swiglu_error *error);
void swiglu_checkpoint_close(struct swiglu_model *m);

/* n_bytes of tensor i from its byte `byte` on; all within it. */
enum swiglu_status swiglu_checkpoint_read(const struct swiglu_model *m, size_t i, uint64_t byte, void *dst, size_t n_bytes,
                                          struct swiglu_error *error);

/* Describes block i, which is usable. */
enum swiglu_status swiglu_checkpoint_describe(struct swiglu_model *m, size_t i, struct swiglu_desc *desc,
                                              struct swiglu_error *error);

/* NULL where it is no GGUF file. */
static inline const struct swiglu_gguf *swiglu_model_gguf(const struct swiglu_model *m) {
    return m->is_gguf ? &m->gguf : NULL;
}

/* general.architecture or the config's model_type, "" when there is none. */
const char *swiglu_model_architecture(const struct swiglu_model *m);

#endif
