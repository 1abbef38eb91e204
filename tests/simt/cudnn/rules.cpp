/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which attributes each type of descriptor has, as cuDNN's documentation of the backend lists them:
 * types, how many values, and which must be set. What attention does not need is not here, and so
 * not supported.
 */
#include "double.h"

using namespace hst_cudnn;

#define ROW(owner, name, type, least, most, required, part)                                        \
    {                                                                                              \
        CUDNN_BACKEND_##owner##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, least, most,     \
            required, part                                                                         \
    }
#define PART(owner, name, required, part)                                                          \
    ROW(owner, name, BACKEND_DESCRIPTOR, 1, 1, required, CUDNN_BACKEND_##part##_DESCRIPTOR)

static const Rule formula_rules[] = {
    ROW(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1, true, NO_PART),
    ROW(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1, true, NO_PART),
    ROW(TENSOR, TENSOR_DIMENSIONS, INT64, 1, CUDNN_DIM_MAX, true, NO_PART),
    ROW(TENSOR, TENSOR_STRIDES, INT64, 1, CUDNN_DIM_MAX, true, NO_PART),
    ROW(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1, true, NO_PART),
    ROW(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, 1, false, NO_PART),
    ROW(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, 1, false, NO_PART),

    ROW(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, 1, true, NO_PART),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_DESC, true, MATMUL),

    ROW(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, 1, true, NO_PART),
    ROW(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1, true, NO_PART),
    ROW(POINTWISE, POINTWISE_AXIS, INT64, 1, 1, false, NO_PART),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, true, POINTWISE),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, true, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, false, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, false, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, true, TENSOR),

    ROW(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, 1, true, NO_PART),
    ROW(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, 1, true, NO_PART),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, true, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, true, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, true, REDUCTION),

    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, true, TENSOR),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, true, TENSOR),

};

static const Rule plan_rules[] = {
    ROW(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1, true, NO_PART),
    ROW(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 64, true, ANY_OPERATION),

    PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, true, OPERATIONGRAPH),
    ROW(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1, true, NO_PART),

    PART(ENGINE, ENGINE_OPERATION_GRAPH, true, OPERATIONGRAPH),
    ROW(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, 1, true, NO_PART),
    ROW(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, 1, true, NO_PART),
    ROW(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, 1, true, NO_PART),
    PART(ENGINECFG, ENGINECFG_ENGINE, true, ENGINE),
    ROW(ENGINECFG, ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, 1, CUDNN_KNOB_TYPE_COUNTS, false,
        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR),

    ROW(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1, true, NO_PART),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, true, ENGINECFG),

    ROW(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, 64, true, NO_PART),
    ROW(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 64, true, NO_PART),
    ROW(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1, true, NO_PART),
};
#undef PART
#undef ROW

/* The first rule that says yes; null where none does. */
template <class Test> static const Rule *find_rule(Test test)
{
    for (const Rule &rule : formula_rules)
        if (test(rule))
            return &rule;
    for (const Rule &rule : plan_rules)
        if (test(rule))
            return &rule;
    return nullptr;
}

bool hst_cudnn::is_known(cudnnBackendDescriptorType_t type)
{
    return find_rule([type](const Rule &rule) { return rule.owner == type; });
}

const Rule *hst_cudnn::rule_of(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name)
{
    return find_rule(
        [owner, name](const Rule &rule) { return rule.owner == owner && rule.name == name; });
}

cudnnStatus_t hst_cudnn::check_complete(const Descriptor &d)
{
    const Rule *missing = find_rule([&d](const Rule &rule) {
        return rule.owner == d.type && rule.is_required && !d.attributes.count(rule.name);
    });
    return missing ? fail(CUDNN_STATUS_BAD_PARAM, "attribute %d of type %d is not set",
                          (int)missing->name, (int)d.type)
                   : CUDNN_STATUS_SUCCESS;
}
