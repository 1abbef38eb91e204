/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: hashes, counters, several contexts at once, streams; on every configuration. */
#include "conformance.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static bool keeps_bytes(void)
{
    return configuration->backend != HST_AIO_NULL;
}

static bool is_real(void)
{
    return configuration->backend == HST_AIO_URING || configuration->backend == HST_AIO_THREADS;
}

enum { HASHED = 5 * MIB + 12 * KIB };

static void check_hashes(uint32_t piece_bytes)
{
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8, .piece_bytes = piece_bytes));
    struct hst_aio_file *file = open_scratch(aio, 8 * MIB);
    char *buffer = alloc_buffer(HASHED), *damage = alloc_buffer(4 * KIB);
    uint64_t hashes[6] = {0};
    fill_random(buffer, HASHED, piece_bytes);
    struct hst_aio_op op = write_op(file, 64 * KIB, buffer, HASHED);
    op.hashes = hashes;
    assert_int_equal(run_op(aio, op).error, 0);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(hashes[i], XXH3_64bits(buffer + i * MIB, i < 5 ? MIB : 12 * KIB));
    op.kind = HST_AIO_READ;
    if (keeps_bytes())
        memset(buffer, 0, HASHED);
    assert_int_equal(run_op(aio, op).error, 0);

    /* Two bad blocks on the drive, the last and the third: the third is named. */
    fill_random(damage, 4 * KIB, 7);
    memcpy(buffer + 5 * MIB + 8 * KIB, damage, 4 * KIB); /* what null reads back */
    memcpy(buffer + 2 * MIB + 4 * KIB, damage, 4 * KIB);
    assert_int_equal(
        run_op(aio, write_op(file, 64 * KIB + 5 * MIB + 8 * KIB, damage, 4 * KIB)).error, 0);
    struct hst_aio_completion done = run_op(aio, op);
    if (keeps_bytes()) {
        assert_int_equal(done.bad_offset, 64 * KIB + 5 * MIB);
        assert_int_equal(done.bad_bytes, 12 * KIB);
    }
    assert_int_equal(
        run_op(aio, write_op(file, 64 * KIB + 2 * MIB + 4 * KIB, damage, 4 * KIB)).error, 0);
    done = run_op(aio, op);
    assert_int_equal(done.error, -EBADMSG);
    assert_int_equal(done.bytes, HASHED);
    assert_int_equal(done.bad_offset, 64 * KIB + 2 * MIB);
    assert_int_equal(done.bad_bytes, MIB);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, HASHED);
    free_buffer(damage, 4 * KIB);
}

static void hashes_are_filled_by_writes_and_compared_by_reads(void **state)
{
    (void)state;
    const uint32_t pieces[] = {0, 2 * MIB, 16 * MIB, 256 * KIB, 1536 * KIB};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        check_hashes(pieces[i]);
}

static uint64_t sum(const uint64_t *buckets)
{
    uint64_t total = 0;
    for (size_t i = 0; i < HST_AIO_LATENCY_BUCKETS; i++)
        total += buckets[i];
    return total;
}

static void counters_count_what_was_done_and_nothing_of_the_probe(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 4, .piece_bytes = 256 * KIB));
    struct hst_aio_file *file = open_scratch(aio, 4 * MIB);
    char *buffer = alloc_buffer(4 * MIB);
    struct hst_aio_counters counters;
    hst_aio_counters(aio, &counters);
    assert_int_equal(counters.requests + counters.reads + counters.writes + counters.busy_ns, 0);
    const uint64_t begin_ns = hst_aio_clock_ns(aio);
    assert_int_equal(run_op(aio, write_op(file, 0, buffer, 4 * MIB)).error, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_op(aio, read_op(file, 0, buffer, MIB)).error, 0);
    assert_int_equal(run_op(aio, (struct hst_aio_op){.kind = HST_AIO_SYNC, .file = file}).error, 0);
    const uint64_t took_ns = hst_aio_clock_ns(aio) - begin_ns;
    hst_aio_counters(aio, &counters);
    assert_int_equal(counters.writes, 1);
    assert_int_equal(counters.reads, 3);
    assert_int_equal(counters.syncs, 1);
    assert_int_equal(counters.written_bytes, 4 * MIB);
    assert_int_equal(counters.read_bytes, 3 * MIB);
    assert_true(counters.requests >= 16 + 3 * 4 + 1);
    assert_int_equal(counters.errors, 0);
    assert_int_equal(counters.most_in_flight, 1);
    assert_true(counters.busy_ns <= took_ns && (counters.busy_ns > 0 || !is_real()));
    assert_int_equal(sum(counters.read_latency), 3);
    assert_int_equal(sum(counters.write_latency), 1);
    assert_int_equal(sum(counters.sync_latency), 1);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, 4 * MIB);
}

static void wait_any_tells_which_contexts_have_something(void **state)
{
    enum { CONTEXTS = 3, OPS = 40 };
    (void)state;
    struct hst_aio_world *world = NULL;
    struct hst_aio *aio[CONTEXTS];
    struct hst_aio_file *files[CONTEXTS];
    char *buffer = alloc_buffer(CONTEXTS * 256 * KIB);
    size_t taken[CONTEXTS] = {0}, reaped[CONTEXTS] = {0}, left = CONTEXTS * OPS;
    bool ready[CONTEXTS];
    if (configuration->backend == HST_AIO_SIM)
        assert_int_equal(hst_aio_world_create(&world), 0);
    for (size_t i = 0; i < CONTEXTS; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        assert_int_equal(
            hst_aio_open(CONFIG(.queue_depth = 4, .world = world, .piece_bytes = 64 * KIB),
                         world ? name : directory, &aio[i], NULL),
            0);
        files[i] = NULL;
        assert_int_equal(hst_aio_file_open(aio[i], directory, HST_AIO_SCRATCH, MIB, &files[i]), 0);
    }
    assert_int_equal(hst_aio_wait_any(aio, CONTEXTS, ready, UINT64_MAX), 0); /* nothing is out */
    while (left > 0) {
        for (size_t i = 0; i < CONTEXTS; i++) {
            const struct hst_aio_op op =
                write_op(files[i], taken[i] % 4 * 256 * KIB, buffer + i * 256 * KIB, 256 * KIB);
            while (taken[i] < OPS && hst_aio_submit(aio[i], &op, 1) == 1)
                taken[i]++;
        }
        const int count = hst_aio_wait_any(aio, CONTEXTS, ready, 10000000000u);
        assert_true(count > 0);
        int seen = 0;
        for (size_t i = 0; i < CONTEXTS; i++) {
            struct hst_aio_completion done[4];
            if (!ready[i])
                continue;
            const int n = hst_aio_reap(aio[i], done, 4, 0, 0);
            assert_true(n > 0); /* as it said */
            for (int k = 0; k < n; k++)
                assert_int_equal(done[k].error, 0);
            reaped[i] += (size_t)n;
            left -= (size_t)n;
            seen++;
        }
        assert_int_equal(seen, count);
    }
    for (size_t i = 0; i < CONTEXTS; i++) {
        assert_int_equal(reaped[i], OPS);
        hst_aio_file_close(&files[i]);
        hst_aio_close(&aio[i]);
    }
    hst_aio_world_destroy(&world);
    free_buffer(buffer, CONTEXTS * 256 * KIB);
}

static void the_descriptor_is_readable_while_there_is_something_to_reap(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8, .piece_bytes = 64 * KIB));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    char *buffer = alloc_buffer(MIB);
    struct hst_aio_completion done[8];
    const int fd = hst_aio_fd(aio);
    if (!is_real()) {
        assert_int_equal(fd, -ENOTSUP);
    } else {
        assert_true(fd >= 0);
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poller, 1, 0), 0);
        for (int round = 0; round < 20; round++) {
            const struct hst_aio_op op = write_op(file, 0, buffer, MIB);
            assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
            int count = 0;
            while (count == 0) {
                assert_int_equal(poll(&poller, 1, 10000), 1);
                count = hst_aio_reap(aio, done, 8, 0, 0);
            }
            assert_int_equal(count, 1);
            assert_int_equal(done[0].error, 0);
        }
        assert_int_equal(poll(&poller, 1, 0), 0);
    }
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, MIB);
}

struct sleeper {
    struct hst_aio *aio;
    struct hst_aio_file *file;
    char *buffer;
    int found;
};

static void *poll_elsewhere(void *arg)
{
    struct sleeper *sleeper = arg;
    struct hst_aio_completion done;
    const struct hst_aio_op op = read_op(sleeper->file, 0, sleeper->buffer, MIB);
    struct pollfd poller = {.fd = hst_aio_fd(sleeper->aio), .events = POLLIN};
    sleeper->found = hst_aio_submit(sleeper->aio, &op, 1) - 1;
    while (sleeper->found == 0 && poll(&poller, 1, 10000) == 1)
        sleeper->found = hst_aio_reap(sleeper->aio, &done, 1, 0, 0);
    return NULL;
}

static void the_descriptor_goes_along_to_another_thread(void **state)
{
    (void)state;
    struct sleeper sleeper = {.aio = open_aio(CONFIG(.queue_depth = 8, .piece_bytes = 64 * KIB)),
                              .buffer = alloc_buffer(MIB)};
    pthread_t thread;
    sleeper.file = open_scratch(sleeper.aio, MIB);
    assert_int_equal(hst_aio_fd(sleeper.aio) >= 0, is_real());
    for (int round = 0; round < 3 && is_real(); round++) {
        assert_int_equal(pthread_create(&thread, NULL, poll_elsewhere, &sleeper), 0);
        pthread_join(thread, NULL);
        assert_int_equal(sleeper.found, 1);
    }
    hst_aio_file_close(&sleeper.file);
    close_aio(&sleeper.aio);
    free_buffer(sleeper.buffer, MIB);
}

struct tiles {
    uint64_t next;
    uint64_t add;
};

static int add_to_each_word(void *arg, void *memory, uint64_t offset, uint64_t bytes)
{
    struct tiles *tiles = arg;
    uint64_t *words = memory;
    assert_int_equal(offset, tiles->next); /* in order, none left out */
    tiles->next = offset + bytes;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++)
        words[i] += tiles->add;
    return 0;
}

static void a_stream_reads_works_and_writes_tile_by_tile(void **state)
{
    enum { BYTES = 9 * MIB + 20 * KIB };
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 16));
    struct hst_aio_file *file = open_scratch(aio, 10 * MIB);
    uint64_t *expected = alloc_buffer(BYTES), *found = alloc_buffer(BYTES);
    uint64_t written[10] = {0};
    fill_random(expected, BYTES, 3);
    assert_int_equal(run_op(aio, write_op(file, 0, expected, BYTES)).error, 0);
    for (uint32_t depth = 1; depth <= 16; depth *= 4) {
        struct hst_aio_stream *stream = NULL;
        struct tiles tiles = {.add = depth};
        const struct hst_aio_stream_config config = {.size = sizeof config, .depth = depth};
        assert_int_equal(hst_aio_stream_open(aio, &config, &stream), 0);
        const struct hst_aio_stream_job job = {.from = file,
                                               .to = file,
                                               .bytes = BYTES,
                                               .tile = add_to_each_word,
                                               .arg = &tiles,
                                               .write_hashes = written};
        assert_int_equal(hst_aio_stream_run(stream, &job, NULL), 0);
        assert_int_equal(tiles.next, BYTES);
        for (size_t i = 0; i < BYTES / sizeof *expected; i++)
            expected[i] += depth;
        assert_int_equal(run_op(aio, read_op(file, 0, found, BYTES)).error, 0);
        for (size_t i = 0; i < 10 && keeps_bytes(); i++)
            assert_int_equal(written[i],
                             XXH3_64bits((char *)expected + i * MIB, i < 9 ? MIB : 20 * KIB));
        if (keeps_bytes())
            assert_memory_equal(expected, found, BYTES);
        if (depth > 1)
            assert_in_range(hst_aio_stream_tune(stream, file), 2, depth);
        hst_aio_stream_close(&stream);
    }
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(expected, BYTES);
    free_buffer(found, BYTES);
}

static void a_stream_or_a_job_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8)), *deep = open_aio(CONFIG());
    struct hst_aio_file *file = open_scratch(aio, 4 * MIB);
    char *buffer = alloc_buffer(4 * KIB);
    struct hst_aio_stream *stream = NULL;
    uint64_t hashes[4] = {0};
    const struct hst_aio_stream_config bad[] = {
        {.size = 1},
        {.size = sizeof bad[0], .tile_bytes = 6000},
        {.size = sizeof bad[0], .depth = 9}, /* more than the queue takes */
    };
    const struct hst_aio_stream_config deepest = {.size = sizeof deepest, .depth = 65},
                                       small = {.size = sizeof small, .tile_bytes = 64 * KIB};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hst_aio_stream_open(aio, &bad[i], &stream), -EINVAL);
    assert_int_equal(hst_aio_stream_open(deep, &deepest, &stream), -EINVAL);
    assert_int_equal(hst_aio_stream_open(NULL, NULL, &stream), -EINVAL);
    assert_int_equal(hst_aio_stream_open(aio, NULL, NULL), -EINVAL);
    assert_null(stream);
    hst_aio_stream_close(&stream); /* a null handle is accepted */

    assert_int_equal(hst_aio_stream_open(aio, &small, &stream), 0);
    const struct hst_aio_stream_job jobs[] = {
        {.bytes = MIB}, /* from nowhere to nowhere */
        {.from = file},
        {.from = file, .bytes = 6000},
        {.from = file, .bytes = MIB, .from_offset = 512},
        {.to = file, .bytes = MIB, .to_offset = 512},
        {.from = file, .bytes = MIB, .read_hashes = hashes}, /* tiles of less than a hash */
        {.to = file, .bytes = MIB, .write_hashes = hashes},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        assert_int_equal(hst_aio_stream_run(stream, &jobs[i], NULL), -EINVAL);
    const struct hst_aio_op op = read_op(file, 0, buffer, 4 * KIB);
    const struct hst_aio_stream_job job = {.from = file, .bytes = MIB};
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_stream_run(stream, &job, NULL), -EINVAL); /* it is not alone */
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(hst_aio_stream_run(stream, &job, NULL), 0);
    hst_aio_stream_close(&stream);
    hst_aio_file_close(&file);
    close_aio(&deep);
    close_aio(&aio);
    free_buffer(buffer, 4 * KIB);
}

static int refuse_the_third(void *arg, void *memory, uint64_t offset, uint64_t bytes)
{
    (void)memory;
    (void)bytes;
    ++*(int *)arg;
    return offset == 2 * MIB ? 42 : 0;
}

static void a_stream_ends_with_what_its_function_or_the_drive_says(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 16));
    struct hst_aio_file *file = open_scratch(aio, 8 * MIB);
    struct hst_aio_stream *stream = NULL;
    struct hst_aio_completion bad = {0};
    uint64_t wrong[8] = {0};
    int calls = 0;
    assert_int_equal(hst_aio_stream_open(aio, NULL, &stream), 0);
    struct hst_aio_stream_job job = {
        .from = file, .bytes = 8 * MIB, .tile = refuse_the_third, .arg = &calls};
    assert_int_equal(hst_aio_stream_run(stream, &job, &bad), 42);
    assert_int_equal(calls, 3);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    job.tile = NULL;
    job.read_hashes = wrong;
    assert_int_equal(hst_aio_stream_run(stream, &job, &bad), -EBADMSG);
    assert_int_equal(bad.error, -EBADMSG);
    assert_int_equal(bad.bad_bytes, MIB);
    job.read_hashes = NULL;
    job.bytes = 9 * MIB; /* beyond the file */
    assert_int_equal(hst_aio_stream_run(stream, &job, &bad), -EINVAL);
    job.bytes = 8 * MIB;
    assert_int_equal(hst_aio_stream_run(stream, &job, &bad), 0);
    hst_aio_stream_close(&stream);
    hst_aio_file_close(&file);
    close_aio(&aio);
}

static void the_info_says_what_runs(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    assert_int_equal(hst_aio_open(CONFIG(.queue_depth = 32), directory, &aio, &info), 0);
    assert_int_equal(info.backend, configuration->backend);
    assert_int_equal(info.fixed, configuration->fixed);
    if (configuration->backend == HST_AIO_URING)
        assert_int_equal(info.fixed_error == 0, configuration->fixed);
    assert_int_equal(info.uring_error, 0);
    assert_null(info.uring_step);
    assert_int_equal(info.request_limit, 32);
    assert_true(info.direct || !is_real() || info.direct_error < 0);
    hst_aio_close(&aio);
}

const struct CMUnitTest feature_cases[] = {
    cmocka_unit_test(the_info_says_what_runs),
    cmocka_unit_test(hashes_are_filled_by_writes_and_compared_by_reads),
    cmocka_unit_test(counters_count_what_was_done_and_nothing_of_the_probe),
    cmocka_unit_test(wait_any_tells_which_contexts_have_something),
    cmocka_unit_test(the_descriptor_is_readable_while_there_is_something_to_reap),
    cmocka_unit_test(the_descriptor_goes_along_to_another_thread),
    cmocka_unit_test(a_stream_or_a_job_that_makes_no_sense_is_refused),
    cmocka_unit_test(a_stream_reads_works_and_writes_tile_by_tile),
    cmocka_unit_test(a_stream_ends_with_what_its_function_or_the_drive_says),
};
const size_t feature_case_count = sizeof feature_cases / sizeof *feature_cases;
