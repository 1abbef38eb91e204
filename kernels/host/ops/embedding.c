/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embedding look-up and its gradient. Ids are checked before anything is written. Two tokens may
 * share a row of dweight, so the backward is cut by columns: every piece walks all tokens in rising
 * order.
 */
#include "ops.h"
#include <errno.h>

enum { COLUMNS = 128 };

static int ids_error(const uint32_t *ids, size_t tokens, size_t vocab)
{
    for (size_t t = 0; t < tokens; t++)
        if (ids[t] >= vocab)
            return -EDOM;
    return 0;
}

static void embedding_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_embedding *a = arg;
    struct range rows = range_of(a->tokens, piece_rows(a->width), index);
    for (size_t t = rows.begin; t < rows.end; t++) {
        size_t row = a->ids[t] - a->first_row; /* huge where it lies before the block */
        if (row < a->rows)
            memcpy(row_at(a->out, t, a->width, a->dtype),
                   row_at(a->weight, row, a->width, a->dtype),
                   a->width * hst_dtype_bytes(a->dtype));
    }
}

int HOST_OP(embedding)(struct host_dev *dev, const void *args)
{
    struct hst_embedding a = *(const struct hst_embedding *)args;
    a.rows = a.rows ? a.rows : a.vocab;
    int error = ids_error(a.ids, a.tokens, a.vocab);
    if (error)
        return error;
    host_split(dev, pieces_of(a.tokens, piece_rows(a.width)), embedding_piece, &a);
    return 0;
}

VEC_INLINE void add_columns(const struct hst_embedding_backward *a, struct range columns,
                            enum hst_dtype dtype)
{
    for (size_t t = 0; t < a->tokens; t++) {
        size_t row = a->ids[t] - a->first_row; /* huge where it lies before the block */
        if (row >= a->rows || (a->skips && a->ids[t] == a->skip_id))
            continue;
        float *to = a->dweight + row * a->width;
        const void *from = row_at(a->dout, t, a->width, dtype);
        for (size_t i = columns.begin; i < columns.end; i += VEC)
            vec_store(to, i, columns.end, HST_F32,
                      vec_load(to, i, columns.end, HST_F32, 0) +
                          vec_load(from, i, columns.end, dtype, 0));
    }
}

static void embedding_backward_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_embedding_backward *a = arg;
    struct range columns = range_of(a->width, COLUMNS, index);
    BY_DTYPE(a->dtype, add_columns, a, columns);
}

int HOST_OP(embedding_backward)(struct host_dev *dev, const void *args)
{
    struct hst_embedding_backward a = *(const struct hst_embedding_backward *)args;
    a.rows = a.rows ? a.rows : a.vocab;
    int error = ids_error(a.ids, a.tokens, a.vocab);
    if (error)
        return error;
    host_split(dev, pieces_of(a.width, COLUMNS), embedding_backward_piece, &a);
    return 0;
}
