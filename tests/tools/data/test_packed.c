/* SPDX-License-Identifier: Apache-2.0 */
/* Data that knows documents or masks: which rows it becomes, and what is left out or refused. */
#include "base/fail.h"
#include "data/data.h"
#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ROWS 16u
#define NONE      DATA_NO_TARGET

static void write_text(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static struct data_config config_of(const char *files)
{
    return (struct data_config){
        .files = files, .order = DATA_SEQUENTIAL, .seq_len = 4, .vocab = 1000};
}

struct rows {
    struct data *data;
    const struct data_packing *packing;
    uint64_t count;
    uint32_t inputs[MOST_ROWS * 8], targets[MOST_ROWS * 8], first[MOST_ROWS * 8],
        position[MOST_ROWS * 8];
};

/* Opens data and reads one pass of it, from a position on. */
static void open_ok(const struct data_config *config, uint64_t from, struct rows *r)
{
    struct hst_error error = {0};
    const struct data_batch batch = {r->inputs, r->targets, r->first, r->position};
    if (data_open(config, &r->data, &error))
        fail_msg("%s", error.message);
    r->packing = data_packing(r->data);
    r->count = data_sequence_count(r->data);
    assert_true(r->count <= MOST_ROWS && data_seq_len(r->data) <= 8);
    assert_int_equal(data_read(r->data, from, (size_t)r->count, &batch, NULL), 0);
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

/* How often a pass has this piece of a row, to the end of its document. */
static unsigned count_pieces(const struct rows *r, const uint32_t *inputs, const uint32_t *targets,
                             uint32_t count)
{
    const uint64_t length = data_seq_len(r->data);
    unsigned found = 0;
    for (uint64_t at = 0; at + count <= r->count * length; at++) {
        bool is = r->first[at] == at % length && at % length + count <= length;
        for (uint32_t i = 0; is && i < count; i++)
            is = r->inputs[at + i] == inputs[i] && r->targets[at + i] == targets[i] &&
                 r->first[at + i] == at % length && r->position[at + i] == i;
        found += is;
    }
    return found;
}

#define PIECE(r, count, ...) count_pieces(r, __VA_ARGS__, count)
#define IDS(...)             ((const uint32_t[]){__VA_ARGS__})

static void documents_of_all_files_are_packed_together(void **state)
{
    (void)state;
    struct rows r;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5]}\n");
    write_text("c.jsonl", "{\"input_ids\":[10,11,12,13,14,15,16]}\n");
    const struct data_config config = config_of("a.jsonl,c.jsonl");
    open_ok(&config, 0, &r);
    assert_non_null(r.packing);
    assert_int_equal(r.count, 3); /* 4; 2 and 2; 1 */
    assert_int_equal(r.packing->document_count, 3);
    assert_int_equal(r.packing->input_count, 9);
    assert_true(r.packing->pair_count == 10 + (3 + 3) + (1 + 3)); /* and padding sees itself */
    assert_int_equal(r.packing->long_count, 1);
    assert_int_equal(r.packing->longer, PACK_LONG_SPLIT);
    assert_int_equal(PIECE(&r, 2, IDS(1, 2), IDS(2, 3)), 1);
    assert_int_equal(PIECE(&r, 1, IDS(4), IDS(5)), 1);
    assert_int_equal(PIECE(&r, 4, IDS(10, 11, 12, 13), IDS(11, 12, 13, 14)), 1);
    assert_int_equal(PIECE(&r, 2, IDS(14, 15), IDS(15, 16)), 1);
    data_close(&r.data);
}

static void a_file_without_documents_is_one_beside_others(void **state)
{
    (void)state;
    unsigned char llmc[1024 + 6] = {0};
    struct rows r;
    memcpy(llmc, (uint32_t[]){20240520, 1, 3}, 12);
    memcpy(llmc + 1024, (uint16_t[]){7, 8, 9}, 6);
    write_file("b.bin", llmc, sizeof llmc);
    write_text("a.jsonl", "{\"input_ids\":[1,2,3]}\n");
    const struct data_config config = config_of("b.bin,a.jsonl");
    open_ok(&config, 0, &r);
    assert_int_equal(r.packing->document_count, 2);
    assert_int_equal(r.count, 1);
    assert_int_equal(PIECE(&r, 2, IDS(7, 8), IDS(8, 9)), 1);
    assert_int_equal(PIECE(&r, 2, IDS(1, 2), IDS(2, 3)), 1);
    data_close(&r.data);
}

static void a_row_is_one_document_where_that_is_asked_for(void **state)
{
    (void)state;
    struct rows r;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5]}\n");
    struct data_config config = config_of("a.jsonl");
    config.pack = DATA_PACK_OFF;
    open_ok(&config, 0, &r);
    assert_int_equal(r.count, 2);
    assert_true(r.packing->apart);
    assert_int_equal(PIECE(&r, 3, IDS(4, 0, 0), IDS(5, NONE, NONE)), 0); /* padding is alone */
    assert_int_equal(PIECE(&r, 1, IDS(4), IDS(5)), 1);
    assert_int_equal(PIECE(&r, 1, IDS(0), IDS(NONE)), 5);
    data_close(&r.data);
}

static void each_pass_has_all_rows_in_an_order_of_its_own(void **state)
{
    (void)state;
    char text[1024] = "";
    struct rows r, again, second;
    for (int i = 0; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"input_ids\":[%d,1,1,1,1]}\n",
                 10 + i);
    write_text("a.jsonl", text);
    struct data_config config = config_of("a.jsonl");
    config.order = DATA_SHUFFLED;
    open_ok(&config, 0, &r);
    assert_int_equal(r.count, 12);
    open_ok(&config, 0, &again);
    open_ok(&config, 12, &second);
    assert_memory_equal(r.inputs, again.inputs, 12 * 4 * sizeof *r.inputs);
    assert_memory_not_equal(r.inputs, second.inputs, 12 * 4 * sizeof *r.inputs);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(PIECE(&second, 4, IDS(10 + i, 1, 1, 1), IDS(1, 1, 1, 1)), 1);
    data_close(&r.data);
    data_close(&again.data);
    data_close(&second.data);
}

static void rows_without_a_target_are_left_out(void **state)
{
    (void)state;
    struct rows r;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3,4,5,6,7,8,9,10,11],"
                          "\"mask\":[1,0,0,0,0,0,0,1,0,0,0]}\n"
                          "{\"input_ids\":[20,21],\"mask\":[0,1]}\n");
    struct data_config config = config_of("a.jsonl");
    config.longer = PACK_LONG_SPLIT;
    open_ok(&config, 0, &r);
    /* inputs 1 to 4 learn nothing; of 9 and 10 only the row's other document is learned */
    assert_int_equal(r.packing->idle_count, 1);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.packing->row_count, 2);
    assert_int_equal(r.packing->input_count, 7);
    assert_true(r.packing->pair_count == 10 + (3 + 1 + 1)); /* of rows that are left */
    assert_int_equal(PIECE(&r, 4, IDS(1, 2, 3, 4), IDS(NONE, NONE, NONE, NONE)), 0);
    assert_int_equal(PIECE(&r, 4, IDS(5, 6, 7, 8), IDS(NONE, NONE, 8, NONE)), 1);
    assert_int_equal(PIECE(&r, 2, IDS(9, 10), IDS(NONE, NONE)), 1);
    assert_int_equal(PIECE(&r, 1, IDS(20), IDS(21)), 1);
    data_close(&r.data);
}

static void data_of_which_nothing_is_left_is_refused(void **state)
{
    (void)state;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3,4,5,6],\"mask\":[1,0,0,0,0,1]}\n");
    struct data_config config = config_of("a.jsonl");
    config.longer = PACK_LONG_CUT;
    assert_refused(&config, FAIL_DATA_SHORT, "there is nothing to learn: all 1 document is longer");
    config.longer = PACK_LONG_DROP;
    assert_refused(&config, FAIL_DATA_SHORT, "and dropped. Fix: --long split");
}

static void long_documents_are_refused_where_there_is_a_mask(void **state)
{
    (void)state;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3]}\n");
    write_text("b.jsonl", "{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2,3,4,5,6]}\n");
    write_text("c.jsonl", "{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2,3,4,5,6],"
                          "\"mask\":[1,0,0,0,0,1]}\n");
    struct rows r;
    struct data_config config = config_of("a.jsonl,b.jsonl");
    open_ok(&config, 0, &r);
    assert_int_equal(r.packing->long_count, 1);
    data_close(&r.data);
    config.files = "a.jsonl,c.jsonl";
    assert_refused(&config, FAIL_VALUE, "c.jsonl: document 1 has 5 inputs, more than --seq-len 4");
    config.seq_len = 5;
    open_ok(&config, 0, &r);
    assert_int_equal(r.packing->longer, PACK_LONG_REFUSE);
    data_close(&r.data);
    config = config_of("a.jsonl,b.jsonl");
    config.longer = PACK_LONG_REFUSE;
    assert_refused(&config, FAIL_VALUE, "b.jsonl: document 1 has 5 inputs, more than --seq-len 4");
    config.seq_len = PACK_MOST_SEQ_LEN + 1;
    assert_refused(&config, FAIL_VALUE, "--seq-len 1048577: documents are packed into rows of at ");
}

static void a_default_sequence_is_no_longer_than_the_documents(void **state)
{
    (void)state;
    struct rows r;
    write_text("a.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5,6,7]}\n");
    struct data_config config = config_of("a.jsonl");
    config.seq_len = 1000;
    config.may_shorten = true;
    open_ok(&config, 0, &r);
    assert_int_equal(data_seq_len(r.data), 5);
    assert_int_equal(r.count, 1);
    data_close(&r.data);
    config.pack = DATA_PACK_OFF;
    open_ok(&config, 0, &r);
    assert_int_equal(data_seq_len(r.data), 3);
    assert_int_equal(r.count, 2);
    data_close(&r.data);
}

static void data_without_documents_is_cut_and_takes_no_word_about_them(void **state)
{
    (void)state;
    struct data *data = NULL;
    write_text("a.txt", "abcdefghijkl");
    struct data_config config = config_of("a.txt");
    config.vocab = 256;
    config.pack = DATA_PACK_ON;
    config.longer = PACK_LONG_SPLIT; /* what is done anyway */
    assert_int_equal(data_open(&config, &data, NULL), 0);
    assert_null(data_packing(data));
    assert_int_equal(data_sequence_count(data), 2);
    data_close(&data);
    config.longer = PACK_LONG_DROP;
    assert_refused(&config, FAIL_VALUE,
                   "a.txt has neither documents nor a mask: it is one row of "
                   "tokens, and --long is about documents");
    config.longer = 0;
    config.pack = DATA_PACK_OFF;
    assert_refused(&config, FAIL_VALUE, "and --pack is about documents");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_of_all_files_are_packed_together),
        cmocka_unit_test(a_file_without_documents_is_one_beside_others),
        cmocka_unit_test(a_row_is_one_document_where_that_is_asked_for),
        cmocka_unit_test(each_pass_has_all_rows_in_an_order_of_its_own),
        cmocka_unit_test(rows_without_a_target_are_left_out),
        cmocka_unit_test(data_of_which_nothing_is_left_is_refused),
        cmocka_unit_test(long_documents_are_refused_where_there_is_a_mask),
        cmocka_unit_test(a_default_sequence_is_no_longer_than_the_documents),
        cmocka_unit_test(data_without_documents_is_cut_and_takes_no_word_about_them),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
