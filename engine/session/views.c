/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of parameters: at home where it is computed, or in the reservation that they came
   into. */
#include "session/views.h"

#include "exec/visit/execute.h"
#include "exec/visit/visits.h"

float *views_accumulator(const struct hst_engine *engine, const struct layout_param *param)
{
    if (!param->tied && engine->way.in_place)
        return (float *)(void *)engine->way.in_place + param->offset;
    uint64_t base = param->tied ? engine->placement.tied : engine->placement.accumulator;
    return (float *)(void *)(engine->arena + base) + param->grad_offset;
}

/* Own tiles come first in a unit's gathers, then one gather for each alias. */
static void set_weights(struct hst_engine *engine, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    const struct layout *layout = &engine->layout;
    const struct layout_unit *u = &layout->units[unit];
    placement_gather(layout, engine_element_bytes(engine), unit, gathers);
    uint32_t alias = u->elements > 0 ? 1 : 0;
    for (uint32_t i = 0; i < u->param_count; i++) {
        const struct layout_param *param = &layout->params[u->first_param + i];
        bool own = param->owner == u->first_param + i;
        uint32_t nth = own ? 0 : alias++;
        const struct gather *gather = &gathers[nth];
        uint64_t element = param->offset - gather->first;
        engine->units[unit].views[i].data = execute_operand(&engine->exec, EXTENT_WEIGHTS, nth) +
                                            element * engine_element_bytes(engine);
    }
}

/* It returns what all slices of a unit share. */
static struct hst_work kept_of(const struct hst_engine *engine, uint32_t unit)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    if (!layout_is_slice(&engine->layout, unit) || u->slice_token_bytes == 0)
        return (struct hst_work){0};
    return (struct hst_work){engine->arena + engine->placement.units[unit].kept,
                             u->slice_token_bytes * engine->plan_in.batch_tokens};
}

/* It is what a forward leaves for the backward; an evaluation may come in between. */
static struct hst_work saved_of(const struct hst_engine *engine, uint32_t unit,
                                enum hst_sweep sweep)
{
    uint64_t at = engine->placement.units[unit].saved;
    if (at == PLACEMENT_NO_ADDRESS || sweep == HST_EVAL)
        return (struct hst_work){0};
    return (struct hst_work){engine->arena + at, placement_saved_bytes(&engine->placement, unit)};
}

void views_set_grads(struct hst_engine *engine, uint32_t unit, bool fresh)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    for (uint32_t i = 0; i < u->param_count; i++) {
        struct hst_param_view *view = &engine->units[unit].views[i];
        const struct layout_param *param = &engine->layout.params[u->first_param + i];
        view->grad = param->frozen ? NULL : views_accumulator(engine, param);
        view->fresh = fresh && u->writes_grads && view->grad && !param->tied;
    }
}

void views_set(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    bool gradients = sweep == HST_BACKWARD, blind = gradients && u->blind_backward;
    if (!blind)
        set_weights(engine, unit);
    for (uint32_t i = 0; i < u->param_count; i++) {
        struct hst_param_view *view = &engine->units[unit].views[i];
        view->grad = NULL;
        view->fresh = false;
        if (blind)
            view->data = NULL;
    }
    if (gradients)
        views_set_grads(engine, unit, true);
    engine->view = (struct hst_unit_view){
        .param = engine->units[unit].views,
        .param_count = u->param_count,
        .work = {engine->arena + engine->placement.work, u->work_bytes},
        .checkpoint = visits_checkpoint(&engine->exec, unit, sweep),
        .first_row = u->first_row,
        .rows = u->rows,
        .kept = kept_of(engine, unit),
        .saved = saved_of(engine, unit, sweep),
        .first_backward = gradients && u->first_backward,
    };
}
