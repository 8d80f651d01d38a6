/* SPDX-License-Identifier: Apache-2.0 */
/* One cell of the benchmark: a block of noise, a number of rows, and how its time is measured honestly. */
#ifndef CLI_CELL_H
#define CLI_CELL_H

#include <stddef.h>
#include <stdint.h>

#include "job.h"

enum { CLI_PAIRS = 11, CLI_MOST_PAIRS = 33, CLI_COLD_ROWS = 8 };
#define CLI_STABLE 0.04 /* of its value: a share that is known so well is one */

struct cli_cell {
    size_t d, f, m;
    int dtype, compute;
    int train;       /* 1: forward and backward, 0: forward alone */
    unsigned policy; /* of training: SWIGLU_TRAIN_KEEP_X or SWIGLU_TRAIN_KEEP_GATE_UP */
    struct swiglu_act act;
};

enum cli_outcome {
    CLI_MEASURED,
    CLI_NOISY, /* the share is not known to within CLI_STABLE */
    CLI_ABOVE  /* the share is above what a limit allows: the probes beside the runs were too weak */
};

/* Medians over pairs of a run and the probes beside it, each share judged by its own probes. */
struct cli_figures {
    int outcome, cold, compute; /* compute: what gate and up ran in */
    uint64_t isa;
    const char *kernel_first, *kernel_down, *limit;
    double seconds, seconds_p10, seconds_p90;
    double share, share_p10, share_p90;
    double uncertainty; /* of the share: half the interval that holds the true median in 95 of 100 cases, over the median */
    double peak_flops, read_bytes;
    size_t n_pairs;
};

/* How many copies of so many bytes no cache holds; 1 for many rows, and where they would be too many. */
size_t cli_cell_copies(const struct cli_cell *cell, double bytes);
void cli_cell_measure(struct cli_machine *machine, const struct cli_cell *cell, struct cli_figures *figures);

#endif
