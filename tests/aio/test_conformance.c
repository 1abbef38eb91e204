/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite: what aio.h promises, checked on one backend, which the first argument
 * names. Both backends run the same cases on a real directory. Skips where the kernel refuses
 * io_uring.
 */
#include "conformance.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum hst_aio_backend backend;
char directory[] = "aio-test-XXXXXX";

struct hst_aio *open_aio(const struct hst_aio_config *config)
{
    struct hst_aio *aio = NULL;
    assert_int_equal(hst_aio_open(config, directory, &aio, NULL), 0);
    return aio;
}

struct hst_aio_file *open_scratch(struct hst_aio *aio, uint64_t size_bytes)
{
    struct hst_aio_file *file = NULL;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, size_bytes, &file), 0);
    return file;
}

void *alloc_buffer(size_t size_bytes)
{
    void *buffer = NULL;
    assert_int_equal(hst_aio_buffer_alloc(size_bytes, &buffer), 0);
    return buffer;
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void fill_random(void *buffer, size_t size_bytes, uint64_t seed)
{
    uint64_t *words = buffer;
    for (size_t i = 0; i < size_bytes / sizeof *words; i++)
        words[i] = next_random(&seed);
}

struct hst_aio_completion run_op(struct hst_aio *aio, struct hst_aio_op op)
{
    struct hst_aio_completion completion = {0};
    op.user = 4711;
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    assert_int_equal(hst_aio_in_flight(aio), 1);
    assert_int_equal(hst_aio_reap(aio, &completion, 1, 1, UINT64_MAX), 1);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    assert_int_equal(completion.user, 4711);
    return completion;
}

struct hst_aio_op read_op(struct hst_aio_file *file, uint64_t offset, void *buffer, uint64_t bytes)
{
    return (struct hst_aio_op){
        .kind = HST_AIO_READ, .file = file, .offset = offset, .buffer = buffer, .bytes = bytes};
}

struct hst_aio_op write_op(struct hst_aio_file *file, uint64_t offset, void *buffer, uint64_t bytes)
{
    return (struct hst_aio_op){
        .kind = HST_AIO_WRITE, .file = file, .offset = offset, .buffer = buffer, .bytes = bytes};
}

int count_names(const char *path)
{
    int count = -2;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "uring") == 0)
        backend = HST_AIO_URING;
    if (argc == 2 && strcmp(argv[1], "threads") == 0)
        backend = HST_AIO_THREADS;
    if (backend == HST_AIO_AUTO || !mkdtemp(directory)) {
        fprintf(stderr, "usage: %s uring|threads, in a writable directory\n", argv[0]);
        return 2;
    }
    struct hst_aio *aio = NULL;
    struct hst_aio_info info = {0};
    int rc = hst_aio_open(CONFIG(.queue_depth = 0), directory, &aio, &info);
    hst_aio_close(&aio);
    int failed = 0;
    if (backend == HST_AIO_URING && (rc == -EPERM || rc == -ENOSYS)) {
        printf("skipped: io_uring is refused here: %s: %s\n", info.uring_step, strerror(-rc));
        failed = 77;
    } else {
        failed +=
            _cmocka_run_group_tests("transfers", transfer_cases, transfer_case_count, NULL, NULL);
        failed += _cmocka_run_group_tests("files", file_cases, file_case_count, NULL, NULL);
    }
    if (rmdir(directory) < 0 && failed == 0) {
        perror("something was left behind in the test directory");
        failed = 1;
    }
    return failed;
}
