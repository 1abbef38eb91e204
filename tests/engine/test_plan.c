/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that only plan: the same table as the engine that trains, nothing made on the way, and
 * predictions that are what the one rate that counts says.
 */
#include "plan/graph/simulate.h"
#include "plan/graph/step_graph.h"
#include "session/engine_state.h"
#include "toy_client.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SLOW 1e3
#define FAST 1e15

static char root[] = "hst-plan-XXXXXX", directory[64], second[64];

static int make_root(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(directory, sizeof directory, "%s/one", root);
    snprintf(second, sizeof second, "%s/two", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(root); /* fails where anything was left in it */
}

static struct hst_config config_of(enum hst_plan plan, const char *place)
{
    return *hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                       .threads = 2, .tile_elements = 4096, .store = directory, .place = place,
                       .durability = "none", .plan = plan);
}

static struct hst_engine *sealed(const struct hst_config *config, int expected)
{
    struct hst_engine *engine = NULL;
    assert_int_equal(hst_engine_create(config, &engine), 0);
    assert_int_equal(toy_describe(engine), 0);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), expected);
    return engine;
}

static struct hst_rates rates_of(double rate)
{
    struct hst_rates rates = {.drive_count = 1};
    for (int r = 0; r < HST_RATE_COUNT; r++)
        rates.figures[r].value = rate;
    return rates;
}

static struct hst_prediction predict(const struct hst_engine *engine, const struct hst_rates *rates)
{
    struct hst_prediction p;
    assert_int_equal(hst_engine_predict(engine, rates, &p), 0);
    return p;
}

static void assert_near(double got, double want, double share)
{
    if (!(fabs(got / want - 1) <= share))
        fail_msg("got %g, want %g", got, want);
}

static void a_plan_is_a_plan_and_no_more(void **state)
{
    (void)state;
    uint32_t unit;
    struct hst_step step;
    struct hst_memory memory;
    struct hst_client_memory mine;
    const struct hst_config config = config_of(HST_PLAN_HERE, "states=nvme,weights=nvme");
    struct hst_engine *engine = sealed(&config, 0);
    assert_int_equal(access(directory, F_OK), -1);
    assert_int_equal(hst_engine_memory(engine, &memory), 0);
    assert_true(memory.bytes[HST_CLASS_STATES][HST_TIER_NVME] > 0);
    assert_string_equal(memory.io, "auto");
    assert_int_equal(hst_client_memory(engine, &mine), -EINVAL);
    assert_int_equal(toy_load(engine), -EINVAL);
    const struct hst_step_in in = {.size = sizeof in};
    assert_int_equal(hst_step_begin(engine, &in, &step), -EINVAL);
    assert_int_equal(hst_engine_drain(engine, NULL), -EINVAL);
    assert_int_equal(hst_unit_add(engine, NULL, &unit), -EBUSY);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL);
    hst_engine_destroy(&engine);
    assert_int_equal(access(directory, F_OK), -1);
}

static void its_table_is_that_of_the_engine_that_trains(void **state)
{
    (void)state;
    static const char *const places[] = {NULL, "states=nvme", "states=nvme,weights=nvme",
                                         "states=nvme,weights=nvme,grads=nvme,acts=nvme"};
    static const char *const durabilities[] = {"none", "auto"};
    for (int i = 0; i < 8; i++) {
        struct hst_memory table[2];
        for (int trains = 0; trains < 2; trains++) {
            struct hst_config config =
                config_of(trains ? HST_PLAN_TO_TRAIN : HST_PLAN_HERE, places[i / 2]);
            config.durability = durabilities[i % 2];
            struct hst_engine *engine = sealed(&config, 0);
            assert_int_equal(hst_engine_memory(engine, &table[trains]), 0);
            hst_engine_destroy(&engine);
        }
        assert_memory_equal(table[0].bytes, table[1].bytes, sizeof table[0].bytes);
        assert_memory_equal(table[0].total, table[1].total, sizeof table[0].total);
    }
}

static void what_does_not_fit_is_told_with_the_smallest_placement(void **state)
{
    (void)state;
    struct hst_memory memory;
    struct hst_prediction p;
    struct hst_config config = config_of(HST_PLAN_HERE, NULL);
    config.dram_bytes = 64u << 10;
    struct hst_engine *engine = sealed(&config, -ENOSPC);
    assert_int_equal(hst_engine_error(engine)->code, HST_E_BUDGET);
    assert_int_equal(hst_engine_memory(engine, &memory), 0);
    assert_int_equal(hst_engine_predict(engine, NULL, &p), -EINVAL);
    assert_true(memory.total[HST_TIER_DRAM] > config.dram_bytes);
    hst_engine_destroy(&engine);
    config.dram_bytes = memory.total[HST_TIER_DRAM];
    engine = sealed(&config, 0);
    hst_engine_destroy(&engine);
    config.dram_bytes -= 4096;
    engine = sealed(&config, -ENOSPC);
    hst_engine_destroy(&engine);
    /* for training a refusal is one, and another refusal is none of room */
    config.plan = HST_PLAN_TO_TRAIN;
    engine = sealed(&config, -ENOSPC);
    assert_int_equal(hst_engine_memory(engine, &memory), -EINVAL);
    hst_engine_destroy(&engine);
    config = config_of(HST_PLAN_HERE, "weights=hbm");
    engine = sealed(&config, -EINVAL);
    assert_int_equal(hst_engine_memory(engine, &memory), -EINVAL);
    hst_engine_destroy(&engine);
}

static void what_is_told_of_another_machine_is_not_looked_at(void **state)
{
    (void)state;
    struct hst_memory memory;
    struct hst_engine *engine = NULL;
    struct hst_config config = config_of(HST_PLAN_ELSEWHERE, "states=nvme");
    config.store = "/not/here/one,/not/here/two";
    config.dram_bytes = config.nvme_bytes = UINT64_C(1) << 60;
    engine = sealed(&config, 0);
    assert_int_equal(hst_engine_memory(engine, &memory), 0);
    assert_int_equal(memory.budget[HST_TIER_DRAM], config.dram_bytes);
    assert_int_equal(memory.budget[HST_TIER_NVME], config.nvme_bytes);
    hst_engine_destroy(&engine);
    config.plan = HST_PLAN_HERE; /* where both are refused */
    assert_int_equal(hst_engine_create(&config, &engine), -ENOENT);
    config.store = NULL;
    assert_int_equal(hst_engine_create(&config, &engine), -ENOMEM);
    config.dram_bytes = 64u << 20;
    engine = sealed(&config, 0); /* drives without a directory */
    hst_engine_destroy(&engine);
    config.plan = HST_PLAN_TO_TRAIN;
    engine = sealed(&config, -EINVAL);
    hst_engine_destroy(&engine);
    config = config_of(HST_PLAN_HERE, NULL);
    config.io_model = "sim:read=3G,write=2G";
    assert_int_equal(hst_engine_create(&config, &engine), -EINVAL);
    config.io_model = NULL;
    config.plan = (enum hst_plan)3;
    assert_int_equal(hst_engine_create(&config, &engine), -EINVAL);
}

/* Three tiles on the fast drive for each on the slow one. */
static void drives_share_tiles_by_the_rates_that_are_told(void **state)
{
    (void)state;
    char both[160];
    struct hst_rates rates = rates_of(SLOW);
    struct hst_config config = config_of(HST_PLAN_HERE, "states=nvme");
    snprintf(both, sizeof both, "%s,%s", directory, second);
    config.store = both;
    config.rates = &rates;
    rates.drive_count = 2;
    for (int d = 0; d < 2; d++)
        rates.drives[d].read.value = rates.drives[d].write.value = d ? 1e9 : 3e9;
    struct hst_engine *engine = sealed(&config, 0);
    const struct stripe *stripe = &engine->placement.stripe;
    assert_int_equal(stripe->before[STRIPE_CYCLE][0], 48);
    assert_int_equal(stripe->before[STRIPE_CYCLE][1], 16);
    hst_engine_destroy(&engine);
    rates.drive_count = 3; /* others than these: equal shares */
    engine = sealed(&config, 0);
    assert_int_equal(engine->placement.stripe.before[STRIPE_CYCLE][0], 32);
    hst_engine_destroy(&engine);
    rates.drive_count = 2;
    rates.drives[1].write.value = 0; /* not known */
    engine = sealed(&config, 0);
    assert_int_equal(engine->placement.stripe.before[STRIPE_CYCLE][0], 32);
    hst_engine_destroy(&engine);
}

/* Each row of states by its own; without rates, or with none of the row, as is usual. */
static void updates_prefetch_as_the_rates_say(void **state)
{
    (void)state;
    struct hst_rates rates = rates_of(SLOW);
    struct hst_config config = config_of(HST_PLAN_HERE, "states=dram");
    rates.ahead[HST_AHEAD_FP32] = (struct hst_ahead){.asking = 1, .silent = 2};
    rates.ahead[HST_AHEAD_CODES] = (struct hst_ahead){.asking = 2, .silent = 1};
    struct hst_engine *engine = sealed(&config, 0);
    assert_int_equal(engine->kernel.ahead, 0);
    hst_engine_destroy(&engine);
    config.rates = &rates;
    engine = sealed(&config, 0);
    assert_int_equal(engine->kernel.ahead, HST_AHEAD_NONE);
    hst_engine_destroy(&engine);
    config.precision = HST_PRECISION_BF16;
    engine = sealed(&config, 0);
    assert_int_equal(engine->kernel.ahead, 0);
    hst_engine_destroy(&engine);
    config.state = HST_STATE_8BIT;
    engine = sealed(&config, 0);
    assert_int_equal(engine->kernel.ahead, HST_AHEAD_USUAL);
    hst_engine_destroy(&engine);
}

static double elements_of(const struct hst_engine *engine)
{
    double elements = 0; /* padding, too */
    for (uint32_t u = 0; u < engine->layout.unit_count; u++)
        elements += (double)engine->layout.units[u].elements;
    return elements;
}

static void a_slow_update_takes_what_its_elements_take(void **state)
{
    (void)state;
    struct hst_rates rates = rates_of(FAST);
    const struct hst_config config = config_of(HST_PLAN_HERE, "states=dram,weights=dram");
    struct hst_engine *engine = sealed(&config, 0);
    double elements = elements_of(engine);
    rates.figures[HST_RATE_UPDATE_FP32].value = SLOW;
    struct hst_prediction p = predict(engine, &rates);
    assert_near(p.step_s, elements / SLOW, 1e-6);
    assert_near(p.bound_s, elements / SLOW, 1e-6);
    assert_string_equal(p.bound_by, "update");
    assert_int_equal(p.help_count, 1);
    assert_string_equal(p.helps[0].what, "cores");
    rates = rates_of(FAST);
    rates.figures[HST_RATE_NORM_FP32].value = SLOW;
    assert_near(predict(engine, &rates).step_s, elements / SLOW, 1e-6);
    struct hst_decision decision;
    assert_int_equal(hst_engine_decision(engine, &decision), 0);
    assert_string_equal(decision.update, "deferred");
    assert_string_equal(decision.homes, "usual");
    assert_true(decision.step_s == 0 && decision.usual_step_s == 0);
    hst_engine_destroy(&engine);
}

static void some_of_the_threads_take_what_half_of_them_were_measured_to(void **state)
{
    (void)state;
    struct hst_rates rates = rates_of(FAST);
    struct hst_config config = config_of(HST_PLAN_HERE, "states=dram,weights=dram");
    config.device = "far";
    struct hst_engine *engine = sealed(&config, 0);
    double step_s = elements_of(engine) / SLOW;
    rates.figures[HST_RATE_UPDATE_BF16].value = SLOW;
    assert_near(predict(engine, &rates).step_s, step_s, 1e-3);
    engine->placement.update_threads[0] = 1; /* of 2 */
    rates.figures[HST_RATE_HALF_BF16].value = 0.8 * SLOW;
    assert_near(predict(engine, &rates).step_s, step_s / 0.8, 1e-3);
    rates.figures[HST_RATE_HALF_BF16].value = 0; /* of a file from before there was one */
    assert_near(predict(engine, &rates).step_s, step_s / 0.5, 1e-3);
    hst_engine_destroy(&engine);
}

/* What training measures is of the threads that did it. */
static void what_some_of_the_threads_took_is_not_scaled_again(void **state)
{
    (void)state;
    struct hst_step_stats stats;
    struct hst_rates rates = rates_of(FAST);
    struct hst_config config = config_of(HST_PLAN_TO_TRAIN, "states=dram,weights=dram");
    config.device = "far";
    struct hst_engine *engine = sealed(&config, 0);
    struct measure_work *update = &engine->exec.measure.update;
    assert_int_equal(toy_load(engine), 0);
    engine->placement.update_threads[0] = engine->placement.update_threads[1] = 1;
    for (int s = 0; s < 3; s++)
        assert_int_equal(toy_step(engine, &stats), 0);
    rates.figures[HST_RATE_HALF_BF16].value = 0; /* in a plan this would be half of the rate */
    update->seconds = (double)update->elements / SLOW;
    assert_near(predict(engine, &rates).step_s, elements_of(engine) / SLOW, 1e-2);
    hst_engine_destroy(&engine);
}

static void what_a_gpu_updates_is_taken_for_nothing(void **state)
{
    (void)state;
    struct hst_rates rates = rates_of(FAST);
    struct hst_config config = config_of(HST_PLAN_HERE, "states=hbm,weights=hbm,grads=hbm");
    config.device = "far";
    struct hst_engine *engine = sealed(&config, 0);
    for (int r = HST_RATE_UPDATE_FP32; r <= HST_RATE_NORM_BF16; r++)
        rates.figures[r].value = SLOW; /* the host's */
    struct hst_prediction p = predict(engine, &rates);
    assert_string_equal(p.why, "");
    assert_true(p.step_s < 1);
    hst_engine_destroy(&engine);
}

/* What drives take is what they take in training. */
static void slow_drives_take_as_long_as_in_training(void **state)
{
    (void)state;
    struct hst_rates rates = rates_of(FAST);
    for (int r = HST_RATE_READ; r <= HST_RATE_MIXED; r++)
        rates.figures[r].value = SLOW;
    double step_s[2];
    for (int trains = 0; trains < 2; trains++) {
        struct hst_step_stats stats;
        struct hst_config config = config_of(trains ? HST_PLAN_TO_TRAIN : HST_PLAN_HERE,
                                             "states=nvme,weights=nvme,acts=nvme");
        struct hst_engine *engine = sealed(&config, 0);
        if (trains)
            assert_int_equal(toy_load(engine), 0);
        for (int s = 0; trains && s < 3; s++)
            assert_int_equal(toy_step(engine, &stats), 0);
        struct hst_prediction p = predict(engine, &rates);
        step_s[trains] = p.step_s;
        assert_string_equal(p.helps[0].what, "drives");
        hst_engine_destroy(&engine);
    }
    assert_near(step_s[0], step_s[1], 1e-3);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    static const struct {
        enum hst_rate rate;
        const char *whose;
    } all[] = {{HST_RATE_COMPUTE, "the computation's rates"},
               {HST_RATE_UPDATE_FP32, "the update's"},
               {HST_RATE_NORM_FP32, "the norm's"},
               {HST_RATE_READ, "the drives'"},
               {HST_RATE_WRITE, "the drives'"},
               {HST_RATE_MIXED, "the drives'"}};
    const struct hst_config config = config_of(HST_PLAN_HERE, "states=nvme");
    struct hst_engine *engine = sealed(&config, 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct hst_rates rates = rates_of(FAST);
        rates.figures[all[i].rate] = (struct hst_figure){.how = "it is Sunday"};
        struct hst_prediction p = predict(engine, &rates);
        assert_true(p.step_s == 0 && p.bound_s == 0 && !p.bound_by);
        assert_ptr_equal(strstr(p.why, all[i].whose), p.why);
        assert_non_null(strstr(p.why, "it is Sunday"));
    }
    assert_true(predict(engine, NULL).step_s == 0);
    hst_engine_destroy(&engine);
}

static double simulated(const struct graph *graph, const struct sim_rates *rates)
{
    struct sim sim;
    assert_int_equal(simulate(&(struct sim_in){.graph = graph, .rates = *rates}, &sim), 0);
    return sim.step_s;
}

static void a_coarse_graph_takes_nearly_as_long(void **state)
{
    (void)state;
    static const char *const places[] = {"states=dram,weights=dram", "states=nvme,weights=nvme",
                                         "states=nvme,weights=nvme,grads=nvme,acts=nvme"};
    for (int i = 0; i < 3; i++) {
        const struct hst_config config = config_of(HST_PLAN_HERE, places[i]);
        struct hst_engine *engine = sealed(&config, 0);
        const struct sim_rates rates = {.read = 3e6, .write = 2e6, .mixed = 4e6, .update = 1e6};
        struct graph fine, same, coarse;
        const struct placement_in *in = &engine->plan_in;
        assert_true(engine->layout.tile_count > 70);
        assert_int_equal(step_graph(in, &engine->placement, NULL, false, &fine), 0);
        assert_int_equal(step_graph_coarse(in, &engine->placement, 1000, false, &same), 0);
        assert_int_equal(step_graph_coarse(in, &engine->placement, 20, false, &coarse), 0);
        assert_int_equal(same.node_count, fine.node_count);
        assert_true(simulated(&same, &rates) == simulated(&fine, &rates));
        assert_true(coarse.node_count < fine.node_count || i == 0); /* there a unit is one update */
        assert_near(simulated(&coarse, &rates), simulated(&fine, &rates), 0.15);
        graph_free(&fine);
        graph_free(&same);
        graph_free(&coarse);
        hst_engine_destroy(&engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_a_plan_and_no_more),
        cmocka_unit_test(its_table_is_that_of_the_engine_that_trains),
        cmocka_unit_test(what_does_not_fit_is_told_with_the_smallest_placement),
        cmocka_unit_test(what_is_told_of_another_machine_is_not_looked_at),
        cmocka_unit_test(drives_share_tiles_by_the_rates_that_are_told),
        cmocka_unit_test(updates_prefetch_as_the_rates_say),
        cmocka_unit_test(a_slow_update_takes_what_its_elements_take),
        cmocka_unit_test(some_of_the_threads_take_what_half_of_them_were_measured_to),
        cmocka_unit_test(what_some_of_the_threads_took_is_not_scaled_again),
        cmocka_unit_test(what_a_gpu_updates_is_taken_for_nothing),
        cmocka_unit_test(slow_drives_take_as_long_as_in_training),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(a_coarse_graph_takes_nearly_as_long),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
