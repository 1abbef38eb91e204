/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that do not wait for the norm, against those that do, in memory: the same bytes and norms
 * after steps that clip, do not, or have no update, wherever bytes live, whatever comes between.
 * Every fifth row; with `--all` each, in the short form every 29th and two places of five.
 */
#include "exec/program.h"
#include "session/engine_state.h"
#include "short.h"
#include "smallest_budget.h"
#include "toy_run.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 16 };
/* Gradients of each step, times so much: with CLIP those of the large ones are clipped. */
static const float TIMES[STEPS] = {1, 3, 1, 3, 3, 1, 1, 3, 1, 3, 1, 3, 3, 1, 1, 3};

static const struct {
    const char *device, *homes;
    bool shares;     /* some units are resident on the device: their updates wait */
    double streamed; /* share of what is offloaded that the device updates */
    bool half;       /* the states of some tiles are in memory, of the others on drives */
} PLACES[] = {
    {NULL, "states=dram,weights=dram,grads=dram", false, 0, false},
    {NULL, "states=nvme,weights=dram,grads=dram", false, 0, false},
    {NULL, "states=dram,weights=nvme,grads=dram", false, 0, false},
    {NULL, "states=nvme,weights=nvme,grads=dram", false, 0, false},
    {NULL, "states=nvme,weights=nvme,grads=nvme,acts=nvme", false, 0, false},
    {NULL, "states=dram,weights=dram,grads=nvme,acts=nvme", false, 0, false},
    {"far", "states=dram,weights=dram,grads=dram,acts=dram", false, 0, false},
    {"far", "states=nvme,weights=dram,grads=dram,acts=hbm", false, 0, false},
    {"far", "states=nvme,weights=nvme,grads=nvme,acts=nvme", false, 0, false},
    {"far", "acts=hbm", true, 0, false},
    {"far", "acts=nvme", true, 0, false}, /* the others leave memory */
    {"far", "states=dram,weights=dram,grads=dram,acts=dram", false, 0.4, false},
    {"far", "acts=hbm", true, 0.1, false},
    {NULL, "weights=dram,grads=dram,acts=dram", false, 0, true},
    {NULL, "weights=nvme,grads=dram,acts=dram", false, 0, true},
};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

enum between { NOTHING = 0, DRAINS, EVALUATIONS, OTHER_ORDERS, BETWEEN_COUNT };
static const char *const BETWEEN[] = {"nothing", "drains", "evaluations", "other orders"};

struct ran {
    struct toy_saved weights;
    double norms[STEPS];
    uint32_t redone, skipped, optimistic;
};
static struct ran oracle, found; /* large: not on the stack */
static bool all, is_short, own_stream;
static int turn, nth, today;  /* which row, and one in so many is tried, from this one on */
static uint32_t late_eighths; /* of an update that need not wait */

#define OPTIMISTIC(...)                                                                            \
    hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,                    \
               .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 8192,                       \
               .update_time = HST_UPDATE_OPTIMISTIC, __VA_ARGS__)

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* ---- steps ---- */

/* Some units, then an evaluation of all, which the first one was not the beginning of. */
static void evaluate(struct hst_engine *engine, int step)
{
    static const uint32_t orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    const struct hst_unit_view *view;
    for (int i = 0; i < 4; i++) {
        uint32_t unit = orders[step % 3 == 2][i];
        toy_must(engine,
                 hst_unit_acquire(engine, unit, HST_EVAL, hst_engine_stream(engine), &view));
        toy_must(engine, hst_unit_release(engine, unit));
    }
}

static void visit(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep, float times)
{
    const struct hst_unit_view *view;
    toy_must(engine, hst_unit_acquire(engine, unit, sweep, hst_engine_stream(engine), &view));
    if (sweep == HST_BACKWARD) {
        toy_must(engine, toy_add_gradients(engine, unit, view, times));
        toy_must(engine, hst_unit_grad_ready(engine, unit));
    }
    toy_must(engine, hst_unit_release(engine, unit));
}

/* Leaves the order in the forward of one step, in the middle of the backward of another, comes back
 * to it, and visits units twice. */
static void sweep_in_other_orders(struct hst_engine *engine, int step, float times)
{
    static const uint32_t forward[4][5] = {
        {0, 1, 2, 3, 9}, {0, 2, 1, 3, 9}, {0, 1, 2, 3, 9}, {1, 0, 1, 2, 3}};
    static const uint32_t backward[4][TOY_UNITS] = {
        {4, 3, 2, 1, 0}, {4, 3, 2, 1, 0}, {4, 3, 1, 2, 0}, {4, 3, 2, 1, 0}};
    for (int i = 0; i < 5; i++)
        if (forward[step % 4][i] < TOY_UNITS)
            visit(engine, forward[step % 4][i], HST_FORWARD, times);
    for (uint32_t i = 0; i < TOY_UNITS; i++)
        visit(engine, backward[step % 4][i], HST_BACKWARD, times);
}

/* Some unit's gradients are there until the next forward. */
static bool gradients_last(const struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    bool last = engine->exec.verdict.optimistic;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++)
        last |= !placement_is_resident(p, u) && p->units[u].grads.tier != HST_TIER_NVME;
    return last;
}

/* As if the planner had chosen so; it knows no rates here. */
static void leave_late(struct hst_engine *engine)
{
    const struct program *run = &engine->exec.step;
    uint32_t late = 0, early = 0;
    if (engine->exec.verdict.deferred || late_eighths == 0)
        return;
    engine->placement.late_eighths = late_eighths;
    assert_int_equal(program_step(&engine->exec, NULL, engine->exec.verdict.optimistic), 0);
    for (uint32_t i = 0; i < run->graph.node_count; i++) {
        const struct node *node = &run->graph.nodes[i];
        late += node->kind == NODE_UPDATE && node->phases == PHASE_UPDATE;
        early += node->kind == NODE_UPDATE && node->phases == PHASE_BACKWARD;
    }
    assert_true((late > 0) == gradients_last(engine));
    assert_true(early > 0 || late_eighths == 8);
}

/* From load or from the last version to step `last`. Returns the step that it began after. */
static uint64_t run(const struct hst_config *config, bool resume, uint64_t last,
                    enum between between, struct ran *ran)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_step_stats stats;
    uint64_t began = 0;
    size_t bytes;
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    leave_late(engine);
    if (own_stream)
        toy_must(engine, hst_stream_create(hst_engine_device(engine), "own", &toy_stream));
    toy_must(engine,
             resume ? hst_engine_resume(engine, &began, NULL, 0, &bytes) : toy_load(engine));
    for (uint64_t s = began; s < last; s++) {
        struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
        struct hst_step at;
        toy_must(engine, hst_step_begin(engine, &in, &at));
        if (between == OTHER_ORDERS)
            sweep_in_other_orders(engine, (int)s, at.loss_scale * TIMES[s]);
        else
            toy_must(engine, toy_sweep(engine, at.loss_scale * TIMES[s]));
        toy_must(engine, hst_step_end(engine, &stats));
        ran->norms[s] = stats.grad_norm;
        ran->redone += stats.redone;
        ran->skipped += stats.skipped;
        ran->optimistic += stats.update_time == HST_UPDATE_OPTIMISTIC;
        if (between == DRAINS)
            toy_must(engine, hst_engine_drain(engine, &stats));
        if (between == EVALUATIONS)
            evaluate(engine, (int)s);
    }
    if (last == STEPS) {
        ran->weights.used = 0;
        toy_must(engine, toy_save(engine, &ran->weights));
    }
    hst_stream_destroy(&toy_stream);
    hst_engine_destroy(&engine);
    return began;
}

/* What a plan takes. */
static struct taken {
    uint64_t dram, nvme;
} plan_of(const struct hst_config *config)
{
    struct hst_engine *engine = toy_created(config);
    toy_must(engine, toy_describe(engine));
    toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
    struct taken taken = {engine->placement.dram_bytes, engine->placement.nvme_bytes};
    hst_engine_destroy(&engine);
    clear_store();
    return taken;
}

/* A whole run; the DRAM that its plan takes. */
static uint64_t run_and_measure(const struct hst_config *config, struct ran *ran)
{
    uint64_t bytes = plan_of(config).dram;
    run(config, false, STEPS, NOTHING, ran);
    return bytes;
}

/* Twice the first norm of a run that does not clip: in all precisions between both kinds. */
static double clip_of(const struct hst_config *config)
{
    struct hst_config c = *config;
    c.clip = HST_NONE;
    c.durability = "none";
    c.update_time = HST_UPDATE_DEFERRED;
    run(&c, false, 1, NOTHING, &found);
    return 2 * found.norms[0];
}

static void check_same(const char *place, const char *what)
{
    for (int s = 0; s < STEPS; s++)
        if (!(found.norms[s] == oracle.norms[s]) && isfinite(oracle.norms[s]))
            fail_msg("%s, %s: norm %.17g of step %d, %.17g where it waits", place, what,
                     found.norms[s], s + 1, oracle.norms[s]);
    if (found.weights.used != oracle.weights.used ||
        memcmp(found.weights.bytes, oracle.weights.bytes, oracle.weights.used) != 0)
        fail_msg("%s, %s: other weights", place, what);
}

/* A run in memory, made: the oracle. */
static struct hst_config in_memory(enum hst_precision precision)
{
    struct hst_config config = *OPTIMISTIC(.precision = precision, .durability = "none");
    config.clip = clip_of(&config);
    config.place = PLACES[0].homes;
    oracle = (struct ran){0};
    run(&config, false, STEPS, NOTHING, &oracle);
    assert_int_equal(oracle.optimistic, STEPS);
    return config;
}

/* ---- rows ---- */

static void check_row(const struct hst_config *config, enum between between)
{
    char what[64];
    found = (struct ran){0};
    snprintf(what, sizeof what, "%s between", BETWEEN[between]);
    late_eighths = (uint32_t)turn * 5 % 9;
    run(config, false, STEPS, between, &found);
    late_eighths = 0;
    clear_store();
    check_same(config->place, what);
    if (found.redone == 0 || (found.redone + found.skipped == STEPS) != (oracle.skipped > 0))
        fail_msg("%s: %u of %d updates were made again", config->place, found.redone, STEPS);
    assert_int_equal(found.skipped, oracle.skipped);
}

/* Some of what could leave memory does. */
static void halve_budget(struct hst_config *config)
{
    uint64_t most = plan_of(config).dram;
    lower_budget(config, &config->dram_bytes, most, toy_describe);
    config->dram_bytes = (config->dram_bytes + most) / 2;
    assert_true(plan_of(config).dram < most && plan_of(config).nvme > 0);
}

/* On drives second slots are the store's or scratch's; some of these answer out of turn. */
static void set_drives(struct hst_config *config, bool stored)
{
    static char two[64];
    bool sim = !stored && turn % 3 == 0;
    snprintf(two, sizeof two, "%s/0,%s/1", toy_store, toy_store);
    config->durability = stored ? "step" : "none";
    config->store = sim ? two : toy_store;
    config->io_model = sim ? "sim:read=3G,write=2G,lat=80us,jitter=1ms" : NULL;
}

static void set_place(struct hst_config *config, int place)
{
    config->device = PLACES[place].device;
    config->hbm_bytes = config->device ? 64u << 20 : 0;
    config->place = PLACES[place].homes;
    config->gpu_update = config->state == HST_STATE_BF16 ? 0 : PLACES[place].streamed;
    config->dram_bytes = 64u << 20;
    struct hst_config one = *config; /* with two drives each trial would measure the rates */
    one.store = toy_store, one.io_model = NULL;
    if (PLACES[place].shares)
        share_units(&one, 64u << 20, toy_describe);
    if (PLACES[place].half)
        halve_budget(&one);
    if (PLACES[place].shares && strstr(one.place, "s=nvme"))
        lower_budget(&one, &one.dram_bytes, 64u << 20, toy_describe);
    config->hbm_bytes = one.hbm_bytes, config->dram_bytes = one.dram_bytes;
}

static void check_rows(struct hst_config config)
{
    config.clip = config.loss_scale > 0 ? 1e-3 : clip_of(&config);
    struct hst_config waits = config;
    waits.update_time = HST_UPDATE_DEFERRED;
    waits.durability = "none";
    waits.place = PLACES[0].homes;
    oracle = (struct ran){0};
    run(&waits, false, STEPS, NOTHING, &oracle);
    assert_int_equal(oracle.redone, 0);
    for (int p = 0; p < PLACE_COUNT; p++)
        for (int b = 0; b < BETWEEN_COUNT; b++) {
            if ((!all && turn++ % nth) || (PLACES[p].shares && config.state == HST_STATE_BF16))
                continue; /* the host updates all of those */
            set_drives(&config, turn / nth % 2);
            set_place(&config, p);
            check_row(&config, (enum between)b);
        }
}

/* Without a clip there is nothing to wait for; the next forward has a share all the same. */
static void bytes_are_those_of_an_update_of_which_none_is_left(void **state)
{
    (void)state;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
        struct hst_config config = *OPTIMISTIC(.clip = HST_NONE, .durability = "none");
        config.precision = (enum hst_precision)precision;
        config.update_time = HST_UPDATE_AUTO;
        config.place = PLACES[0].homes;
        oracle = (struct ran){0};
        run(&config, false, STEPS, NOTHING, &oracle);
        for (int p = 0; p < PLACE_COUNT; p++)
            for (int b = 0; b < BETWEEN_COUNT; b++) {
                if (!all && turn++ % (is_short ? nth : nth / 2 + 1))
                    continue;
                config.durability = turn % 2 ? "step" : "none";
                set_place(&config, p);
                late_eighths = (uint32_t)turn * 5 % 9;
                found = (struct ran){0};
                if (turn % 2) /* ends and is resumed */
                    run(&config, false, STEPS / 2, (enum between)b, &found);
                run(&config, turn % 2, STEPS, (enum between)b, &found);
                late_eighths = 0;
                clear_store();
                check_same(config.place, BETWEEN[b]);
            }
    }
}

static void bytes_are_those_of_the_update_that_waits_in_fp32(void **state)
{
    (void)state;
    check_rows(*OPTIMISTIC(.precision = HST_PRECISION_FP32));
}

static void bytes_are_those_of_the_update_that_waits_in_bf16(void **state)
{
    (void)state;
    check_rows(*OPTIMISTIC(.precision = HST_PRECISION_BF16));
    check_rows(*OPTIMISTIC(.precision = HST_PRECISION_BF16, .state = HST_STATE_BF16));
}

static void bytes_are_those_of_the_update_that_waits_in_fp16(void **state)
{
    (void)state;
    check_rows(*OPTIMISTIC(.precision = HST_PRECISION_FP16));
    check_rows(*OPTIMISTIC(.precision = HST_PRECISION_FP16, .loss_scale = 0x1p18)); /* skips some */
}

/* Whatever lives on drives, and above all where a step leaves the order before it is settled. */
static void drives_have_second_slots_without_a_store(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_BF16);
    for (int i = 0; i < PLACE_COUNT * BETWEEN_COUNT; i++) {
        int place = i / BETWEEN_COUNT, between = i % BETWEEN_COUNT;
        bool drives = PLACES[place].half || strstr(PLACES[place].homes, "s=nvme");
        bool leaves = between == OTHER_ORDERS && (!is_short || place % 3 == today % 3);
        if (!drives || (!all && turn++ % (nth / 2 + 1) && !leaves))
            continue;
        set_drives(&config, false);
        set_place(&config, place);
        check_row(&config, (enum between)between);
    }
}

/* Ends after each step, drained or not; goes on with an update of the other kind. */
static void a_run_that_ends_is_resumed_exactly(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_BF16);
    config.durability = "step";
    for (int p = is_short ? turn % 3 : 0; p < 5; p += is_short ? 3 : 1) {
        config.place = PLACES[p].homes;
        for (int between = NOTHING; between <= DRAINS; between++) {
            uint64_t began = 0;
            late_eighths = (uint32_t)p * 2;
            found = (struct ran){0};
            run(&config, false, 2, (enum between)between, &found);
            for (uint64_t last = 3; last <= STEPS; last++) {
                config.update_time = last % 2 ? HST_UPDATE_DEFERRED : HST_UPDATE_OPTIMISTIC;
                uint64_t least = between == DRAINS ? last - 1 : began;
                began = run(&config, true, last, (enum between)between, &found);
                assert_in_range(began, least, last - 1);
            }
            config.update_time = HST_UPDATE_OPTIMISTIC;
            run(&config, true, STEPS, NOTHING, &found);
            clear_store();
            check_same(config.place, between == DRAINS ? "drained, resumed" : "left, resumed");
        }
    }
    late_eighths = 0;
}

/* Deferred, then optimistic for a trial, then deferred again, as too many steps clip. */
static void the_engine_changes_between_both(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_FP16);
    config.update_time = HST_UPDATE_AUTO;
    static const int places[] = {1, 3, 4}; /* weights follow from states: they need no slot */
    for (int p = 0; p < 3; p++) {
        config.place = PLACES[places[p]].homes;
        config.durability = "step";
        found = (struct ran){0};
        run(&config, false, STEPS, NOTHING, &found);
        clear_store();
        check_same(config.place, "left to the engine");
        assert_in_range(found.optimistic, 1, STEPS - 1);
    }
    config.place = PLACES[1].homes; /* weights in memory have one slot */
    config.precision = HST_PRECISION_BF16;
    found = (struct ran){0};
    run(&config, false, STEPS, NOTHING, &found);
    clear_store();
    assert_int_equal(found.optimistic, 0);
}

/* With a device that computes, memory holds weights and states twice where there is room. */
static void the_engine_takes_second_slots_where_there_is_room(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_BF16);
    config.update_time = HST_UPDATE_AUTO;
    config.device = "far";
    config.hbm_bytes = 64u << 20;
    for (int p = 6; p <= 7; p++) {
        config.place = PLACES[p].homes;
        uint64_t bytes[2];
        for (int room = 1; room >= 0; room--) {
            config.durability = p == 6 ? "none" : "step";
            config.dram_bytes = room ? 64u << 20 : bytes[1] - 1;
            found = (struct ran){0};
            bytes[room] = run_and_measure(&config, &found);
            clear_store();
            check_same(config.place, room ? "room for slots" : "no room for slots");
            assert_in_range(found.optimistic, room, room ? STEPS - 1 : 0);
        }
        assert_true(bytes[0] < bytes[1]);
    }
    config.dram_bytes = 64u << 20;
    config.durability = "3"; /* what is on drives has one slot then */
    found = (struct ran){0};
    run(&config, false, STEPS, NOTHING, &found);
    clear_store();
    assert_int_equal(found.optimistic, 0);
}

/* Without a store, states whose home is a drive are there twice where the budget has room. */
static void the_engine_takes_second_slots_on_drives_where_there_is_room(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_BF16);
    config.device = "far";
    config.hbm_bytes = 64u << 20;
    config.place = PLACES[7].homes;
    config.update_time = HST_UPDATE_DEFERRED;
    uint64_t once = plan_of(&config).nvme;
    config.update_time = HST_UPDATE_AUTO;
    for (int room = 0; room < 2; room++) {
        config.nvme_bytes = 2 * once - !room;
        assert_int_equal(plan_of(&config).nvme, room ? 2 * once : once);
        found = (struct ran){0};
        run(&config, false, STEPS, NOTHING, &found);
        check_same(config.place, room ? "room on drives" : "no room on drives");
        assert_in_range(found.optimistic, room, room ? STEPS - 1 : 0);
    }
}

/* When it changes from one to the other the device's updates are on the engine's stream, and may be
 * there still when the client computes on its own. */
static void what_the_device_updates_is_waited_for_on_any_stream(void **state)
{
    (void)state;
    struct hst_config config = in_memory(HST_PRECISION_BF16);
    config.update_time = HST_UPDATE_AUTO;
    config.device = "far";
    config.place = "acts=hbm";
    share_units(&config, 64u << 20, toy_describe);
    found = (struct ran){0};
    own_stream = true;
    setenv("HOISTWAY_FAR", "late:100", 1);
    run(&config, false, STEPS, NOTHING, &found);
    unsetenv("HOISTWAY_FAR");
    own_stream = false;
    check_same(config.place, "on a stream of its own");
    assert_in_range(found.optimistic, 1, STEPS - 1);
}

/* Resident units' updates wait, so they need no second slot; where all wait there is no choice. */
static void what_waits_needs_no_second_slot(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hst_config config =
            *OPTIMISTIC(.durability = "step", .device = "far", .precision = HST_PRECISION_FP16);
        config.update_time = HST_UPDATE_AUTO;
        config.hbm_bytes = 64u << 20;
        if (i == 1) { /* the others' states are on drives, and weights follow from them */
            share_units(&config, 64u << 20, toy_describe);
            lower_budget(&config, &config.dram_bytes, 64u << 20, toy_describe);
        }
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_describe(engine));
        toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
        assert_false(engine->plan_in.second_slots);
        assert_int_equal(engine->chooses, i == 1);
        hst_engine_destroy(&engine);
    }
}

/* ---- what cannot be ---- */
static void refuse(const struct hst_config *config, const char *what)
{
    struct hst_engine *engine = toy_created(config);
    const struct hst_error *error = hst_engine_error(engine);
    toy_must(engine, toy_describe(engine));
    assert_int_equal(hst_engine_seal(engine, HST_ORDER_FORWARD), -EINVAL);
    if (error->code != HST_E_VALUE || !strstr(error->message, what))
        fail_msg("E%d %s; want \"%s\"", error->code, error->message, what);
    hst_engine_destroy(&engine);
}

static void what_has_no_second_slot_is_refused(void **state)
{
    (void)state;
    refuse(OPTIMISTIC(.durability = "7", .place = PLACES[1].homes), "--durability step, or none");
    refuse(OPTIMISTIC(.durability = "3", .place = PLACES[2].homes), "--durability step");
    refuse(OPTIMISTIC(.durability = "none", .device = "far", .hbm_bytes = 64u << 20,
                      .place = "weights=hbm,grads=hbm,states=hbm"),
           "the GPU updates");
    struct hst_error error = {0};
    struct hst_engine *engine;
    struct hst_config config = *OPTIMISTIC(.error = &error);
    config.update_time = (enum hst_update_time)7;
    assert_int_equal(hst_engine_create(&config, &engine), -EINVAL);
    assert_non_null(strstr(error.message, "update_time"));
}

static void memory_holds_weights_and_states_twice(void **state)
{
    (void)state;
    struct hst_config config = *OPTIMISTIC(.durability = "none", .place = PLACES[0].homes);
    uint64_t table[2][HST_CLASS_COUNT];
    for (int twice = 0; twice < 2; twice++) {
        config.update_time = twice ? HST_UPDATE_OPTIMISTIC : HST_UPDATE_DEFERRED;
        struct hst_engine *engine = toy_created(&config);
        toy_must(engine, toy_describe(engine));
        toy_must(engine, hst_engine_seal(engine, HST_ORDER_FORWARD));
        for (int class = 0; class < HST_CLASS_COUNT; class ++)
            table[twice][class] = engine->placement.table[class][HST_TIER_DRAM];
        assert_in_range(engine->placement.dram_bytes, 1, config.dram_bytes);
        hst_engine_destroy(&engine);
    }
    for (int class = 0; class < HST_CLASS_COUNT; class ++) {
        bool slots = class == HST_CLASS_WEIGHTS || class == HST_CLASS_STATES;
        assert_int_equal(table[1][class], table[0][class] * (slots ? 2 : 1));
    }
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    is_short = !all && test_is_short();
    nth = is_short ? 29 : 5;
    today = turn = is_short ? (int)(test_turn() % 29) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_update_that_waits_in_fp32),
        cmocka_unit_test(bytes_are_those_of_the_update_that_waits_in_bf16),
        cmocka_unit_test(bytes_are_those_of_an_update_of_which_none_is_left),
        cmocka_unit_test(bytes_are_those_of_the_update_that_waits_in_fp16),
        cmocka_unit_test(drives_have_second_slots_without_a_store),
        cmocka_unit_test(a_run_that_ends_is_resumed_exactly),
        cmocka_unit_test(the_engine_changes_between_both),
        cmocka_unit_test(the_engine_takes_second_slots_where_there_is_room),
        cmocka_unit_test(the_engine_takes_second_slots_on_drives_where_there_is_room),
        cmocka_unit_test(what_the_device_updates_is_waited_for_on_any_stream),
        cmocka_unit_test(what_waits_needs_no_second_slot),
        cmocka_unit_test(what_has_no_second_slot_is_refused),
        cmocka_unit_test(memory_holds_weights_and_states_twice),
    };
    alarm(all ? 1100 : 400); /* a hang ends the test */
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
