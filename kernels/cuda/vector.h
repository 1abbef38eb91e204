/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_VECTOR_H
#define HST_CUDA_VECTOR_H
/*
 * Elements as they lie in memory, moved 2 to 16 bytes at a time and computed on as f32. A thread
 * reads 16 bytes where the shape allows it: fewer instructions per byte, and enough bytes under way
 * to cover the memory's latency. Kept packed until they are used, which halves the registers that
 * a row of bf16 or f16 takes.
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

/* 16-bit elements lie in these: the earlier of a pair in the low half. */
template <int N> struct alignas(2 * N) words {
    uint32_t pair[N / 2];
};
template <> struct words<1> {
    uint16_t one;
};

/* N elements of T, aligned to their own size: loaded and stored by one instruction. */
template <typename T, int N> struct pack : words<N> {
    static_assert(sizeof(T) == 2, "bf16 or f16");
};
template <int N> struct alignas(4 * N) pack<float, N> {
    float at[N];
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

/* A pair's two numbers; the last argument is the type alone. */
static __device__ __forceinline__ float2 wide_pair(uint32_t pair, __nv_bfloat16)
{
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

static __device__ __forceinline__ float2 wide_pair(uint32_t pair, __half)
{
    __half2_raw both;
    memcpy(&both, &pair, sizeof both);
    return __half22float2(both);
}

/* Two numbers, rounded to nearest even. */
static __device__ __forceinline__ uint32_t pair_of(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

static __device__ __forceinline__ uint32_t pair_of(float low, float high, __half)
{
    __half2 both = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

/* A NaN keeps its sign and the upper part of its payload and is made quiet, as on the host, where
 * the hardware's conversion writes one NaN for all. */
static __device__ __forceinline__ uint32_t keep_nan(float x, uint32_t rounded, __nv_bfloat16)
{
    uint32_t bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits | 0x400000u) >> 16 : rounded;
}

static __device__ __forceinline__ uint32_t keep_nan(float x, uint32_t rounded, __half)
{
    uint32_t bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u
               ? (bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu)
               : rounded;
}

template <typename T>
static __device__ __forceinline__ uint32_t pair_keeping_nan(float low, float high, T type)
{
    uint32_t pair = pair_of(low, high, type);
    return keep_nan(low, pair & 0xffffu, type) | keep_nan(high, pair >> 16, type) << 16;
}

template <typename T, int N>
static __device__ __forceinline__ void unpack(const pack<T, N> &p, float (&v)[N])
{
    if constexpr (N == 1) {
        v[0] = wide_pair(p.one, T()).x;
    } else {
        HST_UNROLL
        for (int i = 0; i < N / 2; i++) {
            float2 two = wide_pair(p.pair[i], T());
            v[2 * i] = two.x;
            v[2 * i + 1] = two.y;
        }
    }
}

/* Rounds to nearest even. */
template <bool KEEP_NAN = false, int N>
static __device__ __forceinline__ void fill(pack<float, N> &p, const float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N; i++)
        p.at[i] = v[i];
}

template <bool KEEP_NAN = false, typename T, int N>
static __device__ __forceinline__ void fill(pack<T, N> &p, const float (&v)[N])
{
    HST_UNROLL
    for (int i = 0; i < N; i += 2) {
        float high = N == 1 ? 0.0f : v[(i + 1) % N];
        uint32_t pair =
            KEEP_NAN ? pair_keeping_nan(v[i], high, T()) : pair_of(v[i], high, T());
        if constexpr (N == 1)
            p.one = (uint16_t)pair;
        else
            p.pair[i / 2] = pair;
    }
}

template <typename T, int N>
static __device__ __forceinline__ void load_f32(const T *from, float (&v)[N])
{
    unpack(load<N>(from), v);
}

template <bool KEEP_NAN = false, typename T, int N>
static __device__ __forceinline__ void store_f32(T *to, const float (&v)[N])
{
    pack<T, N> p;
    fill<KEEP_NAN>(p, v);
    store(to, p);
}

/* function<T>(arguments), T being the element type of dtype: the one place where it is chosen. */
#define HST_BY_DTYPE(dtype, function, ...)                                                         \
    ((dtype) == HST_F32 ? function<float>(__VA_ARGS__)                                             \
                        : HST_BY_HALF(dtype, function, __VA_ARGS__))
/* The same where f32 is not served. */
#define HST_BY_HALF(dtype, function, ...)                                                          \
    ((dtype) == HST_BF16 ? function<__nv_bfloat16>(__VA_ARGS__) : function<__half>(__VA_ARGS__))

/* Blocks for `count` pieces of work of which a block does `per_block` at a time; its loop strides
 * by the grid where there are more than a grid may have. */
static inline unsigned grid_of(size_t count, size_t per_block)
{
    size_t blocks = count / per_block + (count % per_block != 0);
    return blocks < HST_GRID_MOST ? (unsigned)blocks : HST_GRID_MOST;
}

/* The same in a grid's second or third direction, which has room for fewer. */
static inline unsigned grid_side_of(size_t count, size_t per_block)
{
    unsigned blocks = grid_of(count, per_block);
    return blocks < 65535 ? blocks : 65535;
}

/* Threads, in whole warps, for `count` pieces of a row at one each; at most `most`. */
static inline unsigned threads_of(size_t count, unsigned most)
{
    return count < most ? ((unsigned)count + 31) / 32 * 32 : most;
}

#endif
