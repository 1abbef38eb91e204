/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMSNorm and its backward. Rows are independent but for dweight, which sums over them: each piece
 * of RMSNORM_ROWS_SUMMED rows leaves its sum in the workspace, and a second pass adds those in
 * order.
 */
#include "host/work.h"
#include "ops.h"

/* x + residual of one row, rounded into sum: what is normalised instead of x. */
VEC_INLINE const void *add_residual(const struct hst_rmsnorm *a, size_t t, enum hst_dtype dtype)
{
    size_t width = a->width;
    const void *x = row_at(a->x, t, width, dtype), *residual = row_at(a->residual, t, width, dtype);
    void *sum = row_at(a->sum, t, width, dtype);
    for (size_t i = 0; i < width; i += VEC)
        vec_store(sum, i, width, dtype,
                  vec_load(x, i, width, dtype, 0) + vec_load(residual, i, width, dtype, 0));
    return sum;
}

VEC_INLINE void normalize_rows(const struct hst_rmsnorm *a, struct range rows, enum hst_dtype dtype)
{
    size_t width = a->width;
    for (size_t t = rows.begin; t < rows.end; t++) {
        const void *x = a->sum ? add_residual(a, t, dtype) : row_at(a->x, t, width, dtype);
        void *y = row_at(a->y, t, width, dtype);
        struct lanes square = lanes_all(0);
        for (size_t i = 0; i < width; i += LANES)
            for (int p = 0; p < PARTS; p++) {
                vec v = vec_load(x, i + p * VEC, width, dtype, 0);
                square.part[p] += v * v;
            }
        float rstd = 1.0f / sqrtf(lanes_sum(square) / (float)width + a->eps);
        for (size_t i = 0; i < width; i += VEC) {
            vec v = vec_load(x, i, width, dtype, 0) * rstd;
            vec_store(y, i, width, dtype, v * vec_load(a->weight, i, width, dtype, 0));
        }
        a->rstd[t] = rstd;
    }
}

static void rmsnorm_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_rmsnorm *a = arg;
    struct range rows = range_of(a->tokens, piece_rows(a->width), index);
    BY_DTYPE(a->dtype, normalize_rows, a, rows);
}

int HOST_OP(rmsnorm)(struct host_dev *dev, const void *args)
{
    struct hst_rmsnorm a = *(const struct hst_rmsnorm *)args;
    host_split(dev, pieces_of(a.tokens, piece_rows(a.width)), rmsnorm_piece, &a);
    return 0;
}

/* dx of one row, and its part of dweight added to `sum`. */
VEC_INLINE void backward_row(const struct hst_rmsnorm_backward *a, size_t t, float *sum,
                             enum hst_dtype dtype)
{
    size_t width = a->width;
    const void *x = row_at(a->x, t, width, dtype), *dy = row_at(a->dy, t, width, dtype);
    void *dx = row_at(a->dx, t, width, dtype);
    float rstd = a->rstd[t];
    struct lanes product = lanes_all(0);
    for (size_t i = 0; i < width; i += LANES)
        for (int p = 0; p < PARTS; p++) {
            size_t at = i + p * VEC;
            vec g = vec_load(a->weight, at, width, dtype, 0) * vec_load(dy, at, width, dtype, 0);
            product.part[p] += g * vec_load(x, at, width, dtype, 0);
        }
    float along = rstd * rstd * (lanes_sum(product) / (float)width);
    for (size_t i = 0; i < width; i += VEC) {
        vec d = vec_load(dy, i, width, dtype, 0), v = vec_load(x, i, width, dtype, 0);
        vec s = vec_load(sum, i, width, HST_F32, 0) + d * (v * rstd);
        vec g = (vec_load(a->weight, i, width, dtype, 0) * d - v * along) * rstd;
        if (a->accumulate)
            g += vec_load(dx, i, width, dtype, 0);
        vec_store(sum, i, width, HST_F32, s);
        vec_store(dx, i, width, dtype, g);
    }
}

static void rmsnorm_backward_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_rmsnorm_backward *a = arg;
    float *sum = (float *)a->work.data + index * a->width;
    struct range rows = range_of(a->tokens, RMSNORM_ROWS_SUMMED, index);
    memset(sum, 0, a->width * sizeof *sum);
    for (size_t t = rows.begin; t < rows.end; t++)
        BY_DTYPE(a->dtype, backward_row, a, t, sum);
}

int HOST_OP(rmsnorm_backward)(struct host_dev *dev, const void *args)
{
    struct hst_rmsnorm_backward a = *(const struct hst_rmsnorm_backward *)args;
    if (!a.tokens)
        return 0;
    host_split(dev, pieces_of(a.tokens, RMSNORM_ROWS_SUMMED), rmsnorm_backward_piece, &a);
    if (a.dweight)
        add_sums(dev, a.work.data, pieces_of(a.tokens, RMSNORM_ROWS_SUMMED), a.width, a.dweight);
    return 0;
}
