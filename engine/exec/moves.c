/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps nodes to bytes. A unit's lease holds its own tiles one after another, then those it is an
 * alias of; a slot of the tile pool holds one tile's record.
 */
#include "exec/moves.h"

static enum hst_tier weights_tier(const struct hst_engine *engine, uint32_t tile)
{
    return placement_weights(&engine->placement, tile).tier;
}

static enum hst_tier states_tier(const struct hst_engine *engine, uint32_t tile)
{
    return placement_states(&engine->placement, tile).tier;
}

static unsigned char *lease_of(const struct hst_engine *engine, struct walk_at at)
{
    uint32_t buffer = walk_pool_buffer(&engine->run.walk, at, POOL_WEIGHTS);
    return engine->arena + engine->placement.leases + buffer * engine->placement.lease_bytes;
}

static unsigned char *slot_of(const struct hst_engine *engine, struct walk_at at)
{
    uint32_t buffer = walk_pool_buffer(&engine->run.walk, at, POOL_TILES);
    return engine->host_arena + engine->placement.slots + buffer * engine->placement.slot_bytes +
           engine->placement.slot_record_at;
}

/* A tile of the unit's own row, in its lease. */
static unsigned char *own_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile)
{
    uint64_t offset = layout_tile(&engine->layout, tile).offset;
    return lease_of(engine, at) + offset * engine_element_bytes(engine);
}

/* ---- a unit's weights ---- */

static uint32_t weights_count(const struct hst_engine *engine, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    uint32_t count = 0;
    int n = placement_gather(&engine->layout, engine_precision(engine), unit, gathers);
    for (int i = 0; i < n; i++)
        if (weights_tier(engine, gathers[i].first_tile) == HST_TIER_NVME)
            count += gathers[i].tile_count;
    return count;
}

static struct move weights_at(const struct hst_engine *engine, struct walk_at at, uint32_t unit,
                              uint32_t i)
{
    struct gather gathers[GATHER_MAX];
    const struct gather *g = gathers;
    placement_gather(&engine->layout, engine_precision(engine), unit, gathers);
    for (;; g++) {
        if (weights_tier(engine, g->first_tile) != HST_TIER_NVME)
            continue;
        if (i < g->tile_count)
            break;
        i -= g->tile_count;
    }
    uint64_t start = layout_tile(&engine->layout, g->first_tile).offset;
    uint64_t elements = layout_tile(&engine->layout, g->first_tile + i).offset - start;
    return (struct move){
        .kind = EXTENT_WEIGHTS,
        .index = g->first_tile + i,
        .memory = lease_of(engine, at) + g->lease_at + elements * engine_element_bytes(engine),
    };
}

/* ---- a node ---- */

static const struct node *node_of(const struct hst_engine *engine, struct walk_at at)
{
    return &engine->run.graph.nodes[at.node];
}

static bool writes_states(const struct hst_engine *engine, const struct node *node)
{
    return states_tier(engine, node->tile) == HST_TIER_NVME;
}

uint32_t moves_count(const struct hst_engine *engine, const struct node *node)
{
    switch ((enum node_kind)node->kind) {
    case NODE_READ_WEIGHTS:
        return weights_count(engine, node->unit);
    case NODE_READ_TILE:
        return 1;
    case NODE_WRITE_TILE: /* records of one tile, or none; weights of all, or none */
        return (writes_states(engine, node) ? 1 : 0) +
               (weights_tier(engine, node->tile) == HST_TIER_NVME ? node->tile_count : 0);
    default:
        return 0;
    }
}

struct move moves_at(const struct hst_engine *engine, struct walk_at at, uint32_t i)
{
    const struct node *node = node_of(engine, at);
    if (node->kind == NODE_READ_WEIGHTS)
        return weights_at(engine, at, node->unit, i);
    bool write = node->kind == NODE_WRITE_TILE;
    if (!write || (writes_states(engine, node) && i == 0))
        return (struct move){EXTENT_STATES, node->tile, slot_of(engine, at), write};
    uint32_t tile = node->tile + i - (writes_states(engine, node) ? 1 : 0);
    return (struct move){EXTENT_WEIGHTS, tile, own_tile(engine, at, tile), true};
}

struct tile_job moves_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile)
{
    const struct placement *p = &engine->placement;
    struct tile_job job = {.tile = tile, .range = layout_tile(&engine->layout, tile)};
    struct record record = record_layout(engine_precision(engine), job.range.elements);
    unsigned char *states = states_tier(engine, tile) == HST_TIER_NVME
                                ? slot_of(engine, at)
                                : engine->host_arena + placement_states(p, tile).offset;
    job.weights = weights_tier(engine, tile) == HST_TIER_NVME
                      ? own_tile(engine, at, tile)
                      : engine->host_arena + placement_weights(p, tile).offset;
    if (engine_precision(engine) == HST_PRECISION_BF16)
        job.remainder = (int16_t *)(void *)(states + record.remainder_at);
    job.m = (float *)(void *)(states + record.m_at);
    job.v = (float *)(void *)(states + record.v_at);
    job.grad = engine->arena + p->units[job.range.unit].grads +
               job.range.offset * engine_element_bytes(engine);
    return job;
}
