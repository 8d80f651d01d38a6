/* SPDX-License-Identifier: Apache-2.0 */
/* What forward touches: nothing outside x, y, the weights and the workspace; any alignment; strides beyond 2^31. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "forward.h"
#include "guard.h"

/* ---- guard pages ---- */

static struct swiglu_block *prepare_guarded(const struct block_data *b, int compute, uint64_t level, int side) {
    struct swiglu_desc d = b->desc;
    const size_t size = float_bytes(d.gate.dtype);
    struct guarded gate = guarded_copy(d.gate.data, d.d_ff * d.d_in * size, side);
    struct guarded up = guarded_copy(d.up.data, d.d_ff * d.d_in * size, side);
    struct guarded down = guarded_copy(d.down.data, d.d_out * d.d_ff * size, side);
    struct guarded bias = guarded_copy(d.gate_bias.data, d.d_ff * size, side);
    d.gate.data = gate.data, d.up.data = up.data, d.down.data = down.data, d.gate_bias.data = bias.data;
    struct swiglu_block *block = prepare(&d, compute, level);
    unguard(gate), unguard(up), unguard(down), unguard(bias); /* prepare kept nothing of them */
    return block;
}

/* C056: T = 3, I = 5, and T = 1 with every I up to 33. */
static void stays_within(size_t m, size_t d_in, size_t d_ff, size_t d_out, int dtype, int compute, uint64_t level) {
    uint64_t seed = 3;
    struct block_data b = new_block(d_in, d_ff, d_out, SWIGLU_SEPARATE, "silu", dtype, 0, 1, 4);
    const size_t size = float_bytes(dtype);
    void *x_plain = new_floats(dtype, m * d_in, 1, &seed), *want = malloc(m * d_out * size + 1);
    for (int side = 0; side < 2; side++) {
        struct swiglu_block *block = prepare_guarded(&b, compute, level, side);
        struct guarded x = guarded_copy(x_plain, m * d_in * size, side), y = guard(m * d_out * size, side), work;
        size_t bytes;
        assert_int_equal(swiglu_forward_bytes(block, m, 1, &bytes), SWIGLU_OK);
        work = guard(bytes, side);
        memset(work.data, 0xFF, bytes);
        guard_from_writes(x);
        assert_int_equal(swiglu_forward(block, m, (struct swiglu_crows){x.data, dtype, 0},
                                        (struct swiglu_rows){y.data, dtype, 0}, (struct swiglu_work){work.data, bytes},
                                        NULL), SWIGLU_OK);
        if (side == 0) memcpy(want, y.data, m * d_out * size);
        else assert_memory_equal(y.data, want, m * d_out * size);
        unguard(x), unguard(y), unguard(work);
        swiglu_block_destroy(block);
    }
    free(x_plain), free(want);
    free_block(&b);
}

static void nothing_outside_is_touched(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    for (const uint64_t *level = each_level(); *level; level++)
        for (size_t t = 0; t < COUNT(dtypes); t++)
            for (int compute = SWIGLU_COMPUTE_F32; compute <= SWIGLU_COMPUTE_BF16; compute++) {
                stays_within(3, 5, 5, 5, dtypes[t], compute, *level);
                stays_within(13, 67, 71, 73, dtypes[t], compute, *level);
                for (size_t i = 1; i <= 33; i += t ? 4 : 1) stays_within(1, i, i, i, dtypes[t], compute, *level);
            }
}

/* ---- alignment ---- */

static void any_alignment_will_do(void **state) {
    (void)state;
    enum { M = 7, D_IN = 19, D_FF = 23, D_OUT = 21, ROOM = 64 };
    uint64_t seed = 5;
    for (const uint64_t *level = each_level(); *level; level++)
        for (int t = 0; t < 2; t++) {
            const int dtype = t ? SWIGLU_BF16 : SWIGLU_F32;
            const size_t size = float_bytes(dtype);
            struct block_data b = new_block(D_IN, D_FF, D_OUT, SWIGLU_SEPARATE, "silu", dtype, 0, 1, 6);
            void *x = new_floats(dtype, M * D_IN, 1, &seed), *moved = malloc(M * D_IN * size + ROOM);
            char *gate = malloc(D_FF * D_IN * size + ROOM), *y = malloc(M * D_OUT * size + ROOM), *work;
            unsigned char want[M * D_OUT * 4];
            struct swiglu_desc d = b.desc;
            struct swiglu_block *block = prepare(&d, SWIGLU_COMPUTE_AUTO, *level);
            size_t bytes;
            run_block(block, M, (struct swiglu_crows){x, dtype, 0}, (struct swiglu_rows){want, dtype, 0}, NULL);
            swiglu_block_destroy(block);
            for (size_t at = 0; at < ROOM; at++) {
                d.gate.data = memcpy(gate + at, b.desc.gate.data, D_FF * D_IN * size);
                block = prepare(&d, SWIGLU_COMPUTE_AUTO, *level);
                assert_int_equal(swiglu_forward_bytes(block, M, 1, &bytes), SWIGLU_OK);
                work = malloc(bytes + ROOM);
                memcpy((char *)moved + at, x, M * D_IN * size);
                assert_int_equal(swiglu_forward(block, M, (struct swiglu_crows){(char *)moved + at, dtype, 0},
                                                (struct swiglu_rows){y + (at * 7) % ROOM, dtype, 0},
                                                (struct swiglu_work){work + (at * 5) % ROOM, bytes}, NULL), SWIGLU_OK);
                assert_memory_equal(y + (at * 7) % ROOM, want, M * D_OUT * size);
                free(work);
                swiglu_block_destroy(block);
            }
            free(x), free(moved), free(gate), free(y);
            free_block(&b);
        }
}

/* ---- aliases ---- */

static enum swiglu_status forward_status(const struct swiglu_block *block, size_t m, struct swiglu_crows x,
                                         struct swiglu_rows y) {
    struct swiglu_work work;
    assert_int_equal(swiglu_forward_bytes(block, m, 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    const enum swiglu_status status = swiglu_forward(block, m, x, y, work, NULL);
    free(work.data);
    return status;
}

static void y_may_be_x_exactly_and_not_otherwise(void **state) {
    (void)state;
    enum { W = 24, M = 520 }; /* more than one block of rows */
    uint64_t seed = 7;
    struct block_data b = new_block(W, 40, W, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 8);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    float *x = new_floats(SWIGLU_F32, 2 * M * W, 1, &seed), *want = malloc(M * W * sizeof *want);
    const struct swiglu_crows rows = {x, SWIGLU_F32, W};
    run_block(block, M, rows, (struct swiglu_rows){want, SWIGLU_F32, 0}, NULL);
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x + 1, SWIGLU_F32, W}), SWIGLU_E_ALIAS);
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x + M * W - 1, SWIGLU_F32, W}),
                     SWIGLU_E_ALIAS);
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x, SWIGLU_F32, W + 1}), SWIGLU_E_ALIAS);
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x, SWIGLU_BF16, W}), SWIGLU_E_ALIAS);
    struct swiglu_work work = {x, 0};
    assert_int_equal(swiglu_forward_bytes(block, 1, 1, &work.bytes), SWIGLU_OK);
    assert_int_equal(swiglu_forward(block, 1, rows, (struct swiglu_rows){want, SWIGLU_F32, 0}, work, NULL),
                     SWIGLU_E_ALIAS); /* the workspace is x */
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x + M * W, SWIGLU_F32, W}), SWIGLU_OK);
    assert_memory_equal(x + M * W, want, M * W * sizeof *want);
    assert_int_equal(forward_status(block, M, rows, (struct swiglu_rows){x, SWIGLU_F32, W}), SWIGLU_OK);
    assert_memory_equal(x, want, M * W * sizeof *want);
    free(x), free(want);
    swiglu_block_destroy(block);
    free_block(&b);
}

/* ---- strides ---- */

static void row_strides_leave_the_rest_alone(void **state) {
    (void)state;
    enum { M = 9, D_IN = 11, D_OUT = 13, LDX = 17, LDY = 31 };
    uint64_t seed = 9;
    struct block_data b = new_block(D_IN, 14, D_OUT, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 10);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    float *x = new_floats(SWIGLU_F32, M * D_IN, 1, &seed), wide[M * LDX], y[M * LDY], want[M * D_OUT];
    for (size_t i = 0; i < M * LDX; i++) wide[i] = NAN;
    for (size_t i = 0; i < M * LDY; i++) y[i] = -7;
    for (size_t r = 0; r < M; r++) memcpy(wide + r * LDX, x + r * D_IN, D_IN * sizeof *x);
    run_block(block, M, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){want, SWIGLU_F32, 0}, NULL);
    run_block(block, M, (struct swiglu_crows){wide, SWIGLU_F32, LDX}, (struct swiglu_rows){y, SWIGLU_F32, LDY}, NULL);
    for (size_t i = 0; i < M * LDY; i++) {
        if (i % LDY < D_OUT) assert_true(same_float(y[i], want[i / LDY * D_OUT + i % LDY]));
        else assert_true(y[i] == -7);
    }
    free(x);
    swiglu_block_destroy(block);
    free_block(&b);
}

/* Rows 2^30 + 8 floats apart: 8 GiB of addresses, a few pages of memory. */
static void offsets_beyond_31_bits(void **state) {
    (void)state;
    enum { M = 3, W = 40 };
    const size_t ld = ((size_t)1 << 30) + 8, bytes = (2 * ld + W) * sizeof(float);
    float *map[2];
    uint64_t seed = 11;
    for (int i = 0; i < 2; i++) {
        map[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map[i] == MAP_FAILED) {
            print_message("8 GiB of address space cannot be had\n");
            skip();
        }
    }
    struct block_data b = new_block(W, 24, W, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 12);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    float *x = new_floats(SWIGLU_F32, M * W, 1, &seed), want[M * W];
    for (size_t r = 0; r < M; r++) memcpy(map[0] + r * ld, x + r * W, W * sizeof *x);
    run_block(block, M, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){want, SWIGLU_F32, 0}, NULL);
    run_block(block, M, (struct swiglu_crows){map[0], SWIGLU_F32, ld}, (struct swiglu_rows){map[1], SWIGLU_F32, ld},
              NULL);
    for (size_t r = 0; r < M; r++) assert_memory_equal(map[1] + r * ld, want + r * W, W * sizeof *want);
    /* a weight whose stored rows are as far apart */
    struct swiglu_desc d = b.desc;
    memset(map[0], 0, W * sizeof *x);
    d.gate.in_out = 0, d.gate.rows = d.up.rows = d.d_ff = d.down.cols = 3, d.down.ld_elems = 24;
    d.gate.data = map[0], d.gate.ld_elems = ld;
    for (size_t r = 0; r < 3; r++) memcpy(map[0] + r * ld, (const float *)b.desc.gate.data + r * W, W * sizeof *x);
    forward(&d, SWIGLU_COMPUTE_F32, 0, 1, x, map[1]);
    d.gate.data = b.desc.gate.data, d.gate.ld_elems = W;
    forward(&d, SWIGLU_COMPUTE_F32, 0, 1, x, want);
    assert_memory_equal(map[1], want, W * sizeof *want);
    munmap(map[0], bytes), munmap(map[1], bytes);
    free(x);
    swiglu_block_destroy(block);
    free_block(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_outside_is_touched),
        cmocka_unit_test(any_alignment_will_do),
        cmocka_unit_test(y_may_be_x_exactly_and_not_otherwise),
        cmocka_unit_test(row_strides_leave_the_rest_alone),
        cmocka_unit_test(offsets_beyond_31_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
