/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the names in a checkpoint to its feed-forward blocks. Widths come from the tensors and are compared with the
 * metadata; the number of layers is what the names show. Whatever is not understood is listed with the reason, never
 * evaluated. How names and metadata look is the business of gguf_layers.c and hf_layers.c.
 */
#ifndef SWIGLU_LAYERS_H
#define SWIGLU_LAYERS_H

#include <stdatomic.h>

#include "io/catalog.h"
#include "io/family.h"
#include "io/scaled.h"
#include "swiglu/model.h"

struct swiglu_model;

enum swiglu_role {
    SWIGLU_ROLE_GATE, SWIGLU_ROLE_UP, SWIGLU_ROLE_DOWN, /* gate: also what holds gate and up, as in swiglu_desc */
    SWIGLU_ROLE_GATE_BIAS, SWIGLU_ROLE_UP_BIAS, SWIGLU_ROLE_DOWN_BIAS,
    SWIGLU_ROLE_FFN_NORM, SWIGLU_ROLE_ATTN_NORM, SWIGLU_ROLE_POST_ATTN_NORM,
    SWIGLU_ROLES
};

/* Whether one tensor holds gate and up, and in which order. BY_SHAPE: one that is called up may. */
enum swiglu_pack { SWIGLU_PACK_BY_SHAPE, SWIGLU_PACK_NEVER, SWIGLU_PACK_GATE_UP, SWIGLU_PACK_UP_GATE };

/* Why a tensor of the layer keeps the block from being evaluated; the first of this list that applies is told. */
enum swiglu_oddity {
    SWIGLU_ODD_EXPERTS, SWIGLU_ODD_OLD_EXPERTS, SWIGLU_ODD_STACK, SWIGLU_ODD_SUB_NORM, SWIGLU_ODD_ACT_SCALE,
    SWIGLU_ODD_UNKNOWN, SWIGLU_ODD_NONE
};

/* The tensors that a module's weight may be stored as (hf_piece.def). */
enum swiglu_module_part {
#define PIECE(NAME, suffix) SWIGLU_PIECE_##NAME,
#include "io/hf_piece.def"
    SWIGLU_PIECES
};

/* What a read callback needs. quant: where the tensor is one of several, which then looks as its values do. */
struct swiglu_source {
    const struct swiglu_model *model;
    const struct swiglu_scaled *quant;
    struct swiglu_tensor tensor;
};

struct swiglu_layer {
    struct swiglu_model_block_info info;
    long tensor[SWIGLU_ROLES]; /* by role; -1 = none */
    bool sliced[SWIGLU_ROLES]; /* the tensor holds all experts, and the block is one of them */
    long piece[3][SWIGLU_PIECES]; /* gate, up, down: tensors of quantised modules; -1 = none */
    struct swiglu_scaled quant[3];
    enum swiglu_pack pack;
    enum swiglu_oddity oddity;
    long odd_tensor;
    long shared; /* a tensor of the shared expert beside the layer's other ones; -1 = none */
    char reason[224], activation[96], source[96], storage[64];
    struct swiglu_source read[3]; /* gate, up, down: filled by the model */
    _Atomic(void *) bias[3];      /* gate, up, down: read at the first description, then kept */
};

struct swiglu_layers {
    struct swiglu_layer *at;
    size_t n;
    uint64_t n_seen; /* layers that the names show, also those without a block */
};

/* ---- names ---- */

/* A tensor name that belongs to a layer. */
struct swiglu_layer_name {
    bool other_stack;   /* not one of the layers that are evaluated */
    bool counts;        /* it makes the layer one with a block; norms alone do not */
    uint32_t layer;
    const char *digits; /* the layer's number in the name */
    const char *rest;   /* what follows the number and its dot */
};

enum swiglu_name_kind { SWIGLU_NAME_OTHER, SWIGLU_NAME_LAYER, SWIGLU_NAME_BAD_NUMBER };

/* What a tensor is to the experts of its layer. STRANGE: it keeps its expert, or all of them, from being evaluated. */
enum swiglu_part_kind { SWIGLU_PART_NONE, SWIGLU_PART_ONE, SWIGLU_PART_STACK, SWIGLU_PART_STRANGE };

struct swiglu_expert_part {
    enum swiglu_part_kind kind;
    int32_t expert; /* of ONE and STRANGE: a number, SWIGLU_EXPERT_SHARED, or for all SWIGLU_EXPERT_NONE */
    enum swiglu_role role;
    enum swiglu_pack pack;
    int piece; /* of ONE: enum swiglu_module_part */
};

struct swiglu_naming {
    const void *ctx;
    enum swiglu_name_kind (*parse)(const void *ctx, const char *name, struct swiglu_layer_name *out);
    void (*add)(const void *ctx, struct swiglu_layer *layer, const struct swiglu_layer_name *name, size_t tensor);
    /* rest: of the name; part is NONE before */
    void (*expert)(const void *ctx, const char *rest, struct swiglu_expert_part *part);
};

/* Sets layer and rest from digits. A number: digits up to a dot, no leading zero, within the limit. */
enum swiglu_name_kind swiglu_layer_number(struct swiglu_layer_name *name);

static inline bool swiglu_starts(const char *s, const char *with) {
    while (*with && *s == *with) s++, with++;
    return !*with;
}

/* None of them. */
static inline void swiglu_layer_clear_pieces(struct swiglu_layer *layer) {
    for (int r = 0; r < 3; r++)
        for (int p = 0; p < SWIGLU_PIECES; p++) layer->piece[r][p] = -1;
}

/* The oddity of one more tensor that has no role. */
static inline void swiglu_layer_add_oddity(struct swiglu_layer *layer, enum swiglu_oddity oddity, size_t tensor) {
    if (oddity >= layer->oddity) return;
    layer->oddity = oddity;
    layer->odd_tensor = (long)tensor;
}

/* ---- metadata ---- */

struct swiglu_width_fact {
    bool known;
    char key[112];
    uint64_t value, offset; /* the offset in the catalog's file */
    size_t file;
};

/* What the metadata say about one layer. */
struct swiglu_facts {
    struct swiglu_width_fact d_model, d_ff;
    const char *activation; /* by name; NULL: they do not say it */
    char source[96];        /* where the name of the activation stands */
    char left_out[224];     /* why the block is not evaluated, or "" */
    bool has_param;
    float param[6]; /* of the activation */
};

/* Tensors that the metadata speak of as such. */
enum swiglu_promised { SWIGLU_PROMISED_BIASES, SWIGLU_PROMISED_GATE, SWIGLU_PROMISED_SHARED, SWIGLU_PROMISES };
struct swiglu_promise {
    bool known, there;
    char words[80]; /* "mlp_bias true" */
    uint64_t offset;
    size_t file;
};

/* What all layers of a checkpoint are judged by. */
struct swiglu_layer_rules {
    struct swiglu_catalog *catalog;
    const struct swiglu_family *family; /* NULL: unknown */
    const char *override;               /* activation, or NULL */
    bool experts;                       /* each expert becomes a block */
    char label[96];                     /* "architecture llama" */
    char unknown[128];                  /* without family: "unknown architecture \"x\"" */
    bool in_out;
    struct swiglu_promise promise[SWIGLU_PROMISES];
    const void *ctx;
    enum swiglu_status (*facts)(const struct swiglu_layer_rules *rules, size_t layer, struct swiglu_facts *facts,
                                struct swiglu_error *error);
    /* Fills layer->quant for a weight that is there, or layer->reason; NULL: every tensor is a weight. */
    enum swiglu_status (*quant)(const struct swiglu_layer_rules *rules, struct swiglu_layer *layer, enum swiglu_role role,
                                struct swiglu_error *error);
    /* The name that a layer's tensor of this role would have; false: the naming has none. */
    bool (*role_name)(const struct swiglu_layer_rules *rules, size_t layer, enum swiglu_role role, char *dst, size_t n);
};

/* Lists the layers and resolves each. On failure nothing is held. */
enum swiglu_status swiglu_layers_find(struct swiglu_layers *layers, const struct swiglu_layer_rules *rules,
                                      const struct swiglu_naming *naming, struct swiglu_error *error);
void swiglu_layers_free(struct swiglu_layers *layers);

/* The layer's tensor of this role, which it must have; of one that holds all experts the expert's slice. */
struct swiglu_tensor swiglu_layer_part(const struct swiglu_catalog *catalog, const struct swiglu_layer *layer,
                                       enum swiglu_role role);

/* One layer whose tensors are known: fills info and reason (resolve.c). */
enum swiglu_status swiglu_layer_resolve(struct swiglu_layer *layer, const struct swiglu_layer_rules *rules,
                                        struct swiglu_error *error);

#endif
