/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_H
#define HST_SIMT_H
/*
 * CUDA C++ for a machine without a GPU: what a kernel's source sees under g++ with HST_SIMT.
 * Blocks run one after another; each CUDA thread is a fiber that runs until it meets a barrier or a
 * warp collective. README.md says how to write kernels for it and what it cannot show.
 *
 *   HST_LAUNCH((kernel<T, 4>), grid, block, shared_bytes, stream, arguments...)   enqueued, run
 *     when the stream is waited for; arguments are captured by value
 *   HST_DYN_SHARED(float, name)   a fresh heap block of exactly the launch's size, all ones bits
 *   __shared__                    one section of the module, all ones bits when a block begins
 *
 * hst::mma_*, ldmatrix_*, cp_async_* are what PTX has beyond CUDA C++ (kernels/cuda/ptx.h).
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <math.h>

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* The attributes of CUDA's host headers, whose declarations end here. */
#undef __constant__
#undef __device__
#undef __forceinline__
#undef __global__
#undef __grid_constant__
#undef __host__
#undef __launch_bounds__
#undef __shared__
#define __constant__ static
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __grid_constant__
#define __host__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("hst_shared")))

/* Where this module's static shared memory lies; null where it has none. */
extern "C" __attribute__((weak, visibility("hidden"))) char __start_hst_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_hst_shared[];

namespace hst
{

struct Site { /* a place in a kernel's source */
    const char *file;
    int line;
};
#define HST_SITE (hst::Site{__FILE__, __LINE__})

/* ---- where a thread is ----------------------------------------------------------------------- */

extern const uint3 *thread_position;
extern uint3 block_position;
extern dim3 block_extent, grid_extent;
void *dynamic_shared();

/* HST_SIMT_GRID: blocks of a grid at most, so that kernels that stride over any size do. */
unsigned grid_most();
#define HST_GRID_MOST (hst::grid_most())

#define threadIdx (*hst::thread_position)
#define blockIdx  (hst::block_position)
#define blockDim  (hst::block_extent)
#define gridDim   (hst::grid_extent)
#define warpSize  32

#define HST_DYN_SHARED(type, name) type *name = static_cast<type *>(hst::dynamic_shared())

/* ---- launches -------------------------------------------------------------------------------- */

struct Launch {
    Site site;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    char *shared_begin, *shared_end; /* static shared memory of the kernel's module */
};
/** Checks as the runtime does (cudaGetLastError), then enqueues `thread` once per CUDA thread. */
void enqueue_launch(const Launch &launch, cudaStream_t stream, std::function<void()> thread);

template <class... P, class... A>
void launch(Site site, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, A &&...arguments)
{
    Launch l = {site,
                reinterpret_cast<const void *>(kernel),
                grid,
                block,
                shared_bytes,
                __start_hst_shared,
                __stop_hst_shared};
    std::tuple<std::remove_cv_t<P>...> values{std::forward<A>(arguments)...};
    enqueue_launch(l, stream, [kernel, values] { std::apply(kernel, values); });
}
#define HST_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    hst::launch(HST_SITE, (kernel), (grid), (block), (shared_bytes), (stream), ##__VA_ARGS__)

/* ---- barriers -------------------------------------------------------------------------------- */

enum class Reduce { none, any, all, count };
int barrier(Site site, Reduce reduce, bool predicate);
#define __syncthreads()        ((void)hst::barrier(HST_SITE, hst::Reduce::none, false))
#define __syncthreads_or(p)    hst::barrier(HST_SITE, hst::Reduce::any, (p) != 0)
#define __syncthreads_and(p)   hst::barrier(HST_SITE, hst::Reduce::all, (p) != 0)
#define __syncthreads_count(p) hst::barrier(HST_SITE, hst::Reduce::count, (p) != 0)
#define __threadfence()        ((void)0)
#define __threadfence_block()  ((void)0)

/* ---- warp collectives ------------------------------------------------------------------------ */

enum class WarpOp { sync, shuffle_xor, shuffle_up, shuffle_down, shuffle, ballot, mma, ldmatrix };

/** What one lane brings to a collective of its warp and takes from it. */
struct Collective {
    WarpOp op;
    unsigned mask;
    Site site;
    uint64_t in, out;    /* shuffles, ballot */
    int argument, width; /* shuffles: lane, distance or xor mask; lanes of a segment */
    void *operands;      /* mma: struct Mma; ldmatrix: struct MatrixRow */
};
/** Waits until every live lane of the mask has come, whose last one computes for all. */
void meet(Collective &c);

inline void sync_warp(Site site, unsigned mask = 0xffffffffu)
{
    Collective c = {WarpOp::sync, mask, site, 0, 0, 0, 32, nullptr};
    meet(c);
}

template <WarpOp op, class T>
T shuffle(Site site, unsigned mask, T value, int argument, int width = 32)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "not a type to be shuffled");
    Collective c = {op, mask, site, 0, 0, argument, width, nullptr};
    std::memcpy(&c.in, &value, sizeof value);
    meet(c);
    std::memcpy(&value, &c.out, sizeof value);
    return value;
}

inline unsigned ballot(Site site, unsigned mask, bool predicate)
{
    Collective c = {WarpOp::ballot, mask, site, predicate, 0, 0, 32, nullptr};
    meet(c);
    return (unsigned)c.out;
}
/* By the lanes that say no, so that those which have exited are not asked. */
inline bool all(Site site, unsigned mask, bool predicate)
{
    return ballot(site, mask, !predicate) == 0;
}

#define __syncwarp(...)        hst::sync_warp(HST_SITE, ##__VA_ARGS__)
#define __shfl_sync(...)       hst::shuffle<hst::WarpOp::shuffle>(HST_SITE, __VA_ARGS__)
#define __shfl_xor_sync(...)   hst::shuffle<hst::WarpOp::shuffle_xor>(HST_SITE, __VA_ARGS__)
#define __shfl_up_sync(...)    hst::shuffle<hst::WarpOp::shuffle_up>(HST_SITE, __VA_ARGS__)
#define __shfl_down_sync(...)  hst::shuffle<hst::WarpOp::shuffle_down>(HST_SITE, __VA_ARGS__)
#define __ballot_sync(mask, p) hst::ballot(HST_SITE, (mask), (p) != 0)
#define __any_sync(mask, p)    (hst::ballot(HST_SITE, (mask), (p) != 0) != 0)
#define __all_sync(mask, p)    ((int)hst::all(HST_SITE, (mask), (p) != 0))

/* ---- PTX ------------------------------------------------------------------------------------- */

template <class T> float wide(uint16_t bits)
{
    T element;
    std::memcpy(static_cast<void *>(&element), &bits, sizeof element);
    return (float)element;
}

struct Mma {
    float *d;
    const uint32_t *a, *b;
    const float *c;
    float (*wide)(uint16_t bits); /* an element of a or b */
};
/**
 * mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32, T being __nv_bfloat16 or __half: d = a·b + c,
 * fragments as PTX lays them over the warp. Sums run in rising k in f32; a tensor core's order and
 * rounding are its own.
 */
template <class T>
void mma_m16n8k16(float d[4], const uint32_t a[4], const uint32_t b[2], const float c[4])
{
    Mma operands = {d, a, b, c, wide<T>};
    Collective m = {WarpOp::mma, 0xffffffffu, HST_SITE, 0, 0, 0, 32, &operands};
    meet(m);
}

/** How many of these the kernels of this process have had: what they leave out shows in it. */
struct Work {
    unsigned long mma, cp_async;
};
Work &work();

struct MatrixRow {
    uint16_t row[8]; /* what this lane read of the address that it gave */
    uint32_t *result;
    unsigned matrices;
    bool transposed;
};
[[noreturn]] void die_misaligned(const char *what, const void *address);

template <unsigned matrices, bool transposed>
void ldmatrix(uint32_t *result, const void *shared_row)
{
    MatrixRow operands = {{}, result, matrices, transposed};
    if (reinterpret_cast<uintptr_t>(shared_row) % 16)
        die_misaligned("ldmatrix", shared_row);
    if ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32 < matrices * 8) {
        const uint16_t *row = static_cast<const uint16_t *>(shared_row);
        for (int i = 0; i < 8; i++)
            operands.row[i] = row[i];
    }
    Collective m = {WarpOp::ldmatrix, 0xffffffffu, HST_SITE, 0, 0, 0, 32, &operands};
    meet(m);
}
/** ldmatrix.sync.aligned.m8n8[.trans].b16: lanes 8i to 8i+7 give the rows of matrix i. */
inline void ldmatrix_x4(uint32_t r[4], const void *shared_row)
{
    ldmatrix<4, false>(r, shared_row);
}
inline void ldmatrix_x4_trans(uint32_t r[4], const void *shared_row)
{
    ldmatrix<4, true>(r, shared_row);
}
inline void ldmatrix_x2(uint32_t r[2], const void *shared_row)
{
    ldmatrix<2, false>(r, shared_row);
}
inline void ldmatrix_x2_trans(uint32_t r[2], const void *shared_row)
{
    ldmatrix<2, true>(r, shared_row);
}

struct AsyncCopy {
    unsigned char *dst;
    const unsigned char *src;
    int valid_bytes;
};
void async_push(const AsyncCopy &copy); /* of the current thread; counted in Work */
void async_commit();
bool async_pop(int groups_left, AsyncCopy *copy);

/**
 * cp.async.cg.shared.global: 16 bytes, of which valid_bytes (0 to 16) are read and the rest are
 * zeros. They land when this thread waits for their group; until then the place holds ones bits.
 */
inline void cp_async_16(void *shared_dst, const void *global_src, int valid_bytes)
{
    if (reinterpret_cast<uintptr_t>(shared_dst) % 16)
        die_misaligned("cp.async, destination", shared_dst);
    if (valid_bytes > 0 && reinterpret_cast<uintptr_t>(global_src) % 16)
        die_misaligned("cp.async, source", global_src);
    AsyncCopy copy = {static_cast<unsigned char *>(shared_dst),
                      static_cast<const unsigned char *>(global_src), valid_bytes};
    for (int i = 0; i < 16; i++)
        copy.dst[i] = 0xff;
    async_push(copy);
}
inline void cp_async_commit()
{
    async_commit();
}
/** Waits for all committed groups but the last groups_left. */
inline void cp_async_wait(int groups_left)
{
    AsyncCopy copy;
    while (async_pop(groups_left, &copy))
        for (int i = 0; i < 16; i++)
            copy.dst[i] = i < copy.valid_bytes ? copy.src[i] : 0;
}

/* ---- for the interpreter's own tests --------------------------------------------------------- */

/** forward, reversed, ahead, ahead-reversed or random:SEED; false for anything else. */
bool set_schedule(const char *name);

} // namespace hst

/* The runtime's C++ overload, for kernels. */
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attribute, int value)
{
    return ::cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...),
                                                          int threads, size_t shared_bytes)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), threads, shared_bytes);
}

#include "arithmetic.h"
#include "intrinsics.h"

#endif
