/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's forward in bf16 and f16 on tensor cores (mma.sync, compute capability 8.0 and later).
 *
 * A block owns a tile of queries of one head, a warp 32 or 16 of its rows, with their output in
 * registers. It goes over the tiles of keys from the first to the one of its last query:
 *
 *   S = Q·Kᵀ                                    tensor cores, f32 sums
 *   t' = max(t, rows of S·c)                    c = scale·log2 e, so that exp is one exp2
 *   P = 2^(S·c − t'), l = l·2^(t−t') + ΣP, O = O·2^(t−t') + P·V
 *
 * and at the end o = O / l, lse = (t + log2 l)·ln 2. Keys after a query are −∞ in S; only tiles on
 * the diagonal are masked. The first tile holds a key that every query sees, so t is finite from
 * there on and no −∞ − −∞ arises. In a narrow launch (attention.h) the block begins with the tile
 * of its first query's first key; a row that has seen no key yet has t = −∞ and takes 0 for t'.
 *
 * P is rounded to the tensors' type on its way into the tensor cores, as the interface allows; l
 * sums it unrounded. (P as two numbers, high and rest, would round o once alone, for half as many
 * products again.)
 *
 * Shared memory holds Q and two tiles each of K and V: the next is copied while one is used, with
 * one barrier a tile. That is 64 KiB at head_dim 128, so that two blocks of four warps fit a
 * multiprocessor of 8.0, 9.0 and 10.0; where one fits (8.6, 8.9, 12.0) it has eight warps. At 256
 * it is 96 KiB for 64 rows, of which two blocks fit 9.0 and 10.0. Elsewhere one block of eight
 * warps and 128 rows has the same 96 KiB, within the 99 KiB that the smallest card of this kind
 * gives a block, with one tile each of K and V: V is copied during Q·Kᵀ and the next K during P·V,
 * with two barriers a tile.
 *
 * Cost: 4·head_dim flops per query and key; a block reads its queries once and its keys and values,
 * mostly from L2: 4·head_dim bytes per key.
 * Source: Dao 2023, arXiv:2307.08691, Alg. 1.
 */
#include "attention_tile.h"

/* KEYS is part of the numbers: it depends on head_dim alone, never on the card. BLOCKS is what
 * a multiprocessor is to hold, which tests/cuda/resources.py checks. */
template <int D, int WARPS> struct forward_plan {
    static constexpr int ROWS = D > 128 && WARPS == 4 ? 64 : 128,
                         M = ROWS / 16 / WARPS;                 /* 16-row blocks of a warp */
    static constexpr int TURNS = D > 128 && WARPS == 8 ? 1 : 2; /* tiles of k and v each */
    static constexpr int THREADS = WARPS * 32, BLOCKS = WARPS_RESIDENT / WARPS;
    static constexpr int KEYS = D >= 128 ? 32 : 64; /* 64 do not fit the registers beside o */
    static constexpr size_t SHARED = (size_t)(ROWS + 2 * TURNS * KEYS) * D * sizeof(word);
};

/* A lane keeps this of its rows g and g + 8 of each 16-row block. */
template <int M> struct softmax_rows {
    float top[M][2]; /* greatest score yet, in units of log 2 */
    float sum[M][2]; /* of this lane's own columns */
};

template <int M> static __device__ __forceinline__ void softmax_begin(softmax_rows<M> &rows)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            rows.top[m][half] = -INFINITY;
            rows.sum[m][half] = 0;
        }
}

/* The greatest of a row, which lies over four neighbour lanes. */
static __device__ __forceinline__ float row_max(float value)
{
    value = fmaxf(value, __shfl_xor_sync(HST_FULL_WARP, value, 1));
    return fmaxf(value, __shfl_xor_sync(HST_FULL_WARP, value, 2));
}

static __device__ __forceinline__ float row_sum(float value)
{
    value += __shfl_xor_sync(HST_FULL_WARP, value, 1);
    return value + __shfl_xor_sync(HST_FULL_WARP, value, 2);
}

/* Scores become weights against the new greatest score; what was summed before is brought down. */
template <bool NARROW, int M, int N, int W>
static __device__ __forceinline__ void softmax_step(float (&s)[M][N][4], float (&o)[M][W][4],
                                                    softmax_rows<M> &rows, float c)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -INFINITY, sum = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top = fmaxf(rows.top[m][half], row_max(top) * c);
            float before = rows.top[m][half];
            rows.top[m][half] = top;
            if (NARROW && top == -INFINITY)
                top = 0;
            float down = hst_exp2(before - top);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = hst_exp2(__fmaf_rn(s[m][n][i], c, -top));
                    sum += s[m][n][i];
                }
            rows.sum[m][half] = rows.sum[m][half] * down + sum;
#pragma unroll
            for (int n = 0; n < W; n++) {
                o[m][n][2 * half] *= down;
                o[m][n][2 * half + 1] *= down;
            }
        }
}

/* Divides by the sums, writes o and lse of the warp's rows. */
template <class T, int D, int M>
static __device__ __forceinline__ void
finish_rows(const float (&o)[M][D / 8][4], const softmax_rows<M> &rows, word *tile,
            head_rows<word> to, float *lse, int first, int end)
{
    float factor[M][2];
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = row_sum(rows.sum[m][half]);
            int row = first + m * 16 + half * 8 + lane / 4;
            factor[m][half] = 1 / sum;
            if (lane % 4 == 0 && row < end)
                lse[row] = (rows.top[m][half] + log2f(sum)) * 0.6931471805599453f;
        }
    store_rows<T, D>(o, factor, tile, to, first, end);
}

template <class T, int D, int WARPS, bool NARROW>
static __global__ void __launch_bounds__(forward_plan<D, WARPS>::THREADS,
                                         forward_plan<D, WARPS>::BLOCKS)
    k_attention_forward(struct hst_attention a, unsigned tiles)
{
    typedef forward_plan<D, WARPS> P;
    HST_DYN_SHARED(word, q_tile);
    attention_place at = last_tile_first(blockIdx.x, tiles, (unsigned)a.heads);
    key_stream<D, P::KEYS> keys = keys_of<D, P::KEYS>(a, at, q_tile + P::ROWS * D);
    int end = (int)a.seq, block_first = at.tile * P::ROWS;
    int warp_rows = (int)(threadIdx.x / 32) * 16 * P::M, first = block_first + warp_rows;
    int begin = NARROW ? first_key(a, at.sequence, block_first) / P::KEYS * P::KEYS : 0;

    tile_fetch<D, P::ROWS, P::THREADS>(
        q_tile, rows_of((const word *)a.q, &a, a.heads, at.sequence, at.head), block_first, end);
    keys.template fetch_keys<P::THREADS>(0, begin, end);
    if (P::TURNS == 2)
        keys.template fetch_values<P::THREADS>(0, begin, end);
    hst_cp_async_commit();
    lane_view<D> q_view = lane_down<D>(q_tile + warp_rows * D);
    lane_view<D> k_view = lane_across<D>(keys.buffers);
    lane_view<D> v_view = lane_down<D>(keys.buffers + P::KEYS * D);

    float o[P::M][D / 8][4], c = a.scale * 1.4426950408889634f;
    softmax_rows<P::M> rows;
    typename sight_of<NARROW, P::M>::type sight(a, at.sequence, first);
    clear(o);
    softmax_begin(rows);
    int last = min(block_first + P::ROWS, end) - 1;
    for (int key = begin, turn = 0; key <= last; key += P::KEYS, turn ^= P::TURNS - 1) {
        hst_cp_async_wait<0>();
        __syncthreads(); /* this turn's keys are here, and all have used what comes next's place */
        if (P::TURNS == 1)
            keys.template fetch_values<P::THREADS>(0, key, end);
        else if (key + P::KEYS <= last)
            keys.template fetch<P::THREADS>(turn ^ 1, key + P::KEYS, end);
        hst_cp_async_commit();
        /* by some query of this warp */
        bool seen = key < first + 16 * P::M && sight.reaches(key + P::KEYS);
        if (P::TURNS == 2 && !seen)
            continue;
        float s[P::M][P::KEYS / 8][4];
        if (P::TURNS == 2 || seen) {
            row_products<T, D>(s, q_view, k_view.later(turn * 2 * P::KEYS));
            if (key + P::KEYS - 1 > first)
                hide_later_keys<false>(s, first - key + lane_ahead());
            sight.hide(s, key);
            softmax_step<NARROW>(s, o, rows, c);
        }
        if (P::TURNS == 1) {
            hst_cp_async_wait<0>();
            __syncthreads(); /* the values are here, and all have used the keys */
            if (key + P::KEYS <= last)
                keys.template fetch_keys<P::THREADS>(0, key + P::KEYS, end);
            hst_cp_async_commit();
        }
        if (P::TURNS == 2 || seen)
            add_weighted<T, D>(o, s, v_view.later(turn * 2 * P::KEYS));
    }
    finish_rows<T, D>(o, rows, q_tile + warp_rows * D,
                      rows_of((word *)a.o, &a, a.heads, at.sequence, at.head),
                      a.lse + statistic_at(&a, at.sequence, at.head), first, end);
}

template <class T, int D, int WARPS, bool NARROW = false>
static cudaError_t launch_forward_by(cudaStream_t stream, const struct hst_attention *args)
{
    typedef forward_plan<D, WARPS> P;
    unsigned tiles = tiles_of(args->seq, P::ROWS);
    cudaError_t error =
        cudaFuncSetAttribute(k_attention_forward<T, D, WARPS, NARROW>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::SHARED);
    if (error != cudaSuccess)
        return error;
    HST_LAUNCH((k_attention_forward<T, D, WARPS, NARROW>),
               (unsigned)(tiles * args->heads * args->batch), P::THREADS, P::SHARED, stream, *args,
               tiles);
    return cudaGetLastError();
}

template <class T, int D>
static cudaError_t launch_forward(cudaStream_t stream, const struct hst_attention *args)
{
    typedef forward_plan<D, 4> P;
    if (is_narrow(args))
        return launch_forward_by<T, D, 8, true>(stream, args);
    if constexpr (!fits_every_card(P::BLOCKS, P::SHARED)) {
        bool fit;
        cudaError_t error = blocks_fit(P::BLOCKS, P::SHARED, &fit);
        if (error != cudaSuccess)
            return error;
        if (!fit)
            return launch_forward_by<T, D, 8>(stream, args);
    }
    return launch_forward_by<T, D, 4>(stream, args);
}

template <class T>
static cudaError_t forward_of(cudaStream_t stream, const struct hst_attention *args)
{
    switch (args->head_dim) {
    case 64:
        return launch_forward<T, 64>(stream, args);
    case 96:
        return launch_forward<T, 96>(stream, args);
    case 128:
        return launch_forward<T, 128>(stream, args);
    case 256:
        return launch_forward<T, 256>(stream, args);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t attention_tiled_forward(cudaStream_t stream, const struct hst_attention *args)
{
    return HST_BY_HALF(args->dtype, forward_of, stream, args);
}
