/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transfer.c makes of the results of pieces, on a backend that is a script: results that no
 * drive gives on demand. The backend moves no bytes; it records what it is asked for and answers as
 * the case says.
 */
#include "internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h> /* needs the ones before */

enum { KIB = 1 << 10, RESULTS_MAX = 32, WHOLE = 1 << 30, BUFFER = 1 << 20 };

static struct script {
    int results
        /* of the pieces in order of issue; WHOLE, and after the last one: all bytes */
        [RESULTS_MAX];
    size_t result_count, issued;
    struct piece seen[256]; /* as issued */
    struct piece *queued[64];
    size_t queued_count, most_queued, flushes;
    int claim_error, flush_result, wait_error;
} script;

static void script_push(struct hst_aio *aio, struct piece *piece)
{
    (void)aio;
    script.seen[script.issued] = *piece;
    const int result = script.issued < script.result_count ? script.results[script.issued] : WHOLE;
    piece->result = result == WHOLE ? (int)piece->bytes : result;
    script.issued++;
    script.queued[script.queued_count++] = piece;
    if (script.queued_count > script.most_queued)
        script.most_queued = script.queued_count;
}

static int script_claim(struct hst_aio *aio)
{
    (void)aio;
    return script.claim_error;
}

static int script_flush(struct hst_aio *aio)
{
    (void)aio;
    script.flushes++;
    return script.flush_result;
}

static int script_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    (void)timeout_ns;
    if (script.wait_error)
        return script.wait_error;
    assert_true(least <= script.queued_count);
    const size_t count = script.queued_count;
    memcpy(aio->finished, script.queued, count * sizeof *script.queued);
    script.queued_count = 0;
    return (int)count;
}

static const struct hst_aio_ops script_ops = {
    .id = HST_AIO_THREADS,
    .claim = script_claim,
    .push = script_push,
    .flush = script_flush,
    .wait = script_wait,
};

static struct hst_aio *aio;
static struct hst_aio_file file;

static int setup(void **state)
{
    (void)state;
    const struct hst_aio_config config = {.size = sizeof config,
                                          .queue_depth = 4,
                                          .thread_count = 1,
                                          .piece_bytes = 64 * KIB,
                                          .timeout_ms = 120000};
    memset(&script, 0, sizeof script);
    if (hst_aio_context_create(&config, &aio) < 0)
        return -1;
    aio->ops = &script_ops;
    aio->piece_limit = 16;
    file = (struct hst_aio_file){.aio = aio, .size_bytes = 1ull << 40, .fd = -1};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hst_aio_context_destroy(aio);
    return 0;
}

static void answer(const int *results, size_t count)
{
    memcpy(script.results, results, count * sizeof *results);
    script.result_count = count;
}
#define ANSWER(...)                                                                                \
    answer((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void answer_always(int result)
{
    for (script.result_count = 0; script.result_count < RESULTS_MAX;)
        script.results[script.result_count++] = result;
}

static struct hst_aio_op make_op(enum hst_aio_kind kind, uint64_t bytes)
{
    return (struct hst_aio_op){.kind = kind,
                               .file = &file,
                               .offset = 40 * KIB,
                               .buffer = (void *)(uintptr_t)BUFFER, /* never touched */
                               .bytes = bytes};
}

static struct hst_aio_completion run(enum hst_aio_kind kind, uint64_t bytes)
{
    struct hst_aio_completion done = {0};
    const struct hst_aio_op op = make_op(kind, bytes);
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(file.in_flight, 0);
    return done;
}

static void check_issue(size_t index, uint64_t skipped_bytes, uint32_t bytes)
{
    assert_true(index < script.issued);
    assert_int_equal(script.seen[index].offset, 40 * KIB + skipped_bytes);
    assert_int_equal((uintptr_t)script.seen[index].buffer, BUFFER + skipped_bytes);
    assert_int_equal(script.seen[index].bytes, bytes);
}

static void check_done(struct hst_aio_completion done, uint64_t bytes, int error)
{
    assert_int_equal(done.bytes, bytes);
    assert_int_equal(done.error, error);
}

static void a_short_transfer_continues_at_the_last_aligned_byte(void **state)
{
    (void)state;
    ANSWER(32 * KIB, 8 * KIB + 511, WHOLE);
    check_done(run(HST_AIO_WRITE, 64 * KIB), 64 * KIB, 0);
    assert_int_equal(script.issued, 3);
    check_issue(0, 0, 64 * KIB);
    check_issue(1, 32 * KIB, 32 * KIB);
    check_issue(2, 40 * KIB, 24 * KIB);
}

static void a_part_of_a_block_is_tried_again_eight_times(void **state)
{
    (void)state;
    ANSWER(512, 512, 512, 512, 512, 512, 512, 512, WHOLE);
    check_done(run(HST_AIO_READ, 8 * KIB), 8 * KIB, 0);
    check_issue(8, 0, 8 * KIB);
    script.issued = 0;
    ANSWER(512, 512, 512, 512, 512, 512, 512, 512, 512);
    check_done(run(HST_AIO_READ, 8 * KIB), 0, -ENODATA);
    script.issued = 0;
    check_done(run(HST_AIO_WRITE, 8 * KIB), 0, -ENOSPC);
}

static void no_progress_is_end_of_file_or_end_of_space(void **state)
{
    (void)state;
    ANSWER(4 * KIB, 0);
    check_done(run(HST_AIO_READ, 8 * KIB), 4 * KIB, -ENODATA);
    script.issued = 0;
    check_done(run(HST_AIO_WRITE, 8 * KIB), 4 * KIB, -ENOSPC);
    assert_int_equal(script.issued, 2);
}

static void eagain_and_eintr_are_tried_again_eight_times(void **state)
{
    const int errors[] = {-EAGAIN, -EINTR};
    const enum hst_aio_kind kinds[] = {HST_AIO_READ, HST_AIO_WRITE, HST_AIO_SYNC};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        const int e = errors[i % 2];
        const uint64_t bytes = kinds[i / 2] == HST_AIO_SYNC ? 0 : 8 * KIB;
        script.issued = 0;
        ANSWER(e, e, e, e, e, e, e, e, WHOLE);
        check_done(run(kinds[i / 2], 8 * KIB), bytes, 0);
        assert_int_equal(script.issued, 9);
        script.issued = 0;
        ANSWER(e, e, e, e, e, e, e, e, e, WHOLE);
        check_done(run(kinds[i / 2], 8 * KIB), 0, e);
        assert_int_equal(script.issued, 9);
    }
}

static void u7_large_requests_that_get_eagain_only_become_small_ones(void **state)
{
    enum { LARGE = 2048 * KIB, E = -EAGAIN };
    (void)state;
    aio->config.piece_bytes = LARGE;
    ANSWER(E, E, E, E, E, E, E, E, E, WHOLE);
    const uint64_t begin_ns = hst_aio_now_ns();
    check_done(run(HST_AIO_WRITE, LARGE), LARGE, 0);
    assert_true(hst_aio_now_ns() - begin_ns >= 25500000); /* 0.1 + 0.2 + … + 12.8 ms */
    assert_int_equal(script.issued, 13);
    for (size_t i = 0; i < 9; i++)
        check_issue(i, 0, LARGE);
    for (size_t i = 0; i < 4; i++)
        check_issue(9 + i, i * 512 * KIB, 512 * KIB);
    script.issued = 0;
    ANSWER(E, E, E, E, E, E, E, E, E, E, E, E, E, E, E, E, E, E, WHOLE);
    check_done(run(HST_AIO_WRITE, LARGE), 0, -EAGAIN); /* small ones neither */
    assert_int_equal(script.issued, 18);
}

static void u12_a_media_error_of_a_read_is_retried_then_halved_and_of_a_sync_never(void **state)
{
    (void)state;
    ANSWER(-EIO, -EIO, WHOLE);
    check_done(run(HST_AIO_READ, 64 * KIB), 64 * KIB, 0);
    assert_int_equal(script.issued, 3);
    script.issued = 0;
    ANSWER(-EIO, -EIO, -EIO, WHOLE, -EIO, WHOLE); /* 64 thrice; 32; 32; 16; then all is well */
    check_done(run(HST_AIO_READ, 64 * KIB), 64 * KIB, 0);
    check_issue(3, 0, 32 * KIB);
    check_issue(4, 32 * KIB, 32 * KIB);
    check_issue(5, 32 * KIB, 16 * KIB);
    check_issue(6, 48 * KIB, 16 * KIB);
    script.issued = 0;
    ANSWER(-EIO, -EIO);
    check_done(run(HST_AIO_WRITE, 64 * KIB), 0, -EIO);
    assert_int_equal(script.issued, 2);
    script.issued = 0;
    ANSWER(-EIO);
    check_done(run(HST_AIO_SYNC, 0), 0, -EIO); /* what it did not write may be gone for good */
    assert_int_equal(script.issued, 1);
}

static void
u12_a_bad_range_ends_where_blocks_are_good_again_or_is_guessed_from_64_KiB_on(void **state)
{
    enum { E = -EIO, BLOCK = 4 * KIB };
    (void)state;
    /* 16 KiB thrice, 8, 4: bad, as is the next; then a part of a block, which is asked for again */
    ANSWER(E, E, E, E, E, E, 512, BLOCK);
    struct hst_aio_completion done = run(HST_AIO_READ, 4 * BLOCK);
    check_done(done, BLOCK, E);
    assert_int_equal(script.issued, 8);
    assert_int_equal(done.bad_offset, 40 * KIB);
    assert_int_equal(done.bad_bytes, 2 * BLOCK);
    script.issued = 0;
    ANSWER(E, E, E, BLOCK, E); /* the last block is the bad one: nothing is left to ask for */
    done = run(HST_AIO_READ, 2 * BLOCK);
    assert_int_equal(script.issued, 5);
    assert_int_equal(done.bad_offset, 40 * KIB + BLOCK);
    assert_int_equal(done.bad_bytes, BLOCK);
    script.issued = 0;
    aio->config.piece_bytes = 256 * KIB;
    answer_always(E);
    done = run(HST_AIO_READ, 256 * KIB);
    assert_int_equal(script.issued, 3 + 5 + 16); /* thrice; 128 down to 8 KiB; 64 KiB of blocks */
    assert_int_equal(done.bad_offset, 40 * KIB);
    assert_int_equal(done.bad_bytes, 256 * KIB);
}

static void progress_makes_the_tries_count_anew(void **state)
{
    const int e = -EAGAIN;
    (void)state;
    ANSWER(e, e, e, e, e, e, e, e, 4 * KIB, e, e, e, e, e, e, e, e, WHOLE);
    check_done(run(HST_AIO_READ, 8 * KIB), 8 * KIB, 0);
    assert_int_equal(script.issued, 18);
}

static void other_errors_are_final_and_name_the_request(void **state)
{
    (void)state;
    aio->config.piece_bytes = 2048 * KIB;
    ANSWER(1024 * KIB, -EROFS);
    struct hst_aio_completion done = run(HST_AIO_WRITE, 2048 * KIB);
    check_done(done, 1024 * KIB, -EROFS);
    assert_int_equal(script.issued, 2);
    assert_int_equal(done.bad_offset, 40 * KIB + 1024 * KIB);
    assert_int_equal(done.bad_bytes, 1024 * KIB);
    struct hst_aio_counters counters;
    hst_aio_counters(aio, &counters);
    assert_int_equal(counters.errors, 1);
    assert_int_equal(counters.short_results, 1);
    script.issued = 0;
    done = run(HST_AIO_WRITE, 2048 * KIB); /* at once */
    assert_int_equal(script.issued, 2);
}

static void a_large_operation_stays_within_the_piece_limit(void **state)
{
    (void)state;
    check_done(run(HST_AIO_READ, 100 * 64 * KIB + 4 * KIB), 100 * 64 * KIB + 4 * KIB, 0);
    assert_int_equal(script.issued, 101);
    assert_int_equal(script.most_queued, 16);
    check_issue(100, 100 * 64 * KIB, 4 * KIB);
}

static void more_operations_than_pieces_all_complete(void **state)
{
    (void)state;
    struct hst_aio_completion done[4];
    const struct hst_aio_op op = make_op(HST_AIO_READ, 8 * KIB);
    const struct hst_aio_op ops[] = {op, op, op, op};
    aio->piece_limit = 2; /* as on a ring that had to be small */
    assert_int_equal(hst_aio_submit(aio, ops, 4), 4);
    assert_int_equal(hst_aio_reap(aio, done, 4, 4, UINT64_MAX), 4);
    assert_int_equal(script.most_queued, 2);
}

static void an_error_stops_the_cutting_and_comes_back_once(void **state)
{
    (void)state;
    ANSWER(WHOLE, -EACCES, 4 * KIB,
           -EAGAIN); /* 12 more whole ones; what stopped early is not continued */
    struct hst_aio_op ops[] = {make_op(HST_AIO_READ, 100 * 64 * KIB),
                               make_op(HST_AIO_WRITE, 64 * KIB)};
    struct hst_aio_completion done[4];
    ops[1].user = 1;
    assert_int_equal(hst_aio_submit(aio, ops, 2), 2);
    assert_int_equal(hst_aio_reap(aio, done, 4, 2, UINT64_MAX), 2);
    assert_int_equal(done[0].user, 0);
    check_done(done[0], 13 * 64 * KIB + 4 * KIB, -EACCES);
    assert_int_equal(done[1].user, 1); /* the next one has its turn */
    check_done(done[1], 64 * KIB, 0);
    assert_int_equal(script.issued, 17);
}

static void a_broken_backend_ends_the_context(void **state)
{
    (void)state;
    struct hst_aio_completion done[4];
    const struct hst_aio_op ops[] = {make_op(HST_AIO_READ, 8 * KIB), make_op(HST_AIO_READ, 8 * KIB),
                                     make_op(HST_AIO_READ, 8 * KIB)};
    assert_int_equal(hst_aio_submit(aio, ops, 2), 2);
    assert_int_equal(hst_aio_reap(aio, done, 1, 1, UINT64_MAX),
                     1); /* the other one is done, unreaped */
    assert_int_equal(hst_aio_submit(aio, ops, 3), 3);
    script.wait_error = -EBADR;
    assert_int_equal(hst_aio_reap(aio, done, 4, 4, UINT64_MAX), 1);
    assert_int_equal(hst_aio_reap(aio, done, 4, 4, UINT64_MAX), -EBADR);
    assert_int_equal(hst_aio_submit(aio, ops, 1), -EBADR);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    assert_int_equal(file.in_flight, 0);
}

static void a_context_that_is_reset_has_forgotten_what_was_under_way(void **state)
{
    (void)state;
    struct hst_aio_completion done;
    const struct hst_aio_op op = make_op(HST_AIO_READ, 8 * KIB);
    ANSWER(-EAGAIN);
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 0, 0), 0); /* now it is paused */
    script.wait_error = -EBADR;
    assert_int_equal(hst_aio_reap(aio, &done, 1, 0, 0), -EBADR);
    hst_aio_context_reset(aio); /* as after a probe that failed */
    script.wait_error = 0;
    script.issued = script.result_count = 0;
    for (int i = 0; i < 20; i++)
        check_done(run(HST_AIO_READ, 64 * KIB), 64 * KIB, 0);
    assert_int_equal(script.issued, 20);
}

static void a_failed_flush_is_reported_by_reap(void **state)
{
    (void)state;
    struct hst_aio_completion done;
    const struct hst_aio_op op = make_op(HST_AIO_READ, 8 * KIB);
    script.flush_result = -EPERM;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), -EPERM);
    assert_int_equal(file.in_flight, 0);
}

static void u13_a_vanished_drive_ends_what_stopped_short_and_what_is_paused(void **state)
{
    (void)state;
    struct hst_aio_completion done[4];
    struct hst_aio_op ops[4];
    for (size_t i = 0; i < 4; i++) {
        ops[i] = make_op(HST_AIO_WRITE, 64 * KIB);
        ops[i].user = i;
    }
    ANSWER(-EAGAIN, -ENXIO, 32 * KIB, WHOLE);
    assert_int_equal(hst_aio_submit(aio, ops, 4), 4);
    assert_int_equal(hst_aio_reap(aio, done, 4, 4, UINT64_MAX), 4);
    for (size_t i = 0; i < 4; i++) {
        const uint64_t moved[] = {0, 0, 32 * KIB, 64 * KIB};
        const uint64_t user = done[i].user;
        check_done(done[i], moved[user], user == 3 ? 0 : -ENODEV);
        assert_int_equal(done[i].bad_bytes, user == 1 ? 64 * KIB : 0);
    }
    assert_int_equal(script.issued, 4); /* nothing is given to it any more */
    assert_int_equal(file.in_flight, 0);
    assert_int_equal(hst_aio_submit(aio, ops, 1), -ENODEV);
}

static void a_shortage_is_offered_again(void **state)
{
    (void)state;
    struct hst_aio_completion done;
    const struct hst_aio_op op = make_op(HST_AIO_READ, 8 * KIB);
    script.flush_result = 1;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_true(aio->pushed);
    script.flush_result = 0;
    hst_aio_flush(aio);
    assert_false(aio->pushed);
    assert_int_equal(script.flushes, 2);
    hst_aio_flush(aio);
    assert_int_equal(script.flushes, 2); /* nothing to offer: no system call */
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
}

static void pieces_with_hashes_go_to_the_drive_one_by_one(void **state)
{
    (void)state;
    void *memory;
    uint64_t hash;
    assert_int_equal(hst_aio_buffer_alloc(256 * KIB, &memory), 0);
    struct hst_aio_op op = make_op(HST_AIO_WRITE, 256 * KIB);
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(script.flushes, 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    op.buffer = memory;
    op.hashes = &hash;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(script.flushes, 1 + 4); /* the drive works while the next one is hashed */
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    hst_aio_buffer_free(memory, 256 * KIB);
}

static void a_failed_claim_takes_nothing(void **state)
{
    (void)state;
    const struct hst_aio_op op = make_op(HST_AIO_READ, 8 * KIB);
    script.claim_error = -ENOMEM;
    assert_int_equal(hst_aio_submit(aio, &op, 1), -ENOMEM);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    script.claim_error = 0;
    check_done(run(HST_AIO_READ, 8 * KIB), 8 * KIB, 0);
}

static void the_probe_tells_the_error_of_each_step(void **state)
{
    (void)state;
    static const char *const steps[] = {"write", "write", "write", "fdatasync",
                                        "read",  "read",  "read"};
    aio->config.piece_bytes = 4096 * KIB; /* one request for each transfer */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *step = NULL;
        for (script.result_count = 0; script.result_count < i;)
            script.results[script.result_count++] = WHOLE;
        script.results[script.result_count++] = -EROFS;
        script.issued = 0;
        assert_int_equal(hst_aio_probe_backend(aio, &file, &step), -EROFS);
        assert_string_equal(step, steps[i]);
    }
}

static void the_probe_notices_other_bytes_than_it_wrote(void **state)
{
    (void)state;
    const char *step = NULL;
    assert_int_equal(hst_aio_probe_backend(aio, &file, &step), -EIO); /* no byte was moved */
    assert_string_equal(step, "compare");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_short_transfer_continues_at_the_last_aligned_byte),
        CASE(a_part_of_a_block_is_tried_again_eight_times),
        CASE(no_progress_is_end_of_file_or_end_of_space),
        CASE(eagain_and_eintr_are_tried_again_eight_times),
        CASE(u7_large_requests_that_get_eagain_only_become_small_ones),
        CASE(u12_a_media_error_of_a_read_is_retried_then_halved_and_of_a_sync_never),
        CASE(u12_a_bad_range_ends_where_blocks_are_good_again_or_is_guessed_from_64_KiB_on),
        CASE(progress_makes_the_tries_count_anew),
        CASE(other_errors_are_final_and_name_the_request),
        CASE(a_large_operation_stays_within_the_piece_limit),
        CASE(more_operations_than_pieces_all_complete),
        CASE(an_error_stops_the_cutting_and_comes_back_once),
        CASE(a_broken_backend_ends_the_context),
        CASE(a_context_that_is_reset_has_forgotten_what_was_under_way),
        CASE(a_failed_flush_is_reported_by_reap),
        CASE(u13_a_vanished_drive_ends_what_stopped_short_and_what_is_paused),
        CASE(a_shortage_is_offered_again),
        CASE(pieces_with_hashes_go_to_the_drive_one_by_one),
        CASE(a_failed_claim_takes_nothing),
        CASE(the_probe_tells_the_error_of_each_step),
        CASE(the_probe_notices_other_bytes_than_it_wrote),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
