/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding, in place; the backward turns the sine's sign. A thread has a place in
 * the heads of a token: it reads that place's angles, 8 B for each pair, once, and goes over heads
 * with them, two at a time, rotating a vector of the lower half with the one across from it in the
 * upper half. Moved: each element read and written once (4 B in bf16); the angles come from memory
 * once per token, and from the caches for the rest of its heads.
 *
 * Nothing is divided: a block's threads are lanes, heads and tokens, each a power of two, and the
 * grid counts tokens of a sequence one way and sequences the other.
 */
#include "launchers.h"
#include "vector.h"

enum {
    THREADS = 256,
    HEADS = 2, /* that a thread has under way */
    LANE_BITS_MOST = 5,
    BITS_ALL = 8, /* of THREADS */
};

/* A block's threads are shared out like this: bits of the thread's number, the rest are tokens. */
struct rope_share {
    unsigned lane_bits, head_bits;
};

/* N angles: the tables are aligned to 16 bytes, so four at a time where N is more than 1. */
template <int N>
static __device__ __forceinline__ void load_angles(const float *from, float (&v)[N])
{
    constexpr int WIDTH = N < 4 ? N : 4;
    HST_UNROLL
    for (int i = 0; i < N; i += WIDTH) {
        pack<float, WIDTH> p = load<WIDTH>(from + i);
        HST_UNROLL
        for (int j = 0; j < WIDTH; j++)
            v[i + j] = p.at[j];
    }
}

/* It holds the angles of N elements of one place, to be turned by. */
template <int N>
static __device__ __forceinline__ void angles_at(const struct hst_rope &a, size_t place, size_t at,
                                                 float (&c)[N], float (&s)[N])
{
    load_angles(a.cos + place * (a.head_dim / 2) + at, c);
    load_angles(a.sin + place * (a.head_dim / 2) + at, s);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        s[i] = a.inverse ? -s[i] : s[i];
}

/* One place of `left` heads, at most HEADS, each so many elements behind the one before. */
template <typename T, int N>
static __device__ __forceinline__ void rotate(T *x, size_t half, size_t apart, int left,
                                              const float (&c)[N], const float (&s)[N])
{
    pack<T, N> low[HEADS], high[HEADS];
    HST_UNROLL
    for (int h = 0; h < HEADS; h++)
        if (h < left) {
            low[h] = load<N>(x + h * apart);
            high[h] = load<N>(x + h * apart + half);
        }
    HST_UNROLL
    for (int h = 0; h < HEADS; h++)
        if (h < left) {
            float u[N], v[N], to_low[N], to_high[N];
            unpack(low[h], u);
            unpack(high[h], v);
            HST_UNROLL
            for (int i = 0; i < N; i++) { /* what is not written out is fused with the sum */
                to_low[i] = u[i] * c[i] - __fmul_rn(v[i], s[i]);
                to_high[i] = v[i] * c[i] + __fmul_rn(u[i], s[i]);
            }
            store_f32(x + h * apart, to_low);
            store_f32(x + h * apart + half, to_high);
        }
}

/* PLACED: each sequence has places of its own. */
template <typename T, int N, bool PLACED>
static __global__ void __launch_bounds__(THREADS) k_rope(struct hst_rope a, struct rope_share share)
{
    const unsigned lanes = 1u << share.lane_bits, rows = 1u << share.head_bits;
    const unsigned bits = share.lane_bits + share.head_bits, tokens = THREADS >> bits;
    const unsigned lane = threadIdx.x & (lanes - 1);
    const unsigned row = threadIdx.x >> share.lane_bits & (rows - 1);
    const size_t half = a.head_dim / 2, apart = rows * a.head_dim;
    for (size_t place = blockIdx.x * (size_t)tokens + (threadIdx.x >> bits); place < a.seq;
         place += gridDim.x * (size_t)tokens)
        for (size_t at = lane * N; at < half; at += lanes * N) {
            float c[N], s[N];
            if (!PLACED)
                angles_at(a, place, at, c, s);
            for (size_t q = blockIdx.y; q < a.batch; q += gridDim.y) {
                if (PLACED)
                    angles_at(a, a.position[q * a.seq + place], at, c, s);
                T *x = (T *)a.x + ((q * a.seq + place) * a.heads + row) * a.head_dim + at;
                for (size_t head = row; head < a.heads; head += HEADS * rows, x += HEADS * apart)
                    rotate(x, half, apart, head + rows < a.heads ? HEADS : 1, c, s);
            }
        }
}

/* The least bits, at most `most`, whose numbers are at least `count`. */
static unsigned bits_for(size_t count, unsigned most)
{
    unsigned bits = 0;
    while (bits < most && (size_t)1 << bits < count)
        bits++;
    return bits;
}

template <typename T, int N> static cudaError_t rope(cudaStream_t stream, const struct hst_rope *a)
{
    unsigned lanes = bits_for(a->head_dim / 2 / N, LANE_BITS_MOST);
    struct rope_share share = {lanes, bits_for((a->heads + HEADS - 1) / HEADS, BITS_ALL - lanes)};
    dim3 grid(grid_of(a->seq, THREADS >> (lanes + share.head_bits)), grid_side_of(a->batch, 1));
    if (a->position)
        HST_LAUNCH((k_rope<T, N, true>), grid, THREADS, 0, stream, *a, share);
    else
        HST_LAUNCH((k_rope<T, N, false>), grid, THREADS, 0, stream, *a, share);
    return cudaGetLastError();
}

template <typename T> static cudaError_t rope_of(cudaStream_t stream, const struct hst_rope *a)
{
    return a->head_dim / 2 % WIDE<T> ? rope<T, 1>(stream, a) : rope<T, WIDE<T>>(stream, a);
}

cudaError_t hst_cuda_rope(cudaStream_t stream, const struct hst_rope *args)
{
    if (!args->batch)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, rope_of, stream, args);
}
