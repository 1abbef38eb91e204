/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norm and update on a device that holds what it updates: partials follow each unit's gradients
 * in the stream, and a unit's update is enqueued just before its next forward, which follows it
 * there; the host waits for neither.
 */
#include "exec/optimizer.h"

int optimizer_device_norm(struct hst_engine *engine, uint32_t unit)
{
    const struct placement *p = &engine->placement;
    uint64_t elements = engine->layout.units[unit].elements;
    if (elements == 0)
        return 0;
    uint64_t at = engine->layout.units[unit].first_block * sizeof(double);
    struct hst_norm2 norm = {
        .count = elements,
        .dtype = hst_engine_dtype(engine),
        .x = engine->arena + p->units[unit].grads.offset,
        .partial = (double *)(void *)(engine->arena + p->norm_partials + at),
    };
    int rc = hst_op_norm2(engine->unit_stream, &norm);
    if (rc)
        return rc;
    uint64_t bytes = elements / HST_NORM_BLOCK * sizeof(double);
    engine->run.copied_bytes[LANE_D2H] += bytes;
    return hst_stream_copy(engine->unit_stream, engine->host_arena + p->host_partials + at,
                           norm.partial, bytes);
}

static struct hst_adamw adamw_args(const struct hst_adam_coef *c)
{
    return (struct hst_adamw){
        .grad_scale = c->grad_scale,
        .beta1_hi = c->beta1_hi,
        .beta1_lo = c->beta1_lo,
        .one_minus_beta1 = c->one_minus_beta1,
        .beta2_hi = c->beta2_hi,
        .beta2_lo = c->beta2_lo,
        .one_minus_beta2 = c->one_minus_beta2,
        .inv_sqrt_bias2 = c->inv_sqrt_bias2,
        .eps = c->eps,
        .decay = c->decay,
        .step_size = c->step_size,
    };
}

/* `count` elements of one tile, from `offset` in it on. */
static int update_part(struct hst_engine *engine, const struct hst_adam_coef *coef, uint32_t tile,
                       uint64_t offset, uint64_t count)
{
    const struct placement *p = &engine->placement;
    struct tile_range range = layout_tile(&engine->layout, tile);
    uint64_t element = engine_element_bytes(engine);
    struct record record = record_layout(engine->update->bytes, range.elements);
    unsigned char *states = engine->arena + placement_states(p, tile).offset;
    struct hst_adamw args = adamw_args(coef);
    args.count = count;
    args.dtype = hst_engine_dtype(engine);
    args.weight = engine->arena + placement_weights(p, tile).offset + offset * element;
    args.m = (float *)(void *)(states + record.m_at) + offset;
    args.v = (float *)(void *)(states + record.v_at) + offset;
    args.grad =
        engine->arena + p->units[range.unit].grads.offset + (range.offset + offset) * element;
    if (args.dtype == HST_BF16)
        args.remainder = (int16_t *)(void *)(states + record.master_at) + offset;
    if (args.dtype == HST_F16)
        args.master = (float *)(void *)(states + record.master_at) + offset;
    return hst_op_adamw(engine->unit_stream, &args);
}

/* The parameters' parts in a tile; the padding between them is left alone. */
static int update_tile(struct hst_engine *engine, uint32_t tile)
{
    const struct layout *layout = &engine->layout;
    const struct execute *run = &engine->run;
    struct tile_range range = layout_tile(layout, tile);
    const struct optimizer_coefs *coefs =
        engine_updates_late(engine, range.unit) ? &run->coefs : &run->early;
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
        rc = update_part(engine, param->decay ? &coefs->decayed : &coefs->plain, tile,
                         from - range.offset, to - from);
    }
    return rc;
}

int optimizer_device_update(struct hst_engine *engine, uint32_t tile, uint32_t tile_count)
{
    int rc = 0;
    for (uint32_t i = 0; i < tile_count && rc == 0; i++)
        rc = update_tile(engine, tile + i);
    rc = rc ? rc : hst_event_record(engine->run.updated, engine->unit_stream);
    uint32_t unit = layout_tile(&engine->layout, tile).unit;
    engine->run.early_begun |= !engine_updates_late(engine, unit);
    return rc ? engine_fail_device(engine, rc, "the update") : 0;
}
