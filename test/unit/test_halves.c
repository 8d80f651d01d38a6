/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of a forward: swiglu_hidden, then swiglu_down, give the bits of swiglu_forward, and h itself has the same
 * bits everywhere. */
#include "forward.h"

enum { D_IN = 37, D_FF = 83, D_OUT = 29 };

struct call {
    const struct swiglu_block *block;
    size_t m, d_ff, d_out;
    const float *x;
    const struct swiglu_runner *runner;
    struct swiglu_work work;
};

static struct call new_call(const struct swiglu_block *block, size_t m, const float *x, const struct swiglu_runner *runner) {
    struct swiglu_block_info info = {.struct_size = sizeof info};
    struct call c = {.block = block, .m = m, .x = x, .runner = runner};
    assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
    assert_int_equal(swiglu_forward_bytes(block, m, runner ? runner->n_threads : 1, &c.work.bytes), SWIGLU_OK);
    c.d_ff = info.d_ff, c.d_out = info.d_out;
    c.work.data = malloc(c.work.bytes);
    return c;
}

static void *hidden_rows(const struct call *c, int dtype) {
    void *h = malloc(c->m * c->d_ff * float_bytes(dtype));
    memset(c->work.data, 0xFF, c->work.bytes);
    assert_int_equal(swiglu_hidden(c->block, c->m, (struct swiglu_crows){c->x, SWIGLU_F32, 0},
                                   (struct swiglu_rows){h, dtype, 0}, c->work, c->runner), SWIGLU_OK);
    return h;
}

static void down_rows(const struct call *c, const void *h, int dtype, float *y) {
    memset(c->work.data, 0xFF, c->work.bytes);
    assert_int_equal(swiglu_down(c->block, c->m, (struct swiglu_crows){h, dtype, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0},
                                 c->work, c->runner), SWIGLU_OK);
}

/* h of generic is the rule: as f32 it must be the same everywhere, and as bf16 the same values. */
static void check_halves(const struct call *c, int compute_down, const float *want_h, const float *want_y) {
    const size_t n_h = c->m * c->d_ff, y_bytes = c->m * c->d_out * sizeof(float);
    float *y = malloc(y_bytes);
    for (int dtype = SWIGLU_F32; dtype <= SWIGLU_BF16; dtype += SWIGLU_BF16) {
        if (dtype == SWIGLU_BF16 && compute_down != SWIGLU_COMPUTE_BF16) continue;
        void *h = hidden_rows(c, dtype);
        for (size_t i = 0; i < n_h; i++) assert_true(same_float(get_float(h, dtype, i), want_h[i]));
        down_rows(c, h, dtype, y);
        assert_memory_equal(y, want_y, y_bytes);
        free(h);
    }
    free(y);
}

static void check_block(const struct block_data *b, int compute, size_t m, const float *x,
                        const struct swiglu_runner *runner) {
    struct swiglu_block_info info = {.struct_size = sizeof info};
    float *want = malloc(m * b->desc.d_out * sizeof *want), *want_h = NULL;
    forward(&b->desc, compute, SWIGLU_ISA_GENERIC, m, x, want);
    for (const uint64_t *level = each_level(); *level; level++) {
        struct swiglu_block *block = prepare(&b->desc, compute, *level);
        struct call c = new_call(block, m, x, runner);
        assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
        if (!want_h) want_h = hidden_rows(&c, SWIGLU_F32);
        check_halves(&c, info.compute_down, want_h, want);
        free(c.work.data);
        swiglu_block_destroy(block);
    }
    free(want), free(want_h);
}

static void halves_give_the_bits_of_forward(void **state) {
    (void)state;
    static const struct { int layout; const char *act; int dtype, compute; } cases[] = {
        {SWIGLU_SEPARATE, "silu", SWIGLU_F32, SWIGLU_COMPUTE_F32},
        {SWIGLU_SEPARATE, "silu", SWIGLU_BF16, SWIGLU_COMPUTE_AUTO},
        {SWIGLU_UNGATED, "relu2", SWIGLU_F16, SWIGLU_COMPUTE_BF16},
        {SWIGLU_INTERLEAVED, "gpt_oss", SWIGLU_F16, SWIGLU_COMPUTE_AUTO},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t seed = 3;
        struct block_data b = new_block(D_IN, D_FF, D_OUT, cases[i].layout, cases[i].act, cases[i].dtype, 0, 1, 1 + i);
        float *x = new_floats(SWIGLU_F32, 40 * D_IN, 1, &seed);
        x[2 * D_IN + 3] = NAN, x[4 * D_IN] = INFINITY;
        for (size_t m = 1; m <= 40; m++) check_block(&b, cases[i].compute, m, x, NULL);
        free(x);
        free_block(&b);
    }
}

static void halves_over_row_blocks_and_threads(void **state) {
    (void)state;
    enum { M = 530 };
    /* 1091: above one staged record of either kind */
    static const size_t widths[][3] = {{8, 1091, 5}, {3, 1, 1}, {0, 7, 3}, {5, 0, 4}};
    struct swiglu_pool *pool;
    uint64_t seed = 4;
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    for (size_t i = 0; i < COUNT(widths); i++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            struct block_data b = new_block(widths[i][0], widths[i][1], widths[i][2], SWIGLU_SEPARATE, "gelu", SWIGLU_F32, 0,
                                            1, 9);
            float *x = new_floats(SWIGLU_F32, M * widths[i][0], 1, &seed);
            check_block(&b, compute, M, x, &runner);
            free(x);
            free_block(&b);
        }
    swiglu_pool_destroy(pool);
}

/* Rows with a stride, and in place: nothing between the rows is touched. */
static void strided_rows_and_in_place(void **state) {
    (void)state;
    enum { M = 9, D = 23, LD = 31 };
    uint64_t seed = 5;
    struct block_data b = new_block(D, D, D, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 6);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    float *x = new_floats(SWIGLU_F32, M * D, 1, &seed), want[M * D], rows[M * LD];
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, M, x, want);
    const struct call c = new_call(block, M, x, NULL);
    for (size_t i = 0; i < M * LD; i++) rows[i] = i % LD < D ? x[i / LD * D + i % LD] : 7;
    const struct swiglu_crows in = {rows, SWIGLU_F32, LD};
    const struct swiglu_rows out = {rows, SWIGLU_F32, LD};
    assert_int_equal(swiglu_hidden(block, M, in, out, c.work, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_down(block, M, in, out, c.work, NULL), SWIGLU_OK);
    for (size_t i = 0; i < M * LD; i++) assert_true(same_float(rows[i], i % LD < D ? want[i / LD * D + i % LD] : 7));
    free(x), free(c.work.data);
    swiglu_block_destroy(block);
    free_block(&b);
}

static void bad_halves_are_refused(void **state) {
    (void)state;
    enum { M = 2, D = 4, F = 6 };
    struct block_data b = new_block(D, F, D, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 7);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    float x[M * D] = {0}, h[M * F] = {5, 5}, y[M * D] = {5, 5};
    const struct call c = new_call(block, M, x, NULL);
    const struct swiglu_work work = c.work, small = {work.data, 16};
    const struct swiglu_crows in = {x, SWIGLU_F32, 0}, h_in = {h, SWIGLU_F32, 0};
    const struct swiglu_rows h_out = {h, SWIGLU_F32, 0}, out = {y, SWIGLU_F32, 0};
    assert_int_equal(swiglu_hidden(NULL, M, in, h_out, work, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_down(NULL, M, h_in, out, work, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_hidden(block, M, in, (struct swiglu_rows){h, SWIGLU_BF16, 0}, work, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_hidden(block, M, in, (struct swiglu_rows){h, SWIGLU_F16, 0}, work, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_hidden(block, M, in, (struct swiglu_rows){h, SWIGLU_F32, F - 1}, work, NULL), SWIGLU_E_SHAPE);
    assert_int_equal(swiglu_down(block, M, (struct swiglu_crows){h, SWIGLU_F32, F - 1}, out, work, NULL), SWIGLU_E_SHAPE);
    assert_int_equal(swiglu_hidden(block, M, in, (struct swiglu_rows){x + 1, SWIGLU_F32, 0}, work, NULL), SWIGLU_E_ALIAS);
    assert_int_equal(swiglu_down(block, M, h_in, (struct swiglu_rows){h + 1, SWIGLU_F32, 0}, work, NULL), SWIGLU_E_ALIAS);
    assert_int_equal(swiglu_hidden(block, M, in, h_out, small, NULL), SWIGLU_E_WORKSPACE);
    assert_int_equal(swiglu_down(block, M, h_in, out, small, NULL), SWIGLU_E_WORKSPACE);
    assert_int_equal(swiglu_hidden(block, 0, in, h_out, work, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_down(block, 0, h_in, out, work, NULL), SWIGLU_OK);
    assert_true(h[0] == 5 && h[1] == 5 && y[0] == 5 && y[1] == 5);
    free(work.data);
    swiglu_block_destroy(block);
    free_block(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_give_the_bits_of_forward),
        cmocka_unit_test(halves_over_row_blocks_and_threads),
        cmocka_unit_test(strided_rows_and_in_place),
        cmocka_unit_test(bad_halves_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
