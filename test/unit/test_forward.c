/* SPDX-License-Identifier: Apache-2.0 */
/* Forward through the public interface: against the reference, and against itself in every other way of asking. */
#include "forward.h"

/* ---- against the reference ---- */

/* The worst |y - ref| / bound of the block at this compute, output dtype and level. */
static double worst_ratio(const struct swiglu_desc *d, int compute, int x_dtype, int y_dtype, uint64_t level, size_t m,
                          double x_scale) {
    uint64_t seed = 21;
    void *x = new_floats(x_dtype, m * d->d_in, x_scale, &seed), *y = calloc(m * d->d_out + 1, 4);
    double *ref = calloc(2 * m * d->d_out + 1, sizeof *ref), *bound = ref + m * d->d_out, worst = 0;
    const struct swiglu_reference out = {.struct_size = sizeof out, .compute = compute, .y_dtype = y_dtype, .y = ref,
                                         .bound = bound};
    struct swiglu_block *block = prepare(d, compute, level);
    run_block(block, m, (struct swiglu_crows){x, x_dtype, 0}, (struct swiglu_rows){y, y_dtype, 0}, NULL);
    swiglu_block_destroy(block);
    assert_int_equal(swiglu_reference_run(d, m, (struct swiglu_crows){x, x_dtype, 0}, &out, NULL), SWIGLU_OK);
    for (size_t i = 0; i < m * d->d_out; i++) worst = fmax(worst, judge(get_float(y, y_dtype, i), ref[i], bound[i]));
    free(x), free(y), free(ref);
    return worst;
}

static void every_activation_layout_dtype_and_compute_is_within_the_bound(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    const char *name;
    double worst = 0;
    for (size_t a = 0; (name = swiglu_act_name(a, NULL)); a++)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
            for (size_t t = 0; t < 3; t++)
                for (int compute = SWIGLU_COMPUTE_AUTO; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                    const int in_out = (int)(a + t) % 2, biased = (int)(a + (size_t)layout) % 2;
                    struct block_data b = new_block(33, 41, 19, layout, name, dtypes[t], in_out, biased, 22 + a);
                    const double ratio = worst_ratio(&b.desc, compute, dtypes[(t + a) % 3],
                                                     dtypes[(t + (size_t)compute) % 3], 0, 3, 1 + 3 * (double)(a % 2));
                    if (!(ratio <= 1)) fail_msg("%s layout %d %zu compute %d: %g", name, layout, t, compute, ratio);
                    worst = fmax(worst, ratio);
                    free_block(&b);
                }
    print_message("worst |y - ref| / bound: %.3f\n", worst);
    assert_true(worst > 0.001); /* something was measured */
}

static void every_level_is_within_the_bound_at_depth(void **state) {
    (void)state;
    static const struct { int dtype, compute; } how[] = {{SWIGLU_F32, SWIGLU_COMPUTE_F32},
                                                         {SWIGLU_BF16, SWIGLU_COMPUTE_BF16},
                                                         {SWIGLU_F16, SWIGLU_COMPUTE_F32}};
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t i = 0; i < COUNT(how); i++) {
            struct block_data b = new_block(1100, 1030, 24, SWIGLU_SEPARATE, "silu", how[i].dtype, 0, 1, 31);
            assert_true(worst_ratio(&b.desc, how[i].compute, SWIGLU_F32, SWIGLU_F32, *level, 2, 1) <= 1);
            free_block(&b);
        }
}

static void gate_and_up_may_differ_in_dtype(void **state) {
    (void)state;
    struct block_data b = new_block(40, 48, 16, SWIGLU_SEPARATE, "silu", SWIGLU_BF16, 0, 1, 41);
    uint64_t seed = 42;
    free(b.memory[1]);
    b.desc.up.data = b.memory[1] = new_floats(SWIGLU_F16, 40 * 48, 0.15, &seed);
    b.desc.up.dtype = SWIGLU_F16;
    assert_true(worst_ratio(&b.desc, SWIGLU_COMPUTE_AUTO, SWIGLU_F32, SWIGLU_F32, 0, 3, 1) <= 1);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_AUTO, 0);
    struct swiglu_block_info info = {.struct_size = sizeof info};
    assert_int_equal(swiglu_block_query(block, &info), SWIGLU_OK);
    assert_int_equal(info.compute_first, SWIGLU_COMPUTE_F32);
    assert_int_equal(info.compute_down, SWIGLU_COMPUTE_BF16);
    swiglu_block_destroy(block);
    free_block(&b);
}

/* NaN, infinities and values near the ends of the range in x: the class of every output is that of the reference
 * wherever that is certain, and the same bits come out of every level. */
static void classes_agree_with_the_reference(void **state) {
    (void)state;
    enum { M = 12, D_IN = 9, D_FF = 20, D_OUT = 7 };
    static const float strange[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f, -0.0f, 1e20f};
    uint64_t seed = 51;
    for (size_t a = 0; swiglu_act_name(a, NULL); a++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            struct block_data b = new_block(D_IN, D_FF, D_OUT, a % 2 ? SWIGLU_UNGATED : SWIGLU_SEPARATE,
                                            swiglu_act_name(a, NULL), SWIGLU_F32, 0, 0, 52);
            float *x = new_floats(SWIGLU_F32, M * D_IN, 1, &seed), first[M * D_OUT], y[M * D_OUT];
            double ref[M * D_OUT], bound[M * D_OUT];
            for (size_t r = 1; r < M; r++) x[r * D_IN + next_u64(&seed) % D_IN] = strange[r % COUNT(strange)];
            const struct swiglu_reference out = {.struct_size = sizeof out, .compute = compute, .y = ref,
                                                 .bound = bound};
            assert_int_equal(swiglu_reference_run(&b.desc, M, (struct swiglu_crows){x, SWIGLU_F32, 0}, &out, NULL),
                             SWIGLU_OK);
            forward(&b.desc, compute, SWIGLU_ISA_GENERIC, M, x, first);
            for (size_t i = 0; i < M * D_OUT; i++)
                if (!(judge(first[i], ref[i], bound[i]) <= 1))
                    fail_msg("%s compute %d row %zu: %g instead of %g +- %g", swiglu_act_name(a, NULL), compute,
                             i / D_OUT, (double)first[i], ref[i], bound[i]);
            for (const uint64_t *level = each_level(); *level; level++) {
                forward(&b.desc, compute, *level, M, x, y);
                assert_memory_equal(y, first, sizeof y);
            }
            free(x);
            free_block(&b);
        }
}

/* ---- the same numbers asked for in another way ---- */

enum { D_IN = 37, D_FF = 20, D_OUT = 29, ROWS = 5 };

/* Copies gate and up of a separate block into one packed matrix and one packed bias. */
static struct block_data packed_like(const struct block_data *b, int layout) {
    struct block_data p = {.desc = b->desc};
    float *w = p.memory[0] = calloc(2 * D_FF * D_IN, sizeof *w), *bias = p.memory[3] = calloc(2 * D_FF, sizeof *bias);
    for (size_t j = 0; j < D_FF; j++) {
        size_t g = j, u = D_FF + j;
        if (layout == SWIGLU_UP_GATE) g = D_FF + j, u = j;
        if (layout == SWIGLU_INTERLEAVED) g = 2 * j, u = 2 * j + 1;
        memcpy(w + g * D_IN, (float *)b->memory[0] + j * D_IN, D_IN * sizeof *w);
        memcpy(w + u * D_IN, (float *)b->memory[1] + j * D_IN, D_IN * sizeof *w);
        bias[g] = ((float *)b->memory[3])[j];
        bias[u] = ((float *)b->memory[4])[j];
    }
    p.desc.layout = layout;
    p.desc.gate.data = w, p.desc.gate.rows = 2 * D_FF;
    memset(&p.desc.up, 0, sizeof p.desc.up);
    p.desc.gate_bias.data = bias;
    memset(&p.desc.up_bias, 0, sizeof p.desc.up_bias);
    return p;
}

/* C131: I = 20 is no multiple of a tile, interleaved as in every other layout. */
static void layouts_give_the_same_bits(void **state) {
    (void)state;
    uint64_t seed = 61;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "gpt_oss", SWIGLU_F32, 0, 1, 62);
    float *x = new_floats(SWIGLU_F32, ROWS * D_IN, 2, &seed), want[ROWS * D_OUT], y[ROWS * D_OUT];
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, ROWS, x, want);
    for (int layout = SWIGLU_GATE_UP; layout <= SWIGLU_INTERLEAVED; layout++) {
        struct block_data p = packed_like(&b, layout);
        forward(&p.desc, SWIGLU_COMPUTE_F32, 0, ROWS, x, y);
        assert_memory_equal(y, want, sizeof y);
        free_block(&p);
    }
    free(x);
    free_block(&b);
}

/* The matrix stored transposed (in_out) and with a stride; freed by the caller. */
static struct swiglu_matrix restored(const struct swiglu_matrix *m, int in_out, size_t pad) {
    struct swiglu_matrix n = *m;
    n.in_out = in_out;
    n.ld_elems = (in_out ? m->rows : m->cols) + pad;
    float *w = malloc(n.ld_elems * (in_out ? m->cols : m->rows) * sizeof *w);
    for (size_t i = 0; i < n.ld_elems * (in_out ? m->cols : m->rows); i++) w[i] = NAN; /* between rows: never read */
    for (size_t r = 0; r < m->rows; r++)
        for (size_t c = 0; c < m->cols; c++)
            w[in_out ? c * n.ld_elems + r : r * n.ld_elems + c] = ((const float *)m->data)[r * m->cols + c];
    n.data = w;
    return n;
}

struct reading { const char *bytes; size_t n_calls; };

static enum swiglu_status read_from(void *ctx, uint64_t byte, void *dst, size_t n_bytes, struct swiglu_error *error) {
    struct reading *r = ctx;
    (void)error;
    memcpy(dst, r->bytes + byte, n_bytes);
    r->n_calls++;
    return SWIGLU_OK;
}

static enum swiglu_status read_fails(void *ctx, uint64_t byte, void *dst, size_t n_bytes, struct swiglu_error *error) {
    (void)ctx, (void)dst, (void)n_bytes, (void)error;
    return byte > 1000 ? SWIGLU_E_READ : SWIGLU_OK;
}

static void orientation_strides_and_callbacks_give_the_same_bits(void **state) {
    (void)state;
    uint64_t seed = 63;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 64);
    float *x = new_floats(SWIGLU_F32, ROWS * D_IN, 2, &seed), want[ROWS * D_OUT], y[ROWS * D_OUT];
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, ROWS, x, want);
    for (int in_out = 0; in_out < 2; in_out++)
        for (size_t pad = 0; pad < 12; pad += 5) {
            struct swiglu_desc d = b.desc;
            d.gate = restored(&b.desc.gate, in_out, pad);
            d.up = restored(&b.desc.up, !in_out, pad);
            d.down = restored(&b.desc.down, in_out, pad);
            forward(&d, SWIGLU_COMPUTE_F32, 0, ROWS, x, y);
            assert_memory_equal(y, want, sizeof y);
            free((void *)(uintptr_t)d.gate.data), free((void *)(uintptr_t)d.up.data);
            struct reading reading = {d.down.data, 0};
            d = b.desc;
            d.down.in_out = in_out, d.down.ld_elems = (in_out ? D_OUT : D_FF) + pad;
            d.down.data = NULL, d.down.read = read_from, d.down.ctx = &reading;
            forward(&d, SWIGLU_COMPUTE_F32, 0, ROWS, x, y);
            assert_memory_equal(y, want, sizeof y);
            assert_true(reading.n_calls > 0);
            free((void *)(uintptr_t)reading.bytes);
        }
    struct swiglu_desc d = b.desc;
    struct swiglu_block *block = (void *)1;
    d.up.data = NULL, d.up.read = read_fails;
    assert_int_equal(swiglu_block_create(&d, NULL, &block, NULL), SWIGLU_E_READ);
    assert_null(block);
    free(x);
    free_block(&b);
}

static void dtypes_of_rows_only_convert(void **state) {
    (void)state;
    static const int halves[] = {SWIGLU_F16, SWIGLU_BF16};
    uint64_t seed = 65;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "gelu", SWIGLU_F32, 0, 1, 66);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    for (size_t t = 0; t < 2; t++) {
        void *x = new_floats(halves[t], ROWS * D_IN, 1, &seed);
        float wide[ROWS * D_IN], want[ROWS * D_OUT];
        uint16_t y[ROWS * D_OUT];
        for (size_t i = 0; i < ROWS * D_IN; i++) wide[i] = get_float(x, halves[t], i);
        run_block(block, ROWS, (struct swiglu_crows){wide, SWIGLU_F32, 0}, (struct swiglu_rows){want, SWIGLU_F32, 0},
                  NULL);
        run_block(block, ROWS, (struct swiglu_crows){x, halves[t], 0}, (struct swiglu_rows){y, halves[t], 0}, NULL);
        for (size_t i = 0; i < ROWS * D_OUT; i++)
            assert_int_equal(y[i], t ? swiglu_bf16_store(want[i]) : swiglu_f16_store(want[i]));
        free(x);
    }
    swiglu_block_destroy(block);
    free_block(&b);
}

static void block_formats_equal_their_decoded_values(void **state) {
    (void)state;
    static const int quants[] = {SWIGLU_Q4_0, SWIGLU_Q4_1, SWIGLU_Q5_0, SWIGLU_Q5_1, SWIGLU_Q8_0, SWIGLU_Q2_K,
                                 SWIGLU_Q3_K, SWIGLU_Q4_K, SWIGLU_Q5_K, SWIGLU_Q6_K, SWIGLU_MXFP4};
    enum { WIDTH = 256, N = 8 };
    uint64_t seed = 67;
    float *x = new_floats(SWIGLU_F32, WIDTH, 1, &seed), decoded[N * WIDTH], y[2][N];
    for (size_t q = 0; q < COUNT(quants); q++) {
        struct swiglu_dtype_info info = {.struct_size = sizeof info};
        assert_int_equal(swiglu_dtype_query(quants[q], &info), SWIGLU_OK);
        unsigned char *raw = malloc(N * WIDTH / info.block_elems * info.block_bytes);
        /* small exponents in every f16 and e8m0 scale */
        for (size_t i = 0; i < N * WIDTH / info.block_elems * info.block_bytes; i++) raw[i] = next_u64(&seed) & 0x7B;
        assert_int_equal(swiglu_decode(quants[q], raw, N * WIDTH, decoded), SWIGLU_OK);
        struct block_data b = new_block(WIDTH, N, N, SWIGLU_UNGATED, "silu", SWIGLU_F32, 0, 0, 68);
        b.desc.up.data = decoded;
        forward(&b.desc, SWIGLU_COMPUTE_AUTO, 0, 1, x, y[0]);
        b.desc.up.data = raw, b.desc.up.dtype = quants[q];
        forward(&b.desc, SWIGLU_COMPUTE_AUTO, 0, 1, x, y[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        free(raw);
        free_block(&b);
    }
    free(x);
}

/* ---- rows alone and together ---- */

static void a_row_is_the_same_alone_and_in_any_batch(void **state) {
    (void)state;
    static const size_t batches[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 31, 64, 130, 513, 600};
    enum { MOST = 600, WIDE = 1040 };
    uint64_t seed = 71;
    for (const uint64_t *level = each_level(); *level; level++)
        for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
            struct block_data b = new_block(D_IN, WIDE, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_BF16, 0, 1, 72);
            struct swiglu_block *block = prepare(&b.desc, compute, *level);
            float *x = new_floats(SWIGLU_F32, MOST * D_IN, 1, &seed);
            float *alone = calloc(MOST * D_OUT, sizeof *alone), *y = calloc(MOST * D_OUT, sizeof *y);
            const size_t most = *level == SWIGLU_ISA_GENERIC ? 17 : MOST; /* generic calls fmaf */
            for (size_t r = 0; r < most; r++)
                run_block(block, 1, (struct swiglu_crows){x + r * D_IN, SWIGLU_F32, 0},
                          (struct swiglu_rows){alone + r * D_OUT, SWIGLU_F32, 0}, NULL);
            for (size_t i = 0; i < COUNT(batches) && batches[i] <= most; i++) {
                memset(y, 0xFF, MOST * D_OUT * sizeof *y);
                run_block(block, batches[i], (struct swiglu_crows){x, SWIGLU_F32, 0},
                          (struct swiglu_rows){y, SWIGLU_F32, 0}, NULL);
                assert_memory_equal(y, alone, batches[i] * D_OUT * sizeof *y);
            }
            free(x), free(alone), free(y);
            swiglu_block_destroy(block);
            free_block(&b);
        }
}

static void a_bad_value_poisons_its_own_row_only(void **state) {
    (void)state;
    enum { M = 9 };
    uint64_t seed = 73;
    struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 0, 74);
    float *x = new_floats(SWIGLU_F32, M * D_IN, 1, &seed), good[M * D_OUT], y[M * D_OUT];
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, M, x, good);
    x[4 * D_IN + 3] = NAN;
    forward(&b.desc, SWIGLU_COMPUTE_F32, 0, M, x, y);
    for (size_t i = 0; i < M * D_OUT; i++) {
        if (i / D_OUT == 4) assert_int_equal(swiglu_f32_bits(y[i]), 0x7FC00000);
        else assert_true(same_float(y[i], good[i]));
    }
    free(x);
    free_block(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_activation_layout_dtype_and_compute_is_within_the_bound),
        cmocka_unit_test(every_level_is_within_the_bound_at_depth),
        cmocka_unit_test(gate_and_up_may_differ_in_dtype),
        cmocka_unit_test(classes_agree_with_the_reference),
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(orientation_strides_and_callbacks_give_the_same_bits),
        cmocka_unit_test(dtypes_of_rows_only_convert),
        cmocka_unit_test(block_formats_equal_their_decoded_values),
        cmocka_unit_test(a_row_is_the_same_alone_and_in_any_batch),
        cmocka_unit_test(a_bad_value_poisons_its_own_row_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
