/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of f32, by fused multiply-adds in full precision (no TF32).
 *
 * A block of 256 threads owns a tile of C, 128 × 128 or 64 × 64, a thread 8 × 8 or 4 × 4 of it in
 * registers: groups of four rows and columns, 64 apart. It goes through k in steps of 8; a step's
 * elements of A and B lie in shared memory with k down, so that a thread reads four of a group at
 * once. The next step is on its way to registers while one is used, with one barrier a step.
 * Elements are read one by one: any leading dimension, and any place, is as good as another.
 */
#include "launch.h"

#include "matmul.h"

/* Shared lines are longer by four, so that a warp that writes four rows of eight k meets every
 * bank once. */
enum { STEP = 8, THREADS = 256, PAD = 4, APART = 64 };

/* One operand of a tile of EXTENT rows of A or columns of B. ALONG: k runs along its rows. */
template <bool ALONG, int EXTENT> struct f32_operand {
    static constexpr int COUNT = EXTENT * STEP / THREADS; /* elements of a thread */
    /* lines of the matrix that the block reads at once */
    static constexpr int PASS = ALONG ? THREADS / STEP : THREADS / EXTENT;
    static constexpr int ACROSS = ALONG ? STEP : EXTENT;
    const float *next;
    size_t ld;
    int extent; /* rows or columns that exist */
    float held[COUNT];

    __device__ __forceinline__ f32_operand(const struct hst_matrix &matrix, size_t begin,
                                           size_t first, size_t end)
        : ld(matrix.ld), extent(places_left(first, end, EXTENT))
    {
        next = (const float *)matrix.data + begin + (ALONG ? first * ld : first) +
               threadIdx.x / ACROSS * ld + threadIdx.x % ACROSS;
    }

    /* The next step's elements, of which `depth` of k exist; zeros for all else. */
    __device__ __forceinline__ void fetch(int depth)
    {
        int line = (int)threadIdx.x / ACROSS, across = (int)threadIdx.x % ACROSS;
        int lines = ALONG ? extent : depth, columns = ALONG ? depth : extent;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            held[i] =
                line + i * PASS < lines && across < columns ? next[(size_t)(i * PASS) * ld] : 0.0f;
        next += ALONG ? STEP : STEP * ld;
    }

    __device__ __forceinline__ void keep(float (*tile)[EXTENT + PAD]) const
    {
        int line = (int)threadIdx.x / ACROSS, across = (int)threadIdx.x % ACROSS;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (ALONG)
                tile[across][line + i * PASS] = held[i];
            else
                tile[line + i * PASS][across] = held[i];
    }
};

template <int GROUPS>
static __device__ __forceinline__ void multiply_step(float (&sum)[GROUPS * 4][GROUPS * 4],
                                                     const float (*a)[GROUPS * APART + PAD],
                                                     const float (*b)[GROUPS * APART + PAD])
{
    int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
#pragma unroll 2 /* with more of them registers spill on 9.0 and 12.0 */
    for (int k = 0; k < STEP; k++) {
        float x[GROUPS][4], y[GROUPS][4];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            load_f32(a[k] + g * APART + row, x[g]);
            load_f32(b[k] + g * APART + column, y[g]);
        }
#pragma unroll
        for (int i = 0; i < GROUPS * 4; i++)
#pragma unroll
            for (int j = 0; j < GROUPS * 4; j++)
                sum[i][j] = __fmaf_rn(x[i / 4][i % 4], y[j / 4][j % 4], sum[i][j]);
    }
}

template <int GROUPS>
static __device__ __forceinline__ void leave_sums(const struct hst_matmul &a, tile_place at,
                                                  const float (&sum)[GROUPS * 4][GROUPS * 4],
                                                  bool vectors)
{
    size_t row = at.row + threadIdx.x / 16 * 4, column = at.column + threadIdx.x % 16 * 4;
    int rows = places_left(row, a.m, GROUPS * APART);
    int columns = places_left(column, a.n, GROUPS * APART);
    float *first = (float *)a.c.data + at.product * a.c_step + row * a.c.ld + column;
#pragma unroll
    for (int i = 0; i < GROUPS * 4; i++) {
        int down = i / 4 * APART + i % 4;
        if (down < rows)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                float four[4] = {sum[i][g * 4], sum[i][g * 4 + 1], sum[i][g * 4 + 2],
                                 sum[i][g * 4 + 3]};
                leave(first + (size_t)down * a.c.ld + g * APART, four, columns - g * APART, vectors,
                      a.accumulate);
            }
    }
}

template <int GROUPS, bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(THREADS, 2)
    k_matmul_f32(struct hst_matmul a, size_t tiles, bool vectors)
{
    constexpr int EXTENT = GROUPS * APART;
    __shared__ __align__(16) float a_tile[2][STEP][EXTENT + PAD];
    __shared__ __align__(16) float b_tile[2][STEP][EXTENT + PAD];
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        tile_place at = place_of<EXTENT, EXTENT>(tile, a);
        f32_operand<A_ALONG, EXTENT> a_next(a.a, at.product * a.a_step, at.row, a.m);
        f32_operand<B_ALONG, EXTENT> b_next(a.b, at.product * a.b_step, at.column, a.n);
        float sum[GROUPS * 4][GROUPS * 4] = {};
        int turn = 0;
        for (size_t k = 0; k < a.k; k += STEP, turn ^= 1) {
            if (k == 0) {
                a_next.fetch(places_left(k, a.k, STEP));
                b_next.fetch(places_left(k, a.k, STEP));
            }
            a_next.keep(a_tile[turn]);
            b_next.keep(b_tile[turn]);
            __syncthreads(); /* this step is here, and all have used the one before */
            a_next.fetch(places_left(k + STEP, a.k, STEP));
            b_next.fetch(places_left(k + STEP, a.k, STEP));
            multiply_step<GROUPS>(sum, a_tile[turn], b_tile[turn]);
        }
        leave_sums<GROUPS>(a, at, sum, vectors);
        __syncthreads(); /* before the next tile's first steps overwrite the last of this one */
    }
}

template <int GROUPS, bool A_ALONG, bool B_ALONG>
static cudaError_t launch_f32(cudaStream_t stream, const struct hst_matmul *args)
{
    size_t tiles = matmul_tiles(args, GROUPS * APART, GROUPS * APART);
    HST_LAUNCH((k_matmul_f32<GROUPS, A_ALONG, B_ALONG>), grid_of(tiles, 1), THREADS, 0, stream,
               *args, tiles, begins_at(args->c, 16));
    return cudaGetLastError();
}

template <int GROUPS>
static cudaError_t by_layout(cudaStream_t stream, const struct hst_matmul *args)
{
    if (args->a_transposed)
        return args->b_transposed ? launch_f32<GROUPS, false, true>(stream, args)
                                  : launch_f32<GROUPS, false, false>(stream, args);
    return args->b_transposed ? launch_f32<GROUPS, true, true>(stream, args)
                              : launch_f32<GROUPS, true, false>(stream, args);
}

cudaError_t matmul_f32(cudaStream_t stream, const struct hst_matmul *args, bool large)
{
    return large ? by_layout<2>(stream, args) : by_layout<1>(stream, args);
}
