/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph's operations, one after the other, in f32. A tensor between operations is a block of f32
 * laid out by its strides, rounded where its type has 16 bits; a reshape reads a block by other
 * strides. Where an operand has fewer heads, consecutive heads of the result share one; an extent
 * of 1 is read everywhere.
 */
#include "double.h"

#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace hst_cudnn
{

struct Evaluation {
    const Operands *operands;
    bool is_exact;
    std::map<int64_t, std::vector<float>> blocks; /* of virtual tensors, by uid */
    std::map<int64_t, Tensor> views; /* reshapes of memory: the memory's tensor, by other extents */
};

/* ---- elements -------------------------------------------------------------------------------- */

static float round_to(cudnnDataType_t type, float value)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return __bfloat162float(__float2bfloat16_rn(value));
    return type == CUDNN_DATA_HALF ? __half2float(__float2half_rn(value)) : value;
}

static float load(cudnnDataType_t type, const void *data, int64_t i)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    if (type == CUDNN_DATA_HALF)
        return __half2float(static_cast<const __half *>(data)[i]);
    return static_cast<const float *>(data)[i];
}

static void store(cudnnDataType_t type, void *data, int64_t i, float value)
{
    if (type == CUDNN_DATA_BFLOAT16)
        static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(value);
    else if (type == CUDNN_DATA_HALF)
        static_cast<__half *>(data)[i] = __float2half_rn(value);
    else
        static_cast<float *>(data)[i] = value;
}

static bool is_16_bits(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF;
}

/* ---- tensors as packed arrays ---------------------------------------------------------------- */

/* Elements in the order of rows, read from where the tensor lies or written there. */
template <class Each> static void for_each(const Tensor &t, Each each)
{
    int64_t i = 0;
    for (int64_t batch = 0; batch < t.dims[0]; batch++)
        for (int64_t head = 0; head < t.dims[1]; head++)
            for (int64_t row = 0; row < t.dims[2]; row++) {
                int64_t at = batch * t.strides[0] + head * t.strides[1] + row * t.strides[2];
                for (int64_t column = 0; column < t.dims[3]; column++)
                    each(i++, at + column * t.strides[3]);
            }
}

static int64_t elements(const Tensor &t)
{
    return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
}

static std::vector<float> read(const Evaluation &e, const Tensor &t)
{
    std::vector<float> packed((size_t)elements(t));
    if (t.is_by_value)
        return {e.operands->scalars.at(t.uid)};
    auto view = e.views.find(t.uid);
    auto block = e.blocks.find(t.uid);
    if (block != e.blocks.end()) {
        const float *data = block->second.data();
        for_each(t, [&](int64_t i, int64_t at) { packed[(size_t)i] = data[at]; });
        return packed;
    }
    const void *data = e.operands->memory.at(view == e.views.end() ? t.uid : view->second.uid);
    for_each(t, [&](int64_t i, int64_t at) { packed[(size_t)i] = load(t.type, data, at); });
    return packed;
}

static void write(Evaluation *e, const Tensor &t, const std::vector<float> &packed)
{
    if (!t.is_virtual) {
        void *data = e->operands->memory.at(t.uid);
        for_each(t, [&](int64_t i, int64_t at) { store(t.type, data, at, packed[(size_t)i]); });
        return;
    }
    std::vector<float> &block = e->blocks[t.uid];
    block.assign((size_t)extent_of(t), NAN); /* gaps are no numbers */
    bool rounds = is_16_bits(t.type) && !e->is_exact;
    for_each(t, [&](int64_t i, int64_t at) {
        block[(size_t)at] = rounds ? round_to(t.type, packed[(size_t)i]) : packed[(size_t)i];
    });
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Tensor cores multiply 16 bits by 16 bits: a factor in f32 is rounded as the other one is. */
static void round_factor(const Evaluation &e, const Tensor &own, const Tensor &other,
                         std::vector<float> *packed)
{
    if (e.is_exact || is_16_bits(own.type) || !is_16_bits(other.type))
        return;
    for (float &value : *packed)
        value = round_to(other.type, value);
}

static void multiply(Evaluation *e, const Operation &o)
{
    std::vector<float> a = read(*e, o.x), b = read(*e, o.b), y((size_t)elements(o.y));
    round_factor(*e, o.x, o.b, &a);
    round_factor(*e, o.b, o.x, &b);
    size_t rows = (size_t)o.y.dims[2], columns = (size_t)o.y.dims[3], depth = (size_t)o.x.dims[3];
    size_t heads = (size_t)o.y.dims[1];
    size_t a_heads = (size_t)o.x.dims[1], b_heads = (size_t)o.b.dims[1];
    for (size_t i = 0; i < (size_t)o.y.dims[0] * heads * rows; i++) {
        size_t batch = i / rows / heads, head = i / rows % heads, row = i % rows;
        const float *line = &a[((batch * a_heads + head * a_heads / heads) * rows + row) * depth];
        const float *other = &b[(batch * b_heads + head * b_heads / heads) * depth * columns];
        float *sums = &y[i * columns];
        for (size_t k = 0; k < depth; k++)
            for (size_t j = 0; j < columns; j++)
                sums[j] += line[k] * other[k * columns + j];
    }
    write(e, o.y, y);
}

static float apply(int mode, float x, float b, float t)
{
    switch (mode) {
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default: /* a selection */
        return t != 0 ? x : b;
    }
}

/* How far each axis of a result moves in a packed operand; 0 where the operand has extent 1. */
static Extents steps_of(const Tensor &t)
{
    Extents steps;
    int64_t step = 1;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        steps[(size_t)axis] = t.dims[(size_t)axis] == 1 ? 0 : step;
        step *= t.dims[(size_t)axis];
    }
    return steps;
}

static size_t place(const Extents &steps, const Extents &at)
{
    return (size_t)(at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2] + at[3] * steps[3]);
}

/* Goes through a result's elements in the order of rows. */
template <class Each> static void for_each_index(const Tensor &y, Each each)
{
    size_t i = 0;
    Extents at;
    for (at[0] = 0; at[0] < y.dims[0]; at[0]++)
        for (at[1] = 0; at[1] < y.dims[1]; at[1]++)
            for (at[2] = 0; at[2] < y.dims[2]; at[2]++)
                for (at[3] = 0; at[3] < y.dims[3]; at[3]++)
                    each(i++, at);
}

static void step(Evaluation *e, const Operation &o)
{
    std::vector<float> y((size_t)elements(o.y));
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX) {
        for_each_index(o.y, [&](size_t i, const Extents &at) { y[i] = (float)at[(size_t)o.axis]; });
        write(e, o.y, y);
        return;
    }
    std::vector<float> x = read(*e, o.x), b = o.has_b ? read(*e, o.b) : std::vector<float>(1);
    std::vector<float> t = o.has_t ? read(*e, o.t) : std::vector<float>(1);
    Extents none = {}, xs = steps_of(o.x), bs = o.has_b ? steps_of(o.b) : none;
    Extents ts = o.has_t ? steps_of(o.t) : none;
    for_each_index(o.y, [&](size_t i, const Extents &at) {
        y[i] = apply(o.mode, x[place(xs, at)], b[place(bs, at)], t[place(ts, at)]);
    });
    write(e, o.y, y);
}

/* Each element of y is of a block of x. */
static void reduce(Evaluation *e, const Operation &o)
{
    bool is_max = o.mode == CUDNN_REDUCE_TENSOR_MAX;
    std::vector<float> x = read(*e, o.x), y((size_t)elements(o.y), is_max ? -INFINITY : 0.0f);
    Extents steps = steps_of(o.y);
    for_each_index(o.x, [&](size_t i, const Extents &at) {
        Extents to;
        for (size_t axis = 0; axis < AXES; axis++)
            to[axis] = at[axis] / (o.x.dims[axis] / o.y.dims[axis]);
        float &total = y[place(steps, to)];
        total = is_max ? std::fmax(total, x[i]) : total + x[i];
    });
    write(e, o.y, y);
}

static void reshape(Evaluation *e, const Operation &o)
{
    auto block = e->blocks.find(o.x.uid);
    if (block == e->blocks.end()) {
        e->views[o.y.uid] = o.x;
        return;
    }
    std::vector<float> values = block->second;
    if (is_16_bits(o.y.type) && !e->is_exact)
        for (float &value : values)
            value = round_to(o.y.type, value);
    e->blocks[o.y.uid] = std::move(values);
}

void evaluate(const Graph &graph, const Operands &operands, bool is_exact)
{
    Evaluation e = {&operands, is_exact, {}, {}};
    for (const Operation &o : graph.operations)
        switch (o.kind) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            multiply(&e, o);
            break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            step(&e, o);
            break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            reduce(&e, o);
            break;
        default:
            reshape(&e, o);
        }
}

} // namespace hst_cudnn
