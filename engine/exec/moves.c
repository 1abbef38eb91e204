/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps nodes to bytes. A unit's lease of weights holds its own tiles one after another, then those
 * it is an alias of; a slot of the tile pool holds one tile's gradients, then its record.
 */
#include "exec/moves.h"

#include <assert.h>

static enum hst_tier weights_tier(const struct hst_engine *engine, uint32_t tile)
{
    return placement_weights(&engine->placement, tile).tier;
}

static enum hst_tier states_tier(const struct hst_engine *engine, uint32_t tile)
{
    return placement_states(&engine->placement, tile).tier;
}

const struct node *moves_node(const struct hst_engine *engine, struct walk_at at)
{
    return at.node == GRAPH_NONE ? &engine->run.demand : &engine->run.graph.nodes[at.node];
}

static struct ring ring_of(const struct placement *p, enum pool pool)
{
    const struct ring rings[POOL_COUNT] = {
        [POOL_WEIGHTS] = p->leases[0],
        [POOL_WIDE_WEIGHTS] = p->leases[1],
        [POOL_GRADS] = p->grad_leases[0],
        [POOL_WIDE_GRADS] = p->grad_leases[1],
        [POOL_TILES] = p->slots,
        [POOL_ACTS] = p->act_leases,
        [POOL_DEVICE_WEIGHTS] = p->device_leases[0],
        [POOL_DEVICE_WIDE_WEIGHTS] = p->device_leases[1],
        [POOL_DEVICE_GRADS] = p->device_grads[0],
        [POOL_DEVICE_WIDE_GRADS] = p->device_grads[1],
        [POOL_DEVICE_ACTS] = p->device_acts,
        [POOL_DEVICE_TILES] = p->device_tiles,
    };
    return rings[pool];
}

/* The buffer that a started node has of a ring, or null; on demand it is the first, but for
 * checkpoints that are saved from where they are. */
static unsigned char *buffer_of(const struct hst_engine *engine, struct walk_at at, enum pool pool)
{
    struct ring ring = ring_of(&engine->placement, pool);
    uint32_t buffer = at.node == GRAPH_NONE ? engine->run.demand_buffer[pool]
                                            : walk_pool_buffer(&engine->run.walk, at, pool);
    unsigned char *arena = pool >= POOL_DEVICE_WEIGHTS ? engine->arena : engine->host_arena;
    return buffer == GRAPH_NONE ? NULL : arena + ring.at + buffer * ring.bytes;
}

/* Of weights or gradients of the node's unit. */
static unsigned char *unit_buffer_of(const struct hst_engine *engine, struct walk_at at,
                                     enum pool pool)
{
    const struct placement *p = &engine->placement;
    bool wide = p->units[moves_node(engine, at)->unit].wide;
    return buffer_of(engine, at, pool_for(engine->run.graph.buffers, pool, wide));
}

static unsigned char *record_of(const struct hst_engine *engine, struct walk_at at)
{
    return buffer_of(engine, at, POOL_TILES) + engine->placement.slot_record_at;
}

/* The place of a tile's weights, gradients or record in the node's slot. */
static unsigned char *in_slot(const struct hst_engine *engine, struct walk_at at,
                              enum extent_kind kind)
{
    return kind == EXTENT_STATES ? record_of(engine, at) : buffer_of(engine, at, POOL_TILES);
}

/* ---- where the host has things, and where the computation does ---- */

static unsigned char *arena_of(const struct hst_engine *engine, enum hst_tier tier)
{
    return tier == HST_TIER_HBM ? engine->arena : engine->host_arena;
}

static unsigned char *weights_at_home(const struct hst_engine *engine, struct walk_at at,
                                      const struct gather *gather)
{
    struct address home = placement_weights(&engine->placement, gather->first_tile);
    if (home.tier == HST_TIER_HBM)
        return engine->arena + home.offset;
    return home.tier == HST_TIER_NVME
               ? unit_buffer_of(engine, at, POOL_WEIGHTS) + gather->lease_at
               : tile_at_home(engine, EXTENT_WEIGHTS, gather->first_tile, engine->run.slot);
}

unsigned char *moves_weights(const struct hst_engine *engine, struct walk_at at,
                             const struct gather *gather)
{
    return engine->placement.units[moves_node(engine, at)->unit].away
               ? unit_buffer_of(engine, at, POOL_DEVICE_WEIGHTS) + gather->lease_at
               : weights_at_home(engine, at, gather);
}

unsigned char *moves_host_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit)
{
    struct address home = engine->placement.units[unit].grads;
    return home.tier == HST_TIER_NVME ? unit_buffer_of(engine, at, POOL_GRADS)
                                      : arena_of(engine, home.tier) + home.offset;
}

unsigned char *moves_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit)
{
    return engine->placement.units[unit].away ? unit_buffer_of(engine, at, POOL_DEVICE_GRADS)
                                              : moves_host_grads(engine, at, unit);
}

double *moves_partials(const struct hst_engine *engine, struct walk_at at, uint32_t unit)
{
    const struct placement *p = &engine->placement;
    const struct layout_unit *u = &engine->layout.units[unit];
    unsigned char *partials =
        p->units[unit].away
            ? moves_grads(engine, at, unit) + u->elements * engine_element_bytes(engine)
            : engine->arena + p->norm_partials + u->first_block * sizeof(double);
    return (double *)(void *)partials;
}

double *moves_host_partials(const struct hst_engine *engine, uint32_t unit)
{
    unsigned char *all = engine->host_arena + engine->placement.host_partials;
    return (double *)(void *)all + engine->layout.units[unit].first_block;
}

static unsigned char *acts_at_home(const struct hst_engine *engine, struct walk_at at,
                                   uint32_t unit)
{
    struct address home = engine->placement.units[unit].acts;
    return home.tier == HST_TIER_NVME ? buffer_of(engine, at, POOL_ACTS)
                                      : arena_of(engine, home.tier) + home.offset;
}

unsigned char *moves_acts(const struct hst_engine *engine, struct walk_at at, uint32_t unit)
{
    return placement_copies_acts(&engine->placement, unit) ? buffer_of(engine, at, POOL_DEVICE_ACTS)
                                                           : acts_at_home(engine, at, unit);
}

/* ---- what a version needs of memory ---- */

uint32_t moves_save_count(const struct hst_engine *engine, uint32_t tile)
{
    bool weights = weights_tier(engine, tile) != HST_TIER_NVME;
    bool states = states_tier(engine, tile) != HST_TIER_NVME;
    return (weights && !engine->plan_in.derived_weights) + states;
}

static enum extent_kind save_kind(const struct hst_engine *engine, uint32_t tile, uint32_t i)
{
    bool states = states_tier(engine, tile) != HST_TIER_NVME && i == 0;
    return states ? EXTENT_STATES : EXTENT_WEIGHTS;
}

uint64_t moves_save_bytes(const struct hst_engine *engine, uint32_t tile, uint32_t i)
{
    uint64_t bytes;
    (void)placement_extent(&engine->placement, save_kind(engine, tile, i), tile, &bytes);
    return bytes;
}

struct move moves_save(const struct hst_engine *engine, uint32_t tile, uint32_t i)
{
    enum extent_kind kind = save_kind(engine, tile, i);
    return (struct move){kind, tile, tile_at_home(engine, kind, tile, engine->run.slot), true};
}

/* ---- copies ---- */

/* All that the unit's computation reads, each run to its place in the device's lease. */
static uint32_t copy_weights(const struct hst_engine *engine, struct walk_at at, uint32_t unit,
                             struct copy copies[GATHER_MAX])
{
    struct gather gathers[GATHER_MAX];
    int n = placement_gather(&engine->layout, engine->update->bytes, unit, gathers);
    for (int i = 0; i < n; i++)
        copies[i] = (struct copy){
            .to = moves_weights(engine, at, &gathers[i]),
            .from = weights_at_home(engine, at, &gathers[i]),
            .bytes = placement_gather_bytes(&engine->layout, engine->update->bytes, &gathers[i]),
        };
    return (uint32_t)n;
}

/* What a version has of a tile at home in the device's memory, to the node's slot. */
static uint32_t copy_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile,
                          struct copy copies[GATHER_MAX])
{
    uint32_t n = moves_save_count(engine, tile);
    for (uint32_t i = 0; i < n; i++) {
        enum extent_kind kind = save_kind(engine, tile, i);
        uint64_t bytes;
        struct address home = placement_extent(&engine->placement, kind, tile, &bytes);
        copies[i] = (struct copy){in_slot(engine, at, kind), engine->arena + home.offset, bytes};
    }
    return n;
}

/* Of an update of a started node: the slot in memory that it reads, and the one that it writes. */
struct slots {
    int from, into;
};

static struct slots slots_of(const struct hst_engine *engine, struct walk_at at)
{
    int slot = engine->run.slot;
    if (!engine->run.optimistic)
        return (struct slots){slot, slot};
    bool late = moves_is_late(moves_node(engine, at)); /* the slots have changed places */
    return (struct slots){late ? !slot : slot, late ? slot : !slot};
}

struct streamed moves_streamed(const struct hst_engine *engine, struct walk_at at)
{
    const struct placement *p = &engine->placement;
    unsigned char *buffer = buffer_of(engine, at, POOL_DEVICE_TILES);
    return (struct streamed){buffer, buffer + p->device_tile_grads_at,
                             buffer + p->device_tile_record_at};
}

/* A tile that the device updates, from its home with its gradients, or back. */
static uint32_t copy_streamed(const struct hst_engine *engine, struct walk_at at, uint32_t tile,
                              struct copy copies[GATHER_MAX])
{
    struct tile_range range = layout_tile(&engine->layout, tile);
    struct streamed on = moves_streamed(engine, at);
    struct slots slots = slots_of(engine, at);
    bool store = moves_node(engine, at)->kind == NODE_STORE_TILE;
    int slot = store ? slots.into : slots.from;
    unsigned char *weights = tile_at_home(engine, EXTENT_WEIGHTS, tile, slot);
    unsigned char *record = tile_at_home(engine, EXTENT_STATES, tile, slot);
    uint64_t element = engine_element_bytes(engine), bytes = range.elements * element;
    uint64_t record_bytes = record_layout(engine->update->bytes, range.elements).bytes;
    copies[0] = store ? (struct copy){weights, on.weights, bytes}
                      : (struct copy){on.weights, weights, bytes};
    copies[1] = store ? (struct copy){record, on.record, record_bytes}
                      : (struct copy){on.record, record, record_bytes};
    copies[2] = (struct copy){
        on.grads, moves_host_grads(engine, at, range.unit) + range.offset * element, bytes};
    return store ? 2 : 3;
}

static uint32_t copy_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit,
                           struct copy copies[GATHER_MAX])
{
    uint64_t elements = engine->layout.units[unit].elements;
    copies[0] = (struct copy){moves_host_grads(engine, at, unit), moves_grads(engine, at, unit),
                              elements * engine_element_bytes(engine)};
    copies[1] = (struct copy){moves_host_partials(engine, unit), moves_partials(engine, at, unit),
                              placement_partials_bytes(elements)};
    return 2;
}

uint32_t moves_copies(const struct hst_engine *engine, struct walk_at at,
                      struct copy copies[GATHER_MAX])
{
    const struct node *node = moves_node(engine, at);
    uint32_t unit = node->unit;
    uint64_t act_bytes = engine->placement.units[unit].act_bytes;
    switch ((enum node_kind)node->kind) {
    case NODE_COPY_WEIGHTS:
        return copy_weights(engine, at, unit, copies);
    case NODE_COPY_GRADS:
        return copy_grads(engine, at, unit, copies);
    case NODE_COPY_TILE:
        return copy_tile(engine, at, node->tile, copies);
    case NODE_FETCH_TILE:
    case NODE_STORE_TILE:
        return copy_streamed(engine, at, node->tile, copies);
    case NODE_STORE_ACTS:
        copies[0] =
            (struct copy){acts_at_home(engine, at, unit), moves_acts(engine, at, unit), act_bytes};
        return 1;
    case NODE_FETCH_ACTS:
        copies[0] =
            (struct copy){moves_acts(engine, at, unit), acts_at_home(engine, at, unit), act_bytes};
        return 1;
    default:
        return 0;
    }
}

/* A tile of the unit's own row, in its lease. */
static unsigned char *own_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile)
{
    uint64_t offset = layout_tile(&engine->layout, tile).offset;
    return unit_buffer_of(engine, at, POOL_WEIGHTS) + offset * engine_element_bytes(engine);
}

/* ---- a unit's weights ---- */

static uint32_t weights_count(const struct hst_engine *engine, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    uint32_t count = 0;
    int n = placement_gather(&engine->layout, engine->update->bytes, unit, gathers);
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
    placement_gather(&engine->layout, engine->update->bytes, unit, gathers);
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
        .memory = weights_at_home(engine, at, g) + elements * engine_element_bytes(engine),
    };
}

/* The first extent of a piece of a unit's weights; a node in no graph is one piece. */
static uint32_t piece_start(const struct hst_engine *engine, const struct node *node,
                            uint32_t piece)
{
    uint64_t extents = weights_count(engine, node->unit);
    return (uint32_t)(extents * piece / (node->tile_count ? node->tile_count : 1));
}

/* ---- a node ---- */

static bool has_states(const struct hst_engine *engine, const struct node *node)
{
    return states_tier(engine, node->tile) == HST_TIER_NVME;
}

bool moves_is_late(const struct node *node)
{
    return (node->parts & ((unsigned)PART_UPDATE | PART_REDO)) != 0;
}

/* Gradients that wait on drives for the norm, tile by tile. */
static bool has_grads(const struct hst_engine *engine, const struct node *node)
{
    const struct unit_home *home = &engine->placement.units[node->unit];
    return moves_is_late(node) && home->grads.tier == HST_TIER_NVME &&
           !graph_lends(&engine->run.graph, node,
                        pool_for(engine->run.graph.buffers, POOL_GRADS, home->wide));
}

static uint32_t blocks_of(const struct hst_engine *engine, uint32_t unit)
{
    uint64_t bytes = engine->placement.units[unit].act_bytes;
    return (uint32_t)((bytes + PLACEMENT_ACT_BYTES - 1) / PLACEMENT_ACT_BYTES);
}

uint32_t moves_count(const struct hst_engine *engine, const struct node *node)
{
    switch ((enum node_kind)node->kind) {
    case NODE_READ_WEIGHTS:
        return piece_start(engine, node, node->tile + 1) - piece_start(engine, node, node->tile);
    case NODE_READ_TILE:
        return (has_states(engine, node) ? 1 : 0) + (has_grads(engine, node) ? 1 : 0);
    case NODE_WRITE_TILE: /* the record of one tile, or none; weights of all, or none */
        return (has_states(engine, node) ? 1 : 0) +
               (weights_tier(engine, node->tile) == HST_TIER_NVME ? node->tile_count : 0);
    case NODE_SAVE_TILES:
        return node->tile_count * moves_save_count(engine, node->tile);
    case NODE_READ_GRADS:
    case NODE_WRITE_GRADS:
        return engine->layout.units[node->unit].tile_count;
    case NODE_READ_ACTS:
    case NODE_WRITE_ACTS:
        return blocks_of(engine, node->unit);
    default:
        return 0;
    }
}

static struct move acts_at(const struct hst_engine *engine, struct walk_at at, uint32_t unit,
                           uint32_t i)
{
    unsigned char *memory = acts_at_home(engine, at, unit) + (uint64_t)i * PLACEMENT_ACT_BYTES;
    uint32_t block = engine->placement.units[unit].first_act_block + i;
    return (struct move){EXTENT_ACTS, block, memory,
                         moves_node(engine, at)->kind == NODE_WRITE_ACTS};
}

static struct move grads_at(const struct hst_engine *engine, struct walk_at at, uint32_t unit,
                            uint32_t i)
{
    uint32_t tile = engine->layout.units[unit].first_tile + i;
    uint64_t offset = layout_tile(&engine->layout, tile).offset * engine_element_bytes(engine);
    return (struct move){EXTENT_GRADS, tile, moves_host_grads(engine, at, unit) + offset,
                         moves_node(engine, at)->kind == NODE_WRITE_GRADS};
}

/* From memory at home, or from the slot that it was copied to. */
static struct move save_at(const struct hst_engine *engine, struct walk_at at, uint32_t i)
{
    const struct node *node = moves_node(engine, at);
    uint32_t kinds = moves_save_count(engine, node->tile);
    assert(kinds > 0); /* else there is no such node */
    uint32_t tile = node->tile + i / kinds;
    if (!placement_is_resident(&engine->placement, node->unit))
        return moves_save(engine, tile, i % kinds);
    enum extent_kind kind = save_kind(engine, tile, i % kinds);
    return (struct move){kind, tile, in_slot(engine, at, kind), true};
}

struct move moves_at(const struct hst_engine *engine, struct walk_at at, uint32_t i)
{
    const struct node *node = moves_node(engine, at);
    bool write = node->kind == NODE_WRITE_TILE;
    switch ((enum node_kind)node->kind) {
    case NODE_READ_WEIGHTS:
        return weights_at(engine, at, node->unit, piece_start(engine, node, node->tile) + i);
    case NODE_SAVE_TILES:
        return save_at(engine, at, i);
    case NODE_READ_GRADS:
    case NODE_WRITE_GRADS:
        return grads_at(engine, at, node->unit, i);
    case NODE_READ_ACTS:
    case NODE_WRITE_ACTS:
        return acts_at(engine, at, node->unit, i);
    default:
        break;
    }
    if (has_states(engine, node) && i == 0)
        return (struct move){EXTENT_STATES, node->tile, record_of(engine, at), write};
    if (!write)
        return (struct move){EXTENT_GRADS, node->tile, buffer_of(engine, at, POOL_TILES), false};
    uint32_t tile = node->tile + i - (has_states(engine, node) ? 1 : 0);
    return (struct move){EXTENT_WEIGHTS, tile, own_tile(engine, at, tile), true};
}

/* Rounded gradients of a tile that is updated. */
static const unsigned char *tile_grads(const struct hst_engine *engine, struct walk_at at,
                                       struct tile_range range)
{
    if (has_grads(engine, moves_node(engine, at)))
        return buffer_of(engine, at, POOL_TILES);
    return moves_host_grads(engine, at, range.unit) + range.offset * engine_element_bytes(engine);
}

/* A tile's weights and states, in memory those of one slot. */
static struct hst_update_arrays arrays_in(const struct hst_engine *engine, struct walk_at at,
                                          struct tile_range range, uint32_t tile, int slot)
{
    struct record record = record_layout(engine->update->bytes, range.elements);
    unsigned char *states = states_tier(engine, tile) == HST_TIER_NVME
                                ? record_of(engine, at)
                                : tile_at_home(engine, EXTENT_STATES, tile, slot);
    return (struct hst_update_arrays){
        .weights = weights_tier(engine, tile) == HST_TIER_NVME
                       ? own_tile(engine, at, tile)
                       : tile_at_home(engine, EXTENT_WEIGHTS, tile, slot),
        .master = engine->update->bytes.master ? states + record.master_at : NULL,
        .m = states + record.m_at,
        .v = states + record.v_at,
    };
}

struct tile_job moves_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile)
{
    struct tile_job job = {.tile = tile, .range = layout_tile(&engine->layout, tile)};
    struct slots slots = slots_of(engine, at);
    job.arrays = arrays_in(engine, at, job.range, tile, slots.from);
    job.arrays.grads = tile_grads(engine, at, job.range);
    job.arrays.index = layout_first_element(&engine->layout, job.range);
    job.into = arrays_in(engine, at, job.range, tile, slots.into);
    return job;
}
