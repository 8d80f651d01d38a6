/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and unloading the shared library changes nothing in the process: no start-up code that switches denormals off
 * (what -ffast-math links in), no threads, no signal handlers. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint64_t float_control(void) { return _mm_getcsr() & ~_MM_EXCEPT_MASK; }
#else
static uint64_t float_control(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}
#endif

static size_t count_threads(void) {
    size_t n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void *library_open(void) {
    const char *path = getenv("SWIGLU_LIBRARY");
    if (!path) skip(); /* a sanitized build has none that a plain process can load */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    return library;
}

static void float_modes_stay(void **state) {
    (void)state;
    const uint64_t before = float_control();
    void *library = library_open();
    assert_int_equal(float_control(), before);
    volatile float tiny = 0x1p-140f, half = 0.5f;
    assert_true(tiny * half == 0x1p-141f); /* subnormals live */
    dlclose(library);
    assert_int_equal(float_control(), before);
}

static void no_threads_and_no_handlers(void **state) {
    (void)state;
    struct sigaction before[32], after;
    for (int i = 1; i < 32; i++) sigaction(i, NULL, &before[i]);
    const size_t threads = count_threads();
    void *library = library_open();
    assert_int_equal(count_threads(), threads);
    for (int i = 1; i < 32; i++) {
        sigaction(i, NULL, &after);
        assert_true(after.sa_handler == before[i].sa_handler);
    }
    dlclose(library);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_modes_stay),
        cmocka_unit_test(no_threads_and_no_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
