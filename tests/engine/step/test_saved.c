/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations that units keep: what a forward leaves in that memory its backward finds, whatever
 * comes in between, and as many units have some as the budget has room for.
 */
#include "session/engine_state.h"
#include "toy_run.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAVED = 5000, MICROS = 3, ABLE = TOY_UNITS - 2, STEPS = 3 };

static const struct {
    const char *device, *place;
} HOMES[] = {
    {NULL, "states=dram,weights=dram"},
    {NULL, "states=nvme,weights=nvme,grads=nvme"},
    {"far", "states=hbm"},
    {"far", "weights=dram,acts=hbm"},
    {"far", "states=nvme,weights=nvme"},
};

enum between { NOTHING, EVALUATIONS, DRAINS, BETWEEN_COUNT };

static int byte_of(uint32_t unit, uint32_t micro, uint64_t step)
{
    return (int)(step * 31 + unit * 5 + micro) & 0xff;
}

/* A forward writes, a backward checks and writes something else: nobody needs it any more. */
static void use(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep, uint64_t step,
                const struct hst_unit_view *view)
{
    unsigned char *bytes = view->saved.data;
    assert_int_equal(view->saved.size_bytes, bytes ? SAVED * MICROS : 0);
    assert_int_equal((uintptr_t)bytes % 4096, 0);
    toy_must(engine, hst_stream_sync(hst_engine_stream(engine)));
    for (uint32_t i = 0; bytes && i < SAVED * MICROS; i++) {
        int expected = byte_of(unit, i / SAVED, step);
        if (sweep == HST_BACKWARD)
            assert_int_equal(bytes[i], expected);
        bytes[i] = (unsigned char)(sweep == HST_BACKWARD ? ~expected : expected);
    }
}

static void visit(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep, uint64_t step,
                  uint32_t *given)
{
    const struct hst_unit_view *view;
    toy_must(engine, hst_unit_acquire(engine, unit, sweep, hst_engine_stream(engine), &view));
    *given += view->saved.data != NULL;
    use(engine, unit, sweep, step, view);
    if (sweep == HST_BACKWARD) {
        toy_must(engine, toy_add_gradients(engine, unit, view, 1));
        toy_must(engine, hst_unit_grad_ready(engine, unit));
    }
    toy_must(engine, hst_unit_release(engine, unit));
}

/* Units that were given memory, of a step. */
static uint32_t run_step(struct hst_engine *engine, uint64_t step, enum between between)
{
    uint32_t forward = 0, backward = 0, evaluated = 0;
    struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    struct hst_step_stats stats;
    struct hst_step at;
    toy_must(engine, hst_step_begin(engine, &in, &at));
    for (uint32_t u = 0; u + 1 < TOY_UNITS; u++)
        visit(engine, u, HST_FORWARD, step, &forward);
    for (uint32_t u = TOY_UNITS; u-- > 0;)
        visit(engine, u, HST_BACKWARD, step, &backward);
    toy_must(engine, hst_step_end(engine, &stats));
    for (uint32_t u = 0; between == EVALUATIONS && u + 1 < TOY_UNITS; u++)
        visit(engine, u, HST_EVAL, step, &evaluated);
    if (between == DRAINS)
        toy_must(engine, hst_engine_drain(engine, &stats));
    assert_int_equal(evaluated, 0);
    assert_int_equal(forward, backward);
    return forward;
}

/* Sealed and loaded. */
static struct hst_engine *opened(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    toy_must(engine, toy_seal_and_load(engine));
    return engine;
}

static struct hst_config config_of(size_t homes)
{
    return *TOY_CONFIG(.device = HOMES[homes].device, .place = HOMES[homes].place,
                       .hbm_bytes = HOMES[homes].device ? 64u << 20 : 0, .threads = 2,
                       .tile_elements = 8192);
}

static void what_a_forward_leaves_its_backward_finds(void **state)
{
    (void)state;
    for (size_t homes = 0; homes < sizeof HOMES / sizeof *HOMES; homes++)
        for (int between = 0; between < BETWEEN_COUNT; between++) {
            struct hst_config config = config_of(homes);
            struct hst_engine *engine = opened(&config);
            for (uint64_t step = 1; step <= STEPS; step++)
                assert_int_equal(run_step(engine, step, (enum between)between), ABLE);
            hst_engine_destroy(&engine);
        }
}

static uint64_t computed_in(const struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    return p->compute_tier == HST_TIER_HBM ? p->hbm_bytes : p->dram_bytes;
}

/* Nothing leaves for them: they take what is left. */
static void as_many_are_kept_as_there_is_room_for(void **state)
{
    (void)state;
    for (size_t homes = 0; homes < sizeof HOMES / sizeof *HOMES; homes++) {
        struct hst_config config = config_of(homes);
        config.activations = HST_ACTIVATIONS_RECOMPUTE;
        struct hst_engine *engine = opened(&config);
        uint64_t least = computed_in(engine), each = (SAVED * MICROS + 4095) / 4096 * 4096;
        assert_int_equal(run_step(engine, 1, NOTHING), 0);
        hst_engine_destroy(&engine);
        config.activations = HST_ACTIVATIONS_AUTO;
        for (uint32_t kept = 0; kept <= ABLE; kept++) {
            uint64_t *budget = config.device ? &config.hbm_bytes : &config.dram_bytes;
            *budget = least + (kept + 1) * each - 4096;
            engine = opened(&config);
            assert_int_equal(computed_in(engine), least + kept * each);
            assert_int_equal(run_step(engine, 1, NOTHING), kept);
            hst_engine_destroy(&engine);
        }
    }
}

static void expect_refused(const struct hst_unit_desc *desc, const char *why)
{
    uint32_t unit;
    struct hst_engine *engine = toy_created(TOY_CONFIG(.place = "states=dram"));
    assert_int_equal(hst_unit_add(engine, desc, &unit), -EINVAL);
    assert_non_null(strstr(hst_engine_error(engine)->message, why));
    hst_engine_destroy(&engine);
}

static void what_has_no_forward_as_a_whole_keeps_none(void **state)
{
    (void)state;
    struct hst_param_desc matrix = {.name = "m", .dim_count = 2, .dims = {128, 64}};
    struct hst_unit_desc desc = {.name = "u",
                                 .params = &matrix,
                                 .param_count = 1,
                                 .flags = HST_UNIT_NO_FORWARD,
                                 .saved_bytes = 1};
    expect_refused(&desc, "no forward");
    desc.flags = 0;
    desc.slices.block_rows = 64;
    expect_refused(&desc, "can be cut into slices");
    struct hst_config config = *TOY_CONFIG(.place = "states=dram");
    struct hst_engine *engine;
    config.activations = (enum hst_activations)7;
    assert_int_equal(hst_engine_create(&config, &engine), -EINVAL);
}

static int set_up(void **state)
{
    toy_saved_bytes = SAVED;
    return toy_make_store(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_forward_leaves_its_backward_finds),
        cmocka_unit_test(as_many_are_kept_as_there_is_room_for),
        cmocka_unit_test(what_has_no_forward_as_a_whole_keeps_none),
    };
    return cmocka_run_group_tests_name("engine/saved", tests, set_up, toy_remove_store);
}
