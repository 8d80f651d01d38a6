/* SPDX-License-Identifier: Apache-2.0 */
/* A training step to be timed: raw weights of noise and their gradients, as often as wanted, and rows to run them on. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "cell.h"

struct cli_training {
    struct swiglu_desc desc; /* its matrices are those of the copy whose turn it is */
    struct swiglu_options options;
    struct swiglu_grads grads;
    size_t m;
    unsigned policy; /* enum swiglu_train_flags */
    const float *x;  /* serves as dy, too */
    float *y, *dx;
    void *saved;
    struct swiglu_work work;
    char **weights;   /* [n]: gate, up and down of each copy, one after another */
    float **gradients;
    size_t n, next;
};

/* Copies of weights and gradients (cli_cell_copies); x of cell->m rows is borrowed. */
void cli_training_open(struct cli_training *t, const struct cli_machine *machine, const struct cli_cell *cell, const float *x);
void cli_training_run(struct cli_training *t, const struct cli_machine *machine); /* the next copy: forward, backward */
void cli_training_close(struct cli_training *t);
/* 18 m d f operations with gate and up kept, 22 with recomputing; weights, gradients and rows once each. */
struct cli_cost cli_training_cost(const struct cli_training *t);

#endif
