/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a placement into what the graph's builder wants to know of each unit. */
#include "plan/step_graph.h"

#include <errno.h>
#include <stdlib.h>

/* A backward is twice the forward's products, and the forward again where its inside was not kept.
 */
#define BACKWARD_FORWARDS 3.0

static void describe_aliases(const struct placement_in *in, uint32_t unit, struct graph_unit *u)
{
    const struct layout *layout = in->layout;
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(layout, in->precision, unit, gathers);
    for (int i = 0; i < n; i++) {
        struct tile_range first = layout_tile(layout, gathers[i].first_tile);
        if (first.unit == unit)
            continue;
        struct tile_range last =
            layout_tile(layout, gathers[i].first_tile + gathers[i].tile_count - 1);
        uint64_t elements = last.offset + last.elements - first.offset;
        u->alias_of[u->alias_count] = first.unit;
        u->alias_bytes[u->alias_count++] = elements * record_weight_bytes(in->precision);
    }
}

static struct graph_unit describe(const struct placement_in *in, const struct placement *p,
                                  uint32_t unit)
{
    const struct layout_unit *l = &in->layout->units[unit];
    const struct unit_home *home = &p->units[unit];
    double forward = (double)l->flops_per_token * (double)in->batch_tokens;
    struct graph_unit u = {
        .first_tile = l->first_tile,
        .tile_count = l->tile_count,
        .elements = l->elements,
        .weights = home->weights.tier,
        .grads = home->grads.tier,
        .acts = home->acts.tier,
        .nvme_states = home->nvme_states,
        .act_bytes = home->act_bytes,
        .forward_flops = forward,
        .backward_flops = BACKWARD_FORWARDS * forward,
        .no_forward = l->no_forward,
    };
    describe_aliases(in, unit, &u);
    return u;
}

int step_graph(const struct placement_in *in, const struct placement *p, struct graph *graph)
{
    uint32_t units = in->layout->unit_count;
    struct graph_unit *described = calloc((size_t)units + 1, sizeof *described);
    if (!described)
        return -ENOMEM;
    for (uint32_t u = 0; u < units; u++)
        described[u] = describe(in, p, u);
    bool hbm = p->compute_tier == HST_TIER_HBM;
    uint64_t weight_bytes = record_weight_bytes(in->precision);
    const struct graph_in graph_in = {
        .units = described,
        .unit_count = units,
        .tile_elements = in->layout->tile_elements,
        .weight_bytes = (double)weight_bytes,
        .state_bytes = (double)record_state_bytes(in->precision),
        .grad_bytes = (double)weight_bytes,
        .deferred = in->deferred,
        .apart = hbm,
        .update_on_device = hbm,
        .buffers = {[POOL_WEIGHTS] = p->lease_count,
                    [POOL_TILES] = p->slot_count,
                    [POOL_GRADS] = p->grad_lease_count,
                    [POOL_ACTS] = p->act_lease_count},
    };
    int rc = graph_build(&graph_in, graph);
    free(described);
    return rc;
}
