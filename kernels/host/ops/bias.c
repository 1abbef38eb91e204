/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bias and its backward, and the second half of every sum over tokens: each piece of rows leaves
 * its sum in the workspace, and the sums are added in order.
 */
#include "host/work.h"
#include "ops.h"

enum { COLUMNS_SUMMED = 256 };

VEC_INLINE void bias_rows(const struct hst_bias *a, struct range rows, enum hst_dtype dtype)
{
    for (size_t t = rows.begin; t < rows.end; t++) {
        void *x = row_at(a->x, t, a->width, dtype);
        for (size_t i = 0; i < a->width; i += VEC)
            vec_store(x, i, a->width, dtype,
                      vec_load(x, i, a->width, dtype, 0) +
                          vec_load(a->bias, i, a->width, dtype, 0));
    }
}

static void bias_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_bias *a = arg;
    struct range rows = range_of(a->tokens, piece_rows(a->width), index);
    BY_DTYPE(a->dtype, bias_rows, a, rows);
}

int HOST_OP(bias)(struct host_dev *dev, const void *args)
{
    struct hst_bias a = *(const struct hst_bias *)args;
    host_split(dev, pieces_of(a.tokens, piece_rows(a.width)), bias_piece, &a);
    return 0;
}

VEC_INLINE void add_row(const struct hst_bias_backward *a, size_t t, float *sum,
                        enum hst_dtype dtype)
{
    const void *dy = row_at(a->dy, t, a->width, dtype);
    for (size_t i = 0; i < a->width; i += VEC)
        vec_store(sum, i, a->width, HST_F32,
                  vec_load(sum, i, a->width, HST_F32, 0) + vec_load(dy, i, a->width, dtype, 0));
}

static void bias_backward_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_bias_backward *a = arg;
    float *sum = (float *)a->work.data + index * a->width;
    struct range rows = range_of(a->tokens, BIAS_ROWS_SUMMED, index);
    memset(sum, 0, a->width * sizeof *sum);
    for (size_t t = rows.begin; t < rows.end; t++)
        BY_DTYPE(a->dtype, add_row, a, t, sum);
}

int HOST_OP(bias_backward)(struct host_dev *dev, const void *args)
{
    struct hst_bias_backward a = *(const struct hst_bias_backward *)args;
    if (!a.tokens)
        return 0;
    host_split(dev, pieces_of(a.tokens, BIAS_ROWS_SUMMED), bias_backward_piece, &a);
    add_sums(dev, a.work.data, pieces_of(a.tokens, BIAS_ROWS_SUMMED), a.width, a.dbias);
    return 0;
}

struct sums {
    const float *sums;
    size_t rows, width;
    float *out;
};

static void sums_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct sums *a = arg;
    struct range columns = range_of(a->width, COLUMNS_SUMMED, index);
    for (size_t i = columns.begin; i < columns.end; i += VEC) {
        vec total = vec_all(0);
        for (size_t s = 0; s < a->rows; s++)
            total += vec_load(a->sums + s * a->width, i, columns.end, HST_F32, 0);
        total += vec_load(a->out, i, columns.end, HST_F32, 0);
        vec_store(a->out, i, columns.end, HST_F32, total);
    }
}

void add_sums(struct host_dev *dev, const float *sums, size_t rows, size_t width, float *out)
{
    struct sums a = {sums, rows, width, out};
    host_split(dev, pieces_of(width, COLUMNS_SUMMED), sums_piece, &a);
}
