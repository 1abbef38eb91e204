/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
#define HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
/* The step graph of a model that has been laid out and placed. Pure. */
#include "plan/graph.h"
#include "plan/placement.h"

/**
 * deferred: the update waits for the norm of all gradients, and runs under the next forward.
 * Errors: -ENOMEM.   Cost: O(tiles).
 */
int step_graph(const struct placement_in *in, const struct placement *placement, bool deferred,
               struct graph *graph);

#endif
