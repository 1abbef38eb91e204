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
#include <type_traits>

enum { THREADS = 256, UNROLL = 2 };

/* 1 / (1 + e^-x). IEEE division and a full exp: within some 2 ulp, as the host's. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return __frcp_rn(1.0f + expf(-x));
}

template <typename T> struct add_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 2, OUTPUTS = 1, KEEP_NAN = 0 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        y[0] = x[0] + x[1];
    }
};

template <typename T> struct swiglu_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 2, OUTPUTS = 1, KEEP_NAN = 0 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        y[0] = x[0] * sigmoid(x[0]) * x[1];
    }
};

template <typename T> struct swiglu_backward_map {
    typedef T in;
    typedef T out;
    enum { INPUTS = 3, OUTPUTS = 2, KEEP_NAN = 0 };
    static __device__ __forceinline__ void apply(const float *x, float *y)
    {
        float gate = x[0], up = x[1], dout = x[2];
        float s = sigmoid(gate), silu = gate * s;
        y[0] = dout * up * (s + silu * (1.0f - s));
        y[1] = dout * silu;
    }
};

/* As the host's conversion, to the bit, where the hardware's would write one NaN for all. */
template <typename From, typename To> struct cast_map {
    typedef From in;
    typedef To out;
    enum { INPUTS = 1, OUTPUTS = 1, KEEP_NAN = 1 };
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
        store_f32<M::KEEP_NAN>(o.out[k] + at, y[k]);
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
    return HST_BY_DTYPE(args->dtype, swiglu, stream, args);
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
    return HST_BY_DTYPE(args->dtype, swiglu_backward, stream, args);
}

template <typename T> static cudaError_t add(cudaStream_t stream, const struct hst_add *a)
{
    return map<add_map<T>>(stream, {{(const T *)a->a, (const T *)a->b}, {(T *)a->out}}, a->count);
}

cudaError_t hst_cuda_add(cudaStream_t stream, const struct hst_add *args)
{
    return HST_BY_DTYPE(args->dtype, add, stream, args);
}

/* The last argument is the type alone. */
template <typename To, typename From>
static cudaError_t cast_to(cudaStream_t stream, const struct hst_cast *a, From)
{
    if constexpr (std::is_same<To, From>::value)
        return cudaMemcpyAsync(a->dst, a->src, a->count * sizeof(To), cudaMemcpyDeviceToDevice,
                               stream);
    else
        return map<cast_map<From, To>>(stream, {{(const From *)a->src}, {(To *)a->dst}}, a->count);
}

template <typename From> static cudaError_t cast_from(cudaStream_t stream, const struct hst_cast *a)
{
    return HST_BY_DTYPE(a->dst_dtype, cast_to, stream, a, From());
}

cudaError_t hst_cuda_cast(cudaStream_t stream, const struct hst_cast *args)
{
    if (!args->count)
        return cudaSuccess;
    return HST_BY_DTYPE(args->src_dtype, cast_from, stream, args);
}
