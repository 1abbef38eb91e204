/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, forward. One piece is one tile of queries of one head: it walks the keys those
 * queries may see in tiles of ATTENTION_KEYS and keeps a running maximum, sum and output, rescaled
 * where the maximum rises. Tiles wholly above the diagonal are never formed; inside one, what lies
 * above is set to zero.
 */
#include "attention.h"

struct state {
    const struct hst_attention *args;
    struct attention_work layout;
};

/* Turns a row's scores into exponentials in place; returns their sum and raises *top. */
VEC_INLINE float exponentiate(float *row, size_t valid, float *top)
{
    struct lanes most = lanes_all(*top);
    for (size_t i = 0; i < valid; i += LANES)
        for (int p = 0; p < PARTS; p++)
            most.part[p] =
                vec_above(vec_load(row, i + p * VEC, valid, HST_F32, -INFINITY), most.part[p]);
    *top = lanes_max(most);
    struct lanes sum = lanes_all(0);
    for (size_t i = 0; i < valid; i += LANES)
        for (int p = 0; p < PARTS; p++) {
            vec e = vec_exp(vec_load(row, i + p * VEC, valid, HST_F32, -INFINITY) - *top);
            vec_store(row, i + p * VEC, valid, HST_F32, e);
            sum.part[p] += e;
        }
    return lanes_sum(sum);
}

VEC_INLINE void scale_row(float *row, size_t count, float factor)
{
    for (size_t i = 0; i < count; i += VEC)
        vec_store(row, i, count, HST_F32, vec_load(row, i, count, HST_F32, 0) * factor);
}

/* One tile's softmax, joined to what earlier tiles left in out, row_max and row_sum. */
static void softmax_tile(const struct state *s, float *work, struct range q, struct range keys)
{
    size_t columns = keys.end - keys.begin, width = s->args->head_dim;
    float *scores = work + s->layout.scores, *out = work + s->layout.out;
    float *row_max = work + s->layout.row_max, *row_sum = work + s->layout.row_sum;
    for (size_t r = 0; r < q.end - q.begin; r++) {
        float *row = scores + r * columns;
        size_t valid = least(columns, q.begin + r + 1 - keys.begin);
        float before = keys.begin ? row_max[r] : -INFINITY, top = before;
        float sum = exponentiate(row, valid, &top);
        memset(row + valid, 0, (columns - valid) * sizeof *row);
        if (keys.begin) {
            float shrink = vec_exp(vec_all(before - top))[0];
            sum += row_sum[r] * shrink;
            scale_row(out + r * width, width, shrink);
        }
        row_max[r] = top;
        row_sum[r] = sum;
    }
}

VEC_INLINE void finish_row(void *to, const float *out, size_t width, float factor,
                           enum hst_dtype dtype)
{
    for (size_t i = 0; i < width; i += VEC)
        vec_store(to, i, width, dtype, vec_load(out, i, width, HST_F32, 0) * factor);
}

static void attention_piece(void *arg, size_t index, unsigned worker)
{
    const struct state *s = arg;
    const struct hst_attention *a = s->args;
    size_t tiles = pieces_of(a->seq, ATTENTION_QUERIES), line = index / tiles;
    size_t sequence = line / a->heads, h = line % a->heads, width = a->head_dim;
    struct head own = head_of(a, sequence, h, a->heads);
    struct head shared = head_of(a, sequence, h / (a->heads / a->kv_heads), a->kv_heads);
    float *work = (float *)a->work.data + worker * s->layout.floats;
    struct range queries = range_of(a->seq, ATTENTION_QUERIES, index % tiles);
    size_t count = queries.end - queries.begin;
    struct rows q = head_rows(a, a->q, own, queries, work + s->layout.q);
    for (size_t i = 0; i * ATTENTION_KEYS < queries.end; i++) {
        struct range keys = key_tile(queries, i);
        size_t columns = keys.end - keys.begin;
        struct rows k = head_rows(a, a->k, shared, keys, work + s->layout.k);
        struct rows v = head_rows(a, a->v, shared, keys, work + s->layout.v);
        tile_scores(work + s->layout.scores, a->scale, q, count, k, columns, width);
        softmax_tile(s, work, queries, keys);
        host_gemm(&(struct host_gemm){.m = count,
                                      .n = width,
                                      .k = columns,
                                      .a = work + s->layout.scores,
                                      .b = v.data,
                                      .c = work + s->layout.out,
                                      .a_ld = columns,
                                      .b_ld = v.ld,
                                      .c_ld = width,
                                      .alpha = 1,
                                      .beta = i ? 1 : 0});
    }
    float *lse = a->lse + line * a->seq + queries.begin;
    for (size_t r = 0; r < count; r++) {
        const float *out = work + s->layout.out + r * width;
        void *to = head_row(a->o, own, queries.begin + r, a->dtype);
        float sum = work[s->layout.row_sum + r];
        if (a->dtype == HST_F32)
            finish_row(to, out, width, 1.0f / sum, HST_F32);
        else
            finish_row(to, out, width, 1.0f / sum, HST_BF16);
        lse[r] = (float)((double)work[s->layout.row_max + r] + log((double)sum));
    }
}

int HOST_OP(attention)(struct host_dev *dev, const void *args)
{
    const struct hst_attention *a = args;
    struct state s = {a, host_attention_layout(a)};
    host_split(dev, a->batch * a->heads * pieces_of(a->seq, ATTENTION_QUERIES), attention_piece,
               &s);
    return 0;
}
