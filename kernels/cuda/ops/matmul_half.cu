/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 and f16 on tensor cores (mma.sync, compute capability 8.0 and later).
 *
 * A block owns a tile of C, with the sums in registers: 128 × 256 by eight warps of 64 × 64, or
 * 64 × 64 by four of 32 × 32. It goes through k in steps of 32. Four steps of A and B are in
 * shared memory, three of them on their way while one is used, with one barrier a step: 96 KiB,
 * which every card from 8.0 on gives a block, or 32 KiB.
 *
 * An operand lies in shared memory as it lies in global memory, and ldmatrix turns it where it
 * must be: lines of 32 k where k runs along its rows, 32 lines of the tile's extent where it runs
 * down. Where rows do not begin at multiples of 16 bytes (a leading dimension that is no multiple
 * of 8, a matrix that begins elsewhere), elements are read one by one, and the tile is the small
 * one.
 *
 * Cost: 2·m·n·k flops; a tile reads (rows + columns)·k elements, mostly from L2.
 */
#include "attention_tile.h"

#include "matmul.h"

enum { STEP = 32, STAGES = 4 };

template <bool LARGE> struct half_plan {
    static constexpr int ROWS = LARGE ? 128 : 64, COLUMNS = LARGE ? 256 : 64;
    static constexpr int WARP = LARGE ? 64 : 32; /* rows and columns of a warp */
    static constexpr int WARPS_ACROSS = COLUMNS / WARP;
    static constexpr int THREADS = ROWS / WARP * WARPS_ACROSS * 32;
    static constexpr int BLOCKS = LARGE ? 1 : 3; /* of a multiprocessor */
    static constexpr int STAGE = (ROWS + COLUMNS) * STEP;
    static constexpr size_t SHARED = (size_t)STAGES * STAGE * sizeof(word);
};

/* One operand of a tile: EXTENT rows of A or columns of B. ALONG: k runs along its rows. */
template <bool ALONG, int EXTENT, int THREADS> struct operand {
    static constexpr int D = ALONG ? STEP : EXTENT, LINES = ALONG ? EXTENT : STEP;
    static constexpr int GROUP = chunk_order<D>::GROUP, PASS = THREADS / GROUP;
    static_assert(PASS % 8 == 0 && LINES % PASS == 0, "whole passes, whose rows have one flip");
    const word *start, *next; /* the matrix; this thread's first chunk of the next step */
    size_t ld;
    int extent; /* rows or columns that exist */

    /* Begins the copy of the next step, of which `depth` of k exist; zeros for all else. */
    template <bool WIDE> __device__ __forceinline__ void fetch(word *tile, int depth)
    {
        int row = (int)threadIdx.x / GROUP, chunk = (int)threadIdx.x % GROUP;
        int lines = ALONG ? extent : depth, columns = ALONG ? depth : extent;
#pragma unroll
        for (int r = 0; r < LINES; r += PASS)
#pragma unroll
            for (int c = 0; c < D / 8; c += GROUP) {
                int count = row + r < lines ? min(max(columns - (chunk + c) * 8, 0), 8) : 0;
                const word *source = next + (size_t)r * ld + c * 8;
                hst_shared_address to = chunk_on<D>(chunk_at<D>(tile, row, chunk), c) + r * D * 2;
                if (WIDE)
                    hst_cp_async_16(to, count ? source : start, count * 2);
                else
                    gather(tile + (row + r) * D +
                               ((chunk + c) ^ (int)chunk_order<D>::flip((unsigned)row)) * 8,
                           source, count);
            }
        next += ALONG ? STEP : STEP * ld;
    }

    static __device__ __forceinline__ void gather(word *to, const word *source, int count)
    {
        pack<__half, 8> eight;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t low = 2 * i < count ? source[2 * i] : 0;
            uint32_t high = 2 * i + 1 < count ? source[2 * i + 1] : 0;
            eight.pair[i] = low | high << 16;
        }
        store((__half *)to, eight);
    }
};

template <bool ALONG, int EXTENT, int THREADS>
static __device__ __forceinline__ operand<ALONG, EXTENT, THREADS>
operand_at(const struct hst_matrix &matrix, size_t begin, size_t first, size_t end)
{
    typedef operand<ALONG, EXTENT, THREADS> O;
    const word *start = (const word *)matrix.data + begin;
    size_t row = threadIdx.x / O::GROUP, chunk = threadIdx.x % O::GROUP;
    const word *next = start + (ALONG ? first * matrix.ld : first) + row * matrix.ld + chunk * 8;
    return {start, next, matrix.ld, places_left(first, end, EXTENT)};
}

/*
 * A lane gives this to ldmatrix for a warp's rows of A or columns of B, from `first` on. Of A the
 * four registers are a fragment; of B two fragments, of eight columns each.
 */
template <bool ALONG, bool IS_A, int EXTENT> struct operand_view {
    static constexpr int D = ALONG ? STEP : EXTENT;
    lane_view<D> view;

    __device__ __forceinline__ operand_view(const word *tile, int first)
        : view(ALONG == IS_A ? lane_down<D>(tile) : lane_across<D>(tile))
    {
        view.first = ALONG ? view.first + first * D * 2 : chunk_on<D>(view.first, first / 8);
    }

    /* Sixteen of the extent, sixteen of k, in the stage that many bytes on. */
    __device__ __forceinline__ void load(uint32_t (&r)[4], int block, int step, int stage) const
    {
        if (ALONG)
            hst_ldmatrix_x4(r, view.at(block, step) + stage);
        else
            hst_ldmatrix_x4_trans(r, view.at(step, block) + stage);
    }
};

template <class T, int BLOCKS, class A, class B>
static __device__ __forceinline__ void multiply_step(float (&sum)[BLOCKS][2 * BLOCKS][4],
                                                     const A &a, const B &b, int stage)
{
#pragma unroll
    for (int step = 0; step < STEP / 16; step++) {
        uint32_t fa[BLOCKS][4];
#pragma unroll
        for (int m = 0; m < BLOCKS; m++)
            a.load(fa[m], m, step, stage);
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            uint32_t fb[4];
            b.load(fb, n, step, stage);
#pragma unroll
            for (int m = 0; m < BLOCKS; m++) {
                hst_mma(sum[m][2 * n], fa[m], fb, T());
                hst_mma(sum[m][2 * n + 1], fa[m], fb + 2, T());
            }
        }
    }
}

/*
 * A warp's sums to the C that begins there, from (row, column) on, sixteen rows at a time by way of
 * shared memory: so that neighbour lanes write neighbours of a row, and the code is short. Lines
 * are longer by eight, which puts the rows that a warp writes at once into different banks.
 */
template <class Out, int BLOCKS>
static __device__ __forceinline__ void
leave_sums(const struct hst_matmul &a, const float (&sum)[BLOCKS][2 * BLOCKS][4], float *scratch,
           size_t begin, size_t row, size_t column, bool pairs)
{
    constexpr int WIDTH = 16 * BLOCKS, LINE = WIDTH + 8, LANES = WIDTH / 2; /* of a row */
    int lane = (int)threadIdx.x % 32, across = lane % LANES * 2;
    int rows = places_left(row, a.m, WIDTH), columns = places_left(column, a.n, WIDTH) - across;
#pragma unroll
    for (int m = 0; m < BLOCKS; m++) {
        __syncwarp(HST_FULL_WARP);
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float two[2] = {sum[m][n][2 * half], sum[m][n][2 * half + 1]};
                store_f32(scratch + (lane / 4 + half * 8) * LINE + n * 8 + lane % 4 * 2, two);
            }
        __syncwarp(HST_FULL_WARP);
#pragma unroll 1
        for (int r = lane / LANES; r < 16 && m * 16 + r < rows; r += 32 / LANES) {
            float two[2];
            load_f32(scratch + r * LINE + across, two);
            leave((Out *)a.c.data + begin + (row + (size_t)(m * 16 + r)) * a.c.ld + column + across,
                  two, columns, pairs, a.accumulate);
        }
    }
}

template <class T, bool LARGE, bool WIDE, bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(half_plan<LARGE>::THREADS, half_plan<LARGE>::BLOCKS)
    k_matmul_half(struct hst_matmul a, size_t tiles, bool pairs)
{
    typedef half_plan<LARGE> P;
    HST_DYN_SHARED(word, shared);
    int warp = (int)threadIdx.x / 32;
    int row = warp / P::WARPS_ACROSS * P::WARP, column = warp % P::WARPS_ACROSS * P::WARP;
    operand_view<A_ALONG, true, P::ROWS> a_view(shared, row);
    operand_view<B_ALONG, false, P::COLUMNS> b_view(shared + P::ROWS * STEP, column);
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        tile_place at = place_of<P::ROWS, P::COLUMNS>(tile, a);
        auto a_next =
            operand_at<A_ALONG, P::ROWS, P::THREADS>(a.a, at.product * a.a_step, at.row, a.m);
        auto b_next =
            operand_at<B_ALONG, P::COLUMNS, P::THREADS>(a.b, at.product * a.b_step, at.column, a.n);
        float sum[P::WARP / 16][P::WARP / 8][4];
        clear(sum);
        int stage = 0;
        auto fetch = [&](size_t k, int to) {
            if (k < a.k) {
                word *tiles_of_stage = shared + to * P::STAGE;
                int depth = places_left(k, a.k, STEP);
                a_next.template fetch<WIDE>(tiles_of_stage, depth);
                b_next.template fetch<WIDE>(tiles_of_stage + P::ROWS * STEP, depth);
            }
            hst_cp_async_commit();
        };
        for (int ahead = 0; ahead < STAGES - 1; ahead++)
            fetch((size_t)ahead * STEP, ahead);
        for (size_t k = 0; k < a.k; k += STEP) {
            hst_cp_async_wait<STAGES - 2>();
            __syncthreads(); /* this step is here, and all have used the one before */
            fetch(k + (STAGES - 1) * STEP, (stage + STAGES - 1) % STAGES);
            multiply_step<T>(sum, a_view, b_view, stage * P::STAGE * (int)sizeof(word));
            stage = (stage + 1) % STAGES;
        }
        __syncthreads(); /* all have used the last step, whose place the sums take */
        float *scratch = (float *)shared + warp * 16 * (P::WARP + 8);
        size_t begin = at.product * a.c_step;
        at.row += (size_t)row;
        at.column += (size_t)column;
        if (a.c.dtype == HST_F32)
            leave_sums<float>(a, sum, scratch, begin, at.row, at.column, pairs);
        else
            leave_sums<T>(a, sum, scratch, begin, at.row, at.column, pairs);
        __syncthreads(); /* before the next tile's first steps overwrite the sums */
    }
}

template <class T, bool LARGE, bool WIDE, bool A_ALONG, bool B_ALONG>
static cudaError_t launch_half(cudaStream_t stream, const struct hst_matmul *args)
{
    typedef half_plan<LARGE> P;
    size_t tiles = matmul_tiles(args, P::ROWS, P::COLUMNS);
    cudaError_t error =
        cudaFuncSetAttribute(k_matmul_half<T, LARGE, WIDE, A_ALONG, B_ALONG>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::SHARED);
    if (error != cudaSuccess)
        return error;
    HST_LAUNCH((k_matmul_half<T, LARGE, WIDE, A_ALONG, B_ALONG>), grid_of(tiles, 1), P::THREADS,
               P::SHARED, stream, *args, tiles,
               begins_at(args->c, args->c.dtype == HST_F32 ? 8 : 4));
    return cudaGetLastError();
}

template <class T, bool LARGE, bool WIDE>
static cudaError_t by_layout(cudaStream_t stream, const struct hst_matmul *args)
{
    if (args->a_transposed)
        return args->b_transposed ? launch_half<T, LARGE, WIDE, false, true>(stream, args)
                                  : launch_half<T, LARGE, WIDE, false, false>(stream, args);
    return args->b_transposed ? launch_half<T, LARGE, WIDE, true, true>(stream, args)
                              : launch_half<T, LARGE, WIDE, true, false>(stream, args);
}

template <class T>
static cudaError_t by_tile(cudaStream_t stream, const struct hst_matmul *args, bool large)
{
    if (!begins_at(args->a, 16) || !begins_at(args->b, 16))
        return by_layout<T, false, false>(stream, args);
    return large ? by_layout<T, true, true>(stream, args) : by_layout<T, false, true>(stream, args);
}

cudaError_t matmul_half(cudaStream_t stream, const struct hst_matmul *args, bool large)
{
    return HST_BY_HALF(args->a.dtype, by_tile, stream, args, large);
}
