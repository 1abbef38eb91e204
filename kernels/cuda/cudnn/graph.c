/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, one call at a time. Nothing here knows of attention. */
#include "graph.h"

#include <assert.h>
#include <string.h>

void graph_begin(struct graph *graph, const struct cudnn_api *api, int64_t first_virtual_uid)
{
    *graph = (struct graph){.api = api, .next_uid = first_virtual_uid};
}

void graph_end(struct graph *graph)
{
    while (graph->owned_count)
        graph->api->destroy_descriptor(graph->owned[--graph->owned_count]);
}

int graph_status(const struct graph *graph, struct hst_dev_failure *failure)
{
    return graph->status ? cudnn_report(graph->api, graph->status, graph->what, failure) : 0;
}

static void check(struct graph *graph, cudnnStatus_t status, const char *what)
{
    if (status == CUDNN_STATUS_SUCCESS || graph->status)
        return;
    graph->status = status;
    graph->what = what;
}

/* ---- descriptors of any kind ----------------------------------------------------------------- */

descriptor graph_make(struct graph *graph, cudnnBackendDescriptorType_t type, const char *what)
{
    descriptor made = NULL;
    if (graph->status)
        return NULL;
    assert(graph->owned_count < GRAPH_DESCRIPTORS);
    check(graph, graph->api->create_descriptor(type, &made), what);
    if (graph->status)
        return NULL;
    graph->owned[graph->owned_count++] = made;
    graph->what = what;
    return made;
}

bool graph_rewind(struct graph *graph, size_t owned_count)
{
    while (graph->owned_count > owned_count)
        graph->api->destroy_descriptor(graph->owned[--graph->owned_count]);
    if (cudnn_not_whole(graph->status)) {
        graph->broken = graph->status;
        graph->broken_what = graph->what;
    }
    if (!cudnn_memory_short(graph->status))
        graph->status = CUDNN_STATUS_SUCCESS;
    return graph->status == CUDNN_STATUS_SUCCESS;
}

void graph_set(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (!graph->status)
        check(graph, graph->api->set_attribute(d, name, type, count, values), graph->what);
}

void graph_finalize(struct graph *graph, descriptor d)
{
    if (!graph->status)
        check(graph, graph->api->finalize(d), graph->what);
}

static void set_descriptor(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value)
{
    graph_set(graph, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct tensor {
    int64_t uid, align_bytes;
    cudnnDataType_t type;
    bool is_virtual, is_by_value;
    struct extents extents;
};

static descriptor make_tensor(struct graph *graph, const struct tensor *t)
{
    descriptor d = graph_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    graph_set(graph, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->uid);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->extents.dims);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->extents.strides);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &t->align_bytes);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual);
    graph_set(graph, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &t->is_by_value);
    graph_finalize(graph, d);
    return d;
}

descriptor graph_tensor(struct graph *graph, int64_t uid, cudnnDataType_t type,
                        struct extents extents, int64_t align_bytes)
{
    struct tensor t = {.uid = uid, .align_bytes = align_bytes, .type = type, .extents = extents};
    return make_tensor(graph, &t);
}

descriptor graph_scalar(struct graph *graph, int64_t uid)
{
    const int64_t one[4] = {1, 1, 1, 1};
    struct tensor t = {.uid = uid,
                       .align_bytes = sizeof(float),
                       .type = CUDNN_DATA_FLOAT,
                       .is_by_value = true,
                       .extents = extents_packed(one)};
    return make_tensor(graph, &t);
}

descriptor graph_virtual_strided(struct graph *graph, cudnnDataType_t type, struct extents extents)
{
    struct tensor t = {.uid = graph->next_uid++,
                       .align_bytes = 16,
                       .type = type,
                       .is_virtual = true,
                       .extents = extents};
    return make_tensor(graph, &t);
}

descriptor graph_virtual(struct graph *graph, cudnnDataType_t type, const int64_t dims[4])
{
    return graph_virtual_strided(graph, type, extents_packed(dims));
}

struct extents extents_packed(const int64_t dims[4])
{
    struct extents e;
    int64_t stride = 1;
    for (int axis = 3; axis >= 0; axis--) {
        e.dims[axis] = dims[axis];
        e.strides[axis] = stride;
        stride *= dims[axis];
    }
    return e;
}

struct extents extents_transposed(struct extents e)
{
    return (struct extents){.dims = {e.dims[0], e.dims[1], e.dims[3], e.dims[2]},
                            .strides = {e.strides[0], e.strides[1], e.strides[3], e.strides[2]}};
}

/* ---- operations ------------------------------------------------------------------------------ */

static void add_operation(struct graph *graph, descriptor operation)
{
    graph_finalize(graph, operation);
    if (graph->status)
        return;
    assert(graph->operation_count < GRAPH_OPERATIONS);
    graph->operations[graph->operation_count++] = operation;
}

void graph_matmul(struct graph *graph, descriptor a, descriptor b, descriptor y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor kind = graph_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a matrix product");
    graph_set(graph, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    graph_finalize(graph, kind);
    descriptor op =
        graph_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a matrix product");
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    add_operation(graph, op);
}

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t computed_in;
    int64_t axis; /* of an index; else negative */
    descriptor x, b, t, y;
};

static void add_pointwise(struct graph *graph, const struct pointwise *p)
{
    descriptor kind = graph_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an element's step");
    graph_set(graph, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p->mode);
    graph_set(graph, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
              &p->computed_in);
    if (p->axis >= 0)
        graph_set(graph, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    graph_finalize(graph, kind);
    descriptor op =
        graph_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an element's step");
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    if (p->b)
        set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    if (p->t)
        set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p->y);
    add_operation(graph, op);
}

void graph_unary(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor y)
{
    graph_binary(graph, mode, x, NULL, y);
}

void graph_binary(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                  descriptor y)
{
    struct pointwise p = {mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y};
    add_pointwise(graph, &p);
}

void graph_reduce(struct graph *graph, cudnnReduceTensorOp_t op, descriptor x, descriptor y)
{
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor kind = graph_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    graph_set(graph, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
              &op);
    graph_set(graph, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    graph_finalize(graph, kind);
    descriptor d = graph_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction");
    set_descriptor(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(graph, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    add_operation(graph, d);
}

void graph_reshape(struct graph *graph, descriptor x, descriptor y)
{
    descriptor op = graph_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a reshape");
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, op);
}

void graph_causal(struct graph *graph, const int64_t dims[4], descriptor x, descriptor masked,
                  descriptor y)
{
    descriptor row = graph_virtual(graph, CUDNN_DATA_INT32, dims);
    descriptor column = graph_virtual(graph, CUDNN_DATA_INT32, dims);
    descriptor seen = graph_virtual(graph, CUDNN_DATA_BOOLEAN, dims);
    const struct pointwise steps[] = {
        {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, x, NULL, NULL, row},
        {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, x, NULL, NULL, column},
        {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL, seen},
        {CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, masked, seen, y},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        add_pointwise(graph, &steps[i]);
}
