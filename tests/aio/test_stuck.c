/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive that does not answer: requests whose calls do not return until a case lets them. The
 * program's pread comes before that of the C library.
 */
#include "hoistway/aio.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

#include "handles.h"

enum { MIB = 1 << 20 };

static char directory[] = "aio-stuck-XXXXXX";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool stuck;
static int waiting, reads; /* reads: begun */

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pread64");
    pthread_mutex_lock(&lock);
    waiting++;
    reads++;
    while (stuck)
        pthread_cond_wait(&changed, &lock);
    waiting--;
    pthread_mutex_unlock(&lock);
    return real(fd, buffer, bytes, offset);
}

static void set_stuck(bool now)
{
    pthread_mutex_lock(&lock);
    stuck = now;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waiting calls, or those begun since the last time this was asked. */
static int count_calls(int *counter, bool afresh)
{
    pthread_mutex_lock(&lock);
    const int count = *counter;
    if (afresh)
        *counter = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

static struct hst_aio *open_threads(void)
{
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_THREADS,
                                          .thread_count = 4,
                                          .lock_timeout_ms = 50,
                                          .timeout_ms = 400};
    struct hst_aio *aio = NULL;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
    return aio;
}

static int wait_by_reaping(struct hst_aio *aio)
{
    struct hst_aio_completion done;
    return hst_aio_reap(aio, &done, 1, 1, UINT64_MAX);
}

static int wait_for_any(struct hst_aio *aio)
{
    struct hst_aio_completion done;
    bool ready = false;
    assert_int_equal(hst_aio_wait_any(&aio, 1, &ready, UINT64_MAX), 1);
    assert_true(ready);
    return hst_aio_reap(aio, &done, 1, 0, 0);
}

static int wait_by_polling(struct hst_aio *aio)
{
    struct hst_aio_completion done;
    struct pollfd poller = {.fd = hst_aio_fd(aio), .events = POLLIN};
    int rc = 0;
    while (rc == 0 && poll(&poller, 1, 10000) == 1)
        rc = hst_aio_reap(aio, &done, 1, 0, 0);
    return rc;
}

static int wait_by_looking(struct hst_aio *aio)
{
    struct hst_aio_completion done;
    int rc = 0;
    while (rc == 0)
        rc = hst_aio_reap(aio, &done, 1, 1, 1000000);
    return rc;
}

static void nobody_waits_for_ever_for_a_drive_that_is_stuck(void **state)
{
    int (*const waits[])(struct hst_aio *) = {wait_by_reaping, wait_for_any, wait_by_polling,
                                              wait_by_looking};
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        const int open = count_names("/proc/self/fd");
        struct hst_aio *aio = open_threads();
        struct hst_aio_file *file = new_scratch(aio, directory);
        void *buffer = new_buffer(MIB);
        const struct hst_aio_op op = {
            .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
        const int threads = count_names("/proc/self/task");
        alarm(20);
        set_stuck(true);
        assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
        assert_int_equal(waits[i](aio), -ETIMEDOUT);
        assert_int_equal(hst_aio_submit(aio, &op, 1), -ETIMEDOUT);
        hst_aio_file_close(&file);
        hst_aio_close(&aio); /* nor for its threads */
        set_stuck(false);
        while (count_names("/proc/self/task") > threads - 4) /* they end when they can */
            sched_yield();
        alarm(0);
        /* a late request meets its own file */
        assert_int_equal(count_names("/proc/self/fd"), open + 1);
        hst_aio_buffer_free(buffer, MIB);
    }
}

/* More of them than threads: what is queued behind the stuck ones never goes to any file. */
static void what_was_not_begun_when_a_drive_got_stuck_never_is(void **state)
{
    enum { OPS = 12, THREADS = 4 };
    (void)state;
    struct hst_aio *aio = open_threads();
    struct hst_aio_file *file = new_scratch(aio, directory);
    void *buffer = new_buffer(OPS * 4096);
    struct hst_aio_completion done;
    const int threads = count_names("/proc/self/task");
    set_stuck(true);
    for (size_t i = 0; i < OPS; i++) {
        const struct hst_aio_op op = {
            .kind = HST_AIO_READ, .file = file, .buffer = (char *)buffer + i * 4096, .bytes = 4096};
        assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    }
    alarm(20);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), -ETIMEDOUT);
    assert_int_equal(count_calls(&waiting, false), THREADS);
    hst_aio_file_close(&file); /* before its context: queued requests must not look at it */
    count_calls(&reads, true);
    set_stuck(false);
    hst_aio_close(&aio);
    while (count_names("/proc/self/task") > threads - THREADS)
        sched_yield();
    alarm(0);
    assert_int_equal(count_calls(&reads, true), 0); /* those that were stuck had begun before */
    hst_aio_buffer_free(buffer, OPS * 4096);
}

/* Nobody else gets a file that a late request may yet write to. */
static void a_file_with_late_requests_stays_locked(void **state)
{
    (void)state;
    struct hst_aio *aio = open_threads(), *other = open_threads();
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done;
    void *buffer = new_buffer(MIB);
    char path[64];
    snprintf(path, sizeof path, "%s/named", directory);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), 0);
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    set_stuck(true);
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), -ETIMEDOUT);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    assert_int_equal(hst_aio_file_open(other, path, 0, MIB, &file), -EBUSY);
    set_stuck(false);
    hst_aio_close(&other);
    unlink(path);
    hst_aio_buffer_free(buffer, MIB);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(nobody_waits_for_ever_for_a_drive_that_is_stuck),
        cmocka_unit_test(what_was_not_begun_when_a_drive_got_stuck_never_is),
        cmocka_unit_test(a_file_with_late_requests_stays_locked),
    };
    if (!mkdtemp(directory))
        return 2;
    const int failed = cmocka_run_group_tests(cases, NULL, NULL);
    rmdir(directory);
    return failed;
}
