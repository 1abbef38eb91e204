/* SPDX-License-Identifier: Apache-2.0 */
/* A device's memory and budgets. */
#include "suite.h"
#include <errno.h>
#include <hoistway/measure.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

typedef int allocate_fn(struct hst_dev *dev, size_t size_bytes, void **memory);
typedef void free_fn(struct hst_dev *dev, void *memory, size_t size_bytes);

static const struct {
    allocate_fn *allocate;
    free_fn *release;
} kinds[] = {{hst_dev_mem_alloc, hst_dev_mem_free}, {hst_dev_host_alloc, hst_dev_host_free}};

static uint64_t held(struct hst_dev *dev, int kind)
{
    struct hst_dev_usage usage;
    hst_dev_usage(dev, &usage);
    return kind ? usage.host_bytes : usage.memory_bytes;
}

static uint64_t peak(struct hst_dev *dev, int kind)
{
    struct hst_dev_usage usage;
    hst_dev_usage(dev, &usage);
    return kind ? usage.host_peak_bytes : usage.memory_peak_bytes;
}

static void a_budget_is_given_to_the_last_byte_and_not_beyond(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct hst_dev *dev;
        void *a = NULL, *b = NULL, *c = NULL;
        assert_int_equal(suite_open(kind ? 0 : 5 * MIB, kind ? 5 * MIB : 0, NULL, &dev), 0);
        assert_int_equal(kinds[kind].allocate(dev, 5 * MIB + 1, &a), -ENOSPC);
        assert_int_equal(kinds[!kind].allocate(dev, 1, &a), -ENOSPC); /* the other budget is 0 */
        assert_null(a);
        assert_int_equal(kinds[kind].allocate(dev, 3 * MIB, &a), 0);
        assert_int_equal(kinds[kind].allocate(dev, 2 * MIB + 1, &b), -ENOSPC);
        assert_int_equal(kinds[kind].allocate(dev, 2 * MIB - 1, &b), 0);
        assert_int_equal(kinds[kind].allocate(dev, 2, &c), -ENOSPC);
        assert_int_equal(kinds[kind].allocate(dev, 1, &c), 0);
        assert_int_equal(held(dev, kind), 5 * MIB);
        kinds[kind].release(dev, b, 2 * MIB - 1);
        assert_int_equal(held(dev, kind), 3 * MIB + 1);
        assert_int_equal(peak(dev, kind), 5 * MIB);
        assert_int_equal(held(dev, !kind), 0);
        kinds[kind].release(dev, a, 3 * MIB);
        kinds[kind].release(dev, c, 1);
        kinds[kind].release(dev, NULL, 7);
        assert_int_equal(held(dev, kind), 0);
        assert_int_equal(peak(dev, kind), 5 * MIB);
        suite_close(&dev);
        assert_null(dev);
    }
}

static void memory_is_zero_and_aligned_to_2_mib(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB};
    struct hst_dev *dev;
    struct hst_stream *stream;
    void *check;
    assert_int_equal(suite_open(16 * MIB, 32 * MIB, NULL, &dev), 0);
    assert_int_equal(hst_stream_create(dev, "check", &stream), 0);
    assert_int_equal(hst_dev_host_alloc(dev, 8 * MIB, &check), 0);
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *memory;
            assert_int_equal(kinds[kind].allocate(dev, sizes[i], &memory), 0);
            assert_int_equal((uintptr_t)memory % (2 * MIB), 0);
            memset(check, 0xff, sizes[i]);
            assert_int_equal(hst_stream_copy(stream, check, memory, sizes[i]), 0);
            assert_int_equal(hst_stream_sync(stream), 0);
            for (size_t b = 0; b < sizes[i]; b++)
                if (((char *)check)[b])
                    fail_msg("byte %zu of %zu is not zero", b, sizes[i]);
            kinds[kind].release(dev, memory, sizes[i]);
        }
    hst_dev_host_free(dev, check, 8 * MIB);
    hst_stream_destroy(&stream);
    suite_close(&dev);
}

static void senseless_requests_are_refused(void **state)
{
    (void)state;
    struct hst_dev *dev;
    void *memory = NULL;
    assert_int_equal(suite_open(UINT64_MAX, UINT64_MAX, NULL, &dev), 0);
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(kinds[kind].allocate(dev, 0, &memory), -EINVAL);
        assert_int_equal(kinds[kind].allocate(dev, SIZE_MAX, &memory), -EINVAL);
        assert_int_equal(kinds[kind].allocate(dev, 1, NULL), -EINVAL);
        assert_int_equal(kinds[kind].allocate(NULL, 1, &memory), -EINVAL);
        assert_int_equal(kinds[kind].allocate(dev, PTRDIFF_MAX - 8 * MIB, &memory), -ENOMEM);
        assert_int_equal(held(dev, kind), 0); /* what failed is not booked */
    }
    assert_null(memory);
    suite_close(&dev);
    hst_dev_close(&dev);
    hst_dev_close(NULL);
}

/* Of the caller's own memory: whoever cannot lock says so, and what is locked is still its own. */
static void pages_are_locked_and_let_go_outside_the_budget(void **state)
{
    (void)state;
    struct hst_dev *dev;
    assert_int_equal(suite_open(0, 0, NULL, &dev), 0);
    bool locks = !(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY);
    char *memory = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 0x5a, 2 * MIB);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(hst_dev_host_lock(dev, memory, MIB), locks ? 0 : -ENOTSUP);
        assert_int_equal(held(dev, 1), 0);
        assert_int_equal(hst_dev_host_unlock(dev, memory, MIB), locks ? 0 : -ENOTSUP);
    }
    assert_int_equal(memory[0], 0x5a);
    assert_int_equal(hst_dev_host_lock(dev, memory + 1, MIB), -EINVAL);
    assert_int_equal(hst_dev_host_lock(dev, memory, MIB + 1), -EINVAL);
    assert_int_equal(hst_dev_host_lock(dev, memory, 0), -EINVAL);
    assert_int_equal(hst_dev_host_lock(dev, NULL, MIB), -EINVAL);
    assert_int_equal(hst_dev_host_lock(NULL, memory, MIB), -EINVAL);
    assert_int_equal(hst_dev_host_unlock(dev, memory + 1, MIB), -EINVAL);
    munmap(memory, 2 * MIB);
    suite_close(&dev);
}

static void a_device_has_a_name_and_dtypes_a_size(void **state)
{
    (void)state;
    struct hst_dev *dev;
    assert_int_equal(suite_open(0, 0, NULL, &dev), 0);
    assert_true(strlen(hst_dev_name(dev)) > 0);
    assert_int_equal(hst_dev_flags(dev) & ~(unsigned)HST_DEV_HOST_MEMORY, 0);
    suite_close(&dev);
    assert_int_equal(hst_dtype_bytes(HST_F32), 4);
    assert_int_equal(hst_dtype_bytes(HST_BF16), 2);
    assert_int_equal(hst_dtype_bytes(HST_F16), 2);
    assert_int_equal(hst_dtype_bytes(0), 0);
    assert_int_equal(hst_dtype_bytes(4), 0);
}

static void the_usual_budget_leaves_libraries_what_they_load_later(void **state)
{
    (void)state;
    const uint64_t mib = MIB, gib = 1024 * mib;
    assert_int_equal(hst_dev_left_bytes(80 * gib), 512 * mib);
    assert_int_equal(hst_dev_left_bytes(gib), 512 * mib);
    assert_int_equal(hst_dev_left_bytes(600 * mib), 300 * mib);
    assert_int_equal(hst_dev_usual_bytes(80 * gib), 72 * gib);
    assert_int_equal(hst_dev_usual_bytes(5 * gib), 4 * gib + 512 * mib); /* the tenth is as much */
    assert_int_equal(hst_dev_usual_bytes(4 * gib), 3 * gib + 512 * mib);
    assert_int_equal(hst_dev_usual_bytes(256 * mib), 128 * mib);
    assert_int_equal(hst_dev_usual_bytes(0), 0);
}

static void each_failure_has_a_fix_in_one_line(void **state)
{
    (void)state;
    const char *other = hst_dev_fix(HST_DEV_EXECUTION);
    for (int why = HST_DEV_NO_PLUGIN; why <= HST_DEV_CARD; why++) {
        const char *fix = hst_dev_fix((enum hst_dev_why)why);
        assert_true(strlen(fix) > 8);
        assert_null(strchr(fix, '\n'));
        assert_int_equal(strcmp(fix, other) == 0, why == HST_DEV_EXECUTION);
    }
}

static void no_run(void *context, size_t count, void (*body)(void *, size_t, unsigned), void *arg)
{
    (void)context, (void)count, (void)body, (void)arg;
}

static void a_senseless_configuration_is_refused(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    assert_int_equal(suite_open(0, 0, &(struct hst_parallel){no_run, NULL, 0}, &dev), -EINVAL);
    assert_int_equal(suite_open(0, 0, &(struct hst_parallel){NULL, NULL, 3}, &dev), -EINVAL);
    assert_int_equal(hst_dev_host_open(NULL, &dev), -EINVAL);
    assert_int_equal(hst_dev_host_open(&(struct hst_dev_config){.size = 8}, &dev), -EINVAL);
    assert_int_equal(
        hst_dev_host_open(
            &(struct hst_dev_config){.size = sizeof(struct hst_dev_config), .index = 1}, &dev),
        -EINVAL);
    assert_int_equal(
        hst_dev_host_open(&(struct hst_dev_config){.size = sizeof(struct hst_dev_config)}, NULL),
        -EINVAL);
    assert_null(dev);
}

static struct hst_attention attention_of(size_t batch, size_t seq, size_t heads, size_t groups,
                                         enum hst_dtype dtype)
{
    return (struct hst_attention){.batch = batch,
                                  .seq = seq,
                                  .heads = heads,
                                  .kv_heads = groups,
                                  .head_dim = 128,
                                  .dtype = dtype};
}

/* By its formulas it needs what this one does; more where this one has no such library. */
static void a_planned_gpu_needs_no_less_than_one_that_is_here(void **state)
{
    (void)state;
    struct hst_dev *dev, *planned;
    struct hst_dev_info info;
    const uint64_t budget = (uint64_t)64 << 20;
    assert_int_equal(suite_open(budget, budget, NULL, &dev), 0);
    hst_dev_info(dev, &info);
    const bool is_gpu = !(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY);
    const struct hst_dev_planned gpu = {.memory_bytes = budget,
                                        .compute_major = info.compute_major};
    assert_int_equal(hst_dev_planned_open(&gpu, &planned), 0);
    const size_t sizes[] = {1, 7, 128, 1000, 4096, 100003};
    for (size_t i = 0; is_gpu && i < 36; i++) {
        const size_t tokens = sizes[i % 6], width = sizes[i / 6];
        assert_int_equal(hst_rmsnorm_backward_work_bytes(planned, tokens, width),
                         hst_rmsnorm_backward_work_bytes(dev, tokens, width));
        assert_int_equal(hst_bias_backward_work_bytes(planned, tokens, width),
                         hst_bias_backward_work_bytes(dev, tokens, width));
        assert_int_equal(hst_embedding_backward_work_bytes(planned, tokens, width),
                         hst_embedding_backward_work_bytes(dev, tokens, width));
    }
    for (size_t i = 0; is_gpu && i < 12; i++) {
        const struct hst_attention a =
            attention_of(1 + i % 3, 100 << i % 4, 8, i % 2 ? 2 : 8, i % 3 ? HST_BF16 : HST_F32);
        assert_true(hst_attention_work_bytes(planned, &a) >= hst_attention_work_bytes(dev, &a));
    }
    const struct hst_matmul product = {.m = 64, .n = 64, .k = 64};
    if (is_gpu)
        assert_true(hst_matmul_work_bytes(planned, &product) >=
                    hst_matmul_work_bytes(dev, &product));
    hst_dev_close(&planned);
    suite_close(&dev);
}

/* As one that is here, where its products are its own. */
static void a_planned_gpu_has_the_products_that_are_asked_for(void **state)
{
    (void)state;
    const struct hst_dev_planned gpu = {.memory_bytes = (uint64_t)80 << 30, .compute_major = 9};
    const struct hst_matmul product = {.m = 64, .n = 64, .k = 64};
    const char *usual = getenv("HOISTWAY_MATMUL");
    char *before = usual ? strdup(usual) : NULL;
    struct hst_dev *dev;
    assert_int_equal(hst_dev_planned_open(&gpu, &dev), 0);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "own", 1), 0);
    assert_int_equal(hst_matmul_work_bytes(dev, &product), 0);
    assert_int_equal(unsetenv("HOISTWAY_MATMUL"), 0);
    assert_true(hst_matmul_work_bytes(dev, &product) >= (size_t)32 << 20);
    if (before)
        assert_int_equal(setenv("HOISTWAY_MATMUL", before, 1), 0);
    free(before);
    hst_dev_close(&dev);
}

static void a_planned_gpu_knows_sizes_and_computes_nothing(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    struct hst_stream *stream;
    struct hst_dev_info info;
    void *memory = NULL;
    const struct hst_dev_planned gpu = {.memory_bytes = (uint64_t)80 << 30};
    assert_int_equal(hst_dev_planned_open(NULL, &dev), -EINVAL);
    assert_int_equal(hst_dev_planned_open(&(struct hst_dev_planned){0}, &dev), -EINVAL);
    assert_int_equal(hst_dev_planned_open(&gpu, &dev), 0);
    assert_string_equal(hst_dev_name(dev), "cuda");
    assert_false(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY);
    hst_dev_info(dev, &info);
    assert_true(info.memory_total_bytes == gpu.memory_bytes);
    assert_int_equal(hst_dev_mem_alloc(dev, 4096, &memory), -ENOTSUP);
    assert_int_equal(hst_dev_host_alloc(dev, 4096, &memory), -ENOTSUP);
    assert_int_equal(hst_stream_create(dev, "compute", &stream), 0);
    assert_int_equal(hst_stream_sync(stream), 0);
    hst_stream_destroy(&stream);
    /* a capability that is not known is none that needs less */
    const struct hst_matmul product = {.m = 64, .n = 64, .k = 64};
    assert_true(hst_matmul_work_bytes(dev, &product) > (size_t)32 << 20);
    hst_dev_close(&dev);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_is_given_to_the_last_byte_and_not_beyond),
        cmocka_unit_test(memory_is_zero_and_aligned_to_2_mib),
        cmocka_unit_test(senseless_requests_are_refused),
        cmocka_unit_test(pages_are_locked_and_let_go_outside_the_budget),
        cmocka_unit_test(a_device_has_a_name_and_dtypes_a_size),
        cmocka_unit_test(the_usual_budget_leaves_libraries_what_they_load_later),
        cmocka_unit_test(each_failure_has_a_fix_in_one_line),
        cmocka_unit_test(a_senseless_configuration_is_refused),
        cmocka_unit_test(a_planned_gpu_needs_no_less_than_one_that_is_here),
        cmocka_unit_test(a_planned_gpu_has_the_products_that_are_asked_for),
        cmocka_unit_test(a_planned_gpu_knows_sizes_and_computes_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
