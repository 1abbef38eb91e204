/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of ways (hoistway/ways.h): n inputs added by the tree, rounded by place, and the norm's
 * partials of what is written. The tree is decided before the launch: which inputs are of the
 * narrow type, and which additions are rounded to it. Where integers give back a sum,
 * sum_quantised.cu has the kernel.
 *
 * Bytes moved per element: those of n inputs and of one output. Inputs are read four at a time, so
 * that a thread has four loads under way; sums that wait for their right neighbour stay in
 * registers, of which there are four vectors, as 64 inputs are 16 groups of four.
 */
#include "../../base/sum_tree.h"
#include "sum_ways.h"

enum { THREADS = 128, WARPS = THREADS / 32, GROUP = 4, LEVELS = 4 };
static_assert(HST_SUM_INPUTS <= GROUP << LEVELS, "as many sums may wait as there are levels");

/* ---- in registers ---------------------------------------------------------------------------- */

template <typename From, int N>
static __device__ __forceinline__ void read_some(const void *in, size_t at, float (&v)[N])
{
    constexpr int W = N < WIDE<From> ? N : WIDE<From>;
    HST_UNROLL
    for (int k = 0; k < N; k += W) {
        float some[W];
        load_f32((const From *)in + at + k, some);
        HST_UNROLL
        for (int i = 0; i < W; i++)
            v[k + i] = some[i];
    }
}

/* left ← left + right, rounded to T where its place says so. */
template <typename T, int N>
static __device__ __forceinline__ void add_right(float (&left)[N], const float (&right)[N],
                                                 bool rounds)
{
    HST_UNROLL
    for (int i = 0; i < N; i++)
        left[i] = __fadd_rn(left[i], right[i]);
    if (rounds) {
        pack<T, N> p;
        fill(p, left);
        unpack(p, left);
    }
}

/* The sum of up to four inputs from `first` on: v[0]. */
template <typename T, int N>
static __device__ __forceinline__ void add_group(const struct sum_args &a, unsigned first,
                                                 size_t at, float (&v)[GROUP][N])
{
    const unsigned count = a.inputs - first < GROUP ? a.inputs - first : GROUP;
    const unsigned all = (1u << count) - 1, narrow = (unsigned)(a.narrow >> first) & all;
    if (narrow == all) {
        HST_UNROLL
        for (unsigned i = 0; i < GROUP; i++)
            if (i < count)
                read_some<T>(a.in[first + i], at, v[i]);
    } else {
        HST_UNROLL
        for (unsigned i = 0; i < GROUP; i++)
            if (i < count && !(narrow >> i & 1))
                read_some<float>(a.in[first + i], at, v[i]);
            else if (i < count)
                read_some<T>(a.in[first + i], at, v[i]);
    }
    const unsigned rounds = (unsigned)(a.rounds >> first);
    if (count > 1)
        add_right<T>(v[0], v[1], rounds >> 1 & 1);
    if (count > 3)
        add_right<T>(v[2], v[3], rounds >> 3 & 1);
    if (count > 2)
        add_right<T>(v[0], v[2], rounds >> 2 & 1);
}

/*
 * A binary counter of groups: the sum of a group joins those that wait and have its size. The last
 * one joins all that wait, from the right.
 */
template <typename T, int N>
static __device__ __forceinline__ void add_ways(const struct sum_args &a, size_t at,
                                                float (&sum)[N])
{
    float waiting[LEVELS][N];
    for (unsigned first = 0; first < a.inputs; first += GROUP) {
        const unsigned group = first / GROUP;
        const bool last = a.inputs - first <= GROUP;
        float v[GROUP][N];
        add_group<T>(a, first, at, v);
        bool joins = true;
        HST_UNROLL
        for (unsigned level = 0; level < LEVELS; level++) {
            if (joins && (group >> level & 1)) {
                const unsigned right = (group >> level << level) * GROUP;
                add_right<T>(waiting[level], v[0], a.rounds >> right & 1);
                HST_UNROLL
                for (int i = 0; i < N; i++)
                    v[0][i] = waiting[level][i];
            } else if (joins && !last) {
                HST_UNROLL
                for (int i = 0; i < N; i++)
                    waiting[level][i] = v[0][i];
                joins = false;
            }
        }
        HST_UNROLL
        for (int i = 0; i < N; i++)
            sum[i] = v[0][i];
    }
}

/* ---- what is written ------------------------------------------------------------------------- */

template <typename To, int N>
static __device__ __forceinline__ void write_some(void *out, size_t at, float (&v)[N])
{
    constexpr int W = N < WIDE<To> ? N : WIDE<To>;
    HST_UNROLL
    for (int k = 0; k < N; k += W) {
        float some[W];
        HST_UNROLL
        for (int i = 0; i < W; i++)
            some[i] = v[k + i];
        pack<To, W> p;
        fill<true>(p, some);
        store((To *)out + at + k, p);
        unpack(p, some);
        HST_UNROLL
        for (int i = 0; i < W; i++)
            v[k + i] = some[i];
    }
}

/* N elements from `at` on; those as they were stored go to `stored`, which may be null. */
template <typename T, int N>
static __device__ __forceinline__ void sum_some(const struct sum_args &a, size_t at, float *stored)
{
    float v[N];
    add_ways<T>(a, at, v);
    HST_UNROLL
    for (int i = 0; i < N; i++)
        v[i] = isnan(v[i]) ? __uint_as_float(0x7fc00000u) : v[i];
    if (a.out_narrow)
        write_some<T>(a.out, at, v);
    else
        write_some<float>(a.out, at, v);
    if (!stored)
        return;
    constexpr int W = N < 4 ? N : 4;
    HST_UNROLL
    for (int k = 0; k < N; k += W) {
        float some[W];
        HST_UNROLL
        for (int i = 0; i < W; i++)
            some[i] = v[k + i];
        store_f32(stored + k, some);
    }
}

/*
 * A warp has a partial's elements, some hundred at a time: it adds them, leaves what it wrote in
 * shared memory, and half of it adds the squares there. Warps wait for no other's chain. What lies
 * beyond the last element is 0 there, which changes no sum of squares.
 */
template <typename T>
static __global__ void __launch_bounds__(THREADS) k_sum_ways(const struct sum_args a)
{
    constexpr unsigned N = WIDE<T>, AT_ONCE = 32 * N;
    __shared__ float4 room[WARPS][AT_ONCE / 4]; /* aligned as vectors are stored */
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *stored = (float *)room[warp];
    const size_t blocks = (a.count + NORM_BLOCK - 1) / NORM_BLOCK;
    for (size_t b = blockIdx.x * (size_t)WARPS + warp; b < blocks; b += gridDim.x * (size_t)WARPS) {
        const size_t begin = b * NORM_BLOCK;
        const size_t left = a.count - begin < NORM_BLOCK ? a.count - begin : NORM_BLOCK;
        double chain = 0;
        for (unsigned i = 0; i < left; i += AT_ONCE) { /* of all lanes alike */
            float *here = a.partial ? stored + lane * N : nullptr;
            const size_t at = i + lane * N;
            if (at + N <= left)
                sum_some<T, N>(a, begin + at, here);
            for (unsigned k = 0; k < N && at + N > left && (here || at + k < left); k++)
                if (at + k < left)
                    sum_some<T, 1>(a, begin + at + k, here ? here + k : nullptr);
                else
                    here[k] = 0;
            if (!a.partial)
                continue;
            __syncwarp(HST_FULL_WARP);
            add_stored<AT_ONCE>(stored, chain);
            __syncwarp(HST_FULL_WARP);
        }
        const double sum = norm_of_lanes(chain);
        if (a.partial && lane == 0)
            a.partial[b] = sum;
    }
}

/* ---- the launch ------------------------------------------------------------------------------ */

static bool is_narrow(const struct hst_sum_ways *a, struct hst_sum_node node)
{
    return hst_sum_type(&a->tree, node) != HST_F32;
}

/* The two nodes before `depth` become one. The root is rounded when it is written. */
static void plan_addition(const struct hst_sum_ways *a, struct hst_sum_node *left,
                          struct sum_args *args)
{
    const unsigned right = (left[1].first - a->first) / a->each;
    left->count += left[1].count;
    const bool narrow = left->count != a->tree.ways && is_narrow(a, *left);
    if (narrow || hst_sum_quantised(&a->tree, *left))
        args->rounds |= 1ull << right;
}

static struct sum_args plan(const struct hst_sum_ways *a)
{
    struct sum_args args = {};
    struct hst_sum_node waiting[HST_SUM_INPUTS];
    unsigned depth = 0;
    args.out = a->out;
    args.partial = a->partial;
    args.count = a->count;
    args.inputs = a->inputs;
    args.out_narrow = is_narrow(a, sum_output(a));
    for (uint32_t i = 0; i < a->inputs; i++) {
        args.in[i] = a->in[i];
        args.narrow |= (uint64_t)is_narrow(a, sum_input(a, i)) << i;
        waiting[depth++] = sum_input(a, i);
        for (; depth > 1 && waiting[depth - 2].count == waiting[depth - 1].count; depth--)
            plan_addition(a, waiting + depth - 2, &args);
    }
    for (; depth > 1; depth--)
        plan_addition(a, waiting + depth - 2, &args);
    if (a->inputs == 1 && hst_sum_quantised(&a->tree, *waiting))
        args.rounds = 1;
    return args;
}

template <typename T> static cudaError_t sum_ways(cudaStream_t stream, const struct sum_args &args)
{
    HST_LAUNCH((k_sum_ways<T>), grid_of(args.count, (size_t)WARPS * NORM_BLOCK), THREADS, 0, stream,
               args);
    return cudaGetLastError();
}

cudaError_t hst_cuda_sum_ways(cudaStream_t stream, const struct hst_sum_ways *args)
{
    if (!args->count)
        return cudaSuccess;
    const struct sum_args a = plan(args);
    if (args->tree.quant && a.rounds)
        return sum_quantised(stream, &a, hst_sum_type(&args->tree, sum_output(args)),
                             args->tree.quant);
    return HST_BY_DTYPE(args->tree.root, sum_ways, stream, a);
}
