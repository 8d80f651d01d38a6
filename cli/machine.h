/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time and its limit: share = max(operations / P, bytes / B) / time, with P and B measured in this process on the same
 * threads. Bytes are the weights at their size in the file plus x and y, once, so decoded weights never look good.
 */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/swiglu.h>

/* From here on weights exceed what caches keep. */
#define CLI_COLD_BYTES 256000000.0
/* The least buffer that tells memory from caches. */
#define CLI_BUFFER_BYTES ((size_t)256 << 20)

struct cli_machine {
    uint64_t isa_mask;
    unsigned n_threads;
    struct swiglu_pool *pool;
    struct swiglu_runner runner;
    void *buffer;
    size_t buffer_bytes;
};

void cli_machine_open(struct cli_machine *machine, unsigned n_threads, uint64_t isa_mask); /* n_threads 0: all usable */
void cli_machine_close(struct cli_machine *machine);
/* The buffer for probing and evicting, once; 0 where there is no memory for it. They take one themselves, or fail. */
int cli_machine_try_reserve(struct cli_machine *machine, size_t most_bytes);
void cli_machine_probe(struct cli_machine *machine, double seconds, struct swiglu_limits *limits);
/* The limits of what ran between two probes: the better of both, since a weak probe must not flatter. */
struct swiglu_limits cli_machine_limits(const struct swiglu_limits *before, const struct swiglu_limits *after);
void cli_machine_evict(struct cli_machine *machine); /* reads the buffer on every thread: caches hold nothing else */

double cli_now(void); /* seconds of a clock that never steps */

/* One prepared block with rows to run it on. */
struct cli_job {
    struct swiglu_block *block;
    struct swiglu_block_info info;
    size_t m;
    const float *x;
    float *y;
    struct swiglu_work work;
};

struct swiglu_block *cli_block_create(const struct cli_machine *machine, const struct swiglu_desc *desc, int compute,
                                      const char *what);
void cli_job_open(struct cli_job *job, const struct cli_machine *machine, const struct swiglu_desc *desc, int compute,
                  size_t m, const float *x, const char *what);
void cli_job_run(const struct cli_job *job, const struct cli_machine *machine);
void cli_job_close(struct cli_job *job);

struct cli_bound {
    double seconds;    /* no faster under these limits */
    int by_flops;
    const char *limit; /* "flops" or "bandwidth": the one that decides */
    double flops, bytes, peak_flops;
};

/* Operations of gate and up and of down, each in its compute, and bytes that must be read. */
struct cli_cost {
    double up, down, bytes;
    int compute_first, compute_down;
};

struct cli_cost cli_job_cost(const struct cli_job *job);
struct cli_bound cli_cost_bound(const struct cli_cost *cost, const struct swiglu_limits *limits);
struct cli_bound cli_job_bound(const struct cli_job *job, const struct swiglu_limits *limits);

#endif
