/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal attention, backward. One piece is one key-value head of one sequence, with all the query
 * heads that share it: it alone writes their dq and its dk and dv, so heads and tiles add up in one
 * fixed order without partial sums. The probabilities are made again from the forward's lse, one
 * tile at a time.
 */
#include "attention.h"

struct state {
    const struct hst_attention_backward *args;
    struct attention_work layout;
    host_gemm_bf16_function *own;
};

/* Everything one piece works with. */
struct shared_head {
    const struct hst_attention_backward *args;
    const struct attention_work *layout;
    float *work;
    struct products by;
    struct head kv;
    struct rows dk, dv; /* sums over queries and heads */
};

/* One query head's tile of queries. */
struct query_tile {
    struct head head;
    struct range positions;
    struct query_rows q, dout;
    struct rows dq;
    const float *lse;
    bool first_of_group;
    struct first_keys first;
};

VEC_INLINE float dot(const void *a, const void *b, size_t count, enum hst_dtype dtype)
{
    struct lanes sum = lanes_all(0);
    for (size_t i = 0; i < count; i += LANES)
        for (int p = 0; p < PARTS; p++)
            sum.part[p] += vec_load(a, i + p * VEC, count, dtype, 0) *
                           vec_load(b, i + p * VEC, count, dtype, 0);
    return lanes_sum(sum);
}

/* It says where a strip of queries stands: its first column, what its scores are yet to be
   multiplied by, each part's numbers of queries, and which of the tile's keys it sees. */
struct strip {
    size_t at;
    float scale;
    vec lse[STRIP_PARTS], inner[STRIP_PARTS];
    struct sight sight[STRIP_PARTS];
};

/* A strip's scores become the probabilities, dscores the gradient of the scaled scores; for the own
   kernel that of the scores. */
VEC_INLINE void strip_gradient(float *scores, float *dscores, size_t keys, const struct strip *s,
                               enum seen seen, bool halves)
{
    for (size_t j = 0; j < keys; j++)
        for (int p = 0; p < STRIP_PARTS; p++) {
            size_t column = s->at + (size_t)p * VEC;
            float *row = scores + j * ATTENTION_QUERIES, *drow = dscores + j * ATTENTION_QUERIES;
            vec score = vec_at(row + column);
            vec chance = vec_exp((halves ? score * s->scale : score) - s->lse[p]);
            vec gradient = chance * (vec_at(drow + column) - s->inner[p]);
            gradient = halves ? gradient * s->scale : gradient;
            if (seen != SEEN_ALL) {
                chance = (vec)(sees(s->sight[p], j, seen) & (uvec)chance);
                gradient = (vec)(sees(s->sight[p], j, seen) & (uvec)gradient);
            }
            put_weights(row, column, halves, chance);
            put_weights(drow, column, halves, gradient);
        }
}

/* In the row of the diagonal's key `index`, the queries before it: they do not see it. */
VEC_INLINE void hide(float *row, size_t first, size_t index, bool halves)
{
    void *from = row_at(row, first, 1, halves ? HST_BF16 : HST_F32);
    for (size_t i = 0; i < index; i += VEC)
        vec_store(from, i, index, halves ? HST_BF16 : HST_F32, vec_all(0));
}

/* `halves` is a constant wherever this is called. */
VEC_INLINE void tile_gradient(const struct shared_head *s, const struct query_tile *t,
                              const struct key_tile *tile, float scale, bool halves)
{
    size_t keys = tile->keys.end - tile->keys.begin;
    size_t count = t->positions.end - t->positions.begin;
    float *scores = s->work + s->layout->scores, *dscores = s->work + s->layout->dscores;
    for (size_t at = tile->first; at < count; at += ATTENTION_DIAGONAL) {
        struct strip strip = {.at = at, .scale = scale};
        for (int p = 0; p < STRIP_PARTS; p++) {
            size_t column = at + (size_t)p * VEC;
            strip.lse[p] = vec_load(t->lse, column, count, HST_F32, 0);
            strip.inner[p] = vec_load(s->work + s->layout->row_sum, column, count, HST_F32, 0);
            strip.sight[p] = sight_of(&t->first, tile, t->positions.begin, column);
        }
        if (strip_begins_later(&t->first, tile, at, count))
            strip_gradient(scores, dscores, keys, &strip, SEEN_BETWEEN, halves);
        else
            strip_gradient(scores, dscores, keys, &strip, SEEN_ALL, halves);
    }
    for (size_t j = 0; j < keys && tile->diagonal; j++) {
        hide(scores + j * ATTENTION_QUERIES, tile->first, j, halves);
        hide(dscores + j * ATTENTION_QUERIES, tile->first, j, halves);
    }
}

/* to[key] = alpha · Σ over queries of scores[key][query] · rows[query] (+ to where added). The own
   kernel takes weights that have been multiplied by alpha. */
static void sum_over_queries(const struct products *by, struct rows to, float alpha,
                             const float *scores, const struct key_tile *tile, size_t queries,
                             struct operand rows, size_t head_dim, bool added)
{
    size_t m = tile->keys.end - tile->keys.begin, k = queries - tile->first;
    const void *b = row_at(rows.data, tile->first, rows.ld, operand_dtype(by));
    float *c = to.data + tile->keys.begin * to.ld;
    if (by->own)
        by->own(&(struct host_gemm_bf16){.m = m,
                                         .n = head_dim,
                                         .k = k,
                                         .a = half_weights(scores, tile->first),
                                         .b = b,
                                         .c = c,
                                         .a_ld = HALF_LD,
                                         .b_ld = rows.ld,
                                         .c_ld = to.ld,
                                         .accumulate = added,
                                         .pack = by->pack});
    else
        host_gemm(&(struct host_gemm){.m = m,
                                      .n = head_dim,
                                      .k = k,
                                      .a = scores + tile->first,
                                      .b = b,
                                      .c = c,
                                      .a_ld = ATTENTION_QUERIES,
                                      .b_ld = rows.ld,
                                      .c_ld = to.ld,
                                      .alpha = alpha,
                                      .beta = added ? 1 : 0});
}

/* A diagonal tile of a group's first head is the first to reach its keys: it overwrites dk, dv. */
static void backward_tile(const struct shared_head *s, const struct query_tile *t,
                          const struct key_tile *tile)
{
    const struct hst_attention *f = &s->args->forward;
    size_t count = t->positions.end - t->positions.begin, width = f->head_dim;
    float *scores = s->work + s->layout->scores, *dscores = s->work + s->layout->dscores;
    struct operand k = head_rows(f, &s->by, f->k, s->kv, tile->keys, s->work + s->layout->k);
    struct operand v = head_rows(f, &s->by, f->v, s->kv, tile->keys, s->work + s->layout->v);
    float scale = tile_scores(&s->by, scores, f->scale, k, tile, &t->q, count, width);
    tile_scores(&s->by, dscores, 1, v, tile, &t->dout, count, width);
    if (s->by.own)
        tile_gradient(s, t, tile, scale, true);
    else
        tile_gradient(s, t, tile, scale, false);
    bool reached = !tile->diagonal || !t->first_of_group;
    sum_over_queries(&s->by, s->dv, 1, scores, tile, count, t->dout.rows, width, reached);
    sum_over_queries(&s->by, s->dk, f->scale, dscores, tile, count, t->q.rows, width, reached);
    bool begun = tile->keys.begin > first_key_tile(&t->first) * ATTENTION_KEYS;
    sum_over_keys(&s->by, t->dq, f->scale, dscores, tile, count, k, width, begun);
}

/* Sums in the workspace become the rows of a head. */
static void round_rows(const struct hst_attention *f, const struct rows *from, size_t count,
                       void *base, struct head head, size_t first)
{
    for (size_t r = 0; r < count; r++)
        convert_row(head_row(base, head, first + r, f->dtype), f->dtype, from->data + r * from->ld,
                    HST_F32, f->head_dim);
}

static void backward_queries(const struct shared_head *s, size_t sequence, size_t h,
                             struct range positions)
{
    const struct hst_attention *f = &s->args->forward;
    size_t count = positions.end - positions.begin, width = f->head_dim;
    struct query_tile t = {.head = head_of(f, sequence, h, f->heads),
                           .positions = positions,
                           .first_of_group = h % (f->heads / f->kv_heads) == 0,
                           .first = first_keys_of(f, sequence, positions)};
    t.q =
        query_rows_of(&s->by, head_rows(f, &s->by, f->q, t.head, positions, s->work + s->layout->q),
                      s->work + s->layout->q_turned, count, width);
    t.dout = query_rows_of(
        &s->by, head_rows(f, &s->by, s->args->dout, t.head, positions, s->work + s->layout->dout),
        s->work + s->layout->dout_turned, count, width);
    t.lse = f->lse + (sequence * f->heads + h) * f->seq + positions.begin;
    bool direct = f->dtype == HST_F32;
    if (direct)
        t.dq = (struct rows){head_row(s->args->dq, t.head, positions.begin, HST_F32), t.head.ld};
    else
        t.dq = (struct rows){s->work + s->layout->out, width};
    for (size_t r = 0; r < count; r++) {
        const void *o = head_row(f->o, t.head, positions.begin + r, f->dtype);
        const void *dout = head_row(s->args->dout, t.head, positions.begin + r, f->dtype);
        s->work[s->layout->row_sum + r] = BY_DTYPE(f->dtype, dot, o, dout, width);
    }
    for (size_t i = first_key_tile(&t.first); i < key_tiles(positions); i++) {
        struct key_tile tile = key_tile(positions, i);
        backward_tile(s, &t, &tile);
    }
    if (!direct)
        round_rows(f, &t.dq, count, s->args->dq, t.head, positions.begin);
}

static void backward_piece(void *arg, size_t index, unsigned worker)
{
    const struct state *state = arg;
    const struct hst_attention *f = &state->args->forward;
    size_t sequence = index / f->kv_heads, kv = index % f->kv_heads, group = f->heads / f->kv_heads;
    struct shared_head s = {.args = state->args,
                            .layout = &state->layout,
                            .work = (float *)f->work.data + worker * state->layout.floats,
                            .by.own = state->own,
                            .kv = head_of(f, sequence, kv, f->kv_heads)};
    s.by.pack = s.work + s.layout->pack;
    bool direct = f->dtype == HST_F32;
    if (direct) {
        s.dk = (struct rows){head_row(state->args->dk, s.kv, 0, HST_F32), s.kv.ld};
        s.dv = (struct rows){head_row(state->args->dv, s.kv, 0, HST_F32), s.kv.ld};
    } else {
        s.dk = (struct rows){s.work + s.layout->dk, f->head_dim};
        s.dv = (struct rows){s.work + s.layout->dv, f->head_dim};
    }
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t i = 0; i < pieces_of(f->seq, ATTENTION_QUERIES); i++)
            backward_queries(&s, sequence, h, range_of(f->seq, ATTENTION_QUERIES, i));
    if (direct)
        return;
    round_rows(f, &s.dk, f->seq, state->args->dk, s.kv, 0);
    round_rows(f, &s.dv, f->seq, state->args->dv, s.kv, 0);
}

int HOST_OP(attention_backward)(struct host_dev *dev, const void *args)
{
    const struct hst_attention_backward *a = args;
    struct state s = {a, host_attention_layout(&a->forward), own_products(dev, &a->forward)};
    host_split(dev, a->forward.batch * a->forward.kv_heads, backward_piece, &s);
    return 0;
}
