/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs, run with nodes that end in any order a machine could have, drained, evaluated and
 * broken off at any moment: nothing stands still, nothing is done twice, and every node finds the
 * right bytes (memory_model.h).   test_engine_walk SEED replays one.
 */
#include "memory_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS        20000u
#define PERIODS     8u
#define IN_FLIGHT   6u
#define NODES_MOST  512u
#define PERIOD_ROOM (PERIODS + 3u)

static struct seeds seeds;

struct lane_state {
    struct walk_at node[IN_FLIGHT]; /* started, in order */
    uint32_t count, most;
};

struct run {
    struct graph_case c;
    struct graph graph;
    struct walk walk;
    struct model model;
    uint64_t seed;
    struct lane_state lane[LANE_COUNT];
    unsigned parts[PERIOD_ROOM]; /* as opened, or as narrowed */
    bool narrowed[PERIOD_ROOM], visited[PERIOD_ROOM], forgot[PERIOD_ROOM];
    uint8_t started[PERIOD_ROOM][NODES_MOST], done[PERIOD_ROOM][NODES_MOST];
    uint64_t steps; /* begun in opened periods */
    bool pending;   /* after the last opened period an update is left to do, or to be judged */
    bool broken;    /* off in the middle of a step: nothing more is opened */
};

/* Streams of a device and the client's computations end in order; drives and workers do not. */
static bool ends_in_order(enum lane lane)
{
    return lane == LANE_COMPUTE || lane == LANE_H2D || lane == LANE_D2H;
}

/* ---- nodes ---- */

/* Or it is not run at all. */
static bool is_done(const struct run *r, struct walk_at at)
{
    bool runs = (r->graph.nodes[at.node].parts & r->parts[at.period]) != 0;
    return r->done[at.period][at.node] > 0 || (!runs && !r->started[at.period][at.node]);
}

static void check_deps(const struct run *r, struct walk_at at)
{
    const struct node *n = &r->graph.nodes[at.node];
    for (uint32_t i = 0; i < n->dep_count; i++) {
        uint32_t dep = r->graph.deps[n->first_dep + i];
        if ((dep & DEP_BEFORE) && at.period == 0)
            continue;
        struct walk_at on = {at.period - (dep & DEP_BEFORE ? 1 : 0), dep & ~DEP_BEFORE};
        if (!is_done(r, on))
            fail_msg("%s: node %u of period %llu starts before its dependency %u", r->c.name,
                     at.node, (unsigned long long)at.period, on.node);
    }
}

/* What a lease holds at the end of a period that was not cut short is there for its heir: a buffer
 * that came from the pool instead would hold the right bytes too, read once more. */
static void check_kept(const struct run *r, struct walk_at at)
{
    const struct node *nodes = r->graph.nodes;
    uint32_t number = nodes[at.node].lease[0];
    uint32_t legacy = number == GRAPH_NONE ? GRAPH_NONE : r->graph.leases[number].legacy;
    if (legacy == GRAPH_NONE || at.period == 0 || r->narrowed[at.period - 1] ||
        r->forgot[at.period - 1])
        return;
    bool held = false;
    for (uint32_t i = 0; i < r->graph.node_count; i++)
        for (unsigned l = 0; l < NODE_LEASES && r->started[at.period - 1][i]; l++)
            held = held || nodes[i].lease[l] == legacy;
    if (walk_was_kept(&r->walk, at) != held)
        fail_msg("%s: node %u of period %llu %s its buffer of the period before", r->c.name,
                 at.node, (unsigned long long)at.period, held ? "did not get" : "got");
}

static void start(struct run *r, enum lane lane, struct walk_at at)
{
    struct lane_state *l = &r->lane[lane];
    enum node_kind kind = (enum node_kind)r->graph.nodes[at.node].kind;
    check_deps(r, at);
    walk_start(&r->walk, at);
    check_kept(r, at);
    if (r->started[at.period][at.node]++)
        fail_msg("%s: node %u is started twice", r->c.name, at.node);
    l->node[l->count++] = at;
    r->visited[at.period] = r->visited[at.period] || kind == NODE_FORWARD || kind == NODE_BACKWARD;
    if (!ends_in_order(lane) || l->count == 1)
        model_begin(&r->model, at);
}

static void end(struct run *r, enum lane lane)
{
    struct lane_state *l = &r->lane[lane];
    uint32_t i = ends_in_order(lane) ? 0 : pick(&r->seed, l->count);
    struct walk_at at = l->node[i];
    model_end(&r->model, at);
    walk_done(&r->walk, at);
    r->done[at.period][at.node]++;
    memmove(&l->node[i], &l->node[i + 1], (--l->count - i) * sizeof *l->node);
    if (ends_in_order(lane) && l->count > 0)
        model_begin(&r->model, l->node[0]);
}

/* A lane's next node may start, or waits for one that comes earlier and is not done. */
static bool may_start(struct run *r, enum lane lane, struct walk_at *at)
{
    struct walk_at on;
    if (!walk_next(&r->walk, lane, at))
        return false;
    bool ready = walk_ready(&r->walk, *at);
    bool waits = walk_waits_for(&r->walk, *at, &on);
    assert_true(ready != waits);
    if (waits && (is_done(r, on) || on.period > at->period ||
                  (on.period == at->period && on.node >= at->node)))
        fail_msg("%s: node %u of period %llu waits for node %u of period %llu, done or later",
                 r->c.name, at->node, (unsigned long long)at->period, on.node,
                 (unsigned long long)on.period);
    return ready && r->lane[lane].count < r->lane[lane].most;
}

/* ---- periods ---- */

static void open_period(struct run *r, unsigned parts)
{
    uint64_t number = r->walk.opened;
    r->parts[number] = parts;
    walk_open(&r->walk, parts);
    model_period(&r->model, number, r->steps);
    r->steps += (parts & PART_BACKWARD) != 0;
    r->pending = (parts & PART_BACKWARD) != 0;
}

#define PARTS_LEFT ((unsigned)PART_UPDATE | PART_REVERT | PART_REDO)

/* What the last step has left to do. An optimistic update is judged; a step without one does not
 * count. */
static unsigned parts_left(struct run *r)
{
    if (!r->pending || !r->c.in.optimistic)
        return r->pending ? PART_UPDATE : 0;
    static const unsigned left[] = {PART_UPDATE, PARTS_LEFT, PART_REVERT};
    enum verdict verdict = (enum verdict)pick(&r->seed, 3);
    model_verdict(&r->model, r->walk.opened, verdict);
    r->steps -= verdict == VERDICT_SKIPS;
    return left[verdict];
}

/* The period behind an optimistic step is opened when that can be judged. */
static bool may_open(const struct run *r)
{
    bool judged = !r->c.in.optimistic || !r->pending || r->walk.opened == 0;
    for (uint32_t i = 0; !judged && i < r->graph.node_count; i++)
        judged = r->graph.nodes[i].kind == NODE_CLIP && r->done[r->walk.opened - 1][i];
    return judged && !r->broken && walk_may_open(&r->walk);
}

/* Mostly steps; an evaluation or a drain does the update that is left. */
static unsigned choose_parts(struct run *r)
{
    unsigned update = parts_left(r);
    switch (pick(&r->seed, 5)) {
    case 0:
        return PART_EVAL | update;
    case 1:
        return update;
    default:
        if (r->c.in.stored && r->steps > 0 && (r->c.in.optimistic || pick(&r->seed, 3)))
            update |= (unsigned)PART_SAVE | PART_COMMIT;
        if (!r->c.in.stored && r->c.in.optimistic)
            update |= PART_COMMIT;
        return (PARTS_TRAIN & ~(unsigned)PART_UPDATE) | update;
    }
}

/* What was opened for a step that does not come is left to the update alone; an evaluation ends at
 * any moment; a step that has begun is broken off for good. */
static void narrow(struct run *r)
{
    uint64_t last = r->walk.opened - 1;
    if ((r->parts[last] & PART_BACKWARD) && r->visited[last] && pick(&r->seed, 4))
        return;
    if ((r->parts[last] & PART_BACKWARD) && r->visited[last])
        r->broken = true;
    else if (r->parts[last] & PART_BACKWARD)
        r->steps--;
    r->pending = false;
    r->parts[last] &= PARTS_LEFT;
    r->narrowed[last] = true;
    walk_narrow(&r->walk, last, PARTS_LEFT);
}

/* Between two periods buffers are used for something else; kept gradients go to drives before. */
static void forget(struct run *r)
{
    model_save_kept_grads(&r->model);
    walk_forget(&r->walk);
    model_spoil(&r->model);
    r->forgot[r->walk.opened - 1] = true;
    for (int p = 0; p < POOL_COUNT; p++)
        assert_int_equal(r->walk.free_count[p], r->graph.buffers[p]);
}

/* ---- runs ---- */

/* One random thing that can happen; false where nothing can. */
static bool step(struct run *r)
{
    struct {
        bool ends;
        enum lane lane;
        struct walk_at at;
    } can[2 * LANE_COUNT];
    uint32_t count = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct walk_at at;
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
        struct walk_at at;
        if (walk_next(&r->walk, (enum lane)l, &at))
            fail_msg("%s: stands still at node %u (%s, unit %u) of period %llu", r->c.name, at.node,
                     node_kind_name(r->graph.nodes[at.node].kind), r->graph.nodes[at.node].unit,
                     (unsigned long long)at.period);
    }
    if (!walk_is_idle(&r->walk))
        fail_msg("%s: nothing is left to start, and the walk is not idle", r->c.name);
}

static void run_periods(struct run *r)
{
    for (;;) {
        bool more = r->walk.opened < PERIODS && may_open(r);
        if (more && pick(&r->seed, 10) == 0)
            open_period(r, choose_parts(r));
        else if (r->walk.opened > 0 && !r->broken && pick(&r->seed, 60) == 0)
            narrow(r);
        else if (r->walk.opened > 0 && walk_is_idle(&r->walk) && pick(&r->seed, 4) == 0)
            forget(r);
        else if (!step(r) && !more)
            break;
    }
    stand_still(r);
}

static void run_period(struct run *r, unsigned parts)
{
    open_period(r, parts);
    while (step(r))
        ;
    stand_still(r);
}

/* At the end nothing is lent: a period of which nothing is run lets go of what was kept. */
static void check_end(struct run *r)
{
    if (!r->broken)
        run_period(r, parts_left(r));
    run_period(r, 0);
    for (int p = 0; p < POOL_COUNT; p++)
        assert_int_equal(r->walk.free_count[p], r->graph.buffers[p]);
    for (uint64_t p = 0; p < r->walk.opened; p++)
        for (uint32_t i = 0; i < r->graph.node_count; i++) {
            bool runs = (r->graph.nodes[i].parts & r->parts[p]) != 0;
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
    assert_int_equal(walk_init(&r->walk, &r->graph), 0);
    model_open(&r->model, &r->c, &r->graph, &r->walk);
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
        run_periods(r);
        check_end(r);
        walk_free(&r->walk);
        graph_free(&r->graph);
    }
    printf("seeds %llu to %llu, %llu refused\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1), (unsigned long long)refused);
    assert_true(seeds.count == 1 || refused < seeds.count / 10);
    free(r);
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node_runs_once_on_the_right_bytes_in_whatever_order_nodes_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
