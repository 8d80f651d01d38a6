/* SPDX-License-Identifier: Apache-2.0 */
/* Public bug reports against other projects whose right value forward must give, each under its case number. */
#include "forward.h"

/* A block of f32 weights that all have one value each. */
static struct block_data constant_block(size_t d_in, size_t d_ff, size_t d_out, int dtype, double gate, double up,
                                        double down) {
    struct block_data b = new_block(d_in, d_ff, d_out, SWIGLU_SEPARATE, "silu", dtype, 0, 0, 1);
    for (size_t i = 0; i < d_ff * d_in; i++) {
        put_float(b.memory[0], dtype, i, (float)gate);
        put_float(b.memory[1], dtype, i, (float)up);
    }
    for (size_t i = 0; i < d_out * d_ff; i++) put_float(b.memory[2], dtype, i, (float)down);
    return b;
}

/* One channel, gate 1, up 2: the profile decides the numbers, the layout does not. */
static void c005_profile_and_layout_are_independent(void **state) {
    (void)state;
    static const struct { const char *act; double want; } profiles[] = {{"silu", 1.46212}, {"gpt_oss", 2.53739}};
    static const float gate_up[] = {1, 2}, up_gate[] = {2, 1}, one = 1;
    for (size_t p = 0; p < COUNT(profiles); p++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_INTERLEAVED; layout++) {
            struct swiglu_desc d;
            float y;
            swiglu_desc_init(&d);
            d.d_in = d.d_ff = d.d_out = 1, d.layout = layout;
            assert_int_equal(swiglu_act_init(&d.act, profiles[p].act), SWIGLU_OK);
            d.gate = (struct swiglu_matrix){.data = layout == SWIGLU_UP_GATE ? up_gate : gate_up, .cols = 1,
                                            .rows = is_packed(layout) ? 2 : 1};
            if (layout == SWIGLU_SEPARATE) d.up = (struct swiglu_matrix){.data = &gate_up[1], .rows = 1, .cols = 1};
            d.down = (struct swiglu_matrix){.data = &one, .rows = 1, .cols = 1};
            forward(&d, SWIGLU_COMPUTE_F32, 0, 1, &one, &y);
            assert_true(fabs(y - profiles[p].want) < 6e-6);
        }
}

/* 64 hidden values of 1 times 1035: past the range of f16, not of f32. */
static void c026_f16_overflows_only_where_it_is_stored(void **state) {
    (void)state;
    struct block_data b = constant_block(1, 64, 1, SWIGLU_F16, 0, 1, 1035);
    const float one = 1;
    float y32;
    uint16_t y16;
    b.desc.layout = SWIGLU_UNGATED;
    memset(&b.desc.gate, 0, sizeof b.desc.gate);
    assert_int_equal(swiglu_act_init(&b.desc.act, "relu"), SWIGLU_OK);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_AUTO, 0);
    run_block(block, 1, (struct swiglu_crows){&one, SWIGLU_F32, 0}, (struct swiglu_rows){&y32, SWIGLU_F32, 0}, NULL);
    run_block(block, 1, (struct swiglu_crows){&one, SWIGLU_F32, 0}, (struct swiglu_rows){&y16, SWIGLU_F16, 0}, NULL);
    assert_true(y32 == 66240);
    assert_int_equal(y16, 0x7C00); /* +Inf, never NaN */
    swiglu_block_destroy(block);
    free_block(&b);
}

/* Q4_1, 32 activations of 3000: sums of activations stay far from any limit. */
static void c029_large_activations_on_4_bit_weights(void **state) {
    (void)state;
    unsigned char q4_1[20] = {0x00, 0x38, 0x00, 0xBC}; /* d = 0.5, m = -1 */
    for (int i = 0; i < 16; i++) q4_1[4 + i] = (unsigned char)(i | (15 - i) << 4);
    const float one = 1;
    float x[32], y, sum = 0;
    for (int i = 0; i < 16; i++) sum += 2 * (0.5f * (float)i - 1); /* low nibbles i, high nibbles 15 - i */
    for (int i = 0; i < 32; i++) x[i] = 3000;
    struct swiglu_desc d;
    swiglu_desc_init(&d);
    d.d_in = 32, d.d_ff = d.d_out = 1, d.layout = SWIGLU_UNGATED;
    assert_int_equal(swiglu_act_init(&d.act, "identity"), SWIGLU_OK);
    d.up = (struct swiglu_matrix){.data = q4_1, .dtype = SWIGLU_Q4_1, .rows = 1, .cols = 32};
    d.down = (struct swiglu_matrix){.data = &one, .rows = 1, .cols = 1};
    forward(&d, SWIGLU_COMPUTE_AUTO, 0, 1, x, &y);
    assert_true(y == 3000 * sum);
}

/* Sums of 1024 ones do not stop growing at 256. */
static void c031_bf16_products_accumulate_in_f32(void **state) {
    (void)state;
    enum { N = 1024 };
    struct block_data b = constant_block(N, 1, N, SWIGLU_BF16, 0, 1, 1);
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = 1;
    b.desc.layout = SWIGLU_UNGATED;
    memset(&b.desc.gate, 0, sizeof b.desc.gate);
    assert_int_equal(swiglu_act_init(&b.desc.act, "identity"), SWIGLU_OK);
    for (const uint64_t *level = each_level(); *level; level++) {
        forward(&b.desc, SWIGLU_COMPUTE_AUTO, *level, 1, x, y);
        for (int i = 0; i < N; i++) assert_true(y[i] == N);
    }
    free(x), free(y);
    free_block(&b);
}

static void c053_rows_beyond_65535(void **state) {
    (void)state;
    enum { T = 65537, W = 8 };
    uint64_t seed = 53;
    struct block_data b = new_block(W, W, W, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 54);
    float *x = new_floats(SWIGLU_F32, (size_t)T * W, 1, &seed), *y = malloc(sizeof *y * T * W), last[W];
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, T, x, y);
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, 1, x + (size_t)(T - 1) * W, last);
    assert_memory_equal(y + (size_t)(T - 1) * W, last, sizeof last);
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, 1, x + (size_t)65535 * W, last);
    assert_memory_equal(y + (size_t)65535 * W, last, sizeof last);
    free(x), free(y);
    free_block(&b);
}

/* silu(3) * 3 in every channel of any width. */
static void c055_every_channel_is_written(void **state) {
    (void)state;
    static const size_t widths[] = {8, 257, 512, 768, 1024, 9472};
    const float three = 3;
    for (size_t w = 0; w < COUNT(widths); w++) {
        const size_t n = widths[w];
        struct block_data b = constant_block(1, n, 1, SWIGLU_F32, 1, 1, 0);
        float *y = malloc(n * sizeof *y), *pick = b.memory[2];
        for (size_t i = 0; i < n; i += n > 600 ? 97 : 1) { /* the down row picks one channel */
            pick[i] = 1;
            y[0] = -7;
            forward(&b.desc, SWIGLU_COMPUTE_F32, 0, 1, &three, y);
            assert_true(fabs(y[0] - 8.57317) < 6e-6);
            pick[i] = 0;
        }
        struct block_data wide = constant_block(1, 1, n, SWIGLU_F32, 1, 1, 1);
        for (size_t i = 0; i < n; i++) y[i] = -7;
        forward(&wide.desc, SWIGLU_COMPUTE_F32, 0, 1, &three, y);
        for (size_t i = 0; i < n; i++) assert_true(fabs(y[i] - 8.57317) < 6e-6);
        free(y);
        free_block(&b), free_block(&wide);
    }
}

static void c059_widths_of_zero_give_the_bias(void **state) {
    (void)state;
    const float x[4] = {1, 2, 3, 4};
    float y[6];
    for (int d_in = 0; d_in < 2; d_in++)
        for (int d_ff = 0; d_ff < 2; d_ff++) {
            if (d_in && d_ff) continue;
            struct block_data b = new_block((size_t)d_in * 2, (size_t)d_ff * 5, 3, SWIGLU_SEPARATE, "silu", SWIGLU_F32,
                                            0, 1, 59);
            float *bias = b.memory[5];
            bias[0] = -0.0f; /* an empty sum is +0, and +0 + -0 is +0 */
            if (d_ff) memset(b.memory[2], 0, 15 * sizeof(float));
            b.desc.gate.data = b.desc.up.data = NULL; /* nothing to read */
            if (!d_ff) b.desc.down.data = NULL;
            for (int i = 0; i < 6; i++) y[i] = -7;
            forward(&b.desc, SWIGLU_COMPUTE_F32, 0, 2, x, y);
            for (int i = 0; i < 6; i++) assert_true(same_float(y[i], i % 3 ? bias[i % 3] : 0.0f));
            double ref[6];
            const struct swiglu_reference out = {.struct_size = sizeof out, .y = ref};
            assert_int_equal(swiglu_reference_run(&b.desc, 2, (struct swiglu_crows){x, SWIGLU_F32, 0}, &out, NULL),
                             SWIGLU_OK);
            for (int i = 0; i < 6; i++) assert_true(ref[i] == (double)y[i]);
            free_block(&b);
        }
    struct block_data b = new_block(4, 4, 0, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 60);
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, 1, x, y);
    free_block(&b);
}

/* A zero activation does not hide a NaN weight: no term is skipped. */
static void zero_times_nan_is_nan(void **state) {
    (void)state;
    const float minus_one = -1;
    float y;
    struct block_data b = constant_block(1, 1, 1, SWIGLU_F32, 1, 1, NAN);
    assert_int_equal(swiglu_act_init(&b.desc.act, "relu"), SWIGLU_OK);
    for (const uint64_t *level = each_level(); *level; level++) {
        forward(&b.desc, SWIGLU_COMPUTE_F32, *level, 1, &minus_one, &y);
        assert_int_equal(swiglu_f32_bits(y), 0x7FC00000);
    }
    free_block(&b);
}

/* Weight and input denormals of f16 and bf16 count in f32 compute; a bf16 denormal is zero in bf16 compute. */
static void denormals_count_in_f32_compute(void **state) {
    (void)state;
    static const uint16_t f16_tiny = 0x0001, bf16_tiny = 0x0001;
    const float one = 1, big = 0x1p100f;
    float y;
    struct swiglu_desc d;
    swiglu_desc_init(&d);
    d.d_in = d.d_ff = d.d_out = 1, d.layout = SWIGLU_UNGATED;
    assert_int_equal(swiglu_act_init(&d.act, "identity"), SWIGLU_OK);
    d.up = (struct swiglu_matrix){.data = &f16_tiny, .dtype = SWIGLU_F16, .rows = 1, .cols = 1};
    d.down = (struct swiglu_matrix){.data = &one, .rows = 1, .cols = 1};
    for (const uint64_t *level = each_level(); *level; level++) {
        d.up.data = &f16_tiny, d.up.dtype = SWIGLU_F16;
        forward(&d, SWIGLU_COMPUTE_F32, *level, 1, &one, &y);
        assert_true(y == 0x1p-24f);
        d.up.data = &bf16_tiny, d.up.dtype = SWIGLU_BF16;
        forward(&d, SWIGLU_COMPUTE_F32, *level, 1, &big, &y);
        assert_true(y == 0x1p-33f);
        forward(&d, SWIGLU_COMPUTE_BF16, *level, 1, &big, &y);
        assert_true(same_float(y, 0.0f));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c005_profile_and_layout_are_independent),
        cmocka_unit_test(c026_f16_overflows_only_where_it_is_stored),
        cmocka_unit_test(c029_large_activations_on_4_bit_weights),
        cmocka_unit_test(c031_bf16_products_accumulate_in_f32),
        cmocka_unit_test(c053_rows_beyond_65535),
        cmocka_unit_test(c055_every_channel_is_written),
        cmocka_unit_test(c059_widths_of_zero_give_the_bias),
        cmocka_unit_test(zero_times_nan_is_nan),
        cmocka_unit_test(denormals_count_in_f32_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
