/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of ways where integers give back some of the sums (hoistway/ways.h, quant): those of a
 * group of ways, or a way that is the only input. All inputs are f32. A warp has a block of 512
 * elements, 16 to a lane, as the quantisers have. So it knows the block's greatest value without
 * shared memory, and what waits for its right neighbour stays in registers: at most a block of each
 * of six sizes.
 *
 * Bytes moved per element: those of n inputs and of one output. A lane has four loads of 16 bytes
 * under way, which are its part of one input.
 */
#include "quant_block.h"
#include "sum_ways.h"

enum {
    THREADS = 128,
    WARPS = THREADS / 32,
    BLOCK = HST_QUANT_BLOCK,
    EACH = QUANT_EACH,
    LEVELS = 6
};
static_assert(HST_SUM_INPUTS <= 1 << LEVELS, "as many sums may wait as there are levels");
static_assert(NORM_BLOCK % BLOCK == 0, "a partial is of whole blocks");

struct quantised_args {
    struct sum_args sum;
    bool four;
};

/* ---- in registers ---------------------------------------------------------------------------- */

static __device__ __forceinline__ void give_back(float (&v)[EACH], bool four)
{
    const float scale = quant_scale(v, four), reciprocal = quant_reciprocal(scale);
    HST_UNROLL
    for (int i = 0; i < EACH; i++)
        v[i] = quant_times((float)quant_integer(v[i], scale, reciprocal), scale);
}

/*
 * A binary counter of inputs: each joins those that wait and have its size. The last one joins all
 * that wait, from the right. Elements past `left` are 0.
 */
static __device__ __forceinline__ void add_ways(const struct quantised_args &a, size_t at,
                                                size_t left, float (&sum)[EACH])
{
    float waiting[LEVELS][EACH];
    for (unsigned input = 0; input < a.sum.inputs; input++) {
        const bool last = input + 1 == a.sum.inputs;
        bool joins = true;
        quant_read((const float *)a.sum.in[input] + at, left, sum);
        HST_UNROLL
        for (unsigned level = 0; level < LEVELS; level++) {
            if (joins && (input >> level & 1)) {
                const unsigned right = input >> level << level;
                HST_UNROLL
                for (int i = 0; i < EACH; i++)
                    sum[i] = __fadd_rn(waiting[level][i], sum[i]);
                if (a.sum.rounds >> right & 1)
                    give_back(sum, a.four);
            } else if (joins && !last) {
                HST_UNROLL
                for (int i = 0; i < EACH; i++)
                    waiting[level][i] = sum[i];
                joins = false;
            }
        }
    }
    if (a.sum.rounds & 1)
        give_back(sum, a.four);
}

/* ---- what is written ------------------------------------------------------------------------- */

/* What of a block is within `left`. It leaves the values as they are stored, and those behind 0, or
 * NaN where all of the block is. */
template <typename T>
static __device__ __forceinline__ void write_block(T *out, size_t left, float (&v)[EACH])
{
    constexpr int W = WIDE<float>;
    const unsigned lane = threadIdx.x % 32;
    HST_UNROLL
    for (int k = 0; k < EACH; k += W) {
        const unsigned at = (k / W * 32 + lane) * W;
        float some[W];
        HST_UNROLL
        for (int i = 0; i < W; i++)
            some[i] = isnan(v[k + i]) ? __uint_as_float(0x7fc00000u) : v[k + i];
        HST_UNROLL
        for (int i = 0; i < W; i++) {
            const float one[1] = {some[i]}; /* as it is before it is rounded */
            if (at + W > left && at + i < left)
                store_f32<true>(out + at + i, one);
        }
        pack<T, W> p;
        fill<true>(p, some);
        if (at + W <= left)
            store(out + at, p);
        unpack(p, some);
        HST_UNROLL
        for (int i = 0; i < W; i++)
            v[k + i] = some[i];
    }
}

/* A warp adds a block's squares to its chains, by way of shared memory. */
static __device__ __forceinline__ void add_squares(float *stored, const float (&v)[EACH],
                                                   double &chain)
{
    constexpr int W = WIDE<float>;
    const unsigned lane = threadIdx.x % 32;
    HST_UNROLL
    for (int k = 0; k < EACH; k += W) {
        float some[W];
        HST_UNROLL
        for (int i = 0; i < W; i++)
            some[i] = v[k + i];
        store_f32(stored + (k / W * 32 + lane) * W, some);
    }
    __syncwarp(HST_FULL_WARP);
    add_stored<BLOCK>(stored, chain);
    __syncwarp(HST_FULL_WARP);
}

/* Elements of a warp at a time: a block of integers, or where there are partials those of one. */
static __host__ __device__ __forceinline__ size_t run_of(const struct sum_args &a)
{
    return a.partial ? (size_t)NORM_BLOCK : (size_t)BLOCK;
}

/* Two blocks to a multiprocessor are asked for as registers are then enough. */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 2) k_sum_quantised(const struct quantised_args a)
{
    __shared__ float4 room[WARPS][BLOCK / 4]; /* aligned as vectors are stored */
    const unsigned warp = threadIdx.x / 32;
    const size_t most = run_of(a.sum), count = a.sum.count;
    const size_t runs = (count + most - 1) / most;
    for (size_t r = blockIdx.x * (size_t)WARPS + warp; r < runs; r += gridDim.x * (size_t)WARPS) {
        const size_t begin = r * most, end = count - begin < most ? count : begin + most;
        double chain = 0;
        for (size_t at = begin; at < end; at += BLOCK) { /* of all lanes alike */
            float v[EACH];
            add_ways(a, at, end - at, v);
            write_block((T *)a.sum.out + at, end - at, v);
            if (a.sum.partial)
                add_squares((float *)room[warp], v, chain);
        }
        const double sum = norm_of_lanes(chain);
        if (a.sum.partial && threadIdx.x % 32 == 0)
            a.sum.partial[r] = sum;
    }
}

/* ---- the launch ------------------------------------------------------------------------------ */

template <typename T>
static cudaError_t launch(cudaStream_t stream, const struct quantised_args &args)
{
    HST_LAUNCH((k_sum_quantised<T>), grid_of(args.sum.count, WARPS * run_of(args.sum)), THREADS, 0,
               stream, args);
    return cudaGetLastError();
}

cudaError_t sum_quantised(cudaStream_t stream, const struct sum_args *args, enum hst_dtype out,
                          enum hst_quant bits)
{
    struct quantised_args a = {};
    a.sum = *args;
    a.four = bits == HST_INT4;
    return HST_BY_DTYPE(out, launch, stream, a);
}
