/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary position embedding, in place; the backward turns the sine's sign. A thread rotates one
 * vector of a head's lower half with the one across from it in the upper half. Moved: each element
 * read and written once (4 B in bf16); the angles, 8 B for each pair, come from memory once per
 * token and from the caches for its other heads.
 */
#include "launchers.h"
#include "vector.h"

enum { THREADS = 256 };

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

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) k_rope(struct hst_rope a, size_t units)
{
    const size_t half = a.head_dim / 2, per_head = half / N, step = (size_t)gridDim.x * THREADS;
    for (size_t u = (size_t)blockIdx.x * THREADS + threadIdx.x; u < units; u += step) {
        size_t head = u / per_head, at = (u - head * per_head) * N;
        size_t place = head / a.heads % a.seq * half + at;
        T *low = (T *)a.x + head * a.head_dim + at, *high = low + half;
        float x[N], y[N], c[N], s[N];
        load_f32(low, x);
        load_f32(high, y);
        load_angles(a.cos + place, c);
        load_angles(a.sin + place, s);
        float to_low[N], to_high[N];
        HST_UNROLL
        for (int i = 0; i < N; i++) {
            s[i] = a.inverse ? -s[i] : s[i];
            to_low[i] = x[i] * c[i] - y[i] * s[i];
            to_high[i] = y[i] * c[i] + x[i] * s[i];
        }
        store_f32(low, to_low);
        store_f32(high, to_high);
    }
}

template <typename T, int N> static cudaError_t rope(cudaStream_t stream, const struct hst_rope *a)
{
    size_t units = a->batch * a->seq * a->heads * (a->head_dim / 2 / N);
    HST_LAUNCH((k_rope<T, N>), grid_of(units, THREADS), THREADS, 0, stream, *a, units);
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
