/* SPDX-License-Identifier: Apache-2.0 */
/* One operation each: measured, or skipped after an error, or enqueued. */
#include "model/pass.h"

static bool enqueues(const struct pass *p)
{
    return !p->measure && p->rc == 0;
}

/* A pass that measures has no data, and room for all that may be trained. */
bool pass_trains(const struct pass *p, const float *grad)
{
    return p->measure || grad;
}

static void need_work(struct pass *p, size_t work_bytes)
{
    if (work_bytes > *p->measure)
        *p->measure = work_bytes;
}

void pass_copy(struct pass *p, void *dst, const void *src, size_t size_bytes)
{
    if (enqueues(p))
        p->rc = hst_stream_copy(p->stream, dst, src, size_bytes);
}

void pass_matmul(struct pass *p, struct hst_matmul args)
{
    if (p->without & PASS_PRODUCTS)
        return;
    args.work = p->op_work;
    if (p->measure)
        need_work(p, hst_matmul_work_bytes(p->device, &args));
    if (enqueues(p))
        p->rc = hst_op_matmul(p->stream, &args);
}

static void norm_of(struct pass *p, size_t param, struct hst_rmsnorm args)
{
    if (!enqueues(p))
        return;
    args.dtype = p->dtype;
    args.eps = (float)p->model->config.rms_norm_eps;
    args.weight = p->param[param].data;
    p->rc = hst_op_rmsnorm(p->stream, &args);
}

void pass_add_rmsnorm(struct pass *p, const void *x, const void *residual, void *sum, size_t param,
                      void *y, float *rstd)
{
    norm_of(p, param,
            (struct hst_rmsnorm){.tokens = p->tokens,
                                 .width = p->model->config.hidden,
                                 .x = x,
                                 .y = y,
                                 .rstd = rstd,
                                 .residual = residual,
                                 .sum = sum});
}

void pass_rmsnorm(struct pass *p, const void *x, size_t param, void *y, float *rstd)
{
    pass_add_rmsnorm(p, x, NULL, NULL, param, y, rstd);
}

/* A vector's operation adds: zeros cost nothing beside it. */
static void zero_fresh(struct pass *p, size_t param, size_t count)
{
    const struct hst_param_view *view = &p->param[param];
    if (view->fresh && enqueues(p))
        p->rc = hst_stream_zero(p->stream, view->grad, count * sizeof *view->grad);
}

static void norm_backward_of(struct pass *p, size_t param, struct hst_rmsnorm_backward args)
{
    if (p->measure)
        need_work(p, hst_rmsnorm_backward_work_bytes(p->device, args.tokens, args.width));
    zero_fresh(p, param, args.width);
    if (!enqueues(p))
        return;
    args.dtype = p->dtype;
    args.weight = p->param[param].data;
    args.dweight = p->param[param].grad;
    args.work = p->op_work;
    p->rc = hst_op_rmsnorm_backward(p->stream, &args);
}

void pass_rmsnorm_backward(struct pass *p, const void *x, size_t param, const float *rstd,
                           const void *dy, void *dx, bool accumulate)
{
    norm_backward_of(p, param,
                     (struct hst_rmsnorm_backward){.tokens = p->tokens,
                                                   .width = p->model->config.hidden,
                                                   .x = x,
                                                   .dy = dy,
                                                   .rstd = rstd,
                                                   .dx = dx,
                                                   .accumulate = accumulate});
}

void pass_head_norm(struct pass *p, size_t heads, const void *x, size_t param, void *y, float *rstd)
{
    norm_of(p, param,
            (struct hst_rmsnorm){.tokens = p->tokens * heads,
                                 .width = p->model->config.head_dim,
                                 .x = x,
                                 .y = y,
                                 .rstd = rstd});
}

void pass_head_norm_backward(struct pass *p, size_t heads, const void *x, size_t param,
                             const float *rstd, const void *dy, void *dx)
{
    norm_backward_of(p, param,
                     (struct hst_rmsnorm_backward){.tokens = p->tokens * heads,
                                                   .width = p->model->config.head_dim,
                                                   .x = x,
                                                   .dy = dy,
                                                   .rstd = rstd,
                                                   .dx = dx});
}

void pass_bias(struct pass *p, size_t width, void *x, size_t param)
{
    if (!enqueues(p))
        return;
    struct hst_bias args = {.tokens = p->tokens,
                            .width = width,
                            .dtype = p->dtype,
                            .x = x,
                            .bias = p->param[param].data};
    p->rc = hst_op_bias(p->stream, &args);
}

void pass_bias_backward(struct pass *p, size_t width, const void *dy, size_t param)
{
    if (p->measure)
        need_work(p, hst_bias_backward_work_bytes(p->device, p->tokens, width));
    zero_fresh(p, param, width);
    if (!enqueues(p) || !pass_trains(p, p->param[param].grad))
        return;
    struct hst_bias_backward args = {.tokens = p->tokens,
                                     .width = width,
                                     .dtype = p->dtype,
                                     .dy = dy,
                                     .dbias = p->param[param].grad,
                                     .work = p->op_work};
    p->rc = hst_op_bias_backward(p->stream, &args);
}

void pass_rope(struct pass *p, void *x, size_t heads, bool inverse)
{
    if (!enqueues(p))
        return;
    struct hst_rope args = {
        .batch = p->sequences,
        .seq = (size_t)p->model->run.seq_len,
        .heads = heads,
        .head_dim = p->model->config.head_dim,
        .dtype = p->dtype,
        .x = x,
        .cos = p->model->device.cos,
        .sin = p->model->device.sin,
        .inverse = inverse,
        .position = p->position,
    };
    p->rc = hst_op_rope(p->stream, &args);
}

void pass_attention(struct pass *p, struct hst_attention args)
{
    if (p->without & PASS_ATTENTION)
        return;
    args.work = p->op_work;
    if (p->measure)
        need_work(p, hst_attention_work_bytes(p->device, &args));
    if (enqueues(p))
        p->rc = hst_op_attention(p->stream, &args);
}

void pass_attention_backward(struct pass *p, struct hst_attention_backward args)
{
    if (p->without & PASS_ATTENTION)
        return;
    args.forward.work = p->op_work;
    if (p->measure)
        need_work(p, hst_attention_work_bytes(p->device, &args.forward));
    if (enqueues(p))
        p->rc = hst_op_attention_backward(p->stream, &args);
}

void pass_swiglu(struct pass *p, size_t count, const void *gate, const void *up, void *out)
{
    if (!enqueues(p))
        return;
    struct hst_swiglu args = {
        .count = count, .dtype = p->dtype, .gate = gate, .up = up, .out = out};
    p->rc = hst_op_swiglu(p->stream, &args);
}

void pass_swiglu_backward(struct pass *p, size_t count, void *gate, void *up, const void *dout)
{
    if (!enqueues(p))
        return;
    struct hst_swiglu_backward args = {
        .count = count,
        .dtype = p->dtype,
        .gate = gate,
        .up = up,
        .dout = dout,
        .dgate = gate,
        .dup = up,
    };
    p->rc = hst_op_swiglu_backward(p->stream, &args);
}

void pass_add(struct pass *p, size_t count, const void *a, const void *b, void *out)
{
    if (!enqueues(p))
        return;
    struct hst_add args = {.count = count, .dtype = p->dtype, .a = a, .b = b, .out = out};
    p->rc = hst_op_add(p->stream, &args);
}

void pass_cast(struct pass *p, size_t count, const float *src, void *dst)
{
    if (!enqueues(p))
        return;
    struct hst_cast args = {
        .count = count, .src_dtype = HST_F32, .dst_dtype = p->dtype, .src = src, .dst = dst};
    p->rc = hst_op_cast(p->stream, &args);
}

void pass_fetch(struct pass *p, size_t count, const void *src, float *through, float *dst)
{
    struct hst_cast args = {
        .count = count, .src_dtype = p->dtype, .dst_dtype = HST_F32, .src = src, .dst = through};
    if (enqueues(p))
        p->rc = hst_op_cast(p->stream, &args);
    pass_copy(p, dst, through, count * sizeof *dst);
    if (enqueues(p))
        p->rc = hst_stream_sync(p->stream);
}

void pass_embedding(struct pass *p, const uint32_t *ids, size_t param, void *out)
{
    if (!enqueues(p))
        return;
    struct hst_embedding args = {
        .tokens = p->tokens,
        .vocab = p->model->config.vocab,
        .width = p->model->config.hidden,
        .dtype = p->dtype,
        .ids = ids,
        .weight = p->param[param].data,
        .out = out,
        .first_row = p->first_row,
        .rows = p->rows,
    };
    p->rc = hst_op_embedding(p->stream, &args);
}

void pass_embedding_backward(struct pass *p, const uint32_t *ids, size_t param, const void *dout)
{
    size_t vocab = p->model->config.vocab;
    if (p->measure)
        need_work(p, hst_embedding_backward_work_bytes(p->device, p->tokens, vocab));
    if (!enqueues(p))
        return;
    struct hst_embedding_backward args = {
        .tokens = p->tokens,
        .vocab = vocab,
        .width = p->model->config.hidden,
        .dtype = p->dtype,
        .ids = ids,
        .dout = dout,
        .dweight = p->param[param].grad,
        .work = p->op_work,
        .first_row = p->first_row,
        .rows = p->rows,
        .skips = p->model->config.has_pad,
        .skip_id = p->model->config.pad,
    };
    p->rc = hst_op_embedding_backward(p->stream, &args);
}

void pass_cross_entropy(struct pass *p, struct hst_cross_entropy args)
{
    if (enqueues(p))
        p->rc = hst_op_cross_entropy(p->stream, &args);
}
