/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs of ranks whose node keeps what it has gathered: what comes from there in the
 * backward is not read from a drive as well, but for exact weights beside integers, and where rows
 * come together on a device: an update on the host wants those.
 * (test_graph_ranks.c walks such graphs.)
 */
#include "shared_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RUNS  3000u
#define RANKS 2u

static const struct node *find(const struct graph *graph, enum node_kind kind, uint32_t unit)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].kind == kind && graph->nodes[n].unit == unit &&
            graph->nodes[n].phases == PHASE_BACKWARD)
            return &graph->nodes[n];
    return NULL;
}

/* It is visited twice: what its recompute gathers near may be gone when its update reads. */
static bool recomputes(const struct graph *graph, uint32_t unit)
{
    return find(graph, NODE_RECOMPUTE, unit);
}

struct seen {
    uint32_t near, far, exact;
};

static void look(const struct graph_in *in, const struct graph *graph, struct seen *seen)
{
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const bool reads = find(graph, NODE_READ_WEIGHTS, i);
        if (!find(graph, NODE_GATHER_NEAR, i)) {
            seen->far += reads;
            continue;
        }
        if (!in->exact_beside && !in->device_rows && !recomputes(graph, i))
            assert_false(reads);
        seen->exact += in->exact_beside && reads;
        seen->near++;
    }
}

static void what_a_node_keeps_is_not_read(void **state)
{
    static struct graph_case whole, c;
    struct seen seen = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        uint64_t cuts = seed;
        struct graph graph;
        shared_case(seed, &whole);
        if (whole.in.secondary == 0)
            continue;
        whole.in.quantised = seed % 2 == 0;
        whole.in.exact_beside = whole.in.quantised && !whole.in.device_rows;
        cut_rows(&whole, 0, RANKS, &cuts, &c);
        if (graph_build(&c.in, &graph))
            continue;
        look(&c.in, &graph, &seen);
        graph_free(&graph);
    }
    assert_true(seen.near > 100 && seen.far > 10 && seen.exact > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_node_keeps_is_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
