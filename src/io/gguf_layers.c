/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/experts.h"

typedef unsigned long long ull;

const char *swiglu_gguf_architecture(const struct swiglu_gguf *g) {
    const char *text = swiglu_gguf_text(g, swiglu_gguf_find(g, "general.architecture"));
    return text ? text : "";
}

/* ---- names ---- */

static const struct { const char *rest; enum swiglu_role role; } gguf_roles[] = {
    {"ffn_gate.weight", SWIGLU_ROLE_GATE}, {"ffn_up.weight", SWIGLU_ROLE_UP}, {"ffn_down.weight", SWIGLU_ROLE_DOWN},
    {"ffn_gate.bias", SWIGLU_ROLE_GATE_BIAS}, {"ffn_up.bias", SWIGLU_ROLE_UP_BIAS},
    {"ffn_down.bias", SWIGLU_ROLE_DOWN_BIAS}, {"ffn_norm.weight", SWIGLU_ROLE_FFN_NORM},
    {"attn_norm.weight", SWIGLU_ROLE_ATTN_NORM}, {"post_attention_norm.weight", SWIGLU_ROLE_POST_ATTN_NORM},
};
enum { N_ROLES = sizeof gguf_roles / sizeof gguf_roles[0] };

/* What a tensor called ffn* says about its layer when it has no role. */
static enum swiglu_oddity gguf_oddity(const char *rest) {
    static const struct { const char *start; enum swiglu_oddity oddity; } known[] = {
        {"ffn_gate_inp", SWIGLU_ODD_EXPERTS}, {"ffn_latent", SWIGLU_ODD_EXPERTS}, {"ffn_norm_exps", SWIGLU_ODD_EXPERTS},
        {"ffn_sub_norm", SWIGLU_ODD_SUB_NORM}, {"ffn_act", SWIGLU_ODD_ACT_SCALE}, {"ffn.act", SWIGLU_ODD_ACT_SCALE},
        {"ffn.scales", SWIGLU_ODD_ACT_SCALE}, {"act_scales", SWIGLU_ODD_ACT_SCALE}, {"ffn_norm.", SWIGLU_ODD_NONE},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (swiglu_starts(rest, known[i].start)) return known[i].oddity;
    if (strstr(rest, "exps") || strstr(rest, "shexp")) return SWIGLU_ODD_EXPERTS;
    const char *dot = strchr(rest, '.'); /* ffn_down.3.weight: the fourth expert in the naming of early Mixtral files */
    return dot[1] >= '0' && dot[1] <= '9' ? SWIGLU_ODD_OLD_EXPERTS : SWIGLU_ODD_UNKNOWN;
}

/* [STACK.]blk.LAYER.REST; only the layers called blk.N are evaluated, not those of enc.blk.N, v.blk.N, ... */
static enum swiglu_name_kind gguf_name(const void *ctx, const char *name, struct swiglu_layer_name *out) {
    (void)ctx;
    const char *blk = strstr(name, "blk.");
    if (!blk || (blk != name && blk[-1] != '.')) return SWIGLU_NAME_OTHER;
    *out = (struct swiglu_layer_name){.digits = blk + 4, .other_stack = blk != name};
    const enum swiglu_name_kind kind = swiglu_layer_number(out);
    if (kind == SWIGLU_NAME_OTHER && strstr(out->digits, ".ffn")) return SWIGLU_NAME_BAD_NUMBER;
    if (kind != SWIGLU_NAME_LAYER) return kind;
    out->counts = swiglu_starts(out->rest, "act_scales") ||
                  (swiglu_starts(out->rest, "ffn") && strchr(out->rest, '.') && !swiglu_starts(out->rest, "ffn_norm."));
    return SWIGLU_NAME_LAYER;
}

static void gguf_add(const void *ctx, struct swiglu_layer *layer, const struct swiglu_layer_name *name, size_t tensor) {
    (void)ctx;
    for (size_t r = 0; r < N_ROLES; r++) {
        if (strcmp(gguf_roles[r].rest, name->rest)) continue;
        layer->tensor[gguf_roles[r].role] = (long)tensor;
        return;
    }
    if (name->counts) swiglu_layer_add_oddity(layer, gguf_oddity(name->rest), tensor);
}

/* ffn_up_exps holds all experts, ffn_up_shexp the shared one; ffn_up.3 is the fourth expert in early Mixtral files. */
static void gguf_expert(const void *ctx, const char *rest, struct swiglu_expert_part *part) {
    static const struct { const char *name; enum swiglu_role role; enum swiglu_pack pack; } matrices[] = {
        {"ffn_gate_up", SWIGLU_ROLE_GATE, SWIGLU_PACK_GATE_UP}, {"ffn_gate", SWIGLU_ROLE_GATE, SWIGLU_PACK_NEVER},
        {"ffn_up", SWIGLU_ROLE_UP, SWIGLU_PACK_NEVER}, {"ffn_down", SWIGLU_ROLE_DOWN, SWIGLU_PACK_NEVER},
    };
    const char *after = rest;
    (void)ctx;
    if (swiglu_starts(rest, "ffn_gate_inp") || swiglu_starts(rest, "ffn_norm") || swiglu_starts(rest, "ffn_latent"))
        return; /* the router, and what stands before the experts */
    if (!swiglu_starts(rest, "act_scales") && !(swiglu_starts(rest, "ffn") && strchr(rest, '.'))) return;
    if (gguf_oddity(rest) == SWIGLU_ODD_UNKNOWN && !strstr(rest, "exp")) return; /* of a dense block */
    part->kind = SWIGLU_PART_STRANGE;
    if (strstr(rest, "shexp")) part->expert = SWIGLU_EXPERT_SHARED;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        if (!swiglu_starts(rest, matrices[i].name)) continue;
        const char *end = rest + strlen(matrices[i].name);
        part->role = matrices[i].role, part->pack = matrices[i].pack;
        if (!strcmp(end, "_exps.weight")) part->kind = SWIGLU_PART_STACK;
        if (!strcmp(end, "_shexp.weight")) part->kind = SWIGLU_PART_ONE;
        if (*end == '.' && swiglu_expert_number(end + 1, part, &after) && !strcmp(after, "weight"))
            part->kind = SWIGLU_PART_ONE;
        return;
    }
}

static bool gguf_role_name(const struct swiglu_layer_rules *rules, size_t layer, enum swiglu_role role, char *dst,
                           size_t n) {
    (void)rules;
    for (size_t r = 0; r < N_ROLES; r++)
        if (gguf_roles[r].role == role) return snprintf(dst, n, "blk.%zu.%s", layer, gguf_roles[r].rest) > 0;
    return false;
}

/* ---- metadata ---- */

struct gguf_context {
    const struct swiglu_gguf *g;
    const char *clamps; /* a key that tells of clamps, or NULL */
};

/* <architecture>.<field>; a list has one value per layer. */
static enum swiglu_status gguf_width(const struct swiglu_gguf *g, const char *field, size_t layer,
                                     struct swiglu_width_fact *fact, struct swiglu_error *error) {
    snprintf(fact->key, sizeof fact->key, "%.64s.%s", swiglu_gguf_architecture(g), field);
    const struct swiglu_kv *kv = swiglu_gguf_find(g, fact->key);
    fact->known = kv != NULL;
    if (!kv) return SWIGLU_OK;
    fact->offset = kv->offset;
    if (swiglu_gguf_integer(g, kv, kv->is_array ? layer : 0, &fact->value)) return SWIGLU_OK;
    return swiglu_catalog_fail(g->catalog, g->file, error, SWIGLU_E_FORMAT, kv->offset,
                               "%s: no width for layer %zu: type %u%s, %llu values", fact->key, layer, kv->type,
                               kv->is_array ? " array" : "", (ull)kv->count);
}

/* xIELU: the file has alpha_p and alpha_n before their softplus, and beta and eps, a value per layer. */
static void gguf_xielu(const struct swiglu_gguf *g, size_t layer, struct swiglu_facts *facts) {
    static const char *const key[4] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    double v[4];
    for (int i = 0; i < 4; i++) {
        const struct swiglu_kv *kv = swiglu_gguf_find(g, key[i]);
        if (!swiglu_gguf_real(g, kv, kv && kv->is_array ? layer : 0, &v[i])) {
            snprintf(facts->left_out, sizeof facts->left_out, "metadata %s: no value for layer %zu", key[i], layer);
            return;
        }
    }
    facts->param[0] = (float)log1p(exp(v[0]));
    facts->param[1] = (float)(v[2] + log1p(exp(v[1])));
    facts->param[2] = (float)v[2], facts->param[3] = (float)v[3];
    facts->has_param = true;
    facts->activation = "xielu";
    snprintf(facts->source, sizeof facts->source, "metadata xielu.*");
}

/* Gemma 3n: layers with a finite scale subtract mean + scale * deviation of the row's gate values. */
static void gguf_sparsity(const struct swiglu_gguf *g, size_t layer, struct swiglu_facts *facts) {
    char key[96];
    double scale;
    snprintf(key, sizeof key, "%.64s.activation_sparsity_scale", swiglu_gguf_architecture(g));
    if (!swiglu_gguf_real(g, swiglu_gguf_find(g, key), layer, &scale)) {
        snprintf(facts->left_out, sizeof facts->left_out, "activation sparsity: metadata %s has no value for layer %zu",
                 key, layer);
    } else if (scale != -INFINITY) {
        snprintf(facts->left_out, sizeof facts->left_out,
                 "activation sparsity: the gate is compared with statistics of its row (%s %g)", key, scale);
    }
}

/* Newer files carry clamps of gate and up in keys such as <architecture>.swiglu_clamp_exp. */
static const char *gguf_clamps(const struct swiglu_gguf *g) {
    for (size_t i = 0; i < g->keys.n; i++)
        if (strstr(swiglu_names_at(&g->keys, i), ".swiglu_")) return swiglu_names_at(&g->keys, i);
    return NULL;
}

static enum swiglu_status gguf_facts(const struct swiglu_layer_rules *rules, size_t layer, struct swiglu_facts *facts,
                                     struct swiglu_error *error) {
    const struct gguf_context *context = rules->ctx;
    const struct swiglu_gguf *g = context->g;
    const enum swiglu_extra extra = rules->family ? rules->family->extra : SWIGLU_NOTHING;
    char key[88];
    TRY(gguf_width(g, "embedding_length", layer, &facts->d_model, error));
    TRY(gguf_width(g, "feed_forward_length", layer, &facts->d_ff, error));
    snprintf(key, sizeof key, "%.64s.hidden_activation", swiglu_gguf_architecture(g));
    facts->activation = swiglu_gguf_text(g, swiglu_gguf_find(g, key));
    if (facts->activation) snprintf(facts->source, sizeof facts->source, "metadata %.80s", key);
    if (extra == SWIGLU_SPARSITY) gguf_sparsity(g, layer, facts);
    if (rules->override) return SWIGLU_OK;
    if (extra == SWIGLU_XIELU) gguf_xielu(g, layer, facts);
    if (context->clamps && !facts->left_out[0])
        snprintf(facts->left_out, sizeof facts->left_out, "metadata %.80s: clamps of gate and up are not read",
                 context->clamps);
    return SWIGLU_OK;
}

/* What the metadata say about the file as a whole. */
static enum swiglu_status gguf_check(const struct swiglu_gguf *g, const struct swiglu_family *family,
                                     struct swiglu_error *error) {
    static const char width[] = ".feed_forward_length";
    uint64_t value;
    const struct swiglu_kv *kv = swiglu_gguf_find(g, "general.architecture");
    if (kv && !swiglu_gguf_text(g, kv))
        return swiglu_catalog_fail(g->catalog, g->file, error, SWIGLU_E_FORMAT, kv->offset,
                                   "general.architecture type %u%s: must be a string of up to %d bytes", kv->type,
                                   kv->is_array ? " array" : "", SWIGLU_LIMIT_KEPT);
    for (size_t i = 0; i < g->keys.n; i++) {
        const char *name = swiglu_names_at(&g->keys, i);
        const size_t n = strlen(name);
        if (n < sizeof width || strcmp(name + n - (sizeof width - 1), width) || g->kvs[i].is_array) continue;
        if (swiglu_gguf_integer(g, &g->kvs[i], 0, &value) && value == 0 &&
            !(family && family->form == SWIGLU_FORM_NONE))
            return swiglu_catalog_fail(g->catalog, g->file, error, SWIGLU_E_FORMAT, g->kvs[i].offset,
                                       "%.80s 0: must be at least 1", name);
    }
    return SWIGLU_OK;
}

static enum swiglu_status gguf_check_count(const struct swiglu_gguf *g, uint64_t n_seen, struct swiglu_error *error) {
    uint64_t value;
    char key[96];
    snprintf(key, sizeof key, "%.64s.block_count", swiglu_gguf_architecture(g));
    const struct swiglu_kv *kv = swiglu_gguf_find(g, key);
    if (!n_seen || !swiglu_gguf_integer(g, kv, 0, &value) || value == n_seen) return SWIGLU_OK;
    return swiglu_catalog_warn(g->catalog, g->file, error, kv->offset,
                               "%s %llu, but the tensors show %llu layers; the tensors decide", key, (ull)value,
                               (ull)n_seen);
}

enum swiglu_status swiglu_gguf_layers(struct swiglu_layers *layers, const struct swiglu_gguf *g, const char *override,
                                      bool experts, struct swiglu_error *error) {
    static const struct swiglu_naming naming = {.parse = gguf_name, .add = gguf_add, .expert = gguf_expert};
    const struct gguf_context context = {g, gguf_clamps(g)};
    const char *architecture = swiglu_gguf_architecture(g);
    struct swiglu_layer_rules rules = {.catalog = g->catalog, .family = swiglu_family_find(architecture),
                                       .override = override, .experts = experts, .ctx = &context, .facts = gguf_facts,
                                       .role_name = gguf_role_name};
    snprintf(rules.label, sizeof rules.label, "architecture %.64s", architecture);
    if (architecture[0]) {
        snprintf(rules.unknown, sizeof rules.unknown, "unknown architecture \"%.64s\"", architecture);
    } else {
        snprintf(rules.unknown, sizeof rules.unknown, "no general.architecture");
    }
    TRY(gguf_check(g, rules.family, error));
    TRY(swiglu_layers_find(layers, &rules, &naming, error));
    const enum swiglu_status status = gguf_check_count(g, layers->n_seen, error);
    if (status != SWIGLU_OK) swiglu_layers_free(layers);
    return status;
}
