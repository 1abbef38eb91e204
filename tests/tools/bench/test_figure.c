/* SPDX-License-Identifier: Apache-2.0 */
/* How figures of a device are made: rates of links, calls that are timed, what is told. */
#include "bench/budget.h"
#include "bench/burn.h"
#include "bench/layer/kernels.h"
#include "bench/layer/locking.h"
#include "host_device.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <hoistway/plugin.h>

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
    double value[8]; /* of the launches, and of the large product before them */
    unsigned values;
};

static void tell(void *context, const struct bench_figure *figure)
{
    static const char *const names[] = {"copies",    "memory",   "matmul",
                                        "attention", "launches", "waits"};
    struct told *told = context;
    told->figures++;
    told->notes += figure->note != NULL;
    assert_true(figure->note ? figure->value == 0 : figure->value > 0);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        told->groups |= strcmp(figure->group, names[i]) == 0 ? 1u << i : 0;
    if (strncmp(figure->name, "l", 1) == 0 && told->values < 8) /* large, layer */
        told->value[told->values++] = figure->value;
}

/* Attention's workspace follows a device's budget: one that nobody trains with misleads. */
static void a_budget_is_taken_and_the_host_has_none(void **state)
{
    (void)state;
    void *memory;
    assert_int_equal(bench_budget_bytes(dev), 0);
    assert_int_equal(bench_budget_take(dev, 1 << 20), 0);
    assert_int_equal(hst_dev_mem_alloc(dev, 2 << 20, &memory), -ENOSPC);
    assert_int_equal(bench_budget_take(dev, 0), 0);
    assert_int_equal(hst_dev_mem_alloc(dev, 2 << 20, &memory), 0);
    hst_dev_mem_free(dev, memory, 2 << 20);
}

static void every_group_is_told_and_leaves_no_memory(void **state)
{
    struct told told = {0};
    struct hst_error error = {0};
    struct hst_dev_usage usage;
    const struct bench_teller teller = {tell, &told, true};
    (void)state;
    assert_int_equal(bench_kernels(dev, BENCH_ALL, &teller, &error), 0);
    assert_int_equal(told.groups, BENCH_ALL);
    assert_int_equal(told.notes, 8); /* the host locks no pages, and has no optimizer of devices */
    assert_true(told.figures > 20);
    hst_dev_usage(dev, &usage);
    assert_int_equal(usage.memory_bytes, 0);
    assert_int_equal(usage.host_bytes, 0);
}

static void a_group_is_told_alone(void **state)
{
    struct told told = {0};
    struct hst_error error = {0};
    const struct bench_teller teller = {tell, &told, true};
    (void)state;
    assert_int_equal(bench_kernels(dev, BENCH_COPIES, &teller, &error), 0);
    assert_int_equal(told.figures, 9);
    assert_int_equal(told.notes, 6); /* page-locking: three kinds, to lock and to unlock */
    assert_int_equal(told.groups, BENCH_COPIES);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void burning_lasts_as_long_as_was_asked_for(void **state)
{
    struct counted c = {0, 0};
    uint64_t calls = 0;
    (void)state;
    double start = seconds_now();
    assert_int_equal(bench_burn(stream, 0.05, count, &c, &calls), 0);
    assert_true(seconds_now() - start >= 0.05);
    assert_true(calls > 1 && calls == c.calls);
    c = (struct counted){0, 3};
    assert_int_equal(bench_burn(stream, 0.05, count, &c, &calls), -EINVAL);
    assert_int_equal(c.calls, 3);
}

/* In front of the host, with memory of its own: what a GPU is to who asks for flags. */
struct flagged {
    struct hst_dev_ops ops;
    struct {
        const struct hst_dev_ops *ops;
    } dev;
};

static void a_gpu_is_warmed_but_the_host_and_a_smoke_run_are_not(void **state)
{
    struct flagged gpu = {.ops = {.size = sizeof gpu.ops, .name = "gpu"}};
    struct hst_error error = {0};
    double burned_s = -1;
    (void)state;
    gpu.dev.ops = &gpu.ops;
    assert_true(bench_burns((const struct hst_dev *)&gpu.dev, false));
    assert_false(bench_burns((const struct hst_dev *)&gpu.dev, true));
    assert_false(bench_burns(dev, false));
    assert_int_equal(bench_burn_in(dev, false, &burned_s, &error), 0);
    assert_true(burned_s == 0);
    assert_true(BENCH_BURN_S >= 0.5);
}

/* On a device that says that its memory is its own. */
static void warming_takes_its_time_and_leaves_no_memory(void **state)
{
    const struct hst_dev_config config = {.size = sizeof config, .memory_bytes = 1 << 20};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_error error = {0};
    struct hst_dev_usage usage;
    struct hst_dev *far = NULL;
    double burned_s = 0;
    (void)state;
    assert_int_equal(hst_dev_open("far", &config, &far, &failure), 0);
    assert_int_equal(bench_burn_in(far, true, &burned_s, &error), 0);
    assert_true(burned_s == 0);
    assert_int_equal(bench_burn_in(far, false, &burned_s, &error), 0);
    assert_true(burned_s >= BENCH_BURN_S);
    hst_dev_usage(far, &usage);
    assert_int_equal(usage.memory_bytes, 0);
    assert_int_equal(usage.host_bytes, 0);
    hst_dev_close(&far);
}

static void as_much_is_locked_as_is_there(void **state)
{
    const uint64_t mib = (uint64_t)1 << 20, gib = mib << 10;
    (void)state;
    assert_int_equal(bench_locking_bytes(gib, 64 * gib), gib);
    assert_int_equal(bench_locking_bytes(gib, 2 * gib), gib / 2);
    assert_int_equal(bench_locking_bytes(gib, 4 * gib - 1), gib - 2 * mib);
    assert_int_equal(bench_locking_bytes(gib, 0), 2 * mib);
}

/* What a layer's forward and backward consist of, as they are enqueued: -Wl,--wrap. */
static struct {
    unsigned attentions, attentions_backward, swiglus;
    size_t width; /* of the last swiglu, of 16 tokens */
} launched;

int __real_hst_op_attention(struct hst_stream *s, const struct hst_attention *args);
int __wrap_hst_op_attention(struct hst_stream *s, const struct hst_attention *args);
int __wrap_hst_op_attention(struct hst_stream *s, const struct hst_attention *args)
{
    launched.attentions++;
    return __real_hst_op_attention(s, args);
}

int __real_hst_op_attention_backward(struct hst_stream *s,
                                     const struct hst_attention_backward *args);
int __wrap_hst_op_attention_backward(struct hst_stream *s,
                                     const struct hst_attention_backward *args);
int __wrap_hst_op_attention_backward(struct hst_stream *s,
                                     const struct hst_attention_backward *args)
{
    launched.attentions_backward++;
    return __real_hst_op_attention_backward(s, args);
}

int __real_hst_op_swiglu(struct hst_stream *s, const struct hst_swiglu *args);
int __wrap_hst_op_swiglu(struct hst_stream *s, const struct hst_swiglu *args);
int __wrap_hst_op_swiglu(struct hst_stream *s, const struct hst_swiglu *args)
{
    launched.swiglus++;
    launched.width = args->count / 16;
    return __real_hst_op_swiglu(s, args);
}

static void launches_are_a_layers_and_beside_them_what_computing_takes(void **state)
{
    struct told told = {0};
    struct hst_error error = {0};
    const struct bench_teller teller = {tell, &told, true};
    /* of a smoke run: 64x96, 2 heads and 1 of 64, sequences of 32; forward, per token */
    const double weights = 2 * 64 * 128 + 2 * 64 * 64 + 3 * 64 * 96;
    const double flops = 2 * weights + 2 * (32 + 1) * 128;
    (void)state;
    memset(&launched, 0, sizeof launched);
    assert_int_equal(bench_kernels(dev, BENCH_LAUNCHES, &teller, &error), 0);
    assert_int_equal(launched.attentions, 2); /* the backward computes the forward again */
    assert_int_equal(launched.attentions_backward, 1);
    assert_int_equal(launched.swiglus, 2);
    assert_int_equal(launched.width, 96); /* as the full layer: as many blocks of rows */
    assert_int_equal(told.values, 5);
    const double *v = told.value; /* FLOP/s; s and tokens of the forward, of the backward */
    assert_true(fabs(v[2] / (v[1] * v[0] / flops) - 1) < 1e-12);
    assert_true(fabs(v[4] / (v[3] * v[0] / (2 * flops)) - 1) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_carries_what_its_standard_says),
        cmocka_unit_test(a_smoke_run_calls_once),
        cmocka_unit_test(rounds_are_many_calls_and_ordered),
        cmocka_unit_test(a_failure_leaves_the_timing_alone),
        cmocka_unit_test(a_budget_is_taken_and_the_host_has_none),
        cmocka_unit_test(every_group_is_told_and_leaves_no_memory),
        cmocka_unit_test(a_group_is_told_alone),
        cmocka_unit_test(burning_lasts_as_long_as_was_asked_for),
        cmocka_unit_test(a_gpu_is_warmed_but_the_host_and_a_smoke_run_are_not),
        cmocka_unit_test(warming_takes_its_time_and_leaves_no_memory),
        cmocka_unit_test(as_much_is_locked_as_is_there),
        cmocka_unit_test(launches_are_a_layers_and_beside_them_what_computing_takes),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
