/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_GRAPH_BOUND_H
#define HOISTWAY_ENGINE_PLAN_GRAPH_BOUND_H
/*
 * The least time a steady step of a graph can take, in whatever order its lanes do their work: what
 * a schedule is judged against. Pure.
 *
 * It is the larger of two bounds:
 *   all of a step's work, on the resource that it keeps busy longest;
 *   windows: between two anchors of the step (plan/graph_order.h) there must be time for every
 *   node that cannot begin before the first and must be done for the second, for the shortest way
 *   to the first of them and from the last. The longest chain of anchors and windows round a step
 *   is the bound. That a deferred update hides under the forward alone, and what a stage costs that
 *   feeds the next, follows from the graph; it is not put in.
 */
#include "plan/graph/simulate.h"

struct graph_bound {
    double step_s;             /* the bound */
    double lane_s[LANE_COUNT]; /* each lane's work of a step, alone */
    double drives_s;           /* both directions together */
    double cores_s;            /* computation, and the update where it shares its cores */
    double dram_s;             /* all that passes through host memory */
    double busiest_s;          /* the largest of these: a step in which nothing waits */
};

/**
 * phases: of each step beside those of training, as in struct sim_in; they count in the first of
 * the two bounds. Errors: -ENOMEM.   Cost: O(nodes · (buffers + anchors) + anchors³).
 */
int graph_bound(const struct graph *graph, const struct sim_rates *rates, unsigned phases,
                struct graph_bound *bound);

/** The first of the two bounds alone, graph_bound.busiest_s. Cost: O(nodes), without memory. */
double graph_busiest(const struct graph *graph, const struct sim_rates *rates, unsigned phases);

#endif
