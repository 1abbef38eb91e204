/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuBLASLt against a plain loop: orders, transposes, types, accumulation, refusals. */
#include "runtime/streams.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Case {
    size_t m, n, k;
    bool a_transposed, b_transposed, row_major;
    cudaDataType in, out;
    float alpha, beta;
};

enum { PADDING = 3 };

/* A matrix in column or row order, with a leading dimension beyond its lines. */
struct Matrix {
    size_t rows, columns, ld;
    bool row_major;
    cudaDataType type;
    std::vector<float> values;
    cublasLtMatrixLayout_t layout;
    Vector<char> memory;

    Matrix(size_t r, size_t c, bool row, cudaDataType t, unsigned seed)
        : rows(r), columns(c), ld((row ? c : r) + PADDING), row_major(row), type(t),
          values(ld * (row ? r : c)), memory(values.size() * size())
    {
        for (size_t i = 0; i < values.size(); i++) /* small integers: exact in any type and order */
            values[i] = (float)((int)(i * seed % 7) - 3);
        cublasLtMatrixLayoutCreate(&layout, type, r, c, (int64_t)ld);
        int32_t order = row ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                         sizeof order);
        write();
    }
    ~Matrix()
    {
        cublasLtMatrixLayoutDestroy(layout);
    }
    Matrix(const Matrix &) = delete;
    Matrix &operator=(const Matrix &) = delete;

    float &at(size_t row, size_t column)
    {
        return values[row_major ? row * ld + column : column * ld + row];
    }
    size_t size() const
    {
        return type == CUDA_R_32F ? 4 : 2;
    }
    std::vector<char> bytes_of(const std::vector<float> &from) const
    {
        std::vector<char> bytes(memory.count);
        for (size_t i = 0; i < from.size(); i++) {
            __nv_bfloat16 bf16 = __float2bfloat16_rn(from[i]);
            __half f16 = __float2half_rn(from[i]);
            const void *element = type == CUDA_R_16BF ? (const void *)&bf16 : &f16;
            memcpy(&bytes[i * size()], type == CUDA_R_32F ? &from[i] : element, size());
        }
        return bytes;
    }
    void write()
    {
        memory.write(bytes_of(values));
    }
    bool holds(const std::vector<float> &want)
    {
        return memory.read() == bytes_of(want);
    }
};

static cublasStatus_t choose(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, Matrix &a,
                             Matrix &b, Matrix &c, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreference_t preference;
    uint64_t work_bytes = 0;
    int count;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &work_bytes, sizeof work_bytes);
    cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t alignment = 16;
    for (auto attribute : alignments)
        cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation, a.layout, b.layout, c.layout, c.layout, preference, 1, found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

struct Where {
    char *work = nullptr;
    size_t work_bytes = 0;
    cudaStream_t stream = nullptr;
    size_t misaligned = 0; /* bytes, of A */
};

/* D is c; C is there too, and as c_layout says. */
static cublasStatus_t multiply_with(const Case &p, Matrix &a, Matrix &b,
                                    cublasLtMatrixLayout_t c_layout, Matrix &c, const Where &where)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatmulHeuristicResult_t found;
    int32_t ta = p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t tb = p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    assert_int_equal(cublasLtCreate(&handle), 0);
    assert_int_equal(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cublasStatus_t status = choose(handle, operation, a, b, c, &found);
    if (!status)
        status =
            cublasLtMatmul(handle, operation, &p.alpha, a.memory.data + where.misaligned, a.layout,
                           b.memory.data, b.layout, &p.beta, c.memory.data, c_layout, c.memory.data,
                           c.layout, &found.algo, where.work, where.work_bytes, where.stream);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
    return status;
}

static cublasStatus_t multiply(const Case &p, Matrix &a, Matrix &b, Matrix &c, size_t misaligned)
{
    Where where;
    where.misaligned = misaligned;
    return multiply_with(p, a, b, c.layout, c, where);
}

static void check(const Case &p)
{
    Matrix a(p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.row_major, p.in, 5);
    Matrix b(p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.row_major, p.in, 3);
    Matrix c(p.m, p.n, p.row_major, p.out, 11);
    if (p.beta == 0) { /* not read */
        std::vector<char> ones(c.memory.count, (char)0xff);
        c.memory.write(ones);
    }
    Matrix want(p.m, p.n, p.row_major, p.out, 11);
    for (size_t i = 0; i < p.m; i++)
        for (size_t j = 0; j < p.n; j++) {
            float sum = 0;
            for (size_t k = 0; k < p.k; k++)
                sum += (p.a_transposed ? a.at(k, i) : a.at(i, k)) *
                       (p.b_transposed ? b.at(j, k) : b.at(k, j));
            want.at(i, j) = p.alpha * sum + (p.beta != 0 ? p.beta * c.at(i, j) : 0);
        }
    assert_int_equal(multiply(p, a, b, c, 0), CUBLAS_STATUS_SUCCESS);
    if (p.beta == 0) { /* nor are lines of C written beyond their ends */
        std::vector<char> bytes = c.memory.read();
        size_t line = p.row_major ? p.n : p.m, size = c.size();
        for (size_t i = 0; i < bytes.size(); i++)
            if (i / size % c.ld >= line)
                assert_int_equal((unsigned char)bytes[i], 0xff);
        for (size_t i = 0; i < want.values.size(); i++)
            if (i % c.ld >= line)
                want.values[i] = 0;
        for (size_t i = 0; i < bytes.size(); i++)
            if (i / size % c.ld >= line)
                bytes[i] = 0;
        c.memory.write(bytes);
    }
    assert_true(c.holds(want.values));
}

static void products_match_a_plain_loop(void **)
{
    const cudaDataType f32 = CUDA_R_32F, types[3] = {CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
    for (int i = 0; i < 24; i++)
        check({5, 7, 9, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0, types[i / 8], f32, 1, 0});
    check({300, 9, 33, false, true, false, CUDA_R_16BF, f32, 2, 1});
    check({6, 5, 4, true, false, false, CUDA_R_16BF, CUDA_R_16BF, 1, 0});
    check({6, 5, 4, true, false, false, CUDA_R_16F, CUDA_R_16F, 1, 0});
    check({1, 1, 1, false, false, true, f32, f32, 0.5f, 3});
}

static void what_the_library_refuses_is_refused(void **)
{
    const cudaDataType f32 = CUDA_R_32F;
    Case p = {4, 4, 4, false, false, false, f32, f32, 1, 0};
    Matrix a(4, 4, false, f32, 5), b(4, 4, false, f32, 3), c(4, 4, false, f32, 1);
    Matrix other(4, 5, false, f32, 1), half(4, 4, false, CUDA_R_16BF, 1);
    Matrix another(4, 4, false, CUDA_R_16F, 1);
    assert_int_equal(multiply(p, a, other, c, 0), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(p, a, half, c, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(multiply(p, half, another, c, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(multiply(p, half, half, another, 0), CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(multiply(p, a, b, c, 4), CUBLAS_STATUS_INVALID_VALUE); /* misaligned */
}

/* Two of 4×4, of which all have the first A; C's begin `apart` elements from each other. */
static cublasStatus_t multiply_two(int64_t apart, int32_t of_b)
{
    Case p = {4, 4, 4, false, false, false, CUDA_R_32F, CUDA_R_32F, 1, 0};
    Matrix a(4, 4, false, CUDA_R_32F, 5), b(4, 16, false, CUDA_R_32F, 3);
    Matrix c(4, 16, false, CUDA_R_32F, 1), want(4, 16, false, CUDA_R_32F, 1);
    const int32_t two = 2;
    const int64_t steps[3] = {0, 28, apart};
    Matrix *all[3] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        const uint64_t columns = 4;
        const int32_t count = i == 1 ? of_b : two;
        cublasLtMatrixLayoutDestroy(all[i]->layout);
        cublasLtMatrixLayoutCreate(&all[i]->layout, CUDA_R_32F, 4, columns, (int64_t)all[i]->ld);
        cublasLtMatrixLayoutSetAttribute(all[i]->layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof count);
        cublasLtMatrixLayoutSetAttribute(all[i]->layout,
                                         CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &steps[i],
                                         sizeof steps[i]);
    }
    cublasStatus_t status = multiply(p, a, b, c, 0);
    if (status)
        return status;
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 8; j++) {
            size_t to = (size_t)apart * (j / 4) + j % 4 * c.ld + i;
            want.values[to] = 0;
            for (size_t k = 0; k < 4; k++)
                want.values[to] += a.at(i, k) * b.at(k, j);
        }
    assert_true(c.holds(want.values));
    return status;
}

static void a_batch_lies_in_steps(void **)
{
    assert_int_equal(multiply_two(28, 2), 0);
    assert_int_equal(multiply_two(36, 2), 0);
    assert_int_equal(multiply_two(24, 2), CUBLAS_STATUS_INVALID_VALUE); /* C's overlap */
    assert_int_equal(multiply_two(30, 2), CUBLAS_STATUS_INVALID_VALUE); /* misaligned */
    assert_int_equal(multiply_two(28, 1), CUBLAS_STATUS_INVALID_VALUE); /* not as many */
}

/* ---- what is configured ---------------------------------------------------------------------- */

static cublasStatus_t status_of(size_t m, size_t n, size_t k, cudaDataType in)
{
    Case p = {m, n, k, false, false, false, in, CUDA_R_32F, 1, 0};
    Matrix a(m, k, false, in, 5), b(k, n, false, in, 3), c(m, n, false, CUDA_R_32F, 1);
    return multiply(p, a, b, c, 0);
}

static void shapes_may_have_no_algorithm(void **)
{
    const cublasStatus_t refused = CUBLAS_STATUS_NOT_SUPPORTED;
    hst_fake_cuda_configure("refuse=bf16:5x*x13,refuse=f16");
    assert_int_equal(status_of(5, 4, 13, CUDA_R_16BF), refused);
    assert_int_equal(status_of(5, 9, 13, CUDA_R_16BF), refused);
    assert_int_equal(status_of(4, 4, 13, CUDA_R_16BF), 0);
    assert_int_equal(status_of(5, 4, 12, CUDA_R_16BF), 0);
    assert_int_equal(status_of(5, 4, 13, CUDA_R_32F), 0);
    assert_int_equal(status_of(4, 4, 4, CUDA_R_16F), refused);
    hst_fake_cuda_configure("refuse=bf16:16"); /* a line has PADDING elements more */
    assert_int_equal(status_of(13, 4, 13, CUDA_R_16BF), 0);
    assert_int_equal(status_of(9, 4, 13, CUDA_R_16BF), refused);
    assert_int_equal(status_of(13, 4, 9, CUDA_R_16BF), refused);
    assert_int_equal(status_of(9, 4, 9, CUDA_R_16F), 0);
    hst_fake_cuda_configure("refuse=bf16:9x4x9:16");
    assert_int_equal(status_of(9, 4, 9, CUDA_R_16BF), refused);
    assert_int_equal(status_of(9, 5, 9, CUDA_R_16BF), 0);
    hst_fake_cuda_configure("");
    assert_int_equal(status_of(5, 4, 13, CUDA_R_16BF), 0);
}

/* C in place of D, in another order. */
static void what_is_in_place_is_laid_out_alike(void **)
{
    Case p = {4, 4, 4, false, false, false, CUDA_R_32F, CUDA_R_32F, 1, 1};
    Matrix a(4, 4, false, CUDA_R_32F, 5), b(4, 4, false, CUDA_R_32F, 3);
    Matrix c(4, 4, false, CUDA_R_32F, 1), rows(4, 4, true, CUDA_R_32F, 1);
    Matrix wide(4, 4, false, CUDA_R_32F, 1);
    int64_t ld = 4;
    cublasLtMatrixLayoutSetAttribute(wide.layout, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld);
    assert_int_equal(multiply_with(p, a, b, c.layout, c, {}), 0);
    assert_int_equal(multiply_with(p, a, b, rows.layout, c, {}), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply_with(p, a, b, wide.layout, c, {}), CUBLAS_STATUS_INVALID_VALUE);
}

enum Ordered { nothing, event, passed_event, synchronised, through_a_third, destroyed, freed };

/* Two products in one workspace, in two streams. */
static bool shares_workspace(Ordered by, size_t apart)
{
    Case p = {4, 4, 4, false, false, false, CUDA_R_32F, CUDA_R_32F, 1, 0};
    Matrix a(4, 4, false, CUDA_R_32F, 5), b(4, 4, false, CUDA_R_32F, 3);
    Matrix c(4, 4, false, CUDA_R_32F, 1), d(4, 4, false, CUDA_R_32F, 1);
    Vector<char> work(2048);
    Streams s;
    cudaStream_t third;
    cudaEvent_t last;
    cudaStreamCreate(&third);
    cudaEventCreate(&last);
    if (multiply_with(p, a, b, c.layout, c, {work.data, 1024, s.a}))
        return false;
    cudaEventRecord(s.event, s.a);
    if (by == passed_event)
        cudaEventSynchronize(s.event);
    if (by == synchronised)
        cudaStreamSynchronize(s.a);
    if (by == destroyed || by == freed)
        cudaStreamDestroy(s.a);
    if (by == freed)
        cudaFree(c.memory.data), c.memory.data = nullptr; /* which waits for the device */
    if (by == event)
        cudaStreamWaitEvent(s.b, s.event, 0);
    if (by == through_a_third) {
        cudaStreamWaitEvent(third, s.event, 0);
        cudaEventRecord(last, third);
        cudaStreamWaitEvent(s.b, last, 0);
    }
    return !multiply_with(p, a, b, d.layout, d, {work.data + apart, 1024, s.b}) &&
           !cudaStreamSynchronize(s.b) && !cudaDeviceSynchronize();
}

static void a_workspace_of_two_streams_at_once_is_caught(void **)
{
    for (Ordered by : {event, passed_event, synchronised, through_a_third, freed})
        expect_right([=] { return shares_workspace(by, 0); });
    expect_right([] { return shares_workspace(nothing, 1024); });
    const char *message = "have products in one workspace";
    expect_message(message, [] { return shares_workspace(nothing, 0); });
    expect_message(message, [] { return shares_workspace(nothing, 768); });
    expect_message(message, [] { return shares_workspace(destroyed, 0); });
}

static bool runs_with(const char *configuration, cublasStatus_t wanted)
{
    hst_fake_cuda_configure(configuration);
    Case p = {4, 4, 4, false, false, false, CUDA_R_32F, CUDA_R_32F, 1, 0};
    Matrix a(4, 4, false, CUDA_R_32F, 5), b(4, 4, false, CUDA_R_32F, 3);
    Matrix c(4, 4, false, CUDA_R_32F, 1);
    size_t free_before, free_after, total;
    cudaMemGetInfo(&free_before, &total);
    bool right = multiply(p, a, b, c, 0) == wanted;
    cudaMemGetInfo(&free_after, &total);
    size_t taken = !wanted && strstr(configuration, "overhead") ? 60 << 20 : 0;
    return right && free_before - free_after == taken && multiply(p, a, b, c, 0) == wanted;
}

static void the_first_product_takes_memory(void **)
{
    expect_right([] { return runs_with("memory=64M", CUBLAS_STATUS_SUCCESS); });
    expect_right([] { return runs_with("memory=67M,overhead=1M", CUBLAS_STATUS_SUCCESS); });
    expect_right([] { return runs_with("memory=66M,overhead=1M", CUBLAS_STATUS_ALLOC_FAILED); });
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_a_plain_loop),
        cmocka_unit_test(a_batch_lies_in_steps),
        cmocka_unit_test(shapes_may_have_no_algorithm),
        cmocka_unit_test(what_is_in_place_is_laid_out_alike),
        cmocka_unit_test(a_workspace_of_two_streams_at_once_is_caught),
        cmocka_unit_test(the_first_product_takes_memory),
        cmocka_unit_test(what_the_library_refuses_is_refused),
    };
    return cmocka_run_group_tests_name("cublaslt", tests, nullptr, nullptr);
}
