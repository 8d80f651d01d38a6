/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *swiglu_status_name(enum swiglu_status status) {
    switch (status) {
    case SWIGLU_OK: return "OK";
    case SWIGLU_E_ARGUMENT: return "E_ARGUMENT";
    case SWIGLU_E_CANCELLED: return "E_CANCELLED";
    case SWIGLU_E_SHAPE: return "E_SHAPE";
    case SWIGLU_E_ALIAS: return "E_ALIAS";
    case SWIGLU_E_FORMAT: return "E_FORMAT";
    case SWIGLU_E_UNSUPPORTED: return "E_UNSUPPORTED";
    case SWIGLU_E_OPEN: return "E_OPEN";
    case SWIGLU_E_READ: return "E_READ";
    case SWIGLU_E_WRITE: return "E_WRITE";
    case SWIGLU_E_MEMORY: return "E_MEMORY";
    case SWIGLU_E_WORKSPACE: return "E_WORKSPACE";
    case SWIGLU_E_HARDWARE: return "E_HARDWARE";
    }
    return "unknown";
}

enum swiglu_status swiglu_fail(struct swiglu_error *error, enum swiglu_status code, uint64_t offset, int os_errno,
                               const char *format, ...) {
    struct swiglu_error full = {.struct_size = sizeof full, .status = code, .os_errno = os_errno, .offset = offset};
    if (!error) return code;
    va_list args;
    va_start(args, format);
    vsnprintf(full.text, sizeof full.text, format, args);
    va_end(args);
    (void)swiglu_struct_out(error, &full, sizeof full); /* a caller without room for it still gets the code */
    return code;
}

char *swiglu_escape(char *dst, size_t dst_bytes, const void *src, size_t n) {
    static const char hex[] = "0123456789abcdef";
    const unsigned char *s = src;
    size_t at = 0;
    for (size_t i = 0; i < n && at + 5 <= dst_bytes; i++) {
        if (s[i] >= 0x20 && s[i] < 0x7F && s[i] != '\\') {
            dst[at++] = (char)s[i];
        } else {
            dst[at++] = '\\', dst[at++] = 'x', dst[at++] = hex[s[i] >> 4], dst[at++] = hex[s[i] & 15];
        }
    }
    if (dst_bytes) dst[at] = 0;
    return dst;
}

enum swiglu_status swiglu_struct_in(void *dst, size_t dst_bytes, const void *src) {
    size_t given;
    if (!src) return SWIGLU_E_ARGUMENT;
    memcpy(&given, src, sizeof given);
    if (given < sizeof given || given > (size_t)1 << 16) return SWIGLU_E_ARGUMENT;
    for (size_t i = dst_bytes; i < given; i++)
        if (((const unsigned char *)src)[i]) return SWIGLU_E_ARGUMENT;
    memcpy(dst, src, given < dst_bytes ? given : dst_bytes);
    memcpy(dst, &dst_bytes, sizeof dst_bytes);
    return SWIGLU_OK;
}

enum swiglu_status swiglu_struct_out(void *dst, const void *src, size_t src_bytes) {
    size_t room;
    if (!dst) return SWIGLU_E_ARGUMENT;
    memcpy(&room, dst, sizeof room);
    if (room < sizeof room || room > (size_t)1 << 16) return SWIGLU_E_ARGUMENT;
    if (room > src_bytes) memset((unsigned char *)dst + src_bytes, 0, room - src_bytes);
    memcpy(dst, src, room < src_bytes ? room : src_bytes);
    memcpy(dst, &room, sizeof room);
    return SWIGLU_OK;
}
