/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward in bf16 and f16 on tensor cores (mma.sync, compute capability 8.0 and
 * later), in two kernels, so that every sum has one owner and one order: no atomics, the same bits
 * every time.
 *
 *   P = 2^(S·c − lse·log2 e)      S = Q·Kᵀ recomputed, c = scale·log2 e
 *   dP = dO·Vᵀ                    dS = P∘(dP − delta), delta = Σ dO∘O of each query
 *   dV = Pᵀ·dO                    dK = scale·dSᵀ·Q                 dQ = scale·dS·K
 *
 * k_attention_dkv: a block of eight warps owns 128 keys of one key-value head, a warp 16 of them,
 * with their dK and dV in registers. It goes over the group's query heads in order and over each
 * one's tiles of queries from the diagonal on. It forms Sᵀ and dPᵀ, rows keys, so that Pᵀ and dSᵀ
 * are in registers where the next product wants them.
 *
 * k_attention_dq: a block owns 128 queries of one head, shared out to four warps or to eight
 * (attention_tile.h), with their dQ in registers, and goes over the tiles of keys up to the
 * diagonal. At head_dim 128 it has four where two blocks fit, on 9.0 and 10.0.
 *
 * P and dS enter the tensor cores rounded, as the o and dout they are made with are; sums are f32
 * and rounded once. Rows beyond the sequence are zeros, for which dS and dO are 0, so only the
 * diagonal needs a mask.
 *
 * Shared memory: what the block owns and two turns of what it goes over: 96 KiB at head_dim 128.
 * Cost: 14·head_dim flops per query and key, where one kernel that adds dQ with atomics has 10;
 * that is the price of determinism without memory for seq² numbers.
 * Source: Dao 2023, arXiv:2307.08691, Alg. 2.
 */
#include "attention_tile.h"

static constexpr float LOG2_E = 1.4426950408889634f;

/* ---- dK and dV ------------------------------------------------------------------------------- */

template <int D, bool NARROW> struct dkv_plan {
    static constexpr int WARPS = 8, THREADS = WARPS * 32, BLOCKS = WARPS_RESIDENT / WARPS;
    static constexpr int KEYS = WARPS * 16, QUERIES = 32;
    static constexpr int STATS = NARROW ? 3 : 2; /* numbers of a query */
    /* k, v, two turns of q and dout, two turns of the statistics */
    static constexpr size_t SHARED =
        (size_t)(2 * KEYS + 4 * QUERIES) * D * sizeof(word) + 2 * STATS * QUERIES * sizeof(float);
};

/* One turn brings this: a tile of queries and their dout, and lse·log2 e and delta of each; of a
 * narrow launch its first key too, an int among floats. */
template <int D, bool NARROW> struct query_stream {
    typedef dkv_plan<D, NARROW> P;
    struct hst_attention a;
    const word *dout;
    const float *delta;
    word *buffers; /* [2 turns][q, dout][QUERIES][D] */
    float *stats;  /* [2 turns][lse, delta, first key][QUERIES] */

    __device__ __forceinline__ void fetch(size_t sequence, size_t head, int first, int turn) const
    {
        word *to = buffers + turn * 2 * P::QUERIES * D;
        tile_fetch<D, P::QUERIES, P::THREADS>(
            to, rows_of((const word *)a.q, &a, a.heads, sequence, head), first, (int)a.seq);
        tile_fetch<D, P::QUERIES, P::THREADS>(
            to + P::QUERIES * D, rows_of(dout, &a, a.heads, sequence, head), first, (int)a.seq);
    }
    /* The statistic that this thread carries to shared memory: asked for a turn ahead, written
     * when the turn before is over, so that no one waits for it. */
    __device__ __forceinline__ float statistic(size_t sequence, size_t head, int first) const
    {
        int query = first + (int)threadIdx.x % P::QUERIES;
        if (threadIdx.x >= P::STATS * P::QUERIES || query >= (int)a.seq)
            return 0;
        if (NARROW && threadIdx.x >= 2 * P::QUERIES)
            return __int_as_float(first_key(a, sequence, query));
        const float *from = threadIdx.x < P::QUERIES ? a.lse : delta;
        return from[statistic_at(&a, sequence, head) + query];
    }
    __device__ __forceinline__ void put_statistic(float value, int turn) const
    {
        if (threadIdx.x < P::STATS * P::QUERIES)
            stats[turn * P::STATS * P::QUERIES + threadIdx.x] =
                threadIdx.x < P::QUERIES ? value * LOG2_E : value;
    }
};

/* Sᵀ becomes Pᵀ and dPᵀ becomes dSᵀ; a lane's columns begin at lane % 4 · 2 of every eight. */
template <int N>
static __device__ __forceinline__ void turned_weights(float (&s)[1][N][4], float (&dp)[1][N][4],
                                                      const float *stats, float c)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 lse = *(const float2 *)(stats + n * 8 + threadIdx.x % 4 * 2);
        float2 delta = *(const float2 *)(stats + N * 8 + n * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][n][i] = hst_exp2(__fmaf_rn(s[0][n][i], c, i % 2 ? -lse.y : -lse.x));
            dp[0][n][i] = s[0][n][i] * (dp[0][n][i] - (i % 2 ? delta.y : delta.x));
        }
    }
}

/* Takes away the queries whose first key is later. `key`: of the lane's first row. */
template <int N>
static __device__ __forceinline__ void hide_later_queries(float (&s)[1][N][4], const int *first,
                                                          int key)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        int2 from = *(const int2 *)(first + n * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if ((i % 2 ? from.y : from.x) > key + i / 2 * 8)
                s[0][n][i] = -INFINITY;
    }
}

/* It says where a block of keys is on its way over the queries of its group. */
struct query_walk {
    size_t head;
    int first; /* query */
};

template <class T, int D, bool NARROW>
static __global__ void __launch_bounds__(dkv_plan<D, NARROW>::THREADS, dkv_plan<D, NARROW>::BLOCKS)
    k_attention_dkv(struct hst_attention_backward b, const float *delta, unsigned tiles)
{
    typedef dkv_plan<D, NARROW> P;
    HST_DYN_SHARED(word, k_tile);
    const struct hst_attention &a = b.forward;
    word *v_tile = k_tile + P::KEYS * D, *stream = v_tile + P::KEYS * D;
    query_stream<D, NARROW> queries = {a, (const word *)b.dout, delta, stream,
                                       (float *)(stream + 4 * P::QUERIES * D)};
    unsigned row = blockIdx.x / tiles, group = (unsigned)(a.heads / a.kv_heads);
    size_t sequence = row / a.kv_heads, kv_head = row % a.kv_heads;
    int end = (int)a.seq, block_first = (int)(blockIdx.x % tiles) * P::KEYS;
    int warp_rows = (int)(threadIdx.x / 32) * 16, first = block_first + warp_rows;

    tile_fetch<D, P::KEYS, P::THREADS>(
        k_tile, rows_of((const word *)a.k, &a, a.kv_heads, sequence, kv_head), block_first, end);
    tile_fetch<D, P::KEYS, P::THREADS>(
        v_tile, rows_of((const word *)a.v, &a, a.kv_heads, sequence, kv_head), block_first, end);
    query_walk now = {kv_head * group, block_first}, next = now;
    queries.fetch(sequence, now.head, now.first, 0);
    hst_cp_async_commit();
    queries.put_statistic(queries.statistic(sequence, now.head, now.first), 0);
    int seen_end = NARROW ? queries_end(a, sequence, min(block_first + P::KEYS, end) - 1) : end;

    float dk[1][D / 8][4], dv[1][D / 8][4], c = a.scale * LOG2_E;
    clear(dk);
    clear(dv);
    for (int turn = 0; now.head < (kv_head + 1) * group; now = next, turn ^= 1) {
        hst_cp_async_wait<0>();
        __syncthreads(); /* this turn's queries are here, and all have used the other's */
        next.first += P::QUERIES;
        if (next.first >= seen_end)
            next = {now.head + 1, block_first};
        bool more = next.head < (kv_head + 1) * group;
        float statistic = more ? queries.statistic(sequence, next.head, next.first) : 0;
        if (more)
            queries.fetch(sequence, next.head, next.first, turn ^ 1);
        hst_cp_async_commit();
        if (now.first + P::QUERIES > first) { /* some query sees this warp's first key */
            float s[1][P::QUERIES / 8][4], dp[1][P::QUERIES / 8][4];
            const word *q = stream + turn * 2 * P::QUERIES * D, *dout = q + P::QUERIES * D;
            row_products<T, D>(s, lane_down<D>(k_tile + warp_rows * D), lane_across<D>(q));
            row_products<T, D>(dp, lane_down<D>(v_tile + warp_rows * D), lane_across<D>(dout));
            const float *stats = queries.stats + turn * P::STATS * P::QUERIES;
            if (now.first < first + 15)
                hide_later_keys<true>(s, first - now.first + lane_ahead());
            if (NARROW)
                hide_later_queries(s, (const int *)stats + 2 * P::QUERIES,
                                   first + (int)threadIdx.x % 32 / 4);
            turned_weights(s, dp, stats, c);
            add_weighted<T, D>(dv, s, lane_down<D>(dout));
            add_weighted<T, D>(dk, dp, lane_down<D>(q));
        }
        queries.put_statistic(statistic, turn ^ 1);
    }
    const float scale[1][2] = {{a.scale, a.scale}}, one[1][2] = {{1, 1}};
    store_rows<T, D>(dk, scale, k_tile + warp_rows * D,
                     rows_of((word *)b.dk, &a, a.kv_heads, sequence, kv_head), first, end);
    store_rows<T, D>(dv, one, v_tile + warp_rows * D,
                     rows_of((word *)b.dv, &a, a.kv_heads, sequence, kv_head), first, end);
}

/* ---- dQ -------------------------------------------------------------------------------------- */

template <int D, int WARPS> struct dq_plan {
    static constexpr int ROWS = 128, M = ROWS / 16 / WARPS, KEYS = 32;
    static constexpr int THREADS = WARPS * 32, BLOCKS = WARPS_RESIDENT / WARPS;
    static constexpr size_t SHARED = (size_t)(2 * ROWS + 4 * KEYS) * D * sizeof(word);
};

/* dP becomes dS, from S; lse in units of log 2. */
template <int M, int N>
static __device__ __forceinline__ void score_slopes(const float (&s)[M][N][4], float (&dp)[M][N][4],
                                                    const float (&lse)[M][2],
                                                    const float (&delta)[M][2], float c)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dp[m][n][i] = hst_exp2(__fmaf_rn(s[m][n][i], c, -lse[m][i / 2])) *
                              (dp[m][n][i] - delta[m][i / 2]);
}

template <class T, int D, int WARPS, bool NARROW>
static __global__ void __launch_bounds__(dq_plan<D, WARPS>::THREADS, dq_plan<D, WARPS>::BLOCKS)
    k_attention_dq(struct hst_attention_backward b, const float *all_delta, unsigned tiles)
{
    typedef dq_plan<D, WARPS> P;
    HST_DYN_SHARED(word, q_tile);
    const struct hst_attention &a = b.forward;
    word *dout_tile = q_tile + P::ROWS * D;
    attention_place at = last_tile_first(blockIdx.x, tiles, (unsigned)a.heads);
    key_stream<D, P::KEYS> keys = keys_of<D, P::KEYS>(a, at, dout_tile + P::ROWS * D);
    int end = (int)a.seq, block_first = at.tile * P::ROWS;
    int warp_rows = (int)(threadIdx.x / 32) * 16 * P::M, first = block_first + warp_rows;
    int lane_row = first + (int)threadIdx.x % 32 / 4;
    int begin = NARROW ? first_key(a, at.sequence, block_first) / P::KEYS : 0;

    tile_fetch<D, P::ROWS, P::THREADS>(
        q_tile, rows_of((const word *)a.q, &a, a.heads, at.sequence, at.head), block_first, end);
    tile_fetch<D, P::ROWS, P::THREADS>(
        dout_tile, rows_of((const word *)b.dout, &a, a.heads, at.sequence, at.head), block_first,
        end);
    keys.template fetch<P::THREADS>(begin & 1, begin * P::KEYS, end);
    hst_cp_async_commit();
    lane_view<D> q_view = lane_down<D>(q_tile + warp_rows * D);
    lane_view<D> k_view = lane_across<D>(keys.buffers), k_rows = lane_down<D>(keys.buffers);

    float dq[P::M][D / 8][4], lse[P::M][2], delta[P::M][2];
    typename sight_of<NARROW, P::M>::type sight(a, at.sequence, first);
    clear(dq);
    size_t statistic = statistic_at(&a, at.sequence, at.head);
#pragma unroll
    for (int m = 0; m < P::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = lane_row + m * 16 + half * 8;
            lse[m][half] = query < end ? a.lse[statistic + query] * LOG2_E : 0;
            delta[m][half] = query < end ? all_delta[statistic + query] : 0;
        }
    int last = min(block_first + P::ROWS, end) - 1;
    /* The turn is worked out where it is used: kept in a variable, it makes ptxas spill at head_dim
     * 128. */
    for (int tile = begin; tile * P::KEYS <= last; tile++) {
        int key = tile * P::KEYS;
        hst_cp_async_wait<0>();
        __syncthreads(); /* this turn's tiles are here, and all have used the other's */
        if (key + P::KEYS <= last)
            keys.template fetch<P::THREADS>((tile & 1) ^ 1, key + P::KEYS, end);
        hst_cp_async_commit();
        if (key >= first + 16 * P::M || !sight.reaches(key + P::KEYS))
            continue; /* no query of this warp sees it */
        float s[P::M][P::KEYS / 8][4], dp[P::M][P::KEYS / 8][4];
        row_products<T, D>(s, q_view, k_view.later(tile % 2 * 2 * P::KEYS));
        row_products<T, D>(dp, q_view.later(P::ROWS), k_view.later((tile % 2 * 2 + 1) * P::KEYS));
        if (key + P::KEYS - 1 > first)
            hide_later_keys<false>(s, first - key + lane_ahead());
        sight.hide(s, key);
        score_slopes(s, dp, lse, delta, a.scale * LOG2_E);
        add_weighted<T, D>(dq, dp, k_rows.later(tile % 2 * 2 * P::KEYS));
    }
    float scale[P::M][2];
#pragma unroll
    for (int m = 0; m < P::M; m++)
        scale[m][0] = scale[m][1] = a.scale;
    store_rows<T, D>(dq, scale, q_tile + warp_rows * D,
                     rows_of((word *)b.dq, &a, a.heads, at.sequence, at.head), first, end);
}

/* ---- launches -------------------------------------------------------------------------------- */

template <class T, int D, bool NARROW>
static cudaError_t launch_dkv(cudaStream_t stream, const struct hst_attention_backward *args,
                              const float *delta)
{
    typedef dkv_plan<D, NARROW> P;
    const struct hst_attention *a = &args->forward;
    unsigned tiles = tiles_of(a->seq, P::KEYS);
    cudaError_t error = cudaFuncSetAttribute(
        k_attention_dkv<T, D, NARROW>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::SHARED);
    if (error != cudaSuccess)
        return error;
    HST_LAUNCH((k_attention_dkv<T, D, NARROW>), (unsigned)(tiles * a->kv_heads * a->batch),
               P::THREADS, P::SHARED, stream, *args, delta, tiles);
    return cudaGetLastError();
}

template <class T, int D, int WARPS, bool NARROW = false>
static cudaError_t launch_dq(cudaStream_t stream, const struct hst_attention_backward *args,
                             const float *delta)
{
    typedef dq_plan<D, WARPS> P;
    const struct hst_attention *a = &args->forward;
    unsigned tiles = tiles_of(a->seq, P::ROWS);
    cudaError_t error =
        cudaFuncSetAttribute(k_attention_dq<T, D, WARPS, NARROW>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)P::SHARED);
    if (error != cudaSuccess)
        return error;
    HST_LAUNCH((k_attention_dq<T, D, WARPS, NARROW>), (unsigned)(tiles * a->heads * a->batch),
               P::THREADS, P::SHARED, stream, *args, delta, tiles);
    return cudaGetLastError();
}

template <class T, int D>
static cudaError_t launch_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                   const float *delta)
{
    typedef dq_plan<D, 4> P;
    bool fit = true, narrow = is_narrow(&args->forward);
    cudaError_t error = narrow ? launch_dkv<T, D, true>(stream, args, delta)
                               : launch_dkv<T, D, false>(stream, args, delta);
    if (narrow)
        return error != cudaSuccess ? error : launch_dq<T, D, 8, true>(stream, args, delta);
    if (error == cudaSuccess && !fits_every_card(P::BLOCKS, P::SHARED))
        error = blocks_fit(P::BLOCKS, P::SHARED, &fit);
    if (error != cudaSuccess)
        return error;
    if constexpr (!fits_every_card(P::BLOCKS, P::SHARED))
        if (!fit)
            return launch_dq<T, D, 8>(stream, args, delta);
    return launch_dq<T, D, 4>(stream, args, delta);
}

template <class T>
static cudaError_t backward_of(cudaStream_t stream, const struct hst_attention_backward *args,
                               const float *delta)
{
    switch (args->forward.head_dim) {
    case 64:
        return launch_backward<T, 64>(stream, args, delta);
    case 96:
        return launch_backward<T, 96>(stream, args, delta);
    case 128:
        return launch_backward<T, 128>(stream, args, delta);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t attention_tiled_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                     const float *delta)
{
    return HST_BY_HALF(args->forward.dtype, backward_of, stream, args, delta);
}
