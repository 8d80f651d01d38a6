/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hf_config.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

static const struct { enum swiglu_promised what; enum swiglu_config_key key; bool yes; const char *type; } hf_promises[] = {
#define PROMISE(what, key, yes, type) {SWIGLU_PROMISED_##what, SWIGLU_CONFIG_##key, yes, type},
#include "io/hf_promise.def"
#undef PROMISE
};
enum { N_PROMISES = sizeof hf_promises / sizeof hf_promises[0] };

/* The keys of one thing. */
struct hf_keys { enum swiglu_config_key first, last; };
static const struct hf_keys activations = {SWIGLU_CONFIG_HIDDEN_ACT, SWIGLU_CONFIG_ACTIVATION_TYPE},
                            model_widths = {SWIGLU_CONFIG_HIDDEN_SIZE, SWIGLU_CONFIG_D_MODEL},
                            hidden_widths = {SWIGLU_CONFIG_INTERMEDIATE_SIZE, SWIGLU_CONFIG_MLP_HIDDEN_SIZE},
                            layer_counts = {SWIGLU_CONFIG_NUM_HIDDEN_LAYERS, SWIGLU_CONFIG_NUM_LAYERS};

static enum swiglu_status hf_bad_value(const struct swiglu_catalog *catalog, const struct swiglu_config *config,
                                       enum swiglu_config_key key, const char *wanted, struct swiglu_error *error) {
    return swiglu_catalog_fail(catalog, config->file, error, SWIGLU_E_FORMAT, config->value[key].offset,
                               "%s: %s is expected", swiglu_config_key_name(key), wanted);
}

static const struct swiglu_config *hf_config(const struct swiglu_layer_rules *rules) {
    return ((const struct swiglu_hf_naming *)rules->ctx)->config;
}

/* The first of the keys that is there, or the last. */
static enum swiglu_config_key hf_first(const struct swiglu_config *config, struct hf_keys keys) {
    int key = keys.first;
    while (key < (int)keys.last && !config->value[key].known) key++;
    return (enum swiglu_config_key)key;
}

enum swiglu_status swiglu_hf_check_config(const struct swiglu_catalog *catalog, const struct swiglu_config *config,
                                          struct swiglu_error *error) {
    const struct swiglu_config_value *type = &config->value[SWIGLU_CONFIG_MODEL_TYPE];
    if (!type->known || type->token == SWIGLU_JSON_STRING) return SWIGLU_OK;
    return hf_bad_value(catalog, config, SWIGLU_CONFIG_MODEL_TYPE, "a string", error);
}

/* ---- promises ---- */

static enum swiglu_status hf_promise(const struct swiglu_layer_rules *rules, size_t i, struct swiglu_promise *promise,
                                     struct swiglu_error *error) {
    const struct swiglu_config *config = hf_config(rules);
    const enum swiglu_config_key key = hf_promises[i].key;
    const struct swiglu_config_value *v = &config->value[key];
    const bool is_number = hf_promises[i].what == SWIGLU_PROMISED_SHARED;
    if (!v->known || (hf_promises[i].type[0] && strcmp(hf_promises[i].type, swiglu_config_model_type(config))))
        return SWIGLU_OK;
    if (is_number ? v->token != SWIGLU_JSON_INTEGER : v->token != SWIGLU_JSON_TRUE && v->token != SWIGLU_JSON_FALSE)
        return hf_bad_value(rules->catalog, config, key, is_number ? "an integer" : "true or false", error);
    const bool yes = is_number ? v->integer != 0 : v->token == SWIGLU_JSON_TRUE;
    *promise = (struct swiglu_promise){.known = true, .there = yes == hf_promises[i].yes, .offset = v->offset,
                                       .file = config->file};
    if (is_number) {
        snprintf(promise->words, sizeof promise->words, "%s %llu", swiglu_config_key_name(key), (ull)v->integer);
    } else {
        snprintf(promise->words, sizeof promise->words, "%s %s", swiglu_config_key_name(key), yes ? "true" : "false");
    }
    return SWIGLU_OK;
}

enum swiglu_status swiglu_hf_promises(struct swiglu_layer_rules *rules, struct swiglu_error *error) {
    for (size_t i = 0; rules->family && i < N_PROMISES; i++)
        TRY(hf_promise(rules, i, &rules->promise[hf_promises[i].what], error));
    return SWIGLU_OK;
}

/* ---- facts ---- */

static enum swiglu_status hf_width(const struct swiglu_layer_rules *rules, struct hf_keys keys, size_t layer,
                                   struct swiglu_width_fact *fact, struct swiglu_error *error) {
    const struct swiglu_config *config = hf_config(rules);
    const enum swiglu_config_key key = hf_first(config, keys);
    const struct swiglu_config_value *v = &config->value[key];
    const bool list = v->token == SWIGLU_JSON_ARRAY;
    if (!v->known) return SWIGLU_OK;
    if (!list && v->token != SWIGLU_JSON_INTEGER)
        return hf_bad_value(rules->catalog, config, key, "an integer, or a list of them,", error);
    if (list && layer >= v->n) return hf_bad_value(rules->catalog, config, key, "a value for each layer", error);
    *fact = (struct swiglu_width_fact){.known = true, .value = list ? config->integers[v->first + layer] : v->integer,
                                       .offset = v->offset, .file = config->file};
    snprintf(fact->key, sizeof fact->key, "%s", swiglu_config_key_name(key));
    return SWIGLU_OK;
}

/* The key that the family goes by. */
static enum swiglu_config_key hf_activation_key(const struct swiglu_hf_naming *naming) {
    const enum swiglu_config_key key = swiglu_config_key_find(naming->family->act_key);
    const bool other = naming->family->family.extra == SWIGLU_GEMMA && !naming->config->value[key].known;
    return other ? SWIGLU_CONFIG_HIDDEN_ACT : key;
}

/* What the string under this key means in files of the family. */
static const char *hf_activation_meant(const struct swiglu_hf_naming *naming, enum swiglu_config_key key) {
    const char *text = naming->config->value[key].text;
    const bool tanh = naming->family->family.extra == SWIGLU_GEMMA && key == SWIGLU_CONFIG_HIDDEN_ACT;
    return tanh && !strcmp(text, "gelu") ? "gelu_pytorch_tanh" : text;
}

enum swiglu_status swiglu_hf_facts(const struct swiglu_layer_rules *rules, size_t layer, struct swiglu_facts *facts,
                                   struct swiglu_error *error) {
    const struct swiglu_hf_naming *naming = rules->ctx;
    const struct swiglu_config *config = naming->config;
    if (!config->present || !naming->family) return SWIGLU_OK;
    TRY(hf_width(rules, model_widths, layer, &facts->d_model, error));
    TRY(hf_width(rules, hidden_widths, layer, &facts->d_ff, error));
    if (config->value[SWIGLU_CONFIG_SWIGLU_LIMIT].known && !rules->override)
        snprintf(facts->left_out, sizeof facts->left_out, "config.json %s: clamps of gate and up are not read",
                 swiglu_config_key_name(SWIGLU_CONFIG_SWIGLU_LIMIT));
    if (!naming->family->act_key) return SWIGLU_OK;
    const enum swiglu_config_key key = hf_activation_key(naming);
    const struct swiglu_config_value *v = &config->value[key];
    if (!v->known) return SWIGLU_OK;
    if (v->token != SWIGLU_JSON_STRING) return hf_bad_value(rules->catalog, config, key, "a string", error);
    facts->activation = hf_activation_meant(naming, key);
    snprintf(facts->source, sizeof facts->source, "config.json %s%s", swiglu_config_key_name(key),
             facts->activation == v->text ? "" : " \"gelu\", the tanh form of Gemma's files");
    return SWIGLU_OK;
}

/* ---- what says another thing ---- */

static bool hf_same_activation(const char *a, const char *b) {
    struct swiglu_act x, y;
    if (!strcmp(a, b)) return true;
    return !swiglu_act_init(&x, a) && !swiglu_act_init(&y, b) && !memcmp(&x, &y, sizeof x);
}

static enum swiglu_status hf_compare_activations(const struct swiglu_layer_rules *rules, struct swiglu_error *error) {
    const struct swiglu_hf_naming *naming = rules->ctx;
    if (!naming->family || !naming->family->act_key) return SWIGLU_OK;
    const enum swiglu_config_key key = hf_activation_key(naming);
    const bool known = naming->config->value[key].known;
    const char *counts = known ? hf_activation_meant(naming, key) : naming->family->family.activation;
    for (int other = activations.first; other <= (int)activations.last; other++) {
        const struct swiglu_config_value *v = &naming->config->value[other];
        if (other == (int)key || !v->known || v->token != SWIGLU_JSON_STRING) continue;
        if (hf_same_activation(counts, hf_activation_meant(naming, (enum swiglu_config_key)other))) continue;
        TRY(swiglu_catalog_warn(rules->catalog, naming->config->file, error, v->offset,
                                "%s \"%s\" is not used: %s goes by %s, %s \"%.60s\"",
                                swiglu_config_key_name((enum swiglu_config_key)other), v->text, rules->label,
                                naming->family->act_key, known ? "here" : "by default", counts));
    }
    return SWIGLU_OK;
}

/* Of the keys for one number the first counts. */
static enum swiglu_status hf_compare_numbers(const struct swiglu_layer_rules *rules, struct hf_keys keys,
                                             struct swiglu_error *error) {
    const struct swiglu_config *config = hf_config(rules);
    const enum swiglu_config_key key = hf_first(config, keys);
    const struct swiglu_config_value *counts = &config->value[key];
    for (int other = key + 1; other <= (int)keys.last; other++) {
        const struct swiglu_config_value *v = &config->value[other];
        if (!v->known || (v->token == counts->token && v->token == SWIGLU_JSON_INTEGER && v->integer == counts->integer))
            continue;
        TRY(swiglu_catalog_warn(rules->catalog, config->file, error, v->offset, "%s is not used: it is not what %s says",
                                swiglu_config_key_name((enum swiglu_config_key)other), swiglu_config_key_name(key)));
    }
    return SWIGLU_OK;
}

static enum swiglu_status hf_compare_count(const struct swiglu_layer_rules *rules, uint64_t n_seen,
                                           struct swiglu_error *error) {
    const struct swiglu_config *config = hf_config(rules);
    const enum swiglu_config_key key = hf_first(config, layer_counts), width = hf_first(config, hidden_widths);
    const struct swiglu_config_value *v = &config->value[key], *widths = &config->value[width];
    if (!n_seen) return SWIGLU_OK;
    if (widths->known && widths->token == SWIGLU_JSON_ARRAY && widths->n > n_seen && !rules->catalog->partial)
        TRY(swiglu_catalog_warn(rules->catalog, config->file, error, widths->offset,
                                "%s has %zu values, but the tensors show %llu layers", swiglu_config_key_name(width),
                                widths->n, (ull)n_seen));
    if (!v->known || (v->token == SWIGLU_JSON_INTEGER && v->integer == n_seen)) return SWIGLU_OK;
    if (v->token != SWIGLU_JSON_INTEGER)
        return swiglu_catalog_warn(rules->catalog, config->file, error, v->offset, "%s: an integer is expected",
                                   swiglu_config_key_name(key));
    return swiglu_catalog_warn(rules->catalog, config->file, error, v->offset,
                               "%s %llu, but the tensors show %llu layers; the tensors decide",
                               swiglu_config_key_name(key), (ull)v->integer, (ull)n_seen);
}

enum swiglu_status swiglu_hf_compare(const struct swiglu_layer_rules *rules, uint64_t n_seen, struct swiglu_error *error) {
    TRY(hf_compare_activations(rules, error));
    TRY(hf_compare_numbers(rules, model_widths, error));
    TRY(hf_compare_numbers(rules, hidden_widths, error));
    TRY(hf_compare_numbers(rules, layer_counts, error));
    return hf_compare_count(rules, n_seen, error);
}
