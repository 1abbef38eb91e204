/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy of one row at a time: its maximum, the sum of its exponentials, then the gradient
 * in place. The exponentials are made twice rather than kept: a row of a large vocabulary in bf16
 * or f16 has nowhere to keep them in f32.
 */
#include "ops.h"
#include <errno.h>

VEC_INLINE float row_max(const void *row, size_t width, enum hst_dtype dtype)
{
    struct lanes top = lanes_all(-INFINITY);
    for (size_t i = 0; i < width; i += LANES)
        for (int p = 0; p < PARTS; p++)
            top.part[p] =
                vec_above(vec_load(row, i + p * VEC, width, dtype, -INFINITY), top.part[p]);
    return lanes_max(top);
}

VEC_INLINE float row_exp_sum(const void *row, size_t width, float top, enum hst_dtype dtype)
{
    struct lanes sum = lanes_all(0);
    for (size_t i = 0; i < width; i += LANES)
        for (int p = 0; p < PARTS; p++)
            sum.part[p] += vec_exp(vec_load(row, i + p * VEC, width, dtype, -INFINITY) - top);
    return lanes_sum(sum);
}

VEC_INLINE void row_gradient(void *row, size_t width, float top, float factor, enum hst_dtype dtype)
{
    for (size_t i = 0; i < width; i += VEC)
        vec_store(row, i, width, dtype, vec_exp(vec_load(row, i, width, dtype, 0) - top) * factor);
}

VEC_INLINE void cross_entropy_row(const struct hst_cross_entropy *a, size_t t, enum hst_dtype dtype)
{
    void *row = row_at(a->logits, t, a->vocab, dtype);
    void *target = row_at(row, a->targets[t], 1, dtype);
    float top = row_max(row, a->vocab, dtype);
    float sum = row_exp_sum(row, a->vocab, top, dtype);
    float aimed = vec_load(target, 0, 1, dtype, 0)[0] - top;
    a->loss[t] = (float)(log((double)sum) -
                         (double)aimed); /* float64: libm's logf differs between processors */
    if (!a->want_grad)
        return;
    row_gradient(row, a->vocab, top, a->grad_scale / sum, dtype);
    float chance = vec_exp(vec_all(aimed))[0] / sum;
    vec_store(target, 0, 1, dtype, vec_all(a->grad_scale * (chance - 1.0f)));
}

static void cross_entropy_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_cross_entropy *a = arg;
    struct range rows = range_of(a->tokens, piece_rows(a->vocab), index);
    for (size_t t = rows.begin; t < rows.end; t++)
        BY_DTYPE(a->dtype, cross_entropy_row, a, t);
}

int HOST_OP(cross_entropy)(struct host_dev *dev, const void *args)
{
    struct hst_cross_entropy a = *(const struct hst_cross_entropy *)args;
    for (size_t t = 0; t < a.tokens; t++)
        if (a.targets[t] >= a.vocab)
            return -EDOM;
    host_split(dev, pieces_of(a.tokens, piece_rows(a.vocab)), cross_entropy_piece, &a);
    return 0;
}
