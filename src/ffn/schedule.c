/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 199309L /* sched_yield */
#include "ffn/schedule.h"

#include <fenv.h>
#include <sched.h>

#include "base/attr.h"

const void *swiglu_caller_mark(void) {
    static _Thread_local char here;
    return &here;
}

/* Until *counter >= target: another thread has already taken that work. Spins, then yields; acquire. */
static void wait_for(atomic_size_t *counter, size_t target) {
    enum { SPINS_PER_YIELD = 64 };
    for (unsigned i = 1; atomic_load_explicit(counter, memory_order_acquire) < target; i++) {
        SW_RELAX();
        if (i % SPINS_PER_YIELD == 0) sched_yield(); /* more threads than CPUs: let the one that works go on */
    }
}

static void work(void *arg) {
    struct swiglu_schedule *s = arg;
    const unsigned thread = atomic_fetch_add_explicit(&s->next_thread, 1, memory_order_relaxed);
    size_t phase = 0, first = 0; /* the phase of the last ticket, and that phase's first ticket */
    fenv_t caller;
    if (thread >= s->n_threads) return; /* more came than were wanted: no scratch for it */
    fegetenv(&caller);
    fesetenv(FE_DFL_ENV); /* nearest even, no flush to zero */
    for (;;) {
        const size_t ticket = atomic_fetch_add_explicit(&s->next_ticket, 1, memory_order_relaxed);
        for (size_t n; phase < s->n_phases && ticket - first >= (n = s->n_tickets(s->ctx, phase)); phase++) first += n;
        if (phase == s->n_phases) break;
        wait_for(&s->n_done, first);
        s->run(s->ctx, thread, phase, ticket - first);
        atomic_fetch_add_explicit(&s->n_done, 1, memory_order_release);
    }
    fesetenv(&caller);
}

void swiglu_schedule_run(struct swiglu_schedule *s, const struct swiglu_runner *runner) {
    s->n_threads = swiglu_runner_threads(runner);
    if (s->n_threads > 1)
        runner->run(runner->ctx, s->n_threads, work, s);
    else
        work(s);
}
