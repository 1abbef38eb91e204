/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boundary of the operations: every shape, dtype, pointer, alias and workspace is checked here
 * against what kernels.h promises, and only then handed to the device's table. Byte products are
 * checked first, so that no product an implementation forms of the same extents can overflow.
 */
#include "base/object.h"
#include "check.h"
#include <errno.h>

/* Ids and one f32 per row: a caller may start anywhere in them. */
static bool words_ok(const void *data)
{
    return data && (uintptr_t)data % 4 == 0;
}

static bool words_or_none_ok(const void *data)
{
    return !data || words_ok(data);
}

static bool work_ok(const struct hst_work *work, size_t need_bytes)
{
    return need_bytes == 0 || (work->size_bytes >= need_bytes && tensor_ok(work->data));
}

/* A part of a matrix is one too: it may begin at any element. */
static bool matrix_ok(const struct hst_matrix *matrix, size_t rows, size_t columns)
{
    if (!rows || !columns)
        return true;
    return matrix->data && (uintptr_t)matrix->data % hst_dtype_bytes(matrix->dtype) == 0 &&
           matrix->ld >= columns && fits(rows, matrix->ld, 1, 1);
}

static bool step_ok(size_t step, enum hst_dtype dtype, size_t batch)
{
    return fits(step, batch, 1, 1) && step * hst_dtype_bytes(dtype) % 16 == 0;
}

/* Every product's operands are as good as the first one's, which are, and its C is its own. */
static bool batch_ok(const struct hst_matmul *args)
{
    if (args->batch <= 1 || !args->m || !args->n)
        return true;
    return step_ok(args->a_step, args->a.dtype, args->batch) &&
           step_ok(args->b_step, args->b.dtype, args->batch) &&
           step_ok(args->c_step, args->c.dtype, args->batch) &&
           args->c_step >= (args->m - 1) * args->c.ld + args->n;
}

int hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args)
{
    if (!stream || !args)
        return -EINVAL;
    const struct hst_matrix *a = &args->a, *b = &args->b, *c = &args->c;
    size_t m = args->m, n = args->n, k = args->k;
    if (!dtype_ok(a->dtype) || a->dtype != b->dtype)
        return -EINVAL;
    if (c->dtype != HST_F32 && (c->dtype != a->dtype || args->accumulate))
        return -EINVAL;
    if (!fits(m, n, 1, 1) || !fits(m, k, 1, 1) || !fits(k, n, 1, 1))
        return -EINVAL;
    if (!matrix_ok(c, m, n) || !batch_ok(args))
        return -EINVAL;
    if (m && n) {
        if (!matrix_ok(a, args->a_transposed ? k : m, args->a_transposed ? m : k))
            return -EINVAL;
        if (!matrix_ok(b, args->b_transposed ? n : k, args->b_transposed ? k : n))
            return -EINVAL;
        if (!work_ok(&args->work, hst_matmul_work_bytes(stream->dev, args)))
            return -EINVAL;
    }
    return stream->dev->ops->matmul(stream, args);
}

size_t hst_matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args)
{
    return dev->ops->matmul_work_bytes(dev, args);
}

int hst_op_rmsnorm(struct hst_stream *stream, const struct hst_rmsnorm *args)
{
    if (!stream || !args || !args->width || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1))
        return -EINVAL;
    size_t bytes = args->tokens * args->width * hst_dtype_bytes(args->dtype);
    if (bytes && (!tensor_ok(args->x) || !tensor_ok(args->weight) || !tensor_ok(args->y) ||
                  !words_ok(args->rstd) || !same_or_apart(args->y, args->x, bytes)))
        return -EINVAL;
    if (!args->residual != !args->sum)
        return -EINVAL;
    if (bytes && args->sum &&
        (!tensor_ok(args->residual) || !tensor_ok(args->sum) ||
         !same_or_apart(args->sum, args->x, bytes) ||
         !same_or_apart(args->sum, args->residual, bytes) ||
         !apart(args->sum, bytes, args->y, bytes) || !apart(args->residual, bytes, args->y, bytes)))
        return -EINVAL;
    return stream->dev->ops->rmsnorm(stream, args);
}

int hst_op_rmsnorm_backward(struct hst_stream *stream, const struct hst_rmsnorm_backward *args)
{
    if (!stream || !args || !args->width || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1))
        return -EINVAL;
    size_t bytes = args->tokens * args->width * hst_dtype_bytes(args->dtype);
    if (bytes && (!tensor_ok(args->x) || !tensor_ok(args->weight) || !tensor_ok(args->dy) ||
                  !tensor_ok(args->dx) || !words_ok(args->rstd) ||
                  (args->dweight && !tensor_ok(args->dweight))))
        return -EINVAL;
    if (bytes &&
        (!same_or_apart(args->dx, args->dy, bytes) || !apart(args->dx, bytes, args->x, bytes)))
        return -EINVAL;
    if (bytes && args->accumulate && args->dx == args->dy)
        return -EINVAL;
    size_t need = hst_rmsnorm_backward_work_bytes(stream->dev, args->tokens, args->width);
    if (bytes && !work_ok(&args->work, need))
        return -EINVAL;
    return stream->dev->ops->rmsnorm_backward(stream, args);
}

size_t hst_rmsnorm_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    return dev->ops->rmsnorm_backward_work_bytes(dev, tokens, width);
}

int hst_op_bias(struct hst_stream *stream, const struct hst_bias *args)
{
    if (!stream || !args || !args->width || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1))
        return -EINVAL;
    size_t row = args->width * hst_dtype_bytes(args->dtype);
    if (args->tokens && (!tensor_ok(args->x) || !tensor_ok(args->bias) ||
                         !apart(args->x, args->tokens * row, args->bias, row)))
        return -EINVAL;
    return stream->dev->ops->bias(stream, args);
}

int hst_op_bias_backward(struct hst_stream *stream, const struct hst_bias_backward *args)
{
    if (!stream || !args || !args->width || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1))
        return -EINVAL;
    if (args->tokens && (!tensor_ok(args->dy) || !tensor_ok(args->dbias)))
        return -EINVAL;
    size_t need = hst_bias_backward_work_bytes(stream->dev, args->tokens, args->width);
    if (args->tokens && !work_ok(&args->work, need))
        return -EINVAL;
    return stream->dev->ops->bias_backward(stream, args);
}

size_t hst_bias_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    return dev->ops->bias_backward_work_bytes(dev, tokens, width);
}

int hst_op_rope(struct hst_stream *stream, const struct hst_rope *args)
{
    if (!stream || !args || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!args->seq || !args->heads || !args->head_dim || args->head_dim % 2)
        return -EINVAL;
    if (!fits(args->batch, args->seq, args->heads, args->head_dim))
        return -EINVAL;
    if (args->batch && (!tensor_ok(args->x) || !tensor_ok(args->cos) || !tensor_ok(args->sin) ||
                        !words_or_none_ok(args->position)))
        return -EINVAL;
    return stream->dev->ops->rope(stream, args);
}

static bool attention_shape_ok(const struct hst_attention *args)
{
    if (!dtype_ok(args->dtype) || !args->seq || !args->heads || !args->kv_heads || !args->head_dim)
        return false;
    if ((args->first || args->window) && args->seq > INT32_MAX)
        return false;
    return args->heads % args->kv_heads == 0 &&
           fits(args->batch, args->seq, args->heads, args->head_dim);
}

static bool attention_forward_ok(struct hst_dev *dev, const struct hst_attention *args)
{
    return tensor_ok(args->q) && tensor_ok(args->k) && tensor_ok(args->v) && tensor_ok(args->o) &&
           words_ok(args->lse) && words_or_none_ok(args->first) &&
           work_ok(&args->work, hst_attention_work_bytes(dev, args));
}

int hst_op_attention(struct hst_stream *stream, const struct hst_attention *args)
{
    if (!stream || !args || !attention_shape_ok(args))
        return -EINVAL;
    if (args->batch) {
        if (!attention_forward_ok(stream->dev, args))
            return -EINVAL;
        size_t kv_bytes = args->batch * args->seq * args->kv_heads * args->head_dim *
                          hst_dtype_bytes(args->dtype);
        size_t q_bytes = kv_bytes / args->kv_heads * args->heads;
        if (!apart(args->o, q_bytes, args->q, q_bytes) ||
            !apart(args->o, q_bytes, args->k, kv_bytes) ||
            !apart(args->o, q_bytes, args->v, kv_bytes))
            return -EINVAL;
    }
    return stream->dev->ops->attention(stream, args);
}

int hst_op_attention_backward(struct hst_stream *stream, const struct hst_attention_backward *args)
{
    if (!stream || !args || !attention_shape_ok(&args->forward))
        return -EINVAL;
    const struct hst_attention *f = &args->forward;
    if (f->batch) {
        if (!attention_forward_ok(stream->dev, f))
            return -EINVAL;
        if (!tensor_ok(args->dout) || !tensor_ok(args->dq) || !tensor_ok(args->dk) ||
            !tensor_ok(args->dv))
            return -EINVAL;
        size_t kv = f->batch * f->seq * f->kv_heads * f->head_dim * hst_dtype_bytes(f->dtype);
        size_t q = kv / f->kv_heads * f->heads;
        const struct {
            const void *data;
            size_t bytes;
        } all[] = {{args->dq, q}, {args->dk, kv}, {args->dv, kv}, {f->q, q},
                   {f->k, kv},    {f->v, kv},     {f->o, q},      {args->dout, q}};
        for (size_t i = 0; i < 3; i++) /* the outputs, each against everything after it */
            for (size_t j = i + 1; j < sizeof all / sizeof *all; j++)
                if (!apart(all[i].data, all[i].bytes, all[j].data, all[j].bytes))
                    return -EINVAL;
    }
    return stream->dev->ops->attention_backward(stream, args);
}

size_t hst_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args)
{
    return dev->ops->attention_work_bytes(dev, args);
}

int hst_op_swiglu(struct hst_stream *stream, const struct hst_swiglu *args)
{
    if (!stream || !args || !dtype_ok(args->dtype) || !fits(args->count, 1, 1, 1))
        return -EINVAL;
    size_t bytes = args->count * hst_dtype_bytes(args->dtype);
    if (bytes && (!tensor_ok(args->gate) || !tensor_ok(args->up) || !tensor_ok(args->out) ||
                  !same_or_apart(args->out, args->gate, bytes) ||
                  !same_or_apart(args->out, args->up, bytes)))
        return -EINVAL;
    return stream->dev->ops->swiglu(stream, args);
}

int hst_op_swiglu_backward(struct hst_stream *stream, const struct hst_swiglu_backward *args)
{
    if (!stream || !args || !dtype_ok(args->dtype) || !fits(args->count, 1, 1, 1))
        return -EINVAL;
    size_t bytes = args->count * hst_dtype_bytes(args->dtype);
    if (!bytes)
        return stream->dev->ops->swiglu_backward(stream, args);
    if (!tensor_ok(args->gate) || !tensor_ok(args->up) || !tensor_ok(args->dout) ||
        !tensor_ok(args->dgate) || !tensor_ok(args->dup))
        return -EINVAL;
    if (!same_or_apart(args->dgate, args->gate, bytes) ||
        !same_or_apart(args->dup, args->up, bytes) ||
        !apart(args->dgate, bytes, args->dup, bytes) ||
        !apart(args->dgate, bytes, args->dout, bytes) ||
        !apart(args->dup, bytes, args->dout, bytes) ||
        !apart(args->dgate, bytes, args->up, bytes) || !apart(args->dup, bytes, args->gate, bytes))
        return -EINVAL;
    return stream->dev->ops->swiglu_backward(stream, args);
}

int hst_op_add(struct hst_stream *stream, const struct hst_add *args)
{
    if (!stream || !args || !dtype_ok(args->dtype) || !fits(args->count, 1, 1, 1))
        return -EINVAL;
    size_t bytes = args->count * hst_dtype_bytes(args->dtype);
    if (bytes &&
        (!tensor_ok(args->a) || !tensor_ok(args->b) || !tensor_ok(args->out) ||
         !same_or_apart(args->out, args->a, bytes) || !same_or_apart(args->out, args->b, bytes)))
        return -EINVAL;
    return stream->dev->ops->add(stream, args);
}

int hst_op_cast(struct hst_stream *stream, const struct hst_cast *args)
{
    if (!stream || !args || !dtype_ok(args->src_dtype) || !dtype_ok(args->dst_dtype))
        return -EINVAL;
    if (!fits(args->count, 1, 1, 1))
        return -EINVAL;
    if (args->count && (!tensor_ok(args->src) || !tensor_ok(args->dst) ||
                        !apart(args->src, args->count * hst_dtype_bytes(args->src_dtype), args->dst,
                               args->count * hst_dtype_bytes(args->dst_dtype))))
        return -EINVAL;
    return stream->dev->ops->cast(stream, args);
}

/* A block of the vocabulary lies in it; a count of 0 stands for all of it. */
static bool block_ok(size_t first, size_t count, size_t vocab)
{
    return count ? first < vocab && count <= vocab - first : first == 0;
}

int hst_op_embedding(struct hst_stream *stream, const struct hst_embedding *args)
{
    if (!stream || !args || !args->width || !args->vocab || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1) || !fits(args->vocab, args->width, 1, 1))
        return -EINVAL;
    if (!block_ok(args->first_row, args->rows, args->vocab))
        return -EINVAL;
    if (args->tokens && (!words_ok(args->ids) || !tensor_ok(args->weight) || !tensor_ok(args->out)))
        return -EINVAL;
    return stream->dev->ops->embedding(stream, args);
}

int hst_op_embedding_backward(struct hst_stream *stream, const struct hst_embedding_backward *args)
{
    if (!stream || !args || !args->width || !args->vocab || !dtype_ok(args->dtype))
        return -EINVAL;
    if (!fits(args->tokens, args->width, 1, 1) || !fits(args->vocab, args->width, 1, 1))
        return -EINVAL;
    if (!block_ok(args->first_row, args->rows, args->vocab))
        return -EINVAL;
    if (args->tokens &&
        (!words_ok(args->ids) || !tensor_ok(args->dout) || !tensor_ok(args->dweight)))
        return -EINVAL;
    size_t need = hst_embedding_backward_work_bytes(stream->dev, args->tokens, args->vocab);
    if (args->tokens && !work_ok(&args->work, need))
        return -EINVAL;
    return stream->dev->ops->embedding_backward(stream, args);
}

size_t hst_embedding_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t vocab)
{
    return dev->ops->embedding_backward_work_bytes(dev, tokens, vocab);
}

/* Blocks of the sum are whole in every call, so that all calls together form the same ones. */
static bool columns_ok(const struct hst_cross_entropy *args)
{
    size_t first = args->first_column, columns = args->columns;
    if (!block_ok(first, columns, args->vocab) || first % HST_VOCAB_BLOCK)
        return false;
    return columns % HST_VOCAB_BLOCK == 0 || first + columns == args->vocab;
}

int hst_op_cross_entropy(struct hst_stream *stream, const struct hst_cross_entropy *args)
{
    if (!stream || !args || !args->vocab || !dtype_ok(args->dtype) || !columns_ok(args))
        return -EINVAL;
    /* HST_NO_TARGET is no id, and columns are counted in 32 bits */
    if (args->vocab > INT32_MAX)
        return -EINVAL;
    bool whole = args->columns == 0;
    if (!fits(args->tokens, whole ? args->vocab : args->columns, 1, 1) ||
        !fits(args->tokens, 3, 1, 1))
        return -EINVAL;
    if (whole && args->state)
        return -EINVAL;
    bool writes_loss =
        whole || (!args->want_grad && args->first_column + args->columns == args->vocab);
    if (args->tokens &&
        (!tensor_ok(args->logits) || !words_ok(args->targets) ||
         (writes_loss && !words_ok(args->loss)) || (!whole && !words_ok(args->state))))
        return -EINVAL;
    return stream->dev->ops->cross_entropy(stream, args);
}

int hst_op_norm2(struct hst_stream *stream, const struct hst_norm2 *args)
{
    if (!stream || !args || !dtype_ok(args->dtype) || !fits(args->count, 1, 1, 1))
        return -EINVAL;
    if (args->count &&
        (!tensor_ok(args->x) || !args->partial || (uintptr_t)args->partial % sizeof(double)))
        return -EINVAL;
    return stream->dev->ops->norm2(stream, args);
}

int hst_op_optimize(struct hst_stream *stream, const struct hst_optimize *args)
{
    if (!stream || !args || !dtype_ok(args->dtype) || !fits(args->count, 1, 1, 1))
        return -EINVAL;
    if (!args->remainder != (args->dtype != HST_BF16) || !args->master != (args->dtype != HST_F16))
        return -EINVAL;
    if (args->count &&
        (!tensor_ok(args->weight) || !tensor_ok(args->grad) || (uintptr_t)args->m % 16 ||
         (uintptr_t)args->v % 16 || (uintptr_t)args->m_scales % sizeof(float) ||
         (uintptr_t)args->v_scales % sizeof(float) || (uintptr_t)args->remainder % 16 ||
         (uintptr_t)args->master % 16))
        return -EINVAL;
    return stream->dev->ops->optimize(stream, args);
}
