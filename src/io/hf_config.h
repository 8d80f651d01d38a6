/* SPDX-License-Identifier: Apache-2.0 */
/* What config.json says about the blocks of a checkpoint, and what it says that cannot be. */
#ifndef SWIGLU_HF_CONFIG_H
#define SWIGLU_HF_CONFIG_H

#include "io/config.h"
#include "io/layers.h"

/* How one checkpoint names its tensors: the ctx of its rules. */
struct swiglu_hf_naming {
    const char *prefix;                    /* NULL: none of the list is there */
    const struct swiglu_hf_family *family; /* NULL: unknown */
    enum swiglu_scheme scheme;             /* SWIGLU_SCHEMES: none fits */
    const struct swiglu_config *config;
};

/* Before the family is known. */
enum swiglu_status swiglu_hf_check_config(const struct swiglu_catalog *catalog, const struct swiglu_config *config,
                                          struct swiglu_error *error);

/* Fills rules->promise. */
enum swiglu_status swiglu_hf_promises(struct swiglu_layer_rules *rules, struct swiglu_error *error);

/* Widths and activation: the facts of the rules. */
enum swiglu_status swiglu_hf_facts(const struct swiglu_layer_rules *rules, size_t layer, struct swiglu_facts *facts,
                                   struct swiglu_error *error);

/* Warns of keys that say another thing than the one that counts. n_seen: layers that the tensors show. */
enum swiglu_status swiglu_hf_compare(const struct swiglu_layer_rules *rules, uint64_t n_seen, struct swiglu_error *error);

#endif
