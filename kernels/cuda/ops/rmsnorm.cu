/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSNorm, with or without a residual. Bytes moved per element in bf16: 4 (x read, y written), with
 * a residual 8. A row of whole vectors that fits is read once and held in registers between the sum
 * and the scaling; any other row is read twice, the second time from a cache.
 *
 * Fused products are written out: with and without a residual the same operations run on the same
 * numbers, whatever the compiler would have fused.
 */
#include "launchers.h"
#include "reduce.h"

enum {
    ROW_THREADS = 1024, /* at most, for one row */
    HELD = 4,           /* vectors that a thread holds */
    WARPS = 8,          /* rows of a block where a warp does a row */
};

/* x + residual, rounded, is written to sum and goes on in x's place. */
template <typename T, int N>
static __device__ __forceinline__ void add_residual(pack<T, N> &x, const pack<T, N> &residual,
                                                    T *sum)
{
    float v[N], r[N];
    unpack(x, v);
    unpack(residual, r);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        v[i] += r[i];
    fill(x, v);
    store(sum, x);
}

template <typename T, int N>
static __device__ __forceinline__ float add_squares(const pack<T, N> &x, float sum)
{
    float v[N];
    unpack(x, v);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        sum = fmaf(v[i], v[i], sum);
    return sum;
}

static __device__ __forceinline__ float rstd_of(float sum, size_t width, float eps)
{
    return 1.0f / sqrtf(sum / (float)width + eps);
}

template <typename T, int N>
static __device__ __forceinline__ void scale(const pack<T, N> &x, float rstd, const T *weight, T *y)
{
    float v[N], w[N];
    unpack(x, v);
    load_f32(weight, w);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        v[i] = v[i] * rstd * w[i];
    store_f32(y, v);
}

/*
 * A row per blockDim.x threads, each of which holds H vectors. All reads of a row are issued before
 * its first write. At most 64 registers: 1,024 threads of a multiprocessor, 64 KB under way, where
 * an H200 needs some 30.
 */
template <typename T, int H>
static __global__ void __launch_bounds__(ROW_THREADS) k_rmsnorm(struct hst_rmsnorm a)
{
    __shared__ float scratch[32];
    constexpr int N = WIDE<T>;
    const unsigned vectors = (unsigned)(a.width / N); /* at most ROW_THREADS·H */
    const size_t rows = (size_t)gridDim.x * blockDim.y;
    for (size_t t = (size_t)blockIdx.x * blockDim.y + threadIdx.y; t < a.tokens; t += rows) {
        const size_t row = t * a.width;
        pack<T, N> x[H], residual[H];
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            unsigned i = threadIdx.x + h * blockDim.x;
            if (i < vectors)
                x[h] = load<N>((const T *)a.x + row + i * N);
            if (i < vectors && a.residual)
                residual[h] = load<N>((const T *)a.residual + row + i * N);
        }
        float square = 0;
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            unsigned i = threadIdx.x + h * blockDim.x;
            if (i < vectors && a.residual)
                add_residual(x[h], residual[h], (T *)a.sum + row + i * N);
            if (i < vectors)
                square = add_squares(x[h], square);
        }
        float rstd = rstd_of(row_sum(square, scratch), a.width, a.eps);
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            unsigned i = threadIdx.x + h * blockDim.x;
            if (i < vectors)
                scale(x[h], rstd, (const T *)a.weight + i * N, (T *)a.y + row + i * N);
        }
        if (threadIdx.x == 0)
            a.rstd[t] = rstd;
    }
}

/* The same for any row: a thread comes back to its own elements, so y may be x here too. */
template <typename T, int N>
static __global__ void __launch_bounds__(ROW_THREADS) k_rmsnorm_twice(struct hst_rmsnorm a)
{
    __shared__ float scratch[32];
    for (size_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
        const size_t row = t * a.width;
        const T *from = (const T *)(a.sum ? a.sum : a.x) + row;
        float square = 0;
        for (size_t i = threadIdx.x * (size_t)N; i < a.width; i += (size_t)blockDim.x * N) {
            pack<T, N> x = load<N>((const T *)a.x + row + i);
            if (a.sum)
                add_residual(x, load<N>((const T *)a.residual + row + i), (T *)a.sum + row + i);
            square = add_squares(x, square);
        }
        float rstd = rstd_of(row_sum(square, scratch), a.width, a.eps);
        for (size_t i = threadIdx.x * (size_t)N; i < a.width; i += (size_t)blockDim.x * N)
            scale(load<N>(from + i), rstd, (const T *)a.weight + i, (T *)a.y + row + i);
        if (threadIdx.x == 0)
            a.rstd[t] = rstd;
    }
}

template <typename T, int H>
static void launch_held(cudaStream_t stream, const struct hst_rmsnorm *a, size_t vectors)
{
    unsigned threads = threads_of((vectors + H - 1) / H, ROW_THREADS);
    unsigned rows = threads == 32 ? WARPS : 1;
    HST_LAUNCH((k_rmsnorm<T, H>), grid_of(a->tokens, rows), dim3(threads, rows), 0, stream, *a);
}

template <typename T> static cudaError_t rmsnorm(cudaStream_t stream, const struct hst_rmsnorm *a)
{
    constexpr int N = WIDE<T>;
    const size_t vectors = a->width / N;
    if (a->width % N)
        HST_LAUNCH((k_rmsnorm_twice<T, 1>), grid_of(a->tokens, 1),
                   threads_of(a->width, ROW_THREADS), 0, stream, *a);
    else if (vectors > (size_t)ROW_THREADS * HELD)
        HST_LAUNCH((k_rmsnorm_twice<T, N>), grid_of(a->tokens, 1), ROW_THREADS, 0, stream, *a);
    else if (vectors > 32)
        launch_held<T, HELD>(stream, a, vectors);
    else
        launch_held<T, 1>(stream, a, vectors);
    return cudaGetLastError();
}

cudaError_t hst_cuda_rmsnorm(cudaStream_t stream, const struct hst_rmsnorm *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, rmsnorm, stream, args);
}
