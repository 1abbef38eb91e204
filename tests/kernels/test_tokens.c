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
    double *want = malloc(dweight->count * sizeof *want);
    assert_non_null(want);
    memcpy(want, dweight->values, dweight->count * sizeof *want);
    struct hst_work work =
        suite_work(s, hst_embedding_backward_work_bytes(s->dev, p->tokens, p->vocab));
    assert_int_equal(hst_op_embedding(s->stream, &(struct hst_embedding){.tokens = p->tokens,
                                                                         .vocab = p->vocab,
                                                                         .width = p->width,
                                                                         .dtype = p->dtype,
                                                                         .ids = ids->data,
                                                                         .weight = weight->data,
                                                                         .out = out->data}),
                     0);
    assert_int_equal(hst_op_embedding_backward(
                         s->stream, &(struct hst_embedding_backward){.tokens = p->tokens,
                                                                     .vocab = p->vocab,
                                                                     .width = p->width,
                                                                     .dtype = p->dtype,
                                                                     .ids = ids->data,
                                                                     .dout = out->data,
                                                                     .dweight = dweight->data,
                                                                     .work = work}),
                     0);
    suite_sync(s);
    tensor_read(s, out);
    tensor_read(s, dweight);
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t i = 0; i < p->width; i++) {
            size_t row = (size_t)ids->values[t];
            assert_true(out->values[t * p->width + i] == weight->values[row * p->width + i]);
            double *sum = &want[row * p->width + i]; /* one f32 addition each, rising tokens */
            *sum = (float)*sum + (float)out->values[t * p->width + i];
        }
    assert_memory_equal(dweight->values, want, dweight->count * sizeof *want);
    free(want);
}

static void embedding_and_its_backward_are_exact(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1},     {7, 3, 5},    {100, 11, 33}, {300, 50, 130},
                                      {64, 2, 512},  {33, 1, 68},  {257, 3, 516}, {9, 700, 1024},
                                      {4500, 40, 4}, {8200, 6, 1}, {2, 5, 4104}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(embedding_case,
                  &(struct shape){size[0], size[1], size[2], suite_dtypes[i % DTYPES]});
    }
}

/* ---- a row that is left out ---- */

/* Each id in turn, one that is out of range, and blocks of the rows: the others' bytes stay. */
static void skip_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    const size_t count = p->vocab * p->width;
    struct tensor *ids = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *dout = tensor_random(s, p->tokens * p->width, p->dtype, 1);
    struct tensor *all = tensor_filled(s, count, HST_F32, 3);
    struct hst_embedding_backward args = {
        .tokens = p->tokens,
        .vocab = p->vocab,
        .width = p->width,
        .dtype = p->dtype,
        .ids = ids->data,
        .dout = dout->data,
        .dweight = all->data,
        .work = suite_work(s, hst_embedding_backward_work_bytes(s->dev, p->tokens, p->vocab))};
    assert_int_equal(hst_op_embedding_backward(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, all);
    args.skips = true;
    for (uint32_t skipped = 0; skipped <= p->vocab; skipped++) {
        args.skip_id = skipped < p->vocab ? skipped : UINT32_MAX;
        for (size_t first = 0; first < p->vocab; first += args.rows) {
            args.first_row = first;
            args.rows = p->vocab - first < 2 ? p->vocab - first : 2;
            struct tensor *block = tensor_filled(s, args.rows * p->width, HST_F32, 3);
            args.dweight = block->data;
            assert_int_equal(hst_op_embedding_backward(s->stream, &args), 0);
            suite_sync(s);
            tensor_read(s, block);
            for (size_t i = 0; i < block->count; i++) {
                const bool left = first + i / p->width == skipped;
                assert_true(block->values[i] == (left ? 3 : all->values[first * p->width + i]));
            }
        }
    }
}

static void the_backward_leaves_out_one_row(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{9, 3, 5}, {60, 5, 132}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(skip_case, &(struct shape){size[0], size[1], size[2], suite_dtypes[i % DTYPES]});
    }
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

static void run_cross_entropy(struct suite *s, size_t tokens, size_t vocab,
                              const struct tensor *logits, const struct tensor *targets,
                              const struct tensor *loss)
{
    struct hst_cross_entropy args = suite_cross_entropy(tokens, vocab, logits, targets, loss);
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
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
    struct hst_cross_entropy args = suite_cross_entropy(p->tokens, p->vocab, logits, targets, loss);
    args.grad_scale = (float)grad_scale;
    args.want_grad = false;
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
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(cross_entropy_case,
                  &(struct shape){size[0], size[1], 0, suite_dtypes[i % DTYPES]});
    }
}

/* Vocabularies as long as real ones: slopes at some places, and every gradient in the row's sum. */
static void wide_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct tensor *logits = tensor_random(s, p->tokens * p->vocab, p->dtype, 8);
    struct tensor *targets = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *loss = tensor_empty(s, p->tokens, HST_F32);
    double *before = malloc(logits->count * sizeof *before), *want = malloc(p->tokens * 8);
    assert_true(before && want);
    memcpy(before, logits->values, logits->count * sizeof *before);
    ref_cross_entropy(p->tokens, p->vocab, before, targets->values, want);
    run_cross_entropy(s, p->tokens, p->vocab, logits, targets, loss);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    expect_close("loss", loss, want, 4e-6);
    for (size_t t = 0; t < p->tokens; t++) {
        double *row = before + t * p->vocab, total = 0;
        struct loss l = {p->vocab, row, targets->values + t};
        for (size_t i = 0; i < p->vocab; i++)
            total += logits->values[t * p->vocab + i];
        assert_true(fabs(total) <= (p->dtype == HST_F32 ? 1e-5 : rounding(p->dtype, 1)));
        for (size_t n = 0; n < 20; n++) {
            size_t i = n < 9 ? n : n < 18 ? p->vocab - n + 8 : (size_t)targets->values[t] + 18 - n;
            i = i < p->vocab ? i : 0; /* the target is the first, and what lies before it is none */
            double slope = ref_slope(loss_of, &l, &row[i], 1e-4);
            assert_true(fabs(logits->values[t * p->vocab + i] - slope) <=
                        rounding(p->dtype, slope) + 1e-6);
        }
    }
    free(before);
    free(want);
}

static void cross_entropy_of_long_rows_matches_wherever_they_begin(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{3, 4104}, {9, 4101}, {2, 33000}, {3, 16411}, {2, 33001}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(wide_case, &(struct shape){size[0], size[1], 0, suite_dtypes[i % DTYPES]});
    }
}

/* Logits of a masked vocabulary: the first `masked` of each row are -infinity. */
static void masked_case(struct suite *s, const void *parameters)
{
    enum { TOKENS = 3, VOCAB = 70 };
    size_t masked = *(const size_t *)parameters;
    struct tensor *logits = tensor_random(s, (size_t)TOKENS * VOCAB, HST_F32, 3);
    struct tensor *targets = tensor_ids(s, TOKENS, 1), *loss = tensor_empty(s, TOKENS, HST_F32);
    for (size_t i = 0; i < logits->count; i++)
        logits->values[i] = i % VOCAB < masked ? -INFINITY : logits->values[i] + 1e4;
    tensor_write(s, logits);
    double before[TOKENS * VOCAB], last = VOCAB - 1, want;
    memcpy(before, logits->values, sizeof before);
    for (size_t t = 0; t < TOKENS - 1; t++) /* the last row's target stays masked */
        memcpy(s->staging + 4 * t, &(uint32_t){VOCAB - 1}, 4);
    assert_int_equal(hst_stream_copy(s->stream, targets->data, s->staging, 4 * (TOKENS - 1)), 0);
    run_cross_entropy(s, TOKENS, VOCAB, logits, targets, loss);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    for (size_t t = 0; t < TOKENS; t++) {
        bool aimed = t < TOKENS - 1;
        double *row = before + t * VOCAB;
        ref_cross_entropy(1, VOCAB, row, &last, &want);
        assert_true(aimed ? fabs(loss->values[t] - want) <= 4e-6 : loss->values[t] == INFINITY);
        struct loss l = {VOCAB, row, &last};
        for (size_t i = 0; i < VOCAB; i++) {
            double got = logits->values[t * VOCAB + i];
            if (i < masked)
                assert_true(got == (aimed || i > 0 ? 0 : -1));
            else if (aimed)
                assert_true(fabs(got - ref_slope(loss_of, &l, &row[i], 1e-4)) <= 1e-6);
        }
    }
}

static void masked_and_distant_logits_keep_the_loss_exact(void **state)
{
    (void)state;
    static const size_t masked[] = {1, 3, 33, 64, 69};
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
        suite_run(masked_case, &masked[i]);
}

static void large_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    enum { VOCAB = 50 };
    struct tensor *logits = tensor_random(s, VOCAB, HST_F32, 1e30),
                  *loss = tensor_empty(s, 1, HST_F32);
    struct tensor *targets = tensor_ids(s, 1, 1);
    run_cross_entropy(s, 1, VOCAB, logits, targets, loss);
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
    struct hst_cross_entropy args = suite_cross_entropy(TOKENS, VOCAB, logits, targets, loss);
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    for (size_t t = 0; t < TOKENS; t++) {
        args = (struct hst_cross_entropy){.tokens = 1,
                                          .vocab = VOCAB,
                                          .dtype = HST_F32,
                                          .logits = (float *)again->data + t * VOCAB,
                                          .targets = (uint32_t *)targets->data + t,
                                          .loss = (float *)loss_again->data + t,
                                          .grad_scale = 1,
                                          .want_grad = true};
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
        assert_int_equal(hst_op_embedding(s->stream, &(struct hst_embedding){.tokens = 5,
                                                                             .vocab = 4,
                                                                             .width = 4,
                                                                             .dtype = HST_F32,
                                                                             .ids = ids->data,
                                                                             .weight = f->data,
                                                                             .out = out->data}),
                         0);
    if (which == 1)
        assert_int_equal(hst_op_embedding_backward(
                             s->stream, &(struct hst_embedding_backward){.tokens = 5,
                                                                         .vocab = 4,
                                                                         .width = 4,
                                                                         .dtype = HST_F32,
                                                                         .ids = ids->data,
                                                                         .dout = f->data,
                                                                         .dweight = out->data}),
                         0);
    if (which == 2)
        run_cross_entropy(s, 5, 4, out, ids, f);
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

/* Three known ids, the vocabulary's size, and the largest that stands for nothing else. */
enum { UNKNOWN_TOKENS = 5, UNKNOWN_VOCAB = 20, UNKNOWN_WIDTH = 12 };
static const uint32_t unknown_ids[UNKNOWN_TOKENS] = {7, UNKNOWN_VOCAB, 0, HST_NO_TARGET - 1, 7};

static struct tensor *tensor_unknown_ids(struct suite *s)
{
    struct tensor *ids = tensor_empty(s, UNKNOWN_TOKENS, HST_F32);
    memcpy(s->staging, unknown_ids, sizeof unknown_ids);
    assert_int_equal(hst_stream_copy(s->stream, ids->data, s->staging, sizeof unknown_ids), 0);
    suite_sync(s);
    return ids;
}

static void unknown_embedding_case(struct suite *s, const void *parameters)
{
    enum hst_dtype dtype = *(const enum hst_dtype *)parameters;
    const size_t width = UNKNOWN_WIDTH, tokens = UNKNOWN_TOKENS, vocab = UNKNOWN_VOCAB;
    struct tensor *ids = tensor_unknown_ids(s);
    struct tensor *weight = tensor_random(s, vocab * width, dtype, 1);
    struct tensor *out = tensor_empty(s, tokens * width, dtype);
    struct tensor *dout = tensor_random(s, tokens * width, dtype, 1);
    struct tensor *dweight = tensor_random(s, vocab * width, HST_F32, 1);
    struct hst_work work = suite_work(s, hst_embedding_backward_work_bytes(s->dev, tokens, vocab));
    double want[UNKNOWN_VOCAB * UNKNOWN_WIDTH];
    memcpy(want, dweight->values, sizeof want);
    assert_int_equal(hst_op_embedding(s->stream, &(struct hst_embedding){.tokens = tokens,
                                                                         .vocab = vocab,
                                                                         .width = width,
                                                                         .dtype = dtype,
                                                                         .ids = ids->data,
                                                                         .weight = weight->data,
                                                                         .out = out->data}),
                     0);
    assert_int_equal(hst_op_embedding_backward(
                         s->stream, &(struct hst_embedding_backward){.tokens = tokens,
                                                                     .vocab = vocab,
                                                                     .width = width,
                                                                     .dtype = dtype,
                                                                     .ids = ids->data,
                                                                     .dout = dout->data,
                                                                     .dweight = dweight->data,
                                                                     .work = work}),
                     0);
    suite_sync(s);
    tensor_read(s, out);
    tensor_read(s, dweight);
    for (size_t i = 0; i < tokens * width; i++) {
        size_t row = unknown_ids[i / width];
        if (row >= vocab) {
            assert_true(isnan(out->values[i]));
            continue;
        }
        assert_true(out->values[i] == weight->values[row * width + i % width]);
        double *sum = &want[row * width + i % width];
        *sum = (float)*sum + (float)dout->values[i];
    }
    assert_memory_equal(dweight->values, want, sizeof want);
}

static void unknown_target_case(struct suite *s, const void *parameters)
{
    enum hst_dtype dtype = *(const enum hst_dtype *)parameters;
    const size_t tokens = UNKNOWN_TOKENS, vocab = UNKNOWN_VOCAB;
    struct tensor *targets = tensor_unknown_ids(s);
    struct tensor *logits = tensor_random(s, tokens * vocab, dtype, 4);
    struct tensor *one = tensor_empty(s, vocab, dtype), *loss = tensor_empty(s, tokens, HST_F32);
    struct tensor *one_loss = tensor_empty(s, 1, HST_F32);
    double before[UNKNOWN_TOKENS * UNKNOWN_VOCAB];
    memcpy(before, logits->values, sizeof before);
    struct hst_cross_entropy args = suite_cross_entropy(tokens, vocab, logits, targets, loss);
    args.want_grad = false;
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, logits);
    assert_memory_equal(logits->values, before, sizeof before);
    args.want_grad = true;
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    for (size_t t = 0; t < tokens; t++) {
        const double *row = logits->values + t * vocab;
        if (unknown_ids[t] >= vocab) {
            assert_true(isnan(loss->values[t]));
            for (size_t i = 0; i < vocab; i++)
                assert_true(isnan(row[i]));
            continue;
        }
        memcpy(one->values, before + t * vocab, vocab * sizeof *before);
        tensor_write(s, one);
        args = (struct hst_cross_entropy){.tokens = 1,
                                          .vocab = vocab,
                                          .dtype = dtype,
                                          .logits = one->data,
                                          .targets = (uint32_t *)targets->data + t,
                                          .loss = one_loss->data,
                                          .grad_scale = 1,
                                          .want_grad = true};
        assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, one);
        tensor_read(s, one_loss);
        assert_memory_equal(one->values, row, vocab * sizeof *row);
        assert_true(one_loss->values[0] == loss->values[t]);
    }
}

/* Whether this device looks at ids before it works on them. */
static bool reports_ids(void)
{
    struct hst_dev *dev;
    assert_int_equal(suite_open(0, 0, NULL, &dev), 0);
    bool host = strcmp(hst_dev_name(dev), "host") == 0;
    suite_close(&dev);
    return host;
}

/* Where the device can tell in time, nothing is written; where it cannot, the row is NaN. */
static void an_id_out_of_range_never_goes_unseen(void **state)
{
    (void)state;
    bool reports = reports_ids();
    for (int which = 0; which < 3 && reports; which++)
        suite_run(domain_case, &which);
    for (enum hst_dtype dtype = HST_F32; dtype <= HST_F16 && !reports; dtype++) {
        suite_run(unknown_embedding_case, &dtype);
        suite_run(unknown_target_case, &dtype);
    }
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    uint32_t *u = t->data;
    const struct hst_embedding good = {
        .tokens = 5, .vocab = 4, .width = 4, .dtype = HST_F32, .ids = u, .weight = f, .out = f};
    struct hst_embedding bad[] = {good, good, good, good};
    bad[0].vocab = 0;
    bad[1].width = 0;
    bad[2].ids = NULL;
    bad[3].dtype = 5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hst_op_embedding(s->stream, &bad[i]), -EINVAL);
    struct hst_embedding_backward backward = {
        .tokens = 5, .vocab = 4, .width = 4, .dtype = HST_F32, .ids = u, .dout = f};
    assert_int_equal(hst_op_embedding_backward(s->stream, &backward), -EINVAL);
    backward.dweight = f;
    backward.vocab = SIZE_MAX / 2;
    assert_int_equal(hst_op_embedding_backward(s->stream, &backward), -EINVAL);
    const struct hst_cross_entropy right = {.tokens = 5,
                                            .vocab = 4,
                                            .dtype = HST_F32,
                                            .logits = f,
                                            .targets = u,
                                            .loss = f,
                                            .grad_scale = 1};
    struct hst_cross_entropy wrong[] = {right, right, right, right};
    wrong[0].vocab = 0;
    wrong[1].loss = NULL;
    wrong[2].logits = f + 1;
    wrong[3].vocab = (size_t)INT32_MAX + 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(hst_op_cross_entropy(s->stream, &wrong[i]), -EINVAL);
    expect_everywhere(s, t, 3);
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_and_its_backward_are_exact),
        cmocka_unit_test(the_backward_leaves_out_one_row),
        cmocka_unit_test(cross_entropy_and_its_gradient_match),
        cmocka_unit_test(cross_entropy_of_long_rows_matches_wherever_they_begin),
        cmocka_unit_test(masked_and_distant_logits_keep_the_loss_exact),
        cmocka_unit_test(huge_logits_neither_overflow_nor_lose_the_loss),
        cmocka_unit_test(rows_in_one_call_or_many_give_the_same_bytes),
        cmocka_unit_test(an_id_out_of_range_never_goes_unseen),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
