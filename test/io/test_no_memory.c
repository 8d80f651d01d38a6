/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation on the way from a file to y, and to another file, fails once: the error says so and nothing leaks.
 * The functions of base/alloc.h are defined here, so the linker takes these instead of the library's. */
#define _XOPEN_SOURCE 700 /* mkstemp, mkdtemp, pwrite */
#include "safetensors/st_folder.h"

#include "base/alloc.h"

static long n_asked, fail_at, n_live;

static void *granted(void *p) {
    if (p) n_live++;
    return p;
}
static int refuse(void) { return ++n_asked == fail_at; }

void *swiglu_alloc(size_t bytes) { return refuse() ? NULL : granted(calloc(1, bytes ? bytes : 1)); }
void *swiglu_alloc_array(size_t n, size_t size) {
    return refuse() ? NULL : granted(calloc(n ? n : 1, size ? size : 1));
}
void *swiglu_resize(void *p, size_t bytes) {
    if (refuse()) return NULL;
    return p ? realloc(p, bytes) : granted(malloc(bytes));
}
void swiglu_free(void *p) {
    if (p) n_live--;
    free(p);
}
void *swiglu_alloc_big(size_t bytes) {
    void *p = refuse() ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p) memset(p, 0, bytes);
    return granted(p);
}
void swiglu_free_big(void *p, size_t bytes) {
    (void)bytes;
    swiglu_free(p);
}

static struct file_bytes file;

static enum swiglu_status run(const char *path, const char *out, struct swiglu_error *error) {
    const struct swiglu_convert_options f16 = {.struct_size = sizeof f16, .dtype = SWIGLU_F16};
    struct swiglu_model *model;
    enum swiglu_status status = swiglu_model_open(path, NULL, &model, error);
    if (status == SWIGLU_OK) status = use_model(model, error);
    if (status == SWIGLU_OK) status = swiglu_model_convert(model, out, &f16, error);
    if (model) {
        fail_at = 0;
        assert_int_equal(use_model(model, NULL), SWIGLU_OK); /* a model outlives the shortage */
    }
    swiglu_model_close(model);
    return status;
}

static void each_fails_once(const char *path) {
    char out[160];
    enum swiglu_status status = SWIGLU_E_MEMORY;
    snprintf(out, sizeof out, "%s.out", path);
    long n = 0;
    while (status != SWIGLU_OK) {
        struct swiglu_error error = {.struct_size = sizeof error};
        n_asked = 0, fail_at = ++n;
        status = run(path, out, &error);
        assert_int_equal(n_live, 0);
        assert_int_equal(unlink(out), status == SWIGLU_OK ? 0 : -1); /* written whole or not at all */
        if (status == SWIGLU_OK) break;
        assert_int_equal(status, SWIGLU_E_MEMORY);
        assert_int_equal(error.status, SWIGLU_E_MEMORY);
        assert_non_null(strstr(error.text, "memory"));
        assert_true(n < 1000);
    }
    assert_true(n > 10); /* the header alone takes as many */
}

static void each_allocation_for_gguf(void **state) {
    (void)state;
    char path[64];
    put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    each_fails_once(path);
    close(fd), unlink(path);
}

static void each_allocation_for_safetensors(void **state) {
    (void)state;
    static struct folder f;
    folder_make(&f);
    each_fails_once(f.path);
    each_fails_once(f.file[2].path);
    folder_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_for_gguf),
                                       cmocka_unit_test(each_allocation_for_safetensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
