/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units that are cut where budgets are too small for them as they are: the bytes of a run in which
 * they are whole, wherever everything lives; what a client sees of it; stores that do not know.
 */
#include "cases.h"
#include "session/engine_state.h"
#include "smallest_budget.h"
#include "tall_client.h"
#include "toy_run.h"

#include <errno.h>
#include <hoistway/ckpt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STEPS 4
#define MOST  ((uint64_t)64 << 20)

struct run {
    struct tall_saved saved;
    double norms[STEPS];
    size_t visits;
};
static struct run oracle, other; /* large: not on the stack */

static void steps(struct hst_engine *engine, int first, int end, struct run *run)
{
    struct hst_step_stats stats;
    for (int s = first; s < end; s++) {
        toy_must(engine, tall_step(engine, &stats, &run->visits));
        run->norms[s] = stats.grad_norm;
    }
}

static struct hst_engine *sealed(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    toy_must(engine, tall_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    return engine;
}

static void forget_store(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* Evaluations in the middle change nothing. */
static void whole_run(const struct hst_config *config, struct run *run)
{
    struct hst_engine *engine = sealed(config);
    toy_must(engine, tall_load(engine));
    steps(engine, 0, 2, run);
    toy_must(engine, tall_evaluate(engine));
    toy_must(engine, tall_evaluate(engine));
    steps(engine, 2, STEPS, run);
    toy_must(engine, tall_save(engine, &run->saved));
    hst_engine_destroy(&engine);
}

static void same_as_oracle(void)
{
    assert_int_equal(other.saved.used, oracle.saved.used);
    assert_memory_equal(other.saved.bytes, oracle.saved.bytes, sizeof oracle.saved.bytes);
    assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
}

/* The smallest that would do. */
static uint64_t smallest(struct hst_config config, enum hst_tier tier)
{
    struct hst_memory memory;
    config.plan = HST_PLAN_ELSEWHERE;
    *(tier == HST_TIER_HBM ? &config.hbm_bytes : &config.dram_bytes) = 4096;
    struct hst_engine *engine = toy_created(&config);
    toy_must(engine, tall_describe(engine));
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -ENOSPC);
    toy_must(engine, hst_engine_memory(engine, &memory));
    hst_engine_destroy(&engine);
    return memory.total[tier];
}

/* Of slices, which alone fit. */
static struct hst_config tightened(struct hst_config config)
{
    if (config.device)
        config.hbm_bytes = smallest(config, HST_TIER_HBM);
    else
        config.dram_bytes = smallest(config, HST_TIER_DRAM);
    return config;
}

static void run_smallest(const struct hst_config *config)
{
    struct hst_config tight = tightened(*config);
    whole_run(&tight, &other);
    assert_true(other.visits > 2 * TALL_UNITS);
    same_as_oracle();
}

static void check_everywhere(enum hst_precision precision, enum hst_state state, double clip)
{
    static const char *const places[] = {"states=dram,weights=dram", "states=nvme",
                                         "weights=nvme,states=nvme,grads=nvme,acts=nvme"};
    static const uint32_t tiles[] = {4096, 16384, 12288};
    whole_run(TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .threads = 2),
              &oracle);
    assert_int_equal(oracle.visits, 2 * TALL_UNITS - 1); /* the head has no forward */
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        run_smallest(TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .threads = 2,
                                .place = places[i], .tile_elements = tiles[i]));
        run_smallest(TOY_CONFIG(.precision = precision, .state = state, .clip = clip, .threads = 2,
                                .device = "far", .place = places[i], .tile_elements = tiles[i]));
    }
}

static void the_bytes_are_those_of_whole_units(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        tall_tied = tied;
        check_everywhere(HST_PRECISION_FP32, HST_STATE_FP32, 0.5);
        check_everywhere(HST_PRECISION_BF16, HST_STATE_FP32, HST_NONE);
        check_everywhere(HST_PRECISION_FP16, HST_STATE_FP32, 0.5);
    }
    check_everywhere(HST_PRECISION_BF16, HST_STATE_BF16, 0.5);
    tall_tied = false;
}

/* A page less than whole units need leaves room for some slices' states; copies are late. */
static void some_slices_are_resident(void **state)
{
    (void)state;
    struct hst_config far =
        *TOY_CONFIG(.device = "far", .threads = 2, .tile_elements = 4096,
                    .precision = HST_PRECISION_FP32, .place = "acts=dram", .gpu_update = 0.5);
    whole_run(TOY_CONFIG(.threads = 1), &oracle);
    tall_whole = true;
    far.hbm_bytes = smallest(far, HST_TIER_HBM) - 4096;
    tall_whole = false;
    struct hst_engine *engine = sealed(&far);
    assert_non_null(engine->layout.whole);
    assert_in_range(engine->placement.resident_units, 1, engine->layout.unit_count - 1);
    assert_true(engine->placement.streamed_tiles > 0);
    hst_engine_destroy(&engine);
    for (unsigned seed = 1; seed <= 3; seed++) {
        char words[40];
        snprintf(words, sizeof words, "delay:%u", seed);
        assert_int_equal(setenv("HOISTWAY_FAR", words, 1), 0);
        whole_run(&far, &other);
        same_as_oracle();
    }
    unsetenv("HOISTWAY_FAR");
}

static void an_optimistic_update_is_exact(void **state)
{
    (void)state;
    whole_run(TOY_CONFIG(.clip = 0.5), &oracle);
    for (int far = 0; far < 2; far++) {
        run_smallest(
            hst_config(.store = toy_store, .durability = "step", .dram_bytes = MOST,
                       .device = far ? "far" : NULL, .batch_tokens = 10, .micro_batch_tokens = 4,
                       .clip = 0.5, .tile_elements = 16384, .precision = HST_PRECISION_FP32,
                       .place = "weights=nvme,states=nvme", .update_time = HST_UPDATE_OPTIMISTIC));
        forget_store();
    }
}

static void a_client_may_leave_the_order_of_other_units(void **state)
{
    (void)state;
    whole_run(TOY_CONFIG(.threads = 2), &oracle);
    tall_swapped = true;
    run_smallest(
        TOY_CONFIG(.threads = 2, .tile_elements = 8192, .place = "weights=nvme,states=nvme"));
    run_smallest(TOY_CONFIG(.device = "far", .precision = HST_PRECISION_FP32, .tile_elements = 8192,
                            .place = "weights=dram,states=nvme"));
    tall_swapped = false;
}

/* ---- stores ---- */

static void resume(const struct hst_config *config, struct run *run)
{
    uint64_t step;
    size_t cursor;
    struct hst_engine *engine = sealed(config);
    toy_must(engine, hst_engine_resume(engine, &step, NULL, 0, &cursor));
    assert_int_equal(step, 2);
    steps(engine, 2, STEPS, run);
    toy_must(engine, tall_save(engine, &run->saved));
    hst_engine_destroy(&engine);
}

/* The units of a store are those that were described, whatever a run made of them. */
static void look_at_store(void)
{
    struct hst_error error = {0};
    struct hst_ckpt *ckpt;
    struct hst_engine *model = toy_created(TOY_CONFIG(.plan = HST_PLAN_ELSEWHERE));
    if (hst_ckpt_open(&(struct hst_ckpt_config){.size = sizeof(struct hst_ckpt_config),
                                                .store = toy_store,
                                                .step = HST_NO_VERSION},
                      &ckpt, &error))
        fail_msg("E%d %s", error.code, error.message);
    toy_must(model, tall_describe(model));
    if (hst_ckpt_model(ckpt, model, &error))
        fail_msg("E%d %s", error.code, error.message);
    hst_ckpt_close(&ckpt);
    hst_engine_destroy(&model);
}

static void a_store_is_resumed_either_way(void **state)
{
    (void)state;
    struct hst_config large =
        *hst_config(.store = toy_store, .durability = "step", .dram_bytes = MOST,
                    .batch_tokens = 10, .micro_batch_tokens = 4, .tile_elements = 4096);
    struct hst_config tight = tightened(large);
    whole_run(TOY_CONFIG(.threads = 1), &oracle);
    for (int cut_first = 0; cut_first < 2; cut_first++) {
        struct hst_engine *engine = sealed(cut_first ? &tight : &large);
        assert_true((engine->layout.whole != NULL) == cut_first);
        toy_must(engine, tall_load(engine));
        steps(engine, 0, 2, &other);
        toy_must(engine, hst_engine_drain(engine, NULL));
        hst_engine_destroy(&engine);
        look_at_store();
        resume(cut_first ? &large : &tight, &other);
        same_as_oracle();
        forget_store();
    }
}

/* ---- what is refused ---- */

static void slices_end_where_tiles_do_or_nothing_is_cut(void **state)
{
    (void)state;
    struct hst_config config =
        *TOY_CONFIG(.tile_elements = 23 * 4096); /* 23 blocks; there are 20 */
    config.dram_bytes = smallest(config, HST_TIER_DRAM) - 4096;
    struct hst_engine *engine = toy_created(&config);
    toy_must(engine, tall_describe(engine));
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -ENOSPC);
    assert_null(engine->layout.whole);
    hst_engine_destroy(&engine);
}

/* What slices keep may be more than what they save. */
static void whole_units_are_told_of_where_they_lack_less(void **state)
{
    (void)state;
    struct hst_config config = *TOY_CONFIG(.tile_elements = 4096);
    tall_whole = true;
    uint64_t whole = smallest(config, HST_TIER_DRAM);
    tall_whole = false;
    assert_true(smallest(config, HST_TIER_DRAM) < whole);
    tall_token_bytes = 1 << 20;
    config.dram_bytes = smallest(config, HST_TIER_DRAM);
    assert_true(config.dram_bytes == whole);
    struct hst_engine *engine = sealed(&config);
    assert_null(engine->layout.whole);
    hst_engine_destroy(&engine);
    tall_token_bytes = 12;
}

/* Smaller buffers leave more in DRAM: what drives have room for with little of it, they have with
 * more. */
static void drives_that_are_too_small_for_whole_units_may_do(void **state)
{
    (void)state;
    struct hst_config config =
        *hst_config(.store = toy_store, .durability = "none", .dram_bytes = 3 << 20,
                    .nvme_bytes = MOST, .batch_tokens = 10, .micro_batch_tokens = 4,
                    .tile_elements = 4096);
    lower_budget(&config, &config.nvme_bytes, MOST, tall_describe);
    config.dram_bytes = 5 << 20; /* enough for whole units, were it not for the drives */
    assert_true(seals(&config, tall_describe));
    tall_whole = true;
    assert_false(seals(&config, tall_describe));
    tall_whole = false;
}

/* One that was given up inside a unit is not gone on with after a step. */
static void an_evaluation_begins_with_the_first_rows(void **state)
{
    (void)state;
    struct hst_config tight = tightened(*TOY_CONFIG(.tile_elements = 4096));
    struct hst_engine *engine = sealed(&tight);
    const struct hst_unit_view *view;
    struct hst_step_stats stats;
    toy_must(engine, tall_load(engine));
    for (int i = 0; i < 3; i++) {
        toy_must(engine, hst_unit_acquire(engine, 0, HST_EVAL, hst_engine_stream(engine), &view));
        assert_true(view->first_row == 0);
        toy_must(engine, hst_unit_release(engine, 0));
        toy_must(engine, i ? hst_engine_drain(engine, NULL) : tall_step(engine, &stats, NULL));
    }
    hst_engine_destroy(&engine);
}

static char told[512]; /* the last line of the log */

static void keep_line(void *context, enum hst_log_level level, const char *line)
{
    (void)context;
    (void)level;
    snprintf(told, sizeof told, "%s", line);
}

static void must_tell(const char *part)
{
    if (!strstr(told, part))
        fail_msg("\"%s\" is not told: %s", part, told);
}

/* Clients know the units that they described. */
static void units_are_told_by_the_clients_numbers(void **state)
{
    (void)state;
    struct hst_config tight = tightened(*TOY_CONFIG(.tile_elements = 4096));
    tight.log = keep_line;
    struct hst_engine *engine = sealed(&tight);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_stats stats;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_stream *stream = hst_engine_stream(engine);
    toy_must(engine, tall_load(engine));
    toy_must(engine, hst_step_begin(engine, &in, &step));
    assert_int_equal(hst_step_end(engine, &stats), -EINVAL);
    must_tell("(0 of 5 are)");
    assert_int_equal(hst_unit_acquire(engine, 4, HST_RECOMPUTE, stream, &view), -EINVAL);
    must_tell("unit 4 is not recomputed");
    toy_must(engine, hst_unit_acquire(engine, 2, HST_BACKWARD, stream, &view));
    must_tell("W601 unit 2 was asked for");
    assert_int_equal(hst_unit_acquire(engine, 3, HST_BACKWARD, stream, &view), -EINVAL);
    must_tell("unit 2 is still acquired");
    hst_engine_destroy(&engine);
}

static void each_slice_has_its_turn(void **state)
{
    (void)state;
    struct hst_config tight = tightened(*TOY_CONFIG(.tile_elements = 4096));
    struct hst_engine *engine = sealed(&tight);
    const struct hst_unit_view *view;
    struct hst_step step;
    struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct hst_stream *stream = hst_engine_stream(engine);
    toy_must(engine, tall_load(engine));
    toy_must(engine, hst_step_begin(engine, &in, &step));
    uint64_t rows = 0;
    for (; rows < TALL_ROWS; rows += view->rows) {
        toy_must(engine, hst_unit_acquire(engine, 0, HST_FORWARD, stream, &view));
        assert_true(view->first_row == rows);
        assert_int_equal(hst_unit_release(engine, 1), -EINVAL);
        assert_int_equal(hst_unit_grad_ready(engine, 0), -EINVAL);
        toy_must(engine, hst_unit_release(engine, 0));
        assert_int_equal(hst_unit_release(engine, 0), -EINVAL);
    }
    assert_int_equal(hst_unit_acquire(engine, 0, HST_FORWARD, stream, &view), -EINVAL);
    assert_int_equal(hst_unit_acquire(engine, TALL_UNITS, HST_FORWARD, stream, &view), -EINVAL);
    hst_engine_destroy(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_whole_units),
        cmocka_unit_test(some_slices_are_resident),
        cmocka_unit_test(an_optimistic_update_is_exact),
        cmocka_unit_test(a_client_may_leave_the_order_of_other_units),
        cmocka_unit_test(a_store_is_resumed_either_way),
        cmocka_unit_test(slices_end_where_tiles_do_or_nothing_is_cut),
        cmocka_unit_test(whole_units_are_told_of_where_they_lack_less),
        cmocka_unit_test(drives_that_are_too_small_for_whole_units_may_do),
        cmocka_unit_test(an_evaluation_begins_with_the_first_rows),
        cmocka_unit_test(units_are_told_by_the_clients_numbers),
        cmocka_unit_test(each_slice_has_its_turn),
    };
    return run_cases(tests, toy_make_store, toy_remove_store);
}
