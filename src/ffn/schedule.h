/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases of tickets on the threads that a runner gives. Tickets are taken in order from one counter; a ticket of a phase
 * waits until all tickets of earlier phases are done. Those are already taken, by threads that work on them: there is no
 * barrier, and any number of threads that really come finishes the work. One thread runs everything in order.
 */
#ifndef SWIGLU_SCHEDULE_H
#define SWIGLU_SCHEDULE_H

#include <stdatomic.h>
#include <stddef.h>

#include "swiglu/swiglu.h"

struct swiglu_schedule {
    void *ctx;
    size_t n_phases;
    size_t (*n_tickets)(const void *ctx, size_t phase);
    void (*run)(void *ctx, unsigned thread, size_t phase, size_t ticket); /* thread < n_threads */
    unsigned n_threads; /* set by swiglu_schedule_run */
    atomic_size_t next_ticket, n_done;
    atomic_uint next_thread;
};

/* The same address whenever the same thread asks. */
const void *swiglu_caller_mark(void);

/* Threads a runner may give: what scratch must be there for. */
static inline unsigned swiglu_runner_threads(const struct swiglu_runner *runner) {
    return runner && runner->run && runner->n_threads ? runner->n_threads : 1;
}

/* Runs on the default floating-point environment, whatever the threads' own is; puts it back. */
void swiglu_schedule_run(struct swiglu_schedule *s, const struct swiglu_runner *runner);

#endif
