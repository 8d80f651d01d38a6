/* SPDX-License-Identifier: Apache-2.0 */
/* y against the reference of the library, and an explanation where it lies outside the bound (docs/numerics.md). */
#ifndef CLI_JUDGE_H
#define CLI_JUDGE_H

#include <stddef.h>
#include <stdint.h>

#include <swiglu/swiglu.h>

struct cli_term {
    size_t index; /* hidden unit */
    double hidden, weight;
};

/* Values of y that are no numbers. */
struct cli_classes { size_t n_nan, n_inf; };

/* What is judged: y, m x d_out, that this block made of x, m x d_in, on this runner. */
struct cli_case {
    const struct swiglu_desc *desc;
    const struct swiglu_block *block;
    const struct swiglu_runner *runner; /* or NULL */
    int compute;
    size_t m;
    const float *x, *y;
    uint64_t seed;
    const char *what;
};

/* Errors are in units of their bound: 1 is the limit, infinite is another class. */
struct cli_verdict {
    struct cli_classes classes; /* in all rows of y */
    size_t n_rows;    /* rows that were compared */
    size_t n_open;    /* compared values, of h or y, that have no bound: sums so large may overflow in f32 */
    double worst;     /* largest error of h against its reference, and of y against the reference of down on that h */
    double worst_hidden; /* of h alone */
    int kept;         /* worst is up to 1 but for an overflow of f32 where there is no bound: the contract is kept */
    double typical;   /* of y against the typical bound, not gated */
    double frobenius; /* relative error against plain double from the file's weights, not gated */
    int in_hidden;    /* where worst is: in h, or in y */
    size_t row, col;
    double got, reference, bound;
    struct cli_term term[3]; /* the largest of the down sum there, filled when the check failed in y */
    size_t n_terms;
};

struct cli_classes cli_classes_of(const float *y, size_t n);
/* " (3 NaN, 1 Inf)", or "" where all are numbers; the result lives until the next call. */
const char *cli_classes_words(struct cli_classes classes);

/* Where the block is large, eight rows are compared: the first, the last and six that the seed chooses; and up to eight
 * more that hold a NaN or an Inf. */
void cli_judge(const struct cli_case *c, struct cli_verdict *verdict);
int cli_verdict_passed(const struct cli_verdict *verdict); /* a NaN where the reference has one does */
int cli_verdict_finite(const struct cli_verdict *verdict); /* y holds numbers only, and each that was compared has a bound */
/* The failure in three lines on stderr: where, the largest terms, the command that shows it again. */
void cli_verdict_explain(const struct cli_verdict *verdict, const char *what, const char *command);

#endif
