/* SPDX-License-Identifier: Apache-2.0 */
/* The visits of a step as the graph of the sealed order has them, and what each does with the
 * unit's checkpoint. */
#include "exec/visit/visits.h"

#include <errno.h>
#include <stdlib.h>

static enum hst_sweep sweep_of(const struct node *node)
{
    return node->kind == NODE_BACKWARD    ? HST_BACKWARD
           : node->kind == NODE_RECOMPUTE ? HST_RECOMPUTE
                                          : HST_FORWARD;
}

int visits_open(struct executor *exec)
{
    const struct graph *graph = &exec->step.graph;
    exec->sealed = calloc((size_t)graph->lane_count[LANE_COMPUTE] + 1, sizeof *exec->sealed);
    if (!exec->sealed)
        return -ENOMEM;
    for (uint32_t i = 0; i < graph->lane_count[LANE_COMPUTE]; i++) {
        const struct node *node = &graph->nodes[graph->lane[LANE_COMPUTE][i]];
        if (node_is_visit(node))
            exec->sealed[exec->sealed_count++] =
                (struct hst_visit){exec->in.layout->units[node->unit].whole, sweep_of(node)};
    }
    return 0;
}

void visits_close(struct executor *exec)
{
    free(exec->sealed);
    exec->sealed = NULL;
}

unsigned visits_checkpoint(const struct executor *exec, uint32_t unit, enum hst_sweep sweep)
{
    bool kept = !exec->in.placement->units[unit].recomputed;
    const struct layout_unit *u = &exec->in.layout->units[unit];
    if (u->act_bytes_per_token == 0 || u->rests)
        return 0;
    switch (sweep) {
    case HST_FORWARD:
        return kept ? HST_WRITE : 0;
    case HST_RECOMPUTE:
        return kept ? HST_READ : HST_WRITE;
    case HST_BACKWARD:
        return HST_READ;
    default:
        return 0;
    }
}
