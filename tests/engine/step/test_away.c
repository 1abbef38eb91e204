/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device with memory of its own whose weights, gradients and states live elsewhere (tests/far):
 * copies that are late, that fail, and what they add up to. The in-memory run on the host is the
 * oracle.
 */
#include "session/engine_state.h"
#include "short.h"
#include "smallest_budget.h"
#include "toy_run.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HANG_S = 120,
    SMALL_HBM_BYTES = 4 << 20,                      /* two units' weights, not all of them */
    STREAM_HBM_BYTES = SMALL_HBM_BYTES + (8 << 20), /* and the tiles */
    SEEDS = 4,
    QUIET_RUN = 12 /* more than the copies that are made ahead for a step that never comes */
};

static struct toy_result oracle, other;            /* large: not on the stack */
static unsigned first_seed = 1, last_seed = SEEDS; /* of delays */
static unsigned stride = 1, first_copy = 1;        /* of the copies that fail */

static void trouble(const char *what, unsigned number)
{
    char words[40];
    snprintf(words, sizeof words, "%s:%u", what, number);
    assert_int_equal(setenv("HOISTWAY_FAR", words, 1), 0);
}

static void same_as_oracle(void)
{
    assert_int_equal(other.weights.used, oracle.weights.used);
    assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
}

/* Rings as small as they get, or with room for all; drives that jitter, in virtual time. */
static void check_late(enum hst_precision precision, double clip, double scale)
{
    static const char drive[] = "sim:read=3G,write=2G,lat=80us,jitter=2ms";
    toy_run(TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 1,
                       .place = "states=dram,weights=dram"),
            &oracle);
    for (unsigned seed = first_seed; seed <= last_seed; seed++) {
        const struct hst_config *late[] = {
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 2,
                       .device = "far", .tile_elements = 8192, .place = "weights=dram,acts=dram"),
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 2,
                       .device = "far", .tile_elements = 65536, .hbm_bytes = SMALL_HBM_BYTES,
                       .place = "weights=dram,acts=dram"),
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 1,
                       .device = "far", .tile_elements = 65536, .hbm_bytes = SMALL_HBM_BYTES,
                       .io_model = drive, .place = "weights=nvme,states=nvme,grads=nvme,acts=nvme"),
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 2,
                       .device = "far", .place = "acts=nvme", .io_model = drive),
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 2,
                       .device = "far", .tile_elements = 8192, .place = "weights=dram,acts=dram",
                       .gpu_update = 0.4),
            TOY_CONFIG(.precision = precision, .clip = clip, .loss_scale = scale, .threads = 1,
                       .device = "far", .tile_elements = 65536, .place = "weights=dram,acts=dram",
                       .hbm_bytes = STREAM_HBM_BYTES, .gpu_update = 1),
        };
        for (size_t i = 0; i < sizeof late / sizeof late[0]; i++) {
            trouble("delay", seed);
            toy_run(late[i], &other);
            same_as_oracle();
        }
        struct hst_config some = *late[3]; /* units are resident */
        share_units(&some, 64u << 20, toy_describe);
        trouble("delay", seed);
        toy_run(&some, &other);
        same_as_oracle();
    }
    unsetenv("HOISTWAY_FAR");
}

static void copies_that_are_late_change_nothing(void **state)
{
    (void)state;
    check_late(HST_PRECISION_FP32, 0.5, 0);
    check_late(HST_PRECISION_BF16, HST_NONE, 0);
    check_late(HST_PRECISION_FP16, 0.5, 0x1p20); /* the first two steps are skipped */
}

/* ---- faults ---- */

static int run_with_trouble(const struct hst_config *config, struct hst_error *error)
{
    struct hst_engine *engine = toy_created(config);
    alarm(HANG_S);
    int rc = toy_try(engine, toy_seal_and_load(engine), &other.weights, error);
    alarm(0);
    return rc;
}

/* Each copy in turn, until all that a step waits for have had theirs; in the short form one in so
 * many. */
static void every_copy_can_fail(const struct hst_config *config, const char *what, int native,
                                const char *message)
{
    struct hst_error error;
    unsigned told = 0, untold = 0;
    for (unsigned n = first_copy; untold * stride < QUIET_RUN; n += stride) {
        trouble(what, n);
        int rc = run_with_trouble(config, &error);
        if (rc == 0) {
            untold++;
            continue;
        }
        untold = 0;
        told++;
        assert_int_equal(rc, native);
        assert_int_equal(error.code, HST_E_DEVICE_FAILED);
        assert_non_null(strstr(error.message, message));
    }
    unsetenv("HOISTWAY_FAR");
    /* of two steps: each unit's weights, gradients but the head's tied one, four checkpoints */
    assert_true(told >= 2 * (TOY_UNITS + TOY_UNITS - 1) / stride);
}

static void a_copy_that_fails_ends_the_run(void **state)
{
    (void)state;
    static const char *const places[] = {"weights=dram,acts=dram",
                                         "weights=nvme,states=nvme,grads=nvme,acts=nvme"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const struct hst_config *config =
            TOY_CONFIG(.device = "far", .threads = 2, .tile_elements = 65536, .place = places[i],
                       .hbm_bytes = SMALL_HBM_BYTES);
        every_copy_can_fail(config, "refuse", -EIO, "copy between host and device");
        every_copy_can_fail(config, "fail", -EDOM, "copy between host and device");
    }
    struct hst_config some =
        *TOY_CONFIG(.device = "far", .threads = 2, .tile_elements = 65536, .place = "acts=dram");
    every_copy_can_fail(TOY_CONFIG(.device = "far", .threads = 2, .tile_elements = 65536,
                                   .place = "weights=dram", .gpu_update = 0.5),
                        "refuse", -EIO, "failed on device");
    share_units(&some, 64u << 20, toy_describe);
    /* tiles of resident units are copied too, and partials of the norm */
    every_copy_can_fail(&some, "refuse", -EIO, "failed on device");
    every_copy_can_fail(&some, "fail", -EDOM, "failed on device");
}

/* ---- accounts ---- */

struct seen {
    unsigned nodes[LANE_COUNT];
    double work[LANE_COUNT];
};

static void see(void *context, const struct hst_trace_event *event)
{
    struct seen *seen = context;
    for (int l = 0; l < LANE_COUNT; l++) {
        bool is_it = strcmp(event->lane, lane_name((enum lane)l)) == 0;
        seen->nodes[l] += is_it;
        seen->work[l] += is_it ? event->work : 0;
    }
}

/* Runs, and holds the accounts of all steps against their trace. Returns what a step moved: what an
 * update does may be in the window of its own step, or in the next one's. */
static struct hst_step_bytes traced_bytes(uint64_t hbm_bytes, const char *place, double streamed)
{
    struct seen seen = {0};
    toy_run(TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32, .hbm_bytes = hbm_bytes,
                       .place = place, .update_time = HST_UPDATE_DEFERRED, .trace = see,
                       .gpu_update = streamed, .trace_context = &seen),
            &other);
    struct hst_step_bytes moved = {.nvme_read = other.nvme_read,
                                   .nvme_write = other.nvme_write,
                                   .h2d = other.h2d / TOY_STEPS,
                                   .d2h = other.d2h / TOY_STEPS};
    assert_int_equal(moved.nvme_read + moved.nvme_write, 0);
    if (streamed == HST_NONE) { /* a record is longer than what is in it */
        assert_true(seen.work[LANE_H2D] == TOY_STEPS * (double)moved.h2d);
        assert_true(seen.work[LANE_D2H] == TOY_STEPS * (double)moved.d2h);
    }
    assert_true(seen.nodes[LANE_D2H] >= TOY_STEPS * TOY_UNITS);
    return moved;
}

static void traffic_of_the_link_is_what_the_placement_says(void **state)
{
    (void)state;
    const uint64_t page = 4096, tied = 38 * 4096 * sizeof(float); /* 2400 · 64, in whole tiles */
    /* HBM keeps all weights for the backward: in once, gradients out once */
    struct hst_step_bytes moved = traced_bytes(0, "weights=dram", HST_NONE);
    uint64_t weights = other.memory.bytes[HST_CLASS_WEIGHTS][HST_TIER_DRAM];
    uint64_t grads = weights + weights / sizeof(float) / 4096 * sizeof(double); /* their norm's */
    assert_int_equal(moved.h2d, weights + tied);
    assert_int_equal(moved.d2h, grads);
    /* three units' checkpoints stay until the backward, two come and go */
    moved = traced_bytes(0, "weights=dram,acts=dram", HST_NONE);
    assert_int_equal(moved.h2d, weights + tied + 2 * page);
    assert_int_equal(moved.d2h, grads + 2 * page);
    /* weights come twice but for those that are kept */
    uint64_t once = moved.h2d;
    moved = traced_bytes(SMALL_HBM_BYTES, "weights=dram,acts=dram", HST_NONE);
    assert_true(moved.h2d > once && moved.h2d < 2 * once);
    /* all that is updated comes and goes, and gradients come */
    moved = traced_bytes(0, "weights=dram", 1);
    uint64_t states = other.memory.bytes[HST_CLASS_STATES][HST_TIER_DRAM];
    assert_int_equal(moved.h2d, 3 * weights + tied + states);
    assert_int_equal(moved.d2h, grads + weights + states);
}

static struct {
    size_t (*kernel)(const struct hst_adam_coef *coef, const struct hst_update_arrays *arrays,
                     size_t n);
    pthread_t caller;
    atomic_uint by_caller, by_others;
} noted;

static size_t note_thread(const struct hst_adam_coef *coef, const struct hst_update_arrays *arrays,
                          size_t n)
{
    bool caller = pthread_equal(pthread_self(), noted.caller) != 0;
    atomic_fetch_add(caller ? &noted.by_caller : &noted.by_others, 1);
    sched_yield(); /* to whoever would take the next piece */
    return noted.kernel(coef, arrays, n);
}

/* Of four threads one: the one that calls. */
static void as_many_threads_update_as_the_plan_chose(void **state)
{
    (void)state;
    struct hst_engine *engine = toy_created(
        TOY_CONFIG(.device = "far", .threads = 4, .tile_elements = 65536, .place = "weights=dram"));
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    struct hst_update update = *engine->kernel.update;
    noted.kernel = update.kernel;
    noted.caller = pthread_self();
    update.kernel = note_thread;
    engine->exec.in.kernel.update = &update;
    engine->placement.update_threads[0] = engine->placement.update_threads[1] = 1;
    for (int s = 0; s < TOY_STEPS; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, NULL));
    assert_true(atomic_load(&noted.by_caller) > 0);
    assert_int_equal(atomic_load(&noted.by_others), 0);
    hst_engine_destroy(&engine);
}

/* The first computation of a step waits for a copy at least. */
static void what_the_device_waits_for_is_booked_as_such(void **state)
{
    (void)state;
    trouble("delay", 1);
    toy_run(TOY_CONFIG(.device = "far", .place = "weights=dram,acts=dram",
                       .hbm_bytes = SMALL_HBM_BYTES),
            &other);
    unsetenv("HOISTWAY_FAR");
    assert_true(other.copy_s > 0);
    assert_true(other.nvme_s == 0);
    toy_run(TOY_CONFIG(.device = "far", .place = "weights=hbm"), &other);
    assert_true(other.copy_s == 0 && other.nvme_s == 0);
}

/* An evaluation of one unit, on a stream of the client's, which goes. */
static void evaluate(struct hst_engine *engine)
{
    const struct hst_unit_view *view;
    struct hst_stream *own;
    toy_must(engine, hst_stream_create(hst_engine_device(engine), "own", &own));
    toy_must(engine, hst_unit_acquire(engine, 0, HST_EVAL, own, &view));
    toy_must(engine, hst_unit_release(engine, 0));
    hst_stream_destroy(&own);
}

/* Steps on such a stream, and a save: the device still updates. */
static void save_on_a_stream_of_its_own(const struct hst_config *config, bool evaluates,
                                        struct toy_saved *saved)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_step_stats stats;
    toy_must(engine, toy_seal_and_load(engine));
    toy_must(engine, hst_stream_create(hst_engine_device(engine), "own", &toy_stream));
    for (int s = 0; s < 2; s++)
        toy_must(engine, toy_step(engine, &stats));
    hst_stream_destroy(&toy_stream);
    if (evaluates)
        evaluate(engine);
    toy_must(engine, toy_save(engine, saved));
    hst_engine_destroy(&engine);
}

/* What is at home in the device's memory is copied to be loaded, and to be saved. */
static void a_copy_of_what_is_at_home_there_fails_as_the_devices(void **state)
{
    (void)state;
    struct hst_error error;
    unsigned told = 0;
    int rc = -EIO;
    for (unsigned n = 1; rc; n++) {
        trouble("refuse", n);
        rc = run_with_trouble(TOY_CONFIG(.device = "far", .place = "weights=hbm"), &error);
        told += rc != 0;
        assert_true(rc == 0 || error.code == HST_E_DEVICE_FAILED);
    }
    unsetenv("HOISTWAY_FAR");
    assert_true(told > 2 * TOY_UNITS);
}

static void a_save_has_the_updates_of_any_stream(void **state)
{
    (void)state;
    save_on_a_stream_of_its_own(
        TOY_CONFIG(.precision = HST_PRECISION_BF16, .place = "weights=dram"), false,
        &oracle.weights);
    for (unsigned seed = first_seed; seed <= last_seed; seed++) {
        trouble("delay", seed);
        save_on_a_stream_of_its_own(
            TOY_CONFIG(.precision = HST_PRECISION_BF16, .device = "far", .place = "weights=hbm"),
            seed % 2, &other.weights);
        assert_int_equal(other.weights.used, oracle.weights.used);
        assert_memory_equal(other.weights.bytes, oracle.weights.bytes, oracle.weights.used);
    }
    unsetenv("HOISTWAY_FAR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_are_late_change_nothing),
        cmocka_unit_test(a_copy_that_fails_ends_the_run),
        cmocka_unit_test(traffic_of_the_link_is_what_the_placement_says),
        cmocka_unit_test(as_many_threads_update_as_the_plan_chose),
        cmocka_unit_test(what_the_device_waits_for_is_booked_as_such),
        cmocka_unit_test(a_save_has_the_updates_of_any_stream),
        cmocka_unit_test(a_copy_of_what_is_at_home_there_fails_as_the_devices),
    };
    if (test_is_short()) {
        const unsigned turn = test_turn();
        first_seed = last_seed = 1 + turn % SEEDS;
        stride = 5;
        first_copy = 1 + turn % stride;
    }
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
