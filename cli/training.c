/* SPDX-License-Identifier: Apache-2.0 */
#include "training.h"

#include <stdlib.h>

#include "cli.h"
#include "noise.h"

static size_t weight_elems(const struct cli_training *t) { return t->desc.d_in * t->desc.d_ff; } /* of each of the three */
static size_t weight_bytes(const struct cli_training *t) {
    return weight_elems(t) * (t->desc.gate.dtype == SWIGLU_F32 ? 4 : 2);
}

static void fill_copy(struct cli_training *t, size_t copy, const struct swiglu_desc *noise) {
    const struct swiglu_matrix *const from[] = {&noise->gate, &noise->up, &noise->down};
    t->weights[copy] = cli_alloc(3, weight_bytes(t));
    t->gradients[copy] = cli_alloc(3 * weight_elems(t), sizeof(float));
    for (size_t i = 0; i < 3; i++)
        cli_require(from[i]->read(from[i]->ctx, 0, t->weights[copy] + i * weight_bytes(t), weight_bytes(t), NULL), NULL,
                    "weights");
}

void cli_training_open(struct cli_training *t, const struct cli_machine *machine, const struct cli_cell *cell, const float *x) {
    struct cli_noise_block own;
    struct swiglu_desc noise;
    size_t saved_bytes;
    cli_noise_block_init(&own, 1, cell->d, cell->f, cell->dtype, &cell->act, &noise);
    *t = (struct cli_training){.desc = noise, .m = cell->m, .policy = cell->policy, .x = x,
                               .options = {.struct_size = sizeof t->options, .compute = cell->compute,
                                           .isa_mask = machine->isa_mask},
                               .grads = {.struct_size = sizeof t->grads}};
    t->n = cli_cell_copies(cell, (double)(3 * (weight_bytes(t) + weight_elems(t) * sizeof(float))));
    t->weights = cli_alloc(t->n, sizeof *t->weights);
    t->gradients = cli_alloc(t->n, sizeof *t->gradients);
    for (size_t i = 0; i < t->n; i++) fill_copy(t, i, &noise);
    struct swiglu_matrix *const matrices[] = {&t->desc.gate, &t->desc.up, &t->desc.down};
    for (size_t i = 0; i < 3; i++) matrices[i]->read = NULL, matrices[i]->data = t->weights[0] + i * weight_bytes(t);
    cli_require(swiglu_train_bytes(&t->desc, &t->options, t->m, t->policy, machine->n_threads, &t->work.bytes, &saved_bytes),
                NULL, "bench");
    t->work.data = cli_alloc(t->work.bytes, 1);
    t->saved = saved_bytes ? cli_alloc(saved_bytes, 1) : NULL;
    t->y = cli_alloc(t->m * cell->d, sizeof(float));
    t->dx = cli_alloc(t->m * cell->d, sizeof(float));
    t->grads.dx = (struct swiglu_rows){t->dx, SWIGLU_F32, 0};
}

void cli_training_run(struct cli_training *t, const struct cli_machine *machine) {
    struct swiglu_matrix *const matrices[] = {&t->desc.gate, &t->desc.up, &t->desc.down};
    struct swiglu_rows *const gradients[] = {&t->grads.gate, &t->grads.up, &t->grads.down};
    const struct swiglu_crows x = {t->x, SWIGLU_F32, 0};
    for (size_t i = 0; i < 3; i++) {
        matrices[i]->data = t->weights[t->next] + i * weight_bytes(t);
        *gradients[i] = (struct swiglu_rows){t->gradients[t->next] + i * weight_elems(t), SWIGLU_F32, 0};
    }
    t->next = (t->next + 1) % t->n;
    cli_require(swiglu_train_forward(&t->desc, &t->options, t->m, t->policy, x, (struct swiglu_rows){t->y, SWIGLU_F32, 0},
                                     t->saved, t->work, &machine->runner), NULL, "forward");
    cli_require(swiglu_train_backward(&t->desc, &t->options, t->m, t->policy, x, x, t->saved, &t->grads, t->work,
                                      &machine->runner), NULL, "backward");
}

void cli_training_close(struct cli_training *t) {
    for (size_t i = 0; i < t->n; i++) free(t->weights[i]), free(t->gradients[i]);
    free(t->weights), free(t->gradients);
    free(t->work.data), free(t->saved), free(t->y), free(t->dx);
}

struct cli_cost cli_training_cost(const struct cli_training *t) {
    const double product = 2 * (double)t->m * (double)weight_elems(t); /* operations of one matrix with m rows */
    const int again = t->policy == SWIGLU_TRAIN_KEEP_X;
    return (struct cli_cost){
        .up = (again ? 8 : 6) * product, /* gate and up, twice with recomputing; their share of dx; dWgate, dWup */
        .down = 3 * product,             /* y, dh, dWdown */
        .bytes = 3 * (double)(weight_bytes(t) + weight_elems(t) * sizeof(float)) +
                 4 * (double)t->m * (double)t->desc.d_in * sizeof(float)};
}
