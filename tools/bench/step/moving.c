/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that move more than they compute, in per cent of a copy inside the device. Counted is
 * what must be moved: each operand read or written once, whatever the operation really does.
 */
#include "bench/ground.h"

#include <stdio.h>

static int copy(void *arg)
{
    struct ground *g = arg;
    return hst_stream_copy(g->stream, g->buffers[1], g->buffers[0], g->buffer_bytes);
}

static struct hst_rmsnorm rmsnorm_args(const struct ground *g)
{
    return (struct hst_rmsnorm){.tokens = g->sizes.tokens,
                                .width = g->sizes.hidden,
                                .dtype = HST_BF16,
                                .eps = 1e-5f,
                                .x = g->buffers[0],
                                .weight = g->buffers[1],
                                .y = g->buffers[2],
                                .rstd = g->rows};
}

static int rmsnorm(void *arg)
{
    struct ground *g = arg;
    struct hst_rmsnorm args = rmsnorm_args(g);
    return hst_op_rmsnorm(g->stream, &args);
}

static int rmsnorm_residual(void *arg)
{
    struct ground *g = arg;
    struct hst_rmsnorm args = rmsnorm_args(g);
    args.residual = g->buffers[3];
    args.sum = g->buffers[4];
    return hst_op_rmsnorm(g->stream, &args);
}

static int rmsnorm_backward(void *arg)
{
    struct ground *g = arg;
    return hst_op_rmsnorm_backward(g->stream,
                                   &(struct hst_rmsnorm_backward){.tokens = g->sizes.tokens,
                                                                  .width = g->sizes.hidden,
                                                                  .dtype = HST_BF16,
                                                                  .x = g->buffers[0],
                                                                  .weight = g->buffers[1],
                                                                  .dy = g->buffers[2],
                                                                  .rstd = g->ones,
                                                                  .dx = g->buffers[3],
                                                                  .dweight = g->rows,
                                                                  .work = g->work});
}

/* It turns by an angle of 0, so that the same memory may be turned again and again. */
static int rope(void *arg)
{
    struct ground *g = arg;
    const struct ground_sizes *s = &g->sizes;
    return hst_op_rope(g->stream, &(struct hst_rope){.batch = s->tokens / s->seq,
                                                     .seq = s->seq,
                                                     .heads = s->hidden / s->head_dim,
                                                     .head_dim = s->head_dim,
                                                     .dtype = HST_BF16,
                                                     .x = g->buffers[0],
                                                     .cos = g->ones,
                                                     .sin = g->zeros});
}

static int swiglu(void *arg)
{
    struct ground *g = arg;
    return hst_op_swiglu(g->stream, &(struct hst_swiglu){.count = g->sizes.tokens * g->sizes.inner,
                                                         .dtype = HST_BF16,
                                                         .gate = g->buffers[0],
                                                         .up = g->buffers[1],
                                                         .out = g->buffers[2]});
}

static int swiglu_backward(void *arg)
{
    struct ground *g = arg;
    return hst_op_swiglu_backward(
        g->stream, &(struct hst_swiglu_backward){.count = g->sizes.tokens * g->sizes.inner,
                                                 .dtype = HST_BF16,
                                                 .gate = g->buffers[0],
                                                 .up = g->buffers[1],
                                                 .dout = g->buffers[2],
                                                 .dgate = g->buffers[3],
                                                 .dup = g->buffers[4]});
}

static int add(void *arg)
{
    struct ground *g = arg;
    return hst_op_add(g->stream, &(struct hst_add){.count = g->sizes.tokens * g->sizes.hidden,
                                                   .dtype = HST_BF16,
                                                   .a = g->buffers[0],
                                                   .b = g->buffers[1],
                                                   .out = g->buffers[2]});
}

/* k and v have few columns. */
static size_t kv_width(const struct ground *g)
{
    return g->sizes.kv_heads * g->sizes.head_dim;
}

/* Zeros, so that the numbers stay what they are. */
static int add_bias(struct ground *g, size_t width)
{
    return hst_op_bias(g->stream, &(struct hst_bias){.tokens = g->sizes.tokens,
                                                     .width = width,
                                                     .dtype = HST_BF16,
                                                     .x = g->buffers[0],
                                                     .bias = g->zeros});
}

static int add_bias_backward(struct ground *g, size_t width)
{
    return hst_op_bias_backward(g->stream, &(struct hst_bias_backward){.tokens = g->sizes.tokens,
                                                                       .width = width,
                                                                       .dtype = HST_BF16,
                                                                       .dy = g->buffers[0],
                                                                       .dbias = g->rows,
                                                                       .work = g->work});
}

static int bias(void *arg)
{
    return add_bias(arg, ((struct ground *)arg)->sizes.hidden);
}

static int bias_narrow(void *arg)
{
    return add_bias(arg, kv_width(arg));
}

static int bias_backward(void *arg)
{
    return add_bias_backward(arg, ((struct ground *)arg)->sizes.hidden);
}

static int bias_backward_narrow(void *arg)
{
    return add_bias_backward(arg, kv_width(arg));
}

static int cast(void *arg)
{
    struct ground *g = arg;
    return hst_op_cast(g->stream, &(struct hst_cast){.count = g->sizes.elements,
                                                     .src_dtype = HST_F32,
                                                     .dst_dtype = HST_BF16,
                                                     .src = g->buffers[0],
                                                     .dst = g->buffers[1]});
}

static int cross_entropy(void *arg)
{
    struct ground *g = arg;
    return hst_op_cross_entropy(g->stream, &(struct hst_cross_entropy){.tokens = g->sizes.chunk,
                                                                       .vocab = g->sizes.vocab,
                                                                       .dtype = HST_BF16,
                                                                       .logits = g->buffers[0],
                                                                       .targets = g->zeros,
                                                                       .loss = g->rows,
                                                                       .grad_scale = 1,
                                                                       .want_grad = true});
}

static int norm2(void *arg)
{
    struct ground *g = arg;
    return hst_op_norm2(g->stream, &(struct hst_norm2){.count = g->sizes.elements,
                                                       .dtype = HST_BF16,
                                                       .x = g->buffers[0],
                                                       .partial = g->rows});
}

/* As ranks add gradients: the root's partials, too. */
static int sum_ways(void *arg)
{
    struct ground *g = arg;
    for (size_t i = 0; i < GROUND_WAYS; i++)
        g->ways[i] = g->buffers[i];
    const struct hst_sum_ways args = {.tree = {GROUND_WAYS, 8, HST_BF16, HST_BF16, 0},
                                      .each = 1,
                                      .inputs = GROUND_WAYS,
                                      .in = g->ways,
                                      .out = g->buffers[GROUND_WAYS],
                                      .count = g->sizes.elements,
                                      .partial = g->rows};
    return hst_op_sum_ways(g->stream, &args);
}

/* A learning rate of 0, and moments of 0 to start with: the numbers stay finite. */
static int adamw(void *arg)
{
    struct ground *g = arg;
    return hst_op_optimize(g->stream, &(struct hst_optimize){.count = g->sizes.elements,
                                                             .dtype = HST_BF16,
                                                             .weight = g->buffers[0],
                                                             .remainder = g->buffers[1],
                                                             .m = g->buffers[2],
                                                             .v = g->buffers[3],
                                                             .grad = g->buffers[4],
                                                             .grad_scale = 1,
                                                             .beta1_hi = 0.9f,
                                                             .one_minus_beta1 = 0.1f,
                                                             .beta2_hi = 0.99f,
                                                             .one_minus_beta2 = 0.01f,
                                                             .inv_sqrt_bias2 = 1,
                                                             .eps = 1e-8f,
                                                             .decay = 1});
}

static int clear_states(struct ground *g)
{
    int rc = 0;
    for (size_t i = 1; i <= 3 && !rc; i++)
        rc = hst_stream_zero(g->stream, g->buffers[i], 4 * g->sizes.elements);
    return rc ? bench_device_failed(g->dev, rc, "making operands", g->error) : 0;
}

int ground_moving(struct ground *g)
{
    const struct ground_sizes *s = &g->sizes;
    double wide = 2.0 * (double)s->tokens * (double)s->hidden, count = (double)s->elements;
    double inner = 2.0 * (double)s->tokens * (double)s->inner;
    double narrow = 2.0 * (double)s->tokens * (double)kv_width(g);
    char wide_text[32], narrow_text[32], inner_text[32], chunk_text[32], count_text[32];
    snprintf(wide_text, sizeof wide_text, "%zux%zu", s->tokens, s->hidden);
    snprintf(narrow_text, sizeof narrow_text, "%zux%zu", s->tokens, kv_width(g));
    snprintf(inner_text, sizeof inner_text, "%zux%zu", s->tokens, s->inner);
    snprintf(chunk_text, sizeof chunk_text, "%zux%zu", s->chunk, s->vocab);
    snprintf(count_text, sizeof count_text, "%zu", s->elements);
    const struct {
        const char *name, *shape;
        int (*enqueue)(void *arg);
        double bytes;
    } rows[] = {
        {"copy", "inside the device", copy, 2.0 * (double)g->buffer_bytes},
        {"rmsnorm", wide_text, rmsnorm, 2 * wide},
        {"rmsnorm, residual", wide_text, rmsnorm_residual, 4 * wide},
        {"rmsnorm backward", wide_text, rmsnorm_backward, 3 * wide},
        {"rope", wide_text, rope, 2 * wide},
        {"swiglu", inner_text, swiglu, 3 * inner},
        {"swiglu backward", inner_text, swiglu_backward, 5 * inner},
        {"add", wide_text, add, 3 * wide},
        {"bias", wide_text, bias, 2 * wide},
        {"bias", narrow_text, bias_narrow, 2 * narrow},
        {"bias backward", wide_text, bias_backward, wide},
        {"bias backward", narrow_text, bias_backward_narrow, narrow},
        {"cast f32 to bf16", count_text, cast, 6 * count},
        {"cross-entropy", chunk_text, cross_entropy,
         4.0 * (double)s->chunk * (double)s->vocab}, /* logits read, gradient written */
        {"norm2", count_text, norm2, 2 * count},
        {"sum of 4 ways", count_text, sum_ways, 2 * (GROUND_WAYS + 1) * count},
        {"adamw", count_text, adamw, 26 * count}, /* 2+2, 2+2, 4+4, 4+4, and the gradient's 2 */
    };
    struct bench_figure copied = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s %s", rows[i].name, rows[i].shape);
        struct bench_figure figure = {.group = "memory",
                                      .name = name,
                                      .unit = "B/s",
                                      .ceiling = copied.value,
                                      .ceiling_name = "a copy inside the device"};
        int rc = rows[i].enqueue == adamw ? clear_states(g) : 0;
        rc = rc ? rc : ground_measure(g, &figure, rows[i].bytes, rows[i].enqueue, g);
        if (rc)
            return rc;
        if (i == 0)
            copied = figure;
    }
    return 0;
}
