/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
#define HOISTWAY_ENGINE_PLAN_STEP_GRAPH_H
/* The step graph of a model that has been laid out and placed. Pure. */
#include "plan/graph/graph.h"
#include "plan/placement/placement.h"

/** A backward is twice the forward's products, for the gradient of its input and those of its
 * weights, unless these are frozen; and the forward again where its activations were not kept. Of
 * the first backward a unit of one product (without a checkpoint) leaves out that of its input;
 * others need it for weights of their own. */
static inline double step_backward_forwards(const struct layout_unit *unit, bool kept)
{
    const bool no_input = unit->first_backward && unit->act_bytes_per_token == 0;
    return (unit->frozen ? 0.0 : 1.0) + (no_input ? 0.0 : 1.0) + (kept ? 0.0 : 1.0);
}

/* The visits of a step as a client made them. */
struct step_order {
    const uint32_t *forward, *backward; /* units */
    uint32_t forward_count, backward_count;
};

/**
 * order: of one step, or null for the declared one: forward as units were added, backward in
 * reverse. optimistic: the update does not wait for the norm that it depends on.
 * Errors: -ENOMEM; -EINVAL a unit twice in a sweep, or missing in the backward. Cost: O(tiles).
 */
int step_graph(const struct placement_in *in, const struct placement *placement,
               const struct step_order *order, bool optimistic, struct graph *graph);

/** The visits of one unit alone: see graph_build_unit. Errors: -ENOMEM.   Cost: O(units + tiles of
 * the unit). */
int step_graph_unit(const struct placement_in *in, const struct placement *placement, uint32_t unit,
                    bool optimistic, struct graph *graph);

/**
 * The same as step_graph in the declared order, to be simulated alone: where the model has more
 * than `tiles_most` tiles, of tiles that are so many times as large that it has not many more (each
 * unit has at least one). Pools of tiles then hold as many of these, so how deep they are says
 * little. The graph's cost is O(tiles_most + units).
 */
int step_graph_coarse(const struct placement_in *in, const struct placement *placement,
                      uint32_t tiles_most, bool optimistic, struct graph *graph);
/** The same without what changes no step's seconds (graph_in.brief): brief simulations of it tell
 * the same to the bit. Errors and cost: as there. */
int step_graph_brief(const struct placement_in *in, const struct placement *placement,
                     uint32_t tiles_most, bool optimistic, struct graph *graph);

/** The memory of a pool's buffers (enum pool). */
struct buffer_pool step_graph_pool(const struct placement *placement, unsigned pool);

#endif
