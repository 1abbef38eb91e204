/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention for every head_dim and dtype, in plain CUDA C++: what the tensor cores' kernels
 * do not serve, and what they are compared with.
 *
 * A block of 16×16 threads owns 64 rows of one head and 64 columns of its output, a thread 4×4 of
 * each product: rows ty + 16·i, columns tx + 16·j. It goes over the tiles of 64 keys (or queries)
 * in order. Scores are summed over head_dim in pieces of 16 columns that pass through shared
 * memory, become weights there, and are multiplied with a 64×64 piece of the values. A head wider
 * than 64 is several blocks, each forming the scores anew: shared memory and registers do not grow
 * with head_dim, and no sum is shared.
 *
 * Everything is f32: the weights are not rounded. exp is within 2 ulp.
 * Cost, per query and key, with s = ⌈head_dim/64⌉: 2·head_dim·(s + 1) flops forward and
 * 2·head_dim·(4·s + 3) backward; 41 KiB of shared memory.
 * Source: Dao 2023, arXiv:2307.08691, Alg. 1 and 2.
 */
#include "attention.h"

enum { TILE = 64, PIECE = 16, SIDE = 16, PER = TILE / SIDE, THREADS = SIDE * SIDE };

struct any_shared {
    float a[TILE][PIECE + 1], b[TILE][PIECE + 1]; /* odd rows: a column's elements in 16 banks */
    float weights[TILE][TILE + 1];
    float values[TILE][TILE];
};

/* Which tile and which 64 columns a block owns. */
struct any_place {
    size_t sequence, head, column;
    int first;
};

static __device__ any_place any_place_of(unsigned tiles, unsigned slices, unsigned heads)
{
    unsigned tile = blockIdx.x / slices;
    unsigned row = tile / tiles;
    return {row / heads, row % heads, (size_t)(blockIdx.x % slices) * TILE,
            (int)(tile % tiles) * TILE};
}

static __device__ __forceinline__ int tx()
{
    return (int)threadIdx.x % SIDE;
}

static __device__ __forceinline__ int ty()
{
    return (int)threadIdx.x / SIDE;
}

static __device__ __forceinline__ void any_clear(float (&c)[PER][PER])
{
    for (int i = 0; i < PER; i++)
        for (int j = 0; j < PER; j++)
            c[i][j] = 0;
}

/* Element of a head's row, 0 beyond its end. */
template <class T>
static __device__ __forceinline__ float element(head_rows<const T> rows, int row, int end,
                                                size_t column, size_t head_dim)
{
    return row < end && column < head_dim ? (float)rows.data[(size_t)row * rows.stride + column]
                                          : 0.0f;
}

/* c = the products of 64 rows of a with 64 rows of b. Ends with a barrier. */
template <class T>
static __device__ void any_row_products(struct any_shared *sh, float (&c)[PER][PER],
                                        head_rows<const T> a, int a_first, head_rows<const T> b,
                                        int b_first, const struct hst_attention *args)
{
    int end = (int)args->seq;
    any_clear(c);
    for (size_t column = 0; column < args->head_dim; column += PIECE) {
        for (int i = 0; i < PER; i++) {
            int row = ty() + SIDE * i;
            sh->a[row][tx()] = element(a, a_first + row, end, column + tx(), args->head_dim);
            sh->b[row][tx()] = element(b, b_first + row, end, column + tx(), args->head_dim);
        }
        __syncthreads();
        for (int k = 0; k < PIECE; k++)
            for (int i = 0; i < PER; i++)
                for (int j = 0; j < PER; j++)
                    c[i][j] += sh->a[ty() + SIDE * i][k] * sh->b[tx() + SIDE * j][k];
        __syncthreads();
    }
}

/* sum += W·X: W as the threads hold it, X 64 rows from `first` and 64 columns. Ends with a barrier.
 */
template <class T>
static __device__ void any_add_weighted(struct any_shared *sh, float (&sum)[PER][PER],
                                        const float (&w)[PER][PER], head_rows<const T> x, int first,
                                        size_t column, const struct hst_attention *args)
{
    for (int i = 0; i < PER; i++)
        for (int j = 0; j < PER; j++) {
            int row = ty() + SIDE * i, side = tx() + SIDE * j;
            sh->weights[row][side] = w[i][j];
            sh->values[row][side] =
                element(x, first + row, (int)args->seq, column + side, args->head_dim);
        }
    __syncthreads();
    for (int k = 0; k < TILE; k++)
        for (int i = 0; i < PER; i++)
            for (int j = 0; j < PER; j++)
                sum[i][j] += sh->weights[ty() + SIDE * i][k] * sh->values[k][tx() + SIDE * j];
    __syncthreads();
}

template <class T>
static __device__ void any_store(const float (&c)[PER][PER], const float (&factor)[PER],
                                 head_rows<T> rows, int first, size_t column,
                                 const struct hst_attention *args)
{
    for (int i = 0; i < PER; i++)
        for (int j = 0; j < PER; j++) {
            int row = first + ty() + SIDE * i;
            size_t to = column + tx() + SIDE * j;
            if (row < (int)args->seq && to < args->head_dim)
                rows.data[(size_t)row * rows.stride + to] = (T)(c[i][j] * factor[i]);
        }
}

/* Over the 16 threads that share a row. */
static __device__ __forceinline__ float any_row_max(float value)
{
    for (int apart = SIDE / 2; apart; apart /= 2)
        value = fmaxf(value, __shfl_xor_sync(HST_FULL_WARP, value, apart));
    return value;
}

static __device__ __forceinline__ float any_row_sum(float value)
{
    for (int apart = SIDE / 2; apart; apart /= 2)
        value += __shfl_xor_sync(HST_FULL_WARP, value, apart);
    return value;
}

/* Scores become weights against the greatest score yet; what was summed before is brought down.
 * from: the first key of each row, which one that has seen none yet has no greatest score before.
 */
template <bool NARROW>
static __device__ void
any_softmax_step(float (&s)[PER][PER], float (&o)[PER][PER], float (&top)[PER], float (&sum)[PER],
                 const int (&from)[NARROW ? PER : 1], int row, int column, float scale)
{
    for (int i = 0; i < PER; i++) {
        float greatest = top[i], part = 0;
        for (int j = 0; j < PER; j++) {
            bool hidden = column + SIDE * j > row + SIDE * i;
            if (NARROW)
                hidden |= column + SIDE * j < from[i];
            s[i][j] = hidden ? -INFINITY : s[i][j] * scale;
            greatest = fmaxf(greatest, s[i][j]);
        }
        greatest = any_row_max(greatest);
        float base = NARROW && greatest == -INFINITY ? 0 : greatest;
        float down = expf(top[i] - base);
        top[i] = greatest;
        for (int j = 0; j < PER; j++) {
            part += s[i][j] = expf(s[i][j] - base);
            o[i][j] *= down;
        }
        sum[i] = sum[i] * down + part;
    }
}

template <class T, bool NARROW>
static __global__ void __launch_bounds__(THREADS)
    k_attention_any(struct hst_attention a, unsigned tiles, unsigned slices)
{
    __shared__ struct any_shared sh;
    any_place at = any_place_of(tiles, slices, (unsigned)a.heads);
    size_t kv_head = at.head / (a.heads / a.kv_heads);
    head_rows<const T> q = rows_of((const T *)a.q, &a, a.heads, at.sequence, at.head);
    head_rows<const T> k = rows_of((const T *)a.k, &a, a.kv_heads, at.sequence, kv_head);
    head_rows<const T> v = rows_of((const T *)a.v, &a, a.kv_heads, at.sequence, kv_head);
    float o[PER][PER], s[PER][PER], sum[PER], top[PER];
    int from[NARROW ? PER : 1];
    any_clear(o);
    for (int i = 0; i < PER; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
        if (NARROW)
            from[i] = first_key(a, at.sequence, min(at.first + ty() + SIDE * i, (int)a.seq - 1));
    }
    for (int key = NARROW ? first_key(a, at.sequence, at.first) / TILE * TILE : 0; key <= at.first;
         key += TILE) {
        any_row_products(&sh, s, q, at.first, k, key, &a);
        any_softmax_step<NARROW>(s, o, top, sum, from, at.first + ty(), key + tx(), a.scale);
        any_add_weighted(&sh, o, s, v, key, at.column, &a);
    }
    float factor[PER];
    float *lse = a.lse + statistic_at(&a, at.sequence, at.head);
    for (int i = 0; i < PER; i++) {
        int row = at.first + ty() + SIDE * i;
        float total = any_row_sum(sum[i]);
        factor[i] = 1 / total;
        if (tx() == 0 && at.column == 0 && row < (int)a.seq)
            lse[row] = top[i] + logf(total);
    }
    any_store(o, factor, rows_of((T *)a.o, &a, a.heads, at.sequence, at.head), at.first, at.column,
              &a);
}

/* The backward weighs by these, of a query and a key. */
struct any_slopes {
    float p, ds;
};

template <bool NARROW>
static __device__ __forceinline__ any_slopes slopes_of(const struct hst_attention *a,
                                                       size_t sequence, float score, float dp,
                                                       int query, int key, const float *lse,
                                                       const float *delta)
{
    if (key > query || query >= (int)a->seq)
        return {0, 0};
    if (NARROW && key < first_key(*a, sequence, query))
        return {0, 0};
    float p = expf(score * a->scale - lse[query]);
    return {p, p * (dp - delta[query])};
}

template <class T, bool NARROW>
static __global__ void __launch_bounds__(THREADS)
    k_attention_any_dq(struct hst_attention_backward b, const float *all_delta, unsigned tiles,
                       unsigned slices)
{
    __shared__ struct any_shared sh;
    const struct hst_attention &a = b.forward;
    any_place at = any_place_of(tiles, slices, (unsigned)a.heads);
    size_t kv_head = at.head / (a.heads / a.kv_heads);
    head_rows<const T> q = rows_of((const T *)a.q, &a, a.heads, at.sequence, at.head);
    head_rows<const T> dout = rows_of((const T *)b.dout, &a, a.heads, at.sequence, at.head);
    head_rows<const T> k = rows_of((const T *)a.k, &a, a.kv_heads, at.sequence, kv_head);
    head_rows<const T> v = rows_of((const T *)a.v, &a, a.kv_heads, at.sequence, kv_head);
    const float *lse = a.lse + statistic_at(&a, at.sequence, at.head);
    const float *delta = all_delta + statistic_at(&a, at.sequence, at.head);
    float dq[PER][PER], s[PER][PER], dp[PER][PER];
    any_clear(dq);
    for (int key = NARROW ? first_key(a, at.sequence, at.first) / TILE * TILE : 0; key <= at.first;
         key += TILE) {
        any_row_products(&sh, s, q, at.first, k, key, &a);
        any_row_products(&sh, dp, dout, at.first, v, key, &a);
        for (int i = 0; i < PER; i++)
            for (int j = 0; j < PER; j++)
                dp[i][j] =
                    slopes_of<NARROW>(&a, at.sequence, s[i][j], dp[i][j],
                                      at.first + ty() + SIDE * i, key + tx() + SIDE * j, lse, delta)
                        .ds;
        any_add_weighted(&sh, dq, dp, k, key, at.column, &a);
    }
    const float scale[PER] = {a.scale, a.scale, a.scale, a.scale};
    any_store(dq, scale, rows_of((T *)b.dq, &a, a.heads, at.sequence, at.head), at.first, at.column,
              &a);
}

template <class T, bool NARROW>
static __global__ void __launch_bounds__(THREADS)
    k_attention_any_dkv(struct hst_attention_backward b, const float *all_delta, unsigned tiles,
                        unsigned slices)
{
    __shared__ struct any_shared sh;
    const struct hst_attention &a = b.forward;
    any_place at = any_place_of(tiles, slices, (unsigned)a.kv_heads); /* head: of keys */
    size_t group = a.heads / a.kv_heads;
    int seen_end = NARROW ? queries_end(a, at.sequence, min(at.first + TILE, (int)a.seq) - 1) : 0;
    head_rows<const T> k = rows_of((const T *)a.k, &a, a.kv_heads, at.sequence, at.head);
    head_rows<const T> v = rows_of((const T *)a.v, &a, a.kv_heads, at.sequence, at.head);
    float dk[PER][PER], dv[PER][PER], s[PER][PER], dp[PER][PER];
    any_clear(dk);
    any_clear(dv);
    for (size_t head = at.head * group; head < (at.head + 1) * group; head++) {
        head_rows<const T> q = rows_of((const T *)a.q, &a, a.heads, at.sequence, head);
        head_rows<const T> dout = rows_of((const T *)b.dout, &a, a.heads, at.sequence, head);
        const float *lse = a.lse + statistic_at(&a, at.sequence, head);
        const float *delta = all_delta + statistic_at(&a, at.sequence, head);
        for (int query = at.first; query < (NARROW ? seen_end : (int)a.seq); query += TILE) {
            any_row_products(&sh, s, k, at.first, q, query, &a);
            any_row_products(&sh, dp, v, at.first, dout, query, &a);
            for (int i = 0; i < PER; i++)
                for (int j = 0; j < PER; j++) {
                    any_slopes slopes = slopes_of<NARROW>(&a, at.sequence, s[i][j], dp[i][j],
                                                          query + tx() + SIDE * j,
                                                          at.first + ty() + SIDE * i, lse, delta);
                    s[i][j] = slopes.p;
                    dp[i][j] = slopes.ds;
                }
            any_add_weighted(&sh, dv, s, dout, query, at.column, &a);
            any_add_weighted(&sh, dk, dp, q, query, at.column, &a);
        }
    }
    const float scale[PER] = {a.scale, a.scale, a.scale, a.scale}, one[PER] = {1, 1, 1, 1};
    any_store(dk, scale, rows_of((T *)b.dk, &a, a.kv_heads, at.sequence, at.head), at.first,
              at.column, &a);
    any_store(dv, one, rows_of((T *)b.dv, &a, a.kv_heads, at.sequence, at.head), at.first,
              at.column, &a);
}

/* ---- launches -------------------------------------------------------------------------------- */

template <class T, bool NARROW>
static cudaError_t launch_forward_by(cudaStream_t stream, const struct hst_attention *args)
{
    unsigned tiles = tiles_of(args->seq, TILE), slices = tiles_of(args->head_dim, TILE);
    unsigned blocks = (unsigned)(args->batch * args->heads * tiles * slices);
    HST_LAUNCH((k_attention_any<T, NARROW>), blocks, THREADS, 0, stream, *args, tiles, slices);
    return cudaGetLastError();
}

template <class T>
static cudaError_t launch_forward(cudaStream_t stream, const struct hst_attention *args)
{
    return is_narrow(args) ? launch_forward_by<T, true>(stream, args)
                           : launch_forward_by<T, false>(stream, args);
}

cudaError_t attention_any_forward(cudaStream_t stream, const struct hst_attention *args)
{
    return HST_BY_DTYPE(args->dtype, launch_forward, stream, args);
}

template <class T, bool NARROW>
static cudaError_t launch_backward_by(cudaStream_t stream,
                                      const struct hst_attention_backward *args, const float *delta)
{
    const struct hst_attention *a = &args->forward;
    unsigned tiles = tiles_of(a->seq, TILE), slices = tiles_of(a->head_dim, TILE);
    HST_LAUNCH((k_attention_any_dkv<T, NARROW>),
               (unsigned)(a->batch * a->kv_heads * tiles * slices), THREADS, 0, stream, *args,
               delta, tiles, slices);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        return error;
    HST_LAUNCH((k_attention_any_dq<T, NARROW>), (unsigned)(a->batch * a->heads * tiles * slices),
               THREADS, 0, stream, *args, delta, tiles, slices);
    return cudaGetLastError();
}

template <class T>
static cudaError_t launch_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                   const float *delta)
{
    return is_narrow(&args->forward) ? launch_backward_by<T, true>(stream, args, delta)
                                     : launch_backward_by<T, false>(stream, args, delta);
}

cudaError_t attention_any_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                   const float *delta)
{
    return HST_BY_DTYPE(args->forward.dtype, launch_backward, stream, args, delta);
}
