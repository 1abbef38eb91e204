/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers and their wishes, staggered arrays; that the data path allocates nothing, and that
 * opening survives any allocation that fails. */
#include "hoistway/aio.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

enum { KIB = 1 << 10, MIB = 1 << 20 };

static char directory[] = "aio-memory-XXXXXX";

/* Every allocation of this program passes here; a sanitizer keeps its own functions. */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static const bool counted = true;
static unsigned long allocations, releases, failing; /* failing: which one does; 0: none */
void *__libc_malloc(size_t size_bytes);
void *__libc_calloc(size_t count, size_t size_bytes);
void *__libc_realloc(void *memory, size_t size_bytes);
void __libc_free(void *memory);

static bool may_allocate(void)
{
    if (__atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED) != failing)
        return true;
    errno = ENOMEM; /* as the C library has it, which insists on it where it starts threads */
    return false;
}

void *malloc(size_t size_bytes)
{
    return may_allocate() ? __libc_malloc(size_bytes) : NULL;
}

void *calloc(size_t count, size_t size_bytes)
{
    return may_allocate() ? __libc_calloc(count, size_bytes) : NULL;
}

void *realloc(void *memory, size_t size_bytes)
{
    return may_allocate() ? __libc_realloc(memory, size_bytes) : NULL;
}

void free(void *memory)
{
    if (memory)
        __atomic_add_fetch(&releases, 1, __ATOMIC_RELAXED);
    __libc_free(memory);
}
#else
static const bool counted = false;
static unsigned long allocations, releases, failing;
#endif

static unsigned long count_allocations(void)
{
    return __atomic_load_n(&allocations, __ATOMIC_RELAXED);
}

static void run_traffic(struct hst_aio *aio, struct hst_aio_file *file, char *buffer)
{
    struct hst_aio_completion done[32];
    uint64_t hashes[32];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 32; i++) {
            const struct hst_aio_op op = {.kind = round == 1 ? HST_AIO_READ : HST_AIO_WRITE,
                                          .file = file,
                                          .offset = i * 256 * KIB,
                                          .buffer = buffer + i * 256 * KIB,
                                          .bytes = 256 * KIB,
                                          .hashes = &hashes[i]};
            assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
        }
        bool ready;
        assert_int_equal(hst_aio_wait_any(&aio, 1, &ready, UINT64_MAX), 1);
        assert_int_equal(hst_aio_reap(aio, done, 32, 32, UINT64_MAX), 32);
        for (size_t i = 0; i < 32; i++)
            assert_int_equal(done[i].error, 0);
    }
}

static void nothing_is_allocated_after_the_start(void **state)
{
    static const struct {
        enum hst_aio_backend backend;
        const char *model, *fault;
    } cases[] = {
        {HST_AIO_AUTO, NULL, NULL},
        {HST_AIO_THREADS, NULL, NULL},
        {HST_AIO_NULL, NULL, NULL},
        {HST_AIO_SIM, "sim:read=1G,write=1G,lat=10us", NULL},
        {HST_AIO_SIM, "sim:read=1G,write=1G",
         "every=5 times=all err=EAGAIN; every=7 times=all late=1us"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_aio *aio = NULL;
        struct hst_aio_file *file = NULL;
        struct hst_aio_stream *stream = NULL;
        void *buffer;
        const struct hst_aio_config config = {.size = sizeof config,
                                              .backend = cases[i].backend,
                                              .piece_bytes = 64 * KIB,
                                              .model = cases[i].model,
                                              .fault = cases[i].fault};
        assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
        assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 8 * MIB, &file), 0);
        assert_int_equal(hst_aio_buffer_alloc(8 * MIB, &buffer), 0);
        assert_int_equal(hst_aio_stream_open(aio, NULL, &stream), 0);
        run_traffic(aio, file, buffer); /* the first wait_any may make a descriptor */
        const struct hst_aio_stream_job job = {.from = file, .to = file, .bytes = 8 * MIB};
        const unsigned long before = count_allocations();
        run_traffic(aio, file, buffer);
        assert_int_equal(hst_aio_stream_run(stream, &job, NULL), 0);
        assert_int_equal(count_allocations(), before);
        hst_aio_stream_close(&stream);
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
        hst_aio_buffer_free(buffer, 8 * MIB);
    }
    assert_int_equal(count_allocations() > 0, counted); /* the hook is there */
}

/* What a client opens, and closes again. Returns the first error. */
static int open_and_close(const struct hst_aio_config *config)
{
    struct hst_aio_world *world = NULL;
    struct hst_aio_config c = *config;
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    struct hst_aio_stream *stream = NULL;
    int rc = c.backend == HST_AIO_SIM ? hst_aio_world_create(&world) : 0;
    c.world = world;
    rc = rc ? rc : hst_aio_open(&c, directory, &aio, NULL);
    rc = rc ? rc : hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, MIB, &file);
    rc = rc ? rc : hst_aio_stream_open(aio, NULL, &stream);
    if (rc == 0 && hst_aio_fd(aio) < 0 && hst_aio_fd(aio) != -ENOTSUP)
        rc = hst_aio_fd(aio);
    hst_aio_stream_close(&stream);
    hst_aio_file_close(&file);
    if (aio)
        hst_aio_close(&aio);
    hst_aio_world_destroy(&world);
    return rc;
}

static const struct hst_aio_config openings[] = {
    {.size = sizeof(struct hst_aio_config), .backend = HST_AIO_AUTO},
    {.size = sizeof(struct hst_aio_config), .backend = HST_AIO_THREADS, .fault = "torn"},
    {.size = sizeof(struct hst_aio_config), .backend = HST_AIO_NULL},
    {.size = sizeof(struct hst_aio_config),
     .backend = HST_AIO_SIM,
     .model = "sim:read=1G,write=1G"},
};

static void any_allocation_may_fail_and_nothing_is_lost(void **state)
{
    (void)state;
    if (!counted)
        skip(); /* a sanitizer has the allocator */
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        unsigned long failures = 0;
        bool failed = true;
        assert_int_equal(open_and_close(&openings[i]), 0); /* what the C library keeps, it has */
        for (unsigned long n = 1; failed; n++) {
            const unsigned long before = count_allocations() - releases;
            failing = count_allocations() + n;
            const int rc = open_and_close(&openings[i]);
            failed = count_allocations() >= failing;
            assert_int_equal(count_allocations() - failed - releases, before);
            assert_true(rc == 0 || rc == -ENOMEM || rc == -EAGAIN); /* -EAGAIN: no thread */
            failures += rc != 0;
        }
        failing = 0;
        assert_true(failures >= 4);
    }
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static long count_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return pages;
}

static void closing_gives_everything_back(void **state)
{
    enum { ROUNDS = 10 };
    (void)state;
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        for (int round = 0; round < 2; round++)
            assert_int_equal(open_and_close(&openings[i]), 0);
        const size_t descriptors = count_descriptors();
        const long pages = count_pages();
        for (int round = 0; round < ROUNDS; round++)
            assert_int_equal(open_and_close(&openings[i]), 0);
        assert_int_equal(count_descriptors(), descriptors);
        if (counted) /* a sanitizer maps more as it goes */
            assert_true(count_pages() < pages + ROUNDS);
    }
}

struct pins {
    void *memory;
    size_t size_bytes;
    int pinned, answer;
};

static int pin(void *arg, void *memory, size_t size_bytes)
{
    struct pins *pins = arg;
    pins->memory = memory;
    pins->size_bytes = size_bytes;
    pins->pinned += pins->answer == 0;
    return pins->answer;
}

static void unpin(void *arg, void *memory, size_t size_bytes)
{
    struct pins *pins = arg;
    assert_ptr_equal(pins->memory, memory);
    assert_int_equal(pins->size_bytes, size_bytes);
    pins->pinned--;
}

static void a_buffer_says_which_wishes_were_granted(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    struct hst_aio_buffer buffer = {0};
    struct pins pins = {0};
    struct hst_aio_buffer_config config = {.size = sizeof config,
                                           .hugetlb = true,
                                           .bind = true,
                                           .pin = pin,
                                           .unpin = unpin,
                                           .pin_arg = &pins};
    assert_int_equal(hst_aio_open(NULL, directory, &aio, &info), 0);
    config.aio = aio;
    assert_int_equal(hst_aio_buffer_open(&config, 5 * MIB + 1, &buffer), 0);
    assert_int_equal((uintptr_t)buffer.memory % (2 * MIB), 0);
    assert_true(buffer.hugetlb_error == 0 || buffer.hugetlb_error == -ENOMEM);
    assert_true(buffer.mapped_bytes >= 5 * MIB + 1);
    assert_true(buffer.bind_error <= 0);
    assert_int_equal(buffer.register_error == 0, info.fixed);
    assert_int_equal(pins.pinned, 1);
    assert_ptr_equal(pins.memory, buffer.memory);
    hst_aio_buffer_close(&buffer);
    assert_int_equal(pins.pinned, 0);
    assert_null(buffer.memory);
    hst_aio_buffer_close(&buffer); /* a zeroed one is accepted */

    static const uint32_t absent[] = {1000, 4000, UINT32_MAX};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        config.node = absent[i]; /* no such node: placed anywhere, and said so */
        assert_int_equal(hst_aio_buffer_open(&config, MIB, &buffer), 0);
        assert_true(buffer.bind_error < 0);
        hst_aio_buffer_close(&buffer);
    }
    pins.answer = -ENODEV;
    assert_int_equal(hst_aio_buffer_open(&config, MIB, &buffer), -ENODEV);
    assert_int_equal(hst_aio_buffer_open(NULL, 0, &buffer), -EINVAL);
    assert_int_equal(hst_aio_buffer_open(NULL, SIZE_MAX, &buffer), -ENOMEM);
    assert_null(buffer.memory);
    hst_aio_close(&aio);
}

static void staggered_arrays_start_1088_bytes_apart_modulo_4096(void **state)
{
    const size_t sizes[] = {4096, 5000, 0, 1, 100000};
    size_t offsets[5];
    (void)state;
    /* 0; behind 4096 at 1088 modulo 4096: 5184; behind 10184 at 2176: 10368; … at 3264: 11456;
       behind 11457 at 4352 modulo 4096 = 256: 12544 */
    assert_int_equal(hst_aio_stagger(sizes, 5, offsets), 12544 + 100000);
    assert_int_equal(offsets[0], 0);
    assert_int_equal(offsets[1], 5184);
    assert_int_equal(offsets[2], 10368);
    assert_int_equal(offsets[3], 11456);
    assert_int_equal(offsets[4], 12544);
    assert_int_equal(hst_aio_stagger(sizes, 0, offsets), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(nothing_is_allocated_after_the_start),
        cmocka_unit_test(any_allocation_may_fail_and_nothing_is_lost),
        cmocka_unit_test(closing_gives_everything_back),
        cmocka_unit_test(a_buffer_says_which_wishes_were_granted),
        cmocka_unit_test(staggered_arrays_start_1088_bytes_apart_modulo_4096),
    };
    if (!mkdtemp(directory))
        return 2;
    int failed = cmocka_run_group_tests(cases, NULL, NULL);
    return rmdir(directory) < 0 ? 1 : failed;
}
