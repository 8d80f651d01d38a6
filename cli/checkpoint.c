/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "noise.h"

struct swiglu_model_block_info cli_model_block(const struct swiglu_model *model, size_t i) {
    struct swiglu_model_block_info info = {.struct_size = sizeof info};
    cli_require(swiglu_model_block(model, i, &info), NULL, "block");
    return info;
}

struct cli_block_label cli_block_label(const struct swiglu_model_block_info *block) {
    struct cli_block_label label;
    const int expert = block->expert;
    if (expert >= 0) {
        snprintf(label.words, sizeof label.words, "%zu expert %d", block->layer, expert);
        snprintf(label.name, sizeof label.name, "layer-%03zu-expert-%03d", block->layer, expert);
    } else {
        const int shared = expert == SWIGLU_EXPERT_SHARED;
        snprintf(label.words, sizeof label.words, "%zu%s", block->layer, shared ? " shared expert" : "");
        snprintf(label.name, sizeof label.name, "layer-%03zu%s", block->layer, shared ? "-shared" : "");
    }
    return label;
}

void cli_json_expert(const struct swiglu_model_block_info *block) {
    if (block->expert >= 0) cli_json_count("expert", (uint64_t)block->expert);
    if (block->expert == SWIGLU_EXPERT_SHARED) cli_json_string("expert", "shared");
}

struct swiglu_tensor_info cli_model_tensor(const struct swiglu_model *model, size_t i) {
    struct swiglu_tensor_info info = {.struct_size = sizeof info};
    cli_require(swiglu_model_tensor(model, i, &info), NULL, "tensor");
    return info;
}

struct swiglu_model_block_info cli_checkpoint_block(const struct cli_checkpoint *layers, size_t i) {
    return cli_model_block(layers->model, layers->index[i]);
}

static size_t parse_layer(const char *list, const char **p) {
    size_t value = 0;
    const char *begin = *p;
    for (; isdigit((unsigned char)**p); ++*p) {
        if (value > (SIZE_MAX - 9) / 10) cli_fail(CLI_USAGE, "--layers %s: a number above 2^64 - 1", list);
        value = value * 10 + (size_t)(**p - '0');
    }
    if (*p == begin) cli_fail(CLI_USAGE, "--layers %s: a list such as 0,3-5 is expected", *list ? list : "''");
    return value;
}

static int layer_is_usable(const struct cli_checkpoint *layers, size_t layer) {
    for (size_t i = 0; i < layers->info.n_blocks; i++) {
        struct swiglu_model_block_info block = cli_model_block(layers->model, i);
        if (block.usable && block.layer == layer) return 1;
    }
    return 0;
}

/* Adds the usable blocks of layers first to last. A layer that is only left out cannot be asked for; one whose shared
 * part is usable beside left-out experts can. */
static void choose_range(struct cli_checkpoint *layers, char *chosen, size_t first, size_t last) {
    size_t found = 0, lowest = SIZE_MAX, highest = 0;
    if (first > last) cli_fail(CLI_USAGE, "--layers %zu-%zu: the range runs backwards", first, last);
    if (!layers->info.n_blocks) cli_fail(CLI_USAGE, "%s: no feed-forward blocks were found", layers->path);
    for (size_t i = 0; i < layers->info.n_blocks; i++) {
        struct swiglu_model_block_info block = cli_model_block(layers->model, i);
        if (block.layer < lowest) lowest = block.layer;
        if (block.layer > highest) highest = block.layer;
        if (block.layer < first || block.layer > last) continue;
        if (!block.usable && !layer_is_usable(layers, block.layer))
            cli_fail(CLI_USAGE, "%s: layer %zu is left out: %s", layers->path, block.layer, block.reason);
        chosen[i] = (char)block.usable;
        found++;
    }
    if (!found || last > highest)
        cli_fail(CLI_USAGE, "%s: --layers: there is no layer %zu; the file has %zu to %zu", layers->path,
                 found ? last : first, lowest, highest);
}

static void choose_list(struct cli_checkpoint *layers, char *chosen, const char *list) {
    for (const char *p = list;; p++) {
        size_t first = parse_layer(list, &p), last = first;
        if (*p == '-') p++, last = parse_layer(list, &p);
        choose_range(layers, chosen, first, last);
        if (!*p) return;
        if (*p != ',') cli_fail(CLI_USAGE, "--layers %s: '%c' where a comma is expected", list, *p);
    }
}

void cli_checkpoint_open(struct cli_checkpoint *layers, const char *path, const struct swiglu_model_options *options,
                         const char *list) {
    struct swiglu_error error = {.struct_size = sizeof error};
    *layers = (struct cli_checkpoint){.path = path, .named = list != NULL};
    layers->info.struct_size = sizeof layers->info;
    if (options->activation) {
        struct swiglu_act act;
        cli_parse_activation(options->activation, &act);
    }
    cli_refuse_dash(path, "a checkpoint is read by places, so it cannot be standard input");
    cli_require(swiglu_model_open(path, options, &layers->model, &error), &error, path);
    cli_require(swiglu_model_query(layers->model, &layers->info), NULL, path);
    const unsigned version = layers->info.format_version;
    snprintf(layers->format, sizeof layers->format, "%s", layers->info.format);
    if (version) snprintf(layers->format, sizeof layers->format, "%s %u", layers->info.format, version);
    for (size_t i = 0; i < layers->info.n_warnings; i++)
        cli_note("%s: warning: %s", path, swiglu_model_warning(layers->model, i));
    char *chosen = cli_alloc(layers->info.n_blocks, 1);
    layers->index = cli_alloc(layers->info.n_blocks, sizeof *layers->index);
    if (list) choose_list(layers, chosen, list);
    for (size_t i = 0; i < layers->info.n_blocks; i++)
        if (list ? chosen[i] : cli_model_block(layers->model, i).usable) layers->index[layers->n++] = i;
    free(chosen);
}

void cli_checkpoint_close(struct cli_checkpoint *layers) {
    free(layers->index);
    swiglu_model_close(layers->model);
}

int cli_block_follows(const struct swiglu_model_block_info *a, const struct swiglu_model_block_info *b) {
    if (a->expert >= 0 || b->expert >= 0) return a->layer == b->layer && a->expert >= 0 && b->expert == a->expert + 1;
    return a->expert == b->expert && b->layer == a->layer + 1;
}

struct cli_block_label cli_range_label(const struct swiglu_model_block_info *first,
                                       const struct swiglu_model_block_info *last) {
    struct cli_block_label label = cli_block_label(first);
    if (first->expert >= 0) {
        if (last->expert != first->expert)
            snprintf(label.words, sizeof label.words, "%zu expert %d-%d", first->layer, first->expert, last->expert);
    } else if (last->layer != first->layer) {
        snprintf(label.words, sizeof label.words, "%zu-%zu%s", first->layer, last->layer,
                 first->expert == SWIGLU_EXPERT_SHARED ? " shared expert" : "");
    }
    return label;
}

/* Reasons name tensors, and these their layer: the numbers of the two layers are taken for one another. */
static int same_reason(const struct swiglu_model_block_info *a, const struct swiglu_model_block_info *b) {
    char number_a[24], number_b[24];
    const size_t n_a = (size_t)snprintf(number_a, sizeof number_a, ".%zu.", a->layer),
                 n_b = (size_t)snprintf(number_b, sizeof number_b, ".%zu.", b->layer);
    const char *p = a->reason, *q = b->reason;
    if (strcmp(a->kind, b->kind)) return 0;
    while (*p || *q) {
        if (!strncmp(p, number_a, n_a) && !strncmp(q, number_b, n_b)) {
            p += n_a, q += n_b;
        } else if (*p++ != *q++) {
            return 0;
        }
    }
    return 1;
}

size_t cli_next_left_out(const struct cli_checkpoint *layers, size_t i, size_t *last) {
    struct swiglu_model_block_info at, next;
    const size_t n = layers->info.n_blocks;
    for (; i < n; i++) {
        at = cli_model_block(layers->model, i);
        if (!at.usable) break;
    }
    *last = i;
    for (size_t k = i + 1; k < n; k++) {
        next = cli_model_block(layers->model, k);
        if (next.usable) continue;
        if (!cli_block_follows(&at, &next) || !same_reason(&at, &next)) break;
        at = next, *last = k;
    }
    return i;
}

void cli_checkpoint_note_left_out(const struct cli_checkpoint *layers) {
    size_t last;
    for (size_t i = 0; (i = cli_next_left_out(layers, i, &last)) < layers->info.n_blocks; i = last + 1) {
        const struct swiglu_model_block_info first = cli_model_block(layers->model, i),
                                             end = cli_model_block(layers->model, last);
        const int several = first.layer != end.layer;
        cli_note("%s: layer%s %s %s left out: %s", layers->path, several ? "s" : "", cli_range_label(&first, &end).words,
                 several ? "are" : "is", first.reason);
    }
}

float *cli_rows_alloc(size_t m, size_t width) {
    if (width && m > SIZE_MAX / sizeof(float) / width)
        cli_fail(CLI_USAGE, "%zu rows of %zu values exceed the address space", m, width);
    return cli_alloc(m * width, sizeof(float));
}

/* The norm's weight as d floats, or NULL where there is none that fits. */
static float *read_norm(const struct cli_checkpoint *layers, const struct swiglu_model_block_info *block) {
    if (block->norm < 0) return NULL;
    struct swiglu_tensor_info tensor = cli_model_tensor(layers->model, (size_t)block->norm);
    struct swiglu_dtype_info dtype = {.struct_size = sizeof dtype};
    if (tensor.n_dims != 1 || tensor.dims[0] != block->d_in || swiglu_dtype_query(tensor.dtype, &dtype)) return NULL;
    struct swiglu_error error = {.struct_size = sizeof error};
    float *weight = cli_alloc(block->d_in, sizeof *weight);
    void *raw = cli_alloc((size_t)tensor.bytes, 1);
    cli_require(swiglu_model_read(layers->model, (size_t)block->norm, 0, raw, (size_t)tensor.bytes, &error), &error,
                layers->path);
    cli_require(swiglu_decode(tensor.dtype, raw, block->d_in, weight), NULL, tensor.name);
    free(raw);
    return weight;
}

void cli_checkpoint_noise(const struct cli_checkpoint *layers, size_t i, uint64_t seed, size_t m, float *x) {
    struct swiglu_model_block_info block = cli_checkpoint_block(layers, i);
    float *weight = read_norm(layers, &block);
    cli_noise_fill(seed, CLI_STREAM_X, 0, m * block.d_in, x);
    for (size_t r = 0; weight && r < m; r++)
        for (size_t c = 0; c < block.d_in; c++) x[r * block.d_in + c] *= weight[c];
    free(weight);
}
