/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens where the system refuses something: io_uring in a container, O_TMPFILE or fallocate
 * on an odd file system. A seccomp filter in a child makes the refusals.
 */
#include "internal.h" /* for a file that blocks */
#include "kernel.h"
#include "sandbox.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h> /* needs the ones before */

#include "handles.h"

enum { MIB = 1 << 20 };

static char directory[] = "aio-fallback-XXXXXX";

static int open_backend(enum hst_aio_backend backend, struct hst_aio **aio,
                        struct hst_aio_info *info)
{
    const struct hst_aio_config config = {.size = sizeof config, .backend = backend};
    return hst_aio_open(&config, directory, aio, info);
}

/* One MiB through a scratch file; the directory stays empty. */
static void check_round_trip(struct hst_aio *aio)
{
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done;
    void *buffer;
    CHECK(hst_aio_buffer_alloc(2 * MIB, &buffer) == 0);
    memset(buffer, 0x5a, MIB);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, MIB, &file) == 0);
    struct hst_aio_op op = {.kind = HST_AIO_WRITE, .file = file, .buffer = buffer, .bytes = MIB};
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == 1 && done.error == 0);
    op.kind = HST_AIO_READ;
    op.buffer = (char *)buffer + MIB;
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == 1 && done.error == 0);
    CHECK(memcmp(buffer, op.buffer, MIB) == 0);
    DIR *dir = opendir(directory);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        CHECK(entry->d_name[0] == '.' && strlen(entry->d_name) <= 2);
    closedir(dir);
    hst_aio_file_close(&file);
    hst_aio_buffer_free(buffer, 2 * MIB);
}

/* As many operations as the queue takes, twice. */
static void check_full_queue(struct hst_aio *aio)
{
    enum { DEPTH = 64 };
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done[DEPTH];
    void *buffer;
    CHECK(hst_aio_buffer_alloc(MIB, &buffer) == 0);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, MIB, &file) == 0);
    for (int round = 0; round < 2; round++) {
        struct hst_aio_op ops[DEPTH];
        bool seen[DEPTH] = {false};
        for (size_t i = 0; i < DEPTH; i++)
            ops[i] = (struct hst_aio_op){.kind = HST_AIO_READ,
                                         .file = file,
                                         .buffer = (char *)buffer + i * 4096,
                                         .bytes = 4096,
                                         .user = i};
        CHECK(hst_aio_submit(aio, ops, DEPTH) == DEPTH);
        CHECK(hst_aio_submit(aio, ops, 1) == -EAGAIN);
        CHECK(hst_aio_reap(aio, done, DEPTH, DEPTH, UINT64_MAX) == DEPTH);
        for (size_t i = 0; i < DEPTH; i++) {
            CHECK(done[i].error == 0 && !seen[done[i].user]);
            seen[done[i].user] = true;
        }
    }
    hst_aio_file_close(&file);
    hst_aio_buffer_free(buffer, MIB);
}

static void without_setup(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    refuse_always(__NR_io_uring_setup, EPERM);
    CHECK(open_backend(HST_AIO_AUTO, &aio, &info) == 0);
    CHECK(info.backend == HST_AIO_THREADS);
    CHECK(info.uring_error == -EPERM);
    CHECK(strcmp(info.uring_step, "io_uring_setup") == 0);
    check_round_trip(aio);
    hst_aio_close(&aio);
    memset(&info, 0, sizeof info);
    CHECK(open_backend(HST_AIO_URING, &aio, &info) == -EPERM);
    CHECK(aio == NULL && info.uring_error == -EPERM && info.backend == HST_AIO_URING);
}

static void u1_auto_takes_threads_where_io_uring_is_refused_and_a_forced_uring_fails(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_setup), 0);
}

static void without_enter(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    refuse_always(__NR_io_uring_enter, EACCES);
    CHECK(open_backend(HST_AIO_AUTO, &aio, &info) == 0);
    CHECK(info.backend == HST_AIO_THREADS);
    CHECK(info.uring_error == -EACCES && strcmp(info.uring_step, "write") == 0);
    check_full_queue(aio); /* nothing of the failed probe is left in it */
    check_round_trip(aio);
    hst_aio_close(&aio);
    CHECK(open_backend(HST_AIO_URING, &aio, &info) == -EACCES);
}

static void without_small_mappings(void)
{
    struct hst_aio *aio = NULL;
    refuse(__NR_mmap, 1, BPF_JEQ, 4096, ENOMEM);
    CHECK(open_backend(HST_AIO_NULL, &aio, NULL) == -ENOMEM);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == -ENOMEM);
    CHECK(aio == NULL);
    _exit(0); /* a sanitizer's end needs such mappings */
}

static void memory_that_can_not_be_mapped_is_reported(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_small_mappings), 0);
}

static void the_probe_finds_a_ring_that_opens_but_does_not_work(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip(); /* main says so */
    assert_int_equal(in_child(without_enter), 0);
}

/* What older kernels answer. The program's functions come before those of the shared library. */
static unsigned missing_features;
static int dontfork_error;

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                               struct io_uring_params *params)
{
    int (*real)(unsigned, struct io_uring *, struct io_uring_params *);
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_queue_init_params");
    const int rc = real(entries, ring, params);
    ring->features &= ~missing_features;
    return rc;
}

int io_uring_ring_dontfork(struct io_uring *ring)
{
    int (*real)(struct io_uring *);
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_ring_dontfork");
    return dontfork_error ? dontfork_error : real(ring);
}

static void check_refused_ring(int error, const char *step)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    const int before = count_names("/proc/self/fd");
    CHECK(open_backend(HST_AIO_URING, &aio, &info) == error);
    CHECK(info.uring_error == error && strcmp(info.uring_step, step) == 0);
    CHECK(count_names("/proc/self/fd") == before);
    CHECK(open_backend(HST_AIO_AUTO, &aio, &info) == 0);
    CHECK(info.backend == HST_AIO_THREADS && info.uring_error == error);
    check_round_trip(aio);
    hst_aio_close(&aio);
}

static void with_an_older_kernel(void)
{
    missing_features = IORING_FEAT_EXT_ARG;
    check_refused_ring(-ENOSYS, "io_uring features (Linux 5.11)");
    missing_features = 0;
    dontfork_error = -ENOMEM;
    check_refused_ring(-ENOMEM, "io_uring_ring_dontfork");
}

static void a_ring_that_lacks_what_it_needs_is_not_used(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip();
    assert_int_equal(in_child(with_an_older_kernel), 0);
}

static void losing_enter(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_completion done;
    void *buffer;
    alarm(20); /* a wait that does not see the error would not end */
    CHECK(open_backend(HST_AIO_URING, &aio, NULL) == 0);
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    struct hst_aio_file stuck = {.aio = aio, .size_bytes = MIB, .fd = eventfd(0, 0)};
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = &stuck, .buffer = buffer, .bytes = 4096};
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    refuse_always(__NR_io_uring_enter, EACCES);
    CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == -EACCES);
    CHECK(hst_aio_submit(aio, &op, 1) == -EACCES);
    CHECK(hst_aio_in_flight(aio) == 0 && stuck.in_flight == 0);
    hst_aio_close(&aio);
}

static void a_ring_that_stops_working_breaks_the_context(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip();
    assert_int_equal(in_child(losing_enter), 0);
}

static void with_small_rings_only(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    refuse(__NR_io_uring_setup, 0, BPF_JGT, 16, ENOMEM);
    CHECK(open_backend(HST_AIO_URING, &aio, &info) == 0);
    CHECK(info.backend == HST_AIO_URING && info.uring_error == 0 && info.uring_step == NULL);
    check_round_trip(aio);
    hst_aio_close(&aio);
}

static void u4_a_ring_that_does_not_fit_is_halved_down_to_16_entries(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip();
    assert_int_equal(in_child(with_small_rings_only), 0);
}

static void with_tiny_rings_only(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    refuse(__NR_io_uring_setup, 0, BPF_JGT, 15, ENOMEM);
    CHECK(open_backend(HST_AIO_AUTO, &aio, &info) == 0);
    CHECK(info.backend == HST_AIO_THREADS && info.uring_error == -ENOMEM);
    hst_aio_close(&aio);
}

static void u4_below_16_entries_the_threads_take_over(void **state)
{
    (void)state;
    if (!kernel_has_uring())
        skip();
    assert_int_equal(in_child(with_tiny_rings_only), 0);
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static const bool counts_threads = true;
static int threads_left = INT_MAX;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return threads_left-- > 0 ? real(thread, attributes, body, arg) : EAGAIN;
}
#else
static const bool counts_threads = false; /* a sanitizer has a pthread_create of its own */
static int threads_left;
#endif

static void with_two_threads_left(void)
{
    struct hst_aio *aio = NULL;
    alarm(20);
    const int before = count_names("/proc/self/fd");
    threads_left = 2;
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == -EAGAIN);
    CHECK(aio == NULL && count_names("/proc/self/fd") == before);
    while (count_names("/proc/self/task") > 1) /* the two are ended */
        sched_yield();
}

static void a_pool_that_can_not_be_had_whole_is_given_up(void **state)
{
    (void)state;
    if (!counts_threads)
        skip();
    assert_int_equal(in_child(with_two_threads_left), 0);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    handled = number;
}

static void with_a_signal_for_the_process(void)
{
    struct hst_aio *aio = NULL;
    sigset_t one, before, after;
    const struct timespec second = {.tv_sec = 1};
    signal(SIGUSR1, on_signal);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, &before) == 0);
    sigaddset(&before, SIGUSR1);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &after) == 0);
    for (int number = 1; number < SIGRTMAX; number++)
        CHECK(sigismember(&before, number) == sigismember(&after, number));
    CHECK(kill(getpid(), SIGUSR1) == 0);
    check_round_trip(aio);
    CHECK(sigtimedwait(&one, NULL, &second) == SIGUSR1 && !handled); /* no thread took it */
    hst_aio_close(&aio);
}

static void the_pool_takes_no_signals_and_leaves_the_callers_mask(void **state)
{
    (void)state;
    assert_int_equal(in_child(with_a_signal_for_the_process), 0);
}

static void without_tmpfile(void)
{
    struct hst_aio *aio = NULL;
    refuse(__NR_openat, 2, BPF_JSET, O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP);
    CHECK(open(directory, O_TMPFILE | O_RDWR, 0600) < 0 && errno == EOPNOTSUPP);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == 0);
    check_round_trip(aio);
    hst_aio_close(&aio);
}

static void without_o_tmpfile_scratch_files_are_created_and_unlinked(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_tmpfile), 0);
}

static void without_fallocate(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "%s/zeros", directory);
    refuse_always(__NR_fallocate, EOPNOTSUPP);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == 0);
    check_round_trip(aio);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, 3 * MIB + 4096, &file) == 0);
    CHECK(stat(path, &st) == 0 && unlink(path) == 0);
    CHECK(st.st_size == 3 * MIB + 4096 && st.st_blocks * 512 >= st.st_size);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void without_fallocate_files_are_filled_with_zeros(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_fallocate), 0);
}

static void with_full_disk(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    char path[64];
    snprintf(path, sizeof path, "%s/full", directory);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == 0);
    refuse_always(__NR_fallocate, EDQUOT);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file) == -EDQUOT);
    CHECK(access(path, F_OK) < 0 && errno == ENOENT);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, MIB, &file) == -EDQUOT);
    hst_aio_close(&aio);
}

static void a_file_that_cannot_be_allocated_leaves_nothing_behind(void **state)
{
    (void)state;
    assert_int_equal(in_child(with_full_disk), 0);
}

/* ---- a sandbox ---- */

static void without_calls_that_nothing_needs(int error)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "%s/named", directory);
    refuse_always(__NR_fchmod, error);
    refuse_always(__NR_prlimit64, error);
    CHECK(open_backend(HST_AIO_THREADS, &aio, NULL) == 0);
    check_round_trip(aio);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file) == 0);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    hst_aio_file_close(&file);
    CHECK(unlink(path) == 0);
    hst_aio_close(&aio);
}

static void without_calls_that_a_profile_denies(void)
{
    without_calls_that_nothing_needs(EPERM);
}

static void without_calls_that_a_sandbox_lacks(void)
{
    without_calls_that_nothing_needs(ENOSYS);
}

static void what_a_sandbox_refuses_and_nothing_needs_does_not_matter(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_calls_that_a_profile_denies), 0);
    assert_int_equal(in_child(without_calls_that_a_sandbox_lacks), 0);
}

/* -EINVAL is a kernel that does not know the advice, no sandbox. */
static void without_madvise(void)
{
    static const int errors[] = {EINVAL, EPERM, ENOSYS};
    for (int i = 0; i < 3; i++) { /* of several filters the last one that was installed is told */
        struct hst_aio *aio = NULL;
        struct hst_aio_info info = {.refused_call = "other"};
        refuse_always(__NR_madvise, errors[i]);
        CHECK(open_backend(HST_AIO_AUTO, &aio, &info) == -errors[i]);
        CHECK(!aio);
        if (errors[i] == EINVAL)
            CHECK(strcmp(info.refused_call, "other") == 0); /* not written */
        else
            CHECK(strcmp(info.refused_call, "madvise") == 0);
    }
}

static void a_call_that_memory_needs_and_a_sandbox_refuses_is_named(void **state)
{
    (void)state;
    assert_int_equal(in_child(without_madvise), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(u1_auto_takes_threads_where_io_uring_is_refused_and_a_forced_uring_fails),
        cmocka_unit_test(memory_that_can_not_be_mapped_is_reported),
        cmocka_unit_test(the_probe_finds_a_ring_that_opens_but_does_not_work),
        cmocka_unit_test(a_ring_that_lacks_what_it_needs_is_not_used),
        cmocka_unit_test(a_ring_that_stops_working_breaks_the_context),
        cmocka_unit_test(u4_a_ring_that_does_not_fit_is_halved_down_to_16_entries),
        cmocka_unit_test(u4_below_16_entries_the_threads_take_over),
        cmocka_unit_test(a_pool_that_can_not_be_had_whole_is_given_up),
        cmocka_unit_test(the_pool_takes_no_signals_and_leaves_the_callers_mask),
        cmocka_unit_test(without_o_tmpfile_scratch_files_are_created_and_unlinked),
        cmocka_unit_test(without_fallocate_files_are_filled_with_zeros),
        cmocka_unit_test(a_file_that_cannot_be_allocated_leaves_nothing_behind),
        cmocka_unit_test(what_a_sandbox_refuses_and_nothing_needs_does_not_matter),
        cmocka_unit_test(a_call_that_memory_needs_and_a_sandbox_refuses_is_named),
    };
    if (!mkdtemp(directory))
        return 2;
    const bool uring = kernel_has_uring();
    int failed = cmocka_run_group_tests(cases, NULL, NULL);
    if (rmdir(directory) < 0)
        failed++;
    if (failed == 0 && !uring) {
        printf("skipped in part: io_uring is refused here, so that rings could not be tried\n");
        return SKIP;
    }
    return failed;
}
