/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cudnn.h"
#include "attribute_bytes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A descriptor: what was set, as it was given. */
#define FAKE_ATTRIBUTES      8
#define FAKE_ATTRIBUTE_BYTES 256
struct fake_object {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    struct fake_engine engine;       /* of an engine, a configuration, a plan */
    const struct fake_object *graph; /* of a plan: its operations */
    size_t count;
    struct {
        cudnnBackendAttributeName_t name;
        int64_t count;
        _Alignas(8) unsigned char bytes[FAKE_ATTRIBUTE_BYTES];
    } attributes[FAKE_ATTRIBUTES];
};

struct fake_cudnn fake;
static const struct fake_object *last_graph; /* plans are built from the latest */
static cudaStream_t stream_now;

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.proposals[0][0].number = 1;
    fake.proposal_count[0] = 1;
    stream_now = NULL;
}

/* Counts a call; true where it is the one to fail. */
static bool fails(void)
{
    ++fake.calls;
    return fake.fail_at &&
           (fake.calls == fake.fail_at || (fake.fail_lasts && fake.calls > fake.fail_at));
}

static size_t get_version(void)
{
    return 91900;
}

static const char *get_error_string(cudnnStatus_t status)
{
    return status ? "FAKE_FAILURE" : "FAKE_SUCCESS";
}

static void get_last_error_string(char *text, size_t size)
{
    snprintf(text, size, "two\nlines");
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    assert(handle);
    stream_now = stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, descriptor *made)
{
    if (fails())
        return fake.fail_status;
    struct fake_object *object = calloc(1, sizeof *object);
    assert(object);
    object->type = type;
    *made = object;
    fake.live++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy_descriptor(descriptor d)
{
    assert(d);
    free(d);
    fake.live--;
    return CUDNN_STATUS_SUCCESS;
}

/* An attribute's values, null where it was not set; count (may be null) is how many. */
static const void *find_values(const struct fake_object *object, cudnnBackendAttributeName_t name,
                               int64_t *count)
{
    for (size_t i = 0; i < object->count; i++)
        if (object->attributes[i].name == name) {
            if (count)
                *count = object->attributes[i].count;
            return object->attributes[i].bytes;
        }
    return NULL;
}

/* The one descriptor that an attribute is, null where it was not set. */
static const struct fake_object *find_part(const struct fake_object *object,
                                           cudnnBackendAttributeName_t name)
{
    const void *value = find_values(object, name, NULL);
    return value ? *(const struct fake_object *const *)value : NULL;
}

static cudnnStatus_t finalize(descriptor d)
{
    struct fake_object *object = d;
    assert(!object->finalized);
    if (fails())
        return fake.fail_status;
    if (object->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        last_graph = object;
    if (object->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        object->engine = find_part(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
        if (object->engine.builds)
            return object->engine.builds;
        fake.plans_built++;
        object->graph = last_graph;
    }
    object->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_attribute(descriptor d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    struct fake_object *object = d;
    size_t bytes = (size_t)count * attribute_element_bytes(type);
    assert(!object->finalized && object->count < FAKE_ATTRIBUTES && bytes <= FAKE_ATTRIBUTE_BYTES);
    if (fails())
        return fake.fail_status;
    object->attributes[object->count].name = name;
    object->attributes[object->count].count = count;
    memcpy(object->attributes[object->count++].bytes, values, bytes);
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
        object->engine = fake.by_number;
        object->engine.number = fake.asked_number = *(const int64_t *)values;
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        object->engine = (*(struct fake_object *const *)values)->engine;
    } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
        fake.asked_knobs = count;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_proposals(const struct fake_object *heuristic, int64_t requested,
                                   int64_t *count, descriptor *configurations)
{
    const cudnnBackendHeurMode_t *asked = find_values(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, NULL);
    size_t mode = *asked == CUDNN_HEUR_MODE_A ? 0 : 1;
    *count = (int64_t)fake.proposal_count[mode];
    for (int64_t i = 0; i < *count && i < requested; i++)
        ((struct fake_object *)configurations[i])->engine = fake.proposals[mode][i];
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_attribute(descriptor d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t requested,
                                   int64_t *count, void *values)
{
    const struct fake_object *object = d;
    (void)type;
    if (fails())
        return fake.fail_status;
    *count = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return get_proposals(object, requested, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct fake_object **)values)->engine = object->engine;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)values = object->engine.number;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *(cudnnBackendNumericalNote_t *)values = object->engine.nondeterministic
                                                     ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                     : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = object->engine.work_bytes;
        break;
    default:
        assert(!"an attribute that the fake does not know");
    }
    return CUDNN_STATUS_SUCCESS;
}

/* The tensor q of a graph: the first operand of one of its products. */
static const struct fake_object *find_q(const struct fake_object *graph)
{
    int64_t count = 0;
    const struct fake_object *const *operations =
        find_values(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    for (int64_t i = 0; i < count; i++) {
        const struct fake_object *a = find_part(operations[i], CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        if (a && *(const int64_t *)find_values(a, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL) == SDPA_Q)
            return a;
    }
    return NULL;
}

static cudnnStatus_t execute(cudnnHandle_t handle, descriptor plan, descriptor pack)
{
    const struct fake_object *p = plan, *operands = pack;
    assert(p->finalized && operands->finalized && fake.runs_count < FAKE_RUNS);
    if (fake.execute_status)
        return fake.execute_status;
    int64_t count = 0;
    const int64_t *uids = find_values(operands, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &count);
    void *const *data = find_values(operands, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, NULL);
    struct fake_run *run = &fake.runs[fake.runs_count++];
    *run = (struct fake_run){
        .handle = handle,
        .stream = stream_now,
        .engine = p->engine.number,
        .work = *(void *const *)find_values(operands, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL)};
    const struct fake_object *q = find_q(p->graph);
    memcpy(run->q_dims, find_values(q, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL), sizeof run->q_dims);
    memcpy(run->q_strides, find_values(q, CUDNN_ATTR_TENSOR_STRIDES, NULL), sizeof run->q_strides);
    for (int64_t i = 0; i < count; i++)
        run->data[uids[i]] = data[i];
    run->scale = *(float *)run->data[SDPA_SCALE]; /* read while it runs, like cuDNN */
    run->masked = *(float *)run->data[SDPA_MASKED];
    run->one = run->data[SDPA_ONE] ? *(float *)run->data[SDPA_ONE] : 0;
    return CUDNN_STATUS_SUCCESS;
}

const struct cudnn_api fake_api = {
    .file = "/fake/libcudnn.so.9",
    .get_version = get_version,
    .get_error_string = get_error_string,
    .get_last_error_string = get_last_error_string,
    .set_stream = set_stream,
    .create_descriptor = create_descriptor,
    .destroy_descriptor = destroy_descriptor,
    .finalize = finalize,
    .set_attribute = set_attribute,
    .get_attribute = get_attribute,
    .execute = execute,
};

void fake_open(struct hst_sdpa *sdpa, int compute)
{
    static char handle;
    *sdpa = (struct hst_sdpa){.api = fake_api, .large_bytes = HST_SDPA_WORK_BYTES};
    sdpa->target = (struct cudnn_target){.api = &sdpa->api,
                                         .handle = (cudnnHandle_t)(void *)&handle,
                                         .compute = compute,
                                         .version = get_version()};
    pthread_mutex_init(&sdpa->lock, NULL);
}

void fake_close(struct hst_sdpa *sdpa)
{
    cache_clear(&sdpa->cache);
    pthread_mutex_destroy(&sdpa->lock);
}
