/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the graph of one unit in program order, one node after another, with the first buffer of
 * each pool: run.demand is the graph, EXECUTE_DEMAND its step window.
 */
#include "exec/demand.h"

#include "exec/copies.h"
#include "exec/failure.h"
#include "exec/moves.h"
#include "exec/optimizer.h"
#include "plan/graph/step_graph.h"

#include <string.h>

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

static int move_all(struct hst_engine *engine, struct scheduled at)
{
    uint32_t count = moves_count(engine, at);
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        uint32_t slot = i % engine->run.flight_count;
        rc = slot == 0 ? land_all(engine) : 0;
        if (rc)
            break;
        struct transfer *transfer = &engine->run.flights[slot].transfer;
        struct move move = moves_at(engine, at, i);
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
static int copy_all(struct hst_engine *engine, struct scheduled at)
{
    int rc = copies_enqueue(engine, engine->unit_stream, at);
    rc = rc ? rc : hst_event_record(engine->unit_passed, engine->unit_stream);
    rc = rc ? rc : hst_event_sync(engine->unit_passed);
    return rc ? engine_fail_device(engine, rc, "a copy between host and device") : 0;
}

static int run_node(struct hst_engine *engine, struct scheduled at)
{
    const struct node *node = moves_node(engine, at);
    switch ((enum lane)node->lane) {
    case LANE_READ:
    case LANE_WRITE:
        return move_all(engine, at);
    case LANE_H2D:
    case LANE_D2H:
        return copy_all(engine, at);
    case LANE_COMPUTE:
        return optimizer_device_update(engine, at);
    case LANE_DEVICE_UPDATE:
        return optimizer_streamed_update(engine, at);
    default:
        break;
    }
    if (node->kind == NODE_NORM)
        return optimizer_norm(engine, at);
    optimizer_update(engine, at);
    return 0;
}

static struct scheduled node_at(uint32_t node)
{
    return (struct scheduled){.step_window = EXECUTE_DEMAND, .node = node};
}

static unsigned part_of(enum hst_sweep sweep)
{
    return sweep == HST_BACKWARD ? PHASE_BACKWARD : sweep == HST_EVAL ? PHASE_EVAL : PHASE_FORWARD;
}

/* The visit of that phase. */
static uint32_t visit_of(const struct graph *graph, unsigned step_phase)
{
    enum node_kind kind = step_phase == PHASE_BACKWARD ? NODE_BACKWARD : NODE_FORWARD;
    uint32_t i = 0;
    while (graph->nodes[i].kind != kind)
        i++;
    return i;
}

/* Nodes [from, end) that belong to the phase. */
static int run_nodes(struct hst_engine *engine, uint32_t from, uint32_t end, unsigned step_phase)
{
    int rc = 0;
    for (uint32_t i = from; i < end && rc == 0; i++)
        if (engine->run.demand.nodes[i].phases & step_phase)
            rc = run_node(engine, node_at(i));
    return rc;
}

static int open_unit(struct hst_engine *engine, uint32_t unit)
{
    struct execute *run = &engine->run;
    graph_free(&run->demand);
    int rc =
        step_graph_unit(&engine->plan_in, &engine->placement, unit, run->optimistic, &run->demand);
    return rc ? report_fail(&engine->report, HST_E_BUDGET, rc,
                            "the graph of a unit that is asked for out of order cannot be made: %s",
                            strerror(-rc))
              : 0;
}

int demand_send_acts(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer)
{
    struct execute *run = &engine->run;
    int rc = open_unit(engine, unit);
    if (rc)
        return rc;
    run->demand_buffer[pool] = buffer;
    rc = run_nodes(engine, visit_of(&run->demand, PHASE_FORWARD) + 1, run->demand.node_count,
                   PHASE_FORWARD);
    run->demand_buffer[pool] = 0;
    return rc;
}

int demand_send_grads(struct hst_engine *engine, uint32_t unit, enum pool pool, uint32_t buffer)
{
    struct execute *run = &engine->run;
    int rc = open_unit(engine, unit);
    run->demand_buffer[pool] = buffer;
    for (uint32_t i = 0; rc == 0 && i < run->demand.node_count; i++)
        if (run->demand.nodes[i].kind == NODE_WRITE_GRADS)
            rc = run_node(engine, node_at(i));
    run->demand_buffer[pool] = 0;
    return rc;
}

int demand_reach(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    struct execute *run = &engine->run;
    int rc = open_unit(engine, unit);
    if (rc)
        return rc;
    run->computing = node_at(visit_of(&run->demand, part_of(sweep)));
    return run_nodes(engine, 0, run->computing.node, part_of(sweep));
}

int demand_leave(struct hst_engine *engine, struct hst_stream *stream, enum hst_sweep sweep)
{
    struct execute *run = &engine->run;
    int rc = hst_event_record(engine->unit_passed, stream);
    rc = rc ? rc : hst_event_sync(engine->unit_passed);
    if (rc)
        return engine_fail_device(engine, rc, "the computation of a unit");
    return run_nodes(engine, run->computing.node + 1, run->demand.node_count, part_of(sweep));
}
