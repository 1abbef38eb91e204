/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, forward. One piece is one tile of queries of one head: it walks the keys those
 * queries may see in tiles (attention.h) and keeps a running maximum, sum and output, rescaled
 * where the maximum rises. Tiles in which no query sees a key are never formed; inside one,
 * what is not seen is set to zero.
 */
#include "attention.h"

struct state {
    const struct hst_attention *args;
    struct attention_work layout;
    host_gemm_bf16_function *own;
};

/* It says where a strip of queries stands: its first column; each part's running maximum and sum,
   and what is to multiply the output of earlier tiles; which of the tile's keys it sees; and what
   its scores are yet to be multiplied by. */
struct strip {
    size_t at;
    float *top, *sum, *shrink;
    struct sight sight[STRIP_PARTS];
    float scale;
};

/* One piece's tile of queries. */
struct query_tile {
    struct range positions;
    struct first_keys first;
};

/* It brings down what earlier tiles left to a greater maximum. A query that has seen no key has
   none, minus infinity, in both; what it has left is 0. */
VEC_INLINE vec shrink_of(vec before, vec most, enum seen seen)
{
    vec less = vec_exp(before - most);
    if (seen != SEEN_BETWEEN)
        return less;
    return (vec)vec_pick((uvec)(before == most), (uvec)vec_all(1), (uvec)less);
}

/* A strip's scores become exponentials, joined to what earlier tiles left. What a query does not
   see is left out, not set to minus infinity: on AVX-512 an exponential that underflows costs
   hundreds of cycles. */
VEC_INLINE void softmax_strip(float *scores, size_t keys, struct strip s, enum seen seen,
                              bool added, bool halves)
{
    vec most[STRIP_PARTS], total[STRIP_PARTS];
    for (int p = 0; p < STRIP_PARTS; p++) {
        most[p] = vec_at(s.top + p * VEC);
        total[p] = vec_all(0);
    }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            vec score = vec_at(scores + j * ATTENTION_QUERIES + s.at + p * VEC);
            score = halves ? score * s.scale : score;
            vec above = vec_above(score, most[p]);
            most[p] = seen == SEEN_ALL
                          ? above
                          : (vec)vec_pick(sees(s.sight[p], j, seen), (uvec)above, (uvec)most[p]);
        }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            float *row = scores + j * ATTENTION_QUERIES;
            vec score = vec_at(row + s.at + p * VEC);
            vec e = vec_exp((halves ? score * s.scale : score) - most[p]);
            if (seen != SEEN_ALL)
                e = (vec)(sees(s.sight[p], j, seen) & (uvec)e);
            put_weights(row, s.at + p * VEC, halves, e);
            total[p] += e;
        }
    for (int p = 0; p < STRIP_PARTS; p++) {
        if (added) {
            vec less = shrink_of(vec_at(s.top + p * VEC), most[p], seen);
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

/* `halves` is a constant wherever this is called. */
VEC_INLINE void softmax_strips(const struct state *s, float *work, const struct key_tile *tile,
                               const struct query_tile *t, float scale, bool added, bool halves)
{
    size_t keys = tile->keys.end - tile->keys.begin;
    size_t queries = t->positions.end - t->positions.begin;
    float *scores = work + s->layout.scores;
    for (size_t at = tile->first; at < queries; at += ATTENTION_DIAGONAL) {
        struct strip strip = {.at = at,
                              .top = work + s->layout.row_max + at,
                              .sum = work + s->layout.row_sum + at,
                              .shrink = work + s->layout.row_shrink + at,
                              .scale = scale};
        for (size_t p = 0; p < STRIP_PARTS; p++)
            strip.sight[p] = sight_of(&t->first, tile, t->positions.begin, at + p * VEC);
        if (strip_begins_later(&t->first, tile, at, queries))
            softmax_strip(scores, keys, strip, SEEN_BETWEEN, added, halves);
        else if (tile->diagonal && at == tile->first)
            softmax_strip(scores, keys, strip, SEEN_TO, added, halves);
        else
            softmax_strip(scores, keys, strip, SEEN_ALL, added, halves);
    }
}

/* One tile's softmax, and the rescaling of what earlier tiles left in out. */
static void softmax_tile(const struct state *s, float *work, const struct key_tile *tile,
                         const struct query_tile *t, float scale, bool added)
{
    size_t queries = t->positions.end - t->positions.begin, width = s->args->head_dim;
    float *out = work + s->layout.out, *shrink = work + s->layout.row_shrink;
    if (s->own)
        softmax_strips(s, work, tile, t, scale, added, true);
    else
        softmax_strips(s, work, tile, t, scale, added, false);
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
    struct query_tile t = {range_of(a->seq, ATTENTION_QUERIES, index % tiles), {{0}}};
    struct range queries = t.positions;
    size_t count = queries.end - queries.begin;
    t.first = first_keys_of(a, sequence, queries);
    const struct products by = {s->own, work + s->layout.pack};
    const struct query_rows q =
        query_rows_of(&by, head_rows(a, &by, a->q, own, queries, work + s->layout.q),
                      work + s->layout.q_turned, count, width);
    struct rows out = {work + s->layout.out, width};
    for (size_t r = 0; r < ATTENTION_QUERIES; r++)
        work[s->layout.row_max + r] = -INFINITY;
    size_t begin = first_key_tile(&t.first);
    for (size_t i = begin; i < key_tiles(queries); i++) {
        struct key_tile tile = key_tile(queries, i);
        struct operand k = head_rows(a, &by, a->k, shared, tile.keys, work + s->layout.k);
        struct operand v = head_rows(a, &by, a->v, shared, tile.keys, work + s->layout.v);
        float scale =
            tile_scores(&by, work + s->layout.scores, a->scale, k, &tile, &q, count, width);
        softmax_tile(s, work, &tile, &t, scale, i > begin);
        sum_over_keys(&by, out, 1, work + s->layout.scores, &tile, count, v, width, i > begin);
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
    struct state s = {a, host_attention_layout(a), own_products(dev, a)};
    host_split(dev, a->batch * a->heads * pieces_of(a->seq, ATTENTION_QUERIES), attention_piece,
               &s);
    return 0;
}
