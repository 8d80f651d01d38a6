/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "cli.h"
#include "json.h"

/* Released models whose blocks the targets are written for. */
static const struct { const char *name; size_t d, f; const char *activation; } models[] = {
    {"smollm2-135m", 576, 1536, "silu"},      {"qwen2.5-0.5b", 896, 4864, "silu"},
    {"gemma-3-1b", 1152, 6912, "gelu_tanh"},  {"tinyllama", 2048, 5632, "silu"},
    {"llama-3-8b", 4096, 14336, "silu"},      {"qwen3-30b-a3b", 2048, 768, "silu"},
};
enum { N_MODELS = sizeof models / sizeof models[0], MAX_TOKENS = 16, MAX_DTYPES = 3 };

/* By number: cli_cell's train, and enum swiglu_train_flags. */
static const char *const modes[] = {"forward", "train", NULL};
static const char *const policies[] = {"recompute", "keep", NULL};

struct bench {
    struct cli_cell cell;
    const char *model;
    size_t tokens[MAX_TOKENS], n_tokens;
    int dtypes[MAX_DTYPES];
    size_t n_dtypes;
    unsigned n_threads;
    uint64_t mask;
    int json;
};

static const struct cli_option options[] = {
    {'w', "shape", "D,F", "model and hidden width (default 2048,5632)"},
    {'m', "model", "NAME", "the widths and activation of smollm2-135m, qwen2.5-0.5b, gemma-3-1b,\n"
                           "tinyllama, llama-3-8b or qwen3-30b-a3b (one expert)"},
    {'t', "tokens", "LIST", "rows at once (default 1,8,512; training 512)"},
    {'d', "dtype", "LIST", "weight types among f32, bf16, f16 (default all three)"},
    {'n', "threads", "N", "threads (default 1)"},
    {'i', "isa", "LEVEL", "upper limit of the instruction set: a level that 'swiglu cpu' lists"},
    {'c', "compute", "KIND", "auto, f32 or bf16 (default auto)"},
    {'o', "mode", "KIND", "forward (default), or train: forward and backward with all gradients"},
    {'p', "policy", "KIND", "of training: recompute gate and up (default), or keep them"},
    {'a', "activation", "NAME", "default silu, or that of the model"},
    {'j', "json", NULL, "one JSON object a cell"},
    {0, NULL, NULL, NULL},
};

static void choose_model(struct bench *bench, const char *name) {
    char list[128] = "";
    for (int i = 0; i < N_MODELS; i++) {
        if (!strcmp(models[i].name, name)) {
            bench->model = name;
            bench->cell.d = models[i].d, bench->cell.f = models[i].f;
            cli_parse_activation(models[i].activation, &bench->cell.act);
            return;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", models[i].name);
    }
    cli_fail(CLI_USAGE, "--model %s: one of %s is expected", *name ? name : "''", list);
}

static size_t parse_dtypes(const char *text, int *dtypes) {
    size_t n = 0;
    for (const char *p = text;; p++) {
        char word[16] = "";
        size_t length = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < 15 ? length : 15), p);
        if (n == MAX_DTYPES) cli_fail(CLI_USAGE, "--dtype %s: more than %d types", text, MAX_DTYPES);
        dtypes[n++] = cli_parse_dtype(word);
        p += length;
        if (!*p) return n;
    }
}

static void parse_options(struct bench *bench, const struct cli_verb *verb, int argc, char **argv) {
    const char *value, *activation = NULL;
    int shape_given = 0, policy_given = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 'w': cli_parse_shape(value, &bench->cell.d, &bench->cell.f), shape_given = 1; break;
        case 'm': choose_model(bench, value); break;
        case 't': bench->n_tokens = cli_parse_counts("tokens", value, 1, 1 << 24, bench->tokens, MAX_TOKENS); break;
        case 'd': bench->n_dtypes = parse_dtypes(value, bench->dtypes); break;
        case 'n': bench->n_threads = (unsigned)cli_parse_count("threads", value, 1, 1024); break;
        case 'i': bench->mask = cli_level_mask("--isa", value); break;
        case 'c': bench->cell.compute = cli_parse_compute(value); break;
        case 'o': bench->cell.train = (int)cli_parse_name("mode", value, modes); break;
        case 'p': bench->cell.policy = (unsigned)cli_parse_name("policy", value, policies), policy_given = 1; break;
        case 'a': activation = value; break;
        case 'j': bench->json = 1; break;
        }
    cli_operands_max(verb, argc, argv, 0);
    if (shape_given && bench->model) cli_fail(CLI_USAGE, "bench: --shape and --model exclude each other");
    if (!bench->cell.d || !bench->cell.f) cli_fail(CLI_USAGE, "--shape: widths of 0 leave nothing to measure");
    if (!bench->n_tokens)
        bench->n_tokens = cli_parse_counts("tokens", bench->cell.train ? "512" : "1,8,512", 1, 512, bench->tokens, MAX_TOKENS);
    if (policy_given && !bench->cell.train) cli_fail(CLI_USAGE, "bench: --policy belongs to --mode train");
    if (activation) cli_parse_activation(activation, &bench->cell.act);
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* The share that one thread must reach on Zen 4 and Zen 5, or 0 where none is set. */
static double target(const struct cli_cell *cell, const struct cli_figures *figures, unsigned n_threads) {
    int wide = cell->d >= 2048, narrow = cell->d <= 1152, f16 = cell->dtype == SWIGLU_F16;
    if (n_threads != 1 || cell->compute != SWIGLU_COMPUTE_AUTO || figures->isa == SWIGLU_ISA_GENERIC) return 0;
    if (cell->train) {
        const int set = cell->m == 512 && !f16 && (wide || narrow) && figures->isa >= SWIGLU_ISA_AVX512;
        const double f32 = wide ? 0.93 : 0.91, bf16 = wide ? 0.92 : 0.89;
        return !set || figures->isa == SWIGLU_ISA_NEON ? 0 : cell->dtype == SWIGLU_F32 ? f32 : bf16;
    }
    if (figures->isa == SWIGLU_ISA_AVX2) return cell->m != 512 ? 0 : cell->dtype == SWIGLU_F32 ? 0.93 : 0.90;
    if (figures->isa == SWIGLU_ISA_NEON) return 0;
    switch (cell->m) {
    case 1: return 0.95;
    case 8: return f16 ? 0 : 0.84;
    case 32: return f16 || cell->d != 2048 ? 0 : 0.86;
    case 128: return f16 || cell->d != 2048 ? 0 : 0.94;
    case 512: return f16 ? 0.92 : wide ? 0.95 : !narrow ? 0 : cell->dtype == SWIGLU_F32 ? 0.93 : 0.92;
    default: return 0;
    }
}

static void describe_result(const struct cli_figures *f, double must, char *text, size_t size) {
    switch (f->outcome) {
    case CLI_NOISY:
        snprintf(text, size, "not measured (noisy: the limit varied by %.0f %%)", 100 * f->probe_range);
        break;
    case CLI_VOID:
        snprintf(text, size, "void (share %.2f: the measured limit was too low)", f->share);
        break;
    default:
        if (must > 0 && f->share < 0.8 * must)
            snprintf(text, size, "WARN: below 0.8 x %.2f", must);
        else
            *text = 0;
    }
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_heading(const struct bench *bench) {
    char words[96], about[128] = "";
    cli_act_words(&bench->cell.act, words, sizeof words);
    if (*words) snprintf(about, sizeof about, " (%s)", words);
    printf("%s%s%zu/%zu, %u thread%s%s", bench->model ? bench->model : "", bench->model ? ", " : "", bench->cell.d,
           bench->cell.f, bench->n_threads, bench->n_threads == 1 ? "" : "s", about);
    if (bench->cell.train) printf(", training, policy %s", policies[bench->cell.policy]);
    printf("\n\n");
    printf("tokens  weights  compute  level       state   time ms  10-90 %%             share  10-90 %%     limit      "
           "P GFLOP/s  B GB/s\n");
}

static void print_row(const struct bench *bench, const struct cli_figures *f) {
    const struct cli_cell *cell = &bench->cell;
    char note[96], times[40], share[40] = "   -               ";
    describe_result(f, target(cell, f, bench->n_threads), note, sizeof note);
    snprintf(times, sizeof times, "%.4g - %.4g", 1e3 * f->seconds_p10, 1e3 * f->seconds_p90);
    if (f->outcome == CLI_MEASURED)
        snprintf(share, sizeof share, "%5.3f  %.3f-%.3f", f->share, f->share_p10, f->share_p90);
    printf("%6zu  %-7s  %-7s  %-10s  %-5s  %8.4g  %-18s  %s  %-9s  %9.2f  %6.2f  %s\n", cell->m,
           cli_dtype_name(cell->dtype), cli_compute_name(f->compute), cli_isa_name(f->isa), f->cold ? "cold" : "warm",
           1e3 * f->seconds, times, share, f->limit, 1e-9 * f->peak_flops, 1e-9 * f->read_bytes, note);
    fflush(stdout);
}

static void print_object(const struct bench *bench, const struct cli_figures *f) {
    const struct cli_cell *cell = &bench->cell;
    double must = target(cell, f, bench->n_threads);
    int measured = f->outcome == CLI_MEASURED;
    char note[96];
    describe_result(f, must, note, sizeof note);
    cli_json_open();
    if (bench->model) cli_json_string("model", bench->model);
    cli_json_list("shape");
    cli_json_count(NULL, cell->d);
    cli_json_count(NULL, cell->f);
    cli_json_list_end();
    cli_json_string("mode", modes[cell->train]);
    if (cell->train) cli_json_string("policy", policies[cell->policy]);
    cli_json_count("tokens", cell->m);
    cli_json_string("dtype", cli_dtype_name(cell->dtype));
    cli_json_string("compute", cli_compute_name(f->compute));
    cli_json_count("threads", bench->n_threads);
    cli_json_string("isa", cli_isa_name(f->isa));
    cli_json_string("kernel_first", f->kernel_first);
    cli_json_string("kernel_down", f->kernel_down);
    cli_json_string("state", f->cold ? "cold" : "warm");
    cli_json_number("time_ms", 1e3 * f->seconds);
    cli_json_number("time_ms_p10", 1e3 * f->seconds_p10);
    cli_json_number("time_ms_p90", 1e3 * f->seconds_p90);
    cli_json_number("share", measured ? f->share : (double)NAN);
    cli_json_number("share_p10", measured ? f->share_p10 : (double)NAN);
    cli_json_number("share_p90", measured ? f->share_p90 : (double)NAN);
    cli_json_string("limit", f->limit);
    cli_json_number("peak_gflops", 1e-9 * f->peak_flops);
    cli_json_number("read_gbs", 1e-9 * f->read_bytes);
    cli_json_number("probe_range", f->probe_range);
    cli_json_count("repetitions", CLI_REPETITIONS);
    cli_json_string("outcome", measured ? "measured" : f->outcome == CLI_NOISY ? "noisy" : "void");
    cli_json_number("must", must > 0 ? must : (double)NAN);
    cli_json_string("note", note);
    cli_json_close();
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int act_bench(const struct cli_verb *verb, int argc, char **argv) {
    struct bench bench = {.cell = {.d = 2048, .f = 5632}, .n_threads = 1,
                          .dtypes = {SWIGLU_F32, SWIGLU_BF16, SWIGLU_F16}, .n_dtypes = 3, .mask = UINT64_MAX};
    struct cli_machine machine;
    cli_parse_activation("silu", &bench.cell.act);
    parse_options(&bench, verb, argc, argv);
    cli_machine_open(&machine, bench.n_threads, bench.mask);
    if (!bench.json) print_heading(&bench);
    for (size_t d = 0; d < bench.n_dtypes; d++)
        for (size_t t = 0; t < bench.n_tokens; t++) {
            struct cli_figures figures;
            bench.cell.dtype = bench.dtypes[d];
            bench.cell.m = bench.tokens[t];
            cli_progress("cell %zu of %zu", d * bench.n_tokens + t + 1, bench.n_dtypes * bench.n_tokens);
            cli_cell_measure(&machine, &bench.cell, &figures);
            cli_progress(NULL);
            (bench.json ? print_object : print_row)(&bench, &figures);
            cli_stdout_finish();
        }
    if (!bench.json)
        printf("\nshare = max(operations / P, bytes / B) / time: 1 is the limit. P and B are measured before and\n"
               "after each of %d repetitions, medians are shown. bytes: weights at their size in a file, x and y,\n"
               "once%s. cold: the weights rotate through copies of more than 256 MB; warm: they may be in a cache.\n",
               CLI_REPETITIONS, bench.cell.train ? ", and gradients, dy and dx" : "");
    cli_machine_close(&machine);
    return CLI_OK;
}

const struct cli_verb cli_verb_bench = {
    "bench",
    "bench [options]",
    "Measures the forward pass of one block of noise, or a training step, for each weight type and number of tokens:\n"
    "time, and share of what the machine's arithmetic (P) or memory bandwidth (B) allows, both measured around every\n"
    "repetition.",
    "A cell whose limit varies by more than 8 % is measured up to three times and then marked 'not measured\n"
    "(noisy)'; a share above 1.05 voids the cell. WARN marks less than 0.8 of the project's target for one thread\n"
    "of Zen 4 or Zen 5. The exit status never depends on time. SWIGLU_ISA limits the instruction set too.",
    options,
    act_bench,
};
