/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps whose gradients are not finite, or so large that v would not be. Skipped, they leave no
 * trace: weights and states are those of a run that never had them, as the toy's gradients depend
 * on its weights alone; also where the run ends and is resumed around them. Otherwise they end the
 * run, and the store is as it was.
 */
#include "short.h"
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
    hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,                    \
               .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 8192, __VA_ARGS__)

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* Finite in f32 and bf16, but its square is not. */
#define HUGE_GRADIENT 2e19f

/* One step, in which one of the gradients of this unit is toy_poison. */
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
        assert_int_equal(isfinite(stats.grad_norm) != 0, !skips || isfinite(toy_poison));
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

static unsigned turn;                 /* of orders, units and ends */
static int first_row, rows_apart = 1; /* in the short form one in four */

/* Four good steps and two that are not, in an order that differs from place to place; and resumed
 * around them. In the short form in one place. */
static void check_skips(struct hst_config config)
{
    static const char *const ORDERS[] = {"x..x..", "..xx..", "....xx", "xx...."};
    const bool is_short = test_is_short();
    const int begin = is_short ? (int)(turn % PLACE_COUNT) : 0;
    for (int p = begin; p < (is_short ? begin + 1 : PLACE_COUNT); p++, turn++) {
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
    if (isfinite(toy_poison))
        assert_non_null(strstr(error->message, "e+19: Adam's v may overflow from 1.837e+19 on"));
    else
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

/* In fp16 no gradient is as large. */
static void a_step_with_which_v_would_overflow_is_skipped_like_others(void **state)
{
    (void)state;
    toy_poison = HUGE_GRADIENT;
    check_skips(*KEPT(.precision = HST_PRECISION_FP32, .clip = HST_NONE));
    check_skips(*KEPT(.precision = HST_PRECISION_BF16, .clip = 1e30));
    check_skips(*KEPT(.precision = HST_PRECISION_BF16, .state = HST_STATE_BF16, .clip = 1e30,
                      .update_time = HST_UPDATE_OPTIMISTIC));
    toy_poison = NAN;
}

/* A v that is infinite makes its weight a NaN in the next step. */
static void assert_finite_bf16(struct hst_engine *engine)
{
    static struct toy_saved saved;
    toy_must(engine, toy_save(engine, &saved));
    for (size_t i = 0; i < saved.used; i += 2)
        assert_true((saved.bytes[i + 1] & 0x7f) != 0x7f || !(saved.bytes[i] & 0x80));
}

/* What is left of it is no more than others are. */
static void a_huge_gradient_that_is_clipped_is_no_overflow(void **state)
{
    (void)state;
    toy_poison = HUGE_GRADIENT;
    for (int p = 0; p < PLACE_COUNT; p++) {
        struct hst_config config =
            *KEPT(.precision = HST_PRECISION_BF16, .clip = 0.5, .place = PLACES[p],
                  .state = p % 2 ? HST_STATE_FP32 : HST_STATE_BF16, .durability = "step");
        struct toy_states *const states[] = {&plain, &other};
        for (int i = 0; i < 2; i++) { /* then made twice, the first time with all of it */
            struct hst_engine *engine;
            struct hst_step_stats stats;
            config.update_time = i ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
            begin(&config, false, &engine);
            for (int s = 1; s <= STEPS; s++) {
                toy_must(engine, poisoned_step(engine, s == 2 ? (int)UNITS[p] : -1, &stats));
                assert_false(stats.skipped);
                assert_true(s != 2 || (stats.grad_norm > 1.9e19 && stats.redone == i));
            }
            toy_must(engine, hst_engine_drain(engine, &stats));
            toy_must(engine, toy_states(engine, states[i]));
            assert_finite_bf16(engine);
            hst_engine_destroy(&engine);
            clear_store();
        }
        assert_plain(PLACES[p], "clipped");
    }
    toy_poison = NAN;
}

static void without_it_the_run_ends_and_the_store_goes_on_from_its_last_version(void **state)
{
    (void)state;
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16,
                                                    HST_PRECISION_FP16};
    /* each with each; precisions in turn */
    for (int i = first_row; i < PLACE_COUNT * UNIT_COUNT; i += rows_apart) {
        struct hst_config config = *KEPT(.place = PLACES[i % PLACE_COUNT]);
        config.clip = i % 2 ? 0 : HST_NONE;
        config.update_time = i % 4 == 3 ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
        config.precision = PRECISIONS[(i + i / PLACE_COUNT) % 3];
        config.loss_scale = config.precision == HST_PRECISION_FP16 ? 1 : 0;
        check_stop(config, UNITS[i / PLACE_COUNT]);
    }
}

static void a_run_ends_with_v_untouched_where_it_would_overflow(void **state)
{
    (void)state;
    toy_poison = HUGE_GRADIENT;
    for (int i = first_row; i < PLACE_COUNT * UNIT_COUNT; i += rows_apart) {
        struct hst_config config = *KEPT(.place = PLACES[i % PLACE_COUNT]);
        config.clip = i % 2 ? 1e30 : HST_NONE;
        config.update_time = i % 4 == 3 ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
        config.precision = i % 3 ? HST_PRECISION_BF16 : HST_PRECISION_FP32;
        config.state = i % 3 == 2 ? HST_STATE_BF16 : HST_STATE_FP32;
        check_stop(config, UNITS[i / PLACE_COUNT]);
    }
    toy_poison = NAN;
}

/* All of the model and its states are in the memory of a device, which updates them. */
static void what_a_device_updates_is_refused_alike(void **state)
{
    (void)state;
    for (int i = first_row; i < 8; i += rows_apart) {
        struct hst_config config = *KEPT(.device = "far", .hbm_bytes = 64u << 20);
        toy_poison = i % 2 ? HUGE_GRADIENT : NAN;
        config.clip = i & 2 ? 1e30 : HST_NONE;
        config.precision = i & 4 ? HST_PRECISION_BF16 : HST_PRECISION_FP32;
        check_stop(config, UNITS[i % UNIT_COUNT]);
    }
    toy_poison = NAN;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_fp32),
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_bf16),
        cmocka_unit_test(a_skipped_step_leaves_no_trace_in_fp16),
        cmocka_unit_test(a_step_with_which_v_would_overflow_is_skipped_like_others),
        cmocka_unit_test(a_huge_gradient_that_is_clipped_is_no_overflow),
        cmocka_unit_test(a_run_ends_with_v_untouched_where_it_would_overflow),
        cmocka_unit_test(what_a_device_updates_is_refused_alike),
        cmocka_unit_test(without_it_the_run_ends_and_the_store_goes_on_from_its_last_version),
    };
    if (test_is_short()) {
        turn = test_turn();
        rows_apart = 4;
        first_row = (int)(turn % 4);
    }
    alarm(200); /* a hang ends the test */
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
