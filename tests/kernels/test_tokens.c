/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a model, where token ids come in: embedding and cross-entropy. */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    size_t tokens, vocab, width;
    enum hst_dtype dtype;
};

static void embedding_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct tensor *ids = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *weight = tensor_random(s, p->vocab * p->width, p->dtype, 1);
    struct tensor *out = tensor_empty(s, p->tokens * p->width, p->dtype);
    struct tensor *dweight = tensor_random(s, p->vocab * p->width, HST_F32, 1);
    float *want = malloc(dweight->count * sizeof *want);
    assert_non_null(want);
    for (size_t i = 0; i < dweight->count; i++)
        want[i] = (float)dweight->values[i];
    assert_int_equal(
        hst_op_embedding(s->stream, &(struct hst_embedding){p->tokens, p->vocab, p->width, p->dtype,
                                                            ids->data, weight->data, out->data}),
        0);
    assert_int_equal(
        hst_op_embedding_backward(
            s->stream, &(struct hst_embedding_backward){p->tokens, p->vocab, p->width, p->dtype,
                                                        ids->data, out->data, dweight->data}),
        0);
    suite_sync(s);
    tensor_read(s, out);
    tensor_read(s, dweight);
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t i = 0; i < p->width; i++) {
            size_t row = (size_t)ids->values[t];
            assert_true(out->values[t * p->width + i] == weight->values[row * p->width + i]);
            want[row * p->width + i] +=
                (float)out->values[t * p->width + i]; /* rising tokens: exact */
        }
    for (size_t i = 0; i < dweight->count; i++)
        assert_true(dweight->values[i] == want[i]);
    free(want);
}

static void embedding_and_its_backward_are_exact(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {
        {1, 1, 1}, {7, 3, 5}, {100, 11, 33}, {300, 50, 130}, {64, 2, 512}};
    for (size_t i = 0; i < 10; i++)
        suite_run(embedding_case, &(struct shape){sizes[i / 2][0], sizes[i / 2][1], sizes[i / 2][2],
                                                  i % 2 ? HST_BF16 : HST_F32});
}

struct loss {
    size_t vocab;
    double *logits, *targets;
};

static double loss_of(void *context)
{
    struct loss *l = context;
    double loss;
    ref_cross_entropy(1, l->vocab, l->logits, l->targets, &loss);
    return loss;
}

static void cross_entropy_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    const double grad_scale = 0.25;
    struct tensor *logits = tensor_random(s, p->tokens * p->vocab, p->dtype, 8);
    struct tensor *targets = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *loss = tensor_empty(s, p->tokens, HST_F32);
    double *want_loss = malloc(p->tokens * 8), *want = malloc(logits->count * 8);
    assert_true(want_loss && want);
    ref_cross_entropy(p->tokens, p->vocab, logits->values, targets->values, want_loss);
    for (size_t i = 0; i < logits->count; i++) {
        size_t t = i / p->vocab;
        struct loss l = {p->vocab, logits->values + t * p->vocab, targets->values + t};
        want[i] = grad_scale * ref_slope(loss_of, &l, &logits->values[i], 1e-4);
    }
    struct hst_cross_entropy args = {.tokens = p->tokens,
                                     .vocab = p->vocab,
                                     .dtype = p->dtype,
                                     .logits = logits->data,
                                     .targets = targets->data,
                                     .loss = loss->data,
                                     .grad_scale = (float)grad_scale};
    double *before = malloc(logits->count * 8);
    assert_non_null(before);
    memcpy(before, logits->values, logits->count * 8);
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    assert_memory_equal(logits->values, before, logits->count * 8); /* no gradient asked for */
    expect_close("loss", loss, want_loss, 4e-6);
    args.want_grad = true;
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    expect_close("loss", loss, want_loss, 4e-6);
    expect_close("gradient", logits, want, 4e-7);
    free(want_loss);
    free(want);
    free(before);
}

static void cross_entropy_and_its_gradient_match(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1},  {1, 2},    {3, 5},   {7, 16},
                                      {5, 33}, {40, 257}, {2, 1100}};
    for (size_t i = 0; i < 14; i++)
        suite_run(cross_entropy_case,
                  &(struct shape){sizes[i / 2][0], sizes[i / 2][1], 0, i % 2 ? HST_BF16 : HST_F32});
}

static void large_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    enum { VOCAB = 50 };
    struct tensor *logits = tensor_random(s, VOCAB, HST_F32, 1e30),
                  *loss = tensor_empty(s, 1, HST_F32);
    struct tensor *targets = tensor_ids(s, 1, 1);
    assert_int_equal(
        hst_op_cross_entropy(s->stream,
                             &(struct hst_cross_entropy){1, VOCAB, HST_F32, logits->data,
                                                         targets->data, loss->data, 1, true}),
        0);
    double top = 0;
    for (size_t i = 1; i < VOCAB; i++)
        if (logits->values[i] > logits->values[(size_t)top])
            top = (double)i;
    double want = logits->values[(size_t)top] - logits->values[0];
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    assert_true(fabs(loss->values[0] - want) <= 1e-6 * want);
    assert_true(logits->values[(size_t)top] == 1 && logits->values[0] == -1);
}

static void huge_logits_neither_overflow_nor_lose_the_loss(void **state)
{
    (void)state;
    suite_run(large_case, NULL);
}

static void rows_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    enum { TOKENS = 9, VOCAB = 68 };
    struct tensor *logits = tensor_random(s, (size_t)TOKENS * VOCAB, HST_F32, 4);
    struct tensor *again = tensor_empty(s, (size_t)TOKENS * VOCAB, HST_F32);
    struct tensor *targets = tensor_ids(s, TOKENS, VOCAB);
    struct tensor *loss = tensor_empty(s, TOKENS, HST_F32),
                  *loss_again = tensor_empty(s, TOKENS, HST_F32);
    memcpy(again->values, logits->values, logits->count * 8);
    tensor_write(s, again);
    struct hst_cross_entropy args = {TOKENS,        VOCAB,      HST_F32, logits->data,
                                     targets->data, loss->data, 1,       true};
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    for (size_t t = 0; t < TOKENS; t++) {
        args = (struct hst_cross_entropy){1,
                                          VOCAB,
                                          HST_F32,
                                          (float *)again->data + t * VOCAB,
                                          (uint32_t *)targets->data + t,
                                          (float *)loss_again->data + t,
                                          1,
                                          true};
        assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    }
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, again);
    tensor_read(s, loss);
    tensor_read(s, loss_again);
    assert_memory_equal(logits->values, again->values, logits->count * 8);
    assert_memory_equal(loss->values, loss_again->values, (size_t)TOKENS * 8);
}

static void rows_in_one_call_or_many_give_the_same_bytes(void **state)
{
    (void)state;
    suite_run(rows_case, NULL);
}

/* An id that is the vocabulary's size fails the stream, after which nothing runs. */
static void domain_case(struct suite *s, const void *parameters)
{
    int which = *(const int *)parameters;
    struct tensor *ids = tensor_ids(s, 5, 4), *f = tensor_filled(s, 64, HST_F32, 3);
    struct tensor *out = tensor_filled(s, 20, HST_F32, 3);
    memcpy(s->staging, &(uint32_t){4}, 4);
    assert_int_equal(hst_stream_copy(s->stream, (uint32_t *)ids->data + 3, s->staging, 4), 0);
    if (which == 0)
        assert_int_equal(
            hst_op_embedding(s->stream, &(struct hst_embedding){5, 4, 4, HST_F32, ids->data,
                                                                f->data, out->data}),
            0);
    if (which == 1)
        assert_int_equal(
            hst_op_embedding_backward(
                s->stream,
                &(struct hst_embedding_backward){5, 4, 4, HST_F32, ids->data, f->data, out->data}),
            0);
    if (which == 2)
        assert_int_equal(hst_op_cross_entropy(
                             s->stream, &(struct hst_cross_entropy){5, 4, HST_F32, out->data,
                                                                    ids->data, f->data, 1, true}),
                         0);
    int zeroed = hst_stream_zero(s->stream, f->data, 64);
    assert_true(zeroed == 0 || zeroed == -EDOM);
    assert_int_equal(hst_stream_sync(s->stream), -EDOM);
    assert_int_equal(hst_stream_zero(s->stream, f->data, 64), -EDOM);
    assert_int_equal(hst_stream_sync(s->stream), -EDOM);
    hst_stream_destroy(&s->stream);
    assert_int_equal(hst_stream_create(s->dev, "after", &s->stream), 0);
    tensor_read(s, out);
    tensor_read(s, f);
    for (size_t i = 0; i < 20; i++)
        assert_true(out->values[i] == 3 && f->values[i] == 3);
}

static void an_id_out_of_range_fails_the_stream_before_anything_is_written(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        suite_run(domain_case, &which);
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    uint32_t *u = t->data;
    assert_int_equal(
        hst_op_embedding(s->stream, &(struct hst_embedding){5, 0, 4, HST_F32, u, f, f}), -EINVAL);
    assert_int_equal(
        hst_op_embedding(s->stream, &(struct hst_embedding){5, 4, 0, HST_F32, u, f, f}), -EINVAL);
    assert_int_equal(
        hst_op_embedding(s->stream, &(struct hst_embedding){5, 4, 4, HST_F32, NULL, f, f}),
        -EINVAL);
    assert_int_equal(hst_op_embedding(s->stream, &(struct hst_embedding){5, 4, 4, 5, u, f, f}),
                     -EINVAL);
    assert_int_equal(hst_op_embedding_backward(
                         s->stream, &(struct hst_embedding_backward){5, 4, 4, HST_F32, u, f, NULL}),
                     -EINVAL);
    assert_int_equal(
        hst_op_embedding_backward(
            s->stream, &(struct hst_embedding_backward){5, SIZE_MAX / 2, 4, HST_F32, u, f, f}),
        -EINVAL);
    assert_int_equal(
        hst_op_cross_entropy(s->stream, &(struct hst_cross_entropy){5, 0, HST_F32, f, u, f, 1, 0}),
        -EINVAL);
    assert_int_equal(hst_op_cross_entropy(
                         s->stream, &(struct hst_cross_entropy){5, 4, HST_F32, f, u, NULL, 1, 0}),
                     -EINVAL);
    assert_int_equal(hst_op_cross_entropy(
                         s->stream, &(struct hst_cross_entropy){5, 4, HST_F32, f + 1, u, f, 1, 0}),
                     -EINVAL);
    suite_sync(s);
    tensor_read(s, t);
    for (size_t i = 0; i < t->count; i++)
        assert_true(t->values[i] == 3);
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, NULL);
}

int main(int argc, char **argv)
{
    suite_begin(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_and_its_backward_are_exact),
        cmocka_unit_test(cross_entropy_and_its_gradient_match),
        cmocka_unit_test(huge_logits_neither_overflow_nor_lose_the_loss),
        cmocka_unit_test(rows_in_one_call_or_many_give_the_same_bytes),
        cmocka_unit_test(an_id_out_of_range_fails_the_stream_before_anything_is_written),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
