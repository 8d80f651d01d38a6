/* SPDX-License-Identifier: Apache-2.0 */
#include "ffn/schedule.h"

#include <fenv.h>

#include "ffn/pool.h"

const void *swiglu_caller_mark(void) {
    static _Thread_local char here;
    return &here;
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
        swiglu_wait_for(&s->n_done, first);
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
