/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as integers and scales, and back (hoistway/quantise.h). A warp has a block of 512
 * elements: 16 to a lane, which stay in registers between the maximum and the rounding.
 *
 * Bytes moved per element: one of T and one integer, a byte or half of one.
 */
#include "launchers.h"
#include "quant_block.h"

enum { THREADS = 128, WARPS = THREADS / 32, BLOCK = HST_QUANT_BLOCK, EACH = QUANT_EACH };

struct quant_args {
    const void *values;
    void *to; /* values of the way back */
    uint8_t *codes;
    float *scales;
    size_t count;
    bool four;
};

/* ---- to integers ----------------------------------------------------------------------------- */

/* It takes a vector's integers, four bytes at a time. */
template <int W> struct alignas(W) code_bytes {
    uint8_t at[W];
};

template <int W, bool FOUR>
static __device__ __forceinline__ void write_codes(uint8_t *to, unsigned at, unsigned left,
                                                   const int (&q)[W])
{
    constexpr int BYTES = FOUR ? W / 2 : W;
    code_bytes<BYTES> out;
    HST_UNROLL
    for (int i = 0; i < BYTES; i++)
        out.at[i] =
            FOUR ? (uint8_t)((q[2 * i % W] & 15) | (q[(2 * i + 1) % W] & 15) << 4) : (uint8_t)q[i];
    if (at + W <= left)
        *(code_bytes<BYTES> *)(to + at / (FOUR ? 2 : 1)) = out;
    else
        for (int i = 0; i < BYTES && at + i * (FOUR ? 2 : 1) < left; i++)
            to[at / (FOUR ? 2 : 1) + i] = out.at[i];
}

template <typename T, bool FOUR>
static __global__ void __launch_bounds__(THREADS) k_quantise(const struct quant_args a)
{
    constexpr int W = WIDE<T>;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t blocks = (a.count + BLOCK - 1) / BLOCK;
    for (size_t b = blockIdx.x * (size_t)WARPS + warp; b < blocks; b += gridDim.x * (size_t)WARPS) {
        const size_t begin = b * BLOCK;
        const unsigned left = a.count - begin < BLOCK ? (unsigned)(a.count - begin) : BLOCK;
        float v[EACH];
        quant_read((const T *)a.values + begin, left, v);
        const float scale = quant_scale(v, FOUR), reciprocal = quant_reciprocal(scale);
        uint8_t *to = a.codes + begin / (FOUR ? 2 : 1);
        HST_UNROLL
        for (int k = 0; k < EACH; k += W) {
            int q[W];
            HST_UNROLL
            for (int i = 0; i < W; i++)
                q[i] = quant_integer(v[k + i], scale, reciprocal);
            write_codes<W, FOUR>(to, (k / W * 32 + lane) * W, left, q);
        }
        if (lane == 0)
            a.scales[b] = scale;
    }
}

/* ---- and back -------------------------------------------------------------------------------- */

template <bool FOUR>
static __device__ __forceinline__ float code_at(const uint8_t *from, unsigned at)
{
    if (!FOUR)
        return (float)(int8_t)from[at];
    const int half = from[at / 2] >> at % 2 * 4 & 15;
    return (float)((half ^ 8) - 8);
}

template <typename T, int N>
static __device__ __forceinline__ void write_values(T *to, const float (&q)[N], float scale)
{
    float v[N];
    HST_UNROLL
    for (int i = 0; i < N; i++)
        v[i] = quant_times(q[i], scale);
    store_f32<true>(to, v);
}

template <typename T, bool FOUR>
static __global__ void __launch_bounds__(THREADS) k_dequantise(const struct quant_args a)
{
    constexpr int W = WIDE<T>, BYTES = FOUR ? W / 2 : W;
    const size_t vectors = a.count / W, stride = (size_t)gridDim.x * THREADS;
    T *to = (T *)a.to;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < vectors; i += stride) {
        const code_bytes<BYTES> in = *(const code_bytes<BYTES> *)(a.codes + i * BYTES);
        float q[W];
        HST_UNROLL
        for (int k = 0; k < W; k++)
            q[k] = code_at<FOUR>(in.at, k);
        write_values(to + i * W, q, a.scales[i * W / BLOCK]);
    }
    const size_t last = vectors * W + threadIdx.x;
    if (blockIdx.x == 0 && last < a.count) {
        const float q[1] = {code_at<FOUR>(a.codes + vectors * BYTES, threadIdx.x)};
        write_values(to + last, q, a.scales[last / BLOCK]);
    }
}

/* ---- the launches ---------------------------------------------------------------------------- */

template <typename T> static cudaError_t quantise(cudaStream_t stream, const struct quant_args &a)
{
    const unsigned grid = grid_of(a.count, (size_t)WARPS * BLOCK);
    if (a.four)
        HST_LAUNCH((k_quantise<T, true>), grid, THREADS, 0, stream, a);
    else
        HST_LAUNCH((k_quantise<T, false>), grid, THREADS, 0, stream, a);
    return cudaGetLastError();
}

template <typename T> static cudaError_t dequantise(cudaStream_t stream, const struct quant_args &a)
{
    const unsigned grid = grid_of(a.count, (size_t)THREADS * WIDE<T>);
    if (a.four)
        HST_LAUNCH((k_dequantise<T, true>), grid, THREADS, 0, stream, a);
    else
        HST_LAUNCH((k_dequantise<T, false>), grid, THREADS, 0, stream, a);
    return cudaGetLastError();
}

cudaError_t hst_cuda_quantise(cudaStream_t stream, const struct hst_quantise *args)
{
    struct quant_args a = {};
    a.values = args->values;
    a.codes = (uint8_t *)args->codes;
    a.scales = args->scales;
    a.count = args->count;
    a.four = args->bits == HST_INT4;
    return a.count ? HST_BY_DTYPE(args->dtype, quantise, stream, a) : cudaSuccess;
}

cudaError_t hst_cuda_dequantise(cudaStream_t stream, const struct hst_dequantise *args)
{
    struct quant_args a = {};
    a.to = args->values;
    a.codes = (uint8_t *)(uintptr_t)args->codes;
    a.scales = (float *)(uintptr_t)args->scales;
    a.count = args->count;
    a.four = args->bits == HST_INT4;
    return a.count ? HST_BY_DTYPE(args->dtype, dequantise, stream, a) : cudaSuccess;
}
