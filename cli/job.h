/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time and its limit: share = max(operations / P, bytes / B) / time, with P and B measured in this process on the same
 * threads. Bytes are the weights at their size in the file plus x and y, once, so decoded weights never look good.
 */
#ifndef CLI_JOB_H
#define CLI_JOB_H

#include <stddef.h>

#include "machine.h"

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
