/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "checkpoint.h"

static const struct cli_option options[] = {
    {'s', "strict", NULL, "treat warnings as errors"},
    {'a', "activation", "NAME", "override the activation that the file means"},
    {'f', "scan", NULL, "read every .safetensors file of a folder, not its index"},
    {'e', "experts", NULL, "list each expert of a mixture as a block of its own"},
    {'t', "tensors", NULL, "list the tensors in place of the blocks"},
    {'m', "metadata", NULL, "list the metadata in place of the blocks"},
    {'j', "json", NULL, "one JSON object for the file, then one a block, tensor or entry"},
    {0, NULL, NULL, NULL},
};

struct row {
    char activation[160], weights[64], biases[32];
    struct cli_block_label label;
};

static const char *tensor_dtype(const struct cli_checkpoint *layers, long i) {
    return i < 0 ? NULL : cli_model_tensor(layers->model, (size_t)i).dtype_name;
}

static void append(char *text, size_t size, const char *word) {
    if (*text) strncat(text, " ", size - strlen(text) - 1);
    strncat(text, word, size - strlen(text) - 1);
}

static void make_row(const struct cli_checkpoint *layers, const struct swiglu_model_block_info *block,
                     struct row *row) {
    const struct { const char *name; long tensor, bias; } part[] = {
        {"gate", block->gate, block->gate_bias}, {"up", block->up, block->up_bias},
        {"down", block->down, block->down_bias}};
    char words[96];
    *row = (struct row){.label = cli_block_label(block)};
    cli_act_words(&block->act, words, sizeof words);
    snprintf(row->activation, sizeof row->activation, "%s%s%s%s", block->activation, *words ? " (" : "", words,
             *words ? ")" : "");
    for (int i = 0; i < 3; i++) {
        if (part[i].tensor >= 0) append(row->weights, sizeof row->weights, tensor_dtype(layers, part[i].tensor));
        if (part[i].bias >= 0) append(row->biases, sizeof row->biases, part[i].name);
    }
    if (*block->storage) snprintf(row->weights, sizeof row->weights, "%s", block->storage);
    if (!*row->biases) strcpy(row->biases, "none");
}

static int wider(int width, const char *text) {
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

/* Whether the two lines differ in nothing but the layer, or the expert. */
static int same_line(const struct cli_checkpoint *layers, const struct swiglu_model_block_info *a,
                     const struct swiglu_model_block_info *b) {
    struct row x, y;
    make_row(layers, a, &x), make_row(layers, b, &y);
    return !strcmp(x.activation, y.activation) && !strcmp(x.weights, y.weights) && !strcmp(x.biases, y.biases) &&
           !strcmp(a->kind, b->kind) && !strcmp(a->activation_source, b->activation_source) &&
           !strcmp(a->layout_name, b->layout_name) && a->d_in == b->d_in && a->d_ff == b->d_ff && a->d_out == b->d_out &&
           a->weight_bytes == b->weight_bytes;
}

/* The last of the chosen blocks from i on that follow it with the same line. */
static size_t line_end(const struct cli_checkpoint *layers, size_t i) {
    struct swiglu_model_block_info at = cli_checkpoint_block(layers, i);
    for (; i + 1 < layers->n; i++) {
        const struct swiglu_model_block_info next = cli_checkpoint_block(layers, i + 1);
        if (!cli_block_follows(&at, &next) || !same_line(layers, &at, &next)) break;
        at = next;
    }
    return i;
}

static void print_blocks(const struct cli_checkpoint *layers) {
    int w_layer = 5, w_kind = 5, w_act = 10, w_from = 4, w_weights = 15, w_biases = 6;
    struct row row;
    for (size_t i = 0; i < layers->n; i = line_end(layers, i) + 1) {
        const struct swiglu_model_block_info block = cli_checkpoint_block(layers, i),
                                             last = cli_checkpoint_block(layers, line_end(layers, i));
        make_row(layers, &block, &row);
        w_layer = wider(w_layer, cli_range_label(&block, &last).words), w_kind = wider(w_kind, block.kind);
        w_act = wider(w_act, row.activation), w_from = wider(w_from, block.activation_source);
        w_weights = wider(w_weights, row.weights), w_biases = wider(w_biases, row.biases);
    }
    if (layers->n)
        printf("\n%-*s  %-*s  %-*s  %-*s  %6s  %6s  %6s  %-11s  %-*s  %-*s  %13s\n", w_layer, "layer", w_kind, "kind",
               w_act, "activation", w_from, "from", "d_in", "d_ff", "d_out", "layout", w_weights, "weight types",
               w_biases, "biases", "bytes a block");
    for (size_t i = 0; i < layers->n; i = line_end(layers, i) + 1) {
        const struct swiglu_model_block_info block = cli_checkpoint_block(layers, i),
                                             last = cli_checkpoint_block(layers, line_end(layers, i));
        make_row(layers, &block, &row);
        printf("%*s  %-*s  %-*s  %-*s  %6zu  %6zu  %6zu  %-11s  %-*s  %-*s  %13llu\n", w_layer,
               cli_range_label(&block, &last).words, w_kind, block.kind, w_act, row.activation, w_from,
               block.activation_source, block.d_in, block.d_ff, block.d_out, block.layout_name, w_weights, row.weights,
               w_biases, row.biases, (unsigned long long)block.weight_bytes);
    }
}

static void print_left_out(const struct cli_checkpoint *layers) {
    size_t last;
    if (layers->n == layers->info.n_blocks) return;
    printf("\nleft out, never evaluated:\n");
    for (size_t i = 0; (i = cli_next_left_out(layers, i, &last)) < layers->info.n_blocks; i = last + 1) {
        const struct swiglu_model_block_info first = cli_model_block(layers->model, i),
                                             end = cli_model_block(layers->model, last);
        printf("%5s  %s: %s\n", cli_range_label(&first, &end).words, first.kind, first.reason);
    }
}

/* ---- tensors and metadata ---- */

static void print_tensors(const struct cli_checkpoint *layers, int json) {
    const size_t n = layers->info.n_tensors;
    int w_name = 6, w_type = 4;
    for (size_t i = 0; i < n; i++) {
        const struct swiglu_tensor_info t = cli_model_tensor(layers->model, i);
        w_name = wider(w_name, t.name), w_type = wider(w_type, t.dtype_name);
    }
    if (!json) printf("\n%-*s  %-*s  %14s  %14s  shape\n", w_name, "tensor", w_type, "type", "offset", "bytes");
    for (size_t i = 0; i < n; i++) {
        const struct swiglu_tensor_info t = cli_model_tensor(layers->model, i);
        if (json) {
            cli_json_open("tensor");
            cli_json_string("tensor", t.name);
            cli_json_string("type", t.dtype_name);
            cli_json_list("shape");
            for (unsigned k = 0; k < t.n_dims; k++) cli_json_count(NULL, t.dims[k]);
            cli_json_list_end();
            cli_json_count("offset", t.offset);
            cli_json_count("bytes", t.bytes);
            cli_json_string("file", t.file);
            cli_json_close();
            continue;
        }
        printf("%-*s  %-*s  %14llu  %14llu  ", w_name, t.name, w_type, t.dtype_name, (unsigned long long)t.offset,
               (unsigned long long)t.bytes);
        for (unsigned k = 0; k < t.n_dims; k++) printf("%s%llu", k ? " x " : "", (unsigned long long)t.dims[k]);
        printf(layers->info.n_files > 1 ? "%s  %s\n" : "%s\n", t.n_dims ? "" : "-", t.file);
    }
}

static void print_metadata(const struct cli_checkpoint *layers, int json) {
    if (!json) printf("\n");
    for (size_t i = 0; i < layers->info.n_metadata; i++) {
        struct swiglu_metadata_info m = {.struct_size = sizeof m};
        char value[8192], type[64];
        /* a line of text is for reading; JSON has what is kept */
        cli_require(swiglu_model_metadata(layers->model, i, &m, value, json ? sizeof value : 100), NULL, "metadata");
        if (json) {
            cli_json_open("metadata");
            cli_json_string("key", m.key);
            cli_json_string("type", m.type);
            if (m.is_array) cli_json_count("count", m.count);
            cli_json_flag("kept", m.kept);
            cli_json_string("value", value);
            cli_json_close();
            continue;
        }
        snprintf(type, sizeof type, "%s", m.type);
        if (m.is_array) snprintf(type, sizeof type, "%llu x %s", (unsigned long long)m.count, m.type);
        printf("%-40s  %-14s  %s\n", m.key, type, m.kept ? value : "(not kept)");
    }
}

static void print_file_object(const struct cli_checkpoint *layers) {
    const struct swiglu_model_info *info = &layers->info;
    cli_json_open("file");
    cli_json_string("file", layers->path);
    cli_json_string("format", info->format);
    cli_json_count("format_version", info->format_version);
    cli_json_string("architecture", info->architecture);
    cli_json_string("name", info->name);
    cli_json_count("file_bytes", info->file_bytes);
    cli_json_count("files", info->n_files);
    cli_json_count("tensors", info->n_tensors);
    cli_json_count("blocks", info->n_blocks);
    cli_json_list("warnings");
    for (size_t i = 0; i < info->n_warnings; i++) cli_json_string(NULL, swiglu_model_warning(layers->model, i));
    cli_json_list_end();
    cli_json_close();
}

static void print_act(const struct swiglu_act *act) {
    cli_json_number("alpha", (double)act->alpha);
    cli_json_number("up_offset", (double)act->up_offset);
    cli_json_number("gate_lo", (double)act->gate_lo); /* null: no bound */
    cli_json_number("gate_hi", (double)act->gate_hi);
    cli_json_number("up_lo", (double)act->up_lo);
    cli_json_number("up_hi", (double)act->up_hi);
    cli_json_flag("clamp_after", act->clamp_after);
    cli_json_list("param");
    for (int i = 0; i < 6; i++) cli_json_number(NULL, (double)act->param[i]);
    cli_json_list_end();
}

static void print_block_object(const struct cli_checkpoint *layers, size_t i) {
    struct swiglu_model_block_info block = cli_model_block(layers->model, i);
    const struct { const char *name; long tensor; } part[] = {{"gate", block.gate}, {"up", block.up},
        {"down", block.down}, {"gate_bias", block.gate_bias}, {"up_bias", block.up_bias},
        {"down_bias", block.down_bias}, {"norm", block.norm}};
    cli_json_open("block");
    cli_json_count("layer", block.layer);
    cli_json_expert(&block);
    cli_json_flag("usable", block.usable);
    cli_json_string("reason", block.reason);
    cli_json_string("block_kind", block.kind);
    if (block.usable) {
        cli_json_string("activation", block.activation);
        cli_json_string("activation_source", block.activation_source);
        print_act(&block.act);
        cli_json_string("layout", block.layout_name);
        cli_json_flag("in_out", block.in_out);
        cli_json_count("d_in", block.d_in);
        cli_json_count("d_ff", block.d_ff);
        cli_json_count("d_out", block.d_out);
        cli_json_count("bytes", block.weight_bytes);
        cli_json_string("storage", block.storage);
    }
    for (size_t p = 0; p < sizeof part / sizeof part[0]; p++) {
        char key[32];
        if (part[p].tensor < 0) continue;
        struct swiglu_tensor_info tensor = cli_model_tensor(layers->model, (size_t)part[p].tensor);
        snprintf(key, sizeof key, "%s_name", part[p].name);
        cli_json_string(key, tensor.name);
        snprintf(key, sizeof key, "%s_dtype", part[p].name);
        cli_json_string(key, tensor.dtype_name);
    }
    cli_json_close();
}

static void print_heading(const struct cli_checkpoint *layers) {
    const struct swiglu_model_info *info = &layers->info;
    char files[32] = "";
    if (info->n_files > 1) snprintf(files, sizeof files, " in %zu files", info->n_files);
    printf("%s: %s%s%s, architecture %s, %llu bytes%s, %zu tensors, %zu feed-forward block%s\n",
           cli_printable(layers->path), info->name, *info->name ? ", " : "", layers->format,
           *info->architecture ? info->architecture : "unnamed", (unsigned long long)info->file_bytes, files,
           info->n_tensors, info->n_blocks, info->n_blocks == 1 ? "" : "s");
}

static int act_info(const struct cli_verb *verb, int argc, char **argv) {
    struct swiglu_model_options model = {.struct_size = sizeof model};
    const char *value;
    int json = 0, tensors = 0, metadata = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 's': model.strict = 1; break;
        case 'a': model.activation = value; break;
        case 'f': model.scan = 1; break;
        case 'e': model.experts = 1; break;
        case 't': tensors = 1; break;
        case 'm': metadata = 1; break;
        case 'j': json = 1; break;
        }
    cli_operands_max(verb, argc, argv, 1);
    if (optind == argc) cli_fail(CLI_USAGE, "info: a FILE is expected; try 'swiglu info --help'");
    struct cli_checkpoint layers;
    cli_checkpoint_open(&layers, argv[optind], &model, NULL);
    if (json)
        print_file_object(&layers);
    else
        print_heading(&layers);
    if (tensors) print_tensors(&layers, json);
    if (metadata) print_metadata(&layers, json);
    if (!tensors && !metadata) {
        for (size_t i = 0; json && i < layers.info.n_blocks; i++) print_block_object(&layers, i);
        if (!json) print_blocks(&layers), print_left_out(&layers);
    }
    cli_checkpoint_close(&layers);
    return CLI_OK;
}

const struct cli_verb cli_verb_info = {
    "info",
    "info FILE [options]",
    "Lists the feed-forward blocks of a checkpoint (GGUF, safetensors, or a folder of it): layer, activation and where\n"
    "its choice comes from, widths, layout, weight types, biases and size, and what is left out and why.",
    "Widths: d_in values a row go in, d_ff hidden, d_out come out. Bytes are those of the weights and biases in the\n"
    "file. Layers that follow each other and are alike share a line.",
    options,
    act_info,
};
