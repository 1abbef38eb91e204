/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: files and buffers. */
#include "conformance.h"

#include "internal.h" /* for the descriptor of a file */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *in_directory(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void scratch_files_leave_no_name_behind(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = open_scratch(aio, MIB);
    struct stat st;
    assert_int_equal(count_names(directory), 0);
    assert_int_equal(hst_aio_file_size(file), MIB);
    assert_int_equal(fstat(file->fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_true(st.st_blocks * 512 >= MIB);
    hst_aio_file_close(&file);
    assert_null(file);
    hst_aio_file_close(&file); /* a null handle is accepted */
    close_aio(&aio);
}

static void created_files_are_private_and_preallocated_and_must_be_new(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL, *again = NULL;
    const char *path = in_directory("new");
    struct stat st;
    const mode_t before = umask(0777);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, 2 * MIB, &file), 0);
    umask(before);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 2 * MIB);
    assert_true(st.st_blocks * 512 >= 2 * MIB);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &again), -EEXIST);
    assert_null(again);
    hst_aio_file_close(&file);
    close_aio(&aio);
    assert_int_equal(unlink(path), 0);
}

static void existing_contents_are_kept_and_extended(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    const char *path = in_directory("old");
    char *written = alloc_buffer(MIB), *read = alloc_buffer(MIB);
    fill_random(written, MIB, 9);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), 0);
    assert_int_equal(run_op(aio, write_op(file, 0, written, MIB)).error, 0);
    hst_aio_file_close(&file);
    assert_int_equal(hst_aio_file_open(aio, path, 0, 2 * MIB, &file), 0);
    assert_int_equal(hst_aio_file_size(file), 2 * MIB);
    assert_int_equal(run_op(aio, read_op(file, 0, read, MIB)).error, 0);
    assert_memory_equal(written, read, MIB);
    hst_aio_file_close(&file);
    assert_int_equal(hst_aio_file_open(aio, path, 0, 4 * KIB, &file), 0);
    assert_int_equal(hst_aio_file_size(file), 4 * KIB); /* the rest is out of reach, and kept */
    hst_aio_file_close(&file);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 2 * MIB);
    close_aio(&aio);
    assert_int_equal(unlink(path), 0);
    free_buffer(written, MIB);
    free_buffer(read, MIB);
}

static void readonly_files_are_read_as_they_are_and_never_written(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    const char *path = in_directory("ro");
    char *buffer = alloc_buffer(MIB);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), 0);
    hst_aio_file_close(&file);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_READONLY, 2 * MIB, &file), -ENODATA);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file), 0);
    assert_int_equal(hst_aio_file_size(file), MIB);
    assert_int_equal(run_op(aio, read_op(file, 0, buffer, MIB)).error, 0);
    struct hst_aio_op op = write_op(file, 0, buffer, MIB);
    assert_int_equal(hst_aio_submit(aio, &op, 1), -EINVAL);
    hst_aio_file_close(&file);
    assert_int_equal(truncate(path, MIB - 100), 0);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file), -EINVAL);
    close_aio(&aio);
    assert_int_equal(unlink(path), 0);
    free_buffer(buffer, MIB);
}

static void what_is_not_a_regular_file_is_refused(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    char target[256];
    snprintf(target, sizeof target, "%s", in_directory("target"));
    assert_int_equal(hst_aio_file_open(aio, target, HST_AIO_CREATE, MIB, &file), 0);
    hst_aio_file_close(&file);
    const char *path = in_directory("odd");
    assert_int_equal(symlink("target", path), 0);
    assert_int_equal(hst_aio_file_open(aio, path, 0, MIB, &file), -ELOOP);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file), -ELOOP);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file), -EEXIST);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(target), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, 0, MIB, &file), -EINVAL);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_READONLY, 0, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, 0, MIB, &file), -ENOENT);
    close_aio(&aio);
}

static void bad_requests_are_refused_and_create_nothing(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    const char *path = in_directory("bad");
    const unsigned both = HST_AIO_CREATE | HST_AIO_READONLY;
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, 0, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, 5000, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, both, MIB, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, 8, MIB, &file), -EINVAL);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, 1ull << 63, &file), -EFBIG);
    assert_int_equal(count_names(directory), 0);
    close_aio(&aio);
}

static void set_file_size_limit(rlim_t soft)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = soft;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_file_above_the_size_limit_is_refused_without_a_signal(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    set_file_size_limit(16 * MIB); /* SIGXFSZ has its default action: it would kill this test */
    int create = hst_aio_file_open(aio, in_directory("big"), HST_AIO_CREATE, 32 * MIB, &file);
    int scratch = hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 32 * MIB, &file);
    set_file_size_limit(before.rlim_cur);
    assert_int_equal(create, -EFBIG);
    assert_int_equal(scratch, -EFBIG);
    assert_int_equal(count_names(directory), 0);
    close_aio(&aio);
}

static void u10_a_write_across_a_lowered_limit_ends_with_efbig(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8, .piece_bytes = 4 * MIB));
    struct hst_aio_file *file = open_scratch(aio, 4 * MIB);
    char *buffer = alloc_buffer(4 * MIB);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    /*
     * On uring the caller's thread may get the signal, as aio.h says; threads must not let it
     * through.
     */
    if (configuration->backend == HST_AIO_URING)
        signal(SIGXFSZ, SIG_IGN);
    set_file_size_limit(2 * MIB);
    struct hst_aio_completion done = run_op(aio, write_op(file, 0, buffer, 4 * MIB));
    set_file_size_limit(before.rlim_cur);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(done.error, -EFBIG);
    assert_int_equal(done.bytes, 2 * MIB);
    hst_aio_file_close(&file);
    close_aio(&aio);
    free_buffer(buffer, 4 * MIB);
}

static void u9_a_file_that_was_cut_reports_enodata(void **state)
{
    (void)state;
    struct hst_aio *aio = open_aio(CONFIG(.queue_depth = 8));
    struct hst_aio_file *file = NULL;
    const char *path = in_directory("cut");
    char *buffer = alloc_buffer(4 * MIB);
    assert_int_equal(hst_aio_file_open(aio, path, HST_AIO_CREATE, 4 * MIB, &file), 0);
    assert_int_equal(truncate(path, MIB + 8 * KIB + 100), 0);
    struct hst_aio_completion done = run_op(aio, read_op(file, 0, buffer, 4 * MIB));
    assert_int_equal(done.error, -ENODATA);
    assert_int_equal(done.bytes, MIB + 8 * KIB);
    done = run_op(aio, read_op(file, 2 * MIB, buffer, MIB));
    assert_int_equal(done.error, -ENODATA);
    assert_int_equal(done.bytes, 0);
    hst_aio_file_close(&file);
    close_aio(&aio);
    assert_int_equal(unlink(path), 0);
    free_buffer(buffer, 4 * MIB);
}

static void descriptors_close_on_exec_and_none_is_leaked(void **state)
{
    (void)state;
    const int before = count_names("/proc/self/fd");
    for (int round = 0; round < 10; round++) {
        struct hst_aio_info info;
        struct hst_aio *aio = NULL;
        struct hst_aio_file *file = NULL;
        assert_int_equal(hst_aio_open(CONFIG(.queue_depth = 8), directory, &aio, &info), 0);
        assert_int_equal(info.backend, configuration->backend);
        assert_int_equal(info.uring_error, 0);
        assert_int_equal(info.direct, info.direct_error == 0);
        hst_aio_file_open(aio, "/dev/null", 0, MIB, &file);
        hst_aio_file_open(aio, "/dev/full", HST_AIO_READONLY, 0, &file);
        assert_null(file);
        file = open_scratch(aio, MIB);
        assert_int_equal((fcntl(file->fd, F_GETFL) & O_DIRECT) != 0, info.direct);
        assert_int_equal(fcntl(file->fd, F_GETFL) & O_NONBLOCK, 0);
        for (int fd = 3; fd < 100; fd++) {
            char link[32], target[64] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            if (fd != file->fd &&
                (readlink(link, target, sizeof target - 1) < 0 || !strstr(target, "io_uring")))
                continue;
            assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        }
        hst_aio_file_close(&file);
        close_aio(&aio);
    }
    assert_int_equal(count_names("/proc/self/fd"), before);
}

static void buffers_are_zeroed_aligned_and_not_inherited(void **state)
{
    (void)state;
    void *buffer = NULL;
    assert_int_equal(hst_aio_buffer_alloc(0, &buffer), -EINVAL);
    assert_int_equal(hst_aio_buffer_alloc(SIZE_MAX, &buffer), -ENOMEM);
    assert_int_equal(hst_aio_buffer_alloc(1ull << 60, &buffer), -ENOMEM);
    assert_null(buffer);
    hst_aio_buffer_free(NULL, 5);
    for (size_t size_bytes = 1; size_bytes < 8 * MIB; size_bytes = size_bytes * 3 + 1) {
        char *bytes = alloc_buffer(size_bytes);
        assert_int_equal((uintptr_t)bytes % (2 * MIB), 0);
        for (size_t i = 0; i < size_bytes; i++)
            assert_int_equal(bytes[i], 0);
        free_buffer(bytes, size_bytes);
    }
    volatile char *bytes = alloc_buffer(MIB);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(bytes[0]);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    free_buffer((void *)bytes, MIB);
}

const struct CMUnitTest file_cases[] = {
    cmocka_unit_test(scratch_files_leave_no_name_behind),
    cmocka_unit_test(created_files_are_private_and_preallocated_and_must_be_new),
    cmocka_unit_test(existing_contents_are_kept_and_extended),
    cmocka_unit_test(readonly_files_are_read_as_they_are_and_never_written),
    cmocka_unit_test(what_is_not_a_regular_file_is_refused),
    cmocka_unit_test(bad_requests_are_refused_and_create_nothing),
    cmocka_unit_test(a_file_above_the_size_limit_is_refused_without_a_signal),
    cmocka_unit_test(u10_a_write_across_a_lowered_limit_ends_with_efbig),
    cmocka_unit_test(u9_a_file_that_was_cut_reports_enodata),
    cmocka_unit_test(descriptors_close_on_exec_and_none_is_leaked),
    cmocka_unit_test(buffers_are_zeroed_aligned_and_not_inherited),
};
const size_t file_case_count = sizeof file_cases / sizeof *file_cases;
