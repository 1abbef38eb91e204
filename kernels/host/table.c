/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device's table. Every operation here only chooses the function for the processor's
 * instruction set and queues it; copies and zeroing are queued the same way, in pieces that the
 * workers share.
 */
#include "host.h"
#include <errno.h>
#include <stdint.h>
#include <string.h>

enum { COPY_PIECE_BYTES = 1 << 20 };

struct copy_args {
    char *dst;
    const char *src; /* null: zeros */
    size_t size_bytes;
};

static void copy_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct copy_args *copy = arg;
    size_t at = index * COPY_PIECE_BYTES, left = copy->size_bytes - at;
    size_t bytes = left < COPY_PIECE_BYTES ? left : COPY_PIECE_BYTES;
    if (copy->src)
        memcpy(copy->dst + at, copy->src + at, bytes);
    else
        memset(copy->dst + at, 0, bytes);
}

static int run_copy(struct host_dev *dev, const void *args)
{
    struct copy_args copy = *(const struct copy_args *)args;
    size_t pieces = (copy.size_bytes + COPY_PIECE_BYTES - 1) / COPY_PIECE_BYTES;
    host_split(dev, pieces, copy_piece, &copy);
    return 0;
}

static int stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes)
{
    struct copy_args copy = {dst, src, size_bytes};
    return host_enqueue(stream, run_copy, &copy, sizeof copy);
}

static int stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes)
{
    struct copy_args copy = {dst, NULL, size_bytes};
    return host_enqueue(stream, run_copy, &copy, sizeof copy);
}

static void *stream_native(struct hst_stream *stream)
{
    (void)stream;
    return NULL;
}

/* OpenBLAS counts in 32 bits. */
static bool matrix_counts(const struct hst_matrix *matrix)
{
    return matrix->ld <= INT32_MAX;
}

static int op_matmul(struct hst_stream *stream, const struct hst_matmul *args)
{
    if (args->m > INT32_MAX || args->n > INT32_MAX || args->k > INT32_MAX)
        return -EINVAL;
    if (!matrix_counts(&args->a) || !matrix_counts(&args->b) || !matrix_counts(&args->c))
        return -EINVAL;
    return host_enqueue(stream, host_dev_of(stream->dev)->math->matmul, args, sizeof *args);
}

static int op_rmsnorm(struct hst_stream *stream, const struct hst_rmsnorm *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->rmsnorm, args, sizeof *args);
}

static int op_rmsnorm_backward(struct hst_stream *stream, const struct hst_rmsnorm_backward *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->rmsnorm_backward, args,
                        sizeof *args);
}

static int op_rope(struct hst_stream *stream, const struct hst_rope *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->rope, args, sizeof *args);
}

static int op_attention(struct hst_stream *stream, const struct hst_attention *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->attention, args, sizeof *args);
}

static int op_attention_backward(struct hst_stream *stream,
                                 const struct hst_attention_backward *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->attention_backward, args,
                        sizeof *args);
}

static int op_swiglu(struct hst_stream *stream, const struct hst_swiglu *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->swiglu, args, sizeof *args);
}

static int op_swiglu_backward(struct hst_stream *stream, const struct hst_swiglu_backward *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->swiglu_backward, args,
                        sizeof *args);
}

static int op_add(struct hst_stream *stream, const struct hst_add *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->add, args, sizeof *args);
}

static int op_bias(struct hst_stream *stream, const struct hst_bias *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->bias, args, sizeof *args);
}

static int op_bias_backward(struct hst_stream *stream, const struct hst_bias_backward *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->bias_backward, args, sizeof *args);
}

static int op_cast(struct hst_stream *stream, const struct hst_cast *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->cast, args, sizeof *args);
}

static int op_embedding(struct hst_stream *stream, const struct hst_embedding *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->embedding, args, sizeof *args);
}

static int op_embedding_backward(struct hst_stream *stream,
                                 const struct hst_embedding_backward *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->embedding_backward, args,
                        sizeof *args);
}

static int op_cross_entropy(struct hst_stream *stream, const struct hst_cross_entropy *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->cross_entropy, args, sizeof *args);
}

static int op_sum_ways(struct hst_stream *stream, const struct hst_sum_ways *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->sum_ways, args, sizeof *args);
}

static int op_quantise(struct hst_stream *stream, const struct hst_quantise *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->quantise, args, sizeof *args);
}

static int op_dequantise(struct hst_stream *stream, const struct hst_dequantise *args)
{
    return host_enqueue(stream, host_dev_of(stream->dev)->math->dequantise, args, sizeof *args);
}

static size_t embedding_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t vocab)
{
    (void)dev, (void)tokens, (void)vocab;
    return 0;
}

/* States in host memory are cpu_adam's. */
static int op_norm2(struct hst_stream *stream, const struct hst_norm2 *args)
{
    (void)stream, (void)args;
    return -ENOTSUP;
}

static int op_optimize(struct hst_stream *stream, const struct hst_optimize *args)
{
    (void)stream, (void)args;
    return -ENOTSUP;
}

/* Operations read and write any host memory as it is. */
static int lock_pages(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    (void)dev, (void)memory, (void)size_bytes;
    return -ENOTSUP;
}

const struct hst_dev_ops host_ops = {
    .size = sizeof(struct hst_dev_ops),
    .name = "host",
    .flags = HST_DEV_HOST_MEMORY,
    .close = host_dev_close,
    .mem_alloc = host_dev_mem_alloc,
    .mem_free = host_dev_mem_free,
    .host_alloc = host_dev_host_alloc,
    .host_free = host_dev_host_free,
    .usage = host_dev_usage,
    .budget = host_dev_budget,
    .info = host_dev_info,
    .failure = host_dev_failure,
    .stream_create = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_sync = host_stream_sync,
    .stream_native = stream_native,
    .stream_wait = host_stream_wait,
    .stream_copy = stream_copy,
    .stream_zero = stream_zero,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_query = host_event_query,
    .event_sync = host_event_sync,
    .event_fd = host_event_fd,
    .matmul = op_matmul,
    .matmul_work_bytes = host_matmul_work_bytes,
    .rmsnorm = op_rmsnorm,
    .rmsnorm_backward = op_rmsnorm_backward,
    .rmsnorm_backward_work_bytes = host_rmsnorm_backward_work_bytes,
    .bias = op_bias,
    .bias_backward = op_bias_backward,
    .bias_backward_work_bytes = host_bias_backward_work_bytes,
    .rope = op_rope,
    .attention = op_attention,
    .attention_backward = op_attention_backward,
    .attention_work_bytes = host_attention_work_bytes,
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
    .math = host_dev_math,
    .event_create_timed = host_event_create_timed,
    .event_seconds = host_event_seconds,
    .host_lock = lock_pages,
    .host_unlock = lock_pages,
    .sum_ways = op_sum_ways,
    .quantise = op_quantise,
    .dequantise = op_dequantise,
};
