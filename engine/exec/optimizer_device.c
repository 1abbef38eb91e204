/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norm and update on a device. Partials follow each unit's gradients in the stream; those of a unit
 * that is offloaded leave with them. Of what the device has at home, a unit's update is enqueued
 * just before its next forward, which follows it there; the host waits for neither. Of tiles that
 * are streamed: in a stream of its own, where no computation waits behind a copy.
 */
#include "exec/optimizer.h"

#include "base/adamw_args.h"
#include "exec/failure.h"

#include "exec/moves.h"

int optimizer_device_norm(struct hst_engine *engine, uint32_t unit)
{
    struct scheduled at = engine->run.computing;
    uint64_t elements = engine->layout.units[unit].elements;
    if (elements == 0)
        return 0;
    struct hst_norm2 norm = {
        .count = elements,
        .dtype = precision_dtype(engine->config.precision),
        .x = moves_work(engine, at, EXTENT_GRADS, 0),
        .partial = (double *)(void *)moves_work(engine, at, OPERAND_PARTIALS, 0),
    };
    int rc = hst_op_norm2(engine->unit_stream, &norm);
    if (rc || !placement_is_resident(&engine->placement, unit))
        return rc;
    uint64_t bytes = placement_partials_bytes(elements);
    engine->run.copied_bytes[LANE_D2H] += bytes;
    return hst_stream_copy(engine->unit_stream, moves_host_partials(engine, unit), norm.partial,
                           bytes);
}

/* A tile in the device's memory. */
struct device_tile {
    struct tile_range range;
    unsigned char *weights, *states;
    const unsigned char *grads;
    struct hst_stream *stream;
    const struct optimizer_coefs *coefs;
};

/* `count` elements of it, from `offset` in it on. */
static int update_part(struct hst_engine *engine, const struct device_tile *tile, bool decay,
                       uint64_t offset, uint64_t count)
{
    uint64_t element = engine_element_bytes(engine);
    struct record record = record_layout(engine->update->bytes, tile->range.elements);
    struct hst_adamw args = adamw_args(decay ? &tile->coefs->decayed : &tile->coefs->plain);
    args.count = count;
    args.dtype = precision_dtype(engine->config.precision);
    args.weight = tile->weights + offset * element;
    args.grad = tile->grads + offset * element;
    args.m = (float *)(void *)(tile->states + record.m_at) + offset;
    args.v = (float *)(void *)(tile->states + record.v_at) + offset;
    if (args.dtype == HST_BF16)
        args.remainder = (int16_t *)(void *)(tile->states + record.master_at) + offset;
    if (args.dtype == HST_F16)
        args.master = (float *)(void *)(tile->states + record.master_at) + offset;
    return hst_op_adamw(tile->stream, &args);
}

/* The parameters' parts in a tile; the padding between them is left alone. */
static int update_tile(struct hst_engine *engine, const struct device_tile *tile)
{
    const struct layout *layout = &engine->layout;
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
        rc = update_part(engine, tile, param->decay, from - range.offset, to - from);
    }
    return rc;
}

static struct device_tile device_tile(const struct hst_engine *engine, struct scheduled at,
                                      uint32_t number, struct hst_stream *stream)
{
    struct tile_job job = moves_tile(engine, at, number);
    bool late = moves_is_late(moves_node(engine, at));
    return (struct device_tile){
        .range = job.range,
        .weights = job.arrays.weights,
        .states = job.record,
        .grads = job.arrays.grads,
        .stream = stream,
        .coefs = late ? &engine->run.coefs : &engine->run.early,
    };
}

/* In the stream; the event tells when. */
static int update_tiles(struct hst_engine *engine, struct scheduled at, struct hst_stream *stream,
                        struct hst_event *event)
{
    const struct node *node = moves_node(engine, at);
    int rc = 0;
    for (uint32_t i = 0; i < node->tile_count && rc == 0; i++) {
        const struct device_tile tile = device_tile(engine, at, node->tile + i, stream);
        rc = update_tile(engine, &tile);
    }
    rc = rc ? rc : hst_event_record(event, stream);
    engine->run.early_begun |= !moves_is_late(node);
    return rc ? engine_fail_device(engine, rc, "the update") : 0;
}

int optimizer_device_update(struct hst_engine *engine, struct scheduled at)
{
    return update_tiles(engine, at, engine->unit_stream, engine->run.updated);
}

int optimizer_streamed_update(struct hst_engine *engine, struct scheduled at)
{
    return update_tiles(engine, at, engine->run.updating, engine->run.streamed);
}
