/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs, run with nodes that end in any order a machine could have, drained, evaluated and
 * broken off at any moment: nothing stands still, nothing is done twice, and every node finds the
 * right bytes (memory_model.h).   test_engine_walk SEED replays one.
 */
#include "memory_model.h"
#include "plan/graph/graph_build.h"
#include "plan/graph/simulate.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS             20000u
#define STEP_WINDOWS     8u
#define IN_FLIGHT        6u
#define NODES_MOST       512u
#define STEP_WINDOW_ROOM (STEP_WINDOWS + 3u)

static struct seeds seeds;

struct lane_state {
    struct scheduled node[IN_FLIGHT]; /* started, in order */
    uint32_t count, most;
    struct scheduled held; /* its next node, that was not ready when so many were opened; 0: none */
    uint64_t opened;
};

struct run {
    struct graph_case c;
    struct graph graph;
    struct scheduler scheduler;
    struct model model;
    uint64_t seed;
    struct lane_state lane[LANE_COUNT];
    unsigned phases[STEP_WINDOW_ROOM]; /* as opened, or as narrowed */
    bool narrowed[STEP_WINDOW_ROOM], visited[STEP_WINDOW_ROOM], forgot[STEP_WINDOW_ROOM];
    uint8_t started[STEP_WINDOW_ROOM][NODES_MOST], done[STEP_WINDOW_ROOM][NODES_MOST];
    uint64_t steps; /* begun in opened step windows */
    bool pending;   /* after the last opened step window an update is left to do, or to be judged */
    bool broken;    /* off in the middle of a step: nothing more is opened */
};

/* Streams of a device and the client's computations end in order; drives and workers do not. */
static bool ends_in_order(enum lane lane)
{
    return lane == LANE_COMPUTE || lane == LANE_H2D || lane == LANE_D2H;
}

/* ---- nodes ---- */

/* Or it is not run at all. */
static bool is_done(const struct run *r, struct scheduled at)
{
    bool runs = (r->graph.nodes[at.node].phases & r->phases[at.step_window]) != 0;
    return r->done[at.step_window][at.node] > 0 || (!runs && !r->started[at.step_window][at.node]);
}

static void check_deps(const struct run *r, struct scheduled at)
{
    const struct node *n = &r->graph.nodes[at.node];
    for (uint32_t i = 0; i < n->dep_count; i++) {
        uint32_t dep = r->graph.deps[n->first_dep + i];
        if ((dep & DEP_BEFORE) && at.step_window == 0)
            continue;
        struct scheduled on = {at.step_window - (dep & DEP_BEFORE ? 1 : 0), dep & ~DEP_BEFORE};
        if (!is_done(r, on))
            fail_msg("%s: node %u of period %llu starts before its dependency %u", r->c.name,
                     at.node, (unsigned long long)at.step_window, on.node);
    }
}

/* What a reservation holds at the end of a step window that was not cut short is there for its
 * heir: a buffer that came from the pool instead would hold the right bytes too, read once more. */
static void check_kept(const struct run *r, struct scheduled at)
{
    const struct node *nodes = r->graph.nodes;
    uint32_t number = nodes[at.node].reservation[0];
    uint32_t legacy = number == GRAPH_NONE ? GRAPH_NONE : r->graph.reservations[number].legacy;
    if (legacy == GRAPH_NONE || at.step_window == 0 || r->narrowed[at.step_window - 1] ||
        r->forgot[at.step_window - 1])
        return;
    bool held = false;
    for (uint32_t i = 0; i < r->graph.node_count; i++)
        for (unsigned l = 0; l < NODE_RESERVATIONS && r->started[at.step_window - 1][i]; l++)
            held = held || nodes[i].reservation[l] == legacy;
    if (scheduler_was_retained(&r->scheduler, at) != held)
        fail_msg("%s: node %u of period %llu %s its buffer of the period before", r->c.name,
                 at.node, (unsigned long long)at.step_window, held ? "did not get" : "got");
}

static void start(struct run *r, enum lane lane, struct scheduled at)
{
    struct lane_state *l = &r->lane[lane];
    enum node_kind kind = (enum node_kind)r->graph.nodes[at.node].kind;
    check_deps(r, at);
    scheduler_start(&r->scheduler, at);
    check_kept(r, at);
    if (r->started[at.step_window][at.node]++)
        fail_msg("%s: node %u is started twice", r->c.name, at.node);
    l->node[l->count++] = at;
    r->visited[at.step_window] =
        r->visited[at.step_window] || kind == NODE_FORWARD || kind == NODE_BACKWARD;
    if (!ends_in_order(lane) || l->count == 1)
        model_begin(&r->model, at);
}

static void end(struct run *r, enum lane lane)
{
    struct lane_state *l = &r->lane[lane];
    uint32_t i = ends_in_order(lane) ? 0 : pick(&r->seed, l->count);
    struct scheduled at = l->node[i];
    model_end(&r->model, at);
    scheduler_done(&r->scheduler, at);
    r->done[at.step_window][at.node]++;
    memmove(&l->node[i], &l->node[i + 1], (--l->count - i) * sizeof *l->node);
    if (ends_in_order(lane) && l->count > 0)
        model_begin(&r->model, l->node[0]);
}

/* A lane's next node may start, or waits for one that comes earlier and is not done. */
static bool may_start(struct run *r, enum lane lane, struct scheduled *at)
{
    struct scheduled on;
    if (!scheduler_next(&r->scheduler, lane, at))
        return false;
    struct lane_state *l = &r->lane[lane];
    const bool asked = l->opened == r->scheduler.opened && l->held.node == at->node &&
                       l->held.step_window == at->step_window;
    const bool held = asked && scheduler_is_held(&r->scheduler, lane);
    bool ready = scheduler_ready(&r->scheduler, *at);
    if (ready && held)
        fail_msg("%s: node %u is ready, and said to be held", r->c.name, at->node);
    l->held = *at;
    l->opened = ready ? 0 : r->scheduler.opened;
    bool waits = scheduler_waits_for(&r->scheduler, *at, &on);
    assert_true(ready != waits);
    if (waits && (is_done(r, on) || on.step_window > at->step_window ||
                  (on.step_window == at->step_window && on.node >= at->node)))
        fail_msg("%s: node %u of period %llu waits for node %u of period %llu, done or later",
                 r->c.name, at->node, (unsigned long long)at->step_window, on.node,
                 (unsigned long long)on.step_window);
    return ready && l->count < l->most;
}

/* ---- step windows ---- */

static void open_step_window(struct run *r, unsigned phases)
{
    uint64_t number = r->scheduler.opened;
    r->phases[number] = phases;
    scheduler_open(&r->scheduler, phases);
    model_step_window(&r->model, number, r->steps);
    r->steps += (phases & PHASE_BACKWARD) != 0;
    r->pending = (phases & PHASE_BACKWARD) != 0;
}

#define PARTS_LEFT ((unsigned)PHASE_UPDATE | PHASE_REVERT | PHASE_REDO)

/* What the last step has left to do. An optimistic update is judged; a step without one does not
 * count. */
static unsigned parts_left(struct run *r)
{
    if (!r->pending || !r->c.in.optimistic)
        return r->pending ? PHASE_UPDATE : 0;
    static const unsigned left[] = {PHASE_UPDATE, PARTS_LEFT, PHASE_REVERT};
    enum verdict verdict = (enum verdict)pick(&r->seed, 3);
    model_verdict(&r->model, r->scheduler.opened, verdict);
    r->steps -= verdict == VERDICT_SKIPS;
    return left[verdict];
}

/* The step window behind an optimistic step is opened when that can be judged. */
static bool may_open(const struct run *r)
{
    bool judged = !r->c.in.optimistic || !r->pending || r->scheduler.opened == 0;
    for (uint32_t i = 0; !judged && i < r->graph.node_count; i++)
        judged = r->graph.nodes[i].kind == NODE_CLIP && r->done[r->scheduler.opened - 1][i];
    return judged && !r->broken && scheduler_may_open(&r->scheduler);
}

/* Mostly steps; an evaluation or a drain does the update that is left. */
static unsigned choose_parts(struct run *r)
{
    unsigned update = parts_left(r);
    switch (pick(&r->seed, 5)) {
    case 0:
        return PHASE_EVAL | update;
    case 1:
        return update;
    default:
        if (r->c.in.stored && r->steps > 0 && (r->c.in.optimistic || pick(&r->seed, 3)))
            update |= (unsigned)PHASE_SAVE | PHASE_COMMIT;
        if (!r->c.in.stored && r->c.in.optimistic)
            update |= PHASE_COMMIT;
        return (PHASES_TRAIN & ~(unsigned)PHASE_UPDATE) | update;
    }
}

/* What was opened for a step that does not come is left to the update alone; an evaluation ends at
 * any moment; a step that has begun is broken off for good. */
static void narrow(struct run *r)
{
    uint64_t last = r->scheduler.opened - 1;
    if ((r->phases[last] & PHASE_BACKWARD) && r->visited[last] && pick(&r->seed, 4))
        return;
    if ((r->phases[last] & PHASE_BACKWARD) && r->visited[last])
        r->broken = true;
    else if (r->phases[last] & PHASE_BACKWARD)
        r->steps--;
    r->pending = false;
    r->phases[last] &= PARTS_LEFT;
    r->narrowed[last] = true;
    scheduler_narrow(&r->scheduler, last, PARTS_LEFT);
}

/* Between two step windows buffers are used for something else; kept gradients go to drives
   before. */
static void forget(struct run *r)
{
    model_save_kept_grads(&r->model);
    scheduler_forget(&r->scheduler);
    model_spoil(&r->model);
    r->forgot[r->scheduler.opened - 1] = true;
    for (int p = 0; p < POOL_COUNT; p++)
        assert_int_equal(r->scheduler.free_count[p], r->graph.buffers[p]);
}

/* ---- runs ---- */

/* One random thing that can happen; false where nothing can. */
static bool step(struct run *r)
{
    struct {
        bool ends;
        enum lane lane;
        struct scheduled at;
    } can[2 * LANE_COUNT];
    uint32_t count = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct scheduled at;
        if (may_start(r, (enum lane)l, &at))
            can[count].ends = false, can[count].lane = (enum lane)l, can[count++].at = at;
        if (r->lane[l].count > 0)
            can[count].ends = true, can[count++].lane = (enum lane)l;
    }
    if (count == 0)
        return false;
    uint32_t i = pick(&r->seed, count);
    if (can[i].ends)
        end(r, can[i].lane);
    else
        start(r, can[i].lane, can[i].at);
    return true;
}

static void stand_still(struct run *r)
{
    for (int l = 0; l < LANE_COUNT; l++) {
        struct scheduled at;
        if (scheduler_next(&r->scheduler, (enum lane)l, &at))
            fail_msg("%s: stands still at node %u (%s, unit %u) of period %llu", r->c.name, at.node,
                     node_kind_name(r->graph.nodes[at.node].kind), r->graph.nodes[at.node].unit,
                     (unsigned long long)at.step_window);
    }
    if (!scheduler_is_idle(&r->scheduler))
        fail_msg("%s: nothing is left to start, and the walk is not idle", r->c.name);
}

static void run_step_windows(struct run *r)
{
    for (;;) {
        bool more = r->scheduler.opened < STEP_WINDOWS && may_open(r);
        if (more && pick(&r->seed, 10) == 0)
            open_step_window(r, choose_parts(r));
        else if (r->scheduler.opened > 0 && !r->broken && pick(&r->seed, 60) == 0)
            narrow(r);
        else if (r->scheduler.opened > 0 && scheduler_is_idle(&r->scheduler) &&
                 pick(&r->seed, 4) == 0)
            forget(r);
        else if (!step(r) && !more)
            break;
    }
    stand_still(r);
}

static void run_step_window(struct run *r, unsigned phases)
{
    open_step_window(r, phases);
    while (step(r))
        ;
    stand_still(r);
}

/* At the end nothing is lent: a step window of which nothing is run lets go of what was kept. */
static void check_end(struct run *r)
{
    if (!r->broken)
        run_step_window(r, parts_left(r));
    run_step_window(r, 0);
    for (int p = 0; p < POOL_COUNT; p++)
        assert_int_equal(r->scheduler.free_count[p], r->graph.buffers[p]);
    for (uint64_t p = 0; p < r->scheduler.opened; p++)
        for (uint32_t i = 0; i < r->graph.node_count; i++) {
            bool runs = (r->graph.nodes[i].phases & r->phases[p]) != 0;
            assert_int_equal(r->done[p][i], r->started[p][i]);
            assert_true(r->narrowed[p] ? r->done[p][i] >= runs : r->done[p][i] == runs);
        }
}

static bool run_open(struct run *r, uint64_t seed)
{
    random_case(seed, &r->c);
    r->seed = seed ^ 0x5eed;
    int rc = graph_build(&r->c.in, &r->graph);
    if (rc == -EINVAL)
        return false; /* an order in which an alias would read old weights */
    assert_int_equal(rc, 0);
    assert_true(r->graph.node_count <= NODES_MOST);
    assert_int_equal(scheduler_init(&r->scheduler, &r->graph), 0);
    model_open(&r->model, &r->c, &r->graph, &r->scheduler);
    for (int l = 0; l < LANE_COUNT; l++)
        r->lane[l].most = 1 + pick(&r->seed, IN_FLIGHT);
    return true;
}

static void test_every_node_runs_once_on_the_right_bytes_in_whatever_order_nodes_end(void **state)
{
    (void)state;
    struct run *r = malloc(sizeof *r);
    uint64_t refused = 0;
    assert_non_null(r);
    for (uint64_t i = 0; i < seeds.count; i++) {
        memset(r, 0, sizeof *r);
        if (!run_open(r, seeds.first + i)) {
            refused++;
            continue;
        }
        run_step_windows(r);
        check_end(r);
        scheduler_free(&r->scheduler);
        graph_free(&r->graph);
    }
    printf("seeds %llu to %llu, %llu refused\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1), (unsigned long long)refused);
    assert_true(seeds.count == 1 || refused < seeds.count / 10);
    free(r);
}

/* A read behind 10 s of computation and a copy behind none have a buffer each of one pool, the read
 * first: the copy begins when the read has its own, and both are over 5 s later, when the last
 * computation begins, of a second. */
static void test_a_lane_begins_when_its_turn_in_a_pool_has_come(void **state)
{
    const struct graph_in in = {.buffers[POOL_ACTS] = 2};
    struct graph g = {.buffers[POOL_ACTS] = 2};
    struct build b = {.in = &in, .graph = &g};
    struct sim sim;
    (void)state;
    assert_int_equal(build_open(&b), 0);
    const struct node none = {0};
    const uint32_t before = build_node(&b, NODE_NORM, LANE_COMPUTE, PHASE_FORWARD, none);
    const uint32_t read = build_node(&b, NODE_READ_ACTS, LANE_READ, PHASE_FORWARD, none);
    const uint32_t copy = build_node(&b, NODE_FETCH_ACTS, LANE_H2D, PHASE_FORWARD, none);
    const uint32_t last = build_node(&b, NODE_NORM, LANE_COMPUTE, PHASE_FORWARD, none);
    build_use(&b, read, build_reservation(&b, POOL_ACTS));
    build_use(&b, copy, build_reservation(&b, POOL_ACTS));
    build_dep(&b, read, before);
    build_dep(&b, last, read);
    build_dep(&b, last, copy);
    g.nodes[before].work = 10;
    g.nodes[read].work = g.nodes[copy].work = 5;
    g.nodes[last].work = 1;
    assert_int_equal(build_close(&b), 0);
    const struct sim_in of = {.graph = &g, .rates = {.read = 1, .h2d = 1, .norm = 1}};
    assert_int_equal(simulate(&of, &sim), 0);
    assert_true(sim.step_s == 10 + 5 + 1);
    graph_free(&g);
}

/* All that a scheduler counts by step windows. Even: a step window keeps its slot of two. */
static void move_on(struct scheduler *scheduler, uint64_t step_windows)
{
    scheduler->opened += step_windows;
    for (int l = 0; l < LANE_COUNT; l++)
        scheduler->lane[l].step_window += step_windows;
    for (int p = 0; p < POOL_COUNT; p++)
        scheduler->pool[p].step_window += step_windows;
    memset(scheduler->met, 0, sizeof scheduler->met);
}

/* Runs a step window of a graph in which one lane's node follows another's; in order. */
static void run_in_order(struct scheduler *scheduler)
{
    struct scheduled at;
    bool went_on = true;
    assert_true(scheduler_may_open(scheduler));
    scheduler_open(scheduler, PHASE_FORWARD);
    while (went_on) {
        went_on = false;
        for (int l = 0; l < LANE_COUNT; l++)
            if (scheduler_start_next(scheduler, (enum lane)l, &at) == TURN_STARTED) {
                assert_true(at.step_window == scheduler->opened - 1);
                assert_false(scheduler_is_idle(scheduler));
                scheduler_done(scheduler, at);
                went_on = true;
            }
    }
    assert_true(scheduler_is_idle(scheduler));
}

/* Where a call counted from the first step window on, ten thousand of them would take hours here,
 * and this test would be ended by its time limit. */
static void test_after_1e9_step_windows_a_scheduler_costs_as_much_as_a_new_one(void **state)
{
    const struct graph_in in = {.buffers[POOL_ACTS] = 2};
    struct graph g = {.buffers[POOL_ACTS] = 2};
    struct build b = {.in = &in, .graph = &g};
    struct scheduler scheduler;
    (void)state;
    assert_int_equal(build_open(&b), 0);
    const struct node none = {0};
    const uint32_t read = build_node(&b, NODE_READ_ACTS, LANE_READ, PHASE_FORWARD, none);
    const uint32_t norm = build_node(&b, NODE_NORM, LANE_COMPUTE, PHASE_FORWARD, none);
    const uint32_t reservation = build_reservation(&b, POOL_ACTS);
    build_use(&b, read, reservation);
    build_use(&b, norm, reservation);
    build_dep(&b, norm, read);
    assert_int_equal(build_close(&b), 0);
    assert_int_equal(scheduler_init(&scheduler, &g), 0);
    run_in_order(&scheduler);
    scheduler_forget(&scheduler);
    move_on(&scheduler, 1000000000);
    for (int i = 0; i < 10000; i++) {
        run_in_order(&scheduler);
        scheduler_forget(&scheduler);
        assert_int_equal(scheduler.free_count[POOL_ACTS], 2);
    }
    assert_true(scheduler.opened == 1000010001);
    scheduler_free(&scheduler);
    graph_free(&g);
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_1e9_step_windows_a_scheduler_costs_as_much_as_a_new_one),
        cmocka_unit_test(test_a_lane_begins_when_its_turn_in_a_pool_has_come),
        cmocka_unit_test(test_every_node_runs_once_on_the_right_bytes_in_whatever_order_nodes_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
