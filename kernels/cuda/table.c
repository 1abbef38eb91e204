/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's table. An operation whose launcher takes the public arguments is four lines: the
 * stream is asked and entered, the launcher enqueues, what it returned becomes the stream's.
 */
#include "attention.h"
#include "cuda.h"
#include "launchers.h"
#include "matmul.h"

#include <errno.h>

static int op_rmsnorm(struct hst_stream *stream, const struct hst_rmsnorm *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_rmsnorm(cuda_stream_native(stream), args),
                                "rmsnorm");
}

static int op_rmsnorm_backward(struct hst_stream *stream, const struct hst_rmsnorm_backward *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_rmsnorm_backward(cuda_stream_native(stream), args),
                                "rmsnorm backward");
}

static int op_bias(struct hst_stream *stream, const struct hst_bias *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_bias(cuda_stream_native(stream), args), "bias");
}

static int op_bias_backward(struct hst_stream *stream, const struct hst_bias_backward *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_bias_backward(cuda_stream_native(stream), args),
                                "bias backward");
}

static int op_rope(struct hst_stream *stream, const struct hst_rope *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_rope(cuda_stream_native(stream), args), "rope");
}

static int op_swiglu(struct hst_stream *stream, const struct hst_swiglu *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_swiglu(cuda_stream_native(stream), args),
                                "swiglu");
}

static int op_swiglu_backward(struct hst_stream *stream, const struct hst_swiglu_backward *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_swiglu_backward(cuda_stream_native(stream), args),
                                "swiglu backward");
}

static int op_add(struct hst_stream *stream, const struct hst_add *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc : cuda_stream_end(stream, hst_cuda_add(cuda_stream_native(stream), args), "add");
}

static int op_cast(struct hst_stream *stream, const struct hst_cast *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_cast(cuda_stream_native(stream), args), "cast");
}

static int op_embedding(struct hst_stream *stream, const struct hst_embedding *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_embedding(cuda_stream_native(stream), args),
                                "embedding");
}

static int op_embedding_backward(struct hst_stream *stream,
                                 const struct hst_embedding_backward *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream,
                                hst_cuda_embedding_backward(cuda_stream_native(stream), args),
                                "embedding backward");
}

static int op_cross_entropy(struct hst_stream *stream, const struct hst_cross_entropy *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_cross_entropy(cuda_stream_native(stream), args),
                                "cross entropy");
}

static int op_norm2(struct hst_stream *stream, const struct hst_norm2 *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_norm2(cuda_stream_native(stream), args), "norm2");
}

static int op_optimize(struct hst_stream *stream, const struct hst_optimize *args)
{
    if (!hst_cuda_can_optimize(args))
        return -EINVAL;
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_optimize(cuda_stream_native(stream), args),
                                "update");
}

static int op_sum_ways(struct hst_stream *stream, const struct hst_sum_ways *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_sum_ways(cuda_stream_native(stream), args),
                                "sum of ways");
}

static int op_quantise(struct hst_stream *stream, const struct hst_quantise *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_quantise(cuda_stream_native(stream), args),
                                "quantise");
}

static int op_dequantise(struct hst_stream *stream, const struct hst_dequantise *args)
{
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(stream, hst_cuda_dequantise(cuda_stream_native(stream), args),
                                "dequantise");
}

static size_t rmsnorm_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return hst_cuda_rmsnorm_backward_work_bytes(tokens, width);
}

static size_t bias_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return hst_cuda_bias_backward_work_bytes(tokens, width);
}

static size_t embedding_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t vocab)
{
    (void)dev;
    return hst_cuda_embedding_backward_work_bytes(tokens, vocab);
}

const struct hst_dev_ops cuda_ops = {
    .size = sizeof(struct hst_dev_ops),
    .name = "cuda",
    .flags = 0,
    .close = cuda_dev_close,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .usage = cuda_dev_usage,
    .budget = cuda_dev_budget,
    .info = cuda_dev_info,
    .failure = cuda_dev_failure,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .stream_native = cuda_stream_native,
    .stream_wait = cuda_stream_wait,
    .stream_copy = cuda_stream_copy,
    .stream_zero = cuda_stream_zero,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .matmul = matmul_run,
    .matmul_work_bytes = matmul_work_bytes,
    .rmsnorm = op_rmsnorm,
    .rmsnorm_backward = op_rmsnorm_backward,
    .rmsnorm_backward_work_bytes = rmsnorm_backward_work_bytes,
    .bias = op_bias,
    .bias_backward = op_bias_backward,
    .bias_backward_work_bytes = bias_backward_work_bytes,
    .rope = op_rope,
    .attention = attention_forward,
    .attention_backward = attention_backward,
    .attention_work_bytes = attention_work_bytes,
    .swiglu = op_swiglu,
    .swiglu_backward = op_swiglu_backward,
    .add = op_add,
    .cast = op_cast,
    .embedding = op_embedding,
    .embedding_backward = op_embedding_backward,
    .cross_entropy = op_cross_entropy,
    .embedding_backward_work_bytes = embedding_backward_work_bytes,
    .norm2 = op_norm2,
    .optimize = op_optimize,
    .math = cuda_dev_math,
    .event_create_timed = cuda_event_create_timed,
    .event_seconds = cuda_event_seconds,
    .host_lock = cuda_host_lock,
    .host_unlock = cuda_host_unlock,
    .sum_ways = op_sum_ways,
    .quantise = op_quantise,
    .dequantise = op_dequantise,
};
