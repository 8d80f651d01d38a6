/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the names in a file to its feed-forward blocks. Widths come from the tensors and are compared with the metadata;
 * the number of layers is what the names show. Whatever is not understood is listed with the reason, never evaluated.
 */
#ifndef SWIGLU_LAYERS_H
#define SWIGLU_LAYERS_H

#include <stdatomic.h>

#include "io/family.h"
#include "io/gguf.h"
#include "swiglu/model.h"

struct swiglu_model;

enum swiglu_role {
    SWIGLU_ROLE_GATE, SWIGLU_ROLE_UP, SWIGLU_ROLE_DOWN,
    SWIGLU_ROLE_GATE_BIAS, SWIGLU_ROLE_UP_BIAS, SWIGLU_ROLE_DOWN_BIAS,
    SWIGLU_ROLE_FFN_NORM, SWIGLU_ROLE_ATTN_NORM, SWIGLU_ROLE_POST_ATTN_NORM,
    SWIGLU_ROLES
};

/* Why a tensor of the layer keeps the block from being evaluated; the first of this list that applies is told. */
enum swiglu_oddity {
    SWIGLU_ODD_EXPERTS, SWIGLU_ODD_OLD_EXPERTS, SWIGLU_ODD_STACK, SWIGLU_ODD_SUB_NORM, SWIGLU_ODD_ACT_SCALE,
    SWIGLU_ODD_UNKNOWN, SWIGLU_ODD_NONE
};

struct swiglu_source { const struct swiglu_model *model; size_t tensor; }; /* what a read callback needs */

struct swiglu_layer {
    struct swiglu_model_block_info info;
    long tensor[SWIGLU_ROLES]; /* by role; -1 = none */
    enum swiglu_oddity oddity;
    long odd_tensor;
    char reason[224], activation[96], source[96];
    struct swiglu_source read[3]; /* gate, up, down: filled by the model */
    _Atomic(void *) bias[3];      /* gate, up, down: read at the first description, then kept */
};

struct swiglu_layers { struct swiglu_layer *at; size_t n; };

/* override: NULL, or the name of the activation of every block. */
enum swiglu_status swiglu_layers_find(struct swiglu_layers *layers, struct swiglu_gguf *g, const char *override,
                                      struct swiglu_error *error);
void swiglu_layers_free(struct swiglu_layers *layers);

/* What all layers of a file are judged by. */
struct swiglu_layer_rules {
    const struct swiglu_gguf *g;
    const char *architecture;           /* "": none */
    const struct swiglu_family *family; /* NULL: unknown */
    const char *override;               /* activation, or NULL */
    const char *clamps;                 /* a metadata key that tells of clamps, or NULL */
};

/* One layer whose tensors are known: fills info and reason (resolve.c). */
enum swiglu_status swiglu_layer_resolve(struct swiglu_layer *layer, const struct swiglu_layer_rules *rules,
                                        struct swiglu_error *error);
/* general.architecture, "" when there is none. */
const char *swiglu_gguf_architecture(const struct swiglu_gguf *g);

#endif
