/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of real I/O: what aio can mend is not noticed, what it cannot mend stops the run, and the
 * version before is as it was. (Every operation in turn: faults.c, on a drive of its own.)
 */
#include "toy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "real.h" /* uses what cmocka.h declares */

/* All of a drive's operations under a plan. */
static void befall(struct toy *toy, uint32_t drive, const char *plan)
{
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_THREADS,
                                          .thread_count = 1,
                                          .queue_depth = 4,
                                          .lock_timeout_ms = 1,
                                          .fault = plan};
    hst_aio_close(&toy->aio[drive]);
    assert_int_equal(hst_aio_open(&config, toy->directories[drive], &toy->aio[drive], NULL), 0);
    toy->drives[drive].aio = toy->aio[drive];
}

/* From version 0, as far as it goes. Returns the last version whose commit has returned. */
static uint64_t run(struct toy *toy, int *rc)
{
    struct store *store;
    struct store_found found;
    struct hst_error error = {0};
    uint64_t version = 0;
    *rc = store_open(&toy->config, &store, &found, &error);
    if (*rc) {
        assert_int_equal(error.native, *rc);
        assert_true(error.code > 0);
        return 0;
    }
    while (*rc == 0 && version < 2) {
        *rc = toy_commit_all(toy, store, version + 1);
        version += *rc == 0;
    }
    if (*rc) { /* and it stays so */
        struct transfer transfer;
        assert_int_equal(store_error(store)->native, *rc);
        assert_non_null(strstr(store_error(store)->message, "Fix: "));
        assert_false(store_may_write(store, EXTENT_WEIGHTS, 0));
        assert_int_equal(toy_write(toy, store, 3, 0, &transfer), *rc);
        assert_int_equal(toy_commit(store, version + 1), *rc);
    }
    store_close(&store);
    return version;
}

static void try_plan(const char *plan, uint32_t drive, bool mended)
{
    struct toy toy;
    struct store_found found;
    int rc;
    open_toy(&toy, 2);
    struct store *store = create(&toy);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    store_close(&store);
    befall(&toy, drive, plan);
    const uint64_t version = run(&toy, &rc);
    if (mended != (rc == 0))
        print_message("drive %u, %s: %s\n", drive, plan, strerror(-rc));
    assert_int_equal(mended, rc == 0);
    befall(&toy, drive, NULL);
    store = reopen(&toy, &found);
    assert_in_range(found.version, version, version + 1);
    assert_false(found.stepped_back);
    assert_null(toy_compare(&toy, store, found.version));
    store_close(&store);
    toy_close(&toy);
}

static void what_can_be_mended_is_not_noticed(void **state)
{
    (void)state;
    static const char *const PLANS[] = {
        "nth=1 every=3 times=all err=EINTR", "nth=2 every=5 times=all short=half",
        "op=write nth=6 err=EIO", "op=write every=2 times=all reordered",
        "op=write nth=4 every=7 times=all late=1ms"};
    for (size_t i = 0; i < sizeof PLANS / sizeof PLANS[0]; i++)
        for (uint32_t drive = 0; drive < 2; drive++)
            try_plan(PLANS[i], drive, true);
}

static void what_can_not_be_mended_stops_the_run(void **state)
{
    (void)state;
    static const char *const PLANS[] = {
        "op=sync nth=2 err=EIO", /* C3, never tried again */
        "op=sync nth=3 err=EIO",     "op=write nth=5 times=all err=EIO",
        "op=write nth=5 err=ENOSPC", "op=write nth=4 times=all torn; seed=3",
        "op=any nth=9 vanish",
    };
    for (size_t i = 0; i < sizeof PLANS / sizeof PLANS[0]; i++)
        for (uint32_t drive = 0; drive < 2; drive++)
            try_plan(PLANS[i], drive, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_mended_is_not_noticed),
        cmocka_unit_test(what_can_not_be_mended_stops_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
