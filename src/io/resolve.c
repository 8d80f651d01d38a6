/* SPDX-License-Identifier: Apache-2.0 */
/* One layer: its tensors, the family's row and the metadata make a description, or a reason why there is none. */
#include <math.h>
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
    const struct swiglu_layer_rules *file;
    struct swiglu_error *error;
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
    return swiglu_names_at(&c->file->g->names, (size_t)tensor);
}

static void layer_explain_oddity(const struct layer_case *c) {
    static const char *const why[] = {
        [SWIGLU_ODD_EXPERTS] = "a mixture of experts is not evaluated",
        [SWIGLU_ODD_OLD_EXPERTS] = "one tensor per expert, as early Mixtral files name them; not evaluated",
        [SWIGLU_ODD_STACK] = "only the layers called blk.N are evaluated",
        [SWIGLU_ODD_SUB_NORM] = "a norm stands between the products (sub-norm)",
        [SWIGLU_ODD_ACT_SCALE] = "the hidden values are divided by activation scales",
        [SWIGLU_ODD_UNKNOWN] = "not understood, so the block might be more than its three products",
    };
    layer_leave(c->layer, "tensor %.80s: %s", layer_tensor_name(c, c->layer->odd_tensor), why[c->layer->oddity]);
}

static SW_PRINTF(3, 4) enum swiglu_status layer_bad(const struct layer_case *c, uint64_t at, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return swiglu_gguf_fail(c->file->g, c->error, SWIGLU_E_FORMAT, at, "%s", text);
}

/* ---- shapes ---- */

/* A weight's rows and columns: GGUF lists the fastest dimension first. No tensor: 0 x 0. */
static enum swiglu_status layer_weight(const struct layer_case *c, enum swiglu_role role, struct layer_widths *w) {
    const long i = c->layer->tensor[role];
    *w = (struct layer_widths){0, 0};
    if (i < 0) return SWIGLU_OK;
    const struct swiglu_tensor *t = &c->file->g->tensors[i];
    if (t->n_dims == 0 || t->n_dims > SWIGLU_LIMIT_WEIGHT_DIMS)
        return layer_bad(c, t->entry, "tensor %.80s n_dims %u: a weight has 1 to %d", layer_tensor_name(c, i),
                         t->n_dims, SWIGLU_LIMIT_WEIGHT_DIMS);
    for (uint32_t k = 0; k < t->n_dims; k++)
        if (t->dims[k] == 0)
            return layer_bad(c, t->entry, "tensor %.80s dims[%u] 0: a weight has at least 1", layer_tensor_name(c, i),
                             k);
    *w = (struct layer_widths){.rows = t->n_dims > 1 ? t->dims[1] : 1, .cols = t->dims[0]};
    return SWIGLU_OK;
}

/* The three weights fit together; sets widths and layout as the tensors show them. */
static enum swiglu_status layer_shapes(const struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    struct swiglu_model_block_info *info = &layer->info;
    struct layer_widths gate, up, down;
    TRY(layer_weight(c, SWIGLU_ROLE_GATE, &gate));
    TRY(layer_weight(c, SWIGLU_ROLE_UP, &up));
    TRY(layer_weight(c, SWIGLU_ROLE_DOWN, &down));
    const bool separate = layer->tensor[SWIGLU_ROLE_GATE] >= 0;
    const long up_tensor = layer->tensor[SWIGLU_ROLE_UP], down_tensor = layer->tensor[SWIGLU_ROLE_DOWN];
    if (separate && up_tensor >= 0 && (gate.rows != up.rows || gate.cols != up.cols))
        return layer_bad(c, c->file->g->tensors[up_tensor].entry,
                         "tensor blk.%zu.ffn_up rows %llu, ffn_gate rows %llu; columns %llu and %llu: must be equal",
                         info->layer, (ull)up.rows, (ull)gate.rows, (ull)up.cols, (ull)gate.cols);
    info->kind = separate ? "gated" : "plain";
    if (up_tensor < 0 || down_tensor < 0) {
        layer_leave(layer, "tensor blk.%zu.%s.weight is missing", info->layer, up_tensor < 0 ? "ffn_up" : "ffn_down");
        return SWIGLU_OK;
    }
    const bool packed = !separate && up.rows % 2 == 0 && up.rows / 2 == down.cols;
    if (up.rows != down.cols && !packed)
        return layer_bad(c, c->file->g->tensors[down_tensor].entry,
                         "tensor blk.%zu.ffn_up rows %llu, ffn_down columns %llu: must be equal%s",
                         info->layer, (ull)up.rows, (ull)down.cols, separate ? "" : ", or twice as many");
    info->layout = separate ? SWIGLU_SEPARATE : packed ? SWIGLU_GATE_UP : SWIGLU_UNGATED;
    if (packed) info->kind = "gated";
    info->layout_name = separate ? "separate" : packed ? "gate|up" : "ungated";
    info->d_in = (size_t)up.cols, info->d_ff = (size_t)down.cols, info->d_out = (size_t)down.rows;
    return SWIGLU_OK;
}

/* Whether the family's blocks have this shape. */
static void layer_check_form(const struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    const int layout = layer->info.layout;
    if (!c->file->family) {
        if (layout == SWIGLU_GATE_UP)
            layer_leave(layer, "unknown architecture \"%.64s\": which half of ffn_up is the gate is unknown",
                        c->file->architecture);
        return;
    }
    static const char *const shape[] = {[SWIGLU_FORM_GATED] = "gated", [SWIGLU_FORM_PACKED] = "gated",
                                        [SWIGLU_FORM_PLAIN] = "plain", [SWIGLU_FORM_NONE] = "no feed-forward"};
    const enum swiglu_form form = c->file->family->form;
    const bool fits = layout == SWIGLU_SEPARATE  ? form == SWIGLU_FORM_GATED || form == SWIGLU_FORM_PACKED
                      : layout == SWIGLU_GATE_UP ? form == SWIGLU_FORM_PACKED
                                                 : form == SWIGLU_FORM_PLAIN;
    if (!fits)
        layer_leave(layer, "architecture %s has %s blocks, but the tensors of this one are those of layout %s",
                    c->file->architecture, shape[form], layer->info.layout_name);
}

/* <architecture>.<field> is the width that the tensors show; a list has one value per layer. */
static enum swiglu_status layer_check_width(const struct layer_case *c, const char *field, bool halved, size_t width,
                                            enum swiglu_role role) {
    char key[128];
    uint64_t value;
    snprintf(key, sizeof key, "%.64s.%s", c->file->architecture, field);
    const struct swiglu_kv *kv = swiglu_gguf_find(c->file->g, key);
    if (!kv) return SWIGLU_OK;
    if (!swiglu_gguf_integer(c->file->g, kv, kv->is_array ? c->layer->info.layer : 0, &value))
        return layer_bad(c, kv->offset, "%s: no width for layer %zu: type %u%s, %llu values", key, c->layer->info.layer,
                         kv->type, kv->is_array ? " array" : "", (ull)kv->count);
    if (value == (uint64_t)width || (halved && value / 2 == (uint64_t)width)) return SWIGLU_OK;
    return layer_bad(c, kv->offset, "%s %llu, but tensor %.80s shows %zu%s", key, (ull)value,
                     layer_tensor_name(c, c->layer->tensor[role]), width, halved ? " (or twice that)" : "");
}

static enum swiglu_status layer_check_widths(const struct layer_case *c) {
    const struct swiglu_model_block_info *info = &c->layer->info;
    if (!c->file->family) return SWIGLU_OK;
    TRY(layer_check_width(c, "embedding_length", false, info->d_in, SWIGLU_ROLE_UP));
    TRY(layer_check_width(c, "embedding_length", false, info->d_out, SWIGLU_ROLE_DOWN));
    const bool halved = c->file->family->extra == SWIGLU_HALF;
    return layer_check_width(c, "feed_forward_length", halved, info->d_ff, SWIGLU_ROLE_DOWN);
}

/* A bias is a vector as long as its weight has rows. */
static enum swiglu_status layer_check_bias(const struct layer_case *c, enum swiglu_role bias, enum swiglu_role weight) {
    const long i = c->layer->tensor[bias], of = c->layer->tensor[weight];
    if (i < 0) return SWIGLU_OK;
    if (of < 0) {
        layer_leave(c->layer, "tensor %.80s has no weight", layer_tensor_name(c, i));
        return SWIGLU_OK;
    }
    const struct swiglu_tensor *t = &c->file->g->tensors[i], *w = &c->file->g->tensors[of];
    const uint64_t rows = w->n_dims > 1 ? w->dims[1] : 1;
    if (t->n_dims != 1 || t->dims[0] != rows)
        return layer_bad(c, t->entry, "tensor %.80s n_dims %u, dims[0] %llu: must be one dimension of %llu",
                         layer_tensor_name(c, i), t->n_dims, (ull)t->dims[0], (ull)rows);
    if (!swiglu_dtype_is_float((int)t->type))
        layer_leave(c->layer, "tensor %.80s: type %s of a bias is not supported", layer_tensor_name(c, i),
                    swiglu_gguf_type_find(t->type)->name);
    return SWIGLU_OK;
}

static void layer_check_decoder(const struct layer_case *c, enum swiglu_role role) {
    const long i = c->layer->tensor[role];
    if (i >= 0 && !swiglu_dtype_find((int)c->file->g->tensors[i].type))
        layer_leave(c->layer, "tensor %.80s: type %s is not supported", layer_tensor_name(c, i),
                    swiglu_gguf_type_find(c->file->g->tensors[i].type)->name);
}

/* ---- activation ---- */

/* xIELU: the file has alpha_p and alpha_n before their softplus, and beta and eps, a value per layer. */
static void layer_xielu(const struct layer_case *c) {
    static const char *const key[4] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    struct swiglu_layer *layer = c->layer;
    double v[4];
    for (int i = 0; i < 4; i++) {
        const struct swiglu_kv *kv = swiglu_gguf_find(c->file->g, key[i]);
        if (!swiglu_gguf_real(c->file->g, kv, kv && kv->is_array ? layer->info.layer : 0, &v[i])) {
            layer_leave(layer, "metadata %s: no value for layer %zu", key[i], layer->info.layer);
            return;
        }
    }
    float *p = layer->info.act.param;
    p[0] = (float)log1p(exp(v[0]));
    p[1] = (float)(v[2] + log1p(exp(v[1])));
    p[2] = (float)v[2], p[3] = (float)v[3];
    snprintf(layer->source, sizeof layer->source, "metadata xielu.*");
}

/* Gemma 3n: layers with a finite scale subtract mean + scale * deviation of the row's gate values. */
static void layer_sparsity(const struct layer_case *c) {
    char key[96];
    double scale;
    snprintf(key, sizeof key, "%.64s.activation_sparsity_scale", c->file->architecture);
    if (!swiglu_gguf_real(c->file->g, swiglu_gguf_find(c->file->g, key), c->layer->info.layer, &scale)) {
        layer_leave(c->layer, "activation sparsity: metadata %s has no value for layer %zu", key, c->layer->info.layer);
    } else if (scale != -INFINITY) {
        layer_leave(c->layer, "activation sparsity: the gate is compared with statistics of its row (%s %g)", key,
                    scale);
    }
}

static enum swiglu_status layer_activation(const struct layer_case *c) {
    const char *const override = c->file->override;
    struct swiglu_layer *layer = c->layer;
    char key[96];
    snprintf(key, sizeof key, "%.64s.hidden_activation", c->file->architecture);
    const char *in_file = swiglu_gguf_text(c->file->g, swiglu_gguf_find(c->file->g, key));
    const char *name = override ? override : in_file ? in_file : c->file->family ? c->file->family->activation : NULL;
    if (!name) {
        if (c->file->architecture[0])
            layer_leave(layer, "unknown architecture \"%.64s\": activation unknown, use --activation",
                        c->file->architecture);
        else
            layer_leave(layer, "no general.architecture: activation unknown, use --activation");
        return SWIGLU_OK;
    }
    snprintf(layer->activation, sizeof layer->activation, "%.80s", name);
    if (override) {
        snprintf(layer->source, sizeof layer->source, "--activation");
    } else if (in_file) {
        snprintf(layer->source, sizeof layer->source, "metadata %.80s", key);
    } else {
        snprintf(layer->source, sizeof layer->source, "architecture %.64s", c->file->architecture);
    }
    if (swiglu_act_init(&layer->info.act, name)) {
        layer_leave(layer, "%s: activation \"%.64s\" is unknown, use --activation", layer->source, name);
        return SWIGLU_OK;
    }
    if (!override && c->file->family && c->file->family->extra == SWIGLU_XIELU) layer_xielu(c);
    if (c->file->family && c->file->family->extra == SWIGLU_SPARSITY) layer_sparsity(c);
    if (c->file->clamps && !override)
        layer_leave(layer, "metadata %.80s: clamps of gate and up are not read", c->file->clamps);
    const bool gated = layer->info.layout != SWIGLU_UNGATED;
    if (override && !layer->reason[0]) return swiglu_act_check(&layer->info.act, gated, c->error);
    if (swiglu_act_check(&layer->info.act, gated, NULL))
        layer_leave(layer, "%s: parameters out of range", layer->source);
    return SWIGLU_OK;
}

/* ---- the whole ---- */

static long layer_norm(const struct layer_case *c) {
    const long *t = c->layer->tensor;
    switch (c->file->family ? c->file->family->norm : SWIGLU_FFN_NORM) {
    case SWIGLU_FFN_NORM: return t[SWIGLU_ROLE_FFN_NORM];
    case SWIGLU_ATTN_NORM: return t[SWIGLU_ROLE_ATTN_NORM];
    case SWIGLU_POST_ATTN_NORM: return t[SWIGLU_ROLE_POST_ATTN_NORM];
    case SWIGLU_EITHER: return t[SWIGLU_ROLE_FFN_NORM] >= 0 ? t[SWIGLU_ROLE_FFN_NORM] : t[SWIGLU_ROLE_ATTN_NORM];
    case SWIGLU_NO_NORM: break;
    }
    return -1;
}

/* The norm is used as a vector of d_in; anything else is no norm of this block. */
static long layer_usable_norm(const struct layer_case *c) {
    const long i = layer_norm(c);
    if (i < 0) return -1;
    const struct swiglu_tensor *t = &c->file->g->tensors[i];
    const bool fits = t->n_dims == 1 && t->dims[0] == c->layer->info.d_in && swiglu_dtype_is_float((int)t->type);
    return fits ? i : -1;
}

static void layer_indices(const struct layer_case *c) {
    struct swiglu_model_block_info *info = &c->layer->info;
    const long *t = c->layer->tensor;
    const bool packed = info->layout == SWIGLU_GATE_UP;
    info->gate = packed ? t[SWIGLU_ROLE_UP] : t[SWIGLU_ROLE_GATE];
    info->up = packed ? -1 : t[SWIGLU_ROLE_UP];
    info->gate_bias = packed ? t[SWIGLU_ROLE_UP_BIAS] : t[SWIGLU_ROLE_GATE_BIAS];
    info->up_bias = packed ? -1 : t[SWIGLU_ROLE_UP_BIAS];
    info->down = t[SWIGLU_ROLE_DOWN], info->down_bias = t[SWIGLU_ROLE_DOWN_BIAS];
    info->norm = layer_usable_norm(c);
    for (int r = SWIGLU_ROLE_GATE; r <= SWIGLU_ROLE_DOWN_BIAS; r++)
        if (t[r] >= 0) info->weight_bytes += c->file->g->tensors[t[r]].bytes; /* no overflow: all in one file */
}

static enum swiglu_status layer_judge(const struct layer_case *c) {
    struct swiglu_layer *layer = c->layer;
    if (layer->oddity <= SWIGLU_ODD_STACK) {
        layer->info.kind = layer->oddity == SWIGLU_ODD_STACK ? "other stack" : "experts";
        layer_explain_oddity(c);
        return SWIGLU_OK;
    }
    TRY(layer_shapes(c));
    if (layer->oddity != SWIGLU_ODD_NONE) layer_explain_oddity(c);
    if (c->file->family && c->file->family->left_out)
        layer_leave(layer, "architecture %s: %s", c->file->architecture, c->file->family->left_out);
    if (!layer->info.d_ff) return SWIGLU_OK; /* a tensor is missing */
    TRY(layer_check_widths(c));
    layer_check_form(c);
    TRY(layer_check_bias(c, SWIGLU_ROLE_GATE_BIAS, SWIGLU_ROLE_GATE));
    TRY(layer_check_bias(c, SWIGLU_ROLE_UP_BIAS, SWIGLU_ROLE_UP));
    TRY(layer_check_bias(c, SWIGLU_ROLE_DOWN_BIAS, SWIGLU_ROLE_DOWN));
    for (int r = SWIGLU_ROLE_GATE; r <= SWIGLU_ROLE_DOWN; r++) layer_check_decoder(c, (enum swiglu_role)r);
    return layer_activation(c);
}

enum swiglu_status swiglu_layer_resolve(struct swiglu_layer *layer, const struct swiglu_layer_rules *rules,
                                        struct swiglu_error *error) {
    const struct layer_case c = {layer, rules, error};
    struct swiglu_model_block_info *info = &layer->info;
    info->struct_size = sizeof *info;
    info->act = swiglu_act_default();
    info->kind = info->layout_name = "";
    info->layout = SWIGLU_SEPARATE;
    TRY(layer_judge(&c));
    layer_indices(&c);
    info->usable = layer->reason[0] == 0;
    info->reason = layer->reason, info->activation = layer->activation, info->activation_source = layer->source;
    return SWIGLU_OK;
}
