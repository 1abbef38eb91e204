/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_ATTENTION_H
#define HST_CUDA_ATTENTION_H
/*
 * The files of attention share this: where a head's rows lie, and the doors between the files.
 * attention.cu chooses; attention_any.cu serves every head_dim and dtype; attention_forward.cu and
 * attention_backward.cu serve bf16 and f16 on tensor cores for the head_dims they name.
 *
 * A kernel is made twice. NARROW is the one for hst_attention.first and window: it goes over the
 * tiles of scores in which some query sees a key, and takes away what a query does not see of them.
 * The other one has no instruction of that.
 *
 * Kernels take a launch's whole argument struct; the chooser cuts a batch so that every grid is
 * within the limit of 2^31 - 1 blocks.
 */
#include "vector.h"

/* Rows of one head of one sequence: row t begins at data + t·stride. */
template <class T> struct head_rows {
    T *data;
    size_t stride;
};

template <class T>
static __device__ __forceinline__ head_rows<T> rows_of(T *tensor, const struct hst_attention *a,
                                                       size_t heads, size_t sequence, size_t head)
{
    return {tensor + (sequence * a->seq * heads + head) * a->head_dim, heads * a->head_dim};
}

/* Which piece of the work a block is: sequence, head, and tile, the last tile of a head first. */
struct attention_place {
    size_t sequence, head;
    int tile;
};

/*
 * Block `index` of a grid that counts tiles fastest. Neighbouring blocks read the same keys and
 * values, which therefore stay in L2; within a head the longest rows begin first, so that the
 * blocks that end the launch are short ones.
 */
static __device__ __forceinline__ attention_place last_tile_first(unsigned index, unsigned tiles,
                                                                  unsigned heads)
{
    unsigned row = index / tiles;
    return {row / heads, row % heads, (int)(tiles - 1 - index % tiles)};
}

/* log of a query's scores, or its delta: f32[batch, heads, seq]. */
static __device__ __forceinline__ size_t statistic_at(const struct hst_attention *a,
                                                      size_t sequence, size_t head)
{
    return (sequence * a->heads + head) * a->seq;
}

static __host__ __device__ __forceinline__ bool is_narrow(const struct hst_attention *a)
{
    return a->first || a->window;
}

/* The first key that a query of a sequence sees; the chooser has made window less than seq. */
static __device__ __forceinline__ int first_key(const struct hst_attention &a, size_t sequence,
                                                int query)
{
    int from = 0;
    if (a.first) {
        uint32_t first = a.first[sequence * a.seq + query];
        from = first < (uint32_t)query ? (int)first : query;
    }
    return a.window ? max(from, query - (int)a.window + 1) : from;
}

/* The first query after key `key` that does not see it; seq where there is none. It takes log2(seq)
 * reads, one after another: as first_key does not fall, all queries before it see the key. */
static __device__ __forceinline__ int queries_end(const struct hst_attention &a, size_t sequence,
                                                  int key)
{
    int seen = key, end = (int)a.seq;
    while (end - seen > 1) {
        int middle = seen + (end - seen) / 2;
        if (first_key(a, sequence, middle) > key)
            end = middle;
        else
            seen = middle;
    }
    return end;
}

static inline unsigned tiles_of(size_t count, size_t tile)
{
    return (unsigned)((count + tile - 1) / tile);
}

/* Each returns cudaGetLastError(). delta: f32[batch, heads, seq], Σ dout·o, written first. */
cudaError_t attention_any_forward(cudaStream_t stream, const struct hst_attention *args);
cudaError_t attention_any_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                   const float *delta);
/* bf16, f16; head_dim 64, 96, 128 or 256; scale above 0 */
cudaError_t attention_tiled_forward(cudaStream_t stream, const struct hst_attention *args);
/* bf16, f16; head_dim 64, 96 or 128 */
cudaError_t attention_tiled_backward(cudaStream_t stream, const struct hst_attention_backward *args,
                                     const float *delta);

#endif
