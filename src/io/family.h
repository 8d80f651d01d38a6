/* SPDX-License-Identifier: Apache-2.0 */
/* What is known about model families: by GGUF's architecture (family.def), by model_type and tensor names (hf_family.def). */
#ifndef SWIGLU_FAMILY_H
#define SWIGLU_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

enum swiglu_mlp_form { SWIGLU_FORM_GATED, SWIGLU_FORM_PACKED, SWIGLU_FORM_PLAIN, SWIGLU_FORM_NONE };
enum swiglu_norm { SWIGLU_FFN_NORM, SWIGLU_ATTN_NORM, SWIGLU_POST_ATTN_NORM, SWIGLU_EITHER, SWIGLU_NO_NORM };
enum swiglu_extra { SWIGLU_NOTHING, SWIGLU_HALF, SWIGLU_SPARSITY, SWIGLU_XIELU, SWIGLU_GEMMA };

struct swiglu_family {
    const char *architecture, *activation; /* activation NULL: the names alone do not say it */
    enum swiglu_mlp_form form;
    enum swiglu_norm norm;
    enum swiglu_extra extra;
    const char *left_out; /* why it is never evaluated, or NULL */
};

const struct swiglu_family *swiglu_family_find(const char *architecture); /* NULL: unknown */

/* ---- files of the transformers world ---- */

/* A set of tensor names with its roles (hf_name.def). */
enum swiglu_scheme {
#define SCHEME(NAME) SWIGLU_SCHEME_##NAME,
#include "io/hf_name.def"
#undef SCHEME
    SWIGLU_SCHEMES
};

enum { SWIGLU_HF_NORMS = 3 };

struct swiglu_hf_family {
    struct swiglu_family family; /* architecture is model_type; "" = told from names alone; norm EITHER or NO_NORM */
    const char *act_key;         /* the config's key for the activation, NULL: the family has only one */
    enum swiglu_scheme scheme;
    bool in_out;                       /* weights are stored [in, out] */
    const char *norms[SWIGLU_HF_NORMS]; /* names of the norm before the block, by preference */
};

/* Whether its tensor of all experts is known to be [experts, out, in]. */
bool swiglu_hf_is_stacked(const char *model_type);

/* Row i of the table, NULL after the last. */
const struct swiglu_hf_family *swiglu_hf_family_at(size_t i);

#endif
