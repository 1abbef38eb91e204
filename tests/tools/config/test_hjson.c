/* SPDX-License-Identifier: Apache-2.0 */
/* What of Hjson is read, and that a refusal names its place. */
#include "cli/config/hjson.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A block of its own size, so that a sanitizer sees a read beyond its NUL. */
static int read_bytes(const char *text, size_t size, struct hjson *h, struct hjson_fault *fault)
{
    char *copy = malloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    const int native = hjson_read(copy, size, h, fault);
    free(copy);
    return native;
}

static void expect_entry(const char *text, const char *path, enum jsn_type type, const char *value)
{
    struct hjson h;
    struct hjson_fault fault = {.why = ""};
    if (read_bytes(text, strlen(text), &h, &fault))
        fail_msg("%s: refused: %s at %u:%u", text, fault.why, fault.line, fault.column);
    const struct hjson_entry *e = hjson_at(&h, path);
    assert_non_null(e);
    assert_int_equal(e->type, type);
    assert_string_equal(e->text, value);
    hjson_free(&h);
}

static void expect_fault(const char *text, uint32_t line, uint32_t column, const char *why)
{
    struct hjson h;
    struct hjson_fault fault = {.why = ""};
    assert_int_equal(read_bytes(text, strlen(text), &h, &fault), -EBADMSG);
    if (!strstr(fault.why, why) || fault.line != line || fault.column != column)
        fail_msg("%s: '%s' at %u:%u, want '%s' at %u:%u", text, fault.why, fault.line, fault.column,
                 why, line, column);
    assert_null(h.entries);
}

static void strict_json_is_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": {\"b\": [1, 2.5e-1, {\"c\": \"x\\u00e4\\n\"}], \"d\": null},"
        "\"e\": true, \"f\": false, \"g\": 5e8}";
    expect_entry(text, "a", JSN_OBJECT, "");
    expect_entry(text, "a.b", JSN_ARRAY, "");
    expect_entry(text, "a.b[0]", JSN_NUMBER, "1");
    expect_entry(text, "a.b[1]", JSN_NUMBER, "2.5e-1");
    expect_entry(text, "a.b[2].c", JSN_STRING, "x\xc3\xa4\n");
    expect_entry(text, "a.d", JSN_NULL, "null");
    expect_entry(text, "e", JSN_TRUE, "true");
    expect_entry(text, "f", JSN_FALSE, "false");
    expect_entry(text, "g", JSN_NUMBER, "5e8");
}

static void comments_are_passed_over(void **state)
{
    (void)state;
    expect_entry("# one\n{ // two\n/* three\n*/ \"a\": /* four */ 1 # five\n} // six", "a",
                 JSN_NUMBER, "1");
    expect_entry("{\"a\": \"# no // comment /* here */\"}", "a", JSN_STRING,
                 "# no // comment /* here */");
    expect_fault("{\"a\": 1}\n/* no end *", 2, 1, "a comment without an end");
}

static void commas_may_be_missing_at_line_ends_and_stand_before_ends(void **state)
{
    (void)state;
    static const char text[] = "{\n\"a\": true\n\"b\": {\"c\": 1,},\n\"d\": [1\n2,]\n\"e\": 3,\n}";
    expect_entry(text, "b.c", JSN_NUMBER, "1");
    expect_entry(text, "d[1]", JSN_NUMBER, "2");
    expect_entry(text, "e", JSN_NUMBER, "3");
    expect_entry("{\"a\": 1 /* a line\nends here */ \"b\": 2}", "b", JSN_NUMBER, "2");
    expect_fault("{\"a\": 1 \"b\": 2}", 1, 9, "no comma between two values of one line");
    expect_fault("{\"a\": {} \"b\": 2}", 1, 10, "no comma between");
    expect_fault("{\"a\": 1,,}", 1, 9, "a comma where no value");
    expect_fault("{,}", 1, 2, "a comma where no value");
    expect_fault("[1]", 1, 1, "no {");
}

static void keys_may_be_without_quotes(void **state)
{
    (void)state;
    expect_entry("{a_1: 2, b-c: {$d: \"e\"}}", "b-c.$d", JSN_STRING, "e");
    expect_entry("{\"a.b\": 1, a: {b: 2}}", "a.b", JSN_NUMBER, "2");
    expect_fault("{: 1}", 1, 2, "something where a key belongs");
    expect_fault("{a b: 1}", 1, 4, "the colon behind a key");
    expect_fault("{a", 1, 3, "the colon behind a key");
    expect_fault("{'a': 1}", 1, 2, "something where a key belongs");
}

static void texts_need_double_quotes(void **state)
{
    (void)state;
    expect_fault("{a: cpu,\n}", 1, 5, "something that is no value");
    expect_fault("{a: 'cpu'}", 1, 5, "single quotes");
    expect_fault("{a: '''cpu'''}", 1, 5, "single quotes");
    expect_fault("{a: truely}", 1, 5, "something that is no value");
    expect_fault("{a: 1x}", 1, 5, "something that is no value");
    expect_fault("{a: NaN}", 1, 5, "something that is no value");
    expect_fault("{a: 01}", 1, 5, "something that is no value");
    expect_fault("{a: +1}", 1, 5, "something that is no value");
}

static void a_key_twice_is_refused_by_its_place(void **state)
{
    (void)state;
    expect_fault("{\"a\": 1,\n \"b\": 2, \"\\u0061\": 3}", 2, 10, "'a' twice (line 1");
    expect_entry("{\"a\": {\"a\": 1}, \"b\": {\"a\": 2}}", "b.a", JSN_NUMBER, "2");
}

static void columns_count_characters(void **state)
{
    (void)state;
    expect_fault("{\"\xc3\xa4\xe2\x82\xac\": ?}", 1, 8, "something that is no value");
    expect_fault("{\r\n\"a\": 1,\r\n  \"b\": ?}", 3, 8, "something that is no value");
}

static void hostile_texts_are_refused(void **state)
{
    (void)state;
    struct hjson h;
    struct hjson_fault fault;
    expect_fault("\xef\xbb\xbf{}", 1, 1, "a byte order mark");
    expect_fault("{\"a\": \"\\ud800\"}", 1, 8, "a lone surrogate");
    expect_fault("{\"a\": \"\\u0000\"}", 1, 8, "a NUL");
    expect_fault("{\"a\": \"\xff\"}", 1, 8, "not UTF-8");
    expect_fault("{\"a\": 1e999}", 1, 7, "too great");
    expect_fault("{\"a\": 1", 1, 8, "its end, too early");
    expect_fault("{\"a\":", 1, 6, "a value without an end");
    expect_fault("", 1, 1, "no {");
    expect_fault("{} {}", 1, 4, "something behind the end");
    expect_fault("{\"a\": [1}", 1, 9, "an end that does not fit");
    assert_int_equal(read_bytes("{\"a\0\": 1}", 9, &h, &fault), -EBADMSG);
    assert_int_equal(read_bytes("{\0}", 3, &h, &fault), -EBADMSG);
    assert_int_equal(fault.column, 2);
}

static void limits_hold(void **state)
{
    (void)state;
    struct hjson h;
    struct hjson_fault fault;
    char *text = malloc(HJSON_MAX_BYTES + 2);
    memset(text, '[', 1100);
    memcpy(text, "{a:", 3);
    assert_int_equal(read_bytes(text, 1100, &h, &fault), -EBADMSG);
    assert_non_null(strstr(fault.why, "more than 16 levels"));
    assert_int_equal(fault.column, 19);
    size_t n = (size_t)sprintf(text, "{a: [");
    for (uint32_t i = 0; i < HJSON_MAX_ENTRIES - 2; i++)
        n += (size_t)sprintf(text + n, "1,");
    memcpy(text + n, "]}", 3);
    assert_int_equal(read_bytes(text, n + 2, &h, &fault), 0);
    assert_int_equal(h.count, HJSON_MAX_ENTRIES);
    hjson_free(&h);
    memcpy(text + n, "1]}", 4);
    assert_int_equal(read_bytes(text, n + 3, &h, &fault), -EBADMSG);
    assert_non_null(strstr(fault.why, "more than 2,048 values"));
    memset(text, ' ', HJSON_MAX_BYTES + 1);
    memcpy(text, "{}", 2);
    assert_int_equal(read_bytes(text, HJSON_MAX_BYTES, &h, &fault), 0);
    hjson_free(&h);
    assert_int_equal(read_bytes(text, HJSON_MAX_BYTES + 1, &h, &fault), -EFBIG);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_json_is_read),
        cmocka_unit_test(comments_are_passed_over),
        cmocka_unit_test(commas_may_be_missing_at_line_ends_and_stand_before_ends),
        cmocka_unit_test(keys_may_be_without_quotes),
        cmocka_unit_test(texts_need_double_quotes),
        cmocka_unit_test(a_key_twice_is_refused_by_its_place),
        cmocka_unit_test(columns_count_characters),
        cmocka_unit_test(hostile_texts_are_refused),
        cmocka_unit_test(limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
