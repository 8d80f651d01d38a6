/* SPDX-License-Identifier: Apache-2.0 */
#include "cell.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "noise.h"
#include "quantile.h"
#include "training.h"

#define PROBE_SECONDS 0.02
#define WARM_UP_SECONDS 0.05
#define REPETITION_SECONDS 0.02
#define MOST_SHARE 1.05

/* The same block several times, so that a run finds its weights in memory and not in a cache. */
struct copies {
    int train;
    struct cli_training training; /* or, for the forward pass: */
    struct cli_job job;           /* its block is the copy whose turn it is */
    struct swiglu_block **blocks;
    size_t n, next;
    double bytes; /* of all weights */
    struct cli_cost cost;
};

size_t cli_cell_copies(const struct cli_cell *cell, double bytes) {
    enum { MOST = 4096 }; /* more would take long to make, and be in caches in part */
    const double n = 1 + floor(CLI_COLD_BYTES / bytes);
    return cell->m <= CLI_COLD_ROWS && n <= MOST ? (size_t)n : 1;
}

static void open_blocks(struct copies *copies, const struct cli_machine *machine, const struct cli_cell *cell,
                        const float *x) {
    struct cli_noise_block own;
    struct swiglu_desc desc;
    cli_noise_block_init(&own, 1, cell->d, cell->f, cell->dtype, &cell->act, &desc);
    cli_noise_block_keep(&own, &desc);
    cli_job_open(&copies->job, machine, &desc, cell->compute, cell->m, x, "bench");
    copies->n = cli_cell_copies(cell, (double)copies->job.info.packed_bytes);
    copies->blocks = cli_alloc(copies->n, sizeof *copies->blocks);
    copies->blocks[0] = copies->job.block;
    for (size_t i = 1; i < copies->n; i++)
        copies->blocks[i] = cli_block_create(machine, &desc, cell->compute, "bench");
    cli_noise_block_free(&own);
    copies->bytes = (double)copies->job.info.packed_bytes * (double)copies->n;
    copies->cost = cli_job_cost(&copies->job);
}

static void open_copies(struct copies *copies, const struct cli_machine *machine, const struct cli_cell *cell,
                        const float *x, const struct cli_figures *figures) {
    *copies = (struct copies){.train = cell->train};
    if (!cell->train) {
        open_blocks(copies, machine, cell, x);
        return;
    }
    cli_training_open(&copies->training, machine, cell, x);
    copies->n = copies->training.n;
    copies->cost = cli_training_cost(&copies->training);
    copies->cost.compute_first = copies->cost.compute_down = figures->compute;
    copies->bytes = copies->cost.bytes * (double)copies->n;
}

static void close_copies(struct copies *copies) {
    if (copies->train) {
        cli_training_close(&copies->training);
        return;
    }
    for (size_t i = 1; i < copies->n; i++) swiglu_block_destroy(copies->blocks[i]);
    copies->job.block = copies->blocks[0];
    cli_job_close(&copies->job);
    free(copies->blocks);
}

static void run_once(struct copies *copies, const struct cli_machine *machine) {
    if (copies->train) {
        cli_training_run(&copies->training, machine);
        return;
    }
    copies->job.block = copies->blocks[copies->next];
    cli_job_run(&copies->job, machine);
    copies->next = (copies->next + 1) % copies->n;
}

static double run_next(struct copies *copies, const struct cli_machine *machine, size_t n_runs) {
    double begin = cli_now();
    for (size_t i = 0; i < n_runs; i++) run_once(copies, machine);
    return cli_now() - begin;
}

/* Warms up and finds how many runs make one repetition: long enough for the clock, and a round through all copies. */
static size_t runs_per_repetition(struct copies *copies, const struct cli_machine *machine) {
    double total = 0;
    size_t n = 0;
    while (total < WARM_UP_SECONDS) total += run_next(copies, machine, 1), n++;
    size_t by_time = (size_t)(REPETITION_SECONDS / (total / (double)n)) + 1;
    return by_time > copies->n || copies->n == 1 ? by_time : copies->n;
}

struct pairs {
    double seconds[CLI_MOST_PAIRS], shares[CLI_MOST_PAIRS], peaks[CLI_MOST_PAIRS], reads[CLI_MOST_PAIRS];
    size_t n, n_by_flops;
};

/* More pairs, each a run between two probes: where a neighbour slows both, their ratio stays. */
static void add_pairs(struct pairs *pairs, struct cli_machine *machine, struct copies *copies, int cold) {
    struct swiglu_limits before, after;
    const size_t n_runs = runs_per_repetition(copies, machine);
    cli_machine_probe(machine, PROBE_SECONDS, &before);
    for (int i = 0; i < CLI_PAIRS; i++, before = after) {
        const size_t at = pairs->n++;
        if (!cold) run_next(copies, machine, 1); /* the probe has filled the caches with its own bytes */
        pairs->seconds[at] = run_next(copies, machine, n_runs) / (double)n_runs;
        cli_machine_probe(machine, PROBE_SECONDS, &after);
        const struct swiglu_limits limits = cli_machine_limits(&before, &after);
        const struct cli_bound bound = cli_cost_bound(&copies->cost, &limits);
        pairs->shares[at] = bound.seconds / pairs->seconds[at];
        pairs->peaks[at] = bound.peak_flops;
        pairs->reads[at] = limits.read_bytes;
        pairs->n_by_flops += bound.by_flops;
    }
}

static void conclude(struct pairs *pairs, struct cli_figures *f) {
    const size_t n = f->n_pairs = pairs->n;
    f->limit = 2 * pairs->n_by_flops >= n ? "flops" : "bandwidth";
    f->peak_flops = cli_quantile(pairs->peaks, n, 0.5);
    f->read_bytes = cli_quantile(pairs->reads, n, 0.5);
    f->seconds = cli_quantile(pairs->seconds, n, 0.5);
    f->seconds_p10 = cli_quantile(pairs->seconds, n, 0.1);
    f->seconds_p90 = cli_quantile(pairs->seconds, n, 0.9);
    f->share = cli_quantile(pairs->shares, n, 0.5);
    f->share_p10 = cli_quantile(pairs->shares, n, 0.1);
    f->share_p90 = cli_quantile(pairs->shares, n, 0.9);
    f->uncertainty = cli_uncertainty(pairs->shares, n);
    f->outcome = f->uncertainty > CLI_STABLE ? CLI_NOISY : f->share > MOST_SHARE ? CLI_ABOVE : CLI_MEASURED;
}

/* What such a block runs on; training widens raw weights, so that f16 computes with the kernels of f32. */
static struct cli_figures describe(const struct cli_machine *machine, const struct cli_cell *cell) {
    const int raw = cell->train && cell->dtype == SWIGLU_F16 ? SWIGLU_F32 : cell->dtype;
    struct cli_noise_block own;
    struct swiglu_desc desc;
    struct swiglu_block_info info = {.struct_size = sizeof info};
    struct swiglu_dtype_info type = {.struct_size = sizeof type};
    cli_require(swiglu_dtype_query(raw, &type), NULL, "bench");
    cli_noise_block_init(&own, 1, type.block_elems, type.block_elems, raw, &cell->act, &desc);
    struct swiglu_block *block = cli_block_create(machine, &desc, cell->compute, "bench");
    cli_require(swiglu_block_query(block, &info), NULL, "bench");
    swiglu_block_destroy(block);
    return (struct cli_figures){.compute = info.compute_first, .isa = info.isa,
                                .kernel_first = info.kernel_first, .kernel_down = info.kernel_down};
}

void cli_cell_measure(struct cli_machine *machine, const struct cli_cell *cell, struct cli_figures *figures) {
    struct copies copies;
    struct pairs pairs = {.n = 0};
    float *x = cli_alloc(cell->m * cell->d, sizeof *x);
    cli_noise_fill(1, CLI_STREAM_X, 0, cell->m * cell->d, x);
    *figures = describe(machine, cell);
    open_copies(&copies, machine, cell, x, figures);
    figures->cold = copies.bytes > CLI_COLD_BYTES;
    do {
        add_pairs(&pairs, machine, &copies, figures->cold);
        conclude(&pairs, figures);
    } while (figures->outcome != CLI_MEASURED && pairs.n < CLI_MOST_PAIRS);
    close_copies(&copies);
    free(x);
}
