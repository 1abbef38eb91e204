/* SPDX-License-Identifier: Apache-2.0 */
/* Causal grouped-query attention and its backward; sequences longer than one tile of keys included.
 */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    struct ref_attention of;
    enum hst_dtype dtype;
    double spread; /* of q and k: how sharp the softmax is */
};

static size_t q_count(const struct ref_attention *a)
{
    return a->batch * a->seq * a->heads * a->head_dim;
}

static size_t kv_count(const struct ref_attention *a)
{
    return a->batch * a->seq * a->kv_heads * a->head_dim;
}

struct operands {
    struct tensor *q, *k, *v, *o, *lse;
    struct hst_attention args;
};

static struct operands make_operands(struct suite *s, const struct shape *p)
{
    const struct ref_attention *a = &p->of;
    struct operands t = {.q = tensor_random(s, q_count(a), p->dtype, p->spread),
                         .k = tensor_random(s, kv_count(a), p->dtype, p->spread),
                         .v = tensor_random(s, kv_count(a), p->dtype, 1),
                         .o = tensor_empty(s, q_count(a), p->dtype),
                         .lse = tensor_empty(s, a->batch * a->heads * a->seq, HST_F32)};
    t.args = (struct hst_attention){.batch = a->batch,
                                    .seq = a->seq,
                                    .heads = a->heads,
                                    .kv_heads = a->kv_heads,
                                    .head_dim = a->head_dim,
                                    .dtype = p->dtype,
                                    .scale = (float)a->scale,
                                    .q = t.q->data,
                                    .k = t.k->data,
                                    .v = t.v->data,
                                    .o = t.o->data,
                                    .lse = t.lse->data};
    t.args.work = suite_work(s, hst_attention_work_bytes(s->dev, &t.args));
    return t;
}

/* Matrix units may round the softmax's weights, which sum to 1, to 16 bits: half an ulp of each
 * term, and v is below 1. */
static double weights_noise(const struct suite *s, enum hst_dtype dtype)
{
    return suite_rounds_weights(s->dev, dtype) ? rounding(dtype, 0.5) : 0;
}

static void forward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    double *o = malloc(t.o->count * sizeof *o), *lse = malloc(t.lse->count * sizeof *lse);
    assert_true(o && lse);
    ref_attention(&p->of, t.q->values, t.k->values, t.v->values, o, lse);
    assert_int_equal(hst_op_attention(s->stream, &t.args), 0);
    suite_sync(s);
    tensor_read(s, t.o);
    tensor_read(s, t.lse);
    /* A score's error moves exp by as much: head_dim products of size spread², times the scale. */
    double score = fabs(p->of.scale) * p->spread * p->spread * (double)p->of.head_dim;
    expect_close("o", t.o, o, 4e-7 * (score + 4) + weights_noise(s, p->dtype));
    expect_close("lse", t.lse, lse, 4e-7 * (score + 4));
    free(o);
    free(lse);
}

static const struct ref_attention shapes[] = {
    {1, 1, 1, 1, 4, 0.5},     {2, 5, 2, 2, 8, 0.35},    {1, 64, 2, 1, 16, 0.25},
    {3, 33, 4, 2, 12, 0.3},   {1, 65, 3, 1, 64, 0.125}, {1, 130, 2, 2, 80, 0.11},
    {1, 600, 2, 1, 16, 0.25}, {1, 1100, 1, 1, 8, 0.35},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Long sequences take most of the time. */
static bool is_tried(size_t shape, size_t dtype)
{
    return shapes[shape].seq < 600 || suite_tries(shape, dtype);
}

static void every_shape_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES * DTYPES; i++)
        if (is_tried(i / DTYPES, i % DTYPES))
            suite_run(forward_case,
                      &(struct shape){shapes[i / DTYPES], suite_dtypes[i % DTYPES], 1});
}

static void sharp_softmaxes_match(void **state)
{
    (void)state;
    suite_run(forward_case, &(struct shape){{1, 600, 1, 1, 32, 0.5}, HST_F32, 6});
    suite_run(forward_case, &(struct shape){{1, 40, 2, 1, 16, 8}, HST_F32, 4});
}

struct loss {
    const struct ref_attention *of;
    struct operands *t;
    double *dout, *o, *lse;
};

static double loss_of(void *context)
{
    struct loss *l = context;
    ref_attention(l->of, l->t->q->values, l->t->k->values, l->t->v->values, l->o, l->lse);
    return ref_dot(l->o, l->dout, q_count(l->of));
}

/* Slopes at places spread over the tensor, the last element among them: as many as a second allows.
 */
static void expect_slopes(const char *what, struct loss *l, struct tensor *of,
                          const struct tensor *got, double noise)
{
    double cost = (double)q_count(l->of) * (double)l->of->seq;
    size_t samples = cost > 1e6 ? 4 : 24, step = of->count / samples + 1;
    for (size_t i = (of->count - 1) % step; i < of->count; i += step) {
        double want = ref_slope(loss_of, l, &of->values[i], 1e-5);
        double allowed = rounding(got->dtype, want) + noise;
        if (!(fabs(got->values[i] - want) <= allowed))
            fail_msg("%s[%zu] is %.9g, not %.9g", what, i, got->values[i], want);
    }
}

/* In 16 bits the backward reads an o that was rounded: a term of dscores is off by half an ulp of
 * |o|·|dout|. */
static double gradient_noise(const struct shape *p)
{
    double group = (double)p->of.heads / (double)p->of.kv_heads, late = (double)p->of.seq;
    double term = p->dtype == HST_F32 ? 2e-6 : 1.03 * rounding(p->dtype, 1);
    return term * (1 + sqrt(group * late) * 0.1);
}

static void backward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    struct tensor *dout = tensor_random(s, t.q->count, p->dtype, 1);
    struct tensor *dq = tensor_empty(s, t.q->count, p->dtype);
    struct tensor *dk = tensor_empty(s, t.k->count, p->dtype);
    struct tensor *dv = tensor_empty(s, t.k->count, p->dtype);
    struct loss l = {&p->of, &t, dout->values, malloc(t.o->count * 8), malloc(t.lse->count * 8)};
    assert_true(l.o && l.lse);
    assert_int_equal(hst_op_attention(s->stream, &t.args), 0);
    struct hst_attention_backward args = {t.args, dout->data, dq->data, dk->data, dv->data};
    assert_int_equal(hst_op_attention_backward(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, dq);
    tensor_read(s, dk);
    tensor_read(s, dv);
    double noise = gradient_noise(p);
    expect_slopes("dq", &l, t.q, dq, noise);
    expect_slopes("dk", &l, t.k, dk, noise);
    expect_slopes("dv", &l, t.v, dv, noise);
    free(l.o);
    free(l.lse);
}

static void the_backward_is_the_slope_of_the_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES * DTYPES; i++)
        if (shapes[i / DTYPES].seq <= 600 && is_tried(i / DTYPES, i % DTYPES))
            suite_run(backward_case,
                      &(struct shape){shapes[i / DTYPES], suite_dtypes[i % DTYPES], 1});
}

/* ---- tiles of tensor cores ------------------------------------------------------------------- */

/* What a device with tensor cores serves by tiles of 32 to 128 rows: sequences at, below and beyond
 * an edge of a tile, groups of 1 and 4, two sequences. */
static const struct ref_attention tiled[] = {
    {2, 1, 4, 1, 64, 0.125},     {2, 17, 4, 1, 128, 0.088}, {1, 64, 1, 1, 128, 0.088},
    {2, 65, 2, 2, 64, 0.125},    {1, 129, 4, 1, 64, 0.125}, {1, 129, 1, 1, 128, 0.088},
    {1, 200, 4, 1, 128, 0.088},  {2, 200, 1, 1, 64, 0.125}, {1, 97, 2, 1, 96, 0.102},
    {1, 100, 2, 1, 256, 0.0625},
};
enum { TILED = sizeof tiled / sizeof *tiled };

static void tiles_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < TILED; i++)
        for (enum hst_dtype dtype = HST_BF16; dtype <= HST_F16; dtype++)
            suite_run(forward_case, &(struct shape){tiled[i], dtype, 1});
}

/* Raw scores of about ±1000: one key takes nearly all weight, others round to nothing. */
static void huge_scores_match(void **state)
{
    (void)state;
    for (enum hst_dtype dtype = HST_BF16; dtype <= HST_F16; dtype++) {
        suite_run(forward_case, &(struct shape){{1, 129, 4, 1, 64, 0.125}, dtype, 20});
        suite_run(forward_case, &(struct shape){{1, 200, 1, 1, 128, 0.088}, dtype, 16});
        suite_run(forward_case, &(struct shape){{1, 65, 2, 1, 64, -0.125}, dtype, 20});
    }
}

/* What a tensor of keys is with a copy of its head for each query head of the group. */
static double *copy_to_heads(const struct ref_attention *a, const double *of_keys)
{
    size_t d = a->head_dim, group = a->heads / a->kv_heads;
    double *copies = malloc(q_count(a) * sizeof *copies);
    assert_non_null(copies);
    for (size_t i = 0; i < q_count(a); i++)
        copies[i] = of_keys[i / d / group * d + i % d];
    return copies;
}

/*
 * cuDNN rounds each query head's dk and dv before it adds those of a group, which is more than an
 * f32 sum loses: half an ulp of each. Null where the device adds before it rounds.
 */
struct parts {
    double *of[3]; /* dq, dk, dv, by query heads */
};

static struct parts find_parts(struct suite *s, const struct shape *p, const struct operands *t,
                               const struct tensor *dout)
{
    struct ref_attention alone = p->of;
    struct parts parts = {{NULL}};
    char math[HST_DEV_MATH_BYTES];
    hst_dev_math(s->dev, math, sizeof math);
    if (!strstr(math, "attention by cuDNN") || p->dtype == HST_F32 || alone.kv_heads == alone.heads)
        return parts;
    alone.kv_heads = alone.heads;
    double *k = copy_to_heads(&p->of, t->k->values), *v = copy_to_heads(&p->of, t->v->values);
    for (size_t i = 0; i < 3; i++)
        assert_non_null(parts.of[i] = malloc(q_count(&alone) * sizeof(double)));
    ref_attention_backward(&alone, t->q->values, k, v, dout->values, parts.of[0], parts.of[1],
                           parts.of[2]);
    free(k);
    free(v);
    return parts;
}

/* expect_close, with the roundings of parts. */
static void expect_sums(const char *what, const struct shape *p, const struct tensor *got,
                        const double *want, double noise, const double *part)
{
    size_t d = p->of.head_dim, group = p->of.heads / p->of.kv_heads;
    for (size_t i = 0; i < got->count; i++) {
        double allowed = rounding(got->dtype, fabs(want[i]) + noise) + noise;
        for (size_t head = 0; head < group; head++)
            allowed += rounding(got->dtype, fabs(part[(i / d * group + head) * d + i % d]) + noise);
        if (!(fabs(got->values[i] - want[i]) <= allowed))
            fail_msg("%s[%zu] is %.9g, not %.9g: allowed %.3g", what, i, got->values[i], want[i],
                     allowed);
    }
}

/* Every element of the gradients. What dscores are off by reaches dq and
 * dk times an element of k or q. */
static void gradients_case(struct suite *s, const void *parameters)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    struct tensor *dout = tensor_random(s, t.q->count, p->dtype, 1);
    struct tensor *got[3] = {tensor_empty(s, t.q->count, p->dtype),
                             tensor_empty(s, t.k->count, p->dtype),
                             tensor_empty(s, t.k->count, p->dtype)};
    double *want[3];
    for (size_t i = 0; i < 3; i++)
        assert_non_null(want[i] = malloc(got[i]->count * sizeof *want[i]));
    ref_attention_backward(&p->of, t.q->values, t.k->values, t.v->values, dout->values, want[0],
                           want[1], want[2]);
    assert_int_equal(hst_op_attention(s->stream, &t.args), 0);
    struct hst_attention_backward args = {t.args, dout->data, got[0]->data, got[1]->data,
                                          got[2]->data};
    assert_int_equal(hst_op_attention_backward(s->stream, &args), 0);
    suite_sync(s);
    struct parts parts = find_parts(s, p, &t, dout);
    for (size_t i = 0; i < 3; i++) {
        double noise = gradient_noise(p) * (i < 2 ? p->spread : 1);
        tensor_read(s, got[i]);
        if (i && parts.of[i])
            expect_sums(names[i], p, got[i], want[i], noise, parts.of[i]);
        else
            expect_close(names[i], got[i], want[i], noise);
        free(want[i]);
        free(parts.of[i]);
    }
}

static void every_gradient_of_a_tile_matches(void **state)
{
    (void)state;
    for (enum hst_dtype dtype = HST_BF16; dtype <= HST_F16; dtype++) {
        for (size_t i = 0; i < TILED; i++)
            suite_run(gradients_case, &(struct shape){tiled[i], dtype, 1});
        suite_run(gradients_case, &(struct shape){{1, 129, 4, 1, 64, 0.125}, dtype, 20});
    }
    suite_run(gradients_case, &(struct shape){{1, 129, 2, 1, 80, 0.11}, HST_F32, 1});
}

/* What gradients_case compares with. */
static void the_references_gradients_are_slopes(void **state)
{
    (void)state;
    const struct ref_attention of = {2, 5, 4, 2, 3, 0.6};
    double x[4][2 * 5 * 4 * 3], dx[3][2 * 5 * 4 * 3], o[2 * 5 * 4 * 3], lse[2 * 5 * 4];
    struct tensor tensors[3];
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 2 * 5 * 4 * 3; j++)
            x[i][j] = sin((double)(i * 131 + j) * 1.7);
    for (size_t i = 0; i < 3; i++)
        tensors[i].values = x[i];
    struct operands t = {.q = &tensors[0], .k = &tensors[1], .v = &tensors[2]};
    struct loss l = {&of, &t, x[3], o, lse};
    ref_attention_backward(&of, x[0], x[1], x[2], x[3], dx[0], dx[1], dx[2]);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < (i ? kv_count(&of) : q_count(&of)); j++)
            assert_true(fabs(ref_slope(loss_of, &l, &x[i][j], 1e-5) - dx[i][j]) < 1e-8);
}

/* ---- one sequence, wrong arguments ----------------------------------------------------------- */

static void sequences_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct shape half = *p;
    half.of.batch = 1;
    struct operands both = make_operands(s, p);
    assert_int_equal(hst_op_attention(s->stream, &both.args), 0);
    struct tensor *again = tensor_empty(s, both.o->count, p->dtype);
    for (size_t b = 0; b < 2; b++) {
        struct hst_attention one = both.args;
        one.batch = 1;
        one.q = (float *)both.q->data + b * q_count(&half.of);
        one.k = (float *)both.k->data + b * kv_count(&half.of);
        one.v = (float *)both.v->data + b * kv_count(&half.of);
        one.o = (float *)again->data + b * q_count(&half.of);
        one.lse = (float *)both.lse->data + b * half.of.heads * half.of.seq;
        assert_int_equal(hst_op_attention(s->stream, &one), 0);
    }
    suite_sync(s);
    tensor_read(s, both.o);
    tensor_read(s, again);
    assert_memory_equal(both.o->values, again->values, again->count * sizeof(double));
}

static void each_sequence_is_computed_by_itself(void **state)
{
    (void)state;
    suite_run(sequences_case, &(struct shape){{2, 70, 2, 1, 16, 0.25}, HST_F32, 1});
}

static void refusals_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    struct hst_attention bad[9];
    for (size_t i = 0; i < 9; i++)
        bad[i] = t.args;
    bad[0].kv_heads = 3;
    bad[1].seq = 0;
    bad[2].q = NULL;
    bad[3].o = t.q->data;
    bad[4].work.size_bytes = hst_attention_work_bytes(s->dev, &t.args) - 1;
    bad[5].lse = NULL;
    bad[6].dtype = 9;
    bad[7].head_dim = 0;
    bad[8].batch = SIZE_MAX / 4;
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(hst_op_attention(s->stream, &bad[i]), -EINVAL);
    struct tensor *dout = tensor_random(s, t.q->count, p->dtype, 1);
    struct tensor *dq = tensor_empty(s, t.q->count, p->dtype);
    struct tensor *dk = tensor_empty(s, t.k->count, p->dtype);
    struct tensor *dv = tensor_empty(s, t.k->count, p->dtype);
    const struct hst_attention_backward good = {t.args, dout->data, dq->data, dk->data, dv->data};
    struct hst_attention_backward wrong[5] = {good, good, good, good, good};
    wrong[0].dq = dout->data;
    wrong[1].dk = dv->data;
    wrong[2].dv = t.v->data;
    wrong[3].dout = NULL;
    wrong[4].forward.heads = 0;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(hst_op_attention_backward(s->stream, &wrong[i]), -EINVAL);
    suite_sync(s);
    tensor_read(s, dq);
    for (size_t i = 0; i < dq->count; i++)
        assert_true(isnan(dq->values[i]));
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, &(struct shape){shapes[3], HST_F32, 1});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_matches),
        cmocka_unit_test(sharp_softmaxes_match),
        cmocka_unit_test(the_backward_is_the_slope_of_the_forward),
        cmocka_unit_test(tiles_match),
        cmocka_unit_test(huge_scores_match),
        cmocka_unit_test(every_gradient_of_a_tile_matches),
        cmocka_unit_test(the_references_gradients_are_slopes),
        cmocka_unit_test(each_sequence_is_computed_by_itself),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
