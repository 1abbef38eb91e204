/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells how much workspace the operations take: each worker has a part of its own. Sizes
 * never fall as a shape grows, so that the largest shape's workspace serves all.
 */
#include "work.h"
#include "host.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Whole cache lines, so that no two workers share one. */
static size_t lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

size_t host_matmul_worker_bytes(const struct hst_matmul *args)
{
    if (args->a.dtype == HST_F32)
        return 0;
    size_t rows = least(args->m, MATMUL_WIDE_BLOCK), columns = least(args->n, MATMUL_WIDE_BLOCK);
    size_t wide = (rows + columns) * least(args->k, MATMUL_WIDE_K) + rows * columns, own = 0;
    if (args->a.dtype == HST_BF16) {
        rows = least(args->m, MATMUL_BLOCK);
        columns = least(args->n, MATMUL_BLOCK);
        own = lines(rows * columns) +
              host_gemm_bf16_pack_bytes(rows, columns, args->k) / sizeof(float);
    }
    return lines(wide > own ? wide : own) * sizeof(float);
}

/* The caller asks before anything is computed: from then on bits depend on who makes bf16's. */
size_t host_matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args)
{
    if (args->a.dtype == HST_BF16)
        host_dev_of(dev)->bf16_asked = true;
    return host_matmul_worker_bytes(args) * host_dev_of(dev)->parallel.width;
}

size_t host_rmsnorm_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return (tokens + RMSNORM_ROWS_SUMMED - 1) / RMSNORM_ROWS_SUMMED * width * sizeof(float);
}

size_t host_bias_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width)
{
    (void)dev;
    return (tokens + BIAS_ROWS_SUMMED - 1) / BIAS_ROWS_SUMMED * width * sizeof(float);
}

static size_t take(struct attention_work *work, size_t floats)
{
    size_t at = work->floats;
    work->floats += lines(floats);
    return at;
}

/* Floats that an own kernel packs into for such GEMMs: scores, and sums over keys and queries. */
static size_t attention_pack(const struct hst_attention *args)
{
    size_t tile = least(args->seq, ATTENTION_QUERIES), width = args->head_dim;
    size_t scores = host_gemm_bf16_pack_bytes(tile, tile, width);
    size_t sums = host_gemm_bf16_pack_bytes(tile, width, tile);
    return (scores > sums ? scores : sums) / sizeof(float);
}

struct attention_work host_attention_layout(const struct hst_attention *args)
{
    size_t queries = least(args->seq, ATTENTION_QUERIES), keys = least(args->seq, ATTENTION_KEYS);
    size_t wide =
        args->dtype == HST_F32 ? 0 : args->head_dim; /* f32 is read and summed where it lies */
    struct attention_work work = {0};
    work.scores = take(&work, keys * ATTENTION_QUERIES);
    work.dscores = take(&work, keys * ATTENTION_QUERIES);
    work.q_turned = take(&work, args->head_dim * ATTENTION_QUERIES);
    work.dout_turned = take(&work, args->head_dim * ATTENTION_QUERIES);
    work.out = take(&work, queries * args->head_dim);
    work.q = take(&work, queries * wide);
    work.dout = take(&work, queries * wide);
    work.k = take(&work, keys * wide);
    work.v = take(&work, keys * wide);
    work.pack = work.q;
    if (args->dtype == HST_BF16) {
        const size_t end = work.pack + lines(attention_pack(args));
        work.floats = end > work.floats ? end : work.floats;
    }
    work.dk = take(&work, args->seq * wide);
    work.dv = take(&work, args->seq * wide);
    work.row_max = take(&work, ATTENTION_QUERIES);
    work.row_sum = take(&work, ATTENTION_QUERIES);
    work.row_shrink = take(&work, ATTENTION_QUERIES);
    return work;
}

size_t host_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args)
{
    if (args->dtype == HST_BF16)
        host_dev_of(dev)->bf16_asked = true;
    return host_attention_layout(args).floats * sizeof(float) * host_dev_of(dev)->parallel.width;
}
