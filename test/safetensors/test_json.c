/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader: what is accepted, as which tokens, and the place and words of every refusal. */
#define _XOPEN_SOURCE 700 /* mkstemp, pwrite */
#include "io/gguf_file.h"

#include "io/json.h"

static struct swiglu_json json;
static char trace[1 << 18];
static struct swiglu_error error;
static int not_finite;

static void trace_token(size_t *n) {
    char shown[4096];
    static const char mark[] = "{}[]:\"inTFN.";
    const size_t cut = json.text_bytes < 900 ? json.text_bytes : 900;
    *n += (size_t)snprintf(trace + *n, sizeof trace - *n, "%c", mark[json.token]);
    if (json.token == SWIGLU_JSON_INTEGER) {
        *n += (size_t)snprintf(trace + *n, sizeof trace - *n, "%llu ", (unsigned long long)json.integer);
    } else if (json.token == SWIGLU_JSON_KEY || json.token == SWIGLU_JSON_STRING || json.token == SWIGLU_JSON_NUMBER) {
        *n += (size_t)snprintf(trace + *n, sizeof trace - *n, "%s ",
                               swiglu_escape(shown, sizeof shown, json.text, cut));
    }
}

/* Reads all of the text; the tokens are in trace. */
static enum swiglu_status read_bytes(const void *text, size_t bytes) {
    char path[64];
    size_t n = 0;
    struct swiglu_file file;
    enum swiglu_status status;
    const int fd = new_file(path, text, bytes);
    error = (struct swiglu_error){.struct_size = sizeof error};
    assert_int_equal(swiglu_file_open(&file, path, &error), SWIGLU_OK);
    swiglu_json_begin(&json, &file, "text", 0, bytes, &error);
    json.not_finite = not_finite;
    do {
        status = swiglu_json_next(&json);
        if (status == SWIGLU_OK) trace_token(&n);
    } while (status == SWIGLU_OK && json.token != SWIGLU_JSON_END);
    trace[n] = 0;
    swiglu_file_close(&file);
    close(fd), unlink(path);
    return status;
}

static void accept(const char *text, const char *tokens) {
    assert_int_equal(read_bytes(text, strlen(text)), SWIGLU_OK);
    assert_string_equal(trace, tokens);
}

static void refuse(const char *text, size_t offset, const char *words) {
    assert_int_equal(read_bytes(text, strlen(text)), SWIGLU_E_FORMAT);
    if (!strstr(error.text, words)) fail_msg("%s: %s (%s wanted)", text, error.text, words);
    if (error.offset != offset) fail_msg("%s: %s (byte %zu wanted)", text, error.text, offset);
    for (const char *p = error.text; *p; p++) assert_true(*p >= ' ' && *p <= '~');
}

static void values(void **state) {
    (void)state;
    accept("{}", "{}.");
    accept(" \t\r\n[ ] ", "[].");
    accept("[true,false,null]", "[TFN].");
    accept("{\"a\":{\"b\":[1,{}]},\"c\":\"d\"}", "{:a {:b [i1 {}]}:c \"d }.");
    accept("\"x\"", "\"x .");
    accept("7", "i7 .");
    accept("{\"\":\"\"}", "{: \" }.");
    accept("{\"a\":1,\"a\":2}", "{:a i1 :a i2 }."); /* equal keys are for the caller to see */
}

static void numbers(void **state) {
    (void)state;
    accept("[0,18446744073709551615,18446744073709551616,99999999999999999999]",
           "[i0 i18446744073709551615 n18446744073709551616 n99999999999999999999 ].");
    accept("[-1,-0,1.0,1e0,1E+5,0.5e-7,-12.25]", "[n-1 n-0 n1.0 n1e0 n1E+5 n0.5e-7 n-12.25 ].");
    refuse("01", 0, "leading 0");
    refuse("-01", 1, "leading 0");
    refuse("-", 1, "a digit");
    refuse("1.", 2, "a digit");
    refuse(".5", 0, "a value");
    refuse("1e", 2, "a digit");
    refuse("1e+", 3, "a digit");
    refuse("+1", 0, "a value");
    refuse("1 2", 2, "'2' where the end is expected");
    refuse("0x10", 1, "'x'");
}

static void not_finite_only_when_asked(void **state) {
    (void)state;
    refuse("[NaN]", 1, "a value");
    refuse("[Infinity]", 1, "a value");
    refuse("[-Infinity]", 2, "a digit");
    not_finite = 1;
    accept("[NaN,Infinity,-Infinity]", "[nNaN nInfinity n-Infinity ].");
    refuse("[Nan]", 3, "NaN");
    refuse("[Infinite]", 8, "Infinity");
    refuse("[-Inf]", 5, "Infinity");
    not_finite = 0;
}

static void structure(void **state) {
    (void)state;
    refuse("", 0, "ends where a value is expected");
    refuse("  ", 2, "ends where a value is expected");
    refuse("{", 1, "ends where a key is expected");
    refuse("[", 1, "ends where a value is expected");
    refuse("[1,]", 3, "']' where a value is expected");
    refuse("[1 2]", 3, "a comma or ']'");
    refuse("[1}", 2, "a comma or ']'");
    refuse("{\"a\":1]", 6, "a comma or '}'");
    refuse("{\"a\":1,}", 7, "'}' where a key is expected");
    refuse("{\"a\"}", 4, "a colon");
    refuse("{\"a\":}", 5, "a value");
    refuse("{a:1}", 1, "a key");
    refuse("{1:1}", 1, "a key");
    refuse("{,}", 1, "a key");
    refuse("[,]", 1, "a value");
    refuse("]", 0, "a value");
    refuse("{}}", 2, "the end");
    refuse("{} x", 3, "the end");
    refuse("tru", 3, "true");
    refuse("nul", 3, "null");
    refuse("falsy", 4, "false");
    refuse("truee", 4, "the end");
    refuse("\xEF\xBB\xBF{}", 0, "'\\xef' where a value is expected");
    refuse("// x\n1", 0, "a value");
    refuse("[1\v]", 2, "'\\x0b'");
    assert_int_equal(read_bytes("{}\0", 3), SWIGLU_E_FORMAT);
    assert_int_equal(error.offset, 2);
}

static void escapes(void **state) {
    (void)state;
    accept("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\"\\x5c/\\x08\\x0c\\x0a\\x0d\\x09 .");
    accept("\"\\u0061\\u00E9\\u20ac\\ud83d\\uDE00\\u0000\"", "\"a\\xc3\\xa9\\xe2\\x82\\xac\\xf0\\x9f\\x98\\x80\\x00 .");
    assert_int_equal(json.token, SWIGLU_JSON_END);
    refuse("\"\\x41\"", 2, "an escape");
    refuse("\"\\U0041\"", 2, "an escape");
    refuse("\"\\", 2, "an escape");
    refuse("\"\\u12g4\"", 5, "a hex digit");
    refuse("\"\\u12", 5, "a hex digit");
    refuse("\"\\ud800\"", 1, "surrogate");
    refuse("\"\\ud800x\"", 1, "surrogate");
    refuse("\"\\ud800\\n\"", 1, "surrogate");
    refuse("\"\\ud800\\u0041\"", 1, "surrogate");
    refuse("\"a\\udc00\"", 2, "surrogate");
    refuse("\"a\nb\"", 2, "'\\x0a'");
    refuse("\"a", 2, "a character of a string");
    accept("\"\x7f\"", "\"\\x7f ."); /* DEL is allowed */
}

static void utf8(void **state) {
    (void)state;
    static const char *const good[] = {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                                       "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"};
    static const struct { const char *bytes; size_t at; } bad[] = {
        {"\x80", 0}, {"\xBF", 0}, {"\xC0\x80", 0}, {"\xC1\xBF", 0}, {"\xC2", 1}, {"\xC2\x41", 1}, {"\xE0\x9F\xBF", 1},
        {"\xED\xA0\x80", 1}, {"\xE2\x82", 2}, {"\xE2\x28\xA1", 1}, {"\xF0\x8F\xBF\xBF", 1}, {"\xF4\x90\x80\x80", 1},
        {"\xF0\x90\x80", 3}, {"\xF5\x80\x80\x80", 0}, {"\xFE", 0}, {"\xFF", 0},
    };
    char text[32];
    for (size_t i = 0; i < COUNT(good); i++) {
        snprintf(text, sizeof text, "\"%s\"", good[i]);
        assert_int_equal(read_bytes(text, strlen(text)), SWIGLU_OK);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        snprintf(text, sizeof text, "\"%s\"", bad[i].bytes);
        refuse(text, 1 + bad[i].at, "UTF-8");
    }
}

static void depth(void **state) {
    (void)state;
    char text[128];
    memset(text, '[', 33), memset(text + 33, ']', 33), text[66] = 0;
    refuse(text, 32, "depth 33: limit 32");
    memset(text, '[', 32), memset(text + 32, ']', 32), text[64] = 0;
    assert_int_equal(read_bytes(text, 64), SWIGLU_OK);
    for (int i = 0; i < 17; i++) strcpy(text + 6 * i, "{\"a\":["); /* two levels each */
    refuse(text, 96, "depth 33: limit 32");
}

/* Levels of both kinds are told apart when they close. */
static void mixed_levels(void **state) {
    (void)state;
    accept("[{\"a\":[{\"b\":[]}]},[{}]]", "[{:a [{:b []}]}[{}]].");
    refuse("[{\"a\":[{\"b\":[]]}]", 14, "a comma or '}'");
}

static void long_strings(void **state) {
    (void)state;
    static char text[300000];
    const size_t n = 200000; /* more than a window, and more than is kept */
    text[0] = '"';
    for (size_t i = 1; i <= n; i += 2) memcpy(text + i, "\xC3\xA9", 2);
    text[n + 1] = '"';
    assert_int_equal(read_bytes(text, n + 2), SWIGLU_OK);
    assert_int_equal(json.token, SWIGLU_JSON_END);
    text[n] = 'x'; /* the last character is broken */
    assert_int_equal(read_bytes(text, n + 2), SWIGLU_E_FORMAT);
    assert_int_equal(error.offset, n);
}

static void cut_is_told(void **state) {
    (void)state;
    static char text[70000];
    char path[64];
    struct swiglu_file file;
    for (size_t n = SWIGLU_LIMIT_KEY; n <= SWIGLU_LIMIT_KEY + 1; n++) {
        text[0] = text[n + 1] = '"';
        memset(text + 1, 'k', n);
        const int fd = new_file(path, text, n + 2);
        assert_int_equal(swiglu_file_open(&file, path, &error), SWIGLU_OK);
        swiglu_json_begin(&json, &file, "text", 0, n + 2, &error);
        assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
        assert_int_equal(json.cut, n > SWIGLU_LIMIT_KEY);
        assert_int_equal(json.text_bytes, SWIGLU_LIMIT_KEY);
        assert_int_equal(strlen(json.text), SWIGLU_LIMIT_KEY);
        swiglu_file_close(&file);
        close(fd), unlink(path);
    }
}

static void skip_and_show(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,{\"b\":[]}],\"c\":\"\\u001b[2J\",\"d\":-1}";
    char path[64], shown[256];
    struct swiglu_file file;
    const int fd = new_file(path, text, sizeof text - 1);
    assert_int_equal(swiglu_file_open(&file, path, &error), SWIGLU_OK);
    swiglu_json_begin(&json, &file, "text", 0, sizeof text - 1, &error);
    assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
    assert_string_equal(swiglu_json_show(&json, shown, sizeof shown), "an object");
    assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
    assert_string_equal(swiglu_json_show(&json, shown, sizeof shown), "the key \"a\"");
    assert_int_equal(swiglu_json_skip(&json), SWIGLU_OK);
    assert_int_equal(json.token, SWIGLU_JSON_ARRAY_END);
    assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
    assert_string_equal(json.text, "c");
    assert_int_equal(json.offset, 18);
    assert_int_equal(swiglu_json_skip(&json), SWIGLU_OK);
    assert_string_equal(swiglu_json_show(&json, shown, sizeof shown), "the string \"\\x1b[2J\"");
    assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
    assert_int_equal(swiglu_json_skip(&json), SWIGLU_OK);
    assert_string_equal(swiglu_json_show(&json, shown, sizeof shown), "the number -1");
    assert_int_equal(swiglu_json_next(&json), SWIGLU_OK);
    assert_int_equal(json.token, SWIGLU_JSON_OBJECT_END);
    swiglu_file_close(&file);
    close(fd), unlink(path);
}

static void file_that_shrank(void **state) {
    (void)state;
    char path[64];
    struct swiglu_file file;
    const int fd = new_file(path, "[1, 2]", 6);
    assert_int_equal(swiglu_file_open(&file, path, &error), SWIGLU_OK);
    assert_int_equal(ftruncate(fd, 3), 0);
    swiglu_json_begin(&json, &file, "text", 0, 6, &error);
    assert_int_equal(swiglu_json_next(&json), SWIGLU_E_READ);
    assert_int_equal(error.status, SWIGLU_E_READ);
    swiglu_file_close(&file);
    close(fd), unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),       cmocka_unit_test(numbers),      cmocka_unit_test(not_finite_only_when_asked),
        cmocka_unit_test(structure),    cmocka_unit_test(escapes),      cmocka_unit_test(utf8),
        cmocka_unit_test(depth),        cmocka_unit_test(mixed_levels), cmocka_unit_test(long_strings),
        cmocka_unit_test(cut_is_told),  cmocka_unit_test(skip_and_show), cmocka_unit_test(file_that_shrank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
