/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's own occupancy calculator (cuda_occupancy.h) for the card that the double pretends to be
 * (HST_FAKE_CUDA=cc=X.Y). Each line of stdin has a block's threads, a thread's registers, and the
 * block's static and dynamic shared memory in bytes; the line that answers it has the blocks that
 * a multiprocessor holds, 0 where the card cannot launch one.
 */
#include <cuda_runtime_api.h>

#include <cuda_occupancy.h>

#include <cstdio>

int main()
{
    struct cudaDeviceProp card;
    if (cudaGetDeviceProperties(&card, 0) != cudaSuccess)
        return 1;
    const cudaOccDeviceProp properties = card;
    cudaOccDeviceState state = {};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    int threads, registers, fixed, dynamic;
    while (scanf("%d %d %d %d", &threads, &registers, &fixed, &dynamic) == 4) {
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = threads;
        kernel.numRegs = registers;
        kernel.sharedSizeBytes = (size_t)fixed;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = (size_t)dynamic;
        kernel.numBlockBarriers = 1;
        cudaOccResult result;
        cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &properties, &kernel, &state, threads, (size_t)dynamic);
        if (error != CUDA_OCC_SUCCESS) {
            fprintf(stderr, "cuda_occupancy.h: error %d for \"%d %d %d %d\"\n", (int)error, threads,
                    registers, fixed, dynamic);
            return 1;
        }
        printf("%d\n", result.activeBlocksPerMultiprocessor);
    }
    return 0;
}
