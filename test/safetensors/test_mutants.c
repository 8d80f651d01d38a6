/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader on damaged files: what is accepted obeys every rule and can be used, all else is a clean error.
 * SWIGLU_MUTANTS: how many random ones (3000). */
#define _XOPEN_SOURCE 700 /* mkstemp, mkdtemp, pwrite, ftruncate */
#include "io/safetensors.h"
#include "safetensors/st_folder.h"

static struct file_bytes file;
static struct swiglu_error error;

/* A header with every construct of the format, and data of 64 bytes. Returns the end of the header. */
static size_t put_file(void) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"\\n\"},"
        "\"model.layers.0.mlp.up_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
        "\"b\":{\"data_offsets\":[48,64],\"shape\":[2,2,2],\"dtype\":\"BF16\",\"more\":[1.5e3,{\"x\":null}]},"
        " \"c\" : {\"dtype\":\"F8_E4M3\",\"shape\":[16],\"data_offsets\":[32,48]} , "
        "\"d\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[64,64]}}   ";
    file.n = 0;
    put_u64(&file, sizeof header - 1);
    put(&file, header, sizeof header - 1);
    const size_t end = file.n;
    put(&file, (char[64]){0}, 64);
    return end;
}

/* The tensors tile the data: sorted out here by marking each byte. */
static void assert_tiled(const struct swiglu_catalog *c) {
    static unsigned char seen[sizeof file.at];
    const uint64_t bytes = c->files[0].bytes;
    size_t marked = 0;
    memset(seen, 0, bytes);
    for (size_t i = 0; i < c->names.n; i++) {
        const struct swiglu_tensor *t = &c->tensors[i];
        assert_true(t->offset >= 8 && t->offset <= bytes && t->bytes <= bytes - t->offset);
        assert_non_null(swiglu_safetensors_type_name(t->type));
        for (uint64_t k = 0; k < t->bytes; k++, marked++) assert_int_equal(seen[t->offset + k]++, 0);
    }
    const uint64_t start = 8 + swiglu_le64(file.at);
    assert_int_equal(marked, bytes - start);
    for (uint64_t k = start; k < bytes; k++) assert_int_equal(seen[k], 1);
}

static int open_file(const char *path) {
    struct swiglu_catalog c = {0};
    error = (struct swiglu_error){.struct_size = sizeof error};
    enum swiglu_status status = swiglu_catalog_add_file(&c, path, &error);
    if (status == SWIGLU_OK) status = swiglu_safetensors_read(&c, 0, &error);
    if (status == SWIGLU_OK) status = swiglu_catalog_sort(&c, &error);
    if (status == SWIGLU_OK) {
        assert_tiled(&c);
    } else {
        assert_int_equal(status, SWIGLU_E_FORMAT);
        assert_int_equal(error.status, status);
        assert_true(error.offset <= sizeof file.at);
        assert_non_null(strstr(error.text, path));
        for (const char *p = error.text; *p; p++) assert_true(*p >= ' ' && *p <= '~');
    }
    swiglu_catalog_close(&c);
    return status == SWIGLU_OK;
}

static void every_prefix(void **state) {
    (void)state;
    char path[64];
    put_file();
    const int fd = new_file(path, file.at, file.n);
    assert_int_equal(open_file(path), 1);
    for (size_t n = file.n; n--;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        assert_int_equal(open_file(path), 0);
    }
    close(fd), unlink(path);
}

static void write_bytes(int fd, size_t at, const void *bytes, size_t n) {
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), (ssize_t)n);
    memcpy(file.at + at, bytes, n);
}

static void every_header_byte(void **state) {
    (void)state;
    char path[64];
    const size_t header = put_file();
    const int fd = new_file(path, file.at, file.n);
    int accepted = 0, refused = 0;
    for (size_t at = 0; at < header; at++) {
        const unsigned char was = file.at[at];
        const unsigned char values[] = {0, ' ', '"', '\\', '0', '9', '{', '}', '[', ']', ',', ':', '-', '.', 'e',
                                        0x7F, 0x80, 0xC3, 0xFF, was ^ 1, was + 1, was ^ 0x20};
        for (size_t i = 0; i < COUNT(values); i++) {
            write_bytes(fd, at, &values[i], 1);
            if (open_file(path)) {
                accepted++;
            } else {
                refused++;
            }
        }
        write_bytes(fd, at, &was, 1);
    }
    assert_true(accepted > 500 && refused > 5000); /* both ends were reached */
    close(fd), unlink(path);
}

static int mutants(void) {
    const char *asked = getenv("SWIGLU_MUTANTS");
    return asked ? atoi(asked) : 3000;
}

/* Bytes taken out, put in twice, or exchanged, the length at the start kept right or wrong. */
static void cuts_and_repeats(void **state) {
    (void)state;
    char path[64];
    uint64_t seed = 11;
    unsigned char text[1024];
    const int n_mutants = mutants();
    for (int i = 0; i < n_mutants; i++) {
        const size_t header = put_file(), tail = file.n - header;
        const size_t n = 1 + next_u64(&seed) % 12, at = 8 + next_u64(&seed) % (header - 8 - n);
        const size_t from = 8 + next_u64(&seed) % (header - 8 - n);
        memcpy(text, file.at + from, n);
        if (i % 3 == 0) { /* taken out */
            memmove(file.at + at, file.at + at + n, file.n - at - n);
            file.n -= n;
        } else if (i % 3 == 1) { /* put in again elsewhere */
            memmove(file.at + at + n, file.at + at, file.n - at);
            memcpy(file.at + at, text, n);
            file.n += n;
        } else {
            memcpy(file.at + at, text, n);
        }
        const uint64_t length = file.n - 8 - tail;
        if (i % 5) memcpy(file.at, &length, sizeof length);
        const int fd = new_file(path, file.at, file.n);
        open_file(path);
        close(fd), unlink(path);
    }
}

/* ---- folders ---- */

static int use_folder(const struct folder *f) {
    struct swiglu_model *model;
    error = (struct swiglu_error){.struct_size = sizeof error};
    const enum swiglu_status status = swiglu_model_open(f->path, NULL, &model, &error);
    if (status == SWIGLU_OK) {
        use_model(model, &error);
        swiglu_model_close(model);
        return 1;
    }
    assert_null(model);
    assert_true(status == SWIGLU_E_FORMAT || status == SWIGLU_E_OPEN);
    assert_non_null(strstr(error.text, f->path));
    for (const char *p = error.text; *p; p++) assert_true(*p >= ' ' && *p <= '~');
    return 0;
}

/* One byte of config, index or shard header is another. */
static void every_byte_of_a_folder(void **state) {
    (void)state;
    static struct folder f;
    folder_make(&f);
    assert_int_equal(use_folder(&f), 1);
    for (int k = 0; k < 3; k++) {
        int accepted = 0, refused = 0;
        for (size_t at = 0; at < f.file[k].n; at++) {
            const unsigned char was = f.file[k].at[at], values[] = {'"', '9', was ^ 1};
            for (size_t i = 0; i < COUNT(values); i++) {
                f.file[k].at[at] = values[i];
                folder_write(&f, k);
                if (use_folder(&f)) {
                    accepted++;
                } else {
                    refused++;
                }
            }
            f.file[k].at[at] = was;
        }
        folder_write(&f, k);
        assert_true(accepted > 10 && refused > 50);
    }
    folder_remove(&f);
}

static void every_prefix_of_a_folder(void **state) {
    (void)state;
    static struct folder f;
    folder_make(&f);
    for (int k = 0; k < FOLDER_FILES; k++) {
        const size_t whole = f.file[k].n;
        for (size_t n = whole; n--;) {
            f.file[k].n = n;
            folder_write(&f, k);
            assert_int_equal(use_folder(&f), 0);
        }
        f.file[k].n = whole;
        folder_write(&f, k);
    }
    assert_int_equal(use_folder(&f), 1);
    folder_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix),
        cmocka_unit_test(every_header_byte),
        cmocka_unit_test(cuts_and_repeats),
        cmocka_unit_test(every_byte_of_a_folder),
        cmocka_unit_test(every_prefix_of_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
