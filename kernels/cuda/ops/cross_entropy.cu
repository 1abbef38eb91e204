/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy, a block per row. One pass finds the maximum and the sum of exponentials together,
 * the second writes the gradient in place. Bytes moved per element in bf16: 2 for the loss, 6 with
 * the gradient, of which 2 come from the cache where the rows in work fit there: one block of 1,024
 * threads per multiprocessor has 34 MB of Llama's rows in work on an H200 of 50, and the second
 * pass runs backwards, meeting first what was read last.
 *
 * The order of the sum depends on the length of the row alone. A row that is not whole vectors does
 * not begin at a multiple of 16 bytes either, so its first pass goes by single elements, 16 under
 * way per thread, wherever it lies; the gradient, which has no order, goes by vectors between the
 * row's first and last aligned places.
 */
#include "launchers.h"
#include "reduce.h"
#include <math.h>

enum { THREADS = 1024 };

/* Σ e^(x − top) of some numbers, and their maximum; sum is 0 where there are none. */
struct soft {
    float top, sum;
};

/* What is taken from numbers before exp: −∞ − −∞ would be a NaN where only −∞ was met. */
static __device__ __forceinline__ float base_of(float top)
{
    return top == -INFINITY ? 0.0f : top;
}

static __device__ __forceinline__ struct soft soft_join(struct soft a, struct soft b)
{
    float top = fmaxf(a.top, b.top), base = base_of(top);
    return {top, a.sum * __expf(a.top - base) + b.sum * __expf(b.top - base)};
}

/* K more numbers: one exp each, and one for what was summed before. */
template <int K>
static __device__ __forceinline__ void soft_add(struct soft &s, const float (&x)[K])
{
    float top = s.top;
    HST_UNROLL
    for (int i = 0; i < K; i++)
        top = fmaxf(top, x[i]);
    float base = base_of(top), sum = 0;
    HST_UNROLL
    for (int i = 0; i < K; i++)
        sum += __expf(x[i] - base);
    s.sum = s.sum * __expf(s.top - base) + sum;
    s.top = top;
}

static __device__ __forceinline__ struct soft warp_join(struct soft s)
{
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
        struct soft other = {__shfl_xor_sync(HST_FULL_WARP, s.top, distance),
                             __shfl_xor_sync(HST_FULL_WARP, s.sum, distance)};
        s = soft_join(s, other);
    }
    return s;
}

/* Over the block; every thread gets the result. */
static __device__ __forceinline__ struct soft block_join(struct soft s)
{
    __shared__ float top[32], sum[32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    s = warp_join(s);
    if (lane == 0) {
        top[warp] = s.top;
        sum[warp] = s.sum;
    }
    __syncthreads();
    s = lane < blockDim.x / 32 ? soft{top[lane], sum[lane]} : soft{-INFINITY, 0.0f};
    s = warp_join(s);
    __syncthreads();
    return s;
}

/* One thread's part of a row: U vectors of N at a time, then one at a time. */
template <typename T, int N, int U>
static __device__ __forceinline__ struct soft soft_of(const T *row, size_t vocab)
{
    const size_t vectors = vocab / N, step = blockDim.x;
    struct soft s = {-INFINITY, 0.0f};
    size_t i = threadIdx.x;
    for (; i + (U - 1) * step < vectors; i += U * step) {
        pack<T, N> p[U];
        HST_UNROLL
        for (int u = 0; u < U; u++)
            p[u] = load<N>(row + (i + u * step) * N);
        HST_UNROLL
        for (int u = 0; u < U; u++) {
            float x[N];
            unpack(p[u], x);
            soft_add(s, x);
        }
    }
    for (; i < vectors; i += step) {
        float x[N];
        load_f32(row + i * N, x);
        soft_add(s, x);
    }
    return s;
}

template <typename T, int N>
static __device__ __forceinline__ void gradient(T *at, pack<T, N> p, float base, float factor)
{
    float x[N];
    unpack(p, x);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        x[i] = __expf(x[i] - base) * factor;
    store_f32(at, x);
}

/* The row's softmax times factor, from its end: vectors where memory allows, else elements. */
template <typename T>
static __device__ __forceinline__ void gradient_row(T *row, size_t vocab, float base, float factor)
{
    enum { N = WIDE<T>, UNROLL = 4 };
    const size_t unaligned = (16 - (uintptr_t)row % 16) % 16 / sizeof(T), step = blockDim.x;
    const size_t head = unaligned < vocab ? unaligned : vocab;
    const size_t vectors = (vocab - head) / N, tail = head + vectors * N;
    for (size_t i = tail + threadIdx.x; i < vocab; i += step)
        gradient(row + i, load<1>(row + i), base, factor);
    for (size_t first = threadIdx.x; first < vectors; first += UNROLL * step) {
        pack<T, N> p[UNROLL];
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++)
            if (first + u * step < vectors)
                p[u] = load<N>(row + tail - (first + u * step + 1) * N);
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++)
            if (first + u * step < vectors)
                gradient(row + tail - (first + u * step + 1) * N, p[u], base, factor);
    }
    for (size_t i = threadIdx.x; i < head; i += step)
        gradient(row + i, load<1>(row + i), base, factor);
}

/* At most 64 registers; more than 32, so that rows in work stay one per multiprocessor. */
template <typename T, int N, int U>
static __global__ void __launch_bounds__(THREADS, 1) k_cross_entropy(struct hst_cross_entropy a)
{
    for (size_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
        T *row = (T *)a.logits + t * a.vocab;
        const uint32_t target = a.targets[t];
        const bool known = target < a.vocab;
        float aimed[1] = {NAN};
        if (known)
            load_f32(row + target, aimed);
        struct soft s = block_join(soft_of<T, N, U>(row, a.vocab));
        float away = aimed[0] - s.top;
        if (threadIdx.x == 0)
            a.loss[t] = logf(s.sum) - away;
        if (!a.want_grad)
            continue;
        gradient_row(row, a.vocab, s.top, known ? a.grad_scale / s.sum : NAN);
        __syncthreads();
        if (threadIdx.x == 0 && known) {
            float to[1] = {a.grad_scale * (__expf(away) / s.sum - 1.0f)};
            store_f32(row + target, to);
        }
    }
}

template <typename T>
static cudaError_t cross_entropy(cudaStream_t stream, const struct hst_cross_entropy *a)
{
    constexpr int N = WIDE<T>;
    const unsigned grid = grid_of(a->tokens, 1);
    if (a->vocab % N)
        HST_LAUNCH((k_cross_entropy<T, 1, 16>), grid, threads_of(a->vocab, THREADS), 0, stream, *a);
    else
        HST_LAUNCH((k_cross_entropy<T, N, 4>), grid, threads_of(a->vocab / N, THREADS), 0, stream,
                   *a);
    return cudaGetLastError();
}

cudaError_t hst_cuda_cross_entropy(cudaStream_t stream, const struct hst_cross_entropy *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, cross_entropy, stream, args);
}
