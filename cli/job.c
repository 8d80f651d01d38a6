/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <stdlib.h>

#include "cli.h"

struct swiglu_block *cli_block_create(const struct cli_machine *machine, const struct swiglu_desc *desc, int compute,
                                      const char *what) {
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_options options = {.struct_size = sizeof options, .compute = compute, .isa_mask = machine->isa_mask,
                                     .runner = &machine->runner};
    struct swiglu_block *block;
    cli_require(swiglu_block_create(desc, &options, &block, &error), &error, what);
    return block;
}

void cli_job_open(struct cli_job *job, const struct cli_machine *machine, const struct swiglu_desc *desc, int compute,
                  size_t m, const float *x, const char *what) {
    *job = (struct cli_job){.m = m, .x = x, .info = {.struct_size = sizeof job->info}};
    job->block = cli_block_create(machine, desc, compute, what);
    cli_require(swiglu_block_query(job->block, &job->info), NULL, what);
    cli_require(swiglu_forward_bytes(job->block, m, machine->n_threads, &job->work.bytes), NULL, what);
    job->work.data = cli_alloc(job->work.bytes, 1);
    if (job->info.d_out && m > SIZE_MAX / sizeof(float) / job->info.d_out)
        cli_fail(CLI_USAGE, "%s: %zu rows of %zu outputs exceed the address space", what, m, job->info.d_out);
    job->y = cli_alloc(m * job->info.d_out, sizeof(float));
}

void cli_job_run(const struct cli_job *job, const struct cli_machine *machine) {
    cli_require(swiglu_forward(job->block, job->m, (struct swiglu_crows){job->x, SWIGLU_F32, 0},
                               (struct swiglu_rows){job->y, SWIGLU_F32, 0}, job->work, &machine->runner),
                NULL, "forward");
}

void cli_job_close(struct cli_job *job) {
    swiglu_block_destroy(job->block);
    free(job->work.data);
    free(job->y);
}

struct cli_cost cli_job_cost(const struct cli_job *job) {
    const struct swiglu_block_info *info = &job->info;
    double m = (double)job->m, d_in = (double)info->d_in, d_ff = (double)info->d_ff, d_out = (double)info->d_out;
    return (struct cli_cost){.up = (info->gated ? 4 : 2) * m * d_in * d_ff, .down = 2 * m * d_ff * d_out,
                             .bytes = (double)info->file_bytes + m * (d_in + d_out) * sizeof(float),
                             .compute_first = info->compute_first, .compute_down = info->compute_down};
}

static double peak_of(int compute, const struct swiglu_limits *limits) {
    return compute == SWIGLU_COMPUTE_INT8 ? limits->int8_ops
           : compute == SWIGLU_COMPUTE_BF16 ? limits->bf16_flops : limits->f32_flops;
}

struct cli_bound cli_cost_bound(const struct cli_cost *cost, const struct swiglu_limits *limits) {
    double p_up = peak_of(cost->compute_first, limits), p_down = peak_of(cost->compute_down, limits);
    double flops = cost->up + cost->down, arithmetic = cost->up / p_up + cost->down / p_down;
    double reading = cost->bytes / limits->read_bytes;
    int by_flops = arithmetic >= reading;
    return (struct cli_bound){.seconds = by_flops ? arithmetic : reading, .by_flops = by_flops,
                              .limit = by_flops ? "flops" : "bandwidth", .flops = flops, .bytes = cost->bytes,
                              .peak_flops = flops / arithmetic};
}

struct cli_bound cli_job_bound(const struct cli_job *job, const struct swiglu_limits *limits) {
    struct cli_cost cost = cli_job_cost(job);
    return cli_cost_bound(&cost, limits);
}
