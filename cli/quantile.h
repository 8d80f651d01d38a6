/* SPDX-License-Identifier: Apache-2.0 */
/* What measured values say, without a thought about how they are distributed. */
#ifndef CLI_QUANTILE_H
#define CLI_QUANTILE_H

#include <stddef.h>

/* The i-th of n values in ascending order, i = fraction * (n - 1) rounded; values are sorted in place. */
double cli_quantile(double *values, size_t n, double fraction);

/* How well n >= 5 values know their median, over that median: half of what lies between the order statistics that enclose
 * the true one in about 95 of 100 cases, n/2 -+ 0.98 sqrt(n). Sorts too. */
double cli_uncertainty(double *values, size_t n);

#endif
