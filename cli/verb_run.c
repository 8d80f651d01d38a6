/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "job.h"
#include "json.h"
#include "judge.h"
#include "checkpoint.h"
#include "machine.h"
#include "noise.h"
#include "npy.h"
#include "output.h"
#include "quantile.h"

struct run {
    const char *path, *layer_list, *input_path, *output_path, *activation;
    size_t tokens, d, f;
    uint64_t seed;
    unsigned n_threads;
    int compute, dtype, check, digest, json, scan, experts;
    int probes; /* there is memory to measure the machine with, so shares are shown */
    int tokens_given, own_given; /* own: --shape or --dtype, which a file decides itself */

    struct cli_machine machine;
    struct cli_checkpoint layers;    /* where there is a FILE */
    struct cli_noise_block own;  /* where there is none */
    struct cli_npy input;        /* where --input is given */
    size_t n_blocks, m;
    struct swiglu_limits before; /* the machine's limits since the last probe */

    size_t n_passed, n_failed, n_open;
    struct cli_classes classes; /* of all blocks */
    struct cli_block_label worst_block;
    double worst, total_seconds;
};

/* What is known of one block after it ran. */
struct result {
    struct swiglu_model_block_info block; /* without FILE only layer 0 */
    struct cli_block_label label;
    const char *activation;
    const struct swiglu_desc *desc;
    const struct cli_job *job;
    double seconds, share, peak_flops, read_bytes;
    const char *limit, *state;
    uint64_t digest;
    struct cli_classes classes;
    struct cli_verdict verdict;
};

static const struct cli_option options[] = {
    {'l', "layers", "LIST", "only these layers, such as 0,3-5 (default: all that can be evaluated)"},
    {'i', "input", "X.npy", "f32 or f16, rank 1 to 8, last axis the model width; every block gets the same x"},
    {'o', "output", "Y.npy", "write y as f32; with several layers a folder that gets layer-000.npy and so on"},
    {'t', "tokens", "N", "rows of x where no input is given (default 128)"},
    {'c', "compute", "KIND", "auto, f32, bf16 or int8 (default auto: bf16 for bf16 weights, f32 for all others;\n"
                          "int8: block formats from their own bits, rows as 8-bit integers)"},
    {'n', "threads", "N", "threads (default: the cores this process may use); y is the same for any number"},
    {'k', "check", NULL, "compare y with a double-precision reference and its error bound; exit 1 outside"},
    {'g', "digest", NULL, "print only the layer and the digest of y, without timing; with --json no times"},
    {'j', "json", NULL, "one JSON object a layer"},
    {'s', "seed", "S", "of the noise (default 1)"},
    {'a', "activation", "NAME", "override the activation of the file, or choose that of the block of noise (default silu)"},
    {'f', "scan", NULL, "read every .safetensors file of a folder, not its index"},
    {'e', "experts", NULL, "also each expert of a mixture alone; nothing is routed"},
    {'w', "shape", "D,F", "without FILE: model and hidden width of a block of noise (default 576,1536)"},
    {'d', "dtype", "TYPE", "without FILE: f32 (default), bf16, f16 or a block format that 'swiglu cpu' lists"},
    {0, NULL, NULL, NULL},
};

static void parse_options(struct run *run, const struct cli_verb *verb, int argc, char **argv) {
    const char *value;
    for (int key; (key = cli_option_next(verb, argc, argv, &value)) != -1;) switch (key) {
        case 'l': run->layer_list = value; break;
        case 'i': run->input_path = value; break;
        case 'o': run->output_path = value; break;
        case 't': run->tokens = (size_t)cli_parse_count("tokens", value, 0, SIZE_MAX), run->tokens_given = 1; break;
        case 'c': run->compute = cli_parse_compute(value); break;
        case 'n': run->n_threads = (unsigned)cli_parse_count("threads", value, 1, 1024); break;
        case 'k': run->check = 1; break;
        case 'g': run->digest = 1; break;
        case 'j': run->json = 1; break;
        case 's': run->seed = cli_parse_count("seed", value, 0, UINT64_MAX); break;
        case 'a': run->activation = value; break;
        case 'f': run->scan = 1; break;
        case 'e': run->experts = 1; break;
        case 'w': cli_parse_shape(value, &run->d, &run->f), run->own_given = 1; break;
        case 'd': run->dtype = cli_parse_dtype("dtype", value), run->own_given = 1; break;
        }
    cli_operands_max(verb, argc, argv, 1);
    run->path = argv[optind];
    if (run->path && run->own_given) cli_fail(CLI_USAGE, "run: --shape and --dtype describe a block without a FILE");
    if (!run->path && run->layer_list) cli_fail(CLI_USAGE, "run: --layers needs a FILE");
    if (run->input_path && run->tokens_given)
        cli_fail(CLI_USAGE, "run: --tokens and --input exclude each other: the input has its own rows");
}

/* ---- blocks and their input -------------------------------------------------------------------------------------- */

static void describe_block(struct run *run, size_t i, struct swiglu_desc *desc, struct result *result) {
    struct swiglu_error error = {.struct_size = sizeof error};
    if (run->path) {
        result->block = cli_checkpoint_block(&run->layers, i);
        result->activation = result->block.activation;
        swiglu_desc_init(desc);
        cli_require(swiglu_model_desc(run->layers.model, run->layers.index[i], desc, &error), &error, run->path);
        return;
    }
    struct swiglu_act act;
    result->activation = run->activation ? run->activation : "silu";
    cli_parse_activation(result->activation, &act);
    cli_noise_block_init(&run->own, run->seed, run->d, run->f, run->dtype, &act, desc);
}

static void open_input(struct run *run) {
    run->m = run->tokens;
    if (!run->input_path) return;
    cli_refuse_dash(run->input_path, "x is read from a file, not from standard input");
    cli_npy_read(run->input_path, &run->input);
    size_t width = run->input.shape[run->input.rank - 1];
    for (size_t i = 0; i < run->n_blocks; i++) { /* before the first block is computed */
        struct swiglu_model_block_info block = {.d_in = run->d, .expert = SWIGLU_EXPERT_NONE};
        if (run->path) block = cli_checkpoint_block(&run->layers, i);
        if (width != block.d_in)
            cli_fail(CLI_USAGE, "%s: shape[%zu]: %zu, but layer %s takes %zu values a row", run->input_path,
                     run->input.rank - 1, width, cli_block_label(&block).words, block.d_in);
    }
    run->m = 1;
    for (size_t i = 0; i + 1 < run->input.rank; i++) run->m *= run->input.shape[i];
}

static float *make_input(const struct run *run, size_t i, size_t d_in) {
    if (run->input_path) return run->input.data;
    float *x = cli_rows_alloc(run->m, d_in);
    if (run->path)
        cli_checkpoint_noise(&run->layers, i, run->seed, run->m, x);
    else
        cli_noise_fill(run->seed, CLI_STREAM_X, 0, run->m * d_in, x);
    return x;
}

/* Where y of a block goes; the result lives until the next call. */
static const char *output_path(const struct run *run, const struct cli_block_label *label) {
    static char path[PATH_MAX];
    int n = run->n_blocks > 1 ? snprintf(path, sizeof path, "%s/%s.npy", run->output_path, label->name)
                              : snprintf(path, sizeof path, "%s", run->output_path);
    if ((size_t)n >= sizeof path) cli_fail(CLI_USAGE, "%s: %s", run->output_path, strerror(ENAMETOOLONG));
    return path;
}

/* Before anything is computed: whatever makes an output impossible is known now, but for a full disk. */
static void judge_output(const struct run *run) {
    cli_refuse_dash(run->output_path, "standard output gets the report, y goes to a file");
    if (run->n_blocks > 1 && mkdir(run->output_path, 0777)) {
        struct stat status;
        int why = errno;
        if (why != EEXIST || stat(run->output_path, &status) || !S_ISDIR(status.st_mode))
            cli_fail(CLI_USAGE, "%s: a folder for %zu layers: %s", run->output_path, run->n_blocks, strerror(why));
    }
    for (size_t i = 0; i < run->n_blocks; i++) {
        struct swiglu_model_block_info block = {.expert = SWIGLU_EXPERT_NONE};
        if (run->path) block = cli_checkpoint_block(&run->layers, i);
        const struct cli_block_label label = cli_block_label(&block);
        cli_output_judge(output_path(run, &label));
    }
}

static void open_run(struct run *run) {
    cli_machine_open(&run->machine, run->n_threads, UINT64_MAX);
    run->n_blocks = 1;
    if (run->path) {
        const struct swiglu_model_options model = {.struct_size = sizeof model, .activation = run->activation,
                                                   .scan = run->scan, .experts = run->experts};
        cli_checkpoint_open(&run->layers, run->path, &model, run->layer_list);
        if (!run->layer_list) cli_checkpoint_note_left_out(&run->layers);
        run->n_blocks = run->layers.n;
        if (!run->n_blocks) cli_fail(CLI_USAGE, "%s: no feed-forward block that can be evaluated", run->path);
    }
    open_input(run);
    if (run->output_path) judge_output(run);
    if (!run->digest) {
        run->probes = cli_machine_try_reserve(&run->machine, CLI_BUFFER_BYTES);
        if (run->probes)
            cli_machine_probe(&run->machine, 0.02, &run->before);
        else
            cli_note("no share of the limit is shown, and caches stay warm: there is no memory for the %zu MiB that measure "
                     "bandwidth", CLI_BUFFER_BYTES >> 20);
    }
}

/* ---- one block --------------------------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits, over the bytes of y as little-endian f32 in row order. */
static uint64_t digest_rows(const float *y, size_t n) {
    const unsigned char *bytes = (const unsigned char *)y;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof *y; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* Few rows are timed with cold caches, as in decoding, where each token meets every layer's weights anew. */
static void time_block(struct run *run, const struct cli_job *job, struct result *result) {
    enum { MIN_RUNS = 5, MAX_RUNS = 11 };
    double seconds[MAX_RUNS], total = 0;
    int few = job->m <= 8, n = 0;
    cli_job_run(job, &run->machine);
    do {
        if (few && run->probes) cli_machine_evict(&run->machine);
        double begin = cli_now();
        cli_job_run(job, &run->machine);
        total += seconds[n++] = cli_now() - begin;
    } while (n < MIN_RUNS ? total < 1 : n < MAX_RUNS && total < 0.06);
    result->seconds = cli_quantile(seconds, (size_t)n, 0.5);
    result->state = (few && run->probes) || (double)job->info.packed_bytes > CLI_COLD_BYTES ? "cold" : "warm";

    result->share = result->peak_flops = result->read_bytes = NAN;
    if (!run->probes) return;
    struct swiglu_limits after;
    cli_machine_probe(&run->machine, 0.02, &after);
    struct swiglu_limits limits = cli_machine_limits(&run->before, &after);
    run->before = after;
    struct cli_bound bound = cli_job_bound(job, &limits);
    if (!(bound.flops > 0)) return; /* no rows or an empty width: there is no work to compare with a limit */
    result->share = bound.seconds / result->seconds;
    result->limit = bound.limit;
    result->peak_flops = bound.peak_flops;
    result->read_bytes = limits.read_bytes;
}

static const char *weight_names(const struct swiglu_desc *desc, char *text, size_t size) {
    int first = desc->layout == SWIGLU_UNGATED ? desc->up.dtype : desc->gate.dtype;
    int n = snprintf(text, size, "%s", cli_dtype_name(first));
    if (desc->layout == SWIGLU_SEPARATE && desc->up.dtype != first)
        n += snprintf(text + n, size - (size_t)n, "/%s", cli_dtype_name(desc->up.dtype));
    if (desc->down.dtype != first) snprintf(text + n, size - (size_t)n, "/%s", cli_dtype_name(desc->down.dtype));
    return text;
}

static void save_rows(const struct run *run, const struct result *result) {
    struct cli_npy array = {.rank = 2, .shape = {run->m, result->desc->d_out}, .data = result->job->y,
                            .n_elems = run->m * result->desc->d_out};
    if (run->input_path) {
        array.rank = run->input.rank;
        memcpy(array.shape, run->input.shape, sizeof array.shape);
        array.shape[array.rank - 1] = result->desc->d_out;
    }
    cli_npy_write(&array);
}

/* Before the work: where it cannot be written, nothing is computed. */
static void open_output(const struct run *run, const struct result *result) {
    cli_output_open(output_path(run, &result->label));
}

static void explain(const struct run *run, const struct result *result) {
    char *command, what[64];
    size_t n_bytes;
    const char *level = getenv("SWIGLU_ISA");
    FILE *const to = open_memstream(&command, &n_bytes); /* paths may have any length */
    if (!to) cli_fail(CLI_IO, "out of memory");
    if (level) fprintf(to, "SWIGLU_ISA=%s ", cli_quote(level));
    fprintf(to, "swiglu run");
    if (run->path)
        fprintf(to, " %s --layers %zu%s", cli_quote(run->path), result->block.layer,
                result->block.expert == SWIGLU_EXPERT_NONE ? "" : " --experts");
    else
        fprintf(to, " --shape %zu,%zu --dtype %s", run->d, run->f, cli_dtype_name(run->dtype));
    if (run->input_path) fprintf(to, " --input %s", cli_quote(run->input_path));
    else fprintf(to, " --tokens %zu", run->m);
    if (run->activation) fprintf(to, " --activation %s", cli_quote(run->activation));
    fprintf(to, " --seed %llu --compute %s --threads %u --check", (unsigned long long)run->seed,
            cli_compute_name(run->compute), run->machine.n_threads);
    if (fclose(to)) cli_fail(CLI_IO, "out of memory");
    snprintf(what, sizeof what, "layer %s", result->label.words);
    cli_verdict_explain(&result->verdict, what, command);
    free(command);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_heading(const struct run *run) {
    const struct swiglu_model_info *info = &run->layers.info;
    if (run->path)
        printf("%s: %s%s%s, architecture %s, %zu of %zu blocks\n", cli_printable(run->path), cli_printable(info->name),
               *info->name ? ", " : "", run->layers.format,
               *info->architecture ? cli_printable(info->architecture) : "unnamed", run->n_blocks, info->n_blocks);
    else
        printf("a block of noise, activation %s, seed %llu\n", run->activation ? run->activation : "silu",
               (unsigned long long)run->seed);
    printf("%zu row%s of x from %s, %u thread%s, compute %s\n\n", run->m, run->m == 1 ? "" : "s",
           run->input_path ? cli_printable(run->input_path) : run->path ? "noise times the layer's norm weight" : "noise",
           run->machine.n_threads, run->machine.n_threads == 1 ? "" : "s", cli_compute_name(run->compute));
    printf("layer  widths       weights      kernel               time ms   tokens/s  share of limit                 "
           "  digest of y     %s\n", run->check ? "    error/B  typical  rel. error" : "");
}

static void print_row(const struct run *run, const struct result *r) {
    char widths[64], weights[64], share[64];
    snprintf(widths, sizeof widths, "%zu/%zu", r->desc->d_in, r->desc->d_ff);
    if (r->limit) snprintf(share, sizeof share, "%.2f %s, ", r->share, r->limit);
    else snprintf(share, sizeof share, "-, ");
    snprintf(share + strlen(share), sizeof share - strlen(share), "%s%s", r->state,
             r->job->info.expanded ? ", decoded" : "");
    printf("%5s  %-11s  %-11s  %-18s  %8.3f  %9.0f  %-31s  %016llx", r->label.words, widths,
           weight_names(r->desc, weights, sizeof weights), r->job->info.kernel_first, 1e3 * r->seconds,
           (double)run->m / r->seconds, share, (unsigned long long)r->digest);
    if (run->check)
        printf("  %9.4f  %7.4f  %10.2e%s", r->verdict.worst, r->verdict.typical, r->verdict.frobenius,
               cli_verdict_passed(&r->verdict) ? "" : "  FAILED");
    puts(cli_classes_words(r->classes));
    fflush(stdout);
}

static void print_times(const struct run *run, const struct result *r) {
    cli_json_number("time_ms", 1e3 * r->seconds);
    cli_json_number("tokens_per_s", (double)run->m / r->seconds);
    cli_json_number("share", r->share);
    if (r->limit) cli_json_string("limit", r->limit);
    else cli_json_number("limit", NAN);
    cli_json_string("state", r->state);
    cli_json_number("peak_gflops", 1e-9 * r->peak_flops);
    cli_json_number("read_gbs", 1e-9 * r->read_bytes);
}

static void print_object(const struct run *run, const struct result *r) {
    char weights[64];
    const struct swiglu_block_info *info = &r->job->info;
    cli_json_open("block");
    if (run->path) cli_json_string("file", run->path);
    cli_json_count("layer", r->block.layer);
    cli_json_expert(&r->block);
    cli_json_string("activation", r->activation);
    cli_json_list("shape");
    cli_json_count(NULL, info->d_in);
    cli_json_count(NULL, info->d_ff);
    cli_json_list_end();
    cli_json_count("d_out", info->d_out);
    cli_json_count("tokens", run->m);
    cli_json_string("weights", weight_names(r->desc, weights, sizeof weights));
    cli_json_string("compute_first", cli_compute_name(info->compute_first));
    cli_json_string("compute_down", cli_compute_name(info->compute_down));
    cli_json_string("isa", cli_isa_name(info->isa));
    cli_json_string("kernel_first", info->kernel_first);
    cli_json_string("kernel_down", info->kernel_down);
    cli_json_string("why", info->why);
    cli_json_count("threads", run->machine.n_threads);
    cli_json_flag("decoded", info->expanded);
    if (!run->digest) print_times(run, r);
    char digest[17];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r->digest);
    cli_json_string("digest", digest);
    cli_json_count("nan", r->classes.n_nan);
    cli_json_count("inf", r->classes.n_inf);
    if (run->check) {
        cli_json_flag("check_passed", cli_verdict_passed(&r->verdict));
        cli_json_count("check_rows", r->verdict.n_rows);
        cli_json_count("check_unbounded", r->verdict.n_open);
        cli_json_number("check_worst", r->verdict.worst);
        cli_json_number("check_worst_hidden", r->verdict.worst_hidden);
        cli_json_number("check_typical", r->verdict.typical);
        cli_json_number("check_frobenius", r->verdict.frobenius);
    }
    cli_json_close();
}

static void print_summary(const struct run *run, size_t n_rows, int expanded) {
    printf("\n%zu block%s, %.3f ms in all.\n", run->n_blocks, run->n_blocks == 1 ? "" : "s", 1e3 * run->total_seconds);
    printf("share of limit: how near the time is to what this machine's measured arithmetic (flops) or memory\n"
           "(bandwidth) allows; 1 is the limit. cold: weights come from memory; warm: they may be in a cache.\n");
    if (expanded)
        printf("decoded: this version has no kernel for the file's format; the weights were decoded beforehand, and\n"
               "the share counts the bytes of the file.\n");
    if (!run->check) return;
    printf("error/B: the largest error against a double-precision reference in units of its bound: of the hidden values,\n"
           "and of y as the down product of those; up to 1 passes. typical: of y, against the usual size of rounding\n"
           "errors. rel. error: against plain double. %zu of %zu rows a layer were compared.\n", n_rows, run->m);
    printf("\ncheck: %zu passed, %zu failed; worst error/B %.4f in layer %s\n", run->n_passed, run->n_failed,
           run->worst, run->worst_block.words);
    if (run->n_failed) return;
    if (run->classes.n_nan || run->classes.n_inf)
        printf("But y holds values that are no numbers%s: in the rows compared, so does the reference.\n",
               cli_classes_words(run->classes));
    if (run->n_open) printf("But %zu values of h or y have no bound: sums so large may overflow in f32.\n", run->n_open);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static void judge(const struct run *run, const struct cli_job *job, const struct swiglu_desc *desc,
                  struct cli_verdict *verdict, const char *what) {
    const struct cli_case judged = {desc, job->block, &run->machine.runner, run->compute, run->m, job->x, job->y, run->seed,
                                    what};
    cli_judge(&judged, verdict);
}

static void run_block(struct run *run, size_t i, size_t *n_rows, int *expanded) {
    struct swiglu_desc desc;
    struct cli_job job;
    struct result result = {.block.expert = SWIGLU_EXPERT_NONE, .desc = &desc, .job = &job};
    char what[64];
    describe_block(run, i, &desc, &result);
    result.label = cli_block_label(&result.block);
    snprintf(what, sizeof what, "layer %s", result.label.words);
    cli_progress("%s (%zu of %zu)", what, i + 1, run->n_blocks);
    if (run->output_path) open_output(run, &result);
    float *x = make_input(run, i, desc.d_in);
    cli_job_open(&job, &run->machine, &desc, run->compute, run->m, x, what);
    if (run->digest)
        cli_job_run(&job, &run->machine);
    else
        time_block(run, &job, &result);
    result.digest = digest_rows(job.y, run->m * desc.d_out);
    result.classes = cli_classes_of(job.y, run->m * desc.d_out);
    if (run->check)
        judge(run, &job, &desc, &result.verdict, what);
    cli_progress(NULL);
    if (run->json)
        print_object(run, &result);
    else if (run->digest)
        printf("%s %016llx\n", result.label.name, (unsigned long long)result.digest);
    else
        print_row(run, &result);
    if (run->digest && !run->json && (result.classes.n_nan || result.classes.n_inf))
        cli_note("%s: y holds values that are no numbers%s", what, cli_classes_words(result.classes));
    if (run->output_path) save_rows(run, &result);
    run->classes.n_nan += result.classes.n_nan;
    run->classes.n_inf += result.classes.n_inf;
    run->n_open += result.verdict.n_open;
    if (run->check) {
        int passed = cli_verdict_passed(&result.verdict);
        *(passed ? &run->n_passed : &run->n_failed) += 1;
        if (!passed) explain(run, &result);
        if (i == 0 || !(result.verdict.worst <= run->worst))
            run->worst = result.verdict.worst, run->worst_block = result.label;
    }
    run->total_seconds += result.seconds;
    *n_rows = result.verdict.n_rows;
    *expanded |= job.info.expanded;
    cli_job_close(&job);
    if (x != run->input.data) free(x);
}

static int act_run(const struct cli_verb *verb, int argc, char **argv) {
    static struct run run;
    size_t n_rows = 0;
    int expanded = 0;
    run = (struct run){.tokens = 128, .d = 576, .f = 1536, .seed = 1, .dtype = SWIGLU_F32};
    parse_options(&run, verb, argc, argv);
    open_run(&run);
    int table = !run.digest && !run.json;
    if (table) print_heading(&run);
    for (size_t i = 0; i < run.n_blocks; i++) {
        run_block(&run, i, &n_rows, &expanded);
        cli_stdout_finish();
    }
    if (table) print_summary(&run, n_rows, expanded);
    free(run.input.data);
    if (run.path) cli_checkpoint_close(&run.layers);
    cli_machine_close(&run.machine);
    return run.n_failed ? CLI_FAILED : CLI_OK;
}

const struct cli_verb cli_verb_run = {
    "run",
    "run [FILE] [options]",
    "Evaluates the feed-forward blocks of a checkpoint (GGUF, safetensors), or one block of noise, and prints for each\n"
    "the time, the share of the machine's limit and a digest of y.",
    "The digest is FNV-1a (64 bit) over y as little-endian f32 in row order. It depends on nothing but the weights,\n"
    "x and --compute: not on the machine, the instruction set or the threads.\n"
    "Without --input x is noise of root mean square 1 from --seed, times the weight of the norm before the block\n"
    "where the file has one; swiglu(1) gives the generator. SWIGLU_ISA=LEVEL limits the instruction set\n"
    "('swiglu cpu' lists the levels).",
    options,
    act_run,
};
