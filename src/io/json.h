/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of JSON (RFC 8259) that is pulled token by token: no tree, no recursion, no memory but its own. Each byte of
 * the file is read once. Strings come unescaped, UTF-8 is checked, integers to 2^64-1 are exact, nothing depends on the
 * locale. That keys of an object differ is for the caller to see, who has the names (names.h: sorted, after unescaping).
 */
#ifndef SWIGLU_JSON_H
#define SWIGLU_JSON_H

#include <stdbool.h>

#include "io/file.h"
#include "io/limits.h"

enum swiglu_json_token {
    SWIGLU_JSON_OBJECT, SWIGLU_JSON_OBJECT_END, SWIGLU_JSON_ARRAY, SWIGLU_JSON_ARRAY_END,
    SWIGLU_JSON_KEY,     /* text; the value is the next token */
    SWIGLU_JSON_STRING,  /* text */
    SWIGLU_JSON_INTEGER, /* integer, text: 0 to 2^64-1, written as digits */
    SWIGLU_JSON_NUMBER,  /* text: every other number: signed, above 2^64-1, with fraction or exponent, NaN, Infinity */
    SWIGLU_JSON_TRUE, SWIGLU_JSON_FALSE, SWIGLU_JSON_NULL,
    SWIGLU_JSON_END      /* nothing but white space was left */
};

struct swiglu_json {
    /* the last token */
    enum swiglu_json_token token;
    uint64_t offset; /* of its first byte in the file */
    uint64_t integer;
    size_t text_bytes;
    bool cut; /* text was longer than its limit, and is not whole */
    unsigned depth; /* objects and arrays that are open */
    char text[SWIGLU_LIMIT_KEY + 1]; /* NUL-terminated; may hold byte 0 as well */

    /* the reader's own */
    const struct swiglu_file *file;
    struct swiglu_error *error;
    const char *what;    /* names the text in messages: "header" */
    bool not_finite;     /* NaN, Infinity and -Infinity are numbers */
    int expected;
    uint32_t is_object;  /* bit per level: object or array */
    uint64_t at, end, window_at;
    size_t window_bytes;
    unsigned char window[1 << 16];
};

/* The text is the n bytes of the file from byte `from` on. Large: allocate it. */
void swiglu_json_begin(struct swiglu_json *json, const struct swiglu_file *file, const char *what, uint64_t from,
                       uint64_t n, struct swiglu_error *error);

/* Reads the next token. E_FORMAT with the offset of the byte that is wrong, or E_READ. Not to be called after END. */
enum swiglu_status swiglu_json_next(struct swiglu_json *json);

/* After a KEY, or in an array: reads the whole value, whatever it is. At the end the last token is that of its end. */
enum swiglu_status swiglu_json_skip(struct swiglu_json *json);

/* The last token in words, for messages: "an object", "the number -1", "the string \"f32\"". Returns dst. */
char *swiglu_json_show(const struct swiglu_json *json, char *dst, size_t dst_bytes);

/* E_FORMAT: "FILE: text (at byte N)". */
enum swiglu_status swiglu_json_fail(const struct swiglu_json *json, uint64_t offset, const char *format, ...)
    SW_PRINTF(3, 4);

#endif
