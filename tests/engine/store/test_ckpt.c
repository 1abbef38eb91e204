/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that a run has left, read without that run: the weights are those that the engine itself
 * saves, and no element changes on its way through other numbers of ranks.
 */
#include "cases.h"
#include "ckpt_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void check_ranks(const char *names, uint32_t world)
{
    struct hst_ckpt *ckpt = opened(names);
    uint64_t damaged = 99;
    assert_int_equal(ckpt->world, world);
    for (uint32_t r = 0; r < world; r++) {
        struct layout *layout = &ckpt->layout;
        must(layout_seal(layout, layout->tile_elements, (struct share){r, world}));
        assert_int_equal(ckpt->looks[r].headers[0].extents, STORE_KINDS * layout->tile_count);
    }
    must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
    assert_int_equal(damaged, 0);
    hst_ckpt_close(&ckpt);
}

static void there_and_back_no_element_changes(void **state)
{
    (void)state;
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16,
                                                    HST_PRECISION_FP16};
    for (size_t p = 0; p < sizeof PRECISIONS / sizeof *PRECISIONS; p++) {
        empty_root();
        train(PRECISIONS[p], in_root("one"), STEPS, &oracle);
        check_weights("one", PRECISIONS[p]);
        const uint64_t digest = digest_of("one");
        reshard("one", 2, "two");
        reshard("two", 3, "three-a,three-b,three-c");
        reshard("three-a,three-b,three-c", 8, "eight");
        reshard("eight", 4, "four");
        reshard("four", 1, "again-a,again-b");
        check_ranks("two", 2);
        check_ranks("three-a,three-b,three-c", 3);
        check_ranks("eight", 8);
        check_ranks("four", 4);
        assert_true(digest_of("two") != digest); /* other tiles: it tells them apart */
        assert_true(digest_of("again-a,again-b") == digest);
        check_weights("three-a,three-b,three-c", PRECISIONS[p]);
        check_weights("eight", PRECISIONS[p]);
        check_weights("again-a,again-b", PRECISIONS[p]);
    }
}

/* Each number of ranks, made at once and of what another number had made. */
static void by_whatever_route_the_hashes_of_all_tiles_are_the_same(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, through;
    } ROUTES[] = {{2, 8}, {2, 3}, {3, 2}, {4, 3}, {4, 8}, {8, 2}, {8, 3}};
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16};
    char direct[16], through[16], other[32];
    for (size_t p = 0; p < sizeof PRECISIONS / sizeof *PRECISIONS; p++) {
        uint64_t before = 0;
        empty_root();
        train(PRECISIONS[p], in_root("one"), STEPS, &oracle);
        for (size_t i = 0; i < sizeof ROUTES / sizeof *ROUTES; i++) {
            snprintf(direct, sizeof direct, "direct-%zu", i);
            snprintf(through, sizeof through, "through-%zu", i);
            snprintf(other, sizeof other, "other-%zu-a,other-%zu-b", i, i);
            reshard("one", ROUTES[i].ranks, direct);
            reshard("one", ROUTES[i].through, other);
            reshard(other, ROUTES[i].ranks, through);
            check_ranks(through, ROUTES[i].ranks);
            const uint64_t digest = digest_of(direct);
            assert_true(digest_of(through) == digest);
            assert_true(digest_of(other) != digest);
            if (i > 0)
                assert_int_equal(digest == before, ROUTES[i].ranks == ROUTES[i - 1].ranks);
            before = digest;
        }
    }
}

/* Some of so many have nothing, and are files all the same. */
static void there_are_no_more_ranks_than_blocks_of_the_largest_unit(void **state)
{
    (void)state;
    uint64_t most = 0;
    empty_root();
    train(HST_PRECISION_BF16, in_root("one"), STEPS, &oracle);
    struct hst_ckpt *ckpt = opened("one");
    for (uint32_t u = 0; u < ckpt->layout.unit_count; u++)
        most = ckpt->layout.units[u].elements > most ? ckpt->layout.units[u].elements : most;
    const uint32_t ranks = (uint32_t)(most / LAYOUT_UNIT_ALIGN);
    const uint32_t empty = ranks - 1; /* two blocks a rank: the last ones have none */
    hst_ckpt_close(&ckpt);
    reshard("one", ranks, "most");
    check_ranks("most", ranks);
    reshard("most", empty, "less");
    check_ranks("less", empty);
    check_weights("less", HST_PRECISION_BF16);
    ckpt = opened("less");
    assert_int_equal(ckpt->looks[empty - 1].headers[0].extents, 0);
    hst_ckpt_close(&ckpt);
    reshard("less", 1, "again");
    assert_true(digest_of("again") == digest_of("one"));
    ckpt = opened("one");
    assert_int_equal(hst_ckpt_reshard(ckpt, in_root("more"), ranks + 1, NULL, &error), -EINVAL);
    assert_int_equal(error.code, HST_E_VALUE);
    assert_int_equal(access(in_root("more"), F_OK), -1);
    hst_ckpt_close(&ckpt);
}

struct stop {
    uint64_t at_bytes, done_bytes, total_bytes;
};

static int stop_at(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct stop *stop = context;
    assert_true(done_bytes > stop->done_bytes);
    stop->done_bytes = done_bytes;
    stop->total_bytes = total_bytes;
    return done_bytes >= stop->at_bytes;
}

/* What the ranks read: a tile where two of them meet twice. */
static uint64_t bytes_of_reshard(const struct hst_ckpt *ckpt, uint32_t world)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < world; r++)
        bytes += ckpt_reading_bytes(
            ckpt, &(struct ckpt_reading){.share = {r, world}, .weights = true, .states = true});
    return bytes;
}

static void what_is_stopped_leaves_nothing(void **state)
{
    (void)state;
    empty_root();
    train(HST_PRECISION_FP32, in_root("one"), STEPS, &oracle);
    struct hst_ckpt *ckpt = opened("one");
    const uint64_t all = bytes_of_reshard(ckpt, 4);
    for (uint64_t at = all / 8; at < all; at += all / 4) { /* in each of four ranks */
        struct stop stop = {.at_bytes = at};
        const struct hst_ckpt_watch watch = {.progress = stop_at, .context = &stop};
        assert_int_equal(hst_ckpt_reshard(ckpt, in_root("x,y"), 4, &watch, &error), -ECANCELED);
        assert_true(stop.done_bytes >= at && stop.done_bytes < all);
        assert_int_equal(access(in_root("x"), F_OK), -1);
        assert_int_equal(access(in_root("y"), F_OK), -1);
    }
    struct stop none = {.at_bytes = UINT64_MAX};
    const struct hst_ckpt_watch watch = {.progress = stop_at, .context = &none};
    must(hst_ckpt_reshard(ckpt, in_root("x,y"), 4, &watch, &error));
    assert_int_equal(none.done_bytes, all);
    assert_int_equal(none.total_bytes, all);
    hst_ckpt_close(&ckpt);
}

static void what_is_not_held_or_not_described_is_not_read(void **state)
{
    (void)state;
    empty_root();
    train(HST_PRECISION_FP32, in_root("one"), STEPS, &oracle);
    struct hst_ckpt *ckpt = NULL;
    const struct hst_writer writer = {take, &found};
    struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root("one"), .step = HST_NO_VERSION};
    uint64_t damaged = 0;
    must(hst_ckpt_open(&config, &ckpt, &error));
    assert_int_equal(hst_ckpt_verify(ckpt, NULL, &damaged, &error), -EINVAL);
    assert_int_equal(hst_ckpt_save(ckpt, &writer, NULL, &error), -EINVAL);
    struct hst_engine *model = toy_created(OF_RUN(.precision = HST_PRECISION_BF16));
    toy_must(model, toy_describe(model));
    assert_int_equal(hst_ckpt_model(ckpt, model, &error), -EINVAL);
    assert_int_equal(error.code, HST_E_STORE_OTHER);
    hst_engine_destroy(&model);
    hst_ckpt_close(&ckpt);
    config.step = STEPS + 1;
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -ENOENT);
    config.store = "";
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -EINVAL);
    config.store = "a,,b";
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -EINVAL);
    assert_null(ckpt);
}
/* ---- copies that are kept ---- */

/* A copy waits here while the test has it. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

ssize_t __real_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags);
ssize_t __wrap_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags);
ssize_t __wrap_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags)
{
    pthread_mutex_lock(&gate);
    const ssize_t n = __real_copy_file_range(from, in, to, out, bytes, flags);
    pthread_mutex_unlock(&gate);
    return n;
}

/* Where the file system shares bytes there would be nothing to wait for. */
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    (void)request;
    errno = EOPNOTSUPP;
    return -1;
}

/* A disk without a block for a directory as long as the copy of step 2 is there. */
static bool full;

int __real_mkdirat(int at, const char *name, mode_t mode);
int __wrap_mkdirat(int at, const char *name, mode_t mode);
int __wrap_mkdirat(int at, const char *name, mode_t mode)
{
    char kept[64];
    snprintf(kept, sizeof kept, "%s/one/step-2", root);
    if (!full || access(kept, F_OK) < 0)
        return __real_mkdirat(at, name, mode);
    errno = ENOSPC;
    return -1;
}

static void count_kept(void *context, enum hst_log_level level, const char *message)
{
    int *counts = context;
    (void)level;
    counts[0] += strncmp(message, "I623", 4) == 0;
    counts[1] += strncmp(message, "W623", 4) == 0;
}

static void run_with_copies(struct hst_engine *engine, int steps)
{
    struct hst_step_stats stats;
    for (int s = 1; s <= steps; s++) {
        toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_engine_drain(engine, &stats));
    }
}

static void where_a_disk_is_full_the_oldest_goes_first_if_it_would_go_anyway(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 2; count++) {
        uint64_t steps[4], damaged = 99;
        int told[2] = {0};
        empty_root();
        struct hst_engine *engine = toy_created(
            OF_RUN(.store = in_root("one"), .precision = HST_PRECISION_BF16, .durability = "step",
                   .place = "states=nvme,weights=nvme", .keep = count, .keep_every = 2,
                   .log = count_kept, .log_context = told));
        toy_must(engine, toy_seal_and_load(engine));
        full = true;
        run_with_copies(engine, 5);
        hst_engine_destroy(&engine);
        full = false;
        assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 1);
        assert_int_equal(steps[0], count == 1 ? 4 : 2);
        assert_int_equal(told[0], count == 1 ? 2 : 1);
        assert_int_equal(told[1], count == 1 ? 0 : 1);
        struct hst_ckpt *ckpt = opened_at("one", steps[0]);
        must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
        assert_int_equal(damaged, 0);
        hst_ckpt_close(&ckpt);
    }
}

static void no_version_follows_the_one_that_is_being_copied(void **state)
{
    (void)state;
    enum { KEPT = 2, LATER = 7 };
    struct hst_step_stats stats;
    uint64_t steps[4], damaged = 99;
    empty_root();
    train(HST_PRECISION_BF16, in_root("two"), KEPT, &oracle);
    struct hst_engine *engine = toy_created(
        OF_RUN(.store = in_root("one"), .precision = HST_PRECISION_BF16, .durability = "step",
               .place = "states=nvme,weights=nvme", .keep = 1, .keep_every = KEPT));
    toy_must(engine, toy_seal_and_load(engine));
    pthread_mutex_lock(&gate);
    for (int s = 1; s <= LATER; s++) {
        toy_must(engine, toy_step(engine, &stats));
        assert_true(hst_engine_version(engine) <= KEPT);
    }
    assert_int_equal(hst_engine_version(engine), KEPT);
    assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 0); /* it has no name yet */
    pthread_mutex_unlock(&gate);
    hst_engine_destroy(&engine); /* finishes it */
    assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 1);
    assert_int_equal(steps[0], KEPT);
    struct hst_ckpt *ckpt = opened_at("one", KEPT);
    assert_true(ckpt->kept);
    must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
    assert_int_equal(damaged, 0);
    check_weights_of(ckpt, HST_PRECISION_BF16);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_no_element_changes),
        cmocka_unit_test(by_whatever_route_the_hashes_of_all_tiles_are_the_same),
        cmocka_unit_test(there_are_no_more_ranks_than_blocks_of_the_largest_unit),
        cmocka_unit_test(what_is_stopped_leaves_nothing),
        cmocka_unit_test(what_is_not_held_or_not_described_is_not_read),
        cmocka_unit_test(where_a_disk_is_full_the_oldest_goes_first_if_it_would_go_anyway),
        cmocka_unit_test(no_version_follows_the_one_that_is_being_copied),
    };
    return run_cases(tests, make_root, remove_root);
}
