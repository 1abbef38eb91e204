/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors and operations, when they are finalized: whether they mean something. */
#include "double.h"

namespace hst_cudnn
{

size_t bytes_of(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
        return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    case CUDNN_DATA_BOOLEAN:
        return 1;
    default:
        return 0; /* not known */
    }
}

int64_t extent_of(const Tensor &tensor)
{
    int64_t last = 0;
    for (int axis = 0; axis < AXES; axis++)
        last += (tensor.dims[axis] - 1) * tensor.strides[axis];
    return last + 1;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool flag(const Descriptor &d, cudnnBackendAttributeName_t name)
{
    const bool *value = values<bool>(d, name);
    return value && *value;
}

static cudnnStatus_t check_tensor(const Tensor &t)
{
    int64_t size = (int64_t)bytes_of(t.type);
    if (!size)
        return fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "tensor %lld: data type %d",
                    (long long)t.uid, (int)t.type);
    if (t.alignment_bytes < size || t.alignment_bytes & (t.alignment_bytes - 1))
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld: an alignment of %lld bytes",
                    (long long)t.uid, (long long)t.alignment_bytes);
    for (int axis = 0; axis < AXES; axis++)
        if (t.dims[axis] < 1 || t.strides[axis] < 1)
            return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld: axis %d has extent %lld, stride %lld",
                        (long long)t.uid, axis, (long long)t.dims[axis],
                        (long long)t.strides[axis]);
    if (t.is_virtual && t.is_by_value)
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is virtual and given by value",
                    (long long)t.uid);
    if (t.is_by_value && (extent_of(t) != 1 || t.type != CUDNN_DATA_FLOAT))
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "tensor %lld: only one f32 is given by value",
                    (long long)t.uid);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_tensor(Descriptor *d)
{
    int64_t axes = count(*d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    if (axes != count(*d, CUDNN_ATTR_TENSOR_STRIDES))
        return fail(CUDNN_STATUS_BAD_PARAM, "a tensor has %lld dimensions and %lld strides",
                    (long long)axes, (long long)count(*d, CUDNN_ATTR_TENSOR_STRIDES));
    if (axes != AXES)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of %lld dimensions", (long long)axes);
    Tensor &t = d->tensor;
    t.uid = *values<int64_t>(*d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.alignment_bytes = *values<int64_t>(*d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    t.type = *values<cudnnDataType_t>(*d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    for (size_t axis = 0; axis < AXES; axis++) {
        t.dims[axis] = values<int64_t>(*d, CUDNN_ATTR_TENSOR_DIMENSIONS)[axis];
        t.strides[axis] = values<int64_t>(*d, CUDNN_ATTR_TENSOR_STRIDES)[axis];
    }
    t.is_virtual = flag(*d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.is_by_value = flag(*d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return check_tensor(t);
}

/* ---- operations ------------------------------------------------------------------------------ */

static cudnnStatus_t mismatch(const char *what, const Tensor &a, const Tensor &y)
{
    return fail(CUDNN_STATUS_BAD_PARAM,
                "%s: %lldx%lldx%lldx%lld does not go into %lldx%lldx%lldx%lld", what,
                (long long)a.dims[0], (long long)a.dims[1], (long long)a.dims[2],
                (long long)a.dims[3], (long long)y.dims[0], (long long)y.dims[1],
                (long long)y.dims[2], (long long)y.dims[3]);
}

/* An operand that consecutive heads of the result may share. */
static bool heads_fit(const Tensor &a, const Tensor &y)
{
    return a.dims[0] == y.dims[0] && y.dims[1] % a.dims[1] == 0;
}

static cudnnStatus_t check_product(const Operation &o)
{
    if (!heads_fit(o.x, o.y) || o.x.dims[2] != o.y.dims[2])
        return mismatch("a product's first operand", o.x, o.y);
    if (!heads_fit(o.b, o.y) || o.b.dims[3] != o.y.dims[3] || o.b.dims[2] != o.x.dims[3])
        return mismatch("a product's second operand", o.b, o.y);
    return CUDNN_STATUS_SUCCESS;
}

/* How many operands a step has; 0: it is not known. */
static int operands_of(int mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX:
        return 1;
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
        return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return 0;
    }
}

static cudnnStatus_t check_step(const Operation &o)
{
    int operands = operands_of(o.mode);
    if (!operands)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "an element's step of mode %d", o.mode);
    if (o.has_b != (operands > 1) || o.has_t != (operands > 2))
        return fail(CUDNN_STATUS_BAD_PARAM, "a step of mode %d has %d operands", o.mode,
                    1 + o.has_b + o.has_t);
    if (o.mode == CUDNN_POINTWISE_GEN_INDEX && (o.axis < 0 || o.axis >= AXES))
        return fail(CUDNN_STATUS_BAD_PARAM, "an index along axis %lld", (long long)o.axis);
    if (o.has_t && o.t.type != CUDNN_DATA_BOOLEAN)
        return fail(CUDNN_STATUS_BAD_PARAM, "a selection by data type %d", (int)o.t.type);
    const Tensor *parts[] = {&o.x, o.has_b ? &o.b : nullptr, o.has_t ? &o.t : nullptr};
    for (const Tensor *p : parts)
        for (size_t axis = 0; p && axis < AXES; axis++)
            if (p->dims[axis] != o.y.dims[axis] && p->dims[axis] != 1)
                return mismatch("a step's operand", *p, o.y);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_reduction(const Operation &o)
{
    if (o.mode != CUDNN_REDUCE_TENSOR_ADD && o.mode != CUDNN_REDUCE_TENSOR_MAX)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a reduction of mode %d", o.mode);
    for (size_t axis = 0; axis < AXES; axis++)
        if (o.x.dims[axis] % o.y.dims[axis])
            return mismatch("a reduction", o.x, o.y);
    return CUDNN_STATUS_SUCCESS;
}

/* The same memory by other extents. */
static cudnnStatus_t check_reshape(const Operation &o)
{
    if (!o.y.is_virtual || (!o.x.is_virtual && o.x.type != o.y.type))
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a reshape of tensor %lld that copies",
                    (long long)o.x.uid);
    int64_t x = 1, y = 1;
    for (size_t axis = 0; axis < AXES; axis++) {
        x *= o.x.dims[axis];
        y *= o.y.dims[axis];
    }
    return x == y && extent_of(o.x) == extent_of(o.y) ? CUDNN_STATUS_SUCCESS
                                                      : mismatch("a reshape", o.x, o.y);
}

static cudnnStatus_t check_operation(const Operation &o)
{
    switch (o.kind) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return check_product(o);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_step(o);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return check_reduction(o);
    default:
        return check_reshape(o);
    }
}

enum { NONE = -1 };

/* Where an operation's attributes are, by its kind. */
static const struct Names {
    cudnnBackendDescriptorType_t kind;
    int x, b, t, y, how, mode, computed_in;
} names[] = {
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     CUDNN_ATTR_OPERATION_MATMUL_BDESC, NONE, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     CUDNN_ATTR_OPERATION_MATMUL_DESC, NONE, CUDNN_ATTR_MATMUL_COMP_TYPE},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, NONE, NONE,
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, NONE, NONE,
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC, NONE, NONE, NONE},
};

/* False: a tensor that has to be there is destroyed. */
static bool take_tensor(const Descriptor &d, int name, Tensor *tensor, bool *is_there)
{
    auto attribute = (cudnnBackendAttributeName_t)name;
    *is_there = name != NONE && values<cudnnBackendDescriptor_t>(d, attribute);
    const Descriptor *p = *is_there ? part(d, attribute) : nullptr;
    if (p)
        *tensor = p->tensor;
    return p || !*is_there;
}

static cudnnStatus_t take_how(const Descriptor &d, const Names &n, Operation *o)
{
    const Descriptor *how = part(d, (cudnnBackendAttributeName_t)n.how);
    if (!how)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an operation's kind is destroyed");
    auto computed_in = *values<cudnnDataType_t>(*how, (cudnnBackendAttributeName_t)n.computed_in);
    if (computed_in != CUDNN_DATA_FLOAT && computed_in != CUDNN_DATA_INT32 &&
        computed_in != CUDNN_DATA_BOOLEAN)
        return fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "computed in data type %d",
                    (int)computed_in);
    if (n.mode != NONE)
        o->mode = *values<int>(*how, (cudnnBackendAttributeName_t)n.mode);
    const int64_t *axis = values<int64_t>(*how, CUDNN_ATTR_POINTWISE_AXIS);
    o->axis = axis ? *axis : -1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(Descriptor *d)
{
    const Names *n = names;
    while (n->kind != d->type)
        n++;
    Operation &o = d->operation;
    bool there;
    o = {};
    o.kind = d->type;
    if (!take_tensor(*d, n->x, &o.x, &there) || !take_tensor(*d, n->b, &o.b, &o.has_b) ||
        !take_tensor(*d, n->t, &o.t, &o.has_t) || !take_tensor(*d, n->y, &o.y, &there))
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an operation's tensor is destroyed");
    if (o.y.is_by_value)
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is written and given by value",
                    (long long)o.y.uid);
    if (n->how != NONE)
        if (cudnnStatus_t status = take_how(*d, *n, &o))
            return status;
    return check_operation(o);
}

} // namespace hst_cudnn
