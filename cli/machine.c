/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { MIB = 1 << 20 };

void cli_machine_open(struct cli_machine *machine, unsigned n_threads, uint64_t isa_mask) {
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    cli_require(swiglu_cpu_query(&cpu), NULL, "cpu");
    *machine = (struct cli_machine){.isa_mask = isa_mask & cli_level_limit(),
                                    .n_threads = n_threads ? n_threads : cpu.n_cores};
    cli_require(swiglu_pool_create(machine->n_threads, &machine->pool), NULL, "threads");
    machine->runner = swiglu_pool_runner(machine->pool);
}

void cli_machine_close(struct cli_machine *machine) {
    swiglu_pool_destroy(machine->pool);
    free(machine->buffer);
}

/* A quarter of free memory, between the least and most_bytes; written once, since untouched pages share one zero page. */
int cli_machine_try_reserve(struct cli_machine *machine, size_t most_bytes) {
    if (machine->buffer) return 1;
    size_t quarter = (size_t)sysconf(_SC_AVPHYS_PAGES) / 4 * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (quarter < most_bytes ? quarter : most_bytes) & ~(size_t)(2 * MIB - 1);
    if (bytes < CLI_BUFFER_BYTES) bytes = CLI_BUFFER_BYTES;
    void *buffer = cli_alloc_huge(bytes);
    if (!buffer) return 0;
    memset(buffer, 1, bytes);
    machine->buffer = buffer;
    machine->buffer_bytes = bytes;
    return 1;
}

static void reserve(struct cli_machine *machine, size_t most_bytes) {
    if (!cli_machine_try_reserve(machine, most_bytes))
        cli_fail(CLI_IO, "out of memory: %zu MiB to measure bandwidth with", CLI_BUFFER_BYTES / MIB);
}

void cli_machine_probe(struct cli_machine *machine, double seconds, struct swiglu_limits *limits) {
    reserve(machine, 1024 * (size_t)MIB);
    *limits = (struct swiglu_limits){.struct_size = sizeof *limits};
    cli_require(swiglu_measure(machine->isa_mask, seconds, machine->buffer, machine->buffer_bytes, &machine->runner,
                               limits), NULL, "measuring the machine");
}

struct swiglu_limits cli_machine_limits(const struct swiglu_limits *before, const struct swiglu_limits *after) {
    return (struct swiglu_limits){
        .struct_size = sizeof(struct swiglu_limits),
        .f32_flops = fmax(before->f32_flops, after->f32_flops),
        .bf16_flops = fmax(before->bf16_flops, after->bf16_flops),
        .read_bytes = fmax(before->read_bytes, after->read_bytes),
    };
}

static void read_buffer(void *arg) {
    const struct cli_machine *machine = arg;
    const uint64_t *words = machine->buffer;
    uint64_t sum = 0;
    for (size_t i = 0; i < machine->buffer_bytes / sizeof *words; i += 8) sum += words[i];
    volatile uint64_t sink = sum;
    (void)sink;
}

void cli_machine_evict(struct cli_machine *machine) {
    reserve(machine, CLI_BUFFER_BYTES);
    machine->runner.run(machine->runner.ctx, machine->n_threads, read_buffer, machine);
}

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

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

struct cli_bound cli_cost_bound(const struct cli_cost *cost, const struct swiglu_limits *limits) {
    double p_up = cost->compute_first == SWIGLU_COMPUTE_BF16 ? limits->bf16_flops : limits->f32_flops;
    double p_down = cost->compute_down == SWIGLU_COMPUTE_BF16 ? limits->bf16_flops : limits->f32_flops;
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
