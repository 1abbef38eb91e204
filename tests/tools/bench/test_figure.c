/* SPDX-License-Identifier: Apache-2.0 */
/* How figures of a device are made: rates of links, calls that are timed, what is told. */
#include "bench/kernels.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct hst_dev *dev;
static struct hst_stream *stream;

static int open_device(void **state)
{
    const struct hst_dev_config config = {.size = sizeof config, .memory_bytes = 1 << 20};
    (void)state;
    return hst_dev_host_open(&config, &dev) || hst_stream_create(dev, "test", &stream);
}

static int close_device(void **state)
{
    (void)state;
    hst_stream_destroy(&stream);
    hst_dev_close(&dev);
    return 0;
}

static void a_link_carries_what_its_standard_says(void **state)
{
    (void)state;
    assert_true(fabs(bench_pcie_rate(3, 16) - 15.75e9) < 0.01e9);
    assert_true(fabs(bench_pcie_rate(5, 16) - 63.02e9) < 0.01e9);
    assert_true(bench_pcie_rate(1, 1) == 0.25e9);
    assert_true(bench_pcie_rate(0, 16) == 0);
    assert_true(bench_pcie_rate(4, 0) == 0);
    assert_true(bench_pcie_rate(99, 16) == 0);
}

struct counted {
    unsigned calls, fail_at;
};

static int count(void *arg)
{
    struct counted *c = arg;
    return ++c->calls == c->fail_at ? -EINVAL : 0;
}

static void a_smoke_run_calls_once(void **state)
{
    struct counted c = {0, 0};
    struct bench_timing timing = {0};
    (void)state;
    assert_int_equal(bench_time(stream, true, count, &c, &timing), 0);
    assert_int_equal(c.calls, 1);
    assert_true(timing.least_s > 0 && timing.least_s == timing.most_s);
}

static void rounds_are_many_calls_and_ordered(void **state)
{
    struct counted c = {0, 0};
    struct bench_timing timing = {0};
    (void)state;
    assert_int_equal(bench_time(stream, false, count, &c, &timing), 0);
    assert_true(c.calls > 14);
    assert_true(timing.least_s <= timing.median_s && timing.median_s <= timing.most_s);
}

static void a_failure_leaves_the_timing_alone(void **state)
{
    (void)state;
    for (unsigned at = 1; at < 5; at++) {
        struct counted c = {0, at};
        struct bench_timing timing = {-1, -1, -1};
        assert_int_equal(bench_time(stream, false, count, &c, &timing), -EINVAL);
        assert_true(timing.median_s < 0);
    }
}

struct told {
    unsigned figures, notes, groups;
};

static void tell(void *context, const struct bench_figure *figure)
{
    static const char *const names[] = {"copies", "memory", "matmul", "attention"};
    struct told *told = context;
    told->figures++;
    told->notes += figure->note != NULL;
    assert_true(figure->note ? figure->value == 0 : figure->value > 0);
    for (unsigned i = 0; i < 4; i++)
        told->groups |= strcmp(figure->group, names[i]) == 0 ? 1u << i : 0;
}

static void every_group_is_told_and_leaves_no_memory(void **state)
{
    struct told told = {0, 0, 0};
    struct hst_error error = {0};
    struct hst_dev_usage usage;
    const struct bench_teller teller = {tell, &told, true};
    (void)state;
    assert_int_equal(bench_kernels(dev, BENCH_ALL, &teller, &error), 0);
    assert_int_equal(told.groups, BENCH_ALL);
    assert_int_equal(told.notes, 2); /* the host has no optimizer of devices */
    assert_true(told.figures > 20);
    hst_dev_usage(dev, &usage);
    assert_int_equal(usage.memory_bytes, 0);
    assert_int_equal(usage.host_bytes, 0);
}

static void a_group_is_told_alone(void **state)
{
    struct told told = {0, 0, 0};
    struct hst_error error = {0};
    const struct bench_teller teller = {tell, &told, true};
    (void)state;
    assert_int_equal(bench_kernels(dev, BENCH_COPIES, &teller, &error), 0);
    assert_int_equal(told.figures, 3);
    assert_int_equal(told.groups, BENCH_COPIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_carries_what_its_standard_says),
        cmocka_unit_test(a_smoke_run_calls_once),
        cmocka_unit_test(rounds_are_many_calls_and_ordered),
        cmocka_unit_test(a_failure_leaves_the_timing_alone),
        cmocka_unit_test(every_group_is_told_and_leaves_no_memory),
        cmocka_unit_test(a_group_is_told_alone),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
