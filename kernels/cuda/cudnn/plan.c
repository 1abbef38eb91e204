/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine runs a graph. cuDNN proposes configurations, best first by its own model; the first
 * that qualifies is taken, and nothing is timed: the choice, and so every bit of the result,
 * follows from shape, card and library.
 */
#include "plan.h"

#include <errno.h>

#define PROPOSALS 8 /* considered per heuristic mode */

/* ---- tensors --------------------------------------------------------------------------------- */

static struct extents token_major(const struct sdpa_shape *s, int64_t heads, int64_t all_heads)
{
    int64_t token = all_heads * s->head_dim;
    return (struct extents){.dims = {s->batch, heads, s->seq, s->head_dim},
                            .strides = {s->seq * token, s->head_dim, token, 1}};
}

struct extents shape_query(const struct sdpa_shape *shape)
{
    return token_major(shape, shape->heads, shape->all_heads);
}

struct extents shape_key(const struct sdpa_shape *shape)
{
    return token_major(shape, shape->kv_heads, shape->all_kv_heads);
}

struct extents shape_lse(const struct sdpa_shape *shape)
{
    return (struct extents){.dims = {shape->batch, shape->heads, shape->seq, 1},
                            .strides = {shape->all_heads * shape->seq, shape->seq, 1, 1}};
}

/* ---- engines --------------------------------------------------------------------------------- */

static bool is_deterministic(struct graph *graph, descriptor engine)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (graph->api->get_attribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                  CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                  &count, notes))
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

static int64_t get_integer(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name)
{
    int64_t value = -1, count = 0;
    if (graph->api->get_attribute(d, name, CUDNN_TYPE_INT64, 1, &count, &value) || count != 1)
        return -1;
    return value;
}

/* True: plan->plan is set. */
static bool try_configuration(struct plan *plan, const struct cudnn_target *target,
                              descriptor configuration, size_t work_limit_bytes)
{
    struct graph *g = &plan->graph;
    int64_t count = 0;
    descriptor engine = graph_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    if (!engine || g->api->get_attribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine))
        return false;
    if (!is_deterministic(g, engine))
        return false;
    descriptor made = graph_make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan");
    if (target->handle)
        graph_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else
        graph_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &target->device);
    graph_set(g, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &configuration);
    graph_finalize(g, made);
    if (g->status)
        return false;
    int64_t work_bytes = get_integer(g, made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    if (work_bytes < 0 || (uint64_t)work_bytes > work_limit_bytes)
        return false;
    plan->plan = made;
    plan->engine = get_integer(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    plan->work_bytes = (size_t)work_bytes;
    return true;
}

static bool try_wish(struct plan *plan, const struct cudnn_target *target, descriptor operations,
                     const struct engine_wish *wish, size_t work_limit_bytes)
{
    struct graph *g = &plan->graph;
    descriptor knobs[ENGINE_KNOBS];
    descriptor engine = graph_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine");
    graph_set(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &operations);
    graph_set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &wish->engine);
    if (!target->handle)
        graph_set(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &target->device);
    graph_finalize(g, engine);
    for (size_t i = 0; i < wish->count; i++) {
        knobs[i] = graph_make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "an engine's setting");
        graph_set(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                  &wish->knobs[i].type);
        graph_set(g, knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                  &wish->knobs[i].value);
        graph_finalize(g, knobs[i]);
    }
    descriptor configuration =
        graph_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine's configuration");
    graph_set(g, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &engine);
    graph_set(g, configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              (int64_t)wish->count, knobs);
    graph_finalize(g, configuration);
    return !g->status && try_configuration(plan, target, configuration, work_limit_bytes);
}

static bool try_proposals(struct plan *plan, const struct cudnn_target *target,
                          descriptor operations, cudnnBackendHeurMode_t mode,
                          size_t work_limit_bytes)
{
    struct graph *g = &plan->graph;
    descriptor heuristic = graph_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristic");
    graph_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
              &operations);
    graph_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!target->handle)
        graph_set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &target->device);
    graph_finalize(g, heuristic);
    descriptor proposals[PROPOSALS];
    for (size_t i = 0; i < PROPOSALS; i++)
        proposals[i] = graph_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "a proposal");
    int64_t count = 0;
    if (g->status ||
        g->api->get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS, &count, proposals))
        return false;
    for (int64_t i = 0; i < count && i < PROPOSALS; i++) {
        size_t owned = g->owned_count;
        if (try_configuration(plan, target, proposals[i], work_limit_bytes))
            return true;
        if (!graph_rewind(g, owned))
            return false;
    }
    return false;
}

/* True: plan->plan is set. */
static bool choose(struct plan *plan, const struct cudnn_target *target, descriptor operations,
                   const struct engine_wish *wish, size_t work_limit_bytes)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    if (wish)
        return try_wish(plan, target, operations, wish, work_limit_bytes);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        size_t owned = plan->graph.owned_count;
        if (try_proposals(plan, target, operations, modes[i], work_limit_bytes))
            return true;
        if (!graph_rewind(&plan->graph, owned))
            return false;
    }
    return false;
}

static int finish(struct plan *plan, const struct cudnn_target *target,
                  const struct engine_wish *wish, size_t work_limit_bytes,
                  struct hst_dev_failure *failure)
{
    struct graph *g = &plan->graph;
    descriptor operations =
        graph_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph of attention");
    graph_set(g, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              (int64_t)g->operation_count, g->operations);
    if (target->handle)
        graph_set(g, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                  &target->handle);
    graph_finalize(g, operations);
    if (g->status)
        return graph_status(g, failure);
    if (choose(plan, target, operations, wish, work_limit_bytes))
        return 0;
    if (g->broken && !g->status) { /* another proposal might have done without that part */
        g->status = g->broken;
        g->what = g->broken_what;
    }
    if (cudnn_memory_short(g->status) || cudnn_not_whole(g->status))
        return graph_status(g, failure);
    return cudnn_fail(failure, -ENOTSUP, HST_DEV_LIBRARY, 0,
                      "cuDNN has no deterministic plan within %zu bytes of workspace",
                      work_limit_bytes);
}

int plan_build(struct plan *plan, const struct cudnn_target *target, enum sdpa_form form,
               const struct sdpa_shape *shape, size_t work_limit_bytes,
               struct hst_dev_failure *failure)
{
    *plan = (struct plan){.engine = -1};
    graph_begin(&plan->graph, target->api, SDPA_UIDS);
    if (form == SDPA_FORWARD)
        forward_build(&plan->graph, shape);
    else
        backward_build(&plan->graph, shape);
    int rc = graph_status(&plan->graph, failure);
    if (!rc)
        rc = finish(plan, target, backward_engine(form), work_limit_bytes, failure);
    if (rc)
        plan_destroy(plan);
    return rc;
}

void plan_destroy(struct plan *plan)
{
    graph_end(&plan->graph);
    plan->plan = NULL;
}
