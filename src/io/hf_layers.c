/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hf_layers.h"

#include <stdio.h>
#include <string.h>

#include "io/experts.h"
#include "io/hf_config.h"

struct hf_name { enum swiglu_scheme scheme; const char *base; enum swiglu_role role; enum swiglu_pack pack; };

static const struct hf_name hf_names[] = {
#define NAME(scheme, base, role, pack) {SWIGLU_SCHEME_##scheme, base, SWIGLU_ROLE_##role, SWIGLU_PACK_##pack},
#include "io/hf_name.def"
};
enum { N_NAMES = sizeof hf_names / sizeof hf_names[0] };

/* What stands before the layer's number where it is a layer of the language model itself (or of the only model). Of
 * several in one file the first of this list counts. */
static const char *const hf_prefixes[] = {
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.", "language_model.layers.",
    "layers.", "transformer.h.", "h.", "gpt_neox.layers.", "model.decoder.layers.", "decoder.layers.",
    "model.transformer.blocks.", "transformer.blocks.", "transformer.encoder.layers.", "transformer.layers.",
    "backbone.layers.", "encoder.layer.", "dinov2.encoder.layer.", "dinov2_with_registers.encoder.layer.",
    "bert.encoder.layer.", "blocks.",
};
enum { N_PREFIXES = sizeof hf_prefixes / sizeof hf_prefixes[0] };

/* ---- names ---- */

/* Whether rest is base followed by the suffix. */
static bool hf_is(const char *rest, const char *base, const char *suffix) {
    return swiglu_starts(rest, base) && !strcmp(rest + strlen(base), suffix);
}

/* Whether a tensor that has no known name still belongs to a feed-forward block. */
static bool hf_in_block(const char *rest) {
    static const char *const words[] = {"mlp.", "feed_forward.", "ffn.", "block_sparse_moe.", "moe.", "mixer.experts.",
                                        "fc1.", "fc2.", "ff_proj.", "ff_out.", "intermediate.dense.", "output.dense.",
                                        "shared_mlp.", "shared_expert"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (swiglu_starts(rest, words[i])) return true;
    return strstr(rest, ".experts.") || strstr(rest, "DenseReluDense.") || strstr(rest, ".mlp.");
}

/* The component that numbers the layer: the first number behind one of these words. NULL: the tensor is in no layer. */
static const char *hf_digits(const char *name) {
    static const char *const words[] = {"layers", "layer", "h", "blocks", "block"};
    for (const char *at = name, *dot; (dot = strchr(at, '.')); at = dot + 1) {
        if (dot[1] < '0' || dot[1] > '9') continue;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if ((size_t)(dot - at) == strlen(words[i]) && !memcmp(at, words[i], strlen(words[i]))) return dot + 1;
    }
    return NULL;
}

static enum swiglu_name_kind hf_parse(const void *ctx, const char *name, struct swiglu_layer_name *out) {
    const struct swiglu_hf_naming *naming = ctx;
    const char *digits = hf_digits(name);
    if (!digits) return SWIGLU_NAME_OTHER;
    *out = (struct swiglu_layer_name){.digits = digits};
    const enum swiglu_name_kind kind = swiglu_layer_number(out);
    if (kind != SWIGLU_NAME_LAYER) return kind;
    const size_t n = (size_t)(digits - name);
    out->other_stack = !naming->prefix || strlen(naming->prefix) != n || memcmp(naming->prefix, name, n);
    out->counts = hf_in_block(out->rest);
    return SWIGLU_NAME_LAYER;
}

static enum swiglu_oddity hf_oddity(const char *rest) {
    if (strstr(rest, "expert") || strstr(rest, "moe") || strstr(rest, "router") || swiglu_starts(rest, "mlp.gate.") ||
        swiglu_starts(rest, "feed_forward.gate."))
        return SWIGLU_ODD_EXPERTS;
    if (strstr(rest, "norm")) return SWIGLU_ODD_SUB_NORM;
    return strstr(rest, "act.scales") ? SWIGLU_ODD_ACT_SCALE : SWIGLU_ODD_UNKNOWN;
}

static bool hf_add_norm(const struct swiglu_hf_naming *naming, struct swiglu_layer *layer, const char *rest, size_t tensor) {
    for (int k = 0; naming->family && k < SWIGLU_HF_NORMS; k++) {
        const char *norm = naming->family->norms[k];
        if (!norm || !hf_is(rest, norm, ".weight")) continue;
        layer->tensor[SWIGLU_ROLE_FFN_NORM + k] = (long)tensor;
        return true;
    }
    return false;
}

static void hf_add(const void *ctx, struct swiglu_layer *layer, const struct swiglu_layer_name *name, size_t tensor) {
    const struct swiglu_hf_naming *naming = ctx;
    if (hf_add_norm(naming, layer, name->rest, tensor)) return;
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct hf_name *n = &hf_names[i];
        if (n->scheme != naming->scheme) continue;
        const bool weight = hf_is(name->rest, n->base, ".weight"), bias = hf_is(name->rest, n->base, ".bias");
        if (!weight && !bias) continue;
        long *slot = &layer->tensor[bias ? SWIGLU_ROLE_GATE_BIAS + (n->role - SWIGLU_ROLE_GATE) : n->role];
        if (*slot >= 0) break; /* a second tensor of one role: neither is sure */
        *slot = (long)tensor;
        if (weight && (layer->pack == SWIGLU_PACK_BY_SHAPE || n->pack != SWIGLU_PACK_NEVER)) layer->pack = n->pack;
        return;
    }
    if (name->counts) swiglu_layer_add_oddity(layer, hf_oddity(name->rest), tensor);
}

/* Model types whose tensor of all experts is [experts, out, in], the gate first (transformers 5). */
static bool hf_stacks_rows(const struct swiglu_hf_naming *naming) {
    static const char *const types[] = {"deepseek_v2", "deepseek_v3", "glm4_moe", "mixtral", "olmoe", "qwen2_moe",
                                        "qwen3_moe"};
    for (size_t i = 0; naming->family && i < sizeof types / sizeof types[0]; i++)
        if (!strcmp(naming->family->family.architecture, types[i])) return true;
    return false;
}

static void hf_expert(const void *ctx, const char *rest, struct swiglu_expert_part *part) {
    static const struct { const char *start; bool shared; } groups[] = {
        {"mlp.experts.", false}, {"block_sparse_moe.experts.", false}, {"mlp.shared_expert.", true},
        {"mlp.shared_experts.", true},
    };
    static const struct { const char *name; enum swiglu_role role; enum swiglu_pack pack; bool mixtral; } matrices[] = {
        {"gate_proj", SWIGLU_ROLE_GATE, SWIGLU_PACK_NEVER, false},
        {"up_proj", SWIGLU_ROLE_UP, SWIGLU_PACK_NEVER, false},
        {"down_proj", SWIGLU_ROLE_DOWN, SWIGLU_PACK_NEVER, false}, {"w1", SWIGLU_ROLE_GATE, SWIGLU_PACK_NEVER, true},
        {"w3", SWIGLU_ROLE_UP, SWIGLU_PACK_NEVER, true}, {"w2", SWIGLU_ROLE_DOWN, SWIGLU_PACK_NEVER, true},
        {"gate_up_proj", SWIGLU_ROLE_GATE, SWIGLU_PACK_GATE_UP, false},
    };
    const bool mixtral = swiglu_starts(rest, "block_sparse_moe.");
    size_t g = 0;
    while (g < sizeof groups / sizeof groups[0] && !swiglu_starts(rest, groups[g].start)) g++;
    if (g == sizeof groups / sizeof groups[0]) return;
    const char *after = rest + strlen(groups[g].start);
    bool one = groups[g].shared;
    part->kind = SWIGLU_PART_STRANGE;
    if (one) {
        part->expert = SWIGLU_EXPERT_SHARED;
    } else {
        one = swiglu_expert_number(after, part, &after);
    }
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        const bool stack = !one && !mixtral && hf_is(after, matrices[i].name, "") && hf_stacks_rows(ctx);
        if (matrices[i].mixtral != mixtral || !(stack || (one && hf_is(after, matrices[i].name, ".weight")))) continue;
        part->role = matrices[i].role, part->pack = matrices[i].pack;
        part->kind = one ? SWIGLU_PART_ONE : SWIGLU_PART_STACK;
    }
}

static bool hf_role_name(const struct swiglu_layer_rules *rules, size_t layer, enum swiglu_role role, char *dst,
                         size_t n) {
    const struct swiglu_hf_naming *naming = rules->ctx;
    for (size_t i = 0; i < N_NAMES; i++)
        if (hf_names[i].scheme == naming->scheme && hf_names[i].role == role)
            return snprintf(dst, n, "%s%zu.%s.weight", naming->prefix, layer, hf_names[i].base) > 0;
    return false;
}

/* ---- which family ---- */

/* Counts, per scheme, the weights that have its names in layers of the prefix. */
static void hf_count(const struct swiglu_catalog *c, const struct swiglu_hf_naming *naming, size_t counts[SWIGLU_SCHEMES]) {
    struct swiglu_layer_name name;
    for (size_t i = 0; i < c->names.n; i++) {
        if (hf_parse(naming, swiglu_names_at(&c->names, i), &name) != SWIGLU_NAME_LAYER || name.other_stack) continue;
        for (size_t k = 0; k < N_NAMES; k++) counts[hf_names[k].scheme] += hf_is(name.rest, hf_names[k].base, ".weight");
    }
}

static void hf_find_prefix(const struct swiglu_catalog *c, struct swiglu_hf_naming *naming) {
    size_t best = N_PREFIXES;
    for (size_t i = 0; i < c->names.n; i++) {
        struct swiglu_layer_name name;
        const char *text = swiglu_names_at(&c->names, i);
        if (hf_parse(naming, text, &name) != SWIGLU_NAME_LAYER || !name.counts) continue;
        for (size_t k = 0; k < best; k++)
            if (strlen(hf_prefixes[k]) == (size_t)(name.digits - text) && swiglu_starts(text, hf_prefixes[k])) best = k;
    }
    naming->prefix = best < N_PREFIXES ? hf_prefixes[best] : NULL;
}

/* Of the rows for this model_type the one whose names are there most. */
static const struct swiglu_hf_family *hf_choose(const char *model_type, const size_t counts[SWIGLU_SCHEMES]) {
    const struct swiglu_hf_family *best = NULL, *row;
    for (size_t i = 0; (row = swiglu_hf_family_at(i)); i++)
        if (!strcmp(row->family.architecture, model_type) && (!best || counts[row->scheme] > counts[best->scheme]))
            best = row;
    return best;
}

/* The names decide within a model_type, and alone where there is no config: but never on the activation of a model_type
 * that is unknown. */
static void hf_find_family(const struct swiglu_catalog *c, struct swiglu_hf_naming *naming) {
    size_t counts[SWIGLU_SCHEMES] = {0};
    hf_find_prefix(c, naming);
    hf_count(c, naming, counts);
    const struct swiglu_hf_family *by_names = hf_choose("", counts), *by_type = NULL;
    for (int s = 0; s < SWIGLU_SCHEMES && by_names; s++) /* another set fits better, though it says less */
        if (!counts[by_names->scheme] || counts[s] > counts[by_names->scheme]) by_names = NULL;
    if (naming->config->present) by_type = hf_choose(swiglu_config_model_type(naming->config), counts);
    if (naming->config->present && !swiglu_config_model_type(naming->config)[0]) by_type = NULL;
    naming->family = naming->config->present ? by_type : by_names;
    naming->scheme = by_type && counts[by_type->scheme] ? by_type->scheme : SWIGLU_SCHEMES;
    /* a known family under other names, such as Llama's own; or one that is unknown, but for --activation */
    if (naming->scheme == SWIGLU_SCHEMES && by_names && (!by_type || by_type->family.form == by_names->family.form))
        naming->scheme = by_names->scheme;
}

/* ---- all of it ---- */

/* "feed_forward.w1, w3, w2": what a scheme is told by. */
static void hf_scheme_words(enum swiglu_scheme scheme, char *dst, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < N_NAMES && at < n; i++) {
        if (hf_names[i].scheme != scheme) continue;
        const char *base = hf_names[i].base, *last = strrchr(base, '.');
        at += (size_t)snprintf(dst + at, n - at, "%s%s", at ? ", " : "", at && last ? last + 1 : base);
    }
}

static void hf_labels(struct swiglu_layer_rules *rules, const struct swiglu_hf_naming *naming) {
    const char *type = swiglu_config_model_type(naming->config);
    char words[72] = "";
    if (type[0]) {
        snprintf(rules->label, sizeof rules->label, "model_type %s", type);
        snprintf(rules->unknown, sizeof rules->unknown, "unknown model_type \"%s\"", type);
    } else {
        hf_scheme_words(naming->scheme, words, sizeof words);
        snprintf(rules->label, sizeof rules->label, "tensor names %s", words);
        snprintf(rules->unknown, sizeof rules->unknown, "%s",
                 naming->config->present ? "no model_type in config.json" : "no config.json beside the file");
    }
}

enum swiglu_status swiglu_hf_layers(struct swiglu_layers *layers, struct swiglu_catalog *catalog,
                                    const struct swiglu_config *config, const char *override, bool experts,
                                    struct swiglu_error *error) {
    struct swiglu_hf_naming naming = {.config = config, .scheme = SWIGLU_SCHEMES};
    TRY(swiglu_hf_check_config(catalog, config, error));
    hf_find_family(catalog, &naming);
    const struct swiglu_naming names = {&naming, hf_parse, hf_add, hf_expert};
    struct swiglu_layer_rules rules = {.catalog = catalog, .family = naming.family ? &naming.family->family : NULL,
                                       .override = override, .experts = experts,
                                       .in_out = naming.family && naming.family->in_out,
                                       .ctx = &naming, .facts = swiglu_hf_facts, .role_name = hf_role_name};
    hf_labels(&rules, &naming);
    TRY(swiglu_hf_promises(&rules, error));
    TRY(swiglu_layers_find(layers, &rules, &names, error));
    const enum swiglu_status status = swiglu_hf_compare(&rules, layers->n_seen, error);
    if (status != SWIGLU_OK) swiglu_layers_free(layers);
    return status;
}
