/* SPDX-License-Identifier: Apache-2.0 */
#include "io/quant_config.h"

#include <stdlib.h>
#include <string.h>

static bool quant_key(const struct swiglu_json *json, const char *name) {
    return json->text_bytes == strlen(name) && !strcmp(json->text, name);
}

static enum swiglu_status quant_wanted(const struct swiglu_json *json, const char *key, const char *wanted) {
    char shown[160];
    return swiglu_json_fail(json, json->offset, "quantization_config.%s: %s is expected, not %s", key, wanted,
                            swiglu_json_show(json, shown, sizeof shown));
}

/* A string, or null: "". One that is longer than any that is known is cut. */
static enum swiglu_status quant_string(struct swiglu_json *json, const char *key, char *dst, size_t n) {
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    if (json->token != SWIGLU_JSON_STRING) return quant_wanted(json, key, "a string");
    swiglu_escape(dst, n, json->text, json->text_bytes);
    return SWIGLU_OK;
}

/* A number, or null or -1: not known. */
static enum swiglu_status quant_number(struct swiglu_json *json, const char *key, struct swiglu_quant_number *number) {
    TRY(swiglu_json_next(json));
    const bool none = json->token == SWIGLU_JSON_NULL || (json->token == SWIGLU_JSON_NUMBER && !strcmp(json->text, "-1"));
    *number = (struct swiglu_quant_number){.known = !none, .value = json->integer, .offset = json->offset};
    return none || json->token == SWIGLU_JSON_INTEGER ? SWIGLU_OK : quant_wanted(json, key, "an integer");
}

static enum swiglu_status quant_flag(struct swiglu_json *json, const char *key, bool *flag) {
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_TRUE && json->token != SWIGLU_JSON_FALSE && json->token != SWIGLU_JSON_NULL)
        return quant_wanted(json, key, "true or false");
    if (json->token != SWIGLU_JSON_NULL) *flag = json->token == SWIGLU_JSON_TRUE;
    return SWIGLU_OK;
}

/* [128, 128], or null. */
static enum swiglu_status quant_block(struct swiglu_json *json, const char *key, struct swiglu_quant_scheme *s) {
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    if (json->token != SWIGLU_JSON_ARRAY) return quant_wanted(json, key, "a list of two integers");
    for (int i = 0; i < 2; i++) {
        TRY(swiglu_json_next(json));
        if (json->token != SWIGLU_JSON_INTEGER || !json->integer) return quant_wanted(json, key, "an integer from 1 on");
        s->block[i] = json->integer;
    }
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_ARRAY_END) return quant_wanted(json, key, "the end of the list");
    s->has_block = true;
    return SWIGLU_OK;
}

/* Keys of a scheme, wherever it stands. *taken: it was one. */
static enum swiglu_status quant_scheme_key(struct swiglu_json *json, struct swiglu_quant_scheme *s, bool *taken) {
    *taken = true;
    if (quant_key(json, "bits")) return quant_number(json, "bits", &s->bits);
    if (quant_key(json, "num_bits")) return quant_number(json, "num_bits", &s->bits);
    if (quant_key(json, "group_size")) return quant_number(json, "group_size", &s->group_size);
    if (quant_key(json, "symmetric")) return quant_flag(json, "symmetric", &s->symmetric);
    if (quant_key(json, "weight_block_size")) return quant_block(json, "weight_block_size", s);
    if (quant_key(json, "block_structure")) return quant_block(json, "block_structure", s);
    if (quant_key(json, "strategy")) return quant_string(json, "strategy", s->strategy, sizeof s->strategy);
    if (quant_key(json, "type")) return quant_string(json, "type", s->type, sizeof s->type);
    *taken = false;
    return SWIGLU_OK;
}

/* An object whose keys are those of a scheme; others say nothing about stored numbers. null: nothing. */
static enum swiglu_status quant_scheme(struct swiglu_json *json, const char *key, struct swiglu_quant_scheme *s, bool *there) {
    bool taken;
    *s = (struct swiglu_quant_scheme){.symmetric = true};
    TRY(swiglu_json_next(json));
    *there = json->token == SWIGLU_JSON_OBJECT;
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    if (json->token != SWIGLU_JSON_OBJECT) return quant_wanted(json, key, "an object");
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        TRY(quant_scheme_key(json, s, &taken));
        if (!taken) TRY(swiglu_json_skip(json));
    }
}

static bool quant_same(const struct swiglu_quant_scheme *a, const struct swiglu_quant_scheme *b) {
    return a->bits.known == b->bits.known && a->bits.value == b->bits.value && a->group_size.known == b->group_size.known &&
           (!a->group_size.known || a->group_size.value == b->group_size.value) && a->symmetric == b->symmetric &&
           a->has_block == b->has_block && a->block[0] == b->block[0] && a->block[1] == b->block[1] &&
           !strcmp(a->strategy, b->strategy) && !strcmp(a->type, b->type);
}

/* {"group_0": {"weights": {...}, "targets": [...], ...}, ...} */
static enum swiglu_status quant_groups(struct swiglu_json *json, struct swiglu_quant_config *config) {
    bool any = false, there;
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    if (json->token != SWIGLU_JSON_OBJECT) return quant_wanted(json, "config_groups", "an object");
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        TRY(swiglu_json_next(json));
        if (json->token != SWIGLU_JSON_OBJECT) return quant_wanted(json, "config_groups", "an object for each group");
        for (;;) {
            struct swiglu_quant_scheme s;
            TRY(swiglu_json_next(json));
            if (json->token == SWIGLU_JSON_OBJECT_END) break;
            if (!quant_key(json, "weights")) {
                TRY(swiglu_json_skip(json));
                continue;
            }
            TRY(quant_scheme(json, "config_groups.weights", &s, &there));
            if (!there) continue;
            config->several |= any && !quant_same(&config->scheme, &s);
            config->scheme = s, any = true;
        }
    }
}

/* AWQ has a word there; what others have says nothing about stored numbers. */
static enum swiglu_status quant_version(struct swiglu_json *json, struct swiglu_quant_config *config) {
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_STRING)
        swiglu_escape(config->version, sizeof config->version, json->text, json->text_bytes);
    if (json->token == SWIGLU_JSON_OBJECT || json->token == SWIGLU_JSON_ARRAY)
        return quant_wanted(json, "version", "a string");
    return SWIGLU_OK;
}

/* A key that is no rule of the whole; an object is then one of a module where modules may have rules. */
static enum swiglu_status quant_other(struct swiglu_json *json, bool of_modules, bool *exceptions) {
    if (!of_modules) return swiglu_json_skip(json);
    TRY(swiglu_json_next(json));
    const unsigned depth = json->depth;
    if (json->token != SWIGLU_JSON_OBJECT && json->token != SWIGLU_JSON_ARRAY) return SWIGLU_OK;
    *exceptions |= json->token == SWIGLU_JSON_OBJECT;
    while (json->depth >= depth) TRY(swiglu_json_next(json));
    return SWIGLU_OK;
}

/* Whether the object that follows has any rule. */
static enum swiglu_status quant_dynamic(struct swiglu_json *json, bool *any) {
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_OBJECT && json->token != SWIGLU_JSON_ARRAY) return SWIGLU_OK;
    for (const unsigned depth = json->depth;;) {
        TRY(swiglu_json_next(json));
        if (json->depth < depth) return SWIGLU_OK;
        *any = true;
    }
}

enum swiglu_status swiglu_quant_config_read(struct swiglu_quant_config *config, bool mlx, struct swiglu_json *json) {
    const unsigned depth = json->depth;
    bool taken;
    *config = (struct swiglu_quant_config){.offset = json->offset, .scheme.symmetric = true};
    TRY(swiglu_json_next(json));
    if (json->token == SWIGLU_JSON_NULL) return SWIGLU_OK;
    if (json->token != SWIGLU_JSON_OBJECT && mlx) { /* the word is used for other things as well */
        while (json->depth > depth) TRY(swiglu_json_next(json));
        return SWIGLU_OK;
    }
    if (json->token != SWIGLU_JSON_OBJECT)
        return swiglu_json_fail(json, json->offset, "quantization_config: an object is expected");
    config->present = true;
    if (mlx) strcpy(config->method, "mlx");
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        if (quant_key(json, "quant_method")) {
            TRY(quant_string(json, "quant_method", config->method, sizeof config->method));
        } else if (mlx && quant_key(json, "mode")) {
            TRY(quant_string(json, "mode", config->format, sizeof config->format));
        } else if (quant_key(json, "format")) {
            TRY(quant_string(json, "format", config->format, sizeof config->format));
        } else if (quant_key(json, "checkpoint_format")) {
            TRY(quant_string(json, "checkpoint_format", config->format, sizeof config->format));
        } else if (quant_key(json, "version")) {
            TRY(quant_version(json, config));
        } else if (quant_key(json, "config_groups")) {
            TRY(quant_groups(json, config));
        } else if (quant_key(json, "dynamic")) {
            TRY(quant_dynamic(json, &config->exceptions));
        } else {
            TRY(quant_scheme_key(json, &config->scheme, &taken));
            if (!taken) TRY(quant_other(json, mlx, &config->exceptions));
        }
    }
}
