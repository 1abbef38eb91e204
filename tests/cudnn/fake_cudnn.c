/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cudnn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct object {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    struct fake_engine engine;        /* of an engine, a configuration, a plan */
    int64_t uid, dims[4], strides[4]; /* of a tensor; of a plan, those of q */
    cudnnBackendHeurMode_t mode;
    int64_t count, uids[SDPA_UIDS];
    void *data[SDPA_UIDS], *work;
};

struct fake_cudnn fake;
static struct object last_q; /* the q of the graph that is being built */
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
    return ++fake.calls == fake.fail_at;
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
    struct object *object = calloc(1, sizeof *object);
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

static cudnnStatus_t finalize(descriptor d)
{
    struct object *object = d;
    assert(!object->finalized);
    if (fails())
        return fake.fail_status;
    if (object->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && object->uid == SDPA_Q)
        last_q = *object;
    if (object->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (object->engine.builds)
            return object->engine.builds;
        fake.plans_built++;
        memcpy(object->dims, last_q.dims, sizeof object->dims);
        memcpy(object->strides, last_q.strides, sizeof object->strides);
    }
    object->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

/* Keeps what the tests look at; the rest is swallowed. */
static cudnnStatus_t set_attribute(descriptor d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    struct object *object = d;
    (void)type;
    assert(!object->finalized && (!count || values));
    if (fails())
        return fake.fail_status;
    switch (name) {
    case CUDNN_ATTR_TENSOR_UNIQUE_ID:
        object->uid = *(const int64_t *)values;
        break;
    case CUDNN_ATTR_TENSOR_DIMENSIONS:
        memcpy(object->dims, values, sizeof object->dims);
        break;
    case CUDNN_ATTR_TENSOR_STRIDES:
        memcpy(object->strides, values, sizeof object->strides);
        break;
    case CUDNN_ATTR_ENGINEHEUR_MODE:
        object->mode = *(const cudnnBackendHeurMode_t *)values;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        object->engine = fake.by_number;
        object->engine.number = fake.asked_number = *(const int64_t *)values;
        break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        fake.asked_knobs = count;
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
        object->engine = (*(struct object *const *)values)->engine;
        break;
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
        object->count = count;
        memcpy(object->uids, values, (size_t)count * sizeof(int64_t));
        break;
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
        memcpy(object->data, values, (size_t)count * sizeof(void *));
        break;
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE:
        object->work = *(void *const *)values;
        break;
    default:
        break;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_proposals(const struct object *heuristic, int64_t requested,
                                   int64_t *count, descriptor *configurations)
{
    size_t mode = heuristic->mode == CUDNN_HEUR_MODE_A ? 0 : 1;
    *count = (int64_t)fake.proposal_count[mode];
    for (int64_t i = 0; i < *count && i < requested; i++)
        ((struct object *)configurations[i])->engine = fake.proposals[mode][i];
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_attribute(descriptor d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t requested,
                                   int64_t *count, void *values)
{
    const struct object *object = d;
    (void)type;
    if (fails())
        return fake.fail_status;
    *count = 1;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return get_proposals(object, requested, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct object **)values)->engine = object->engine;
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

static cudnnStatus_t execute(cudnnHandle_t handle, descriptor plan, descriptor pack)
{
    const struct object *p = plan, *operands = pack;
    assert(p->finalized && operands->finalized && fake.runs_count < FAKE_RUNS);
    if (fake.execute_status)
        return fake.execute_status;
    struct fake_run *run = &fake.runs[fake.runs_count++];
    *run = (struct fake_run){
        .handle = handle, .stream = stream_now, .engine = p->engine.number, .work = operands->work};
    memcpy(run->q_dims, p->dims, sizeof run->q_dims);
    memcpy(run->q_strides, p->strides, sizeof run->q_strides);
    for (int64_t i = 0; i < operands->count; i++)
        run->data[operands->uids[i]] = operands->data[i];
    run->scale = *(float *)run->data[SDPA_SCALE]; /* read while it runs, like cuDNN */
    run->masked = *(float *)run->data[SDPA_MASKED];
    run->one = run->data[SDPA_ONE] ? *(float *)run->data[SDPA_ONE] : 0;
    return CUDNN_STATUS_SUCCESS;
}

const struct cudnn_api fake_api = {
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
    *sdpa = (struct hst_sdpa){.api = fake_api};
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
