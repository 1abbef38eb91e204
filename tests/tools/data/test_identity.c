/* SPDX-License-Identifier: Apache-2.0 */
/* What data is told from other data by, whatever its files are called. */
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
#include <xxhash.h>

#define PARTS      64
#define PART_BYTES 4096
#define SMALL      (PARTS * PART_BYTES)
#define LARGE      (UINT64_C(3) << 30) /* with holes: it takes no room */

/* A file of `size` bytes 0, but for one of them. */
static void make(const char *name, uint64_t size, uint64_t at, char byte)
{
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(close(fd), 0);
}

static struct data_identity identity_of(const char *files)
{
    const struct data_config config = {
        .files = files, .format = DATA_FORMAT_BYTES, .seq_len = 4, .vocab = 256};
    struct data *data = NULL;
    struct hst_error error = {0};
    assert_int_equal(data_open(&config, &data, &error), 0);
    struct data_identity identity = data_identity(data);
    data_close(&data);
    return identity;
}

static bool same(struct data_identity a, struct data_identity b)
{
    return a.in_order == b.in_order && a.in_any_order == b.in_any_order;
}

static void a_file_is_the_same_data_under_another_name(void **state)
{
    (void)state;
    make("a", 1000, 7, 1);
    struct data_identity before = identity_of("a");
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(rename("a", "folder/b"), 0);
    assert_true(same(before, identity_of("folder/b")));
}

static void each_byte_of_a_small_file_counts(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {5, 4096, 4097, SMALL - 1, SMALL};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t step = sizes[i] / 5;
        make("a", sizes[i], 0, 0);
        struct data_identity zero = identity_of("a");
        for (uint64_t at = sizes[i] - 1; at < sizes[i]; at -= step) {
            make("a", sizes[i], at, 1);
            assert_false(same(zero, identity_of("a")));
        }
    }
}

static void of_a_large_file_its_size_and_its_ends_count(void **state)
{
    (void)state;
    static const struct {
        uint64_t size, at;
    } rows[] = {{LARGE, 0},         {LARGE, PART_BYTES - 1}, {LARGE, LARGE - PART_BYTES},
                {LARGE, LARGE - 1}, {LARGE + 1, 0},          {LARGE + 1, LARGE},
                {SMALL + 1, SMALL}};
    make("a", LARGE, 0, 0);
    make("b", LARGE + 1, 0, 0);
    assert_false(same(identity_of("a"), identity_of("b")));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make("a", rows[i].size, 0, 0);
        make("b", rows[i].size, rows[i].at, 1);
        assert_false(same(identity_of("a"), identity_of("b")));
    }
}

/* The definition, in one piece: a store holds these numbers. */
static uint64_t expected(const char *name, uint64_t size)
{
    static unsigned char bytes[sizeof(uint64_t) + SMALL];
    const bool whole = size <= SMALL;
    int fd = open(name, O_RDONLY);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(size >> 8 * i);
    for (unsigned i = 0; i < (whole ? 1 : PARTS); i++) {
        const size_t n = whole ? (size_t)size : PART_BYTES;
        const uint64_t at = (uint64_t)((__uint128_t)(size - n) * i / (PARTS - 1));
        assert_int_equal(pread(fd, bytes + 8 + (uint64_t)i * PART_BYTES, n, (off_t)at), n);
    }
    close(fd);
    return XXH3_64bits(bytes, 8 + (whole ? (size_t)size : SMALL));
}

static void the_numbers_are_those_of_the_definition(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {100, SMALL, SMALL + 1, SMALL + 63 * 5 + 17, LARGE, LARGE + 13};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t size = sizes[i];
        make("a", size, size / 63 * 17, 5); /* begins a part of some */
        const uint64_t file = expected("a", size);
        const uint64_t row[] = {0, file}; /* what was before: nothing */
        struct data_identity is = identity_of("a");
        assert_true(is.in_any_order == file);
        assert_true(is.in_order == XXH3_64bits(row, sizeof row));
    }
}

static void the_order_of_files_counts_in_one_of_the_numbers_alone(void **state)
{
    (void)state;
    make("a", 1000, 7, 1);
    make("b", 1000, 7, 2);
    make("c", 1000, 7, 3);
    struct data_identity abc = identity_of("a,b,c"), bca = identity_of("b,c,a");
    assert_true(abc.in_any_order == bca.in_any_order);
    assert_true(abc.in_order != bca.in_order);
    assert_true(abc.in_order != identity_of("b,a,c").in_order); /* whichever is the last */
    assert_true(identity_of("a,a").in_any_order != identity_of("b,b").in_any_order);
    assert_true(identity_of("a,b,b").in_any_order != identity_of("a,a,b").in_any_order);
    assert_true(identity_of("a,b").in_order != identity_of("a").in_order);
}

static void who_is_asked_to_stop_reads_no_further(void **state)
{
    (void)state;
    static volatile sig_atomic_t stopped = 1;
    const struct data_config config = {
        .files = "a", .format = DATA_FORMAT_BYTES, .seq_len = 4, .vocab = 256, .stopped = &stopped};
    struct data *data = NULL;
    struct hst_error error = {0};
    make("a", 1000, 7, 1);
    assert_int_equal(data_open(&config, &data, &error), -ECANCELED);
    assert_null(data);
    assert_int_equal(error.code, 0);
    stopped = 0;
    assert_int_equal(data_open(&config, &data, &error), 0);
    data_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_the_same_data_under_another_name),
        cmocka_unit_test(each_byte_of_a_small_file_counts),
        cmocka_unit_test(of_a_large_file_its_size_and_its_ends_count),
        cmocka_unit_test(the_numbers_are_those_of_the_definition),
        cmocka_unit_test(the_order_of_files_counts_in_one_of_the_numbers_alone),
        cmocka_unit_test(who_is_asked_to_stop_reads_no_further),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
