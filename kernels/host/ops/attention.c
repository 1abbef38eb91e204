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
};

/* It says where a strip of queries stands: each part's running maximum and sum, and what is to
   multiply the output of earlier tiles; and which of the tile's keys it sees. */
struct strip {
    float *top, *sum, *shrink;
    struct sight sight[STRIP_PARTS];
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
                              bool added)
{
    vec most[STRIP_PARTS], total[STRIP_PARTS];
    for (int p = 0; p < STRIP_PARTS; p++) {
        most[p] = vec_at(s.top + p * VEC);
        total[p] = vec_all(0);
    }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            vec score = vec_at(scores + j * ATTENTION_QUERIES + p * VEC);
            vec above = vec_above(score, most[p]);
            most[p] = seen == SEEN_ALL
                          ? above
                          : (vec)vec_pick(sees(s.sight[p], j, seen), (uvec)above, (uvec)most[p]);
        }
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            float *at = scores + j * ATTENTION_QUERIES + p * VEC;
            vec e = vec_exp(vec_at(at) - most[p]);
            if (seen != SEEN_ALL)
                e = (vec)(sees(s.sight[p], j, seen) & (uvec)e);
            memcpy(at, &e, sizeof e);
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

/* One tile's softmax, and the rescaling of what earlier tiles left in out. */
static void softmax_tile(const struct state *s, float *work, const struct key_tile *tile,
                         const struct query_tile *t, bool added)
{
    size_t keys = tile->keys.end - tile->keys.begin, width = s->args->head_dim;
    size_t queries = t->positions.end - t->positions.begin;
    float *scores = work + s->layout.scores, *out = work + s->layout.out;
    float *shrink = work + s->layout.row_shrink;
    for (size_t at = tile->first; at < queries; at += ATTENTION_DIAGONAL) {
        struct strip strip = {.top = work + s->layout.row_max + at,
                              .sum = work + s->layout.row_sum + at,
                              .shrink = shrink + at};
        for (size_t p = 0; p < STRIP_PARTS; p++)
            strip.sight[p] = sight_of(&t->first, tile, t->positions.begin, at + p * VEC);
        if (strip_begins_later(&t->first, tile, at, queries))
            softmax_strip(scores + at, keys, strip, SEEN_BETWEEN, added);
        else if (tile->diagonal && at == tile->first)
            softmax_strip(scores + at, keys, strip, SEEN_TO, added);
        else
            softmax_strip(scores + at, keys, strip, SEEN_ALL, added);
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
    struct query_tile t = {range_of(a->seq, ATTENTION_QUERIES, index % tiles), {{0}}};
    struct range queries = t.positions;
    size_t count = queries.end - queries.begin;
    t.first = first_keys_of(a, sequence, queries);
    struct rows q = head_rows(a, a->q, own, queries, work + s->layout.q);
    struct rows out = {work + s->layout.out, width};
    turn_rows(work + s->layout.q_turned, q, count, width);
    for (size_t r = 0; r < ATTENTION_QUERIES; r++)
        work[s->layout.row_max + r] = -INFINITY;
    size_t begin = first_key_tile(&t.first);
    for (size_t i = begin; i < key_tiles(queries); i++) {
        struct key_tile tile = key_tile(queries, i);
        struct rows k = head_rows(a, a->k, shared, tile.keys, work + s->layout.k);
        struct rows v = head_rows(a, a->v, shared, tile.keys, work + s->layout.v);
        tile_scores(work + s->layout.scores, a->scale, k, &tile, work + s->layout.q_turned, count,
                    width);
        softmax_tile(s, work, &tile, &t, i > begin);
        sum_over_keys(out, 1, work + s->layout.scores, &tile, count, v, width, i > begin);
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
