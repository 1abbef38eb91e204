/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_VECTOR_H
#define HST_CUDA_VECTOR_H
/*
 * Elements as they lie in memory, moved 2 to 16 bytes at a time and computed on as f32. A thread
 * reads 16 bytes where the shape allows it: fewer instructions per byte, and enough bytes under way
 * to cover the memory's latency. Kept packed until they are used, which halves the registers that
 * a row of bf16 takes.
 *
 * Whether rows are read by vectors depends on their length alone, never on where they lie: every
 * tensor begins at a multiple of 16 bytes, so its rows do where a row is whole vectors.
 */
#include "launch.h"

#ifdef __CUDACC__
#define HST_UNROLL       _Pragma("unroll")
#define HST_UNROLL_BY(n) HST_PRAGMA(unroll n)
#define HST_PRAGMA(text) _Pragma(#text)
#else
#define HST_UNROLL
#define HST_UNROLL_BY(n)
#endif

/* Elements in 16 bytes. */
template <typename T> static constexpr int WIDE = 16 / (int)sizeof(T);

/* N elements of T, aligned to their own size: loaded and stored by one instruction. */
template <typename T, int N> struct pack;
template <int N> struct alignas(4 * N) pack<float, N> {
    float at[N];
};
template <int N> struct alignas(2 * N) pack<__nv_bfloat16, N> {
    uint32_t pair[N / 2]; /* the earlier element in the low half */
};
template <> struct pack<__nv_bfloat16, 1> {
    uint16_t one;
};

template <int N, typename T> static __device__ __forceinline__ pack<T, N> load(const T *from)
{
    return *(const pack<T, N> *)from;
}

template <typename T, int N> static __device__ __forceinline__ void store(T *to, pack<T, N> p)
{
    *(pack<T, N> *)to = p;
}

template <int N>
static __device__ __forceinline__ void unpack(const pack<float, N> &p, float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N; i++)
        v[i] = p.at[i];
}

template <int N>
static __device__ __forceinline__ void unpack(const pack<__nv_bfloat16, N> &p, float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N / 2; i++) {
        v[2 * i] = __uint_as_float(p.pair[i] << 16);
        v[2 * i + 1] = __uint_as_float(p.pair[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ void unpack(const pack<__nv_bfloat16, 1> &p, float (&v)[1])
{
    v[0] = __uint_as_float((uint32_t)p.one << 16);
}

static __device__ __forceinline__ uint32_t bf16_pair(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

/* Rounds to nearest even. */
template <int N>
static __device__ __forceinline__ void fill(pack<float, N> &p, const float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N; i++)
        p.at[i] = v[i];
}

template <int N>
static __device__ __forceinline__ void fill(pack<__nv_bfloat16, N> &p, const float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N / 2; i++)
        p.pair[i] = bf16_pair(v[2 * i], v[2 * i + 1]);
}

static __device__ __forceinline__ void fill(pack<__nv_bfloat16, 1> &p, const float (&v)[1])
{
    p.one = (uint16_t)bf16_pair(v[0], 0.0f);
}

template <typename T, int N>
static __device__ __forceinline__ void load_f32(const T *from, float (&v)[N])
{
    unpack(load<N>(from), v);
}

template <typename T, int N>
static __device__ __forceinline__ void store_f32(T *to, const float (&v)[N])
{
    pack<T, N> p;
    fill(p, v);
    store(to, p);
}

/* Blocks for `count` pieces of work of which a block does `per_block` at a time; its loop strides
 * by the grid where there are more than a grid may have. */
static inline unsigned grid_of(size_t count, size_t per_block)
{
    size_t blocks = count / per_block + (count % per_block != 0);
    return blocks < HST_GRID_MOST ? (unsigned)blocks : HST_GRID_MOST;
}

/* Threads, in whole warps, for `count` pieces of a row at one each; at most `most`. */
static inline unsigned threads_of(size_t count, unsigned most)
{
    return count < most ? ((unsigned)count + 31) / 32 * 32 : most;
}

#endif
