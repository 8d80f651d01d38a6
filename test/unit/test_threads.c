/* SPDX-License-Identifier: Apache-2.0 */
/* Runners and the pool: the same bits from any number of threads, one block on many threads, forks, idle pools. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "forward.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a block, its input and the right output ---- */

struct fixture {
    struct block_data data;
    struct swiglu_block *block;
    size_t m, d_out;
    float *x, *want;
};

static struct fixture new_fixture(size_t m, size_t d_in, size_t d_ff, size_t d_out) {
    struct fixture f = {.m = m, .d_out = d_out};
    uint64_t seed = 2;
    f.data = new_block(d_in, d_ff, d_out, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 1);
    f.block = prepare(&f.data.desc, SWIGLU_COMPUTE_F32, 0);
    f.x = new_floats(SWIGLU_F32, m * d_in, 1, &seed);
    f.want = malloc(m * d_out * sizeof *f.want);
    run_block(f.block, m, (struct swiglu_crows){f.x, SWIGLU_F32, 0}, (struct swiglu_rows){f.want, SWIGLU_F32, 0}, NULL);
    return f;
}

static void free_fixture(struct fixture *f) {
    swiglu_block_destroy(f->block);
    free(f->x), free(f->want);
    free_block(&f->data);
}

/* 1 when a forward on this runner gives the right bits; without cmocka, for other threads and processes. */
static int is_right(const struct fixture *f, size_t m, const struct swiglu_runner *runner) {
    struct swiglu_work work;
    float *y = malloc(m * f->d_out * sizeof *y);
    memset(y, 0xFF, m * f->d_out * sizeof *y);
    int right = swiglu_forward_bytes(f->block, m, runner ? runner->n_threads : 1, &work.bytes) == SWIGLU_OK;
    work.data = malloc(work.bytes);
    right = right && swiglu_forward(f->block, m, (struct swiglu_crows){f->x, SWIGLU_F32, 0},
                                    (struct swiglu_rows){y, SWIGLU_F32, 0}, work, runner) == SWIGLU_OK;
    right = right && memcmp(y, f->want, m * f->d_out * sizeof *y) == 0;
    free(work.data), free(y);
    return right;
}

/* ---- counts of threads ---- */

/* C035: width 56 -> 444, and more threads than the machine has CPUs, and than there is work. C061: 2560 columns on 6
 * and 7 threads. */
static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const unsigned counts[] = {1, 2, 3, 6, 7, 8, 16};
    static const size_t rows[] = {1, 2, 5, 8, 40, 530};
    struct fixture shapes[] = {new_fixture(530, 56, 444, 56), new_fixture(40, 64, 96, 2560), new_fixture(8, 8, 1, 1)};
    for (size_t i = 0; i < COUNT(counts); i++) {
        struct swiglu_pool *pool;
        assert_int_equal(swiglu_pool_create(counts[i], &pool), SWIGLU_OK);
        const struct swiglu_runner runner = swiglu_pool_runner(pool);
        assert_int_equal(runner.n_threads, counts[i]);
        for (size_t s = 0; s < COUNT(shapes); s++)
            for (size_t r = 0; r < COUNT(rows) && rows[r] <= shapes[s].m; r++)
                for (int repeat = 0; repeat < 10; repeat++) assert_true(is_right(&shapes[s], rows[r], &runner));
        swiglu_pool_destroy(pool);
    }
    for (size_t s = 0; s < COUNT(shapes); s++) free_fixture(&shapes[s]);
}

/* ---- runners of a caller ---- */

static void run_alone(void *ctx, unsigned n_wanted, void (*body)(void *), void *arg) {
    (void)n_wanted;
    ++*(int *)ctx;
    body(arg);
}

static void run_one_after_another(void *ctx, unsigned n_wanted, void (*body)(void *), void *arg) {
    ++*(int *)ctx;
    for (unsigned i = 0; i < n_wanted; i++) body(arg);
}

static void fake_gomp_parallel(void (*body)(void *), void *arg, unsigned n_threads, unsigned flags) {
    pthread_t threads[16];
    void *(*start)(void *);
    assert_true(n_threads >= 1 && n_threads <= 16 && flags == 0);
    memcpy(&start, &body, sizeof start); /* the result is not looked at */
    for (unsigned i = 1; i < n_threads; i++) assert_int_equal(pthread_create(&threads[i], NULL, start, arg), 0);
    body(arg);
    for (unsigned i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
}

static void whatever_a_runner_gives_finishes_the_work(void **state) {
    (void)state;
    struct fixture f = new_fixture(530, 56, 444, 56);
    int n_calls = 0;
    const struct swiglu_runner alone = {run_alone, &n_calls, 6}, serial = {run_one_after_another, &n_calls, 6};
    assert_true(is_right(&f, 530, &alone));
    assert_true(is_right(&f, 530, &serial));
    assert_int_equal(n_calls, 2);
    const struct swiglu_runner gomp = swiglu_runner_gomp(fake_gomp_parallel, 5), none = swiglu_runner_gomp(NULL, 5);
    assert_int_equal(gomp.n_threads, 5);
    assert_true(is_right(&f, 530, &gomp));
    assert_true(is_right(&f, 530, &none)); /* serial */
    const struct swiglu_runner zero = swiglu_pool_runner(NULL);
    assert_true(is_right(&f, 7, &zero));
    free_fixture(&f);
}

/* ---- many threads of the caller ---- */

struct user { const struct fixture *f; const struct swiglu_runner *runner; size_t m; int n_right; };

static void *use_block(void *arg) {
    struct user *u = arg;
    for (int i = 0; i < 20; i++) u->n_right += is_right(u->f, u->m, u->runner);
    return NULL;
}

static void eight_threads_use(const struct fixture *f, const struct swiglu_runner *runner) {
    struct user users[8];
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) {
        users[i] = (struct user){f, runner, 1 + 5 * i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, use_block, &users[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].n_right, 20);
    }
}

static void one_block_serves_eight_threads(void **state) {
    (void)state;
    struct fixture f = new_fixture(40, 72, 200, 72);
    struct swiglu_pool *pool;
    eight_threads_use(&f, NULL);
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    eight_threads_use(&f, &runner); /* the pool is busy with one of them: the others run alone */
    swiglu_pool_destroy(pool);
    free_fixture(&f);
}

/* ---- fork (C164, row 2.2) ---- */

static int child_is_right(const struct fixture *f, const struct swiglu_runner *inherited) {
    struct swiglu_pool *own;
    int right = is_right(f, 40, inherited);
    if (THREAD_SANITIZED) return right; /* which allows no new threads after a fork */
    if (swiglu_pool_create(2, &own) != SWIGLU_OK) return 0;
    const struct swiglu_runner runner = swiglu_pool_runner(own);
    right = right && is_right(f, 40, &runner);
    swiglu_pool_destroy(own);
    return right;
}

static void compute_fork_compute(void **state) {
    (void)state;
    struct fixture f = new_fixture(40, 72, 200, 72);
    struct swiglu_pool *pool;
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    for (int i = 0; i < 100; i++) {
        int status;
        assert_true(is_right(&f, 40, &runner));
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm(10);
            _exit(child_is_right(&f, &runner) ? 0 : 1);
        }
        assert_true(is_right(&f, 40, &runner)); /* the parent goes on meanwhile */
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    swiglu_pool_destroy(pool);
    free_fixture(&f);
}

/* ---- behaviour of the pool ---- */

static double best_time(const struct fixture *f, unsigned n_threads) {
    struct swiglu_pool *pool;
    double best = INFINITY;
    assert_int_equal(swiglu_pool_create(n_threads, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    for (int i = 0; i < 30; i++) {
        const double start = seconds(CLOCK_MONOTONIC);
        assert_true(is_right(f, 1, &runner));
        best = fmin(best, seconds(CLOCK_MONOTONIC) - start);
    }
    swiglu_pool_destroy(pool);
    return best;
}

/* C161: more threads than CPUs do not spin each other to a standstill. The best of 30 runs, so that a busy machine does
 * not decide; 2 ms cover waking the threads. */
static void too_many_threads_still_finish(void **state) {
    (void)state;
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    assert_int_equal(swiglu_cpu_query(&cpu), SWIGLU_OK);
    struct fixture f = new_fixture(1, 576, 1536, 576);
    const double fair = best_time(&f, cpu.n_cpus);
    assert_true(best_time(&f, 2 * cpu.n_cpus) < 3 * fair + 2e-3);
    assert_true(best_time(&f, 8 * cpu.n_cpus) < 3 * fair + 2e-3);
    free_fixture(&f);
}

/* C166: an idle pool sleeps. */
static void an_idle_pool_uses_no_cpu(void **state) {
    (void)state;
    struct fixture f = new_fixture(40, 72, 200, 72);
    struct swiglu_pool *pool;
    assert_int_equal(swiglu_pool_create(4, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    assert_true(is_right(&f, 40, &runner));
    usleep(200000);
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    usleep(500000);
    assert_true(seconds(CLOCK_PROCESS_CPUTIME_ID) - before < 0.01);
    swiglu_pool_destroy(pool);
    free_fixture(&f);
}

/* C163: the default count follows the affinity of the process. */
static void the_default_count_follows_affinity(void **state) {
    (void)state;
    const pid_t pid = fork();
    int status;
    assert_true(pid >= 0);
    if (pid == 0) {
        struct swiglu_pool *pool;
        cpu_set_t all, one;
        int cpu = 0;
        if (sched_getaffinity(0, sizeof all, &all)) _exit(1);
        while (!CPU_ISSET(cpu, &all)) cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) || swiglu_pool_create(0, &pool) != SWIGLU_OK) _exit(2);
        _exit(swiglu_pool_runner(pool).n_threads == 1 ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void pools_come_and_go(void **state) {
    (void)state;
    struct swiglu_pool *pool = (void *)1;
    assert_int_equal(swiglu_pool_create(1025, &pool), SWIGLU_E_ARGUMENT);
    assert_null(pool);
    assert_int_equal(swiglu_pool_create(2, NULL), SWIGLU_E_ARGUMENT);
    swiglu_pool_destroy(NULL);
    for (int i = 0; i < 50; i++) { /* never used, so never started */
        assert_int_equal(swiglu_pool_create(64, &pool), SWIGLU_OK);
        swiglu_pool_destroy(pool);
    }
    struct fixture f = new_fixture(8, 56, 60, 56);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
        const struct swiglu_runner runner = swiglu_pool_runner(pool);
        assert_true(is_right(&f, 8, &runner));
        swiglu_pool_destroy(pool);
    }
    free_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(whatever_a_runner_gives_finishes_the_work),
        cmocka_unit_test(one_block_serves_eight_threads),
        cmocka_unit_test(compute_fork_compute),
        cmocka_unit_test(too_many_threads_still_finish),
        cmocka_unit_test(an_idle_pool_uses_no_cpu),
        cmocka_unit_test(the_default_count_follows_affinity),
        cmocka_unit_test(pools_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
