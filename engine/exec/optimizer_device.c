/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step on a device that holds everything itself: norm partials follow each unit's
 * gradients, and the update is enqueued behind them, so the next forward waits for it in the stream
 * and the host does not.
 */
#include "exec/optimizer.h"

#include <math.h>

/* The unit's first partial; a unit is padded to whole blocks. */
static uint64_t first_block(const struct hst_engine *engine, uint32_t unit)
{
    uint64_t elements = 0;
    for (uint32_t u = 0; u < unit; u++)
        elements += engine->layout.units[u].elements;
    return elements / HST_NORM_BLOCK;
}

int optimizer_device_norm(struct hst_engine *engine, uint32_t unit)
{
    const struct placement *p = &engine->placement;
    uint64_t elements = engine->layout.units[unit].elements;
    if (elements == 0)
        return 0;
    uint64_t at = first_block(engine, unit) * sizeof(double);
    struct hst_norm2 norm = {
        .count = elements,
        .dtype = hst_engine_dtype(engine),
        .x = engine->arena + p->units[unit].grads,
        .partial = (double *)(void *)(engine->arena + p->norm_partials + at),
    };
    int rc = hst_op_norm2(engine->unit_stream, &norm);
    if (rc)
        return rc;
    uint64_t bytes = elements / HST_NORM_BLOCK * sizeof(double);
    engine->step.partial_bytes += bytes;
    return hst_stream_copy(engine->unit_stream, engine->host_arena + p->host_partials + at,
                           norm.partial, bytes);
}

double optimizer_device_grad_norm(struct hst_engine *engine)
{
    const double *partials =
        (const double *)(const void *)(engine->host_arena + engine->placement.host_partials);
    return sqrt(hst_norm2_sum(partials, engine->layout.elements / HST_NORM_BLOCK));
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
    struct record record = record_layout(engine_precision(engine), range.elements);
    unsigned char *states = engine->arena + placement_states(p, tile).offset;
    struct hst_adamw args = adamw_args(coef);
    args.count = count;
    args.dtype = hst_engine_dtype(engine);
    args.weight = engine->arena + placement_weights(p, tile).offset + offset * element;
    args.m = (float *)(void *)(states + record.m_at) + offset;
    args.v = (float *)(void *)(states + record.v_at) + offset;
    args.grad = engine->arena + p->units[range.unit].grads + (range.offset + offset) * element;
    if (engine_precision(engine) == HST_PRECISION_BF16)
        args.remainder = (int16_t *)(void *)(states + record.remainder_at) + offset;
    return hst_op_adamw(engine->unit_stream, &args);
}

/* A parameter's tiles, one after another; the padding between parameters is left alone. */
static int update_param(struct hst_engine *engine, const struct optimizer_coefs *coefs,
                        const struct layout_param *param)
{
    const struct layout *layout = &engine->layout;
    uint64_t size = layout->tile_elements, at = param->offset, end = at + param->count;
    while (at < end) {
        uint32_t tile = layout->units[param->unit].first_tile + (uint32_t)(at / size);
        uint64_t left = size - at % size;
        uint64_t count = end - at < left ? end - at : left;
        int rc = update_part(engine, param->decay ? &coefs->decayed : &coefs->plain, tile,
                             at % size, count);
        if (rc)
            return rc;
        at += count;
    }
    return 0;
}

int optimizer_device_update(struct hst_engine *engine, double grad_norm)
{
    struct optimizer_coefs coefs;
    int rc = optimizer_coefs(engine, grad_norm, &coefs);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < engine->layout.param_count; i++) {
        const struct layout_param *param = &engine->layout.params[i];
        rc = param->owner == i ? update_param(engine, &coefs, param) : 0;
        if (rc)
            return engine_fail_device(engine, rc, "the update");
    }
    return 0;
}
