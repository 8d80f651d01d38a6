/* SPDX-License-Identifier: Apache-2.0 */
/* int8 compute of whole blocks: on every level, for any rows and threads, the bits of the plain loops of the clause. */
#include "forward.h"
#include "int8.h"

enum { D_IN = 1280, D_FF = 768, D_OUT = 40, M = 70 };

static const int pairs[][2] = {
    {SWIGLU_Q8_0, SWIGLU_Q8_0}, {SWIGLU_Q4_0, SWIGLU_Q4_1}, {SWIGLU_Q4_1, SWIGLU_Q5_0}, {SWIGLU_Q5_1, SWIGLU_MXFP4},
    {SWIGLU_MXFP4, SWIGLU_Q2_K}, {SWIGLU_Q4_K, SWIGLU_Q6_K}, {SWIGLU_Q5_K, SWIGLU_Q3_K}, {SWIGLU_Q6_K, SWIGLU_Q4_K},
};

static void fill(float *x, size_t n, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) x[i] = next_normal(seed);
    x[n / 3] = 1e4f;                        /* a massive activation */
    for (size_t i = 32; i < 64; i++) x[i] = 0;
    for (size_t i = 96; i < 128; i++) x[i] *= 1e-39f;
}

/* y of the clause. */
static float *plain(const struct int8_block *b, const float *x) {
    float *h = malloc(D_FF * sizeof *h), *y = malloc(M * D_OUT * sizeof *y);
    for (size_t r = 0; r < M; r++) {
        oracle_hidden_row(b, x + r * D_IN, NULL, h);
        chains(b, 2, D_FF, D_OUT, h, NULL, y + r * D_OUT);
    }
    free(h);
    return y;
}

static void same_bits(const float *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4)) fail_msg("output %zu: %a instead of %a", i, (double)got[i], (double)want[i]);
}

/* h comes out as it is before down rounds it, so that the halves give the bits of a forward. */
static void halves(const struct swiglu_block *block, const float *x, const float *want) {
    struct swiglu_work work;
    float *h = malloc(M * D_FF * sizeof *h), *y = malloc(M * D_OUT * sizeof *y);
    assert_int_equal(swiglu_forward_bytes(block, M, 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    assert_int_equal(swiglu_hidden(block, M, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){h, SWIGLU_F32, 0},
                                   work, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_down(block, M, (struct swiglu_crows){h, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0},
                                 work, NULL), SWIGLU_OK);
    same_bits(y, want, M * D_OUT);
    free(h), free(y), free(work.data);
}

static void every_level_gives_the_bits_of_the_clause(void **state) {
    (void)state;
    static const size_t rows[] = {1, 2, 3, 7, 10, 23, M};
    struct swiglu_pool *pool;
    uint64_t seed = 5;
    assert_int_equal(swiglu_pool_create(3, &pool), SWIGLU_OK);
    const struct swiglu_runner runner = swiglu_pool_runner(pool);
    float *x = malloc(M * D_IN * sizeof *x), *y = malloc(M * D_OUT * sizeof *y);
    for (size_t f = 0; f < COUNT(pairs); f++) {
        struct int8_block b = new_int8(D_IN, D_FF, D_OUT, "silu", pairs[f][0], pairs[f][1], seed++);
        if (f % 2) add_biases(&b, seed++);
        for (size_t r = 0; r < M; r++) fill(x + r * D_IN, D_IN, &seed);
        float *want = plain(&b, x);
        for (const uint64_t *level = each_level(); *level; level++) {
            struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_INT8, *level);
            struct swiglu_block_info info = {.struct_size = sizeof info};
            assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
            assert_int_equal(info.isa, *level);
            assert_int_equal(info.compute_first, SWIGLU_COMPUTE_INT8);
            assert_non_null(strstr(info.kernel_down, "_int8_"));
            for (size_t i = 0; i < 2 * COUNT(rows); i++) {
                const size_t m = rows[i / 2], first = M - m;
                memset(y, 0xFF, m * D_OUT * sizeof *y);
                run_block(block, m, (struct swiglu_crows){x + first * D_IN, SWIGLU_F32, 0},
                          (struct swiglu_rows){y, SWIGLU_F32, 0}, i % 2 ? &runner : NULL);
                same_bits(y, want + first * D_OUT, m * D_OUT);
            }
            halves(block, x, want);
            swiglu_block_destroy(block);
        }
        free(want);
        free_int8(&b);
    }
    free(x), free(y);
    swiglu_pool_destroy(pool);
}

/* The packed bits are the file's: what comes out again is what the file decodes to. */
static void unpacked_weights_are_those_of_the_file(void **state) {
    (void)state;
    float *got = malloc(D_FF * D_IN * sizeof *got), *want = malloc(D_FF * D_IN * sizeof *want);
    for (size_t f = 0; f < COUNT(pairs); f++) {
        struct int8_block b = new_int8(D_IN, D_FF, D_OUT, "silu", pairs[f][0], pairs[f][1], f + 9);
        for (const uint64_t *level = each_level(); *level; level++) {
            struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_INT8, *level);
            const struct swiglu_matrix *const m[] = {&b.desc.gate, &b.desc.up, &b.desc.down};
            for (int part = SWIGLU_PART_GATE; part <= SWIGLU_PART_DOWN; part++) {
                const size_t n = m[part]->rows * m[part]->cols;
                assert_int_equal(swiglu_decode(m[part]->dtype, m[part]->data, n, want), SWIGLU_OK);
                assert_int_equal(swiglu_block_unpack(block, part, SWIGLU_F32, got, 0), SWIGLU_OK);
                same_bits(got, want, n);
            }
            swiglu_block_destroy(block);
        }
        free_int8(&b);
    }
    free(got), free(want);
}

static void a_pair_of_two_formats_is_refused(void **state) {
    (void)state;
    struct int8_block b = new_int8(256, 256, 32, "silu", SWIGLU_Q4_K, SWIGLU_Q4_K, 3);
    b.desc.up.dtype = SWIGLU_Q4_0; /* as many bytes */
    const struct swiglu_options options = {.struct_size = sizeof options, .compute = SWIGLU_COMPUTE_INT8};
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_block *block;
    assert_int_equal(swiglu_block_create(&b.desc, &options, &block, &error), SWIGLU_E_UNSUPPORTED);
    assert_non_null(strstr(error.text, "gate is q4_k and up q4_0"));
    free_int8(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_gives_the_bits_of_the_clause),
        cmocka_unit_test(unpacked_weights_are_those_of_the_file),
        cmocka_unit_test(a_pair_of_two_formats_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
