/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, as far as it speaks of feed-forward blocks. Where a language model is part of a larger one (text_config),
 * its own values count. */
#ifndef SWIGLU_CONFIG_H
#define SWIGLU_CONFIG_H

#include "io/catalog.h"
#include "io/json.h"
#include "io/quant_config.h"

struct swiglu_config_value {
    bool known;                   /* it is there, and not null */
    enum swiglu_json_token token; /* a list of integers is an ARRAY */
    uint64_t integer, offset;     /* the offset of the value in the file */
    size_t first, n;              /* of a list: in the config's integers */
    char text[64];                /* of a string, escaped */
};

enum swiglu_config_key {
#define KEY(NAME, text) SWIGLU_CONFIG_##NAME,
#include "io/config_key.def"
#undef KEY
    SWIGLU_CONFIG_KEYS
};

struct swiglu_config {
    bool present;
    size_t file; /* in the catalog */
    struct swiglu_config_value value[SWIGLU_CONFIG_KEYS];
    uint64_t *integers;
    size_t n_integers, integers_capacity;
    struct swiglu_quant_config quant; /* quantization_config, of text_config where it has one */
};

/* Reads the file at path, adding it to the catalog; where there is none, *config stays as it is. swiglu_config_free is due
 * whatever happens. */
enum swiglu_status swiglu_config_read(struct swiglu_config *config, struct swiglu_catalog *catalog, const char *path,
                                      struct swiglu_error *error);
void swiglu_config_free(struct swiglu_config *config);

const char *swiglu_config_key_name(enum swiglu_config_key key);

/* The key of that name; SWIGLU_CONFIG_KEYS: none. */
enum swiglu_config_key swiglu_config_key_find(const char *name);

/* model_type, "" when there is none. */
const char *swiglu_config_model_type(const struct swiglu_config *config);

#endif
