/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_model_convert as a program calls it: arguments, cancelling, progress, a caller's floating-point environment. */
#define _XOPEN_SOURCE 700 /* mkstemp, pwrite */
#include "io/gguf_file.h"

#include <fenv.h>

static struct file_bytes file, before, after;
static char path[64], out[80];
static struct swiglu_model *model;

static int setup(void **state) {
    (void)state;
    put_model(&file, 8, 16);
    close(new_file(path, file.at, file.n));
    snprintf(out, sizeof out, "%s.out", path);
    assert_int_equal(swiglu_model_open(path, NULL, &model, NULL), SWIGLU_OK);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    swiglu_model_close(model);
    unlink(path), unlink(out);
    return 0;
}

static void load(const char *name, struct file_bytes *f) {
    FILE *stream = fopen(name, "rb");
    assert_non_null(stream);
    f->n = fread(f->at, 1, sizeof f->at, stream);
    fclose(stream);
}

static void expect(enum swiglu_status status, const char *word, struct swiglu_convert_options o) {
    struct swiglu_error error = {.struct_size = sizeof error};
    assert_int_equal(swiglu_model_convert(model, out, &o, &error), status);
    assert_int_equal(error.status, status);
    assert_non_null(strstr(error.text, word));
    assert_int_equal(access(out, F_OK), -1);
}

#define OPTIONS(...) ((struct swiglu_convert_options){.struct_size = sizeof(struct swiglu_convert_options), __VA_ARGS__})

static void arguments(void **state) {
    (void)state;
    const struct swiglu_convert_options f16 = OPTIONS(.dtype = SWIGLU_F16);
    assert_int_equal(swiglu_model_convert(NULL, out, &f16, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_convert(model, NULL, &f16, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_convert(model, out, NULL, NULL), SWIGLU_E_ARGUMENT);
    expect(SWIGLU_E_ARGUMENT, "struct_size", (struct swiglu_convert_options){.struct_size = 3});
    expect(SWIGLU_E_ARGUMENT, "dtype", OPTIONS(.dtype = 77));
    expect(SWIGLU_E_UNSUPPORTED, "q8_0", OPTIONS(.dtype = SWIGLU_Q8_0));
    expect(SWIGLU_E_ARGUMENT, "repack", OPTIONS(.repack = 3));
    expect(SWIGLU_E_ARGUMENT, "format", OPTIONS(.format = -1));
    expect(SWIGLU_E_UNSUPPORTED, "gguf to safetensors", OPTIONS(.format = SWIGLU_FORMAT_SAFETENSORS));
    expect(SWIGLU_E_UNSUPPORTED, "no name for a packed", OPTIONS(.repack = SWIGLU_REPACK_GATE_UP));
    struct swiglu_convert_options same = OPTIONS(.dtype = SWIGLU_DTYPE_KEEP, .format = SWIGLU_FORMAT_GGUF);
    assert_int_equal(swiglu_model_convert(model, out, &same, NULL), SWIGLU_OK);
    load(path, &before), load(out, &after);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.at, after.at, after.n);
}

struct watch { int calls, cancel_at; uint64_t done, total; };

static int look(void *ctx, uint64_t done, uint64_t total) {
    struct watch *w = ctx;
    assert_true(done >= w->done && done <= total && (!w->calls || total == w->total));
    w->done = done, w->total = total;
    return ++w->calls == w->cancel_at;
}

static void progress_and_cancelling(void **state) {
    (void)state;
    struct watch watch = {0};
    struct swiglu_convert_options o = OPTIONS(.dtype = SWIGLU_BF16, .progress = look, .progress_ctx = &watch);
    assert_int_equal(swiglu_model_convert(model, out, &o, NULL), SWIGLU_OK);
    assert_true(watch.done == watch.total);
    assert_true(watch.total == 3 * 8 * 16 * 2 + (8 + 16 + 8) * 4); /* three weights of bf16, norm and biases of f32 */
    const int calls = watch.calls;
    assert_true(calls > 6);
    load(out, &before);
    o.dtype = SWIGLU_F32;
    for (int i = 1; i <= calls; i++) { /* the last is asked when the file is complete but for its name */
        watch = (struct watch){.cancel_at = i};
        struct swiglu_error error = {.struct_size = sizeof error};
        assert_int_equal(swiglu_model_convert(model, out, &o, &error), SWIGLU_E_CANCELLED);
        assert_int_equal(watch.calls, i);
        load(out, &after);
        assert_int_equal(before.n, after.n);
        assert_memory_equal(before.at, after.at, after.n);
    }
}

/* Rounding up and flushing subnormals, where the machine can: the bits stay those of the default. */
static void environment(void **state) {
    (void)state;
    const struct swiglu_convert_options f16 = OPTIONS(.dtype = SWIGLU_F16);
    assert_int_equal(swiglu_model_convert(model, out, &f16, NULL), SWIGLU_OK);
    load(out, &before);
    fesetround(FE_UPWARD);
    const enum swiglu_status status = swiglu_model_convert(model, out, &f16, NULL);
    const int mode = fegetround();
    fesetround(FE_TONEAREST);
    assert_int_equal(status, SWIGLU_OK);
    assert_int_equal(mode, FE_UPWARD);
    load(out, &after);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.at, after.at, after.n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(arguments, setup, teardown),
                                       cmocka_unit_test_setup_teardown(progress_and_cancelling, setup, teardown),
                                       cmocka_unit_test_setup_teardown(environment, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
