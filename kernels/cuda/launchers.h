/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_LAUNCHERS_H
#define HST_CUDA_LAUNCHERS_H
/*
 * The doors from the plugin's C to its kernels: one per operation, with the public argument struct,
 * already checked (kernels/operations.c). Each enqueues to `stream` and returns cudaSuccess or the
 * launch's error (cudaGetLastError: a launch that the card refused); none synchronises, none
 * allocates. A count of 0 enqueues nothing. *_work_bytes read shapes only.
 */
#include <cuda_runtime_api.h>
#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ops/rmsnorm.cu */
cudaError_t hst_cuda_rmsnorm(cudaStream_t stream, const struct hst_rmsnorm *args);
cudaError_t hst_cuda_rmsnorm_backward(cudaStream_t stream, const struct hst_rmsnorm_backward *args);
size_t hst_cuda_rmsnorm_backward_work_bytes(size_t tokens, size_t width);
/* ops/bias.cu */
cudaError_t hst_cuda_bias(cudaStream_t stream, const struct hst_bias *args);
cudaError_t hst_cuda_bias_backward(cudaStream_t stream, const struct hst_bias_backward *args);
size_t hst_cuda_bias_backward_work_bytes(size_t tokens, size_t width);
/* ops/rope.cu */
cudaError_t hst_cuda_rope(cudaStream_t stream, const struct hst_rope *args);
/* ops/elementwise.cu */
cudaError_t hst_cuda_swiglu(cudaStream_t stream, const struct hst_swiglu *args);
cudaError_t hst_cuda_swiglu_backward(cudaStream_t stream, const struct hst_swiglu_backward *args);
cudaError_t hst_cuda_add(cudaStream_t stream, const struct hst_add *args);
cudaError_t hst_cuda_cast(cudaStream_t stream, const struct hst_cast *args);
/* ops/embedding.cu */
cudaError_t hst_cuda_embedding(cudaStream_t stream, const struct hst_embedding *args);
cudaError_t hst_cuda_embedding_backward(cudaStream_t stream,
                                        const struct hst_embedding_backward *args);
size_t hst_cuda_embedding_backward_work_bytes(size_t tokens, size_t vocab);
/* ops/cross_entropy.cu */
cudaError_t hst_cuda_cross_entropy(cudaStream_t stream, const struct hst_cross_entropy *args);
/* ops/optimizer.cu */
cudaError_t hst_cuda_norm2(cudaStream_t stream, const struct hst_norm2 *args);
/* It says whether there is such an optimizer, and has the moments that are there, and no others. */
bool hst_cuda_can_optimize(const struct hst_optimize *args);
cudaError_t hst_cuda_optimize(cudaStream_t stream, const struct hst_optimize *args);
/* ops/quantise.cu */
cudaError_t hst_cuda_quantise(cudaStream_t stream, const struct hst_quantise *args);
cudaError_t hst_cuda_dequantise(cudaStream_t stream, const struct hst_dequantise *args);
/* ops/sum_ways.cu */
cudaError_t hst_cuda_sum_ways(cudaStream_t stream, const struct hst_sum_ways *args);
/* ops/attention*.cu: every head_dim, every dtype */
cudaError_t hst_cuda_attention(cudaStream_t stream, const struct hst_attention *args);
cudaError_t hst_cuda_attention_backward(cudaStream_t stream,
                                        const struct hst_attention_backward *args);
size_t hst_cuda_attention_work_bytes(const struct hst_attention *args);
/* ops/matmul*.cu: every layout, every dtype, no workspace. multiprocessors: the card's, by which a
   tile is chosen; no bit depends on it. */
cudaError_t hst_cuda_matmul(cudaStream_t stream, const struct hst_matmul *args,
                            unsigned multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
