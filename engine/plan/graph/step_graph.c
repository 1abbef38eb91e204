/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a placement into what the graph's builder wants to know of each unit. */
#include "plan/graph/step_graph.h"

#include <errno.h>
#include <stdlib.h>

static void describe_aliases(const struct placement_in *in, uint32_t times, uint32_t unit,
                             struct graph_unit *u)
{
    const struct layout *layout = in->layout;
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(layout, optimizer_weight_bytes(in->optimizer), unit, gathers);
    for (int i = 0; i < n; i++) {
        const uint32_t owner = gathers[i].unit;
        if (owner == unit)
            continue;
        u->alias_of[u->alias_count] = owner;
        u->alias_tile[u->alias_count] =
            (gathers[i].first_tile - layout->units[owner].first_tile) / times;
        u->alias_bytes[u->alias_count++] = gathers[i].bytes;
    }
}

/* Padding of a record. It is the same whatever its elements, where each state has whole pages of
 * each LAYOUT_UNIT_ALIGN elements; scales have less. */
static uint64_t record_pad(const struct optimizer *optimizer, uint64_t elements)
{
    return record_layout(optimizer, elements).bytes -
           (uint64_t)((double)elements * optimizer_state_bytes(optimizer));
}

/* Of the last tile of a coarse graph, whose layout has so many of them to one. */
static uint64_t last_record_pad(const struct placement_in *in, const struct layout_unit *unit,
                                uint32_t times)
{
    const uint64_t tile = in->layout->tile_elements;
    const uint64_t tiles = unit->tile_count;
    if (tiles == 0)
        return 0;
    const uint64_t full = (tiles - 1) % times, rest = unit->shard.elements - (tiles - 1) * tile;
    return full * record_pad(in->optimizer, tile) + record_pad(in->optimizer, rest);
}

/* It returns how many tiles of a coarse graph stand for so many: none stays none, and all of them
 * stay all. */
static uint32_t coarse_tiles(uint32_t tiles, uint32_t times)
{
    return tiles / times + (tiles % times > 0);
}

static struct graph_unit describe(const struct placement_in *in, const struct placement *p,
                                  uint32_t times, uint32_t unit)
{
    const struct layout_unit *l = &in->layout->units[unit];
    const struct unit_placement *home = &p->units[unit];
    double forward = (double)l->flops_per_token * (double)in->batch_tokens;
    bool saved = home->saved != PLACEMENT_NO_ADDRESS;
    struct graph_unit u = {
        .first_tile = l->first_tile,
        .tile_count = coarse_tiles(l->tile_count, times),
        .elements = l->shard.elements,
        .row_elements = placement_exchange_elements(in, unit),
        .shard_at = in->layout->exact_beside
                        ? placement_row_elements(in->layout, unit)
                        : placement_shard_elements(in->layout, unit) * in->layout->share.rank,
        .last_record_pad = last_record_pad(in, l, times),
        .bucket = home->bucket,
        .weights = home->weights.tier,
        .grads = home->grads.tier,
        .acts = home->acts.tier,
        .nvme_states = coarse_tiles(home->nvme_states, times),
        .act_bytes = home->act_bytes,
        .first_act_block = home->first_act_block,
        .forward_flops = forward,
        .backward_flops = step_backward_forwards(l, saved) * forward,
        .frozen = l->frozen,
        .rests = l->rests,
        .no_forward = l->no_forward,
        .blind_backward = l->blind_backward,
        .size = home->size,
        .recomputed = home->recomputed,
    };
    /* a rank that has fewer tiles than were planned may have all of them on drives */
    u.nvme_states = u.nvme_states < u.tile_count ? u.nvme_states : u.tile_count;
    uint32_t home_tier_tiles = u.tile_count - u.nvme_states;
    u.streamed_tiles = home->streamed_tiles / times + (home->streamed_tiles % times > times / 2);
    u.streamed_tiles = u.streamed_tiles < home_tier_tiles ? u.streamed_tiles : home_tier_tiles;
    describe_aliases(in, times, unit, &u);
    return u;
}

/* The order of the forward, then of the backward, in which those that rest come last; in the
 * forward units that have none there come last, for evaluations. */
static int order_units(const struct step_order *order, uint32_t units, struct graph_unit *described,
                       uint32_t *forward, uint32_t *backward)
{
    uint32_t resting = 0; /* they are the first ones */
    while (resting < units && described[resting].rests)
        resting++;
    for (uint32_t i = 0; !order && i < units; i++) {
        forward[i] = i;
        backward[i] = units - 1 - i;
    }
    if (!order)
        return 0;
    if (order->forward_count > units || order->backward_count + resting != units)
        return -EINVAL;
    for (uint32_t u = 0; u < units; u++)
        described[u].no_forward = true;
    uint32_t count = 0;
    for (uint32_t i = 0; i < order->forward_count; i++) {
        forward[count++] = order->forward[i];
        if (!described[order->forward[i]].no_forward)
            return -EINVAL;
        described[order->forward[i]].no_forward = false;
    }
    for (uint32_t u = 0; u < units; u++)
        if (described[u].no_forward)
            forward[count++] = u;
    uint64_t sum = 0; /* each once: the caller counted them */
    for (uint32_t i = 0; i < order->backward_count; i++)
        sum += backward[i] = order->backward[i];
    for (uint32_t u = resting; u-- > 0;)
        sum += backward[units - 1 - u] = u;
    return sum == (uint64_t)units * (units - 1) / 2 ? 0 : -EINVAL;
}

struct buffer_pool step_graph_pool(const struct placement *p, unsigned pool)
{
    const struct {
        const struct buffer_pool *pools;
        unsigned first, count;
    } kinds[] = {
        {p->reservations, POOL_WEIGHTS, UNIT_SIZES},
        {p->grad_buffers, POOL_GRADS, UNIT_SIZES},
        {&p->slots, POOL_TILES, 1},
        {&p->act_buffers, POOL_ACTS, 1},
        {p->device_weights, POOL_DEVICE_WEIGHTS, UNIT_SIZES},
        {p->device_grads, POOL_DEVICE_GRADS, UNIT_SIZES},
        {&p->device_acts, POOL_DEVICE_ACTS, 1},
        {&p->device_tiles, POOL_DEVICE_TILES, 1},
    };
    unsigned i = 0;
    while (pool >= kinds[i].first + kinds[i].count)
        i++;
    return kinds[i].pools[pool - kinds[i].first];
}

/* These are the operands at hand, and their tiles. */
struct making {
    const struct step_order *order; /* null: the declared one */
    uint32_t times;                 /* tiles of the layout to one of the graph */
    uint32_t unit;                  /* alone, or GRAPH_NONE: all */
    bool optimistic, brief;
};

static int build(const struct placement_in *in, const struct placement *p,
                 const struct graph_unit *described, const uint32_t *visits,
                 const struct making *making, struct graph *graph)
{
    uint64_t weight_bytes = optimizer_weight_bytes(in->optimizer);
    struct graph_in graph_in = {
        .units = described,
        .unit_count = in->layout->unit_count,
        .forward = visits,
        .backward = visits + in->layout->unit_count,
        .tile_elements = in->layout->tile_elements * making->times,
        .ranks = placement_ranks(in),
        .whole_weights = in->whole_weights && in->replicas == 0,
        .quantised = in->quantised,
        .exact_beside = in->layout->exact_beside,
        .secondary = in->secondary,
        .buckets = p->buckets,
        .replicas = in->replicas > 0,
        .device_rows = p->device_rows,
        .device_sums = p->device_sums,
        .hand_bytes = (double)hst_dtype_bytes(in->way_dtype),
        .weight_bytes = (double)weight_bytes,
        .state_bytes = optimizer_state_bytes(in->optimizer),
        .grad_bytes = (double)weight_bytes,
        .record_pad = record_pad(in->optimizer, in->layout->tile_elements) * making->times,
        .slot_record_at = p->slot_record_at,
        .device_tile_grads_at = p->device_tile_grads_at,
        .device_tile_record_at = p->device_tile_record_at,
        .deferred = in->deferred && !making->optimistic,
        .optimistic = in->deferred && making->optimistic,
        .late_share = p->late_eighths / 8.0,
        .stored = in->stored,
        .derived_weights = in->derived_weights,
        .apart = p->compute_tier == HST_TIER_HBM,
        .brief = making->brief,
    };
    for (unsigned pool = 0; pool < POOL_COUNT; pool++)
        graph_in.buffers[pool] = step_graph_pool(p, pool).count;
    return making->unit == GRAPH_NONE ? graph_build(&graph_in, graph)
                                      : graph_build_unit(&graph_in, making->unit, graph);
}

static int make(const struct placement_in *in, const struct placement *p,
                const struct making *making, struct graph *graph)
{
    uint32_t units = in->layout->unit_count;
    struct graph_unit *described = calloc((size_t)units + 1, sizeof *described);
    uint32_t *visits = calloc(2 * (size_t)units + 1, sizeof *visits);
    int rc = described && visits ? 0 : -ENOMEM;
    for (uint32_t u = 0; rc == 0 && u < units; u++)
        described[u] = describe(in, p, making->times, u);
    if (rc == 0 && making->unit != GRAPH_NONE)
        described[making->unit].no_forward = false; /* its client may make one */
    rc = rc ? rc : order_units(making->order, units, described, visits, visits + units);
    rc = rc ? rc : build(in, p, described, visits, making, graph);
    free(described);
    free(visits);
    return rc;
}

int step_graph(const struct placement_in *in, const struct placement *p,
               const struct step_order *order, bool optimistic, struct graph *graph)
{
    const struct making making = {order, 1, GRAPH_NONE, optimistic, false};
    return make(in, p, &making, graph);
}

int step_graph_unit(const struct placement_in *in, const struct placement *p, uint32_t unit,
                    bool optimistic, struct graph *graph)
{
    const struct making making = {NULL, 1, unit, optimistic, false};
    return make(in, p, &making, graph);
}

static uint32_t tiles_to_one(const struct layout *layout, uint32_t tiles_most)
{
    const uint32_t times = layout->tile_count / tiles_most + 1;
    const uint32_t most = UINT32_MAX / layout->tile_elements;
    return times < most ? times : most;
}

int step_graph_coarse(const struct placement_in *in, const struct placement *p, uint32_t tiles_most,
                      bool optimistic, struct graph *graph)
{
    const uint32_t times = tiles_to_one(in->layout, tiles_most);
    const struct making making = {NULL, times, GRAPH_NONE, optimistic, false};
    return make(in, p, &making, graph);
}

int step_graph_brief(const struct placement_in *in, const struct placement *p, uint32_t tiles_most,
                     bool optimistic, struct graph *graph)
{
    const uint32_t times = tiles_to_one(in->layout, tiles_most);
    const struct making making = {NULL, times, GRAPH_NONE, optimistic, true};
    return make(in, p, &making, graph);
}
