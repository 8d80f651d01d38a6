/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF reader on damaged files: whatever is opened can be used, everything else is a clean error. Also a file that
 * shrinks while it is being packed, and one model in many threads. */
#define _XOPEN_SOURCE 700 /* mkstemp, pwrite, ftruncate */
#include "io/gguf_file.h"

#include <pthread.h>

static struct file_bytes file;

static int open_and_use(const char *path) {
    struct swiglu_model *model = (struct swiglu_model *)&file;
    struct swiglu_error error = {.struct_size = sizeof error};
    const enum swiglu_status status = swiglu_model_open(path, NULL, &model, &error);
    if (status == SWIGLU_OK) {
        use_model(model, &error);
        swiglu_model_close(model);
        return 1;
    }
    assert_null(model);
    assert_true(status == SWIGLU_E_FORMAT || status == SWIGLU_E_UNSUPPORTED);
    assert_int_equal(error.status, status);
    assert_true(error.offset <= sizeof file.at);
    assert_non_null(strstr(error.text, path));
    for (const char *p = error.text; *p; p++) assert_true(*p >= ' ' && *p <= '~');
    return 0;
}

static void every_prefix(void **state) {
    (void)state;
    char path[64];
    put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    assert_int_equal(open_and_use(path), 1);
    for (size_t n = file.n; n--;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        assert_int_equal(open_and_use(path), 0);
    }
    close(fd), unlink(path);
}

static void every_header_byte(void **state) {
    (void)state;
    char path[64];
    const size_t header = put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    int accepted = 0, refused = 0;
    for (size_t at = 0; at < header; at++) {
        const unsigned char was = file.at[at], values[] = {0, 1, 0x7F, 0x80, 0xFF, was ^ 1, was + 1, was ^ 0x20};
        for (size_t i = 0; i < COUNT(values); i++) {
            assert_int_equal(pwrite(fd, &values[i], 1, (off_t)at), 1);
            if (open_and_use(path)) {
                accepted++;
            } else {
                refused++;
            }
        }
        assert_int_equal(pwrite(fd, &was, 1, (off_t)at), 1);
    }
    assert_true(accepted > 100 && refused > 1000); /* both ends were reached */
    close(fd), unlink(path);
}

static void bursts_of_random_bytes(void **state) {
    (void)state;
    char path[64];
    uint64_t seed = 7;
    const size_t header = put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    for (int i = 0; i < 3000; i++) {
        const size_t n = 1 + next_u64(&seed) % 8, at = next_u64(&seed) % (header - n);
        const uint64_t noise = next_u64(&seed);
        assert_int_equal(pwrite(fd, &noise, n, (off_t)at), (ssize_t)n);
        open_and_use(path);
        assert_int_equal(pwrite(fd, file.at + at, n, (off_t)at), (ssize_t)n);
    }
    close(fd), unlink(path);
}

static int shrink(void *ctx, uint64_t done, uint64_t total) {
    assert_true(done <= total);
    assert_int_equal(ftruncate(*(int *)ctx, 4096), 0);
    return 0;
}

static void truncated_while_packing(void **state) {
    (void)state;
    char path[64];
    struct swiglu_model *model;
    struct swiglu_block *block = (struct swiglu_block *)&file;
    struct swiglu_error error = {.struct_size = sizeof error};
    struct swiglu_desc desc = {.struct_size = sizeof desc};
    put_model(&file, 512, 1024);
    int fd = new_file(path, file.at, file.n);
    const struct swiglu_options options = {.struct_size = sizeof options, .progress = shrink, .progress_ctx = &fd};
    assert_int_equal(swiglu_model_open(path, NULL, &model, &error), SWIGLU_OK);
    assert_int_equal(swiglu_model_desc(model, 0, &desc, &error), SWIGLU_OK);
    assert_int_equal(swiglu_block_create(&desc, &options, &block, &error), SWIGLU_E_READ);
    assert_null(block);
    assert_non_null(strstr(error.text, "short read at byte"));
    assert_non_null(strstr(error.text, path));
    swiglu_model_close(model);
    close(fd), unlink(path);
}

/* Eight threads describe and prepare one block at once: the biases are read by whoever comes first. */
static void *describe(void *model) {
    struct swiglu_error error = {.struct_size = sizeof error};
    return use_model(model, &error) == SWIGLU_OK ? NULL : model;
}

static void many_threads(void **state) {
    (void)state;
    char path[64];
    struct swiglu_model *model;
    pthread_t thread[8];
    put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(swiglu_model_open(path, NULL, &model, NULL), SWIGLU_OK);
        for (size_t i = 0; i < COUNT(thread); i++)
            assert_int_equal(pthread_create(&thread[i], NULL, describe, model), 0);
        for (size_t i = 0; i < COUNT(thread); i++) {
            void *failed;
            assert_int_equal(pthread_join(thread[i], &failed), 0);
            assert_null(failed);
        }
        swiglu_model_close(model);
    }
    close(fd), unlink(path);
}

static void wrong_arguments(void **state) {
    (void)state;
    char path[64];
    struct swiglu_model *model;
    struct swiglu_error error = {.struct_size = sizeof error};
    const struct swiglu_model_options bad_size = {.struct_size = 3}, bad_name = {.struct_size = sizeof bad_name,
                                                                              .activation = "nonsense"};
    put_model(&file, 8, 16);
    const int fd = new_file(path, file.at, file.n);
    assert_int_equal(swiglu_model_open(path, NULL, NULL, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_open(NULL, NULL, &model, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_open(path, &bad_size, &model, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_open(path, &bad_name, &model, &error), SWIGLU_E_ARGUMENT);
    assert_null(model);
    assert_int_equal(swiglu_model_open(path, NULL, &model, NULL), SWIGLU_OK);
    struct swiglu_tensor_info tensor = {.struct_size = sizeof tensor};
    struct swiglu_model_block_info block = {.struct_size = 1};
    struct swiglu_desc desc = {.struct_size = sizeof desc};
    char byte;
    assert_int_equal(swiglu_model_tensor(model, 6, &tensor), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_block(model, 0, &block), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_block(model, 1, NULL), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_desc(model, 1, &desc, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_desc(model, 0, NULL, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_read(model, 6, 0, &byte, 1, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_read(model, 0, 32, &byte, 1, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_read(model, 0, UINT64_MAX, &byte, 1, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_read(model, 0, 0, NULL, 1, &error), SWIGLU_E_ARGUMENT);
    assert_int_equal(swiglu_model_read(model, 0, 32, NULL, 0, &error), SWIGLU_OK);
    assert_null(swiglu_model_warning(model, 0));
    swiglu_model_close(model);
    swiglu_model_close(NULL);
    close(fd), unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix),          cmocka_unit_test(every_header_byte),
        cmocka_unit_test(bursts_of_random_bytes), cmocka_unit_test(truncated_while_packing),
        cmocka_unit_test(many_threads),           cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
