/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps whose gradients are not finite. Skipped, they leave no trace: weights and states are those
 * of a run that never had them, as the toy's gradients depend on its weights alone; also where the
 * run ends and is resumed around them. Otherwise they end the run, and the store is as it was.
 */
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 6 };
static struct toy_states plain, other; /* large: not on the stack */

static const char *const PLACES[] = {"states=dram,weights=dram", "states=nvme,weights=nvme",
                                     "states=nvme,weights=dram,grads=nvme,acts=nvme"};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };
static const uint32_t UNITS[] = {0, 2, TOY_UNITS - 1}; /* the last in the backward comes first */
enum { UNIT_COUNT = sizeof UNITS / sizeof *UNITS };

#define KEPT(...)                                                                                  \
    hst_config(.store = toy_store, .batch_tokens = 10, .grain_tokens = 4, .dram_bytes = 64u << 20, \
               .threads = 2, .tile_elements = 8192, __VA_ARGS__)

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* One step, in which the gradients of this unit get a NaN. */
static int poisoned_step(struct hst_engine *engine, int unit, struct hst_step_stats *stats)
{
    toy_poisoned = unit;
    int rc = toy_step(engine, stats);
    toy_poisoned = -1;
    return rc;
}

/* Sealed, and loaded or resumed. Returns the step that it stands after. */
static uint64_t begin(const struct hst_config *config, bool resume, struct hst_engine **engine)
{
    uint64_t step = 0;
    size_t bytes;
    *engine = toy_created(config);
    toy_must(*engine, toy_describe(*engine));
    toy_must(*engine, hst_engine_seal(*engine, HST_ORDER_FORWARD));
    toy_must(*engine,
             resume ? hst_engine_resume(*engine, &step, NULL, 0, &bytes) : toy_load(*engine));
    return step;
}

/* One life: steps first to last of a run, of which those with an 'x' are poisoned. Drained or cut
 * off. */
static void live(const struct hst_config *config, const char *steps, uint64_t first, uint64_t last,
                 uint32_t unit, bool drain, struct toy_states *states)
{
    struct hst_engine *engine;
    struct hst_step_stats stats;
    uint64_t skipped = 0;
    assert_int_equal(begin(config, first > 1, &engine), first - 1);
    for (uint64_t s = 1; s < first; s++)
        skipped += steps[s - 1] == 'x';
    for (uint64_t s = first; s <= last; s++) {
        const bool skips = steps[s - 1] == 'x';
        skipped += skips;
        toy_must(engine, poisoned_step(engine, skips ? (int)unit : -1, &stats));
        assert_int_equal(stats.step, s);
        assert_int_equal(stats.skipped, skips);
        assert_int_equal(isfinite(stats.grad_norm) != 0, !skips);
        assert_int_equal(stats.skipped_steps, skipped);
        assert_true(stats.loss_scale == 1);
    }
    if (drain) {
        toy_must(engine, hst_engine_drain(engine, &stats));
        assert_int_equal(hst_engine_version(engine), last);
        toy_must(engine, toy_states(engine, states));
    }
    hst_engine_destroy(&engine);
}

static void assert_plain(const char *place, const char *what)
{
    if (other.used != plain.used || memcmp(other.bytes, plain.bytes, plain.used) != 0)
        fail_msg("%s, %s: other bytes than without the steps that were skipped", place, what);
}

static unsigned turn; /* of orders, units and ends */

/* Four good steps and two that are not, in an order that differs from place to place; and resumed
 * around them. */
static void check_skips(struct hst_config config)
{
    static const char *const ORDERS[] = {"x..x..", "..xx..", "....xx", "xx...."};
    for (int p = 0; p < PLACE_COUNT; p++, turn++) {
        const char *order = ORDERS[turn % 4];
        const uint32_t unit = UNITS[turn % UNIT_COUNT];
        const uint64_t end = 1 + turn % (STEPS - 1);
        config.place = PLACES[p];
        config.durability = "step";
        config.skip_nonfinite = false; /* with clipping off then updated in the backward */
        live(&config, "....", 1, 4, 0, true, &plain);
        clear_store();
        config.skip_nonfinite = true;
        live(&config, order, 1, STEPS, unit, true, &other);
        assert_plain(PLACES[p], order);
        clear_store();
        live(&config, ".x..x.", 1, end, unit, true, &other);
        live(&config, ".x..x.", end + 1, STEPS, unit, true, &other);
        assert_plain(PLACES[p], "resumed");
        clear_store();
    }
}

static void a_skipped_step_leaves_no_trace_in_fp32(void **state)
{
    (void)state;
    check_skips(*KEPT(.precision = HST_PRECISION_FP32));
    check_skips(*KEPT(.precision = HST_PRECISION_FP32, .clip = HST_NONE));
}

static void a_skipped_step_leaves_no_trace_in_bf16(void **state)
{
    (void)state;
    check_skips(*KEPT(.precision = HST_PRECISION_BF16));
    check_skips(*KEPT(.precision = HST_PRECISION_BF16, .clip = HST_NONE));
    check_skips(*KEPT(.precision = HST_PRECISION_BF16, .update_time = HST_UPDATE_OPTIMISTIC));
}

static void a_skipped_step_leaves_no_trace_in_fp16(void **state)
{
    (void)state;
    check_skips(*KEPT(.precision = HST_PRECISION_FP16, .loss_scale = 1));
    check_skips(*KEPT(.precision = HST_PRECISION_FP16, .loss_scale = 1, .clip = HST_NONE));
}

/* Without the flag: what was committed is resumed, with it if one likes, and ends alike. */
static void check_stop(struct hst_config config, uint32_t unit)
{
    struct hst_engine *engine;
    struct hst_step_stats stats;
    config.durability = "step";
    live(&config, "....", 1, 4, 0, true, &plain);
    clear_store();
    begin(&config, false, &engine);
    toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, toy_step(engine, &stats));
    assert_int_equal(poisoned_step(engine, (int)unit, &stats), -EOVERFLOW);
    const struct hst_error *error = hst_engine_error(engine);
    assert_int_equal(error->code, HST_E_NONFINITE);
    assert_non_null(strstr(error->message, "step 3 is nan"));
    assert_non_null(strstr(error->message, "--skip-nonfinite"));
    assert_int_equal(hst_engine_drain(engine, &stats), -EOVERFLOW);
    hst_engine_destroy(&engine);
    config.skip_nonfinite = true;
    const uint64_t began = begin(&config, true, &engine);
    assert_in_range(began, 1, 2);
    for (uint64_t s = began + 1; s <= 2; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, poisoned_step(engine, (int)unit, &stats));
    assert_true(stats.skipped);
    toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    toy_must(engine, toy_states(engine, &other));
    hst_engine_destroy(&engine);
    assert_plain(config.place, "stopped, then skipped");
    clear_store();
}

static void without_it_the_run_ends_and_the_store_goes_on_from_its_last_version(void **state)
{
    (void)state;
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16,
                                                    HST_PRECISION_FP16};
    for (int i = 0; i < PLACE_COUNT * UNIT_COUNT; i++) { /* each with each; precisions in turn */
        struct hst_config config = *KEPT(.place = PLACES[i % PLACE_COUNT]);
        config.clip = i % 2 ? 0 : HST_NONE;
        config.update_time = i % 4 == 3 ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
        config.precision = PRECISIONS[(i + i / PLACE_COUNT) % 3];
        config.loss_scale = config.precision == HST_PRECISION_FP16 ? 1 : 0;
        check_stop(config, UNITS[i / PLACE_COUNT]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_fp32),
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_bf16),
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_fp16),
        cmocka_unit_test(without_it_the_run_ends_and_the_store_goes_on_from_its_last_version),
    };
    alarm(200); /* a hang ends the test */
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
