/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int n_members;

/* Bytes of the UTF-8 character at s, or 0 where the bytes are none (RFC 3629: no overlong form, no surrogate). */
static size_t utf8_length(const unsigned char *s) {
    size_t n = 0;
    if (s[0] < 0x80) n = 1;
    if (s[0] >= 0xc2 && s[0] < 0xe0) n = 2;
    if ((s[0] & 0xf0) == 0xe0) n = 3;
    if (s[0] >= 0xf0 && s[0] <= 0xf4) n = 4;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0))) return 0;
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))) return 0;
    return n;
}

static void write_string(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    putchar('"');
    while (*s) {
        size_t n = utf8_length(s);
        if (n == 0)
            fputs("\\ufffd", stdout), n = 1;
        else if (*s == '"' || *s == '\\')
            putchar('\\'), putchar(*s);
        else if (*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            fwrite(s, 1, n, stdout);
        s += n;
    }
    putchar('"');
}

static void begin_member(const char *key) {
    if (n_members++) fputs(", ", stdout);
    if (!key) return;
    write_string(key);
    fputs(": ", stdout);
}

void cli_json_open(const char *kind) {
    n_members = 0;
    putchar('{');
    cli_json_string("kind", kind);
}

void cli_json_close(void) {
    fputs("}\n", stdout);
    fflush(stdout);
}

void cli_json_string(const char *key, const char *value) {
    begin_member(key);
    write_string(value);
}

void cli_json_number(const char *key, double value) {
    begin_member(key);
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}

void cli_json_count(const char *key, uint64_t value) {
    begin_member(key);
    printf("%" PRIu64, value);
}

void cli_json_flag(const char *key, int value) {
    begin_member(key);
    fputs(value ? "true" : "false", stdout);
}

void cli_json_list(const char *key) {
    begin_member(key);
    putchar('[');
    n_members = 0;
}

void cli_json_list_end(void) {
    putchar(']');
    n_members = 1;
}
