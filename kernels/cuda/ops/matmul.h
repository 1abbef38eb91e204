/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_MATMUL_OPS_H
#define HST_CUDA_MATMUL_OPS_H
/* The plugin's own GEMMs share this: which tile of C a block is at, and how C is left. */
#include "launchers.h"
#include "vector.h"

/* matmul_half.cu, matmul_f32.cu: one launch each; m, n above 0. large: the tile. */
cudaError_t matmul_half(cudaStream_t stream, const struct hst_matmul *args, bool large);
cudaError_t matmul_f32(cudaStream_t stream, const struct hst_matmul *args, bool large);

/* Tiles that cover m×n of each C of a batch. */
static inline size_t matmul_tiles(const struct hst_matmul *args, size_t rows, size_t columns)
{
    size_t batch = args->batch ? args->batch : 1;
    return ((args->m - 1) / rows + 1) * ((args->n - 1) / columns + 1) * batch;
}

/* It says where a tile begins, and in which GEMM's C. */
struct tile_place {
    size_t row, column, product;
};

/*
 * Tiles are taken down bands of eight rows of tiles, so that the blocks at work together read few
 * rows of A and few columns of B, which the L2 cache then holds. One product comes after another.
 */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ tile_place place_of(size_t tile, const struct hst_matmul &a)
{
    constexpr size_t BAND = 8;
    size_t rows = (a.m - 1) / ROWS + 1, columns = (a.n - 1) / COLUMNS + 1;
    size_t product = tile / (rows * columns);
    tile %= rows * columns;
    size_t first = tile / (BAND * columns) * BAND, within = tile % (BAND * columns);
    size_t height = rows - first < BAND ? rows - first : BAND;
    return {(first + within % height) * ROWS, within / height * COLUMNS, product};
}

/* It counts how many of `most` places from `first` on lie before `end`. */
static __device__ __forceinline__ int places_left(size_t first, size_t end, int most)
{
    return end <= first ? 0 : end - first < (size_t)most ? (int)(end - first) : most;
}

/* It tells whether rows begin at multiples of that many bytes. */
static inline bool begins_at(const struct hst_matrix &matrix, size_t bytes)
{
    size_t element = matrix.dtype == HST_F32 ? 4 : 2;
    return (uintptr_t)matrix.data % bytes == 0 && matrix.ld * element % bytes == 0;
}

/*
 * N neighbours of a row of C, of which `left` exist (0 or less: none). Together where C's rows
 * begin at whole vectors. Out is f32 wherever something is added to.
 */
template <int N, class Out>
static __device__ __forceinline__ void leave(Out *to, const float (&sum)[N], int left, bool vectors,
                                             bool accumulate)
{
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = sum[i];
    if (vectors && left >= N) {
        if constexpr (sizeof(Out) == 4)
            if (accumulate) {
                float old[N];
                load_f32(to, old);
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[i] = old[i] + sum[i];
            }
        store_f32(to, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < left) {
            float one[1] = {v[i]};
            if constexpr (sizeof(Out) == 4)
                if (accumulate)
                    one[0] += (float)to[i];
            store_f32(to + i, one);
        }
}

#endif
