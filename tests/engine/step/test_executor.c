/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An executor without an engine: a model that was laid out and placed, drives that are memory, and
 * an owner that only counts what it is asked. The gradient of a parameter is the parameter itself.
 */
#include "exec/moves.h"
#include "exec/streams.h"
#include "exec/tile_job.h"
#include "exec/visit/execute.h"
#include "exec/visit/visits.h"
#include "plan/placement_checks.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TILE   4096u
#define STEPS  3u
#define NORMAL UINT32_MAX

/* ---- drives that are memory ---- */

struct ram {
    struct extents base;
    const struct placement *placement;
    unsigned char *bytes[EXTENT_KIND_COUNT]; /* of all extents of a kind, each in room_of */
    struct transfer *flying[512];
    uint32_t count;
    uint32_t fails_in; /* transfers from now; NORMAL: none */
};

static uint64_t room_of(const struct placement *p, enum extent_kind kind)
{
    return kind == EXTENT_ACTS ? PLACEMENT_ACT_BYTES : record_layout(p->optimizer, TILE).bytes;
}

static unsigned char *ram_at(struct ram *ram, enum extent_kind kind, uint32_t index)
{
    return ram->bytes[kind] + index * room_of(ram->placement, kind);
}

static void begin(struct ram *ram, struct transfer *transfer)
{
    transfer->error = ram->fails_in == 0 ? -EIO : 0;
    ram->fails_in -= ram->fails_in != NORMAL && ram->fails_in > 0;
    assert_true(ram->count < sizeof ram->flying / sizeof ram->flying[0]);
    ram->flying[ram->count++] = transfer;
}

static int ram_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                    struct transfer *transfer)
{
    struct ram *ram = (struct ram *)extents;
    uint64_t bytes;
    (void)placement_extent(ram->placement, kind, index, &bytes);
    memcpy(buffer, ram_at(ram, kind, index), bytes);
    extents->counters.read_bytes += bytes;
    begin(ram, transfer);
    return 0;
}

static int ram_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                     struct transfer *transfer)
{
    struct ram *ram = (struct ram *)extents;
    uint64_t bytes;
    (void)placement_extent(ram->placement, kind, index, &bytes);
    memcpy(ram_at(ram, kind, index), buffer, bytes);
    extents->counters.written_bytes += bytes;
    begin(ram, transfer);
    return 0;
}

/* One at a time, the last one first: completions come in any order. */
static int ram_progress(struct extents *extents, uint64_t wait_ns)
{
    struct ram *ram = (struct ram *)extents;
    assert_true(ram->count > 0 || wait_ns != UINT64_MAX); /* it would wait for ever */
    if (ram->count > 0)
        ram->flying[--ram->count]->active = false;
    return 0;
}

static const struct extents_ops RAM_OPS = {ram_read, ram_write, ram_progress, NULL, NULL};

static void ram_open(struct ram *ram, const struct placement *p)
{
    *ram = (struct ram){.base = {.ops = &RAM_OPS}, .placement = p, .fails_in = NORMAL};
    for (int k = 0; k < EXTENT_KIND_COUNT; k++) {
        enum extent_kind kind = (enum extent_kind)k;
        ram->bytes[k] = calloc(placement_extents(p, kind) + 1, room_of(p, kind));
        assert_non_null(ram->bytes[k]);
    }
}

/* ---- the owner ---- */

#define SLOW_BYTES ((size_t)32 << 20)

struct owner {
    struct hst_config config;
    struct optimizer_groups groups;
    struct layout layout;
    struct placement_in plan_in;
    struct placement placement;
    struct standing standing;
    struct report report;
    struct workers *workers;
    struct hst_dev *dev;
    struct hst_stream *stream;
    void *memory;
    struct ram ram;
    struct executor exec;
    unsigned windows, left, failed; /* how often it was told */
    unsigned char *slow;            /* not null: copied in each visit, half to half */
    uint32_t ahead;                 /* visits under way when one was left, at most */
    enum extent_kind failed_kind;
};

static unsigned phases(const void *context, uint64_t number)
{
    (void)context;
    (void)number;
    return 0;
}

static void window_begins(void *context, uint64_t step_window)
{
    struct owner *owner = context;
    (void)step_window;
    owner->windows++;
}

static int order_left(void *context)
{
    struct owner *owner = context;
    owner->left++;
    return 0;
}

static int fail_transfer(void *context, const struct transfer *transfer)
{
    struct owner *owner = context;
    owner->failed++;
    owner->failed_kind = transfer->kind;
    return report_fail(&owner->report, HST_E_READ, transfer->error, "a transfer failed");
}

static int fail_extents(void *context, int native)
{
    struct owner *owner = context;
    return report_fail(&owner->report, HST_E_READ, native, "the drives failed");
}

static struct executor_in executor_in(struct owner *owner)
{
    const struct hst_cpu_adam_ops *adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    return (struct executor_in){
        .config = &owner->config,
        .groups = &owner->groups,
        .layout = &owner->layout,
        .placement = &owner->placement,
        .plan_in = &owner->plan_in,
        .standing = &owner->standing,
        .report = &owner->report,
        .workers = owner->workers,
        .dev = owner->dev,
        .adam = adam,
        .kernel = optimizer_kernel_find(
            optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_FP32, HST_STATE_FP32), adam),
        .arena = owner->memory,
        .host_arena = owner->memory,
        .drive_count = 1,
        .owner = {.context = owner,
                  .phases = phases,
                  .window_begins = window_begins,
                  .order_left = order_left,
                  .fail_transfer = fail_transfer,
                  .fail_extents = fail_extents},
    };
}

static void open_devices(struct owner *owner)
{
    assert_int_equal(workers_create(2, &owner->workers), 0);
    struct hst_parallel parallel = {.run = workers_run, .context = owner->workers, .width = 2};
    struct hst_dev_config config = {.size = sizeof config, .parallel = &parallel};
    struct hst_dev_failure failure;
    assert_int_equal(hst_dev_open("host", &config, &owner->dev, &failure), 0);
    assert_int_equal(hst_dev_budget(owner->dev, 0, owner->placement.dram_bytes), 0);
    assert_int_equal(hst_stream_create(owner->dev, "toy", &owner->stream), 0);
    assert_int_equal(hst_dev_host_alloc(owner->dev, owner->placement.dram_bytes, &owner->memory),
                     0);
}

static float *weights_of(struct owner *owner, uint32_t tile)
{
    bool nvme = placement_weights(&owner->placement, tile).tier == HST_TIER_NVME;
    unsigned char *at = nvme ? ram_at(&owner->ram, EXTENT_WEIGHTS, tile)
                             : moves_home(&owner->exec, EXTENT_WEIGHTS, tile, 0);
    return (float *)(void *)at;
}

static void load(struct owner *owner)
{
    for (uint32_t tile = 0; tile < owner->layout.tile_count; tile++) {
        uint64_t count = layout_tile(&owner->layout, tile).elements;
        for (uint64_t i = 0; i < count; i++)
            weights_of(owner, tile)[i] = sinf((float)(tile * TILE + i) * 0.37f) * 1e-3f;
    }
}

static struct owner *opened(const char *place)
{
    struct owner *owner = calloc(1, sizeof *owner);
    char why[HST_WHY_BYTES];
    assert_non_null(owner);
    owner->config = (struct hst_config){.device = "host",
                                        .precision = HST_PRECISION_FP32,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .clip = 1};
    assert_true(optimizer_groups_read(&owner->config, &owner->groups, why));
    owner->standing = (struct standing){.scale = {.value = 1}, .lr = 1e-5};
    owner->layout = model(TILE);
    owner->plan_in = inputs(&owner->layout, place);
    assert_int_equal(placement_plan(&owner->plan_in, &owner->placement, why, sizeof why), 0);
    open_devices(owner);
    ram_open(&owner->ram, &owner->placement);
    const struct executor_in in = executor_in(owner);
    assert_int_equal(execute_open(&owner->exec, &in), 0);
    executor_attach(&owner->exec, &owner->ram.base, NULL);
    load(owner);
    return owner;
}

static void closed(struct owner *owner)
{
    streams_await_unit(&owner->exec);
    execute_close(&owner->exec);
    for (int kind = 0; kind < EXTENT_KIND_COUNT; kind++)
        free(owner->ram.bytes[kind]);
    hst_dev_host_free(owner->dev, owner->memory, owner->placement.dram_bytes);
    hst_stream_destroy(&owner->stream);
    hst_dev_close(&owner->dev);
    workers_destroy(&owner->workers);
    placement_free(&owner->placement);
    layout_free(&owner->layout);
    free(owner);
}

/* ---- a client ---- */

static int visit(struct owner *owner, uint32_t unit, enum hst_sweep sweep)
{
    struct executor *exec = &owner->exec;
    int rc = streams_follow(exec, owner->stream);
    rc = rc ? rc : execute_reach(exec, unit, sweep);
    if (rc)
        return rc;
    const float *weights = (const float *)(void *)execute_operand(exec, EXTENT_WEIGHTS, 0);
    float *grads = (float *)(void *)execute_operand(exec, EXTENT_GRADS, 0);
    unsigned char *acts = execute_operand(exec, EXTENT_ACTS, 0);
    const uint64_t act_bytes = owner->placement.units[unit].act_bytes;
    for (uint64_t i = 0; sweep == HST_BACKWARD && i < owner->layout.units[unit].elements; i++)
        grads[i] = weights[i];
    if (acts && sweep == HST_FORWARD)
        memset(acts, (int)unit, act_bytes);
    if (acts && sweep == HST_BACKWARD)
        assert_int_equal(acts[act_bytes - 1], unit); /* it came back */
    if (owner->slow)
        rc = hst_stream_copy(owner->stream, owner->slow, owner->slow + SLOW_BYTES, SLOW_BYTES);
    rc = rc ? rc : execute_leave(exec, owner->stream);
    const uint32_t ahead = exec->passages[LANE_COMPUTE].count;
    owner->ahead = ahead > owner->ahead ? ahead : owner->ahead;
    return rc;
}

/* odd: units of the backward in an order that was not declared. */
static int step(struct owner *owner, bool odd)
{
    int rc = execute_begin(&owner->exec);
    for (uint32_t u = 0; u < UNITS && rc == 0; u++)
        rc = visit(owner, u, HST_FORWARD);
    for (uint32_t u = UNITS; u-- > 0 && rc == 0;)
        rc = visit(owner, odd && u > 0 && u < UNITS - 1 ? UNITS - 1 - u : u, HST_BACKWARD);
    rc = rc ? rc : execute_end(&owner->exec);
    owner->standing.number++;
    owner->standing.updates++;
    return rc;
}

static double norm_of_weights(struct owner *owner)
{
    double sum = 0;
    for (uint32_t tile = 0; tile < owner->layout.tile_count; tile++) {
        const float *weights = weights_of(owner, tile);
        for (uint64_t i = 0; i < layout_tile(&owner->layout, tile).elements; i++)
            sum += (double)weights[i] * (double)weights[i];
    }
    return sqrt(sum);
}

static bool are_equal(struct owner *a, struct owner *b)
{
    for (uint32_t tile = 0; tile < a->layout.tile_count; tile++)
        if (memcmp(weights_of(a, tile), weights_of(b, tile),
                   layout_tile(&a->layout, tile).elements * sizeof(float)) != 0)
            return false;
    return true;
}

/* ---- cases ---- */

#define AWAY "weights=nvme,states=nvme,grads=nvme,acts=nvme"

static void a_graph_runs_to_its_end(void **state)
{
    (void)state;
    struct owner *home = opened("weights=dram,states=dram"), *away = opened(AWAY);
    for (uint32_t s = 0; s < STEPS; s++) {
        double norm = norm_of_weights(home);
        assert_int_equal(step(home, false), 0);
        assert_int_equal(step(away, false), 0);
        assert_true(fabs(home->exec.verdict.grad_norm - norm) < 1e-9 * norm);
        assert_true(away->exec.verdict.grad_norm == home->exec.verdict.grad_norm);
        assert_int_equal(execute_drain(&home->exec), 0);
        assert_int_equal(execute_drain(&away->exec), 0);
        assert_true(norm_of_weights(home) < norm); /* each step takes some of each weight */
        assert_true(are_equal(home, away));
    }
    assert_true(home->exec.measure.update.seconds > 0); /* drains made all updates */
    assert_int_equal(home->windows, STEPS);
    assert_int_equal(home->left, 0);
    assert_int_equal(home->ram.base.counters.read_bytes, 0);
    assert_true(away->ram.base.counters.written_bytes > 0);
    closed(home);
    closed(away);
}

static void an_order_that_is_left_is_served_and_learned(void **state)
{
    (void)state;
    struct owner *plain = opened(AWAY), *odd = opened(AWAY);
    for (uint32_t s = 0; s < STEPS; s++) {
        assert_int_equal(step(plain, false), 0);
        assert_int_equal(step(odd, true), 0);
        assert_int_equal(odd->exec.turn.on_demand, s == 0); /* then it is the order */
        assert_int_equal(odd->left, 1);
        assert_true(plain->exec.verdict.grad_norm == odd->exec.verdict.grad_norm);
    }
    assert_int_equal(execute_drain(&plain->exec), 0);
    assert_int_equal(execute_drain(&odd->exec), 0);
    assert_true(are_equal(plain, odd));
    closed(plain);
    closed(odd);
}

/* Whichever transfer fails, the owner is told of it once, and the call returns what it made of
 * it. */
static void a_transfer_that_fails_is_told_to_the_owner(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 200; n += 13)
        for (int odd = 0; odd < 2; odd++) {
            struct owner *owner = opened(AWAY);
            owner->ram.fails_in = n;
            int rc = step(owner, odd);
            rc = rc ? rc : execute_drain(&owner->exec);
            assert_int_equal(rc, -EIO);
            assert_int_equal(owner->failed, 1);
            assert_int_equal(owner->report.error.code, HST_E_READ);
            while (owner->ram.count > 0) /* nothing moves when its memory goes */
                (void)ram_progress(&owner->ram.base, 0);
            closed(owner);
        }
}

static void visits_are_listed_as_the_graph_has_them(void **state)
{
    (void)state;
    struct owner *owner = opened(AWAY);
    assert_int_equal(owner->exec.sealed_count, 2 * UNITS);
    for (uint32_t i = 0; i < 2 * UNITS; i++) {
        const struct hst_visit *visit = &owner->exec.sealed[i];
        assert_int_equal(visit->unit, i < UNITS ? i : 2 * UNITS - 1 - i);
        assert_int_equal(visit->sweep, i < UNITS ? HST_FORWARD : HST_BACKWARD);
    }
    closed(owner);
}

/* A client that waits elsewhere for the host leaves nobody who looks at drives. */
static void a_client_is_two_visits_ahead_of_the_host(void **state)
{
    (void)state;
    struct owner *owner = opened(AWAY);
    owner->slow = calloc(2, SLOW_BYTES);
    assert_non_null(owner->slow);
    for (uint32_t s = 0; s < STEPS; s++)
        assert_int_equal(step(owner, false), 0);
    assert_int_equal(execute_drain(&owner->exec), 0);
    assert_int_equal(owner->ahead, 2);
    free(owner->slow);
    closed(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_runs_to_its_end),
        cmocka_unit_test(an_order_that_is_left_is_served_and_learned),
        cmocka_unit_test(a_transfer_that_fails_is_told_to_the_owner),
        cmocka_unit_test(a_client_is_two_visits_ahead_of_the_host),
        cmocka_unit_test(visits_are_listed_as_the_graph_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
