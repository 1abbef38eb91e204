/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_LAUNCHES_H
#define HST_SIMT_LAUNCHES_H
/* What the programs for tests/cuda/resources.py share: operands, and a hash of what comes out. */
#include "half.h"
#include "launchers.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

static inline void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

/* Device memory of numbers between -2 and 2, a sequence of its own for each seed. */
static inline void *numbers(size_t count, enum hst_dtype dtype, uint64_t seed)
{
    size_t bytes = count * (dtype == HST_F32 ? 4 : 2);
    std::vector<unsigned char> host(bytes);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(seed >> 32) / 0x1p30f;
        if (dtype == HST_F32)
            ((float *)host.data())[i] = x;
        else
            ((uint16_t *)host.data())[i] = half_round(dtype, x);
    }
    void *memory;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    must(cudaMemcpy(memory, host.data(), bytes, cudaMemcpyDefault), "cudaMemcpy");
    return memory;
}

enum : uint64_t { HASH_BEGIN = 0xcbf29ce484222325u };

static inline uint64_t hash_of(const void *memory, size_t bytes, uint64_t hash)
{
    std::vector<unsigned char> host(bytes);
    must(cudaMemcpy(host.data(), memory, bytes, cudaMemcpyDefault), "cudaMemcpy");
    for (unsigned char byte : host)
        hash = (hash ^ byte) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

static inline const char *dtype_name(enum hst_dtype dtype)
{
    return dtype == HST_F32 ? "f32" : dtype == HST_BF16 ? "bf16" : "f16";
}

#endif
