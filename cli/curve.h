/* SPDX-License-Identifier: Apache-2.0 */
/* Shares over numbers of rows, drawn as text. */
#ifndef CLI_CURVE_H
#define CLI_CURVE_H

#include <stddef.h>

enum { CLI_CURVE_ROWS = 256 }; /* at most so many columns */

struct cli_curve {
    char mark;
    const char *name;
    const double *shares; /* one for each number of rows */
};

/* A column for each number of rows; where two curves meet, the mark is that of both: '*'. */
void cli_curves_print(const struct cli_curve *curves, size_t n_curves, const size_t *rows, size_t n_rows);

#endif
