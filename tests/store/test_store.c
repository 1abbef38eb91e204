/* SPDX-License-Identifier: Apache-2.0 */
/* A store's life on real files: what is committed is found again, by its owner alone. */
#include "toy.h"

#include "store/files.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "real.h" /* uses what cmocka.h declares */

static void what_was_committed_is_found_again(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= TOY_DRIVES; drives++) {
        struct toy toy;
        struct store_found found;
        open_toy_on(&toy, drives, drives == 1 ? HST_AIO_AUTO : HST_AIO_THREADS);
        toy.config.align_bytes = drives == 1 ? 0 : 65536;
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
            assert_null(toy_compare(&toy, store, version - 1));
            assert_int_equal(toy_commit_all(&toy, store, version), 0);
            store_close(&store);
        }
        toy_close(&toy);
    }
}

/* A commit of version 1 that is prepared and not ended. */
static void prepare(struct toy *toy, struct store *store)
{
    char text[32];
    const struct store_cursor cursor = toy_cursor(1, text);
    struct transfer transfer;
    memcpy(toy->stamps[1], toy->stamps[0], sizeof toy->stamps[0]);
    assert_int_equal(toy_write(toy, store, 1, 0, &transfer), 0);
    assert_int_equal(extents_wait(store_extents(store), &transfer), 0);
    assert_int_equal(store_commit_begin(store, &cursor), 0);
    while (store_commit_state(store) == STORE_COMMIT_UNDERWAY)
        assert_int_equal(store_extents(store)->ops->progress(store_extents(store), UINT64_MAX), 0);
    assert_int_equal(store_commit_state(store), STORE_COMMIT_PREPARED);
}

static bool is_there(const struct toy *toy, bool forming)
{
    char name[STORE_NAME_BYTES], path[256];
    store_file_name(0, 0, forming, name);
    snprintf(path, sizeof path, "%s/%s", toy->config.drives[0].directory, name);
    return access(path, F_OK) == 0;
}

/* Others may have heard of a vote that this rank has not. */
static void what_was_prepared_stays_without_its_name(void **state)
{
    (void)state;
    struct toy toy;
    open_toy(&toy, 1);
    struct store *store = create(&toy);
    assert_true(is_there(&toy, true));
    store_close(&store); /* not prepared */
    assert_false(is_there(&toy, true));
    store = create(&toy);
    prepare(&toy, store);
    store_close(&store);
    assert_true(is_there(&toy, true));
    assert_false(is_there(&toy, false));
    store = create(&toy); /* it goes with the next one */
    store_close(&store);
    assert_false(is_there(&toy, true));
    toy_close(&toy);
}

static void the_gate_is_closed_from_begin_to_end(void **state)
{
    (void)state;
    struct toy toy;
    struct transfer transfer;
    open_toy(&toy, 1);
    struct store *store = create(&toy);
    assert_int_equal(store_commit_end(store), -EINVAL); /* none was begun */
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    assert_true(store_may_write(store, EXTENT_STATES, 0));
    prepare(&toy, store);
    assert_false(store_may_write(store, EXTENT_STATES, 0));
    assert_int_equal(toy_write(&toy, store, 2, 1, &transfer), -EBUSY);
    char text[32];
    const struct store_cursor cursor = toy_cursor(2, text);
    assert_int_equal(store_commit_begin(store, &cursor), -EBUSY);
    assert_int_equal(store_version(store), 0);
    assert_int_equal(store_commit_end(store), 0);
    assert_int_equal(store_version(store), 1);
    assert_true(store_may_write(store, EXTENT_STATES, 0));
    assert_int_equal(toy_write(&toy, store, 2, 1, &transfer), 0);
    assert_int_equal(extents_wait(store_extents(store), &transfer), 0);
    store_close(&store);
    toy_close(&toy);
}

static void a_commit_that_was_not_ended_is_found_all_the_same(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    open_toy(&toy, 2);
    struct store *store = create(&toy);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    prepare(&toy, store);
    store_close(&store); /* not in order: another rank may have gone back */
    store = reopen(&toy, &found);
    assert_false(found.clean);
    assert_true(found.verified_bytes > 0);
    assert_null(toy_compare(&toy, store, 1));
    store_close(&store);
    toy_close(&toy);
}

struct asked {
    uint64_t done_bytes, total_bytes;
    uint32_t calls, end_at; /* the call that ends it; 0: none */
};

static int note_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct asked *asked = context;
    assert_true(done_bytes >= asked->done_bytes && done_bytes <= total_bytes);
    asked->done_bytes = done_bytes;
    asked->total_bytes = total_bytes;
    return ++asked->calls == asked->end_at;
}

static void what_is_compared_is_told_and_can_be_ended(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    struct hst_error error = {0};
    open_toy(&toy, 2);
    struct store *store = create(&toy);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    prepare(&toy, store); /* version 1 */
    store_close(&store);  /* not in order: all bytes are compared */
    struct asked asked = {.end_at = 2};
    struct store_config config = toy.config;
    config.progress = note_progress;
    config.progress_context = &asked;
    assert_int_equal(store_open(&config, &store, &found, &error), -ECANCELED);
    assert_int_equal(asked.calls, 2);
    asked = (struct asked){.end_at = 0};
    assert_int_equal(store_open(&config, &store, &found, &error), 0);
    assert_false(found.clean);
    assert_int_equal(asked.done_bytes, asked.total_bytes);
    assert_int_equal(asked.total_bytes, found.verified_bytes);
    assert_null(toy_compare(&toy, store, 1));
    store_close(&store);
    toy_close(&toy);
}

static void what_was_not_committed_is_gone_and_what_was_not_written_is_zero(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    struct transfer transfers[2];
    open_toy(&toy, 2);
    struct store *store = create(&toy);
    assert_int_equal(toy_write(&toy, store, 0, 1, &transfers[0]), 0);
    assert_int_equal(toy_commit(store, 0), 0); /* the write in flight is part of it */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(toy_write(&toy, store, 1, i, &transfers[i]), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(extents_wait(store_extents(store), &transfers[i]), 0);
    store_close(&store);
    store = reopen(&toy, &found);
    assert_true(found.clean);
    assert_null(toy_compare(&toy, store, 0)); /* all but one of its extents are zeros */
    assert_int_equal(toy.stamps[0][0], 0);
    store_close(&store);
    toy_close(&toy);
}

static void an_extent_that_a_version_leaves_alone_keeps_its_slot(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    open_toy(&toy, 2);
    struct store *store = create(&toy);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    const uint64_t before = store_extents(store)->counters.written_bytes;
    for (uint64_t version = 1; version < 4; version++) { /* skipped steps */
        memcpy(toy.stamps[version], toy.stamps[0], sizeof toy.stamps[0]);
        assert_int_equal(toy_commit(store, version), 0);
    }
    assert_int_equal(store_extents(store)->counters.written_bytes, before);
    store_close(&store);
    store = reopen(&toy, &found);
    assert_null(toy_compare(&toy, store, 3));
    store_close(&store);
    toy_close(&toy);
}

static void derived_weights_are_in_no_version(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    struct transfer transfer;
    open_toy(&toy, 2);
    toy.config.derived_weights = true;
    struct store *store = create(&toy);
    assert_int_equal(extents_read(store_extents(store), EXTENT_WEIGHTS, 1, toy.read, &transfer),
                     -ENODATA);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    store_close(&store);
    store = reopen(&toy, &found);
    assert_int_equal(extents_read(store_extents(store), EXTENT_WEIGHTS, 1, toy.read, &transfer),
                     -ENODATA);
    assert_false(transfer.active);
    for (uint32_t i = 0; i < TOY_TILES; i++) { /* rebuilt */
        assert_int_equal(toy_write(&toy, store, 0, i, &transfer), 0);
        assert_int_equal(extents_wait(store_extents(store), &transfer), 0);
    }
    assert_null(toy_compare(&toy, store, 0));
    store_close(&store);
    toy_close(&toy);
}

/* Every extent's bytes, not the cursor, which is that of the open. */
static void assert_bytes_of(struct toy *toy, struct store *store, uint64_t version)
{
    struct extents *extents = store_extents(store);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        struct transfer transfer = {0};
        assert_int_equal(extents_read(extents, toy_kind(i), i % TOY_TILES, toy->read, &transfer),
                         0);
        assert_int_equal(extents_wait(extents, &transfer), 0);
        assert_true(toy_holds(toy, i, toy->stamps[version][i], toy->read));
    }
}

static void write_some(struct toy *toy, struct store *store, uint64_t version, bool wait)
{
    struct transfer transfers[3] = {{0}};
    memcpy(toy->stamps[version], toy->stamps[version - 1], sizeof toy->stamps[0]);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(toy_write(toy, store, version, 2 * i, &transfers[i]), 0);
    if (!wait)
        assert_int_equal(store_revert(store), -EBUSY);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(extents_wait(store_extents(store), &transfers[i]), 0);
}

static void what_was_written_since_the_last_commit_can_be_forgotten(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    open_toy(&toy, 2);
    toy.config.revertible = true;
    struct store *store = create(&toy);
    assert_int_equal(store_revert(store), -EINVAL); /* there is no version yet */
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    for (int times = 0; times < 3; times++) { /* and again: it goes to the same slot */
        write_some(&toy, store, 1, times > 0);
        assert_bytes_of(&toy, store, 1);
        assert_int_equal(store_revert(store), 0);
        assert_bytes_of(&toy, store, 0);
    }
    write_some(&toy, store, 1, true);
    prepare(&toy, store);
    assert_int_equal(store_revert(store), -EBUSY); /* a commit is underway */
    store_close(&store);
    store = reopen(&toy, &found);
    assert_int_equal(toy_commit_all(&toy, store, 2), 0);
    assert_int_equal(store_revert(store), 0); /* there is nothing to forget */
    assert_bytes_of(&toy, store, 2);
    store_close(&store);
    store = reopen(&toy, &found);
    write_some(&toy, store, 3, true);
    assert_int_equal(store_revert(store), 0); /* to what the open found */
    assert_bytes_of(&toy, store, 2);
    write_some(&toy, store, 3, true);
    assert_int_equal(toy_commit(store, 3), 0);
    store_close(&store);
    toy.config.revertible = false;
    store = reopen(&toy, &found);
    assert_null(toy_compare(&toy, store, 3));
    assert_int_equal(store_revert(store), -EINVAL);
    store_close(&store);
    toy_close(&toy);
}

static void other_kinds_and_numbers_are_refused(void **state)
{
    (void)state;
    struct toy toy;
    struct transfer transfer;
    open_toy(&toy, 1);
    struct store *store = create(&toy);
    struct extents *extents = store_extents(store);
    assert_int_equal(extents_write(extents, EXTENT_GRADS, 0, toy.read, &transfer), -EINVAL);
    assert_int_equal(extents_read(extents, EXTENT_ACTS, 0, toy.read, &transfer), -EINVAL);
    assert_int_equal(extents_read(extents, EXTENT_STATES, TOY_TILES, toy.read, &transfer), -EINVAL);
    const struct store_cursor large = {.opaque = toy.read, .opaque_bytes = STORE_CURSOR_MAX + 1};
    assert_int_equal(store_commit_begin(store, &large), -EINVAL);
    store_close(&store);
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_found_again),
        cmocka_unit_test(the_gate_is_closed_from_begin_to_end),
        cmocka_unit_test(what_was_prepared_stays_without_its_name),
        cmocka_unit_test(a_commit_that_was_not_ended_is_found_all_the_same),
        cmocka_unit_test(what_is_compared_is_told_and_can_be_ended),
        cmocka_unit_test(what_was_not_committed_is_gone_and_what_was_not_written_is_zero),
        cmocka_unit_test(an_extent_that_a_version_leaves_alone_keeps_its_slot),
        cmocka_unit_test(derived_weights_are_in_no_version),
        cmocka_unit_test(what_was_written_since_the_last_commit_can_be_forgotten),
        cmocka_unit_test(other_kinds_and_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
