/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_STREAMS_H
#define HST_SIMT_STREAMS_H
/* For the tests of the fake runtime: two streams, an event and a kernel to put into them. */
#include "runtime.h"
#include "support.h"

static __global__ void k_add(float *x, float value, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] += value;
}

static inline void add(float *x, float value, size_t count, cudaStream_t stream)
{
    HST_LAUNCH(k_add, 3, 64, 0, stream, x, value, count);
}

struct Streams {
    cudaStream_t a, b;
    cudaEvent_t event;
    Streams()
    {
        assert_int_equal(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), 0);
        assert_int_equal(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), 0);
        assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDefault), 0);
    }
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;
    ~Streams()
    {
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaEventDestroy(event);
    }
};

#endif
