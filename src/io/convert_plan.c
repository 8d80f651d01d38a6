/* SPDX-License-Identifier: Apache-2.0 */
#include "io/convert_plan.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "io/family.h"
#include "io/layers.h"

/* The parts of names by which the two ways to store gate and up differ. */
static const struct swiglu_pair_names gguf_pair = {"ffn_gate.", "ffn_up.", "ffn_up."};

/* Tensor i of the input has the slots 2 i and 2 i + 1: the second is that of up when a packed one is split. */
static struct swiglu_output *plan_slot(const struct swiglu_conversion *c, long tensor) {
    return &c->at[2 * (size_t)tensor];
}

static struct swiglu_tensor_info plan_tensor(const struct swiglu_conversion *c, size_t i) {
    struct swiglu_tensor_info t = {.struct_size = sizeof t};
    if (swiglu_model_tensor(c->model, i, &t)) t.name = ""; /* never: i is from the model itself */
    return t;
}

static void plan_copies(struct swiglu_conversion *c) {
    for (size_t i = 0; i < c->info.n_tensors; i++) {
        const struct swiglu_tensor_info t = plan_tensor(c, i);
        uint64_t elems = 1;
        for (unsigned k = 0; k < t.n_dims; k++) elems *= t.dims[k]; /* the reader has checked the product */
        c->at[2 * i] = (struct swiglu_output){.piece = {{i, 0, t.bytes}}, .n_pieces = 1, .type = t.dtype,
                                              .rows = t.dims[0], .elems = elems, .bytes = t.bytes};
    }
}

/* A weight: another type, unless it has that already. */
static enum swiglu_status plan_retype(struct swiglu_conversion *c, long tensor, struct swiglu_error *error) {
    const int dtype = c->options.dtype;
    if (tensor < 0 || dtype == SWIGLU_DTYPE_KEEP) return SWIGLU_OK;
    struct swiglu_output *o = plan_slot(c, tensor);
    if (o->type == dtype) return SWIGLU_OK;
    o->type = dtype;
    REQUIRE(!SW_MUL(o->elems, (uint64_t)swiglu_float_bytes(dtype), &o->bytes), SWIGLU_E_UNSUPPORTED,
            "tensor %.80s: %llu values of %s overflow 64 bits", plan_tensor(c, (size_t)tensor).name,
            (unsigned long long)o->elems, swiglu_dtype_find(dtype)->name);
    return SWIGLU_OK;
}

/* The tensor's name with one part replaced; NULL when memory is short. The part is there: the reader found it by name. */
static char *plan_rename(const struct swiglu_conversion *c, long tensor, const char *part, const char *by) {
    const char *name = plan_tensor(c, (size_t)tensor).name, *at = strstr(name, part);
    char *renamed = swiglu_alloc(strlen(name) + strlen(by) + 1);
    if (!renamed) return NULL;
    memcpy(renamed, name, (size_t)(at - name));
    strcpy(renamed + (at - name), by);
    strcat(renamed, at + strlen(part));
    return renamed;
}

/* up becomes [gate|up] under the packed name, gate goes. */
static enum swiglu_status plan_merge(struct swiglu_conversion *c, long gate, long up, struct swiglu_error *error) {
    if (gate < 0 && up < 0) return SWIGLU_OK;
    const char *one = plan_tensor(c, (size_t)(gate < 0 ? up : gate)).name;
    REQUIRE(gate >= 0 && up >= 0, SWIGLU_E_UNSUPPORTED,
            "tensor %.80s: only one of gate and up has it, so it cannot be packed", one);
    struct swiglu_output *g = plan_slot(c, gate), *u = plan_slot(c, up);
    REQUIRE(g->type == u->type, SWIGLU_E_UNSUPPORTED, "tensor %.80s: gate and up have different types; give them one",
            one);
    u->piece[1] = u->piece[0], u->piece[0] = g->piece[0], u->n_pieces = 2;
    u->rows += g->rows, u->elems += g->elems, u->bytes += g->bytes;
    u->name = plan_rename(c, up, gguf_pair.up, gguf_pair.packed);
    REQUIRE(u->name, SWIGLU_E_MEMORY, "out of memory");
    g->n_pieces = 0;
    return SWIGLU_OK;
}

/* [gate|up] becomes two tensors. */
static enum swiglu_status plan_split(struct swiglu_conversion *c, long packed, struct swiglu_error *error) {
    if (packed < 0) return SWIGLU_OK;
    struct swiglu_output *gate = plan_slot(c, packed), *up = gate + 1;
    gate->rows /= 2, gate->elems /= 2, gate->bytes /= 2, gate->piece[0].bytes /= 2;
    *up = *gate;
    up->piece[0].from = up->piece[0].bytes;
    gate->name = plan_rename(c, packed, gguf_pair.packed, gguf_pair.gate);
    up->name = plan_rename(c, packed, gguf_pair.packed, gguf_pair.up);
    REQUIRE(gate->name && up->name, SWIGLU_E_MEMORY, "out of memory");
    return SWIGLU_OK;
}

/* Whether the family has a packed form, so that its name means [gate|up] to every reader. */
static enum swiglu_status plan_check_packing(const struct swiglu_conversion *c, struct swiglu_error *error) {
    const struct swiglu_family *family = swiglu_family_find(c->info.architecture);
    REQUIRE(family && family->form == SWIGLU_FORM_PACKED, SWIGLU_E_UNSUPPORTED,
            "architecture \"%.64s\" has no name for a packed gate|up weight", c->info.architecture);
    return SWIGLU_OK;
}

static enum swiglu_status plan_repack(struct swiglu_conversion *c, const struct swiglu_model_block_info *block,
                                      struct swiglu_error *error) {
    const int repack = c->options.repack;
    if (repack == SWIGLU_REPACK_KEEP || block->layout == SWIGLU_UNGATED) return SWIGLU_OK;
    if (repack == SWIGLU_REPACK_GATE_UP && block->layout == SWIGLU_SEPARATE) {
        TRY(plan_check_packing(c, error));
        TRY(plan_merge(c, block->gate, block->up, error));
        return plan_merge(c, block->gate_bias, block->up_bias, error);
    }
    if (repack == SWIGLU_REPACK_SEPARATE && block->layout == SWIGLU_GATE_UP) {
        TRY(plan_split(c, block->gate, error));
        return plan_split(c, block->gate_bias, error);
    }
    const int wanted = repack == SWIGLU_REPACK_SEPARATE ? SWIGLU_SEPARATE : SWIGLU_GATE_UP;
    REQUIRE(block->layout == wanted, SWIGLU_E_UNSUPPORTED, "layer %zu: layout %s cannot be repacked", block->layer,
            block->layout_name);
    return SWIGLU_OK;
}

static enum swiglu_status plan_blocks(struct swiglu_conversion *c, struct swiglu_error *error) {
    size_t n_usable = 0;
    for (size_t i = 0; i < c->info.n_blocks; i++) {
        struct swiglu_model_block_info block = {.struct_size = sizeof block};
        TRY(swiglu_model_block(c->model, i, &block));
        if (!block.usable) continue;
        n_usable++;
        TRY(plan_retype(c, block.gate, error));
        TRY(plan_retype(c, block.up, error));
        TRY(plan_retype(c, block.down, error));
        TRY(plan_repack(c, &block, error));
    }
    REQUIRE(n_usable, SWIGLU_E_UNSUPPORTED, "%s", "no feed-forward block of the file can be evaluated or converted");
    return SWIGLU_OK;
}

static enum swiglu_status plan_format(const struct swiglu_conversion *c, struct swiglu_error *error) {
    static const char *const names[] = {[SWIGLU_FORMAT_GGUF] = "gguf", [SWIGLU_FORMAT_SAFETENSORS] = "safetensors"};
    const int format = c->options.format;
    REQUIRE(format == SWIGLU_FORMAT_KEEP || !strcmp(names[format], c->info.format), SWIGLU_E_UNSUPPORTED,
            "%s to %s: the two name tensors and metadata differently, so a file keeps its format", c->info.format,
            names[format]);
    return SWIGLU_OK;
}

static void plan_close_gaps(struct swiglu_conversion *c) {
    for (size_t i = 0; i < 2 * c->info.n_tensors; i++)
        if (c->at[i].n_pieces) c->at[c->n++] = c->at[i];
}

enum swiglu_status swiglu_conversion_plan(struct swiglu_conversion *c, struct swiglu_error *error) {
    c->info.struct_size = sizeof c->info;
    TRY(swiglu_model_query(c->model, &c->info));
    TRY(plan_format(c, error));
    c->at = swiglu_alloc_array(c->info.n_tensors, 2 * sizeof *c->at);
    REQUIRE(c->at, SWIGLU_E_MEMORY, "out of memory");
    plan_copies(c);
    const enum swiglu_status status = plan_blocks(c, error);
    plan_close_gaps(c);
    if (status != SWIGLU_OK) swiglu_conversion_free(c);
    return status;
}

void swiglu_conversion_free(struct swiglu_conversion *c) {
    for (size_t i = 0; i < c->n; i++) swiglu_free(c->at[i].name);
    swiglu_free(c->at);
    c->at = NULL, c->n = 0;
}
