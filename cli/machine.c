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
        .int8_ops = fmax(before->int8_ops, after->int8_ops),
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
