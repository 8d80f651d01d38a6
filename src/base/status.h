/* SPDX-License-Identifier: Apache-2.0 */
/* How errors are raised and passed on inside the library, and how sized structs cross the border. */
#ifndef SWIGLU_STATUS_H
#define SWIGLU_STATUS_H

#include "base/attr.h"
#include "swiglu/swiglu.h"

/* Fills error (may be NULL) and returns code. Offset is a byte in a file or SWIGLU_NO_OFFSET. */
#define SWIGLU_NO_OFFSET UINT64_MAX
enum swiglu_status swiglu_fail(struct swiglu_error *error, enum swiglu_status code, uint64_t offset, int os_errno,
                               const char *format, ...) SW_PRINTF(5, 6);

/* In functions that return a status and have `error` in scope. */
#define REQUIRE(cond, code, ...)                                                                     \
    do {                                                                                             \
        if (SW_UNLIKELY(!(cond))) return swiglu_fail(error, (code), SWIGLU_NO_OFFSET, 0, __VA_ARGS__); \
    } while (0)
#define TRY(call)                                                  \
    do {                                                           \
        const enum swiglu_status status_ = (call);                 \
        if (SW_UNLIKELY(status_ != SWIGLU_OK)) return status_;     \
    } while (0)

/* Writes src[0..n) to dst with everything but printable ASCII (and the backslash) as \xNN; always terminates. Returns dst. */
char *swiglu_escape(char *dst, size_t dst_bytes, const void *src, size_t n);

/* Copies a caller's sized struct over the defaults in dst (dst_bytes long, already filled with the defaults).
 * src begins with size_t struct_size. E_ARGUMENT when it is too small to hold that field or has a nonzero unknown tail. */
enum swiglu_status swiglu_struct_in(void *dst, size_t dst_bytes, const void *src);
/* Copies src (src_bytes long) to a caller's sized output struct, as much as it has room for; keeps its struct_size.
 * A larger caller's tail is zeroed. */
enum swiglu_status swiglu_struct_out(void *dst, const void *src, size_t src_bytes);

#endif
