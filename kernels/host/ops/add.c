/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise sums and conversions: the residual stream's work. */
#include "ops.h"

VEC_INLINE void add_range(const struct hst_add *a, struct range r, enum hst_dtype dtype)
{
    for (size_t i = r.begin; i < r.end; i += VEC)
        vec_store(a->out, i, r.end, dtype,
                  vec_load(a->a, i, r.end, dtype, 0) + vec_load(a->b, i, r.end, dtype, 0));
}

static void add_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_add *a = arg;
    struct range r = range_of(a->count, PIECE_ELEMENTS, index);
    BY_DTYPE(a->dtype, add_range, a, r);
}

int HOST_OP(add)(struct host_dev *dev, const void *args)
{
    struct hst_add a = *(const struct hst_add *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), add_piece, &a);
    return 0;
}

VEC_INLINE void convert_all(void *to, const void *from, size_t count, enum hst_dtype from_dtype,
                            enum hst_dtype to_dtype)
{
    for (size_t i = 0; i < count; i += VEC)
        vec_store(to, i, count, to_dtype, vec_load(from, i, count, from_dtype, 0));
}

VEC_INLINE void convert_from(void *to, enum hst_dtype to_dtype, const void *from, size_t count,
                             enum hst_dtype from_dtype)
{
    BY_DTYPE(to_dtype, convert_all, to, from, count, from_dtype);
}

void convert_row(void *to, enum hst_dtype to_dtype, const void *from, enum hst_dtype from_dtype,
                 size_t count)
{
    BY_DTYPE(from_dtype, convert_from, to, to_dtype, from, count);
}

static void cast_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_cast *a = arg;
    struct range r = range_of(a->count, PIECE_ELEMENTS, index);
    size_t count = r.end - r.begin;
    void *to = row_at(a->dst, r.begin, 1, a->dst_dtype);
    const void *from = row_at(a->src, r.begin, 1, a->src_dtype);
    if (a->src_dtype == a->dst_dtype)
        memcpy(to, from, count * hst_dtype_bytes(a->src_dtype));
    else
        convert_row(to, a->dst_dtype, from, a->src_dtype, count);
}

int HOST_OP(cast)(struct host_dev *dev, const void *args)
{
    struct hst_cast a = *(const struct hst_cast *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), cast_piece, &a);
    return 0;
}
