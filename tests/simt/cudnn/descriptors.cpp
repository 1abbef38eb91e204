/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuDNN's doors for descriptors: create, set, finalize, ask, destroy. */
#include "attribute_bytes.h"
#include "double.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace hst_cudnn
{

static thread_local std::string last_error;

/* Descriptors that live. The lock is held in every door, so descriptors are used one at a time. */
static std::mutex lock;
static std::map<Descriptor *, std::unique_ptr<Descriptor>> &all()
{
    static auto *made = new std::map<Descriptor *, std::unique_ptr<Descriptor>>();
    return *made; /* never destroyed: a plugin may close while the process ends */
}

cudnnStatus_t fail(cudnnStatus_t status, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    last_error = std::string("fake cuDNN: ") + text;
    return status;
}

Descriptor *find(cudnnBackendDescriptor_t descriptor)
{
    auto found = all().find(static_cast<Descriptor *>(descriptor));
    return found == all().end() ? nullptr : found->first;
}

int64_t count(const Descriptor &d, cudnnBackendAttributeName_t name)
{
    auto found = d.attributes.find(name);
    return found == d.attributes.end() ? 0 : found->second.count;
}

const Descriptor *part(const Descriptor &d, cudnnBackendAttributeName_t name)
{
    const cudnnBackendDescriptor_t *value = values<cudnnBackendDescriptor_t>(d, name);
    return value ? find(*value) : nullptr;
}

/* ---- setting --------------------------------------------------------------------------------- */

static bool is_operation(cudnnBackendDescriptorType_t type)
{
    return type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
}

static cudnnStatus_t check_parts(const Rule &rule, int64_t count, const void *array)
{
    for (int64_t i = 0; i < count; i++) {
        const Descriptor *p = find(static_cast<const cudnnBackendDescriptor_t *>(array)[i]);
        if (!p)
            return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d: no descriptor",
                        (int)rule.name);
        bool fits = rule.part == ANY_OPERATION ? is_operation(p->type) : rule.part == (int)p->type;
        if (!fits)
            return fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute %d is of type %d",
                        (int)rule.name, (int)p->type);
        if (!p->is_finalized)
            return fail(CUDNN_STATUS_BAD_PARAM, "attribute %d is not finalized", (int)rule.name);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(Descriptor *d, const Rule *rule, cudnnBackendAttributeType_t type,
                         int64_t count, const void *array)
{
    if (!rule)
        return fail(CUDNN_STATUS_BAD_PARAM, "an attribute that type %d has not", (int)d->type);
    if (type != rule->type)
        return fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d has type %d, not %d",
                    (int)rule->name, (int)rule->type, (int)type);
    if (count < rule->least || count > rule->most)
        return fail(CUDNN_STATUS_BAD_PARAM, "attribute %d has %lld values", (int)rule->name,
                    (long long)count);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        if (cudnnStatus_t status = check_parts(*rule, count, array))
            return status;
    if (type == CUDNN_TYPE_HANDLE && !is_handle(*static_cast<const cudnnHandle_t *>(array)))
        return fail(CUDNN_STATUS_BAD_PARAM, "attribute %d: no handle", (int)rule->name);
    const char *bytes = static_cast<const char *>(array);
    d->attributes[rule->name] = {
        type, count, {bytes, bytes + (size_t)count * attribute_element_bytes(type)}};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- asking ---------------------------------------------------------------------------------- */

template <class T>
static cudnnStatus_t give(T value, int64_t requested, int64_t *count, void *array)
{
    *count = 1;
    if (requested >= 1)
        *static_cast<T *>(array) = value;
    return CUDNN_STATUS_SUCCESS;
}

/* Descriptors that the caller created become what is asked for. */
static cudnnStatus_t give_engines(const std::vector<Engine> &engines,
                                  cudnnBackendDescriptorType_t type, int64_t requested,
                                  int64_t *count, void *array)
{
    *count = (int64_t)engines.size();
    for (int64_t i = 0; i < *count && i < requested; i++) {
        Descriptor *filled = find(static_cast<cudnnBackendDescriptor_t *>(array)[i]);
        if (!filled || filled->type != type)
            return fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                        "a result is no descriptor of type %d", (int)type);
        filled->engine = engines[(size_t)i];
        filled->is_finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get(const Descriptor &d, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t requested, int64_t *count,
                         void *array)
{
    const int row = (int)name;
    if (row == CUDNN_ATTR_ENGINEHEUR_RESULTS && d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return give_engines(
            propose(d.graph, *values<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE)),
            CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, requested, count, array);
    if (row == CUDNN_ATTR_ENGINECFG_ENGINE && d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return give_engines({d.engine}, CUDNN_BACKEND_ENGINE_DESCRIPTOR, requested, count, array);
    if (row == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
        type == CUDNN_TYPE_INT64)
        return give(d.engine.number, requested, count, array);
    if (row == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return give(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, requested, count, array);
    if (row == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
        d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && type == CUDNN_TYPE_INT64)
        return give(d.work_bytes, requested, count, array);
    return fail(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d of type %d cannot be asked for", row,
                (int)d.type);
}

static cudnnStatus_t finalize(Descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return finalize_heuristic(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return finalize_engine(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return finalize_configuration(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return finalize_pack(d);
    default:
        return is_operation(d->type) ? finalize_operation(d) : CUDNN_STATUS_SUCCESS;
    }
}

} // namespace hst_cudnn

using namespace hst_cudnn;
using Lock = std::lock_guard<std::mutex>;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    Lock held(lock);
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!is_known(type))
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "no descriptors of type %d", (int)type);
    auto made = std::make_unique<Descriptor>();
    made->type = type;
    *descriptor = made.get();
    all()[made.get()] = std::move(made);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    Lock held(lock);
    return all().erase(static_cast<Descriptor *>(descriptor))
               ? CUDNN_STATUS_SUCCESS
               : fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "destroying: no descriptor");
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *array)
{
    Lock held(lock);
    Descriptor *d = find(descriptor);
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!d || !array)
        return fail(CUDNN_STATUS_BAD_PARAM, "setting: no descriptor, or no values");
    if (d->is_finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "setting: the descriptor is finalized");
    return set(d, rule_of(d->type, name), type, count, array);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    Lock held(lock);
    Descriptor *d = find(descriptor);
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!d)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "finalizing: no descriptor");
    if (d->is_finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "finalizing: the descriptor is finalized");
    cudnnStatus_t status = check_complete(*d);
    if (!status)
        status = finalize(d);
    d->is_finalized = !status;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t *count, void *array)
{
    Lock held(lock);
    Descriptor *d = find(descriptor);
    int64_t counted;
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!d || (requested > 0 && !array))
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "asking: no descriptor, or no room");
    if (!d->is_finalized)
        return fail(CUDNN_STATUS_NOT_INITIALIZED, "asking: not finalized");
    return get(*d, name, type, requested, count ? count : &counted, array);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    Lock held(lock);
    const Descriptor *p = find(plan), *operands = find(pack);
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!is_handle(handle) || !p || !operands)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a run without handle, plan or pack");
    if (p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        operands->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a run of no plan, or by no pack");
    if (!p->is_finalized || !operands->is_finalized)
        return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a run's plan or pack");
    return execute(handle, *p, *operands);
}

void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s", last_error.c_str());
    last_error.clear();
}

size_t hst_fake_cudnn_live(void)
{
    Lock held(lock);
    return all().size();
}
