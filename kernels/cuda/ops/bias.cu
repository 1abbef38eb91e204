/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear layer's bias and its backward. Bytes moved per element in bf16: 4 (x read and written),
 * the backward 2 (dy read). A block has some columns and every so many rows; a thread keeps its
 * columns' bias, or their sums, in registers.
 *
 * dbias sums over tokens as RMSNorm's dweight does: a block's threads take rows in order, meet in
 * order, and leave a row of sums in the workspace. How rows are cut depends on the shape alone.
 */
#include "launchers.h"
#include "sums.h"
#include "work_bytes.h"

enum {
    COLUMNS = 32, /* threads of a block: vectors of a row, … */
    ROWS = 8,     /* … and rows at a time */
    AHEAD = 2,    /* rows that a thread reads before it writes one */
};
static const size_t BLOCK_ROWS = WORK_BIAS_ROWS, BLOCKS_MOST = WORK_BIAS_BLOCKS_MOST;

template <typename T, int N>
static __device__ __forceinline__ void add_to(T *x, const pack<T, N> &old, const float (&bias)[N])
{
    float v[N];
    unpack(old, v);
    HST_UNROLL
    for (int k = 0; k < N; k++)
        v[k] += bias[k];
    store_f32(x, v);
}

template <typename T, int N>
static __global__ void __launch_bounds__(COLUMNS *ROWS) k_bias(struct hst_bias a)
{
    const size_t vectors = a.width / N, step = (size_t)gridDim.y * ROWS;
    for (size_t i = blockIdx.x * (size_t)COLUMNS + threadIdx.x; i < vectors;
         i += gridDim.x * (size_t)COLUMNS) {
        float bias[N];
        load_f32((const T *)a.bias + i * N, bias);
        for (size_t t = blockIdx.y * (size_t)ROWS + threadIdx.y; t < a.tokens; t += AHEAD * step) {
            pack<T, N> old[AHEAD];
            HST_UNROLL
            for (int u = 0; u < AHEAD; u++)
                if (t + u * step < a.tokens)
                    old[u] = load<N>((const T *)a.x + (t + u * step) * a.width + i * N);
            HST_UNROLL
            for (int u = 0; u < AHEAD; u++)
                if (t + u * step < a.tokens)
                    add_to((T *)a.x + (t + u * step) * a.width + i * N, old[u], bias);
        }
    }
}

/* Rows of a block; as many blocks as BLOCKS_MOST, or fewer. */
static size_t rows_of(size_t tokens)
{
    size_t rows = (tokens + BLOCKS_MOST - 1) / BLOCKS_MOST;
    return rows < BLOCK_ROWS ? BLOCK_ROWS : rows;
}

/* No less for more tokens. */
size_t hst_cuda_bias_backward_work_bytes(size_t tokens, size_t width)
{
    return work_bias_backward_bytes(tokens, width);
}

template <typename T, int N>
static __global__ void __launch_bounds__(COLUMNS *ROWS)
    k_bias_backward(struct hst_bias_backward a, size_t rows)
{
    /* Columns of a vector lie apart, so that few lanes meet in a bank. */
    constexpr int APART = COLUMNS + 4;
    __shared__ float part[ROWS][APART * N];
    const size_t vectors = a.width / N, begin = blockIdx.y * rows;
    const size_t end = a.tokens - begin < rows ? a.tokens : begin + rows;
    float *sums = (float *)a.work.data + blockIdx.y * a.width;
    for (size_t first = blockIdx.x * (size_t)COLUMNS; first < vectors;
         first += gridDim.x * (size_t)COLUMNS) {
        const size_t i = first + threadIdx.x;
        float v[N], sum[N] = {};
        HST_UNROLL_BY(4)
        for (size_t t = begin + threadIdx.y; t < end && i < vectors; t += ROWS) {
            load_f32((const T *)a.dy + t * a.width + i * N, v);
            HST_UNROLL
            for (int k = 0; k < N; k++)
                sum[k] += v[k];
        }
        HST_UNROLL
        for (int k = 0; k < N; k++)
            part[threadIdx.y][k * APART + threadIdx.x] = sum[k];
        __syncthreads();
        const unsigned column = threadIdx.y * COLUMNS + threadIdx.x;
        if (column < COLUMNS * N && first * N + column < a.width) {
            float total = 0;
            for (int r = 0; r < ROWS; r++)
                total += part[r][column % N * APART + column / N];
            sums[first * N + column] = total;
        }
        __syncthreads();
    }
}

/* Blocks beside each other of a row, and of so many blocks of rows; the interpreter's small grids
 * have none beside each other. */
static dim3 grid_over(size_t vectors, size_t blocks)
{
    return dim3(grid_of(vectors, COLUMNS), (unsigned)blocks);
}

template <typename T, int N> static void launch_bias(cudaStream_t stream, const struct hst_bias *a)
{
    size_t blocks = (a->tokens + ROWS - 1) / ROWS;
    HST_LAUNCH((k_bias<T, N>), grid_over(a->width / N, blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST),
               dim3(COLUMNS, ROWS), 0, stream, *a);
}

template <typename T> static cudaError_t bias(cudaStream_t stream, const struct hst_bias *a)
{
    if (a->width % WIDE<T>)
        launch_bias<T, 1>(stream, a);
    else
        launch_bias<T, WIDE<T>>(stream, a);
    return cudaGetLastError();
}

cudaError_t hst_cuda_bias(cudaStream_t stream, const struct hst_bias *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, bias, stream, args);
}

template <typename T, int N>
static size_t launch_backward(cudaStream_t stream, const struct hst_bias_backward *a)
{
    const size_t rows = rows_of(a->tokens), blocks = (a->tokens + rows - 1) / rows;
    HST_LAUNCH((k_bias_backward<T, N>), grid_over(a->width / N, blocks), dim3(COLUMNS, ROWS), 0,
               stream, *a, rows);
    return blocks;
}

template <typename T>
static cudaError_t bias_backward(cudaStream_t stream, const struct hst_bias_backward *a)
{
    const size_t blocks = a->width % WIDE<T> ? launch_backward<T, 1>(stream, a)
                                             : launch_backward<T, WIDE<T>>(stream, a);
    cudaError_t error = cudaGetLastError();
    return error ? error
                 : add_sums(stream, (const float *)a->work.data, blocks, a->width, a->dbias);
}

cudaError_t hst_cuda_bias_backward(cudaStream_t stream, const struct hst_bias_backward *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, bias_backward, stream, args);
}
