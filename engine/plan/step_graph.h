/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
#define HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
/* The step graph of a model that has been laid out and placed. Pure. */
#include "plan/graph.h"
#include "plan/placement.h"

/** Errors: -ENOMEM.   Cost: O(tiles). */
int step_graph(const struct placement_in *in, const struct placement *placement,
               struct graph *graph);

#endif
