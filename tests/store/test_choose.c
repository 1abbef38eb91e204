/* SPDX-License-Identifier: Apache-2.0 */
/* Which version an open goes on from: what each loss of metadata leads to, on one rank and on
 * several. */
#include "store/choose.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* seq of each copy; -1: damaged, -2: never written */
static bool choose(int a0, int a1, int b0, int b1, uint64_t *seq, bool *trusted)
{
    const int seqs[2][2] = {{a0, a1}, {b0, b1}};
    struct store_superblocks all = {.flaw = {{{0, NULL}}}};
    struct store_superblock newest;
    for (int slot = 0; slot < 2; slot++)
        for (int copy = 0; copy < 2; copy++) {
            const int value = seqs[slot][copy];
            all.read[slot][copy].seq = (uint64_t)value;
            all.flaw[slot][copy].error = value == -1 ? -EBADMSG : value == -2 ? -ENOENT : 0;
        }
    const bool found = store_choose_superblock(&all, &newest, trusted);
    *seq = found ? newest.seq : 0;
    return found;
}

static void the_newest_valid_superblock_is_taken(void **state)
{
    (void)state;
    static const struct {
        int a0, a1, b0, b1, seq;
        bool trusted;
    } ROWS[] = {
        {6, 6, 7, 7, 7, true},    {8, 8, 7, 7, 8, true},
        {8, 6, 7, 7, 8, true}, /* one copy of the newest was reached */
        {6, 8, 7, 7, 8, true},    {-1, 8, 7, 7, 8, true},
        {-1, -1, 7, 7, 7, false}, /* torn, or lost: nobody can tell */
        {6, 6, -1, -1, 6, false}, {8, 8, -1, -1, 8, false},
        {8, 8, -1, 7, 8, true},   {8, 8, 5, 5, 8, false},  /* writes that never arrived */
        {-2, -2, 7, 7, 7, false}, {0, 0, -2, -2, 0, true}, /* the first of all */
        {0, -1, -2, -2, 0, true}, {0, 0, -1, -2, 0, false},
        {0, 0, 1, -2, 1, true},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        uint64_t seq;
        bool trusted;
        assert_true(choose(ROWS[i].a0, ROWS[i].a1, ROWS[i].b0, ROWS[i].b1, &seq, &trusted));
        assert_int_equal(seq, ROWS[i].seq);
        assert_int_equal(trusted, ROWS[i].trusted);
    }
    uint64_t seq;
    bool trusted;
    assert_false(choose(-1, -1, -2, -1, &seq, &trusted));
}

static struct store_candidate candidate(uint64_t version, const char *run)
{
    struct store_candidate c = {.version = version};
    snprintf((char *)c.commit_id.bytes, sizeof c.commit_id.bytes, "%s", run);
    return c;
}

static void ranks_agree_on_the_latest_version_that_all_have(void **state)
{
    (void)state;
    const struct store_candidates ahead = {.count = 2,
                                           .list = {candidate(6, "a"), candidate(5, "a")}};
    const struct store_candidates behind = {.count = 2,
                                            .list = {candidate(5, "a"), candidate(4, "a")}};
    const struct store_candidates alone[] = {ahead};
    assert_int_equal(store_choose_version(alone, 1, STORE_NO_VERSION)->version, 6);
    assert_int_equal(store_choose_version(alone, 1, 6)->version, 5);
    assert_null(store_choose_version(alone, 1, 5));
    const struct store_candidates apart[] = {ahead, behind, ahead};
    assert_int_equal(store_choose_version(apart, 3, STORE_NO_VERSION)->version, 5);
    assert_null(store_choose_version(apart, 3, 5));
    uint64_t step = 0;
    assert_false(store_newest_damaged(apart, 3, &step)); /* one that has not come so far is whole */
    const struct store_candidates damaged[] = {
        {1, {candidate(5, "a")}, true, 60}, ahead, {1, {candidate(5, "a")}, true, 50}};
    assert_int_equal(store_choose_version(damaged, 3, STORE_NO_VERSION)->version, 5);
    assert_true(store_newest_damaged(damaged, 3, &step));
    assert_int_equal(step, 60);
    const struct store_candidates turned[] = {behind, ahead};
    assert_int_equal(store_choose_version(turned, 2, STORE_NO_VERSION)->version, 5);
    assert_int_equal(store_latest_version(turned, 2), 6);
    assert_int_equal(store_latest_version(&behind, 1), 5);
    const struct store_candidates none = {.count = 0};
    assert_int_equal(store_latest_version(&none, 1), 0);
}

static void versions_of_different_runs_are_different(void **state)
{
    (void)state;
    const struct store_candidates mixed[] = {
        {.count = 2, .list = {candidate(6, "a"), candidate(5, "a")}},
        {.count = 2, .list = {candidate(6, "b"), candidate(5, "a")}}};
    assert_int_equal(store_choose_version(mixed, 2, STORE_NO_VERSION)->version, 5);
    const struct store_candidates apart[] = {{.count = 1, .list = {candidate(6, "a")}},
                                             {.count = 1, .list = {candidate(6, "b")}}};
    assert_null(store_choose_version(apart, 2, STORE_NO_VERSION));
    const struct store_candidates none[] = {{.count = 0},
                                            {.count = 1, .list = {candidate(6, "b")}}};
    assert_null(store_choose_version(none, 2, STORE_NO_VERSION));
    const struct store_candidates one_without[] = {{.count = 1, .list = {candidate(6, "b")}},
                                                   {.count = 0}};
    assert_null(store_choose_version(one_without, 2, STORE_NO_VERSION));
}

static void bytes_are_read_unless_the_close_was_in_order(void **state)
{
    (void)state;
    struct store_superblock newest = {.state = STORE_CLEAN, .cur = {.version = 5}};
    assert_false(store_must_verify(&newest, true, 5));
    assert_true(store_must_verify(&newest, false, 5));
    assert_true(store_must_verify(&newest, true, 4));
    newest.state = STORE_OPEN;
    assert_true(store_must_verify(&newest, true, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_valid_superblock_is_taken),
        cmocka_unit_test(ranks_agree_on_the_latest_version_that_all_have),
        cmocka_unit_test(versions_of_different_runs_are_different),
        cmocka_unit_test(bytes_are_read_unless_the_close_was_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
