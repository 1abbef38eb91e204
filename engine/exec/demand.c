/* SPDX-License-Identifier: Apache-2.0 */
/* Runs nodes that are in no graph, one at a time: run.demand is the node, GRAPH_NONE its number. */
#include "exec/demand.h"

#include "exec/copies.h"
#include "exec/failure.h"
#include "exec/moves.h"
#include "exec/optimizer.h"

static const struct walk_at ON_DEMAND = {.node = GRAPH_NONE};

/* Waits for all flights; the first error is the result. */
static int land_all(struct hst_engine *engine)
{
    int first = 0;
    for (uint32_t i = 0; i < engine->run.flight_count; i++) {
        struct transfer *transfer = &engine->run.flights[i].transfer;
        if (!engine->run.flights[i].used)
            continue;
        engine->run.flights[i].used = false;
        if (extents_wait(engine->extents, transfer))
            first = first ? first : engine_fail_transfer(engine, transfer);
    }
    return first;
}

static int move_all(struct hst_engine *engine, struct node node)
{
    engine->run.demand = node;
    uint32_t count = moves_count(engine, &engine->run.demand);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        uint32_t slot = i % engine->run.flight_count;
        rc = slot == 0 ? land_all(engine) : 0;
        if (rc)
            break;
        struct transfer *transfer = &engine->run.flights[slot].transfer;
        struct move move = moves_at(engine, ON_DEMAND, i);
        rc = move.write
                 ? extents_write(engine->extents, move.kind, move.index, move.memory, transfer)
                 : extents_read(engine->extents, move.kind, move.index, move.memory, transfer);
        engine->run.flights[slot].used = rc == 0;
        rc = rc ? engine_fail_transfer(engine, transfer) : 0;
    }
    int landed = land_all(engine);
    return rc ? rc : landed;
}

/* In the unit's own stream, and waited for. */
static int copy_all(struct hst_engine *engine, enum node_kind kind, enum lane lane, uint32_t unit)
{
    engine->run.demand = (struct node){.kind = (uint8_t)kind, .lane = (uint8_t)lane, .unit = unit};
    int rc = copies_enqueue(engine, engine->unit_stream, ON_DEMAND);
    rc = rc ? rc : hst_event_record(engine->unit_passed, engine->unit_stream);
    rc = rc ? rc : hst_event_sync(engine->unit_passed);
    return rc ? engine_fail_device(engine, rc, "a copy between host and device") : 0;
}

static bool are_on_nvme(const struct hst_engine *engine, uint32_t unit)
{
    return engine->placement.units[unit].acts.tier == HST_TIER_NVME;
}

static int send_acts(struct hst_engine *engine, uint32_t unit)
{
    int rc = 0;
    if (placement_copies_acts(&engine->placement, unit))
        rc = copy_all(engine, NODE_STORE_ACTS, LANE_D2H, unit);
    if (rc == 0 && are_on_nvme(engine, unit))
        rc = move_all(engine, (struct node){.kind = NODE_WRITE_ACTS, .unit = unit});
    return rc;
}

static int bring_acts(struct hst_engine *engine, uint32_t unit)
{
    int rc = 0;
    if (are_on_nvme(engine, unit))
        rc = move_all(engine, (struct node){.kind = NODE_READ_ACTS, .unit = unit});
    if (rc == 0 && placement_copies_acts(&engine->placement, unit))
        rc = copy_all(engine, NODE_FETCH_ACTS, LANE_H2D, unit);
    return rc;
}

int demand_send_acts(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer)
{
    engine->run.demand_buffer[pool] = buffer;
    int rc = send_acts(engine, unit);
    engine->run.demand_buffer[pool] = 0;
    return rc;
}

int demand_send_grads(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer)
{
    engine->run.demand_buffer[pool] = buffer;
    int rc = move_all(engine, (struct node){.kind = NODE_WRITE_GRADS, .unit = unit});
    engine->run.demand_buffer[pool] = 0;
    return rc;
}

int demand_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    int rc = move_all(engine, (struct node){.kind = NODE_READ_WEIGHTS, .unit = unit});
    if (rc == 0 && engine->placement.units[unit].away)
        rc = copy_all(engine, NODE_COPY_WEIGHTS, LANE_H2D, unit);
    if (rc == 0 && sweep == HST_BACKWARD)
        rc = bring_acts(engine, unit);
    engine->run.demand = (struct node){.unit = unit};
    engine->run.computing = ON_DEMAND;
    return rc;
}

static int update_tile(struct hst_engine *engine, uint32_t unit, uint32_t tile)
{
    struct node node = {.kind = NODE_READ_TILE, .unit = unit, .tile = tile, .tile_count = 1};
    int rc = move_all(engine, node);
    if (rc)
        return rc;
    engine->run.demand.kind = NODE_UPDATE;
    optimizer_update(engine, ON_DEMAND);
    node.kind = NODE_WRITE_TILE;
    return move_all(engine, node);
}

/* The tiles of the unit whose update follows its backward in the graph; the others' follows in the
 * next period, as ever. */
static int update_early(struct hst_engine *engine, uint32_t unit)
{
    const struct graph *graph = &engine->run.graph;
    int rc = 0;
    for (uint32_t i = 0; i < graph->node_count && rc == 0; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->kind != NODE_UPDATE || node->unit != unit || node->parts != PART_BACKWARD)
            continue;
        if (placement_is_resident(&engine->placement, unit))
            rc = optimizer_device_update(engine, node->tile, node->tile_count);
        else
            for (uint32_t t = 0; t < node->tile_count && rc == 0; t++)
                rc = update_tile(engine, unit, node->tile + t);
    }
    return rc;
}

static int take_home(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    const struct unit_home *home = &engine->placement.units[unit];
    int rc = 0;
    if (sweep == HST_FORWARD)
        return send_acts(engine, unit);
    if (sweep != HST_BACKWARD || engine->layout.units[unit].tile_count == 0)
        return 0;
    if (home->away)
        rc = copy_all(engine, NODE_COPY_GRADS, LANE_D2H, unit);
    engine->run.demand = (struct node){.kind = NODE_NORM, .unit = unit};
    rc = rc ? rc : optimizer_norm(engine, ON_DEMAND);
    rc = rc ? rc : update_early(engine, unit);
    if (rc == 0 && engine->plan_in.deferred && home->grads.tier == HST_TIER_NVME)
        rc = move_all(engine, (struct node){.kind = NODE_WRITE_GRADS, .unit = unit});
    return rc;
}

int demand_leave(struct hst_engine *engine, struct hst_stream *stream, enum hst_sweep sweep)
{
    uint32_t unit = engine->run.demand.unit;
    int rc = hst_event_record(engine->unit_passed, stream);
    rc = rc ? rc : hst_event_sync(engine->unit_passed);
    if (rc)
        return engine_fail_device(engine, rc, "the computation of a unit");
    return take_home(engine, unit, sweep);
}
