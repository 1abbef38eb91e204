/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of operands: of a node's buffers, and of homes. */
#include "exec/moves.h"

#include <assert.h>

const struct node *moves_node(const struct hst_engine *engine, struct scheduled at)
{
    const struct execute *run = &engine->run;
    return &(at.step_window == EXECUTE_DEMAND ? &run->demand : &run->graph)->nodes[at.node];
}

static const struct operand *operands_of(const struct hst_engine *engine, struct scheduled at)
{
    const struct execute *run = &engine->run;
    return graph_operands(at.step_window == EXECUTE_DEMAND ? &run->demand : &run->graph,
                          moves_node(engine, at));
}

bool moves_is_late(const struct node *node)
{
    return (node->phases & ((unsigned)PHASE_UPDATE | PHASE_REDO)) != 0;
}

/* ---- ends ---- */

static struct buffer_pool pool_memory_of(const struct placement *p, unsigned pool)
{
    const struct buffer_pool buffer_pools[POOL_COUNT] = {
        [POOL_WEIGHTS] = p->reservations[0],
        [POOL_WIDE_WEIGHTS] = p->reservations[1],
        [POOL_GRADS] = p->grad_buffers[0],
        [POOL_WIDE_GRADS] = p->grad_buffers[1],
        [POOL_TILES] = p->slots,
        [POOL_ACTS] = p->act_buffers,
        [POOL_DEVICE_WEIGHTS] = p->device_weights[0],
        [POOL_DEVICE_WIDE_WEIGHTS] = p->device_weights[1],
        [POOL_DEVICE_GRADS] = p->device_grads[0],
        [POOL_DEVICE_WIDE_GRADS] = p->device_grads[1],
        [POOL_DEVICE_ACTS] = p->device_acts,
        [POOL_DEVICE_TILES] = p->device_tiles,
    };
    return buffer_pools[pool];
}

static unsigned char *arena_of(const struct hst_engine *engine, unsigned space)
{
    return space == SPACE_DEVICE ? engine->arena : engine->host_arena;
}

/* The buffer that a started node has of a buffer pool. */
static unsigned char *buffer_of(const struct hst_engine *engine, struct scheduled at,
                                struct operand_end end)
{
    struct buffer_pool buffer_pool = pool_memory_of(&engine->placement, end.pool);
    uint32_t buffer = at.step_window == EXECUTE_DEMAND
                          ? engine->run.demand_buffer[end.pool]
                          : scheduler_pool_buffer(&engine->run.scheduler, at, (enum pool)end.pool);
    assert(buffer != GRAPH_NONE); /* the node borrows what its operands are in */
    return arena_of(engine, end.space) + buffer_pool.at + buffer * buffer_pool.bytes;
}

double *moves_host_partials(const struct hst_engine *engine, uint32_t unit)
{
    unsigned char *all = engine->host_arena + engine->placement.host_partials;
    return (double *)(void *)all + engine->layout.units[unit].first_block;
}

static unsigned char *partials_at_home(const struct hst_engine *engine, unsigned space,
                                       uint32_t unit)
{
    return space == SPACE_DEVICE ? engine->arena + engine->placement.norm_partials +
                                       engine->layout.units[unit].first_block * sizeof(double)
                                 : (unsigned char *)moves_host_partials(engine, unit);
}

/* An operand's extent `index`; slot: of those in memory that have two. */
static unsigned char *home_tier_of(const struct hst_engine *engine, const struct node *node,
                                   unsigned space, unsigned what, uint32_t index, int slot)
{
    const struct placement *p = &engine->placement;
    const struct unit_placement *home = &p->units[node->unit];
    unsigned char *arena = arena_of(engine, space);
    uint64_t bytes;
    if (what == OPERAND_PARTIALS)
        return partials_at_home(engine, space, index);
    if (what == EXTENT_ACTS)
        return arena + home->acts.offset +
               (uint64_t)(index - home->first_act_block) * PLACEMENT_ACT_BYTES;
    if (space == SPACE_DRAM && what != EXTENT_GRADS)
        return tile_at_home_tier(engine, (enum extent_kind)what, index, slot);
    return arena + placement_extent(p, (enum extent_kind)what, index, &bytes).offset;
}

/* Bytes from one extent to the next in a buffer. */
static uint64_t stride_of(const struct hst_engine *engine, unsigned what)
{
    return what == EXTENT_ACTS ? PLACEMENT_ACT_BYTES
                               : engine->layout.tile_elements * engine_element_bytes(engine);
}

/* The i-th extent of an operand at one of its ends, in memory. */
static unsigned char *address_of(const struct hst_engine *engine, struct scheduled at,
                                 const struct operand *op, struct operand_end end, uint32_t i,
                                 int slot)
{
    if (end.pool == POOL_COUNT)
        return home_tier_of(engine, moves_node(engine, at), end.space, op->what, op->first + i,
                            slot);
    return buffer_of(engine, at, end) + op->offset + i * stride_of(engine, op->what);
}

/* Of an update of a started node: the slot in memory that it reads, and the one that it writes. */
struct slots {
    int from, into;
};

static struct slots slots_of(const struct hst_engine *engine, const struct node *node)
{
    int slot = engine->run.slot;
    bool updates =
        node->kind == NODE_UPDATE || node->kind == NODE_FETCH_TILE || node->kind == NODE_STORE_TILE;
    if (!engine->run.optimistic || !updates)
        return (struct slots){slot, slot};
    bool late = moves_is_late(node); /* the slots have changed places */
    return (struct slots){late ? !slot : slot, late ? slot : !slot};
}

/* ---- drives, copies, work ---- */

uint32_t moves_count(const struct hst_engine *engine, struct scheduled at)
{
    const struct operand *op = operands_of(engine, at);
    uint32_t count = 0;
    for (unsigned i = 0; i < moves_node(engine, at)->operand_count; i++)
        count += op[i].count;
    return count;
}

struct move moves_at(const struct hst_engine *engine, struct scheduled at, uint32_t i)
{
    const struct operand *op = operands_of(engine, at);
    for (; i >= op->count; op++)
        i -= op->count;
    bool write = operand_end_is_offloaded(op->to);
    return (struct move){(enum extent_kind)op->what, op->first + i,
                         address_of(engine, at, op, write ? op->from : op->to, i, engine->run.slot),
                         write};
}

uint32_t moves_copies(const struct hst_engine *engine, struct scheduled at,
                      struct copy copies[OPERANDS_MOST])
{
    const struct node *node = moves_node(engine, at);
    const struct operand *op = operands_of(engine, at);
    struct slots slots = slots_of(engine, node);
    for (unsigned i = 0; i < node->operand_count; i++)
        copies[i] =
            (struct copy){address_of(engine, at, &op[i], op[i].to, 0, slots.into),
                          address_of(engine, at, &op[i], op[i].from, 0, slots.from), op[i].bytes};
    return node->operand_count;
}

unsigned char *moves_work(const struct hst_engine *engine, struct scheduled at, unsigned what,
                          uint32_t nth)
{
    const struct operand *op = operands_of(engine, at);
    for (unsigned i = 0; i < moves_node(engine, at)->operand_count; i++)
        if (op[i].what == what && nth-- == 0)
            return address_of(engine, at, &op[i], op[i].to, 0, engine->run.slot);
    return NULL;
}

/* Of the node's operands, which are of tiles, the part of one tile. */
static unsigned char *part_of(const struct hst_engine *engine, struct scheduled at, unsigned what,
                              uint32_t tile, int slot)
{
    const struct operand *op = operands_of(engine, at);
    while (op->what != what)
        op++;
    return address_of(engine, at, op, op->to, tile - op->first, slot);
}

static struct hst_update_arrays arrays_in(const struct hst_engine *engine, struct scheduled at,
                                          const struct tile_job *job, int slot)
{
    struct record record = record_layout(engine->update->bytes, job->range.elements);
    unsigned char *states = part_of(engine, at, EXTENT_STATES, job->tile, slot);
    return (struct hst_update_arrays){
        .weights = part_of(engine, at, EXTENT_WEIGHTS, job->tile, slot),
        .master = engine->update->bytes.master ? states + record.master_at : NULL,
        .m = states + record.m_at,
        .v = states + record.v_at,
    };
}

struct tile_job moves_tile(const struct hst_engine *engine, struct scheduled at, uint32_t tile)
{
    struct tile_job job = {.tile = tile, .range = layout_tile(&engine->layout, tile)};
    struct slots slots = slots_of(engine, moves_node(engine, at));
    job.record = part_of(engine, at, EXTENT_STATES, tile, slots.from);
    job.arrays = arrays_in(engine, at, &job, slots.from);
    job.arrays.grads = part_of(engine, at, EXTENT_GRADS, tile, 0);
    job.arrays.index = layout_first_element(&engine->layout, job.range);
    job.into = arrays_in(engine, at, &job, slots.into);
    return job;
}
