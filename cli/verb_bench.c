/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"
#include "curve.h"

/* Released models whose blocks the targets are written for. */
static const struct { const char *name; size_t d, f; const char *activation; } models[] = {
    {"smollm2-135m", 576, 1536, "silu"},      {"qwen2.5-0.5b", 896, 4864, "silu"},
    {"gemma-3-1b", 1152, 6912, "gelu_tanh"},  {"tinyllama", 2048, 5632, "silu"},
    {"llama-3-8b", 4096, 14336, "silu"},      {"qwen3-30b-a3b", 2048, 768, "silu"},
};
enum { N_MODELS = sizeof models / sizeof models[0], CURVE_FROM = 5 };

static const struct cli_option options[] = {
    {'w', "shape", "D,F", "model and hidden width (default 2048,5632)"},
    {'m', "model", "NAME", "the widths and activation of smollm2-135m, qwen2.5-0.5b, gemma-3-1b,\n"
                           "tinyllama, llama-3-8b or qwen3-30b-a3b (one expert)"},
    {'t', "tokens", "LIST", "rows at once, such as 1,8,512 (the default; training 512) or 1-32; from\n"
                         "five numbers on a curve is drawn"},
    {'d', "dtype", "LIST", "weight types, such as f32,bf16,f16 (the default) or q8_0"},
    {'n', "threads", "N", "threads (default 1)"},
    {'i', "isa", "LEVEL", "upper limit of the instruction set: a level that 'swiglu cpu' lists"},
    {'c', "compute", "KIND", "auto, f32, bf16 or int8 (default auto)"},
    {'o', "mode", "KIND", "forward (default), or train: forward and backward with all gradients"},
    {'p', "policy", "KIND", "of training: recompute gate and up (default), or keep them"},
    {'a', "activation", "NAME", "default silu, or that of the model"},
    {'j', "json", NULL, "one JSON object a cell"},
    {'v', "csv", NULL, "a line of names, then one line of comma-separated values a cell"},
    {'k', "markdown", NULL, "the table in Markdown"},
    {0, NULL, NULL, NULL},
};

static void choose_model(struct cli_bench *bench, const char *name) {
    const char *names[N_MODELS + 1] = {0};
    for (int i = 0; i < N_MODELS; i++) names[i] = models[i].name;
    const size_t i = cli_parse_name("model", name, names);
    bench->model = name;
    bench->cell.d = models[i].d, bench->cell.f = models[i].f;
    cli_parse_activation(models[i].activation, &bench->cell.act);
}

static size_t parse_dtypes(const char *text, int *dtypes) {
    size_t n = 0;
    for (const char *p = text;; p++) {
        char word[16] = "";
        size_t length = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < 15 ? length : 15), p);
        if (n == CLI_BENCH_DTYPES) cli_fail(CLI_USAGE, "--dtype %s: more than %d types", text, CLI_BENCH_DTYPES);
        dtypes[n++] = cli_parse_dtype("dtype", word);
        p += length;
        if (!*p) return n;
    }
}

static void refuse_blocks(int dtype) {
    struct swiglu_dtype_info info = {.struct_size = sizeof info};
    cli_require(swiglu_dtype_query(dtype, &info), NULL, "bench");
    if (info.block_elems > 1) cli_fail(CLI_USAGE, "bench: training is for weights of single values, not %s", info.name);
}

static int format_of(int key) {
    return key == 'j' ? CLI_BENCH_JSON : key == 'v' ? CLI_BENCH_CSV : CLI_BENCH_MARKDOWN;
}

static void parse_options(struct cli_bench *bench, const struct cli_verb *verb, int argc, char **argv) {
    const char *value, *activation = NULL;
    int shape_given = 0, policy_given = 0;
    unsigned formats = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 'w': cli_parse_shape(value, &bench->cell.d, &bench->cell.f), shape_given = 1; break;
        case 'm': choose_model(bench, value); break;
        case 't': bench->n_tokens = cli_parse_counts("tokens", value, 1, 1 << 24, bench->tokens, CLI_CURVE_ROWS); break;
        case 'd': bench->n_dtypes = parse_dtypes(value, bench->dtypes); break;
        case 'n': bench->n_threads = (unsigned)cli_parse_count("threads", value, 1, 1024); break;
        case 'i': bench->mask = cli_level_mask("--isa", value); break;
        case 'c': bench->cell.compute = cli_parse_compute(value); break;
        case 'o': bench->cell.train = (int)cli_parse_name("mode", value, cli_bench_modes); break;
        case 'p': bench->cell.policy = (unsigned)cli_parse_name("policy", value, cli_bench_policies), policy_given = 1; break;
        case 'a': activation = value; break;
        case 'j': case 'v': case 'k': formats |= 1u << (bench->format = format_of(key)); break;
        }
    cli_operands_max(verb, argc, argv, 0);
    if (formats & (formats - 1)) cli_fail(CLI_USAGE, "bench: --json, --csv and --markdown exclude each other");
    if (shape_given && bench->model) cli_fail(CLI_USAGE, "bench: --shape and --model exclude each other");
    if (!bench->cell.d || !bench->cell.f) cli_fail(CLI_USAGE, "--shape: widths of 0 leave nothing to measure");
    if (!bench->n_tokens)
        bench->n_tokens = cli_parse_counts("tokens", bench->cell.train ? "512" : "1,8,512", 1, 512, bench->tokens,
                                           CLI_CURVE_ROWS);
    for (size_t i = 0; i < bench->n_dtypes && bench->cell.train; i++) refuse_blocks(bench->dtypes[i]);
    if (policy_given && !bench->cell.train) cli_fail(CLI_USAGE, "bench: --policy belongs to --mode train");
    if (activation) cli_parse_activation(activation, &bench->cell.act);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static void measure_all(struct cli_bench *bench, struct cli_machine *machine, double *shares) {
    for (size_t d = 0; d < bench->n_dtypes; d++)
        for (size_t t = 0; t < bench->n_tokens; t++) {
            struct cli_figures figures;
            bench->cell.dtype = bench->dtypes[d];
            bench->cell.m = bench->tokens[t];
            cli_progress("cell %zu of %zu", d * bench->n_tokens + t + 1, bench->n_dtypes * bench->n_tokens);
            cli_cell_measure(machine, &bench->cell, &figures);
            cli_progress(NULL);
            cli_bench_print(bench, &figures, d + t == 0);
            cli_stdout_finish();
            shares[d * bench->n_tokens + t] = figures.share;
        }
}

static void print_curves(const struct cli_bench *bench, const double *shares) {
    struct cli_curve curves[CLI_BENCH_DTYPES];
    for (size_t d = 0; d < bench->n_dtypes; d++) {
        const int dtype = bench->dtypes[d];
        const char mark = dtype == SWIGLU_F32 ? 'f' : dtype == SWIGLU_BF16 ? 'b' : dtype == SWIGLU_F16 ? 'h' : (char)('0' + d);
        curves[d] = (struct cli_curve){mark, cli_dtype_name(dtype), shares + d * bench->n_tokens};
    }
    putchar('\n');
    cli_curves_print(curves, bench->n_dtypes, bench->tokens, bench->n_tokens);
}

static int act_bench(const struct cli_verb *verb, int argc, char **argv) {
    static double shares[CLI_BENCH_DTYPES * CLI_CURVE_ROWS];
    struct cli_bench bench = {.cell = {.d = 2048, .f = 5632}, .n_threads = 1, .format = CLI_BENCH_TEXT,
                              .dtypes = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16}, .n_dtypes = 3, .mask = UINT64_MAX};
    struct cli_machine machine;
    cli_parse_activation("silu", &bench.cell.act);
    parse_options(&bench, verb, argc, argv);
    cli_machine_open(&machine, bench.n_threads, bench.mask);
    measure_all(&bench, &machine, shares);
    if (bench.format == CLI_BENCH_TEXT) {
        if (bench.n_tokens >= CURVE_FROM) print_curves(&bench, shares);
        cli_bench_print_legend(&bench);
    }
    cli_machine_close(&machine);
    return CLI_OK;
}

const struct cli_verb cli_verb_bench = {
    "bench",
    "bench [options]",
    "Measures the forward pass of one block of noise, or a training step, for each weight type and number of tokens:\n"
    "time, and share of what the machine's arithmetic (P) or memory bandwidth (B) allows, both measured around every\n"
    "run.",
    "A share is the median over 11 runs, each judged by the probes beside it, so that a machine that becomes slower\n"
    "meanwhile does not change it. Where it is not known to within 4 % up to 33 runs are taken; a cell that is noisy\n"
    "even then says so and what to do. WARN marks less than 0.8 of the project's target for one thread of Zen 4 or\n"
    "Zen 5. The exit status never depends on time. SWIGLU_ISA limits the instruction set too.",
    options,
    act_bench,
};
