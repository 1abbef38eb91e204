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
    if (a->dtype == HST_F32)
        add_range(a, r, HST_F32);
    else
        add_range(a, r, HST_BF16);
}

int HOST_OP(add)(struct host_dev *dev, const void *args)
{
    struct hst_add a = *(const struct hst_add *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), add_piece, &a);
    return 0;
}

VEC_INLINE void cast_range(const struct hst_cast *a, struct range r, enum hst_dtype from,
                           enum hst_dtype to)
{
    for (size_t i = r.begin; i < r.end; i += VEC)
        vec_store(a->dst, i, r.end, to, vec_load(a->src, i, r.end, from, 0));
}

static void cast_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_cast *a = arg;
    struct range r = range_of(a->count, PIECE_ELEMENTS, index);
    size_t bytes = (r.end - r.begin) * hst_dtype_bytes(a->src_dtype);
    if (a->src_dtype == a->dst_dtype)
        memcpy(row_at(a->dst, r.begin, 1, a->dst_dtype), row_at(a->src, r.begin, 1, a->src_dtype),
               bytes);
    else if (a->src_dtype == HST_F32)
        cast_range(a, r, HST_F32, HST_BF16);
    else
        cast_range(a, r, HST_BF16, HST_F32);
}

int HOST_OP(cast)(struct host_dev *dev, const void *args)
{
    struct hst_cast a = *(const struct hst_cast *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), cast_piece, &a);
    return 0;
}
