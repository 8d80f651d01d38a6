/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits a function of two variables with one SwiGLU block and Adam. Each step runs forward and backward on two micro-batches
 * of 512 points, whose gradients accumulate to the very bits that one batch of 1024 points would give.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <swiglu/swiglu.h>

enum { D_IN = 2, D_FF = 32, D_OUT = 1, BATCH = 512, MICRO_BATCHES = 2, POINTS = BATCH * MICRO_BATCHES, STEPS = 150 };

/* Weights and biases in one array; gradients and the state of Adam have the same layout. */
enum {
    GATE = 0, UP = GATE + D_FF * D_IN, DOWN = UP + D_FF * D_IN, GATE_BIAS = DOWN + D_OUT * D_FF, UP_BIAS = GATE_BIAS + D_FF,
    DOWN_BIAS = UP_BIAS + D_FF, N_PARAMETERS = DOWN_BIAS + D_OUT
};
static float parameter[N_PARAMETERS], gradient[N_PARAMETERS], mean[N_PARAMETERS], square[N_PARAMETERS];
static float x[POINTS * D_IN], target[POINTS], y[POINTS], dy[POINTS];

static float uniform(void) { /* splitmix64: -1 to 1 */
    static uint64_t seed = 1;
    uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (float)((double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1);
}

static void make_data(void) {
    for (int i = 0; i < N_PARAMETERS; i++) parameter[i] = uniform() * 0.5f;
    for (int i = 0; i < POINTS; i++) {
        const float a = x[i * D_IN] = uniform(), b = x[i * D_IN + 1] = uniform();
        target[i] = a * a * b - 0.5f * b * b * b + 0.25f * a;
    }
}

static struct swiglu_desc describe(void) {
    struct swiglu_desc desc;
    swiglu_desc_init(&desc); /* SiLU, separate gate and up */
    desc.d_in = D_IN, desc.d_ff = D_FF, desc.d_out = D_OUT;
    desc.gate = (struct swiglu_matrix){.data = parameter + GATE, .dtype = SWIGLU_F32, .rows = D_FF, .cols = D_IN};
    desc.up = (struct swiglu_matrix){.data = parameter + UP, .dtype = SWIGLU_F32, .rows = D_FF, .cols = D_IN};
    desc.down = (struct swiglu_matrix){.data = parameter + DOWN, .dtype = SWIGLU_F32, .rows = D_OUT, .cols = D_FF};
    desc.gate_bias = (struct swiglu_vector){parameter + GATE_BIAS, SWIGLU_F32};
    desc.up_bias = (struct swiglu_vector){parameter + UP_BIAS, SWIGLU_F32};
    desc.down_bias = (struct swiglu_vector){parameter + DOWN_BIAS, SWIGLU_F32};
    return desc;
}

/* Gradients lie as their weights do; dx is not wanted here. */
static struct swiglu_grads gradients(void) {
    return (struct swiglu_grads){.struct_size = sizeof(struct swiglu_grads),
                                 .gate = {gradient + GATE, SWIGLU_F32, 0},
                                 .up = {gradient + UP, SWIGLU_F32, 0},
                                 .down = {gradient + DOWN, SWIGLU_F32, 0},
                                 .gate_bias = gradient + GATE_BIAS,
                                 .up_bias = gradient + UP_BIAS,
                                 .down_bias = gradient + DOWN_BIAS};
}

/* Mean square error of a micro-batch, and dy, its derivative. */
static double loss_of(int first) {
    double sum = 0;
    for (int i = first; i < first + BATCH; i++) {
        const float off = y[i] - target[i];
        sum += (double)off * off;
        dy[i] = 2 * off / POINTS;
    }
    return sum / POINTS;
}

static void adam(void) {
    const float rate = 0.02f, b1 = 0.9f, b2 = 0.99f;
    static float b1_power = 1, b2_power = 1;
    b1_power *= b1, b2_power *= b2;
    for (int i = 0; i < N_PARAMETERS; i++) {
        mean[i] = b1 * mean[i] + (1 - b1) * gradient[i];
        square[i] = b2 * square[i] + (1 - b2) * gradient[i] * gradient[i];
        parameter[i] -= rate * (mean[i] / (1 - b1_power)) / (sqrtf(square[i] / (1 - b2_power)) + 1e-8f);
    }
}

static void must(enum swiglu_status status, const char *what) {
    if (status == SWIGLU_OK) return;
    fprintf(stderr, "%s: %s\n", what, swiglu_status_name(status));
    exit(1);
}

/* Forward and backward over all points; returns the loss and leaves the gradients. */
static double look(const struct swiglu_desc *desc, struct swiglu_work work) {
    const struct swiglu_grads grads = gradients();
    double loss = 0;
    for (int first = 0; first < POINTS; first += BATCH) {
        const struct swiglu_crows x_rows = {x + first * D_IN, SWIGLU_F32, 0}, dy_rows = {dy + first, SWIGLU_F32, 0};
        const struct swiglu_rows y_rows = {y + first, SWIGLU_F32, 0};
        const unsigned flags = first ? SWIGLU_TRAIN_ACCUMULATE : 0;
        must(swiglu_train_forward(desc, NULL, BATCH, flags, x_rows, y_rows, NULL, work, NULL), "forward");
        loss += loss_of(first);
        must(swiglu_train_backward(desc, NULL, BATCH, flags, x_rows, dy_rows, NULL, &grads, work, NULL), "backward");
    }
    return loss;
}

int main(void) {
    const struct swiglu_desc desc = describe(); /* points at the weights: it stays right while they change */
    struct swiglu_work work;
    size_t saved_bytes; /* 0: backward computes gate and up again from x */
    must(swiglu_train_bytes(&desc, NULL, BATCH, SWIGLU_TRAIN_KEEP_X, 1, &work.bytes, &saved_bytes), "workspace");
    work.data = malloc(work.bytes);
    if (!work.data) must(SWIGLU_E_MEMORY, "workspace");
    make_data();
    const double first_loss = look(&desc, work);
    double loss = first_loss;
    for (int step = 0; step <= STEPS; step++) {
        if (step % 15 == 0) printf("step %3d   loss %.4f\n", step, loss);
        adam();
        loss = look(&desc, work);
    }
    free(work.data);
    puts(loss < first_loss / 1000 ? "PASS" : "FAIL");
    return loss >= first_loss / 1000;
}
