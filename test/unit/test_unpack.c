/* SPDX-License-Identifier: Apache-2.0 */
/* Weights come out of a block as they went in, for every layout, order and type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <swiglu/swiglu.h>

enum { D_IN = 37, D_FF = 50, D_OUT = 41, MOST = 2 * D_FF * D_IN };

static uint16_t random_half(uint64_t *state, int dtype) { /* normal numbers, zeros, infinities */
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint16_t h = (uint16_t)(*state >> 40), exponent = dtype == SWIGLU_F16 ? 0x7C00 : 0x7F80;
    return (h & exponent) && (h & exponent) != exponent ? h : h & 0x8000;
}

static size_t fill(void *data, int dtype, size_t n) {
    uint64_t state = n;
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = random_half(&state, dtype == SWIGLU_F16 ? SWIGLU_F16 : SWIGLU_BF16);
        const uint32_t w = (uint32_t)h << 16 | (random_half(&state, SWIGLU_BF16) & 0xFFFF);
        if (dtype == SWIGLU_F32)
            memcpy((char *)data + 4 * i, &w, 4);
        else
            memcpy((char *)data + 2 * i, &h, 2);
    }
    return dtype == SWIGLU_F32 ? 4 : 2;
}

/* Where the element of a logical matrix lies in what the block was made from. */
static size_t source_index(int layout, int in_out, int part, size_t row, size_t col) {
    if (part == SWIGLU_PART_DOWN) return in_out ? col * D_OUT + row : row * D_FF + col;
    size_t rows = D_FF;
    if (layout == SWIGLU_GATE_UP || layout == SWIGLU_UP_GATE) {
        row += (part == SWIGLU_PART_UP) == (layout == SWIGLU_GATE_UP) ? D_FF : 0;
        rows = 2 * D_FF;
    } else if (layout == SWIGLU_INTERLEAVED) {
        row = 2 * row + (part == SWIGLU_PART_UP);
        rows = 2 * D_FF;
    }
    return in_out ? col * rows + row : row * D_IN + col;
}

static void check(int layout, int in_out, int dtype, uint64_t isa) {
    static char gate[4 * MOST], up[4 * MOST], down[4 * D_OUT * D_FF], out[4 * (D_OUT + D_FF) * (D_FF + 5)];
    const size_t bytes = fill(gate, dtype, MOST);
    fill(up, dtype, MOST - 1), fill(down, dtype, D_OUT * D_FF);
    struct swiglu_desc desc;
    struct swiglu_options options = {.struct_size = sizeof options, .isa_mask = isa};
    struct swiglu_block *block;
    swiglu_desc_init(&desc);
    desc.d_in = D_IN, desc.d_ff = D_FF, desc.d_out = D_OUT, desc.layout = layout;
    const int two = layout == SWIGLU_GATE_UP || layout == SWIGLU_UP_GATE || layout == SWIGLU_INTERLEAVED;
    if (layout != SWIGLU_UNGATED)
        desc.gate = (struct swiglu_matrix){
            .data = gate, .dtype = dtype, .in_out = in_out, .rows = two ? 2 * D_FF : D_FF, .cols = D_IN};
    if (!two) desc.up = (struct swiglu_matrix){.data = up, .dtype = dtype, .in_out = in_out, .rows = D_FF, .cols = D_IN};
    desc.down = (struct swiglu_matrix){.data = down, .dtype = dtype, .in_out = in_out, .rows = D_OUT, .cols = D_FF};
    assert_int_equal(swiglu_block_create(&desc, &options, &block, NULL), SWIGLU_OK);
    for (int part = layout == SWIGLU_UNGATED ? SWIGLU_PART_UP : SWIGLU_PART_GATE; part <= SWIGLU_PART_DOWN; part++) {
        const int is_down = part == SWIGLU_PART_DOWN;
        const size_t rows = is_down ? D_OUT : D_FF, cols = is_down ? D_FF : D_IN, ld = cols + 3;
        const char *const source = is_down ? down : part == SWIGLU_PART_UP && !two ? up : gate;
        memset(out, 0x5A, sizeof out);
        assert_int_equal(swiglu_block_unpack(block, part, dtype, out, ld), SWIGLU_OK);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < cols; c++)
                assert_memory_equal(out + (r * ld + c) * bytes, source + source_index(layout, in_out, part, r, c) * bytes,
                                    bytes);
            for (size_t i = cols * bytes; i < ld * bytes; i++) assert_int_equal(out[r * ld * bytes + i], 0x5A);
        }
    }
    assert_int_equal(swiglu_block_unpack(block, 3, dtype, out, 0), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_UP, SWIGLU_Q8_0, out, 0), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_UP, dtype, NULL, 0), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_UP, dtype, out, D_IN - 1), SWIGLU_E_SHAPE);
    if (layout == SWIGLU_UNGATED)
        assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_GATE, dtype, out, 0), SWIGLU_E_ARGUMENT);
    swiglu_block_destroy(block);
}

static void test_round_trip(void **state) {
    (void)state;
    static const int dtypes[] = {SWIGLU_F32, SWIGLU_F16, SWIGLU_BF16};
    struct swiglu_cpu_info cpu = {.struct_size = sizeof cpu};
    assert_int_equal(swiglu_cpu_query(&cpu), SWIGLU_OK);
    for (uint64_t isa = 1; isa <= cpu.can; isa *= 2)
        for (int layout = SWIGLU_SEPARATE; layout <= SWIGLU_UNGATED; layout++)
            for (int i = 0; i < 6; i++)
                if (isa & cpu.can) check(layout, i % 2, dtypes[i / 2], isa);
}

static void test_conversion(void **state) {
    (void)state;
    const float weight[3] = {1.0f + 0x1p-9f, -0x1p-130f, 3.0f};
    uint16_t half[3];
    struct swiglu_desc desc;
    struct swiglu_block *block;
    swiglu_desc_init(&desc);
    desc.d_in = 3, desc.d_ff = 1, desc.d_out = 3, desc.layout = SWIGLU_UNGATED;
    desc.up = (struct swiglu_matrix){.data = weight, .rows = 1, .cols = 3};
    desc.down = (struct swiglu_matrix){.data = weight, .rows = 3, .cols = 1};
    assert_int_equal(swiglu_block_create(&desc, NULL, &block, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_UP, SWIGLU_BF16, half, 0), SWIGLU_OK);
    assert_int_equal(half[0], 0x3F80); /* to nearest even */
    assert_int_equal(half[1], 0x8008); /* a store keeps subnormals */
    assert_int_equal(half[2], 0x4040);
    assert_int_equal(swiglu_block_unpack(block, SWIGLU_PART_DOWN, SWIGLU_F16, half, 0), SWIGLU_OK);
    assert_int_equal(half[0], 0x3C02);
    assert_int_equal(half[1], 0x8000);
    assert_int_equal(half[2], 0x4200);
    assert_int_equal(swiglu_block_unpack(NULL, SWIGLU_PART_UP, SWIGLU_F32, half, 0), SWIGLU_E_ARGUMENT);
    swiglu_block_destroy(block);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_conversion)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
