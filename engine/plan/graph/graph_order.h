/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_GRAPH_ORDER_H
#define HOISTWAY_ENGINE_PLAN_GRAPH_ORDER_H
/*
 * This header tells what of a graph must come after what, whatever its lanes do first. Pure.
 *
 * Anchors are nodes with a fixed place in a step: the visits, which follow one another, and what
 * lies between two of them with nothing beside it. They are numbered 0..n-1 in a step window, the
 * next step window's go on from n, those of the step window before are negative. For each node two
 * numbers are found: the last anchor that must have ended before it begins, and the first one that
 * cannot begin before it has ended.
 */
#include "plan/graph/graph.h"

#define ORDER_FAR (1 << 28) /* anchors: never */

struct graph_order {
    int32_t anchors; /* of a step window */
    int32_t *anchor; /* [nodes] its number, or -1 */
    int32_t *after;  /* [nodes] the last anchor that has ended when it begins, or -ORDER_FAR */
    int32_t *before; /* [nodes] the first anchor that begins after its end, or ORDER_FAR */
};

/** For step windows of a whole step. Errors: -ENOMEM.   Cost: O(nodes · buffers). */
int graph_order_find(const struct graph *graph, struct graph_order *order);
void graph_order_free(struct graph_order *order);

/** True where the node is part of a whole step. */
static inline bool order_has(const struct graph *graph, uint32_t node)
{
    return (graph->nodes[node].phases & PHASES_TRAIN) != 0;
}

#endif
