/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See toy_client.h. Sizes are chosen so that units begin and end inside tiles and parameters cross
 * them.
 */
#include "toy_client.h"

#include <hoistway/predict.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDEST (2400u * 64u)

static const struct hst_param_desc embed[] = {
    {.name = "embed", .dim_count = 2, .dims = {2400, 64}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc a[] = {
    {.name = "a.norm", .dim_count = 1, .dims = {64}},
    {.name = "a.w", .dim_count = 2, .dims = {1000, 64}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc b[] = {
    {.name = "b.norm", .dim_count = 1, .dims = {63}},
    {.name = "b.w", .dim_count = 2, .dims = {777, 65}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc c[] = {
    {.name = "c.norm", .dim_count = 1, .dims = {1}},
    {.name = "c.w", .dim_count = 2, .dims = {1, 66000}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc head[] = {
    {.name = "last", .dim_count = 1, .dims = {64}},
    {.name = "head", .dim_count = 2, .dims = {2400, 64}, .alias_of = "embed"}};

const struct toy_unit toy_units[TOY_UNITS] = {{embed, 1}, {a, 2}, {b, 2}, {c, 2}, {head, 2}};

uint64_t toy_elements(const struct hst_param_desc *param)
{
    return param->dims[0] * (param->dim_count > 1 ? param->dims[1] : 1);
}

float toy_initial(uint32_t unit, uint64_t i)
{
    return sinf((float)i * 0.37f + (float)unit) * 0.1f;
}

uint64_t toy_saved_bytes;
bool (*toy_is_frozen)(const char *name);

int toy_describe(struct hst_engine *engine)
{
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        char name[16];
        uint32_t unit;
        bool inner = u > 0 && u + 1 < TOY_UNITS;
        struct hst_param_desc params[2];
        memcpy(params, toy_units[u].params, toy_units[u].count * sizeof *params);
        for (uint32_t i = 0; i < toy_units[u].count; i++)
            if (toy_is_frozen && toy_is_frozen(params[i].name))
                params[i].flags |= HST_PARAM_FROZEN;
        snprintf(name, sizeof name, "unit %u", u);
        struct hst_unit_desc desc = {.name = name,
                                     .params = params,
                                     .param_count = toy_units[u].count,
                                     .act_bytes_per_token = 64,
                                     .work_bytes = 100,
                                     .saved_bytes = inner ? toy_saved_bytes : 0};
        int rc = hst_unit_add(engine, &desc, &unit);
        if (rc)
            return rc;
    }
    return hst_hidden_set(engine, 64);
}

static int read_initial(void *context, const struct hst_param_ref *param, uint64_t offset,
                        float *dst, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        dst[i] = toy_initial(param->unit, offset + i);
    return 0;
}

int toy_load(struct hst_engine *engine)
{
    return hst_engine_load(engine, &(struct hst_reader){.read = read_initial});
}

int toy_seal_and_load(struct hst_engine *engine)
{
    int rc = toy_describe(engine);
    rc = rc ? rc : hst_engine_seal(engine, HST_ORDER_FORWARD);
    return rc ? rc : toy_load(engine);
}

struct hst_stream *toy_stream;

static struct hst_stream *stream_of(struct hst_engine *engine)
{
    return toy_stream ? toy_stream : hst_engine_stream(engine);
}

/* The devices that the toy runs on compute in host memory. */
static int scale_widened(struct hst_engine *engine, float *values, size_t count, float scale)
{
    int rc = scale == 1 ? 0 : hst_stream_sync(stream_of(engine));
    for (size_t i = 0; rc == 0 && scale != 1 && i < count; i++)
        values[i] *= scale;
    return rc;
}

int toy_poisoned = -1;
float toy_poison = NAN;

/* Of its first parameter, which is its own, somewhere in the middle. */
static int poison(struct hst_engine *engine, uint32_t unit, const struct hst_unit_view *view)
{
    int rc = hst_stream_sync(stream_of(engine));
    if (rc == 0)
        view->param[0].grad[toy_elements(&toy_units[unit].params[0]) / 2] = toy_poison;
    return rc;
}

/* Through a copy in f32, then added: an alias must add to what its other user left. */
int toy_add_gradients(struct hst_engine *engine, uint32_t unit, const struct hst_unit_view *view,
                      float loss_scale)
{
    static float widened[WIDEST];
    for (uint32_t i = 0; i < view->param_count; i++) {
        size_t n = toy_elements(&toy_units[unit].params[i]);
        if (!view->param[i].grad) /* it is frozen */
            continue;
        struct hst_cast cast = {n, hst_engine_dtype(engine), HST_F32, view->param[i].data, widened};
        struct hst_add add = {n, HST_F32, view->param[i].grad, widened, view->param[i].grad};
        int rc = hst_op_cast(stream_of(engine), &cast);
        rc = rc ? rc : scale_widened(engine, widened, n, loss_scale);
        rc = rc ? rc : hst_op_add(stream_of(engine), &add);
        if (rc)
            return rc;
    }
    return toy_poisoned == (int)unit ? poison(engine, unit, view) : 0;
}

static int backward(struct hst_engine *engine, uint32_t unit, float loss_scale)
{
    const struct hst_unit_view *view;
    int rc = hst_unit_acquire(engine, unit, HST_BACKWARD, stream_of(engine), &view);
    if (rc == 0) {
        rc = toy_add_gradients(engine, unit, view, loss_scale);
        if (rc) /* its own operation met a failure of the device before the engine did */
            return hst_engine_device_failed(engine, rc, "the step");
    }
    rc = rc ? rc : hst_unit_grad_ready(engine, unit);
    return rc ? rc : hst_unit_release(engine, unit);
}

int toy_sweep(struct hst_engine *engine, float loss_scale)
{
    const struct hst_unit_view *view;
    struct hst_frozen frozen = {0};
    int rc = hst_engine_frozen(engine, &frozen);
    for (uint32_t u = 0; rc == 0 && u + 1 < TOY_UNITS; u++) {
        rc = hst_unit_acquire(engine, u, HST_FORWARD, stream_of(engine), &view);
        rc = rc ? rc : hst_unit_release(engine, u);
    }
    for (uint32_t u = TOY_UNITS; rc == 0 && u-- > frozen.resting_units;)
        rc = backward(engine, u, loss_scale);
    return rc;
}

int toy_step(struct hst_engine *engine, struct hst_step_stats *stats)
{
    struct hst_step step;
    struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    int rc = hst_step_begin(engine, &in, &step);
    rc = rc ? rc : toy_sweep(engine, step.loss_scale);
    return rc ? rc : hst_step_end(engine, stats);
}

static int collect(void *context, const struct hst_param_ref *param, uint64_t offset,
                   const void *src, size_t count, enum hst_dtype dtype)
{
    struct toy_saved *saved = context;
    (void)param;
    (void)offset;
    memcpy(saved->bytes + saved->used, src, count * hst_dtype_bytes(dtype));
    saved->used += count * hst_dtype_bytes(dtype);
    return 0;
}

int toy_save(struct hst_engine *engine, struct toy_saved *saved)
{
    saved->used = 0;
    return hst_engine_save(engine, &(struct hst_writer){collect, saved});
}
