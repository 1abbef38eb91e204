/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/rows.h"

#include "exec/moves.h"

#include <assert.h>
#include <string.h>

static bool is_at_home(struct operand_end end)
{
    return end.pool == POOL_COUNT;
}

/* The memory in which a unit's weights and gradients are at home. */
static unsigned char *arena_of(const struct executor *exec, uint32_t unit)
{
    return placement_memory(exec->in.placement, unit) == HST_TIER_HBM ? exec->in.arena
                                                                      : exec->in.host_arena;
}

/* A unit's weights in memory: its shard, or its row. It may have no tile on this rank. A device has
 * one slot of them. */
static unsigned char *weights_home(const struct executor *exec, uint32_t unit, int slot)
{
    const struct placement *p = exec->in.placement;
    if (placement_is_resident(p, unit))
        return exec->in.arena + p->units[unit].weights.offset;
    return exec->in.host_arena + p->units[unit].weights.offset +
           (slot && !exec->in.layout->units[unit].frozen ? p->weights_slot : 0);
}

/* The nth row of those that a unit reads; of one rank, what it reads of another unit's. */
static struct gather row_read(const struct executor *exec, uint32_t unit, uint32_t nth)
{
    struct gather gathers[GATHER_MAX];
    placement_gather(exec->in.layout, executor_element_bytes(exec), unit, gathers);
    return gathers[nth];
}

bool rows_are_home(const struct executor *exec, struct operand_end end)
{
    const struct placement *p = exec->in.placement;
    return p->whole_weights && p->replicas == 0 && is_at_home(end);
}

static unsigned char *home_in(const struct executor *exec, uint32_t unit, uint32_t nth, int slot)
{
    const struct gather read = row_read(exec, unit, nth);
    return weights_home(exec, read.unit, slot) + read.first * executor_element_bytes(exec);
}

unsigned char *rows_home(const struct executor *exec, uint32_t unit, uint32_t nth)
{
    return home_in(exec, unit, nth, exec->verdict.slot);
}

/* A row that is whole again before the clip is where an optimistic update has written: there the
 * slots change places. */
static int slot_of_row(const struct executor *exec, const struct node *node)
{
    const bool again = exec->verdict.optimistic && node->phases == PHASE_BACKWARD;
    return again ? !exec->verdict.slot : exec->verdict.slot;
}

/* Weights come together in the device's memory. */
static bool are_on_device(const struct executor *exec)
{
    return exec->in.placement->device_rows;
}

/* A unit that stays in its buffer for the backward is not gathered again, nor is one whose backward
 * reads no weights. */
static bool keeps(const struct executor *exec, const struct node *node)
{
    return exec->in.placement->units[node->unit].gathers_near && node->kind == NODE_GATHER &&
           (node->phases & PHASE_FORWARD) && !(node->phases & PHASE_BACKWARD);
}

static unsigned char *kept(const struct executor *exec, uint32_t unit)
{
    return (are_on_device(exec) ? exec->in.arena : exec->in.host_arena) +
           exec->in.placement->units[unit].secondary;
}

static struct gathered gathered(const struct executor *exec, struct scheduled at,
                                const struct operand *op, uint32_t nth)
{
    const uint32_t unit = program_node(exec, at)->unit;
    struct gathered row = {.shard_bytes =
                               row_read(exec, unit, nth).bytes / exec->in.layout->share.world};
    row.on_device = op->to.space == SPACE_DEVICE;
    if (rows_are_home(exec, op->to)) {
        row.row = home_in(exec, unit, nth, slot_of_row(exec, program_node(exec, at)));
        return row;
    }
    row.row = moves_buffer(exec, at, op->to) + op->offset;
    if (row.on_device && keeps(exec, program_node(exec, at)))
        row.keep = kept(exec, row_read(exec, unit, nth).unit);
    row.home = is_at_home(op->from)            ? rows_home(exec, unit, nth)
               : exec->in.layout->exact_beside ? row.row + row_read(exec, unit, nth).bytes
                                               : NULL;
    return row;
}

uint32_t rows_gathered(const struct executor *exec, struct scheduled at,
                       struct gathered rows[GATHER_MAX])
{
    const struct node *node = program_node(exec, at);
    const struct operand *op = graph_operands(&exec->now->graph, node);
    for (uint32_t i = 0; i < node->operand_count; i++)
        rows[i] = gathered(exec, at, &op[i], i);
    return node->operand_count;
}

uint32_t rows_near(const struct executor *exec, struct scheduled at,
                   struct gathered rows[GATHER_MAX])
{
    const struct node *node = program_node(exec, at);
    const struct operand *op = graph_operands(&exec->now->graph, node);
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const struct gather read = row_read(exec, node->unit, i);
        rows[i] = (struct gathered){.row = moves_buffer(exec, at, op[i].to) + op[i].offset,
                                    .home = kept(exec, read.unit),
                                    .shard_bytes = read.bytes / exec->in.plan_in->secondary,
                                    .on_device = are_on_device(exec)};
    }
    return node->operand_count;
}

/* Of a row that two units read both keep the same bytes. */
void rows_keep(const struct executor *exec, struct scheduled at)
{
    const uint32_t ranks = exec->in.plan_in->secondary;
    struct gathered rows[GATHER_MAX];
    if (are_on_device(exec) || !keeps(exec, program_node(exec, at)))
        return;
    const uint32_t count = rows_near(exec, at, rows);
    for (uint32_t i = 0; i < count; i++)
        memcpy((unsigned char *)(uintptr_t)rows[i].home,
               rows[i].row + exec->in.rank % ranks * rows[i].shard_bytes, rows[i].shard_bytes);
}

/* Elements of a shard of gradients. */
static uint64_t shard_of_grads(const struct executor *exec, uint32_t unit)
{
    const struct placement_in *in = exec->in.plan_in;
    return placement_exchange_elements(in, unit) / placement_ranks(in);
}

unsigned char *rows_sum_home(const struct executor *exec, uint32_t unit)
{
    const struct placement *p = exec->in.placement;
    assert(p->units[unit].grads.offset != PLACEMENT_NO_ADDRESS); /* no update takes it elsewhere */
    const uint64_t before = p->replicas > 0 ? exec->in.rank * shard_of_grads(exec, unit) : 0;
    return arena_of(exec, unit) + p->units[unit].grads.offset +
           before * executor_element_bytes(exec);
}

struct exchanged rows_exchanged(const struct executor *exec, struct scheduled at)
{
    const struct node *node = program_node(exec, at);
    const struct operand *op = graph_operands(&exec->now->graph, node);
    unsigned char *arena = exec->in.host_arena;
    if (exec->in.placement->buckets) {
        const struct bucket bucket = bucket_of(exec->in.placement, node->unit);
        return (struct exchanged){arena + bucket.at, arena + bucket.sum_at, bucket.elements, false};
    }
    unsigned char *row = moves_buffer(exec, at, op->from);
    unsigned char *home = is_at_home(op->to) ? rows_sum_home(exec, node->unit) : NULL;
    const uint64_t elements = shard_of_grads(exec, node->unit);
    if (op->from.space == SPACE_DEVICE)
        return (struct exchanged){row + op->offset, home ? home : row, elements, true};
    return (struct exchanged){row, home ? home : row + op->offset, elements, false};
}

struct gathered rows_of_sums(const struct executor *exec, struct scheduled at)
{
    const uint32_t unit = program_node(exec, at)->unit;
    return (struct gathered){
        .row = arena_of(exec, unit) + exec->in.placement->units[unit].grads.offset,
        .shard_bytes = shard_of_grads(exec, unit) * executor_element_bytes(exec),
        .on_device = placement_is_resident(exec->in.placement, unit)};
}

static struct bucket_row own_row_in_bucket(const struct executor *exec, uint32_t unit)
{
    return bucket_row(exec->in.placement, unit, hst_dtype_bytes(ways_type(exec->in.ways)));
}

unsigned char *rows_in_bucket(const struct executor *exec, uint32_t unit)
{
    return exec->in.host_arena + own_row_in_bucket(exec, unit).at;
}

void rows_copy_into_bucket(const struct executor *exec, uint32_t unit, struct copy *copy)
{
    const struct bucket_row row = own_row_in_bucket(exec, unit);
    const uint64_t element_bytes = hst_dtype_bytes(ways_type(exec->in.ways));
    copy->to = exec->in.host_arena + row.at;
    copy->bytes = row.shard * element_bytes;
    copy->stride = row.stride * element_bytes;
    copy->parts = exec->in.layout->share.world;
}
