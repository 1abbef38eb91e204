/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSNorm's backward. Bytes moved per element in bf16: 6 (x and dy read, dx written), 8 where dx
 * accumulates. dweight sums over tokens: a block takes some rows in order and keeps its columns'
 * sums in registers, leaves them in the workspace, and a second kernel adds those in order. How
 * rows are cut depends on the shape alone, so the bits are the same on every card; the sums are
 * 8 MB at most up to a width of 4,096, which a large card's cache holds.
 */
#include "launchers.h"
#include "reduce.h"
#include "sums.h"
#include "work_bytes.h"

enum {
    HELD = 2, /* vectors of each operand that a thread holds */
    ROW_THREADS = 1024,
};
static const size_t ROWS_LEAST = WORK_NORM_ROWS_LEAST;
static const size_t BLOCKS_LEAST = WORK_NORM_BLOCKS_LEAST, BLOCKS_MOST = 4096;
static const size_t SUMS = WORK_NORM_SUMS;

/* Rows of a block: 512 blocks, which large cards run all at once; more where rows are short. */
static size_t rows_of(size_t tokens, size_t width)
{
    size_t blocks = SUMS / width;
    blocks = blocks < BLOCKS_LEAST ? BLOCKS_LEAST : blocks > BLOCKS_MOST ? BLOCKS_MOST : blocks;
    size_t rows = (tokens + blocks - 1) / blocks;
    return rows < ROWS_LEAST ? ROWS_LEAST : rows;
}

size_t hst_cuda_rmsnorm_backward_work_bytes(size_t tokens, size_t width)
{
    return work_rmsnorm_backward_bytes(tokens, width);
}

/* Σ weight·dy·x of one vector, added to sum. */
template <typename T, int N>
static __device__ __forceinline__ float add_product(const pack<T, N> &x, const pack<T, N> &dy,
                                                    const T *weight, float sum)
{
    float v[N], d[N], w[N];
    unpack(x, v);
    unpack(dy, d);
    load_f32(weight, w);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        sum = fmaf(w[i] * d[i], v[i], sum);
    return sum;
}

struct row_factors {
    float rstd, along; /* along = rstd²·mean(weight·dy·x) */
};

static __device__ __forceinline__ struct row_factors factors_of(float product, float rstd,
                                                                size_t width)
{
    return {rstd, rstd * rstd * (product / (float)width)};
}

/* dx of one vector, and its part of dweight added to sum. */
template <typename T, int N>
static __device__ __forceinline__ void finish(const pack<T, N> &x, const pack<T, N> &dy,
                                              const T *weight, struct row_factors f,
                                              const pack<T, N> *old, T *dx, float (&sum)[N])
{
    float v[N], d[N], w[N], g[N];
    unpack(x, v);
    unpack(dy, d);
    load_f32(weight, w);
    HST_UNROLL
    for (int i = 0; i < N; i++) {
        sum[i] = fmaf(d[i], v[i] * f.rstd, sum[i]);
        g[i] = (w[i] * d[i] - v[i] * f.along) * f.rstd;
    }
    if (old) {
        unpack(*old, v);
        HST_UNROLL
        for (int i = 0; i < N; i++)
            g[i] += v[i];
    }
    store_f32(dx, g);
}

template <int N> static __device__ __forceinline__ void store_sums(float *to, const float (&sum)[N])
{
    HST_UNROLL
    for (int i = 0; i < N; i += 4)
        store_f32(to + i, {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]});
}

/*
 * One block, one run of rows; a thread has two vectors of each row and their sums. Held to 64
 * registers: 1,024 threads share a multiprocessor (four blocks at a width of 4,096 in bf16), with
 * 64 KB under way, 96 where dx accumulates.
 */
template <typename T, int THREADS, bool ACCUMULATE>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    k_rmsnorm_backward(struct hst_rmsnorm_backward a, size_t rows)
{
    __shared__ float scratch[32];
    constexpr int N = WIDE<T>, H = HELD;
    const unsigned vectors = (unsigned)(a.width / N);
    const size_t begin = blockIdx.x * rows;
    const unsigned count = (unsigned)(a.tokens - begin < rows ? a.tokens - begin : rows);
    float sum[H][N] = {};
    for (unsigned r = 0; r < count; r++) {
        const size_t t = begin + r, first = t * a.width + threadIdx.x * N;
        pack<T, N> x[H], dy[H], old[H];
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            const size_t at = first + h * blockDim.x * N;
            if (threadIdx.x + h * blockDim.x < vectors) {
                x[h] = load<N>((const T *)a.x + at);
                dy[h] = load<N>((const T *)a.dy + at);
                if (ACCUMULATE)
                    old[h] = load<N>((const T *)a.dx + at);
            }
        }
        float rstd = a.rstd[t], product = 0;
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            unsigned i = threadIdx.x + h * blockDim.x;
            if (i < vectors)
                product = add_product(x[h], dy[h], (const T *)a.weight + i * N, product);
        }
        struct row_factors f = factors_of(row_sum(product, scratch), rstd, a.width);
        HST_UNROLL
        for (int h = 0; h < H; h++) {
            unsigned i = threadIdx.x + h * blockDim.x;
            if (i < vectors)
                finish(x[h], dy[h], (const T *)a.weight + i * N, f, ACCUMULATE ? &old[h] : NULL,
                       (T *)a.dx + first + h * blockDim.x * N, sum[h]);
        }
    }
    float *sums = (float *)a.work.data + blockIdx.x * a.width;
    HST_UNROLL
    for (int h = 0; h < H; h++) {
        unsigned i = threadIdx.x + h * blockDim.x;
        if (i < vectors)
            store_sums(sums + i * N, sum[h]);
    }
}

/*
 * Any width: rows are read twice and the sums are kept in the workspace, where a thread comes back
 * to its own columns. For widths that are not whole vectors or beyond what a block holds.
 */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    k_rmsnorm_backward_twice(struct hst_rmsnorm_backward a, size_t rows)
{
    __shared__ float scratch[32];
    const T *weight = (const T *)a.weight;
    const size_t begin = blockIdx.x * rows;
    const size_t end = a.tokens - begin < rows ? a.tokens : begin + rows;
    float *sums = (float *)a.work.data + blockIdx.x * a.width;
    for (size_t t = begin; t < end; t++) {
        const T *x = (const T *)a.x + t * a.width, *dy = (const T *)a.dy + t * a.width;
        T *dx = (T *)a.dx + t * a.width;
        float product = 0;
        for (size_t i = threadIdx.x; i < a.width; i += blockDim.x)
            product = add_product(load<1>(x + i), load<1>(dy + i), weight + i, product);
        struct row_factors f = factors_of(row_sum(product, scratch), a.rstd[t], a.width);
        for (size_t i = threadIdx.x; i < a.width; i += blockDim.x) {
            float sum[1] = {t == begin ? 0.0f : sums[i]};
            pack<T, 1> old = load<1>(dx + i);
            finish(load<1>(x + i), load<1>(dy + i), weight + i, f, a.accumulate ? &old : NULL,
                   dx + i, sum);
            sums[i] = sum[0];
        }
    }
}

template <typename T, int THREADS>
static void launch_held(cudaStream_t stream, const struct hst_rmsnorm_backward *a, unsigned blocks,
                        size_t rows)
{
    unsigned threads = threads_of((a->width / WIDE<T> + HELD - 1) / HELD, THREADS);
    if (a->accumulate)
        HST_LAUNCH((k_rmsnorm_backward<T, THREADS, true>), blocks, threads, 0, stream, *a, rows);
    else
        HST_LAUNCH((k_rmsnorm_backward<T, THREADS, false>), blocks, threads, 0, stream, *a, rows);
}

template <typename T>
static cudaError_t rmsnorm_backward(cudaStream_t stream, const struct hst_rmsnorm_backward *a)
{
    const size_t rows = rows_of(a->tokens, a->width);
    const unsigned blocks = (unsigned)((a->tokens + rows - 1) / rows);
    const size_t vectors = a->width / WIDE<T>;
    if (a->width % WIDE<T> || vectors > (size_t)ROW_THREADS * HELD)
        HST_LAUNCH((k_rmsnorm_backward_twice<T>), blocks, threads_of(a->width, ROW_THREADS), 0,
                   stream, *a, rows);
    else if (vectors > (size_t)256 * HELD)
        launch_held<T, ROW_THREADS>(stream, a, blocks, rows);
    else
        launch_held<T, 256>(stream, a, blocks, rows);
    cudaError_t error = cudaGetLastError();
    if (error || !a->dweight)
        return error;
    return add_sums(stream, (const float *)a->work.data, blocks, a->width, a->dweight);
}

cudaError_t hst_cuda_rmsnorm_backward(cudaStream_t stream, const struct hst_rmsnorm_backward *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, rmsnorm_backward, stream, args);
}
