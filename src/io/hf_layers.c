/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hf_layers.h"

#include <stdio.h>
#include <string.h>

#include "io/experts.h"
#include "io/hf_config.h"
#include "io/hf_quant.h"

struct hf_name { enum swiglu_scheme scheme; const char *base; enum swiglu_role role; enum swiglu_pack pack; };

static const struct hf_name hf_names[] = {
#define NAME(scheme, base, role, pack) {SWIGLU_SCHEME_##scheme, base, SWIGLU_ROLE_##role, SWIGLU_PACK_##pack},
#include "io/hf_name.def"
};
enum { N_NAMES = sizeof hf_names / sizeof hf_names[0] };

static const char *const hf_prefixes[] = {
#define PREFIX(text) text,
#include "io/hf_name.def"
};
enum { N_PREFIXES = sizeof hf_prefixes / sizeof hf_prefixes[0] };

enum hf_place { HF_STARTS, HF_HOLDS };
static const struct { enum hf_place how; const char *text; } hf_words[] = {
#define WORD(how, text) {HF_##how, text},
#include "io/hf_name.def"
};

enum hf_who { HF_EACH, HF_SHARED };
static const struct hf_group { const char *start; enum hf_who who; enum swiglu_scheme scheme; } hf_groups[] = {
#define GROUP(start, who, scheme) {start, HF_##who, SWIGLU_SCHEME_##scheme},
#include "io/hf_name.def"
};

/* The names follow the group's start, and the expert's number. */
static const struct hf_name hf_experts[] = {
#define EXPERT(scheme, name, role, pack) {SWIGLU_SCHEME_##scheme, name, SWIGLU_ROLE_##role, SWIGLU_PACK_##pack},
#include "io/hf_name.def"
};

/* ---- names ---- */

/* Whether rest is base followed by the suffix. */
static bool hf_is(const char *rest, const char *base, const char *suffix) {
    return swiglu_starts(rest, base) && !strcmp(rest + strlen(base), suffix);
}

/* Whether a tensor that has no known name still belongs to a feed-forward block. */
static bool hf_in_block(const char *rest) {
    for (size_t i = 0; i < sizeof hf_words / sizeof hf_words[0]; i++)
        if (hf_words[i].how == HF_STARTS ? swiglu_starts(rest, hf_words[i].text) : strstr(rest, hf_words[i].text) != NULL)
            return true;
    return false;
}

/* The component that numbers the layer: the first number behind one of these words. NULL: the tensor is in no layer. */
static const char *hf_digits(const char *name) {
    static const char *const words[] = {
#define NUMBERED(word) word,
#include "io/hf_name.def"
    };
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

/* The piece of the module `base` that the tensor is; without a quantization_config only .weight is one. */
static int hf_piece_of(const struct swiglu_hf_naming *naming, const char *rest, const char *base) {
    if (!swiglu_starts(rest, base)) return SWIGLU_PIECE_NONE;
    const int piece = swiglu_hf_piece(rest + strlen(base));
    return naming->config->quant.present || piece == SWIGLU_PIECE_WEIGHT ? piece : SWIGLU_PIECE_NONE;
}

static void hf_add(const void *ctx, struct swiglu_layer *layer, const struct swiglu_layer_name *name, size_t tensor) {
    const struct swiglu_hf_naming *naming = ctx;
    if (hf_add_norm(naming, layer, name->rest, tensor)) return;
    for (size_t i = 0; i < N_NAMES; i++) {
        const struct hf_name *n = &hf_names[i];
        if (n->scheme != naming->scheme) continue;
        const bool bias = hf_is(name->rest, n->base, ".bias");
        const int piece = hf_piece_of(naming, name->rest, n->base);
        if (piece == SWIGLU_PIECE_WITHOUT) return;
        if (piece < 0 && !bias) continue;
        const bool weight = !bias && swiglu_hf_is_numbers(piece);
        long *slot = bias ? &layer->tensor[SWIGLU_ROLE_GATE_BIAS + (n->role - SWIGLU_ROLE_GATE)]
                     : weight ? &layer->tensor[n->role] : &layer->piece[n->role][piece];
        if (*slot >= 0) break; /* a second tensor of one role: neither is sure */
        *slot = (long)tensor;
        if (weight) layer->piece[n->role][piece] = (long)tensor;
        if (weight && (layer->pack == SWIGLU_PACK_BY_SHAPE || n->pack != SWIGLU_PACK_NEVER)) layer->pack = n->pack;
        return;
    }
    if (name->counts) swiglu_layer_add_oddity(layer, hf_oddity(name->rest), tensor);
}

static void hf_expert(const void *ctx, const char *rest, struct swiglu_expert_part *part) {
    const struct swiglu_hf_naming *naming = ctx;
    const struct hf_group *group = hf_groups, *end = hf_groups + sizeof hf_groups / sizeof hf_groups[0];
    while (group < end && !swiglu_starts(rest, group->start)) group++;
    if (group == end) return;
    const char *after = rest + strlen(group->start);
    bool one = group->who == HF_SHARED;
    part->kind = SWIGLU_PART_STRANGE;
    if (one) {
        part->expert = SWIGLU_EXPERT_SHARED;
    } else {
        one = swiglu_expert_number(after, part, &after);
    }
    const bool stacked = !one && naming->family && swiglu_hf_is_stacked(naming->family->family.architecture) &&
                         group->scheme == SWIGLU_SCHEME_PROJ;
    for (size_t i = 0; i < sizeof hf_experts / sizeof hf_experts[0]; i++) {
        const struct hf_name *n = &hf_experts[i];
        const int piece = one ? hf_piece_of(naming, after, n->base) : SWIGLU_PIECE_WEIGHT;
        if (n->scheme != group->scheme) continue;
        if (!(stacked && hf_is(after, n->base, "")) && !(one && piece != SWIGLU_PIECE_NONE)) continue;
        if (piece == SWIGLU_PIECE_WITHOUT) {
            part->kind = SWIGLU_PART_NONE;
            continue;
        }
        part->piece = piece;
        part->role = n->role, part->pack = n->pack;
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
        for (size_t k = 0; k < N_NAMES; k++)
            counts[hf_names[k].scheme] += swiglu_hf_is_numbers(hf_piece_of(naming, name.rest, hf_names[k].base));
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
                                       .ctx = &naming, .facts = swiglu_hf_facts, .quant = swiglu_hf_quant,
                                       .role_name = hf_role_name};
    hf_labels(&rules, &naming);
    TRY(swiglu_hf_promises(&rules, error));
    TRY(swiglu_layers_find(layers, &rules, &names, error));
    const enum swiglu_status status = swiglu_hf_compare(&rules, layers->n_seen, error);
    if (status != SWIGLU_OK) swiglu_layers_free(layers);
    return status;
}
