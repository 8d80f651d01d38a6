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

struct cli_verdict {
    size_t n_rows;    /* rows that were compared */
    double worst;     /* largest |y - reference| / bound; the check passes up to 1 */
    double typical;   /* the same against the typical bound, not gated */
    double frobenius; /* relative error against plain double from the file's weights, not gated */
    size_t row, col;  /* where worst is */
    double y, reference, bound;
    struct cli_term term[3]; /* the largest of the down sum there, filled when the check failed */
    size_t n_terms;
};

/* y, m x d_out, came from x, m x d_in. Where the block is large, eight rows are compared: the first, the last and six
 * that the seed chooses. */
void cli_judge(const struct swiglu_desc *desc, int compute, size_t m, const float *x, const float *y, uint64_t seed,
               struct cli_verdict *verdict, const char *what);
int cli_verdict_passed(const struct cli_verdict *verdict);
/* The failure in three lines on stderr: where, the largest terms, the command that shows it again. */
void cli_verdict_explain(const struct cli_verdict *verdict, const char *what, const char *command);

#endif
