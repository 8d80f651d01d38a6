/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "cli.h"
#include "json.h"

static const struct cli_option options[] = {
    {'t', "type", "NAME", "type of the feed-forward weights, such as bf16; left out with --layout: as they are"},
    {'l', "layout", "separate|gate_up", "store gate and up as two tensors, or as one [gate|up]"},
    {'m', "split-max-size", "N[K|M|G]", "GGUF: write a set of shards with at most so many bytes of tensors (1K: 1000)"},
    {'a', "activation", "NAME", "override the activation that the file means"},
    {'s', "strict", NULL, "treat warnings as errors"},
    {'f', "scan", NULL, "read every .safetensors file of a folder, not its index"},
    {'j', "json", NULL, "one JSON object a weight whose type changes, then one of the file"},
    {0, NULL, NULL, NULL},
};

/* The first signal asks the library to stop, which removes the unfinished file; a second one ends the process. */
static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t caught;

static void remember(int number) { caught = number; }

static void install_handlers(void) {
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
        struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESETHAND}, old;
        sigemptyset(&action.sa_mask);
        if (sigaction(deadly[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(deadly[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files becomes a failed write */
}

static void die_of_signal(void) {
    cli_progress(NULL);
    signal(caught, SIG_DFL);
    raise(caught);
}

struct progress { int percent, json, n_shown; uint64_t total; };

static int show_progress(void *ctx, uint64_t done, uint64_t total) {
    enum { WIDTH = 40 };
    static const char bar[] = "========================================";
    struct progress *p = ctx;
    int percent = total ? (int)((double)done / (double)total * 100) : 100;
    p->total = total;
    if (percent != p->percent)
        cli_progress("[%-*.*s] %3d%% of %.1f MB", WIDTH, percent * WIDTH / 100, bar, percent, (double)total / 1e6);
    p->percent = percent;
    return caught != 0;
}

static void show_converted(void *ctx, const struct swiglu_converted *t) {
    struct progress *p = ctx;
    const char *from = cli_dtype_name(t->from), *to = cli_dtype_name(t->to);
    if (p->json) {
        cli_json_open("weight");
        cli_json_string("tensor", t->name);
        cli_json_string("from", from);
        cli_json_string("to", to);
        cli_json_count("values", t->n);
        cli_json_number("relative_error", t->relative_error);
        cli_json_number("largest_error", t->largest_error);
        cli_json_close();
        return;
    }
    cli_progress(NULL);
    p->percent = -1;
    if (!p->n_shown++) printf("%-40s  %-5s  %-5s  %14s  %13s\n", "weight", "from", "to", "relative error", "largest error");
    printf("%-40s  %-5s  %-5s  %14.3g  %13.3g\n", t->name, from, to, t->relative_error, t->largest_error);
    fflush(stdout);
}

/* Weights whose type changes. */
static size_t count_converted(const struct cli_checkpoint *layers, int dtype) {
    size_t n = 0;
    for (size_t i = 0; i < layers->n && dtype != SWIGLU_DTYPE_KEEP; i++) {
        struct swiglu_model_block_info block = cli_checkpoint_block(layers, i);
        const long weight[] = {block.gate, block.up, block.down};
        for (int k = 0; k < 3; k++)
            n += weight[k] >= 0 && cli_model_tensor(layers->model, (size_t)weight[k]).dtype != dtype;
    }
    return n;
}

static void print_result(const struct cli_checkpoint *layers, const char *out, const char *type, int dtype,
                         const struct progress *progress) {
    size_t n = count_converted(layers, dtype), kept = layers->info.n_tensors - n;
    if (!progress->json) {
        printf("%s: ", cli_printable(out));
        if (dtype != SWIGLU_DTYPE_KEEP) printf("%zu weight%s to %s, ", n, n == 1 ? "" : "s", type);
        printf("%zu tensor%s with their bits, %llu bytes of tensors\n", kept, kept == 1 ? "" : "s",
               (unsigned long long)progress->total);
        return;
    }
    cli_json_open("file");
    cli_json_string("file", out);
    if (dtype != SWIGLU_DTYPE_KEEP) cli_json_string("type", type);
    cli_json_count("converted", n);
    cli_json_count("kept", kept);
    cli_json_count("tensor_bytes", progress->total);
    cli_json_close();
}

/* path is a folder or a file in one. */
static int has_config(const char *path) {
    char config[PATH_MAX];
    struct stat status;
    int is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    const char *slash = strrchr(path, '/');
    size_t n = is_folder ? strlen(path) : slash ? (size_t)(slash - path) + 1 : 0;
    if (n + sizeof "/config.json" > sizeof config) return 0;
    snprintf(config, sizeof config, "%.*s%sconfig.json", (int)n, path, is_folder ? "/" : "");
    return access(config, F_OK) == 0;
}

/* Other tools take the type as an operand, and call it Q4_K_M. */
static void suggest_type(const char *operand) {
    for (size_t i = 0; swiglu_dtype_at(i) >= 0; i++) {
        const char *name = cli_dtype_name(swiglu_dtype_at(i));
        const size_t n = strlen(name);
        if (!strncasecmp(operand, name, n) && (!operand[n] || operand[n] == '_'))
            cli_fail(CLI_USAGE, "convert: the type is an option, not operand %s: --type %s", operand, name);
    }
}

/* "4G", as gguf-split takes it. */
static uint64_t parse_size(const char *option, const char *text) {
    static const struct { char letter; uint64_t bytes; } units[] = {{'K', 1000}, {'M', 1000000}, {'G', 1000000000}};
    const size_t n = strlen(text);
    char digits[32];
    for (size_t i = 0; n && i < sizeof units / sizeof units[0]; i++) {
        if (text[n - 1] != units[i].letter) continue;
        snprintf(digits, sizeof digits, "%.*s", (int)(n - 1), text);
        return cli_parse_count(option, digits, 1, UINT64_MAX / units[i].bytes) * units[i].bytes;
    }
    return cli_parse_count(option, text, 1, UINT64_MAX);
}

static int act_convert(const struct cli_verb *verb, int argc, char **argv) {
    static const char *const layouts[] = {"separate", "gate_up", NULL};
    static const int repacks[] = {SWIGLU_REPACK_SEPARATE, SWIGLU_REPACK_GATE_UP};
    struct progress progress = {.percent = -1};
    struct swiglu_convert_options convert = {.struct_size = sizeof convert, .dtype = SWIGLU_DTYPE_KEEP,
                                             .progress = show_progress, .progress_ctx = &progress,
                                             .converted = show_converted};
    struct swiglu_model_options model = {.struct_size = sizeof model};
    const char *value, *type = NULL, *layout = NULL;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 't': type = value, convert.dtype = cli_parse_dtype("type", value); break;
        case 'l': layout = value, convert.repack = repacks[cli_parse_name("layout", value, layouts)]; break;
        case 'm': convert.split_max_bytes = parse_size("split-max-size", value); break;
        case 'a': model.activation = value; break;
        case 's': model.strict = 1; break;
        case 'f': model.scan = 1; break;
        case 'j': progress.json = 1; break;
        }
    if (argc - optind == 3) suggest_type(argv[optind + 2]);
    cli_operands_max(verb, argc, argv, 2);
    if (argc - optind < 2) cli_fail(CLI_USAGE, "convert: IN and OUT are expected; try 'swiglu convert --help'");
    if (!type && !layout && !convert.split_max_bytes)
        cli_fail(CLI_USAGE, "convert: --type, --layout or --split-max-size is expected; try 'swiglu convert --help'");
    const char *out = argv[optind + 1];
    cli_refuse_dash(out, "a checkpoint is read back before it appears, so it cannot go to standard output");
    struct swiglu_error error = {.struct_size = sizeof error};
    struct cli_checkpoint layers;
    cli_checkpoint_open(&layers, argv[optind], &model, NULL);
    cli_checkpoint_note_left_out(&layers);
    install_handlers();
    enum swiglu_status status = swiglu_model_convert(layers.model, out, &convert, &error);
    if (status && caught) die_of_signal();
    cli_require(status, &error, out);
    cli_progress(NULL);
    if (!strcmp(layers.info.format, "safetensors") && has_config(layers.path) && !has_config(out))
        cli_note("%s: what it means stands in a config.json, which its folder lacks: copy that of %s", out, layers.path);
    print_result(&layers, out, type, convert.dtype, &progress);
    cli_checkpoint_close(&layers);
    return CLI_OK;
}

const struct cli_verb cli_verb_convert = {
    "convert",
    "convert IN OUT --type NAME [options]",
    "Writes a checkpoint whose feed-forward weights have another type or layout. Everything else stays byte for byte:\n"
    "other tensors, biases, metadata. Also called as 'swiglu quantize'.",
    "Types are f32, f16, bf16 and, in GGUF, the block formats that 'swiglu cpu' lists. Weights are decoded exactly, then\n"
    "rounded once or encoded: blocks of 32 as other tools do, K formats for a small squared error, in rows that are\n"
    "multiples of 256. The error of each weight is printed: the root of its squared errors by that of its squares, and\n"
    "the largest. A weight that has the type already keeps its bits. A value that the type cannot hold is an error.\n"
    "Blocks that are left out keep theirs. OUT appears whole or not at all, and may be IN. A file that is replaced\n"
    "passes on its mode; a symbolic link is replaced, not followed. A safetensors folder and a GGUF set become one file\n"
    "(beside which config.json belongs), or with --split-max-size a GGUF set of new files OUT-00001-of-0000N.gguf.",
    options,
    act_convert,
};
