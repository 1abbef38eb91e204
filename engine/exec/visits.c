/* SPDX-License-Identifier: Apache-2.0 */
/* The visits of a step as the graph of the sealed order has them, and what each does with the
 * unit's checkpoint. */
#include "exec/visits.h"

#include "exec/slices.h"

#include <errno.h>
#include <stdlib.h>

static enum hst_sweep sweep_of(const struct node *node)
{
    return node->kind == NODE_BACKWARD    ? HST_BACKWARD
           : node->kind == NODE_RECOMPUTE ? HST_RECOMPUTE
                                          : HST_FORWARD;
}

int visits_open(struct hst_engine *engine)
{
    struct execute *run = &engine->run;
    const struct graph *graph = &run->graph;
    run->sealed = calloc((size_t)graph->lane_count[LANE_COMPUTE] + 1, sizeof *run->sealed);
    if (!run->sealed)
        return -ENOMEM;
    for (uint32_t i = 0; i < graph->lane_count[LANE_COMPUTE]; i++) {
        const struct node *node = &graph->nodes[graph->lane[LANE_COMPUTE][i]];
        if (node_is_visit(node))
            run->sealed[run->sealed_count++] =
                (struct hst_visit){slices_described(engine, node->unit), sweep_of(node)};
    }
    return 0;
}

void visits_close(struct hst_engine *engine)
{
    free(engine->run.sealed);
    engine->run.sealed = NULL;
}

unsigned visits_checkpoint(const struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    bool kept = !engine->placement.units[unit].recomputed;
    if (engine->layout.units[unit].act_bytes_per_token == 0)
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

int hst_engine_visits(const struct hst_engine *engine, const struct hst_visit **visits,
                      size_t *count)
{
    if (engine->phase < PHASE_SEALED || !visits || !count)
        return -EINVAL;
    *visits = engine->run.sealed;
    *count = engine->run.sealed_count;
    return 0;
}
