/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before the shared library: a forward whose output at one place is 1 too large, or what BENT says, to see the tool
 * explain it; or, where BENT_HIDDEN is set, one hidden value that much too large. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include <swiglu/swiglu.h>

typedef enum swiglu_status rows_fn(const struct swiglu_block *, size_t, struct swiglu_crows, struct swiglu_rows,
                                   struct swiglu_work, const struct swiglu_runner *);

static rows_fn *real(const char *name) {
    rows_fn *f;
    *(void **)&f = dlsym(RTLD_NEXT, name); /* POSIX's way around ISO C's ban on the cast */
    return f;
}

enum swiglu_status swiglu_forward(const struct swiglu_block *block, size_t m, struct swiglu_crows x,
                                  struct swiglu_rows y, struct swiglu_work work, const struct swiglu_runner *runner) {
    enum swiglu_status status = real("swiglu_forward")(block, m, x, y, work, runner);
    struct swiglu_block_info info = {.struct_size = sizeof info};
    if (status || swiglu_block_query(block, &info) || m < 2 || getenv("BENT_HIDDEN")) return status;
    float *bent = (float *)y.data + info.d_out + 5; /* row 1, column 5 */
    const char *value = getenv("BENT");
    *bent = value ? strtof(value, NULL) : *bent + 1;
    return status;
}

enum swiglu_status swiglu_hidden(const struct swiglu_block *block, size_t m, struct swiglu_crows x,
                                 struct swiglu_rows h, struct swiglu_work work, const struct swiglu_runner *runner) {
    enum swiglu_status status = real("swiglu_hidden")(block, m, x, h, work, runner);
    struct swiglu_block_info info = {.struct_size = sizeof info};
    const char *value = getenv("BENT_HIDDEN");
    if (!status && value && !swiglu_block_query(block, &info) && m > 1)
        ((float *)h.data)[info.d_ff + 7] += strtof(value, NULL); /* row 1, unit 7 */
    return status;
}
