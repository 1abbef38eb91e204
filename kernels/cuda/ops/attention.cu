/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention and its backward: chooses the kernels by shape and dtype alone, never by card,
 * so that results do not depend on it; sums delta = Σ dout·o, which both backwards begin with; and
 * cuts batches whose grids would be too large.
 *
 *   bf16, f16, head_dim 64, 96, 128   tensor cores
 *   bf16, f16, head_dim 256           tensor cores forward; backward dK and dV of even 16 keys a
 *                                     warp do not fit the registers: attention_any.cu
 *   all else                          attention_any.cu; a scale that is not above 0 too, as the
 *                                     tensor cores' softmax takes the greatest score before it
 *                                     scales
 *
 * Workspace: delta, f32[batch, heads, seq].
 */
#include "attention.h"

#include "launchers.h"

enum { ROWS_PER_BLOCK = 8, MAX_BLOCKS = 0x7fffffff, MAX_SEQ = 0x7fffffff - 4096 };

/* A warp per row of one head. */
template <class T>
static __global__ void __launch_bounds__(ROWS_PER_BLOCK * 32)
    k_attention_delta(struct hst_attention a, const T *dout, float *delta)
{
    size_t rows = a.batch * a.seq * a.heads, row = blockIdx.x * (size_t)ROWS_PER_BLOCK;
    for (row += threadIdx.x / 32; row < rows; row += (size_t)gridDim.x * ROWS_PER_BLOCK) {
        const T *x = dout + row * a.head_dim, *y = (const T *)a.o + row * a.head_dim;
        float sum = 0;
        for (size_t i = threadIdx.x % 32; i < a.head_dim; i += 32)
            sum += (float)x[i] * (float)y[i];
        for (int apart = 16; apart; apart /= 2)
            sum += __shfl_xor_sync(HST_FULL_WARP, sum, apart);
        size_t token = row / a.heads, head = row % a.heads;
        if (threadIdx.x % 32 == 0)
            delta[statistic_at(&a, token / a.seq, head) + token % a.seq] = sum;
    }
}

template <class T>
static cudaError_t sum_delta(cudaStream_t stream, const struct hst_attention_backward *args,
                             float *delta)
{
    const struct hst_attention *a = &args->forward;
    size_t blocks = (a->batch * a->seq * a->heads + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
    unsigned grid = blocks < MAX_BLOCKS ? (unsigned)blocks : MAX_BLOCKS;
    HST_LAUNCH((k_attention_delta<T>), grid, ROWS_PER_BLOCK * 32, 0, stream, *a,
               (const T *)args->dout, delta);
    return cudaGetLastError();
}

/* Sequences that one launch of any kernel may take; 0 where even one is too long for a grid. */
static size_t sequences_per_launch(const struct hst_attention *a)
{
    if (a->seq > MAX_SEQ || a->head_dim > MAX_SEQ)
        return 0;
    size_t per_head = (size_t)tiles_of(a->seq, 64) * tiles_of(a->head_dim, 64);
    return per_head > MAX_BLOCKS ? 0 : MAX_BLOCKS / per_head / a->heads;
}

/* `count` sequences from `first` on. */
static struct hst_attention part_of(const struct hst_attention *a, size_t first, size_t count)
{
    size_t bytes = a->dtype == HST_F32 ? 4 : 2;
    size_t q = first * a->seq * a->heads * a->head_dim * bytes;
    size_t kv = first * a->seq * a->kv_heads * a->head_dim * bytes;
    struct hst_attention part = *a;
    part.batch = count;
    part.q = (const char *)a->q + q;
    part.k = (const char *)a->k + kv;
    part.v = (const char *)a->v + kv;
    part.o = (char *)a->o + q;
    part.lse = a->lse + first * a->heads * a->seq;
    return part;
}

static bool tensor_cores(const struct hst_attention *a)
{
    return a->dtype != HST_F32 && a->scale > 0 &&
           (a->head_dim == 64 || a->head_dim == 96 || a->head_dim == 128);
}

extern "C" cudaError_t hst_cuda_attention(cudaStream_t stream, const struct hst_attention *args)
{
    size_t most = sequences_per_launch(args);
    if (!most && args->batch)
        return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    for (size_t first = 0; first < args->batch && error == cudaSuccess; first += most) {
        size_t left = args->batch - first;
        struct hst_attention part = part_of(args, first, left < most ? left : most);
        bool wide = part.dtype != HST_F32 && part.scale > 0 && part.head_dim == 256;
        error = tensor_cores(&part) || wide ? attention_tiled_forward(stream, &part)
                                            : attention_any_forward(stream, &part);
    }
    return error;
}

extern "C" cudaError_t hst_cuda_attention_backward(cudaStream_t stream,
                                                   const struct hst_attention_backward *args)
{
    const struct hst_attention *a = &args->forward;
    size_t most = sequences_per_launch(a), bytes = a->dtype == HST_F32 ? 4 : 2;
    if (!most && a->batch)
        return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    for (size_t first = 0; first < a->batch && error == cudaSuccess; first += most) {
        size_t left = a->batch - first;
        size_t q = first * a->seq * a->heads * a->head_dim * bytes, kv = q / a->heads * a->kv_heads;
        struct hst_attention_backward part = {part_of(a, first, left < most ? left : most),
                                              (const char *)args->dout + q, (char *)args->dq + q,
                                              (char *)args->dk + kv, (char *)args->dv + kv};
        float *delta = (float *)a->work.data + first * a->heads * a->seq;
        error = HST_BY_DTYPE(a->dtype, sum_delta, stream, &part, delta);
        if (error == cudaSuccess)
            error = tensor_cores(a) ? attention_tiled_backward(stream, &part, delta)
                                    : attention_any_backward(stream, &part, delta);
    }
    return error;
}

extern "C" size_t hst_cuda_attention_work_bytes(const struct hst_attention *args)
{
    return args->batch * args->heads * args->seq * sizeof(float);
}
