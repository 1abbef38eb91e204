/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake cuDNN: what it refuses as cuDNN does, and what it finds of a run that cuDNN would do
 * wrong without a word. Graphs are written by the plugin's own code; each is then spoilt in one
 * place. What graphs compute is compared in tests/cudnn/test_formulas.c.
 */
#include "cut.h"
#include "plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

void hst_fake_cuda_configure(const char *text);  /* of the fake runtime */
void hst_fake_cudnn_configure(const char *text); /* of the fake cuDNN */
size_t hst_fake_cudnn_live(void);

static const struct cudnn_api api = {
    .file = "libcudnn.so.9",
    .get_version = cudnnGetVersion,
    .get_error_string = cudnnGetErrorString,
    .get_last_error_string = cudnnGetLastErrorString,
    .create = cudnnCreate,
    .destroy = cudnnDestroy,
    .set_stream = cudnnSetStream,
    .create_descriptor = cudnnBackendCreateDescriptor,
    .destroy_descriptor = cudnnBackendDestroyDescriptor,
    .finalize = cudnnBackendFinalize,
    .set_attribute = cudnnBackendSetAttribute,
    .get_attribute = cudnnBackendGetAttribute,
    .execute = cudnnBackendExecute,
};

static const struct sdpa_shape shape = {.batch = 1,
                                        .seq = 5,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = 8,
                                        .all_heads = 2,
                                        .all_kv_heads = 1,
                                        .type = CUDNN_DATA_BFLOAT16};

static struct cudnn_target target;
static struct graph g; /* of the descriptors that a test makes */

static int open_target(void **state)
{
    (void)state;
    hst_fake_cuda_configure(NULL);
    hst_fake_cudnn_configure(NULL);
    target = (struct cudnn_target){.api = &api, .compute = 90, .version = cudnnGetVersion()};
    graph_begin(&g, &api, SDPA_UIDS);
    return cudnnCreate(&target.handle) != CUDNN_STATUS_SUCCESS;
}

static int close_target(void **state)
{
    (void)state;
    graph_end(&g);
    return cudnnDestroy(target.handle) != CUDNN_STATUS_SUCCESS || hst_fake_cudnn_live() != 0;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void attributes_have_types_and_counts(void **state)
{
    (void)state;
    const int64_t uid = 1, dims[4] = {1, 2, 3, 4};
    const bool yes = true;
    descriptor d, strange;
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_RNG_DESCRIPTOR, &strange),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d), 0);
    const struct {
        cudnnBackendAttributeName_t name;
        cudnnBackendAttributeType_t type;
        int64_t count;
        const void *values;
        cudnnStatus_t status;
    } rows[] = {
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, CUDNN_STATUS_SUCCESS},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims, CUDNN_STATUS_SUCCESS},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes, CUDNN_STATUS_SUCCESS},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_BOOLEAN, 1, &yes,
         CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, dims, CUDNN_STATUS_BAD_PARAM},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, dims, CUDNN_STATUS_BAD_PARAM},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL, CUDNN_STATUS_BAD_PARAM},
        {CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_INT64, 1, &uid, CUDNN_STATUS_BAD_PARAM},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(
            cudnnBackendSetAttribute(d, rows[i].name, rows[i].type, rows[i].count, rows[i].values),
            rows[i].status);
    assert_int_equal(cudnnBackendFinalize(d), CUDNN_STATUS_BAD_PARAM); /* others are missing */
    assert_int_equal(cudnnBackendDestroyDescriptor(d), 0);
    assert_int_equal(cudnnBackendDestroyDescriptor(d), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    assert_int_equal(cudnnBackendFinalize(d), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

static void what_is_finalized_is_set_no_more_and_what_is_not_is_no_part(void **state)
{
    (void)state;
    const int64_t dims[4] = {1, 1, 2, 2}, uid = 7;
    int64_t count = 0, bytes = 0;
    descriptor x = graph_virtual(&g, CUDNN_DATA_FLOAT, dims), open, operation;
    assert_int_equal(
        cudnnBackendSetAttribute(x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid),
        CUDNN_STATUS_BAD_PARAM);
    open = graph_make(&g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    operation = graph_make(&g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a reshape");
    assert_int_equal(cudnnBackendSetAttribute(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &open),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnBackendSetAttribute(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation),
                     CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    assert_int_equal(cudnnBackendGetAttribute(open, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
                                              1, &count, &bytes),
                     CUDNN_STATUS_NOT_INITIALIZED);
}

/* A tensor with one thing spoilt; what finalizing it says. */
static cudnnStatus_t tensor_status(struct extents e, cudnnDataType_t type, int64_t align_bytes)
{
    struct graph made;
    graph_begin(&made, &api, SDPA_UIDS);
    graph_tensor(&made, 1, type, e, align_bytes);
    cudnnStatus_t status = made.status;
    graph_end(&made);
    return status;
}

static void tensors_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    const struct extents good = extents_packed((const int64_t[4]){1, 2, 3, 4});
    struct extents empty = good, still = good;
    empty.dims[2] = 0;
    still.strides[3] = 0;
    assert_int_equal(tensor_status(good, CUDNN_DATA_FLOAT, 16), CUDNN_STATUS_SUCCESS);
    assert_int_equal(tensor_status(empty, CUDNN_DATA_FLOAT, 16), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(tensor_status(still, CUDNN_DATA_FLOAT, 16), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(tensor_status(good, CUDNN_DATA_FLOAT, 2), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(tensor_status(good, CUDNN_DATA_FLOAT, 12), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(tensor_status(good, CUDNN_DATA_FP8_E4M3, 16),
                     CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static cudnnStatus_t finalize_graph(void)
{
    descriptor d = graph_make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph");
    graph_set(&g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              (int64_t)g.operation_count, g.operations);
    graph_set(&g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    graph_finalize(&g, d);
    return g.status;
}

static void both_formulas_are_known(void **state)
{
    (void)state;
    struct sdpa_shape alone = shape;
    alone.heads = alone.all_heads = 1;
    forward_build(&g, &shape);
    assert_int_equal(finalize_graph(), CUDNN_STATUS_SUCCESS);
    for (int grouped = 0; grouped < 2; grouped++) {
        graph_end(&g);
        graph_begin(&g, &api, SDPA_UIDS);
        backward_build(&g, grouped ? &shape : &alone);
        assert_int_equal(finalize_graph(), CUDNN_STATUS_SUCCESS);
    }
}

/* Without the step that scales, a graph is no attention that cuDNN has an engine for. */
static void a_graph_without_its_scale_is_not_supported(void **state)
{
    (void)state;
    const int64_t scores[4] = {1, 2, 5, 5};
    forward_build(&g, &shape);
    for (size_t i = 2; i < g.operation_count; i++)
        g.operations[i - 1] = g.operations[i];
    g.operation_count--;
    assert_int_equal(finalize_graph(), CUDNN_STATUS_BAD_PARAM); /* its result is read */
    graph_end(&g);
    graph_begin(&g, &api, SDPA_UIDS);
    graph_matmul(&g, graph_tensor(&g, SDPA_Q, shape.type, shape_query(&shape), 16),
                 graph_tensor(&g, SDPA_K, shape.type, extents_transposed(shape_key(&shape)), 16),
                 graph_tensor(&g, SDPA_O, CUDNN_DATA_FLOAT, extents_packed(scores), 16));
    assert_int_equal(finalize_graph(), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
}

static void operations_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const int64_t rows[4] = {1, 2, 5, 1}, wide[4] = {1, 2, 5, 6};
    graph_binary(&g, CUDNN_POINTWISE_MUL, graph_virtual(&g, CUDNN_DATA_FLOAT, rows),
                 graph_virtual(&g, CUDNN_DATA_FLOAT, wide),
                 graph_virtual(&g, CUDNN_DATA_FLOAT, rows));
    assert_int_equal(g.status, CUDNN_STATUS_BAD_PARAM);
    graph_end(&g);
    graph_begin(&g, &api, SDPA_UIDS);
    graph_matmul(&g, graph_virtual(&g, CUDNN_DATA_FLOAT, wide),
                 graph_virtual(&g, CUDNN_DATA_FLOAT, wide),
                 graph_virtual(&g, CUDNN_DATA_FLOAT, wide));
    assert_int_equal(g.status, CUDNN_STATUS_BAD_PARAM);
    graph_end(&g);
    graph_begin(&g, &api, SDPA_UIDS);
    graph_unary(&g, CUDNN_POINTWISE_TANH_FWD, graph_virtual(&g, CUDNN_DATA_FLOAT, rows),
                graph_virtual(&g, CUDNN_DATA_FLOAT, rows));
    assert_int_equal(g.status, CUDNN_STATUS_NOT_SUPPORTED);
    graph_end(&g);
    graph_begin(&g, &api, SDPA_UIDS);
    graph_unary(&g, CUDNN_POINTWISE_MUL, graph_virtual(&g, CUDNN_DATA_FLOAT, rows),
                graph_virtual(&g, CUDNN_DATA_FLOAT, rows));
    assert_int_equal(g.status, CUDNN_STATUS_BAD_PARAM); /* a second factor is missing */
}

static void engines_are_those_of_the_card(void **state)
{
    (void)state;
    static const struct {
        const char *cuda;
        int compute;
        int64_t forward, backward;
    } cards[] = {{"cc=8.0", 80, 1, 7},
                 {"cc=9.0", 90, 2, 6},
                 {"cc=10.0", 100, 3, 5},
                 {"cc=11.0", 110, 1, 0},
                 {"cc=12.0", 120, 1, 7}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct plan plan;
        hst_fake_cuda_configure(cards[i].cuda);
        target.compute = cards[i].compute;
        assert_int_equal(plan_build(&plan, &target, SDPA_FORWARD, &shape, 1 << 20, NULL), 0);
        assert_int_equal(plan.engine, cards[i].forward);
        plan_destroy(&plan);
        enum sdpa_form form = sdpa_backward_form(&target);
        assert_int_equal(form == SDPA_NONE, cards[i].backward == 0);
        if (form == SDPA_NONE)
            continue;
        assert_int_equal(plan_build(&plan, &target, form, &shape, 1 << 20, NULL), 0);
        assert_int_equal(plan.engine, cards[i].backward);
        assert_true(plan.work_bytes <= cut_work_bytes(form, &shape));
        plan_destroy(&plan);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A backward, all of whose tensors are allocations of their own. */
struct ground {
    struct plan plan;
    cudaStream_t stream;
    int64_t uids[SDPA_UIDS];
    void *data[SDPA_UIDS], *work;
    int64_t count;
    size_t bytes[SDPA_UIDS];
};
static float scale = 0.25f, masked, one = 1;

static void raise_ground(struct ground *r)
{
    *r = (struct ground){.count = 0};
    masked = -__builtin_inff();
    assert_int_equal(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), 0);
    assert_int_equal(cudnnSetStream(target.handle, r->stream), 0);
    assert_int_equal(plan_build(&r->plan, &target, SDPA_BACKWARD_STORED, &shape, 1 << 20, NULL), 0);
    for (int64_t uid = SDPA_Q; uid < SDPA_SCALE; uid++) {
        bool keys = uid == SDPA_K || uid == SDPA_V || uid == SDPA_DK || uid == SDPA_DV;
        r->bytes[r->count] = uid == SDPA_LSE ? 2 * 5 * 4 : (keys ? 1 : 2) * 5 * 8 * 2;
        assert_int_equal(cudaMalloc(&r->data[r->count], r->bytes[r->count]), 0);
        assert_int_equal(cudaMemset(r->data[r->count], 0, r->bytes[r->count]), 0);
        r->uids[r->count++] = uid;
    }
    void *const values[] = {&scale, &masked, &one};
    for (int64_t i = 0; i < 3; i++) {
        r->data[r->count] = values[i];
        r->uids[r->count++] = SDPA_SCALE + i;
    }
    assert_int_equal(cudaMalloc(&r->work, r->plan.work_bytes), 0);
}

static void raze_ground(struct ground *r)
{
    for (int64_t i = 0; i < r->count; i++)
        if (r->bytes[i])
            cudaFree(r->data[i]);
    cudaFree(r->work);
    plan_destroy(&r->plan);
    cudaStreamDestroy(r->stream);
}

static cudnnStatus_t execute(const struct ground *r)
{
    struct graph made;
    graph_begin(&made, &api, 0);
    descriptor d = graph_make(&made, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the operands");
    graph_set(&made, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, r->count, r->uids);
    graph_set(&made, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, r->count,
              r->data);
    graph_set(&made, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &r->work);
    graph_finalize(&made, d);
    cudnnStatus_t status = made.status;
    if (!status)
        status = cudnnBackendExecute(target.handle, r->plan.plan, d);
    graph_end(&made);
    return status;
}

static int at(const struct ground *r, int64_t uid)
{
    for (int i = 0; i < (int)r->count; i++)
        if (r->uids[i] == uid)
            return i;
    return -1;
}

/* Nothing runs before someone waits, as everything on the double. */
static void a_run_is_its_streams(void **state)
{
    (void)state;
    struct ground r;
    uint16_t before = 0xffff, dv[5 * 8];
    raise_ground(&r);
    assert_int_equal(cudaMemset(r.data[at(&r, SDPA_DV)], 0xff, sizeof dv), 0);
    assert_int_equal(execute(&r), CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudaMemcpy(&before, r.data[at(&r, SDPA_DV)], 2, cudaMemcpyDeviceToHost), 0);
    assert_int_equal(before, 0xffff);
    assert_int_equal(cudaStreamSynchronize(r.stream), 0);
    assert_int_equal(cudaMemcpy(dv, r.data[at(&r, SDPA_DV)], sizeof dv, cudaMemcpyDeviceToHost), 0);
    for (size_t i = 0; i < sizeof dv / sizeof *dv; i++)
        assert_int_equal(dv[i], 0); /* dout is zero */
    raze_ground(&r);
}

static void every_operand_has_to_be_given(void **state)
{
    (void)state;
    for (int64_t uid = SDPA_Q; uid < SDPA_UIDS; uid++) {
        struct ground r;
        raise_ground(&r);
        int i = at(&r, uid);
        int64_t kept = r.uids[i];
        r.uids[i] = 99; /* as if it were not there; and 99 is none of the graph's */
        assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM);
        r.uids[i] = r.uids[i ? 0 : 1];
        assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
        r.uids[i] = kept;
        void *data = r.data[i];
        r.data[i] = NULL;
        assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        r.data[i] = data;
        assert_int_equal(execute(&r), CUDNN_STATUS_SUCCESS);
        raze_ground(&r);
    }
}

static void pointers_that_are_not_aligned_are_refused(void **state)
{
    (void)state;
    struct ground r;
    raise_ground(&r);
    char *q = r.data[0], *work = r.work;
    r.data[0] = q + 8;
    assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    r.data[0] = q;
    r.work = work + 128;
    assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    r.work = NULL;
    assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    r.work = work;
    assert_int_equal(execute(&r), CUDNN_STATUS_SUCCESS);
    raze_ground(&r);
}

static void what_is_written_lies_over_nothing_else(void **state)
{
    (void)state;
    struct ground r;
    raise_ground(&r);
    void *dq = r.data[at(&r, SDPA_DQ)], *work = r.work;
    r.data[at(&r, SDPA_DQ)] = r.data[at(&r, SDPA_Q)];
    assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM);
    r.data[at(&r, SDPA_DQ)] = dq;
    r.work = r.data[at(&r, SDPA_DOUT)];
    assert_int_equal(execute(&r), CUDNN_STATUS_BAD_PARAM);
    r.work = work;
    raze_ground(&r);
}

/* A workspace one byte short, or a tensor that ends too early, is an illegal address, and the
 * device is lost. */
static void memory_that_ends_too_early_fails_the_device(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct ground r;
        raise_ground(&r);
        void **place = which ? &r.work : &r.data[at(&r, SDPA_K)], *kept = *place, *small;
        size_t needed = which ? r.plan.work_bytes : r.bytes[at(&r, SDPA_K)];
        assert_int_equal(cudaMalloc(&small, needed - 1), 0);
        *place = small;
        assert_int_equal(execute(&r), CUDNN_STATUS_SUCCESS);
        assert_int_equal(cudaStreamSynchronize(r.stream), cudaErrorIllegalAddress);
        *place = kept;
        assert_int_equal(execute(&r), CUDNN_STATUS_EXECUTION_FAILED);
        hst_fake_cuda_configure(NULL);
        cudaFree(small);
        raze_ground(&r);
    }
}

/* The whole workspace is written, so that what else lies in it is lost. */
static void a_workspace_is_overwritten(void **state)
{
    (void)state;
    struct ground r;
    unsigned char last = 0;
    raise_ground(&r);
    char *end = (char *)r.work + r.plan.work_bytes - 1;
    assert_int_equal(cudaMemset(end, 0, 1), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0);
    assert_int_equal(execute(&r), CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudaStreamSynchronize(r.stream), 0);
    assert_int_equal(cudaMemcpy(&last, end, 1, cudaMemcpyDeviceToHost), 0);
    assert_int_equal(last, 0xff);
    raze_ground(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_target, close_target)
    const struct CMUnitTest tests[] = {
        TEST(attributes_have_types_and_counts),
        TEST(what_is_finalized_is_set_no_more_and_what_is_not_is_no_part),
        TEST(tensors_that_mean_nothing_are_refused),
        TEST(both_formulas_are_known),
        TEST(a_graph_without_its_scale_is_not_supported),
        TEST(operations_that_do_not_fit_are_refused),
        TEST(engines_are_those_of_the_card),
        TEST(a_run_is_its_streams),
        TEST(every_operand_has_to_be_given),
        TEST(pointers_that_are_not_aligned_are_refused),
        TEST(what_is_written_lies_over_nothing_else),
        TEST(memory_that_ends_too_early_fails_the_device),
        TEST(a_workspace_is_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
