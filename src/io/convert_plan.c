/* SPDX-License-Identifier: Apache-2.0 */
#include "io/convert_plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "dtype/dtype.h"
#include "io/family.h"
#include "io/layers.h"
#include "io/shard_name.h"

/* The parts of names by which the two ways to store gate and up differ. */
struct pair_names { const char *gate, *up, *packed; };
static const struct pair_names gguf_pair = {"ffn_gate.", "ffn_up.", "ffn_up."};
static const struct pair_names hf_pair = {"mlp.gate_proj.", "mlp.up_proj.", "mlp.gate_up_proj."};

static bool plan_is_gguf(const struct swiglu_conversion *c) { return swiglu_model_gguf(c->model) != NULL; }
static const struct pair_names *plan_pair(const struct swiglu_conversion *c) {
    return plan_is_gguf(c) ? &gguf_pair : &hf_pair;
}

/* Tensor i of the input has the slots 2 i and 2 i + 1: the second is that of up when a packed one is split. */
static struct swiglu_output *plan_slot(const struct swiglu_conversion *c, long tensor) {
    return &c->at[2 * (size_t)tensor];
}

static const struct swiglu_tensor *plan_tensor(const struct swiglu_conversion *c, size_t i) {
    return &c->model->catalog.tensors[i];
}

static const char *plan_architecture(const struct swiglu_conversion *c) { return swiglu_model_architecture(c->model); }

/* E_UNSUPPORTED: "FILE: tensor NAME: text (at byte N)" */
static SW_PRINTF(4, 5) enum swiglu_status plan_refuse(const struct swiglu_conversion *c, long tensor,
                                                      struct swiglu_error *error, const char *format, ...) {
    const struct swiglu_catalog *catalog = &c->model->catalog;
    const struct swiglu_tensor *t = &catalog->tensors[tensor];
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return swiglu_catalog_fail(catalog, t->file, error, SWIGLU_E_UNSUPPORTED, t->entry, "tensor %.80s: %s",
                               swiglu_names_at(&catalog->names, (size_t)tensor), text);
}

static void plan_copies(struct swiglu_conversion *c) {
    for (size_t i = 0; i < c->model->catalog.names.n; i++) {
        const struct swiglu_tensor *t = plan_tensor(c, i);
        uint64_t elems = 1;
        for (unsigned k = 0; k < t->n_dims; k++) elems *= t->dims[k]; /* the reader has checked the product */
        c->at[2 * i] = (struct swiglu_output){.piece = {{i, 0, t->bytes}}, .n_pieces = 1, .type = (int)t->type,
                                              .rows = t->dims[0], .elems = elems, .bytes = t->bytes};
    }
}

/* A weight: another type, unless it has that already. */
static enum swiglu_status plan_retype(struct swiglu_conversion *c, long tensor, struct swiglu_error *error) {
    const int dtype = c->options.dtype;
    if (tensor < 0 || dtype == SWIGLU_DTYPE_KEEP) return SWIGLU_OK;
    struct swiglu_output *o = plan_slot(c, tensor);
    if (o->type == dtype) return SWIGLU_OK;
    o->type = dtype;
    const struct swiglu_dtype_row *row = swiglu_dtype_find(dtype);
    const struct swiglu_tensor *t = plan_tensor(c, (size_t)tensor);
    const uint64_t cols = t->dims[t->n_dims - 1];
    if (row->block_elems > 1 && !plan_is_gguf(c))
        return plan_refuse(c, tensor, error, "safetensors has no %s; block formats are stored in GGUF", row->name);
    if (cols % row->block_elems)
        return plan_refuse(c, tensor, error, "rows of %llu values; %s needs a multiple of %zu", (unsigned long long)cols,
                           row->name, row->block_elems);
    if (SW_MUL(o->elems / row->block_elems, (uint64_t)row->block_bytes, &o->bytes))
        return plan_refuse(c, tensor, error, "%llu values of %s overflow 64 bits", (unsigned long long)o->elems, row->name);
    return SWIGLU_OK;
}

/* The last place of part in name, or NULL. */
static const char *name_part(const char *name, const char *part) {
    const char *found = NULL;
    for (const char *at = name; (at = strstr(at, part)); at++) found = at;
    return found;
}

char *swiglu_output_name(const struct swiglu_output *o, const char *name) {
    const char *at = o->part ? name_part(name, o->part) : NULL;
    char *made = swiglu_alloc(strlen(name) + (at ? strlen(o->by) : 0) + 1);
    if (!made) return NULL;
    if (!at) return strcpy(made, name);
    memcpy(made, name, (size_t)(at - name));
    strcpy(made + (at - name), o->by);
    return strcat(made, at + strlen(o->part));
}

/* Weights are rows of inputs and biases vectors; packing stacks them. Nothing else (experts in one tensor) is repacked. */
static enum swiglu_status plan_check_dims(const struct swiglu_conversion *c, long tensor, unsigned n_dims,
                                          struct swiglu_error *error) {
    const struct swiglu_tensor *t = plan_tensor(c, (size_t)tensor);
    if (t->n_dims == n_dims) return SWIGLU_OK;
    return plan_refuse(c, tensor, error, "%u dimensions: with %u it could be repacked", t->n_dims, n_dims);
}

/* up becomes [gate|up] under the packed name, gate goes. */
static enum swiglu_status plan_merge(struct swiglu_conversion *c, long gate, long up, unsigned n_dims,
                                     struct swiglu_error *error) {
    if (gate < 0 && up < 0) return SWIGLU_OK;
    if (gate < 0 || up < 0)
        return plan_refuse(c, gate < 0 ? up : gate, error, "only one of gate and up has it, so it cannot be packed");
    TRY(plan_check_dims(c, gate, n_dims, error));
    TRY(plan_check_dims(c, up, n_dims, error));
    struct swiglu_output *g = plan_slot(c, gate), *u = plan_slot(c, up);
    if (g->type != u->type) return plan_refuse(c, gate, error, "gate and up have different types; give them one");
    u->piece[1] = u->piece[0], u->piece[0] = g->piece[0], u->n_pieces = 2;
    u->rows += g->rows, u->elems += g->elems, u->bytes += g->bytes;
    u->part = plan_pair(c)->gate, u->by = plan_pair(c)->packed; /* the first piece is gate's */
    g->n_pieces = 0;
    return SWIGLU_OK;
}

/* [gate|up] becomes two tensors. */
static enum swiglu_status plan_split(struct swiglu_conversion *c, long packed, unsigned n_dims,
                                     struct swiglu_error *error) {
    if (packed < 0) return SWIGLU_OK;
    const struct pair_names *pair = plan_pair(c);
    TRY(plan_check_dims(c, packed, n_dims, error));
    if (!name_part(swiglu_names_at(&c->model->catalog.names, (size_t)packed), pair->packed))
        return plan_refuse(c, packed, error, "the family has no names for its halves");
    struct swiglu_output *gate = plan_slot(c, packed), *up = gate + 1;
    gate->rows /= 2, gate->elems /= 2, gate->bytes /= 2, gate->piece[0].bytes /= 2;
    *up = *gate;
    up->piece[0].from = up->piece[0].bytes;
    gate->part = up->part = pair->packed, gate->by = pair->gate, up->by = pair->up;
    return SWIGLU_OK;
}

/* Whether the family has a packed form of this name, so that it means [gate|up] to every reader. */
static bool plan_has_packed(const struct swiglu_conversion *c) {
    const struct swiglu_family *gguf = plan_is_gguf(c) ? swiglu_family_find(plan_architecture(c)) : NULL;
    const struct swiglu_hf_family *hf;
    if (plan_is_gguf(c)) return gguf && gguf->form == SWIGLU_FORM_PACKED;
    for (size_t i = 0; (hf = swiglu_hf_family_at(i)); i++)
        if (hf->family.form == SWIGLU_FORM_PACKED && hf->scheme == SWIGLU_SCHEME_PROJ &&
            !strcmp(hf->family.architecture, plan_architecture(c)))
            return true;
    return false;
}

static enum swiglu_status plan_repack(struct swiglu_conversion *c, const struct swiglu_model_block_info *block,
                                      struct swiglu_error *error) {
    const int repack = c->options.repack;
    if (repack == SWIGLU_REPACK_KEEP || block->layout == SWIGLU_UNGATED) return SWIGLU_OK;
    if (repack == SWIGLU_REPACK_GATE_UP && block->layout == SWIGLU_SEPARATE && !block->in_out) {
        if (!plan_has_packed(c))
            return plan_refuse(c, block->gate, error, "architecture \"%.64s\" has no name for a packed gate|up weight",
                               plan_architecture(c));
        TRY(plan_merge(c, block->gate, block->up, 2, error));
        return plan_merge(c, block->gate_bias, block->up_bias, 1, error);
    }
    if (repack == SWIGLU_REPACK_SEPARATE && block->layout == SWIGLU_GATE_UP && !block->in_out) {
        TRY(plan_split(c, block->gate, 2, error));
        return plan_split(c, block->gate_bias, 1, error);
    }
    if (block->layout == (repack == SWIGLU_REPACK_SEPARATE ? SWIGLU_SEPARATE : SWIGLU_GATE_UP)) return SWIGLU_OK;
    return plan_refuse(c, block->gate, error, "layout %s cannot be repacked", block->layout_name);
}

static enum swiglu_status plan_blocks(struct swiglu_conversion *c, struct swiglu_error *error) {
    size_t n_usable = 0;
    for (size_t i = 0; i < c->model->layers.n; i++) {
        const struct swiglu_model_block_info block = c->model->layers.at[i].info;
        if (block.expert != SWIGLU_EXPERT_NONE) continue; /* they keep their form */
        if (!block.usable) continue;
        n_usable++;
        for (int k = 0; k < 3; k++)
            if (c->model->layers.at[i].quant[k].kind)
                return plan_refuse(c, c->model->layers.at[i].quant[k].weight, error,
                                   "numbers with scales beside them (quantization_config) are not converted");
        TRY(plan_retype(c, block.gate, error));
        TRY(plan_retype(c, block.up, error));
        TRY(plan_retype(c, block.down, error));
        TRY(plan_repack(c, &block, error));
    }
    if (n_usable) return SWIGLU_OK;
    return swiglu_catalog_fail(&c->model->catalog, 0, error, SWIGLU_E_UNSUPPORTED, SWIGLU_NO_OFFSET,
                               "no feed-forward block that can be evaluated, so nothing to convert");
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), n_end = strlen(end);
    return n >= n_end && !strcmp(s + n - n_end, end);
}

static enum swiglu_status plan_keeps(const struct swiglu_conversion *c, int format, struct swiglu_error *error) {
    static const char *const names[] = {[SWIGLU_FORMAT_GGUF] = "gguf", [SWIGLU_FORMAT_SAFETENSORS] = "safetensors"};
    REQUIRE(format == SWIGLU_FORMAT_KEEP || (format == SWIGLU_FORMAT_GGUF) == plan_is_gguf(c), SWIGLU_E_UNSUPPORTED,
            "%s to %s: the two name tensors and metadata differently, so a file keeps its format",
            names[plan_is_gguf(c) ? SWIGLU_FORMAT_GGUF : SWIGLU_FORMAT_SAFETENSORS],
            names[format]);
    return SWIGLU_OK;
}

/* The option and the end of the path are the input's format, or say nothing. */
static enum swiglu_status plan_format(const struct swiglu_conversion *c, struct swiglu_error *error) {
    TRY(plan_keeps(c, c->options.format, error));
    if (ends_with(c->out_path, ".gguf")) return plan_keeps(c, SWIGLU_FORMAT_GGUF, error);
    if (ends_with(c->out_path, ".safetensors")) return plan_keeps(c, SWIGLU_FORMAT_SAFETENSORS, error);
    return SWIGLU_OK;
}

/* One file of several may not be replaced by the whole: the others and their index would not fit it any more. */
static enum swiglu_status plan_check_target(const struct swiglu_conversion *c, struct swiglu_error *error) {
    const struct swiglu_catalog *catalog = &c->model->catalog;
    size_t n = 0, is_target = 0;
    for (size_t i = 0; i < catalog->n_files; i++) {
        n += catalog->files[i].fd >= 0; /* those with tensors stay open */
        is_target |= swiglu_file_is(&catalog->files[i], c->out_path);
    }
    char shown[SWIGLU_SHOWN_BYTES];
    swiglu_file_show(shown, c->out_path);
    REQUIRE(n < 2 || !is_target, SWIGLU_E_ARGUMENT, "%s: one of the %zu files of the input", shown, n);
    return SWIGLU_OK;
}

static void plan_close_gaps(struct swiglu_conversion *c) {
    for (size_t i = 0; i < 2 * c->model->catalog.names.n; i++)
        if (c->at[i].n_pieces) c->at[c->n++] = c->at[i];
}

/* ---- the files ---- */

static const char gguf_end[] = ".gguf";

/* How many files, and with place what is in each: tensors in their order, as many as fit, at least one. */
static enum swiglu_status plan_cut(struct swiglu_conversion *c, bool place, size_t *n_files, struct swiglu_error *error) {
    const uint64_t max = c->options.split_max_bytes;
    uint64_t in_file = 0, padded;
    *n_files = 1;
    for (size_t i = 0; i < c->n && max; i++) {
        REQUIRE(!swiglu_align_up(c->at[i].bytes, swiglu_model_gguf(c->model)->alignment, &padded), SWIGLU_E_UNSUPPORTED,
                "the file would exceed 64 bits");
        const bool next = in_file && (padded > max || in_file > max - padded);
        if (next && place) c->files[*n_files - 1].end = c->files[*n_files].begin = i;
        *n_files += next;
        in_file = next ? padded : in_file + padded;
    }
    if (place) c->files[*n_files - 1].end = c->n;
    return SWIGLU_OK;
}

/* NAME.gguf, or NAME-00001-of-00003.gguf and so on. */
static enum swiglu_status plan_paths(struct swiglu_conversion *c, struct swiglu_error *error) {
    const size_t n = strlen(c->out_path);
    const struct swiglu_shard_name name = {.stem_bytes = n - strlen(gguf_end), .count = (unsigned)c->n_files};
    for (size_t i = 0; i < c->n_files; i++) {
        char **path = &c->files[i].path;
        *path = c->n_files > 1 ? swiglu_shard_path(c->out_path, gguf_end, &name, (unsigned)i + 1) : swiglu_alloc(n + 1);
        REQUIRE(*path, SWIGLU_E_MEMORY, "out of memory");
        if (c->n_files == 1) memcpy(*path, c->out_path, n);
    }
    return SWIGLU_OK;
}

static enum swiglu_status plan_files(struct swiglu_conversion *c, struct swiglu_error *error) {
    struct swiglu_shard_name name;
    char shown[SWIGLU_SHOWN_BYTES];
    const bool split = c->options.split_max_bytes != 0;
    swiglu_file_show(shown, c->out_path);
    REQUIRE(!split || plan_is_gguf(c), SWIGLU_E_UNSUPPORTED, "%s: only GGUF is written as a set", shown);
    REQUIRE(!split || (ends_with(c->out_path, gguf_end) && !swiglu_shard_name(c->out_path, gguf_end, &name)),
            SWIGLU_E_ARGUMENT, "%s: a set is called by NAME.gguf; the numbers of its shards are added", shown);
    TRY(plan_cut(c, false, &c->n_files, error));
    const size_t n = c->n_files;
    c->n_files = 0;
    REQUIRE(n <= SWIGLU_LIMIT_FILES, SWIGLU_E_UNSUPPORTED, "%s: %zu shards: limit %d", shown, n, SWIGLU_LIMIT_FILES);
    c->files = swiglu_alloc_array(n, sizeof *c->files);
    REQUIRE(c->files, SWIGLU_E_MEMORY, "out of memory");
    c->n_files = n;
    TRY(plan_cut(c, true, &c->n_files, error));
    return plan_paths(c, error);
}

enum swiglu_status swiglu_conversion_plan(struct swiglu_conversion *c, struct swiglu_error *error) {
    TRY(plan_format(c, error));
    TRY(plan_check_target(c, error));
    c->at = swiglu_alloc_array(c->model->catalog.names.n, 2 * sizeof *c->at);
    REQUIRE(c->at, SWIGLU_E_MEMORY, "out of memory");
    plan_copies(c);
    enum swiglu_status status = plan_blocks(c, error);
    plan_close_gaps(c);
    if (status == SWIGLU_OK) status = plan_files(c, error);
    if (status != SWIGLU_OK) swiglu_conversion_free(c);
    return status;
}

void swiglu_conversion_free(struct swiglu_conversion *c) {
    for (size_t i = 0; i < c->n_files; i++) swiglu_free(c->files[i].path);
    swiglu_free(c->files);
    swiglu_free(c->at);
    c->at = NULL, c->files = NULL, c->n = c->n_files = 0;
}
