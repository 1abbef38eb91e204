/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of a token file that others change between its opening and the reading. */
#include "base/fail.h"
#include "data/data.h"
#include "data/file/prompts.h"
#include "folder.h"

#include <errno.h>
#include <string.h>

static const char header[] =
    "{\"__metadata__\":{\"format\":\"hoistway.tokens.1\"},"
    "\"tokens\":{\"dtype\":\"U32\",\"shape\":[6],\"data_offsets\":[0,24]},"
    "\"prompts\":{\"dtype\":\"U32\",\"shape\":[3],\"data_offsets\":[24,36]},"
    "\"prompt_offsets\":{\"dtype\":\"U64\",\"shape\":[3],\"data_offsets\":[36,60]}}";

static void write_tokens(const uint32_t prompts[3], const uint64_t offsets[3])
{
    static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    unsigned char all[8 + sizeof header - 1 + 60];
    const uint64_t bytes = sizeof header - 1;
    memcpy(all, &bytes, 8);
    memcpy(all + 8, header, bytes);
    memcpy(all + 8 + bytes, tokens, 24);
    memcpy(all + 8 + bytes + 24, prompts, 12);
    memcpy(all + 8 + bytes + 36, offsets, 24);
    write_file("t.safetensors", all, sizeof all);
}

static const uint32_t ids[3] = {7, 8, 9};
static const uint64_t two[3] = {0, 1, 3};

static struct data *open_data(void)
{
    const struct data_config config = {
        .files = "t.safetensors", .seq_len = 2, .vocab = 10, .option = "--data"};
    struct hst_error error = {0};
    struct data *data = NULL;
    write_tokens(ids, two);
    if (data_open(&config, &data, &error))
        fail_msg("%s", error.message);
    return data;
}

static void prompts_are_those_of_the_file(void **state)
{
    (void)state;
    struct data *data = open_data();
    struct prompts p;
    struct hst_error error = {0};
    assert_int_equal(data_prompts(data, 4, &p, &error), 0);
    assert_int_equal(p.count, 2);
    assert_int_equal(p.starts[2], 3);
    assert_memory_equal(p.ids, ids, sizeof ids);
    prompts_free(&p);
    data_close(&data);
}

static void assert_changed(const uint32_t prompts[3], const uint64_t offsets[3], const char *what)
{
    struct data *data = open_data();
    struct prompts p;
    struct hst_error error = {0};
    write_tokens(prompts, offsets);
    assert_int_equal(data_prompts(data, 4, &p, &error), -EBADMSG);
    assert_int_equal(error.code, FAIL_READ);
    assert_non_null(strstr(error.message, what));
    prompts_free(&p);
    data_close(&data);
}

static void what_was_checked_is_checked_again(void **state)
{
    (void)state;
    assert_changed(ids, (uint64_t[]){0, 0, 3}, "t.safetensors: its offsets are not those");
    assert_changed(ids, (uint64_t[]){0, 3, 2}, "t.safetensors: its offsets are not those");
    assert_changed(ids, (uint64_t[]){1, 2, 3}, "t.safetensors: its offsets are not those");
    assert_changed(ids, (uint64_t[]){0, 1, 4}, "t.safetensors: its offsets are not those");
    assert_changed((uint32_t[]){7, 10, 9}, two, "t.safetensors: its prompts are not those");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_those_of_the_file),
        cmocka_unit_test(what_was_checked_is_checked_again),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
