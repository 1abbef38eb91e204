/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that are right pass in every schedule; each way to break one is caught. */
#include "support.h"

enum Broken { WHOLE, NO_FIRST_BARRIER, NO_LAST_BARRIER };

/* ---- barriers -------------------------------------------------------------------------------- */

/* Two block sums with one scratch: without the last barrier the second overtakes the first. */
template <Broken broken> static float block_sum(float x)
{
    __shared__ float scratch[32];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int distance = 16; distance; distance /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    if (lane == 0)
        scratch[warp] = x;
    if (broken != NO_FIRST_BARRIER)
        __syncthreads();
    x = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++)
        x += scratch[w];
    if (broken != NO_LAST_BARRIER)
        __syncthreads();
    return x;
}

template <Broken broken> static __global__ void k_sums(const float *x, float *sums, size_t width)
{
    float sum = 0, square = 0;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
        float value = x[blockIdx.x * width + i];
        sum += value;
        square += value * value;
    }
    sum = block_sum<broken>(sum);
    square = block_sum<broken>(square);
    if (threadIdx.x == blockDim.x - 1) {
        sums[blockIdx.x * 2] = sum;
        sums[blockIdx.x * 2 + 1] = square;
    }
}

/* 3 rows of 1,000: element i of row r is (i % 7) + r, so that sums are exact in any order. */
template <Broken broken> static bool sums_are_right()
{
    const size_t rows = 3, width = 1000;
    std::vector<float> host(rows * width), want(rows * 2);
    for (size_t i = 0; i < host.size(); i++) {
        host[i] = (float)(i % width % 7 + i / width);
        want[i / width * 2] += host[i];
        want[i / width * 2 + 1] += host[i] * host[i];
    }
    Vector<float> x(host.size()), sums(want.size());
    x.write(host);
    HST_LAUNCH(k_sums<broken>, rows, 160, 0, nullptr, x.data, sums.data, width);
    return sums.read() == want;
}

static void good_kernels_pass_in_every_schedule(void **)
{
    expect_right(sums_are_right<WHOLE>);
}

static void a_missing_barrier_is_caught(void **)
{
    expect_caught(sums_are_right<NO_FIRST_BARRIER>);
}

static void a_missing_trailing_barrier_is_caught(void **)
{
    expect_caught(sums_are_right<NO_LAST_BARRIER>);
    if (!WITH_TSAN) { /* which is why "ahead" exists */
        assert_true(outcome_of("forward", sums_are_right<NO_LAST_BARRIER>).right);
        assert_false(outcome_of("ahead", sums_are_right<NO_LAST_BARRIER>).right);
    }
}

static __global__ void k_reductions(int *out)
{
    int some = __syncthreads_or(threadIdx.x == 40);
    int every = __syncthreads_and(threadIdx.x != 40);
    int count = __syncthreads_count(threadIdx.x % 3 == 0);
    out[threadIdx.x] = some * 10000 + every * 1000 + count;
}

static void barriers_reduce(void **)
{
    expect_right([] {
        Vector<int> out(96);
        HST_LAUNCH(k_reductions, 1, 96, 0, nullptr, out.data);
        return out.read() == std::vector<int>(96, 10032);
    });
}

static __global__ void k_diverge(int *out)
{
    if (threadIdx.x < 32) {
        __syncthreads();
        out[threadIdx.x] = 1;
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();
    }
}

static __global__ void k_barrier_and_warp(int *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < 16)
        __syncthreads();
    else
        __syncwarp();
}

static bool run_ints(void (*kernel)(int *))
{
    Vector<int> out(64);
    HST_LAUNCH(kernel, 1, 64, 0, nullptr, out.data);
    return cudaDeviceSynchronize() == cudaSuccess;
}

static void divergence_ends_with_who_and_where(void **)
{
    expect_message("wait at different barriers", [] { return run_ints(k_diverge); });
    expect_message("deadlock", [] { return run_ints(k_barrier_and_warp); });
    expect_message("test_simt.cpp:", [] { return run_ints(k_diverge); });
}

/* ---- warps ----------------------------------------------------------------------------------- */

static __global__ void k_inactive(int *out)
{
    if (threadIdx.x % 32 < 16)
        out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1, 8);
}

static __global__ void k_not_in_mask(int *out)
{
    out[threadIdx.x] = __any_sync(0xffffu, 1);
}

static __global__ void k_different_sites(int *out)
{
    if (threadIdx.x % 2)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    else
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 2, 1);
}

static void misused_warp_collectives_are_caught(void **)
{
    expect_message("a lane that does not take part", [] { return run_ints(k_inactive); });
    expect_message("whose mask leaves it out", [] { return run_ints(k_not_in_mask); });
    expect_message("at different collectives", [] { return run_ints(k_different_sites); });
}

static __global__ void k_shuffles(int *out)
{
    int lane = threadIdx.x % 32, *to = out + threadIdx.x * 6;
    to[0] = __shfl_xor_sync(0xffffffffu, lane, 5);
    to[1] = __shfl_up_sync(0xffffffffu, lane, 3);
    to[2] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
    to[3] = __shfl_sync(0xffffffffu, lane, 9, 8);
    to[4] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    to[5] = (int)__shfl_xor_sync(0xffffffffu, lane * 1.5, 1) + __all_sync(0xffffffffu, lane < 32);
}

static void shuffles_read_the_lane_that_cuda_says(void **)
{
    expect_right([] {
        Vector<int> out(64 * 6);
        HST_LAUNCH(k_shuffles, 1, 64, 0, nullptr, out.data);
        std::vector<int> got = out.read();
        for (int i = 0; i < 64; i++) {
            int lane = i % 32, *g = &got[(size_t)i * 6];
            if (g[0] != (lane ^ 5) || g[1] != (lane < 3 ? lane : lane - 3) ||
                g[2] != (lane % 8 < 5 ? lane + 3 : lane) || g[3] != lane / 8 * 8 + 1 ||
                g[4] != 0x49249249 || g[5] != (int)((lane ^ 1) * 1.5) + 1)
                return false;
        }
        return true;
    });
}

template <bool barrier> static __global__ void k_within_warp(int *out)
{
    __shared__ int place[64];
    place[threadIdx.x] = (int)threadIdx.x;
    if (barrier)
        __syncwarp();
    out[threadIdx.x] = place[threadIdx.x ^ 1];
}

static bool neighbours_are_right(void (*kernel)(int *))
{
    Vector<int> out(64);
    HST_LAUNCH(kernel, 1, 64, 0, nullptr, out.data);
    std::vector<int> got = out.read();
    for (int i = 0; i < 64; i++)
        if (got[(size_t)i] != (i ^ 1))
            return false;
    return true;
}

static void a_missing_syncwarp_is_caught(void **)
{
    expect_right([] { return neighbours_are_right(k_within_warp<true>); });
    expect_caught([] { return neighbours_are_right(k_within_warp<false>); });
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum Place { NOWHERE, STATIC, DYNAMIC, GLOBAL };

static __global__ void k_out_of_bounds(float *out, int place)
{
    __shared__ float fixed[32];
    HST_DYN_SHARED(float, dynamic);
    unsigned i = threadIdx.x;
    volatile float *to = fixed;
    to[i + (place == STATIC)] = 1;
    dynamic[i + (place == DYNAMIC)] = 2;
    __syncthreads();
    out[i + (place == GLOBAL)] = fixed[i] + dynamic[i];
}

static bool run_out_of_bounds(int place)
{
    Vector<float> out(32);
    HST_LAUNCH(k_out_of_bounds, 1, 32, 32 * sizeof(float), nullptr, out.data, place);
    return cudaDeviceSynchronize() == cudaSuccess;
}

static void a_write_beyond_memory_is_caught(void **)
{
    expect_right([] { return run_out_of_bounds(NOWHERE); });
    for (int place = STATIC; place <= GLOBAL && WITH_ASAN; place++)
        expect_caught([=] { return run_out_of_bounds(place); });
    Outcome outcome =
        outcome_of("forward", [] { /* the guard page, in every build */
                                   Vector<float> out(64);
                                   HST_LAUNCH(k_out_of_bounds, 1, 32, 32 * sizeof(float), nullptr,
                                              out.data + 33, NOWHERE);
                                   return cudaDeviceSynchronize() == cudaSuccess;
        });
    assert_false(outcome.right);
}

static __global__ void k_unwritten(uint32_t *out)
{
    __shared__ uint32_t fixed[64];
    HST_DYN_SHARED(uint32_t, dynamic);
    out[blockIdx.x * blockDim.x + threadIdx.x] = fixed[threadIdx.x] & dynamic[threadIdx.x];
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 0;
}

static void shared_memory_begins_as_ones_in_each_block(void **)
{
    expect_right([] {
        Vector<uint32_t> out(3 * 64);
        HST_LAUNCH(k_unwritten, 3, 64, 64 * sizeof(uint32_t), nullptr, out.data);
        return out.read() == std::vector<uint32_t>(3 * 64, ~0u);
    });
}

static __global__ void k_atomics(int *counters, unsigned long long *wide)
{
    atomicAdd(&counters[0], 1);
    atomicMax(&counters[1], (int)threadIdx.x);
    atomicExch(&counters[2], 9);
    atomicAdd(wide, 1ull << 40);
    for (int old = counters[3], seen; (seen = atomicCAS(&counters[3], old, old + 2)) != old;)
        old = seen;
}

static void atomics_count_every_thread(void **)
{
    if (WITH_TSAN)
        skip(); /* the plain read before atomicCAS is a race by TSan's rules */
    expect_right([] {
        Vector<int> counters(4);
        Vector<unsigned long long> wide(1);
        HST_LAUNCH(k_atomics, 2, 96, 0, nullptr, counters.data, wide.data);
        return counters.read() == std::vector<int>{192, 95, 9, 384} && wide.read()[0] == 192ull
                                                                                             << 40;
    });
}

/* ---- PTX ------------------------------------------------------------------------------------- */

/* C (16×8) = A (16×16) · B (16×8); A and Bᵀ row-major in shared memory, by ldmatrix. */
template <class T>
static __global__ void k_tile(const uint16_t *a, const uint16_t *b, float *c, bool b_transposed)
{
    __shared__ __align__(16) uint16_t sa[16][16], sb[16][16];
    unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < 256; i += 32)
        sa[i / 16][i % 16] = a[i];
    for (unsigned i = lane; i < 128; i += 32) { /* b is 16×8, or 8×16 transposed */
        unsigned columns = b_transposed ? 16 : 8;
        sb[i / columns][i % columns] = b[i];
    }
    __syncwarp();
    uint32_t fa[4], fb[2];
    float sums[4] = {0, 0, 0, 0};
    hst::ldmatrix_x4(fa, &sa[lane % 16][lane / 16 * 8]);
    if (b_transposed)
        hst::ldmatrix_x2(fb, &sb[lane % 8][lane / 8 % 2 * 8]);
    else
        hst::ldmatrix_x2_trans(fb, &sb[lane % 16][0]);
    hst::mma_m16n8k16<T>(sums, fa, fb, sums);
    for (unsigned i = 0; i < 4; i++)
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

template <class T> static bool tile_is_right(uint16_t one, bool b_transposed)
{
    std::vector<uint16_t> a(256), b(128);
    std::vector<float> want(128);
    for (size_t i = 0; i < 256; i++)
        a[i] = (uint16_t)(one + i * 37 % 100); /* 1 and above, all different along a row */
    for (size_t i = 0; i < 128; i++)
        b[i] = (uint16_t)((one | 0x8000) + i * 53 % 90);
    for (size_t i = 0; i < 16; i++)
        for (size_t j = 0; j < 8; j++)
            for (size_t k = 0; k < 16; k++)
                want[i * 8 + j] += hst::wide<T>(a[i * 16 + k]) *
                                   hst::wide<T>(b_transposed ? b[j * 16 + k] : b[k * 8 + j]);
    Vector<uint16_t> da(256), db(128);
    Vector<float> dc(128);
    da.write(a);
    db.write(b);
    HST_LAUNCH((k_tile<T>), 1, 32, 0, nullptr, da.data, db.data, dc.data, b_transposed);
    return dc.read() == want;
}

static void mma_and_ldmatrix_make_a_product(void **)
{
    for (int b_transposed = 0; b_transposed < 2; b_transposed++) {
        expect_right([=] { return tile_is_right<__nv_bfloat16>(0x3f80, b_transposed); });
        expect_right([=] { return tile_is_right<__half>(0x3c00, b_transposed); });
    }
}

/* Reversed within the block through shared memory; `wait`: cp.async is waited for. */
template <bool wait, bool barrier> static __global__ void k_async(const float4 *x, float4 *y)
{
    __shared__ float4 staged[2][64];
    unsigned i = threadIdx.x;
    for (unsigned half = 0; half < 2; half++) {
        hst::cp_async_16(&staged[half][i], x + half * 64 + i, i == 0 ? 8 : 16);
        hst::cp_async_commit();
    }
    for (unsigned half = 0; half < 2; half++) {
        if (wait)
            hst::cp_async_wait(half ? 0 : 1);
        if (barrier)
            __syncthreads();
        y[half * 64 + i] = staged[half][63 - i];
    }
}

static bool async_is_right(void (*kernel)(const float4 *, float4 *))
{
    std::vector<float4> host(128);
    for (size_t i = 0; i < 128; i++)
        host[i] = make_float4((float)i, (float)i + 0.25f, (float)i + 0.5f, (float)i + 0.75f);
    Vector<float4> x(128), y(128);
    x.write(host);
    HST_LAUNCH(kernel, 1, 64, 0, nullptr, x.data, y.data);
    std::vector<float4> got = y.read();
    for (size_t i = 0; i < 128; i++) {
        float4 want = host[i / 64 * 64 + 63 - i % 64];
        if (i % 64 == 63) /* 8 bytes were valid */
            want.z = want.w = 0;
        if (memcmp(&got[i], &want, sizeof want) != 0)
            return false;
    }
    return true;
}

static void cp_async_lands_at_its_wait(void **)
{
    expect_right([] { return async_is_right(k_async<true, true>); });
    for (const char *schedule : all_schedules)
        assert_false(
            outcome_of(schedule, [] { return async_is_right(k_async<false, true>); }).right);
    expect_caught([] { return async_is_right(k_async<true, false>); });
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_kernels_pass_in_every_schedule),
        cmocka_unit_test(a_missing_barrier_is_caught),
        cmocka_unit_test(a_missing_trailing_barrier_is_caught),
        cmocka_unit_test(barriers_reduce),
        cmocka_unit_test(divergence_ends_with_who_and_where),
        cmocka_unit_test(misused_warp_collectives_are_caught),
        cmocka_unit_test(shuffles_read_the_lane_that_cuda_says),
        cmocka_unit_test(a_missing_syncwarp_is_caught),
        cmocka_unit_test(a_write_beyond_memory_is_caught),
        cmocka_unit_test(shared_memory_begins_as_ones_in_each_block),
        cmocka_unit_test(atomics_count_every_thread),
        cmocka_unit_test(mma_and_ldmatrix_make_a_product),
        cmocka_unit_test(cp_async_lands_at_its_wait),
    };
    return cmocka_run_group_tests_name("simt", tests, nullptr, nullptr);
}
