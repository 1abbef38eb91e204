/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_PTX_H
#define HST_CUDA_PTX_H
/*
 * The instructions that CUDA C++ has no name for, each in a function, each with its emulation by
 * the interpreter. All are in every card from compute capability 8.0 on. The only inline PTX of the
 * project; a kernel for one architecture alone would bring a header of its own.
 *
 * Fragments. A warp holds small matrices spread over its 32 lanes; with g = lane / 4 and
 * t = lane % 4, two bf16 or f16 to a register, the lower column (or row, in B) in its lower half:
 *
 *   A, 16×16   a[0] row g,     columns 2t, 2t+1       a[2] row g,     columns 2t+8, 2t+9
 *              a[1] row g + 8, columns 2t, 2t+1       a[3] row g + 8, columns 2t+8, 2t+9
 *   B, 16×8    b[0] rows 2t, 2t+1, column g           b[1] rows 2t+8, 2t+9, column g
 *   C, 16×8    c[0], c[1] row g, columns 2t, 2t+1     c[2], c[3] row g + 8, the same columns
 *
 * Two neighbours C, rounded and packed in pairs, are thus one A: no data changes lanes.
 *
 * Source: NVIDIA, PTX ISA, "Warp-level matrix instructions" and "cp.async".
 */
#include "launch.h"

/* An address in shared memory, offsets counted in bytes: half a pointer's registers. */
#ifdef HST_SIMT
typedef uintptr_t hst_shared_address;
#else
typedef uint32_t hst_shared_address;
#endif

static __device__ __forceinline__ hst_shared_address hst_shared_address_of(const void *shared)
{
#ifdef HST_SIMT
    return (uintptr_t)shared;
#else
    return (uint32_t)__cvta_generic_to_shared(shared);
#endif
}

/** c += a·b, the products exact and summed in f32. All 32 lanes together. The last argument is the
 * operands' type alone. */
static __device__ __forceinline__ void hst_mma(float c[4], const uint32_t a[4], const uint32_t b[2],
                                               __nv_bfloat16)
{
#ifdef HST_SIMT
    hst::mma_m16n8k16<__nv_bfloat16>(c, a, b, c);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

static __device__ __forceinline__ void hst_mma(float c[4], const uint32_t a[4], const uint32_t b[2],
                                               __half)
{
#ifdef HST_SIMT
    hst::mma_m16n8k16<__half>(c, a, b, c);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/**
 * Four 8×8 matrices of 16-bit elements from shared memory. Lane 8i + j gives the address of row j
 * of matrix i, 16 bytes on a 16-byte boundary; r[i] of a lane is row lane / 4, columns 2t and 2t+1
 * of matrix i. Free of bank conflicts where the eight rows of a matrix lie in different 16-byte
 * columns of the 128-byte lines that shared memory serves at once.
 */
static __device__ __forceinline__ void hst_ldmatrix_x4(uint32_t r[4], hst_shared_address row)
{
#ifdef HST_SIMT
    hst::ldmatrix_x4(r, (const void *)row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#endif
}

/** The same with each matrix transposed: r[i] of a lane is rows 2t and 2t+1, column lane / 4. */
static __device__ __forceinline__ void hst_ldmatrix_x4_trans(uint32_t r[4],
                                                             hst_shared_address row)
{
#ifdef HST_SIMT
    hst::ldmatrix_x4_trans(r, (const void *)row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
#endif
}

/**
 * Begins a copy of 16 bytes from global to shared memory, both on 16-byte boundaries, past the
 * registers and past L1. Of the source `valid_bytes` (0 to 16) are read, the rest become zeros.
 */
static __device__ __forceinline__ void hst_cp_async_16(hst_shared_address shared,
                                                       const void *global, int valid_bytes)
{
#ifdef HST_SIMT
    hst::cp_async_16((void *)shared, global, valid_bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
                 : "memory");
#endif
}

/** Closes the group of copies that this thread has begun. */
static __device__ __forceinline__ void hst_cp_async_commit()
{
#ifdef HST_SIMT
    hst::cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/**
 * Waits until at most LEFT of this thread's groups are under way. What other threads copied is
 * there after the barrier that follows.
 */
template <int LEFT> static __device__ __forceinline__ void hst_cp_async_wait()
{
#ifdef HST_SIMT
    hst::cp_async_wait(LEFT);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/** 2^x within 2 ulp; 0 for -infinity and below 2^-126. */
static __device__ __forceinline__ float hst_exp2(float x)
{
#ifdef HST_SIMT
    return hst::exp2_approx(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

#endif
