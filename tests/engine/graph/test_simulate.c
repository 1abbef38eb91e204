/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator against seconds worked by hand, and the bound against what nothing beats.
 */
#include "graph_cases.h"
#include "plan/graph/graph_bound.h"
#include "plan/graph/graph_build.h"

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

#define RUNS  600u
#define EXACT 1e-12
#define TILE  EVEN_TILE

static struct seeds seeds;

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) <= EXACT * fabs(want) + EXACT))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* ---- examples by hand ---- */

struct example {
    struct graph_case of;
    struct graph graph;
};

/* Units of `tiles` tiles at home in DRAM. One FLOP, one tile of an update takes a second. */
static void make_example(struct example *e, uint32_t units, uint32_t tiles)
{
    const struct graph_unit unit = {.tile_count = tiles,
                                    .weights = HST_TIER_DRAM,
                                    .grads = HST_TIER_DRAM,
                                    .acts = HST_TIER_DRAM,
                                    .forward_flops = 10,
                                    .backward_flops = 30};
    even_case(&e->of, units, &unit);
    e->of.rates.flops_per_s = 1;
    e->of.rates.update = TILE;
}

static struct sim run(struct example *e)
{
    struct sim sim;
    assert_int_equal(graph_build(&e->of.in, &e->graph), 0);
    assert_int_equal(simulate(&(struct sim_in){.graph = &e->graph, .rates = e->of.rates}, &sim), 0);
    return sim;
}

static double bound_of(const struct example *e)
{
    struct graph_bound bound;
    assert_int_equal(graph_bound(&e->graph, &e->of.rates, 0, &bound), 0);
    return bound.step_s;
}

/* Updates 1 s each, forwards 10, backwards 30, norms 0.5: the computation waits for the first
 * update and for the last norm, everything else is beside it. */
static void test_an_update_hides_under_the_forward(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 2, 1);
    e.of.rates.norm = 2 * TILE;
    struct sim s = run(&e);
    assert_close(s.step_s, 1 + 10 + 10 + 30 + 30 + 0.5);
    assert_close(s.first_s, 80); /* no update behind it */
    assert_close(s.drain_s, 0.5 + 2);
    assert_close(s.busy_s[LANE_COMPUTE], 80);
    assert_close(s.busy_s[LANE_UPDATE], 3);
    assert_close(s.stall_s[LANE_UPDATE], 1.5);
    assert_int_equal(s.bound_by, LANE_COMPUTE);
    assert_close(bound_of(&e), 81.5);
    graph_free(&e.graph);
}

/* The computation is 80 s of a step of 81.5 s. A limit below it ends the simulation at once, one
 * between both where the computation has stood still for too long, and one above changes nothing.
 */
static void test_a_step_beyond_its_limit_has_no_end(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 2, 1);
    e.of.rates.norm = 2 * TILE;
    struct sim whole = run(&e), sim;
    struct sim_in in = {.graph = &e.graph, .rates = e.of.rates, .limit_s = 79};
    assert_int_equal(simulate(&in, &sim), 0);
    assert_true(isinf(sim.step_s));
    in.limit_s = 81;
    assert_int_equal(simulate(&in, &sim), 0);
    assert_true(isinf(sim.step_s));
    in.limit_s = 82;
    assert_int_equal(simulate(&in, &sim), 0);
    assert_memory_equal(&sim, &whole, sizeof sim);
    graph_free(&e.graph);
}

/* The same on shared cores: the second update and the first norm take the computation's time. */
static void test_on_shared_cores_update_and_computation_have_half_the_speed(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 2, 1);
    e.of.rates.norm = 2 * TILE;
    e.of.rates.shared_cores = true;
    struct sim s = run(&e);
    assert_close(s.step_s, 80 + 3);
    assert_close(s.busy_s[LANE_UPDATE], 1 + 2 + 1 + 0.5);
    assert_close(bound_of(&e), 83);
    graph_free(&e.graph);
}

/* Without clipping the update of the last unit hides under the first one's backward. */
static void test_without_clipping_the_update_begins_in_the_backward(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 2, 1);
    e.of.in.deferred = false;
    struct sim s = run(&e);
    assert_close(s.step_s, 80 + 1);
    assert_close(s.drain_s, 1);
    assert_close(bound_of(&e), 81);
    graph_free(&e.graph);
}

/* One unit of two tiles whose states are read and written in a second each; forward 5, backward
 * 10. */
static void make_states_on_drives(struct example *e)
{
    make_example(e, 1, 2);
    e->of.units[0].nvme_states = 2;
    e->of.units[0].forward_flops = 5;
    e->of.units[0].backward_flops = 10;
    e->of.rates.read = e->of.rates.write = e->of.rates.mixed = 10.0 * TILE;
}

/*
 * With two slots both tiles are there when the norm is known, and each is updated in a second. The
 * other direction's second tile slows the first one of the next step, which is in no one's way.
 */
static void test_states_are_read_ahead_as_far_as_slots_go(void **state)
{
    struct example e;
    (void)state;
    make_states_on_drives(&e);
    e.of.in.buffers[POOL_TILES] = 2;
    struct sim s = run(&e);
    assert_close(s.step_s, 2 + 5 + 10);
    assert_close(s.stall_s[LANE_UPDATE], 2);
    assert_close(s.busy_s[LANE_READ], 2 + 1);
    assert_close(s.busy_s[LANE_WRITE], 1 + 2);
    assert_int_equal(s.peak[POOL_TILES], 2);
    assert_close(bound_of(&e), 17);
    graph_free(&e.graph);
    /* With one slot: update, write, read, update, and then the forward. */
    e.of.in.buffers[POOL_TILES] = 1;
    s = run(&e);
    assert_close(s.step_s, 4 + 5 + 10);
    assert_close(s.stall_s[LANE_UPDATE], 2);
    assert_close(s.stall_s[LANE_WRITE], 1);
    assert_close(s.stall_s[LANE_READ], 1);
    graph_free(&e.graph);
}

/* The same where cores that compute leave drives half of their speed. With two slots all is moved
 * beside an update or the computation. With one the first tile is written and the second one read
 * while both wait for it. */
static void test_drives_are_slower_beside_the_computation(void **state)
{
    struct example e;
    (void)state;
    make_states_on_drives(&e);
    e.of.rates.mixed_busy = 5.0 * TILE;
    e.of.rates.shared_cores = true;
    e.of.in.buffers[POOL_TILES] = 2;
    struct sim s = run(&e);
    assert_close(s.step_s, 2 + 5 + 10);
    assert_close(s.busy_s[LANE_READ], 2 * (2 + 1));
    assert_close(s.busy_s[LANE_WRITE], 2 * (1 + 2));
    graph_free(&e.graph);
    e.of.in.buffers[POOL_TILES] = 1;
    s = run(&e);
    assert_close(s.step_s, 4 + 5 + 10);
    assert_close(s.busy_s[LANE_READ], 1 + 2);
    assert_close(s.busy_s[LANE_WRITE], 1 + 2);
    assert_close(bound_of(&e), 19);
    graph_free(&e.graph);
    e.of.rates.shared_cores = false; /* a device computes */
    s = run(&e);
    assert_close(s.busy_s[LANE_READ], 1 + 1);
    graph_free(&e.graph);
}

/*
 * Two units on a device: copies 3 s each way to it, gradients 1 s back, forwards 1, backwards 2.
 * With room for both units' weights they are copied once, and the second copy hides.
 */
static void test_a_device_keeps_what_it_has_room_for(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 2, 1);
    for (int i = 0; i < 2; i++) {
        e.of.units[i].forward_flops = 1;
        e.of.units[i].backward_flops = 2;
    }
    e.of.in.apart = true;
    e.of.rates.update = 0;
    e.of.rates.h2d = 2.0 * TILE / 3;
    e.of.rates.d2h = 2.0 * TILE + TILE / 512; /* with the partials of their norm */
    e.of.in.buffers[POOL_DEVICE_WEIGHTS] = 2;
    e.of.in.buffers[POOL_DEVICE_GRADS] = 1;
    struct sim s = run(&e);
    /* copy 0-3, forward 3-4, copy 3-6, forward 6-7, backwards 7-9 and, when the buffer of the first
       gradients is free, 10-12; the last gradients 12-13 */
    assert_close(s.step_s, 13);
    assert_close(s.stall_s[LANE_H2D], 3 + 2);
    assert_close(s.stall_s[LANE_D2H], 1 + 1);
    graph_free(&e.graph);
    e.of.in.buffers[POOL_DEVICE_GRADS] = 2;
    s = run(&e);
    assert_close(s.step_s, 12);
    graph_free(&e.graph);
    e.of.in.buffers[POOL_DEVICE_WEIGHTS] = 1;
    s = run(&e); /* a copy before each forward, and one before the last backward */
    assert_close(s.step_s, 3 + 1 + 3 + 1 + 2 + 3 + 2 + 1);
    graph_free(&e.graph);
}

static void test_weights_that_stay_take_no_time(void **state)
{
    struct example e;
    (void)state;
    make_example(&e, 3, 1);
    for (int i = 0; i < 3; i++)
        e.of.units[i].weights = HST_TIER_NVME;
    e.of.rates.read = 2.0 * TILE / 100; /* 100 s for a unit */
    e.of.in.buffers[POOL_WEIGHTS] = 3;
    struct sim s = run(&e);
    assert_close(s.busy_s[LANE_READ], 0);
    assert_close(s.step_s, 1 + 3 * 40);
    assert_true(s.first_s > 300);
    graph_free(&e.graph);
    e.of.in.buffers[POOL_WEIGHTS] = 2; /* 2 of 3 stay at either turn */
    s = run(&e);
    assert_close(s.busy_s[LANE_READ], 200);
    graph_free(&e.graph);
}

/* Two lanes that each could fill the memory alone: while both run each has half of it. The next
 * step's read begins when the first is done. */
static void test_memory_is_shared_in_proportion(void **state)
{
    (void)state;
    struct graph graph = {0};
    uint32_t order[1] = {0};
    struct graph_unit unit = {0};
    struct graph_in in = {.units = &unit,
                          .unit_count = 1,
                          .forward = order,
                          .backward = order,
                          .tile_elements = TILE};
    struct build b = {.in = &in, .graph = &graph};
    assert_int_equal(build_open(&b), 0);
    build_node(&b, NODE_READ_ACTS, LANE_READ, PHASE_FORWARD, (struct node){0});
    build_operand(&b, (struct operand){.bytes = 50});
    build_node(&b, NODE_FETCH_ACTS, LANE_H2D, PHASE_FORWARD, (struct node){0});
    build_operand(&b, (struct operand){.bytes = 100});
    build_node(&b, NODE_RECOMPUTE, LANE_COMPUTE, PHASE_FORWARD, (struct node){.work = 1.25});
    uint32_t forward = build_node(&b, NODE_FORWARD, LANE_COMPUTE, PHASE_FORWARD, (struct node){0});
    build_dep(&b, forward, 0);
    build_dep(&b, forward, 1);
    assert_int_equal(build_close(&b), 0);
    struct sim sim;
    struct sim_in si = {.graph = &graph, .rates = {.read = 100, .h2d = 100, .dram = 100}};
    assert_int_equal(simulate(&si, &sim), 0);
    assert_close(sim.first_s, 2);
    assert_close(sim.step_s, 1.5); /* 150 bytes */
    si.rates.flops_per_s = 1;      /* a GPU moves none of them: its computation is not slowed */
    assert_int_equal(simulate(&si, &sim), 0);
    assert_close(sim.step_s, 1.5);
    si.rates.flops_per_s = 0;
    si.rates.dram = 1000;
    assert_int_equal(simulate(&si, &sim), 0);
    assert_close(sim.first_s, 1);
    assert_close(sim.step_s, 1);
    graph_free(&graph);
}

/* Two units of which each step's version writes weights and states, 12 bytes an element in 60 s. */
static void test_what_a_version_writes_of_memory_counts(void **state)
{
    (void)state;
    const unsigned phases = (unsigned)PHASE_SAVE | PHASE_COMMIT;
    struct example e;
    struct graph_bound bound;
    struct sim sim;
    make_example(&e, 2, 1);
    e.of.in.stored = true;
    e.of.rates.write = 12.0 * TILE / 60;
    assert_int_equal(graph_build(&e.of.in, &e.graph), 0);
    struct sim_in in = {.graph = &e.graph, .rates = e.of.rates, .phases = phases};
    assert_int_equal(simulate(&in, &sim), 0);
    assert_close(bound_of(&e), 81); /* computation, behind the first update */
    assert_int_equal(graph_bound(&e.graph, &e.of.rates, phases, &bound), 0);
    assert_close(bound.lane_s[LANE_WRITE], 120);
    assert_close(bound.step_s, 120);
    assert_in_range((uint64_t)sim.step_s, 120, 125);
    graph_free(&e.graph);
}

/* ---- what holds for every graph ---- */

struct seen {
    const struct graph *graph;
    double end_s[LANE_COUNT], first_begin_s, last_end_s;
    uint64_t nodes;
};

static void see_node(void *context, uint64_t step_window, uint32_t node, double start_s,
                     double end_s)
{
    struct seen *seen = context;
    enum lane lane = (enum lane)seen->graph->nodes[node].lane;
    (void)step_window;
    assert_true(start_s >= seen->end_s[lane]); /* one after another */
    assert_true(end_s >= start_s);
    seen->end_s[lane] = end_s;
    seen->last_end_s = fmax(seen->last_end_s, end_s);
    seen->nodes++;
}

static uint64_t nodes_of(const struct graph *g, unsigned phases)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < g->node_count; i++)
        count += (g->nodes[i].phases & phases) != 0;
    return count;
}

static bool lends_in_training(const struct graph *g, enum pool pool)
{
    bool lends = false;
    for (uint32_t i = 0; i < g->node_count; i++)
        lends |= (g->nodes[i].phases & PHASES_TRAIN) && graph_lends(g, &g->nodes[i], pool);
    return lends;
}

static void check_run(const struct graph_case *c, const struct graph *g)
{
    struct seen seen = {.graph = g};
    struct sim sim, again;
    struct sim_in in = {
        .graph = g, .rates = c->rates, .step_windows = 3, .node = see_node, .context = &seen};
    assert_int_equal(simulate(&in, &sim), 0);
    in.node = NULL;
    assert_int_equal(simulate(&in, &again), 0);
    assert_memory_equal(&sim, &again, sizeof sim);
    /* a first step, 3 that are measured, one more, and the update of the last */
    assert_true(seen.nodes == nodes_of(g, PHASES_TRAIN & ~(unsigned)PHASE_UPDATE) +
                                  4 * nodes_of(g, PHASES_TRAIN) + nodes_of(g, PHASE_UPDATE));
    in.limit_s = sim.step_s * 1.001;
    assert_int_equal(simulate(&in, &again), 0);
    assert_memory_equal(&sim, &again, sizeof sim);
    in.limit_s = sim.step_s * 0.9;
    assert_int_equal(simulate(&in, &again), 0);
    assert_true(isinf(again.step_s) || again.step_s == sim.step_s);
    double accounted = sim.busy_s[LANE_COMPUTE];
    for (int l = 0; l < LANE_COUNT; l++)
        accounted += sim.stall_s[l];
    if (fabs(accounted - sim.step_s) > 1e-9 * sim.step_s)
        fail_msg("%s: %.12g s of %.12g are accounted for", c->name, accounted, sim.step_s);
    for (int p = 0; p < POOL_COUNT; p++) {
        assert_true(sim.peak[p] <= g->buffers[p] && (g->pool_count[p] > 0 || sim.peak[p] == 0));
        assert_true(sim.peak[p] > 0 || !lends_in_training(g, (enum pool)p));
    }
}

static uint32_t repeated; /* graphs of which most was not simulated */

/* Once a step ends as the one before all others do: what is not simulated would tell nothing. */
static void check_brief(const struct graph_case *c, const struct graph *g)
{
    struct sim all, brief;
    struct seen seen = {.graph = g}, less = {.graph = g};
    struct sim_in in = {
        .graph = g, .rates = c->rates, .step_windows = 12, .node = see_node, .context = &seen};
    assert_int_equal(simulate(&in, &all), 0);
    in.brief = true;
    in.context = &less;
    assert_int_equal(simulate(&in, &brief), 0);
    if (fabs(all.step_s - brief.step_s) > 1e-9 * all.step_s)
        fail_msg("%s: a step of %.12g s, in brief %.12g", c->name, all.step_s, brief.step_s);
    assert_true(less.nodes <= seen.nodes);
    repeated += less.nodes < seen.nodes / 2;
}

/* Work may be put off for many steps before it is as steady as the bound is about. */
static void check_bound(const struct graph_case *c, const struct graph *g)
{
    struct graph_bound bound;
    struct sim sim;
    struct sim_in in = {.graph = g, .rates = c->rates, .step_windows = 200};
    assert_int_equal(simulate(&in, &sim), 0);
    assert_int_equal(graph_bound(g, &c->rates, 0, &bound), 0);
    assert_true(bound.step_s >= bound.busiest_s);
    assert_true(graph_busiest(g, &c->rates, 0) == bound.busiest_s);
    if (sim.step_s < bound.step_s * (1 - 1e-9))
        fail_msg("%s: a step takes %.12g s, the bound is %.12g", c->name, sim.step_s, bound.step_s);
}

static void test_a_run_is_deterministic_and_accounts_for_every_second(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_run);
}

static void test_in_brief_a_step_takes_as_long(void **state)
{
    (void)state;
    repeated = 0;
    for_random_graphs(seeds, check_brief);
    assert_true(repeated > 0);
}

static void test_no_step_is_faster_than_the_bound(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_bound);
}

static void test_a_graph_that_deadlocks_is_found(void **state)
{
    struct example e;
    struct sim sim;
    (void)state;
    make_example(&e, 2, 1);
    e.of.units[0].nvme_states = 1;
    e.of.in.buffers[POOL_TILES] = 1;
    (void)run(&e);
    e.graph.buffers[POOL_TILES] = 0;
    struct sim_in in = {.graph = &e.graph, .rates = e.of.rates};
    assert_int_equal(simulate(&in, &sim), -EDEADLK);
    graph_free(&e.graph);
}

/* ---- the bound, phase by phase ---- */

/*
 * The formula of a phase (docs/nvme-bench.md) on 40 equal units of 4 tiles with states on a drive,
 * 40 s of forward, 120 of backward, 80 of reads and of writes, the update free: what the bound
 * finds in the graph by itself is the formula, but for a unit or so on the way in and out.
 */
static void test_the_bound_is_the_formula_of_its_phases(void **state)
{
    static const struct {
        bool deferred;
        double late_share, mixed, want;
    } of[] = {
        {true, 0, 2, 120 + 80},  /* the update hides under the forward alone */
        {true, 0, 1, 120 + 160}, /* on half-duplex drives reads and writes take turns */
        {false, 0, 2, 40 + 120}, /* it hides under the backward alone */
        {false, 0, 1, 40 + 160},
        {false, 0.25, 1, 160}, /* a share of it under the forward: the drives work all the time */
        {true, 0, 1.5, 120 + 80 / 0.75},
    };
    static const struct graph_unit unit = {.tile_count = 4,
                                           .weights = HST_TIER_DRAM,
                                           .grads = HST_TIER_DRAM,
                                           .acts = HST_TIER_DRAM,
                                           .nvme_states = 4,
                                           .forward_flops = 1,
                                           .backward_flops = 3};
    struct graph_case *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        even_case(c, 40, &unit);
        c->rates = (struct sim_rates){.flops_per_s = 1,
                                      .read = 40 * 10.0 * TILE * 4 / 80,
                                      .write = 40 * 10.0 * TILE * 4 / 80};
        c->rates.mixed = of[i].mixed * c->rates.read;
        c->in.deferred = of[i].deferred;
        c->in.late_share = of[i].late_share;
        c->in.buffers[POOL_TILES] = 4;
        struct graph g;
        struct graph_bound bound;
        assert_int_equal(graph_build(&c->in, &g), 0);
        assert_int_equal(graph_bound(&g, &c->rates, 0, &bound), 0);
        assert_close(bound.lane_s[LANE_READ], 80);
        assert_close(bound.lane_s[LANE_COMPUTE], 160);
        if (fabs(bound.step_s / of[i].want - 1) > 0.03)
            fail_msg("row %zu: %g, want about %g", i, bound.step_s, of[i].want);
        graph_free(&g);
    }
    free(c);
}

/*
 * States on drives that are busy 0.8 times as long as the computation: under the whole step and
 * not the forward alone. The norm is waited for where nothing is kept: weights are read anew.
 */
static void test_an_optimistic_update_hides_under_the_backward_too(void **state)
{
    static const struct {
        enum hst_tier weights;
        double mixed;
        uint32_t slots;
    } of[] = {{HST_TIER_DRAM, 2, 4},
              {HST_TIER_DRAM, 1, 4},
              {HST_TIER_DRAM, 1.5, 24},
              {HST_TIER_NVME, 1.5, 4},
              {HST_TIER_NVME, 1, 24}};
    struct graph_unit unit = {.tile_count = 4,
                              .grads = HST_TIER_DRAM,
                              .acts = HST_TIER_DRAM,
                              .nvme_states = 4,
                              .forward_flops = 1,
                              .backward_flops = 3};
    struct graph_case *c = calloc(1, sizeof *c);
    (void)state;
    assert_non_null(c);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct sim sims[2];
        struct graph_bound bound;
        for (int optimistic = 0; optimistic < 2; optimistic++) {
            struct graph g;
            unit.weights = of[i].weights;
            even_case(c, 40, &unit);
            c->rates.flops_per_s = c->rates.read = c->rates.write = 1;
            c->rates.mixed = of[i].mixed;
            c->in.deferred = !optimistic;
            c->in.optimistic = optimistic;
            c->in.stored = true;
            c->in.buffers[POOL_TILES] = of[i].slots;
            c->in.buffers[POOL_WEIGHTS] = 3;
            assert_int_equal(graph_build(&c->in, &g), 0);
            assert_int_equal(graph_bound(&g, &c->rates, 0, &bound), 0);
            double faster = bound.drives_s / (0.8 * 160);
            c->rates.read = c->rates.write = faster;
            c->rates.mixed *= faster;
            assert_int_equal(graph_bound(&g, &c->rates, 0, &bound), 0);
            assert_close(bound.drives_s, 0.8 * 160);
            assert_int_equal(
                simulate(&(struct sim_in){.graph = &g, .rates = c->rates}, &sims[optimistic]), 0);
            graph_free(&g);
        }
        print_message("row %zu: %.3f times faster, %.3f times the bound\n", i,
                      sims[0].step_s / sims[1].step_s, sims[1].step_s / bound.step_s);
        assert_true(sims[0].step_s >= 1.2 * sims[1].step_s);
        assert_true(sims[1].step_s >= bound.step_s * (1 - 1e-9));
    }
    free(c);
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_update_hides_under_the_forward),
        cmocka_unit_test(test_a_step_beyond_its_limit_has_no_end),
        cmocka_unit_test(test_on_shared_cores_update_and_computation_have_half_the_speed),
        cmocka_unit_test(test_without_clipping_the_update_begins_in_the_backward),
        cmocka_unit_test(test_states_are_read_ahead_as_far_as_slots_go),
        cmocka_unit_test(test_drives_are_slower_beside_the_computation),
        cmocka_unit_test(test_a_device_keeps_what_it_has_room_for),
        cmocka_unit_test(test_weights_that_stay_take_no_time),
        cmocka_unit_test(test_memory_is_shared_in_proportion),
        cmocka_unit_test(test_what_a_version_writes_of_memory_counts),
        cmocka_unit_test(test_a_run_is_deterministic_and_accounts_for_every_second),
        cmocka_unit_test(test_in_brief_a_step_takes_as_long),
        cmocka_unit_test(test_no_step_is_faster_than_the_bound),
        cmocka_unit_test(test_a_graph_that_deadlocks_is_found),
        cmocka_unit_test(test_the_bound_is_the_formula_of_its_phases),
        cmocka_unit_test(test_an_optimistic_update_hides_under_the_backward_too),
    };
    printf("seeds %llu to %llu\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
