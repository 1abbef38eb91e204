/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_WORK_BYTES_H
#define HST_CUDA_WORK_BYTES_H
/*
 * Workspaces of the plugin's operations that follow from shapes alone: for its kernels, and for a
 * plan of a GPU that is not here. Pure; C and CUDA C++.
 */
#include <stddef.h>
#include <stdint.h>

/* ---- products ---- */

#define WORK_PRODUCTS_BYTES           ((size_t)8 << 20)
#define WORK_PRODUCTS_HOPPER_BYTES    ((size_t)32 << 20) /* as NVIDIA advises, from 9.0 on */
#define WORK_PRODUCTS_ALIGNMENT_BYTES ((size_t)256) /* the library's wish; kernels.h gives 16 */

static inline size_t work_products_bytes(unsigned compute_major)
{
    return compute_major >= 9 ? WORK_PRODUCTS_HOPPER_BYTES : WORK_PRODUCTS_BYTES;
}

/* ---- sums over tokens ---- */

#define WORK_NORM_ROWS_LEAST   ((size_t)8) /* that a sum is worth */
#define WORK_NORM_BLOCKS_LEAST ((size_t)512)
#define WORK_NORM_SUMS         ((size_t)1 << 21) /* numbers that the limits on blocks aim at */

static inline size_t work_rmsnorm_backward_bytes(size_t tokens, size_t width)
{
    size_t blocks = tokens / WORK_NORM_ROWS_LEAST + (tokens % WORK_NORM_ROWS_LEAST != 0);
    size_t most = width > WORK_NORM_SUMS / WORK_NORM_BLOCKS_LEAST ? width * WORK_NORM_BLOCKS_LEAST
                                                                  : WORK_NORM_SUMS;
    return (blocks < most / width ? blocks * width : most) * sizeof(float);
}

#define WORK_BIAS_ROWS        ((size_t)16) /* of a sum, at least */
#define WORK_BIAS_BLOCKS_MOST ((size_t)256)

/* No less for more tokens. */
static inline size_t work_bias_backward_bytes(size_t tokens, size_t width)
{
    size_t blocks = tokens / WORK_BIAS_ROWS + (tokens % WORK_BIAS_ROWS != 0);
    return (blocks < WORK_BIAS_BLOCKS_MOST ? blocks : WORK_BIAS_BLOCKS_MOST) * width *
           sizeof(float);
}

/* For each token its place in the order, and for each place its token. */
static inline size_t work_embedding_backward_bytes(size_t tokens)
{
    return tokens * 2 * sizeof(uint32_t);
}

/* ---- attention ---- */

/* The plugin's own kernels have a number for each query of each head. */
static inline size_t work_attention_bytes(size_t batch, size_t heads, size_t seq)
{
    return batch * heads * seq * sizeof(float);
}

/* As cudnn/cut.c has them, which a test holds this against. */
#define WORK_CUDNN_BYTES        ((size_t)256 << 20) /* calls are cut to need no more */
#define WORK_CUDNN_LARGE_BYTES  ((size_t)4 << 30)   /* nor one group of heads */
#define WORK_CUDNN_BUDGET_SHARE 16u                 /* of the device's memory, for one group */
#define WORK_CUDNN_FIXED_BYTES  ((size_t)4096 + 256)

/* Calls of so many bytes a head, cut: the whole call, what runs are cut to, or a group alone. */
static inline size_t work_cudnn_cut(size_t head_bytes, size_t all_heads, size_t group_heads,
                                    uint64_t budget_bytes)
{
    size_t all = all_heads * head_bytes + WORK_CUDNN_FIXED_BYTES, large = WORK_CUDNN_BYTES;
    size_t alone = group_heads * head_bytes + WORK_CUDNN_FIXED_BYTES;
    while (large < WORK_CUDNN_LARGE_BYTES && 2 * large <= budget_bytes / WORK_CUDNN_BUDGET_SHARE)
        large *= 2;
    if (all <= WORK_CUDNN_BYTES || alone <= WORK_CUDNN_BYTES)
        return all < WORK_CUDNN_BYTES ? all : WORK_CUDNN_BYTES;
    return alone <= large ? alone : 0;
}

/* No less than cuDNN's of 16 bits, by whichever of its two backwards; 0: it does not serve them. */
static inline size_t work_cudnn_attention_bytes(size_t batch, size_t heads, size_t kv_heads,
                                                size_t seq, size_t head_dim, uint64_t budget_bytes)
{
    size_t rows = (seq + 127) / 128 * 128, full = heads != kv_heads ? rows * head_dim : 0;
    size_t stored = work_cudnn_cut(2 * rows * rows + 4 * rows + 4 * full, batch * heads,
                                   heads / kv_heads, budget_bytes);
    size_t ordered =
        work_cudnn_cut(8 * rows + 8 * full, batch * heads, heads / kv_heads, budget_bytes);
    if (head_dim % 8 || head_dim > 256)
        return 0;
    return stored > ordered ? stored : ordered;
}

#endif
