/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows when a call of the system, or of liburing, does not do its work: the program's
 * functions come before those of the shared libraries, and answer what a case tells them to.
 */
#include "hoistway/aio.h"
#include "kernel.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

enum { MIB = 1 << 20 };

static char directory[] = "aio-answers-XXXXXX";

/* ---- the calls ------------------------------------------------------------------------------- */

static struct {
    int fdatasync, flock, fchmod, setfl, madvise; /* errno; 0: the call does its work */
    int advice;                                   /* the one that madvise fails for */
    int submit, wait, eventfd;                    /* liburing's: negative errno */
    int times;                                    /* how often submit answers so */
    int syncs;                                    /* fdatasyncs so far */
} answers;

#define REAL(type, name, ...)                                                                      \
    type (*real)(__VA_ARGS__);                                                                     \
    *(void **)&real = dlsym(RTLD_NEXT, name)

static int refuse(int error)
{
    errno = error;
    return -1;
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    answers.syncs++;
    return answers.fdatasync ? refuse(answers.fdatasync) : real(fd);
}

int flock(int fd, int operation)
{
    REAL(int, "flock", int, int);
    return answers.flock && operation != LOCK_UN ? refuse(answers.flock) : real(fd, operation);
}

int fchmod(int fd, mode_t mode)
{
    REAL(int, "fchmod", int, mode_t);
    return answers.fchmod ? refuse(answers.fchmod) : real(fd, mode);
}

int madvise(void *memory, size_t bytes, int advice)
{
    REAL(int, "madvise", void *, size_t, int);
    return answers.madvise && advice == answers.advice ? refuse(answers.madvise)
                                                       : real(memory, bytes, advice);
}

/* fcntl64, where off_t has 64 bits by choice */
int fcntl(int fd, int command, ...)
{
    REAL(int, "fcntl", int, int, ...);
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return answers.setfl && command == F_SETFL ? refuse(answers.setfl)
                                               : real(fd, command, argument);
}

int io_uring_submit(struct io_uring *ring)
{
    REAL(int, "io_uring_submit", struct io_uring *);
    return answers.times > 0 && answers.times-- ? answers.submit : real(ring);
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                     unsigned count, struct __kernel_timespec *limit,
                                     sigset_t *mask)
{
    REAL(int, "io_uring_submit_and_wait_timeout", struct io_uring *, struct io_uring_cqe **,
         unsigned, struct __kernel_timespec *, sigset_t *);
    return answers.wait ? answers.wait : real(ring, cqe, count, limit, mask);
}

int io_uring_register_eventfd(struct io_uring *ring, int fd)
{
    REAL(int, "io_uring_register_eventfd", struct io_uring *, int);
    return answers.eventfd ? answers.eventfd : real(ring, fd);
}

/* A drive that does not answer, to threads that read from it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool stuck;
static int waiting;

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off_t);
    pthread_mutex_lock(&lock);
    waiting++;
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

/* ---- what cases share ------------------------------------------------------------------------ */

static int begin(void **state)
{
    (void)state;
    memset(&answers, 0, sizeof answers);
    return 0;
}

static struct hst_aio *open_backend(enum hst_aio_backend backend, uint32_t timeout_ms)
{
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = backend, .thread_count = 4, .timeout_ms = timeout_ms};
    struct hst_aio *aio = NULL;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
    return aio;
}

static struct hst_aio_file *open_scratch(struct hst_aio *aio)
{
    struct hst_aio_file *file = NULL;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 4 * MIB, &file), 0);
    return file;
}

static void *new_buffer(size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(hst_aio_buffer_alloc(bytes, &buffer), 0);
    return buffer;
}

static int count_entries(const char *path)
{
    int count = -2;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static struct hst_aio *uring_or_skip(void)
{
    if (!kernel_has_uring())
        skip(); /* main says so */
    return open_backend(HST_AIO_URING, 0);
}

/* ---- the system ------------------------------------------------------------------------------ */

static void a_sync_that_fails_is_told_once_and_never_tried_again(void **state)
{
    (void)state;
    struct hst_aio *aio = open_backend(HST_AIO_THREADS, 0);
    struct hst_aio_file *file = open_scratch(aio);
    struct hst_aio_completion done;
    const struct hst_aio_op op = {.kind = HST_AIO_SYNC, .file = file};
    answers.fdatasync = EIO;
    answers.syncs = 0;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(done.error, -EIO);
    assert_int_equal(answers.syncs, 1);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void the_probe_finds_a_directory_that_can_not_be_synced(void **state)
{
    (void)state;
    const struct hst_aio_config config = {.size = sizeof config, .backend = HST_AIO_THREADS};
    struct hst_aio *aio = NULL;
    answers.fdatasync = EIO;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), -EIO);
    assert_null(aio);
    assert_int_equal(count_entries(directory), 0);
}

static void what_can_not_be_locked_is_not_used(void **state)
{
    static const int cases[][2] = {{ENOLCK, -ENOLCK}, {EOPNOTSUPP, -ENOLCK}, {EBADF, -EBADF}};
    (void)state;
    struct hst_aio *aio = open_backend(HST_AIO_THREADS, 0);
    struct hst_aio_file *file = NULL;
    char path[64];
    snprintf(path, sizeof path, "%s/named", directory);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        answers.flock = cases[i][0];
        assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), cases[i][1]);
        assert_null(file);
        assert_int_equal(count_entries(directory), 0);
    }
    hst_aio_close(&aio);
}

static void a_file_that_can_not_be_made_private_or_direct_leaves_nothing_behind(void **state)
{
    (void)state;
    struct hst_aio *aio = open_backend(HST_AIO_THREADS, 0);
    struct hst_aio_file *file = NULL;
    char path[64];
    snprintf(path, sizeof path, "%s/named", directory);
    const int before = count_entries("/proc/self/fd");
    answers.fchmod = EPERM;
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), -EPERM);
    answers.fchmod = 0;
    answers.setfl = EINVAL;
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), -EINVAL);
    assert_null(file);
    assert_int_equal(count_entries(directory), 0);
    assert_int_equal(count_entries("/proc/self/fd"), before);
    hst_aio_close(&aio);
}

static void memory_that_a_child_would_inherit_is_not_given_out(void **state)
{
    static const int advices[] = {MADV_DONTFORK, MADV_DONTDUMP};
    (void)state;
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        void *buffer = NULL;
        struct hst_aio_buffer found = {0};
        answers.madvise = EINVAL;
        answers.advice = advices[i];
        assert_int_equal(hst_aio_buffer_alloc(MIB, &buffer), -EINVAL);
        assert_int_equal(hst_aio_buffer_open(NULL, MIB, &found), -EINVAL);
        assert_null(buffer);
    }
    answers.advice = MADV_HUGEPAGE; /* a wish, no more */
    void *buffer = new_buffer(MIB);
    hst_aio_buffer_free(buffer, MIB);
}

/* ---- liburing -------------------------------------------------------------------------------- */

static void a_submission_that_fails_breaks_the_context(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = open_scratch(aio);
    void *buffer = new_buffer(MIB);
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    answers.submit = -EBADF;
    answers.times = 1;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), -EBADF);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

static void u8_a_submission_that_is_too_early_is_made_again(void **state)
{
    static const int passing[] = {-EAGAIN, -EBUSY, -EINTR, -ENOMEM};
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = open_scratch(aio);
    void *buffer = new_buffer(MIB);
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        answers.submit = passing[i];
        answers.times = 3;
        assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
        assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
        assert_int_equal(done.error, 0);
    }
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

static int break_at_the_third(void *arg, void *memory, uint64_t offset, uint64_t bytes)
{
    (void)arg;
    (void)memory;
    if (offset == 2 * bytes)
        answers.wait = -EBADF;
    return 0;
}

static void a_stream_ends_with_a_context_that_breaks(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = open_scratch(aio);
    struct hst_aio_stream *stream = NULL;
    const struct hst_aio_stream_config config = {
        .size = sizeof config, .tile_bytes = 4096, .depth = 2};
    const struct hst_aio_stream_job job = {
        .to = file, .bytes = 4 * MIB, .tile = break_at_the_third};
    assert_int_equal(hst_aio_stream_open(aio, &config, &stream), 0);
    assert_int_equal(hst_aio_stream_run(stream, &job, NULL), -EBADF);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    hst_aio_stream_close(&stream);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

struct elsewhere {
    struct hst_aio *aio;
    struct hst_aio_op op;
    int refused, taken;
};

static void *submit_elsewhere(void *arg)
{
    struct elsewhere *elsewhere = arg;
    struct hst_aio_completion done;
    answers.eventfd = -ENOMEM;
    elsewhere->refused = hst_aio_submit(elsewhere->aio, &elsewhere->op, 1);
    answers.eventfd = 0;
    elsewhere->taken = hst_aio_submit(elsewhere->aio, &elsewhere->op, 1);
    if (elsewhere->taken == 1 && hst_aio_reap(elsewhere->aio, &done, 1, 1, UINT64_MAX) == 1)
        elsewhere->taken += done.error;
    return NULL;
}

/* Whoever polls the descriptor would wait for ever. */
static void a_new_ring_that_can_not_signal_is_refused(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = open_scratch(aio);
    void *buffer = new_buffer(MIB);
    pthread_t thread;
    struct elsewhere elsewhere = {
        .aio = aio, .op = {.kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096}};
    assert_true(hst_aio_fd(aio) >= 0);
    assert_int_equal(pthread_create(&thread, NULL, submit_elsewhere, &elsewhere), 0);
    pthread_join(thread, NULL);
    assert_int_equal(elsewhere.refused, -ENOMEM);
    assert_int_equal(elsewhere.taken, 1);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

/* ---- a drive that does not answer ------------------------------------------------------------ */

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
        const int open = count_entries("/proc/self/fd");
        struct hst_aio *aio = open_backend(HST_AIO_THREADS, 400);
        struct hst_aio_file *file = open_scratch(aio);
        void *buffer = new_buffer(MIB);
        const struct hst_aio_op op = {
            .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
        const int threads = count_entries("/proc/self/task");
        alarm(20);
        set_stuck(true);
        assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
        assert_int_equal(waits[i](aio), -ETIMEDOUT);
        assert_int_equal(hst_aio_submit(aio, &op, 1), -ETIMEDOUT);
        hst_aio_file_close(&file);
        hst_aio_close(&aio); /* nor for its threads */
        set_stuck(false);
        while (count_entries("/proc/self/task") > threads - 4) /* they end when they can */
            sched_yield();
        alarm(0);
        /* a late request meets its own file */
        assert_int_equal(count_entries("/proc/self/fd"), open + 1);
        hst_aio_buffer_free(buffer, MIB);
    }
}

/* Requests that were answered while nobody looked are not late. */
static void a_caller_who_was_away_finds_its_results(void **state)
{
    (void)state;
    struct hst_aio *aio = open_backend(HST_AIO_THREADS, 400);
    struct hst_aio_file *file = open_scratch(aio);
    void *buffer = new_buffer(MIB);
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    set_stuck(true);
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    usleep(500000);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 0, 0), 0); /* the clock begins only now */
    set_stuck(false);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(done.error, 0);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup(a_sync_that_fails_is_told_once_and_never_tried_again, begin),
        cmocka_unit_test_setup(the_probe_finds_a_directory_that_can_not_be_synced, begin),
        cmocka_unit_test_setup(what_can_not_be_locked_is_not_used, begin),
        cmocka_unit_test_setup(a_file_that_can_not_be_made_private_or_direct_leaves_nothing_behind,
                               begin),
        cmocka_unit_test_setup(memory_that_a_child_would_inherit_is_not_given_out, begin),
        cmocka_unit_test_setup(a_submission_that_fails_breaks_the_context, begin),
        cmocka_unit_test_setup(u8_a_submission_that_is_too_early_is_made_again, begin),
        cmocka_unit_test_setup(a_stream_ends_with_a_context_that_breaks, begin),
        cmocka_unit_test_setup(a_new_ring_that_can_not_signal_is_refused, begin),
        cmocka_unit_test_setup(nobody_waits_for_ever_for_a_drive_that_is_stuck, begin),
        cmocka_unit_test_setup(a_caller_who_was_away_finds_its_results, begin),
    };
    if (!mkdtemp(directory))
        return 2;
    if (!kernel_has_uring())
        printf("skipped in part: io_uring is refused here\n");
    const int failed = cmocka_run_group_tests(cases, NULL, NULL);
    rmdir(directory);
    return failed;
}
