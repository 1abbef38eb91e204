/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_PASS_H
#define HOISTWAY_TOOLS_MODEL_PASS_H
/*
 * The computation of one unit on one micro-batch, as a row of operations. The first error is kept
 * in the pass and everything after it does nothing, so that a block reads as its formulas; who
 * started the pass looks at `rc` at its end. A pass with `measure` set enqueues nothing and finds
 * out how much workspace the same row of operations needs: what is declared cannot differ from
 * what is used.
 */
#include "model/model.h"

/* A pass may leave these out, for who measures how long the rest takes. */
enum { PASS_PRODUCTS = 1, PASS_ATTENTION = 2 };

struct pass {
    const struct llama *model;
    struct hst_dev *device;
    struct hst_stream *stream;
    enum hst_dtype dtype;
    const struct hst_param_view *param; /* of the unit */
    enum layer_part part;               /* of a layer, which it is */
    size_t first_row, rows;             /* what is here of its matrix, where that has blocks */
    size_t tokens, sequences;           /* of the micro-batch */
    /* its part of the batch's (llama.h); measuring, any that are not null stand for them */
    const uint32_t *first, *position;
    size_t window; /* that a query of this layer sees; 0: all before it */
    struct hst_work op_work;
    size_t *measure;  /* null: run; else the greatest workspace so far, and all data are null */
    unsigned without; /* operations that do nothing */
    int rc;           /* first error */
};

/** A weight with this gradient is trained; of one that is frozen it is null. */
bool pass_trains(const struct pass *p, const float *grad);

/* The operations of <hoistway/kernels.h>; workspace is added here. */
void pass_copy(struct pass *p, void *dst, const void *src, size_t size_bytes);
void pass_matmul(struct pass *p, struct hst_matmul args);
/** y = rmsnorm(x)·weight, `param` being the weight's place in the unit. */
void pass_rmsnorm(struct pass *p, const void *x, size_t param, void *y, float *rstd);
/** sum = x + residual, y = rmsnorm(sum)·weight; sum may be x. */
void pass_add_rmsnorm(struct pass *p, const void *x, const void *residual, void *sum, size_t param,
                      void *y, float *rstd);
/** dx ← [dx +] the gradient through it; the weight's gradient is added to, or written if fresh. */
void pass_rmsnorm_backward(struct pass *p, const void *x, size_t param, const float *rstd,
                           const void *dy, void *dx, bool accumulate);
/** The norm of each head by itself: x, y dtype[tokens, heads, head_dim], rstd f32[tokens, heads].
 */
void pass_head_norm(struct pass *p, size_t heads, const void *x, size_t param, void *y,
                    float *rstd);
/** dx ← the gradient through it, and may be dy. */
void pass_head_norm_backward(struct pass *p, size_t heads, const void *x, size_t param,
                             const float *rstd, const void *dy, void *dx);
/** x dtype[tokens, width] + the bias at place `param`, in place; its gradient as a weight's. */
void pass_bias(struct pass *p, size_t width, void *x, size_t param);
void pass_bias_backward(struct pass *p, size_t width, const void *dy, size_t param);
/** It turns by the model's angles. */
void pass_rope(struct pass *p, void *x, size_t heads, bool inverse);
void pass_attention(struct pass *p, struct hst_attention args);
void pass_attention_backward(struct pass *p, struct hst_attention_backward args);
void pass_swiglu(struct pass *p, size_t count, const void *gate, const void *up, void *out);
void pass_swiglu_backward(struct pass *p, size_t count, void *gate, void *up, const void *dout);
void pass_add(struct pass *p, size_t count, const void *a, const void *b, void *out);
/** dst dtype[count] = src f32[count], rounded. */
void pass_cast(struct pass *p, size_t count, const float *src, void *dst);
/** dst f32[count], on the host and there when it returns, = src dtype[count], by way of `through`,
 * f32[count] on the device. */
void pass_fetch(struct pass *p, size_t count, const void *src, float *through, float *dst);
void pass_embedding(struct pass *p, const uint32_t *ids, size_t param, void *out);
void pass_embedding_backward(struct pass *p, const uint32_t *ids, size_t param, const void *dout);
void pass_cross_entropy(struct pass *p, struct hst_cross_entropy args);
#endif
