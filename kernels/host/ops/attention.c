/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, forward. One piece is one tile of queries of one head: it walks the keys those
 * queries may see in tiles (attention.h) and keeps a running maximum, sum and output, rescaled
 * where the maximum rises. Tiles wholly above the diagonal are never formed; inside one,
 * what lies above is set to zero.
 */
#include "attention.h"

struct state {
    const struct hst_attention *args;
    struct attention_work layout;
};

/* Where a strip of queries stands: each part's running maximum and sum, and what is to multiply the
   output of earlier tiles. */
struct strip {
    float *top, *sum, *shrink;
};

/* A strip's scores become exponentials, joined to what earlier tiles left. On the diagonal, what a
   query does not see is left out, not set to minus infinity: on AVX-512 an exponential that
   underflows costs hundreds of cycles. */
VEC_INLINE void softmax_strip(float *scores, size_t keys, struct strip s, bool diagonal, bool added)
{
    vec most[STRIP_PARTS], total[STRIP_PARTS];
    uvec query[STRIP_PARTS];
    for (int p = 0; p < STRIP_PARTS; p++) {
        most[p] = vec_at(s.top + p * VEC);
        total[p] = vec_all(0);
        query[p] = vec_count((uint32_t)p * VEC);
    }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            vec score = vec_at(scores + j * ATTENTION_QUERIES + p * VEC);
            vec above = vec_above(score, most[p]);
            uvec seen = (uvec)(query[p] >= (uint32_t)j);
            most[p] = diagonal ? (vec)vec_pick(seen, (uvec)above, (uvec)most[p]) : above;
        }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            float *at = scores + j * ATTENTION_QUERIES + p * VEC;
            vec e = vec_exp(vec_at(at) - most[p]);
            if (diagonal)
                e = (vec)((uvec)(query[p] >= (uint32_t)j) & (uvec)e);
            memcpy(at, &e, sizeof e);
            total[p] += e;
        }
    for (int p = 0; p < STRIP_PARTS; p++) {
        if (added) {
            vec less = vec_exp(vec_at(s.top + p * VEC) - most[p]);
            total[p] += vec_at(s.sum + p * VEC) * less;
            memcpy(s.shrink + p * VEC, &less, sizeof less);
        }
        memcpy(s.top + p * VEC, &most[p], sizeof(vec));
        memcpy(s.sum + p * VEC, &total[p], sizeof(vec));
    }
}

VEC_INLINE void scale_row(float *row, size_t count, float factor)
{
    for (size_t i = 0; i < count; i += VEC)
        vec_store(row, i, count, HST_F32, vec_load(row, i, count, HST_F32, 0) * factor);
}

/* One tile's softmax, and the rescaling of what earlier tiles left in out. */
static void softmax_tile(const struct state *s, float *work, const struct key_tile *tile,
                         size_t queries, bool added)
{
    size_t keys = tile->keys.end - tile->keys.begin, width = s->args->head_dim;
    float *scores = work + s->layout.scores, *out = work + s->layout.out;
    float *shrink = work + s->layout.row_shrink;
    for (size_t at = tile->first; at < queries; at += ATTENTION_DIAGONAL) {
        const struct strip strip = {work + s->layout.row_max + at, work + s->layout.row_sum + at,
                                    shrink + at};
        if (tile->diagonal && at == tile->first)
            softmax_strip(scores + at, keys, strip, true, added);
        else
            softmax_strip(scores + at, keys, strip, false, added);
    }
    for (size_t r = tile->first; r < queries && added; r++)
        scale_row(out + r * width, width, shrink[r]);
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
    struct rows out = {work + s->layout.out, width};
    turn_rows(work + s->layout.q_turned, q, count, width);
    for (size_t r = 0; r < ATTENTION_QUERIES; r++)
        work[s->layout.row_max + r] = -INFINITY;
    for (size_t i = 0; i < key_tiles(queries); i++) {
        struct key_tile tile = key_tile(queries, i);
        struct rows k = head_rows(a, a->k, shared, tile.keys, work + s->layout.k);
        struct rows v = head_rows(a, a->v, shared, tile.keys, work + s->layout.v);
        tile_scores(work + s->layout.scores, a->scale, k, &tile, work + s->layout.q_turned, count,
                    width);
        softmax_tile(s, work, &tile, count, i > 0);
        sum_over_keys(out, 1, work + s->layout.scores, &tile, count, v, width, i > 0);
    }
    float *lse = a->lse + line * a->seq + queries.begin;
    for (size_t r = 0; r < count; r++) {
        const float *from = out.data + r * width;
        void *to = head_row(a->o, own, queries.begin + r, a->dtype);
        float sum = work[s->layout.row_sum + r];
        BY_DTYPE(a->dtype, finish_row, to, from, width, 1.0f / sum);
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
