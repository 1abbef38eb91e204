/* SPDX-License-Identifier: Apache-2.0 */
/* Data files: what is read from them, in which order, and what is refused. */
#include "base/fail.h"
#include "data/data.h"
#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An llm.c file of `count` tokens 0, 1, 2 … behind the given header. */
static void write_llmc(const char *name, uint32_t magic, uint32_t version, uint32_t counted,
                       unsigned width, size_t count)
{
    unsigned char bytes[2048] = {0};
    assert_true(1024 + count * width <= sizeof bytes);
    memcpy(bytes, (uint32_t[]){magic, version, counted}, 12);
    for (size_t i = 0; i < count; i++)
        bytes[1024 + i * width] = (unsigned char)i;
    write_file(name, bytes, 1024 + count * width);
}

static struct data_config config_of(const char *files)
{
    return (struct data_config){.files = files,
                                .order = DATA_SEQUENTIAL,
                                .seq_len = 4,
                                .vocab = strstr(files, ".txt") ? 256 : 1000};
}

static struct data *open_ok(const struct data_config *config)
{
    struct data *data = NULL;
    struct hst_error error = {0};
    int rc = data_open(config, &data, &error);
    if (rc < 0)
        print_error("%s\n", error.message);
    assert_int_equal(rc, 0);
    return data;
}

static void assert_refused(const struct data_config *config, enum fail_code code, const char *words)
{
    struct data *data = NULL;
    struct hst_error error = {0};
    assert_true(data_open(config, &data, &error) < 0);
    assert_null(data);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" lacks \"%s\"", error.message, words);
    assert_non_null(strstr(error.message, ". Fix: "));
}

static void assert_tokens(const uint32_t *got, const uint32_t *expected, size_t count)
{
    assert_memory_equal(got, expected, count * sizeof *got);
}

static void text_is_bytes_and_targets_follow_inputs(void **state)
{
    (void)state;
    write_file("a.txt", "abcdefghi\xff", 10);
    struct data_config config = config_of("a.txt");
    config.vocab = 256;
    struct data *data = open_ok(&config);
    assert_int_equal(data_token_count(data), 10);
    assert_int_equal(data_sequence_count(data), 2);
    uint32_t in[12], out[12];
    assert_int_equal(
        data_read(data, 0, 3, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
    assert_tokens(in, (uint32_t[]){'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'a', 'b', 'c', 'd'}, 12);
    assert_tokens(out, (uint32_t[]){'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'b', 'c', 'd', 'e'},
                  12);
    data_close(&data);
    assert_null(data);
}

static void several_files_are_one_row_of_tokens(void **state)
{
    (void)state;
    write_file("1.txt", "ab", 2);
    write_file("2.txt", "c", 1);
    write_file("3.txt", "defghi", 6);
    struct data_config config = config_of("1.txt,2.txt,3.txt");
    struct data *data = open_ok(&config);
    assert_int_equal(data_sequence_count(data), 2);
    uint32_t in[8], out[8];
    assert_int_equal(
        data_read(data, 0, 2, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
    assert_tokens(in, (uint32_t[]){'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, 8);
    assert_tokens(out, (uint32_t[]){'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'}, 8);
    data_close(&data);
}

static void token_files_of_both_widths_are_read(void **state)
{
    (void)state;
    write_llmc("v1.bin", 20240520, 1, 9, 2, 9);
    write_llmc("v7.bin", 20240801, 7, 9, 4, 9);
    write_file("raw.u16", (uint16_t[]){0, 1, 2, 3, 4, 999}, 12);
    write_file("raw.bin", (uint32_t[]){0, 1, 2, 3, 4, 999}, 24);
    struct {
        const char *name;
        enum data_format format;
        enum token_dtype dtype;
        uint64_t tokens;
    } files[] = {{"v1.bin", DATA_FORMAT_AUTO, TOKEN_DTYPE_NONE, 9},
                 {"v1.bin", DATA_FORMAT_AUTO, TOKEN_U16, 9},
                 {"v7.bin", DATA_FORMAT_AUTO, TOKEN_DTYPE_NONE, 9},
                 {"raw.u16", DATA_FORMAT_TOKENS, TOKEN_U16, 6},
                 {"raw.bin", DATA_FORMAT_AUTO, TOKEN_U32, 6}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct data_config config = config_of(files[i].name);
        config.format = files[i].format;
        config.token_dtype = files[i].dtype;
        struct data *data = open_ok(&config);
        assert_int_equal(data_token_count(data), files[i].tokens);
        uint32_t in[4], out[4];
        assert_int_equal(
            data_read(data, 0, 1, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
        assert_tokens(in, (uint32_t[]){0, 1, 2, 3}, 4);
        assert_tokens(out, (uint32_t[]){1, 2, 3, 4}, 4);
        data_close(&data);
    }
}

static void text_longer_than_the_read_buffer_is_whole(void **state)
{
    (void)state;
    enum { BYTES = 200001 };
    unsigned char *bytes = malloc(BYTES);
    uint32_t *in = malloc(2 * (BYTES - 1) * sizeof *in), *out = in + BYTES - 1;
    assert_true(bytes && in);
    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    write_file("long.txt", bytes, BYTES);
    struct data_config config = config_of("long.txt");
    config.seq_len = BYTES - 1;
    struct data *data = open_ok(&config);
    assert_int_equal(
        data_read(data, 0, 1, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
    for (size_t i = 0; i + 1 < BYTES; i++)
        assert_true(in[i] == bytes[i] && out[i] == bytes[i + 1]);
    data_close(&data);
    free(in);
    free(bytes);
}

static void shuffled_passes_read_every_sequence_once(void **state)
{
    (void)state;
    unsigned char bytes[41];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    write_file("s.txt", bytes, sizeof bytes);
    struct data_config config = config_of("s.txt");
    config.order = DATA_SHUFFLED;
    config.seed = 3;
    struct data *data = open_ok(&config);
    uint32_t in[80], out[80];
    assert_int_equal(
        data_read(data, 0, 20, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
    unsigned seen[2][10] = {{0}};
    bool differs = false;
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(in[4 * i] % 4, 0);
        assert_int_equal(in[4 * i] / 4, data_order_sequence(data, i));
        seen[i / 10][in[4 * i] / 4]++;
        differs |= i < 10 && in[4 * i] != in[4 * (i + 10)];
    }
    for (size_t i = 0; i < 10; i++)
        assert_true(seen[0][i] == 1 && seen[1][i] == 1);
    assert_true(differs);
    data_close(&data);
}

static void a_position_out_of_the_numbers_is_refused(void **state)
{
    (void)state;
    write_file("a.txt", "abcdefghij", 10);
    struct data_config config = config_of("a.txt");
    struct data *data = open_ok(&config);
    uint32_t in[8], out[8];
    assert_int_equal(data_read(data, UINT64_MAX - 1, 1,
                               &(struct data_batch){.inputs = in, .targets = out}, NULL),
                     0);
    assert_int_equal(data_read(data, UINT64_MAX - 1, 2,
                               &(struct data_batch){.inputs = in, .targets = out}, NULL),
                     -EOVERFLOW);
    data_close(&data);
}

static void names_that_do_not_tell_the_format_are_refused(void **state)
{
    (void)state;
    write_file("a.dat", "abcdefghij", 10);
    struct data_config config = config_of("a.dat");
    assert_refused(&config, FAIL_DATA_FORMAT, "--data-format");
    config.format = DATA_FORMAT_BYTES;
    struct data *data = open_ok(&config);
    data_close(&data);
    config.token_dtype = TOKEN_U16;
    assert_refused(&config, FAIL_VALUE, "--token-dtype");
}

static void a_txt_is_not_bytes_to_a_model_with_ids_of_its_own(void **state)
{
    (void)state;
    write_file("a.txt", "abcdefghij", 10);
    struct data_config config = config_of("a.txt");
    config.vocab = 257;
    assert_refused(&config, FAIL_DATA_FORMAT, "the model has 257 ids");
    config.vocab = 256;
    config.tokenizer = "tokenizer.json";
    assert_refused(&config, FAIL_DATA_FORMAT, "the model has a tokenizer (tokenizer.json)");
    config.format = DATA_FORMAT_BYTES;
    struct data *data = open_ok(&config);
    assert_true(data_largest_id(data) == UINT64_MAX);
    data_close(&data);
}

static void bytes_are_not_proposed_for_what_has_marks_between_its_words(void **state)
{
    (void)state;
    static const char *const names[] = {"a.json", "a.md"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct data *data = NULL;
        struct hst_error error = {0};
        write_file(names[i], "{}abcdefghij", 12);
        const struct data_config config = config_of(names[i]);
        assert_refused(&config, FAIL_DATA_FORMAT, "the model's own tokenizer");
        assert_true(data_open(&config, &data, &error) < 0);
        assert_null(strstr(error.message, "bytes"));
    }
}

/* `count` ids from 1 on, in steps of `step`, as tokens of `width` bytes. */
static void write_raw(const char *name, unsigned width, size_t count, uint32_t step)
{
    uint32_t wide[64];
    uint16_t narrow[64];
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++) {
        wide[i] = 1 + (uint32_t)i * step;
        narrow[i] = (uint16_t)wide[i];
    }
    write_file(name, width == 4 ? (void *)wide : (void *)narrow, count * width);
}

static void raw_tokens_of_another_width_than_was_said_are_refused(void **state)
{
    (void)state;
    struct data_config config = config_of("raw.bin");
    config.vocab = 50000;
    write_raw("raw.bin", 4, 32, 700);
    config.token_dtype = TOKEN_U16;
    assert_refused(&config, FAIL_DATA_FORMAT,
                   "is 0, as the upper halves of u32 are. Fix: "
                   "--token-dtype u32");
    config.vocab = 128256; /* upper halves of 0 and 1 */
    write_raw("raw.bin", 4, 64, 2000);
    assert_refused(&config, FAIL_DATA_FORMAT, "Fix: --token-dtype u32");
    write_raw("raw.bin", 2, 32, 700);
    config.token_dtype = TOKEN_U32;
    assert_refused(&config, FAIL_DATA_FORMAT, "Fix: --token-dtype u16");
    write_raw("raw.bin", 4, 64, 2100); /* two are beyond: another tokenizer's */
    assert_refused(&config, FAIL_DATA_TOKEN, "token id 130201 at byte 248");
    write_raw("raw.bin", 2, 32, 700);
    config.token_dtype = TOKEN_U16;
    struct data *data = open_ok(&config);
    assert_int_equal(data_largest_id(data), 1 + 31 * 700);
    data_close(&data);
}

static void token_files_of_llmq_are_told_by_their_first_bytes(void **state)
{
    (void)state;
    static const char bytes[2048] = "BIN.TOK\n\1";
    struct data_config config = config_of("llmq.bin");
    write_file("llmq.bin", bytes, sizeof bytes);
    assert_refused(&config, FAIL_DATA_FORMAT, "LLMQ token file with 0 bytes a token");
    config.token_dtype = TOKEN_U32;
    assert_refused(&config, FAIL_DATA_FORMAT, "LLMQ token file with 0 bytes a token");
}

static void malformed_token_files_are_refused(void **state)
{
    (void)state;
    struct data_config config = config_of("bad.bin");
    write_llmc("bad.bin", 20240521, 1, 9, 2, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "magic");
    write_llmc("bad.bin", __builtin_bswap32(20240520), 0x01000000, 9, 2, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "wrong endian");
    config.token_dtype = TOKEN_U16;
    assert_refused(&config, FAIL_DATA_FORMAT, "wrong endian");
    config.token_dtype = TOKEN_DTYPE_NONE;
    write_llmc("bad.bin", __builtin_bswap32(20240801), 0x07000000, 9, 4, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "wrong endian");
    write_llmc("bad.bin", 20240520, 2, 9, 2, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "version 2");
    write_llmc("bad.bin", 20240520, 1, 10, 2, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "counts 10 tokens");
    write_llmc("bad.bin", 20240520, 1, 8, 2, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "counts 8 tokens");
    write_llmc("bad.bin", 20240801, 7, 0x80000000u, 4, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "counts 2147483648 tokens");
    write_llmc("bad.bin", 20240520, 1, 0, 2, 0);
    assert_refused(&config, FAIL_DATA_SHORT, "no token");
    const uint32_t cut[] = {20240520, 1, 9};
    write_file("bad.bin", cut, sizeof cut);
    assert_refused(&config, FAIL_DATA_FORMAT, "counts 9 tokens");
    config.token_dtype = TOKEN_U16; /* then, too: it is no token of anybody's */
    assert_refused(&config, FAIL_DATA_FORMAT, "counts 9 tokens");
    config.token_dtype = TOKEN_DTYPE_NONE;
    write_file("bad.bin", "abc", 3);
    assert_refused(&config, FAIL_DATA_FORMAT, "--token-dtype");
    config.token_dtype = TOKEN_U16;
    assert_refused(&config, FAIL_DATA_FORMAT, "not a multiple of 2");
    write_llmc("bad.bin", 20240801, 7, 9, 4, 9);
    assert_refused(&config, FAIL_DATA_FORMAT, "header says u32");
}

static void data_shorter_than_one_sequence_is_refused(void **state)
{
    (void)state;
    struct data_config config = config_of("short.txt");
    write_file("short.txt", "", 0);
    assert_refused(&config, FAIL_DATA_SHORT, "empty");
    write_file("short.txt", "abcd", 4);
    assert_refused(&config, FAIL_DATA_SHORT, "4 tokens");
    write_file("short.txt", "abcde", 5);
    struct data *data = open_ok(&config);
    assert_int_equal(data_sequence_count(data), 1);
    data_close(&data);
    config.seq_len = UINT32_MAX;
    assert_refused(&config, FAIL_DATA_SHORT, "5 tokens");
    config.seq_len = UINT64_MAX;
    assert_refused(&config, FAIL_VALUE, "--seq-len");
}

static void data_that_is_short_may_make_its_sequences_shorter(void **state)
{
    (void)state;
    struct {
        const char *text;
        uint64_t seq_len, count;
    } cases[] = {{"abc", 2, 1}, {"abcd", 3, 1}, {"abcde", 4, 1}, {"abcdefghi", 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file("a.txt", cases[i].text, strlen(cases[i].text));
        struct data_config config = config_of("a.txt");
        config.may_shorten = true;
        struct data *data = open_ok(&config);
        assert_int_equal(data_seq_len(data), cases[i].seq_len);
        assert_int_equal(data_sequence_count(data), cases[i].count);
        uint32_t in[4], out[4];
        assert_int_equal(
            data_read(data, 0, 1, &(struct data_batch){.inputs = in, .targets = out}, NULL), 0);
        for (size_t j = 0; j < cases[i].seq_len; j++)
            assert_true(in[j] == 'a' + j && out[j] == 'b' + j);
        data_close(&data);
    }
    write_file("a.txt", "a", 1);
    struct data_config config = config_of("a.txt");
    config.may_shorten = true;
    assert_refused(&config, FAIL_DATA_SHORT, "1 tokens, fewer than one sequence");
}

static void what_is_not_a_regular_file_is_refused(void **state)
{
    (void)state;
    struct data_config config = config_of("fifo.txt");
    assert_int_equal(mkfifo("fifo.txt", 0600), 0);
    assert_refused(&config, FAIL_DATA_FILE, "regular file");
    assert_int_equal(mkdir("directory.txt", 0700), 0);
    config.files = "directory.txt";
    assert_refused(&config, FAIL_DATA_FILE, "regular file");
    config.files = "/dev/zero";
    config.format = DATA_FORMAT_BYTES;
    assert_refused(&config, FAIL_DATA_FILE, "regular file");
    config.files = "missing.txt";
    assert_refused(&config, FAIL_DATA_FILE, "No such file");
}

static void malformed_lists_of_files_are_refused(void **state)
{
    (void)state;
    write_file("a.txt", "abcdefghij", 10);
    write_llmc("v1.bin", 20240520, 1, 9, 2, 9);
    struct data_config config = config_of("a.txt,,a.txt");
    assert_refused(&config, FAIL_VALUE, "empty file name");
    config.files = "a.txt,";
    assert_refused(&config, FAIL_VALUE, "empty file name");
    config.files = "a.txt,v1.bin";
    assert_refused(&config, FAIL_DATA_FORMAT, "joined");
    config.files = NULL;
    assert_refused(&config, FAIL_MISSING, "--data");
}

static void an_id_beyond_the_vocabulary_is_refused_at_open(void **state)
{
    (void)state;
    write_file("ids.bin", (uint16_t[]){0, 1, 2, 3, 4, 1000}, 12);
    struct data_config config = config_of("ids.bin");
    config.token_dtype = TOKEN_U16;
    assert_refused(&config, FAIL_DATA_TOKEN, "ids.bin: token id 1000 at byte 10");
    config.vocab = 1001;
    struct data *data = open_ok(&config);
    data_close(&data);
    write_file("a.txt", "abcdefghij", 10);
    config = config_of("a.txt");
    config.vocab = 255;
    assert_refused(&config, FAIL_DATA_TOKEN, "at least 256");
}

static void ids_are_checked_again_when_they_are_read(void **state)
{
    (void)state;
    write_file("ids.bin", (uint16_t[]){0, 1, 2, 3, 4, 5}, 12);
    struct data_config config = config_of("ids.bin");
    config.token_dtype = TOKEN_U16;
    struct data *data = open_ok(&config);
    write_file("ids.bin", (uint16_t[]){0, 1, 2, 3, 1000, 5}, 12);
    uint32_t in[4], out[4];
    struct hst_error error = {0};
    assert_int_equal(
        data_read(data, 0, 1, &(struct data_batch){.inputs = in, .targets = out}, &error), -EDOM);
    assert_int_equal(error.code, FAIL_DATA_TOKEN);
    assert_non_null(strstr(error.message, "ids.bin: token id 1000 at byte 8"));
    assert_int_equal(truncate("ids.bin", 6), 0);
    assert_int_equal(
        data_read(data, 0, 1, &(struct data_batch){.inputs = in, .targets = out}, &error),
        -ENODATA);
    assert_int_equal(error.code, FAIL_READ);
    data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_bytes_and_targets_follow_inputs),
        cmocka_unit_test(several_files_are_one_row_of_tokens),
        cmocka_unit_test(token_files_of_both_widths_are_read),
        cmocka_unit_test(text_longer_than_the_read_buffer_is_whole),
        cmocka_unit_test(shuffled_passes_read_every_sequence_once),
        cmocka_unit_test(a_position_out_of_the_numbers_is_refused),
        cmocka_unit_test(names_that_do_not_tell_the_format_are_refused),
        cmocka_unit_test(a_txt_is_not_bytes_to_a_model_with_ids_of_its_own),
        cmocka_unit_test(bytes_are_not_proposed_for_what_has_marks_between_its_words),
        cmocka_unit_test(raw_tokens_of_another_width_than_was_said_are_refused),
        cmocka_unit_test(token_files_of_llmq_are_told_by_their_first_bytes),
        cmocka_unit_test(malformed_token_files_are_refused),
        cmocka_unit_test(data_shorter_than_one_sequence_is_refused),
        cmocka_unit_test(data_that_is_short_may_make_its_sequences_shorter),
        cmocka_unit_test(what_is_not_a_regular_file_is_refused),
        cmocka_unit_test(malformed_lists_of_files_are_refused),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_refused_at_open),
        cmocka_unit_test(ids_are_checked_again_when_they_are_read),
    };
    return cmocka_run_group_tests_name("data", tests, set_up, tear_down);
}
