/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "ffn/measure.h"

#include <stdatomic.h>
#include <time.h>

#include "base/checked.h"

enum { PIECE = 2 << 20 }; /* bytes a thread reads between two looks at the clock: about 0.1 ms */

struct measure {
    double seconds;
    float (*peak)(size_t rounds); /* NULL: read */
    unsigned (*read_sum)(const void *p, size_t bytes);
    double ops_per_round;
    const char *buffer;
    size_t n_pieces;
    atomic_size_t next_piece;
    atomic_uint sink;
    _Atomic double rate; /* sum over threads */
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure_thread(void *arg) {
    struct measure *m = arg;
    const size_t rounds = 4096;
    const double start = now();
    double elapsed, done = 0;
    do {
        if (m->peak) {
            atomic_fetch_add_explicit(&m->sink, (unsigned)m->peak(rounds), memory_order_relaxed);
            done += (double)rounds * m->ops_per_round;
        } else {
            const size_t piece = atomic_fetch_add_explicit(&m->next_piece, 1, memory_order_relaxed) % m->n_pieces;
            atomic_fetch_add_explicit(&m->sink, m->read_sum(m->buffer + piece * PIECE, PIECE), memory_order_relaxed);
            done += PIECE;
        }
        elapsed = now() - start;
    } while (elapsed < m->seconds);
    double sum = atomic_load(&m->rate);
    while (!atomic_compare_exchange_weak(&m->rate, &sum, sum + done / elapsed)) {}
}

static double measure_on(struct measure *m, const struct swiglu_runner *runner) {
    atomic_store(&m->rate, 0);
    if (runner && runner->run && runner->n_threads > 1)
        runner->run(runner->ctx, runner->n_threads, measure_thread, m);
    else
        measure_thread(m);
    return atomic_load(&m->rate);
}

void swiglu_measure_run(const struct swiglu_kern *kern, double seconds, const void *buffer, size_t bytes,
                        const struct swiglu_runner *runner, struct swiglu_limits *limits) {
    struct measure m = {.seconds = seconds, .buffer = buffer, .n_pieces = bytes / PIECE};
    m.peak = kern->peak_f32;
    m.ops_per_round = kern->peak_ops_f32;
    limits->f32_flops = measure_on(&m, runner);
    m.peak = kern->peak_bf16;
    m.ops_per_round = kern->peak_ops_bf16;
    limits->bf16_flops = measure_on(&m, runner);
    m.peak = kern->peak_int8;
    m.ops_per_round = kern->peak_ops_int8;
    limits->int8_ops = measure_on(&m, runner);
    m.peak = NULL;
    m.seconds = seconds / SWIGLU_N_READERS;
    limits->read_bytes = 0;
    for (int i = 0; i < SWIGLU_N_READERS; i++) {
        m.read_sum = kern->read_sum[i];
        const double rate = measure_on(&m, runner);
        if (rate > limits->read_bytes) limits->read_bytes = rate;
    }
}
