/* SPDX-License-Identifier: Apache-2.0 */
/* A training step straight from raw weights. */
#ifndef SWIGLU_TRAIN_H
#define SWIGLU_TRAIN_H

#include <stdbool.h>

#include "ffn/block.h"
#include "ffn/weights.h"

enum { SWIGLU_TOKEN_CHUNK = 512 }; /* tokens per chain of a weight gradient: decides bits */

struct swiglu_step {
    const struct swiglu_kern *kern;
    const struct swiglu_desc *desc;   /* checked; every matrix has data, of float dtype */
    int compute_first, compute_down;     /* resolved */
    size_t m;
    unsigned flags;
};

/* Bytes of workspace (for forward and backward alike) and of what forward leaves. True means overflow. */
bool swiglu_train_size(const struct swiglu_step *s, unsigned n_threads, size_t *work, size_t *saved);

/* Everything was checked, m > 0, work is 64-aligned; saved is NULL when nothing is kept. */
void swiglu_train_forward_run(const struct swiglu_step *s, struct swiglu_crows x, struct swiglu_rows y, float *saved,
                              char *work, const struct swiglu_runner *runner);
void swiglu_train_backward_run(const struct swiglu_step *s, struct swiglu_crows x, struct swiglu_crows dy,
                               const float *saved, const struct swiglu_grads *grads, char *work,
                               const struct swiglu_runner *runner);

/* The parts of the size above. */
bool swiglu_train_forward_size(const struct swiglu_step *s, unsigned n_threads, size_t *work);
bool swiglu_train_backward_size(const struct swiglu_step *s, unsigned n_threads, size_t *work);

/* Path of a product in a training step: raw values are widened while they are packed. */
static inline const struct swiglu_path *swiglu_train_path(const struct swiglu_kern *kern, int compute) {
    const struct swiglu_need need = swiglu_kern_need(compute, SWIGLU_F32, SWIGLU_F32);
    return kern->path[need.form][need.arith];
}
static inline size_t swiglu_step_halves(const struct swiglu_step *s) { return s->desc->layout == SWIGLU_UNGATED ? 1 : 2; }

/* Whether the gradient of a matrix (0: gate, 1: up, 2: down) is computed the other way round, columns of y or hidden units in
 * lanes: of [in, out] matrices that is the side whose values lie side by side. */
static inline bool swiglu_step_turned(const struct swiglu_step *s, int which) {
    return swiglu_desc_trained(s->desc, which)->in_out && (which == 2 || s->desc->layout != SWIGLU_INTERLEAVED);
}

/* Columns of gate and up that have gradients. */
static inline size_t swiglu_step_trained_inputs(const struct swiglu_step *s) {
    return swiglu_desc_trained(s->desc, s->desc->layout == SWIGLU_UNGATED)->cols;
}

/* The weights of the first product as they lie in memory. */
struct swiglu_raw swiglu_step_raw(const struct swiglu_step *s);

#endif
