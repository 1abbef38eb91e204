/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SwiGLU and its backward, sums, conversions: one number of each output from one number of each
 * input. Bytes moved per element, which is what they cost: add and SwiGLU three elements (6 B in
 * bf16), SwiGLU's backward five (10 B), a conversion one of each kind (6 B).
 *
 * An output may be an input: a thread reads all of a vector's inputs before it writes, and no other
 * thread touches that vector.
 */
#include "launchers.h"
#include "vector.h"

enum { THREADS = 256, UNROLL = 2 };

/* 1 / (1 + e^-x). IEEE division and a full exp: within some 2 ulp, as the host's. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return __frcp_rn(1.0f + expf(-x));
}

template <typename T> struct add_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        y[0] = x[0] + x[1];
    }
};

template <typename T> struct swiglu_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 2, OUTPUTS = 1 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        y[0] = x[0] * sigmoid(x[0]) * x[1];
    }
};

template <typename T> struct swiglu_backward_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 3, OUTPUTS = 2 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        float gate = x[0], up = x[1], dout = x[2];
        float s = sigmoid(gate), silu = gate * s;
        y[0] = dout * up * (s + silu * (1.0f - s));
        y[1] = dout * silu;
    }
};

struct widen_map {
    typedef __nv_bfloat16 in;
    typedef float out;
    enum { INPUTS = 1, OUTPUTS = 1 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        y[0] = x[0];
    }
};

/* Reads and writes of one vector are as wide as its wider type allows. */
template <typename M> struct map_vector {
    typedef typename M::in in;
    typedef typename M::out out;
    enum { N = 16 / (int)(sizeof(in) > sizeof(out) ? sizeof(in) : sizeof(out)) };
};

template <typename M> struct operands {
    const typename M::in *in[M::INPUTS];
    typename M::out *out[M::OUTPUTS];
};

/* N elements from `at` on, already read. */
template <typename M, int N>
static __device__ __forceinline__ void map_store(const struct operands<M> &o, size_t at,
                                                 const pack<typename M::in, N> (&p)[M::INPUTS])
{
    float x[M::INPUTS][N], y[M::OUTPUTS][N];
    HST_UNROLL
    for (int k = 0; k < M::INPUTS; k++)
        unpack(p[k], x[k]);
    HST_UNROLL
    for (int i = 0; i < N; i++) {
        float from[M::INPUTS], to[M::OUTPUTS];
        HST_UNROLL
        for (int k = 0; k < M::INPUTS; k++)
            from[k] = x[k][i];
        M::apply(from, to);
        HST_UNROLL
        for (int k = 0; k < M::OUTPUTS; k++)
            y[k][i] = to[k];
    }
    HST_UNROLL
    for (int k = 0; k < M::OUTPUTS; k++)
        store_f32(o.out[k] + at, y[k]);
}

template <typename M, int N>
static __device__ __forceinline__ void map_load(const struct operands<M> &o, size_t at,
                                                pack<typename M::in, N> (&p)[M::INPUTS])
{
    HST_UNROLL
    for (int k = 0; k < M::INPUTS; k++)
        p[k] = load<N>(o.in[k] + at);
}

/* A block takes UNROLL vectors per thread at a time, all of them read before one is written. */
template <typename M>
static __global__ void __launch_bounds__(THREADS) k_map(struct operands<M> o, size_t count)
{
    constexpr int N = map_vector<M>::N;
    const size_t vectors = count / N, tile = (size_t)THREADS * UNROLL;
    for (size_t first = blockIdx.x * tile; first < vectors; first += gridDim.x * tile) {
        pack<typename M::in, N> p[UNROLL][M::INPUTS];
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            size_t i = first + u * THREADS + threadIdx.x;
            if (i < vectors)
                map_load<M, N>(o, i * N, p[u]);
        }
        HST_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            size_t i = first + u * THREADS + threadIdx.x;
            if (i < vectors)
                map_store<M, N>(o, i * N, p[u]);
        }
    }
    size_t last = vectors * N + threadIdx.x;
    if (blockIdx.x == 0 && last < count) {
        pack<typename M::in, 1> p[M::INPUTS];
        map_load<M, 1>(o, last, p);
        map_store<M, 1>(o, last, p);
    }
}

template <typename M>
static cudaError_t map(cudaStream_t stream, const struct operands<M> &o, size_t count)
{
    if (!count)
        return cudaSuccess;
    unsigned grid = grid_of(count, (size_t)THREADS * UNROLL * map_vector<M>::N);
    HST_LAUNCH((k_map<M>), grid, THREADS, 0, stream, o, count);
    return cudaGetLastError();
}

template <typename T> static cudaError_t swiglu(cudaStream_t stream, const struct hst_swiglu *a)
{
    return map<swiglu_map<T>>(stream, {{(const T *)a->gate, (const T *)a->up}, {(T *)a->out}},
                              a->count);
}

cudaError_t hst_cuda_swiglu(cudaStream_t stream, const struct hst_swiglu *args)
{
    return args->dtype == HST_F32 ? swiglu<float>(stream, args)
                                  : swiglu<__nv_bfloat16>(stream, args);
}

template <typename T>
static cudaError_t swiglu_backward(cudaStream_t stream, const struct hst_swiglu_backward *a)
{
    return map<swiglu_backward_map<T>>(
        stream,
        {{(const T *)a->gate, (const T *)a->up, (const T *)a->dout}, {(T *)a->dgate, (T *)a->dup}},
        a->count);
}

cudaError_t hst_cuda_swiglu_backward(cudaStream_t stream, const struct hst_swiglu_backward *args)
{
    return args->dtype == HST_F32 ? swiglu_backward<float>(stream, args)
                                  : swiglu_backward<__nv_bfloat16>(stream, args);
}

template <typename T> static cudaError_t add(cudaStream_t stream, const struct hst_add *a)
{
    return map<add_map<T>>(stream, {{(const T *)a->a, (const T *)a->b}, {(T *)a->out}}, a->count);
}

cudaError_t hst_cuda_add(cudaStream_t stream, const struct hst_add *args)
{
    return args->dtype == HST_F32 ? add<float>(stream, args) : add<__nv_bfloat16>(stream, args);
}

/*
 * As the host's conversion, to the bit: a NaN keeps its sign and the upper part of its payload and
 * is made quiet, where the hardware's conversion would write one pattern for all.
 */
static __device__ __forceinline__ uint32_t bf16_keeping_nan(float x, uint32_t rounded)
{
    uint32_t bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits | 0x400000u) >> 16 : rounded;
}

static __device__ __forceinline__ uint32_t bf16_pair_keeping_nan(float low, float high)
{
    uint32_t pair = bf16_pair(low, high);
    return bf16_keeping_nan(low, pair & 0xffffu) | bf16_keeping_nan(high, pair >> 16) << 16;
}

static __global__ void __launch_bounds__(THREADS)
    k_narrow(const float *src, __nv_bfloat16 *dst, size_t count)
{
    const size_t vectors = count / 4, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += step) {
        pack<float, 4> from = load<4>(src + i * 4);
        pack<__nv_bfloat16, 4> to;
        to.pair[0] = bf16_pair_keeping_nan(from.at[0], from.at[1]);
        to.pair[1] = bf16_pair_keeping_nan(from.at[2], from.at[3]);
        store(dst + i * 4, to);
    }
    size_t last = vectors * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < count) {
        pack<__nv_bfloat16, 1> to = {(uint16_t)bf16_pair_keeping_nan(src[last], 0.0f)};
        store(dst + last, to);
    }
}

cudaError_t hst_cuda_cast(cudaStream_t stream, const struct hst_cast *args)
{
    if (!args->count)
        return cudaSuccess;
    if (args->src_dtype == args->dst_dtype)
        return cudaMemcpyAsync(args->dst, args->src,
                               args->count * (args->src_dtype == HST_F32 ? 4 : 2),
                               cudaMemcpyDeviceToDevice, stream);
    if (args->src_dtype == HST_BF16)
        return map<widen_map>(stream, {{(const __nv_bfloat16 *)args->src}, {(float *)args->dst}},
                              args->count);
    HST_LAUNCH(k_narrow, grid_of(args->count, (size_t)THREADS * 4), THREADS, 0, stream,
               (const float *)args->src, (__nv_bfloat16 *)args->dst, args->count);
    return cudaGetLastError();
}
