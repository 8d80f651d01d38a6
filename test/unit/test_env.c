/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's floating-point environment changes no result and is as before on return; denormals cost no more than they
 * should (rows 2.5 to 2.7 of the reliability list). */
#define _XOPEN_SOURCE 700 /* clock_gettime */
#include "train/train.h"

#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
static uint64_t get_control(void) { return _mm_getcsr() & ~0x3Fu; } /* without the sticky exception flags */
static void set_control(uint64_t c) { _mm_setcsr((unsigned)c); }
static const uint64_t flush_bits = 0x8040; /* FTZ, DAZ */
static const uint64_t rounding[] = {0x0000, 0x2000, 0x4000, 0x6000}, rounding_mask = 0x6000;
#elif defined(__aarch64__)
static uint64_t get_control(void) {
    uint64_t c;
    __asm__ volatile("mrs %0, fpcr" : "=r"(c));
    return c;
}
static void set_control(uint64_t c) { __asm__ volatile("msr fpcr, %0" : : "r"(c)); }
static const uint64_t flush_bits = 1 << 24; /* FZ */
static const uint64_t rounding[] = {0x000000, 0x400000, 0x800000, 0xC00000}, rounding_mask = 0xC00000;
#endif

enum { M = 20, D_IN = 40, D_FF = 70, D_OUT = 36 };

/* Small weights, so that denormals appear everywhere. */
static struct block_data new_tiny_block(double scale) {
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 1);
    for (size_t i = 0; i < D_FF * D_IN; i++) ((float *)b.memory[0])[i] *= (float)scale;
    return b;
}

/* Calls check in every mode that a caller can be in, and looks whether that mode is still there. */
static void in_every_mode(void (*check)(void *), void *arg) {
    const uint64_t before = get_control();
    for (int flush = 0; flush < 2; flush++)
        for (size_t r = 0; r < COUNT(rounding); r++) {
            const uint64_t mode = (before & ~rounding_mask) | rounding[r] | (flush ? flush_bits : 0);
            set_control(mode);
            check(arg);
            const uint64_t after = get_control();
            set_control(before);
            assert_true(after == mode);
        }
}

struct forward_case {
    const struct swiglu_desc *desc;
    int compute;
    const float *x;
    const struct swiglu_runner *runner;
    float y[M * D_OUT], want[M * D_OUT];
};

static void run_case(void *arg) {
    struct forward_case *c = arg;
    struct swiglu_block *block = prepare(c->desc, c->compute, 0); /* prepared in this mode, too */
    memset(c->y, 0xFF, sizeof c->y);
    run_block(block, M, (struct swiglu_crows){c->x, SWIGLU_F32, 0}, (struct swiglu_rows){c->y, SWIGLU_F32, 0},
              c->runner);
    swiglu_block_destroy(block);
    assert_memory_equal(c->y, c->want, sizeof c->y);
}

static void forward_does_not_see_the_callers_mode(void **state) {
    (void)state;
    static const double scales[] = {1, 0x1p-64, 0x1p-120};
    for (size_t s = 0; s < COUNT(scales); s++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            static struct forward_case c;
            struct block_data b = new_tiny_block(scales[s]);
            struct swiglu_pool *pool;
            uint64_t seed = 2;
            float *x = new_floats(SWIGLU_F32, M * D_IN, s ? 0x1p-62 : 1, &seed);
            c = (struct forward_case){.desc = &b.desc, .compute = compute, .x = x};
            forward(&b.desc, compute, 0, M, x, c.want);
            in_every_mode(run_case, &c);
            assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
            const struct swiglu_runner runner = swiglu_pool_runner(pool);
            c.runner = &runner; /* threads started while denormals are flushed, and used in other modes */
            in_every_mode(run_case, &c);
            swiglu_pool_destroy(pool);
            free(x);
            free_block(&b);
        }
}

struct train_case {
    struct lesson lesson;
    struct how how;
    struct outcome want;
};

static void run_training(void *arg) {
    const struct train_case *c = arg;
    struct outcome o = learn(&c->lesson, c->how);
    assert_memory_equal(o.all, c->want.all, o.total * sizeof *o.all);
    free(o.all);
}

static void training_does_not_see_it(void **state) {
    (void)state;
    struct swiglu_pool *pool;
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    for (int tiny = 0; tiny < 2; tiny++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            struct train_case c = {.lesson = new_lesson(new_tiny_block(tiny ? 0x1p-90 : 1), M, tiny ? 0x1p-60 : 1, 5),
                                   .how = {.compute = compute}};
            c.want = learn(&c.lesson, c.how);
            in_every_mode(run_training, &c);
            c.how.runner = &runner;
            c.how.flags = SWIGLU_TRAIN_KEEP_GATE_UP;
            in_every_mode(run_training, &c);
            free(c.want.all);
            free_lesson(&c.lesson);
        }
    swiglu_pool_destroy(pool);
}

/* ---- the other entries that compute ---- */

struct entries { float act[8], slope[8], decoded[32]; uint16_t half[8]; double y[D_OUT], bound[D_OUT]; };

static void run_entries(struct entries *e) {
    static const float x[8] = {-3, 0.7f, 1e-40f, -20, 1e-30f, 5, -0.1f, 88};
    static const unsigned char q8_0[34] = {0x01, 0x00, 3, 5, 250}; /* a denormal f16 scale */
    static struct block_data b; /* made once, in the default mode: even its numbers depend on it */
    static float *rows;
    uint64_t seed = 3;
    struct swiglu_act act;
    if (!rows) b = new_tiny_block(0x1p-130), rows = new_floats(SWIGLU_F32, D_IN, 1, &seed);
    const struct swiglu_reference out = {.struct_size = sizeof out, .y = e->y, .bound = e->bound};
    assert_int_equal(swiglu_act_init(&act, "gelu"), SWIGLU_OK);
    assert_int_equal(swiglu_act_eval(&act, 8, x, e->act), SWIGLU_OK);
    assert_int_equal(swiglu_act_derivative(&act, 8, x, e->slope), SWIGLU_OK);
    assert_int_equal(swiglu_encode(SWIGLU_F16, x, 8, e->half), SWIGLU_OK);
    assert_int_equal(swiglu_decode(SWIGLU_Q8_0, q8_0, 32, e->decoded), SWIGLU_OK);
    assert_int_equal(swiglu_reference_run(&b.desc, 1, (struct swiglu_crows){rows, SWIGLU_F32, 0}, &out, NULL),
                     SWIGLU_OK);
}

static struct entries right_entries;

static void check_entries(void *arg) {
    struct entries e;
    (void)arg;
    memset(&e, 0, sizeof e);
    run_entries(&e);
    assert_memory_equal(&e, &right_entries, sizeof e);
}

static void other_entries_do_not_see_it_either(void **state) {
    (void)state;
    memset(&right_entries, 0, sizeof right_entries);
    run_entries(&right_entries);
    in_every_mode(check_entries, NULL);
}

/* ---- denormals ---- */

static double best_seconds(const struct swiglu_block *block, const float *x) {
    double best = INFINITY;
    static float y[M * D_OUT];
    for (int i = 0; i < 20; i++) {
        struct timespec t[2];
        clock_gettime(CLOCK_MONOTONIC, &t[0]);
        run_block(block, M, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &t[1]);
        best = fmin(best, (double)(t[1].tv_sec - t[0].tv_sec) + 1e-9 * (double)(t[1].tv_nsec - t[0].tv_nsec));
    }
    return best;
}

/* A denormal operand costs a microcode assist on some CPUs. The figure is printed for the documentation; ten times is
 * where a user would call it a hang. */
static void denormals_are_not_a_cliff(void **state) {
    (void)state;
    uint64_t seed = 4;
    struct block_data b = new_tiny_block(1);
    float *x = new_floats(SWIGLU_F32, M * D_IN, 1, &seed), *tiny = new_floats(SWIGLU_F32, M * D_IN, 0x1p-135, &seed);
    for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
        struct swiglu_block *block = prepare(&b.desc, compute, 0);
        const double normal = best_seconds(block, x), denormal = best_seconds(block, tiny);
        print_message("%s compute: denormal input takes %.2f times as long\n", compute == 1 ? "f32" : "bf16",
                      denormal / normal);
        assert_true(denormal < 10 * normal);
        swiglu_block_destroy(block);
    }
    free(x), free(tiny);
    free_block(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_does_not_see_the_callers_mode),
        cmocka_unit_test(training_does_not_see_it),
        cmocka_unit_test(other_entries_do_not_see_it_either),
        cmocka_unit_test(denormals_are_not_a_cliff),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
