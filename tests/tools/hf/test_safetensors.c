/* SPDX-License-Identifier: Apache-2.0 */
/* Malformed safetensors files: each is refused with E410 and a line that says what is wrong. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define T(dtype, shape, begin, end)                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define F32_4 T("F32", "[4]", "0", "16")

struct row {
    int number; /* of a bad input, as in tests/hostile/corpus.py */
    const char *header;
    size_t data_bytes;
    const char *pattern;
};

static const struct row rows[] = {
    {4, "{}", 16, "16 bytes of data, its tensors cover 0"},
    {5, "{\"a\xff\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xc0\xaf\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xe0\x9f\xbf\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xed\xa0\x80\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xf0\x8f\xbf\xbf\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xf4\x90\x80\x80\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"a\xf5\x80\x80\x80\":" F32_4 "}", 16, "not UTF-8"},
    {5, "{\"\\ud800x\":" F32_4 "}", 16, "lone surrogate"},
    {5, "{\"\\udc00\":" F32_4 "}", 16, "lone surrogate"},
    {5, "{\"\\ud800\\u0041\":" F32_4 "}", 16, "lone surrogate"},
    {5, "{\"a\\u0000b\":" F32_4 "}", 16, "NUL"},
    {5, "{\"a\nb\":" F32_4 "}", 16, "control character"},
    {6, "\xef\xbb\xbf{\"a\":" F32_4 "}", 16, "not valid JSON"},
    {6, "[\"a\"]", 0, "does not start with \\{"},
    {6, "\"a\"", 0, "does not start with \\{"},
    {7, "{\"a\":" F32_4, 16, "its end, too early"},
    {7, "{\"a\":{\"dtype\":\"F32", 16, "a string without an end"},
    {7, "{\"a\":" F32_4 "}x", 16, "something after the end"},
    {7, "{\"a\":" F32_4 "}{}", 16, "something after the end"},
    {7, "{\"a\":" F32_4 ",}", 16, "key in quotes"},
    {8, "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", 0, "16 levels"},
    {9, "{\"a\":" F32_4 ",\"a\":" F32_4 "}", 16, "tensor a stands there twice"},
    {9, "{\"a\":" F32_4 ",\"\\u0061\":" F32_4 "}", 16, "tensor a stands there twice"},
    {10, "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
     "tensor a has dtype twice"},
    {10, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"sh\\u0061pe\":[4],\"data_offsets\":[0,16]}}",
     16, "tensor a has shape twice"},
    {10,
     "{\"a\":{\"data_offsets\":[0,16],\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     16, "tensor a has data_offsets twice"},
    {10, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, "tensor a has no data_offsets"},
    {10, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"x\":1,\"data_offsets\":[0,16]}}", 16,
     "tensor a has unknown key x"},
    {11, "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ has a value that is not a string"},
    {11, "{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {11, "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands there twice"},
    {11, "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "__metadata__ has a key.*twice: a"},
    {12, "{\"a\":" T("F33", "[4]", "0", "16") "}", 16, "unknown dtype F33; known: .*BF16.*F32"},
    {12, "{\"a\":{\"dtype\":{},\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "unknown dtype"},
    {13, "{\"a\":" T("F32", "[-4]", "0", "16") "}", 16, "shape of tensor a holds -4"},
    {13, "{\"a\":" T("F32", "[4.0]", "0", "16") "}", 16, "shape of tensor a holds 4.0"},
    {13, "{\"a\":" T("F32", "[1e3]", "0", "16") "}", 16, "shape of tensor a holds 1e3"},
    {13, "{\"a\":" T("F32", "[\"4\"]", "0", "16") "}", 16, "shape of tensor a holds \"4\", want"},
    {13, "{\"a\":" T("F32", "[9223372036854775808]", "0", "16") "}", 16,
     "holds 9223372036854775808"},
    {13, "{\"a\":" T("F32", "[18446744073709551620]", "0", "16") "}", 16, "want whole numbers"},
    {13, "{\"a\":" T("F32", "[18446744073709551616]", "0", "16") "}", 16, "want whole numbers"},
    {13, "{\"a\":" T("F32", "4", "0", "16") "}", 16, "shape of tensor a is not an array"},
    {13, "{\"a\":" T("F32", "[[4]]", "0", "16") "}", 16, "want whole numbers"},
    {13, "{\"a\":[4]}", 16, "the value of tensor a is not an object"},
    {14, "{\"a\":" T("U8", "[4194305,4194305,211106198978564]", "0", "4") "}", 4, "overflows"},
    {14, "{\"a\":" T("F32", "[4611686018427387908]", "0", "16") "}", 16, "overflows"},
    {15, "{\"a\":" T("F32", "[4,1,1,1,1,1,1,1,1]", "0", "16") "}", 16, "more than 8 numbers"},
    {16, "{\"a\":" T("F32", "[5]", "0", "16") "}", 16, "needs 20 bytes, its data_offsets hold 16"},
    {16, "{\"a\":" T("BF16", "[4]", "0", "16") "}", 16, "needs 8 bytes, its data_offsets hold 16"},
    {17, "{\"a\":" T("F32", "[4]", "16", "0") "}", 16, "data_offsets 16 to 0 in 16 bytes"},
    {17, "{\"a\":" T("F32", "[4]", "4", "20") "}", 16, "data_offsets 4 to 20 in 16 bytes"},
    {17, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", 16,
     "has 1 numbers, want 2"},
    {17, "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8,16]}}", 16, "more than 2"},
    {18, "{\"a\":" F32_4 ",\"b\":" T("F32", "[4]", "8", "24") "}", 24,
     "b starts at byte 8.*overlap"},
    {18, "{\"a\":" F32_4 ",\"b\":" T("F32", "[4]", "20", "36") "}", 36,
     "b starts at byte 20.*a hole"},
    {18, "{\"a\":" T("F32", "[4]", "4", "20") "}", 20, "a starts at byte 4.*want 0: a hole"},
    {18, "{\"b\":" T("F32", "[4]", "24", "40") ",\"a\":" F32_4 "}", 40,
     "b starts at byte 24.*a hole"},
    {18, "{\"a\":" F32_4 ",\"b\":" F32_4 "}", 16, "overlap"},
    {18, "{\"a\":" F32_4 ",\"b\":" T("F32", "[0]", "4", "4") "}", 16, "overlap"},
    {19, "{\"a\":" F32_4 "}", 17, "17 bytes of data, its tensors cover 16"},
    {19, "{\"a\":" F32_4 "}", 15, "data_offsets 0 to 16 in 15 bytes"},
    {21, "{\"a\":" T("F4", "[3]", "0", "1") "}", 1, "does not fill whole bytes"},
};

static void every_malformed_header_is_refused(void **state)
{
    put_config(*state, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_tensors(*state, "model.safetensors", rows[i].header, rows[i].data_bytes);
        print_message("row %d: %.60s\n", rows[i].number, rows[i].header);
        expect_refusal(*state, true, FAIL_SAFETENSORS, rows[i].pattern);
    }
}

static void a_file_shorter_than_its_length_field_is_refused(void **state)
{
    put_config(*state, "");
    for (size_t n = 0; n < 8; n++) {
        put_file(*state, "model.safetensors", "\2\0\0\0\0\0\0\0", n);
        expect_refusal(*state, true, FAIL_SAFETENSORS, "shorter than 8-byte header length");
    }
}

static void a_header_length_that_does_not_fit_is_refused(void **state)
{
    static const struct {
        uint64_t n;
        const char *pattern;
    } lengths[] = {
        {UINT64_MAX, "header length 18446744073709551615, at most 100000000"},
        {UINT64_MAX - 7, "at most 100000000"},
        {100000001, "header length 100000001, at most 100000000"},
        {100000000, "header length 100000000, but only 2 bytes follow"},
        {3, "header length 3, but only 2 bytes follow"},
        {1, "header length 1, at least 2"},
        {0, "header length 0, at least 2"},
    };
    put_config(*state, "");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char bytes[10] = "........{}";
        memcpy(bytes, &lengths[i].n, 8);
        put_file(*state, "model.safetensors", bytes, 10);
        expect_refusal(*state, true, FAIL_SAFETENSORS, lengths[i].pattern);
    }
}

static void unusual_but_correct_files_are_accepted(void **state)
{
    static const struct row good[] = {
        {6, " \t\n{\"a\":" F32_4 "}", 16, NULL},
        {7, "{\"a\":" F32_4 "}   \n ", 16, NULL},
        {18, "{\"b\":" T("F32", "[4]", "16", "32") ",\"a\":" F32_4 "}", 32, NULL},
        {20,
         "{\"z\":" T("F32", "[0]", "16", "16") ",\"a\":" F32_4
                                               ",\"y\":" T("U8", "[3,0]", "0", "0") "}",
         16, NULL},
        {21, "{\"a\":" T("F4", "[4]", "0", "2") "}", 2, NULL},
        {23, "{\"a\":" F32_4 ",\"__metadata__\":{\"x\":\"y\"}}", 16, NULL},
        {23, "{\"scalar\":" T("F32", "[]", "0", "4") "}", 4, NULL},
        {25, "{\"/../\\n\\u001b[2J\":" F32_4 "}", 16, NULL},
        {4, "{}", 0, NULL},
    };
    put_config(*state, "");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        put_tensors(*state, "model.safetensors", good[i].header, good[i].data_bytes);
        struct hf_model *model = open_model(*state, true);
        hf_model_close(&model);
    }
}

static void a_name_of_more_than_a_kibibyte_is_refused(void **state)
{
    char *header = malloc(70000);
    assert_non_null(header);
    put_config(*state, "");
    for (int n = 1024; n <= 65536; n += 65536 - 1024) {
        int at = sprintf(header, "{\"");
        memset(header + at, 'x', (size_t)n);
        strcpy(header + at + n, "\":" F32_4 "}");
        put_tensors(*state, "model.safetensors", header, 16);
        if (n > 1024)
            expect_refusal(*state, true, FAIL_SAFETENSORS, "name has 65536 bytes, at most 1024");
        struct hf_model *model = n > 1024 ? NULL : open_model(*state, true);
        hf_model_close(&model);
    }
    free(header);
}

static void control_characters_of_names_do_not_reach_the_message(void **state)
{
    put_config(*state, "");
    put_tensors(*state, "model.safetensors", "{\"a\\n\\u001b[2J\":" T("F32", "[5]", "0", "16") "}",
                16);
    expect_refusal(*state, true, FAIL_SAFETENSORS, "tensor a\\\\x0a\\\\x1b\\[2J needs 20 bytes");
}

/* ---- large ones, under a limit on address space: twice the file and 64 MiB ---- */

static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put_repeated(const char *dir, const char *head, const char *part, size_t times,
                         const char *tail)
{
    size_t n = strlen(part), at = strlen(head);
    char *all = malloc(at + n * times + strlen(tail) + 32 * times / 1000 + 1);
    assert_non_null(all);
    strcpy(all, head);
    for (size_t i = 0; i < times; i++, at += n)
        memcpy(all + at, part, n);
    strcpy(all + at, tail);
    put_tensors(dir, "model.safetensors", all, 0);
    free(all);
}

static void put_numbered(const char *dir, size_t times)
{
    char *all = malloc(times * 80 + 16), *at = all;
    assert_non_null(all);
    *at++ = '{';
    for (size_t i = 0; i < times; i++)
        at += sprintf(at, "%s\"%zx\":" T("F32", "[0]", "0", "0"), i ? "," : "", i);
    strcpy(at, "}");
    put_tensors(dir, "model.safetensors", all, 0);
    free(all);
}

static void limit_memory(const char *dir)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    size_t size;
    char *all = get_file(dir, "model.safetensors", &size);
    free(all);
    struct rlimit limit = {.rlim_cur = mapped_bytes() + 2 * size + (64u << 20),
                           .rlim_max = RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
#else
    (void)dir;
    (void)mapped_bytes;
#endif
}

static void unlimit_memory(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void large_hostile_headers_are_refused_in_little_memory_and_time(void **state)
{
    static const struct {
        const char *head, *part;
        size_t times;
        const char *tail, *pattern;
    } big[] = {
        {"{\"a\":", "[", 1000000, "}", "16 levels"},
        {"{\"a\":{\"dtype\":[", "[],", 10000000, "[]]}}", "unknown dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[", "1,", 15000000, "1]}}", "more than 8 numbers"},
        {"{\"__metadata__\":{", "\"a\":\"b\",", 4000000, "\"c\":\"d\"}}",
         "__metadata__ has too many keys"},
        {"{", "\"a\":1,", 15000000, "\"c\":1}",
         "15000001 entries, but a model may have at most 1048576"},
    };
    put_config(*state, "");
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        put_repeated(*state, big[i].head, big[i].part, big[i].times, big[i].tail);
        limit_memory(*state);
        expect_refusal(*state, true, FAIL_SAFETENSORS, big[i].pattern);
        unlimit_memory();
    }
}

static void a_million_tensors_are_read_in_little_memory(void **state)
{
    size_t unused;
    put_config(*state, "");
    put_numbered(*state, 1000000);
    limit_memory(*state);
    struct hf_model *model = open_model(*state, true);
    unlimit_memory();
    assert_non_null(hf_model_unused(model, &unused));
    assert_int_equal(unused, 1000000);
    hf_model_close(&model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(every_malformed_header_is_refused),
        TEST(a_file_shorter_than_its_length_field_is_refused),
        TEST(a_header_length_that_does_not_fit_is_refused),
        TEST(unusual_but_correct_files_are_accepted),
        TEST(a_name_of_more_than_a_kibibyte_is_refused),
        TEST(control_characters_of_names_do_not_reach_the_message),
        TEST(large_hostile_headers_are_refused_in_little_memory_and_time),
        TEST(a_million_tensors_are_read_in_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
