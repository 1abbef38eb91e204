/* SPDX-License-Identifier: Apache-2.0 */
/* A store's life on real files: what is committed is found again, by its owner alone. */
#include "toy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void open_toy(struct toy *toy, uint32_t drives, const char *fault)
{
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_THREADS,
                                          .thread_count = 2,
                                          .queue_depth = 4,
                                          .lock_timeout_ms = 1,
                                          .fault = fault};
    assert_int_equal(toy_open(toy, drives), 0);
    for (uint32_t d = 0; d < drives; d++) {
        assert_int_equal(hst_aio_open(&config, toy->directories[d], &toy->aio[d], NULL), 0);
        toy->drives[d].aio = toy->aio[d];
    }
}

static struct store *create(struct toy *toy)
{
    struct store *store = NULL;
    struct hst_error error = {0};
    int rc = store_create(&toy->config, &store, &error);
    if (rc)
        print_message("%s\n", error.message);
    assert_int_equal(rc, 0);
    return store;
}

static struct store *reopen(struct toy *toy, struct store_found *found)
{
    struct store *store = NULL;
    struct hst_error error = {0};
    int rc = store_open(&toy->config, &store, found, &error);
    if (rc)
        print_message("%s\n", error.message);
    assert_int_equal(rc, 0);
    return store;
}

static void what_was_committed_is_found_again(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= TOY_DRIVES; drives++) {
        struct toy toy;
        struct store_found found;
        open_toy(&toy, drives, NULL);
        struct store *store = create(&toy);
        assert_true(store_version(store) == STORE_NO_VERSION);
        for (uint64_t version = 0; version < 5; version++)
            assert_int_equal(toy_commit_all(&toy, store, version), 0);
        store_close(&store);
        assert_null(store);
        for (uint64_t version = 5; version < 8; version++) {
            store = reopen(&toy, &found);
            assert_true(found.clean);
            assert_int_equal(found.verified_bytes, 0);
            assert_string_equal(ZZ;
            assert_int_equal(toy_commit_all(&toy, store, version), 0);
            store_close(&store);
        }
        toy_close(&toy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
