/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows when a call of the system, or of liburing, does not do its work: the program's
 * functions come before those of the shared libraries, and answer what a case tells them to.
 */
#include "hoistway/aio.h"
#include "kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

#include "handles.h"

enum { MIB = 1 << 20 };

static char directory[] = "aio-answers-XXXXXX";

/* ---- the calls ------------------------------------------------------------------------------- */

static struct {
    int fdatasync, flock, fchmod, setfl, madvise; /* errno; 0: the call does its work */
    int advice;                                   /* the one that madvise fails for */
    int fallocate, direct_read;
    bool full;                 /* pwrite writes nothing, and says so */
    int submit, wait, eventfd; /* liburing's: negative errno */
    int buffers_update, files_update;
    int pwrite;           /* errno of the next one */
    uint32_t align_bytes; /* what the kernel says O_DIRECT needs */
    int times;            /* how often submit answers so */
    int syncs;            /* fdatasyncs so far */
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

/* statx, of which the C library may not know what it says on O_DIRECT */
long syscall(long number, ...)
{
    REAL(long, "syscall", long, ...);
    enum { DIRECT = 0x2000, MEMORY_ALIGN_AT = 0x98 / 4 };
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number != SYS_statx || answers.align_bytes == 0)
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    uint32_t *said = (uint32_t *)(uintptr_t)a[4];
    said[0] = DIRECT;
    said[MEMORY_ALIGN_AT] = said[MEMORY_ALIGN_AT + 1] = answers.align_bytes;
    return 0;
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

int io_uring_register_buffers_update_tag(struct io_uring *ring, unsigned at,
                                         const struct iovec *buffers, const __u64 *tags,
                                         unsigned count)
{
    REAL(int, "io_uring_register_buffers_update_tag", struct io_uring *, unsigned,
         const struct iovec *, const __u64 *, unsigned);
    return answers.buffers_update ? answers.buffers_update : real(ring, at, buffers, tags, count);
}

int io_uring_register_files_update(struct io_uring *ring, unsigned at, const int *files,
                                   unsigned count)
{
    REAL(int, "io_uring_register_files_update", struct io_uring *, unsigned, const int *, unsigned);
    return answers.files_update ? answers.files_update : real(ring, at, files, count);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    REAL(int, "fallocate64", int, int, off_t, off_t);
    return answers.fallocate ? refuse(answers.fallocate) : real(fd, mode, offset, bytes);
}

ssize_t pwrite(int fd, const void *buffer, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    const int error = answers.pwrite;
    answers.pwrite = 0;
    if (error)
        return refuse(error);
    return answers.full ? 0 : real(fd, buffer, bytes, offset);
}

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off_t);
    if (answers.direct_read && (fcntl(fd, F_GETFL) & O_DIRECT))
        return refuse(answers.direct_read);
    return real(fd, buffer, bytes, offset);
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

/* And leaves nothing behind. */
static void check_open_fails(int error)
{
    const struct hst_aio_config config = {.size = sizeof config, .backend = HST_AIO_THREADS};
    struct hst_aio *aio = NULL;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), error);
    assert_null(aio);
    assert_int_equal(count_names(directory), 0);
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
    struct hst_aio_file *file = new_scratch(aio, directory);
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
    answers.fdatasync = EIO;
    check_open_fails(-EIO);
}

static void where_o_direct_needs_larger_blocks_it_is_not_used(void **state)
{
    (void)state;
    const struct hst_aio_config config = {.size = sizeof config, .backend = HST_AIO_THREADS};
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    answers.align_bytes = 2 * HST_AIO_ALIGN_BYTES;
    assert_int_equal(hst_aio_open(&config, directory, &aio, &info), 0);
    assert_false(info.direct);
    assert_int_equal(info.direct_error, -EINVAL);
    assert_int_equal(info.direct_offset_align_bytes, answers.align_bytes);
    hst_aio_close(&aio);
}

static void an_error_of_the_first_write_is_no_lack_of_o_direct(void **state)
{
    (void)state;
    answers.align_bytes = HST_AIO_ALIGN_BYTES;
    answers.pwrite = EIO;
    check_open_fails(-EIO);
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
        assert_int_equal(count_names(directory), 0);
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
    const int before = count_names("/proc/self/fd");
    answers.fchmod = EPERM;
    const mode_t mask = umask(0277); /* it takes a bit of the owner's: that has to be given back */
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), -EPERM);
    umask(mask);
    answers.fchmod = 0;
    answers.setfl = EINVAL;
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), -EINVAL);
    assert_null(file);
    assert_int_equal(count_names(directory), 0);
    assert_int_equal(count_names("/proc/self/fd"), before);
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
        assert_int_equal(hst_aio_buffer_alloc(SIZE_MAX / 4, &buffer), -ENOMEM); /* none to advise */
        assert_null(buffer);
    }
    answers.advice = MADV_HUGEPAGE; /* a wish, no more */
    void *buffer = new_buffer(MIB);
    hst_aio_buffer_free(buffer, MIB);
}

static void where_only_direct_reads_fail_files_are_buffered(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    answers.direct_read = EINVAL;
    assert_int_equal(hst_aio_open(NULL, directory, &aio, &info), 0);
    assert_false(info.direct);
    hst_aio_close(&aio);
}

static void a_file_that_takes_no_zeros_is_full(void **state)
{
    (void)state;
    struct hst_aio *aio = open_backend(HST_AIO_THREADS, 0);
    struct hst_aio_file *file = NULL;
    answers.fallocate = EOPNOTSUPP;
    answers.full = true;
    alarm(20);
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, MIB, &file), -ENOSPC);
    alarm(0);
    hst_aio_close(&aio);
}

/* ---- liburing -------------------------------------------------------------------------------- */

static void a_submission_that_fails_breaks_the_context(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = new_scratch(aio, directory);
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
    struct hst_aio_file *file = new_scratch(aio, directory);
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
    struct hst_aio_file *file = new_scratch(aio, directory);
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

static void a_ring_that_can_not_signal_gives_no_descriptor(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    answers.eventfd = -ENOMEM;
    const int before = count_names("/proc/self/fd");
    assert_int_equal(hst_aio_fd(aio), -ENOMEM);
    assert_int_equal(count_names("/proc/self/fd"), before);
    answers.eventfd = 0;
    assert_true(hst_aio_fd(aio) >= 0);
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

static int read_one(struct hst_aio *aio, struct hst_aio_file *file, void *buffer)
{
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    const int taken = hst_aio_submit(aio, &op, 1);
    if (taken != 1 || hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) != 1)
        return -1;
    return done.error;
}

static void *read_elsewhere(void *arg)
{
    struct elsewhere *elsewhere = arg;
    elsewhere->taken = read_one(elsewhere->aio, elsewhere->op.file, elsewhere->op.buffer);
    return NULL;
}

/* On this thread's ring, and on the new one that another thread makes. */
static void files_and_buffers_that_can_not_be_registered_are_used_as_they_are(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    void *buffer = new_buffer(MIB);
    pthread_t thread;
    (void)hst_aio_buffer_register(aio, buffer, MIB); /* not all kernels can */
    answers.files_update = answers.buffers_update = -ENOMEM;
    struct hst_aio_file *file = new_scratch(aio, directory);
    struct elsewhere elsewhere = {.aio = aio, .op = {.file = file, .buffer = buffer}};
    assert_int_equal(read_one(aio, file, buffer), 0);
    assert_int_equal(pthread_create(&thread, NULL, read_elsewhere, &elsewhere), 0);
    pthread_join(thread, NULL);
    assert_int_equal(elsewhere.taken, 0);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

static void a_ring_that_breaks_under_a_plan_of_faults_is_told(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip();
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = HST_AIO_URING, .fault = ""};
    struct hst_aio *aio = NULL;
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
    struct hst_aio_file *file = new_scratch(aio, directory);
    void *buffer = new_buffer(MIB);
    const struct hst_aio_op op = {
        .kind = HST_AIO_WRITE, .file = file, .buffer = buffer, .bytes = MIB};
    answers.submit = answers.wait = -EBADF;
    answers.times = 1000;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    alarm(20);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), -EBADF);
    alarm(0);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    hst_aio_buffer_free(buffer, MIB);
}

/* Whoever polls the descriptor would wait for ever. */
static void a_new_ring_that_can_not_signal_is_refused(void **state)
{
    (void)state;
    struct hst_aio *aio = uring_or_skip();
    struct hst_aio_file *file = new_scratch(aio, directory);
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

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_setup(a_sync_that_fails_is_told_once_and_never_tried_again, begin),
        cmocka_unit_test_setup(the_probe_finds_a_directory_that_can_not_be_synced, begin),
        cmocka_unit_test_setup(where_o_direct_needs_larger_blocks_it_is_not_used, begin),
        cmocka_unit_test_setup(an_error_of_the_first_write_is_no_lack_of_o_direct, begin),
        cmocka_unit_test_setup(what_can_not_be_locked_is_not_used, begin),
        cmocka_unit_test_setup(a_file_that_can_not_be_made_private_or_direct_leaves_nothing_behind,
                               begin),
        cmocka_unit_test_setup(memory_that_a_child_would_inherit_is_not_given_out, begin),
        cmocka_unit_test_setup(where_only_direct_reads_fail_files_are_buffered, begin),
        cmocka_unit_test_setup(a_file_that_takes_no_zeros_is_full, begin),
        cmocka_unit_test_setup(a_submission_that_fails_breaks_the_context, begin),
        cmocka_unit_test_setup(u8_a_submission_that_is_too_early_is_made_again, begin),
        cmocka_unit_test_setup(a_stream_ends_with_a_context_that_breaks, begin),
        cmocka_unit_test_setup(a_ring_that_can_not_signal_gives_no_descriptor, begin),
        cmocka_unit_test_setup(a_new_ring_that_can_not_signal_is_refused, begin),
        cmocka_unit_test_setup(files_and_buffers_that_can_not_be_registered_are_used_as_they_are,
                               begin),
        cmocka_unit_test_setup(a_ring_that_breaks_under_a_plan_of_faults_is_told, begin),
    };
    if (!mkdtemp(directory))
        return 2;
    if (!kernel_has_uring())
        printf("skipped in part: io_uring is refused here\n");
    const int failed = cmocka_run_group_tests(cases, NULL, NULL);
    rmdir(directory);
    return failed;
}
