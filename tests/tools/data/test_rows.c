/* SPDX-License-Identifier: Apache-2.0 */
/* JSONL of token ids: read from any token on, and what one row may say. */
#include "base/fail.h"
#include "data/rows.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS 40000u

static char path[] = "/tmp/hoistway-rows-XXXXXX";
static uint32_t ids[TOKENS];
static uint64_t begins[64], documents;

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* Documents of 2 to 12,000 tokens, written in the ways that JSON allows. */
static void write_documents(FILE *file)
{
    static const char *const commas[] = {",", ", ", " ,\t", ",\r"};
    static const uint64_t lengths[] = {2, 4095, 4096, 4097, 12000, 3, 8192, 100};
    uint64_t n = 0;
    for (documents = 0; documents < 8; documents++) {
        begins[documents] = n;
        fprintf(file, documents % 2 ? " {\"labels\": [" : "{\"input_ids\":[");
        const uint64_t end = n + lengths[documents];
        for (uint64_t i = n; i < end; i++)
            ids[i] = draw(4) ? draw(100) : draw(UINT32_MAX);
        for (uint64_t i = n; i < end && documents % 2; i++)
            fprintf(file, "%s%u", i > n ? "," : "", ids[i]);
        fprintf(file, documents % 2 ? "],\"input_ids\" : [ " : "");
        for (; n < end; n++)
            fprintf(file, "%s%u", n > begins[documents] ? commas[draw(4)] : "", ids[n]);
        fprintf(file, "]}%s", documents == 7 ? "" : documents == 3 ? "\r\n\n \n" : "\n");
    }
    begins[documents] = n;
}

static int set_up(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        return -1;
    write_documents(file);
    return fclose(file);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void open_rows(struct token_file *file)
{
    const struct data_config config = {.format = DATA_FORMAT_JSONL};
    struct hst_error error = {0};
    if (token_file_open(path, &config, file, &error))
        fail_msg("%s", error.message);
}

static void tokens_are_read_from_any_one_on(void **state)
{
    (void)state;
    static uint32_t got[TOKENS];
    char buffer[TOKEN_BUFFER_BYTES];
    struct token_file file;
    struct hst_error error;
    uint64_t *offsets;
    open_rows(&file);
    assert_int_equal(file.count, begins[documents]);
    assert_int_equal(file.documents.count, documents);
    assert_int_equal(file.documents.longest, 12000);
    assert_int_equal(file.documents.target_count, file.count - documents);
    assert_int_equal(file.documents.hidden_count, 0);
    assert_int_equal(token_file_offsets(&file, &offsets, &error), 0);
    assert_memory_equal(offsets, begins, (documents + 1) * sizeof *offsets);
    free(offsets);
    for (int i = 0; i < 300; i++) {
        const uint64_t first = i ? draw((uint32_t)file.count) : 0;
        const size_t count = i ? 1 + draw((uint32_t)(file.count - first)) : file.count;
        assert_int_equal(token_file_read(&file, first, count, UINT64_MAX, buffer, got, &error), 0);
        assert_memory_equal(got, ids + first, count * sizeof *got);
    }
    token_file_close(&file);
}

static void overwrite(long at, const char *text)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void a_file_that_changes_is_an_error(void **state)
{
    (void)state;
    uint32_t got[2];
    char buffer[TOKEN_BUFFER_BYTES];
    struct token_file file;
    struct hst_error error;
    open_rows(&file);
    overwrite(14, "x");
    assert_int_equal(token_file_read(&file, 0, 2, UINT64_MAX, buffer, got, &error), -EIO);
    assert_int_equal(error.code, FAIL_READ);
    assert_non_null(strstr(error.message, "no number at byte 14: the file was changed"));
    overwrite(14, "9");
    assert_int_equal(token_file_read(&file, 0, 1, 9, buffer, got, &error), -EDOM);
    assert_int_equal(error.code, FAIL_DATA_TOKEN);
    assert_int_equal(truncate(path, 14), 0);
    assert_int_equal(token_file_read(&file, 0, 1, UINT64_MAX, buffer, got, &error), -ENODATA);
    token_file_close(&file);
}

static void a_row_says_which_of_its_tokens_are_learned(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t targets, hidden;
    } rows[] = {
        {"{\"input_ids\":[5,6,7]}", 2, 0},
        {"{\"input_ids\":[5,6,7],\"mask\":[1,0,1]}", 2, 1},
        {"{\"mask\":[0,1,1],\"input_ids\":[5,6,7]}", 2, 0},
        {"{\"labels\":[-100,-100,7],\"input_ids\":[5,6,7]}", 2, 1},
        {"{\"input_ids\":[0,4294967295],\"labels\":[0,-100],\"x\":0}", 0, 0},
    };
    struct token_row row = {0};
    struct row_fault fault;
    uint64_t targets, hidden;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = token_row_parse(rows[i].text, strlen(rows[i].text), 0, &row, &fault);
        assert_int_equal(rc, rows[i].targets ? 0 : -EBADMSG);
        if (rc)
            continue;
        token_row_targets(&row, &targets, &hidden);
        assert_int_equal(targets, rows[i].targets);
        assert_int_equal(hidden, rows[i].hidden);
    }
    token_row_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_read_from_any_one_on),
        cmocka_unit_test(a_file_that_changes_is_an_error),
        cmocka_unit_test(a_row_says_which_of_its_tokens_are_learned),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
