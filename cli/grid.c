/* SPDX-License-Identifier: Apache-2.0 */
#include "grid.h"

#include <stdio.h>

#include "json.h"
#include "trial.h"

/* Small blocks whose widths are multiples of nothing. */
static const struct cli_trial base = {.activation = "silu", .layout = SWIGLU_SEPARATE, .dtype = SWIGLU_F32,
                                      .compute = SWIGLU_COMPUTE_F32, .x_dtype = SWIGLU_F32, .y_dtype = SWIGLU_F32,
                                      .m = 5, .d_in = 37, .d_ff = 51, .d_out = 45};

static const int plain_dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
enum { N_PLAIN = sizeof plain_dtypes / sizeof plain_dtypes[0] };

static void sweep_activations(struct cli_grid *grid) {
    struct cli_trial t = base;
    for (size_t i = 0; (t.activation = swiglu_act_name(i, NULL)); i++)
        for (t.layout = SWIGLU_SEPARATE; t.layout <= SWIGLU_UNGATED; t.layout += SWIGLU_UNGATED)
            for (t.compute = SWIGLU_COMPUTE_F32; t.compute <= SWIGLU_COMPUTE_BF16; t.compute++) cli_trial_run(grid, &t);
}

static void sweep_layouts(struct cli_grid *grid) {
    struct cli_trial t = base;
    for (t.layout = SWIGLU_SEPARATE; t.layout <= SWIGLU_UNGATED; t.layout++)
        for (int i = 0; i < N_PLAIN; i++)
            for (int orientation_and_bias = 0; orientation_and_bias < 4; orientation_and_bias++) {
                t.dtype = plain_dtypes[i];
                t.compute = SWIGLU_COMPUTE_AUTO;
                t.in_out = orientation_and_bias & 1, t.bias = orientation_and_bias >> 1;
                cli_trial_run(grid, &t);
            }
}

static void sweep_weights(struct cli_grid *grid) {
    struct cli_trial t = base;
    t.d_in = 512, t.d_ff = 256;
    for (size_t i = 0; (t.dtype = swiglu_dtype_at(i)) >= 0; i++)
        for (t.compute = SWIGLU_COMPUTE_AUTO; t.compute <= SWIGLU_COMPUTE_BF16; t.compute++) cli_trial_run(grid, &t);
}

static void sweep_rows_types(struct cli_grid *grid) {
    struct cli_trial t = base;
    for (int x = 0; x < N_PLAIN; x++)
        for (int y = 0; y < N_PLAIN; y++)
            for (t.compute = SWIGLU_COMPUTE_F32; t.compute <= SWIGLU_COMPUTE_BF16; t.compute++) {
                t.x_dtype = plain_dtypes[x], t.y_dtype = plain_dtypes[y];
                cli_trial_run(grid, &t);
            }
}

/* Around the vector widths, the tiles and the chunk of the summation order; 0 too. */
static const size_t edges[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   12,  13,  15,  16,  17,  24,  31,   32,
                               33, 47, 48, 49, 63, 64, 65, 96, 97, 127, 128, 129, 255, 257, 511, 512, 513, 1023,
                               1024, 1025};
enum { N_EDGES = sizeof edges / sizeof edges[0] };

static void sweep_edges(struct cli_grid *grid, size_t offset_of_width) {
    for (int i = 0; i < N_EDGES; i++)
        for (int d = 0; d < N_PLAIN; d++) {
            struct cli_trial t = base;
            t.dtype = plain_dtypes[d];
            t.compute = SWIGLU_COMPUTE_AUTO;
            *(size_t *)((char *)&t + offset_of_width) = edges[i];
            cli_trial_run(grid, &t);
        }
}

static void sweep_rows(struct cli_grid *grid) { sweep_edges(grid, offsetof(struct cli_trial, m)); }
static void sweep_d_in(struct cli_grid *grid) { sweep_edges(grid, offsetof(struct cli_trial, d_in)); }
static void sweep_d_ff(struct cli_grid *grid) { sweep_edges(grid, offsetof(struct cli_trial, d_ff)); }
static void sweep_d_out(struct cli_grid *grid) { sweep_edges(grid, offsetof(struct cli_trial, d_out)); }

static void sweep_data(struct cli_grid *grid) {
    struct cli_trial t = base;
    t.m = 21;
    for (t.data = CLI_DATA_ZERO; t.data < CLI_N_DATA; t.data++)
        for (int i = 0; i < N_PLAIN; i++)
            for (t.compute = SWIGLU_COMPUTE_F32; t.compute <= SWIGLU_COMPUTE_BF16; t.compute++) {
                t.dtype = plain_dtypes[i];
                cli_trial_run(grid, &t);
            }
}

static void sweep_division(struct cli_grid *grid, int two_threads) {
    static const size_t rows[] = {1, 2, 7, 8, 9, 33, 515};
    struct cli_trial t = base;
    t.two_threads = two_threads, t.row_alone = !two_threads;
    t.compute = SWIGLU_COMPUTE_AUTO;
    t.d_ff = 131;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int i = 0; i < N_PLAIN; i++) {
            t.m = rows[r], t.dtype = plain_dtypes[i];
            cli_trial_run(grid, &t);
        }
}

static void sweep_threads(struct cli_grid *grid) { sweep_division(grid, 1); }
static void sweep_row_alone(struct cli_grid *grid) { sweep_division(grid, 0); }

static const struct { const char *name, *values; void (*sweep)(struct cli_grid *grid); } axes[] = {
    {"activation", "every name, gated and ungated, f32 and bf16 compute", sweep_activations},
    {"layout", "5 layouts x f32, f16, bf16 x [out,in], [in,out] x bias", sweep_layouts},
    {"weights", "every format x auto, f32, bf16 compute", sweep_weights},
    {"x and y", "f32, f16, bf16 each x f32, bf16 compute", sweep_rows_types},
    {"rows", "0 to 1025 around tile edges x f32, f16, bf16", sweep_rows},
    {"d_in", "the same", sweep_d_in},
    {"d_ff", "the same", sweep_d_ff},
    {"d_out", "the same", sweep_d_out},
    {"data", "zero, one-hot, huge, tiny, subnormal, NaN and Inf", sweep_data},
    {"threads", "two against one", sweep_threads},
    {"row alone", "the last row of 1 to 515 by itself", sweep_row_alone},
};

static void total(const struct cli_grid *grid, unsigned long *passed, unsigned long *failed) {
    *passed = *failed = 0;
    for (unsigned i = 0; i < CLI_MOST_LEVELS; i++) *passed += grid->passed[i], *failed += grid->failed[i];
}

static void print_count(int json, const char *axis, const char *values, unsigned long passed, unsigned long failed) {
    if (!json) {
        printf("%-10s  %-56s  %7lu  %6lu\n", axis, values, passed, failed);
        fflush(stdout);
        return;
    }
    cli_json_open("axis");
    cli_json_string("axis", axis);
    cli_json_string("values", values);
    cli_json_count("passed", passed);
    cli_json_count("failed", failed);
    cli_json_close();
}

static void print_levels(const struct cli_grid *grid, int json) {
    struct swiglu_level_info level;
    for (unsigned i = 0; cli_level(i, &level); i++) {
        char values[64];
        if (!(grid->levels & level.bit)) continue;
        snprintf(values, sizeof values, "%s, against %s", level.name,
                 i ? "generic, bit for bit" : "the reference, within its bound");
        print_count(json, "level", values, grid->passed[i], grid->failed[i]);
    }
}

void cli_grid_run(int json, unsigned long *n_passed, unsigned long *n_failed) {
    static struct cli_grid grid;
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    cli_require(swiglu_cpu_query(&cpu), NULL, "cpu");
    grid = (struct cli_grid){.levels = cpu.can & cpu.compiled & cli_level_limit()};
    cli_machine_open(&grid.one, 1, UINT64_MAX);
    cli_machine_open(&grid.two, 2, UINT64_MAX);
    if (!json) printf("%-10s  %-56s  %7s  %6s\n", "axis", "values", "passed", "failed");
    unsigned long passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        cli_progress("%s", axes[i].name);
        axes[i].sweep(&grid);
        cli_progress(NULL);
        total(&grid, n_passed, n_failed);
        print_count(json, axes[i].name, axes[i].values, *n_passed - passed, *n_failed - failed);
        passed = *n_passed, failed = *n_failed;
    }
    print_levels(&grid, json);
    cli_machine_close(&grid.one);
    cli_machine_close(&grid.two);
}
