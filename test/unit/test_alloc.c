/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation seen from outside: this program's own malloc, calloc, realloc, aligned_alloc, mmap and pthread_create
 * stand before libc's, count, and fail on demand.
 */
#define _GNU_SOURCE /* RTLD_NEXT, MAP_ANONYMOUS */
#include "train/train.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if ADDRESS_SANITIZED || THREAD_SANITIZED
int main(void) {
    puts("a sanitizer has its own allocator: skipped");
    return 77;
}
#else

/* ---- standing before libc ---- */

static atomic_long n_calls;     /* of allocating functions */
static atomic_long n_live;      /* blocks and mappings not freed yet */
static atomic_long fail_at = -1; /* the call that fails, counted down; -1 = none */

static int fails(void) {
    atomic_fetch_add(&n_calls, 1);
    if (atomic_load(&fail_at) < 0 || atomic_fetch_sub(&fail_at, 1) != 0) return 0;
    errno = ENOMEM;
    return 1;
}

static void *counted(void *p) {
    if (p) atomic_fetch_add(&n_live, 1);
    return p;
}

/* dlsym may allocate before it has found calloc: a little memory that is never freed. */
static char early[4096];
static size_t early_used;

static void *next(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) abort();
    return p;
}

#define REAL(type, name, ...)                           \
    static type (*real)(__VA_ARGS__);                   \
    if (!real) {                                        \
        void *const address = next(#name);              \
        memcpy(&real, &address, sizeof address);        \
    }

void *malloc(size_t bytes) {
    REAL(void *, malloc, size_t)
    return fails() ? NULL : counted(real(bytes));
}

void *calloc(size_t n, size_t size) {
    static int looking;
    if (looking) {
        void *const p = early + early_used;
        early_used += (n * size + 15) & ~(size_t)15;
        return early_used <= sizeof early ? p : NULL;
    }
    looking = 1;
    REAL(void *, calloc, size_t, size_t)
    looking = 0;
    return fails() ? NULL : counted(real(n, size));
}

void *realloc(void *old, size_t bytes) {
    REAL(void *, realloc, void *, size_t)
    if (fails()) return NULL;
    return old ? real(old, bytes) : counted(real(NULL, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    REAL(void *, aligned_alloc, size_t, size_t)
    return fails() ? NULL : counted(real(alignment, bytes));
}

void free(void *p) {
    REAL(void, free, void *)
    if (!p || ((char *)p >= early && (char *)p < early + sizeof early)) return;
    atomic_fetch_sub(&n_live, 1);
    real(p);
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    if (fails()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return fails() ? EAGAIN : real(thread, attributes, start, arg);
}

/* ---- forward allocates nothing ---- */

static void count_forward(const struct block_data *b, int compute, size_t m, const struct swiglu_runner *runner) {
    uint64_t seed = 3;
    const size_t d_in = b->desc.d_in, d_out = b->desc.d_out;
    struct swiglu_block *block = prepare(&b->desc, compute, 0);
    float *x = new_floats(SWIGLU_F32, m * d_in, 1, &seed), *y = malloc(m * d_out * sizeof *y);
    struct swiglu_work work;
    assert_int_equal(swiglu_forward_bytes(block, m, runner ? runner->n_threads : 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    const long before = atomic_load(&n_calls);
    const enum swiglu_status status = swiglu_forward(block, m, (struct swiglu_crows){x, SWIGLU_F32, 0},
                                                     (struct swiglu_rows){y, SWIGLU_F32, 0}, work, runner);
    const long after = atomic_load(&n_calls);
    assert_int_equal(status, SWIGLU_OK);
    assert_int_equal(after - before, 0);
    free(work.data), free(x), free(y);
    swiglu_block_destroy(block);
}

static void forward_allocates_nothing(void **state) {
    (void)state;
    static const size_t rows[] = {1, 8, 513};
    struct swiglu_pool *pool;
    const long before = atomic_load(&n_calls);
    void *volatile one = malloc(1); /* volatile: or the pair is optimised away */
    free(one);
    assert_int_equal(atomic_load(&n_calls) - before, 1); /* the count counts */
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout += SWIGLU_UNGATED) {
        struct block_data b = new_block(72, 200, 72, layout, "gelu", SWIGLU_BF16, 0, 1, 4);
        struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
        float x[72] = {0}, y[72];
        /* the first use starts the pool's threads */
        run_block(block, 1, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0}, &runner);
        swiglu_block_destroy(block);
        for (size_t i = 0; i < COUNT(rows); i++)
            for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                count_forward(&b, compute, rows[i], NULL);
                count_forward(&b, compute, rows[i], &runner);
            }
        free_block(&b);
    }
    swiglu_pool_destroy(pool);
}

/* ---- nor does training ---- */

static void count_training(const struct block_data *b, int compute, size_t m, const struct swiglu_runner *runner) {
    struct lesson l = new_lesson(*b, m, 1, 3);
    struct outcome o = new_outcome(&b->desc, m);
    const struct swiglu_grads grads = grads_of(&o);
    const struct swiglu_options options = {.struct_size = sizeof options, .compute = compute};
    const struct swiglu_rows y = {o.part[Y], SWIGLU_F32, 0};
    struct swiglu_work work;
    size_t saved_bytes;
    for (unsigned flags = 0; flags < 4; flags++) {
        assert_int_equal(swiglu_train_bytes(&b->desc, &options, m, flags, runner ? runner->n_threads : 1, &work.bytes,
                                            &saved_bytes), SWIGLU_OK);
        void *const saved = malloc(saved_bytes + 1);
        work.data = malloc(work.bytes);
        const long before = atomic_load(&n_calls);
        const enum swiglu_status status[2] = {
            swiglu_train_forward(&b->desc, &options, m, flags, l.x, y, saved, work, runner),
            swiglu_train_backward(&b->desc, &options, m, flags, l.x, l.dy, saved, &grads, work, runner)};
        const long after = atomic_load(&n_calls);
        assert_true(status[0] == SWIGLU_OK && status[1] == SWIGLU_OK);
        assert_int_equal(after - before, 0);
        free(work.data), free(saved);
    }
    free(o.all), free(l.x_data), free(l.dy_data);
}

static void do_nothing(void *arg) { (void)arg; }

static void training_allocates_nothing(void **state) {
    (void)state;
    struct swiglu_pool *pool;
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    runner.run(runner.ctx, runner.n_threads, do_nothing, NULL); /* the first use starts the pool's threads */
    for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            struct block_data b = new_block(72, 200, 40, layout, "gelu", SWIGLU_BF16, layout % 2, 1, 4);
            count_training(&b, compute, 9, NULL);
            count_training(&b, compute, 520, &runner);
            free_block(&b);
        }
    swiglu_pool_destroy(pool);
}

/* ---- every allocation fails in turn (row 2.1); for files see test/io ---- */

/* Calls attempt until nothing fails any more; each failure must be E_MEMORY and leave nothing behind. */
static void survive_each_failure(enum swiglu_status (*attempt)(void *), void *arg) {
    const long live = atomic_load(&n_live);
    long n = 0;
    for (;; n++) {
        assert_true(n < 1000);
        atomic_store(&fail_at, n);
        const enum swiglu_status status = attempt(arg);
        const long left = atomic_exchange(&fail_at, -1);
        if (left >= 0) { /* it never came to the n-th allocation */
            assert_int_equal(status, SWIGLU_OK);
            break;
        }
        assert_int_equal(status, SWIGLU_E_MEMORY);
        assert_int_equal(atomic_load(&n_live), live);
    }
    assert_int_equal(atomic_load(&n_live), live);
    assert_true(n > 0);
}

static enum swiglu_status create_block(void *arg) {
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_block *block = (void *)1;
    const enum swiglu_status status = swiglu_block_create(arg, NULL, &block, &error);
    if (status == SWIGLU_OK) swiglu_block_destroy(block);
    else if (block || error.status != status || !error.text[0]) return SWIGLU_E_ARGUMENT;
    return status;
}

static void block_create_survives(void **state) {
    (void)state;
    struct block_data small = new_block(20, 30, 20, SWIGLU_SEPARATE, "silu", SWIGLU_F16, 1, 1, 5);
    struct block_data big = new_block(1024, 1100, 1024, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 6); /* mapped */
    survive_each_failure(create_block, &small.desc);
    survive_each_failure(create_block, &big.desc);
    free_block(&small);
    free_block(&big);
}

static enum swiglu_status run_reference(void *arg) {
    const float x[20] = {1};
    double y[20], bound[20], plain[20], hidden[30];
    const struct swiglu_reference out = {.struct_size = sizeof out, .compute = SWIGLU_COMPUTE_BF16, .y = y,
                                         .bound = bound, .plain = plain, .hidden = hidden};
    return swiglu_reference_run(arg, 1, (struct swiglu_crows){x, SWIGLU_F32, 0}, &out, NULL);
}

static void reference_survives(void **state) {
    (void)state;
    struct block_data b = new_block(20, 30, 20, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 1, 1, 7);
    survive_each_failure(run_reference, &b.desc);
    free_block(&b);
}

static enum swiglu_status create_pool(void *arg) {
    struct swiglu_pool *pool;
    const enum swiglu_status status = swiglu_pool_create(3, &pool);
    (void)arg;
    if (status == SWIGLU_OK) swiglu_pool_destroy(pool);
    return status;
}

/* A thread that cannot be started is done without. */
static void pool_survives(void **state) {
    (void)state;
    survive_each_failure(create_pool, NULL);
    struct block_data b = new_block(72, 200, 72, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 8);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    uint64_t seed = 9;
    float *x = new_floats(SWIGLU_F32, 40 * 72, 1, &seed), want[40 * 72], y[40 * 72];
    run_block(block, 40, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){want, SWIGLU_F32, 0}, NULL);
    for (long n = 0; n < 3; n++) {
        struct swiglu_pool *pool;
        assert_int_equal(swiglu_pool_create(4, &pool), SWIGLU_OK);
        const struct swiglu_runner runner = swiglu_pool_runner(pool);
        struct swiglu_work work;
        assert_int_equal(swiglu_forward_bytes(block, 40, 4, &work.bytes), SWIGLU_OK);
        work.data = malloc(work.bytes);
        atomic_store(&fail_at, n); /* the n-th thread */
        const enum swiglu_status status = swiglu_forward(block, 40, (struct swiglu_crows){x, SWIGLU_F32, 0},
                                                         (struct swiglu_rows){y, SWIGLU_F32, 0}, work, &runner);
        atomic_store(&fail_at, -1);
        assert_int_equal(status, SWIGLU_OK);
        assert_memory_equal(y, want, sizeof y);
        free(work.data);
        swiglu_pool_destroy(pool);
    }
    free(x);
    swiglu_block_destroy(block);
    free_block(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_allocates_nothing),
        cmocka_unit_test(training_allocates_nothing),
        cmocka_unit_test(block_create_survives),
        cmocka_unit_test(reference_survives),
        cmocka_unit_test(pool_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
