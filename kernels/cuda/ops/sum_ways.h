/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_SUM_WAYS_H
#define HST_CUDA_SUM_WAYS_H
/*
 * What the two kernels of sums share. An addition is named by the input that its right node begins
 * at; each input but the first begins the right node of exactly one.
 */
#include "launchers.h"
#include "norm.h"

struct sum_args {
    const void *in[HST_SUM_INPUTS];
    void *out;
    double *partial; /* null: none */
    size_t count;
    uint64_t narrow; /* bit i: input i is of T; else of f32 */
    /* bit i: the addition whose right node begins at input i is rounded: to T, or to what integers
       give back; bit 0: so is the only input */
    uint64_t rounds;
    unsigned inputs;
    bool out_narrow;
};

/* sum_quantised.cu: sums of which integers give back one or more. out: the type that is written. */
cudaError_t sum_quantised(cudaStream_t stream, const struct sum_args *args, enum hst_dtype out,
                          enum hst_quant bits);

/* A warp adds what it has stored to its chains: half of its lanes, and the others for nothing. */
template <int COUNT>
static __device__ __forceinline__ void add_stored(const float *stored, double &chain)
{
    HST_UNROLL
    for (int i = 0; i < COUNT; i += NORM_LANES) {
        const double x = stored[i + threadIdx.x % NORM_LANES];
        chain = __fma_rn(x, x, chain);
    }
}
#endif
