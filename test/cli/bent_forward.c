/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before the shared library: a forward whose output at one place is 1 too large, or what BENT says, to see the tool
 * explain it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include <swiglu/swiglu.h>

typedef enum swiglu_status forward_fn(const struct swiglu_block *, size_t, struct swiglu_crows, struct swiglu_rows,
                                      struct swiglu_work, const struct swiglu_runner *);

enum swiglu_status swiglu_forward(const struct swiglu_block *block, size_t m, struct swiglu_crows x,
                                  struct swiglu_rows y, struct swiglu_work work, const struct swiglu_runner *runner) {
    forward_fn *real;
    *(void **)&real = dlsym(RTLD_NEXT, "swiglu_forward"); /* POSIX's way around ISO C's ban on the cast */
    enum swiglu_status status = real(block, m, x, y, work, runner);
    struct swiglu_block_info info = {.struct_size = sizeof info};
    if (status || swiglu_block_query(block, &info) || m < 2) return status;
    float *bent = (float *)y.data + info.d_out + 5; /* row 1, column 5 */
    const char *value = getenv("BENT");
    *bent = value ? strtof(value, NULL) : *bent + 1;
    return status;
}
