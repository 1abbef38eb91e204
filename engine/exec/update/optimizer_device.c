/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norm and update on a device. Partials follow each unit's gradients in the stream; those of a unit
 * that is offloaded leave with them. Of what the device has at home, a unit's update is enqueued
 * just before its next forward, which follows it there; the host waits for neither. Of tiles that
 * are streamed, and of what ranks have summed: in a stream of its own, where no computation waits
 * behind a copy or an exchange.
 */
#include "exec/update/optimizer.h"

#include "base/precision.h"
#include "exec/moves.h"
#include "exec/streams.h"
#include "exec/update/tile.h"
#include "exec/update/verdict.h"

/* Of `count` gradients, and the copy of the partials to the host's. */
static int norm_and_copy(struct executor *exec, struct hst_stream *stream,
                         const struct hst_norm2 *norm, double *host)
{
    const uint64_t bytes = placement_partials_bytes(norm->count);
    int rc = hst_op_norm2(stream, norm);
    if (rc || !host)
        return rc;
    streams_count(exec, LANE_D2H, bytes);
    return hst_stream_copy(stream, host, norm->partial, bytes);
}

int optimizer_device_norm(struct executor *exec, uint32_t unit)
{
    struct scheduled at = exec->turn.computing;
    const uint64_t elements = exec->in.layout->units[unit].elements;
    if (elements == 0)
        return 0;
    const struct hst_norm2 norm = {
        .count = elements,
        .dtype = precision_dtype(exec->in.config->precision),
        .x = moves_work(exec, at, EXTENT_GRADS, 0),
        .partial = (double *)(void *)moves_work(exec, at, OPERAND_PARTIALS, 0),
    };
    const bool stays = placement_is_resident(exec->in.placement, unit);
    return norm_and_copy(exec, exec->streams.unit, &norm,
                         stays ? moves_host_partials(exec, unit) : NULL);
}

int optimizer_sum_device_norm(struct executor *exec, struct scheduled at, struct hst_stream *stream)
{
    const uint32_t unit = program_node(exec, at)->unit;
    const struct shard shard = exec->in.layout->units[unit].shard;
    const uint64_t blocks = shard.first / HST_NORM_BLOCK;
    if (shard.elements == 0)
        return 0;
    const struct hst_norm2 norm = {
        .count = shard.elements,
        .dtype = precision_dtype(exec->in.config->precision),
        .x = moves_work(exec, at, EXTENT_GRADS, 0),
        .partial = moves_device_partials(exec, unit) + blocks,
    };
    return norm_and_copy(exec, stream, &norm, moves_host_partials(exec, unit) + blocks);
}

/* A tile in the device's memory. */
struct device_tile {
    struct tile_range range;
    struct optimizer_arrays arrays;
    struct hst_stream *stream;
    const struct optimizer_coefs *coefs;
};

/* `count` elements of it, from `offset` in it on. */
static int update_part(struct executor *exec, const struct device_tile *tile,
                       const struct layout_param *param, uint64_t offset, uint64_t count)
{
    const struct optimizer *optimizer = exec->in.kernel.optimizer;
    const struct optimizer_coef *coef = optimizer_coef(tile->coefs, param->group, param->decay);
    const struct optimizer_arrays arrays = optimizer_arrays_at(optimizer, &tile->arrays, offset);
    return optimizer->device(optimizer, tile->stream, coef, &arrays, count);
}

/* The parameters' parts in a tile; the padding between them is left alone. */
static int update_tile(struct executor *exec, const struct device_tile *tile)
{
    const struct layout *layout = exec->in.layout;
    struct tile_range range = tile->range;
    const struct layout_unit *unit = &layout->units[range.unit];
    uint64_t end = range.offset + range.elements;
    int rc = 0;
    for (uint32_t i = layout_first_param_in(layout, range);
         i < unit->first_param + unit->param_count && rc == 0; i++) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i)
            continue;
        if (param->offset >= end)
            break;
        uint64_t from = param->offset > range.offset ? param->offset : range.offset;
        uint64_t to = param->offset + param->count < end ? param->offset + param->count : end;
        rc = update_part(exec, tile, param, from - range.offset, to - from);
    }
    return rc;
}

static struct device_tile device_tile(const struct executor *exec, struct scheduled at,
                                      uint32_t number, struct hst_stream *stream)
{
    struct tile_job job = update_tile_job(exec, at, number);
    bool late = node_is_late(program_node(exec, at));
    return (struct device_tile){
        .range = job.range,
        .arrays = job.arrays,
        .stream = stream,
        .coefs = late ? &exec->verdict.coefs : &exec->verdict.early,
    };
}

/* In the stream; the event tells when. */
static int update_tiles(struct executor *exec, struct scheduled at, struct hst_stream *stream,
                        struct hst_event *event)
{
    const struct node *node = program_node(exec, at);
    int rc = 0;
    for (uint32_t i = 0; i < node->tile_count && rc == 0; i++) {
        const struct device_tile tile = device_tile(exec, at, node->tile + i, stream);
        rc = update_tile(exec, &tile);
    }
    rc = rc ? rc : hst_event_record(event, stream);
    if (!node_is_late(node))
        verdict_early_begins(exec);
    return rc ? executor_fail_device(exec, rc, "the update") : 0;
}

int optimizer_device_update(struct executor *exec, struct scheduled at)
{
    return update_tiles(exec, at, exec->streams.unit, exec->streams.updated);
}

int optimizer_streamed_update(struct executor *exec, struct scheduled at)
{
    return update_tiles(exec, at, exec->streams.updating, exec->streams.streamed);
}
