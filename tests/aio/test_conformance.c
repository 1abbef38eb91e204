/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite: what aio.h promises, checked on one configuration, which the first
 * argument names: each rung of the ladder in a real directory, and the backends that need no drive.
 * A second argument "fault" wraps it in an empty plan of faults. Skips where the kernel refuses
 * io_uring, or to register anything, or as much as the suite needs, with it.
 */
#include "conformance.h"
#include "kernel.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct configuration configurations[] = {
    {"uring-fixed", HST_AIO_URING, 0, NULL, true},
    {"uring", HST_AIO_URING, HST_AIO_AVOID_FIXED, NULL, false},
    {"uring-buffered", HST_AIO_URING, HST_AIO_AVOID_FIXED | HST_AIO_AVOID_DIRECT, NULL, false},
    {"threads", HST_AIO_THREADS, 0, NULL, false},
    {"threads-buffered", HST_AIO_THREADS, HST_AIO_AVOID_DIRECT, NULL, false},
    {"null", HST_AIO_NULL, 0, NULL, false},
    {"sim", HST_AIO_SIM, 0, "sim:read=7G,write=5G,mixed=6G,lat=80us,jitter=400us,slc=100M", false},
};
const struct configuration *configuration;
const char *fault_plan;
char directory[] = "aio-test-XXXXXX";

enum {
    LIVE_MAX = 8,
    REGISTERED_MOST = 128 * MIB /* by all contexts of one case */
};
static struct hst_aio *contexts[LIVE_MAX];
static struct {
    void *memory;
    size_t size_bytes;
} buffers[LIVE_MAX];

static void register_buffer(struct hst_aio *aio, void *buffer, size_t size_bytes)
{
    if (configuration->fixed)
        assert_int_equal(hst_aio_buffer_register(aio, buffer, size_bytes), 0);
}

struct hst_aio *open_aio(const struct hst_aio_config *config)
{
    struct hst_aio *aio = NULL;
    size_t free_slot = 0;
    assert_int_equal(hst_aio_open(config, directory, &aio, NULL), 0);
    for (size_t i = 0; i < LIVE_MAX; i++)
        if (buffers[i].memory)
            register_buffer(aio, buffers[i].memory, buffers[i].size_bytes);
    while (contexts[free_slot])
        free_slot++;
    assert_true(free_slot < LIVE_MAX);
    contexts[free_slot] = aio;
    return aio;
}

void close_aio(struct hst_aio **aio)
{
    for (size_t i = 0; i < LIVE_MAX; i++)
        if (contexts[i] == *aio)
            contexts[i] = NULL;
    hst_aio_close(aio);
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
    size_t free_slot = 0;
    assert_int_equal(hst_aio_buffer_alloc(size_bytes, &buffer), 0);
    for (size_t i = 0; i < LIVE_MAX; i++)
        if (contexts[i])
            register_buffer(contexts[i], buffer, size_bytes);
    while (buffers[free_slot].memory)
        free_slot++;
    assert_true(free_slot < LIVE_MAX);
    buffers[free_slot].memory = buffer;
    buffers[free_slot].size_bytes = size_bytes;
    return buffer;
}

void free_buffer(void *buffer, size_t size_bytes)
{
    for (size_t i = 0; i < LIVE_MAX; i++) {
        if (contexts[i])
            hst_aio_buffer_unregister(contexts[i], buffer);
        if (buffers[i].memory == buffer)
            buffers[i].memory = NULL;
    }
    hst_aio_buffer_free(buffer, size_bytes);
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

static int run_group(const char *name, const struct CMUnitTest *cases, size_t count)
{
    return _cmocka_run_group_tests(name, cases, count, NULL, NULL);
}

static int run_suite(void)
{
    const bool real =
        configuration->backend == HST_AIO_URING || configuration->backend == HST_AIO_THREADS;
    int failed = run_group("queues", queue_cases, queue_case_count);
    failed += run_group("features", feature_cases, feature_case_count);
    if (configuration->backend != HST_AIO_NULL)
        failed += run_group("data", data_cases, data_case_count);
    if (real)
        failed += run_group("system", system_cases, system_case_count);
    if (real)
        failed += run_group("files", file_cases, file_case_count);
    return failed;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof configurations / sizeof *configurations; i++)
        if (strcmp(argv[1], configurations[i].name) == 0)
            configuration = &configurations[i];
    if (argc > 2 && strcmp(argv[2], "fault") == 0)
        fault_plan = "";
    if (!configuration || !mkdtemp(directory)) {
        fprintf(stderr, "usage: %s CONFIGURATION [fault], in a writable directory\n", argv[0]);
        return 2;
    }
    struct hst_aio *aio = NULL;
    struct hst_aio_info info = {0};
    int rc = hst_aio_open(CONFIG(.queue_depth = 0), directory, &aio, &info);
    hst_aio_close(&aio);
    int failed = 77;
    if (configuration->backend == HST_AIO_URING && !kernel_has_uring())
        printf("skipped: io_uring is refused here: %s: %s\n", info.uring_step, strerror(-rc));
    else if (configuration->fixed && !info.fixed && !kernel_registers())
        printf("skipped: nothing can be registered: %s\n", strerror(-info.fixed_error));
    else if (configuration->fixed && info.fixed && !kernel_registers_bytes(REGISTERED_MOST))
        printf("skipped: this user may not register %d MiB (ulimit -l)\n", REGISTERED_MOST / MIB);
    else
        failed = run_suite();
    if (rmdir(directory) < 0 && failed == 0) {
        perror("something was left behind in the test directory");
        failed = 1;
    }
    return failed;
}
