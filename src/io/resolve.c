/* SPDX-License-Identifier: Apache-2.0 */
/* One layer: its tensors, the family's row and the metadata make a description, or a reason why there is none. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/act.h"
#include "dtype/dtype.h"
#include "io/layers.h"

typedef unsigned long long ull;

struct layer_widths { uint64_t rows, cols; };

/* The layer and what it is judged by. */
struct layer_case {
    struct swiglu_layer *layer;
    const struct swiglu_layer_rules *rules;
    struct swiglu_error *error;
    struct swiglu_facts facts;
};

/* The block is left out; the first reason stays. */
static SW_PRINTF(2, 3) void layer_leave(struct swiglu_layer *layer, const char *format, ...) {
    if (layer->reason[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(layer->reason, sizeof layer->reason, format, args);
    va_end(args);
}

static const char *layer_tensor_name(const struct layer_case *c, long tensor) {
    return swiglu_names_at(&c->rules->catalog->names, (size_t)tensor);
}

static const struct swiglu_tensor *layer_tensor(const struct layer_case *c, long tensor) {
    return &c->rules->catalog->tensors[tensor];
}

static void layer_explain_oddity(const struct layer_case *c) {
    static const char *const why[] = {
        [SWIGLU_ODD_EXPERTS] = "a mixture of experts is not routed; --experts evaluates each of them alone",
        [SWIGLU_ODD_OLD_EXPERTS] = ("one tensor per expert, as early Mixtral files name them; --experts evaluates "
                                    "each of them alone"),
        [SWIGLU_ODD_STACK] = "a layer of another stack; only those of the language model (GGUF: blk.N) are evaluated",
        [SWIGLU_ODD_SUB_NORM] = "a norm stands between the products (sub-norm)",
        [SWIGLU_ODD_ACT_SCALE] = "the hidden values are divided by activation scales",
        [SWIGLU_ODD_UNKNOWN] = "not understood, so the block might be more than its three products",
    };
    const bool stranger = !c->rules->family && c->layer->oddity == SWIGLU_ODD_UNKNOWN;
    layer_leave(c->layer, "%s%stensor %.80s: %s", stranger ? c->rules->unknown : "", stranger ? ": " : "",
                layer_tensor_name(c, c->layer->odd_tensor), why[c->layer->oddity]);
}

/* A tensor's entry in its header is wrong. */
static SW_PRINTF(3, 4) enum swiglu_status layer_bad(const struct layer_case *c, long tensor, const char *format, ...) {
    char text[384];
    const struct swiglu_tensor *t = layer_tensor(c, tensor);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return swiglu_catalog_fail(c->rules->catalog, t->file, c->error, SWIGLU_E_FORMAT, t->entry, "tensor %s", text);
}

/* ---- shapes ---- */

/* A weight's rows (outputs) and columns (inputs). No tensor: 0 x 0. */
static enum swiglu_status layer_weight(const struct layer_case *c, enum swiglu_role role, struct layer_widths *w) {
    const long i = c->layer->tensor[role];
    *w = (struct layer_widths){0, 0};
    if (i < 0) return SWIGLU_OK;
    const struct swiglu_scaled *q = &c->layer->quant[role];
    if (q->kind) {
        *w = (struct layer_widths){.rows = q->rows, .cols = q->cols};
        return SWIGLU_OK;
    }
    const struct swiglu_tensor t = swiglu_layer_part(c->rules->catalog, c->layer, role);
    if (t.n_dims == 0 || t.n_dims > SWIGLU_LIMIT_WEIGHT_DIMS)
        return layer_bad(c, i, "%.80s n_dims %u: a weight has 1 to %d", layer_tensor_name(c, i), t.n_dims,
                         SWIGLU_LIMIT_WEIGHT_DIMS);
    for (int k = 0; k < t.n_dims; k++)
        if (t.dims[k] == 0)
            return layer_bad(c, i, "%.80s dims[%d] 0: a weight has at least 1", layer_tensor_name(c, i),
                             c->rules->catalog->fastest_first ? t.n_dims - 1 - k : k + c->layer->sliced[role]);
    *w = (struct layer_widths){.rows = t.n_dims > 1 ? t.dims[0] : 1, .cols = t.dims[t.n_dims - 1]};
    if (c->rules->in_out) *w = (struct layer_widths){.rows = w->cols, .cols = w->rows};
    return SWIGLU_OK;
}

static void layer_missing(const struct layer_case *c, enum swiglu_role role) {
    char name[160];
    const struct swiglu_layer_rules *r = c->rules;
    static const char *const matrix[] = {[SWIGLU_ROLE_GATE] = "gate", [SWIGLU_ROLE_UP] = "up",
                                         [SWIGLU_ROLE_DOWN] = "down"};
    if (c->layer->info.expert != SWIGLU_EXPERT_NONE) {
        layer_leave(c->layer, "the expert has no %s matrix", matrix[role]);
    } else if (r->role_name(r, c->layer->info.layer, role, name, sizeof name) ||
               (role == SWIGLU_ROLE_UP && r->role_name(r, c->layer->info.layer, SWIGLU_ROLE_GATE, name, sizeof name)))
        layer_leave(c->layer, "tensor %s is missing%s", name, r->catalog->indexed ? ": it is not in the index" : "");
}

/* Whether the names say that one tensor holds gate and up. */
static bool layer_is_named_packed(const struct swiglu_layer *layer) {
    return layer->pack == SWIGLU_PACK_GATE_UP || layer->pack == SWIGLU_PACK_UP_GATE;
}

/* The role of the first product's tensor that a block of any layout has. */
static enum swiglu_role layer_first(const struct swiglu_layer *layer) {
    return layer->tensor[SWIGLU_ROLE_UP] >= 0 ? SWIGLU_ROLE_UP : SWIGLU_ROLE_GATE;
}

/* Whether the first matrix holds gate and up, as the names or else the sizes tell. */
static enum swiglu_status layer_is_packed(const struct layer_case *c, struct layer_widths first,
                                          struct layer_widths down, bool *packed) {
    const struct swiglu_layer *layer = c->layer;
    const bool by_name = layer_is_named_packed(layer), separate = !by_name && layer->tensor[SWIGLU_ROLE_GATE] >= 0;
    const bool twice = first.rows % 2 == 0 && first.rows / 2 == down.cols;
    const long first_tensor = layer->tensor[layer_first(layer)], down_tensor = layer->tensor[SWIGLU_ROLE_DOWN];
    *packed = by_name || (!separate && layer->pack == SWIGLU_PACK_BY_SHAPE && twice);
    if (*packed ? twice : first.rows == down.cols) return SWIGLU_OK;
    return layer_bad(c, down_tensor, "%.80s columns %llu, %.80s rows %llu: must be %s", layer_tensor_name(c, down_tensor),
                     (ull)down.cols, layer_tensor_name(c, first_tensor), (ull)first.rows,
                     by_name ? "half as many" : separate || layer->pack ? "equal" : "equal, or half as many");
}

/* A tensor that is called up and holds gate and up is the layer's gate, as in every description. */
static void layer_up_is_gate(struct swiglu_layer *layer) {
    const enum swiglu_role from[2] = {SWIGLU_ROLE_UP, SWIGLU_ROLE_UP_BIAS}, to[2] = {SWIGLU_ROLE_GATE, SWIGLU_ROLE_GATE_BIAS};
    for (int i = 0; i < 2; i++) {
        layer->tensor[to[i]] = layer->tensor[from[i]], layer->sliced[to[i]] = layer->sliced[from[i]];
        layer->tensor[from[i]] = -1, layer->sliced[from[i]] = false;
    }
}

static void layer_set_layout(struct swiglu_layer *layer, bool packed) {
    static const char *const names[] = {[SWIGLU_SEPARATE] = "separate", [SWIGLU_GATE_UP] = "gate|up",
                                        [SWIGLU_UP_GATE] = "up|gate", [SWIGLU_UNGATED] = "ungated"};
    struct swiglu_model_block_info *info = &layer->info;
    if (packed && !layer_is_named_packed(layer)) layer_up_is_gate(layer);
    info->layout = !packed ? layer->tensor[SWIGLU_ROLE_GATE] >= 0 ? SWIGLU_SEPARATE : SWIGLU_UNGATED
                   : layer->pack == SWIGLU_PACK_UP_GATE ? SWIGLU_UP_GATE : SWIGLU_GATE_UP;
    info->layout_name = names[info->layout];
    if (packed) info->kind = "gated";
}

/* The weights fit together; sets widths and layout as the tensors show them. */
static enum swiglu_status layer_shapes(const struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    struct swiglu_model_block_info *info = &layer->info;
    struct layer_widths gate, up, down;
    bool packed;
    TRY(layer_weight(c, SWIGLU_ROLE_GATE, &gate));
    TRY(layer_weight(c, SWIGLU_ROLE_UP, &up));
    TRY(layer_weight(c, SWIGLU_ROLE_DOWN, &down));
    const long g = layer->tensor[SWIGLU_ROLE_GATE], u = layer->tensor[SWIGLU_ROLE_UP], d = layer->tensor[SWIGLU_ROLE_DOWN];
    const bool by_name = layer_is_named_packed(layer), has_first = u >= 0 || by_name;
    info->kind = g >= 0 ? "gated" : u < 0 && d < 0 ? "unknown" : "plain";
    if (by_name && u >= 0) {
        layer_leave(layer, "tensor %.80s stands beside %.80s, which holds up as well", layer_tensor_name(c, u),
                    layer_tensor_name(c, g));
        return SWIGLU_OK;
    }
    if (g >= 0 && u >= 0 && (gate.rows != up.rows || gate.cols != up.cols))
        return layer_bad(c, u, "%.80s rows %llu, %.80s rows %llu; columns %llu and %llu: must be equal",
                         layer_tensor_name(c, u), (ull)up.rows, layer_tensor_name(c, g), (ull)gate.rows, (ull)up.cols,
                         (ull)gate.cols);
    if (!has_first) layer_missing(c, SWIGLU_ROLE_UP);
    if (d < 0) layer_missing(c, SWIGLU_ROLE_DOWN);
    if (!has_first || d < 0) return SWIGLU_OK;
    const struct layer_widths first = by_name ? gate : up;
    TRY(layer_is_packed(c, first, down, &packed));
    layer_set_layout(layer, packed);
    info->d_in = (size_t)first.cols, info->d_ff = (size_t)down.cols, info->d_out = (size_t)down.rows;
    return SWIGLU_OK;
}

/* Whether the family's blocks have this shape. */
static void layer_check_form(const struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    const struct swiglu_family *family = c->rules->family;
    const int layout = layer->info.layout;
    const bool packed = layout == SWIGLU_GATE_UP || layout == SWIGLU_UP_GATE;
    if (!family) {
        if (packed)
            layer_leave(layer, "%s: which half of %.80s is the gate is unknown", c->rules->unknown,
                        layer_tensor_name(c, layer->tensor[SWIGLU_ROLE_GATE]));
        return;
    }
    static const char *const shape[] = {[SWIGLU_FORM_GATED] = "gated", [SWIGLU_FORM_PACKED] = "gated",
                                        [SWIGLU_FORM_PLAIN] = "plain", [SWIGLU_FORM_NONE] = "no feed-forward"};
    const enum swiglu_mlp_form form = family->form;
    const bool expert = layer->info.expert != SWIGLU_EXPERT_NONE; /* a gated family may pack its experts alone */
    const bool fits = layout == SWIGLU_SEPARATE ? form == SWIGLU_FORM_GATED || form == SWIGLU_FORM_PACKED
                      : packed ? form == SWIGLU_FORM_PACKED || (expert && form == SWIGLU_FORM_GATED)
                                                : form == SWIGLU_FORM_PLAIN;
    if (form == SWIGLU_FORM_GATED && layout == SWIGLU_UNGATED && layer->pack != SWIGLU_PACK_BY_SHAPE)
        layer_missing(c, SWIGLU_ROLE_GATE);
    if (!fits)
        layer_leave(layer, "%s has %s blocks, but the tensors of this one are those of layout %s", c->rules->label,
                    shape[form], layer->info.layout_name);
}

/* The width in the metadata is the one that the tensors show. */
static enum swiglu_status layer_check_width(const struct layer_case *c, const struct swiglu_width_fact *fact,
                                            bool halved, size_t width, enum swiglu_role role) {
    if (!fact->known || fact->value == (uint64_t)width || (halved && fact->value / 2 == (uint64_t)width))
        return SWIGLU_OK;
    const char *note = halved                                       ? " (or twice that)"
                       : role == SWIGLU_ROLE_DOWN && fact->value / 2 == width ? " (twice that would count gate and up)"
                                                                    : "";
    return swiglu_catalog_fail(c->rules->catalog, fact->file, c->error, SWIGLU_E_FORMAT, fact->offset,
                               "%s %llu, but tensor %.80s shows %zu%s", fact->key, (ull)fact->value,
                               layer_tensor_name(c, c->layer->tensor[role]), width, note);
}

static enum swiglu_status layer_check_widths(const struct layer_case *c) {
    const struct swiglu_model_block_info *info = &c->layer->info;
    const struct swiglu_family *family = c->rules->family;
    if (!family) return SWIGLU_OK;
    TRY(layer_check_width(c, &c->facts.d_model, false, info->d_in, layer_first(c->layer)));
    TRY(layer_check_width(c, &c->facts.d_model, false, info->d_out, SWIGLU_ROLE_DOWN));
    if (info->expert != SWIGLU_EXPERT_NONE) return SWIGLU_OK; /* the hidden width is that of dense blocks */
    return layer_check_width(c, &c->facts.d_ff, family->extra == SWIGLU_HALF, info->d_ff, SWIGLU_ROLE_DOWN);
}

/* A bias is a vector as long as its weight has rows. */
static enum swiglu_status layer_check_bias(const struct layer_case *c, enum swiglu_role bias, enum swiglu_role weight) {
    const long i = c->layer->tensor[bias];
    struct layer_widths w;
    if (i < 0) return SWIGLU_OK;
    if (c->layer->tensor[weight] < 0) {
        layer_leave(c->layer, "tensor %.80s has no weight", layer_tensor_name(c, i));
        return SWIGLU_OK;
    }
    TRY(layer_weight(c, weight, &w));
    const struct swiglu_tensor *t = layer_tensor(c, i);
    if (t->n_dims != 1 || t->dims[0] != w.rows)
        return layer_bad(c, i, "%.80s n_dims %u, dims[0] %llu: must be one dimension of %llu", layer_tensor_name(c, i),
                         t->n_dims, (ull)t->dims[0], (ull)w.rows);
    if (!swiglu_dtype_is_float((int)t->type))
        layer_leave(c->layer, "tensor %.80s: type %s of a bias is not supported", layer_tensor_name(c, i),
                    swiglu_tensor_type_name(t));
    return SWIGLU_OK;
}

/* ---- promises ---- */

/* What the metadata say of the layer's tensors and what is there. Of a part of a checkpoint it is only the reason why the
 * block is left out. */
static SW_PRINTF(3, 4) enum swiglu_status layer_broken(const struct layer_case *c, const struct swiglu_promise *promise,
                                                       const char *format, ...) {
    const struct swiglu_catalog *catalog = c->rules->catalog;
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!catalog->partial)
        return swiglu_catalog_fail(catalog, promise->file, c->error, SWIGLU_E_FORMAT, promise->offset, "%s, but %s",
                                   promise->words, text);
    layer_leave(c->layer, "%s, but in this file %s", promise->words, text);
    return SWIGLU_OK;
}

static enum swiglu_status layer_check_promises(const struct layer_case *c) {
    const long *t = c->layer->tensor;
    const struct swiglu_promise *biases = &c->rules->promise[SWIGLU_PROMISED_BIASES],
                                *gate = &c->rules->promise[SWIGLU_PROMISED_GATE];
    const bool gated = c->layer->info.layout != SWIGLU_UNGATED;
    if (c->layer->info.expert != SWIGLU_EXPERT_NONE) return SWIGLU_OK; /* they speak of dense blocks */
    if (gate->known && gate->there != gated)
        return layer_broken(c, gate, "tensor %.80s is that of a block %s a gate",
                            layer_tensor_name(c, t[layer_first(c->layer)]), gated ? "with" : "without");
    for (int r = SWIGLU_ROLE_GATE; biases->known && r <= SWIGLU_ROLE_DOWN; r++) {
        const long bias = t[r + SWIGLU_ROLE_GATE_BIAS - SWIGLU_ROLE_GATE];
        if (t[r] >= 0 && biases->there && bias < 0)
            return layer_broken(c, biases, "tensor %.80s has no bias beside it", layer_tensor_name(c, t[r]));
        /* GPTQ's files have biases, of zeros where none is meant */
        const bool of_gptq = c->layer->quant[r].kind == SWIGLU_SCALED_GPTQ;
        if (t[r] >= 0 && !biases->there && bias >= 0 && !of_gptq)
            return layer_broken(c, biases, "there is a tensor %.80s", layer_tensor_name(c, bias));
    }
    return SWIGLU_OK;
}

static enum swiglu_status layer_check_shared(const struct layer_case *c) {
    const struct swiglu_promise *shared = &c->rules->promise[SWIGLU_PROMISED_SHARED];
    const long there = c->layer->shared;
    if (!shared->known || shared->there == (there >= 0)) return SWIGLU_OK;
    if (there >= 0) return layer_broken(c, shared, "there is a tensor %.80s", layer_tensor_name(c, there));
    return layer_broken(c, shared, "beside tensor %.80s there is none of a shared expert",
                        layer_tensor_name(c, c->layer->odd_tensor));
}

static void layer_check_decoder(const struct layer_case *c, enum swiglu_role role) {
    const long i = c->layer->tensor[role];
    if (i >= 0 && !c->layer->quant[role].kind && !swiglu_dtype_find((int)layer_tensor(c, i)->type))
        layer_leave(c->layer, "tensor %.80s: type %s is not supported", layer_tensor_name(c, i),
                    swiglu_tensor_type_name(layer_tensor(c, i)));
}

/* ---- activation ---- */

/* Some configs name the gated unit as a whole. */
static enum swiglu_status layer_act_init(struct swiglu_act *act, const char *name, bool gated) {
    static const char *const units[][2] = {{"swiglu", "silu"}, {"geglu", "gelu"}, {"reglu", "relu"}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (gated && !strcmp(units[i][0], name)) name = units[i][1];
    return swiglu_act_init(act, name);
}

static enum swiglu_status layer_activation(const struct layer_case *c) {
    const struct swiglu_layer_rules *rules = c->rules;
    const struct swiglu_facts *facts = &c->facts;
    const char *const override = rules->override, *const by_family = rules->family ? rules->family->activation : NULL;
    struct swiglu_layer *layer = c->layer;
    const bool gated = layer->info.layout != SWIGLU_UNGATED;
    const char *name = override ? override : facts->activation ? facts->activation : by_family;
    if (!name) {
        layer_leave(layer, "%s: activation unknown, use --activation", rules->unknown);
        return SWIGLU_OK;
    }
    snprintf(layer->activation, sizeof layer->activation, "%.80s", name);
    snprintf(layer->source, sizeof layer->source, "%s",
             override ? "--activation" : facts->activation ? facts->source : rules->label);
    if (layer_act_init(&layer->info.act, name, gated)) {
        layer_leave(layer, "%s: activation \"%.64s\" is unknown, use --activation", layer->source, name);
        return SWIGLU_OK;
    }
    if (facts->has_param) memcpy(layer->info.act.param, facts->param, sizeof facts->param);
    if (facts->left_out[0]) layer_leave(layer, "%s", facts->left_out);
    if (override && !layer->reason[0]) return swiglu_act_check(&layer->info.act, gated, c->error);
    if (swiglu_act_check(&layer->info.act, gated, NULL))
        layer_leave(layer, "%s: parameters out of range", layer->source);
    return SWIGLU_OK;
}

/* ---- the whole ---- */

static long layer_norm(const struct layer_case *c) {
    const long *t = c->layer->tensor;
    switch (c->rules->family ? c->rules->family->norm : SWIGLU_FFN_NORM) {
    case SWIGLU_FFN_NORM: return t[SWIGLU_ROLE_FFN_NORM];
    case SWIGLU_ATTN_NORM: return t[SWIGLU_ROLE_ATTN_NORM];
    case SWIGLU_POST_ATTN_NORM: return t[SWIGLU_ROLE_POST_ATTN_NORM];
    case SWIGLU_EITHER:
        for (int r = SWIGLU_ROLE_FFN_NORM; r <= SWIGLU_ROLE_POST_ATTN_NORM; r++)
            if (t[r] >= 0) return t[r];
        break;
    case SWIGLU_NO_NORM: break;
    }
    return -1;
}

/* The norm is used as a vector of d_in; anything else is no norm of this block. */
static long layer_usable_norm(const struct layer_case *c) {
    const long i = layer_norm(c);
    if (i < 0) return -1;
    const struct swiglu_tensor *t = layer_tensor(c, i);
    const bool fits = t->n_dims == 1 && t->dims[0] == c->layer->info.d_in && swiglu_dtype_is_float((int)t->type);
    return fits ? i : -1;
}

static void layer_indices(const struct layer_case *c) {
    struct swiglu_model_block_info *info = &c->layer->info;
    const long *t = c->layer->tensor;
    info->gate = t[SWIGLU_ROLE_GATE], info->gate_bias = t[SWIGLU_ROLE_GATE_BIAS];
    info->up = t[SWIGLU_ROLE_UP], info->up_bias = t[SWIGLU_ROLE_UP_BIAS];
    info->down = t[SWIGLU_ROLE_DOWN], info->down_bias = t[SWIGLU_ROLE_DOWN_BIAS];
    info->norm = layer_usable_norm(c);
    info->in_out = c->rules->in_out;
    for (int r = SWIGLU_ROLE_GATE; r <= SWIGLU_ROLE_DOWN_BIAS; r++)
        if (t[r] >= 0) /* no overflow: all in files that are there */
            info->weight_bytes += swiglu_layer_part(c->rules->catalog, c->layer, (enum swiglu_role)r).bytes;
    for (int r = 0; r < 3; r++)
        for (int p = 0; p < SWIGLU_PIECES; p++)
            if (c->layer->piece[r][p] >= 0 && c->layer->piece[r][p] != t[r])
                info->weight_bytes += layer_tensor(c, c->layer->piece[r][p])->bytes;
}

static enum swiglu_status layer_judge(struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    const struct swiglu_layer_rules *rules = c->rules;
    if (layer->oddity <= SWIGLU_ODD_STACK) {
        layer->info.kind = layer->oddity == SWIGLU_ODD_STACK ? "other stack" : "experts";
        layer_explain_oddity(c);
        return layer->oddity == SWIGLU_ODD_EXPERTS ? layer_check_shared(c) : SWIGLU_OK;
    }
    for (int r = SWIGLU_ROLE_GATE; r <= SWIGLU_ROLE_DOWN && rules->quant; r++)
        if (layer->tensor[r] >= 0) TRY(rules->quant(rules, layer, (enum swiglu_role)r, c->error));
    layer->info.kind = "quantised";
    if (!layer->reason[0]) TRY(layer_shapes(c));
    if (layer->info.expert != SWIGLU_EXPERT_NONE)
        layer->info.kind = layer->info.expert == SWIGLU_EXPERT_SHARED ? "shared expert" : "expert";
    if (layer->oddity != SWIGLU_ODD_NONE) layer_explain_oddity(c);
    if (rules->family && rules->family->left_out) layer_leave(layer, "%s: %s", rules->label, rules->family->left_out);
    if (!layer->info.d_ff) return SWIGLU_OK; /* a tensor is missing */
    TRY(rules->facts(rules, layer->info.layer, &c->facts, c->error));
    TRY(layer_check_widths(c));
    layer_check_form(c);
    TRY(layer_check_promises(c));
    TRY(layer_check_bias(c, SWIGLU_ROLE_GATE_BIAS, SWIGLU_ROLE_GATE));
    TRY(layer_check_bias(c, SWIGLU_ROLE_UP_BIAS, SWIGLU_ROLE_UP));
    TRY(layer_check_bias(c, SWIGLU_ROLE_DOWN_BIAS, SWIGLU_ROLE_DOWN));
    for (int r = SWIGLU_ROLE_GATE; r <= SWIGLU_ROLE_DOWN; r++) layer_check_decoder(c, (enum swiglu_role)r);
    return layer_activation(c);
}

enum swiglu_status swiglu_layer_resolve(struct swiglu_layer *layer, const struct swiglu_layer_rules *rules,
                                        struct swiglu_error *error) {
    struct layer_case c = {.layer = layer, .rules = rules, .error = error};
    struct swiglu_model_block_info *info = &layer->info;
    info->struct_size = sizeof *info;
    info->act = swiglu_act_default();
    info->kind = info->layout_name = "";
    info->storage = layer->storage;
    info->layout = SWIGLU_SEPARATE;
    TRY(layer_judge(&c));
    layer_indices(&c);
    info->usable = layer->reason[0] == 0;
    info->reason = layer->reason, info->activation = layer->activation, info->activation_source = layer->source;
    return SWIGLU_OK;
}
