/* SPDX-License-Identifier: Apache-2.0 */
/* Activation names and parameters: what each means, and what is refused. */
#include "support.h"

#include "base/act.h"

static float eval(const char *name, float x) {
    struct swiglu_act act;
    float y;
    assert_int_equal(swiglu_act_init(&act, name), SWIGLU_OK);
    assert_int_equal(swiglu_act_eval(&act, 1, &x, &y), SWIGLU_OK);
    return y;
}

/* h of one hidden unit, through a block of one input, one output and weights gate and up. */
static double one_unit(const struct swiglu_act *act, float gate, float up) {
    const float one = 1;
    float y;
    unsigned char work[1 << 16];
    struct swiglu_desc d;
    struct swiglu_block *block;
    swiglu_desc_init(&d);
    d.d_in = d.d_ff = d.d_out = 1;
    d.act = *act;
    d.gate = (struct swiglu_matrix){.data = &gate, .rows = 1, .cols = 1};
    d.up = (struct swiglu_matrix){.data = &up, .rows = 1, .cols = 1};
    d.down = (struct swiglu_matrix){.data = &one, .rows = 1, .cols = 1};
    assert_int_equal(swiglu_block_create(&d, NULL, &block, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_forward(block, 1, (struct swiglu_crows){&one, SWIGLU_F32, 0},
                                    (struct swiglu_rows){&y, SWIGLU_F32, 0}, (struct swiglu_work){work, sizeof work},
                                    NULL), SWIGLU_OK);
    swiglu_block_destroy(block);
    return y;
}

static void names_mean_what_they_say(void **state) {
    (void)state;
    static const struct { const char *name; int kind; float alpha; } known[] = {
        {"silu", SWIGLU_ACT_SILU, 1}, {"swish", SWIGLU_ACT_SILU, 1}, {"gelu", SWIGLU_ACT_GELU_ERF, 1},
        {"gelu_tanh", SWIGLU_ACT_GELU_TANH, 1}, {"gelu_new", SWIGLU_ACT_GELU_TANH, 1},
        {"gelu_pytorch_tanh", SWIGLU_ACT_GELU_TANH, 1}, {"quick_gelu", SWIGLU_ACT_SILU, 1.702f},
        {"relu", SWIGLU_ACT_RELU, 1}, {"relu2", SWIGLU_ACT_RELU2, 1}, {"sigmoid", SWIGLU_ACT_SIGMOID, 1},
        {"glu", SWIGLU_ACT_SIGMOID, 1}, {"identity", SWIGLU_ACT_IDENTITY, 1}, {"xielu", SWIGLU_ACT_XIELU, 1},
        {"situ", SWIGLU_ACT_SITU, 1}, {"gpt_oss", SWIGLU_ACT_SILU, 1.702f}, {"minimax_m3", SWIGLU_ACT_SILU, 1.702f},
        {"deepseek_v4", SWIGLU_ACT_SILU, 1}, {"step", SWIGLU_ACT_SILU, 1},
    };
    struct swiglu_act act;
    for (size_t i = 0; i < COUNT(known); i++) {
        assert_int_equal(swiglu_act_init(&act, known[i].name), SWIGLU_OK);
        assert_int_equal(act.kind, known[i].kind);
        assert_true(act.alpha == known[i].alpha);
        assert_int_equal(act.struct_size, sizeof act);
    }
    assert_int_equal(swiglu_act_init(&act, "step"), SWIGLU_OK);
    assert_int_equal(act.clamp_after, 1);
}

static void every_listed_name_works(void **state) {
    (void)state;
    const char *name, *about;
    size_t n = 0;
    for (; (name = swiglu_act_name(n, &about)); n++) {
        struct swiglu_act act;
        assert_int_equal(swiglu_act_init(&act, name), SWIGLU_OK);
        assert_int_equal(swiglu_act_check(&act, 1, NULL), SWIGLU_OK);
        assert_true(strlen(about) > 3);
        assert_string_equal(swiglu_act_name(n, NULL), name);
    }
    assert_true(n >= 18);
    assert_null(swiglu_act_name(SIZE_MAX, NULL));
}

static void unknown_names_are_refused(void **state) { /* C017, C157 */
    (void)state;
    static const char *const wrong[] = {"", "SiLU", "silu ", "gelu_python", "swiglu", "mish", "relu3", "si"};
    struct swiglu_act act, before;
    memset(&act, 0x5A, sizeof act);
    before = act;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(swiglu_act_init(&act, wrong[i]), SWIGLU_E_ARGUMENT);
        assert_memory_equal(&act, &before, sizeof act);
    }
    assert_int_equal(swiglu_act_init(&act, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_act_init(NULL, "silu"), SWIGLU_E_ARGUMENT);
}

static void gelu_forms_are_kept_apart(void **state) { /* C016, C017 */
    (void)state;
    static const char *const tanh_names[] = {"gelu_tanh", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    assert_true(fabs(eval("gelu", -3) - -0.0040497) < 1.2e-7);
    assert_true(fabs(eval("gelu", 1) - 0.8413447) < 1.2e-7);
    for (size_t i = 0; i < COUNT(tanh_names); i++) {
        assert_true(fabs(eval(tanh_names[i], -3) - -0.0036374) < 1.2e-7);
        assert_true(fabs(eval(tanh_names[i], 1) - 0.8411920) < 1.2e-7);
    }
    assert_true(fabs(eval("quick_gelu", 1) - 1 / (1 + exp(-1.702))) < 2e-7);
    assert_true(fabs(eval("gelu", -2.699f) - eval("gelu_tanh", -2.699f)) > 4.7e-4);
}

static void up_offset_is_the_callers(void **state) { /* C005, C019 */
    (void)state;
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, "gpt_oss"), SWIGLU_OK);
    assert_true(fabs(one_unit(&act, 1, 2) - 2.53739) < 6e-6);
    act.up_offset = 0;
    assert_true(fabs(one_unit(&act, 1, 2) - 1.69159) < 6e-6);
    assert_int_equal(swiglu_act_init(&act, "silu"), SWIGLU_OK);
    assert_true(fabs(one_unit(&act, 1, 2) - 1.46212) < 6e-6);
}

static void a_missing_limit_is_no_limit(void **state) { /* C020 */
    (void)state;
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, "silu"), SWIGLU_OK);
    assert_true(fabs(one_unit(&act, 10, 10) - 99.99546) < 6e-6);
    act.gate_hi = 0;
    assert_int_equal(swiglu_act_check(&act, 1, NULL), SWIGLU_E_ARGUMENT);
    act.gate_hi = INFINITY, act.up_hi = 0;
    assert_int_equal(swiglu_act_check(&act, 1, NULL), SWIGLU_E_ARGUMENT);
}

static void clamps_apply_where_they_should(void **state) {
    (void)state;
    struct swiglu_act act;
    assert_int_equal(swiglu_act_init(&act, "deepseek_v4"), SWIGLU_OK);
    assert_true(fabs(one_unit(&act, 100, -50) / (10 / (1 + exp(-10)) * -10) - 1) < 1e-6);
    assert_int_equal(swiglu_act_init(&act, "step"), SWIGLU_OK);
    assert_true(one_unit(&act, 100, 50) == 49); /* clamped after silu: exactly 7 times 7 */
    assert_true(fabs(one_unit(&act, 7, 1) / (7 / (1 + exp(-7))) - 1) < 1e-6);
    assert_int_equal(swiglu_act_init(&act, "gpt_oss"), SWIGLU_OK);
    assert_true(isnan(one_unit(&act, NAN, 1))); /* a clamp lets NaN through */
    assert_true(isnan(one_unit(&act, 1, NAN)));
    assert_true(fabs(one_unit(&act, INFINITY, INFINITY) / (7 / (1 + exp(-1.702 * 7)) * 8) - 1) < 1e-6);
}

static void bad_parameters_are_refused(void **state) {
    (void)state;
    struct swiglu_act base, act;
    struct swiglu_error error = {.struct_size = sizeof error};
    assert_int_equal(swiglu_act_init(&base, "silu"), SWIGLU_OK);
#define REFUSED(change)                                                        \
    do {                                                                       \
        act = base;                                                            \
        change;                                                                \
        error.text[0] = 0;                                                     \
        assert_int_equal(swiglu_act_check(&act, 1, &error), SWIGLU_E_ARGUMENT); \
        assert_non_null(strstr(error.text, "act."));                           \
    } while (0)
    REFUSED(act.gate_lo = NAN);
    REFUSED(act.gate_hi = NAN);
    REFUSED(act.up_lo = NAN);
    REFUSED(act.up_hi = NAN);
    REFUSED(act.gate_lo = 2; act.gate_hi = 1);
    REFUSED(act.up_lo = 2; act.up_hi = 1);
    REFUSED(act.kind = 9);
    REFUSED(act.kind = -1);
    REFUSED(act.clamp_after = 2);
    REFUSED(act.alpha = 0);
    REFUSED(act.alpha = NAN);
    REFUSED(act.alpha = 0x1.8p20f);
    REFUSED(act.alpha = 0x1p-21f);
    REFUSED(act.up_offset = INFINITY);
    REFUSED(act.param[5] = NAN);
    REFUSED(act.kind = SWIGLU_ACT_SITU);
    REFUSED(act.kind = SWIGLU_ACT_XIELU; act.param[3] = 1);
#undef REFUSED
    act = base, act.up_offset = 1;
    assert_int_equal(swiglu_act_check(&act, 0, NULL), SWIGLU_E_ARGUMENT); /* ungated has no up side */
    act = base, act.alpha = -0x1p20f, act.gate_lo = 3, act.gate_hi = 3;
    assert_int_equal(swiglu_act_check(&act, 0, NULL), SWIGLU_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_mean_what_they_say),
        cmocka_unit_test(every_listed_name_works),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(gelu_forms_are_kept_apart),
        cmocka_unit_test(up_offset_is_the_callers),
        cmocka_unit_test(a_missing_limit_is_no_limit),
        cmocka_unit_test(clamps_apply_where_they_should),
        cmocka_unit_test(bad_parameters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
