/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix GEMMs and attention, in per cent of what the largest product reaches in the same run.
 * Attention counts the scores that a causal mask leaves: per score and element of a head 4 FLOPs
 * forward and 10 backward. What a backward computes again is counted, as the field does.
 */
#include "bench/ground.h"

#include <math.h>
#include <stdio.h>

static const char PRODUCT_NAME[] = "the large product";

struct product {
    struct hst_stream *stream;
    struct hst_matmul args;
};

static int multiply(void *arg)
{
    struct product *p = arg;
    return hst_op_matmul(p->stream, &p->args);
}

/* y = x·weightᵀ, as in a forward pass; m rows of x. */
static struct hst_matmul product_args(const struct ground *g, size_t m, size_t n, size_t k)
{
    return (struct hst_matmul){.m = m,
                               .n = n,
                               .k = k,
                               .a = {g->buffers[0], k, HST_BF16},
                               .b = {g->buffers[1], k, HST_BF16},
                               .c = {g->buffers[2], n, HST_BF16},
                               .b_transposed = true,
                               .work = g->work};
}

static int measure_gemm(struct ground *g, const char *what, struct hst_matmul args)
{
    char name[96];
    snprintf(name, sizeof name, "%s %zux%zux%zu", what, args.m, args.n, args.k);
    struct bench_figure figure = {.group = "matmul",
                                  .name = name,
                                  .unit = "FLOP/s",
                                  .ceiling = g->gemm_flops_per_s,
                                  .ceiling_name = PRODUCT_NAME};
    struct product product = {g->stream, args};
    double flops = 2.0 * (double)args.m * (double)args.n * (double)args.k;
    int rc = ground_measure(g, &figure, flops, multiply, &product);
    if (g->gemm_flops_per_s == 0)
        g->gemm_flops_per_s = figure.value;
    return rc;
}

/* The shapes of one block and the head, forward; the largest product first, as the ceiling. */
static const struct shape {
    const char *name;
    size_t offset_n, offset_k;
} shapes[] = {
    {"q, o", offsetof(struct ground_sizes, hidden), offsetof(struct ground_sizes, hidden)},
    {"gate, up", offsetof(struct ground_sizes, inner), offsetof(struct ground_sizes, hidden)},
    {"down", offsetof(struct ground_sizes, hidden), offsetof(struct ground_sizes, inner)},
};

static size_t size_at(const struct ground *g, size_t offset)
{
    return *(const size_t *)(const void *)((const char *)&g->sizes + offset);
}

int ground_matmul(struct ground *g)
{
    const struct ground_sizes *s = &g->sizes;
    int rc = measure_gemm(g, "large", product_args(g, s->cube, s->cube, s->cube));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !rc; i++)
        rc = measure_gemm(g, shapes[i].name,
                          product_args(g, s->tokens, size_at(g, shapes[i].offset_n),
                                       size_at(g, shapes[i].offset_k)));
    return rc ? rc : measure_gemm(g, "head", product_args(g, s->chunk, s->vocab, s->hidden));
}

/* ---- attention ---- */

struct attention {
    struct hst_stream *stream;
    struct hst_attention_backward args; /* with the forward's in it */
};

static int forward(void *arg)
{
    struct attention *a = arg;
    return hst_op_attention(a->stream, &a->args.forward);
}

static int backward(void *arg)
{
    struct attention *a = arg;
    return hst_op_attention_backward(a->stream, &a->args);
}

/* Half the tokens of the ground, in sequences of `seq`. The last buffer holds dq, dk and dv. */
static struct attention attention_of(const struct ground *g, size_t seq, size_t head_dim)
{
    const struct ground_sizes *s = &g->sizes;
    size_t tokens = s->tokens / 2, heads = s->heads, kv_heads = s->kv_heads;
    char *gradients = g->buffers[4];
    size_t query_bytes = 2 * tokens * heads * head_dim,
           key_bytes = 2 * tokens * kv_heads * head_dim;
    return (struct attention){.stream = g->stream,
                              .args = {.forward = {.batch = tokens / seq,
                                                   .seq = seq,
                                                   .heads = heads,
                                                   .kv_heads = kv_heads,
                                                   .head_dim = head_dim,
                                                   .dtype = HST_BF16,
                                                   .scale = (float)(1 / sqrt((double)head_dim)),
                                                   .q = g->buffers[0],
                                                   .k = g->buffers[1],
                                                   .v = (char *)g->buffers[1] + key_bytes,
                                                   .o = g->buffers[2],
                                                   .lse = g->rows,
                                                   .work = g->work},
                                       .dout = g->buffers[3],
                                       .dq = gradients,
                                       .dk = gradients + query_bytes,
                                       .dv = gradients + query_bytes + key_bytes}};
}

static int measure_attention(struct ground *g, size_t seq, size_t head_dim)
{
    struct attention a = attention_of(g, seq, head_dim);
    const struct hst_attention *f = &a.args.forward;
    double scores = (double)f->batch * (double)f->heads * (double)seq * (double)(seq + 1) / 2;
    const struct {
        const char *name;
        int (*enqueue)(void *arg);
        double flops;
    } rows[] = {{"forward", forward, 4}, {"backward", backward, 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s head_dim %zu seq %zu batch %zu heads %zu/%zu", rows[i].name,
                 head_dim, seq, f->batch, f->heads, f->kv_heads);
        struct bench_figure figure = {.group = "attention",
                                      .name = name,
                                      .unit = "FLOP/s",
                                      .ceiling = g->gemm_flops_per_s,
                                      .ceiling_name = PRODUCT_NAME};
        int rc = ground_measure(g, &figure, rows[i].flops * scores * (double)head_dim,
                                rows[i].enqueue, &a);
        if (rc)
            return rc;
    }
    return 0;
}

/* The configurations measured: two head sizes, and sequences short and as long as all tokens. */
static int each_attention(struct ground *g,
                          int (*run)(struct ground *g, size_t seq, size_t head_dim))
{
    const struct ground_sizes *s = &g->sizes;
    const size_t head_dims[] = {s->head_dim / 2, s->head_dim}, seqs[] = {s->seq, s->tokens / 2};
    int rc = 0;
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < 2 && !rc; i++)
            rc = run(g, seqs[i], head_dims[d]);
    return rc;
}

int ground_attention(struct ground *g)
{
    return each_attention(g, measure_attention);
}

static int widen_work(struct ground *g, size_t seq, size_t head_dim)
{
    struct attention a = attention_of(g, seq, head_dim);
    size_t bytes = hst_attention_work_bytes(g->dev, &a.args.forward);
    g->work_bytes = bytes > g->work_bytes ? bytes : g->work_bytes;
    return 0;
}

/* The greatest extents of each kind; a product's workspace grows with n and k on some devices. */
void ground_plan_work(struct ground *g)
{
    const struct ground_sizes *s = &g->sizes;
    size_t widest = s->vocab > s->inner ? s->vocab : s->inner;
    size_t deepest = s->inner > s->cube ? s->inner : s->cube;
    struct hst_matmul product = product_args(g, s->tokens, widest, deepest);
    const size_t bytes[] = {
        hst_matmul_work_bytes(g->dev, &product),
        hst_rmsnorm_backward_work_bytes(g->dev, s->tokens, s->hidden),
        hst_bias_backward_work_bytes(g->dev, s->tokens, s->hidden),
    };
    g->work_bytes = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        g->work_bytes = bytes[i] > g->work_bytes ? bytes[i] : g->work_bytes;
    if (g->with_attention)
        (void)each_attention(g, widen_work);
}
