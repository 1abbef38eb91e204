/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake libcublasLt.so.13 on the fake runtime's streams: plain loops in f32, in rising k. It
 * refuses what the real one refuses of the few attributes it knows, and everything else; it writes
 * to the workspace it is given, so that one that overlaps something shows.
 */
#include "runtime/runtime.h"

#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

struct Layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t order;
    int32_t batch;
    int64_t step;
};

struct Description {
    int32_t first_transposed, second_transposed; /* cublasOperation_t */
};

struct Preference {
    uint64_t work_bytes;
    uint32_t alignment[4]; /* of A, B, C, D */
};

struct Algorithm { /* what of the preferences it was chosen for */
    uint64_t work_bytes;
    uint32_t alignment[4];
    uint64_t chosen; /* CHOSEN */
};

enum : uint64_t { CHOSEN = 0x686f697374776179, WORK_ALIGNMENT_BYTES = 256, WORK_TOUCHED = 4096 };

struct Operand { /* element (row, column) at data[row * row_step + column * column_step] */
    void *data;
    size_t row_step, column_step;
    cudaDataType type;
    size_t step; /* to the next product's */
};

struct Product {
    size_t rows, columns, depth, batch;
    float alpha, beta;
    Operand a, b, c, d;
    char *work;
    size_t work_bytes;
};

} // namespace

/* ---- handles and descriptions ---------------------------------------------------------------- */

static cublasStatus_t planned(const char *function)
{
    return (cublasStatus_t)hst::planned_fault(function);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_OF_THE_FAKE";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (cublasStatus_t status = planned(__func__))
        return status;
    *handle = reinterpret_cast<cublasLtHandle_t>(new char);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete reinterpret_cast<char *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* The library's types are arrays of words that callers may hold too; each begins with ours. */
template <class Ours, class Theirs> static Ours *inside(Theirs *theirs)
{
    static_assert(sizeof(Ours) <= sizeof(Theirs), "does not fit");
    return reinterpret_cast<Ours *>(theirs->data);
}

template <class Theirs, class Ours> static cublasStatus_t create(Theirs **theirs, const Ours &ours)
{
    *theirs = new Theirs();
    std::memcpy((*theirs)->data, &ours, sizeof ours);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t set(T *value, const void *from, size_t size_bytes)
{
    if (size_bytes != sizeof *value)
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, from, sizeof *value);
    return CUBLAS_STATUS_SUCCESS;
}

/* An attribute that is known in one value alone. */
template <class T> static cublasStatus_t set_only(T allowed, const void *from, size_t size_bytes)
{
    T value;
    cublasStatus_t status = set(&value, from, size_bytes);
    return status ? status : value == allowed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description,
                                        cublasComputeType_t compute, cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return create(description, Description{CUBLAS_OP_N, CUBLAS_OP_N});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description)
{
    delete description;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size_bytes)
{
    Description *d = inside<Description>(description);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->first_transposed, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->second_transposed, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
        return set_only((int32_t)CUBLAS_OP_N, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return set_only((int32_t)CUBLASLT_POINTER_MODE_HOST, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set_only((uint32_t)CUBLASLT_EPILOGUE_DEFAULT, value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return create(layout, Layout{type, rows, columns, ld, CUBLASLT_ORDER_COL, 1, 0});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size_bytes)
{
    Layout *l = inside<Layout>(layout);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(&l->order, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(&l->ld, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&l->batch, value, size_bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&l->step, value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return create(preference, Preference{0, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size_bytes)
{
    Preference *p = inside<Preference>(preference);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->work_bytes, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        /* the plugin must not split sums; the benchmark of products compares with what may */
        if (getenv("HST_FAKE_BLASLT_SPLIT"))
            return CUBLAS_STATUS_SUCCESS;
        return set_only((uint32_t)CUBLASLT_REDUCTION_SCHEME_NONE, value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&p->alignment[0], value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&p->alignment[1], value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&p->alignment[2], value, size_bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->alignment[3], value, size_bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

static float load(const Operand &o, size_t row, size_t column)
{
    size_t i = row * o.row_step + column * o.column_step;
    switch (o.type) {
    case CUDA_R_16BF:
        return static_cast<const __nv_bfloat16 *>(o.data)[i];
    case CUDA_R_16F:
        return static_cast<const __half *>(o.data)[i];
    default:
        return static_cast<const float *>(o.data)[i];
    }
}

static void store(const Operand &o, size_t row, size_t column, float value)
{
    size_t i = row * o.row_step + column * o.column_step;
    switch (o.type) {
    case CUDA_R_16BF:
        static_cast<__nv_bfloat16 *>(o.data)[i] = __float2bfloat16_rn(value);
        break;
    case CUDA_R_16F:
        static_cast<__half *>(o.data)[i] = __float2half_rn(value);
        break;
    default:
        static_cast<float *>(o.data)[i] = value;
    }
}

static const size_t TILE_ROWS = 256, TILE_COLUMNS = 4;

/* Sums of a tile, a column of it after another; `packed` is A, the rows of one k side by side. */
static void multiply_tile(const Product &p, const float *packed, const float *b, size_t row,
                          size_t rows, float sums[TILE_COLUMNS][TILE_ROWS])
{
    std::memset(sums, 0, sizeof(float) * TILE_COLUMNS * TILE_ROWS);
    for (size_t k = 0; k < p.depth; k++) {
        const float *a = packed + k * p.rows + row;
        for (size_t j = 0; j < TILE_COLUMNS; j++) {
            float factor = b[k * TILE_COLUMNS + j], *__restrict sum = sums[j];
            for (size_t i = 0; i < rows; i++)
                sum[i] += a[i] * factor;
        }
    }
}

static void finish_tile(const Product &p, size_t row, size_t rows, size_t column, size_t columns,
                        float sums[TILE_COLUMNS][TILE_ROWS])
{
    for (size_t j = 0; j < columns; j++)
        for (size_t i = 0; i < rows; i++) {
            float value = p.alpha * sums[j][i];
            if (p.beta != 0) /* C is not read otherwise */
                value += p.beta * load(p.c, row + i, column + j);
            store(p.d, row + i, column + j, value);
        }
}

static size_t size_of(const Operand &o)
{
    return o.type == CUDA_R_32F ? 4 : 2;
}

static void multiply_one(const Product &p)
{
    std::vector<float> packed(p.rows * p.depth), b(p.depth * TILE_COLUMNS);
    for (size_t k = 0; k < p.depth; k++)
        for (size_t i = 0; i < p.rows; i++)
            packed[k * p.rows + i] = load(p.a, i, k);
    float sums[TILE_COLUMNS][TILE_ROWS];
    for (size_t column = 0; column < p.columns; column += TILE_COLUMNS) {
        size_t columns = p.columns - column < TILE_COLUMNS ? p.columns - column : TILE_COLUMNS;
        for (size_t k = 0; k < p.depth; k++)
            for (size_t j = 0; j < TILE_COLUMNS; j++)
                b[k * TILE_COLUMNS + j] = j < columns ? load(p.b, k, column + j) : 0;
        for (size_t row = 0; row < p.rows; row += TILE_ROWS) {
            size_t rows = p.rows - row < TILE_ROWS ? p.rows - row : TILE_ROWS;
            multiply_tile(p, packed.data(), b.data(), row, rows, sums);
            finish_tile(p, row, rows, column, columns, sums);
        }
    }
}

static cudaError_t multiply(Product p)
{
    if (p.work) {
        size_t touched = p.work_bytes < WORK_TOUCHED ? p.work_bytes : (size_t)WORK_TOUCHED;
        std::memset(p.work, 0xff, touched);
        std::memset(p.work + p.work_bytes - touched, 0xff, touched);
    }
    for (size_t i = 0; i < p.batch; i++) {
        multiply_one(p);
        for (Operand *o : {&p.a, &p.b, &p.c, &p.d})
            o->data = static_cast<char *>(o->data) + o->step * size_of(*o);
    }
    return cudaSuccess;
}

/* ---- its arguments --------------------------------------------------------------------------- */

static const Layout *layout_of(cublasLtMatrixLayout_t layout)
{
    return inside<const Layout>(layout);
}

static bool is_whole(const Layout &l)
{
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.rows : l.columns;
    return l.rows && l.columns && l.ld > 0 && (uint64_t)l.ld >= lines && l.batch > 0 &&
           (l.order == CUBLASLT_ORDER_COL || l.order == CUBLASLT_ORDER_ROW);
}

/* Do the matrices of a batch lie apart? */
static bool is_apart(const Layout &l)
{
    uint64_t lines = l.order == CUBLASLT_ORDER_COL ? l.columns : l.rows;
    uint64_t line = l.order == CUBLASLT_ORDER_COL ? l.rows : l.columns;
    return l.batch == 1 || l.step >= (int64_t)((lines - 1) * (uint64_t)l.ld + line);
}

static Operand operand(const void *data, const Layout &l, bool transposed)
{
    size_t row_step = 1, column_step = (size_t)l.ld;
    if ((l.order == CUBLASLT_ORDER_ROW) != transposed)
        std::swap(row_step, column_step);
    return {const_cast<void *>(data), row_step, column_step, l.type, (size_t)l.step};
}

/* Writes the extents and the steps of *p; the pointers may be null. */
static cublasStatus_t describe(cublasLtMatmulDesc_t operation, const void *a,
                               cublasLtMatrixLayout_t a_layout, const void *b,
                               cublasLtMatrixLayout_t b_layout, const void *c,
                               cublasLtMatrixLayout_t c_layout, void *d,
                               cublasLtMatrixLayout_t d_layout, Product *p)
{
    const Layout &la = *layout_of(a_layout), &lb = *layout_of(b_layout);
    const Layout &lc = *layout_of(c_layout), &ld = *layout_of(d_layout);
    const Description &o = *inside<Description>(operation);
    if (!is_whole(la) || !is_whole(lb) || !is_whole(lc) || !is_whole(ld) || !is_apart(ld))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (la.batch != ld.batch || lb.batch != ld.batch || lc.batch != ld.batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    p->batch = (size_t)ld.batch;
    bool ta = o.first_transposed != CUBLAS_OP_N, tb = o.second_transposed != CUBLAS_OP_N;
    p->rows = ld.rows;
    p->columns = ld.columns;
    p->depth = ta ? la.rows : la.columns;
    if ((ta ? la.columns : la.rows) != p->rows || (tb ? lb.columns : lb.rows) != p->depth ||
        (tb ? lb.rows : lb.columns) != p->columns || lc.rows != ld.rows || lc.columns != ld.columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (la.type != lb.type || lc.type != ld.type || (ld.type != CUDA_R_32F && ld.type != la.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    p->a = operand(a, la, ta);
    p->b = operand(b, lb, tb);
    p->c = operand(c, lc, false);
    p->d = operand(d, ld, false);
    return CUBLAS_STATUS_SUCCESS;
}

static bool has_uneven_lines(const Layout &l, uint64_t alignment)
{
    uint64_t size = l.type == CUDA_R_32F ? 4 : 2;
    return alignment && ((uint64_t)l.ld * size % alignment || (uint64_t)l.step * size % alignment);
}

/* Is it one of those that the configuration has no algorithm for? */
static bool is_refused(const Product &p, const Layout *layouts[4])
{
    const uint64_t extents[3] = {p.rows, p.columns, p.depth};
    for (const hst::Refusal &refusal : hst::state().config.refusals) {
        bool matches = refusal.type == p.a.type;
        for (int i = 0; i < 3; i++)
            matches = matches && (!refusal.extent[i] || refusal.extent[i] == extents[i]);
        bool uneven = !refusal.alignment;
        for (int i = 0; i < 4; i++)
            uneven = uneven || has_uneven_lines(*layouts[i], refusal.alignment);
        if (matches && uneven)
            return true;
    }
    return false;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    Product p;
    *count = 0;
    if (!handle || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cublasStatus_t status = planned(__func__))
        return status;
    if (cublasStatus_t status =
            describe(operation, nullptr, a, nullptr, b, nullptr, c, nullptr, d, &p))
        return status;
    const Layout *layouts[4] = {layout_of(a), layout_of(b), layout_of(c), layout_of(d)};
    if (is_refused(p, layouts))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const Preference &wish = *inside<Preference>(preference);
    Algorithm chosen = {wish.work_bytes, {}, CHOSEN};
    std::memcpy(chosen.alignment, wish.alignment, sizeof chosen.alignment);
    results[0] = {};
    std::memcpy(results[0].algo.data, &chosen, sizeof chosen);
    results[0].workspaceSize = wish.work_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* C may be D itself, laid out alike. */
static bool is_in_place_otherwise(const Product &p)
{
    return p.c.data == p.d.data &&
           (p.c.row_step != p.d.row_step || p.c.column_step != p.d.column_step ||
            p.c.type != p.d.type || p.c.step != p.d.step);
}

/* Was the algorithm chosen for pointers and a workspace like these? */
static bool suits(const Algorithm &algorithm, const Product &p)
{
    const Operand *all[] = {&p.a, &p.b, &p.c, &p.d};
    for (int i = 0; i < 4; i++) {
        size_t alignment = algorithm.alignment[i];
        if (!alignment || (uintptr_t)all[i]->data % alignment ||
            all[i]->step * size_of(*all[i]) % alignment)
            return false;
    }
    return algorithm.chosen == CHOSEN && p.work_bytes >= algorithm.work_bytes &&
           (uintptr_t)p.work % WORK_ALIGNMENT_BYTES == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *work, size_t work_bytes, cudaStream_t stream)
{
    Product p;
    if (!handle || !algo)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cublasStatus_t status = planned(__func__))
        return status;
    if (cublasStatus_t status =
            describe(operation, a, a_layout, b, b_layout, c, c_layout, d, d_layout, &p))
        return status;
    p.alpha = *static_cast<const float *>(alpha);
    p.beta = *static_cast<const float *>(beta);
    p.work = static_cast<char *>(work);
    p.work_bytes = work_bytes;
    if (!suits(*inside<const Algorithm>(algo), p) || is_in_place_otherwise(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (hst::take_library_memory())
        return CUBLAS_STATUS_ALLOC_FAILED;
    std::shared_ptr<hst::Queue> queue = hst::queue_of(stream);
    if (queue && work_bytes)
        hst::use_workspace(queue.get(), p.work, work_bytes);
    if (hst::enter("cublasLtMatmul launch") ||
        hst::enqueue(stream, hst::Operation::work, [p] { return multiply(p); }))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return CUBLAS_STATUS_SUCCESS;
}
