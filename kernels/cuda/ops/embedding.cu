/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embedding look-up and its gradient. Bytes moved per element in bf16: forward 4; backward 2 of
 * dout, and 8 of each row of dweight that is touched.
 *
 * The backward adds each row's tokens in rising order, as the host does, so both give the same bits
 * (but for the pattern of a NaN): the tokens are sorted by (id, token), and for each id one block
 * per span of columns adds its run to the row. The sort counts, for each token, those that come
 * before it: tokens² comparisons of ids in shared memory, some 10 µs for 8,192 tokens, in integers,
 * whose atomic sums have no order.
 */
#include "launchers.h"
#include "vector.h"
#include "work_bytes.h"

enum {
    THREADS = 256,
    RANKED = 4096, /* ids that a block compares its own with */
    SPAN = 128,    /* threads, one vector of columns each */
    AHEAD = 8,     /* rows read before they are added */
};

/* ---- forward --------------------------------------------------------------------------------- */

/*
 * Rows as words, copied as they are, four under way per thread. `unknown` is the NaN that a row
 * becomes whose id is none; one whose id lies in another block of the vocabulary is left alone.
 */
template <typename W>
static __global__ void __launch_bounds__(THREADS)
    k_embedding(struct hst_embedding a, size_t row_words, W unknown)
{
    enum { UNROLL = 4 };
    for (size_t t = blockIdx.x; t < a.tokens; t += gridDim.x) {
        const size_t id = a.ids[t], step = blockDim.x;
        const size_t row = id - a.first_row; /* huge where it lies before the block */
        if (id < a.vocab && row >= a.rows)
            continue;
        const W *from = (const W *)a.weight + row * row_words;
        W *to = (W *)a.out + t * row_words;
        for (size_t first = threadIdx.x; first < row_words; first += UNROLL * step) {
            W word[UNROLL];
            HST_UNROLL
            for (int u = 0; u < UNROLL; u++) {
                word[u] = unknown;
                if (id < a.vocab && first + u * step < row_words)
                    word[u] = from[first + u * step];
            }
            HST_UNROLL
            for (int u = 0; u < UNROLL; u++)
                if (first + u * step < row_words)
                    to[first + u * step] = word[u];
        }
    }
}

template <typename W>
static cudaError_t embedding(cudaStream_t stream, const struct hst_embedding *args, W unknown)
{
    struct hst_embedding a = *args;
    a.rows = a.rows ? a.rows : a.vocab;
    size_t words = a.width * (a.dtype == HST_F32 ? 4 : 2) / sizeof(W);
    unsigned threads = threads_of((words + 3) / 4, THREADS);
    HST_LAUNCH((k_embedding<W>), grid_of(a.tokens, 1), threads, 0, stream, a, words, unknown);
    return cudaGetLastError();
}

cudaError_t hst_cuda_embedding(cudaStream_t stream, const struct hst_embedding *args)
{
    if (!args->tokens)
        return cudaSuccess;
    const bool f32 = args->dtype == HST_F32;
    const unsigned nan = f32 ? 0x7fc00000u : 0x7fc07fc0u; /* 7fc0 is one in bf16 and in f16 */
    if (args->width % (f32 ? 4 : 8) == 0)
        return embedding<uint4>(stream, args, make_uint4(nan, nan, nan, nan));
    if (f32)
        return embedding<uint32_t>(stream, args, nan);
    return embedding<uint16_t>(stream, args, (uint16_t)nan);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The workspace: for each token its place in the order, and for each place its token. */
struct order {
    uint32_t *rank, *token;
};

size_t hst_cuda_embedding_backward_work_bytes(size_t tokens, size_t vocab)
{
    (void)vocab;
    return work_embedding_backward_bytes(tokens);
}

/*
 * rank[t] += how many of one span of ids come before t's: those that are smaller, and the equal
 * ones of earlier tokens. A warp reads one id of the span at a time, the same for all its lanes.
 */
static __global__ void __launch_bounds__(THREADS)
    k_rank(const uint32_t *ids, size_t tokens, uint32_t *rank)
{
    __shared__ uint32_t span[RANKED];
    const size_t step = (size_t)gridDim.y * RANKED;
    for (size_t first = (size_t)blockIdx.x * THREADS; first < tokens;
         first += (size_t)gridDim.x * THREADS) {
        const size_t t = first + threadIdx.x;
        const uint32_t id = t < tokens ? ids[t] : 0;
        uint32_t count = 0;
        for (size_t begin = (size_t)blockIdx.y * RANKED; begin < tokens; begin += step) {
            const size_t end = tokens - begin < RANKED ? tokens : begin + RANKED;
            for (size_t i = begin + threadIdx.x; i < end; i += THREADS)
                span[i - begin] = ids[i];
            __syncthreads();
            const unsigned size = (unsigned)(end - begin); /* earlier tokens end at split */
            const unsigned split = t < begin ? 0 : t < end ? (unsigned)(t - begin) : size;
            HST_UNROLL_BY(8)
            for (unsigned i = 0; i < split; i++)
                count += span[i] <= id;
            HST_UNROLL_BY(8)
            for (unsigned i = split; i < size; i++)
                count += span[i] < id;
            __syncthreads();
        }
        if (t < tokens)
            atomicAdd(&rank[t], count);
    }
}

static __global__ void __launch_bounds__(THREADS) k_place(struct order order, size_t tokens)
{
    const size_t step = (size_t)gridDim.x * THREADS;
    for (size_t t = (size_t)blockIdx.x * THREADS + threadIdx.x; t < tokens; t += step)
        order.token[order.rank[t]] = (uint32_t)t;
}

/*
 * The run of tokens with the id at `place`, added to N columns of its row. The warp looks at 32
 * places at once; rows are read AHEAD at a time before the first of them is added. A lane whose
 * columns are beyond the row (`inside` is false) only helps to look.
 */
template <typename T, int N>
static __device__ __forceinline__ void add_run(const struct hst_embedding_backward &a,
                                               const uint32_t *token, size_t place, uint32_t id,
                                               size_t column, bool inside)
{
    const T *dout = (const T *)a.dout + column;
    float *to = a.dweight + (id - a.first_row) * a.width + column;
    float sum[N] = {};
    if (inside)
        load_f32(to, sum);
    for (unsigned run = 32; run == 32; place += 32) {
        const size_t q = place + threadIdx.x % 32;
        const uint32_t mine = q < a.tokens ? token[q] : 0;
        const bool same = q < a.tokens && a.ids[mine] == id;
        const unsigned others = ~__ballot_sync(HST_FULL_WARP, same);
        run = others ? (unsigned)__ffs((int)others) - 1 : 32;
        for (unsigned first = 0; first < run; first += AHEAD) {
            pack<T, N> row[AHEAD] = {};
            HST_UNROLL
            for (unsigned k = 0; k < AHEAD; k++) {
                const size_t t = __shfl_sync(HST_FULL_WARP, mine, first + k);
                if (inside && first + k < run)
                    row[k] = load<N>(dout + t * a.width);
            }
            HST_UNROLL
            for (unsigned k = 0; k < AHEAD && first + k < run; k++) {
                float v[N];
                unpack(row[k], v);
                HST_UNROLL
                for (int i = 0; i < N; i++)
                    sum[i] = __fadd_rn(sum[i], v[i]);
            }
        }
    }
    if (inside)
        store_f32(to, sum);
}

/* A block per place of the order and span of columns; it works where a run of equal ids begins. */
template <typename T, int N>
static __global__ void __launch_bounds__(SPAN)
    k_embedding_backward(struct hst_embedding_backward a, const uint32_t *token, size_t spans)
{
    for (size_t b = blockIdx.x; b < a.tokens * spans; b += gridDim.x) {
        size_t place = b / spans, column = (b % spans * SPAN + threadIdx.x) * N;
        uint32_t id = a.ids[token[place]];
        const bool mine = id - a.first_row < a.rows; /* what lies before the block is huge */
        const bool skipped = a.skips && id == a.skip_id;
        if (mine && !skipped && (!place || a.ids[token[place - 1]] != id))
            add_run<T, N>(a, token, place, id, column, column < a.width);
    }
}

template <typename T, int N>
static cudaError_t add_runs(cudaStream_t stream, const struct hst_embedding_backward *a,
                            const uint32_t *token)
{
    size_t spans = (a->width / N + SPAN - 1) / SPAN;
    HST_LAUNCH((k_embedding_backward<T, N>), grid_of(a->tokens * spans, 1), SPAN, 0, stream, *a,
               token, spans);
    return cudaGetLastError();
}

template <typename T>
static cudaError_t add_runs_of(cudaStream_t stream, const struct hst_embedding_backward *a,
                               const uint32_t *token)
{
    return a->width % 4 ? add_runs<T, 1>(stream, a, token) : add_runs<T, 4>(stream, a, token);
}

cudaError_t hst_cuda_embedding_backward(cudaStream_t stream,
                                        const struct hst_embedding_backward *args)
{
    struct hst_embedding_backward a = *args;
    const size_t tokens = a.tokens;
    if (!tokens)
        return cudaSuccess;
    a.rows = a.rows ? a.rows : a.vocab;
    struct order order = {(uint32_t *)a.work.data, (uint32_t *)a.work.data + tokens};
    cudaError_t error = cudaMemsetAsync(order.rank, 0, tokens * sizeof *order.rank, stream);
    if (error)
        return error;
    dim3 grid(grid_of(tokens, THREADS), grid_side_of(tokens, RANKED));
    HST_LAUNCH(k_rank, grid, THREADS, 0, stream, a.ids, tokens, order.rank);
    error = cudaGetLastError();
    if (error)
        return error;
    HST_LAUNCH(k_place, grid_of(tokens, THREADS), THREADS, 0, stream, order, tokens);
    error = cudaGetLastError();
    if (error)
        return error;
    const uint32_t *token = order.token;
    return HST_BY_DTYPE(a.dtype, add_runs_of, stream, &a, token);
}
