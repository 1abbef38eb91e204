/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the table of io_uring's failures (aio/README.md) that the kernel itself can be made to
 * produce. Each in a child of its own.
 */
#include "internal.h"
#include "kernel.h"
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h> /* needs the ones before */

enum { KIB = 1 << 10, MIB = 1 << 20 };

static char directory[] = "aio-rows-XXXXXX";

static struct hst_aio *open_backend(enum hst_aio_backend backend, struct hst_aio_info *info)
{
    struct hst_aio *aio = NULL;
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = backend, .lock_timeout_ms = 200};
    const int rc = hst_aio_open(&config, directory, &aio, info);
    CHECK(rc == 0);
    return aio;
}

static struct hst_aio_file *open_file(struct hst_aio *aio, unsigned flags, uint64_t size_bytes)
{
    struct hst_aio_file *file = NULL;
    CHECK(hst_aio_file_open(aio, directory, flags, size_bytes, &file) == 0);
    return file;
}

static int run_op(struct hst_aio *aio, struct hst_aio_file *file, enum hst_aio_kind kind,
                  uint64_t offset, void *buffer, uint64_t bytes)
{
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = kind, .file = file, .offset = offset, .buffer = buffer, .bytes = bytes};
    int rc = hst_aio_submit(aio, &op, 1);
    if (rc < 0)
        return rc;
    rc = hst_aio_reap(aio, &done, 1, 1, UINT64_MAX);
    return rc < 0 ? rc : done.error;
}

static void check_round_trip(struct hst_aio *aio, void *buffer, uint64_t bytes)
{
    struct hst_aio_file *file = open_file(aio, HST_AIO_SCRATCH, bytes);
    memset(buffer, 0x3c, bytes);
    CHECK(run_op(aio, file, HST_AIO_WRITE, 0, buffer, bytes) == 0);
    memset(buffer, 0, bytes);
    CHECK(run_op(aio, file, HST_AIO_READ, 0, buffer, bytes) == 0);
    for (uint64_t i = 0; i < bytes; i += 511)
        CHECK(((char *)buffer)[i] == 0x3c);
    hst_aio_file_close(&file);
}

static void without_the_system_call(void)
{
    struct hst_aio_info info;
    refuse_always(__NR_io_uring_setup, ENOSYS);
    struct hst_aio *aio = open_backend(HST_AIO_AUTO, &info);
    CHECK(info.backend == HST_AIO_THREADS && info.uring_error == -ENOSYS && !info.fixed);
    CHECK(info.uring_sysctl >= -1 && info.uring_sysctl <= 2);
    hst_aio_close(&aio);
}

static void with_little_memlock(void)
{
    struct hst_aio_info info;
    const struct rlimit limit = {64 * KIB, 64 * KIB};
    void *buffer;
    CHECK(chmod(directory, 0777) == 0);
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (setresuid(65534, 65534, 65534) < 0 || access(directory, W_OK) < 0)
        exit(SKIP); /* needs root, whom the limit does not bind */
    struct hst_aio *aio = open_backend(HST_AIO_URING, &info);
    CHECK(info.memlock_bytes == 64 * KIB);
    CHECK(hst_aio_buffer_alloc(MIB, &buffer) == 0);
    CHECK(hst_aio_buffer_register(aio, buffer, MIB) == -ENOMEM);
    check_round_trip(aio, buffer, MIB); /* all the same */
    hst_aio_close(&aio);
}

/* A line of a file of /proc that holds `word`; false: none does. */
static bool find_line(const char *path, const char *word, char line[256])
{
    bool found = false;
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    while (!found && fgets(line, 256, file))
        found = strstr(line, word) != NULL;
    fclose(file);
    return found;
}

/* Memory that the kernel keeps in place for this process. */
static unsigned long pinned_kib(void)
{
    char line[256];
    CHECK(find_line("/proc/self/status", "VmPin:", line));
    return strtoul(line + strlen("VmPin:"), NULL, 10);
}

/* Rings are taken down behind the back of their process, and until then have pages of their own. */
static void wait_for_pinned(unsigned long kib)
{
    while (pinned_kib() != kib)
        sched_yield();
}

/*
 * Pages that are registered stay the ring's when others take their address: what is read goes to
 * them and not to what is seen there now.
 */
static void check_registered_pages_are_used(struct hst_aio *aio, char *memory)
{
    struct hst_aio_file *file = open_file(aio, HST_AIO_SCRATCH, MIB);
    memset(memory, 0x55, MIB);
    CHECK(run_op(aio, file, HST_AIO_WRITE, 0, memory, MIB) == 0);
    CHECK(hst_aio_buffer_register(aio, memory, MIB) == 0);
    CHECK(mmap(memory, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) == memory);
    CHECK(run_op(aio, file, HST_AIO_READ, 0, memory, MIB) == 0);
    CHECK(memory[0] == 0 && memory[MIB - 1] == 0);
    hst_aio_buffer_unregister(aio, memory);
    CHECK(run_op(aio, file, HST_AIO_READ, 0, memory, MIB) == 0);
    CHECK(memory[0] == 0x55 && memory[MIB - 1] == 0x55);
    hst_aio_file_close(&file);
}

static void with_odd_buffers(void)
{
    const size_t large = (512u << 20) + 4 * MIB; /* two parts */
    char path[64];
    if (!kernel_registers_bytes(large + 64 * MIB)) /* an ordinary user's ulimit -l */
        _exit(SKIP);
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    char *anonymous = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(anonymous != MAP_FAILED);
    madvise(anonymous, large, MADV_HUGEPAGE);
    CHECK(hst_aio_buffer_register(aio, anonymous, large) == 0);
    check_round_trip(aio, anonymous + (512u << 20) - 2 * MIB - 4 * KIB, 4 * MIB); /* across both */
    hst_aio_buffer_unregister(aio, anonymous);
    check_round_trip(aio, anonymous, MIB);

    for (size_t i = 0; i < 64; i++) /* parts there are */
        CHECK(hst_aio_buffer_register(aio, anonymous + i * MIB, 4096) == 0);
    CHECK(hst_aio_buffer_register(aio, anonymous + 64 * MIB, 4096) == -ENOSPC);
    hst_aio_buffer_unregister(aio, anonymous);
    const unsigned long pinned = pinned_kib();
    CHECK(hst_aio_buffer_register(aio, anonymous, large) == -ENOSPC); /* one part is left of two */
    wait_for_pinned(pinned);
    CHECK(hst_aio_buffer_register(aio, anonymous, 4096) == 0);
    for (size_t i = 0; i < 64; i++)
        hst_aio_buffer_unregister(aio, anonymous + i * MIB);
    check_registered_pages_are_used(aio, anonymous);

    snprintf(path, sizeof path, "%s/mapped", directory);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, MIB) == 0);
    char *mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    hst_aio_buffer_register(aio, mapped, MIB); /* kernels differ in whether they take it */
    check_round_trip(aio, mapped, MIB);
    CHECK(hst_aio_buffer_register(aio, (void *)(uintptr_t)4096, MIB) < 0); /* not mapped */
    hst_aio_close(&aio);
}

static void losing_completions(void)
{
    struct hst_aio_completion done;
    void *buffer;
    alarm(20);
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    struct hst_aio_file stuck = {.aio = aio, .size_bytes = MIB, .fd = eventfd(0, 0)};
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = &stuck, .buffer = buffer, .bytes = 4096};
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    refuse_always(__NR_io_uring_enter, EBADR);
    CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == -EBADR);
    CHECK(hst_aio_submit(aio, &op, 1) == -EBADR);
    hst_aio_close(&aio);
}

static void with_a_busy_kernel(void)
{
    struct hst_aio_completion done;
    void *buffer;
    alarm(20);
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    struct hst_aio_file *file = open_file(aio, HST_AIO_SCRATCH, MIB);
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
    refuse_always(__NR_io_uring_enter, EBUSY);
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    CHECK(hst_aio_reap(aio, &done, 1, 1, 30000000) == 0); /* ends at its timeout */
    CHECK(hst_aio_in_flight(aio) == 1);
    exit(0); /* it would wait for ever: the kernel never takes it */
}

static void in_a_forked_child(void)
{
    void *buffer;
    char path[64];
    struct hst_aio_file *file = NULL, *again = NULL;
    char line[256];
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    CHECK(find_line("/proc/self/maps", "[io_uring]", line));
    snprintf(path, sizeof path, "%s/forked", directory);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, MIB, &file) == 0);
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct hst_aio_completion done;
        const struct hst_aio_op op = {
            .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 4096};
        CHECK(!find_line("/proc/self/maps", "[io_uring]", line)); /* not even in its memory */
        CHECK(hst_aio_submit(aio, &op, 1) == -EINVAL);
        CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == -EINVAL);
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
        CHECK(file == NULL && aio == NULL);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(hst_aio_file_open(aio, path, 0, MIB, &again) == -EBUSY); /* still the parent's lock */
    CHECK(run_op(aio, file, HST_AIO_WRITE, 0, buffer, 4096) == 0);
    CHECK(unlink(path) == 0);
    check_round_trip(aio, buffer, 4096); /* the parent's goes on */
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void *read_elsewhere(void *arg)
{
    struct hst_aio_file *file = arg;
    void *buffer;
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    CHECK(run_op(file->aio, file, HST_AIO_READ, 0, buffer, 4096) == 0);
    hst_aio_buffer_free(buffer, 4096);
    return NULL;
}

static void on_another_thread(void)
{
    void *first, *second;
    pthread_t thread;
    if (!kernel_registers_bytes(16 * MIB)) /* an ordinary user's ulimit -l */
        _exit(SKIP);
    alarm(20);
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    struct hst_aio_file *file = open_file(aio, HST_AIO_SCRATCH, MIB);
    const unsigned long before = pinned_kib();
    CHECK(hst_aio_buffer_alloc(4 * MIB, &first) == 0 && hst_aio_buffer_alloc(MIB, &second) == 0);
    CHECK(hst_aio_buffer_register(aio, first, 4 * MIB) == 0);
    CHECK(hst_aio_buffer_register(aio, second, MIB) == 0);
    wait_for_pinned(before + 5 * KIB);
    hst_aio_buffer_unregister(aio, first);
    wait_for_pinned(before + KIB);
    CHECK(hst_aio_buffer_register(aio, first, 4 * MIB) == 0);
    CHECK(pthread_create(&thread, NULL, read_elsewhere, file) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    wait_for_pinned(before + 5 * KIB);      /* with the new ring */
    hst_aio_buffer_unregister(aio, second); /* not its thread: the ring is given up */
    CHECK(run_op(aio, file, HST_AIO_READ, 0, first, MIB) == 0);
    wait_for_pinned(before + 4 * KIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    wait_for_pinned(before);
}

/* Writes its file over and over, 64 MiB in flight, until it is killed. */
static void write_for_ever(const char *path, int started)
{
    enum { DEPTH = 64 };
    struct hst_aio_completion done[DEPTH];
    struct hst_aio_file *file = NULL;
    void *buffer;
    struct hst_aio *aio = open_backend(HST_AIO_URING, NULL);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, DEPTH * MIB, &file) == 0);
    CHECK(hst_aio_buffer_alloc(DEPTH * MIB, &buffer) == 0);
    for (uint64_t round = 1;; round++) {
        for (size_t i = 0; i < DEPTH; i++) {
            *(uint64_t *)(void *)((char *)buffer + i * MIB) = round;
            const struct hst_aio_op op = {.kind = HST_AIO_WRITE,
                                          .file = file,
                                          .offset = i * MIB,
                                          .buffer = (char *)buffer + i * MIB,
                                          .bytes = MIB};
            CHECK(hst_aio_submit(aio, &op, 1) == 1);
        }
        if (round == 2)
            CHECK(write(started, "x", 1) == 1);
        CHECK(hst_aio_reap(aio, done, DEPTH, DEPTH, UINT64_MAX) == DEPTH);
    }
}

/* From the end: what was written last is what a ghost would still be writing. */
static uint64_t sum_of_rounds(struct hst_aio *aio, struct hst_aio_file *file, char *buffer)
{
    uint64_t sum = 0;
    for (uint64_t at = hst_aio_file_size(file); at > 0; at -= MIB) {
        CHECK(run_op(aio, file, HST_AIO_READ, at - MIB, buffer, 4096) == 0);
        sum = sum * 31 + *(uint64_t *)(void *)buffer;
    }
    return sum;
}

static void after_a_kill(void)
{
    char path[64], byte;
    int started[2], status;
    struct hst_aio_file *file = NULL;
    void *buffer;
    snprintf(path, sizeof path, "%s/ghost", directory);
    CHECK(pipe(started) == 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        write_for_ever(path, started[1]);
    CHECK(read(started[0], &byte, 1) == 1);
    struct hst_aio *aio = open_backend(HST_AIO_AUTO, NULL);
    CHECK(hst_aio_file_open(aio, path, 0, 4096, &file) == -EBUSY); /* while it lives */
    CHECK(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file) == -EBUSY);
    hst_aio_close(&aio);
    const struct hst_aio_config patient = {.size = sizeof patient}; /* 30 s */
    CHECK(hst_aio_open(&patient, directory, &aio, NULL) == 0);
    CHECK(hst_aio_buffer_alloc(4096, &buffer) == 0);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file) == 0);
    const uint64_t before = sum_of_rounds(aio, file, buffer);
    /* (A fast drive is done with ghosts before they can be seen: the lock is checked above.)
       Shrinking a file waits in the kernel until no direct I/O is under way on it: a ghost would
       have written by then. (The last block is in no sum.) */
    CHECK(truncate(path, (off_t)hst_aio_file_size(file) - 4096) == 0);
    CHECK(sum_of_rounds(aio, file, buffer) == before);
    CHECK(waitpid(child, &status, 0) == child); /* not before: the lock alone has to do */
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    CHECK(unlink(path) == 0);
}

static void with_the_kernels_word_on_alignment(void)
{
    struct hst_aio_info info;
    struct hst_aio *aio = open_backend(HST_AIO_AUTO, &info);
    if (info.direct)
        CHECK(info.direct_offset_align_bytes <= HST_AIO_ALIGN_BYTES &&
              info.direct_memory_align_bytes <= HST_AIO_ALIGN_BYTES);
    hst_aio_close(&aio);
}

static void run_row(void (*body)(void))
{
    const int status = in_child(body);
    if (status == SKIP)
        skip();
    assert_int_equal(status, 0);
}

#define ROW(name, body)                                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_row(body);                                                                             \
    }
ROW(u3_a_kernel_without_io_uring_means_threads, without_the_system_call)
ROW(u5_buffers_over_the_memlock_limit_are_used_as_they_are, with_little_memlock)
ROW(u6_large_buffers_are_registered_in_parts_and_odd_ones_used_as_they_are, with_odd_buffers)
ROW(u8_lost_completions_break_the_context, losing_completions)
ROW(u8_a_busy_kernel_does_not_hang_a_wait, with_a_busy_kernel)
ROW(u14_the_alignment_that_statx_tells_is_kept, with_the_kernels_word_on_alignment)
ROW(u17_registered_buffers_go_along_to_another_thread, on_another_thread)
ROW(u18_a_forked_child_cannot_touch_the_ring, in_a_forked_child)
ROW(u20_a_file_opened_after_a_kill_sees_no_ghost_writes, after_a_kill)

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(u3_a_kernel_without_io_uring_means_threads),
        cmocka_unit_test(u5_buffers_over_the_memlock_limit_are_used_as_they_are),
        cmocka_unit_test(u6_large_buffers_are_registered_in_parts_and_odd_ones_used_as_they_are),
        cmocka_unit_test(u8_lost_completions_break_the_context),
        cmocka_unit_test(u8_a_busy_kernel_does_not_hang_a_wait),
        cmocka_unit_test(u14_the_alignment_that_statx_tells_is_kept),
        cmocka_unit_test(u17_registered_buffers_go_along_to_another_thread),
        cmocka_unit_test(u18_a_forked_child_cannot_touch_the_ring),
        cmocka_unit_test(u20_a_file_opened_after_a_kill_sees_no_ghost_writes),
    };
    if (!mkdtemp(directory))
        return 2;
    int failed = SKIP;
    if (kernel_registers())
        failed = cmocka_run_group_tests(cases, NULL, NULL);
    else
        printf("skipped: io_uring, or registering with it, is refused here\n");
    if (rmdir(directory) < 0)
        failed = 1;
    return failed;
}
