/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "grid.h"
#include "job.h"
#include "json.h"
#include "judge.h"
#include "checkpoint.h"
#include "machine.h"
#include "scan.h"

struct check {
    const char *path, *layer_list, *activation;
    size_t tokens;
    uint64_t seed;
    unsigned n_threads;
    int compute, strict, scan, experts, json;
    struct cli_checkpoint layers;
    struct cli_machine machine;
    unsigned long n_passed, n_failed;
    size_t n_not_scanned;
};

static const struct cli_option options[] = {
    {'l', "layers", "LIST", "with FILE: only these layers, such as 0,3-5"},
    {'t', "tokens", "N", "with FILE: rows of noise for the reference (default 8)"},
    {'c', "compute", "KIND", "with FILE: auto, f32, bf16 or int8 (default auto)"},
    {'s', "seed", "S", "with FILE: of the noise (default 1)"},
    {'n', "threads", "N", "with FILE: threads (default: the cores this process may use)"},
    {'a', "activation", "NAME", "with FILE: override the activation of the file"},
    {'S', "strict", NULL, "with FILE: treat warnings as errors"},
    {'f', "scan", NULL, "with FILE: read every .safetensors file of a folder, not its index"},
    {'e', "experts", NULL, "with FILE: also each expert of a mixture alone; nothing is routed"},
    {'j', "json", NULL, "one JSON object a line"},
    {0, NULL, NULL, NULL},
};

/* Returns whether an option was given that needs a FILE. */
static int parse_options(struct check *check, const struct cli_verb *verb, int argc, char **argv) {
    const char *value;
    int needs_file = 0;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) {
        needs_file |= key != 'j';
        switch (key) {
        case 'l': check->layer_list = value; break;
        case 't': check->tokens = (size_t)cli_parse_count("tokens", value, 0, SIZE_MAX); break;
        case 'c': check->compute = cli_parse_compute(value); break;
        case 's': check->seed = cli_parse_count("seed", value, 0, UINT64_MAX); break;
        case 'n': check->n_threads = (unsigned)cli_parse_count("threads", value, 1, 1024); break;
        case 'a': check->activation = value; break;
        case 'S': check->strict = 1; break;
        case 'f': check->scan = 1; break;
        case 'e': check->experts = 1; break;
        case 'j': check->json = 1; break;
        }
    }
    cli_operands_max(verb, argc, argv, 1);
    check->path = argv[optind];
    return needs_file;
}

static void print_tensor(const struct check *check, const struct swiglu_tensor_info *tensor, int scanned,
                         const struct cli_finding *finding) {
    if (!check->json) return;
    cli_json_open("tensor");
    cli_json_string("tensor", tensor->name);
    cli_json_string("dtype", tensor->dtype_name);
    cli_json_flag("scanned", scanned);
    if (scanned) cli_json_flag("passed", !finding->n_bad);
    if (finding->n_bad) {
        cli_json_string("found", finding->what);
        cli_json_count(finding->in_blocks ? "block" : "element", finding->index);
        cli_json_count("offset", finding->offset);
        cli_json_count("bad", finding->n_bad);
    }
    cli_json_close();
}

static void scan(struct check *check, size_t i) {
    struct swiglu_tensor_info tensor = cli_model_tensor(check->layers.model, i);
    struct cli_finding finding;
    cli_progress("scanning %s", tensor.name);
    int scanned = cli_scan_tensor(check->layers.model, i, &finding, check->path);
    cli_progress(NULL);
    print_tensor(check, &tensor, scanned, &finding);
    if (!scanned) {
        check->n_not_scanned++;
        return;
    }
    if (finding.n_bad)
        cli_note("%s: tensor %s: %s, %s %llu, offset %llu (%llu such in the tensor)",
                 check->layers.info.n_files > 1 ? tensor.file : check->path, tensor.name,
                 finding.what, finding.in_blocks ? "block" : "element", (unsigned long long)finding.index,
                 (unsigned long long)finding.offset, (unsigned long long)finding.n_bad);
    *(finding.n_bad ? &check->n_failed : &check->n_passed) += 1;
}

/* All tensors of the file; with --layers those of the chosen blocks, each once. */
static void scan_all(struct check *check) {
    size_t n = check->layers.info.n_tensors;
    char *wanted = cli_alloc(n, 1);
    for (size_t i = 0; i < check->layers.n; i++) {
        struct swiglu_model_block_info b = cli_checkpoint_block(&check->layers, i);
        const long parts[] = {b.gate, b.up, b.down, b.gate_bias, b.up_bias, b.down_bias, b.norm};
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
            if (parts[p] >= 0) wanted[parts[p]] = 1;
    }
    for (size_t i = 0; i < n; i++)
        if (wanted[i] || !check->layers.named) scan(check, i);
    free(wanted);
    if (!check->json)
        printf("NaN and Inf scan: %lu tensors passed, %lu failed%s", check->n_passed, check->n_failed,
               check->n_not_scanned ? "" : "\n");
    if (!check->json && check->n_not_scanned)
        printf(", %zu of formats without a decoder not scanned\n", check->n_not_scanned);
}

static void explain(const struct check *check, const struct swiglu_model_block_info *block,
                    const struct cli_verdict *verdict) {
    char command[4096], what[64];
    int n = snprintf(command, sizeof command,
                     "swiglu run %s --layers %zu%s --tokens %zu --seed %llu --compute %s --check",
                     cli_quote(check->path), block->layer,
                     block->expert == SWIGLU_EXPERT_NONE ? "" : " --experts", check->tokens,
                     (unsigned long long)check->seed,
                     cli_compute_name(check->compute));
    if (check->activation && (size_t)n < sizeof command)
        snprintf(command + n, sizeof command - (size_t)n, " --activation %s", cli_quote(check->activation));
    snprintf(what, sizeof what, "layer %s", cli_block_label(block).words);
    cli_verdict_explain(verdict, what, command);
}

/* A block that agrees with the reference in having no numbers is not fit for use. */
static int passed(const struct cli_verdict *verdict) { return cli_verdict_passed(verdict) && cli_verdict_finite(verdict); }

static const char *word(const struct cli_verdict *verdict) {
    return passed(verdict) ? "passed" : !cli_verdict_passed(verdict) ? "FAILED" : verdict->n_open ? "NO BOUND" : "NO NUMBERS";
}

static void print_verdict(const struct check *check, const struct swiglu_model_block_info *block, const char *label,
                          const char *kernel, const struct cli_verdict *verdict) {
    if (check->json) {
        cli_json_open("block");
        cli_json_count("layer", block->layer);
        cli_json_expert(block);
        cli_json_flag("passed", passed(verdict));
        cli_json_count("nan", verdict->classes.n_nan);
        cli_json_count("inf", verdict->classes.n_inf);
        cli_json_count("check_rows", verdict->n_rows);
        cli_json_count("check_unbounded", verdict->n_open);
        cli_json_number("check_worst", verdict->worst);
        cli_json_number("check_worst_hidden", verdict->worst_hidden);
        cli_json_number("check_typical", verdict->typical);
        cli_json_number("check_frobenius", verdict->frobenius);
        cli_json_close();
        return;
    }
    printf("%5s  %-18s  %9.4f  %7.4f  %10.2e  %s%s\n", label, kernel, verdict->worst, verdict->typical,
           verdict->frobenius, word(verdict), cli_classes_words(verdict->classes));
    fflush(stdout);
}

static void judge_block(struct check *check, size_t i) {
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_model_block_info block = cli_checkpoint_block(&check->layers, i);
    const struct cli_block_label label = cli_block_label(&block);
    struct swiglu_desc desc;
    struct cli_job job;
    struct cli_verdict verdict;
    cli_progress("layer %s (%zu of %zu)", label.words, i + 1, check->layers.n);
    swiglu_desc_init(&desc);
    cli_require(swiglu_model_desc(check->layers.model, check->layers.index[i], &desc, &error), &error, check->path);
    float *x = cli_rows_alloc(check->tokens, desc.d_in);
    cli_checkpoint_noise(&check->layers, i, check->seed, check->tokens, x);
    cli_job_open(&job, &check->machine, &desc, check->compute, check->tokens, x, check->path);
    cli_job_run(&job, &check->machine);
    const struct cli_case judged = {&desc, job.block, &check->machine.runner, check->compute, check->tokens, x, job.y,
                                    check->seed, check->path};
    cli_judge(&judged, &verdict);
    cli_progress(NULL);
    *(passed(&verdict) ? &check->n_passed : &check->n_failed) += 1;
    print_verdict(check, &block, label.words, job.info.kernel_first, &verdict);
    if (!cli_verdict_passed(&verdict))
        explain(check, &block, &verdict);
    else if (verdict.n_open)
        cli_note("check failed: layer %s: %zu values of h or y have no bound: their sums are so large that f32 may overflow",
                 label.words, verdict.n_open);
    else if (!passed(&verdict))
        cli_note("check failed: layer %s: y holds values that are no numbers%s, and so does the reference", label.words,
                 cli_classes_words(verdict.classes));
    cli_job_close(&job);
    free(x);
}

static void check_file(struct check *check) {
    cli_machine_open(&check->machine, check->n_threads, UINT64_MAX);
    const struct swiglu_model_options model = {.struct_size = sizeof model, .strict = check->strict,
                                               .activation = check->activation, .scan = check->scan,
                                               .experts = check->experts};
    cli_checkpoint_open(&check->layers, check->path, &model, check->layer_list);
    scan_all(check);
    if (!check->layer_list) cli_checkpoint_note_left_out(&check->layers);
    if (!check->json && check->layers.n)
        printf("\nlayer  kernel                error/B  typical  rel. error\n");
    for (size_t i = 0; i < check->layers.n; i++) judge_block(check, i);
    cli_checkpoint_close(&check->layers);
    cli_machine_close(&check->machine);
}

static int act_check(const struct cli_verb *verb, int argc, char **argv) {
    struct check check = {.tokens = 8, .seed = 1};
    if (parse_options(&check, verb, argc, argv) && !check.path)
        cli_fail(CLI_USAGE, "check: only --json can be used without a FILE; try 'swiglu check --help'");
    if (check.path)
        check_file(&check);
    else
        cli_grid_run(check.json, &check.n_passed, &check.n_failed);
    if (check.json) {
        cli_json_open("total");
        cli_json_count("passed", check.n_passed);
        cli_json_count("failed", check.n_failed);
        cli_json_close();
    } else {
        printf("\n%lu passed, %lu failed\n", check.n_passed, check.n_failed);
    }
    return check.n_failed ? CLI_FAILED : CLI_OK;
}

const struct cli_verb cli_verb_check = {
    "check",
    "check [FILE] [options]",
    "Without FILE: compares the kernels of every level of this CPU with the generic ones, bit for bit, and the\n"
    "generic ones with a double-precision reference, over activations, layouts, formats, shapes and special values.\n"
    "With FILE: looks for NaN and Inf among the weights of all tensors (of these layers, with --layers) and compares\n"
    "every block with the reference.",
    "Each axis is swept completely while the others are held; the last line is 'N passed, N failed'. Exit 1 when\n"
    "one failed. error/B is the largest error in units of its bound (up to 1 passes), of the hidden values and of y as\n"
    "the down product of those; typical that of y against the usual size of rounding errors, rel. error against plain\n"
    "double.",
    options,
    act_check,
};
