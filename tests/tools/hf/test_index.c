/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded models: what the index may say, where files may lie, and how both must agree. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX       "model.safetensors.index.json"
#define F32_4(name) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"

static void put_shards(const char *dir)
{
    put_config(dir, "");
    put_tensors(dir, "a.safetensors", "{" F32_4("x") "}", 16);
    put_tensors(dir, "b.safetensors", "{" F32_4("y") "}", 16);
}

static void put_map(const char *dir, const char *map)
{
    char text[1000];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":32},\"weight_map\":%s}", map);
    put_text(dir, INDEX, text);
}

static const char good_map[] = "{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\"}";

static void a_model_in_two_files_is_opened(void **state)
{
    put_shards(*state);
    put_map(*state, good_map);
    struct hf_model *model = open_model(*state, true);
    float v[4];
    size_t unused;
    uint64_t dims[] = {4};
    assert_int_equal(hf_model_require(model, "y", 1, dims, NULL), 0);
    assert_int_equal(hf_model_read(model, "y", 0, v, 4, NULL), 0);
    assert_string_equal(hf_model_unused(model, &unused), "x");
    assert_int_equal(unused, 1);
    assert_null(hf_model_note(model, 0));
    hf_model_close(&model);
}

static void a_file_name_with_a_path_is_refused(void **state)
{
    static const char *const names[] = {
        "/etc/passwd", "../a.safetensors", "sub/a.safetensors", "a\\\\b", "", ".",
        "..",          "\\u002e\\u002e/a"};
    char map[400], longest[257];
    put_shards(*state);
    for (size_t i = 0; i <= sizeof names / sizeof *names; i++) {
        memset(longest, 'n', 256);
        longest[256] = '\0';
        snprintf(map, sizeof map, "{\"x\":\"%s\",\"y\":\"b.safetensors\"}",
                 i < sizeof names / sizeof *names ? names[i] : longest);
        put_map(*state, map);
        expect_refusal(*state, true, FAIL_INDEX, "want a plain file name");
    }
}

static void a_link_that_leaves_the_directory_is_refused_with_the_way_out(void **state)
{
    char outside[4096], inside[4096], target[4096];
    snprintf(outside, sizeof outside, "%s/blobs", (char *)*state);
    snprintf(inside, sizeof inside, "%s/snapshot", (char *)*state);
    assert_int_equal(mkdir(outside, 0700) || mkdir(inside, 0700), 0);
    put_shards(outside);
    put_shards(inside);
    put_map(inside, good_map);
    snprintf(target, sizeof target, "%s/snapshot/b.safetensors", (char *)*state);
    static const char *const links[] = {"../blobs/b.safetensors", "/proc/self/exe"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unlink(target) || symlink(links[i], target), 0);
        expect_refusal(inside, true, FAIL_INDEX,
                       "b.safetensors: a symbolic link.*Hugging Face cache.*cp -rL");
    }
    snprintf(target, sizeof target, "%s/snapshot/config.json", (char *)*state);
    assert_int_equal(unlink(target) || symlink("../blobs/config.json", target), 0);
    expect_refusal(inside, true, FAIL_CONFIG_FILE, "config.json: a symbolic link.*cp -rL");
}

static void a_link_within_the_directory_is_followed(void **state)
{
    char target[4096];
    put_shards(*state);
    snprintf(target, sizeof target, "%s/c.safetensors", (char *)*state);
    assert_int_equal(symlink("b.safetensors", target), 0);
    put_map(*state, "{\"x\":\"a.safetensors\",\"y\":\"c.safetensors\"}");
    struct hf_model *model = open_model(*state, true);
    hf_model_close(&model);
}

static void a_fifo_or_directory_in_place_of_a_file_is_refused(void **state)
{
    char path[4096];
    put_shards(*state);
    put_map(*state, good_map);
    snprintf(path, sizeof path, "%s/b.safetensors", (char *)*state);
    assert_int_equal(unlink(path) || mkfifo(path, 0600), 0);
    expect_refusal(*state, true, FAIL_INDEX, "b.safetensors: not a regular file");
    assert_int_equal(unlink(path) || mkdir(path, 0700), 0);
    expect_refusal(*state, true, FAIL_INDEX, "b.safetensors: not a regular file");
    assert_int_equal(rmdir(path), 0);
    expect_refusal(*state, true, FAIL_INDEX, "b.safetensors: there is no such file");
}

static void an_index_that_contradicts_its_files_is_refused(void **state)
{
    put_shards(*state);
    put_map(*state, "{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"b.safetensors\"}");
    expect_refusal(*state, true, FAIL_INDEX,
                   "tensor z is listed, but b.safetensors does not have it");
    put_map(*state, "{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}");
    expect_refusal(*state, true, FAIL_INDEX,
                   "tensor x is listed in b.safetensors, but it is in .*a.saf");
    put_map(*state, good_map);
    put_tensors(*state, "b.safetensors",
                "{" F32_4("y") ",\"w\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                16);
    expect_refusal(*state, true, FAIL_INDEX, "b.safetensors: tensor w is not in the index");
    put_tensors(*state, "b.safetensors",
                "{" F32_4("y") ",\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                16);
    expect_refusal(*state, true, FAIL_INDEX, "tensor x is also in ");
}

static void a_wrong_total_size_is_noted_and_no_more(void **state)
{
    put_shards(*state);
    put_text(*state, INDEX,
             "{\"metadata\":{\"total_size\":31},\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b."
             "safetensors\"}}");
    struct hf_model *model = open_model(*state, true);
    assert_non_null(hf_model_note(model, 0));
    assert_matches(hf_model_note(model, 0)->text, "total_size is 31, the tensors have 32 bytes");
    hf_model_close(&model);
}

static void a_malformed_index_is_refused(void **state)
{
    static const char *const rows[][2] = {
        {"", "its end, too early"},
        {"[]", "no object"},
        {"{}", "weight_map is not there"},
        {"{\"weight_map\":[]}", "weight_map is not there or not an object"},
        {"{\"weight_map\":{\"x\":1}}", "gives tensor x something that is no file name"},
        {"{\"weight_map\":{\"x\":[\"a.safetensors\"]}}", "something that is no file name"},
        {"{\"weight_map\":{\"x\":\"a\",\"\\u0078\":\"a\"}}", "a key that stands there twice"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "a key that stands there twice"},
        {"{\"weight_map\":{\"x\":\"a\"}", "its end, too early"},
    };
    put_shards(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text(*state, INDEX, rows[i][0]);
        expect_refusal(*state, true, FAIL_INDEX, rows[i][1]);
    }
}

static void an_index_of_ten_million_entries_is_refused(void **state)
{
    size_t n = 10000000;
    char *text = malloc(n * 9 + 100);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "{\"weight_map\":{\"\":\"\"");
    for (size_t i = 0; i < n; i++, at += 8)
        memcpy(text + at, ",\"a\":\"b\"", 8);
    strcpy(text + at, "}}");
    put_shards(*state);
    put_text(*state, INDEX, text);
    free(text);
    expect_refusal(*state, true, FAIL_INDEX, "too many keys");
}

/* Sorted by something that looks at escapes in each comparison, these would take minutes. */
static void long_keys_that_differ_late_take_little_time(void **state)
{
    enum { KEYS = 60000, LENGTH = 1000 };
    char *text = malloc((size_t)KEYS * (LENGTH + 40) + 100);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "{\"weight_map\":{\"\":\"x\"");
    for (int i = 0; i < KEYS; i++) {
        at += (size_t)sprintf(text + at, ",\"\\u0061");
        memset(text + at, 'b', LENGTH);
        at += LENGTH;
        at += (size_t)sprintf(text + at, "%d\":\"x\"", i / 2);
    }
    strcpy(text + at, "}}");
    put_shards(*state);
    put_text(*state, INDEX, text);
    free(text);
    expect_refusal(*state, true, FAIL_INDEX, "a key that stands there twice: abbb");
}

static void an_index_of_too_many_files_is_refused(void **state)
{
    char *text = malloc(5000 * 20 + 100);
    assert_non_null(text);
    size_t at = (size_t)sprintf(text, "{\"weight_map\":{\"\":\"0\"");
    for (int i = 1; i < 5000; i++)
        at += (size_t)sprintf(text + at, ",\"%d\":\"%d\"", i, i);
    strcpy(text + at, "}}");
    put_shards(*state);
    put_text(*state, INDEX, text);
    free(text);
    expect_refusal(*state, true, FAIL_INDEX, "5000 files, at most 4096");
}

static void a_directory_without_weights_is_refused_only_where_they_are_needed(void **state)
{
    size_t unused;
    put_config(*state, "");
    expect_refusal(*state, true, FAIL_SAFETENSORS, "no weights: neither model.safetensors nor");
    struct hf_model *model = open_model(*state, false);
    assert_int_equal(hf_model_config(model)->hidden, 8);
    assert_null(hf_model_unused(model, &unused));
    hf_model_close(&model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(a_model_in_two_files_is_opened),
        TEST(a_file_name_with_a_path_is_refused),
        TEST(a_link_that_leaves_the_directory_is_refused_with_the_way_out),
        TEST(a_link_within_the_directory_is_followed),
        TEST(a_fifo_or_directory_in_place_of_a_file_is_refused),
        TEST(an_index_that_contradicts_its_files_is_refused),
        TEST(a_wrong_total_size_is_noted_and_no_more),
        TEST(a_malformed_index_is_refused),
        TEST(an_index_of_ten_million_entries_is_refused),
        TEST(long_keys_that_differ_late_take_little_time),
        TEST(an_index_of_too_many_files_is_refused),
        TEST(a_directory_without_weights_is_refused_only_where_they_are_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
