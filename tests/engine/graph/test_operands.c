/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a step graph move or work on: all bytes of their work, in buffers they have. */
#include "graph_cases.h"
#include "plan/graph/graph_bound.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNS    2000u
#define TILE    EVEN_TILE
#define WEIGHTS (4.0 * TILE * 2) /* bytes of a unit's */

static struct seeds seeds;

/* Where operands are what a node moves they are its work: no node of a lane that moves was given
 * any beside them. What they are is compared with the extents' counters (engine/matrix). */
static void check_operands(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        const struct operand *op = graph_operands(g, n);
        double bytes = 0;
        for (unsigned o = 0; o < n->operand_count; o++)
            bytes += (double)op[o].bytes;
        bool moves = n->lane <= LANE_NET;
        if (moves && (bytes != n->work || bytes != n->dram_bytes))
            fail_msg("%s: node %u (%s) works %.17g bytes, and its operands are %.17g", c->name, i,
                     node_kind_name((enum node_kind)n->kind), n->work, bytes);
        for (unsigned o = 0; o < n->operand_count; o++)
            if (moves == (memcmp(&op[o].from, &op[o].to, sizeof op[o].to) == 0))
                fail_msg("%s: node %u (%s) moves an operand from where it is, or out of its place",
                         c->name, i, node_kind_name((enum node_kind)n->kind));
    }
}

static void test_what_a_node_moves_is_the_sum_of_its_operands(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_operands);
}

/* All weights on drives that a unit's computation reads. */
static double away_bytes(const struct graph_case *c, uint32_t unit)
{
    const struct graph_unit *u = &c->units[unit];
    double bytes = u->weights == HST_TIER_NVME ? (double)u->elements * c->in.weight_bytes : 0;
    for (uint32_t a = 0; a < u->alias_count; a++)
        if (c->units[u->alias_of[a]].weights == HST_TIER_NVME)
            bytes += (double)u->alias_bytes[a];
    return bytes;
}

static uint32_t extents_of(const struct graph *g, const struct node *n)
{
    uint32_t extents = 0;
    for (unsigned o = 0; o < n->operand_count; o++)
        extents += graph_operands(g, n)[o].count;
    return extents;
}

/* Pieces of a unit's weights follow one another, between other nodes, and none is larger than
 * another by more than an extent. */
static void check_pieces(const struct graph_case *c, const struct graph *g)
{
    double read = 0;
    uint32_t next = 0, least = 0, most = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        if (n->kind != NODE_READ_WEIGHTS)
            continue;
        assert_int_equal(n->tile, next);
        read += n->work;
        uint32_t extents = extents_of(g, n);
        least = extents < least || n->tile == 0 ? extents : least;
        most = extents > most || n->tile == 0 ? extents : most;
        if (most > least + 1)
            fail_msg("%s: pieces of unit %u have %u and %u extents", c->name, n->unit, least, most);
        next = (next + 1) % n->tile_count;
        if (next == 0 && read != away_bytes(c, n->unit))
            fail_msg("%s: %g bytes of unit %u's weights are read, not %g", c->name, read, n->unit,
                     away_bytes(c, n->unit));
        read = next == 0 ? 0 : read;
    }
    assert_int_equal(next, 0);
}

static void test_weights_on_drives_are_read_whole(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_pieces);
}

/* An operand that is in a buffer is in one that its node borrows. */
static void check_buffers(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        for (unsigned o = 0; o < n->operand_count; o++) {
            const struct operand *op = &graph_operands(g, n)[o];
            const struct operand_end ends[] = {op->from, op->to};
            for (int e = 0; e < 2; e++)
                if (ends[e].pool != POOL_COUNT && !graph_lends(g, n, (enum pool)ends[e].pool))
                    fail_msg("%s: node %u (%s) has an operand in pool %u and no buffer of it",
                             c->name, i, node_kind_name((enum node_kind)n->kind), ends[e].pool);
        }
    }
}

static void test_operands_are_in_buffers_that_their_nodes_borrow(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_buffers);
}

/* The nodes of a unit alone are those of its visits in the graph of a step that keeps nothing. */
static void check_alone(const struct graph_case *c, const struct graph *g)
{
    for (uint32_t u = 0; u < c->in.unit_count; u++) {
        struct graph alone;
        assert_int_equal(graph_build_unit(&c->in, u, &alone), 0);
        uint32_t stuck = 0;
        assert_int_equal(graph_check(&alone, &stuck), 0); /* it is run as any other graph is */
        check_operands(c, &alone);
        check_buffers(c, &alone);
        double early = 0, want = 0;
        uint32_t visits = 0;
        for (uint32_t i = 0; i < g->node_count; i++)
            if (g->nodes[i].kind == NODE_UPDATE && g->nodes[i].unit == u)
                want += g->nodes[i].phases == PHASE_BACKWARD ? g->nodes[i].work : 0;
        for (uint32_t i = 0; i < alone.node_count; i++) {
            const struct node *n = &alone.nodes[i];
            if (n->unit != u || (n->phases & ((unsigned)PHASE_UPDATE | PHASE_REDO | PHASE_SAVE)))
                fail_msg("%s: unit %u alone has a %s of unit %u", c->name, u,
                         node_kind_name((enum node_kind)n->kind), n->unit);
            early += n->kind == NODE_UPDATE ? n->work : 0;
            visits += n->kind == NODE_FORWARD || n->kind == NODE_BACKWARD;
        }
        assert_true(early == want);
        assert_int_equal(visits, c->units[u].rests ? 1 : 2);
        graph_free(&alone);
    }
}

static void test_a_unit_alone_has_its_visits_and_its_early_update(void **state)
{
    (void)state;
    for_random_graphs(seeds, check_alone);
}

static uint32_t left_out; /* nodes of redos, dependencies that follow from others */

/* To the bit. */
static void check_brief(const struct graph_case *c, const struct graph *g)
{
    struct graph brief;
    struct graph_in graph_in = c->in;
    struct sim_in in = {.graph = g, .rates = c->rates, .brief = true};
    struct sim sim, same;
    graph_in.brief = true;
    assert_int_equal(graph_build(&graph_in, &brief), 0);
    assert_int_equal(simulate(&in, &sim), 0);
    in.graph = &brief;
    assert_int_equal(simulate(&in, &same), 0);
    if (same.step_s != sim.step_s)
        fail_msg("%s: a step of %.17g s, in brief %.17g", c->name, sim.step_s, same.step_s);
    in.phases = (unsigned)PHASE_SAVE | PHASE_COMMIT;
    assert_int_equal(simulate(&in, &same), 0);
    in.graph = g;
    assert_int_equal(simulate(&in, &sim), 0);
    if (same.step_s != sim.step_s)
        fail_msg("%s: a step that commits of %.17g s, in brief %.17g", c->name, sim.step_s,
                 same.step_s);
    assert_true(graph_busiest(&brief, &c->rates, 0) == graph_busiest(g, &c->rates, 0));
    assert_int_equal(brief.operand_count, 0);
    left_out += g->node_count - brief.node_count + g->dep_count - brief.dep_count;
    graph_free(&brief);
}

static void test_what_a_brief_graph_leaves_out_changes_no_step(void **state)
{
    (void)state;
    left_out = 0;
    for_random_graphs(seeds, check_brief);
    assert_true(left_out > 0);
}

/* A tile's record is longer than its elements where it is padded, once for each tile. */
static void test_records_are_moved_with_their_padding(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_NVME, false);
    e.in.record_pad = 96;
    for (uint32_t u = 0; u < e.in.unit_count; u++)
        e.units[u].last_record_pad = 96;
    assert_int_equal(graph_build(&e.in, &g), 0);
    double bytes = 0;
    for (uint32_t i = 0; i < g.node_count; i++)
        bytes += g.nodes[i].kind == NODE_READ_TILE ? g.nodes[i].work : 0;
    double grads = (ONE_TIER_UNITS - 2) * WEIGHTS; /* of two units they have stayed */
    assert_true(bytes == ONE_TIER_UNITS * 4 * (TILE * 10.0 + 96) + grads);
    graph_free(&g);
}

/* A unit whose weights are read in pieces is read whole, whatever the pieces; none is less than a
 * tile. */
static void test_pieces_of_weights_are_a_whole(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_NVME, false);
    e.in.buffers[POOL_TILES] = 1;
    assert_int_equal(graph_build(&e.in, &g), 0);
    uint32_t next = 0, pieces = 0, tile = e.units[1].first_tile;
    for (uint32_t i = 0; i < g.node_count; i++) {
        const struct node *n = &g.nodes[i];
        if (n->kind != NODE_READ_WEIGHTS || n->unit != 1)
            continue;
        assert_int_equal(n->tile, next);
        pieces = n->tile_count;
        next = (next + 1) % pieces;
        assert_true(n->work == WEIGHTS / 4);
        assert_int_equal(n->operand_count, 1);
        assert_int_equal(graph_operands(&g, n)->first, tile);
        assert_int_equal(graph_operands(&g, n)->offset, (tile - 4) * TILE * 2);
        tile = next == 0 ? e.units[1].first_tile : tile + 1;
    }
    assert_int_equal(pieces, 4); /* half a slot's weights would be less than a tile */
    assert_int_equal(next, 0);
    graph_free(&g);
}

int main(int argc, char **argv)
{
    seeds = seeds_of(argc, argv, RUNS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_node_moves_is_the_sum_of_its_operands),
        cmocka_unit_test(test_weights_on_drives_are_read_whole),
        cmocka_unit_test(test_operands_are_in_buffers_that_their_nodes_borrow),
        cmocka_unit_test(test_a_unit_alone_has_its_visits_and_its_early_update),
        cmocka_unit_test(test_what_a_brief_graph_leaves_out_changes_no_step),
        cmocka_unit_test(test_records_are_moved_with_their_padding),
        cmocka_unit_test(test_pieces_of_weights_are_a_whole),
    };
    printf("seeds %llu to %llu\n", (unsigned long long)seeds.first,
           (unsigned long long)(seeds.first + seeds.count - 1));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
