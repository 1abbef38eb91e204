/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of units of two sizes that alternate: how far ahead their weights are brought with so many
 * buffers of either size. (test_scheduler.c and test_graph_ranks.c walk random ones.)
 */
#include "graph_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define UNITS 10u

/* Two ranks have all at home in DRAM beside a device; every second unit is narrow. */
static void make_halves(struct graph_case *e, uint32_t usual, uint32_t narrow)
{
    const struct graph_unit unit = {.tile_count = 2,
                                    .weights = HST_TIER_DRAM,
                                    .grads = HST_TIER_DRAM,
                                    .acts = HST_TIER_HBM,
                                    .act_bytes = 1000,
                                    .forward_flops = 1,
                                    .backward_flops = 3};
    even_case(e, UNITS, &unit);
    e->in.apart = true;
    e->in.ranks = 2;
    e->in.hand_bytes = 2;
    for (uint32_t u = 0; u < UNITS; u++)
        e->units[u].row_elements = 2 * e->units[u].elements;
    for (uint32_t u = 1; u < UNITS; u += 2)
        e->units[u].size = UNIT_NARROW;
    e->in.buffers[POOL_WEIGHTS] = e->in.buffers[POOL_NARROW_WEIGHTS] = 2;
    e->in.buffers[POOL_GRADS] = e->in.buffers[POOL_NARROW_GRADS] = 1;
    e->in.buffers[POOL_DEVICE_GRADS] = e->in.buffers[POOL_DEVICE_NARROW_GRADS] = 1;
    e->in.buffers[POOL_DEVICE_WEIGHTS] = usual;
    e->in.buffers[POOL_DEVICE_NARROW_WEIGHTS] = narrow;
}

static struct graph build(const struct graph_case *e)
{
    struct graph g;
    uint32_t node;
    assert_int_equal(graph_build(&e->in, &g), 0);
    assert_int_equal(graph_check(&g, &node), 0);
    return g;
}

/* The node of that kind and unit in the sweep; GRAPH_NONE: it has none. */
static uint32_t find(const struct graph *g, enum node_kind kind, uint32_t unit, unsigned phase)
{
    for (uint32_t n = 0; n < g->node_count; n++)
        if (g->nodes[n].kind == kind && g->nodes[n].unit == unit && (g->nodes[n].phases & phase))
            return n;
    return GRAPH_NONE;
}

/* Visits between the one at hand and that of the unit whose copy is the last before it, of the unit
 * in the middle. */
static uint32_t copies_ahead(const struct graph *g)
{
    uint32_t visit = find(g, NODE_FORWARD, UNITS / 2, PHASE_FORWARD), ahead = 0;
    while (find(g, NODE_COPY_WEIGHTS, UNITS / 2 + ahead + 1, PHASE_FORWARD) < visit)
        ahead++;
    return ahead;
}

static void copies_come_as_far_ahead_as_buffers_of_either_size_go(void **state)
{
    (void)state;
    /* of usual and narrow ones; none of the narrow: they take turns at the usual ones */
    static const uint32_t cases[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 3},
                                        {2, 3, 3}, {1, 0, 0}, {2, 0, 1}, {3, 0, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph_case e;
        make_halves(&e, cases[i][0], cases[i][1]);
        struct graph g = build(&e);
        assert_int_equal(copies_ahead(&g), cases[i][2]);
        assert_int_equal(g.pool_count[POOL_DEVICE_NARROW_WEIGHTS] > 0, cases[i][1] > 0);
        graph_free(&g);
    }
}

/* Three narrow ones in a row: with fewer buffers of their size the next one is copied when one
 * before it is through. Buffers of other units do not help. */
static void where_units_of_a_size_meet_less_is_brought_ahead(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = {{3, 3}, {2, 1}, {1, 0}}; /* of narrow ones */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct graph_case e;
        make_halves(&e, 4, cases[i][0]);
        e.units[UNITS - 2].size = UNIT_NARROW;
        struct graph g = build(&e);
        assert_int_equal(copies_ahead(&g), cases[i][1]);
        graph_free(&g);
    }
}

/* In the order of the backward's visits too: a segment ends and the next one begins with the same
 * size. */
static void segments_bring_less_ahead_where_they_meet(void **state)
{
    (void)state;
    struct graph_case e;
    make_halves(&e, 1, 1);
    for (uint32_t u = 2; u < UNITS; u += 2) { /* units 2, 4, 6 and 8 are not kept */
        e.units[u].recomputed = true;
        e.units[u].act_bytes = 0;
    }
    struct graph g = build(&e);
    assert_int_equal(copies_ahead(&g), 0);
    graph_free(&g);
}

/* With one copy ahead the row after it is gathered before the exchange of the visit at hand. */
static bool gathers_before_exchange(const struct graph_case *e)
{
    struct graph g = build(e);
    const uint32_t middle = UNITS / 2;
    const uint32_t gather = find(&g, NODE_GATHER, middle - 2, PHASE_BACKWARD);
    const uint32_t exchange = find(&g, NODE_EXCHANGE, middle, PHASE_BACKWARD);
    const uint32_t copy = find(&g, NODE_COPY_WEIGHTS, middle - 2, PHASE_BACKWARD);
    assert_true(gather != GRAPH_NONE && exchange != GRAPH_NONE && copy > exchange);
    graph_free(&g);
    return gather < exchange;
}

static void rows_of_halves_are_gathered_before_the_exchange_at_hand(void **state)
{
    (void)state;
    struct graph_case e;
    make_halves(&e, 1, 1);
    assert_true(gathers_before_exchange(&e));
    make_halves(&e, 2, 0); /* buffers of one size */
    assert_true(gathers_before_exchange(&e));
    for (uint32_t u = 0; u < UNITS; u++)
        e.units[u].size = UNIT_USUAL; /* layers */
    assert_false(gathers_before_exchange(&e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_come_as_far_ahead_as_buffers_of_either_size_go),
        cmocka_unit_test(where_units_of_a_size_meet_less_is_brought_ahead),
        cmocka_unit_test(segments_bring_less_ahead_where_they_meet),
        cmocka_unit_test(rows_of_halves_are_gathered_before_the_exchange_at_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
