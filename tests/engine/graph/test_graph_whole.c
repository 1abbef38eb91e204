/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs of ranks whose weights are whole at home: in which sweep their rows come together,
 * where the update is part of the backward. (test_graph_ranks.c walks such graphs.)
 */
#include "shared_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#define RUNS  8000u
#define RANKS 2u

/* Elements of rows that are trained; rows that come together in the backward. */
struct seen {
    double all, forward, early, largest;
    uint32_t backward;
};

static bool depends(const struct graph *g, uint32_t node, uint32_t dep)
{
    const struct node *n = &g->nodes[node];
    for (uint32_t i = n->first_dep; i < n->first_dep + n->dep_count; i++)
        if (g->deps[i] == dep)
            return true;
    return false;
}

static void look_at_unit(const struct graph_in *in, const struct graph *g, uint32_t unit,
                         struct seen *seen)
{
    const struct graph_unit *u = &in->units[unit];
    uint32_t times = 0;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        if (n->kind != NODE_GATHER || n->unit != unit)
            continue;
        const bool backward = n->phases == PHASE_BACKWARD;
        times += (n->phases & PHASES_TRAIN) != 0;
        seen->forward += n->phases & PHASE_FORWARD ? (double)u->row_elements : 0;
        seen->backward += backward;
        seen->early += backward ? (double)u->row_elements : 0;
        if (backward && in->optimistic && !depends(g, g->step_end, i))
            fail_msg("the slots change places before unit %u is gathered", unit);
    }
    seen->all += (double)u->row_elements;
    seen->largest = fmax(seen->largest, (double)u->row_elements);
    if (times != (u->row_elements > 0 && !u->frozen))
        fail_msg("unit %u is gathered %u times", unit, times);
}

/* A trained row is gathered once a step, three quarters of them in the forward at most; with an
 * optimistic update those of the backward's last units come there, too, and all that a device
 * has: no more than a quarter comes in the backward. */
static uint32_t look(const struct graph_in *in, const struct graph *g)
{
    struct seen seen = {0};
    for (uint32_t unit = 0; unit < in->unit_count; unit++)
        look_at_unit(in, g, unit, &seen);
    assert_true(in->optimistic ? seen.early <= 0.25 * seen.all + seen.largest
                               : seen.forward <= 0.75 * seen.all + seen.largest);
    return seen.backward;
}

static void whole_rows_are_gathered_in_both_sweeps(void **state)
{
    static struct graph_case whole, c;
    uint32_t backward[2] = {0}, cases[2] = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        uint64_t cuts = seed;
        struct graph graph;
        shared_case(seed, &whole);
        if (!whole.in.whole_weights || whole.in.deferred || whole.in.late_share > 0)
            continue;
        cut_rows(&whole, 0, RANKS, &cuts, &c);
        if (graph_build(&c.in, &graph))
            continue;
        backward[c.in.optimistic] += look(&c.in, &graph);
        cases[c.in.optimistic]++;
        graph_free(&graph);
    }
    printf("rows gathered in the backward: %u in %u graphs, %u in %u with an optimistic update\n",
           backward[0], cases[0], backward[1], cases[1]);
    assert_true(backward[0] > cases[0] / 3 && backward[1] > cases[1] / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_rows_are_gathered_in_both_sweeps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
