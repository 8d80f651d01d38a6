/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include "swiglu/swiglu.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "cpu/cpu.h"

enum { MAX_THREADS = 1024, SPINS_PER_YIELD = 64, SPIN_NS = 40000 };

/*
 * A run publishes body and arg, then opens n - 1 places. A worker announces itself in `active` before it takes a place, so
 * when the caller has closed the places and seen active at 0, nobody can still reach body. Workers that wake too late find
 * no place and sleep again: nobody waits for threads that did not come.
 */
struct swiglu_pool {
    unsigned n_threads, n_started;
    pid_t pid; /* a forked child has none of the threads: it runs alone */
    atomic_flag busy;
    void (*body)(void *);
    void *arg;
    atomic_size_t epoch, active;
    atomic_int places;
    atomic_int n_sleeping;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t threads[];
};

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Until the epoch is another than seen: spins for a moment, since the next run is often near, then sleeps. */
static size_t wait_for_epoch(struct swiglu_pool *p, size_t seen) {
    const long long until = now_ns() + SPIN_NS;
    size_t epoch;
    for (unsigned i = 1; (epoch = atomic_load(&p->epoch)) == seen; i++) {
        SW_RELAX();
        if (i % SPINS_PER_YIELD == 0 && now_ns() > until) break;
    }
    if (epoch != seen) return epoch;
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_sleeping, 1);
    while ((epoch = atomic_load(&p->epoch)) == seen) pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->mutex);
    return epoch;
}

static int take_place(struct swiglu_pool *p) {
    int n = atomic_load(&p->places);
    while (n > 0)
        if (atomic_compare_exchange_weak(&p->places, &n, n - 1)) return 1;
    return 0;
}

static void *worker(void *arg) {
    struct swiglu_pool *p = arg;
    size_t seen = 0;
    for (;;) {
        seen = wait_for_epoch(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        atomic_fetch_add(&p->active, 1);
        if (take_place(p)) p->body(p->arg);
        atomic_fetch_sub(&p->active, 1);
    }
}

/* Started at the first run that wants them; a thread that cannot be had is done without. Signals stay with the caller's
 * own threads. */
static void start_workers(struct swiglu_pool *p) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->n_started < p->n_threads - 1 && pthread_create(&p->threads[p->n_started], NULL, worker, p) == 0)
        p->n_started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void next_epoch(struct swiglu_pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (!atomic_load(&p->n_sleeping)) return;
    pthread_mutex_lock(&p->mutex); /* a sleeper is either counted and waiting, or sees the new epoch */
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

static void pool_run(void *ctx, unsigned n_wanted, void (*body)(void *), void *arg) {
    struct swiglu_pool *p = ctx;
    if (n_wanted <= 1 || p->n_threads <= 1 || p->pid != getpid() || atomic_flag_test_and_set(&p->busy)) {
        body(arg);
        return;
    }
    if (p->n_started == 0) start_workers(p);
    p->body = body;
    p->arg = arg;
    atomic_store(&p->places, (int)(n_wanted < p->n_threads ? n_wanted : p->n_threads) - 1);
    next_epoch(p);
    body(arg);
    atomic_store(&p->places, 0);
    for (unsigned i = 1; atomic_load(&p->active); i++) {
        SW_RELAX();
        if (i % SPINS_PER_YIELD == 0) sched_yield();
    }
    atomic_flag_clear(&p->busy);
}

enum swiglu_status swiglu_pool_create(unsigned n_threads, struct swiglu_pool **pool) {
    if (!pool) return SWIGLU_E_ARGUMENT;
    *pool = NULL;
    if (n_threads > MAX_THREADS) return SWIGLU_E_ARGUMENT;
    if (n_threads == 0) n_threads = swiglu_cpu_counts().n_cores;
    if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    struct swiglu_pool *p = swiglu_alloc(sizeof *p + n_threads * sizeof p->threads[0]);
    if (!p) return SWIGLU_E_MEMORY;
    p->n_threads = n_threads;
    p->pid = getpid();
    atomic_flag_clear(&p->busy);
    if (pthread_mutex_init(&p->mutex, NULL) || pthread_cond_init(&p->wake, NULL)) {
        swiglu_free(p);
        return SWIGLU_E_MEMORY;
    }
    *pool = p;
    return SWIGLU_OK;
}

void swiglu_pool_destroy(struct swiglu_pool *pool) {
    if (!pool) return;
    if (pool->pid == getpid()) {
        atomic_store(&pool->stop, 1);
        next_epoch(pool);
        for (unsigned i = 0; i < pool->n_started; i++) pthread_join(pool->threads[i], NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    swiglu_free(pool);
}

struct swiglu_runner swiglu_pool_runner(struct swiglu_pool *pool) {
    if (!pool) return (struct swiglu_runner){0};
    return (struct swiglu_runner){pool_run, pool, pool->n_threads};
}

typedef void gomp_fn(void (*)(void *), void *, unsigned, unsigned);

static void gomp_run(void *ctx, unsigned n_wanted, void (*body)(void *), void *arg) {
    gomp_fn *parallel;
    memcpy(&parallel, &ctx, sizeof parallel); /* a function's address, kept in an object pointer as dlsym gives it */
    parallel(body, arg, n_wanted, 0);
}

struct swiglu_runner swiglu_runner_gomp(gomp_fn *gomp_parallel, unsigned n_threads) {
    struct swiglu_runner r = {gomp_run, NULL, n_threads};
    if (!gomp_parallel) return (struct swiglu_runner){0};
    memcpy(&r.ctx, &gomp_parallel, sizeof r.ctx);
    return r;
}
