/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy, a block per row. One pass finds the maximum and the sum of exponentials together,
 * the second writes the gradient in place. Bytes moved per element in bf16: 2 for the loss, 6 with
 * the gradient, of which 2 come from the cache where the rows in work fit there: one block of 1,024
 * threads per multiprocessor has 34 MB of Llama's rows in work on an H200 of 50, and the second
 * pass runs backwards, meeting first what was read last. Where a call has one block of columns, as
 * a model's head calls it, a row has 256 threads, and five rows share a multiprocessor. 1,024 rows
 * of 8,192 columns took an H200 27.7 and 21.2 us (loss, gradient) with 1,024 threads a row, and
 * take it 9.7 and 12.4 us.
 *
 * The order of the sum depends on the length of the vocabulary alone, whether its columns come in
 * one call or in several: each block of HST_VOCAB_BLOCK columns is summed by itself, 8 columns per
 * thread, and the blocks are joined one after another. nvcc chooses which products it fuses with a
 * sum, so that two lanes that join the same numbers may round differently: either one lane's result
 * is made everybody's, or the roundings are written out.
 *
 * A vocabulary that is not whole vectors has rows that do not begin at a multiple of 16 bytes, so
 * its first pass goes by single elements, 16 under way per thread, wherever a row lies. Where it is
 * whole vectors, so are its blocks, the last one included, and all their rows begin at such a
 * multiple. The gradient, which has no order, goes by vectors between the row's first and last
 * aligned places.
 */
#include "launchers.h"
#include "reduce.h"
#include <math.h>

enum {
    THREADS = 1024,
    WARPS = THREADS / 32,
    FEW_WARPS = 8,                     /* of a row where a call has one block of its columns */
    SHARE = HST_VOCAB_BLOCK / THREADS, /* elements of a block that are one thread's */
    STAGE = WARPS,                     /* blocks whose sums meet in shared memory at a time */
};

/* Σ e^(x − top) of some numbers, and their maximum; sum is 0 where there are none. */
struct soft {
    float top, sum;
};

/* It is taken from numbers before exp: −∞ − −∞ would be a NaN where only −∞ was met. */
static __device__ __forceinline__ float base_of(float top)
{
    return top == -INFINITY ? 0.0f : top;
}

static __device__ __forceinline__ struct soft soft_join(struct soft a, struct soft b)
{
    float top = fmaxf(a.top, b.top), base = base_of(top);
    return {top, a.sum * __expf(a.top - base) + b.sum * __expf(b.top - base)};
}

/* K more numbers: one exp each, and one for what was summed before. */
template <int K>
static __device__ __forceinline__ void soft_add(struct soft &s, const float (&x)[K])
{
    float top = s.top;
    HST_UNROLL
    for (int i = 0; i < K; i++)
        top = fmaxf(top, x[i]);
    float base = base_of(top), sum = 0;
    HST_UNROLL
    for (int i = 0; i < K; i++)
        sum += __expf(x[i] - base);
    s.sum = s.sum * __expf(s.top - base) + sum;
    s.top = top;
}

static __device__ __forceinline__ struct soft warp_join(struct soft s)
{
    HST_UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
        struct soft other = {__shfl_xor_sync(HST_FULL_WARP, s.top, distance),
                             __shfl_xor_sync(HST_FULL_WARP, s.sum, distance)};
        s = soft_join(s, other);
    }
    return s;
}

/* Over the threads; every one gets lane 0's result, as each lane may round its own way. */
static __device__ __forceinline__ struct soft block_join(struct soft s)
{
    __shared__ float top[32], sum[32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    s = warp_join(s);
    if (lane == 0) {
        top[warp] = s.top;
        sum[warp] = s.sum;
    }
    __syncthreads();
    s = lane < blockDim.x / 32 ? soft{top[lane], sum[lane]} : soft{-INFINITY, 0.0f};
    s = warp_join(s);
    __syncthreads();
    return {__shfl_sync(HST_FULL_WARP, s.top, 0), __shfl_sync(HST_FULL_WARP, s.sum, 0)};
}

/* The part of a block that is thread's, one of `step`, N at a time; −∞, which adds 0, stands behind
 * the block's end. */
template <typename T, int N>
static __device__ __forceinline__ void load_share(pack<T, N> (&share)[SHARE / N], const T *block,
                                                  size_t columns, unsigned thread, unsigned step)
{
    float none[N];
    HST_UNROLL
    for (int i = 0; i < N; i++)
        none[i] = -INFINITY;
    HST_UNROLL
    for (int k = 0; k < SHARE / N; k++) {
        const size_t at = (thread + k * step) * N;
        fill(share[k], none);
        if (at < columns)
            share[k] = load<N>(block + at);
    }
}

/* A vocabulary of one block. */
template <typename T, int N>
static __device__ __forceinline__ struct soft soft_of_one(const T *row, size_t vocab)
{
    struct soft s = {-INFINITY, 0.0f};
    pack<T, N> share[SHARE / N];
    load_share(share, row, vocab, threadIdx.x, blockDim.x);
    HST_UNROLL
    for (int k = 0; k < SHARE / N; k++) {
        float x[N];
        unpack(share[k], x);
        soft_add(s, x);
    }
    return block_join(s);
}

/* The warp's part of a block: its maximum comes first, so that each number costs one exp. */
template <typename T, int N>
static __device__ __forceinline__ struct soft warp_soft(const pack<T, N> (&share)[SHARE / N])
{
    float x[SHARE / N][N], top = -INFINITY, sum = 0.0f;
    HST_UNROLL
    for (int k = 0; k < SHARE / N; k++) {
        unpack(share[k], x[k]);
        HST_UNROLL
        for (int i = 0; i < N; i++)
            top = fmaxf(top, x[k][i]);
    }
    top = warp_max(top);
    const float base = base_of(top);
    HST_UNROLL
    for (int k = 0; k < SHARE / N; k++) {
        HST_UNROLL
        for (int i = 0; i < N; i++)
            sum = __fadd_rn(sum, __expf(x[k][i] - base));
    }
    return {top, warp_sum(sum)};
}

/* A block, of which each lane has a warp's part. */
static __device__ __forceinline__ struct soft soft_of_parts(struct soft part)
{
    const float top = warp_max(part.top);
    return {top, warp_sum(__fmul_rn(part.sum, __expf(part.top - base_of(top))))};
}

/*
 * s joined with the blocks that the first lanes have, one after another. A step's factors need the
 * maximum of what came before alone, so all lanes make them at once and the chain is a product and
 * a sum per block.
 */
static __device__ __forceinline__ struct soft join_in_order(struct soft s, struct soft block,
                                                            unsigned blocks)
{
    const unsigned lane = threadIdx.x % 32;
    float top = fmaxf(s.top, block.top);
    HST_UNROLL
    for (unsigned distance = 1; distance < 32; distance *= 2) /* lanes before it get their own */
        top = fmaxf(top, __shfl_up_sync(HST_FULL_WARP, top, distance));
    const float before = __shfl_up_sync(HST_FULL_WARP, top, 1), base = base_of(top);
    const float keep = __expf((lane ? before : s.top) - base);
    const float add = __fmul_rn(block.sum, __expf(block.top - base));
    for (unsigned b = 0; b < blocks; b++)
        s.sum = __fadd_rn(__fmul_rn(s.sum, __shfl_sync(HST_FULL_WARP, keep, b)),
                          __shfl_sync(HST_FULL_WARP, add, b));
    s.top = __shfl_sync(HST_FULL_WARP, top, blocks - 1);
    return s;
}

/*
 * Columns of a vocabulary of several blocks, from the beginning of one on, joined to s. Warps run
 * apart over a stage, some 16 elements of every thread under way, and meet where it ends: parts of
 * blocks, then a block per warp, then the first warp joins the blocks.
 */
template <typename T, int N, int U>
static __device__ __forceinline__ struct soft soft_of_blocks(struct soft s, const T *row,
                                                             size_t columns)
{
    enum { AHEAD = U * N / SHARE };
    __shared__ float part_top[STAGE][WARPS], part_sum[STAGE][WARPS], top[STAGE], sum[STAGE];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (size_t first = 0; first < columns; first += (size_t)STAGE * HST_VOCAB_BLOCK) {
        const size_t left = (columns - first + HST_VOCAB_BLOCK - 1) / HST_VOCAB_BLOCK;
        const unsigned blocks = left < STAGE ? (unsigned)left : STAGE;
        for (unsigned b = 0; b < blocks; b += AHEAD) {
            pack<T, N> share[AHEAD][SHARE / N];
            HST_UNROLL
            for (unsigned u = 0; u < AHEAD; u++) {
                const size_t at = first + (size_t)(b + u) * HST_VOCAB_BLOCK;
                load_share(share[u], row + at, at < columns ? columns - at : 0, threadIdx.x,
                           THREADS);
            }
            HST_UNROLL
            for (unsigned u = 0; u < AHEAD; u++) {
                if (b + u >= blocks)
                    break;
                const struct soft part = warp_soft(share[u]);
                if (lane == 0) {
                    part_top[b + u][warp] = part.top;
                    part_sum[b + u][warp] = part.sum;
                }
            }
        }
        __syncthreads();
        if (warp < blocks) {
            const struct soft block = soft_of_parts({part_top[warp][lane], part_sum[warp][lane]});
            if (lane == 0) {
                top[warp] = block.top;
                sum[warp] = block.sum;
            }
        }
        __syncthreads();
        if (warp == 0)
            s = join_in_order(s, lane < blocks ? soft{top[lane], sum[lane]} : soft{-INFINITY, 0.0f},
                              blocks);
    }
    if (threadIdx.x == 0) {
        top[0] = s.top;
        sum[0] = s.sum;
    }
    __syncthreads();
    return {top[0], sum[0]};
}

/*
 * The same where the call has one block of columns: a warp does the parts of some, and each warp
 * joins them all. A row then has fewer threads, so that several rows are in work on a
 * multiprocessor and do not wait for one another.
 */
template <typename T, int N>
static __device__ __forceinline__ struct soft soft_of_block(struct soft s, const T *row,
                                                            size_t columns)
{
    enum { TURNS = WARPS / FEW_WARPS };
    __shared__ float part_top[WARPS], part_sum[WARPS];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    pack<T, N> share[TURNS][SHARE / N];
    HST_UNROLL
    for (unsigned i = 0; i < TURNS; i++)
        load_share(share[i], row, columns, threadIdx.x + i * FEW_WARPS * 32, THREADS);
    HST_UNROLL
    for (unsigned i = 0; i < TURNS; i++) {
        const struct soft part = warp_soft(share[i]);
        if (lane == 0) {
            part_top[warp + i * FEW_WARPS] = part.top;
            part_sum[warp + i * FEW_WARPS] = part.sum;
        }
    }
    __syncthreads();
    const struct soft block = soft_of_parts({part_top[lane], part_sum[lane]});
    const float top = fmaxf(s.top, block.top), base = base_of(top);
    __syncthreads();
    return {top, __fadd_rn(__fmul_rn(s.sum, __expf(s.top - base)),
                           __fmul_rn(block.sum, __expf(block.top - base)))};
}

template <typename T, int N>
static __device__ __forceinline__ void gradient(T *at, pack<T, N> p, float base, float factor)
{
    float x[N];
    unpack(p, x);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        x[i] = __expf(x[i] - base) * factor;
    store_f32(at, x);
}

/*
 * The row's softmax times factor, from its end: vectors where memory allows, else elements. Two
 * vectors of a thread are under way, 32 KB of the block; with four, f16 and rows that are not
 * aligned spill.
 */
template <typename T>
static __device__ __forceinline__ void gradient_row(T *row, size_t vocab, float base, float factor)
{
    enum { N = WIDE<T>, UNROLL = 2 };
    const size_t unaligned = (16 - (uintptr_t)row % 16) % 16 / sizeof(T), step = blockDim.x;
    const size_t head = unaligned < vocab ? unaligned : vocab;
    const size_t vectors = (vocab - head) / N, tail = head + vectors * N;
    for (size_t i = tail + threadIdx.x; i < vocab; i += step)
        gradient(row + i, load<1>(row + i), base, factor);
    for (size_t first = threadIdx.x; first < vectors; first += UNROLL * step) {
        pack<T, N> p[UNROLL];
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++)
            if (first + u * step < vectors)
                p[u] = load<N>(row + tail - (first + u * step + 1) * N);
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++)
            if (first + u * step < vectors)
                gradient(row + tail - (first + u * step + 1) * N, p[u], base, factor);
    }
    for (size_t i = threadIdx.x; i < head; i += step)
        gradient(row + i, load<1>(row + i), base, factor);
}

/* A row's loss and gradient are made of these, as state has them. */
struct known {
    struct soft soft;
    float aimed; /* the target's logit */
};

/* The target's place in this call's columns; beyond them where it is in no block or another. */
static __device__ __forceinline__ size_t aim_of(const struct hst_cross_entropy &a, size_t t)
{
    return a.targets[t] - a.first_column; /* huge where it lies before the block */
}

/* It joins what was known of the row, and its columns of this call. U: see soft_of_blocks; 0: there
 * is one block of columns, of a vocabulary of several. */
template <typename T, int N, int U>
static __device__ __forceinline__ struct known know(const struct hst_cross_entropy &a, size_t t,
                                                    const T *row)
{
    const size_t aim = aim_of(a, t);
    struct known k = {{-INFINITY, 0.0f}, NAN};
    if (a.first_column)
        k = {{a.state[3 * t], a.state[3 * t + 1]}, a.state[3 * t + 2]};
    if (aim < a.columns) {
        float aimed[1];
        load_f32(row + aim, aimed);
        k.aimed = aimed[0];
    }
    if constexpr (U == 0)
        k.soft = soft_of_block<T, N>(k.soft, row, a.columns);
    else
        k.soft = a.vocab > HST_VOCAB_BLOCK ? soft_of_blocks<T, N, U>(k.soft, row, a.columns)
                                           : soft_of_one<T, N>(row, a.vocab);
    if (threadIdx.x == 0 && a.state) {
        a.state[3 * t] = k.soft.top;
        a.state[3 * t + 1] = k.soft.sum;
        a.state[3 * t + 2] = k.aimed;
    }
    return k;
}

/* A row without a target, of which nothing is read: its logits may be anything. A warp's stores lie
 * side by side; wider ones would have to find where the row is aligned. */
template <typename T>
static __device__ __forceinline__ void learn_nothing(const struct hst_cross_entropy &a, size_t t,
                                                     T *row)
{
    const float none[1] = {0.0f};
    if (threadIdx.x == 0 && a.first_column + a.columns == a.vocab && !(a.state && a.want_grad))
        a.loss[t] = 0.0f;
    if (!a.want_grad)
        return;
    for (unsigned i = threadIdx.x; i < (unsigned)a.columns; i += blockDim.x)
        store_f32(row + i, none);
}

/*
 * At most 64 registers. Of whole rows more than 32, so that those in work stay one per
 * multiprocessor. Rows and blocks of them are two kernels with the same bits: in what both do, no
 * compiler may fuse a product with a sum.
 */
template <typename T, int N, int U>
static __global__ void __launch_bounds__(U ? THREADS : FEW_WARPS * 32, U       ? 1
                                                                       : N > 1 ? 5
                                                                               : 4)
    k_cross_entropy(struct hst_cross_entropy a)
{
    for (size_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
        T *row = (T *)a.logits + t * a.columns;
        if (a.targets[t] == HST_NO_TARGET) { /* of all threads alike */
            learn_nothing(a, t, row);
            continue;
        }
        struct known k;
        if (a.state && a.want_grad) {
            k = {{a.state[3 * t], a.state[3 * t + 1]}, a.state[3 * t + 2]};
        } else {
            k = know<T, N, U>(a, t, row);
            if (threadIdx.x == 0 && a.first_column + a.columns == a.vocab)
                a.loss[t] = logf(k.soft.sum) - (k.aimed - k.soft.top);
        }
        if (!a.want_grad)
            continue;
        const bool in_vocab = a.targets[t] < a.vocab;
        gradient_row(row, a.columns, k.soft.top, in_vocab ? a.grad_scale / k.soft.sum : NAN);
        __syncthreads();
        if (threadIdx.x == 0 && aim_of(a, t) < a.columns) {
            float away = k.aimed - k.soft.top;
            float to[1] = {a.grad_scale * (__expf(away) / k.soft.sum - 1.0f)};
            store_f32(row + aim_of(a, t), to);
        }
    }
}

/* Threads and vectors follow from the whole vocabulary, in blocks too. */
template <typename T>
static cudaError_t cross_entropy(cudaStream_t stream, const struct hst_cross_entropy *args)
{
    constexpr int N = WIDE<T>;
    struct hst_cross_entropy a = *args;
    a.columns = a.columns ? a.columns : a.vocab;
    const unsigned grid = grid_of(a.tokens, 1), few = FEW_WARPS * 32;
    const bool one = a.columns <= HST_VOCAB_BLOCK && a.vocab > HST_VOCAB_BLOCK;
    const unsigned threads = threads_of(a.vocab % N ? a.vocab : a.vocab / N, THREADS);
    if (a.vocab % N && one)
        HST_LAUNCH((k_cross_entropy<T, 1, 0>), grid, few, 0, stream, a);
    else if (a.vocab % N)
        HST_LAUNCH((k_cross_entropy<T, 1, 16>), grid, threads, 0, stream, a);
    else if (one)
        HST_LAUNCH((k_cross_entropy<T, N, 0>), grid, few, 0, stream, a);
    else
        HST_LAUNCH((k_cross_entropy<T, N, 4>), grid, threads, 0, stream, a);
    return cudaGetLastError();
}

cudaError_t hst_cuda_cross_entropy(cudaStream_t stream, const struct hst_cross_entropy *args)
{
    if (!args->tokens)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, cross_entropy, stream, args);
}
