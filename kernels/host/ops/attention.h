/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_ATTENTION_H
#define HST_KERNELS_HOST_ATTENTION_H
/* What the forward and the backward of attention share: tiles, and operands as f32 blocks. */
#include "host/work.h"
#include "ops.h"

/* A block of f32 rows, head_dim wide: in a tensor itself, or its widened copy. */
struct rows {
    float *data;
    size_t ld;
};

/* Row `position` of one head of one sequence lies at base + offset + position · ld elements. */
struct head {
    size_t offset, ld;
};

static inline struct head head_of(const struct hst_attention *a, size_t sequence, size_t head,
                                  size_t heads)
{
    return (struct head){(sequence * a->seq * heads + head) * a->head_dim, heads * a->head_dim};
}

static inline void *head_row(const void *base, struct head head, size_t position,
                             enum hst_dtype dtype)
{
    return row_at(base, head.offset + position * head.ld, 1, dtype);
}

/* Positions [r.begin, r.end) of a head as f32; `wide` holds the copy where the tensor is bf16. */
static inline struct rows head_rows(const struct hst_attention *a, const void *base,
                                    struct head head, struct range r, float *wide)
{
    if (a->dtype == HST_F32) return (struct rows){head_row(base, head, r.begin, HST_F32), head.ld};
    for (size_t t = r.begin; t < r.end; t++) {
        const void *from = head_row(base, head, t, HST_BF16);
        float *to = wide + (t - r.begin) * a->head_dim;
        for (size_t i = 0; i < a->head_dim; i += VEC)
            vec_store(to, i, a->head_dim, HST_F32, vec_load(from, i, a->head_dim, HST_BF16, 0));
    }
    return (struct rows){wide, a->head_dim};
}

/* The keys that queries [q.begin, q.end) see, in tiles: tile `index` of them. */
static inline struct range key_tile(struct range q, size_t index)
{
    return range_of(q.end, ATTENTION_KEYS, index);
}

/* scores = scale · rows · keysᵀ, dense, as many columns as there are keys. */
static inline void tile_scores(float *scores, float scale, struct rows q, size_t queries,
                               struct rows k, size_t keys, size_t head_dim)
{
    host_gemm(&(struct host_gemm){.m = queries,
                                  .n = keys,
                                  .k = head_dim,
                                  .a = q.data,
                                  .b = k.data,
                                  .c = scores,
                                  .a_ld = q.ld,
                                  .b_ld = k.ld,
                                  .c_ld = keys,
                                  .alpha = scale,
                                  .b_transposed = true});
}
#endif
