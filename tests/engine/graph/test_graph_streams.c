/* SPDX-License-Identifier: Apache-2.0 */
/* Step graphs by hand in which tiles are streamed through a device, or written late, and what a
 * million random ones have found. */
#include "graph_cases.h"
#include "plan/graph/graph_build.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define UNITS ONE_TIER_UNITS
#define TILE  EVEN_TILE

/* The device keeps what unit 2 is recomputed with, and not what its backward reads: that is
 * copied from a buffer of the host's, which is there. */
static void test_weights_of_a_second_visit_are_there(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_NVME, true);
    e.units[3] = (struct graph_unit){.first_tile = 12,
                                     .weights = HST_TIER_HBM,
                                     .grads = HST_TIER_HBM,
                                     .acts = HST_TIER_HBM,
                                     .recomputed = true};
    e.units[4].weights = e.units[5].weights = HST_TIER_HBM;
    e.units[4].tile_count = e.units[5].tile_count = 0;
    e.in.unit_count = 4;
    for (uint32_t u = 0; u < 4; u++)
        e.backward[u] = 3 - u;
    e.in.buffers[POOL_WEIGHTS] = 4;
    e.in.buffers[POOL_DEVICE_WEIGHTS] = 1;
    assert_int_equal(graph_build(&e.in, &g), 0);
    for (uint32_t i = 0; i < g.node_count; i++)
        assert_true(g.nodes[i].kind != NODE_COPY_WEIGHTS ||
                    graph_lends(&g, &g.nodes[i], POOL_WEIGHTS));
    graph_free(&g);
}

/* Nobody need have read those of the step before: its update stood. */
static void test_gradients_are_written_one_step_after_another(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    uint32_t writes = 0;
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.units[1].grads = HST_TIER_NVME;
    e.in.deferred = false;
    e.in.optimistic = e.in.stored = true;
    assert_int_equal(graph_build(&e.in, &g), 0);
    for (uint32_t i = 0; i < g.node_count; i++) {
        const struct node *n = &g.nodes[i];
        bool waits = false;
        for (uint32_t d = 0; d < n->dep_count; d++)
            waits |= g.deps[n->first_dep + d] == (i | DEP_BEFORE);
        writes += n->kind == NODE_WRITE_GRADS;
        assert_true(n->kind != NODE_WRITE_GRADS || waits);
    }
    assert_int_equal(writes, 1);
    graph_free(&g);
}

/* It forgets what is not committed; nothing else need come between the two where all is late. */
static void test_a_revert_waits_for_the_version_before_it(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    uint32_t node[NODE_KIND_COUNT] = {0};
    bool waits = false;
    one_tier_case(&e, HST_TIER_DRAM, false);
    e.in.deferred = false;
    e.in.optimistic = e.in.stored = true;
    e.in.late_share = 1;
    assert_int_equal(graph_build(&e.in, &g), 0);
    for (uint32_t i = 0; i < g.node_count; i++)
        node[g.nodes[i].kind] = i;
    const struct node *revert = &g.nodes[node[NODE_REVERT]];
    for (uint32_t d = 0; d < revert->dep_count; d++)
        waits |= g.deps[revert->first_dep + d] == (node[NODE_COMMIT] | DEP_BEFORE);
    assert_true(waits);
    graph_free(&g);
}

/* The number of the last read of weights for the forward. */
static uint32_t last_read(const struct graph *g)
{
    uint32_t last = GRAPH_NONE;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].kind == NODE_READ_WEIGHTS && (g->nodes[i].phases & PHASE_FORWARD))
            last = i;
    assert_int_not_equal(last, GRAPH_NONE);
    return last;
}

/* Units whose update is written behind all reads of the forward, and waits for them, a bit each. */
static unsigned written_last(const struct graph_case *e)
{
    struct graph g;
    unsigned units = 0, others = 0;
    assert_int_equal(graph_build(&e->in, &g), 0);
    uint32_t read = last_read(&g);
    for (uint32_t i = 0; i < g.node_count; i++) {
        const struct node *n = &g.nodes[i];
        bool waits = false;
        for (uint32_t d = 0; n->kind == NODE_WRITE_TILE && d < n->dep_count; d++)
            waits |= g.deps[n->first_dep + d] == read;
        units |= waits ? 1u << n->unit : 0;
        others |= n->kind == NODE_WRITE_TILE && !waits ? 1u << n->unit : 0;
    }
    assert_int_equal(units & others, 0);
    graph_free(&g);
    return units;
}

/* With 3 buffers for weights in host memory. */
static void weights_case(struct graph_case *e, bool apart)
{
    one_tier_case(e, HST_TIER_NVME, apart);
    for (uint32_t u = 0; u < UNITS; u++) {
        e->units[u].nvme_states = 0;
        e->units[u].grads = HST_TIER_DRAM;
    }
}

/* As many units' weights as the forward's end has buffers for. */
static void test_the_last_updated_weights_are_written_when_all_have_been_read(void **state)
{
    (void)state;
    struct graph_case e;
    weights_case(&e, false);
    assert_int_equal(written_last(&e), 0x38); /* all stay for the backward */
    weights_case(&e, true);
    assert_int_equal(written_last(&e), 0x30); /* the device keeps them, unit 3 is read again */
    e.in.buffers[POOL_WEIGHTS] = 5;
    assert_int_equal(written_last(&e), 0x3c); /* units 2 and 3 stay */
    e.in.buffers[POOL_WEIGHTS] = 4;
    e.in.buffers[POOL_DEVICE_WEIGHTS] = 5;
    assert_int_equal(written_last(&e), 0x39); /* unit 0 stays, 3 buffers are others' */
    weights_case(&e, false);
    e.units[5].alias_of[0] = 3; /* it reads unit 3 from the drive in the forward */
    e.units[5].alias_bytes[0] = 100;
    e.units[5].alias_count = 1;
    assert_int_equal(written_last(&e), 0x30);
    weights_case(&e, false);
    e.units[4].weights = HST_TIER_DRAM; /* nothing to write, and no buffer */
    assert_int_equal(written_last(&e), 0x2c);
    weights_case(&e, false);
    e.units[5].nvme_states = 4; /* a slot waits for each of its writes */
    assert_int_equal(written_last(&e), 0x18);
    e.in.deferred = false;
    assert_int_equal(written_last(&e), 0);
    e.in.late_share = 1;
    assert_int_equal(written_last(&e), 0);
}

/* Who updates a tile has it at home in the host's memory, with its gradients and states. */
static void test_what_is_streamed_is_at_home_in_memory(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    static const struct {
        enum hst_tier weights, grads;
        uint32_t nvme_states;
        bool apart;
        int rc;
    } of[] = {{HST_TIER_DRAM, HST_TIER_DRAM, 2, true, 0},
              {HST_TIER_DRAM, HST_TIER_DRAM, 3, true, -EINVAL},
              {HST_TIER_NVME, HST_TIER_DRAM, 2, true, -EINVAL},
              {HST_TIER_DRAM, HST_TIER_NVME, 2, true, -EINVAL},
              {HST_TIER_HBM, HST_TIER_HBM, 0, true, -EINVAL},
              {HST_TIER_DRAM, HST_TIER_DRAM, 0, false, -EINVAL}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        one_tier_case(&e, HST_TIER_DRAM, of[i].apart);
        e.units[1].weights = of[i].weights;
        e.units[1].grads = of[i].grads;
        e.units[1].nvme_states = of[i].nvme_states;
        e.units[1].streamed_tiles = 2;
        assert_int_equal(graph_build(&e.in, &g), of[i].rc);
        if (of[i].rc == 0)
            graph_free(&g);
    }
}

/* Two of a unit's four tiles: three nodes each, one after another, on lanes that no computation
 * waits in. */
static void test_the_device_updates_what_is_streamed_beside_the_host(void **state)
{
    (void)state;
    struct graph_case e;
    struct graph g;
    one_tier_case(&e, HST_TIER_DRAM, true);
    for (uint32_t u = 0; u < UNITS; u++)
        e.units[u].streamed_tiles = 2;
    assert_int_equal(graph_build(&e.in, &g), 0);
    uint32_t host = 0, device = 0;
    double in = 0, out = 0;
    for (uint32_t i = 0; i < g.node_count; i++) {
        const struct node *n = &g.nodes[i];
        host += n->kind == NODE_UPDATE && n->lane == LANE_UPDATE ? n->tile_count : 0;
        device += n->kind == NODE_UPDATE && n->lane == LANE_DEVICE_UPDATE;
        in += n->kind == NODE_FETCH_TILE && n->lane == LANE_H2D ? n->work : 0;
        out += n->kind == NODE_STORE_TILE && n->lane == LANE_D2H ? n->work : 0;
        if (n->lane == LANE_DEVICE_UPDATE) {
            assert_int_equal(g.nodes[i - 1].kind, NODE_FETCH_TILE);
            assert_int_equal(g.nodes[i + 1].kind, NODE_STORE_TILE);
            assert_true(n->tile % 4 >= 2);
        }
    }
    assert_int_equal(host, 2 * UNITS);
    assert_int_equal(device, 2 * UNITS);
    assert_true(in == 2 * UNITS * 14.0 * TILE);
    assert_true(out == 2 * UNITS * 12.0 * TILE);
    graph_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_of_a_second_visit_are_there),
        cmocka_unit_test(test_a_revert_waits_for_the_version_before_it),
        cmocka_unit_test(test_the_last_updated_weights_are_written_when_all_have_been_read),
        cmocka_unit_test(test_gradients_are_written_one_step_after_another),
        cmocka_unit_test(test_what_is_streamed_is_at_home_in_memory),
        cmocka_unit_test(test_the_device_updates_what_is_streamed_beside_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
