/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions of an engine's steps, on drives in memory. How long computation takes is the
 * machine's affair and not looked at; where rates of drives are given that dwarf it, a step takes
 * what its bytes take, which the engine counts by itself.
 */
#include "toy_client.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DRIVES "sim:read=3G,write=2G"
#define SLOW   1e3 /* bytes per second */

static struct hst_engine *open_engine(const char *place, double clip)
{
    struct hst_engine *engine = NULL;
    const struct hst_config *config =
        hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                   .threads = 2, .tile_elements = 65536, .store = "drive", .io_model = DRIVES,
                   .place = place, .clip = clip);
    assert_int_equal(hst_engine_create(config, &engine), 0);
    return engine;
}

/* Returns the bytes that moved from and to drives. */
static double run_steps(struct hst_engine *engine, int count)
{
    struct hst_step_stats stats;
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        assert_int_equal(toy_step(engine, &stats), 0);
        bytes += stats.bytes.nvme_read + stats.bytes.nvme_write;
    }
    return (double)bytes;
}

static struct hst_rates half_duplex(double rate)
{
    struct hst_rates rates = {.drive_count = 1};
    for (int r = HST_RATE_READ; r <= HST_RATE_MIXED; r++)
        rates.figures[r].value = rate;
    return rates;
}

static struct hst_prediction predict(const struct hst_engine *engine, const struct hst_rates *rates)
{
    struct hst_prediction p;
    memset(&p, 0xa5, sizeof p);
    assert_int_equal(hst_engine_predict(engine, rates, &p), 0);
    if (p.step_s > 0) {
        assert_string_equal(p.why, "");
        assert_true(p.bound_s > 0 && p.bound_s <= p.step_s * (1 + 1e-9));
        assert_true(p.helps[0].step_s <= p.step_s);
        assert_non_null(p.bound_by);
    } else {
        assert_true(p.why[0] != '\0' && p.bound_s == 0 && !p.bound_by && !p.help_count);
    }
    return p;
}

static void assert_near(double got, double want, double share)
{
    if (!(fabs(got / want - 1) <= share))
        fail_msg("got %g, want %g", got, want);
}

static void what_is_not_known_is_said(void **state)
{
    (void)state;
    struct hst_rates rates = half_duplex(SLOW);
    struct hst_prediction p;
    struct hst_engine *engine = open_engine("states=nvme", 1);
    assert_int_equal(hst_engine_predict(engine, &rates, &p), -EINVAL); /* before seal */
    assert_int_equal(toy_describe(engine), 0);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), 0);
    /* as in a plan: it has measured nothing, and asks the rates */
    assert_non_null(strstr(predict(engine, &rates).why, "the computation's rates are not known"));
    for (int r = 0; r < HST_RATE_COUNT; r++)
        rates.figures[r].value = SLOW;
    assert_true(predict(engine, &rates).step_s > 0);
    rates = half_duplex(SLOW);
    assert_int_equal(toy_load(engine), 0);
    assert_non_null(strstr(predict(engine, &rates).why, "second step"));
    run_steps(engine, 1);
    assert_non_null(strstr(predict(engine, &rates).why, "second step"));
    run_steps(engine, 1);
    assert_non_null(strstr(predict(engine, NULL).why, "drives' rates are not known"));
    rates.figures[HST_RATE_WRITE] = (struct hst_figure){.how = "the drive is full"};
    assert_non_null(strstr(predict(engine, &rates).why, "the drive is full"));
    rates = half_duplex(SLOW);
    assert_true(predict(engine, &rates).step_s > 0);
    hst_engine_destroy(&engine);
}

static void without_drives_no_rates_are_needed(void **state)
{
    (void)state;
    static const double clips[] = {1, HST_NONE};
    for (int i = 0; i < 2; i++) {
        struct hst_engine *engine = open_engine("states=dram,weights=dram", clips[i]);
        assert_int_equal(toy_seal_and_load(engine), 0);
        run_steps(engine, 3);
        struct hst_prediction p = predict(engine, NULL);
        assert_true(p.step_s > 0);
        assert_string_equal(p.helps[0].what, "cores");
        assert_near(p.helps[0].step_s, p.step_s / 2, 1e-9);
        assert_true(strcmp(p.bound_by, "compute") == 0 || strcmp(p.bound_by, "update") == 0);
        hst_engine_destroy(&engine);
    }
}

/* Of a run from its beginning to its end. With clipping: without, what the drain finds read ahead
 * is read in vain. */
static double bytes_of_run(const char *place, int steps)
{
    struct hst_step_stats stats;
    struct hst_engine *engine = open_engine(place, 1);
    assert_int_equal(toy_seal_and_load(engine), 0);
    double bytes = run_steps(engine, steps);
    assert_int_equal(hst_engine_drain(engine, &stats), 0);
    hst_engine_destroy(&engine);
    return bytes + (double)(stats.bytes.nvme_read + stats.bytes.nvme_write);
}

static void slow_drives_take_what_their_bytes_take(void **state)
{
    (void)state;
    static const char *const places[] = {"states=nvme", "states=nvme,weights=nvme",
                                         "states=nvme,weights=nvme,grads=nvme,acts=nvme"};
    for (int i = 0; i < 3; i++) {
        const struct hst_rates rates = half_duplex(SLOW);
        struct hst_engine *engine = open_engine(places[i], 1);
        assert_int_equal(toy_seal_and_load(engine), 0);
        run_steps(engine, 4);
        struct hst_prediction p = predict(engine, &rates);
        double bytes = bytes_of_run(places[i], 6) - bytes_of_run(places[i], 5);
        assert_near(p.step_s, bytes / SLOW, 0.02); /* records are padded */
        assert_near(p.bound_s, bytes / SLOW, 0.02);
        assert_string_equal(p.helps[0].what, "drives");
        assert_near(p.helps[0].step_s, p.step_s / 2, 1e-3);
        assert_true(strcmp(p.bound_by, "read") == 0 || strcmp(p.bound_by, "write") == 0);
        hst_engine_destroy(&engine);
    }
}

static double drives_help(const struct hst_prediction *p)
{
    for (uint32_t i = 0; i < p->help_count; i++)
        if (strcmp(p->helps[i].what, "drives") == 0)
            return p->helps[i].step_s;
    return p->step_s;
}

/* With what they do beside processors that compute. */
static void drives_that_would_help_are_twice_as_fast(void **state)
{
    (void)state;
    struct hst_rates rates = {.drive_count = 1}, faster;
    struct hst_engine *engine = open_engine("states=nvme", 1);
    assert_int_equal(toy_describe(engine), 0);
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), 0);
    for (int r = 0; r < HST_RATE_COUNT; r++)
        rates.figures[r].value = SLOW;
    rates.figures[HST_RATE_MIXED_BUSY].value = SLOW / 2;
    faster = rates;
    for (int r = HST_RATE_READ; r <= HST_RATE_MIXED_BUSY; r++)
        faster.figures[r].value *= 2;
    const struct hst_prediction p = predict(engine, &rates);
    assert_near(predict(engine, &faster).step_s, drives_help(&p), 1e-9);
    assert_true(drives_help(&p) < p.step_s);
    hst_engine_destroy(&engine);
}

static void a_prediction_changes_no_bytes(void **state)
{
    (void)state;
    static struct toy_saved with, without; /* large: not on the stack */
    const struct hst_rates rates = half_duplex(SLOW);
    for (int asks = 0; asks < 2; asks++) {
        struct hst_engine *engine = open_engine("states=nvme,weights=nvme", 1);
        assert_int_equal(toy_seal_and_load(engine), 0);
        for (int s = 0; s < 4; s++) {
            run_steps(engine, 1);
            if (asks)
                (void)predict(engine, &rates);
        }
        assert_int_equal(toy_save(engine, asks ? &with : &without), 0);
        hst_engine_destroy(&engine);
    }
    assert_int_equal(with.used, without.used);
    assert_memory_equal(with.bytes, without.bytes, with.used);
}

static void a_slow_link_takes_what_its_copies_take(void **state)
{
    (void)state;
    struct hst_engine *engine = NULL;
    struct hst_step_stats stats;
    struct hst_rates rates = {.drive_count = 0};
    const struct hst_config *config =
        hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                   .threads = 2, .tile_elements = 65536, .device = "far",
                   .place = "weights=dram,acts=dram");
    assert_int_equal(hst_engine_create(config, &engine), 0);
    assert_int_equal(toy_seal_and_load(engine), 0);
    for (int s = 0; s < 4; s++)
        assert_int_equal(toy_step(engine, &stats), 0);
    assert_non_null(strstr(predict(engine, NULL).why, "link's rates are not known"));
    rates.figures[HST_RATE_H2D].value = SLOW;
    rates.figures[HST_RATE_D2H] = (struct hst_figure){.how = "a copy failed"};
    assert_non_null(strstr(predict(engine, &rates).why, "a copy failed"));
    rates.figures[HST_RATE_D2H] = (struct hst_figure){.value = 1e9 * SLOW};
    struct hst_prediction p = predict(engine, &rates);
    assert_near(p.step_s, (double)stats.bytes.h2d / SLOW, 0.02);
    assert_string_equal(p.helps[0].what, "link");
    assert_string_equal(p.bound_by, "h2d");
    rates.figures[HST_RATE_H2D].value = 1e9 * SLOW;
    rates.figures[HST_RATE_D2H].value = SLOW;
    p = predict(engine, &rates);
    assert_near(p.step_s, (double)stats.bytes.d2h / SLOW, 0.02);
    assert_string_equal(p.bound_by, "d2h");
    hst_engine_destroy(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_known_is_said),
        cmocka_unit_test(without_drives_no_rates_are_needed),
        cmocka_unit_test(slow_drives_take_what_their_bytes_take),
        cmocka_unit_test(drives_that_would_help_are_twice_as_fast),
        cmocka_unit_test(a_slow_link_takes_what_its_copies_take),
        cmocka_unit_test(a_prediction_changes_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
