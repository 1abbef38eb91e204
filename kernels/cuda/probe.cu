/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells whether the build has code for the current GPU. Every kernel of the plugin is
 * compiled for the same architectures, so an empty one stands for all.
 */
#include "launch.h"

extern "C" cudaError_t hst_cuda_probe(void);

static __global__ void k_probe(void)
{
}

extern "C" cudaError_t hst_cuda_probe(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, (const void *)k_probe);
}
