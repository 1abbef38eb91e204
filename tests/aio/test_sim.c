/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim backend against its formulas in aio.h. At 1 GB/s a byte takes a nanosecond, so every
 * expected time below is worked out by hand.
 */
#include "hoistway/aio.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

enum { KIB = 1 << 10, MIB = 1 << 20, US = 1000 };

static char *buffer;

static struct hst_aio *open_drive(const char *model, struct hst_aio_world *world, const char *name)
{
    struct hst_aio *aio = NULL;
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_SIM,
                                          .piece_bytes = 64 * MIB,
                                          .model = model,
                                          .world = world};
    assert_int_equal(hst_aio_open(&config, name, &aio, NULL), 0);
    assert_int_equal(hst_aio_clock_ns(aio), 0);
    return aio;
}

static struct hst_aio_file *open_file(struct hst_aio *aio, uint64_t size_bytes)
{
    struct hst_aio_file *file = NULL;
    assert_int_equal(hst_aio_file_open(aio, "f", HST_AIO_CREATE, size_bytes, &file), 0);
    return file;
}

/* Gives an operation to the drive; user: which. */
static void give(struct hst_aio *aio, struct hst_aio_file *file, enum hst_aio_kind kind,
                 uint64_t bytes, uint64_t user)
{
    const struct hst_aio_op op = {
        .kind = kind, .file = file, .buffer = buffer, .bytes = bytes, .user = user};
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
}

/* The next completion is `user`'s, at this time. */
static void check_next(struct hst_aio *aio, uint64_t user, uint64_t at_ns)
{
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(done.error, 0);
    assert_int_equal(done.user, user);
    assert_int_equal(hst_aio_clock_ns(aio), at_ns);
}

static void latency_and_rate_add_up_and_latencies_overlap(void **state)
{
    (void)state;
    struct hst_aio *aio = open_drive("sim:read=1G,write=500M,lat=10us", NULL, "d");
    struct hst_aio_file *file = open_file(aio, MIB);
    give(aio, file, HST_AIO_READ, MIB, 1);
    check_next(aio, 1, 10 * US + MIB);
    give(aio, file, HST_AIO_WRITE, MIB, 2);
    check_next(aio, 2, 20 * US + MIB + 2 * MIB);
    const uint64_t begin_ns = 20 * US + 3 * MIB; /* four at once: L + 4·b/R */
    for (uint64_t i = 0; i < 4; i++)
        give(aio, file, HST_AIO_READ, 64 * KIB, i);
    for (uint64_t i = 0; i < 4; i++)
        check_next(aio, i, begin_ns + 10 * US + (i + 1) * 64 * KIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void both_directions_share_the_mixed_rate(void **state)
{
    (void)state;
    /* shares: reads 600·1000/1500 = 400 MB/s, writes 200 MB/s */
    struct hst_aio *aio = open_drive("sim:read=1G,write=500M,mixed=600M,lat=10us", NULL, "d");
    struct hst_aio_file *file = open_file(aio, MIB);
    give(aio, file, HST_AIO_READ, MIB, 1);
    give(aio, file, HST_AIO_WRITE, MIB, 2);
    const uint64_t read_ns = 10 * US + (uint64_t)MIB * 5 / 2;
    check_next(aio, 1, read_ns); /* the write has moved half, the rest goes at 500 MB/s */
    check_next(aio, 2, read_ns + MIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void writes_slow_down_when_the_cache_is_full_until_the_drive_was_idle(void **state)
{
    (void)state;
    struct hst_aio *aio =
        open_drive("sim:read=1G,write=1G,slc=1Mi,slc_write=100M,drain=500M", NULL, "d");
    struct hst_aio_file *file = open_file(aio, 4 * MIB);
    give(aio, file, HST_AIO_WRITE, 2 * MIB, 1);
    check_next(aio, 1, MIB + 10 * MIB);
    give(aio, file, HST_AIO_READ, MIB, 2); /* not idle: nothing drains */
    check_next(aio, 2, 12 * MIB);
    give(aio, file, HST_AIO_WRITE, 64 * KIB, 3);
    check_next(aio, 3, 12 * MIB + 640 * KIB);
    hst_aio_idle(aio, MIB); /* half the cache */
    give(aio, file, HST_AIO_WRITE, MIB, 4);
    check_next(aio, 4, 13 * MIB + 640 * KIB + 512 * KIB + 5 * MIB);
    hst_aio_idle(aio, 100 * MIB);
    give(aio, file, HST_AIO_WRITE, MIB, 5);
    check_next(aio, 5, 118 * MIB + 1152 * KIB + MIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void a_sync_waits_for_what_was_given_before_it(void **state)
{
    (void)state;
    struct hst_aio *aio = open_drive("sim:read=1G,write=1G,lat=10us", NULL, "d");
    struct hst_aio_file *file = open_file(aio, MIB);
    give(aio, file, HST_AIO_WRITE, MIB, 1);
    give(aio, file, HST_AIO_SYNC, 0, 2);
    give(aio, file, HST_AIO_WRITE, MIB, 3);
    check_next(aio, 1, 10 * US + MIB);
    check_next(aio, 2, 10 * US + MIB);
    check_next(aio, 3, 10 * US + 2 * MIB);
    give(aio, file, HST_AIO_SYNC, 0, 4);
    check_next(aio, 4, 20 * US + 2 * MIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void a_timeout_moves_the_clock_that_far_and_no_more(void **state)
{
    (void)state;
    struct hst_aio_completion done;
    bool ready;
    struct hst_aio *aio = open_drive("sim:read=1G,write=1G", NULL, "d");
    struct hst_aio_file *file = open_file(aio, MIB);
    give(aio, file, HST_AIO_READ, MIB, 1);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, 1000), 0);
    assert_int_equal(hst_aio_clock_ns(aio), 1000);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 0, UINT64_MAX), 0);
    assert_int_equal(hst_aio_wait_any(&aio, 1, &ready, 500), 0);
    assert_int_equal(hst_aio_clock_ns(aio), 1500);
    assert_int_equal(hst_aio_wait_any(&aio, 1, &ready, UINT64_MAX), 1);
    assert_true(ready);
    check_next(aio, 1, MIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void any_time_may_pass_and_the_clock_stops_at_its_end(void **state)
{
    (void)state;
    struct hst_aio *aio = open_drive("sim:read=1G,write=1G", NULL, "d");
    alarm(20); /* no time passes outside */
    hst_aio_idle(aio, 1000000000000000);
    assert_int_equal(hst_aio_clock_ns(aio), 1000000000000000);
    hst_aio_idle(aio, UINT64_MAX);
    assert_int_equal(hst_aio_clock_ns(aio), UINT64_MAX - 1);
    alarm(0);
    hst_aio_close(&aio);
}

static void pauses_and_late_results_pass_on_the_virtual_clock(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_SIM,
                                          .model = "sim:read=1G,write=1G",
                                          .fault = "op=read times=3 err=EAGAIN; op=write late=7us"};
    assert_int_equal(hst_aio_open(&config, "d", &aio, NULL), 0);
    struct hst_aio_file *file = open_file(aio, MIB);
    give(aio, file, HST_AIO_READ, MIB, 1);
    check_next(aio, 1, (100 + 200 + 400) * US + MIB);
    give(aio, file, HST_AIO_WRITE, MIB, 2);
    check_next(aio, 2, 707 * US + 2 * MIB);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void files_and_cache_outlive_the_context_and_size_limits_them(void **state)
{
    (void)state;
    struct hst_aio_world *world = NULL;
    struct hst_aio *second = NULL;
    struct hst_aio_file *again = NULL;
    const char *model = "sim:read=1G,write=1G,size=2Mi";
    assert_int_equal(hst_aio_world_create(&world), 0);
    struct hst_aio *aio = open_drive(model, world, "d");
    const struct hst_aio_config same = {
        .size = sizeof same, .backend = HST_AIO_SIM, .model = model, .world = world};
    assert_int_equal(hst_aio_open(&same, "d", &second, NULL), -EBUSY);
    struct hst_aio_file *file = open_file(aio, MIB);
    memset(buffer, 0x77, MIB);
    give(aio, file, HST_AIO_WRITE, MIB, 1);
    assert_int_equal(buffer[0], 0x77);
    check_next(aio, 1, MIB);
    assert_int_equal(hst_aio_file_open(aio, "f", 0, MIB, &again), -EBUSY);
    assert_int_equal(hst_aio_file_open(aio, "g", HST_AIO_CREATE, 2 * MIB, &again), -ENOSPC);
    assert_int_equal(hst_aio_file_open(aio, "g", 0, MIB, &again), -ENOENT);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    assert_int_equal(hst_aio_open(&same, "d", &aio, NULL), 0);
    assert_int_equal(hst_aio_file_open(aio, "f", HST_AIO_CREATE, MIB, &file), -EEXIST);
    assert_int_equal(hst_aio_file_open(aio, "f", 0, 2 * MIB, &file), 0);
    memset(buffer, 0, 2 * MIB);
    give(aio, file, HST_AIO_READ, 2 * MIB, 2);
    check_next(aio, 2, 3 * MIB);
    for (size_t i = 0; i < 2 * MIB; i += 512)
        assert_int_equal(buffer[i], i < MIB ? 0x77 : 0);
    hst_aio_close(&aio); /* files may be closed after it */
    hst_aio_file_close(&file);
    hst_aio_world_destroy(&world);
}

/* Two drives, each kept full, driven by one loop: bytes moved in a second of virtual time. */
static void two_drives_of_3_to_1_together_give_the_sum_of_their_rates(void **state)
{
    enum { DEPTH = 8, DRIVES = 2 };
    static const char *const models[] = {"sim:read=6G,write=6G,lat=80us",
                                         "sim:read=2G,write=2G,lat=80us"};
    (void)state;
    struct hst_aio_world *world = NULL;
    struct hst_aio *aio[DRIVES];
    struct hst_aio_file *files[DRIVES];
    uint64_t moved[DRIVES] = {0};
    bool ready[DRIVES];
    assert_int_equal(hst_aio_world_create(&world), 0);
    for (size_t i = 0; i < DRIVES; i++) {
        const char name[] = {(char)('0' + i), '\0'};
        aio[i] = open_drive(models[i], world, name);
        files[i] = open_file(aio[i], MIB);
        for (uint64_t k = 0; k < DEPTH; k++)
            give(aio[i], files[i], HST_AIO_WRITE, MIB, k);
    }
    while (hst_aio_clock_ns(aio[0]) < 1000000000) {
        assert_true(hst_aio_wait_any(aio, DRIVES, ready, UINT64_MAX) > 0);
        for (size_t i = 0; i < DRIVES; i++) {
            struct hst_aio_completion done[DEPTH];
            const int n = ready[i] ? hst_aio_reap(aio[i], done, DEPTH, 0, 0) : 0;
            for (int k = 0; k < n; k++) {
                moved[i] += done[k].bytes;
                give(aio[i], files[i], HST_AIO_WRITE, MIB, done[k].user);
            }
        }
    }
    const double seconds = (double)hst_aio_clock_ns(aio[0]) * 1e-9;
    print_message("%.4f of the sum\n", (double)(moved[0] + moved[1]) / seconds / 8e9);
    assert_true((double)(moved[0] + moved[1]) / seconds >= 0.97 * 8e9);
    assert_true((double)moved[0] / seconds >= 0.97 * 6e9);
    for (size_t i = 0; i < DRIVES; i++) {
        hst_aio_close(&aio[i]);
        hst_aio_file_close(&files[i]);
    }
    hst_aio_world_destroy(&world);
}

static uint64_t next_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

enum { JITTERED = 12 };

/* Reads of 8 KiB, given at once: what each takes is drawn in their order; then the one that may
   start first does. */
static void check_jitter(struct hst_aio *aio, struct hst_aio_file *file, uint64_t seed)
{
    uint64_t ready_ns[JITTERED], now_ns = hst_aio_clock_ns(aio);
    bool over[JITTERED] = {false};
    int overtaken = 0;
    for (uint64_t i = 0; i < JITTERED; i++) {
        ready_ns[i] = now_ns + 10 * US + next_random(&seed) % (100 * US);
        give(aio, file, HST_AIO_READ, 8 * KIB, i);
    }
    for (uint64_t n = 0; n < JITTERED; n++) {
        uint64_t first = JITTERED;
        for (uint64_t i = 0; i < JITTERED; i++)
            if (!over[i] && (first == JITTERED || ready_ns[i] < ready_ns[first]))
                first = i;
        now_ns = (ready_ns[first] > now_ns ? ready_ns[first] : now_ns) + 8 * KIB;
        check_next(aio, first, now_ns);
        over[first] = true;
        overtaken += first != n;
    }
    assert_true(overtaken > 0);
}

static void jitter_comes_from_the_seed_and_lets_requests_overtake_each_other(void **state)
{
    static const char *const model = "sim:read=1G,write=1G,lat=10us,jitter=100us,seed=5";
    (void)state;
    struct hst_aio_world *world = NULL;
    struct hst_aio *aio[2];
    struct hst_aio_file *file;
    assert_int_equal(hst_aio_world_create(&world), 0);
    for (uint64_t i = 0; i < 2; i++)
        aio[i] = open_drive(model, world, i == 0 ? "a" : "b");
    for (uint64_t i = 0; i < 2; i++) {
        file = open_file(aio[i], MIB);
        check_jitter(aio[i], file, 5 + i); /* each drive draws from its own */
        hst_aio_file_close(&file);
        hst_aio_close(&aio[i]);
    }
    hst_aio_world_destroy(&world);
}

static void a_sync_waits_for_what_was_given_before_it_whatever_the_jitter(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 20; seed++) {
        char model[80];
        bool over[9] = {false};
        snprintf(model, sizeof model, "sim:read=1G,write=1G,jitter=100us,seed=%d", seed);
        struct hst_aio *aio = open_drive(model, NULL, "d");
        struct hst_aio_file *file = open_file(aio, MIB);
        for (uint64_t i = 0; i < 9; i++) /* the fifth one, with writes before and behind it */
            give(aio, file, i == 4 ? HST_AIO_SYNC : HST_AIO_WRITE, i == 4 ? 0 : 4 * KIB, i);
        for (int i = 0; i < 9; i++) {
            struct hst_aio_completion done;
            assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
            assert_true(done.user != 4 || (over[0] && over[1] && over[2] && over[3]));
            over[done.user] = true;
        }
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
    }
}

static int tuned_depth(const char *model, uint32_t depth, uint64_t size_bytes, const char *fault)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_stream *stream = NULL;
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = HST_AIO_SIM, .model = model, .fault = fault};
    const struct hst_aio_stream_config streaming = {.size = sizeof streaming, .depth = depth};
    assert_int_equal(hst_aio_open(&config, "d", &aio, NULL), 0);
    struct hst_aio_file *file = open_file(aio, size_bytes);
    assert_int_equal(hst_aio_stream_open(aio, &streaming, &stream), 0);
    const int found = hst_aio_stream_tune(stream, file);
    hst_aio_stream_close(&stream);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    return found;
}

static void tune_takes_the_smallest_depth_that_is_fast_enough(void **state)
{
    (void)state;
    /* q tiles of 1 MiB: min(R, q·b / (L + b/R)), so that R needs 1 + L·R/b of them */
    assert_int_equal(tuned_depth("sim:read=1G,write=1G", 0, 64 * MIB, NULL), 2);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G,lat=2ms", 0, 64 * MIB, NULL), 4);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G,lat=5ms", 0, 64 * MIB, NULL), 8);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G,lat=5ms", 4, 64 * MIB, NULL), 4);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G,lat=5ms", 2, 2 * MIB, NULL), 2);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G", 4, MIB, NULL), -EINVAL);
    assert_int_equal(tuned_depth("sim:read=1G,write=1G", 4, 64 * MIB, "nth=150 err=EROFS"), -EROFS);
}

static void a_model_is_needed_and_may_have_fractions_and_blanks(void **state)
{
    (void)state;
    struct hst_aio *aio = NULL;
    const struct hst_aio_config none = {.size = sizeof none, .backend = HST_AIO_SIM};
    assert_int_equal(hst_aio_open(&none, "d", &aio, NULL), -EINVAL);
    aio = open_drive("sim:read=1.5G,write=0.5Gi lat=1.5us", NULL, "d");
    hst_aio_close(&aio);
}

static void the_capacity_of_the_model_is_told(void **state)
{
    static const struct {
        const char *model;
        uint64_t bytes;
    } rows[] = {{"sim:read=1G,write=1G", 0},
                {"sim:size=2T,read=1G,write=1G", 2000000000000},
                {"sim:read=1G,write=1G,size=1.5Ti", 1649267441664},
                {"sim:read=1G write=1G size=4096", 4096}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hst_aio *aio = NULL;
        struct hst_aio_info info;
        const struct hst_aio_config config = {
            .size = sizeof config, .backend = HST_AIO_SIM, .model = rows[i].model};
        assert_int_equal(hst_aio_open(&config, "d", &aio, &info), 0);
        assert_int_equal(info.capacity_bytes, rows[i].bytes);
        hst_aio_close(&aio);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(latency_and_rate_add_up_and_latencies_overlap),
        cmocka_unit_test(both_directions_share_the_mixed_rate),
        cmocka_unit_test(writes_slow_down_when_the_cache_is_full_until_the_drive_was_idle),
        cmocka_unit_test(a_sync_waits_for_what_was_given_before_it),
        cmocka_unit_test(a_timeout_moves_the_clock_that_far_and_no_more),
        cmocka_unit_test(any_time_may_pass_and_the_clock_stops_at_its_end),
        cmocka_unit_test(pauses_and_late_results_pass_on_the_virtual_clock),
        cmocka_unit_test(files_and_cache_outlive_the_context_and_size_limits_them),
        cmocka_unit_test(two_drives_of_3_to_1_together_give_the_sum_of_their_rates),
        cmocka_unit_test(jitter_comes_from_the_seed_and_lets_requests_overtake_each_other),
        cmocka_unit_test(a_sync_waits_for_what_was_given_before_it_whatever_the_jitter),
        cmocka_unit_test(tune_takes_the_smallest_depth_that_is_fast_enough),
        cmocka_unit_test(a_model_is_needed_and_may_have_fractions_and_blanks),
        cmocka_unit_test(the_capacity_of_the_model_is_told),
    };
    void *memory = NULL;
    if (hst_aio_buffer_alloc(4 * MIB, &memory) < 0)
        return 2;
    buffer = memory;
    return cmocka_run_group_tests(cases, NULL, NULL);
}
