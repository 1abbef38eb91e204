/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of operands: of a node's buffers, and of homes. */
#include "exec/moves.h"

#include "exec/rows.h"

#include <assert.h>

static const struct operand *operands_of(const struct executor *exec, struct scheduled at)
{
    return graph_operands(&exec->now->graph, program_node(exec, at));
}

static unsigned char *arena_of(const struct executor *exec, unsigned space)
{
    return space == SPACE_DEVICE ? exec->in.arena : exec->in.host_arena;
}

unsigned char *moves_buffer(const struct executor *exec, struct scheduled at,
                            struct operand_end end)
{
    struct buffer_pool buffer_pool = step_graph_pool(exec->in.placement, end.pool);
    uint32_t buffer = scheduler_pool_buffer(&exec->now->scheduler, at, (enum pool)end.pool);
    assert(buffer != GRAPH_NONE); /* the node borrows what its operands are in */
    return arena_of(exec, end.space) + buffer_pool.at + buffer * buffer_pool.bytes;
}

double *moves_host_partials(const struct executor *exec, uint32_t unit)
{
    unsigned char *all = exec->in.host_arena + exec->in.placement->host_partials;
    return (double *)(void *)all + exec->in.layout->units[unit].first_block;
}

double *moves_device_partials(const struct executor *exec, uint32_t unit)
{
    unsigned char *all = exec->in.arena + exec->in.placement->norm_partials;
    return (double *)(void *)all + exec->in.layout->units[unit].first_block;
}

static unsigned char *partials_at_home(const struct executor *exec, unsigned space, uint32_t unit)
{
    return (unsigned char *)(space == SPACE_DEVICE ? moves_device_partials(exec, unit)
                                                   : moves_host_partials(exec, unit));
}

/* An operand's extent `index`; slot: of those in memory that have two. */
static unsigned char *home_tier_of(const struct executor *exec, const struct node *node,
                                   unsigned space, unsigned what, uint32_t index, int slot)
{
    const struct placement *p = exec->in.placement;
    const struct unit_placement *home = &p->units[node->unit];
    unsigned char *arena = arena_of(exec, space);
    uint64_t bytes;
    if (what == OPERAND_PARTIALS)
        return partials_at_home(exec, space, index);
    if (what == EXTENT_ACTS)
        return arena + home->acts.offset +
               (uint64_t)(index - home->first_act_block) * PLACEMENT_ACT_BYTES;
    if (space == SPACE_DRAM && what != EXTENT_GRADS)
        return moves_home(exec, (enum extent_kind)what, index, slot);
    return arena + placement_extent(p, (enum extent_kind)what, index, &bytes).offset;
}

unsigned char *moves_home(const struct executor *exec, enum extent_kind kind, uint32_t tile,
                          int slot)
{
    const struct placement *p = exec->in.placement;
    uint64_t bytes;
    return exec->in.host_arena + placement_extent(p, kind, tile, &bytes).offset +
           (slot ? placement_second_in_dram(p, kind, tile) : 0);
}

/* Bytes from one extent to the next in a buffer. */
static uint64_t stride_of(const struct executor *exec, unsigned what)
{
    return what == EXTENT_ACTS ? PLACEMENT_ACT_BYTES
                               : exec->in.layout->tile_elements * executor_element_bytes(exec);
}

/* The i-th extent of an operand at one of its ends, in memory. */
static unsigned char *address_of(const struct executor *exec, struct scheduled at,
                                 const struct operand *op, struct operand_end end, uint32_t i,
                                 int slot)
{
    if (end.pool == POOL_COUNT)
        return home_tier_of(exec, program_node(exec, at), end.space, op->what, op->first + i, slot);
    return moves_buffer(exec, at, end) + op->offset + i * stride_of(exec, op->what);
}

struct moves_slots moves_slots(const struct executor *exec, const struct node *node)
{
    int slot = exec->verdict.slot;
    bool updates =
        node->kind == NODE_UPDATE || node->kind == NODE_FETCH_TILE || node->kind == NODE_STORE_TILE;
    if (!exec->verdict.optimistic || !updates)
        return (struct moves_slots){slot, slot};
    bool late = node_is_late(node); /* the slots have changed places */
    return (struct moves_slots){late ? !slot : slot, late ? slot : !slot};
}

/* ---- drives, copies, work ---- */

uint32_t moves_count(const struct executor *exec, struct scheduled at)
{
    const struct operand *op = operands_of(exec, at);
    uint32_t count = 0;
    for (unsigned i = 0; i < program_node(exec, at)->operand_count; i++)
        count += op[i].count;
    return count;
}

struct move moves_at(const struct executor *exec, struct scheduled at, uint32_t i)
{
    const struct operand *op = operands_of(exec, at);
    for (; i >= op->count; op++)
        i -= op->count;
    bool write = operand_end_is_offloaded(op->to);
    return (struct move){(enum extent_kind)op->what, op->first + i,
                         address_of(exec, at, op, write ? op->from : op->to, i, exec->verdict.slot),
                         write};
}

uint32_t moves_copies(const struct executor *exec, struct scheduled at,
                      struct copy copies[OPERANDS_MOST])
{
    const struct node *node = program_node(exec, at);
    const struct operand *op = operands_of(exec, at);
    struct moves_slots slots = moves_slots(exec, node);
    for (unsigned i = 0; i < node->operand_count; i++) {
        const bool row = node->kind == NODE_COPY_WEIGHTS && rows_are_home(exec, op[i].from);
        copies[i] = (struct copy){
            .to = address_of(exec, at, &op[i], op[i].to, 0, slots.into),
            .from = row ? rows_home(exec, node->unit, i)
                        : address_of(exec, at, &op[i], op[i].from, 0, slots.from),
            .bytes = op[i].bytes,
            .parts = 1,
        };
        if (node->kind == NODE_COPY_GRADS && exec->in.placement->buckets)
            rows_copy_into_bucket(exec, node->unit, &copies[i]);
        if (node->kind == NODE_COPY_GRADS && exec->in.placement->device_sums &&
            exec->in.placement->replicas > 0)
            copies[i].to = rows_sum_home(exec, node->unit);
    }
    return node->operand_count;
}

unsigned char *moves_work(const struct executor *exec, struct scheduled at, unsigned what,
                          uint32_t nth)
{
    const struct operand *op = operands_of(exec, at);
    const struct node *node = program_node(exec, at);
    if (what == EXTENT_GRADS && node->kind == NODE_BACKWARD && exec->in.placement->buckets &&
        executor_computes_in_dram(exec))
        return rows_in_bucket(exec, node->unit);
    for (unsigned i = 0; i < node->operand_count; i++)
        if (op[i].what == what && nth-- == 0)
            return what == EXTENT_WEIGHTS && rows_are_home(exec, op[i].to)
                       ? rows_home(exec, node->unit, i)
                       : address_of(exec, at, &op[i], op[i].to, 0, exec->verdict.slot);
    return NULL;
}

unsigned char *moves_part(const struct executor *exec, struct scheduled at, unsigned what,
                          uint32_t tile, int slot)
{
    const struct operand *op = operands_of(exec, at);
    while (op->what != what)
        op++;
    return address_of(exec, at, op, op->to, tile - op->first, slot);
}
