/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs as 2 to 5 ranks have them, whose shards differ: what all do together comes in one
 * order, and walks of all ranks at once, in which an operation ends when all have begun it, come to
 * an end whatever ends when; every node finds the right bytes (memory_model.h).
 *     test_engine_graph_ranks SEED replays one.
 */
#include "memory_model.h"
#include "plan/graph/graph_bound.h"
#include "shared_case.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS         2000u
#define RANKS_MOST   5u
#define STEP_WINDOWS 8u
#define WINDOW_ROOM  (STEP_WINDOWS + 2u)
#define IN_FLIGHT    6u
#define SHARED_MOST  2048u /* operations of a run that ranks make together */
#define PHASES_LEFT  ((unsigned)PHASE_UPDATE | PHASE_REVERT | PHASE_REDO)

static struct seeds seeds;

struct lane_state {
    struct scheduled node[IN_FLIGHT]; /* started, in order */
    uint32_t count, most;
};

struct rank {
    struct graph_case c;
    struct graph graph;
    struct scheduler scheduler;
    struct model model;
    struct lane_state lane[LANE_COUNT];
    bool narrowed[WINDOW_ROOM];
    uint64_t begun; /* step windows that its client has begun or given up */
    /* what it has begun with the others: window, kind and unit */
    uint64_t shared[SHARED_MOST];
    uint32_t shared_count;
    bool clipped[WINDOW_ROOM]; /* the norm of the window's step is known */
};

/* What the clients of all ranks do alike. */
struct window {
    unsigned phases;
    enum verdict verdict; /* on the step before */
    bool waits;           /* for that verdict, before it is opened */
    bool given_up;        /* it was opened for a step that does not come */
    uint64_t steps;       /* whole ones before it */
};

struct world {
    struct rank rank[RANKS_MOST];
    uint32_t ranks;
    struct window window[WINDOW_ROOM];
    uint32_t planned; /* step windows that are known */
    uint64_t steps, seed;
    bool pending; /* after the last one an update is left to do, or to be judged */
};

static bool world_open(struct world *w, uint64_t seed)
{
    static struct graph_case whole;
    int rc = 0;
    memset(w, 0, sizeof *w);
    shared_case(seed, &whole);
    w->seed = seed ^ 0x5eed;
    w->ranks = 2 + pick(&w->seed, RANKS_MOST - 1);
    for (uint32_t i = 0; i < w->ranks; i++) {
        uint64_t cuts = seed; /* the same for all */
        cut_rows(&whole, i, w->ranks, &cuts, &w->rank[i].c);
        int found = graph_build(&w->rank[i].c.in, &w->rank[i].graph);
        assert_true(i == 0 || rc == found);
        rc = found;
    }
    assert_true(rc == 0 || rc == -EINVAL); /* an order in which an alias would read old weights */
    for (uint32_t i = 0; i < w->ranks && rc == 0; i++) {
        struct rank *r = &w->rank[i];
        assert_int_equal(scheduler_init(&r->scheduler, &r->graph), 0);
        model_open(&r->model, &r->c, &r->graph, &r->scheduler);
        for (int l = 0; l < LANE_COUNT; l++)
            r->lane[l].most = 1 + pick(&w->seed, IN_FLIGHT);
    }
    return rc == 0;
}

static void world_close(struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        scheduler_free(&w->rank[i].scheduler);
        graph_free(&w->rank[i].graph);
    }
}

/* ---- what clients do ------------------------------------------------------------------------- */

/* What the last step has left to do. The update that must wait is left out where the step was
 * skipped; an optimistic one is judged. */
static unsigned left_by_last(struct world *w, struct window *window)
{
    static const unsigned left[] = {PHASE_UPDATE, PHASES_LEFT, PHASE_REVERT};
    const struct graph_in *in = &w->rank[0].c.in;
    if (!w->pending)
        return 0;
    if (in->optimistic)
        window->verdict = (enum verdict)pick(&w->seed, 3);
    else if (in->deferred && pick(&w->seed, 8) == 0)
        window->verdict = VERDICT_SKIPS;
    window->waits = in->optimistic || window->verdict == VERDICT_SKIPS;
    w->steps -= window->verdict == VERDICT_SKIPS;
    if (in->optimistic)
        return left[window->verdict];
    return window->verdict == VERDICT_SKIPS ? 0 : PHASE_UPDATE;
}

static unsigned phases_of_version(struct world *w)
{
    const struct graph_in *in = &w->rank[0].c.in;
    if (in->stored && w->steps > 0 && (in->optimistic || pick(&w->seed, 3)))
        return (unsigned)PHASE_SAVE | PHASE_COMMIT;
    return !in->stored && in->optimistic ? PHASE_COMMIT : 0;
}

/* Mostly steps; an evaluation or a drain does the update that is left. The last two do that, and
 * nothing. The first one comes after the load. */
static void plan_window(struct world *w)
{
    struct window *window = &w->window[w->planned];
    if (w->planned == 0) {
        window->phases = PHASE_WHOLE;
        w->planned++;
        return;
    }
    const uint32_t what = w->planned < STEP_WINDOWS ? pick(&w->seed, 5) : 1;
    unsigned phases = left_by_last(w, window);
    window->steps = w->steps;
    w->pending = what > 1;
    if (what == 0)
        phases |= PHASE_EVAL;
    if (w->pending) {
        phases |= phases_of_version(w) | PHASE_FORWARD | PHASE_BACKWARD;
        window->given_up = pick(&w->seed, 6) == 0;
        w->steps += !window->given_up;
        w->pending = !window->given_up;
    }
    window->phases = phases;
    w->planned++;
}

static bool may_open(struct world *w, const struct rank *r)
{
    const uint64_t next = r->scheduler.opened;
    if (next == WINDOW_ROOM || !scheduler_may_open(&r->scheduler))
        return false;
    if (next > 0 && w->window[next - 1].given_up && !r->narrowed[next - 1])
        return false;
    while (w->planned <= next)
        plan_window(w);
    return !w->window[next].waits || r->clipped[next - 1];
}

static void open_window(struct world *w, struct rank *r)
{
    const uint64_t next = r->scheduler.opened;
    const struct window *window = &w->window[next];
    if (r->c.in.optimistic && window->waits)
        model_verdict(&r->model, next, window->verdict);
    scheduler_open(&r->scheduler, window->phases);
    model_step_window(&r->model, next, window->steps);
}

/* The client's step, or evaluation, before the next one is over. */
static bool may_begin(const struct world *w, const struct rank *r)
{
    if (r->begun == r->scheduler.opened)
        return false;
    for (uint32_t i = 0; r->begun > 0 && i < r->graph.lane_count[LANE_COMPUTE]; i++) {
        const struct scheduled at = {r->begun - 1, r->graph.lane[LANE_COMPUTE][i]};
        if (at.step_window + SCHEDULER_WINDOWS < r->scheduler.opened)
            break; /* all of it is done */
        const struct scheduler_place *lane = &r->scheduler.lane[LANE_COMPUTE];
        if (scheduler_is_run(&r->scheduler, at) &&
            (lane->step_window < at.step_window ||
             (lane->step_window == at.step_window && lane->at <= i)))
            return false;
    }
    const bool step = r->begun > 0 && (w->window[r->begun - 1].phases & PHASE_BACKWARD);
    return !step || r->narrowed[r->begun - 1] || r->clipped[r->begun - 1];
}

static void begin_window(const struct world *w, struct rank *r)
{
    if (w->window[r->begun].given_up) {
        scheduler_narrow(&r->scheduler, r->begun, PHASES_LEFT);
        r->narrowed[r->begun] = true;
    }
    r->begun++;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t shared_word(const struct rank *r, struct scheduled at)
{
    const struct node *n = &r->graph.nodes[at.node];
    return at.step_window << 48 | (uint64_t)n->kind << 32 | n->unit;
}

/* Streams of computations and what ranks do together end in order. */
static bool ends_in_order(enum lane lane)
{
    return lane == LANE_COMPUTE || lane == LANE_NET;
}

/* None begins by time: the window at hand is gone through as far as the client's next visit. */
static bool is_reached(struct rank *r, struct scheduled at)
{
    struct scheduled visit;
    return !scheduler_next(&r->scheduler, LANE_COMPUTE, &visit) ||
           visit.step_window > at.step_window || visit.node > at.node;
}

static bool may_start(struct rank *r, enum lane lane, struct scheduled *at)
{
    const bool clients = lane == LANE_COMPUTE || lane == LANE_NET;
    return r->lane[lane].count < r->lane[lane].most && scheduler_next(&r->scheduler, lane, at) &&
           scheduler_ready(&r->scheduler, *at) && !(clients && at->step_window >= r->begun) &&
           (lane != LANE_NET || is_reached(r, *at));
}

/* The first operation under way: all ranks have begun the same one. */
static bool may_end(const struct world *w, const struct rank *r, enum lane lane)
{
    const uint32_t count = r->lane[lane].count;
    if (count == 0 || lane != LANE_NET)
        return count > 0;
    const uint32_t first = r->shared_count - count;
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->rank[i].shared_count <= first || w->rank[i].shared[first] != r->shared[first])
            return false;
    return true;
}

static void start(struct rank *r, enum lane lane, struct scheduled at)
{
    struct lane_state *l = &r->lane[lane];
    scheduler_start(&r->scheduler, at);
    l->node[l->count++] = at;
    if (lane == LANE_NET) {
        assert_true(r->shared_count < SHARED_MOST);
        r->shared[r->shared_count++] = shared_word(r, at);
    }
    if (lane != LANE_COMPUTE || l->count == 1)
        model_begin(&r->model, at);
}

static void end(struct world *w, struct rank *r, enum lane lane)
{
    struct lane_state *l = &r->lane[lane];
    const uint32_t i = ends_in_order(lane) ? 0 : pick(&w->seed, l->count);
    const struct scheduled at = l->node[i];
    model_end(&r->model, at);
    scheduler_done(&r->scheduler, at);
    if (r->graph.nodes[at.node].kind == NODE_CLIP)
        r->clipped[at.step_window] = true;
    memmove(&l->node[i], &l->node[i + 1], (--l->count - i) * sizeof *l->node);
    if (lane == LANE_COMPUTE && l->count > 0)
        model_begin(&r->model, l->node[0]);
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* Between two step windows buffers are used for something else; kept gradients go to drives
 * before. */
static bool may_forget(struct world *w, struct rank *r)
{
    return r->scheduler.opened > 0 && scheduler_is_idle(&r->scheduler) && pick(&w->seed, 4) == 0;
}

static void forget(struct rank *r)
{
    model_save_kept_grads(&r->model);
    scheduler_forget(&r->scheduler);
    model_spoil(&r->model);
}

/* One random thing that can happen on a rank; false where nothing can. */
static bool move_rank(struct world *w, struct rank *r)
{
    struct {
        enum { OPENS, BEGINS, STARTS, ENDS } what;
        enum lane lane;
        struct scheduled at;
    } can[2 * LANE_COUNT + 2];
    uint32_t count = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct scheduled at;
        if (may_start(r, (enum lane)l, &at))
            can[count].what = STARTS, can[count].lane = (enum lane)l, can[count++].at = at;
        if (may_end(w, r, (enum lane)l))
            can[count].what = ENDS, can[count++].lane = (enum lane)l;
    }
    if (may_open(w, r) && (count == 0 || pick(&w->seed, 10) == 0))
        can[count++].what = OPENS;
    if (may_begin(w, r) && (count == 0 || pick(&w->seed, 4) == 0))
        can[count++].what = BEGINS;
    if (count == 0)
        return false;
    const uint32_t i = pick(&w->seed, count);
    if (can[i].what == OPENS && may_forget(w, r))
        forget(r);
    if (can[i].what == OPENS)
        open_window(w, r);
    else if (can[i].what == BEGINS)
        begin_window(w, r);
    else if (can[i].what == STARTS)
        start(r, can[i].lane, can[i].at);
    else
        end(w, r, can[i].lane);
    return true;
}

static bool is_over(const struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->rank[i].begun < WINDOW_ROOM || !scheduler_is_idle(&w->rank[i].scheduler))
            return false;
    return true;
}

/* All ranks, in whatever order: false where they stand still before all is done. */
static bool walk(struct world *w)
{
    for (bool moved = true; moved;) {
        const uint32_t first = pick(&w->seed, w->ranks);
        moved = false;
        for (uint32_t i = 0; i < w->ranks && !moved; i++)
            moved = move_rank(w, &w->rank[(first + i) % w->ranks]);
    }
    return is_over(w);
}

static void tell_where(const struct world *w, uint64_t seed)
{
    for (uint32_t i = 0; i < w->ranks; i++)
        for (int l = 0; l < LANE_COUNT; l++) {
            struct rank *r = (struct rank *)&w->rank[i];
            struct scheduled at;
            if (scheduler_next(&r->scheduler, (enum lane)l, &at))
                print_message("rank %u: %s of unit %u, window %llu, is next in its lane\n", i,
                              node_kind_name((enum node_kind)r->graph.nodes[at.node].kind),
                              r->graph.nodes[at.node].unit, (unsigned long long)at.step_window);
        }
    fail_msg("seed %llu: %u ranks stand still", (unsigned long long)seed, w->ranks);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct node *shared_node(const struct graph *g, uint32_t i)
{
    return &g->nodes[g->lane[LANE_NET][i]];
}

static void check_order(const struct world *w)
{
    const struct graph *first = &w->rank[0].graph;
    for (uint32_t i = 0; i < w->ranks; i++) {
        const struct graph *g = &w->rank[i].graph;
        uint32_t node;
        if (graph_check(g, &node))
            fail_msg("%s: node %u of rank %u waits for itself or a later one", w->rank[i].c.name,
                     node, i);
        assert_int_equal(g->lane_count[LANE_NET], first->lane_count[LANE_NET]);
        for (uint32_t n = 0; n < g->lane_count[LANE_NET]; n++) {
            const struct node *a = shared_node(g, n), *b = shared_node(first, n);
            if (a->kind != b->kind || a->unit != b->unit || a->phases != b->phases)
                fail_msg("%s: operation %u of rank %u is a %s of unit %u, and a %s of unit %u of "
                         "rank 0",
                         w->rank[i].c.name, n, i, node_kind_name((enum node_kind)a->kind), a->unit,
                         node_kind_name((enum node_kind)b->kind), b->unit);
        }
    }
}

/* What other ranks have of a row. */
static double others(const struct graph_in *in, uint32_t unit, double bytes)
{
    return bytes * (double)in->units[unit].row_elements * (in->ranks - 1) / in->ranks;
}

static double work_of(const struct graph_in *in, const struct node *n)
{
    const struct graph_unit *u = &in->units[n->unit];
    double bytes = 0;
    if (n->kind == NODE_GATHER_GRADS)
        return others(in, n->unit, in->grad_bytes);
    for (uint32_t i = 0; n->kind == NODE_EXCHANGE && i < in->unit_count; i++)
        if (i == n->unit ||
            (in->buckets && in->units[i].bucket == u->bucket && !in->units[i].frozen))
            bytes += others(in, i, in->hand_bytes);
    if (n->kind != NODE_GATHER && n->kind != NODE_GATHER_NEAR)
        return bytes;
    bytes = others(in, n->unit, in->weight_bytes);
    for (uint32_t a = 0; a < u->alias_count && !in->whole_weights; a++)
        bytes += others(in, u->alias_of[a], in->weight_bytes);
    return bytes;
}

/* A rank takes in what others have, and its operands say so; they are in buffers that it has. */
static void check_work(const struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        const struct graph *g = &w->rank[i].graph;
        for (uint32_t n = 0; n < g->lane_count[LANE_NET]; n++) {
            const struct node *node = shared_node(g, n);
            const struct operand *op = graph_operands(g, node);
            double bytes = 0;
            for (unsigned o = 0; o < node->operand_count; o++) {
                bytes += (double)op[o].bytes;
                assert_true(op[o].to.pool == POOL_COUNT ||
                            graph_lends(g, node, (enum pool)op[o].to.pool));
                assert_true(op[o].from.pool == POOL_COUNT ||
                            graph_lends(g, node, (enum pool)op[o].from.pool));
            }
            assert_true(node->work == bytes);
            assert_true(node->work == work_of(&w->rank[i].c.in, node));
        }
    }
}

static void check_end(const struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        const struct rank *r = &w->rank[i];
        assert_int_equal(r->shared_count, w->rank[0].shared_count);
        for (int p = 0; p < POOL_COUNT; p++)
            assert_int_equal(r->scheduler.free_count[p], r->graph.buffers[p]);
    }
}

/* Rare ones: an alias that reads a row of an owner without a forward, gathered in the backward. */
static const uint64_t rare[] = {3765};

static void for_worlds(void (*check)(struct world *w, uint64_t seed))
{
    const uint64_t more = seeds.count > 1 ? sizeof rare / sizeof *rare : 0;
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    for (uint64_t i = 0; i < seeds.count + more; i++) {
        const uint64_t seed = i < seeds.count ? seeds.first + i : rare[i - seeds.count];
        if (!world_open(w, seed))
            continue;
        check(w, seed);
        world_close(w);
    }
    free(w);
}

static uint32_t walked;

static void walk_whole(struct world *w, uint64_t seed)
{
    check_order(w);
    check_work(w);
    if (!walk(w))
        tell_where(w, seed);
    check_end(w);
    walked++;
}

static void ranks_come_to_an_end_together_on_the_right_bytes(void **state)
{
    (void)state;
    walked = 0;
    for_worlds(walk_whole);
    assert_true(seeds.count == 1 || walked > seeds.count / 3);
}

static uint32_t swapped;

/* Two operations that are no others' places. */
static void walk_swapped(struct world *w, uint64_t seed)
{
    struct graph *g = &w->rank[pick(&w->seed, w->ranks)].graph;
    const uint32_t count = g->lane_count[LANE_NET];
    uint32_t *lane = g->lane[LANE_NET], at = count < 2 ? 0 : pick(&w->seed, count - 1);
    if (count < 2)
        return;
    const struct node *a = &g->nodes[lane[at]], *b = &g->nodes[lane[at + 1]];
    const unsigned trains = (unsigned)PHASE_FORWARD | PHASE_BACKWARD;
    if ((a->kind == b->kind && a->unit == b->unit) || !(a->phases & b->phases & trains))
        return;
    const uint32_t node = lane[at];
    lane[at] = lane[at + 1];
    lane[at + 1] = node;
    for (uint32_t i = 0; i < WINDOW_ROOM; i++)
        plan_window(w);
    bool trained = false;
    for (uint32_t i = 0; i < WINDOW_ROOM; i++)
        trained = trained || ((w->window[i].phases & trains) && !w->window[i].given_up);
    if (trained && walk(w))
        fail_msg("seed %llu: ranks whose orders differ come to an end", (unsigned long long)seed);
    swapped += trained;
}

static void a_rank_with_two_operations_swapped_stands_still(void **state)
{
    (void)state;
    swapped = 0;
    for_worlds(walk_swapped);
    assert_true(seeds.count == 1 || swapped > seeds.count / 10);
}

/* The bound has what the network takes, and no step is below it: one as steady as the bound is. */
static void time_network(struct world *w, uint64_t seed)
{
    const struct graph *g = &w->rank[0].graph;
    struct sim_in in = {.graph = g, .rates = w->rank[0].c.rates, .step_windows = 200};
    in.rates.net = (struct sim_net){.gather = 1e3,
                                    .exchange = 500,
                                    .between = 300,
                                    .gather_crossing = pick(&w->seed, 3) / 2.0,
                                    .exchange_crossing = 0.5,
                                    .operation_s = 1};
    struct graph_bound bound;
    struct sim sim;
    double net_s = 0;
    for (uint32_t i = 0; i < g->lane_count[LANE_NET]; i++)
        if (g->nodes[g->lane[LANE_NET][i]].phases & PHASES_TRAIN)
            net_s += sim_node_seconds(&in.rates, &g->nodes[g->lane[LANE_NET][i]]);
    assert_int_equal(simulate(&in, &sim), 0);
    assert_int_equal(graph_bound(g, &in.rates, 0, &bound), 0);
    assert_true(net_s > 0 && fabs(bound.lane_s[LANE_NET] - net_s) <= 1e-9 * net_s);
    if (bound.step_s > sim.step_s * (1 + 1e-9) || bound.step_s < net_s * (1 - 1e-9))
        fail_msg("seed %llu: a step of %g s, a bound of %g s, of the network %g s",
                 (unsigned long long)seed, sim.step_s, bound.step_s, net_s);
}

static void no_step_of_ranks_is_below_its_bound(void **state)
{
    (void)state;
    for_worlds(time_network);
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_come_to_an_end_together_on_the_right_bytes),
        cmocka_unit_test(a_rank_with_two_operations_swapped_stands_still),
        cmocka_unit_test(no_step_of_ranks_is_below_its_bound),
    };
    printf("seeds %llu to %llu\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1));
    return cmocka_run_group_tests_name("graph/ranks", tests, NULL, NULL);
}
