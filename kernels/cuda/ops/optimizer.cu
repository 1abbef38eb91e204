/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms and updates, to the bit what the host makes (hoistway/cpu_adam.h states the order of every
 * rounding). Every product, sum, quotient and root is an intrinsic of one rounding, so the compiler
 * can fuse none; NaNs, whose pattern IEEE 754 leaves open, are written as one pattern. Denormals
 * are kept and division and root are IEEE's, which are nvcc's defaults.
 *
 * Bytes moved per element: norm2 4 (f32) or 2 (bf16, f16); an update 12 (f32, f16) or 10 (bf16),
 * and 8 for each of m and v that it has, or 2 where they are codes, and 1/16 for their scales.
 */
#include "codes.h"
#include "launchers.h"
#include "norm.h"

#if defined(__USE_FAST_MATH__) || (defined(__CUDA_FTZ) && __CUDA_FTZ)
#error "the optimizer's kernels keep denormals: build them without --use_fast_math and --ftz=true"
#endif

enum { THREADS = 128 };

/* ---- norms ----------------------------------------------------------------------------------- */

/*
 * x² added to a lane. The product of two f32 is exact in f64, so the fused operation rounds just
 * once, as the product and the sum do, and gives the same bits with half the work.
 */
template <typename T>
static __device__ __forceinline__ double add_square(const pack<T, 1> &p, double lane)
{
    float x[1];
    unpack(p, x);
    return __fma_rn((double)x[0], (double)x[0], lane);
}

/*
 * A partial is 16 chains of 256 additions, each of which waits for the one before; half a warp does
 * it, a lane per chain, so its reads are whole sectors. 32 elements per thread are read ahead. A
 * chain takes some 256 × 16 cycles, in which an H200 has to work at 5 partials per multiprocessor
 * to keep up with its memory, and 128 have room. Where f64 runs at 1/64 of f32 (RTX cards), one
 * conversion and one operation per element limit it: about the memory's rate in f32, half in bf16.
 */
template <typename T>
static __global__ void __launch_bounds__(THREADS) k_norm2(const T *x, size_t count, double *partial)
{
    enum { BLOCK = NORM_BLOCK, LANES = NORM_LANES, AHEAD = 32, PER_BLOCK = THREADS / LANES };
    const size_t partials = (count + BLOCK - 1) / BLOCK;
    const unsigned lane = threadIdx.x % LANES;
    for (size_t b = (size_t)blockIdx.x * PER_BLOCK; b < partials;
         b += gridDim.x * (size_t)PER_BLOCK) {
        const size_t p = b + threadIdx.x / LANES, begin = p * BLOCK;
        const T *from = x + begin + lane;
        size_t left = p < partials ? count - begin : 0;
        double sum = 0;
        if (left >= BLOCK) {
            for (int i = 0; i < BLOCK; i += AHEAD * LANES) {
                pack<T, 1> some[AHEAD];
                HST_UNROLL
                for (int k = 0; k < AHEAD; k++)
                    some[k] = load<1>(from + i + k * LANES);
                HST_UNROLL
                for (int k = 0; k < AHEAD; k++)
                    sum = add_square(some[k], sum);
            }
        } else {
            for (size_t i = lane; i < left; i += LANES)
                sum = add_square(load<1>(x + begin + i), sum);
        }
        sum = norm_of_lanes(sum);
        if (lane == 0 && p < partials)
            partial[p] = sum;
    }
}

template <typename T> static cudaError_t norm2(cudaStream_t stream, const struct hst_norm2 *a)
{
    HST_LAUNCH((k_norm2<T>), grid_of(a->count, (size_t)NORM_BLOCK * (THREADS / NORM_LANES)),
               THREADS, 0, stream, (const T *)a->x, a->count, a->partial);
    return cudaGetLastError();
}

cudaError_t hst_cuda_norm2(cudaStream_t stream, const struct hst_norm2 *args)
{
    if (!args->count)
        return cudaSuccess;
    return HST_BY_DTYPE(args->dtype, norm2, stream, args);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* As hoistway/cpu_adam.h numbers them. */
enum optimizer { ADAMW = 0, SGD = 1, LION = 2, ADAGRAD = 3 };

/* They say whether an element has the moment m, and v. */
static __host__ __device__ constexpr bool has_m(enum optimizer optimizer)
{
    return optimizer != ADAGRAD;
}

static __host__ __device__ constexpr bool has_v(enum optimizer optimizer)
{
    return optimizer != SGD && optimizer != LION;
}

static __device__ __forceinline__ bool bits_are_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static __device__ __forceinline__ float canonical(float x)
{
    return bits_are_nan(__float_as_uint(x)) ? __uint_as_float(0x7fc00000u) : x;
}

/* These move with one weight; m or v is anything where an optimizer has none. */
struct state {
    float p, m, v;
};

static __device__ __forceinline__ struct state by_adamw(const struct hst_optimize &k,
                                                        struct state s, float g)
{
    s.m = __fmaf_rn(k.beta1_hi, s.m, __fmaf_rn(k.one_minus_beta1, g, __fmul_rn(k.beta1_lo, s.m)));
    s.v = __fmaf_rn(k.beta2_hi, s.v,
                    __fmaf_rn(__fmul_rn(k.one_minus_beta2, g), g, __fmul_rn(k.beta2_lo, s.v)));
    float q = __fmaf_rn(__fsqrt_rn(s.v), k.inv_sqrt_bias2, k.eps);
    s.p = __fmaf_rn(-k.step_size, __fmaf_rn(k.decay, s.p, __fdiv_rn(s.m, q)), s.p);
    return s;
}

static __device__ __forceinline__ struct state by_sgd(const struct hst_optimize &k, struct state s,
                                                      float g)
{
    g = __fmaf_rn(k.l2, s.p, g);
    s.m = __fmaf_rn(k.beta1_hi, s.m, __fmaf_rn(k.beta1_lo, s.m, g));
    s.p = __fmaf_rn(-k.step_size, s.m, s.p);
    return s;
}

static __device__ __forceinline__ struct state by_lion(const struct hst_optimize &k, struct state s,
                                                       float g)
{
    float c =
        __fmaf_rn(k.beta1_hi, s.m, __fmaf_rn(k.one_minus_beta1, g, __fmul_rn(k.beta1_lo, s.m)));
    s.m = __fmaf_rn(k.beta2_hi, s.m, __fmaf_rn(k.one_minus_beta2, g, __fmul_rn(k.beta2_lo, s.m)));
    uint32_t sign = (__float_as_uint(c) & 0x80000000u) | (c != 0 ? 0x3f800000u : 0u);
    float step = __fmaf_rn(0.0f, s.m, __uint_as_float(sign));
    s.p = __fmaf_rn(-k.step_size, __fmaf_rn(k.decay, s.p, step), s.p);
    return s;
}

static __device__ __forceinline__ struct state by_adagrad(const struct hst_optimize &k,
                                                          struct state s, float g)
{
    g = __fmaf_rn(k.l2, s.p, g);
    s.v = __fmaf_rn(g, g, s.v);
    float step = __fdiv_rn(__fmaf_rn(0.0f, s.v, g), __fadd_rn(__fsqrt_rn(s.v), k.eps));
    s.p = __fmaf_rn(-k.step_size, step, s.p);
    return s;
}

template <enum optimizer O>
static __device__ __forceinline__ struct state updated(const struct hst_optimize &k, struct state s,
                                                       float grad)
{
    float g = __fmul_rn(k.grad_scale, grad);
    if constexpr (O == ADAMW)
        s = by_adamw(k, s, g);
    else if constexpr (O == SGD)
        s = by_sgd(k, s, g);
    else if constexpr (O == LION)
        s = by_lion(k, s, g);
    else
        s = by_adagrad(k, s, g);
    return {canonical(s.p), canonical(s.m), canonical(s.v)};
}

/* Split master weights: weight = nearest bf16, ties away from zero, remainder = what is left. */
static __device__ __forceinline__ float join(uint32_t weight, uint32_t remainder)
{
    return __uint_as_float((weight << 16) + (uint32_t)(int32_t)(int16_t)remainder);
}

static __device__ __forceinline__ uint32_t weight_of(uint32_t bits)
{
    return bits_are_nan(bits) ? 0x7fc0u : (bits + 0x8000u) >> 16;
}

static __device__ __forceinline__ uint32_t remainder_of(uint32_t bits)
{
    return bits_are_nan(bits) ? 0u : bits & 0xffffu;
}

/* The N weights at `at`, of f32, of bf16 and remainder, or of f16's master. */
template <int N>
static __device__ __forceinline__ void read_weights(const struct hst_optimize &a, size_t at,
                                                    float (&p)[N], float (&g)[N], float)
{
    load_f32((const float *)a.weight + at, p);
    load_f32((const float *)a.grad + at, g);
}

template <int N>
static __device__ __forceinline__ void write_weights(const struct hst_optimize &a, size_t at,
                                                     const float (&p)[N], float)
{
    store_f32((float *)a.weight + at, p);
}

static __device__ __forceinline__ void read_weights(const struct hst_optimize &a, size_t at,
                                                    float (&p)[4], float (&g)[4], __nv_bfloat16)
{
    uint2 weight = *(const uint2 *)((const uint16_t *)a.weight + at);
    uint2 remainder = *(const uint2 *)(a.remainder + at);
    p[0] = join(weight.x & 0xffffu, remainder.x);
    p[1] = join(weight.x >> 16, remainder.x >> 16);
    p[2] = join(weight.y & 0xffffu, remainder.y);
    p[3] = join(weight.y >> 16, remainder.y >> 16);
    load_f32((const __nv_bfloat16 *)a.grad + at, g);
}

static __device__ __forceinline__ void read_weights(const struct hst_optimize &a, size_t at,
                                                    float (&p)[1], float (&g)[1], __nv_bfloat16)
{
    p[0] = join(((const uint16_t *)a.weight)[at], (uint16_t)a.remainder[at]);
    load_f32((const __nv_bfloat16 *)a.grad + at, g);
}

static __device__ __forceinline__ void write_weights(const struct hst_optimize &a, size_t at,
                                                     const float (&p)[4], __nv_bfloat16)
{
    uint32_t bits[4], weight[4], remainder[4];
    HST_UNROLL
    for (int i = 0; i < 4; i++) {
        bits[i] = __float_as_uint(p[i]);
        weight[i] = weight_of(bits[i]);
        remainder[i] = remainder_of(bits[i]);
    }
    *(uint2 *)((uint16_t *)a.weight + at) =
        make_uint2(weight[0] | weight[1] << 16, weight[2] | weight[3] << 16);
    *(uint2 *)(a.remainder + at) =
        make_uint2(remainder[0] | remainder[1] << 16, remainder[2] | remainder[3] << 16);
}

static __device__ __forceinline__ void write_weights(const struct hst_optimize &a, size_t at,
                                                     const float (&p)[1], __nv_bfloat16)
{
    uint32_t bits = __float_as_uint(p[0]);
    ((uint16_t *)a.weight)[at] = (uint16_t)weight_of(bits);
    a.remainder[at] = (int16_t)(uint16_t)remainder_of(bits);
}

template <int N>
static __device__ __forceinline__ void read_weights(const struct hst_optimize &a, size_t at,
                                                    float (&p)[N], float (&g)[N], __half)
{
    load_f32(a.master + at, p);
    load_f32((const __half *)a.grad + at, g);
}

template <int N>
static __device__ __forceinline__ void write_weights(const struct hst_optimize &a, size_t at,
                                                     const float (&p)[N], __half)
{
    store_f32(a.master + at, p);
    store_f32<true>((__half *)a.weight + at, p);
}

template <enum optimizer O, typename T, int N>
static __device__ __forceinline__ void update_some(const struct hst_optimize &a, size_t at)
{
    float p[N], m[N] = {}, v[N] = {}, g[N];
    read_weights(a, at, p, g, T());
    if constexpr (has_m(O))
        load_f32((const float *)a.m + at, m);
    if constexpr (has_v(O))
        load_f32((const float *)a.v + at, v);
    HST_UNROLL
    for (int i = 0; i < N; i++) {
        struct state s = updated<O>(a, {p[i], m[i], v[i]}, g[i]);
        p[i] = s.p;
        m[i] = s.m;
        v[i] = s.v;
    }
    write_weights(a, at, p, T());
    if constexpr (has_m(O))
        store_f32((float *)a.m + at, m);
    if constexpr (has_v(O))
        store_f32((float *)a.v + at, v);
}

/* Four weights a thread: of AdamW 56 to 64 bytes under way for each. */
template <enum optimizer O, typename T>
static __global__ void __launch_bounds__(THREADS) k_update(struct hst_optimize a)
{
    const size_t vectors = a.count / 4, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += step)
        update_some<O, T, 4>(a, i * 4);
    size_t last = vectors * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < a.count)
        update_some<O, T, 1>(a, last);
}

template <enum optimizer O, typename T>
static cudaError_t update(cudaStream_t stream, const struct hst_optimize *a)
{
    HST_LAUNCH((k_update<O, T>), grid_of(a->count, (size_t)THREADS * 4), THREADS, 0, stream, *a);
    return cudaGetLastError();
}

/* ---- updates of moments in codes ------------------------------------------------------------- */

/* N codes at `at`, of N = 4 as a word. */
static __device__ __forceinline__ void read_codes(const void *codes, size_t at, uint32_t (&c)[4])
{
    const uint32_t word = *(const uint32_t *)((const uint8_t *)codes + at);
    HST_UNROLL
    for (int i = 0; i < 4; i++)
        c[i] = word >> 8 * i & 0xffu;
}

static __device__ __forceinline__ void read_codes(const void *codes, size_t at, uint32_t (&c)[1])
{
    c[0] = ((const uint8_t *)codes)[at];
}

/* N weights of a block, whose moments are written when all of it is known. */
template <int N>
static __device__ __forceinline__ void update_coded(const struct hst_optimize &a, size_t at,
                                                    float m_scale, float v_scale, float (&m)[N],
                                                    float (&v)[N])
{
    float p[N], g[N];
    uint32_t m_codes[N], v_codes[N];
    read_weights(a, at, p, g, __nv_bfloat16());
    read_codes(a.m, at, m_codes);
    read_codes(a.v, at, v_codes);
    HST_UNROLL
    for (int i = 0; i < N; i++) {
        struct state s = {p[i], m_of_code(m_codes[i], m_scale), v_of_code(v_codes[i], v_scale)};
        s = updated<ADAMW>(a, s, g[i]);
        p[i] = s.p;
        m[i] = s.m;
        v[i] = s.v;
    }
    write_weights(a, at, p, __nv_bfloat16());
}

/* Four neighbours, or the first of them that there are: the others count as 0. */
static __device__ __forceinline__ void update_coded_four(const struct hst_optimize &a, size_t at,
                                                         float m_scale, float v_scale,
                                                         float (&m)[4], float (&v)[4])
{
    const size_t left = at < a.count ? a.count - at : 0;
    if (left >= 4) {
        update_coded(a, at, m_scale, v_scale, m, v);
        return;
    }
    HST_UNROLL
    for (int i = 0; i < 4; i++) {
        float one_m[1] = {0}, one_v[1] = {0};
        if ((size_t)i < left)
            update_coded(a, at + i, m_scale, v_scale, one_m, one_v);
        m[i] = one_m[0];
        v[i] = one_v[0];
    }
}

static __device__ __forceinline__ void write_codes(void *codes, size_t at, size_t left,
                                                   const uint32_t (&c)[4])
{
    uint8_t *to = (uint8_t *)codes + at;
    if (left >= 4) {
        *(uint32_t *)to = c[0] | c[1] << 8 | c[2] << 16 | c[3] << 24;
        return;
    }
    HST_UNROLL
    for (int i = 0; i < 4; i++)
        if ((size_t)i < left)
            to[i] = (uint8_t)c[i];
}

static __device__ __forceinline__ void write_moments(const struct hst_optimize &a, size_t at,
                                                     float m_inverse, float v_inverse,
                                                     const float (&m)[4], const float (&v)[4])
{
    const size_t left = at < a.count ? a.count - at : 0;
    uint32_t m_codes[4], v_codes[4];
    HST_UNROLL
    for (int i = 0; i < 4; i++) {
        m_codes[i] = m_inverse == 0 ? 0 : code_of_m(m[i], m_inverse);
        v_codes[i] = v_inverse == 0 ? 0 : code_of_v(v[i], v_inverse);
    }
    write_codes(a.m, at, left, m_codes);
    write_codes(a.v, at, left, v_codes);
}

/* A warp has a block of codes, which meet in their scales alone. A lane has four neighbours of each
 * half of it: what a warp reads at once is a piece without holes. */
static __global__ void __launch_bounds__(THREADS) k_update_codes(struct hst_optimize a)
{
    enum { WARPS = THREADS / 32, HALVES = CODE_BLOCK / 128 };
    const size_t blocks = (a.count + CODE_BLOCK - 1) / CODE_BLOCK;
    const size_t step = (size_t)gridDim.x * WARPS;
    const unsigned lane = threadIdx.x % 32;
    for (size_t b = (size_t)blockIdx.x * WARPS + threadIdx.x / 32; b < blocks; b += step) {
        const size_t at = b * CODE_BLOCK + 4 * lane;
        const float m_scale = a.m_scales[b], v_scale = a.v_scales[b];
        float m[HALVES][4], v[HALVES][4];
        uint32_t m_largest = 0, v_largest = 0;
        HST_UNROLL
        for (int h = 0; h < HALVES; h++) {
            update_coded_four(a, at + 128 * h, m_scale, v_scale, m[h], v[h]);
            HST_UNROLL
            for (int i = 0; i < 4; i++) {
                m_largest = larger_magnitude(m_largest, m[h][i]);
                v_largest = larger_magnitude(v_largest, v[h][i]);
            }
        }
        const struct code_scale ms = scale_of(warp_largest(m_largest), M_TO_SCALE);
        const struct code_scale vs = scale_of(warp_largest(v_largest), V_TO_SCALE);
        HST_UNROLL
        for (int h = 0; h < HALVES; h++)
            write_moments(a, at + 128 * h, ms.inverse, vs.inverse, m[h], v[h]);
        __syncwarp(); /* each lane has read the scales */
        if (lane == 0) {
            a.m_scales[b] = ms.value;
            a.v_scales[b] = vs.value;
        }
    }
}

static cudaError_t update_codes(cudaStream_t stream, const struct hst_optimize *a)
{
    HST_LAUNCH(k_update_codes, grid_of(a->count, (size_t)CODE_BLOCK * (THREADS / 32)), THREADS, 0,
               stream, *a);
    return cudaGetLastError();
}

/* ---- launchers ------------------------------------------------------------------------------- */

template <typename T> static cudaError_t optimize(cudaStream_t stream, const struct hst_optimize *a)
{
    switch (a->optimizer) {
    case ADAMW:
        return update<ADAMW, T>(stream, a);
    case SGD:
        return update<SGD, T>(stream, a);
    case LION:
        return update<LION, T>(stream, a);
    case ADAGRAD:
        return update<ADAGRAD, T>(stream, a);
    }
    return cudaErrorInvalidValue;
}

static constexpr uint32_t LAST = ADAGRAD;

/* Codes are of AdamW in bf16, and both moments have them. */
static bool moments_fit(const struct hst_optimize *args)
{
    const bool coded = args->m_scales || args->v_scales;
    return !coded || (args->optimizer == ADAMW && args->dtype == HST_BF16 && args->m_scales &&
                      args->v_scales);
}

bool hst_cuda_can_optimize(const struct hst_optimize *args)
{
    const enum optimizer optimizer = (enum optimizer)args->optimizer;
    return args->optimizer <= LAST && moments_fit(args) &&
           (!args->count || (has_m(optimizer) == !!args->m && has_v(optimizer) == !!args->v));
}

cudaError_t hst_cuda_optimize(cudaStream_t stream, const struct hst_optimize *args)
{
    if (!args->count)
        return cudaSuccess;
    if (args->m_scales)
        return update_codes(stream, args);
    return HST_BY_DTYPE(args->dtype, optimize, stream, args);
}
