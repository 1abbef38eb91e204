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
#include "work_bytes.h"

enum { DELTA_THREADS = 256, AHEAD = 4, MAX_BLOCKS = 0x7fffffff, MAX_SEQ = 0x7fffffff - 4096 };

template <class T, int N>
static __device__ __forceinline__ void add_products(const pack<T, N> &x, const pack<T, N> &y,
                                                    float (&sum)[N])
{
    float u[N], v[N];
    unpack(x, u);
    unpack(y, v);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        sum[i] += u[i] * v[i];
}

/*
 * Σ x·y over a row, as 32 chains of sums: element i is in chain i mod 32, and chains are added in
 * pairs 16, 8, 4, 2 and 1 apart. A thread has N neighbour chains, so that it reads N elements at
 * once and 32 / N threads are a row: the same sums for every N. All threads of the warp take part.
 */
template <class T, int N>
static __device__ __forceinline__ float row_product(const T *x, const T *y, size_t count)
{
    float sum[N] = {};
    for (size_t first = threadIdx.x % (32 / N) * N; first < count; first += AHEAD * 32) {
        pack<T, N> u[AHEAD], v[AHEAD];
        HST_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < count) {
                u[k] = load<N>(x + first + k * 32);
                v[k] = load<N>(y + first + k * 32);
            }
        HST_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (first + k * 32 < count)
                add_products(u[k], v[k], sum);
    }
    HST_UNROLL
    for (int apart = 16; apart >= N; apart /= 2) {
        HST_UNROLL
        for (int j = 0; j < N; j++)
            sum[j] += __shfl_xor_sync(HST_FULL_WARP, sum[j], apart / N);
    }
    HST_UNROLL
    for (int apart = N / 2; apart; apart /= 2) {
        HST_UNROLL
        for (int j = 0; j < apart; j++)
            sum[j] += sum[j + apart];
    }
    return sum[0];
}

/* A block has neighbour tokens of one head, whose deltas lie together; grids count heads first,
 * whose rows lie together. */
template <class T, int N>
static __global__ void __launch_bounds__(DELTA_THREADS)
    k_attention_delta(struct hst_attention a, const T *dout, float *delta)
{
    constexpr unsigned LANES = 32 / N, TOKENS = DELTA_THREADS / LANES;
    for (size_t sequence = blockIdx.z; sequence < a.batch; sequence += gridDim.z)
        for (size_t head = blockIdx.x; head < a.heads; head += gridDim.x)
            for (size_t first = blockIdx.y * (size_t)TOKENS; first < a.seq;
                 first += gridDim.y * (size_t)TOKENS) {
                size_t token = first + threadIdx.x / LANES;
                size_t at = ((sequence * a.seq + token) * a.heads + head) * a.head_dim;
                float sum = row_product<T, N>(dout + at, (const T *)a.o + at,
                                              token < a.seq ? a.head_dim : 0);
                if (threadIdx.x % LANES == 0 && token < a.seq)
                    delta[statistic_at(&a, sequence, head) + token] = sum;
            }
}

template <class T, int N>
static cudaError_t sum_delta_by(cudaStream_t stream, const struct hst_attention_backward *args,
                                float *delta)
{
    const struct hst_attention *a = &args->forward;
    dim3 grid(grid_of(a->heads, 1), grid_side_of(a->seq, DELTA_THREADS * N / 32),
              grid_side_of(a->batch, 1));
    HST_LAUNCH((k_attention_delta<T, N>), grid, DELTA_THREADS, 0, stream, *a, (const T *)args->dout,
               delta);
    return cudaGetLastError();
}

template <class T>
static cudaError_t sum_delta(cudaStream_t stream, const struct hst_attention_backward *args,
                             float *delta)
{
    return args->forward.head_dim % WIDE<T> ? sum_delta_by<T, 1>(stream, args, delta)
                                            : sum_delta_by<T, WIDE<T>>(stream, args, delta);
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
    part.first = a->first ? a->first + first * a->seq : nullptr;
    part.window = a->window < a->seq ? a->window : 0;
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
    return work_attention_bytes(args->batch, args->heads, args->seq);
}
