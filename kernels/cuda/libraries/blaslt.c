/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products. cuBLASLt counts in columns: a row-major C = op(A)·op(B) is, read that way,
 * Cᵀ = op(B)ᵀ·op(A)ᵀ, so that the operands change places and every "transposed" keeps its meaning.
 *
 * Results depend on shapes, values and what matrices are aligned to below 16 bytes alone: sums are
 * never split over K and joined afterwards (no reduction scheme), the workspace has one size, and
 * of the algorithms that remain the library's first is taken. What it names first is a function of
 * shape, alignment, card and library version; it is remembered only to save the question.
 */
#include "blaslt.h"
#include "cuda.h"
#include "library.h"
#include "work_bytes.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLANS = 256,
    PROBES = 8,
    CANDIDATES = 8,
    ALIGNMENT_BYTES = 16, /* of matrices, at most */
};

/* A product as cuBLASLt sees it: (rows × depth)·(depth × columns), column-major. No padding. */
struct shape {
    uint64_t rows, columns, depth, first_ld, second_ld, out_ld;
    uint64_t batch, first_step, second_step, out_step; /* 0: one product */
    uint64_t first_transposed, second_transposed, in_type, out_type, alignment_bytes;
};

struct plan {
    struct shape shape;
    bool used;
    cublasLtMatmulAlgo_t algo;
};

struct blaslt {
    struct blaslt_library library;
    cublasLtHandle_t handle;
    size_t work_bytes;
    pthread_mutex_t lock; /* guards plans */
    struct plan plans[PLANS];
};

/* The library's own descriptions of one shape. */
struct described {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, out;
};

static struct blaslt *blaslt_of(struct hst_dev *dev)
{
    return cuda_dev_of(dev)->blaslt;
}

int blaslt_create(unsigned compute_major, struct blaslt **blaslt, struct hst_dev_failure *failure)
{
    struct blaslt *b = calloc(1, sizeof *b);
    if (!b) {
        cuda_failure_set(failure, HST_DEV_MEMORY, 0, "no host memory for cuBLASLt's plans");
        return -ENOMEM;
    }
    int rc = blaslt_open(&b->library, failure);
    if (rc)
        goto err_free;
    cublasStatus_t status = b->library.cublasLtCreate(&b->handle);
    if (status) {
        bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
        cuda_failure_set(failure, memory ? HST_DEV_MEMORY : HST_DEV_LIBRARY, (int)status,
                         "cublasLtCreate of %.250s: %s", cuda_library_path(b->library.handle),
                         b->library.cublasLtGetStatusName(status));
        rc = memory ? -ENOMEM : -ENODEV;
        goto err_library;
    }
    b->work_bytes = work_products_bytes(compute_major);
    pthread_mutex_init(&b->lock, NULL);
    *blaslt = b;
    return 0;
err_library:
    blaslt_close(&b->library);
err_free:
    free(b);
    return rc;
}

void blaslt_destroy(struct blaslt **blaslt)
{
    struct blaslt *b = *blaslt;
    (void)b->library.cublasLtDestroy(b->handle);
    blaslt_close(&b->library);
    pthread_mutex_destroy(&b->lock);
    free(b);
    *blaslt = NULL;
}

void blaslt_version(const struct blaslt *blaslt, char *text, size_t size)
{
    size_t version = blaslt->library.cublasLtGetVersion();
    snprintf(text, size, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

const char *blaslt_file(const struct blaslt *blaslt)
{
    return cuda_library_path(blaslt->library.handle);
}

size_t blaslt_work_bytes(struct hst_dev *dev, const struct hst_matmul *args)
{
    (void)args;
    return blaslt_of(dev)->work_bytes + WORK_PRODUCTS_ALIGNMENT_BYTES;
}

static cudaDataType_t type_of(enum hst_dtype dtype)
{
    return dtype == HST_F32 ? CUDA_R_32F : dtype == HST_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static const char *type_name(uint64_t type)
{
    return type == CUDA_R_32F ? "f32" : type == CUDA_R_16BF ? "bf16" : "f16";
}

/* The largest power of two, up to 16, of which all matrices' places are multiples. */
static uint64_t alignment_of(const struct hst_matmul *args)
{
    uintptr_t places = (uintptr_t)args->a.data | (uintptr_t)args->b.data | (uintptr_t)args->c.data;
    return places % ALIGNMENT_BYTES ? places & -places : ALIGNMENT_BYTES;
}

static struct shape shape_of(const struct hst_matmul *args)
{
    bool batch = args->batch > 1;
    return (struct shape){.rows = args->n,
                          .columns = args->m,
                          .depth = args->k,
                          .first_ld = args->b.ld,
                          .second_ld = args->a.ld,
                          .out_ld = args->c.ld,
                          .batch = batch ? args->batch : 0,
                          .first_step = batch ? args->b_step : 0,
                          .second_step = batch ? args->a_step : 0,
                          .out_step = batch ? args->c_step : 0,
                          .first_transposed = args->b_transposed,
                          .second_transposed = args->a_transposed,
                          .in_type = type_of(args->a.dtype),
                          .out_type = type_of(args->c.dtype),
                          .alignment_bytes = alignment_of(args)};
}

static int failed(struct cuda_dev *dev, cublasStatus_t status, const struct shape *s,
                  const char *what)
{
    struct hst_dev_failure failure;
    cuda_failure_set(&failure, HST_DEV_EXECUTION, (int)status,
                     "GPU %d: matrix product m=%zu n=%zu k=%zu ld=%zu,%zu,%zu transposed=%zu,%zu "
                     "batch=%zu %s to %s, aligned to %zu: %s: %s",
                     dev->index, (size_t)s->columns, (size_t)s->rows, (size_t)s->depth,
                     (size_t)s->second_ld, (size_t)s->first_ld, (size_t)s->out_ld,
                     (size_t)s->second_transposed, (size_t)s->first_transposed,
                     s->batch ? (size_t)s->batch : 1, type_name(s->in_type), type_name(s->out_type),
                     (size_t)s->alignment_bytes, what,
                     dev->blaslt->library.cublasLtGetStatusName(status));
    cuda_failure_keep(dev, &failure);
    return status == CUBLAS_STATUS_NOT_SUPPORTED  ? -ENOTSUP
           : status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM
                                                  : -EIO;
}

static void undescribe(const struct blaslt_library *lib, struct described *d)
{
    if (d->out)
        (void)lib->cublasLtMatrixLayoutDestroy(d->out);
    if (d->second)
        (void)lib->cublasLtMatrixLayoutDestroy(d->second);
    if (d->first)
        (void)lib->cublasLtMatrixLayoutDestroy(d->first);
    if (d->operation)
        (void)lib->cublasLtMatmulDescDestroy(d->operation);
    *d = (struct described){0};
}

/* One of a product's three, as it lies in memory: a transposed one is described as it is, not as it
 * is used. */
struct lying {
    uint64_t type, extents[2], ld, step;
    bool transposed;
};

static cublasStatus_t describe_matrix(const struct blaslt_library *lib, struct lying x,
                                      uint64_t batch, cublasLtMatrixLayout_t *layout)
{
    const int32_t count = (int32_t)batch;
    const int64_t step = (int64_t)x.step;
    cublasStatus_t status =
        lib->cublasLtMatrixLayoutCreate(layout, (cudaDataType_t)x.type, x.extents[x.transposed],
                                        x.extents[!x.transposed], (int64_t)x.ld);
    if (status || !batch)
        return status;
    status = lib->cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &count, sizeof count);
    return status ? status
                  : lib->cublasLtMatrixLayoutSetAttribute(
                        *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static cublasStatus_t describe_matrices(const struct blaslt_library *lib, const struct shape *s,
                                        struct described *d)
{
    const struct {
        struct lying lying;
        cublasLtMatrixLayout_t *layout;
    } all[] = {
        {{s->in_type, {s->rows, s->depth}, s->first_ld, s->first_step, s->first_transposed},
         &d->first},
        {{s->in_type, {s->depth, s->columns}, s->second_ld, s->second_step, s->second_transposed},
         &d->second},
        {{s->out_type, {s->rows, s->columns}, s->out_ld, s->out_step, false}, &d->out},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        status = describe_matrix(lib, all[i].lying, s->batch, all[i].layout);
    return status;
}

static cublasStatus_t describe(const struct blaslt_library *lib, const struct shape *s,
                               struct described *d)
{
    cublasOperation_t first = s->first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s->second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    *d = (struct described){0};
    /* sums in f32, products of f32 in f32 (not in TF32), alpha and beta f32 */
    cublasStatus_t status =
        lib->cublasLtMatmulDescCreate(&d->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!status)
        status = lib->cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                     &first, sizeof first);
    if (!status)
        status = lib->cublasLtMatmulDescSetAttribute(d->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                     &second, sizeof second);
    if (!status)
        status = describe_matrices(lib, s, d);
    if (status)
        undescribe(lib, d);
    return status;
}

static cublasStatus_t prefer(const struct blaslt *b, const struct shape *shape,
                             cublasLtMatmulPreference_t preference)
{
    const uint32_t alignment = (uint32_t)shape->alignment_bytes;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint64_t most = b->work_bytes;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t size_bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes && !status; i++)
        status = b->library.cublasLtMatmulPreferenceSetAttribute(
            preference, wishes[i].attribute, wishes[i].value, wishes[i].size_bytes);
    return status;
}

/*
 * The one place where an algorithm is picked. Another choice (one that was measured) belongs here;
 * it must be the same in every run, or a resumed run would differ from one that went on.
 */
static cublasStatus_t choose_algo(struct blaslt *b, const struct shape *shape,
                                  const struct described *d, cublasLtMatmulAlgo_t *algo)
{
    const struct blaslt_library *lib = &b->library;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    cublasStatus_t status = lib->cublasLtMatmulPreferenceCreate(&preference);
    if (status)
        return status;
    status = prefer(b, shape, preference);
    if (!status)
        status = lib->cublasLtMatmulAlgoGetHeuristic(b->handle, d->operation, d->first, d->second,
                                                     d->out, d->out, preference, CANDIDATES, found,
                                                     &count);
    (void)lib->cublasLtMatmulPreferenceDestroy(preference);
    if (status)
        return status;
    for (int i = 0; i < count; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= b->work_bytes) {
            *algo = found[i].algo;
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static size_t slot_of(const struct shape *shape)
{
    const unsigned char *byte = (const unsigned char *)shape;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *shape; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return (hash >> 32) % PLANS;
}

/* The slot that holds the shape, or the one to put it in: a free one, else its first. */
static struct plan *find_plan(struct blaslt *b, const struct shape *shape)
{
    size_t first = slot_of(shape);
    for (size_t i = 0; i < PROBES; i++) {
        struct plan *plan = &b->plans[(first + i) % PLANS];
        if (!plan->used || memcmp(&plan->shape, shape, sizeof *shape) == 0)
            return plan;
    }
    b->plans[first].used = false;
    return &b->plans[first];
}

static cublasStatus_t algo_of(struct blaslt *b, const struct shape *shape,
                              const struct described *d, cublasLtMatmulAlgo_t *algo)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    pthread_mutex_lock(&b->lock);
    struct plan *plan = find_plan(b, shape);
    if (!plan->used) {
        status = choose_algo(b, shape, d, &plan->algo);
        plan->shape = *shape;
        plan->used = !status;
    }
    if (!status)
        *algo = plan->algo;
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* An empty sum: C is 0, or stays. Lines of C beyond n belong to the caller. */
static cudaError_t empty_sum(cudaStream_t stream, const struct hst_matmul *args)
{
    size_t bytes = args->c.dtype == HST_F32 ? 4 : 2;
    bool dense = args->c.ld == args->n || args->m == 1;
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; !args->accumulate && i < (args->batch ? args->batch : 1) && !error; i++) {
        void *c = (char *)args->c.data + i * args->c_step * bytes;
        error = dense
                    ? cudaMemsetAsync(c, 0, args->m * args->n * bytes, stream)
                    : cudaMemset2DAsync(c, args->c.ld * bytes, 0, args->n * bytes, args->m, stream);
    }
    return error;
}

static int multiply(struct hst_stream *stream, const struct hst_matmul *args)
{
    struct cuda_dev *dev = cuda_dev_of(stream->dev);
    struct blaslt *b = dev->blaslt;
    const struct shape shape = shape_of(args);
    struct described d;
    cublasLtMatmulAlgo_t algo;
    cublasStatus_t status = describe(&b->library, &shape, &d);
    if (status)
        return failed(dev, status, &shape, "described");
    status = algo_of(b, &shape, &d, &algo);
    if (status) {
        undescribe(&b->library, &d);
        return failed(dev, status, &shape, "choice of an algorithm");
    }
    uintptr_t work = (uintptr_t)args->work.data;
    work = (work + WORK_PRODUCTS_ALIGNMENT_BYTES - 1) / WORK_PRODUCTS_ALIGNMENT_BYTES *
           WORK_PRODUCTS_ALIGNMENT_BYTES;
    const float alpha = 1, beta = args->accumulate ? 1 : 0;
    status = b->library.cublasLtMatmul(b->handle, d.operation, &alpha, args->b.data, d.first,
                                       args->a.data, d.second, &beta, args->c.data, d.out,
                                       args->c.data, d.out, &algo, (void *)work, b->work_bytes,
                                       cuda_stream_native(stream));
    undescribe(&b->library, &d);
    return status ? cuda_stream_fail(stream, failed(dev, status, &shape, "cublasLtMatmul")) : 0;
}

int blaslt_matmul(struct hst_stream *stream, const struct hst_matmul *args)
{
    int rc = cuda_stream_begin(stream);
    if (rc || !args->m || !args->n)
        return rc;
    if (!args->k)
        return cuda_stream_end(stream, empty_sum(cuda_stream_native(stream), args), "matmul");
    return multiply(stream, args);
}
