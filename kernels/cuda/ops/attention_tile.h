/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_ATTENTION_TILE_H
#define HST_CUDA_ATTENTION_TILE_H
/*
 * Tiles of bf16 or f16 rows in shared memory, and the two products that attention is made of. A
 * tile is 16-bit words, whichever it holds; T says which where numbers are rounded or multiplied.
 *
 * A tile is [rows][D]; 16 bytes are a chunk. Chunk c of row r lies at chunk c ^ flip(r) of that
 * row, where flip(r) makes any eight neighbouring rows put the same c into eight different 16-byte
 * columns of a 128-byte line, which is what ldmatrix reads at once:
 *   D = 64, 128, 256   a row is whole lines: flip = r mod 8, all eight columns
 *   D = 96             a row is a line and a half, so odd rows begin in the middle of a line: two
 *                      neighbours are apart already, flip = (r / 2) mod 4 parts the four pairs
 * Copies into a tile are free of conflicts too: eight neighbour lanes write the eight chunks of a
 * line, of one row or, for 96, of the halves of two. No padding, so every byte of shared memory is
 * a tile's.
 */
#include "ptx.h"

#include "attention.h"
#include <string.h>

typedef uint16_t word;

/*
 * Warps that a multiprocessor is to hold, two for each of its four schedulers, so that one computes
 * while the other waits. A tile of 128 rows is shared out to four warps of 32 rows where a
 * multiprocessor has shared memory for two such blocks, else to eight warps of 16 in the one block
 * that fits.
 *
 * Bits do not depend on that: the block goes over the same tiles of keys in the same order, a row
 * meets those up to its own, and what tensor cores compute of a row depends on no other row. Of
 * four warps and of eight, a row's last tile is the same, as 32 divides all tiles of keys.
 */
static constexpr int WARPS_RESIDENT = 8;

/* It tells whether they fit the cards with the least, 100 KiB a multiprocessor, 1 KiB a block
 * reserved: then the kernel of four warps is the only one made. */
static constexpr bool fits_every_card(int blocks, size_t shared_bytes)
{
    return (size_t)blocks * (shared_bytes + 1024) <= 100 << 10;
}

/* It tells whether `blocks` blocks of so much shared memory fit a multiprocessor of this device. */
static inline cudaError_t blocks_fit(int blocks, size_t shared_bytes, bool *fit)
{
    int device = 0, all = 0, reserved = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
    *fit = (size_t)blocks * (shared_bytes + (size_t)reserved) <= (size_t)all;
    return error;
}

/* Chunks that the flip permutes among each other, and the flip itself. */
template <int D> struct chunk_order {
    static_assert(D % 32 == 0, "rows of whole groups of chunks");
    static constexpr int GROUP = D % 64 == 0 ? 8 : 4;

    static __device__ __forceinline__ unsigned flip(unsigned row)
    {
        return GROUP == 8 ? row & 7 : row >> 1 & 3;
    }
};

/*
 * The place of a chunk, from that of the row's chunk `c`, `offset` chunks on, where c is below a
 * group's size and has no bit of offset. Groups are aligned, so the flip stays in the address and
 * one exclusive or moves it; the rest is a constant.
 */
template <int D>
static __device__ __forceinline__ hst_shared_address chunk_on(hst_shared_address at, int offset)
{
    constexpr int GROUP = chunk_order<D>::GROUP;
    return (at ^ (offset % GROUP * 16)) + offset / GROUP * GROUP * 16;
}

template <int D>
static __device__ __forceinline__ hst_shared_address chunk_at(const word *tile, unsigned row,
                                                              unsigned chunk)
{
    return hst_shared_address_of(tile) + row * D * 2 + (chunk ^ chunk_order<D>::flip(row)) * 16;
}

/*
 * Begins the copy of rows [first, first + ROWS) of a head into a tile; zeros from row `end` on. As
 * many threads as a group has chunks share a row, so a thread's rows are a multiple of 8 apart and
 * have the same flip.
 */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_fetch(word *tile, head_rows<const word> rows, int first,
                                                  int end)
{
    constexpr int GROUP = chunk_order<D>::GROUP, PASS = THREADS / GROUP;
    static_assert(PASS % 8 == 0 && (ROWS % PASS == 0 || ROWS < PASS), "whole passes");
    unsigned row = threadIdx.x / GROUP, chunk = threadIdx.x % GROUP;
    hst_shared_address to = chunk_at<D>(tile, row, chunk);
    if (ROWS < PASS && row >= ROWS)
        return;
#pragma unroll
    for (int r = 0; r < ROWS; r += PASS) {
        int from = first + (int)row + r;
        const word *source = rows.data + (size_t)min(from, end - 1) * rows.stride + chunk * 8;
#pragma unroll
        for (int c = 0; c < D / 8; c += GROUP)
            hst_cp_async_16(chunk_on<D>(to, c) + r * D * 2, source + c * 8, from < end ? 16 : 0);
    }
}

/* A head's keys and values, and the buffers of a tile of each for each turn. They lie at the same
 * place in k and in v, which is kept once: registers are scarce. */
template <int D, int KEYS> struct key_stream {
    const struct hst_attention &a;
    size_t start;
    word *buffers; /* [turns][k, v][KEYS][D] */

    template <int THREADS>
    __device__ __forceinline__ void fetch_keys(int turn, int key, int end) const
    {
        tile_fetch<D, KEYS, THREADS>(buffers + turn * 2 * KEYS * D,
                                     {(const word *)a.k + start, a.kv_heads * D}, key, end);
    }
    template <int THREADS>
    __device__ __forceinline__ void fetch_values(int turn, int key, int end) const
    {
        tile_fetch<D, KEYS, THREADS>(buffers + (turn * 2 + 1) * KEYS * D,
                                     {(const word *)a.v + start, a.kv_heads * D}, key, end);
    }
    template <int THREADS> __device__ __forceinline__ void fetch(int turn, int key, int end) const
    {
        fetch_keys<THREADS>(turn, key, end);
        fetch_values<THREADS>(turn, key, end);
    }
};

template <int D, int KEYS>
static __device__ __forceinline__ key_stream<D, KEYS> keys_of(const struct hst_attention &a,
                                                              attention_place at, word *buffers)
{
    size_t kv_head = at.head / (a.heads / a.kv_heads);
    return {a, (at.sequence * a.seq * a.kv_heads + kv_head) * D, buffers};
}

/* The place that one lane gives to ldmatrix: at(block, step) for the 16×16 elements of rows
 * 16·block.. and columns 16·step... */
template <int D> struct lane_view {
    hst_shared_address first;

    /* The same place so many rows on: a multiple of 16. */
    __device__ __forceinline__ lane_view later(int rows) const
    {
        return {first + rows * D * 2};
    }

    __device__ __forceinline__ hst_shared_address at(int block, int step) const
    {
        return chunk_on<D>(first, 2 * step) + block * 16 * D * 2;
    }
};

/*
 * The matrices of a 16×16 block in the order rows 0-7, rows 8-15, rows 0-7 right, rows 8-15 right:
 * an A fragment as stored; transposed, two B fragments whose k are the tile's rows.
 */
template <int D> static __device__ __forceinline__ lane_view<D> lane_down(const word *tile)
{
    unsigned lane = threadIdx.x % 32;
    return {chunk_at<D>(tile, lane % 16, lane / 16)};
}

/* In the order left, right, left of rows 8-15, right of rows 8-15: two B fragments whose k are the
 * tile's columns. */
template <int D> static __device__ __forceinline__ lane_view<D> lane_across(const word *tile)
{
    unsigned lane = threadIdx.x % 32;
    return {chunk_at<D>(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2)};
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* c[16·M × 8·N] = A·Bᵀ, A 16·M rows and B 8·N rows of D. */
template <class T, int D, int M, int N>
static __device__ __forceinline__ void row_products(float (&c)[M][N][4], lane_view<D> a,
                                                    lane_view<D> b)
{
    clear(c);
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            hst_ldmatrix_x4(fa[m], a.at(m, step));
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            uint32_t fb[4];
            hst_ldmatrix_x4(fb, b.at(n, step));
#pragma unroll
            for (int m = 0; m < M; m++) {
                hst_mma(c[m][2 * n], fa[m], fb, T());
                hst_mma(c[m][2 * n + 1], fa[m], fb + 2, T());
            }
        }
    }
}

/*
 * sum[16·M × D] += W·X: W are C fragments of 16·M × 8·N weights, X is 8·N rows of D. The weights
 * are rounded to T on their way into the tensor cores.
 */
template <class T, int D, int M, int N>
static __device__ __forceinline__ void add_weighted(float (&sum)[M][D / 8][4],
                                                    const float (&w)[M][N][4], lane_view<D> x)
{
#pragma unroll
    for (int step = 0; step < N / 2; step++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *two = w[m][2 * step + i / 2] + i % 2 * 2;
                fa[m][i] = pair_of(two[0], two[1], T());
            }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t fb[4];
            hst_ldmatrix_x4_trans(fb, x.at(step, n));
#pragma unroll
            for (int m = 0; m < M; m++) {
                hst_mma(sum[m][2 * n], fa[m], fb, T());
                hst_mma(sum[m][2 * n + 1], fa[m], fb + 2, T());
            }
        }
    }
}

/*
 * Takes away what a query must not see. TURNED: rows are keys and columns queries. `ahead`: by how
 * much the row of this lane's c[0][0][0] is beyond its column.
 */
template <bool TURNED, int M, int N>
static __device__ __forceinline__ void hide_later_keys(float (&c)[M][N][4], int ahead)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int needed = n * 8 + i % 2 - (m * 16 + i / 2 * 8);
                if (TURNED ? ahead > needed : ahead < needed)
                    c[m][n][i] = -INFINITY;
            }
}

/*
 * Takes away what lies before a query's first key. The rows are queries: `from` is what a lane's
 * rows begin at, counted from the lane's first column.
 */
template <int M, int N>
static __device__ __forceinline__ void hide_earlier_keys(float (&c)[M][N][4],
                                                         const int (&from)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n * 8 + i % 2 < from[m][i / 2])
                    c[m][n][i] = -INFINITY;
}

/*
 * A warp's rows of queries see this: the first key of each row that a lane has, and of the first
 * and the last of the warp's; rows beyond the sequence are as its last.
 */
template <int M> struct narrow_sight {
    int lane[M][2];
    int first, last;

    __device__ __forceinline__ narrow_sight(const struct hst_attention &a, size_t sequence, int row)
    {
        int end = (int)a.seq - 1;
        first = first_key(a, sequence, min(row, end));
        last = first_key(a, sequence, min(row + 16 * M - 1, end));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                lane[m][half] = first_key(
                    a, sequence, min(row + m * 16 + half * 8 + (int)threadIdx.x % 32 / 4, end));
    }
    /* It tells whether some row sees a key before `key`. */
    __device__ __forceinline__ bool reaches(int key) const
    {
        return first < key;
    }
    /* In scores with the keys from `key` on. */
    template <int N> __device__ __forceinline__ void hide(float (&c)[M][N][4], int key) const
    {
        if (last <= key)
            return;
        int from[M][2];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                from[m][half] = lane[m][half] - key - (int)(threadIdx.x % 4 * 2);
        hide_earlier_keys(c, from);
    }
};

/* It serves a launch without first and window. */
struct whole_sight {
    __device__ __forceinline__ whole_sight(const struct hst_attention &, size_t, int)
    {
    }
    __device__ __forceinline__ bool reaches(int) const
    {
        return true;
    }
    template <class C> __device__ __forceinline__ void hide(C &, int) const
    {
    }
};

template <bool NARROW, int M> struct sight_of {
    typedef whole_sight type;
};
template <int M> struct sight_of<true, M> {
    typedef narrow_sight<M> type;
};

/* It returns what the lane's place alone adds to that. */
static __device__ __forceinline__ int lane_ahead()
{
    return (int)(threadIdx.x % 32 / 4) - (int)(threadIdx.x % 4 * 2);
}

/*
 * Rounds a warp's 16·M rows of D, times `factor[m][half]`, and writes those before row `end` of a
 * head. By way of `tile`, the warp's own rows of shared memory, so that each row leaves in whole
 * 16-byte pieces.
 */
template <class T, int D, int M>
static __device__ __forceinline__ void store_rows(const float (&c)[M][D / 8][4],
                                                  const float (&factor)[M][2], word *tile,
                                                  head_rows<word> rows, int first, int end)
{
    unsigned lane = threadIdx.x % 32;
    __syncwarp(HST_FULL_WARP);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned row = m * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(uint32_t *)(tile + row * D + (n ^ chunk_order<D>::flip(row)) * 8 + lane % 4 * 2) =
                    pair_of(c[m][n][2 * half] * factor[m][half],
                            c[m][n][2 * half + 1] * factor[m][half], T());
        }
    __syncwarp(HST_FULL_WARP);
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < 16 * M * CHUNKS; i += 32) {
        int at = i + (int)lane, row = at / CHUNKS, chunk = at % CHUNKS;
        if (first + row < end)
            *(uint4 *)(rows.data + (size_t)(first + row) * rows.stride + chunk * 8) =
                *(const uint4 *)(tile + row * D + (chunk ^ chunk_order<D>::flip(row)) * 8);
    }
}

#endif
