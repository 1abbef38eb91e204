/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engines a device has for a graph, and the workspace of each. Numbers and limits are those
 * that cuDNN 9.19 shows when it builds plans (kernels/cuda/cudnn/README.md).
 */
#include "double.h"
#include "runtime/runtime.h"

namespace hst_cudnn
{

enum { ORDERED_ENGINE = 5, ROWS_OF_A_TILE = 128, FORWARD_WORK_BYTES = 1024 };

struct Served {
    int64_t engine; /* 0: none */
    int64_t head_dim_most;
    bool is_proposed;
};

static Served served(Form form)
{
    int major = hst::state().config.major;
    if (form == Form::forward)
        return {major == 8    ? 1
                : major == 9  ? 2
                : major == 10 ? 3
                              : 1,
                major == 9 ? 256 : 128, true};
    if (major == 9)
        return {6, 256, true};
    if (major == 10)
        return {ORDERED_ENGINE, 128, false};
    return {major == 8 || major == 12 ? 7 : 0, 128, true};
}

static bool is_served(const Graph &graph, int64_t engine)
{
    const Served s = served(graph.form);
    const Tensor &q = graph.q;
    bool is_16_bits = q.type == CUDNN_DATA_HALF || q.type == CUDNN_DATA_BFLOAT16;
    return s.engine && s.engine == engine && is_16_bits && q.dims[3] <= s.head_dim_most &&
           q.dims[3] % 8 == 0;
}

std::vector<Engine> propose(const std::shared_ptr<const Graph> &graph, cudnnBackendHeurMode_t mode)
{
    const Served s = served(graph->form);
    if (mode != CUDNN_HEUR_MODE_A || !s.is_proposed || !is_served(*graph, s.engine))
        return {};
    return {{s.engine, {}, graph}};
}

cudnnStatus_t finalize_heuristic(Descriptor *d)
{
    const Descriptor *graph = part(*d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    if (!graph)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a heuristic's graph is destroyed");
    d->graph = graph->graph;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_engine(Descriptor *d)
{
    const Descriptor *graph = part(*d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    if (!graph)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an engine's graph is destroyed");
    d->engine = {*values<int64_t>(*d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX), {}, graph->graph};
    if (!is_served(*graph->graph, d->engine.number))
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld does not serve this graph",
                    (long long)d->engine.number);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_configuration(Descriptor *d)
{
    const Descriptor *engine = part(*d, CUDNN_ATTR_ENGINECFG_ENGINE);
    if (!engine)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a configuration's engine is destroyed");
    d->engine = engine->engine;
    const auto *choices = values<cudnnBackendDescriptor_t>(*d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    for (int64_t i = 0; i < count(*d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
        const Descriptor *choice = find(choices[i]);
        if (!choice)
            return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a setting is destroyed");
        d->engine.knobs[*values<int>(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
            *values<int64_t>(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int64_t work_bytes(const Engine &engine)
{
    const Graph &g = *engine.graph;
    if (g.form == Form::forward)
        return FORWARD_WORK_BYTES;
    int64_t heads = g.q.dims[0] * g.q.dims[1];
    int64_t rows = (g.q.dims[2] + ROWS_OF_A_TILE - 1) / ROWS_OF_A_TILE * ROWS_OF_A_TILE;
    int64_t elements = g.is_grouped ? rows * g.q.dims[3] : 0; /* of a query head's dk, and its dv */
    if (engine.number == ORDERED_ENGINE)
        return heads * (8 * rows + 8 * elements); /* sums and turns; dk, dv in f32 */
    return heads *
           (2 * rows * rows + 4 * rows + 4 * elements); /* ds, row sums; dk, dv in 16 bits */
}

cudnnStatus_t finalize_plan(Descriptor *d)
{
    static const std::map<int, int64_t> ordered = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31},
                                                   {CUDNN_KNOB_TYPE_STAGES, 2}};
    const Descriptor *configuration = part(*d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!configuration)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a plan's configuration is destroyed");
    d->engine = configuration->engine;
    bool is_backward = d->engine.graph->form == Form::backward;
    bool is_ordered = is_backward && d->engine.number == ORDERED_ENGINE;
    if (is_ordered ? d->engine.knobs != ordered : !d->engine.knobs.empty())
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld has no such settings",
                    (long long)d->engine.number);
    d->work_bytes = work_bytes(d->engine);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace hst_cudnn
