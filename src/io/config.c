/* SPDX-License-Identifier: Apache-2.0 */
#include "io/config.h"

#include <string.h>

#include "base/alloc.h"

static const char *const config_keys[SWIGLU_CONFIG_KEYS] = {
#define KEY(NAME, text) [SWIGLU_CONFIG_##NAME] = text,
#include "io/config_key.def"
#undef KEY
};

struct config_parser {
    struct swiglu_config *config;
    struct swiglu_catalog *catalog;
    struct swiglu_error *error;
    struct swiglu_config_value text[SWIGLU_CONFIG_KEYS]; /* of text_config */
    struct swiglu_json json;
};

/* The keys of an object, and where they stand. */
struct config_keys { struct swiglu_names names; uint64_t *at; size_t capacity; };

const char *swiglu_config_key_name(enum swiglu_config_key key) { return config_keys[key]; }

enum swiglu_config_key swiglu_config_key_find(const char *name) {
    int key = 0;
    while (key < SWIGLU_CONFIG_KEYS && strcmp(config_keys[key], name)) key++;
    return (enum swiglu_config_key)key;
}

const char *swiglu_config_model_type(const struct swiglu_config *config) {
    const struct swiglu_config_value *v = &config->value[SWIGLU_CONFIG_MODEL_TYPE];
    return v->known && v->token == SWIGLU_JSON_STRING ? v->text : "";
}

static enum swiglu_status config_no_memory(const struct config_parser *p) {
    return swiglu_catalog_fail(p->catalog, p->config->file, p->error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET,
                               "out of memory");
}

/* In a list: the values up to its end, kept where all are integers. */
static enum swiglu_status config_list(struct config_parser *p, struct swiglu_config_value *v) {
    struct swiglu_config *c = p->config;
    struct swiglu_json *json = &p->json;
    const unsigned depth = json->depth;
    bool integers = true;
    for (v->first = c->n_integers;; v->n++) {
        TRY(swiglu_json_next(json));
        if (json->depth < depth) break;
        integers = integers && json->token == SWIGLU_JSON_INTEGER && v->n <= SWIGLU_LIMIT_LAYER;
        if (!integers) continue;
        if (swiglu_grow(&c->integers, &c->integers_capacity, c->n_integers + 1, sizeof *c->integers))
            return config_no_memory(p);
        c->integers[c->n_integers++] = json->integer;
    }
    if (!integers) v->token = SWIGLU_JSON_OBJECT; /* something that is no width */
    return SWIGLU_OK;
}

static enum swiglu_status config_value(struct config_parser *p, struct swiglu_config_value *v) {
    struct swiglu_json *json = &p->json;
    TRY(swiglu_json_next(json));
    *v = (struct swiglu_config_value){.known = json->token != SWIGLU_JSON_NULL, .token = json->token,
                                      .integer = json->integer, .offset = json->offset};
    if (json->token == SWIGLU_JSON_STRING) swiglu_escape(v->text, sizeof v->text, json->text, json->text_bytes);
    if (json->token == SWIGLU_JSON_ARRAY) return config_list(p, v);
    if (json->token != SWIGLU_JSON_OBJECT) return SWIGLU_OK;
    for (const unsigned depth = json->depth; json->depth >= depth;) TRY(swiglu_json_next(json));
    return SWIGLU_OK;
}

/* That of text_config counts, where it has one. MLX writes its own twice, the second time as a quantization_config without
 * a method. */
static enum swiglu_status config_quant(struct config_parser *p, bool mlx, bool inner) {
    struct swiglu_quant_config read, *config = &p->config->quant;
    TRY(swiglu_quant_config_read(&read, mlx, &p->json));
    const bool empty = !config->present || !config->method[0], weaker = config->present && !read.method[0];
    if (read.present && (empty || (inner && !weaker))) *config = read;
    return SWIGLU_OK;
}

/* The members of an object, up to its end. Called once for the whole and once for text_config in it. */
static enum swiglu_status config_object(struct config_parser *p, struct swiglu_config_value *values,
                                        struct config_keys *keys, bool *nested) {
    struct swiglu_json *json = &p->json;
    for (;;) {
        TRY(swiglu_json_next(json));
        if (json->token == SWIGLU_JSON_OBJECT_END) return SWIGLU_OK;
        if (json->cut)
            return swiglu_json_fail(json, json->offset, "a key of more than %d bytes", SWIGLU_LIMIT_KEY);
        if (swiglu_grow(&keys->at, &keys->capacity, keys->names.n + 1, sizeof *keys->at) ||
            swiglu_names_push(&keys->names, json->text, json->text_bytes))
            return config_no_memory(p);
        const char *name = swiglu_names_at(&keys->names, keys->names.n - 1);
        keys->at[keys->names.n - 1] = json->offset;
        const enum swiglu_config_key key = swiglu_config_key_find(name);
        if (key < SWIGLU_CONFIG_KEYS) {
            TRY(config_value(p, &values[key]));
        } else if (nested && !strcmp(name, "text_config")) {
            TRY(swiglu_json_next(json));
            *nested = json->token == SWIGLU_JSON_OBJECT;
            if (*nested) return SWIGLU_OK;
            if (json->token != SWIGLU_JSON_NULL)
                return swiglu_json_fail(json, json->offset, "text_config: an object is expected");
        } else if (!strcmp(name, "quantization_config") || !strcmp(name, "quantization")) {
            TRY(config_quant(p, !strcmp(name, "quantization"), !nested));
        } else {
            TRY(swiglu_json_skip(json));
        }
    }
}

/* Two readers must see one model: keys that come twice are refused, whatever else is wrong. */
static enum swiglu_status config_unique(struct config_parser *p, struct config_keys *keys) {
    size_t first, second;
    const bool repeated = swiglu_names_repeated(&keys->names, &first, &second);
    if (!keys->names.order) return config_no_memory(p);
    if (!repeated) return SWIGLU_OK;
    return swiglu_json_fail(&p->json, keys->at[second], "duplicate key %.80s, first at byte %llu",
                            swiglu_names_at(&keys->names, second), (unsigned long long)keys->at[first]);
}

static enum swiglu_status config_objects(struct config_parser *p, struct config_keys *outer, struct config_keys *inner) {
    struct swiglu_json *json = &p->json;
    TRY(swiglu_json_next(json));
    if (json->token != SWIGLU_JSON_OBJECT) return swiglu_json_fail(json, json->offset, "an object is expected");
    for (bool nested = true; nested;) {
        nested = false;
        TRY(config_object(p, p->config->value, outer, &nested));
        if (nested) TRY(config_object(p, p->text, inner, NULL));
    }
    return swiglu_json_next(json); /* nothing follows */
}

static enum swiglu_status config_whole(struct config_parser *p, struct config_keys *outer, struct config_keys *inner) {
    const enum swiglu_status status = config_objects(p, outer, inner);
    if (status != SWIGLU_OK && status != SWIGLU_E_FORMAT) return status;
    TRY(config_unique(p, outer));
    TRY(config_unique(p, inner));
    for (int k = 0; k < SWIGLU_CONFIG_KEYS; k++)
        if (p->text[k].known) p->config->value[k] = p->text[k];
    return status;
}

static enum swiglu_status config_parse(struct config_parser *p) {
    const struct swiglu_file *file = &p->catalog->files[p->config->file];
    struct config_keys outer = {0}, inner = {0};
    swiglu_json_begin(&p->json, file, "config", 0, file->bytes, p->error);
    p->json.not_finite = true;
    if (file->bytes > SWIGLU_LIMIT_HEADER)
        return swiglu_json_fail(&p->json, 0, "config of %llu bytes: limit %d", (unsigned long long)file->bytes,
                                SWIGLU_LIMIT_HEADER);
    const enum swiglu_status status = config_whole(p, &outer, &inner);
    swiglu_names_free(&outer.names);
    swiglu_names_free(&inner.names);
    swiglu_free(outer.at);
    swiglu_free(inner.at);
    return status;
}

enum swiglu_status swiglu_config_read(struct swiglu_config *config, struct swiglu_catalog *catalog, const char *path,
                                      struct swiglu_error *error) {
    TRY(swiglu_catalog_try_file(catalog, path, &config->present, error));
    if (!config->present) return SWIGLU_OK;
    config->file = catalog->n_files - 1;
    struct config_parser *p = swiglu_alloc(sizeof *p);
    if (!p) return swiglu_catalog_fail(catalog, config->file, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory");
    p->config = config, p->catalog = catalog, p->error = error;
    const enum swiglu_status status = config_parse(p);
    swiglu_free(p);
    swiglu_file_close(&catalog->files[config->file]); /* its name is still needed, for messages */
    return status;
}

void swiglu_config_free(struct swiglu_config *config) {
    swiglu_free(config->integers);
    *config = (struct swiglu_config){0};
}
