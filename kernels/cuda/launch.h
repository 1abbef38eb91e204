/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_LAUNCH_H
#define HST_CUDA_LAUNCH_H
/*
 * Every kernel's source includes this first. Under nvcc it is CUDA; under a C++ compiler with
 * HST_SIMT it is the interpreter of tests/simt, so that every kernel also runs, and is checked for
 * races, on a machine without a GPU. The rules that this asks of kernels are in README.md.
 *
 *   HST_LAUNCH((kernel<T, 4>), grid, block, shared_bytes, stream, arguments...)
 *   HST_DYN_SHARED(float, name)   dynamic shared memory, aligned to 128 bytes
 */
#include <hoistway/kernels.h>

#ifdef HST_SIMT
#include "simt.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#define HST_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define HST_DYN_SHARED(type, name)                                                                 \
    extern __shared__ __align__(128) unsigned char hst_dyn_shared[];                               \
    type *name = (type *)hst_dyn_shared
#endif

#define HST_FULL_WARP 0xffffffffu

/* Blocks of a grid whose kernel strides over any size; the interpreter can make it small, so that
 * they stride in tests too. */
#ifndef HST_GRID_MOST
#define HST_GRID_MOST (1u << 30)
#endif

#endif
