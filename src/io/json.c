/* SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NONE = -1 }; /* in place of a byte: the text has ended */

/* What may come next. */
enum { VALUE, FIRST_VALUE, FIRST_KEY, AFTER_VALUE };

void swiglu_json_begin(struct swiglu_json *json, const struct swiglu_file *file, const char *what, uint64_t from,
                       uint64_t n, struct swiglu_error *error) {
    json->file = file, json->what = what, json->error = error;
    json->at = json->window_at = from, json->end = from + n;
    json->window_bytes = 0;
    json->depth = 0, json->is_object = 0, json->not_finite = false;
    json->expected = VALUE;
}

enum swiglu_status swiglu_json_fail(const struct swiglu_json *json, uint64_t offset, const char *format, ...) {
    char text[sizeof((struct swiglu_error *)0)->text - 32];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return swiglu_fail(json->error, SWIGLU_E_FORMAT, offset, 0, "%s: %s (at byte %llu)", json->file->shown, text,
                       (unsigned long long)offset);
}

/* ---- bytes ---- */

static enum swiglu_status json_refill(struct swiglu_json *json) {
    const uint64_t left = json->end - json->at;
    const size_t n = left < sizeof json->window ? (size_t)left : sizeof json->window;
    json->window_bytes = 0;
    TRY(swiglu_file_read(json->file, json->at, json->window, n, json->error));
    json->window_at = json->at, json->window_bytes = n;
    return SWIGLU_OK;
}

/* The next byte, not yet taken (json->at++ takes it), or NONE. */
static enum swiglu_status json_peek(struct swiglu_json *json, int *byte) {
    *byte = NONE;
    if (json->at == json->end) return SWIGLU_OK;
    if (json->at - json->window_at >= json->window_bytes) TRY(json_refill(json));
    *byte = json->window[json->at - json->window_at];
    return SWIGLU_OK;
}

static enum swiglu_status json_peek_word(struct swiglu_json *json, int *byte) {
    for (;; json->at++) {
        TRY(json_peek(json, byte));
        if (*byte != ' ' && *byte != '\t' && *byte != '\n' && *byte != '\r') return SWIGLU_OK;
    }
}

/* The byte at hand cannot stand here. */
static enum swiglu_status json_unexpected(const struct swiglu_json *json, int byte, const char *wanted) {
    char shown[8];
    if (byte == NONE) return swiglu_json_fail(json, json->at, "%s: ends where %s is expected", json->what, wanted);
    const unsigned char c = (unsigned char)byte;
    return swiglu_json_fail(json, json->at, "%s: '%s' where %s is expected", json->what,
                            swiglu_escape(shown, sizeof shown, &c, 1), wanted);
}

static void json_keep(struct swiglu_json *json, unsigned char c) {
    if (json->text_bytes == SWIGLU_LIMIT_KEY) {
        json->cut = true;
    } else {
        json->text[json->text_bytes++] = (char)c;
    }
}

/* ---- strings ---- */

/* A character of several bytes: no overlong form, no surrogate, nothing above U+10FFFF (RFC 3629). */
static enum swiglu_status json_utf8(struct swiglu_json *json, int lead) {
    static const struct { unsigned char first, last, follow, low, high; } forms[] = {
        {0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF}, {0xE1, 0xEC, 2, 0x80, 0xBF},
        {0xED, 0xED, 2, 0x80, 0x9F}, {0xEE, 0xEF, 2, 0x80, 0xBF}, {0xF0, 0xF0, 3, 0x90, 0xBF},
        {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F},
    };
    size_t f = 0;
    while (f < sizeof forms / sizeof forms[0] && (lead < forms[f].first || lead > forms[f].last)) f++;
    if (f == sizeof forms / sizeof forms[0]) return json_unexpected(json, lead, "UTF-8");
    int low = forms[f].low, high = forms[f].high, byte = lead;
    for (int i = 0;; i++) {
        json_keep(json, (unsigned char)byte);
        json->at++;
        if (i == forms[f].follow) return SWIGLU_OK;
        TRY(json_peek(json, &byte));
        if (byte < low || byte > high) return json_unexpected(json, byte, "the rest of a UTF-8 character");
        low = 0x80, high = 0xBF;
    }
}

static enum swiglu_status json_hex4(struct swiglu_json *json, unsigned *unit) {
    *unit = 0;
    for (int i = 0, byte; i < 4; i++, json->at++) {
        TRY(json_peek(json, &byte));
        const int lower = byte | 0x20;
        int digit = NONE;
        if (byte >= '0' && byte <= '9') digit = byte - '0';
        if (lower >= 'a' && lower <= 'f') digit = lower - 'a' + 10;
        if (digit == NONE) return json_unexpected(json, byte, "a hex digit");
        *unit = 16 * *unit + (unsigned)digit;
    }
    return SWIGLU_OK;
}

/* After "\u": one UTF-16 unit, or two that are a pair. */
static enum swiglu_status json_unicode(struct swiglu_json *json, uint64_t start) {
    unsigned c, low = 0;
    TRY(json_hex4(json, &c));
    if (c >= 0xD800 && c < 0xDC00) {
        int byte;
        for (const char *p = "\\u"; *p; p++, json->at++) {
            TRY(json_peek(json, &byte));
            if (byte != *p) return swiglu_json_fail(json, start, "%s: half of a surrogate pair", json->what);
        }
        TRY(json_hex4(json, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return swiglu_json_fail(json, start, "%s: half of a surrogate pair", json->what);
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c <= 0xDFFF) {
        return swiglu_json_fail(json, start, "%s: half of a surrogate pair", json->what);
    }
    if (c < 0x80) {
        json_keep(json, (unsigned char)c);
        return SWIGLU_OK;
    }
    const int follow = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[4] = {0, 0xC0, 0xE0, 0xF0};
    json_keep(json, (unsigned char)(lead[follow] | c >> (6 * follow)));
    for (int i = follow - 1; i >= 0; i--) json_keep(json, (unsigned char)(0x80 | (c >> (6 * i) & 0x3F)));
    return SWIGLU_OK;
}

static enum swiglu_status json_escape(struct swiglu_json *json) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const uint64_t start = json->at++;
    int byte;
    TRY(json_peek(json, &byte));
    if (byte == 'u') {
        json->at++;
        return json_unicode(json, start);
    }
    const char *found = byte > 0 ? strchr(from, byte) : NULL;
    if (!found) return json_unexpected(json, byte, "an escape (one of \"\\/bfnrtu)");
    json->at++;
    json_keep(json, (unsigned char)to[found - from]);
    return SWIGLU_OK;
}

/* From the opening to the closing quote. */
static enum swiglu_status json_string(struct swiglu_json *json) {
    int byte;
    for (json->at++;;) {
        TRY(json_peek(json, &byte));
        if (byte == '"') break;
        if (byte < 0x20) return json_unexpected(json, byte, "a character of a string");
        if (byte == '\\') {
            TRY(json_escape(json));
        } else if (byte >= 0x80) {
            TRY(json_utf8(json, byte));
        } else {
            json_keep(json, (unsigned char)byte);
            json->at++;
        }
    }
    json->at++;
    json->text[json->text_bytes] = 0;
    return SWIGLU_OK;
}

/* ---- numbers and words ---- */

/* Takes digits, at least one, and counts their value; *fits becomes false above 2^64-1. */
static enum swiglu_status json_digits(struct swiglu_json *json, bool *fits) {
    int byte;
    TRY(json_peek(json, &byte));
    if (byte < '0' || byte > '9') return json_unexpected(json, byte, "a digit");
    do {
        const unsigned digit = (unsigned)(byte - '0');
        *fits = *fits && json->integer <= (UINT64_MAX - digit) / 10;
        json->integer = *fits ? 10 * json->integer + digit : 0;
        json_keep(json, (unsigned char)byte);
        json->at++;
        TRY(json_peek(json, &byte));
    } while (byte >= '0' && byte <= '9');
    return SWIGLU_OK;
}

static enum swiglu_status json_word(struct swiglu_json *json, const char *word, enum swiglu_json_token token) {
    int byte;
    for (const char *p = word; *p; p++, json->at++) {
        TRY(json_peek(json, &byte));
        if (byte != *p) return json_unexpected(json, byte, word);
        json_keep(json, (unsigned char)byte);
    }
    json->text[json->text_bytes] = 0;
    json->token = token;
    return SWIGLU_OK;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static enum swiglu_status json_number(struct swiglu_json *json) {
    bool fits = true;
    int byte;
    TRY(json_peek(json, &byte));
    const bool minus = byte == '-';
    if (minus) {
        json_keep(json, '-');
        json->at++;
        TRY(json_peek(json, &byte));
        if (byte == 'I' && json->not_finite) return json_word(json, "Infinity", SWIGLU_JSON_NUMBER);
    }
    const bool zero = byte == '0';
    const uint64_t start = json->at;
    TRY(json_digits(json, &fits));
    if (zero && json->at - start > 1) return swiglu_json_fail(json, start, "%s: a number with a leading 0", json->what);
    const uint64_t whole = json->integer, end = json->at;
    const bool integer = fits && !minus;
    TRY(json_peek(json, &byte));
    if (byte == '.') {
        json_keep(json, '.');
        json->at++;
        TRY(json_digits(json, &fits));
        TRY(json_peek(json, &byte));
    }
    if (byte == 'e' || byte == 'E') {
        json_keep(json, (unsigned char)byte);
        json->at++;
        TRY(json_peek(json, &byte));
        if (byte == '+' || byte == '-') {
            json_keep(json, (unsigned char)byte);
            json->at++;
        }
        TRY(json_digits(json, &fits));
    }
    json->text[json->text_bytes] = 0;
    json->integer = whole;
    json->token = integer && json->at == end ? SWIGLU_JSON_INTEGER : SWIGLU_JSON_NUMBER;
    return SWIGLU_OK;
}

/* ---- structure ---- */

static enum swiglu_status json_open(struct swiglu_json *json, bool object) {
    if (json->depth == SWIGLU_LIMIT_JSON_DEPTH)
        return swiglu_json_fail(json, json->at, "%s: depth %u: limit %d", json->what, json->depth + 1,
                                SWIGLU_LIMIT_JSON_DEPTH);
    const uint32_t bit = (uint32_t)1 << json->depth++;
    json->is_object = object ? json->is_object | bit : json->is_object & ~bit;
    json->token = object ? SWIGLU_JSON_OBJECT : SWIGLU_JSON_ARRAY;
    json->expected = object ? FIRST_KEY : FIRST_VALUE;
    json->at++;
    return SWIGLU_OK;
}

static bool json_in_object(const struct swiglu_json *json) {
    return json->depth && (json->is_object >> (json->depth - 1) & 1);
}

static enum swiglu_status json_close(struct swiglu_json *json) {
    json->token = json_in_object(json) ? SWIGLU_JSON_OBJECT_END : SWIGLU_JSON_ARRAY_END;
    json->depth--;
    json->expected = AFTER_VALUE;
    json->at++;
    return SWIGLU_OK;
}

static enum swiglu_status json_key(struct swiglu_json *json, int byte) {
    if (byte != '"') return json_unexpected(json, byte, "a key");
    TRY(json_string(json));
    TRY(json_peek_word(json, &byte));
    if (byte != ':') return json_unexpected(json, byte, "a colon");
    json->at++;
    json->token = SWIGLU_JSON_KEY;
    json->expected = VALUE;
    return SWIGLU_OK;
}

static enum swiglu_status json_value(struct swiglu_json *json, int byte) {
    json->expected = AFTER_VALUE;
    switch (byte) {
    case '{': return json_open(json, true);
    case '[': return json_open(json, false);
    case '"': json->token = SWIGLU_JSON_STRING; return json_string(json);
    case 't': return json_word(json, "true", SWIGLU_JSON_TRUE);
    case 'f': return json_word(json, "false", SWIGLU_JSON_FALSE);
    case 'n': return json_word(json, "null", SWIGLU_JSON_NULL);
    default: break;
    }
    if (byte == 'N' && json->not_finite) return json_word(json, "NaN", SWIGLU_JSON_NUMBER);
    if (byte == 'I' && json->not_finite) return json_word(json, "Infinity", SWIGLU_JSON_NUMBER);
    if (byte == '-' || (byte >= '0' && byte <= '9')) return json_number(json);
    return json_unexpected(json, byte, "a value");
}

enum swiglu_status swiglu_json_next(struct swiglu_json *json) {
    int byte;
    TRY(json_peek_word(json, &byte));
    const bool object = json_in_object(json);
    const int closing = object ? '}' : ']';
    const int expected = json->expected;
    json->text_bytes = 0, json->cut = false, json->integer = 0;
    if (expected == AFTER_VALUE && json->depth == 0) {
        json->offset = json->at;
        json->token = SWIGLU_JSON_END;
        return byte == NONE ? SWIGLU_OK : json_unexpected(json, byte, "the end");
    }
    if (expected == AFTER_VALUE && byte == ',') {
        json->at++;
        TRY(json_peek_word(json, &byte));
    } else if (expected == AFTER_VALUE && byte != closing) {
        return json_unexpected(json, byte, object ? "a comma or '}'" : "a comma or ']'");
    } else if (expected != VALUE && byte == closing) {
        json->offset = json->at;
        return json_close(json);
    }
    json->offset = json->at;
    return object && expected != VALUE ? json_key(json, byte) : json_value(json, byte);
}

enum swiglu_status swiglu_json_skip(struct swiglu_json *json) {
    const unsigned depth = json->depth;
    do TRY(swiglu_json_next(json));
    while (json->depth > depth);
    return SWIGLU_OK;
}

char *swiglu_json_show(const struct swiglu_json *json, char *dst, size_t dst_bytes) {
    static const char *const words[] = {
        [SWIGLU_JSON_OBJECT] = "an object", [SWIGLU_JSON_OBJECT_END] = "the end of an object",
        [SWIGLU_JSON_ARRAY] = "an array",   [SWIGLU_JSON_ARRAY_END] = "the end of an array",
        [SWIGLU_JSON_KEY] = "the key",      [SWIGLU_JSON_STRING] = "the string",
        [SWIGLU_JSON_INTEGER] = "the number", [SWIGLU_JSON_NUMBER] = "the number",
        [SWIGLU_JSON_TRUE] = "true",        [SWIGLU_JSON_FALSE] = "false",
        [SWIGLU_JSON_NULL] = "null",        [SWIGLU_JSON_END] = "the end",
    };
    enum { SHOWN = 40 };
    char shown[4 * SHOWN + 8];
    const bool number = json->token == SWIGLU_JSON_INTEGER || json->token == SWIGLU_JSON_NUMBER;
    const bool string = json->token == SWIGLU_JSON_KEY || json->token == SWIGLU_JSON_STRING;
    const size_t n = json->text_bytes < SHOWN ? json->text_bytes : SHOWN;
    if (!number && !string) {
        snprintf(dst, dst_bytes, "%s", words[json->token]);
    } else {
        const char *quote = string ? "\"" : "", *more = json->text_bytes > n ? "..." : "";
        swiglu_escape(shown, sizeof shown, json->text, n);
        snprintf(dst, dst_bytes, "%s %s%s%s%s", words[json->token], quote, shown, more, quote);
    }
    return dst;
}
