/* SPDX-License-Identifier: Apache-2.0 */
/* Width rules and counts against published sizes. */
#include "support.h"

static size_t width(int rule, size_t d, size_t multiple_of, double multiplier) {
    size_t d_ff = 0;
    assert_int_equal(swiglu_width(rule, d, multiple_of, multiplier, &d_ff), SWIGLU_OK);
    return d_ff;
}

/* C184, C185: models round up; nearest gives another number. */
static void widths_of_released_models(void **state) {
    (void)state;
    static const struct { size_t d, multiple_of; double multiplier; size_t d_ff; } models[] = {
        {4096, 256, 0, 11008},    {5120, 256, 0, 13824},   {6656, 256, 0, 17920},     {8192, 256, 0, 22016},
        {8192, 4096, 1.3, 28672}, {4096, 1024, 1.3, 14336}, {16384, 4096, 1.2, 53248}, {2048, 256, 1.5, 8192},
        {3072, 256, 1.0, 8192},   {768, 256, 0, 2048},     {1024, 256, 0, 2816},      {2048, 256, 0, 5632},
    };
    for (size_t i = 0; i < COUNT(models); i++)
        assert_int_equal(width(SWIGLU_WIDTH_UP, models[i].d, models[i].multiple_of, models[i].multiplier),
                         models[i].d_ff);
    assert_int_equal(width(SWIGLU_WIDTH_NEAREST, 5120, 256, 0), 13568);
    assert_int_equal(width(SWIGLU_WIDTH_NEAREST, 512, 256, 0), 1280);
    assert_int_equal(width(SWIGLU_WIDTH_UP, 512, 256, 0), 1536);
    assert_int_equal(width(SWIGLU_WIDTH_NONE, 1024, 0, 0), 2730);
    assert_int_equal(width(SWIGLU_WIDTH_UP, 0, 256, 0), 0);
}

static void width_refusals(void **state) {
    (void)state;
    size_t d_ff = 7;
    assert_int_equal(swiglu_width(3, 64, 256, 0, &d_ff), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, 0, 0, &d_ff), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, 256, NAN, &d_ff), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, 256, -1, &d_ff), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, 256, 1, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, SIZE_MAX, 256, 0, &d_ff), SWIGLU_E_SHAPE);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, 256, 1e300, &d_ff), SWIGLU_E_SHAPE);
    assert_int_equal(swiglu_width(SWIGLU_WIDTH_UP, 64, SIZE_MAX, 0, &d_ff), SWIGLU_E_SHAPE);
    assert_int_equal(d_ff, 7);
}

static struct swiglu_counts count(int layout, const char *act, int dtype, int biased) {
    static const float there = 0;
    struct swiglu_counts counts = {.struct_size = sizeof counts};
    struct swiglu_desc d;
    swiglu_desc_init(&d);
    d.d_in = d.d_out = 4096, d.d_ff = 11008, d.layout = layout;
    assert_int_equal(swiglu_act_init(&d.act, act), SWIGLU_OK);
    d.gate.dtype = d.up.dtype = d.down.dtype = dtype;
    if (biased) d.gate_bias.data = d.down_bias.data = &there;
    if (biased && !is_packed(layout)) d.up_bias.data = &there;
    assert_int_equal(swiglu_count(&d, &counts), SWIGLU_OK);
    return counts;
}

/* C190, C191: every gated block has three matrices. */
static void counts_of_a_layer(void **state) {
    (void)state;
    static const char *const gated[] = {"silu", "gelu", "relu", "sigmoid", "identity"};
    for (size_t i = 0; i < COUNT(gated); i++) {
        const struct swiglu_counts c = count(SWIGLU_SEPARATE, gated[i], SWIGLU_F16, 0);
        assert_int_equal(c.flops_per_token, 270532608);
        assert_int_equal(c.parameters, 135266304);
        assert_int_equal(c.weight_bytes, 2 * c.parameters);
        assert_int_equal(32 * c.parameters, 4328521728);
    }
    for (int layout = SWIGLU_GATE_UP; layout <= SWIGLU_INTERLEAVED; layout++) {
        const struct swiglu_counts c = count(layout, "silu", SWIGLU_F32, 1);
        assert_int_equal(c.flops_per_token, 270532608);
        assert_int_equal(c.parameters, 135266304 + 2 * 11008 + 4096);
        assert_int_equal(c.weight_bytes, 4 * c.parameters);
    }
    assert_int_equal(count(SWIGLU_UNGATED, "gelu", SWIGLU_BF16, 0).flops_per_token, 180355072);
    assert_int_equal(count(SWIGLU_SEPARATE, "silu", SWIGLU_Q4_K, 0).weight_bytes, 135266304 / 256 * 144);
}

static void count_refusals(void **state) {
    (void)state;
    struct swiglu_counts counts = {.struct_size = sizeof counts};
    struct swiglu_desc d;
    swiglu_desc_init(&d);
    d.d_in = d.d_out = d.d_ff = (size_t)1 << 40;
    assert_int_equal(swiglu_count(&d, &counts), SWIGLU_E_SHAPE);
    d.d_in = d.d_out = d.d_ff = 1, d.layout = 9;
    assert_int_equal(swiglu_count(&d, &counts), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_count(NULL, &counts), SWIGLU_E_ARGUMENT);
    d.layout = SWIGLU_SEPARATE;
    assert_int_equal(swiglu_count(&d, NULL), SWIGLU_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_of_released_models),
        cmocka_unit_test(width_refusals),
        cmocka_unit_test(counts_of_a_layer),
        cmocka_unit_test(count_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
