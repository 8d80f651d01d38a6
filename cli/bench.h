/* SPDX-License-Identifier: Apache-2.0 */
/* What 'swiglu bench' was asked for, and how it prints what it measured. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cell.h"
#include "curve.h"

enum { CLI_BENCH_DTYPES = 10 };
enum cli_bench_format { CLI_BENCH_TEXT, CLI_BENCH_MARKDOWN, CLI_BENCH_JSON, CLI_BENCH_CSV };

struct cli_bench {
    struct cli_cell cell; /* the one that is measured next */
    const char *model;
    size_t tokens[CLI_CURVE_ROWS], n_tokens;
    int dtypes[CLI_BENCH_DTYPES];
    size_t n_dtypes;
    unsigned n_threads;
    uint64_t mask;
    enum cli_bench_format format;
};

/* By number: cli_cell's train, and enum swiglu_train_flags. They end with NULL. */
extern const char *const cli_bench_modes[], *const cli_bench_policies[];

void cli_bench_print(const struct cli_bench *bench, const struct cli_figures *figures, int first);
void cli_bench_print_legend(const struct cli_bench *bench);

#endif
