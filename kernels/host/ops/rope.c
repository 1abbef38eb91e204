/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding, in place; the backward is the same with the sine's sign turned. */
#include "ops.h"

VEC_INLINE void rotate_row(const struct hst_rope *a, size_t t, enum hst_dtype dtype)
{
    size_t half = a->head_dim / 2, place = a->position ? a->position[t] : t % a->seq;
    const float *cosine = a->cos + place * half, *sine = a->sin + place * half;
    for (size_t h = 0; h < a->heads; h++) {
        void *low = row_at(a->x, (t * a->heads + h) * 2, half, dtype);
        void *high = row_at(low, 1, half, dtype);
        for (size_t i = 0; i < half; i += VEC) {
            vec c = vec_load(cosine, i, half, HST_F32, 0), s = vec_load(sine, i, half, HST_F32, 0);
            vec x = vec_load(low, i, half, dtype, 0), y = vec_load(high, i, half, dtype, 0);
            if (a->inverse)
                s = -s;
            vec_store(low, i, half, dtype, x * c - y * s);
            vec_store(high, i, half, dtype, y * c + x * s);
        }
    }
}

static void rope_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_rope *a = arg;
    struct range rows = range_of(a->batch * a->seq, piece_rows(a->heads * a->head_dim), index);
    for (size_t t = rows.begin; t < rows.end; t++)
        BY_DTYPE(a->dtype, rotate_row, a, t);
}

int HOST_OP(rope)(struct host_dev *dev, const void *args)
{
    struct hst_rope a = *(const struct hst_rope *)args;
    host_split(dev, pieces_of(a.batch * a.seq, piece_rows(a.heads * a.head_dim)), rope_piece, &a);
    return 0;
}
