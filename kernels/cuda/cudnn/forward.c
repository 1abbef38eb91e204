/* SPDX-License-Identifier: Apache-2.0 */
/*
 * o = softmax(scale·q·kᵀ + causal mask)·v and lse, as the graph that cuDNN recognises as one fused
 * kernel: the order of the steps is the pattern, and is that of NVIDIA's cudnn-frontend.
 */
#include "plan.h"

void forward_build(struct graph *g, const struct sdpa_shape *s)
{
    const cudnnDataType_t type = s->type, f32 = CUDNN_DATA_FLOAT;
    const int64_t scores[4] = {s->batch, s->heads, s->seq, s->seq};
    const int64_t rows[4] = {s->batch, s->heads, s->seq, 1};

    descriptor q = graph_tensor(g, SDPA_Q, type, shape_query(s), 16);
    descriptor k_turned = graph_tensor(g, SDPA_K, type, extents_transposed(shape_key(s)), 16);
    descriptor v = graph_tensor(g, SDPA_V, type, shape_key(s), 16);
    descriptor o = graph_tensor(g, SDPA_O, type, shape_query(s), 16);
    descriptor lse = graph_tensor(g, SDPA_LSE, f32, shape_lse(s), sizeof(float));
    descriptor scale = graph_scalar(g, SDPA_SCALE);
    descriptor masked = graph_scalar(g, SDPA_MASKED);

    descriptor product = graph_virtual(g, f32, scores);
    descriptor scaled = graph_virtual(g, f32, scores);
    descriptor score = graph_virtual(g, f32, scores);
    graph_matmul(g, q, k_turned, product);
    graph_binary(g, CUDNN_POINTWISE_MUL, product, scale, scaled);
    graph_causal(g, scores, scaled, masked, score);

    descriptor greatest = graph_virtual(g, f32, rows);
    descriptor below = graph_virtual(g, f32, scores);
    descriptor weight = graph_virtual(g, f32, scores);
    descriptor sum = graph_virtual(g, f32, rows);
    descriptor log_sum = graph_virtual(g, f32, rows);
    descriptor probability = graph_virtual(g, type, scores);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, score, greatest);
    graph_binary(g, CUDNN_POINTWISE_SUB, score, greatest, below);
    graph_unary(g, CUDNN_POINTWISE_EXP, below, weight);
    graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, weight, sum);
    graph_unary(g, CUDNN_POINTWISE_LOG, sum, log_sum);
    graph_binary(g, CUDNN_POINTWISE_ADD, greatest, log_sum, lse);
    graph_binary(g, CUDNN_POINTWISE_DIV, weight, sum, probability);
    graph_matmul(g, probability, v, o);
}
