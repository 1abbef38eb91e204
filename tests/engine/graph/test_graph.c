/* SPDX-License-Identifier: Apache-2.0 */
/* What a step graph is made of: every tile once, every byte counted, no order that deadlocks. */
#include "graph_cases.h"
#include "plan/graph/graph_bound.h"
#include "plan/graph/simulate.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS 2000u

static struct seeds seeds;

/* ---- order ---- */

static void check_order(const struct graph_case *c, const struct graph *g)
{
    uint32_t node = 0;
    if (graph_check(g, &node))
        fail_msg("%s: in program order node %u waits for itself or a later one", c->name, node);
}

static void test_in_program_order_every_node_can_run(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_order);
}

#define UNITS ONE_TIER_UNITS
#define TILE  EVEN_TILE

static void make_ends_wide(struct graph_case *e)
{
    e->units[0].size = e->units[UNITS - 1].size = UNIT_WIDE;
}

/* Every second unit between the ends is narrow, with buffers of its own for either, or not. */
static void make_halves(struct graph_case *e, bool apart)
{
    for (uint32_t u = 1; u < UNITS - 1; u += 2)
        e->units[u].size = UNIT_NARROW;
    for (int pool = 0; pool < POOL_COUNT && apart; pool++)
        if (size_of_pool(pool) == UNIT_NARROW)
            e->in.buffers[pool] = 1;
}

/* With all that needs this pool. */
static void make_example_of(struct graph_case *e, int pool)
{
    bool streams = pool == POOL_DEVICE_TILES;
    one_tier_case(e, streams ? HST_TIER_DRAM : HST_TIER_NVME, true);
    make_ends_wide(e);
    make_halves(e, size_of_pool(pool) == UNIT_NARROW);
    for (uint32_t u = 0; u < UNITS && streams; u++)
        e->units[u].streamed_tiles = 2;
}

static void test_with_fewer_buffers_than_it_was_built_for_a_graph_deadlocks(void **state)
{
    (void)state;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        struct graph_case e;
        struct graph g;
        uint32_t node = GRAPH_NONE;
        make_example_of(&e, pool);
        assert_int_equal(graph_build(&e.in, &g), 0);
        assert_int_equal(graph_check(&g, &node), 0);
        g.buffers[pool] = 0;
        assert_int_equal(graph_check(&g, &node), -EDEADLK);
        bool uses = false;
        for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
            uses = uses || (g.nodes[node].reservation[i] != GRAPH_NONE &&
                            (int)g.reservations[g.nodes[node].reservation[i]].pool == pool);
        assert_true(uses);
        graph_free(&g);
    }
}

static void test_a_pool_that_is_needed_must_have_a_buffer(void **state)
{
    (void)state;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        struct graph_case e;
        struct graph g;
        make_example_of(&e, pool);
        e.in.buffers[pool] = 0;
        if (size_of_pool(pool) != UNIT_USUAL) { /* or takes turns with the others */
            uint32_t node;
            assert_int_equal(graph_build(&e.in, &g), 0);
            assert_int_equal(graph_check(&g, &node), 0);
            assert_int_equal(g.pool_count[pool], 0);
            graph_free(&g);
            e.in.buffers[pool - (int)size_of_pool(pool)] = 0;
        }
        assert_int_equal(graph_build(&e.in, &g), -ENOSPC);
        one_tier_case(&e, HST_TIER_DRAM, false); /* nothing is offloaded: no pool is needed */
        memset(e.in.buffers, 0, sizeof e.in.buffers);
        assert_int_equal(graph_build(&e.in, &g), 0);
        graph_free(&g);
    }
}

static void test_who_reads_weights_of_another_comes_after_it_and_goes_before_it(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.units[5].alias_count = 1; /* of unit 0 */
    assert_int_equal(graph_build(&e.in, &g), 0);
    graph_free(&g);
    e.forward[0] = 5, e.forward[5] = 0;
    assert_int_equal(graph_build(&e.in, &g), -EINVAL);
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.units[5].alias_count = 1;
    e.backward[0] = 0, e.backward[5] = 5;
    assert_int_equal(graph_build(&e.in, &g), -EINVAL);
}

static void test_what_is_computed_again_goes_the_way_of_the_forward(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.units[2].recomputed = e.units[3].recomputed = true;
    e.units[2].act_bytes = e.units[3].act_bytes = 0;
    assert_int_equal(graph_build(&e.in, &g), 0);
    static const struct {
        enum node_kind kind;
        uint32_t unit;
    } visits[] = {{NODE_BACKWARD, 5}, {NODE_BACKWARD, 4}, {NODE_RECOMPUTE, 1}, {NODE_RECOMPUTE, 2},
                  {NODE_BACKWARD, 3}, {NODE_BACKWARD, 2}, {NODE_BACKWARD, 1},  {NODE_BACKWARD, 0}};
    for (uint32_t i = 0; i < 8; i++) {
        const struct node *n = &g.nodes[g.lane[LANE_COMPUTE][UNITS + i]];
        assert_int_equal(n->kind, visits[i].kind);
        assert_int_equal(n->unit, visits[i].unit);
    }
    graph_free(&g);
    e.forward[4] = 3, e.forward[3] = 4; /* what comes before 3 is not what comes behind it */
    assert_int_equal(graph_build(&e.in, &g), -EINVAL);
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.units[0].recomputed = true; /* of what? */
    assert_int_equal(graph_build(&e.in, &g), -EINVAL);
}

/* ---- tiles and bytes ---- */

/* How often a tile is updated in these phases of a step window. */
static uint32_t updates_of(const struct graph *g, uint32_t tile, unsigned phases)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        count += n->kind == NODE_UPDATE && (n->phases & phases) && n->tile <= tile &&
                 tile < n->tile + n->tile_count;
    }
    return count;
}

static void check_updates(const struct graph_case *c, const struct graph *g)
{
    double tiles = 0, late = 0;
    for (uint32_t u = 0; u < c->in.unit_count; u++)
        for (uint32_t t = 0; t < c->units[u].tile_count; t++) {
            uint32_t tile = c->units[u].first_tile + t;
            /* where it has to be, or, of gradients that do not last, never */
            bool resident = c->units[u].weights == HST_TIER_HBM;
            bool passes = !c->in.optimistic && c->units[u].grads == HST_TIER_NVME;
            bool all = !c->in.deferred && (resident || passes);
            if (c->units[u].frozen) {
                if (updates_of(g, tile, UINT32_MAX) > 0)
                    fail_msg("%s: tile %u is frozen and is updated", c->name, tile);
                continue;
            }
            tiles += !all;
            late += all ? 0 : updates_of(g, tile, PHASE_UPDATE);
            if (all && updates_of(g, tile, PHASE_UPDATE) != c->in.optimistic)
                fail_msg("%s: tile %u is updated at the wrong time", c->name, tile);
            if (updates_of(g, tile, PHASES_TRAIN) != 1)
                fail_msg("%s: tile %u is updated %u times", c->name, tile,
                         updates_of(g, tile, PHASES_TRAIN));
        }
    double share = c->in.deferred ? 1 : c->in.late_share;
    if (fabs(late - share * tiles) > 1) /* half a tile of those at home, and of those offloaded */
        fail_msg("%s: %g of %g tiles are late, of a share of %g", c->name, late, tiles, share);
}

static void test_every_tile_is_updated_once_and_a_share_of_them_late(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_updates);
}

static double bytes_of(const struct graph *g, enum node_kind kind, uint32_t unit)
{
    double bytes = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == kind && g->nodes[i].unit == unit &&
            (g->nodes[i].phases & PHASES_TRAIN))
            bytes += g->nodes[i].work;
    return bytes;
}

static uint32_t visits_of(const struct graph *g, enum node_kind kind, uint32_t unit)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        count += g->nodes[i].kind == kind && g->nodes[i].unit == unit;
    return count;
}

static void check_crossings(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t u = 0; u < c->in.unit_count; u++) {
        double view = (double)c->units[u].elements * c->in.weight_bytes;
        for (uint32_t a = 0; a < c->units[u].alias_count; a++)
            view += (double)c->units[u].alias_bytes[a];
        double most = visits_of(g, NODE_RECOMPUTE, u) ? 3 : 2;
        if (bytes_of(g, NODE_READ_WEIGHTS, u) > most * view * (1 + 1e-12) ||
            bytes_of(g, NODE_COPY_WEIGHTS, u) > most * view)
            fail_msg("%s: weights of unit %u travel more than %g times in a step", c->name, u,
                     most);
    }
}

static void test_weights_cross_each_link_at_most_once_for_each_visit(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_crossings);
}

/* A unit is recomputed where the one behind it in the forward has kept no checkpoint. */
static void check_recomputes(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t i = 0; i < c->in.unit_count; i++) {
        bool again = i + 1 < c->in.unit_count && c->units[c->forward[i + 1]].recomputed;
        uint32_t unit = c->forward[i];
        const bool backward = !c->units[unit].rests;
        if (visits_of(g, NODE_RECOMPUTE, unit) != again ||
            visits_of(g, NODE_BACKWARD, unit) != backward)
            fail_msg("%s: unit %u is recomputed %u times", c->name, unit,
                     visits_of(g, NODE_RECOMPUTE, unit));
    }
}

/* Neither gradients nor states of it are in any node, and nothing writes it. */
static void check_frozen(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        const struct operand *op = graph_operands(g, n);
        if (c->units[n->unit].frozen && n->kind != NODE_REVERT && node_is_late(n))
            fail_msg("%s: node %u is of an update of frozen unit %u", c->name, i, n->unit);
        for (unsigned o = 0; o < n->operand_count && c->units[n->unit].frozen; o++)
            if (op[o].what == EXTENT_GRADS || op[o].what == EXTENT_STATES ||
                op[o].what == OPERAND_PARTIALS ||
                (op[o].what == EXTENT_WEIGHTS && operand_end_is_offloaded(op[o].to)))
                fail_msg("%s: node %u (%s) has something of frozen unit %u", c->name, i,
                         node_kind_name((enum node_kind)n->kind), n->unit);
    }
}

static void test_of_what_is_frozen_weights_are_read_and_nothing_else(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_frozen);
}

static void test_what_no_checkpoint_was_kept_for_is_computed_again_once(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_recomputes);
}

/* Bytes of each lane in a steady step, in which what is kept does not move. */
static struct graph_bound bytes_per_lane(const struct graph_case *e)
{
    static const struct sim_rates one_byte_per_second = {
        .read = 1, .write = 1, .h2d = 1, .d2h = 1, .update = 1, .norm = 1};
    struct graph_bound bound;
    struct graph g;
    assert_int_equal(graph_build(&e->in, &g), 0);
    assert_int_equal(graph_bound(&g, &one_byte_per_second, 0, &bound), 0);
    graph_free(&g);
    return bound;
}

#define W (4.0 * TILE * 2) /* bytes of a unit's weights, states, gradients, checkpoints */
#define S (4.0 * TILE * 10)
#define G (4.0 * TILE * 2)
#define N (4.0 * TILE / 4096 * 8) /* partials of a norm, which a device has made */
#define A 1000.0

static void assert_bytes(double got, double want)
{
    if (fabs(got - want) > 1e-9 * want)
        fail_msg("%.17g bytes, want %.17g", got, want);
}

static void test_on_the_host_each_lane_moves_the_bytes_of_the_formula(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_NVME, false);
    /* 3 weight buffers: 3 of 6 units stay at either turn. 2 of checkpoints: 2 stay, and of
       gradients 2 from step to step. */
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 3 * W + 6 * S + 4 * G + 4 * A);
    assert_bytes(b.lane_s[LANE_WRITE], 6 * (W + S) + 4 * G + 4 * A);
    assert_bytes(b.lane_s[LANE_UPDATE], 2 * 6 * 4.0 * TILE); /* norm and update */
    assert_true(b.lane_s[LANE_H2D] == 0 && b.lane_s[LANE_D2H] == 0);
    e.in.deferred = false; /* gradients are used where they are */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 3 * W + 6 * S + 4 * A);
    assert_bytes(b.lane_s[LANE_WRITE], 6 * (W + S) + 4 * A);
    e.in.late_share = 0.5; /* none waits: they have no home */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_WRITE], 6 * (W + S) + 4 * A);
    e.in.optimistic = e.in.stored = true; /* all are kept for a redo */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 3 * W + 6 * S + 3 * G + 4 * A);
    assert_bytes(b.lane_s[LANE_WRITE], 6 * (W + S) + 6 * G + 4 * A);
}

/* What is recomputed wants its weights three times, but for those that stay. */
static void test_weights_stay_from_recompute_to_backward_where_buffers_suffice(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_NVME, false);
    for (uint32_t i = 3; i < UNITS; i++)
        e.units[i].recomputed = true, e.units[i].act_bytes = 0;
    /* Units 2 to 5 do not all stay over the turn: 2 and 3 and 4 are read to be recomputed, 5, 1
       and 0 for their backward, where 4 and 3 have stayed and 2 has not. */
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 7 * W + 6 * S + 4 * G + 1 * A);
    assert_bytes(b.lane_s[LANE_WRITE], 6 * (W + S) + 4 * G + 1 * A);
    e.units[3].recomputed = false,
    e.units[3].act_bytes = 1000; /* 3 to 5 do, until they are through */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 3 * W + 6 * S + 4 * G + 2 * A);
    one_tier_case(&e, HST_TIER_NVME, false);
    for (uint32_t i = 1; i < UNITS; i += 2)
        e.units[i].recomputed = true, e.units[i].act_bytes = 0;
    /* Pairs: the last one stays, weights of the others are read once, as unit 0's checkpoint */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 3 * W + 4 * W + 6 * S + 4 * G + 1 * A);
    one_tier_case(&e, HST_TIER_DRAM, true);
    for (uint32_t i = 3; i < UNITS; i++)
        e.units[i].recomputed = true, e.units[i].act_bytes = 0;
    /* The device has two buffers: 4 stays there, 3 and 2 are copied for both visits. */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_H2D], 6 * W + 8 * W + 2 * A);
}

/* Of the ends one buffer holds the last over the turn, and the first until the next step. */
static void test_wide_units_stay_in_a_buffer_of_their_own(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_NVME, false);
    make_ends_wide(&e);
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], (1 + 1) * W + (1 + 1) * W + 6 * S + 3 * G + 4 * A);
    e.in.buffers[POOL_WIDE_WEIGHTS] = 2;
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 1 * W + 1 * W + 6 * S + 3 * G + 4 * A);
    one_tier_case(&e, HST_TIER_DRAM, true);
    make_ends_wide(&e);
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_H2D], 6 * W + (2 + 1) * W + 5 * A);
}

/* An embedding's gradient needs none of its weights: they are read, and copied, for the forward. */
static void test_weights_that_a_backward_does_not_read_are_not_brought_for_it(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_DRAM, true);
    e.units[0].blind_backward = true;
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_H2D], 6 * W + 3 * W + 5 * A);
    one_tier_case(&e, HST_TIER_NVME, false);
    e.in.buffers[POOL_WEIGHTS] = 2;
    e.units[2].blind_backward = true; /* of those that stay at neither turn */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 4 * W + 3 * W + 6 * S + 4 * G + 4 * A);
    e.in.deferred = false; /* there its update reads them */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 4 * W + 4 * W + 6 * S + 4 * A);
}

/* Of gradients fewer are kept than there are buffers where the sweeps do not mirror each other. */
static void test_no_step_is_faster_than_the_bound_where_orders_do_not_mirror(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++)
        for (double write_s = 1; write_s < 40; write_s *= 1.3) {
            struct graph_case e;
            struct graph g;
            struct graph_bound bound;
            struct sim sim;
            one_tier_case(&e, HST_TIER_DRAM, apart);
            for (uint32_t i = 0; i < UNITS; i++)
                e.units[i].grads = HST_TIER_NVME;
            e.backward[0] = UNITS - 2;
            e.backward[1] = UNITS - 1;
            e.in.buffers[POOL_GRADS] = 5;
            e.rates = (struct sim_rates){.flops_per_s = 1, .write = G / write_s, .read = 100 * G};
            assert_int_equal(graph_build(&e.in, &g), 0);
            struct sim_in in = {.graph = &g, .rates = e.rates, .step_windows = 400};
            assert_int_equal(simulate(&in, &sim), 0);
            assert_int_equal(graph_bound(&g, &e.rates, 0, &bound), 0);
            if (sim.step_s < bound.step_s * (1 - 1e-9))
                fail_msg("writes of %g s: %g s, bound %g", write_s, sim.step_s, bound.step_s);
            graph_free(&g);
        }
}

static void test_with_a_device_each_lane_moves_the_bytes_of_the_formula(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_DRAM, true);
    /* The device keeps 2 units' weights and 1 unit's checkpoints over the turn. */
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_H2D], 6 * W + 4 * W + 5 * A);
    assert_bytes(b.lane_s[LANE_D2H], 6 * (G + N) + 5 * A);
    assert_bytes(b.lane_s[LANE_UPDATE], 6 * 4.0 * TILE);
    assert_true(b.lane_s[LANE_READ] == 0 && b.lane_s[LANE_WRITE] == 0);
    one_tier_case(&e, HST_TIER_NVME, true);
    e.in.buffers[POOL_WEIGHTS] = 4;
    /* Drives: 4 stay from step to step; of the 4 that the device reads again, 1 stays in DRAM. */
    b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_READ], 2 * W + 3 * W + 6 * S + 4 * G + 5 * A);
    assert_bytes(b.lane_s[LANE_H2D], 6 * W + 4 * W + 5 * A);
}

static void test_a_device_that_holds_everything_moves_nothing(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_HBM, true);
    e.in.stored = true;
    memset(e.in.buffers, 0, sizeof e.in.buffers);
    assert_int_equal(graph_build(&e.in, &g), -ENOSPC); /* tiles of a version pass through a slot */
    e.in.stored = false;
    struct graph_bound b = bytes_per_lane(&e);
    for (int l = 0; l < LANE_COUNT; l++)
        assert_true(b.lane_s[l] == 0); /* its updates take no time that is known */
    assert_int_equal(graph_build(&e.in, &g), 0);
    for (uint32_t i = 0; i < g.node_count; i++)
        assert_true(g.nodes[i].kind != NODE_UPDATE || g.nodes[i].lane == LANE_COMPUTE);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_bytes(bytes_of(&g, NODE_UPDATE, u), 4.0 * TILE);
    graph_free(&g);
}

/* Resident units pass nothing through host memory and need no time of it; others do as ever. */
static void test_resident_units_move_nothing_among_others_that_do(void **state)
{
    (void)state;
    struct graph_case e;
    one_tier_case(&e, HST_TIER_DRAM, true);
    for (uint32_t u = 0; u < 2; u++)
        e.units[u].weights = e.units[u].grads = HST_TIER_HBM;
    struct graph_bound b = bytes_per_lane(&e);
    assert_bytes(b.lane_s[LANE_H2D], 4 * W + 2 * W + 5 * A);
    assert_bytes(b.lane_s[LANE_D2H], 4 * (G + N) + 5 * A);
    assert_bytes(b.lane_s[LANE_UPDATE], 4 * 4.0 * TILE);
    e.in.stored = true; /* for a version each of their tiles passes through a slot */
    struct graph g;
    assert_int_equal(graph_build(&e.in, &g), 0);
    uint32_t copied = 0;
    for (uint32_t i = 0; i < g.node_count; i++)
        copied += g.nodes[i].kind == NODE_COPY_TILE;
    assert_int_equal(copied, 2 * 4);
    graph_free(&g);
}

/* With one buffer on the device each visit waits for its weights, and nothing runs beside it: the
 * bound knows that of what is recomputed, too. */
static void test_what_is_computed_again_takes_time_of_its_own(void **state)
{
    (void)state;
    static const double forward_s[UNITS] = {1, 1, 1, 1, 1, 1}, again_s[UNITS] = {2, 2, 2, 2, 2, 2},
                        backward_s[UNITS] = {4, 4, 4, 4, 4, 4};
    struct graph_case e;
    struct graph g;
    struct sim sim;
    struct graph_bound bound;
    const struct sim_rates rates = {
        .forward_s = forward_s, .recompute_s = again_s, .backward_s = backward_s, .h2d = W};
    one_tier_case(&e, HST_TIER_DRAM, true);
    for (uint32_t u = 0; u < UNITS; u++)
        e.units[u].acts = HST_TIER_HBM;
    e.units[2].recomputed = e.units[3].recomputed = true;
    e.units[2].act_bytes = e.units[3].act_bytes = 0;
    e.in.buffers[POOL_DEVICE_WEIGHTS] = 1;
    assert_int_equal(graph_build(&e.in, &g), 0);
    assert_int_equal(simulate(&(struct sim_in){.graph = &g, .rates = rates}, &sim), 0);
    assert_int_equal(graph_bound(&g, &rates, 0, &bound), 0);
    /* 6 forwards, 2 recomputes, 6 backwards, a copy for each but the last unit's backward */
    assert_bytes(sim.step_s, 6 * 1 + 2 * 2 + 6 * 4 + 13);
    assert_bytes(bound.step_s, sim.step_s);
    graph_free(&g);
}

static void test_lanes_and_kinds_have_names(void **state)
{
    (void)state;
    for (int l = 0; l < LANE_COUNT; l++)
        assert_string_not_equal(lane_name((enum lane)l), "?");
    for (int k = 0; k < NODE_KIND_COUNT; k++)
        assert_string_not_equal(node_kind_name((enum node_kind)k), "?");
    assert_string_equal(lane_name(LANE_COUNT), "?");
    assert_string_equal(node_kind_name(NODE_KIND_COUNT), "?");
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_program_order_every_node_can_run),
        cmocka_unit_test(test_with_fewer_buffers_than_it_was_built_for_a_graph_deadlocks),
        cmocka_unit_test(test_a_pool_that_is_needed_must_have_a_buffer),
        cmocka_unit_test(test_who_reads_weights_of_another_comes_after_it_and_goes_before_it),
        cmocka_unit_test(test_what_is_computed_again_goes_the_way_of_the_forward),
        cmocka_unit_test(test_every_tile_is_updated_once_and_a_share_of_them_late),
        cmocka_unit_test(test_weights_cross_each_link_at_most_once_for_each_visit),
        cmocka_unit_test(test_of_what_is_frozen_weights_are_read_and_nothing_else),
        cmocka_unit_test(test_what_no_checkpoint_was_kept_for_is_computed_again_once),
        cmocka_unit_test(test_on_the_host_each_lane_moves_the_bytes_of_the_formula),
        cmocka_unit_test(test_weights_stay_from_recompute_to_backward_where_buffers_suffice),
        cmocka_unit_test(test_wide_units_stay_in_a_buffer_of_their_own),
        cmocka_unit_test(test_weights_that_a_backward_does_not_read_are_not_brought_for_it),
        cmocka_unit_test(test_no_step_is_faster_than_the_bound_where_orders_do_not_mirror),
        cmocka_unit_test(test_with_a_device_each_lane_moves_the_bytes_of_the_formula),
        cmocka_unit_test(test_a_device_that_holds_everything_moves_nothing),
        cmocka_unit_test(test_resident_units_move_nothing_among_others_that_do),
        cmocka_unit_test(test_what_is_computed_again_takes_time_of_its_own),
        cmocka_unit_test(test_lanes_and_kinds_have_names),
    };
    printf("seeds %llu to %llu\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
