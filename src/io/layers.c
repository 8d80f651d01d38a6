/* SPDX-License-Identifier: Apache-2.0 */
#include "io/layers.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

enum { STACKS = 2, NO_SLOT = 0 }; /* blk.N, and the N of all other stacks (enc.blk.N, v.blk.N, ...) */

/* A tensor name of the form [STACK.]blk.LAYER.REST. */
struct layer_name { int stack; uint32_t layer; const char *rest; };

static const struct { const char *rest; enum swiglu_role role; } layer_roles[] = {
    {"ffn_gate.weight", SWIGLU_ROLE_GATE}, {"ffn_up.weight", SWIGLU_ROLE_UP}, {"ffn_down.weight", SWIGLU_ROLE_DOWN},
    {"ffn_gate.bias", SWIGLU_ROLE_GATE_BIAS}, {"ffn_up.bias", SWIGLU_ROLE_UP_BIAS},
    {"ffn_down.bias", SWIGLU_ROLE_DOWN_BIAS}, {"ffn_norm.weight", SWIGLU_ROLE_FFN_NORM},
    {"attn_norm.weight", SWIGLU_ROLE_ATTN_NORM}, {"post_attention_norm.weight", SWIGLU_ROLE_POST_ATTN_NORM},
};

static bool layer_starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* What a tensor called ffn* says about its layer when it has no role. */
static enum swiglu_oddity layer_oddity(const char *rest) {
    static const struct { const char *start; enum swiglu_oddity oddity; } known[] = {
        {"ffn_gate_inp", SWIGLU_ODD_EXPERTS}, {"ffn_latent", SWIGLU_ODD_EXPERTS}, {"ffn_norm_exps", SWIGLU_ODD_EXPERTS},
        {"ffn_sub_norm", SWIGLU_ODD_SUB_NORM}, {"ffn_act", SWIGLU_ODD_ACT_SCALE}, {"ffn.act", SWIGLU_ODD_ACT_SCALE},
        {"ffn.scales", SWIGLU_ODD_ACT_SCALE}, {"act_scales", SWIGLU_ODD_ACT_SCALE}, {"ffn_norm.", SWIGLU_ODD_NONE},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (layer_starts(rest, known[i].start)) return known[i].oddity;
    if (strstr(rest, "exps") || strstr(rest, "shexp")) return SWIGLU_ODD_EXPERTS;
    const char *dot = strchr(rest, '.'); /* ffn_down.3.weight: the fourth expert in the naming of early Mixtral files */
    return dot[1] >= '0' && dot[1] <= '9' ? SWIGLU_ODD_OLD_EXPERTS : SWIGLU_ODD_UNKNOWN;
}

/* True when name i is one of a layer; *status tells of a layer number that cannot be. */
static bool layer_parse(const struct swiglu_gguf *g, size_t i, struct layer_name *out, enum swiglu_status *status,
                        struct swiglu_error *error) {
    const char *name = swiglu_names_at(&g->names, i), *blk = strstr(name, "blk.");
    if (!blk || (blk != name && blk[-1] != '.')) return false;
    const char *digits = blk + 4, *end = digits;
    uint64_t n = 0;
    for (; *end >= '0' && *end <= '9'; end++)
        if (n <= SWIGLU_LIMIT_LAYER) n = 10 * n + (uint64_t)(*end - '0');
    const bool number = end > digits && *end == '.' && (*digits != '0' || end == digits + 1);
    *out = (struct layer_name){.stack = blk != name, .layer = (uint32_t)n, .rest = end + 1};
    if (number && n <= SWIGLU_LIMIT_LAYER) return true;
    if (!number && (end == digits || *end != '.') && !strstr(digits, ".ffn")) return false; /* some other naming */
    *status = swiglu_gguf_fail(g, error, SWIGLU_E_FORMAT, g->tensors[i].entry,
                               "tensor %.80s: layer number %.*s: limits 0 and %d, without leading zeros", name,
                               (int)strcspn(digits, "."), digits, SWIGLU_LIMIT_LAYER);
    return false;
}

/* Whether this tensor makes a layer one with a block: norms alone do not. */
static bool layer_counts(const struct layer_name *name) {
    return layer_starts(name->rest, "act_scales") ||
           (layer_starts(name->rest, "ffn") && strchr(name->rest, '.') && !layer_starts(name->rest, "ffn_norm."));
}

static void layer_add(struct swiglu_layer *layer, const struct layer_name *name, size_t tensor) {
    for (size_t r = 0; r < sizeof layer_roles / sizeof layer_roles[0] && !name->stack; r++) {
        if (strcmp(layer_roles[r].rest, name->rest)) continue;
        layer->tensor[layer_roles[r].role] = (long)tensor;
        return;
    }
    if (!layer_counts(name)) return;
    const enum swiglu_oddity oddity = name->stack ? SWIGLU_ODD_STACK : layer_oddity(name->rest);
    if (oddity >= layer->oddity) return;
    layer->oddity = oddity;
    layer->odd_tensor = (long)tensor;
}

/* Fills slots[stack * (limit + 1) + layer] with 1 + the layer's place in the list, in the order of the numbers. */
static enum swiglu_status layers_count(const struct swiglu_gguf *g, uint32_t *slots, size_t *n, uint64_t *n_seen,
                                       struct swiglu_error *error) {
    enum swiglu_status status = SWIGLU_OK;
    struct layer_name name;
    *n = 0, *n_seen = 0;
    for (size_t i = 0; i < g->names.n; i++) {
        if (layer_parse(g, i, &name, &status, error)) {
            if (layer_counts(&name)) slots[name.stack * (SWIGLU_LIMIT_LAYER + 1) + name.layer] = 1;
            if (!name.stack && name.layer >= *n_seen) *n_seen = name.layer + 1;
        } else {
            TRY(status);
        }
    }
    for (size_t i = 0; i < STACKS * (SWIGLU_LIMIT_LAYER + 1); i++)
        if (slots[i]) slots[i] = (uint32_t)++*n;
    return SWIGLU_OK;
}

static void layers_fill(struct swiglu_layers *layers, const struct swiglu_gguf *g, const uint32_t *slots) {
    enum swiglu_status status = SWIGLU_OK;
    struct layer_name name;
    for (size_t i = 0; i < layers->n; i++) {
        for (int r = 0; r < SWIGLU_ROLES; r++) layers->at[i].tensor[r] = -1;
        layers->at[i].oddity = SWIGLU_ODD_NONE;
    }
    for (size_t i = 0; i < g->names.n; i++) {
        if (!layer_parse(g, i, &name, &status, NULL)) continue;
        const uint32_t slot = slots[name.stack * (SWIGLU_LIMIT_LAYER + 1) + name.layer];
        if (slot == NO_SLOT) continue;
        layers->at[slot - 1].info.layer = name.layer;
        layer_add(&layers->at[slot - 1], &name, i);
    }
}

const char *swiglu_gguf_architecture(const struct swiglu_gguf *g) {
    const char *text = swiglu_gguf_text(g, swiglu_gguf_find(g, "general.architecture"));
    return text ? text : "";
}

/* What the metadata say about the file as a whole. n_seen: layers that the names show. */
static enum swiglu_status layers_check(struct swiglu_gguf *g, const struct swiglu_family *family, uint64_t n_seen,
                                       struct swiglu_error *error) {
    static const char width[] = ".feed_forward_length";
    uint64_t value;
    char key[96];
    const struct swiglu_kv *kv = swiglu_gguf_find(g, "general.architecture");
    if (kv && !swiglu_gguf_text(g, kv))
        return swiglu_gguf_fail(g, error, SWIGLU_E_FORMAT, kv->offset,
                                "general.architecture type %u%s: must be a string of up to %d bytes",
                                kv->type, kv->is_array ? " array" : "", SWIGLU_LIMIT_KEPT);
    for (size_t i = 0; i < g->keys.n; i++) {
        const char *name = swiglu_names_at(&g->keys, i);
        const size_t n = strlen(name);
        if (n < sizeof width || strcmp(name + n - (sizeof width - 1), width) || g->kvs[i].is_array) continue;
        if (swiglu_gguf_integer(g, &g->kvs[i], 0, &value) && value == 0 &&
            !(family && family->form == SWIGLU_FORM_NONE))
            return swiglu_gguf_fail(g, error, SWIGLU_E_FORMAT, g->kvs[i].offset, "%.80s 0: must be at least 1", name);
    }
    snprintf(key, sizeof key, "%.64s.block_count", swiglu_gguf_architecture(g));
    kv = swiglu_gguf_find(g, key);
    if (!n_seen || !swiglu_gguf_integer(g, kv, 0, &value) || value == n_seen) return SWIGLU_OK;
    return swiglu_gguf_warn(g, error, kv->offset, "%s %llu, but the tensors show %llu layers; the tensors decide", key,
                            (unsigned long long)value, (unsigned long long)n_seen);
}

static enum swiglu_status layers_no_memory(const struct swiglu_gguf *g, struct swiglu_error *error) {
    return swiglu_gguf_fail(g, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory for the list of layers");
}

/* Newer files carry clamps of gate and up in keys such as <architecture>.swiglu_clamp_exp. */
static const char *layers_clamps(const struct swiglu_gguf *g) {
    for (size_t i = 0; i < g->keys.n; i++)
        if (strstr(swiglu_names_at(&g->keys, i), ".swiglu_")) return swiglu_names_at(&g->keys, i);
    return NULL;
}

static enum swiglu_status layers_collect(struct swiglu_layers *layers, struct swiglu_gguf *g, uint64_t *n_seen,
                                         struct swiglu_error *error) {
    uint32_t *slots = swiglu_alloc_array(STACKS * (SWIGLU_LIMIT_LAYER + 1), sizeof *slots);
    if (!slots) return layers_no_memory(g, error);
    enum swiglu_status status = layers_count(g, slots, &layers->n, n_seen, error);
    if (status == SWIGLU_OK) {
        layers->at = swiglu_alloc_array(layers->n, sizeof *layers->at);
        if (layers->at) {
            layers_fill(layers, g, slots);
        } else {
            status = layers_no_memory(g, error);
        }
    }
    swiglu_free(slots);
    return status;
}

enum swiglu_status swiglu_layers_find(struct swiglu_layers *layers, struct swiglu_gguf *g, const char *override,
                                      struct swiglu_error *error) {
    const char *architecture = swiglu_gguf_architecture(g);
    const struct swiglu_layer_rules rules = {g, architecture, swiglu_family_find(architecture), override,
                                             layers_clamps(g)};
    uint64_t n_seen = 0;
    *layers = (struct swiglu_layers){0};
    enum swiglu_status status = layers_collect(layers, g, &n_seen, error);
    if (status == SWIGLU_OK) status = layers_check(g, rules.family, n_seen, error);
    for (size_t i = 0; i < layers->n && status == SWIGLU_OK; i++)
        status = swiglu_layer_resolve(&layers->at[i], &rules, error);
    if (status != SWIGLU_OK) swiglu_layers_free(layers);
    return status;
}

void swiglu_layers_free(struct swiglu_layers *layers) {
    for (size_t i = 0; layers->at && i < layers->n; i++)
        for (int k = 0; k < 3; k++) swiglu_free(atomic_load(&layers->at[i].bias[k]));
    swiglu_free(layers->at);
    *layers = (struct swiglu_layers){0};
}
