/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: sampled queries of the forward and of dq, sampled keys of dk and dv. The backward's
 * reference begins with o and lse as the device has them, so that it tells of the backward alone.
 */
#include "attention.h"
#include <math.h>
#include <stdlib.h>

struct attention attention_make(enum triage_size size, enum hst_dtype dtype,
                                struct attention_case c)
{
    struct attention a = {.t = triage_begin(), .s = triage_shape(size)};
    struct triage_shape *s = &a.s;
    s->seq /= c.cut;
    s->batch *= c.cut;
    size_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    a.q = triage_input(a.t, "q", s->tokens, q, dtype);
    a.k = triage_input(a.t, "k", s->tokens, kv, dtype);
    a.v = triage_input(a.t, "v", s->tokens, kv, dtype);
    a.o = triage_output(a.t, "o", s->tokens, q, dtype);
    a.lse = triage_output(a.t, "lse", s->batch * s->heads, s->seq, HST_F32);
    if (c.backward) {
        a.dout = triage_input(a.t, "dout", s->tokens, q, dtype);
        a.dq = triage_output(a.t, "dq", s->tokens, q, dtype);
        a.dk = triage_output(a.t, "dk", s->tokens, kv, dtype);
        a.dv = triage_output(a.t, "dv", s->tokens, kv, dtype);
    }
    if (c.packed)
        a.documents = triage_documents(a.t, "first", s->batch, s->seq);
    float scale = 1 / sqrtf((float)s->head_dim);
    a.args = (struct hst_attention){
        s->batch,  s->seq,      s->heads,  s->kv_heads, s->head_dim,
        dtype,     scale,       a.q->data, a.k->data,   a.v->data,
        a.o->data, a.lse->data, {0},       NULL,        c.windowed ? s->seq / 3 + 1 : 0};
    a.args.first = a.documents ? a.documents->data : NULL;
    a.args.work = triage_work(a.t, hst_attention_work_bytes(a.t->dev, &a.args));
    a.half = suite_rounds_weights(a.t->dev, dtype) ? rounding(dtype, 1) : 0;
    /* a score's error moves exp by as much: head_dim products below 1, times the scale */
    a.score_noise = 4e-7 * ((double)scale * (double)s->head_dim + 4);
    a.sequence = SIZE_MAX;
    triage_taken(hst_op_attention(a.t->stream, &a.args));
    triage_sync(a.t);
    return a;
}

/*
 * What a sum of terms may be off by whose weights were each rounded to 16 bits: half an ulp of each
 * term at most. These errors have no common sign, so that of many terms the sum is off by some
 * √Σterm²; eight times that is never met.
 */
struct sum {
    double value, squares, sizes;
};

static void sum_add(struct sum *sum, double term)
{
    sum->value += term;
    sum->squares += term * term;
    sum->sizes += fabs(term);
}

static double sum_noise(const struct attention *a, const struct sum *sum)
{
    return a->half * fmin(8 * sqrt(sum->squares), sum->sizes) + a->score_noise * sum->sizes;
}

static double dot(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Where a head's vector of a token begins. */
static size_t q_at(const struct attention *a, size_t batch, size_t token, size_t head)
{
    return ((batch * a->s.seq + token) * a->s.heads + head) * a->s.head_dim;
}

static size_t kv_at(const struct attention *a, size_t batch, size_t token, size_t head)
{
    return ((batch * a->s.seq + token) * a->s.kv_heads + head) * a->s.head_dim;
}

static size_t group_of(const struct attention *a)
{
    return a->s.heads / a->s.kv_heads;
}

/* The first key that a query sees. Within a sequence it does not fall. */
static size_t key_from(const struct attention *a, size_t batch, size_t token)
{
    size_t window = a->args.window, from = window && token >= window ? token + 1 - window : 0;
    if (!a->documents)
        return from;
    size_t first = triage_first(a->documents, batch * a->s.seq + token);
    first = first < token ? first : token;
    return first > from ? first : from;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void check_query(struct attention *a, size_t batch, size_t head, size_t token)
{
    size_t d = a->s.head_dim, at = q_at(a, batch, token, head), kv = head / group_of(a);
    double q[HEAD_DIM_MAX], row[HEAD_DIM_MAX], got[HEAD_DIM_MAX], lse, total = 0;
    struct sum o[HEAD_DIM_MAX] = {{0}};
    double *p = triage_doubles(token + 1);
    size_t from = key_from(a, batch, token);
    triage_values(a->q, at, d, q);
    /* scores are below 12: no maximum is needed in float64 */
    for (size_t j = from; j <= token; j++) {
        triage_values(a->k, kv_at(a, batch, j, kv), d, row);
        total += p[j] = exp((double)a->args.scale * dot(q, row, d));
    }
    for (size_t j = from; j <= token; j++) {
        triage_values(a->v, kv_at(a, batch, j, kv), d, row);
        for (size_t c = 0; c < d; c++)
            sum_add(&o[c], p[j] / total * row[c]);
    }
    size_t line = (batch * a->s.heads + head) * a->s.seq + token;
    triage_read(a->t, a->lse, line, 1, &lse);
    triage_check(a->lse, line, lse, log(total), a->score_noise);
    triage_read(a->t, a->o, at, d, got);
    for (size_t c = 0; c < d; c++)
        triage_check(a->o, at + c, got[c], o[c].value, sum_noise(a, &o[c]));
}

static void each_query(struct attention *a,
                       void (*check)(struct attention *, size_t, size_t, size_t))
{
    const struct triage_shape *s = &a->s;
    size_t samples[TRIAGE_SAMPLES];
    size_t count = triage_samples(s->batch * s->heads * s->seq, samples);
    for (size_t i = 0; i < count; i++)
        check(a, samples[i] / s->seq / s->heads, samples[i] / s->seq % s->heads,
              samples[i] % s->seq);
}

static void forward(enum triage_size size, enum hst_dtype dtype, struct attention_case c)
{
    struct attention a = attention_make(size, dtype, c);
    each_query(&a, check_query);
    triage_end(a.t);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* lse and o·dout of all queries of a sequence. */
static void load_sequence(struct attention *a, size_t batch)
{
    size_t heads = a->s.heads, seq = a->s.seq, d = a->s.head_dim;
    double *o = a->deltas, dout[HEAD_DIM_MAX];
    if (a->sequence == batch)
        return;
    if (!o) {
        a->log_sums = triage_doubles(heads * seq);
        a->deltas = triage_doubles(heads * seq);
    }
    o = malloc(heads * seq * d * sizeof *o);
    assert_non_null(o);
    triage_read(a->t, a->lse, batch * heads * seq, heads * seq, a->log_sums);
    triage_read(a->t, a->o, q_at(a, batch, 0, 0), heads * seq * d, o);
    for (size_t token = 0; token < seq; token++)
        for (size_t head = 0; head < heads; head++) {
            triage_values(a->dout, q_at(a, batch, token, head), d, dout);
            a->deltas[head * seq + token] = dot(o + (token * heads + head) * d, dout, d);
        }
    free(o);
    a->sequence = batch;
}

/* The gradient of a score is p·(dp − delta), both of which are f32 sums of head_dim products below
 * 1, of size √head_dim/3: off by some 1e-6. */
static const double dp_noise = 4e-6;

static void check_dq(struct attention *a, size_t batch, size_t head, size_t token)
{
    size_t d = a->s.head_dim, at = q_at(a, batch, token, head), kv = head / group_of(a);
    double q[HEAD_DIM_MAX], dout[HEAD_DIM_MAX], k[HEAD_DIM_MAX], v[HEAD_DIM_MAX];
    double got[HEAD_DIM_MAX], weights[HEAD_DIM_MAX] = {0}, scale = a->args.scale;
    struct sum sums[HEAD_DIM_MAX] = {{0}};
    load_sequence(a, batch);
    size_t line = head * a->s.seq + token;
    triage_values(a->q, at, d, q);
    triage_values(a->dout, at, d, dout);
    for (size_t j = key_from(a, batch, token); j <= token; j++) {
        triage_values(a->k, kv_at(a, batch, j, kv), d, k);
        triage_values(a->v, kv_at(a, batch, j, kv), d, v);
        double p = exp(scale * dot(q, k, d) - a->log_sums[line]);
        double ds = scale * p * (dot(dout, v, d) - a->deltas[line]);
        for (size_t c = 0; c < d; c++) {
            sum_add(&sums[c], ds * k[c]);
            weights[c] += scale * p * fabs(k[c]);
        }
    }
    triage_read(a->t, a->dq, at, d, got);
    for (size_t c = 0; c < d; c++)
        triage_check(a->dq, at + c, got[c], sums[c].value,
                     sum_noise(a, &sums[c]) + dp_noise * weights[c]);
}

/* What a key and its value get of one query head. */
struct key_sums {
    struct sum dk[HEAD_DIM_MAX], dv[HEAD_DIM_MAX];
    double weights[HEAD_DIM_MAX];
};

static void sum_key(struct attention *a, size_t batch, size_t head, size_t token,
                    struct key_sums *sums)
{
    size_t d = a->s.head_dim, at = kv_at(a, batch, token, head / group_of(a));
    double q[HEAD_DIM_MAX], dout[HEAD_DIM_MAX], k[HEAD_DIM_MAX], v[HEAD_DIM_MAX];
    double scale = a->args.scale;
    triage_values(a->k, at, d, k);
    triage_values(a->v, at, d, v);
    for (size_t i = token; i < a->s.seq && key_from(a, batch, i) <= token; i++) {
        size_t line = head * a->s.seq + i;
        triage_values(a->q, q_at(a, batch, i, head), d, q);
        triage_values(a->dout, q_at(a, batch, i, head), d, dout);
        double p = exp(scale * dot(q, k, d) - a->log_sums[line]);
        double ds = scale * p * (dot(dout, v, d) - a->deltas[line]);
        for (size_t c = 0; c < d; c++) {
            sum_add(&sums->dk[c], ds * q[c]);
            sum_add(&sums->dv[c], p * dout[c]);
            sums->weights[c] += scale * p * fabs(q[c]);
        }
    }
}

static void sum_join(const struct attention *a, const struct sum *part, struct sum *all,
                     double *noise)
{
    if (a->half > 0) /* cuDNN rounds each head's before it adds them */
        *noise += rounding(a->args.dtype, part->value);
    all->value += part->value;
    all->squares += part->squares;
    all->sizes += part->sizes;
}

static void check_key(struct attention *a, size_t batch, size_t kv, size_t token)
{
    size_t d = a->s.head_dim, at = kv_at(a, batch, token, kv), group = group_of(a);
    double got[2][HEAD_DIM_MAX], noise[2][HEAD_DIM_MAX] = {{0}};
    struct key_sums all = {{{0, 0, 0}}, {{0, 0, 0}}, {0}};
    load_sequence(a, batch);
    for (size_t head = kv * group; head < (kv + 1) * group; head++) {
        struct key_sums part = {{{0, 0, 0}}, {{0, 0, 0}}, {0}};
        sum_key(a, batch, head, token, &part);
        for (size_t c = 0; c < d; c++) {
            sum_join(a, &part.dk[c], &all.dk[c], &noise[0][c]);
            sum_join(a, &part.dv[c], &all.dv[c], &noise[1][c]);
            noise[0][c] += dp_noise * part.weights[c];
        }
    }
    triage_read(a->t, a->dk, at, d, got[0]);
    triage_read(a->t, a->dv, at, d, got[1]);
    for (size_t c = 0; c < d; c++) {
        triage_check(a->dk, at + c, got[0][c], all.dk[c].value,
                     noise[0][c] + sum_noise(a, &all.dk[c]));
        triage_check(a->dv, at + c, got[1][c], all.dv[c].value,
                     noise[1][c] + sum_noise(a, &all.dv[c]));
    }
}

void attention_run_backward(struct attention *a)
{
    struct hst_attention_backward args = {a->args, a->dout->data, a->dq->data, a->dk->data,
                                          a->dv->data};
    triage_taken(hst_op_attention_backward(a->t->stream, &args));
    triage_sync(a->t);
}

static void backward(enum triage_size size, enum hst_dtype dtype, struct attention_case c)
{
    c.backward = true;
    struct attention a = attention_make(size, dtype, c);
    const struct triage_shape *s = &a.s;
    size_t samples[TRIAGE_SAMPLES];
    attention_run_backward(&a);
    each_query(&a, check_dq);
    size_t count = triage_samples(s->batch * s->kv_heads * s->seq, samples);
    for (size_t i = 0; i < count; i += count < TRIAGE_SAMPLES ? 1 : 3) /* the 63rd is the last */
        check_key(&a, samples[i] / s->seq / s->kv_heads, samples[i] / s->seq % s->kv_heads,
                  samples[i] % s->seq);
    triage_end(a.t);
}

static void attention(enum triage_size size, enum hst_dtype dtype)
{
    forward(size, dtype, (struct attention_case){.cut = 1});
}

static void attention_backward(enum triage_size size, enum hst_dtype dtype)
{
    backward(size, dtype, (struct attention_case){.cut = 1});
}

static void attention_quarter(enum triage_size size, enum hst_dtype dtype)
{
    forward(size, dtype, (struct attention_case){.cut = 4});
}

static void attention_backward_quarter(enum triage_size size, enum hst_dtype dtype)
{
    backward(size, dtype, (struct attention_case){.cut = 4});
}

static void attention_window(enum triage_size size, enum hst_dtype dtype)
{
    forward(size, dtype, (struct attention_case){.cut = 1, .windowed = true});
}

static void attention_backward_window(enum triage_size size, enum hst_dtype dtype)
{
    backward(size, dtype, (struct attention_case){.cut = 1, .windowed = true});
}

static void attention_documents(enum triage_size size, enum hst_dtype dtype)
{
    forward(size, dtype, (struct attention_case){.cut = 1, .packed = true});
}

static void attention_backward_documents(enum triage_size size, enum hst_dtype dtype)
{
    backward(size, dtype, (struct attention_case){.cut = 1, .packed = true});
}

TRIAGE_TESTS(attention)
TRIAGE_TESTS(attention_backward)
TRIAGE_TESTS(attention_window)
TRIAGE_TESTS(attention_backward_window)
TRIAGE_SHAPES(attention_documents)
TRIAGE_SHAPES(attention_backward_documents)
TRIAGE_TEST(attention_quarter_real_shape_f32, attention_quarter, TRIAGE_REAL, HST_F32)
TRIAGE_TEST(attention_quarter_real_shape_bf16, attention_quarter, TRIAGE_REAL, HST_BF16)
TRIAGE_TEST(attention_quarter_real_shape_f16, attention_quarter, TRIAGE_REAL, HST_F16)
TRIAGE_TEST(attention_backward_quarter_real_shape_f32, attention_backward_quarter, TRIAGE_REAL,
            HST_F32)
TRIAGE_TEST(attention_backward_quarter_real_shape_bf16, attention_backward_quarter, TRIAGE_REAL,
            HST_BF16)
TRIAGE_TEST(attention_backward_quarter_real_shape_f16, attention_backward_quarter, TRIAGE_REAL,
            HST_F16)

struct triage_tests triage_attention_tests(void)
{
    static const struct CMUnitTest tests[] = {
        TRIAGE_LIST(attention),
        TRIAGE_LIST(attention_backward),
        TRIAGE_LIST(attention_window),
        TRIAGE_LIST(attention_backward_window),
        TRIAGE_SHAPES_LIST(attention_documents),
        TRIAGE_SHAPES_LIST(attention_backward_documents),
        cmocka_unit_test(attention_quarter_real_shape_f32),
        cmocka_unit_test(attention_quarter_real_shape_bf16),
        cmocka_unit_test(attention_quarter_real_shape_f16),
        cmocka_unit_test(attention_backward_quarter_real_shape_f32),
        cmocka_unit_test(attention_backward_quarter_real_shape_bf16),
        cmocka_unit_test(attention_backward_quarter_real_shape_f16),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
