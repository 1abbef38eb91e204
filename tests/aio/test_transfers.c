/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: operations, from submit to reap. */
#include "conformance.h"

#include "internal.h" /* for a file that blocks: none of the public ways opens one */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void every_size_reads_back_as_written(void **state)
{
    static const uint32_t sizes[] = {4 * KIB, 8 * KIB,       64 * KIB, MIB - 4 * KIB,
                                     MIB,     MIB + 4 * KIB, 4 * MIB,  9 * MIB + 4096};
    static const uint32_t piece_sizes[] = {4 * KIB, 64 * KIB, 0, 16 * MIB};
    (void)state;
    char *written = alloc_buffer(10 * MIB), *read = alloc_buffer(10 * MIB);
    for (size_t p = 0; p < sizeof piece_sizes / sizeof *piece_sizes; p++) {
        struct hst_aio *aio = open_aio(CONFIG(.piece_bytes = piece_sizes[p], .queue_depth = 4));
        struct hst_aio_file *file = open_scratch(aio, 10 * MIB);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t offset = i * 8 * KIB;
            fill_random(written, sizes[i], p * 100 + i);
            struct hst_aio_completion done = run_op(aio, write_op(file, offset, written, sizes[i]));
            assert_int_equal(done.error, 0);
            assert_int_equal(done.bytes, sizes[i]);
            memset(read, 0xee, sizes[i]);
            done = run_op(aio, read_op(file, offset, read, sizes[i]));
            assert_int_equal(done.error, 0);
            assert_int_equal(done.bytes, sizes[i]);
            assert_memory_equal(written, read, sizes[i]);
        }
        hst_aio_file_close(&file);
        close_aio(&aio);
    }
    free_buffer(written, 10 * MIB);
    free_buffer(read, 10 * MIB);
}

enum { REGIONS = 24, REGION_BYTES = 128 * KIB, MODEL_BYTES = REGIONS * REGION_BYTES };

/* One operation per region, so that none overlaps another one that is in flight. */
static size_t random_batch(struct hst_aio_file *file, char *model, char *buffers, uint64_t *seed,
                           struct hst_aio_op *ops)
{
    for (size_t i = 0; i < REGIONS; i++) {
        const uint64_t blocks = REGION_BYTES / HST_AIO_ALIGN_BYTES;
        const uint64_t first = next_random(seed) % blocks;
        const uint64_t count = 1 + next_random(seed) % (blocks - first);
        const uint64_t offset = i * REGION_BYTES + first * HST_AIO_ALIGN_BYTES;
        const uint64_t bytes = count * HST_AIO_ALIGN_BYTES;
        char *buffer = buffers + i * REGION_BYTES;
        if (next_random(seed) % 2) {
            fill_random(buffer, bytes, next_random(seed));
            memcpy(model + offset, buffer, bytes);
            ops[i] = write_op(file, offset, buffer, bytes);
        } else {
            ops[i] = read_op(file, offset, buffer, bytes);
        }
        ops[i].user = i;
    }
    return REGIONS;
}

static void mixed_random_operations_agree_with_a_model(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 7, .piece_bytes = 16 * KIB));
    struct hst_aio_file *file = open_scratch(aio, MODEL_BYTES);
    char *model = calloc(1, MODEL_BYTES), *buffers = alloc_buffer(MODEL_BYTES);
    struct hst_aio_op ops[REGIONS];
    uint64_t seed = 20240607;
    for (int round = 0; round < 60; round++) {
        const size_t count = random_batch(file, model, buffers, &seed, ops);
        bool seen[REGIONS] = {false};
        size_t taken = 0, reaped = 0;
        while (reaped < count) {
            if (taken < count) {
                int n = hst_aio_submit(aio, ops + taken, count - taken);
                assert_true(n > 0 || n == -EAGAIN);
                taken += n > 0 ? (size_t)n : 0;
            }
            struct hst_aio_completion done[3];
            int n = hst_aio_reap(aio, done, 3, 1 + next_random(&seed) % 3, UINT64_MAX);
            assert_true(n > 0);
            for (int i = 0; i < n; i++) {
                const struct hst_aio_op *op = &ops[done[i].user];
                assert_false(seen[done[i].user]);
                seen[done[i].user] = true;
                assert_int_equal(done[i].error, 0);
                assert_int_equal(done[i].bytes, op->bytes);
                assert_memory_equal(op->buffer, model + op->offset, op->bytes);
            }
            reaped += (size_t)n;
        }
    }
    assert_int_equal(hst_aio_in_flight(aio), 0);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffers, MODEL_BYTES);
    free(model);
}

static void submit_takes_what_fits_then_says_eagain(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    char *buffer = alloc_buffer(MIB);
    struct hst_aio_op ops[20];
    struct hst_aio_completion done[20];
    for (size_t i = 0; i < 20; i++)
        ops[i] = read_op(file, i * 4 * KIB, buffer + i * 4 * KIB, 4 * KIB);
    assert_int_equal(hst_aio_submit(aio, ops, 0), 0);
    assert_int_equal(hst_aio_submit(aio, ops, 20), 8);
    assert_int_equal(hst_aio_submit(aio, ops + 8, 12), -EAGAIN);
    assert_int_equal(hst_aio_in_flight(aio), 8);
    assert_int_equal(hst_aio_reap(aio, done, 3, 3, UINT64_MAX), 3);
    assert_int_equal(hst_aio_in_flight(aio), 5);
    assert_int_equal(hst_aio_submit(aio, ops + 8, 12), 3);
    assert_int_equal(hst_aio_reap(aio, done, 20, 8, UINT64_MAX), 8);
    assert_int_equal(hst_aio_reap(aio, done, 20, 20, UINT64_MAX), 0); /* nothing is in flight */
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, MIB);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

/*
 * A drive that does not answer: a read of an eventfd blocks until it is written to. pread(2)
 * refuses eventfds, so that the threads backend, linked statically here, gets this one, which does
 * not.
 */
static int stuck_fd = -1;

ssize_t pread(int fd, void *buffer, size_t size_bytes, off_t offset)
{
    if (fd == stuck_fd)
        return read(fd, buffer, size_bytes);
    return syscall(SYS_pread64, fd, buffer, size_bytes, offset);
}

/* What the threads backend, linked statically here, tells a drive to make durable. */
static int syncs;

int fdatasync(int fd)
{
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

static void u8_signals_do_not_end_a_wait_and_timeouts_do(void **state)
{
    (void)state;
    const struct sigaction quiet = {.sa_handler = on_alarm};
    const struct itimerval every_5_ms = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    stuck_fd = eventfd(0, EFD_SEMAPHORE);
    struct hst_aio_file stuck = {.aio = aio, .size_bytes = MIB, .fd = stuck_fd};
    char *buffer = alloc_buffer(MIB);
    struct hst_aio_op ops[] = {read_op(&stuck, 0, buffer, 4 * KIB),
                               read_op(file, 0, buffer + 4 * KIB, 4 * KIB)};
    struct hst_aio_completion done[2];
    assert_int_equal(hst_aio_submit(aio, ops, 2), 2);
    assert_int_equal(hst_aio_reap(aio, done, 2, 1, UINT64_MAX), 1);
    assert_int_equal(hst_aio_in_flight(aio), 1);

    uint64_t before_ns = hst_aio_now_ns();
    assert_int_equal(hst_aio_reap(aio, done, 2, 0, UINT64_MAX), 0);
    assert_int_equal(hst_aio_reap(aio, done, 2, 1, 0), 0);
    assert_true(hst_aio_now_ns() - before_ns < 1000000000u);
    sigaction(SIGALRM, &quiet, NULL); /* without SA_RESTART: signals must not cut the wait short */
    setitimer(ITIMER_REAL, &every_5_ms, NULL);
    before_ns = hst_aio_now_ns();
    assert_int_equal(hst_aio_reap(aio, done, 2, 2, 30000000), 0);
    const uint64_t waited_ns = hst_aio_now_ns() - before_ns;
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(waited_ns >= 30000000 && waited_ns < 5000000000u);
    assert_int_equal(hst_aio_submit(aio, &ops[1], 1), 1);
    assert_int_equal(hst_aio_reap(aio, done, 2, 1, UINT64_MAX), 1);
    assert_int_equal(done[0].error, 0);
    assert_int_equal(hst_aio_in_flight(aio), 1);

    eventfd_write(stuck_fd, 1000); /* answers 8 bytes at a time: never a whole block */
    assert_int_equal(hst_aio_reap(aio, done, 2, 1, UINT64_MAX), 1);
    assert_int_equal(done[0].error, -ENODATA);
    close(stuck_fd);
    stuck_fd = -1;
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, MIB);
}

static void polling_alone_makes_progress(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8, .piece_bytes = 4 * KIB));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    char *buffer = alloc_buffer(MIB);
    const struct hst_aio_op op = read_op(file, 0, buffer, MIB);
    const uint64_t before_ns = hst_aio_now_ns();
    struct hst_aio_completion done = {.error = -1};
    int count = 0;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    while (count == 0 && hst_aio_now_ns() - before_ns < 20000000000u)
        count = hst_aio_reap(aio, &done, 1, 0, 0);
    assert_int_equal(count, 1);
    assert_int_equal(done.error, 0);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, MIB);
}

static void sync_completes_after_written_data(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    char *buffer = alloc_buffer(MIB);
    assert_int_equal(run_op(aio, write_op(file, 0, buffer, MIB)).error, 0);
    const int before = syncs;
    struct hst_aio_completion done =
        run_op(aio, (struct hst_aio_op){.kind = HST_AIO_SYNC, .file = file});
    assert_int_equal(done.error, 0);
    assert_int_equal(done.bytes, 0);
    assert_int_equal(syncs - before, configuration->backend == HST_AIO_THREADS);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, MIB);
}

static void u14_a_bad_operation_is_refused_and_nothing_is_taken(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8)),
                   *other = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = open_scratch(aio, MIB), *foreign = open_scratch(other, MIB);
    char *buffer = alloc_buffer(2 * MIB);
    memset(buffer, 0x55, 2 * MIB);
    const struct hst_aio_op bad[] = {
        write_op(file, 512, buffer, 4 * KIB),
        write_op(file, 0, buffer + 512, 4 * KIB),
        write_op(file, 0, buffer, 4 * KIB + 512),
        write_op(file, 0, buffer, 0),
        write_op(file, 0, NULL, 4 * KIB),
        write_op(file, 0, buffer, MIB + 4 * KIB),
        write_op(file, MIB, buffer, 4 * KIB),
        write_op(file, UINT64_MAX - 4095, buffer, 4 * KIB),
        write_op(file, 4 * KIB, buffer, UINT64_MAX - 4095),
        write_op(NULL, 0, buffer, 4 * KIB),
        write_op(foreign, 0, buffer, 4 * KIB),
        {.kind = 0, .file = file, .buffer = buffer, .bytes = 4 * KIB},
        {.kind = 4, .file = file, .buffer = buffer, .bytes = 4 * KIB},
        {.kind = HST_AIO_SYNC},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct hst_aio_op pair[] = {write_op(file, 0, buffer, 4 * KIB), bad[i]};
        assert_int_equal(hst_aio_submit(aio, pair, 2), -EINVAL);
        assert_int_equal(hst_aio_in_flight(aio), 0);
    }
    assert_int_equal(run_op(aio, read_op(file, 0, buffer, 4 * KIB)).error, 0);
    for (size_t i = 0; i < 4 * KIB; i++)
        assert_int_equal(buffer[i], 0); /* the good first of each pair was not written */
    hst_aio_file_close(&foreign);
    hst_aio_file_close(&file);
    close_aio(&other);
    close_aio(&aio);
    free_buffer(buffer, 2 * MIB);
}

static void u19_close_waits_for_what_is_in_flight(void **state)
{
    enum { COUNT = 32 };
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = COUNT, .piece_bytes = 256 * KIB));
    struct hst_aio_file *file = open_scratch(aio, COUNT * MIB);
    char *written = alloc_buffer(COUNT * MIB), *read = alloc_buffer(COUNT * MIB);
    struct hst_aio_op ops[COUNT];
    fill_random(written, COUNT * MIB, 5);
    assert_int_equal(run_op(aio, write_op(file, 0, written, COUNT * MIB)).error, 0);
    for (size_t i = 0; i < COUNT; i++)
        ops[i] = read_op(file, i * MIB, read + i * MIB, MIB);
    assert_int_equal(hst_aio_submit(aio, ops, COUNT), COUNT);
    close_aio(&aio);
    assert_null(aio);
    assert_memory_equal(written, read, COUNT * MIB);
    hst_aio_file_close(&file);
    free_buffer(written, COUNT * MIB);
    free_buffer(read, COUNT * MIB);
}

struct visit {
    struct hst_aio *aio;
    struct hst_aio_file *file;
    char *buffer;
    char byte;
    int error;
};

static void *write_and_read_back(void *arg)
{
    struct visit *visit = arg;
    memset(visit->buffer, visit->byte, 64 * KIB);
    struct hst_aio_op op = write_op(visit->file, 0, visit->buffer, 64 * KIB);
    struct hst_aio_completion done = {.error = -1};
    visit->error = hst_aio_submit(visit->aio, &op, 1) - 1;
    if (visit->error)
        return NULL;
    visit->error = hst_aio_reap(visit->aio, &done, 1, 1, UINT64_MAX) - 1;
    if (visit->error == 0)
        visit->error = done.error;
    return NULL;
}

static void u17_a_context_may_move_between_threads_while_it_is_idle(void **state)
{
    (void)state;
    struct visit visit = {.aio = open_aio(CONFIG(.queue_depth = 8)),
                          .buffer = alloc_buffer(64 * KIB)};
    visit.file = open_scratch(visit.aio, 64 * KIB);
    for (char i = 1; i <= 6; i++) {
        visit.byte = i;
        pthread_t thread; /* its pthread_t is likely the one of the thread before */
        assert_int_equal(pthread_create(&thread, NULL, write_and_read_back, &visit), 0);
        pthread_join(thread, NULL);
        assert_int_equal(visit.error, 0);
        if (i % 2)
            continue;
        memset(visit.buffer, 0, 64 * KIB);
        struct hst_aio_op op = read_op(visit.file, 0, visit.buffer, 64 * KIB);
        assert_int_equal(run_op(visit.aio, op).error, 0);
        assert_int_equal(visit.buffer[64 * KIB - 1], i);
    }
    hst_aio_file_close(&visit.file);
    close_aio(&visit.aio);
    free_buffer(visit.buffer, 64 * KIB);
}

enum { FILES = 70, FILE_BYTES = 64 * KIB }; /* more than a ring has places for */

struct library {
    struct hst_aio *aio;
    struct hst_aio_file *files[FILES];
    char *buffer;
    int wrong;
};

static void *read_all_files(void *arg)
{
    struct library *library = arg;
    for (int i = 0; i < FILES && library->wrong == 0; i++) {
        struct hst_aio_op op = read_op(library->files[i], 0, library->buffer, FILE_BYTES);
        struct hst_aio_completion done = {.error = -1};
        memset(library->buffer, 0, FILE_BYTES);
        if (hst_aio_submit(library->aio, &op, 1) != 1 ||
            hst_aio_reap(library->aio, &done, 1, 1, UINT64_MAX) != 1 || done.error ||
            library->buffer[0] != i + 1 || library->buffer[FILE_BYTES - 1] != i + 1)
            library->wrong = i + 1;
    }
    return NULL;
}

/* Files that are registered with the ring; it has 64 places. */
static void check_places(const struct library *library)
{
    uint64_t seen = 0;
    int count = 0;
    for (int i = 0; i < FILES; i++) {
        const uint32_t slot = library->files[i]->slot;
        if (slot == 0)
            continue;
        assert_true(slot <= 64 && !(seen & 1ull << (slot - 1)));
        seen |= 1ull << (slot - 1);
        count++;
    }
    assert_int_equal(count, configuration->fixed ? 64 : 0);
}

static void many_files_keep_their_bytes_apart_on_any_thread(void **state)
{
    (void)state;
    struct library library = {.aio = open_aio(CONFIG(.queue_depth = 8)),
                              .buffer = alloc_buffer(FILE_BYTES)};
    pthread_t thread;
    for (int i = 0; i < FILES; i++) {
        library.files[i] = open_scratch(library.aio, FILE_BYTES);
        memset(library.buffer, i + 1, FILE_BYTES);
        struct hst_aio_op op = write_op(library.files[i], 0, library.buffer, FILE_BYTES);
        assert_int_equal(run_op(library.aio, op).error, 0);
    }
    read_all_files(&library);
    assert_int_equal(library.wrong, 0);
    assert_int_equal(pthread_create(&thread, NULL, read_all_files, &library), 0);
    pthread_join(thread, NULL);
    assert_int_equal(library.wrong, 0);
    check_places(&library);
    read_all_files(&library);
    for (int i = 0; i < FILES; i += 2) { /* a place that is given up is another file's */
        hst_aio_file_close(&library.files[i]);
        library.files[i] = open_scratch(library.aio, FILE_BYTES);
        memset(library.buffer, i + 1, FILE_BYTES);
        struct hst_aio_op op = write_op(library.files[i], 0, library.buffer, FILE_BYTES);
        assert_int_equal(run_op(library.aio, op).error, 0);
    }
    read_all_files(&library);
    assert_int_equal(library.wrong, 0);
    check_places(&library);
    for (int i = 0; i < FILES; i++)
        hst_aio_file_close(&library.files[i]);
    close_aio(&library.aio);
    free_buffer(library.buffer, FILE_BYTES);
}

static void a_config_out_of_range_is_refused(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    struct {
        struct hst_aio_config config;
        uint32_t newer;
    } future = {.config = *CONFIG(.queue_depth = 8)};
    future.config.size = sizeof future;
    const struct hst_aio_config no_size = {.queue_depth = 8},
                                unknown = {.size = sizeof unknown, .backend = 5};
    assert_int_equal(hst_aio_open(&no_size, directory, &aio, NULL), -EINVAL);
    assert_int_equal(hst_aio_open(&unknown, directory, &aio, NULL), -EINVAL);
    assert_int_equal(hst_aio_open(CONFIG(.queue_depth = 4097), directory, &aio, NULL), -EINVAL);
    assert_int_equal(hst_aio_open(CONFIG(.thread_count = 65), directory, &aio, NULL), -EINVAL);
    assert_int_equal(hst_aio_open(CONFIG(.piece_bytes = 6000), directory, &aio, NULL), -EINVAL);
    assert_int_equal(hst_aio_open(CONFIG(.queue_depth = 8), "/nowhere", &aio, NULL), -ENOENT);
    future.newer = 1;
    assert_int_equal(hst_aio_open(&future.config, directory, &aio, NULL), -EINVAL);
    assert_null(aio);
    future.newer = 0;
    assert_int_equal(hst_aio_open(&future.config, directory, &aio, NULL), 0);
    close_aio(&aio);
    close_aio(&aio); /* a null handle is accepted */
}

static void u16_the_smallest_and_the_largest_queue_work(void **state)
{
    enum { MOST = 4096 };
    (void)state;
    char *buffer = alloc_buffer(MOST * 4 * KIB);
    struct hst_aio_op *ops = calloc(MOST, sizeof *ops);
    struct hst_aio_completion *done = calloc(MOST, sizeof *done);
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = MOST, .thread_count = 2));
    struct hst_aio_file *file = open_scratch(aio, MOST * 4 * KIB);
    for (size_t i = 0; i < MOST; i++)
        ops[i] = read_op(file, i * 4 * KIB, buffer + i * 4 * KIB, 4 * KIB);
    assert_int_equal(hst_aio_submit(aio, ops, MOST), MOST);
    assert_int_equal(hst_aio_reap(aio, done, MOST, MOST, UINT64_MAX), MOST);
    hst_aio_file_close(&file);
    close_aio(&aio);

    aio = open_aio(CONFIG(.queue_depth = 1, .thread_count = 1));
    file = open_scratch(aio, MOST * 4 * KIB);
    assert_int_equal(run_op(aio, write_op(file, 0, buffer, MOST * 4 * KIB)).error, 0);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free(done);
    free(ops);
    free_buffer(buffer, MOST * 4 * KIB);
}

const struct CMUnitTest data_cases[] = {
    cmocka_unit_test(every_size_reads_back_as_written),
    cmocka_unit_test(mixed_random_operations_agree_with_a_model),
    cmocka_unit_test(u14_a_bad_operation_is_refused_and_nothing_is_taken),
    cmocka_unit_test(u19_close_waits_for_what_is_in_flight),
    cmocka_unit_test(u17_a_context_may_move_between_threads_while_it_is_idle),
    cmocka_unit_test(many_files_keep_their_bytes_apart_on_any_thread),
};
const size_t data_case_count = sizeof data_cases / sizeof *data_cases;

const struct CMUnitTest queue_cases[] = {
    cmocka_unit_test(submit_takes_what_fits_then_says_eagain),
    cmocka_unit_test(sync_completes_after_written_data),
    cmocka_unit_test(u16_the_smallest_and_the_largest_queue_work),
};
const size_t queue_case_count = sizeof queue_cases / sizeof *queue_cases;

const struct CMUnitTest system_cases[] = {
    cmocka_unit_test(u8_signals_do_not_end_a_wait_and_timeouts_do),
    cmocka_unit_test(polling_alone_makes_progress),
    cmocka_unit_test(a_config_out_of_range_is_refused),
};
const size_t system_case_count = sizeof system_cases / sizeof *system_cases;
