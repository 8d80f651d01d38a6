/* SPDX-License-Identifier: Apache-2.0 */
/* The experts of a mixture as blocks of their own, listed behind the line of their layer. */
#include "io/experts.h"

#include <stdlib.h>

#include "base/alloc.h"

struct expert_key { uint32_t layer; int32_t expert; };

/* What each step over the tensors needs. */
struct expert_search {
    const struct swiglu_catalog *catalog;
    const struct swiglu_naming *naming;
    struct expert_key *keys; /* one per tensor and expert, then sorted and each once */
    size_t n;
};

bool swiglu_expert_number(const char *digits, struct swiglu_expert_part *part, const char **rest) {
    int32_t n = 0;
    const char *end = digits;
    for (; *end >= '0' && *end <= '9' && n <= SWIGLU_LIMIT_EXPERT; end++) n = 10 * n + (*end - '0');
    if (end == digits || *end != '.' || n > SWIGLU_LIMIT_EXPERT || (*digits == '0' && end > digits + 1)) return false;
    part->expert = n;
    *rest = end + 1;
    return true;
}

static bool experts_parse(const struct expert_search *s, size_t tensor, struct swiglu_layer_name *name,
                          struct swiglu_expert_part *part) {
    const struct swiglu_naming *naming = s->naming;
    const char *text = swiglu_names_at(&s->catalog->names, tensor);
    if (naming->parse(naming->ctx, text, name) != SWIGLU_NAME_LAYER || name->other_stack) return false;
    *part = (struct swiglu_expert_part){.kind = SWIGLU_PART_NONE, .expert = SWIGLU_EXPERT_NONE};
    naming->expert(naming->ctx, name->rest, part);
    return part->kind != SWIGLU_PART_NONE;
}

/* How many experts the tensor has a part of. One that concerns all of them adds none. */
static uint64_t experts_of(const struct expert_search *s, size_t tensor, const struct swiglu_expert_part *part) {
    const struct swiglu_tensor *t = &s->catalog->tensors[tensor];
    if (part->kind == SWIGLU_PART_STACK) return t->n_dims == SWIGLU_LIMIT_WEIGHT_DIMS + 1 ? t->dims[0] : 0;
    return part->expert != SWIGLU_EXPERT_NONE;
}

static int experts_compare(const void *a, const void *b) {
    const struct expert_key *p = a, *q = b;
    if (p->layer != q->layer) return p->layer < q->layer ? -1 : 1;
    return (p->expert > q->expert) - (p->expert < q->expert);
}

static enum swiglu_status experts_count(struct expert_search *s, struct swiglu_error *error) {
    uint64_t n = 0;
    struct swiglu_layer_name name;
    struct swiglu_expert_part part;
    for (size_t i = 0; i < s->catalog->names.n; i++) {
        if (!experts_parse(s, i, &name, &part)) continue;
        const uint64_t more = experts_of(s, i, &part);
        if (more > SWIGLU_LIMIT_EXPERT_PARTS - n)
            return swiglu_catalog_fail(s->catalog, s->catalog->tensors[i].file, error, SWIGLU_E_FORMAT,
                                       s->catalog->tensors[i].entry,
                                       "tensor %.80s: experts %llu: the limit for the weights of all experts is %d",
                                       swiglu_names_at(&s->catalog->names, i), (unsigned long long)more,
                                       SWIGLU_LIMIT_EXPERT_PARTS);
        n += more;
    }
    s->n = (size_t)n;
    return SWIGLU_OK;
}

static void experts_list(struct expert_search *s) {
    size_t n = 0;
    struct swiglu_layer_name name;
    struct swiglu_expert_part part;
    for (size_t i = 0; i < s->catalog->names.n; i++) {
        if (!experts_parse(s, i, &name, &part)) continue;
        const size_t more = (size_t)experts_of(s, i, &part);
        for (size_t e = 0; e < more; e++)
            s->keys[n++] = (struct expert_key){name.layer,
                                               part.kind == SWIGLU_PART_STACK ? (int32_t)e : part.expert};
    }
    if (!n) return;
    qsort(s->keys, n, sizeof *s->keys, experts_compare);
    s->n = 1;
    for (size_t i = 1; i < n; i++)
        if (experts_compare(&s->keys[i], &s->keys[s->n - 1])) s->keys[s->n++] = s->keys[i];
}

/* An expert's input is that of its layer, so is the norm before it. */
static void experts_begin(struct swiglu_layer *block, const struct swiglu_layer *line, struct expert_key key) {
    block->info.layer = key.layer;
    block->info.expert = key.expert;
    block->oddity = SWIGLU_ODD_NONE;
    block->pack = SWIGLU_PACK_NEVER;
    swiglu_layer_clear_pieces(block);
    for (int r = 0; r < SWIGLU_ROLES; r++) block->tensor[r] = r < SWIGLU_ROLE_FFN_NORM ? -1 : line->tensor[r];
}

/* The lines of the layers, each followed by its experts. */
static void experts_merge(const struct expert_search *s, const struct swiglu_layers *lines, struct swiglu_layer *at) {
    size_t k = 0, n = 0;
    for (size_t i = 0; i < lines->n; i++) {
        const struct swiglu_layer *line = &lines->at[i];
        at[n++] = *line;
        if (line->oddity == SWIGLU_ODD_STACK) continue;
        for (; k < s->n && s->keys[k].layer == line->info.layer; k++) experts_begin(&at[n++], line, s->keys[k]);
    }
}

/* Whether the tensor says something about this expert. */
static bool experts_concern(const struct expert_search *s, size_t tensor, const struct swiglu_expert_part *part,
                            int expert) {
    if (part->kind == SWIGLU_PART_STACK) return expert >= 0 && (uint64_t)expert < experts_of(s, tensor, part);
    return part->expert == SWIGLU_EXPERT_NONE || part->expert == expert;
}

static void experts_add_part(struct swiglu_layer *block, const struct swiglu_expert_part *part, size_t tensor) {
    long *slot = part->piece > SWIGLU_PIECE_QWEIGHT && part->kind != SWIGLU_PART_STRANGE
                     ? &block->piece[part->role][part->piece] : &block->tensor[part->role];
    if (part->kind == SWIGLU_PART_STRANGE || *slot >= 0) { /* a second tensor of one role: neither is sure */
        swiglu_layer_add_oddity(block, SWIGLU_ODD_UNKNOWN, tensor);
        return;
    }
    *slot = (long)tensor;
    if (part->kind == SWIGLU_PART_ONE) block->piece[part->role][part->piece] = (long)tensor;
    if (part->piece > SWIGLU_PIECE_QWEIGHT) return;
    block->sliced[part->role] = part->kind == SWIGLU_PART_STACK;
    if (part->role == SWIGLU_ROLE_GATE) block->pack = part->pack;
}

static void experts_fill(const struct expert_search *s, struct swiglu_layers *layers) {
    struct swiglu_layer_name name;
    struct swiglu_expert_part part;
    for (size_t i = 0; i < s->catalog->names.n; i++) {
        if (!experts_parse(s, i, &name, &part)) continue;
        size_t low = 0, high = layers->n; /* the first block of the layer */
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            const struct swiglu_layer *block = &layers->at[middle];
            if (block->oddity != SWIGLU_ODD_STACK && block->info.layer < name.layer) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for (; low < layers->n && layers->at[low].info.layer == name.layer; low++)
            if (layers->at[low].info.expert != SWIGLU_EXPERT_NONE &&
                experts_concern(s, i, &part, layers->at[low].info.expert))
                experts_add_part(&layers->at[low], &part, i);
    }
}

static enum swiglu_status experts_no_memory(const struct swiglu_catalog *c, struct swiglu_error *error) {
    return swiglu_catalog_fail(c, 0, error, SWIGLU_E_MEMORY, SWIGLU_NO_OFFSET, "out of memory for the list of experts");
}

enum swiglu_status swiglu_experts_add(struct swiglu_layers *layers, const struct swiglu_catalog *catalog,
                                      const struct swiglu_naming *naming, struct swiglu_error *error) {
    struct expert_search s = {.catalog = catalog, .naming = naming};
    TRY(experts_count(&s, error));
    if (!s.n) return SWIGLU_OK;
    s.keys = swiglu_alloc_array(s.n, sizeof *s.keys);
    if (!s.keys) return experts_no_memory(catalog, error);
    experts_list(&s);
    struct swiglu_layer *at = swiglu_alloc_array(layers->n + s.n, sizeof *at);
    if (at) {
        experts_merge(&s, layers, at);
        swiglu_free(layers->at);
        layers->at = at, layers->n += s.n;
        experts_fill(&s, layers);
    }
    swiglu_free(s.keys);
    return at ? SWIGLU_OK : experts_no_memory(catalog, error);
}
