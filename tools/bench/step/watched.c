/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what an operation has to do: each operand read or written once, whatever it
 * really does; one that is added to is both. Of attention the scores that the causal mask leaves, 4
 * FLOPs each forward and 10 backward per element of a head. Pure.
 */
#include "bench/step/watch.h"

#include <stdarg.h>
#include <stdio.h>

static struct watched moves(double bytes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static struct watched moves(double bytes, const char *format, ...)
{
    struct watched w = {.bytes = bytes};
    va_list args;
    va_start(args, format);
    vsnprintf(w.name, sizeof w.name, format, args);
    va_end(args);
    return w;
}

static struct watched computes(struct watched w, double flops)
{
    w.computes = true;
    w.flops = flops;
    return w;
}

static double size_of(enum hst_dtype dtype)
{
    return (double)hst_dtype_bytes(dtype);
}

static const char *type_of(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? "bf16" : dtype == HST_F16 ? "f16" : "f32";
}

struct watched watched_copy(size_t size_bytes)
{
    return moves(2 * (double)size_bytes, "copy of %zu B", size_bytes);
}

struct watched watched_zero(size_t size_bytes)
{
    return moves((double)size_bytes, "zero of %zu B", size_bytes);
}

/* The transposed operand tells what it is for: a weight lies as n×k in a forward pass. */
struct watched watched_matmul(const struct hst_matmul *a)
{
    double m = (double)a->m, n = (double)a->n, k = (double)a->k;
    double batch = a->batch ? (double)a->batch : 1;
    double inputs = m * k * (a->a_step ? batch : 1) + k * n * (a->b_step ? batch : 1);
    double bytes = inputs * size_of(a->a.dtype) +
                   batch * m * n * size_of(a->c.dtype) * (a->accumulate ? 2 : 1);
    char many[32] = "";
    const char *what = a->a_transposed   ? "product, dW"
                       : a->b_transposed ? "product"
                                         : "product, dX";
    if (a->batch > 1)
        snprintf(many, sizeof many, ", %zu at once", a->batch);
    return computes(moves(bytes, "%s %zux%zux%zu%s%s%s", what, a->m, a->n, a->k, many,
                          a->c.dtype != a->a.dtype ? ", to f32" : "",
                          a->accumulate ? ", added" : ""),
                    2 * batch * m * n * k);
}

struct watched watched_rmsnorm(const struct hst_rmsnorm *a)
{
    double row = (double)a->width * size_of(a->dtype), tokens = (double)a->tokens;
    return moves(tokens * (row * (a->residual ? 4 : 2) + 4) + row, "rmsnorm%s %zux%zu",
                 a->residual ? ", residual" : "", a->tokens, a->width);
}

/* The weight is read, its gradient in f32 added to. */
struct watched watched_rmsnorm_backward(const struct hst_rmsnorm_backward *a)
{
    double row = (double)a->width * size_of(a->dtype), tokens = (double)a->tokens;
    return moves(tokens * (row * (a->accumulate ? 4 : 3) + 4) + row + 8 * (double)a->width,
                 "rmsnorm backward%s %zux%zu", a->accumulate ? ", added" : "", a->tokens, a->width);
}

struct watched watched_bias(const struct hst_bias *a)
{
    double row = (double)a->width * size_of(a->dtype);
    return moves((2 * (double)a->tokens + 1) * row, "bias %zux%zu", a->tokens, a->width);
}

struct watched watched_bias_backward(const struct hst_bias_backward *a)
{
    double row = (double)a->width * size_of(a->dtype);
    return moves((double)a->tokens * row + 8 * (double)a->width, "bias backward %zux%zu", a->tokens,
                 a->width);
}

struct watched watched_rope(const struct hst_rope *a)
{
    size_t tokens = a->batch * a->seq;
    double row = (double)a->heads * (double)a->head_dim * size_of(a->dtype);
    return moves(2 * (double)tokens * row + 4 * (double)a->seq * (double)a->head_dim,
                 "rope%s %zux%zux%zu", a->inverse ? ", inverse" : "", tokens, a->heads,
                 a->head_dim);
}

static double scores_of(const struct hst_attention *a)
{
    double seq = (double)a->seq;
    return (double)a->batch * (double)a->heads * seq * (seq + 1) / 2;
}

/* It counts elements of q, and of k or v; of lse. */
static double queries_of(const struct hst_attention *a)
{
    return (double)a->batch * (double)a->seq * (double)a->heads * (double)a->head_dim *
           size_of(a->dtype);
}

static double keys_of(const struct hst_attention *a)
{
    return queries_of(a) / (double)a->heads * (double)a->kv_heads;
}

static double lse_of(const struct hst_attention *a)
{
    return 4 * (double)a->batch * (double)a->seq * (double)a->heads;
}

static struct watched attention_of(const struct hst_attention *a, const char *what, double bytes,
                                   double flops)
{
    return computes(moves(bytes, "%s %zux%zu, heads %zu/%zu of %zu", what, a->batch, a->seq,
                          a->heads, a->kv_heads, a->head_dim),
                    flops * scores_of(a) * (double)a->head_dim);
}

struct watched watched_attention(const struct hst_attention *a)
{
    return attention_of(a, "attention", 2 * queries_of(a) + 2 * keys_of(a) + lse_of(a), 4);
}

/* q, o, dout, dq; k, v, dk, dv. */
struct watched watched_attention_backward(const struct hst_attention_backward *a)
{
    const struct hst_attention *f = &a->forward;
    return attention_of(f, "attention backward", 4 * queries_of(f) + 4 * keys_of(f) + lse_of(f),
                        10);
}

struct watched watched_swiglu(const struct hst_swiglu *a)
{
    return moves(3 * (double)a->count * size_of(a->dtype), "swiglu %zu", a->count);
}

struct watched watched_swiglu_backward(const struct hst_swiglu_backward *a)
{
    return moves(5 * (double)a->count * size_of(a->dtype), "swiglu backward %zu", a->count);
}

struct watched watched_add(const struct hst_add *a)
{
    return moves(3 * (double)a->count * size_of(a->dtype), "add %zu", a->count);
}

struct watched watched_cast(const struct hst_cast *a)
{
    return moves((double)a->count * (size_of(a->src_dtype) + size_of(a->dst_dtype)),
                 "cast %s to %s %zu", type_of(a->src_dtype), type_of(a->dst_dtype), a->count);
}

struct watched watched_embedding(const struct hst_embedding *a)
{
    double row = (double)a->width * size_of(a->dtype);
    return moves((double)a->tokens * (2 * row + 4), "embedding %zux%zu", a->tokens, a->width);
}

struct watched watched_embedding_backward(const struct hst_embedding_backward *a)
{
    double row = (double)a->width * (size_of(a->dtype) + 8);
    return moves((double)a->tokens * (row + 4), "embedding backward %zux%zu", a->tokens, a->width);
}

/* Logits are read, and gradients written in their place. */
struct watched watched_cross_entropy(const struct hst_cross_entropy *a)
{
    size_t columns = a->columns ? a->columns : a->vocab;
    double logits = (double)a->tokens * (double)columns * size_of(a->dtype);
    return moves(logits * (a->want_grad ? 2 : 1), "cross-entropy%s %zux%zu",
                 a->want_grad ? ", gradient" : "", a->tokens, columns);
}

struct watched watched_norm2(const struct hst_norm2 *a)
{
    return moves((double)a->count * size_of(a->dtype), "norm2 %zu", a->count);
}

/* Weight, moments and what is left of the master are read and written, the gradient is read. */
struct watched watched_optimize(const struct hst_optimize *a)
{
    double left = a->remainder ? 2 : a->master ? 4 : 0;
    double moments = (a->m ? 4 : 0) + (a->v ? 4 : 0);
    double each = 2 * (size_of(a->dtype) + left + moments) + size_of(a->dtype);
    return moves((double)a->count * each, "update %zu", a->count);
}
