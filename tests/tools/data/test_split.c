/* SPDX-License-Identifier: Apache-2.0 */
/* --eval-split: which tokens are trained on and which are evaluated on. */
#include "base/fail.h"
#include "data/split.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/hoistway-split-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unlink("rows.jsonl");
    unlink("text.txt");
    return chdir("/") == 0 ? rmdir(directory) : -1;
}

/* Documents i of 2 + i % 5 tokens, each with the id i + 1. */
#define DOCUMENTS 400u

static size_t tokens_of(unsigned document)
{
    return 2 + document % 5;
}

static void write_rows(void)
{
    FILE *f = fopen("rows.jsonl", "w");
    assert_non_null(f);
    for (unsigned i = 0; i < DOCUMENTS; i++) {
        fprintf(f, "{\"input_ids\": [%u", i + 1);
        for (size_t t = 1; t < tokens_of(i); t++)
            fprintf(f, ", %u", i + 1);
        fprintf(f, "]}\n");
    }
    assert_int_equal(fclose(f), 0);
}

static void write_text(size_t bytes)
{
    FILE *f = fopen("text.txt", "w");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(i % 250), f);
    assert_int_equal(fclose(f), 0);
}

static struct data_config config_of(const char *file, double split, enum data_side side)
{
    return (struct data_config){.files = file,
                                .order = DATA_SEQUENTIAL,
                                .seed = 3,
                                .seq_len = 4,
                                .vocab = strstr(file, ".txt") ? 256 : 1000,
                                .split = split,
                                .side = side};
}

static struct data *open_side(const char *file, double split, enum data_side side)
{
    const struct data_config config = config_of(file, split, side);
    struct data *data = NULL;
    struct hst_error error = {0};
    int rc = data_open(&config, &data, &error);
    if (rc < 0)
        print_error("%s\n", error.message);
    assert_int_equal(rc, 0);
    return data;
}

/* All inputs of whole sequences, and the last one's target. */
static uint32_t *read_all(struct data *data, size_t *count)
{
    const size_t sequences = (size_t)data_sequence_count(data);
    uint32_t *inputs = calloc(sequences * 4 + 1, sizeof *inputs);
    uint32_t *targets = calloc(sequences * 4, sizeof *targets);
    struct hst_error error;
    assert_true(inputs && targets && sequences > 0);
    const struct data_batch batch = {.inputs = inputs, .targets = targets};
    assert_int_equal(data_read(data, 0, sequences, &batch, &error), 0);
    assert_memory_equal(inputs + 1, targets, (sequences * 4 - 1) * sizeof *inputs);
    *count = sequences * 4 + 1;
    inputs[*count - 1] = targets[*count - 2];
    free(targets);
    return inputs;
}

/* How often each id is a target, of all rows. */
static void count_targets(struct data *data, unsigned *seen)
{
    uint32_t ids[4 * 4];
    const struct data_batch batch = {ids, ids + 4, ids + 8, ids + 12};
    struct hst_error error;
    for (uint64_t row = 0; row < data_sequence_count(data); row++) {
        assert_int_equal(data_read(data, row, 1, &batch, &error), 0);
        for (size_t i = 0; i < 4; i++)
            if (batch.targets[i] != DATA_NO_TARGET)
                seen[batch.targets[i] - 1]++;
    }
}

static void documents_are_whole_on_one_side(void **state)
{
    (void)state;
    uint64_t tokens[2], rows[2];
    write_rows();
    for (int side = DATA_TRAINED; side <= DATA_EVALUATED; side++) {
        struct data *data = open_side("rows.jsonl", 0.25, (enum data_side)side);
        unsigned seen[DOCUMENTS] = {0};
        count_targets(data, seen);
        tokens[side] = data_token_count(data);
        rows[side] = data_sequence_count(data);
        for (unsigned i = 0; i < DOCUMENTS; i++) {
            const bool has = data_split_draw(3, 0.25, i) == (side == DATA_EVALUATED);
            assert_int_equal(seen[i], has ? tokens_of(i) - 1 : 0);
        }
        data_close(&data);
    }
    assert_int_equal(tokens[0] + tokens[1], 4 * DOCUMENTS);
    assert_in_range(tokens[1], 300, 500); /* of 1,600 */
    assert_true(rows[0] > 2 * rows[1]);
}

/* Named by its number in the file, whichever side it is on. */
static void a_document_that_is_too_long_is_named_by_its_file(void **state)
{
    (void)state;
    struct hst_error error = {0};
    struct data *data = NULL;
    unsigned longest = 0;
    write_rows();
    struct data_config config = config_of("rows.jsonl", 0.25, DATA_EVALUATED);
    config.longer = PACK_LONG_REFUSE;
    assert_int_equal(data_open(&config, &data, &error), -E2BIG);
    assert_int_equal(sscanf(error.message, "rows.jsonl: document %u has 5", &longest), 1);
    assert_true(data_split_draw(3, 0.25, longest) && tokens_of(longest) == 6);
}

/* Both sides have rows of one length, which the longest document of all decides. */
static void short_documents_have_one_length_of_rows_on_both_sides(void **state)
{
    (void)state;
    uint64_t length[2];
    write_rows();
    for (int side = DATA_TRAINED; side <= DATA_EVALUATED; side++) {
        struct data_config config = config_of("rows.jsonl", 0.25, (enum data_side)side);
        struct data *data = NULL;
        struct hst_error error = {0};
        config.seq_len = 64;
        config.may_shorten = true;
        config.pack = DATA_PACK_OFF;
        assert_int_equal(data_open(&config, &data, &error), 0);
        length[side] = data_seq_len(data);
        data_close(&data);
    }
    assert_int_equal(length[0], 5);
    assert_int_equal(length[1], 5);
}

static void a_split_without_a_document_on_a_side_is_refused(void **state)
{
    (void)state;
    for (int side = DATA_TRAINED; side <= DATA_EVALUATED; side++) {
        const bool evaluated = side == DATA_EVALUATED;
        const struct data_config config =
            config_of("rows.jsonl", evaluated ? 1e-9 : 0.999999999, (enum data_side)side);
        struct data *data = NULL;
        struct hst_error error = {0};
        write_rows();
        assert_int_equal(data_open(&config, &data, &error), -ENODATA);
        assert_int_equal(error.code, FAIL_DATA_SHORT);
        assert_non_null(
            strstr(error.message, evaluated ? "none of 400 documents to evaluate on. Fix: a larger"
                                            : "none of 400 documents to train on. Fix: a smaller"));
    }
}

static void a_larger_share_has_the_documents_of_a_smaller_one_and_a_seed_has_its_own(void **state)
{
    (void)state;
    unsigned of_both = 0, of_one = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        assert_true(!data_split_draw(7, 0.1, i) || data_split_draw(7, 0.3, i));
        of_one += data_split_draw(7, 0.1, i);
        of_both += data_split_draw(7, 0.1, i) && data_split_draw(8, 0.1, i);
    }
    assert_in_range(of_one, 320, 480);
    assert_in_range(of_both, 10, 80);
}

static void a_file_without_documents_gives_its_last_sequences(void **state)
{
    (void)state;
    write_text(103); /* 25 sequences, the last target is byte 100 */
    struct data *whole = open_side("text.txt", 0, DATA_TRAINED);
    struct data *trained = open_side("text.txt", 0.2, DATA_TRAINED);
    struct data *evaluated = open_side("text.txt", 0.2, DATA_EVALUATED);
    size_t count, trained_count, evaluated_count;
    uint32_t *ids = read_all(whole, &count), *first = read_all(trained, &trained_count),
             *last = read_all(evaluated, &evaluated_count);
    assert_int_equal(data_sequence_count(trained), 20);
    assert_int_equal(data_sequence_count(evaluated), 5);
    assert_memory_equal(first, ids, trained_count * sizeof *ids);
    assert_memory_equal(last, ids + 80, evaluated_count * sizeof *ids);
    free(ids);
    free(first);
    free(last);
    data_close(&whole);
    data_close(&trained);
    data_close(&evaluated);
}

static void a_split_that_leaves_a_side_nothing_is_refused(void **state)
{
    (void)state;
    write_text(9); /* 2 sequences */
    for (int side = DATA_TRAINED; side <= DATA_EVALUATED; side++) {
        const bool evaluated = side == DATA_EVALUATED;
        const struct data_config config =
            config_of("text.txt", evaluated ? 0.1 : 0.9, (enum data_side)side);
        struct data *data = NULL;
        struct hst_error error = {0};
        assert_int_equal(data_open(&config, &data, &error), -ENODATA);
        assert_int_equal(error.code, FAIL_DATA_SHORT);
        assert_non_null(strstr(error.message, evaluated ? "0 of 9 tokens to evaluate on"
                                                        : "0 of 9 tokens to train on"));
        assert_null(data);
    }
}

/* A shorter sequence would move the cut: the sides would have the same tokens. */
static void data_shorter_than_a_sequence_is_not_split(void **state)
{
    (void)state;
    struct data_config config = config_of("text.txt", 0.6, DATA_TRAINED);
    struct data *data = NULL;
    struct hst_error error = {0};
    write_text(200);
    config.seq_len = 256;
    config.may_shorten = true;
    assert_int_equal(data_open(&config, &data, &error), -ENODATA);
    assert_int_equal(error.code, FAIL_DATA_SHORT);
    config.split = 0;
    assert_int_equal(data_open(&config, &data, &error), 0);
    assert_int_equal(data_seq_len(data), 199);
    data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_whole_on_one_side),
        cmocka_unit_test(a_document_that_is_too_long_is_named_by_its_file),
        cmocka_unit_test(short_documents_have_one_length_of_rows_on_both_sides),
        cmocka_unit_test(a_split_without_a_document_on_a_side_is_refused),
        cmocka_unit_test(a_larger_share_has_the_documents_of_a_smaller_one_and_a_seed_has_its_own),
        cmocka_unit_test(a_file_without_documents_gives_its_last_sequences),
        cmocka_unit_test(a_split_that_leaves_a_side_nothing_is_refused),
        cmocka_unit_test(data_shorter_than_a_sequence_is_not_split),
    };
    return cmocka_run_group_tests_name("tools/data_split", tests, set_up, tear_down);
}
