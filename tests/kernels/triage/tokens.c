/* SPDX-License-Identifier: Apache-2.0 */
/* Where token ids come in: embedding, its backward, cross-entropy. */
#include "triage.h"
#include <math.h>

static void embedding(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape s = triage_shape(size);
    size_t width = s.hidden, samples[TRIAGE_SAMPLES];
    struct operand *ids = triage_ids(t, "ids", s.tokens, s.vocab);
    struct operand *weight = triage_input(t, "weight", s.vocab, width, dtype);
    struct operand *out = triage_output(t, "out", s.tokens, width, dtype);
    double *got = triage_doubles(width);
    triage_taken(hst_op_embedding(t->stream, &(struct hst_embedding){.tokens = s.tokens,
                                                                     .vocab = s.vocab,
                                                                     .width = width,
                                                                     .dtype = dtype,
                                                                     .ids = ids->data,
                                                                     .weight = weight->data,
                                                                     .out = out->data}));
    triage_sync(t);
    size_t count = triage_samples(s.tokens, samples);
    for (size_t i = 0; i < count; i++) {
        triage_read(t, out, samples[i] * width, width, got);
        for (size_t c = 0; c < width; c++)
            triage_check_exact(out, samples[i] * width + c, got[c],
                               triage_value(weight, triage_id(ids, samples[i]) * width + c));
    }
    triage_end(t);
}

/* One f32 addition for each token that has the row's id, tokens rising: exact. */
static void check_dweight_row(struct triage *t, struct operand *dweight, const struct operand *ids,
                              const struct operand *dout, size_t row)
{
    size_t width = dweight->columns;
    double *want = triage_doubles(width), *got = triage_doubles(width);
    for (size_t c = 0; c < width; c++)
        want[c] = triage_value(dweight, row * width + c);
    for (size_t token = 0; token < dout->rows; token++)
        for (size_t c = 0; c < width && triage_id(ids, token) == row; c++)
            want[c] = (float)want[c] + (float)triage_value(dout, token * width + c);
    triage_read(t, dweight, row * width, width, got);
    for (size_t c = 0; c < width; c++)
        triage_check_exact(dweight, row * width + c, got[c], want[c]);
}

static void embedding_backward(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape s = triage_shape(size);
    size_t width = s.hidden, samples[TRIAGE_SAMPLES];
    struct operand *ids = triage_ids(t, "ids", s.tokens, s.vocab);
    struct operand *dout = triage_input(t, "dout", s.tokens, width, dtype);
    struct operand *dweight = triage_input(t, "dweight", s.vocab, width, HST_F32);
    struct hst_embedding_backward args = {
        .tokens = s.tokens,
        .vocab = s.vocab,
        .width = width,
        .dtype = dtype,
        .ids = ids->data,
        .dout = dout->data,
        .dweight = dweight->data,
        .work = triage_work(t, hst_embedding_backward_work_bytes(t->dev, s.tokens, s.vocab))};
    triage_taken(hst_op_embedding_backward(t->stream, &args));
    triage_sync(t);
    /* rows 0 and vocab − 1 have a token; of the others those of eight tokens, so that most have,
       and eight of the vocabulary's, which mostly have none */
    size_t count = triage_samples(s.tokens, samples), step = size == TRIAGE_SMALL ? 1 : 9;
    for (size_t i = 0; i < count; i += step)
        check_dweight_row(t, dweight, ids, dout, triage_id(ids, samples[i]));
    count = triage_samples(s.vocab, samples);
    for (size_t i = 0; i < count; i += step)
        check_dweight_row(t, dweight, ids, dout, samples[i]);
    triage_end(t);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

/* Gradients are of size 1/vocab: scaled, as a training with a loss scale does, so that f16 holds
 * them as normal numbers. */
static const double grad_scale = 1024;

struct loss {
    struct operand *logits, *targets, *loss;
};

/*
 * exp is good to 2e-7, logits below 1 are taken from a maximum below 1 exactly or to 2^-24, and the
 * sum of positive terms in blocks of a few thousand adds 1e-6 at most: 4e-6 of a probability. Its
 * difference to 1 at the target rounds once more.
 */
static void check_loss_row(struct triage *t, const struct loss *o, size_t row, bool with_gradient)
{
    size_t vocab = o->logits->columns, first = row * vocab, target = triage_id(o->targets, row);
    double *got = triage_doubles(vocab), sum = 0, loss;
    for (size_t j = 0; j < vocab; j++)
        sum += exp(triage_value(o->logits, first + j));
    triage_read(t, o->loss, row, 1, &loss);
    triage_check(o->loss, row, loss, log(sum) - triage_value(o->logits, first + target), 4e-6);
    triage_read(t, o->logits, first, vocab, got);
    for (size_t j = 0; j < vocab; j++) {
        double logit = triage_value(o->logits, first + j), p = exp(logit) / sum;
        double want = grad_scale * (p - (j == target));
        double noise = grad_scale * 4e-6 * p + 0x1p-23 * fabs(want);
        if (with_gradient)
            triage_check(o->logits, first + j, got[j], want, noise);
        else
            triage_check_exact(o->logits, first + j, got[j], logit);
    }
}

static void check_losses(struct triage *t, const struct loss *o, bool with_gradient)
{
    size_t samples[TRIAGE_SAMPLES], count = triage_samples(o->logits->rows, samples);
    for (size_t i = 0; i<count; i += o->logits->columns> 65536 ? 9 : 1) /* the 63rd is the last */
        check_loss_row(t, o, samples[i], with_gradient);
}

static void run_loss(struct triage *t, const struct loss *o, bool want_grad)
{
    struct hst_cross_entropy args = {.tokens = o->logits->rows,
                                     .vocab = o->logits->columns,
                                     .dtype = o->logits->dtype,
                                     .logits = o->logits->data,
                                     .targets = o->targets->data,
                                     .loss = o->loss->data,
                                     .grad_scale = (float)grad_scale,
                                     .want_grad = want_grad};
    triage_taken(hst_op_cross_entropy(t->stream, &args));
    triage_sync(t);
}

/* The loss alone, which leaves the logits, and then with the gradient. */
static void cross_entropy(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape s = triage_shape(size);
    size_t rows = s.rows_of_logits;
    struct loss o = {triage_input(t, "logits", rows, s.vocab, dtype),
                     triage_ids(t, "targets", rows, s.vocab),
                     triage_output(t, "loss", rows, 1, HST_F32)};
    run_loss(t, &o, false);
    check_losses(t, &o, false);
    run_loss(t, &o, true);
    check_losses(t, &o, true);
    triage_end(t);
}

TRIAGE_TESTS(embedding)
TRIAGE_TESTS(embedding_backward)
TRIAGE_TESTS(cross_entropy)

struct triage_tests triage_token_tests(void)
{
    static const struct CMUnitTest tests[] = {
        TRIAGE_LIST(embedding),
        TRIAGE_LIST(embedding_backward),
        TRIAGE_LIST(cross_entropy),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
