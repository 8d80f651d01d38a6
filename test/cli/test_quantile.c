/* SPDX-License-Identifier: Apache-2.0 */
/* What 'swiglu bench' says of its measured values, on values that are known. */
#include "unit/support.h"

#include <math.h>

#include "../../cli/quantile.h"

static void quantiles_are_values(void **state) {
    (void)state;
    double values[] = {5, 1, 4, 2, 3};
    assert_float_equal(cli_quantile(values, 5, 0.5), 3, 0);
    assert_float_equal(cli_quantile(values, 5, 0), 1, 0);
    assert_float_equal(cli_quantile(values, 5, 1), 5, 0);
    assert_float_equal(cli_quantile(values, 1, 0.9), 1, 0);
}

/* P(X <= k) for n throws of a coin. */
static double heads(size_t n, size_t k) {
    double sum = 0, term = pow(0.5, (double)n);
    for (size_t i = 0; i <= k; i++) {
        sum += term;
        term *= (double)(n - i) / (double)(i + 1);
    }
    return sum;
}

/* The true median lies below the i-th value when at most i values lie below it: a coin for each. */
static void the_interval_holds_the_median(void **state) {
    (void)state;
    for (size_t n = 5; n <= 33; n++) {
        double ranks[33];
        for (size_t i = 0; i < n; i++) ranks[i] = (double)i;
        const double median = cli_quantile(ranks, n, 0.5), width = 2 * median * cli_uncertainty(ranks, n);
        const size_t lo = (n - 1 - (size_t)(width + 0.5)) / 2;
        const double missed = 2 * heads(n, lo);
        assert_true(missed < 0.08 && (lo + 1 >= n / 2 || 2 * heads(n, lo + 1) > 0.04)); /* about 1 in 20, and no wider */
    }
}

/* A neighbour that comes and goes spoils some pairs: the median does not move, and is still known. */
static void outliers_do_not_matter(void **state) {
    (void)state;
    double shares[] = {0.90, 0.91, 0.90, 0.30, 0.90, 0.91, 0.55, 0.90, 0.91, 1.90, 0.90};
    assert_float_equal(cli_quantile(shares, COUNT(shares), 0.5), 0.90, 0);
    assert_true(cli_uncertainty(shares, COUNT(shares)) < 0.04);
    double wild[] = {0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5};
    assert_true(cli_uncertainty(wild, COUNT(wild)) > 0.04);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_values),
        cmocka_unit_test(the_interval_holds_the_median),
        cmocka_unit_test(outliers_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
