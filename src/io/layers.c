/* SPDX-License-Identifier: Apache-2.0 */
#include "io/layers.h"

#include <string.h>

#include "base/alloc.h"
#include "io/experts.h"

enum { STACKS = 2, NO_SLOT = 0 }; /* the layers that are evaluated, and those of all other stacks */

enum swiglu_name_kind swiglu_layer_number(struct swiglu_layer_name *name) {
    const char *end = name->digits;
    uint64_t n = 0;
    for (; *end >= '0' && *end <= '9'; end++)
        if (n <= SWIGLU_LIMIT_LAYER) n = 10 * n + (uint64_t)(*end - '0');
    if (end == name->digits || *end != '.') return SWIGLU_NAME_OTHER;
    name->layer = (uint32_t)n;
    name->rest = end + 1;
    const bool leading_zero = *name->digits == '0' && end > name->digits + 1;
    return leading_zero || n > SWIGLU_LIMIT_LAYER ? SWIGLU_NAME_BAD_NUMBER : SWIGLU_NAME_LAYER;
}

static uint32_t *layers_slot(uint32_t *slots, const struct swiglu_layer_name *name) {
    return &slots[(name->other_stack ? SWIGLU_LIMIT_LAYER + 1 : 0) + name->layer];
}

/* Fills each slot with 1 + the layer's place in the list, in the order of the numbers. */
static enum swiglu_status layers_count(struct swiglu_layers *layers, const struct swiglu_catalog *c,
                                       const struct swiglu_naming *naming, uint32_t *slots,
                                       struct swiglu_error *error) {
    for (size_t i = 0; i < c->names.n; i++) {
        struct swiglu_layer_name name;
        const char *text = swiglu_names_at(&c->names, i);
        const enum swiglu_name_kind kind = naming->parse(naming->ctx, text, &name);
        if (kind == SWIGLU_NAME_BAD_NUMBER)
            return swiglu_catalog_fail(c, c->tensors[i].file, error, SWIGLU_E_FORMAT, c->tensors[i].entry,
                                       "tensor %.80s: layer number %.*s: limits 0 and %d, without leading zeros", text,
                                       (int)strcspn(name.digits, "."), name.digits, SWIGLU_LIMIT_LAYER);
        if (kind != SWIGLU_NAME_LAYER) continue;
        if (name.counts) *layers_slot(slots, &name) = 1;
        if (!name.other_stack && name.layer >= layers->n_seen) layers->n_seen = name.layer + 1;
    }
    for (size_t i = 0; i < STACKS * (SWIGLU_LIMIT_LAYER + 1); i++)
        if (slots[i]) slots[i] = (uint32_t)++layers->n;
    return SWIGLU_OK;
}

static void layers_fill(struct swiglu_layers *layers, const struct swiglu_catalog *c,
                        const struct swiglu_naming *naming, uint32_t *slots) {
    for (size_t i = 0; i < layers->n; i++) {
        for (int r = 0; r < SWIGLU_ROLES; r++) layers->at[i].tensor[r] = -1;
        layers->at[i].oddity = SWIGLU_ODD_NONE;
        layers->at[i].shared = -1;
        swiglu_layer_clear_pieces(&layers->at[i]);
        layers->at[i].info.expert = SWIGLU_EXPERT_NONE;
    }
    for (size_t i = 0; i < c->names.n; i++) {
        struct swiglu_layer_name name;
        if (naming->parse(naming->ctx, swiglu_names_at(&c->names, i), &name) != SWIGLU_NAME_LAYER) continue;
        const uint32_t slot = *layers_slot(slots, &name);
        if (slot == NO_SLOT) continue;
        struct swiglu_layer *layer = &layers->at[slot - 1];
        layer->info.layer = name.layer;
        if (!name.other_stack) {
            naming->add(naming->ctx, layer, &name, i);
            struct swiglu_expert_part part = {.expert = SWIGLU_EXPERT_NONE};
            naming->expert(naming->ctx, name.rest, &part);
            if (part.expert == SWIGLU_EXPERT_SHARED) layer->shared = (long)i;
        } else if (name.counts) {
            swiglu_layer_add_oddity(layer, SWIGLU_ODD_STACK, i);
        }
    }
}

static enum swiglu_status layers_no_memory(const struct swiglu_catalog *c, struct swiglu_error *error) {
    return swiglu_catalog_fail(c, 0, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory for the list of layers");
}

static enum swiglu_status layers_collect(struct swiglu_layers *layers, const struct swiglu_catalog *c,
                                         const struct swiglu_naming *naming, struct swiglu_error *error) {
    uint32_t *slots = swiglu_alloc_array(STACKS * (SWIGLU_LIMIT_LAYER + 1), sizeof *slots);
    if (!slots) return layers_no_memory(c, error);
    enum swiglu_status status = layers_count(layers, c, naming, slots, error);
    if (status == SWIGLU_OK) {
        layers->at = swiglu_alloc_array(layers->n, sizeof *layers->at);
        if (layers->at) {
            layers_fill(layers, c, naming, slots);
        } else {
            status = layers_no_memory(c, error);
        }
    }
    swiglu_free(slots);
    return status;
}

enum swiglu_status swiglu_layers_find(struct swiglu_layers *layers, const struct swiglu_layer_rules *rules,
                                      const struct swiglu_naming *naming, struct swiglu_error *error) {
    *layers = (struct swiglu_layers){0};
    enum swiglu_status status = layers_collect(layers, rules->catalog, naming, error);
    if (rules->experts && status == SWIGLU_OK) status = swiglu_experts_add(layers, rules->catalog, naming, error);
    for (size_t i = 0; i < layers->n && status == SWIGLU_OK; i++)
        status = swiglu_layer_resolve(&layers->at[i], rules, error);
    if (status != SWIGLU_OK) swiglu_layers_free(layers);
    return status;
}

void swiglu_layers_free(struct swiglu_layers *layers) {
    for (size_t i = 0; layers->at && i < layers->n; i++)
        for (int k = 0; k < 3; k++) swiglu_free(atomic_load(&layers->at[i].bias[k]));
    swiglu_free(layers->at);
    *layers = (struct swiglu_layers){0};
}

struct swiglu_tensor swiglu_layer_part(const struct swiglu_catalog *catalog, const struct swiglu_layer *layer,
                                       enum swiglu_role role) {
    struct swiglu_tensor t = catalog->tensors[layer->tensor[role]];
    if (!layer->sliced[role]) return t;
    t.bytes /= t.dims[0];
    t.offset += (uint64_t)layer->info.expert * t.bytes; /* less than dims[0] parts: inside the tensor */
    t.n_dims--;
    memmove(t.dims, t.dims + 1, t.n_dims * sizeof t.dims[0]);
    return t;
}
