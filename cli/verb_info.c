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
    {'j', "json", NULL, "one JSON object for the file, then one a block"},
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
    if (!*row->biases) strcpy(row->biases, "none");
}

static int wider(int width, const char *text) {
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static void print_blocks(const struct cli_checkpoint *layers) {
    int w_layer = 5, w_kind = 5, w_act = 10, w_from = 4, w_weights = 15, w_biases = 6;
    struct row row;
    for (size_t i = 0; i < layers->n; i++) {
        struct swiglu_model_block_info block = cli_checkpoint_block(layers, i);
        make_row(layers, &block, &row);
        w_layer = wider(w_layer, row.label.words), w_kind = wider(w_kind, block.kind);
        w_act = wider(w_act, row.activation), w_from = wider(w_from, block.activation_source);
        w_weights = wider(w_weights, row.weights), w_biases = wider(w_biases, row.biases);
    }
    if (layers->n)
        printf("\n%-*s  %-*s  %-*s  %-*s  %6s  %6s  %6s  %-11s  %-*s  %-*s  %12s\n", w_layer, "layer", w_kind, "kind",
               w_act, "activation", w_from, "from", "d_in", "d_ff", "d_out", "layout", w_weights, "weight types",
               w_biases, "biases", "bytes");
    for (size_t i = 0; i < layers->n; i++) {
        struct swiglu_model_block_info block = cli_checkpoint_block(layers, i);
        make_row(layers, &block, &row);
        printf("%*s  %-*s  %-*s  %-*s  %6zu  %6zu  %6zu  %-11s  %-*s  %-*s  %12llu\n", w_layer, row.label.words, w_kind,
               block.kind, w_act, row.activation, w_from, block.activation_source, block.d_in, block.d_ff, block.d_out,
               block.layout_name,
               w_weights, row.weights, w_biases, row.biases, (unsigned long long)block.weight_bytes);
    }
}

static void print_left_out(const struct cli_checkpoint *layers) {
    if (layers->n == layers->info.n_blocks) return;
    printf("\nleft out, never evaluated:\n");
    for (size_t i = 0; i < layers->info.n_blocks; i++) {
        struct swiglu_model_block_info block = cli_model_block(layers->model, i);
        if (!block.usable) printf("%5s  %s: %s\n", cli_block_label(&block).words, block.kind, block.reason);
    }
}

static void print_file_object(const struct cli_checkpoint *layers) {
    const struct swiglu_model_info *info = &layers->info;
    cli_json_open();
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
    cli_json_open();
    cli_json_count("layer", block.layer);
    cli_json_expert(&block);
    cli_json_flag("usable", block.usable);
    cli_json_string("reason", block.reason);
    cli_json_string("kind", block.kind);
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

static int act_info(const struct cli_verb *verb, int argc, char **argv) {
    struct swiglu_model_options model = {.struct_size = sizeof model};
    const char *value;
    int json = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 's': model.strict = 1; break;
        case 'a': model.activation = value; break;
        case 'f': model.scan = 1; break;
        case 'e': model.experts = 1; break;
        case 'j': json = 1; break;
        }
    cli_operands_max(verb, argc, argv, 1);
    if (optind == argc) cli_fail(CLI_USAGE, "info: a FILE is expected; try 'swiglu info --help'");
    struct cli_checkpoint layers;
    cli_checkpoint_open(&layers, argv[optind], &model, NULL);
    const struct swiglu_model_info *info = &layers.info;
    if (json) {
        print_file_object(&layers);
        for (size_t i = 0; i < info->n_blocks; i++) print_block_object(&layers, i);
    } else {
        char files[32] = "";
        if (info->n_files > 1) snprintf(files, sizeof files, " in %zu files", info->n_files);
        printf("%s: %s%s%s, architecture %s, %llu bytes%s, %zu tensors, %zu feed-forward block%s\n", layers.path,
               info->name, *info->name ? ", " : "", layers.format,
               *info->architecture ? info->architecture : "unnamed", (unsigned long long)info->file_bytes,
               files, info->n_tensors, info->n_blocks, info->n_blocks == 1 ? "" : "s");
        print_blocks(&layers);
        print_left_out(&layers);
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
    "file.",
    options,
    act_info,
};
