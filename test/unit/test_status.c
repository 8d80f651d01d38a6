/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and sized structs at the border of the library, and the checked arithmetic behind them. */
#include "support.h"

#include "base/checked.h"
#include "base/status.h"

static void every_status_has_its_own_name(void **state) {
    (void)state;
    static const int all[] = {0, 10, 11, 20, 21, 30, 31, 40, 41, 42, 50, 51, 60};
    for (size_t i = 0; i < COUNT(all); i++) {
        const char *name = swiglu_status_name((enum swiglu_status)all[i]);
        assert_string_not_equal(name, "unknown");
        for (size_t j = 0; j < i; j++) assert_string_not_equal(name, swiglu_status_name((enum swiglu_status)all[j]));
    }
    assert_string_equal(swiglu_status_name((enum swiglu_status)12345), "unknown");
}

static void escape_leaves_no_control_byte(void **state) {
    (void)state;
    char text[32];
    assert_string_equal(swiglu_escape(text, sizeof text, "a\033[2J\\\xff", 7), "a\\x1b[2J\\x5c\\xff");
    assert_string_equal(swiglu_escape(text, sizeof text, "a\0b", 3), "a\\x00b");
    char all[256], wide[4 * 256 + 5];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    swiglu_escape(wide, sizeof wide, all, sizeof all);
    for (const char *p = wide; *p; p++) assert_true(*p >= 0x20 && *p < 0x7F);
    /* cut, never half an escape, always terminated */
    for (size_t room = 1; room < 12; room++) {
        char small[16];
        memset(small, 'x', sizeof small);
        swiglu_escape(small, room, "\1\2\3\4", 4);
        assert_true(strlen(small) < room && strlen(small) % 4 == 0);
        assert_true(small[room] == 'x');
    }
    text[0] = 'x';
    swiglu_escape(text, 0, "a", 1);
    assert_true(text[0] == 'x');
}

static void fail_fills_and_returns(void **state) {
    (void)state;
    struct swiglu_error error = {.struct_size = sizeof error};
    assert_int_equal(swiglu_fail(&error, SWIGLU_E_SHAPE, 77, 5, "field %d of %s", 3, "x"), SWIGLU_E_SHAPE);
    assert_int_equal(error.status, SWIGLU_E_SHAPE);
    assert_int_equal(error.os_errno, 5);
    assert_int_equal(error.offset, 77);
    assert_string_equal(error.text, "field 3 of x");
    assert_int_equal(swiglu_fail(NULL, SWIGLU_E_READ, 0, 0, "no record"), SWIGLU_E_READ);
    char longer[1000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(swiglu_fail(&error, SWIGLU_E_READ, 0, 0, "%s", longer), SWIGLU_E_READ);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
}

struct small { size_t struct_size; int a; };
struct large { size_t struct_size; int a, b; uint64_t c; };

static void structs_come_in(void **state) {
    (void)state;
    const struct large defaults = {sizeof defaults, 1, 2, 3};
    struct large got = defaults;
    const struct small old = {sizeof old, 10};
    assert_int_equal(swiglu_struct_in(&got, sizeof got, &old), SWIGLU_OK);
    assert_int_equal(got.struct_size, sizeof got);
    assert_int_equal(got.a, 10);
    assert_int_equal(got.c, 3); /* the missing tail keeps its default */

    struct { struct large l; uint64_t newer; } future = {{sizeof future, 7, 8, 9}, 0};
    got = defaults;
    assert_int_equal(swiglu_struct_in(&got, sizeof got, &future), SWIGLU_OK);
    assert_int_equal(got.b, 8);
    future.newer = 1;
    got = defaults;
    assert_int_equal(swiglu_struct_in(&got, sizeof got, &future), SWIGLU_E_ARGUMENT);
    assert_memory_equal(&got, &defaults, sizeof got);

    static const size_t bad[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX, 1 << 20};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(swiglu_struct_in(&got, sizeof got, &bad[i]), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_struct_in(&got, sizeof got, NULL), SWIGLU_E_ARGUMENT);
}

static void structs_go_out(void **state) {
    (void)state;
    const struct large full = {sizeof full, 1, 2, 3};
    struct small old = {sizeof old, 0};
    assert_int_equal(swiglu_struct_out(&old, &full, sizeof full), SWIGLU_OK);
    assert_int_equal(old.struct_size, sizeof old);
    assert_int_equal(old.a, 1);
    struct { struct large l; uint64_t newer; } future = {{sizeof future, 0, 0, 0}, 5};
    assert_int_equal(swiglu_struct_out(&future, &full, sizeof full), SWIGLU_OK);
    assert_int_equal(future.l.struct_size, sizeof future);
    assert_int_equal(future.l.c, 3);
    assert_int_equal(future.newer, 0);
    const size_t bad = 3;
    assert_int_equal(swiglu_struct_out((void *)(uintptr_t)&bad, &full, sizeof full), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_struct_out(NULL, &full, sizeof full), SWIGLU_E_ARGUMENT);
}

static void arithmetic_that_would_wrap_is_noticed(void **state) {
    (void)state;
    size_t out;
    assert_true(SW_MUL((size_t)1 << 32, (size_t)1 << 32, &out)); /* wraps to exactly 0 */
    assert_true(SW_ADD(SIZE_MAX, (size_t)1, &out));
    assert_true(swiglu_align_up(SIZE_MAX - 3, 64, &out));
    assert_false(swiglu_align_up(65, 64, &out));
    assert_int_equal(out, 128);
    size_t total = 10, at;
    assert_false(swiglu_reserve(&total, 3, 4, &at));
    assert_int_equal(at, 64);
    assert_int_equal(total, 76);
    assert_true(swiglu_reserve(&total, SIZE_MAX / 2, 4, &at));
    assert_int_equal(swiglu_ceil_div(SIZE_MAX, 2), SIZE_MAX / 2 + 1);
    /* more than 2^31 elements (row 2.9) */
    assert_false(SW_MUL((size_t)3 << 30, (size_t)4, &out));
    assert_true(out == (size_t)12 << 30);
}

static void version_is_told(void **state) {
    (void)state;
    struct swiglu_build build = {.struct_size = sizeof build};
    assert_int_equal(swiglu_version(&build), SWIGLU_OK);
    assert_non_null(strchr(build.version, '.'));
    assert_true(strlen(build.compiler) > 0);
    assert_int_equal(swiglu_version(NULL), SWIGLU_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_name),
        cmocka_unit_test(escape_leaves_no_control_byte),
        cmocka_unit_test(fail_fills_and_returns),
        cmocka_unit_test(structs_come_in),
        cmocka_unit_test(structs_go_out),
        cmocka_unit_test(arithmetic_that_would_wrap_is_noticed),
        cmocka_unit_test(version_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
