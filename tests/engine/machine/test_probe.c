/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes: of this machine, that their figures can be; of simulated drives, that they are right; and
 * that what cannot be measured says why and disturbs nothing else.
 */
#include "assert_figure.h"
#include "cases.h"
#include "machine/workers.h"
#include "probe/probe.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static char folder[] = "hst-probe-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails where anything was left in it */
}

/* ---- this machine ---- */

static const struct hst_gemm gemms[] = {
    {.m = 300, .n = 200, .k = 100, .dtype = HST_F32, .b_transposed = true, .times = 3},
    {.m = 64, .n = 128, .k = 256, .dtype = HST_F32, .a_transposed = true, .accumulate = true},
    {.m = 256, .n = 128, .k = 64, .dtype = HST_BF16},
};

static void this_machine_has_rates_that_can_be(void **state)
{
    (void)state;
    const struct hst_probe_drive drive = {.directory = folder};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .threads = 3,
                                    .drives = &drive,
                                    .drive_count = 1,
                                    .gemms = gemms,
                                    .gemm_count = 3,
                                    .memory_bytes = 48 * MIB,
                                    .drive_bytes = 20 * MIB};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    for (int i = HST_RATE_DRAM; i <= HST_RATE_NORM_BF16; i++)
        assert_measured(&r.figures[i], 1e4, 1e14);
    assert_measured(&r.figures[HST_RATE_COMPUTE], 1e4, 1e16);
    for (int i = 0; i < 3; i++)
        assert_measured(&r.gemms[i], 1e4, 1e16);
    for (int i = HST_RATE_READ; i <= HST_RATE_MIXED_BUSY; i++)
        assert_measured(&r.figures[i], 1e4, 1e13);
    assert_measured(&r.drives[0].read, 1e4, 1e13);
    for (int i = HST_RATE_H2D; i <= HST_RATE_LOCK; i++)
        assert_failed(&r.figures[i], "works in host memory");
    assert_int_equal(r.drive_count, 1);
    assert_int_equal(r.gemm_count, 3);
    assert_true(r.drives[0].written_bytes > 0 && r.drives[0].written_bytes <= 20 * MIB);
    assert_true(r.seconds > 0 && r.taken_ms > 1600000000000);
    assert_false(r.cached);
}

/* The caller's workers: every piece is counted, and done here. */
struct counter {
    atomic_ulong pieces;
};

static void run_counted(void *context, size_t count,
                        void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    struct counter *counter = context;
    for (size_t i = 0; i < count; i++)
        body(arg, i, (unsigned)(i % 2));
    atomic_fetch_add(&counter->pieces, count);
}

static void the_workers_that_are_given_do_the_work(void **state)
{
    (void)state;
    struct counter counter = {0};
    const struct hst_parallel parallel = {.run = run_counted, .context = &counter, .width = 2};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_UPDATE,
                                    .parallel = &parallel,
                                    .memory_bytes = 32 * MIB};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_measured(&r.figures[HST_RATE_UPDATE_BF16], 1e4, 1e14);
    assert_non_null(strstr(r.figures[HST_RATE_UPDATE_BF16].how, "2 workers"));
    assert_non_null(strstr(r.figures[HST_RATE_UPDATE_BF16].how, "5 arrays, 32 MiB"));
    for (int i = 0; i < HST_AHEAD_COUNT; i++)
        assert_true(r.ahead[i].asking > 0 && r.ahead[i].silent > 0);
    assert_true(atomic_load(&counter.pieces) > 100);
}

static void little_memory_is_kept_to_and_said(void **state)
{
    (void)state;
    const struct hst_probe_drive drive = {.directory = folder};
    const struct hst_gemm large = {.m = 4096, .n = 4096, .k = 4096, .dtype = HST_F32};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .drives = &drive,
                                    .drive_count = 1,
                                    .gemms = &large,
                                    .gemm_count = 1,
                                    .memory_bytes = MIB};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_failed(&r.figures[HST_RATE_DRAM], "16 MiB of memory");
    assert_failed(&r.figures[HST_RATE_NORM_BF16], "16 MiB of memory");
    assert_failed(&r.figures[HST_RATE_READ], "drive 0: 2 MiB of memory per drive");
    assert_failed(&r.drives[0].mixed, "2 MiB of memory per drive");
    assert_measured(&r.figures[HST_RATE_COMPUTE], 1e4, 1e16);
    assert_non_null(strstr(r.gemms[0].how, ", a part of 4096x4096x4096"));
}

static void nothing_to_measure_says_so(void **state)
{
    (void)state;
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DRIVES | HST_PROBE_COMPUTE};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_failed(&r.figures[HST_RATE_WRITE], "no directory was given");
    assert_failed(&r.figures[HST_RATE_COMPUTE], "no product was given");
    assert_string_equal(r.figures[HST_RATE_H2D].how, "");
}

static int never(void *context, const struct hst_room *room, double most, double *amount)
{
    (void)context, (void)room, (void)most, (void)amount;
    fail_msg("a probe that is refused begins nothing");
    return 0;
}

static void what_makes_no_sense_is_refused_and_nothing_is_written(void **state)
{
    (void)state;
    const struct hst_probe_drive nameless = {0};
    const struct hst_gemm no_k = {.m = 8, .n = 8, .dtype = HST_F32},
                          no_type = {.m = 8, .n = 8, .k = 8},
                          huge = {.m = (size_t)1 << 31, .n = 8, .k = 8, .dtype = HST_F32};
    const struct hst_parallel idle = {0};
    static char long_text[HST_OPERATION_TEXT_MAX + 2];
    memset(long_text, 'x', sizeof long_text - 1);
    const struct hst_operation wrong[] = {
        {.what = "no call", .amount = 1},
        {.amount = 1, .enqueue = never},
        {.what = "", .amount = 1, .enqueue = never},
        {.what = "two\nlines", .amount = 1, .enqueue = never},
        {.what = "nothing", .enqueue = never},
        {.what = "no number", .amount = NAN, .enqueue = never},
        {.what = "endless", .amount = INFINITY, .enqueue = never},
        {.what = long_text, .amount = 1, .enqueue = never},
    };
    struct hst_rates r, before;
    const struct hst_probe bad[] = {
        {.size = 8},
        {.size = sizeof bad[0], .parts = 1u << 30},
        {.size = sizeof bad[0], .drive_count = 1},
        {.size = sizeof bad[0], .drive_count = 1, .drives = &nameless},
        {.size = sizeof bad[0], .drive_count = HST_DRIVES_MAX + 1, .drives = &nameless},
        {.size = sizeof bad[0], .drive_bytes = MIB},
        {.size = sizeof bad[0], .gemm_count = 1},
        {.size = sizeof bad[0], .gemm_count = 1, .gemms = &no_k},
        {.size = sizeof bad[0], .gemm_count = 1, .gemms = &no_type},
        {.size = sizeof bad[0], .gemm_count = 1, .gemms = &huge},
        {.size = sizeof bad[0], .gemm_count = HST_GEMMS_MAX + 1, .gemms = gemms},
        {.size = sizeof bad[0], .parallel = &idle},
        {.size = sizeof bad[0], .operation_count = 1},
        {.size = sizeof bad[0], .operation_count = HST_OPERATIONS_MAX + 1, .operations = wrong},
    };
    memset(&r, 0x5a, sizeof r);
    memcpy(&before, &r, sizeof r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hst_probe(&bad[i], &r), -EINVAL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct hst_probe probe = {
            .size = sizeof probe, .operations = &wrong[i], .operation_count = 1};
        assert_int_equal(hst_probe(&probe, &r), -EINVAL);
    }
    assert_int_equal(hst_probe(NULL, &r), -EINVAL);
    assert_int_equal(hst_probe(&bad[0], NULL), -EINVAL);
    assert_memory_equal(&r, &before, sizeof r);
}

/* ---- devices ---- */

static struct hst_dev *open_device(const char *name, uint64_t memory_bytes, uint64_t host_bytes)
{
    struct hst_dev *dev = NULL;
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = memory_bytes, .host_bytes = host_bytes};
    assert_int_equal(hst_dev_open(name, &config, &dev, NULL), 0);
    return dev;
}

/* How many workers an update was told to use that not all had to do. */
static struct {
    unsigned times, most;
} told;

double __real_workers_time(struct workers *workers, unsigned most, size_t count,
                           void (*body)(void *arg, size_t index, unsigned worker), void *arg);
double __wrap_workers_time(struct workers *workers, unsigned most, size_t count,
                           void (*body)(void *arg, size_t index, unsigned worker), void *arg);
double __wrap_workers_time(struct workers *workers, unsigned most, size_t count,
                           void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    told.times++;
    told.most = most;
    return __real_workers_time(workers, most, count, body, arg);
}

#define DEVICE_PARTS (HST_PROBE_COMPUTE | HST_PROBE_COPIES | HST_PROBE_DEVICE | HST_PROBE_LOCKING)

/* "far" has the flags of a GPU: its memory is not the host's. */
static void a_device_with_memory_of_its_own_is_copied_to_and_computes(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("far", 128 * MIB, 32 * MIB);
    struct hst_dev_usage usage;
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = DEVICE_PARTS,
                                    .threads = 3,
                                    .dev = dev,
                                    .gemms = gemms,
                                    .gemm_count = 3};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    for (int i = HST_RATE_COMPUTE; i <= HST_RATE_LOCK; i++)
        assert_measured(&r.figures[i], 1e4, 1e16);
    assert_non_null(strstr(r.figures[HST_RATE_LOCK].how, "32 MiB mapped, zeroed and locked, far"));
    assert_true(told.times >= 4 && told.most == 2); /* to warm up, and a round, each */
    assert_non_null(strstr(r.figures[HST_RATE_SHARED].how, "AdamW in bf16 beside copies of 16"));
    for (int i = HST_RATE_HALF_FP32; i <= HST_RATE_HALF_BF16; i++)
        assert_non_null(strstr(r.figures[i].how, ", 2 of 3 workers, "));
    assert_non_null(strstr(r.figures[HST_RATE_H2D].how, "16 MiB page-locked")); /* two of them */
    hst_dev_usage(dev, &usage);
    assert_int_equal(usage.memory_bytes + usage.host_bytes, 0);
    assert_true(usage.memory_peak_bytes <= 128 * MIB && usage.host_peak_bytes <= 32 * MIB);
    hst_dev_close(&dev);
}

static unsigned multiplied; /* GEMMs that were asked for */

int __real_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args);
int __wrap_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args);
int __wrap_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args)
{
    multiplied++;
    return __real_hst_op_matmul(stream, args);
}

/* Of copies alone there are no GEMMs: those that are made warm the device. */
static void a_device_apart_is_warm_before_its_rates_and_the_host_is_not_warmed(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("far", 128 * MIB, 32 * MIB);
    struct hst_probe probe = {.size = sizeof probe, .parts = HST_PROBE_COPIES, .dev = dev};
    struct hst_rates r;
    multiplied = 0;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_measured(&r.figures[HST_RATE_H2D], 1e4, 1e14);
    assert_true(multiplied > 10 && PROBE_BURN_S >= 0.5 && r.seconds >= PROBE_BURN_S);
    hst_dev_close(&dev);
    dev = open_device("host", 128 * MIB, 32 * MIB);
    probe.dev = dev;
    multiplied = 0;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_int_equal(multiplied, 0);
    hst_dev_close(&dev);
}

static void a_device_without_budget_is_told(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("far", 0, 0);
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = DEVICE_PARTS, .dev = dev, .gemms = gemms, .gemm_count = 1};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_failed(&r.figures[HST_RATE_COMPUTE], "budgets");
    assert_failed(&r.gemms[0], "budgets");
    assert_failed(&r.figures[HST_RATE_D2H], "budgets");
    assert_failed(&r.figures[HST_RATE_DEVICE_BF16], "budget");
    for (int i = HST_RATE_HALF_FP32; i <= HST_RATE_LOCK; i++)
        assert_failed(&r.figures[i], "budgets");
    hst_dev_close(&dev);
}

/* None of the caller's workers can be told to rest; one alone is half of itself, rounded up. */
static void half_of_the_callers_workers_are_no_figure(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("far", 128 * MIB, 32 * MIB);
    struct counter counter = {0};
    struct hst_parallel parallel = {.run = run_counted, .context = &counter, .width = 1};
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_DEVICE, .dev = dev, .parallel = &parallel};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_measured(&r.figures[HST_RATE_HALF_BF16], 1e4, 1e14);
    parallel.width = 2;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_failed(&r.figures[HST_RATE_HALF_BF16], "workers cannot rest");
    assert_measured(&r.figures[HST_RATE_SHARED], 1e4, 1e16);
    hst_dev_close(&dev);
}

/* ---- simulated drives: their model is the truth ---- */

struct sim {
    struct hst_aio_world *world;
    struct hst_aio *aio[2];
    struct hst_aio_info info[2];
    struct hst_probe_drive drives[2];
    uint32_t count;
};

static void open_sim(struct sim *s, const char *first, const char *second, const char *fault)
{
    static const char *const names[] = {"one", "two"};
    const char *models[] = {first, second};
    const uint32_t count = second ? 2 : 1;
    *s = (struct sim){.count = count};
    assert_int_equal(hst_aio_world_create(&s->world), 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct hst_aio_config config = {.size = sizeof config,
                                              .backend = HST_AIO_SIM,
                                              .model = models[i],
                                              .fault = i == 0 ? fault : NULL,
                                              .world = s->world};
        assert_int_equal(hst_aio_open(&config, names[i], &s->aio[i], &s->info[i]), 0);
        s->drives[i] = (struct hst_probe_drive){names[i], s->aio[i], &s->info[i]};
    }
}

/* Whatever happened, nothing is in flight and the contexts can be used again. */
static void close_sim(struct sim *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        assert_int_equal(hst_aio_in_flight(s->aio[i]), 0);
        hst_aio_close(&s->aio[i]);
    }
    hst_aio_world_destroy(&s->world);
}

static struct hst_rates measure_sim_within(struct sim *s, uint64_t drive_bytes)
{
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DRIVES,
                                    .drives = s->drives,
                                    .drive_count = s->count,
                                    .drive_bytes = drive_bytes};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    return r;
}

static struct hst_rates measure_sim(struct sim *s)
{
    return measure_sim_within(s, 0);
}

static void assert_near(const struct hst_figure *f, double expected, double tolerance)
{
    if (fabs(f->value / expected - 1) > tolerance)
        fail_msg("%g is not near %g: %s", f->value, expected, f->how);
}

static void a_simulated_drive_gets_the_rates_of_its_model(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=3G,write=2G,mixed=2.4G,lat=50us", NULL, NULL);
    struct hst_rates r = measure_sim(&s);
    assert_near(&r.drives[0].read, 3e9, 0.02);
    assert_near(&r.drives[0].write, 2e9, 0.02);
    assert_near(&r.drives[0].mixed, 2.4e9, 0.05);
    assert_true(r.drives[0].half_duplex);
    assert_near(&r.figures[HST_RATE_READ], 3e9, 0.02);
    assert_non_null(strstr(r.drives[0].read.how, "simulated"));
    struct hst_aio_counters counters;
    hst_aio_counters(s.aio[0], &counters);
    assert_int_equal(counters.written_bytes, r.drives[0].written_bytes);
    assert_true(r.drives[0].written_bytes <= 320 * MIB);
    close_sim(&s);
}

static void two_directions_at_once_are_seen(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=3G,write=3G,mixed=6G,lat=20us", NULL, NULL);
    struct hst_rates r = measure_sim(&s);
    assert_near(&r.drives[0].mixed, 6e9, 0.05);
    assert_false(r.drives[0].half_duplex);
    close_sim(&s);
}

static void drives_are_measured_together_and_told_apart(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=4G,write=3G,lat=20us", "sim:read=1G,write=500M,lat=80us", NULL);
    struct hst_rates r = measure_sim(&s);
    assert_near(&r.drives[0].read, 4e9, 0.03);
    assert_near(&r.drives[1].read, 1e9, 0.03);
    assert_near(&r.drives[0].write, 3e9, 0.03);
    assert_near(&r.drives[1].write, 5e8, 0.03);
    assert_near(&r.figures[HST_RATE_READ], 5e9, 0.03);
    assert_near(&r.figures[HST_RATE_WRITE], 3.5e9, 0.03);
    close_sim(&s);
}

/* So few bytes that a queue takes all of a round at once: every drive has its part all the same. */
static void few_bytes_reach_every_drive(void **state)
{
    (void)state;
    for (uint64_t mib = 20; mib <= 80; mib += 15) {
        struct sim s;
        open_sim(&s, "sim:read=4G,write=3G,lat=20us", "sim:read=2G,write=2G,lat=20us", NULL);
        struct hst_rates r = measure_sim_within(&s, mib * MIB);
        assert_near(&r.drives[0].write, 3e9, 0.1);
        assert_near(&r.drives[1].read, 2e9, 0.1);
        for (int i = 0; i < 2; i++) {
            assert_measured(&r.drives[i].mixed, 1e9, 4e9);
            assert_true(r.drives[i].written_bytes <= mib * MIB);
        }
        close_sim(&s);
    }
}

static void a_slow_drive_is_measured_in_bounded_time(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=60M,write=40M,lat=5ms", NULL, NULL);
    uint64_t start = hst_aio_clock_ns(s.aio[0]);
    struct hst_rates r = measure_sim(&s);
    uint64_t took = hst_aio_clock_ns(s.aio[0]) - start;
    assert_near(&r.drives[0].read, 6e7, 0.05);
    assert_near(&r.drives[0].write, 4e7, 0.05);
    assert_int_equal(r.drives[0].read.rounds, 1);
    assert_true(took < 2500000000); /* its time, and what was in flight, four times */
    close_sim(&s);
}

static void little_memory_means_fewer_requests_in_flight(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=4G,write=4G,lat=1ms", NULL, NULL);
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DRIVES,
                                    .drives = s.drives,
                                    .drive_count = 1,
                                    .memory_bytes = 4 * MIB + 5};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_near(&r.drives[0].read, 4 * 1048576 / (1e-3 + 1048576 / 4e9), 0.05);
    assert_non_null(strstr(r.drives[0].read.how, "4 x 1 MiB in flight"));
    close_sim(&s);
}

static void a_write_cache_is_not_seen_through(void **state)
{
    (void)state; /* documented: 320 MiB do not fill it */
    struct sim s;
    open_sim(&s, "sim:read=3G,write=3G,slc=4Gi,slc_write=500M", NULL, NULL);
    struct hst_rates r = measure_sim(&s);
    assert_near(&r.drives[0].write, 3e9, 0.02);
    close_sim(&s);
}

static void a_full_drive_says_so(void **state)
{
    (void)state;
    struct sim s;
    open_sim(&s, "sim:read=3G,write=3G,size=20Mi", "sim:read=1G,write=1G", NULL);
    struct hst_rates r = measure_sim(&s);
    assert_failed(&r.drives[0].read, "no scratch file: No space left on device");
    assert_failed(&r.drives[0].mixed, "No space left");
    assert_false(r.drives[0].half_duplex);
    assert_near(&r.drives[1].read, 1e9, 0.03); /* the other one is not disturbed */
    assert_failed(&r.figures[HST_RATE_READ], "drive 0: no scratch file");
    close_sim(&s);
}

static void a_drive_that_fails_at_any_request_says_so_and_leaves_nothing(void **state)
{
    (void)state;
    static const char *const plans[] = {
        "op=write nth=1 err=EIO times=all",
        "op=write nth=40 err=ENOSPC times=all",
        "op=read nth=1 err=EIO times=all",
        "op=write nth=130 err=EIO times=all",
        "op=any nth=200 vanish",
    };
    static const char *const why[] = {"Input/output error", "No space left", "Input/output error",
                                      "Input/output error", "No such device"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        struct sim s;
        open_sim(&s, "sim:read=3G,write=3G", "sim:read=1G,write=1G", plans[i]);
        struct hst_rates r = measure_sim(&s);
        assert_failed(&r.drives[0].read, why[i]);
        assert_failed(&r.drives[0].write, why[i]);
        assert_measured(&r.drives[1].read, 9e8, 1.1e9);
        assert_failed(&r.figures[HST_RATE_MIXED], why[i]);
        close_sim(&s);
    }
}

/* ---- real directories that cannot be used ---- */

static void a_directory_that_is_not_there_or_is_no_directory_says_so(void **state)
{
    (void)state;
    const struct hst_probe_drive drives[] = {{.directory = "/nowhere/at/all"},
                                             {.directory = "/dev/null"}};
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_DRIVES, .drives = drives, .drive_count = 2};
    struct hst_rates r;
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_failed(&r.drives[0].read, "the directory cannot be used: No such file");
    assert_failed(&r.drives[1].read, "the directory cannot be used: ");
    assert_failed(&r.figures[HST_RATE_MIXED], "drive 0: ");
}

/* Runs as nobody where the tests run as root: root may write anywhere. */
static void a_directory_that_is_read_only_says_so(void **state)
{
    (void)state;
    assert_int_equal(chmod(folder, 0555), 0);
    pid_t child = fork();
    if (child == 0) {
        const struct hst_probe_drive drive = {.directory = folder};
        const struct hst_probe probe = {
            .size = sizeof probe, .parts = HST_PROBE_DRIVES, .drives = &drive, .drive_count = 1};
        struct hst_rates r = {0};
        if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(2);
        int rc = hst_probe(&probe, &r);
        _exit(rc == 0 && r.drives[0].read.value == 0 &&
                      strstr(r.drives[0].read.how, "Permission denied")
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_has_rates_that_can_be),
        cmocka_unit_test(the_workers_that_are_given_do_the_work),
        cmocka_unit_test(little_memory_is_kept_to_and_said),
        cmocka_unit_test(nothing_to_measure_says_so),
        cmocka_unit_test(what_makes_no_sense_is_refused_and_nothing_is_written),
        cmocka_unit_test(a_device_with_memory_of_its_own_is_copied_to_and_computes),
        cmocka_unit_test(a_device_apart_is_warm_before_its_rates_and_the_host_is_not_warmed),
        cmocka_unit_test(a_device_without_budget_is_told),
        cmocka_unit_test(half_of_the_callers_workers_are_no_figure),
        cmocka_unit_test(a_simulated_drive_gets_the_rates_of_its_model),
        cmocka_unit_test(two_directions_at_once_are_seen),
        cmocka_unit_test(drives_are_measured_together_and_told_apart),
        cmocka_unit_test(few_bytes_reach_every_drive),
        cmocka_unit_test(a_slow_drive_is_measured_in_bounded_time),
        cmocka_unit_test(little_memory_means_fewer_requests_in_flight),
        cmocka_unit_test(a_write_cache_is_not_seen_through),
        cmocka_unit_test(a_full_drive_says_so),
        cmocka_unit_test(a_drive_that_fails_at_any_request_says_so_and_leaves_nothing),
        cmocka_unit_test(a_directory_that_is_not_there_or_is_no_directory_says_so),
        cmocka_unit_test(a_directory_that_is_read_only_says_so),
    };
    return run_cases(tests, make_folder, remove_folder);
}
