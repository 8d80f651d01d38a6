/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "record.h"

const char *const cli_bench_modes[] = {"forward", "train", NULL};
const char *const cli_bench_policies[] = {"recompute", "keep", NULL};

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* Of 2048/5632 with f32 and bf16 weights, for numbers of rows from the one before up to this. */
static const struct { size_t rows; double share; } few_rows[] = {
    {1, 0.95}, {2, 0.92}, {4, 0.87}, {8, 0.86}, {15, 0.78}, {23, 0.84}, {32, 0.88}, {95, 0.89}, {511, 0.94}, {SIZE_MAX, 0.95},
};

static double train_target(const struct cli_cell *cell, const struct cli_figures *figures, int wide, int narrow) {
    if (cell->m != 512 || cell->dtype == SWIGLU_F16 || !(wide || narrow)) return 0;
    if (figures->isa < SWIGLU_ISA_AVX512 || figures->isa == SWIGLU_ISA_NEON) return 0;
    return cell->dtype == SWIGLU_F32 ? (wide ? 0.93 : 0.91) : wide ? 0.92 : 0.89;
}

/* The share that one thread must reach on Zen 4 and Zen 5, or 0 where none is set. */
static double target(const struct cli_cell *cell, const struct cli_figures *figures, unsigned n_threads) {
    int wide = cell->d >= 2048, narrow = cell->d <= 1152, f16 = cell->dtype == SWIGLU_F16;
    if (n_threads != 1 || cell->compute != SWIGLU_COMPUTE_AUTO || figures->isa == SWIGLU_ISA_GENERIC) return 0;
    if (!f16 && cell->dtype != SWIGLU_F32 && cell->dtype != SWIGLU_BF16) return 0;
    if (cell->train) return train_target(cell, figures, wide, narrow);
    if (figures->isa == SWIGLU_ISA_AVX2) return cell->m != 512 ? 0 : cell->dtype == SWIGLU_F32 ? 0.93 : 0.90;
    if (figures->isa == SWIGLU_ISA_NEON) return 0;
    if (cell->m == 1) return 0.95;
    if (f16) return cell->m == 512 ? 0.92 : 0;
    if (cell->d == 2048 && cell->f == 5632)
        for (size_t i = 0;; i++)
            if (cell->m <= few_rows[i].rows) return few_rows[i].share;
    if (cell->m == 8) return 0.84;
    if (cell->m != 512) return 0;
    return wide ? 0.95 : !narrow ? 0 : cell->dtype == SWIGLU_F32 ? 0.93 : 0.92;
}

/* What a reader must know to believe the share, and what to do about it. */
static void describe_result(const struct cli_figures *f, double must, char *text, size_t size) {
    *text = 0;
    if (f->outcome == CLI_NOISY)
        snprintf(text, size, "noisy: +-%.0f %% after %zu pairs; stop what else runs, or take fewer --threads",
                 100 * f->uncertainty, f->n_pairs);
    else if (f->outcome == CLI_ABOVE)
        snprintf(text, size, "void: above 1, so the probes were slowed; stop what else runs");
    else if (must > 0 && f->share < 0.8 * must)
        snprintf(text, size, "WARN: below 0.8 x %.2f", must);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static const struct { const char *name; int width; } columns[] = { /* to the right where the width is positive */
    {"tokens", 6}, {"weights", -7}, {"compute", -7}, {"level", -10}, {"state", -5}, {"time ms", 8}, {"10-90 %", -17},
    {"share", 5}, {"10-90 %", -11}, {"limit", -9}, {"P GFLOP/s", 9}, {"B GB/s", 6}, {"", 0},
};
enum { N_COLUMNS = sizeof columns / sizeof columns[0], CELL = 112 };

static void print_heading(const struct cli_bench *bench) {
    const int markdown = bench->format == CLI_BENCH_MARKDOWN;
    char words[96], about[128] = "";
    cli_act_words(&bench->cell.act, words, sizeof words);
    if (*words) snprintf(about, sizeof about, " (%s)", words);
    printf("%s%s%zu/%zu, %u thread%s%s", bench->model ? bench->model : "", bench->model ? ", " : "", bench->cell.d,
           bench->cell.f, bench->n_threads, bench->n_threads == 1 ? "" : "s", about);
    if (bench->cell.train) printf(", training, policy %s", cli_bench_policies[bench->cell.policy]);
    printf("\n\n");
    for (int i = 0; i < N_COLUMNS; i++)
        if (markdown) printf("| %s ", columns[i].name);
        else printf("%*s%s", columns[i].width, columns[i].name, i + 2 < N_COLUMNS ? "  " : "");
    puts(markdown ? "|" : "");
    if (!markdown) return;
    for (int i = 0; i < N_COLUMNS; i++) fputs(columns[i].width > 0 ? "|--:" : "|---", stdout);
    puts("|");
}

static void print_row(const struct cli_bench *bench, const struct cli_figures *f) {
    const struct cli_cell *cell = &bench->cell;
    char text[N_COLUMNS][CELL];
    snprintf(text[0], CELL, "%zu", cell->m);
    snprintf(text[1], CELL, "%s", cli_dtype_name(cell->dtype));
    snprintf(text[2], CELL, "%s", cli_compute_name(f->compute));
    snprintf(text[3], CELL, "%s", cli_isa_name(f->isa));
    snprintf(text[4], CELL, "%s", f->cold ? "cold" : "warm");
    snprintf(text[5], CELL, "%.4g", 1e3 * f->seconds);
    snprintf(text[6], CELL, "%.4g - %.4g", 1e3 * f->seconds_p10, 1e3 * f->seconds_p90);
    snprintf(text[7], CELL, "%.3f", f->share);
    snprintf(text[8], CELL, "%.3f-%.3f", f->share_p10, f->share_p90);
    snprintf(text[9], CELL, "%s", f->limit);
    snprintf(text[10], CELL, "%.2f", 1e-9 * f->peak_flops);
    snprintf(text[11], CELL, "%.2f", 1e-9 * f->read_bytes);
    describe_result(f, target(cell, f, bench->n_threads), text[12], CELL);
    for (int i = 0; i < N_COLUMNS; i++)
        if (bench->format == CLI_BENCH_MARKDOWN) printf("| %s ", text[i]);
        else if (*text[i]) printf("%s%*s", i ? "  " : "", columns[i].width, text[i]);
    puts(bench->format == CLI_BENCH_MARKDOWN ? "|" : "");
    fflush(stdout);
}

void cli_bench_print_legend(const struct cli_bench *bench) {
    printf("\nshare = max(operations / P, bytes / B) / time: 1 is the limit. P and B are measured before and after each\n"
           "of %d runs or more, and each run is judged by those beside it; medians are shown. bytes: weights at\n"
           "their size in a file, x and y, once%s. cold: the weights rotate through copies of more than\n"
           "256 MB; warm: they may be in a cache.\n",
           CLI_PAIRS, bench->cell.train ? ", and gradients, dy and dx" : "");
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static void print_record(const struct cli_bench *bench, const struct cli_figures *f, int first) {
    static const char *const outcomes[] = {"measured", "noisy", "void"};
    const struct cli_cell *cell = &bench->cell;
    struct cli_record r = {.n = 0};
    double must = target(cell, f, bench->n_threads);
    char note[CELL];
    describe_result(f, must, note, sizeof note);
    if (bench->model) cli_record_string(&r, "model", bench->model);
    cli_record_pair(&r, "shape", cell->d, cell->f);
    cli_record_string(&r, "mode", cli_bench_modes[cell->train]);
    if (cell->train) cli_record_string(&r, "policy", cli_bench_policies[cell->policy]);
    cli_record_count(&r, "tokens", cell->m);
    cli_record_string(&r, "dtype", cli_dtype_name(cell->dtype));
    cli_record_string(&r, "compute", cli_compute_name(f->compute));
    cli_record_count(&r, "threads", bench->n_threads);
    cli_record_string(&r, "isa", cli_isa_name(f->isa));
    cli_record_string(&r, "kernel_first", f->kernel_first);
    cli_record_string(&r, "kernel_down", f->kernel_down);
    cli_record_string(&r, "state", f->cold ? "cold" : "warm");
    cli_record_number(&r, "time_ms", 1e3 * f->seconds);
    cli_record_number(&r, "time_ms_p10", 1e3 * f->seconds_p10);
    cli_record_number(&r, "time_ms_p90", 1e3 * f->seconds_p90);
    cli_record_number(&r, "share", f->share);
    cli_record_number(&r, "share_p10", f->share_p10);
    cli_record_number(&r, "share_p90", f->share_p90);
    cli_record_number(&r, "uncertainty", f->uncertainty);
    cli_record_string(&r, "limit", f->limit);
    cli_record_number(&r, "peak_gflops", 1e-9 * f->peak_flops);
    cli_record_number(&r, "read_gbs", 1e-9 * f->read_bytes);
    cli_record_count(&r, "pairs", f->n_pairs);
    cli_record_string(&r, "outcome", outcomes[f->outcome]);
    cli_record_number(&r, "must", must > 0 ? must : (double)NAN);
    cli_record_string(&r, "note", note);
    if (bench->format == CLI_BENCH_JSON) {
        cli_record_json(&r, "cell");
        return;
    }
    if (first) cli_record_csv(&r, 1);
    cli_record_csv(&r, 0);
}

void cli_bench_print(const struct cli_bench *bench, const struct cli_figures *figures, int first) {
    if (bench->format == CLI_BENCH_JSON || bench->format == CLI_BENCH_CSV) {
        print_record(bench, figures, first);
        return;
    }
    if (first) print_heading(bench);
    print_row(bench, figures);
}
