/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy of one row at a time: its maximum and the sum of its exponentials, block by block,
 * then the gradient in place. The exponentials are made twice rather than kept: a row of a large
 * vocabulary in bf16 or f16 has nowhere to keep them in f32. A row that comes in several calls has
 * what is known of it in the caller's state between them.
 */
#include "ops.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

/* Σ e^(x − top) of some numbers, and their maximum; sum is 0 where there are none. */
struct soft {
    float top, sum;
};

/* A row's loss and gradient are made of these, as state holds them. */
struct known {
    float top, sum, aimed;
};
static_assert(sizeof(struct known) == 3 * sizeof(float), "as in hst_cross_entropy.state");

/* It is taken from numbers before exp: −∞ − −∞ would be a NaN where only −∞ was met. */
VEC_INLINE float base_of(float top)
{
    return top == -INFINITY ? 0 : top;
}

VEC_INLINE float row_max(const void *row, size_t width, enum hst_dtype dtype)
{
    struct lanes top = lanes_all(-INFINITY);
    for (size_t i = 0; i < width; i += LANES)
        for (int p = 0; p < PARTS; p++)
            top.part[p] =
                vec_above(vec_load(row, i + p * VEC, width, dtype, -INFINITY), top.part[p]);
    return lanes_max(top);
}

VEC_INLINE float row_exp_sum(const void *row, size_t width, float base, enum hst_dtype dtype)
{
    struct lanes sum = lanes_all(0);
    for (size_t i = 0; i < width; i += LANES)
        for (int p = 0; p < PARTS; p++)
            sum.part[p] += vec_exp(vec_load(row, i + p * VEC, width, dtype, -INFINITY) - base);
    return lanes_sum(sum);
}

/* s joined with each block of the row, in order. */
VEC_INLINE struct soft soft_of(struct soft s, const void *row, size_t columns, enum hst_dtype dtype)
{
    for (size_t first = 0; first < columns; first += HST_VOCAB_BLOCK) {
        const void *block = row_at(row, first, 1, dtype);
        size_t width = least(columns - first, HST_VOCAB_BLOCK);
        float block_top = row_max(block, width, dtype);
        float block_sum = row_exp_sum(block, width, base_of(block_top), dtype);
        float top = s.top > block_top ? s.top : block_top, base = base_of(top);
        vec away = vec_all(s.top - base);
        away[1] = block_top - base;
        vec factor = vec_exp(away);
        s.sum = s.sum * factor[0] + block_sum * factor[1];
        s.top = top;
    }
    return s;
}

VEC_INLINE void row_gradient(void *row, size_t width, float top, float factor, enum hst_dtype dtype)
{
    for (size_t i = 0; i < width; i += VEC)
        vec_store(row, i, width, dtype, vec_exp(vec_load(row, i, width, dtype, 0) - top) * factor);
}

/* The row's part of state, from its first block on; null where the row is whole. */
static struct known *known_of(const struct hst_cross_entropy *a, size_t t)
{
    return a->state ? (struct known *)a->state + t : NULL;
}

/* It adds these columns to what was known of the row. */
VEC_INLINE struct known know(const struct hst_cross_entropy *a, size_t t, const void *row,
                             enum hst_dtype dtype)
{
    struct known k = {-INFINITY, 0, NAN};
    if (a->first_column)
        k = *known_of(a, t);
    size_t aim = a->targets[t] - a->first_column; /* huge where it lies before the block */
    if (aim < a->columns)
        k.aimed = vec_load(row_at(row, aim, 1, dtype), 0, 1, dtype, 0)[0];
    struct soft s = soft_of((struct soft){k.top, k.sum}, row, a->columns, dtype);
    return (struct known){s.top, s.sum, k.aimed};
}

/* It tells whether these columns are a row's last, with which its loss is known. */
static bool ends_row(const struct hst_cross_entropy *a)
{
    return a->first_column + a->columns == a->vocab;
}

/* A row without a target, of which nothing is read: its logits may be anything. */
static void learn_nothing(const struct hst_cross_entropy *a, size_t t, void *row)
{
    if (ends_row(a) && (!a->state || !a->want_grad))
        a->loss[t] = 0;
    if (a->want_grad)
        memset(row, 0, a->columns * hst_dtype_bytes(a->dtype)); /* +0 in every dtype */
}

VEC_INLINE void cross_entropy_row(const struct hst_cross_entropy *a, size_t t, enum hst_dtype dtype)
{
    void *row = row_at(a->logits, t, a->columns, dtype);
    if (a->targets[t] == HST_NO_TARGET) {
        learn_nothing(a, t, row);
        return;
    }
    struct known *state = known_of(a, t), k;
    if (state && a->want_grad) {
        k = *state;
    } else {
        k = know(a, t, row, dtype);
        if (state)
            *state = k;
        if (ends_row(a)) /* float64: libm's logf differs between processors */
            a->loss[t] = (float)(log((double)k.sum) - (double)(k.aimed - k.top));
    }
    if (!a->want_grad)
        return;
    row_gradient(row, a->columns, k.top, a->grad_scale / k.sum, dtype);
    size_t aim = a->targets[t] - a->first_column;
    if (aim >= a->columns)
        return;
    float chance = vec_exp(vec_all(k.aimed - k.top))[0] / k.sum;
    vec_store(row_at(row, aim, 1, dtype), 0, 1, dtype, vec_all(a->grad_scale * (chance - 1.0f)));
}

static void cross_entropy_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_cross_entropy *a = arg;
    struct range rows = range_of(a->tokens, piece_rows(a->columns), index);
    for (size_t t = rows.begin; t < rows.end; t++)
        BY_DTYPE(a->dtype, cross_entropy_row, a, t);
}

int HOST_OP(cross_entropy)(struct host_dev *dev, const void *args)
{
    struct hst_cross_entropy a = *(const struct hst_cross_entropy *)args;
    a.columns = a.columns ? a.columns : a.vocab;
    for (size_t t = 0; t < a.tokens; t++)
        if (a.targets[t] >= a.vocab && a.targets[t] != HST_NO_TARGET)
            return -EDOM;
    host_split(dev, pieces_of(a.tokens, piece_rows(a.columns)), cross_entropy_piece, &a);
    return 0;
}
