/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions and calls that must be refused, with the right code and before anything is written. */
#include "forward.h"

static struct block_data good;

static int make(void **state) {
    (void)state;
    good = new_block(8, 12, 6, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 1);
    return 0;
}

static int drop(void **state) {
    (void)state;
    free_block(&good);
    return 0;
}

/* Refused with the code, a text that names the culprit, and no block. */
static void refused(const struct swiglu_desc *d, const struct swiglu_options *options, enum swiglu_status code,
                    const char *names) {
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_block *block = (void *)1;
    assert_int_equal(swiglu_block_create(d, options, &block, &error), code);
    assert_null(block);
    assert_int_equal(error.status, code);
    if (!strstr(error.text, names)) fail_msg("\"%s\" does not name %s", error.text, names);
    assert_int_equal(swiglu_block_create(d, options, &block, NULL), code);
}

#define REFUSED(code, names, change)          \
    do {                                      \
        struct swiglu_desc d = good.desc;     \
        change;                               \
        refused(&d, NULL, SWIGLU_E_##code, names); \
    } while (0)

static void widths_must_fit_together(void **state) {
    (void)state;
    REFUSED(SHAPE, "gate", d.gate.rows = 11);
    REFUSED(SHAPE, "up", d.up.cols = 9);
    REFUSED(SHAPE, "down", d.down.rows = 5);
    REFUSED(SHAPE, "down", d.d_ff = 13; d.gate.rows = d.up.rows = 13);
    REFUSED(SHAPE, "gate", d.gate.ld_elems = 7);
    REFUSED(SHAPE, "gate", d.gate.in_out = 1); /* the stride fits the other orientation */
    REFUSED(SHAPE, "gate", d.layout = SWIGLU_GATE_UP);
    REFUSED(SHAPE, "", d.d_ff = SIZE_MAX);
    REFUSED(SHAPE, "", d.d_in = d.d_ff = (size_t)1 << 32);
    REFUSED(SHAPE, "gate", d.gate.ld_elems = SIZE_MAX / 8);
    REFUSED(SHAPE, "up", d.up.dtype = SWIGLU_Q8_0); /* rows of 8 are no whole blocks of 32 */
}

static void enums_and_pointers_are_checked(void **state) {
    (void)state;
    REFUSED(ARGUMENT, "layout", d.layout = 5);
    REFUSED(ARGUMENT, "layout", d.layout = -1);
    REFUSED(ARGUMENT, "in_out", d.up.in_out = 2);
    REFUSED(ARGUMENT, "act.kind", d.act.kind = 99);
    REFUSED(ARGUMENT, "act.gate", d.act.gate_hi = NAN);
    REFUSED(ARGUMENT, "act", d.act.struct_size = 4);
    REFUSED(ARGUMENT, "gate", d.gate.data = NULL);
    REFUSED(ARGUMENT, "gate", d.layout = SWIGLU_UNGATED); /* a gate that would be ignored */
    REFUSED(ARGUMENT, "up", d.layout = SWIGLU_GATE_UP; d.gate.rows = 24);
    REFUSED(UNSUPPORTED, "up", d.up.dtype = 16); /* IQ2_XXS */
    REFUSED(UNSUPPORTED, "up", d.up.dtype = 0x7FFFFFFF);
    REFUSED(UNSUPPORTED, "bias", d.down_bias.dtype = SWIGLU_Q8_0);
    REFUSED(ARGUMENT, "desc", d.struct_size = 1);
    refused(NULL, NULL, SWIGLU_E_ARGUMENT, "desc");
    assert_int_equal(swiglu_block_create(&good.desc, NULL, NULL, NULL), SWIGLU_E_ARGUMENT);
}

static int stop_at_once(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *seen = ctx;
    assert_true(done <= total);
    *seen = total;
    return 1;
}

static int watch(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *seen = ctx;
    assert_true(done >= seen[0] && done <= total);
    seen[0] = done, seen[1] = total;
    return 0;
}

static void options_are_checked(void **state) {
    (void)state;
    uint64_t seen[2] = {0, 0};
    struct swiglu_options options = {.struct_size = sizeof options, .compute = 4};
    refused(&good.desc, &options, SWIGLU_E_ARGUMENT, "compute");
    options.compute = SWIGLU_COMPUTE_INT8;
    refused(&good.desc, &options, SWIGLU_E_UNSUPPORTED, "gate: int8 compute takes block formats only, not f32");
    options = (struct swiglu_options){.struct_size = sizeof options, .isa_mask = (uint64_t)1 << 40};
    refused(&good.desc, &options, SWIGLU_E_HARDWARE, "mask");
    options = (struct swiglu_options){.struct_size = 2};
    refused(&good.desc, &options, SWIGLU_E_ARGUMENT, "options");
    options = (struct swiglu_options){.struct_size = sizeof options, .progress = stop_at_once, .progress_ctx = seen};
    struct swiglu_block *block = (void *)1;
    assert_int_equal(swiglu_block_create(&good.desc, &options, &block, NULL), SWIGLU_E_CANCELLED);
    assert_null(block);
    assert_int_equal(seen[0], (8 * 12 * 2 + 12 * 6) * 4);
    options.progress = watch;
    seen[0] = 0;
    assert_int_equal(swiglu_block_create(&good.desc, &options, &block, NULL), SWIGLU_OK);
    assert_int_equal(seen[0], seen[1]); /* it reaches the total */
    swiglu_block_destroy(block);
    swiglu_block_destroy(NULL);
}

/* A caller built against an older header passes shorter structs. */
static void shorter_structs_take_defaults(void **state) {
    (void)state;
    struct swiglu_desc d = good.desc;
    struct swiglu_block *block;
    d.struct_size = offsetof(struct swiglu_desc, gate_bias); /* no biases then */
    assert_int_equal(swiglu_block_create(&d, NULL, &block, NULL), SWIGLU_OK);
    float x[8] = {0}, y[6];
    run_block(block, 1, (struct swiglu_crows){x, SWIGLU_F32, 0}, (struct swiglu_rows){y, SWIGLU_F32, 0}, NULL);
    for (int i = 0; i < 6; i++) assert_true(y[i] == 0);
    struct { struct swiglu_block_info info; uint64_t newer; } larger = {.info.struct_size = sizeof larger, .newer = 5};
    assert_int_equal(swiglu_block_query(block, &larger.info), SWIGLU_OK);
    assert_int_equal(larger.info.d_ff, 12);
    assert_int_equal(larger.newer, 0);
    assert_int_equal(swiglu_block_query(NULL, &larger.info), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_block_query(block, NULL), SWIGLU_E_ARGUMENT);
    swiglu_block_destroy(block);
}

/* ---- forward ---- */

static void forward_checks_before_it_writes(void **state) {
    (void)state;
    float x[3 * 8], y[3 * 6], before[3 * 6];
    struct swiglu_block *block = prepare(&good.desc, SWIGLU_COMPUTE_F32, 0);
    struct swiglu_work work;
    assert_int_equal(swiglu_forward_bytes(block, 3, 1, &work.bytes), SWIGLU_OK);
    work.data = malloc(work.bytes);
    for (size_t i = 0; i < COUNT(x); i++) x[i] = (float)i;
    for (size_t i = 0; i < COUNT(y); i++) y[i] = before[i] = -7;
    const struct swiglu_crows rx = {x, SWIGLU_F32, 0};
    const struct swiglu_rows ry = {y, SWIGLU_F32, 0};
    const struct {
        size_t m;
        struct swiglu_crows x;
        struct swiglu_rows y;
        struct swiglu_work work;
        enum swiglu_status status;
        const char *text;
    } wrong[] = {
        {3, {NULL, SWIGLU_F32, 0}, ry, work, SWIGLU_E_ARGUMENT, "x: data is NULL, but there are 3 rows of 8 values"},
        {3, rx, {NULL, SWIGLU_F32, 0}, work, SWIGLU_E_ARGUMENT, "y: data is NULL, but there are 3 rows of 6 values"},
        {3, {x, SWIGLU_Q8_0, 0}, ry, work, SWIGLU_E_ARGUMENT, "x: dtype 8 is not f32, f16 or bf16"},
        {3, rx, {y, 99, 0}, work, SWIGLU_E_ARGUMENT, "y: dtype 99 is not f32, f16 or bf16"},
        {3, {x, SWIGLU_F32, 7}, ry, work, SWIGLU_E_SHAPE, "x: a stride of 7 values, but rows of 8"},
        {3, rx, {y, SWIGLU_F32, 5}, work, SWIGLU_E_SHAPE, "y: a stride of 5 values, but rows of 6"},
        {3, {x, SWIGLU_F32, SIZE_MAX / 4}, ry, work, SWIGLU_E_SHAPE, "x: 3 rows with a stride of "},
        {SIZE_MAX, rx, ry, work, SWIGLU_E_SHAPE, "exceed the address space"},
        {3, rx, ry, {NULL, work.bytes}, SWIGLU_E_WORKSPACE, " bytes at NULL, but 3 rows on 1 threads need "},
        {3, rx, ry, {work.data, work.bytes - 1}, SWIGLU_E_WORKSPACE, "work: "},
        {3, rx, ry, {work.data, 0}, SWIGLU_E_WORKSPACE, "work: 0 bytes, but 3 rows on 1 threads need "},
        {3, {y, SWIGLU_F32, 0}, {(char *)y + 4, SWIGLU_F32, 0}, work, SWIGLU_E_ALIAS, "y: overlaps x"},
        {3, {work.data, SWIGLU_F32, 0}, ry, work, SWIGLU_E_ALIAS, "work: overlaps x"},
        {3, rx, {work.data, SWIGLU_F32, 0}, work, SWIGLU_E_ALIAS, "work: overlaps y"},
    };
    struct swiglu_error error = {.struct_size = sizeof error};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(swiglu_forward(block, wrong[i].m, wrong[i].x, wrong[i].y, wrong[i].work, NULL), wrong[i].status);
        assert_int_equal(swiglu_forward_check(block, wrong[i].m, wrong[i].x, wrong[i].y, wrong[i].work, NULL, &error),
                         wrong[i].status);
        assert_int_equal(error.status, wrong[i].status);
        assert_non_null(strstr(error.text, wrong[i].text));
        assert_int_equal(swiglu_forward_check(block, wrong[i].m, wrong[i].x, wrong[i].y, wrong[i].work, NULL, NULL),
                         wrong[i].status);
    }
    assert_int_equal(swiglu_forward(NULL, 3, rx, ry, work, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_forward_check(NULL, 3, rx, ry, work, NULL, &error), SWIGLU_E_ARGUMENT);
    assert_string_equal(error.text, "block: NULL");
    assert_int_equal(swiglu_forward_check(block, 3, rx, ry, work, NULL, NULL), SWIGLU_OK); /* and computes nothing */
    assert_memory_equal(y, before, sizeof y);
    assert_int_equal(swiglu_forward(block, 3, rx, ry, work, NULL), SWIGLU_OK);
    assert_memory_not_equal(y, before, sizeof y);
    free(work.data);
    swiglu_block_destroy(block);
}

static void no_rows_is_success_and_touches_nothing(void **state) {
    (void)state;
    struct swiglu_block *block = prepare(&good.desc, SWIGLU_COMPUTE_F32, 0);
    assert_int_equal(swiglu_forward(block, 0, (struct swiglu_crows){NULL, SWIGLU_F32, 0},
                                    (struct swiglu_rows){NULL, SWIGLU_F32, 0}, (struct swiglu_work){NULL, 0}, NULL),
                     SWIGLU_OK);
    const struct swiglu_reference out = {.struct_size = sizeof out, .y = (double *)8};
    assert_int_equal(swiglu_reference_run(&good.desc, 0, (struct swiglu_crows){NULL, SWIGLU_F32, 0}, &out, NULL),
                     SWIGLU_OK);
    swiglu_block_destroy(block);
}

/* Rows without values need no memory, so that their number may be anything; nothing counts to it. */
static void rows_of_nothing_take_no_time(void **state) {
    (void)state;
    const size_t m = (size_t)1 << 60;
    struct block_data b = new_block(0, 3, 0, SWIGLU_SEPARATE, "silu", SWIGLU_F32, 0, 1, 5);
    struct swiglu_block *block = prepare(&b.desc, SWIGLU_COMPUTE_F32, 0);
    const struct swiglu_crows x = {NULL, SWIGLU_F32, 0};
    const struct swiglu_rows y = {NULL, SWIGLU_F32, 0};
    const struct swiglu_work none = {NULL, 0};
    const struct swiglu_reference out = {.struct_size = sizeof out, .y = (double *)8};
    assert_int_equal(swiglu_forward(block, m, x, y, none, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_train_forward(&b.desc, NULL, m, SWIGLU_TRAIN_KEEP_X, x, y, NULL, none, NULL), SWIGLU_OK);
    assert_int_equal(swiglu_reference_run(&b.desc, m, x, &out, NULL), SWIGLU_OK);
    swiglu_block_destroy(block);
    float bias[3][4];
    const size_t several[] = {1, 513, m};
    for (size_t i = 0; i < COUNT(several); i++) { /* backward sums over them */
        const struct swiglu_grads g = {.struct_size = sizeof g, .gate_bias = bias[0], .up_bias = bias[1]};
        size_t bytes, saved;
        assert_int_equal(swiglu_train_bytes(&b.desc, NULL, several[i], SWIGLU_TRAIN_KEEP_X, 1, &bytes, &saved), SWIGLU_OK);
        const struct swiglu_work work = {malloc(bytes), bytes};
        memset(bias, 0xFF, sizeof bias);
        assert_int_equal(swiglu_train_backward(&b.desc, NULL, several[i], SWIGLU_TRAIN_KEEP_X, x, x, NULL, &g, work, NULL),
                         SWIGLU_OK);
        for (size_t j = 0; j < 3; j++) assert_true(bias[0][j] == 0 && bias[1][j] == 0);
        free(work.data);
    }
    free_block(&b);
    struct swiglu_desc wide; /* 2^40 empty rows of a gradient */
    float none_here;
    swiglu_desc_init(&wide);
    wide.layout = SWIGLU_UNGATED, wide.d_ff = (size_t)1 << 40;
    wide.up = (struct swiglu_matrix){.dtype = SWIGLU_F32, .rows = wide.d_ff};
    wide.down = (struct swiglu_matrix){.dtype = SWIGLU_F32, .cols = wide.d_ff};
    const struct swiglu_grads g = {.struct_size = sizeof g, .up = {&none_here, SWIGLU_F32, 0}};
    assert_int_equal(swiglu_train_backward(&wide, NULL, 0, SWIGLU_TRAIN_KEEP_X, x, x, NULL, &g, none, NULL), SWIGLU_OK);
}

static void workspace_stops_growing(void **state) {
    (void)state;
    struct swiglu_block *block = prepare(&good.desc, SWIGLU_COMPUTE_F32, 0);
    size_t small, block_of_rows, many, threads;
    assert_int_equal(swiglu_forward_bytes(block, 1, 1, &small), SWIGLU_OK);
    assert_int_equal(swiglu_forward_bytes(block, 512, 1, &block_of_rows), SWIGLU_OK);
    assert_int_equal(swiglu_forward_bytes(block, 1 << 30, 1, &many), SWIGLU_OK);
    assert_int_equal(swiglu_forward_bytes(block, 512, 8, &threads), SWIGLU_OK);
    assert_true(small < block_of_rows && block_of_rows == many && many < threads);
    assert_int_equal(swiglu_forward_bytes(block, 1, 0, &many), SWIGLU_OK);
    assert_int_equal(many, small); /* 0 threads count as 1 */
    assert_int_equal(swiglu_forward_bytes(NULL, 1, 1, &many), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_forward_bytes(block, 1, 1, NULL), SWIGLU_E_ARGUMENT);
    swiglu_block_destroy(block);
}

static void reference_refuses_as_a_block_does(void **state) {
    (void)state;
    float x[8] = {0};
    double y[6];
    struct swiglu_reference out = {.struct_size = sizeof out, .y = y};
    const struct swiglu_crows rows = {x, SWIGLU_F32, 0};
    struct swiglu_desc d = good.desc;
    assert_int_equal(swiglu_reference_run(&d, 1, rows, &out, NULL), SWIGLU_OK);
    d.gate.rows = 11;
    assert_int_equal(swiglu_reference_run(&d, 1, rows, &out, NULL), SWIGLU_E_SHAPE);
    d = good.desc;
    out.compute = 7;
    assert_int_equal(swiglu_reference_run(&d, 1, rows, &out, NULL), SWIGLU_E_ARGUMENT);
    out.compute = 0, out.y_dtype = SWIGLU_Q8_0;
    assert_int_equal(swiglu_reference_run(&d, 1, rows, &out, NULL), SWIGLU_E_ARGUMENT);
    out.y_dtype = SWIGLU_F32, out.y = NULL;
    assert_int_equal(swiglu_reference_run(&d, 1, rows, &out, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_reference_run(&d, 1, rows, NULL, NULL), SWIGLU_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_must_fit_together),
        cmocka_unit_test(enums_and_pointers_are_checked),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(shorter_structs_take_defaults),
        cmocka_unit_test(forward_checks_before_it_writes),
        cmocka_unit_test(no_rows_is_success_and_touches_nothing),
        cmocka_unit_test(rows_of_nothing_take_no_time),
        cmocka_unit_test(workspace_stops_growing),
        cmocka_unit_test(reference_refuses_as_a_block_does),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
