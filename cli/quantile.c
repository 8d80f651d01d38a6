/* SPDX-License-Identifier: Apache-2.0 */
#include "quantile.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_quantile(double *values, size_t n, double fraction) {
    qsort(values, n, sizeof *values, compare);
    return values[(size_t)(fraction * (double)(n - 1) + 0.5)];
}

double cli_uncertainty(double *values, size_t n) {
    const double median = cli_quantile(values, n, 0.5);
    const size_t lo = (size_t)(0.5 * (double)n - 0.98 * sqrt((double)n));
    return 0.5 * (values[n - 1 - lo] - values[lo]) / median;
}
