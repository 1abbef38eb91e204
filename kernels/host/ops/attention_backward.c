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
};

/* Everything one piece works with. */
struct shared_head {
    const struct hst_attention_backward *args;
    const struct attention_work *layout;
    float *work;
    struct head kv;
    struct rows dk, dv; /* sums over queries and heads */
};

/* One query head's tile of queries. */
struct query_tile {
    struct head head;
    struct range positions;
    struct rows q, dout, dq;
    const float *lse;
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

/* scores becomes the probabilities, dscores the gradient of the scores before their scale; beyond
   the diagonal both are zero. */
static void tile_gradient(const struct shared_head *s, const struct query_tile *t,
                          struct range keys)
{
    size_t columns = keys.end - keys.begin;
    const float *inner = s->work + s->layout->row_sum;
    float scale = s->args->forward.scale;
    for (size_t r = 0; r < t->positions.end - t->positions.begin; r++) {
        float *scores = s->work + s->layout->scores + r * columns;
        float *dscores = s->work + s->layout->dscores + r * columns;
        size_t valid = least(columns, t->positions.begin + r + 1 - keys.begin);
        for (size_t i = 0; i < valid; i += VEC) {
            vec chance = vec_exp(vec_load(scores, i, valid, HST_F32, 0) - t->lse[r]);
            vec gradient = chance * (vec_load(dscores, i, valid, HST_F32, 0) - inner[r]) * scale;
            vec_store(scores, i, valid, HST_F32, chance);
            vec_store(dscores, i, valid, HST_F32, gradient);
        }
        memset(scores + valid, 0, (columns - valid) * sizeof *scores);
        memset(dscores + valid, 0, (columns - valid) * sizeof *dscores);
    }
}

/* to[keys] += tileᵀ · from[queries]. */
static void add_transposed(struct rows to, size_t first, const float *tile, size_t queries,
                           size_t keys, struct rows from, size_t width)
{
    host_gemm(&(struct host_gemm){.m = keys,
                                  .n = width,
                                  .k = queries,
                                  .a = tile,
                                  .b = from.data,
                                  .c = to.data + first * to.ld,
                                  .a_ld = keys,
                                  .b_ld = from.ld,
                                  .c_ld = to.ld,
                                  .alpha = 1,
                                  .beta = 1,
                                  .a_transposed = true});
}

static void backward_tile(const struct shared_head *s, const struct query_tile *t,
                          struct range keys)
{
    const struct hst_attention *f = &s->args->forward;
    size_t count = t->positions.end - t->positions.begin, columns = keys.end - keys.begin;
    size_t width = f->head_dim;
    float *scores = s->work + s->layout->scores, *dscores = s->work + s->layout->dscores;
    struct rows k = head_rows(f, f->k, s->kv, keys, s->work + s->layout->k);
    struct rows v = head_rows(f, f->v, s->kv, keys, s->work + s->layout->v);
    tile_scores(scores, f->scale, t->q, count, k, columns, width);
    tile_scores(dscores, 1, t->dout, count, v, columns, width);
    tile_gradient(s, t, keys);
    add_transposed(s->dv, keys.begin, scores, count, columns, t->dout, width);
    add_transposed(s->dk, keys.begin, dscores, count, columns, t->q, width);
    host_gemm(&(struct host_gemm){.m = count,
                                  .n = width,
                                  .k = columns,
                                  .a = dscores,
                                  .b = k.data,
                                  .c = t->dq.data,
                                  .a_ld = columns,
                                  .b_ld = k.ld,
                                  .c_ld = t->dq.ld,
                                  .alpha = 1,
                                  .beta = keys.begin ? 1 : 0});
}

static void round_rows(const struct rows *from, size_t count, size_t width, void *base,
                       struct head head, size_t first)
{
    for (size_t r = 0; r < count; r++) {
        void *to = head_row(base, head, first + r, HST_BF16);
        for (size_t i = 0; i < width; i += VEC)
            vec_store(to, i, width, HST_BF16,
                      vec_load(from->data + r * from->ld, i, width, HST_F32, 0));
    }
}

static void backward_queries(const struct shared_head *s, size_t sequence, size_t h,
                             struct range positions)
{
    const struct hst_attention *f = &s->args->forward;
    size_t count = positions.end - positions.begin, width = f->head_dim;
    struct query_tile t = {.head = head_of(f, sequence, h, f->heads), .positions = positions};
    t.q = head_rows(f, f->q, t.head, positions, s->work + s->layout->q);
    t.dout = head_rows(f, s->args->dout, t.head, positions, s->work + s->layout->dout);
    t.lse = f->lse + (sequence * f->heads + h) * f->seq + positions.begin;
    bool direct = f->dtype == HST_F32;
    if (direct)
        t.dq = (struct rows){head_row(s->args->dq, t.head, positions.begin, HST_F32), t.head.ld};
    else
        t.dq = (struct rows){s->work + s->layout->out, width};
    for (size_t r = 0; r < count; r++) {
        const void *o = head_row(f->o, t.head, positions.begin + r, f->dtype);
        const void *dout = head_row(s->args->dout, t.head, positions.begin + r, f->dtype);
        s->work[s->layout->row_sum + r] =
            direct ? dot(o, dout, width, HST_F32) : dot(o, dout, width, HST_BF16);
    }
    for (size_t i = 0; i * ATTENTION_KEYS < positions.end; i++)
        backward_tile(s, &t, key_tile(positions, i));
    if (!direct)
        round_rows(&t.dq, count, width, s->args->dq, t.head, positions.begin);
}

static void clear_rows(struct rows rows, size_t count, size_t width)
{
    for (size_t r = 0; r < count; r++)
        memset(rows.data + r * rows.ld, 0, width * sizeof *rows.data);
}

static void backward_piece(void *arg, size_t index, unsigned worker)
{
    const struct state *state = arg;
    const struct hst_attention *f = &state->args->forward;
    size_t sequence = index / f->kv_heads, kv = index % f->kv_heads, group = f->heads / f->kv_heads;
    struct shared_head s = {.args = state->args,
                            .layout = &state->layout,
                            .work = (float *)f->work.data + worker * state->layout.floats,
                            .kv = head_of(f, sequence, kv, f->kv_heads)};
    bool direct = f->dtype == HST_F32;
    if (direct) {
        s.dk = (struct rows){head_row(state->args->dk, s.kv, 0, HST_F32), s.kv.ld};
        s.dv = (struct rows){head_row(state->args->dv, s.kv, 0, HST_F32), s.kv.ld};
    } else {
        s.dk = (struct rows){s.work + s.layout->dk, f->head_dim};
        s.dv = (struct rows){s.work + s.layout->dv, f->head_dim};
    }
    clear_rows(s.dk, f->seq, f->head_dim);
    clear_rows(s.dv, f->seq, f->head_dim);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t i = 0; i < pieces_of(f->seq, ATTENTION_QUERIES); i++)
            backward_queries(&s, sequence, h, range_of(f->seq, ATTENTION_QUERIES, i));
    if (direct)
        return;
    round_rows(&s.dk, f->seq, f->head_dim, state->args->dk, s.kv, 0);
    round_rows(&s.dv, f->seq, f->head_dim, state->args->dv, s.kv, 0);
}

int HOST_OP(attention_backward)(struct host_dev *dev, const void *args)
{
    const struct hst_attention_backward *a = args;
    struct state s = {a, host_attention_layout(&a->forward)};
    host_split(dev, a->forward.batch * a->forward.kv_heads, backward_piece, &s);
    return 0;
}
