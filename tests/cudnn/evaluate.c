/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph's operations, one after the other, element by element. A tensor between operations is a
 * block of f32 laid out by its strides; where the graph says bf16 or half, it is read rounded if
 * that is asked for. A reshape gives a block another name. Where an operand has fewer heads,
 * consecutive heads of the result share one; an extent of 1 is read everywhere.
 */
#include "fake_cudnn.h"
#include "half.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 64 /* virtual tensors of a graph */

struct view {
    int64_t dims[4], strides[4];
    cudnnDataType_t type;  /* of data */
    enum hst_dtype rounds; /* f32 data that stands for bf16 or f16; else HST_F32 */
    void *data;
};

struct evaluation {
    const struct fake_run *run;
    int64_t uids[BLOCKS];
    struct view views[BLOCKS]; /* of the virtual tensors written so far */
    void *owned[BLOCKS];
    size_t count, owned_count;
};

static enum hst_dtype dtype_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 ? HST_BF16 : type == CUDNN_DATA_HALF ? HST_F16 : HST_F32;
}

static cudnnDataType_t type_of(const struct fake_object *tensor)
{
    return *(const cudnnDataType_t *)fake_values(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, NULL);
}

static struct view describe(const struct fake_object *tensor)
{
    struct view v = {.type = CUDNN_DATA_FLOAT,
                     .rounds = fake.rounds ? dtype_of(type_of(tensor)) : HST_F32};
    memcpy(v.dims, fake_values(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL), sizeof v.dims);
    memcpy(v.strides, fake_values(tensor, CUDNN_ATTR_TENSOR_STRIDES, NULL), sizeof v.strides);
    return v;
}

static int64_t uid_of(const struct fake_object *tensor)
{
    return *(const int64_t *)fake_values(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL);
}

/* A tensor in memory, or one that was written before. */
static struct view find(struct evaluation *e, const struct fake_object *tensor)
{
    int64_t uid = uid_of(tensor);
    if (uid < SDPA_UIDS) {
        struct view v = describe(tensor);
        v.type = *(const cudnnDataType_t *)fake_values(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, NULL);
        v.data = e->run->data[uid];
        assert(v.data);
        return v;
    }
    for (size_t i = 0; i < e->count; i++)
        if (e->uids[i] == uid)
            return e->views[i];
    abort(); /* read before it is written */
}

static struct view name(struct evaluation *e, const struct fake_object *tensor, struct view v)
{
    assert(e->count < BLOCKS);
    e->uids[e->count] = uid_of(tensor);
    e->views[e->count++] = v;
    return v;
}

/* What an operation writes. */
static struct view target(struct evaluation *e, const struct fake_object *tensor)
{
    if (uid_of(tensor) < SDPA_UIDS)
        return find(e, tensor);
    struct view v = describe(tensor);
    size_t extent = 1;
    for (int axis = 0; axis < 4; axis++)
        extent += (size_t)((v.dims[axis] - 1) * v.strides[axis]);
    v.data = e->owned[e->owned_count++] = malloc(extent * sizeof(float));
    assert(v.data);
    return name(e, tensor, v);
}

static int64_t offset(const struct view *v, const int64_t at[4], int64_t heads)
{
    int64_t sum = 0;
    for (int axis = 0; axis < 4; axis++) {
        int64_t i = axis == 1 ? at[1] * v->dims[1] / heads : at[axis];
        sum += (v->dims[axis] == 1 ? 0 : i) * v->strides[axis];
    }
    return sum;
}

/* at counts in a result of so many heads. */
static float load(const struct view *v, const int64_t at[4], int64_t heads)
{
    int64_t i = offset(v, at, heads);
    enum hst_dtype dtype = dtype_of(v->type);
    if (dtype != HST_F32)
        return (float)half_value(dtype, ((const uint16_t *)v->data)[i]);
    float value = ((const float *)v->data)[i];
    return v->rounds == HST_F32 ? value
                                : (float)half_value(v->rounds, half_round(v->rounds, value));
}

static void store(const struct view *v, const int64_t at[4], float value)
{
    int64_t i = offset(v, at, v->dims[1]);
    enum hst_dtype dtype = dtype_of(v->type);
    if (dtype != HST_F32)
        ((uint16_t *)v->data)[i] = half_round(dtype, value);
    else
        ((float *)v->data)[i] = value;
}

/* The next index of a tensor, row by row; false after the last. */
static bool next(int64_t at[4], const int64_t dims[4])
{
    for (int axis = 3; axis >= 0; axis--) {
        if (++at[axis] < dims[axis])
            return true;
        at[axis] = 0;
    }
    return false;
}

static void evaluate_matmul(struct evaluation *e, const struct fake_object *op)
{
    struct view a = find(e, fake_part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    struct view b = find(e, fake_part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    struct view y = target(e, fake_part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    assert(a.dims[3] == b.dims[2] && y.dims[2] == a.dims[2] && y.dims[3] == b.dims[3]);
    int64_t at[4] = {0};
    do {
        float sum = 0;
        for (int64_t k = 0; k < a.dims[3]; k++)
            sum += load(&a, (const int64_t[4]){at[0], at[1], at[2], k}, y.dims[1]) *
                   load(&b, (const int64_t[4]){at[0], at[1], k, at[3]}, y.dims[1]);
        store(&y, at, sum);
    } while (next(at, y.dims));
}

static float apply(cudnnPointwiseMode_t mode, float x, float b, float t)
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
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        abort();
    }
}

static void evaluate_pointwise(struct evaluation *e, const struct fake_object *op)
{
    const struct fake_object *kind = fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const struct fake_object *b_part = fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const struct fake_object *t_part = fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    cudnnPointwiseMode_t mode =
        *(const cudnnPointwiseMode_t *)fake_values(kind, CUDNN_ATTR_POINTWISE_MODE, NULL);
    const int64_t *axis = fake_values(kind, CUDNN_ATTR_POINTWISE_AXIS, NULL);
    struct view x = find(e, fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)), b = x, t = x;
    if (b_part)
        b = find(e, b_part);
    if (t_part)
        t = find(e, t_part);
    struct view y = target(e, fake_part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    int64_t at[4] = {0}, heads = y.dims[1];
    do {
        float value =
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? (float)at[*axis]
                : apply(mode, load(&x, at, heads), load(&b, at, heads), load(&t, at, heads));
        store(&y, at, value);
    } while (next(at, y.dims));
}

static void evaluate_reduction(struct evaluation *e, const struct fake_object *op)
{
    const struct fake_object *kind = fake_part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    cudnnReduceTensorOp_t mode =
        *(const cudnnReduceTensorOp_t *)fake_values(kind, CUDNN_ATTR_REDUCTION_OPERATOR, NULL);
    struct view x = find(e, fake_part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    struct view y = target(e, fake_part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    int64_t each[4], at[4] = {0}; /* each: how much of x belongs to an element of y */
    for (int axis = 0; axis < 4; axis++)
        each[axis] = x.dims[axis] / y.dims[axis];
    do {
        int64_t within[4] = {0};
        bool is_max = mode == CUDNN_REDUCE_TENSOR_MAX;
        float total = is_max ? -INFINITY : 0;
        do {
            int64_t from[4];
            for (int axis = 0; axis < 4; axis++)
                from[axis] = at[axis] * each[axis] + within[axis];
            float value = load(&x, from, x.dims[1]);
            total = is_max ? fmaxf(total, value) : total + value;
        } while (next(within, each));
        store(&y, at, total);
    } while (next(at, y.dims));
}

static void evaluate_reshape(struct evaluation *e, const struct fake_object *op)
{
    const struct fake_object *y = fake_part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    struct view x = find(e, fake_part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    struct view renamed = describe(y);
    renamed.type = x.type;
    renamed.data = x.data;
    name(e, y, renamed);
}

void fake_evaluate(const struct fake_object *graph, const struct fake_run *run)
{
    struct evaluation e = {.run = run};
    int64_t count = 0;
    const struct fake_object *const *operations =
        fake_values(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    for (int64_t i = 0; i < count; i++) {
        const struct fake_object *op = operations[i];
        if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            evaluate_matmul(&e, op);
        else if (op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            evaluate_pointwise(&e, op);
        else if (op->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
            evaluate_reduction(&e, op);
        else
            evaluate_reshape(&e, op);
    }
    while (e.owned_count)
        free(e.owned[--e.owned_count]);
}
