/* SPDX-License-Identifier: Apache-2.0 */
/* One case of the kernel grid: a small block on every level of this CPU, bit for bit against generic. */
#ifndef CLI_TRIAL_H
#define CLI_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "machine.h"

enum cli_data { CLI_DATA_NOISE, CLI_DATA_ZERO, CLI_DATA_ONE_HOT, CLI_DATA_HUGE, CLI_DATA_TINY, CLI_DATA_SUBNORMAL,
                CLI_DATA_SPECIAL, CLI_N_DATA };

struct cli_trial {
    const char *activation;
    int layout, dtype, compute, in_out, bias, x_dtype, y_dtype, data;
    size_t m, d_in, d_ff, d_out;
    int two_threads;
    int row_alone; /* the last row by itself instead of the batch */
};

struct cli_grid {
    struct cli_machine one, two;          /* one and two threads */
    uint64_t levels;                      /* bits of the levels that are compared, generic included */
    size_t passed[CLI_MOST_LEVELS], failed[CLI_MOST_LEVELS]; /* by the library's number of a level */
    size_t n_shown;                       /* failures that were printed */
};

/* Runs the case on every level and counts. */
void cli_trial_run(struct cli_grid *grid, const struct cli_trial *trial);

#endif
