/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on a vocabulary's matrix in blocks of its rows: the bytes of one call with the
 * whole.
 */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    size_t tokens, vocab, width, step; /* step: rows or columns of each block but the last */
    enum hst_dtype dtype;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct tensor *tensor_of_ids(struct suite *s, size_t count, const uint32_t *ids)
{
    struct tensor *t = tensor_ids(s, count, 1);
    memcpy(s->staging, ids, count * sizeof *ids);
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, count * sizeof *ids), 0);
    suite_sync(s);
    for (size_t i = 0; i < count; i++)
        t->values[i] = ids[i];
    return t;
}

/* The block becomes `columns` of each row of `values`, whose width is given, from `first` on. */
static void write_columns(struct suite *s, struct tensor *block, size_t columns,
                          const double *values, size_t first, size_t width)
{
    for (size_t i = 0; i < block->count; i++)
        block->values[i] = values[i / columns * width + first + i % columns];
    tensor_write(s, block);
}

static void expect_columns(const struct tensor *block, size_t columns, const double *values,
                           size_t first, size_t width)
{
    for (size_t t = 0; t < block->count / columns; t++)
        assert_memory_equal(block->values + t * columns, values + t * width + first,
                            columns * sizeof *values);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

enum { TARGETS = 9, MASKED = 5, UNTOLD = 8 }; /* UNTOLD: a row without a target */

/* Columns that begin and end blocks come before others. */
static struct tensor *targets_of(struct suite *s, const struct shape *p)
{
    const size_t columns[TARGETS] = {HST_VOCAB_BLOCK,         p->vocab - 1,        0,
                                     HST_VOCAB_BLOCK - 1,     2 * HST_VOCAB_BLOCK, p->vocab / 2,
                                     2 * HST_VOCAB_BLOCK - 1, p->vocab / 3,        0};
    uint32_t ids[TARGETS];
    assert_true(p->tokens <= TARGETS);
    for (size_t t = 0; t < p->tokens; t++)
        ids[t] = (uint32_t)(columns[t] % p->vocab);
    if (p->tokens > UNTOLD)
        ids[UNTOLD] = HST_NO_TARGET;
    return tensor_of_ids(s, p->tokens, ids);
}

/*
 * Blocks of even rows have rising maxima, those of odd rows falling ones. In the rows from MASKED
 * on the first block, the second, or all but the row's last column is -infinity.
 */
static struct tensor *logits_of(struct suite *s, const struct shape *p)
{
    struct tensor *logits = tensor_random(s, p->tokens * p->vocab, p->dtype, 8);
    for (size_t i = 0; i < logits->count; i++) {
        size_t t = i / p->vocab, column = i % p->vocab, block = column / HST_VOCAB_BLOCK;
        logits->values[i] += (t % 2 ? -1.5 : 1.5) * (double)block;
        if ((t >= MASKED && t - MASKED == block) || (t == MASKED + 2 && column + 1 < p->vocab))
            logits->values[i] = -INFINITY;
    }
    tensor_write(s, logits);
    return logits;
}

static void expect_losses(const struct shape *p, const struct tensor *loss, const double *logits,
                          const struct tensor *targets)
{
    for (size_t t = 0; t < p->tokens; t++) {
        const double *row = logits + t * p->vocab;
        double want = 0;
        if (t != UNTOLD)
            ref_cross_entropy(1, p->vocab, row, targets->values + t, &want);
        double allowed = 4e-6 + rounding(HST_F32, want);
        if (isfinite(want))
            assert_true(fabs(loss->values[t] - want) <= allowed);
        else /* infinite, or nothing but -infinity */
            assert_true(isnan(want) ? isnan(loss->values[t]) : loss->values[t] == want);
    }
}

/* What each row's state is, exactly, but for its sum. */
static void expect_state(const struct shape *p, const struct tensor *state, const double *logits,
                         const struct tensor *targets)
{
    for (size_t t = 0; t < p->tokens; t++) {
        const double *row = logits + t * p->vocab;
        double top = -INFINITY;
        if (t == UNTOLD) { /* as it was */
            assert_true(isnan(state->values[3 * t]) && isnan(state->values[3 * t + 1]));
            continue;
        }
        for (size_t i = 0; i < p->vocab; i++)
            top = fmax(top, row[i]);
        assert_true(state->values[3 * t] == top);
        assert_true(state->values[3 * t + 2] == row[(size_t)targets->values[t]]);
    }
}

/* All blocks of one pass, each from the logits, in rising order or falling. */
static void run_blocks(struct suite *s, const struct shape *p, struct hst_cross_entropy args,
                       const double *logits, const double *want, struct tensor *loss)
{
    const size_t blocks = (p->vocab + p->step - 1) / p->step;
    struct tensor *whole = tensor_empty(s, p->tokens * least(p->step, p->vocab), p->dtype);
    struct tensor *last =
        tensor_empty(s, p->tokens * (p->vocab - (blocks - 1) * p->step), p->dtype);
    for (size_t n = 0; n < blocks; n++) {
        size_t b = args.want_grad ? blocks - 1 - n : n;
        struct tensor *block = b + 1 < blocks ? whole : last;
        args.first_column = b * p->step;
        args.columns = block->count / p->tokens;
        args.logits = block->data;
        args.loss = n % 2 || n + 1 == blocks ? loss->data : NULL;
        if (args.want_grad && b == 0)
            args.loss = NULL;
        write_columns(s, block, args.columns, logits, args.first_column, p->vocab);
        assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, block);
        expect_columns(block, args.columns, want, args.first_column, p->vocab);
        tensor_read(s, loss);
        for (size_t t = 0; t < p->tokens && (args.want_grad || n + 1 < blocks); t++)
            assert_true(isnan(loss->values[t])); /* as it was: only the last block's is written */
    }
}

static void cross_entropy_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct tensor *targets = targets_of(s, p), *logits = logits_of(s, p);
    struct tensor *loss = tensor_empty(s, p->tokens, HST_F32);
    struct tensor *blocks_loss = tensor_empty(s, p->tokens, HST_F32);
    struct tensor *untouched = tensor_empty(s, p->tokens, HST_F32);
    struct tensor *state = tensor_empty(s, 3 * p->tokens, HST_F32); /* NaNs to begin with */
    double *before = malloc(logits->count * sizeof *before), *known = malloc(p->tokens * 3 * 8);
    assert_true(before && known);
    memcpy(before, logits->values, logits->count * sizeof *before);
    struct hst_cross_entropy args = suite_cross_entropy(p->tokens, p->vocab, logits, targets, loss);
    args.grad_scale = 0.3f;
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    expect_losses(p, loss, before, targets);
    args.state = state->data;
    args.want_grad = false;
    run_blocks(s, p, args, before, before, blocks_loss);
    tensor_read(s, state);
    expect_state(p, state, before, targets);
    memcpy(known, state->values, p->tokens * 3 * sizeof *known);
    args.want_grad = true;
    run_blocks(s, p, args, before, logits->values, untouched);
    tensor_read(s, blocks_loss);
    tensor_read(s, state);
    assert_memory_equal(blocks_loss->values, loss->values, p->tokens * sizeof *before);
    assert_memory_equal(state->values, known, p->tokens * 3 * sizeof *known);
    free(before);
    free(known);
}

static void cross_entropy_by_blocks_gives_the_bytes_of_the_whole(void **state)
{
    (void)state;
    enum { B = HST_VOCAB_BLOCK };
    /* Of one block, of several, of more than a device may join at once; of whole vectors or not */
    static const size_t sizes[][3] = {{1, 5, B},
                                      {5, 1000, B},
                                      {1, B - 1, B},
                                      {TARGETS, B, B},
                                      {2, B + 1, B},
                                      {5, 2 * B, B},
                                      {5, 2 * B, 2 * B},
                                      {TARGETS, 20011, B},
                                      {TARGETS, 24584, B},
                                      {3, 24584, 2 * B},
                                      {3, 33001, 2 * B},
                                      {3, 33004, 3 * B},
                                      {1, 33 * B + 5, 20 * B},
                                      {1, 34 * B + 8, 32 * B}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(cross_entropy_case,
                  &(struct shape){size[0], size[1], 0, size[2], suite_dtypes[i % DTYPES]});
    }
}

/* ---- embedding ------------------------------------------------------------------------------- */

enum { LEFT = 3 }; /* what rows hold that are no block's */

static void expect_rows(const struct shape *p, const struct tensor *out, const struct tensor *ids,
                        const double *whole, size_t begin, size_t end)
{
    for (size_t i = 0; i < out->count; i++) {
        double id = ids->values[i / p->width];
        bool written = id >= (double)begin && id < (double)end;
        assert_true(out->values[i] == (written ? whole[i] : LEFT));
    }
}

static void embedding_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    const size_t count = p->tokens * p->width;
    struct tensor *ids = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *weight = tensor_random(s, p->vocab * p->width, p->dtype, 1);
    struct tensor *out = tensor_empty(s, count, p->dtype);
    struct tensor *by_blocks = tensor_filled(s, count, p->dtype, LEFT);
    struct hst_embedding args = {.tokens = p->tokens,
                                 .vocab = p->vocab,
                                 .width = p->width,
                                 .dtype = p->dtype,
                                 .ids = ids->data,
                                 .weight = weight->data,
                                 .out = out->data};
    assert_int_equal(hst_op_embedding(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, out);
    args.out = by_blocks->data;
    for (size_t end = p->vocab; end > 0;
         end = args.first_row) { /* in falling order, as it may be */
        args.rows = least(p->step, end);
        args.first_row = end - args.rows;
        struct tensor *block = tensor_empty(s, args.rows * p->width, p->dtype);
        write_columns(s, block, block->count, weight->values, args.first_row * p->width, 0);
        args.weight = block->data;
        assert_int_equal(hst_op_embedding(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, by_blocks);
        expect_rows(p, by_blocks, ids, out->values, args.first_row, p->vocab);
    }
    assert_memory_equal(by_blocks->values, out->values, count * sizeof *out->values);
}

static void embedding_backward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct tensor *ids = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *dout = tensor_random(s, p->tokens * p->width, p->dtype, 1);
    struct tensor *dweight = tensor_random(s, p->vocab * p->width, HST_F32, 1);
    double *before = malloc(dweight->count * sizeof *before);
    assert_non_null(before);
    memcpy(before, dweight->values, dweight->count * sizeof *before);
    struct hst_embedding_backward args = {
        .tokens = p->tokens,
        .vocab = p->vocab,
        .width = p->width,
        .dtype = p->dtype,
        .ids = ids->data,
        .dout = dout->data,
        .dweight = dweight->data,
        .work = suite_work(s, hst_embedding_backward_work_bytes(s->dev, p->tokens, p->vocab))};
    assert_int_equal(hst_op_embedding_backward(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, dweight);
    for (args.first_row = 0; args.first_row < p->vocab; args.first_row += p->step) {
        args.rows = least(p->step, p->vocab - args.first_row);
        const size_t first = args.first_row * p->width, count = args.rows * p->width;
        struct tensor *block = tensor_filled(s, count + p->width, HST_F32, LEFT); /* and a row */
        memcpy(block->values, before + first, count * sizeof *before);
        tensor_write(s, block);
        args.dweight = block->data;
        assert_int_equal(hst_op_embedding_backward(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, block);
        assert_memory_equal(block->values, dweight->values + first, count * sizeof *before);
        for (size_t i = count; i < block->count; i++)
            assert_true(block->values[i] == LEFT);
    }
    free(before);
}

static void embedding_by_blocks_gives_the_bytes_of_the_whole(void **state)
{
    (void)state;
    static const size_t sizes[][4] = {{1, 1, 1, 1},        {7, 3, 5, 1},      {100, 11, 33, 4},
                                      {300, 50, 130, 7},   {64, 50, 512, 25}, {33, 20, 68, 19},
                                      {9, 700, 1024, 256}, {600, 5, 4, 2}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        struct shape p = {size[0], size[1], size[2], size[3], suite_dtypes[i % DTYPES]};
        suite_run(embedding_case, &p);
        suite_run(embedding_backward_case, &p);
    }
}

/* ---- ids out of range, no tokens, wrong arguments -------------------------------------------- */

enum { UNKNOWN_VOCAB = 2 * HST_VOCAB_BLOCK + 8, UNKNOWN_WIDTH = 8, UNKNOWN_TOKENS = 4 };
static const uint32_t unknown_ids[UNKNOWN_TOKENS] = {7, UNKNOWN_VOCAB, UNKNOWN_VOCAB - 1,
                                                     HST_NO_TARGET - 1};

/* The second of three blocks: of the known ids none lies in it. */
static struct hst_cross_entropy unknown_args(struct suite *s, enum hst_dtype dtype)
{
    enum { B = HST_VOCAB_BLOCK };
    struct tensor *ids = tensor_of_ids(s, UNKNOWN_TOKENS, unknown_ids);
    struct tensor *logits = tensor_filled(s, (size_t)UNKNOWN_TOKENS * B, dtype, LEFT);
    struct tensor *loss = tensor_filled(s, UNKNOWN_TOKENS, HST_F32, LEFT);
    struct tensor *state = tensor_filled(s, (size_t)UNKNOWN_TOKENS * 3, HST_F32, LEFT);
    return (struct hst_cross_entropy){.tokens = UNKNOWN_TOKENS,
                                      .vocab = UNKNOWN_VOCAB,
                                      .dtype = dtype,
                                      .logits = logits->data,
                                      .targets = ids->data,
                                      .loss = loss->data,
                                      .grad_scale = 1,
                                      .first_column = B,
                                      .columns = B,
                                      .state = state->data};
}

/* On a device that looks at ids first. */
static void domain_case(struct suite *s, const void *parameters)
{
    int which = *(const int *)parameters;
    struct hst_cross_entropy args = unknown_args(s, HST_F32);
    struct tensor *rows = tensor_filled(s, 64, HST_F32, LEFT);
    if (which < 2) {
        args.want_grad = which == 1;
        assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    } else if (which == 2) {
        const struct hst_embedding forward = {.tokens = UNKNOWN_TOKENS,
                                              .vocab = UNKNOWN_VOCAB,
                                              .width = UNKNOWN_WIDTH,
                                              .dtype = HST_F32,
                                              .ids = args.targets,
                                              .weight = args.logits,
                                              .out = rows->data,
                                              .first_row = 7,
                                              .rows = 1};
        assert_int_equal(hst_op_embedding(s->stream, &forward), 0);
    } else {
        const struct hst_embedding_backward backward = {.tokens = UNKNOWN_TOKENS,
                                                        .vocab = UNKNOWN_VOCAB,
                                                        .width = UNKNOWN_WIDTH,
                                                        .dtype = HST_F32,
                                                        .ids = args.targets,
                                                        .dout = args.logits,
                                                        .dweight = rows->data,
                                                        .first_row = 7,
                                                        .rows = 1};
        assert_int_equal(hst_op_embedding_backward(s->stream, &backward), 0);
    }
    assert_int_equal(hst_stream_sync(s->stream), -EDOM);
    hst_stream_destroy(&s->stream);
    assert_int_equal(hst_stream_create(s->dev, "after", &s->stream), 0);
    for (size_t n = 1; n < s->tensor_count; n++) { /* all but the ids */
        tensor_read(s, &s->tensors[n]);
        for (size_t i = 0; i < s->tensors[n].count; i++)
            assert_true(s->tensors[n].values[i] == LEFT);
    }
}

/* On a device that does not: rows and losses of NaN, and the others as if these were not there. */
static void unknown_loss_case(struct suite *s, const void *parameters)
{
    enum { B = HST_VOCAB_BLOCK, LAST = UNKNOWN_VOCAB - 2 * B };
    struct hst_cross_entropy args = unknown_args(s, *(const enum hst_dtype *)parameters);
    struct tensor *logits = &s->tensors[1], *loss = &s->tensors[2];
    const size_t firsts[] = {0, B, (size_t)2 * B};
    for (int n = 0; n < 6; n++) {
        args.want_grad = n >= 3;
        args.first_column = firsts[n % 3];
        args.columns = n % 3 == 2 ? LAST : B;
        memset(logits->values, 0, logits->count * sizeof *logits->values);
        tensor_write(s, logits);
        assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, logits);
        for (size_t i = 0; i < UNKNOWN_TOKENS * args.columns && args.want_grad; i++) {
            uint32_t id = unknown_ids[i / args.columns];
            double got = logits->values[i];
            double even = 1.0 / UNKNOWN_VOCAB, aimed = id == args.first_column + i % args.columns;
            if (id >= UNKNOWN_VOCAB)
                assert_true(isnan(got));
            else
                assert_true(fabs(got - (even - aimed)) <= rounding(args.dtype, 1));
        }
    }
    tensor_read(s, loss);
    for (size_t t = 0; t < UNKNOWN_TOKENS; t++)
        assert_true(unknown_ids[t] < UNKNOWN_VOCAB
                        ? fabs(loss->values[t] - log(UNKNOWN_VOCAB)) <= 4e-6
                        : isnan(loss->values[t]));
}

static void unknown_rows_case(struct suite *s, const void *parameters)
{
    enum hst_dtype dtype = *(const enum hst_dtype *)parameters;
    enum { ELEMENTS = UNKNOWN_TOKENS * UNKNOWN_WIDTH };
    struct tensor *ids = tensor_of_ids(s, UNKNOWN_TOKENS, unknown_ids);
    struct tensor *weight = tensor_random(s, UNKNOWN_WIDTH, dtype, 1);
    struct tensor *out = tensor_filled(s, ELEMENTS, dtype, LEFT);
    struct tensor *dweight = tensor_filled(s, UNKNOWN_WIDTH, HST_F32, LEFT);
    const struct hst_embedding forward = {.tokens = UNKNOWN_TOKENS,
                                          .vocab = UNKNOWN_VOCAB,
                                          .width = UNKNOWN_WIDTH,
                                          .dtype = dtype,
                                          .ids = ids->data,
                                          .weight = weight->data,
                                          .out = out->data,
                                          .first_row = 7,
                                          .rows = 1};
    const struct hst_embedding_backward backward = {
        .tokens = UNKNOWN_TOKENS,
        .vocab = UNKNOWN_VOCAB,
        .width = UNKNOWN_WIDTH,
        .dtype = dtype,
        .ids = ids->data,
        .dout = out->data,
        .dweight = dweight->data,
        .work =
            suite_work(s, hst_embedding_backward_work_bytes(s->dev, UNKNOWN_TOKENS, UNKNOWN_VOCAB)),
        .first_row = 7,
        .rows = 1};
    assert_int_equal(hst_op_embedding(s->stream, &forward), 0);
    assert_int_equal(hst_op_embedding_backward(s->stream, &backward), 0);
    suite_sync(s);
    tensor_read(s, out);
    tensor_read(s, dweight);
    for (size_t i = 0; i < ELEMENTS; i++) {
        uint32_t id = unknown_ids[i / UNKNOWN_WIDTH];
        double want = id == 7 ? weight->values[i % UNKNOWN_WIDTH] : LEFT;
        assert_true(id >= UNKNOWN_VOCAB ? isnan(out->values[i]) : out->values[i] == want);
    }
    for (size_t i = 0; i < UNKNOWN_WIDTH; i++)
        assert_true(dweight->values[i] == (float)(LEFT + weight->values[i]));
}

static void an_id_out_of_range_is_met_in_every_block(void **state)
{
    (void)state;
    struct hst_dev *dev;
    assert_int_equal(suite_open(0, 0, NULL, &dev), 0);
    bool reports = strcmp(hst_dev_name(dev), "host") == 0;
    suite_close(&dev);
    for (int which = 0; which < 4 && reports; which++)
        suite_run(domain_case, &which);
    for (enum hst_dtype dtype = HST_F32; dtype <= HST_F16 && !reports; dtype++) {
        suite_run(unknown_loss_case, &dtype);
        suite_run(unknown_rows_case, &dtype);
    }
}

/* A block of some of a vocabulary's columns. */
static struct hst_cross_entropy good_args(void *memory)
{
    enum { B = HST_VOCAB_BLOCK };
    return (struct hst_cross_entropy){.tokens = 1,
                                      .vocab = 3 * B + 100,
                                      .dtype = HST_F32,
                                      .logits = memory,
                                      .targets = memory,
                                      .loss = memory,
                                      .grad_scale = 1,
                                      .first_column = B,
                                      .columns = B,
                                      .state = memory};
}

static void losses_refused(struct suite *s, void *memory)
{
    enum { B = HST_VOCAB_BLOCK, BAD = 12 };
    struct hst_cross_entropy bad[BAD];
    for (size_t i = 0; i < BAD; i++)
        bad[i] = good_args(memory);
    bad[0].first_column = 1;
    bad[1].first_column = B - 1;
    bad[2].columns = B - 1;
    bad[3].columns = 100;
    bad[4].columns = 3 * B;                   /* beyond the vocabulary */
    bad[5].first_column = 4 * B;              /* behind it */
    bad[6].first_column = SIZE_MAX / B * B;   /* what overflows */
    bad[7].columns = 0;                       /* all of it, from a column on */
    bad[8].columns = bad[8].first_column = 0; /* with a state */
    bad[9].state = NULL;
    bad[10].state = (float *)(void *)((char *)memory + 2);
    bad[11].columns = 2 * B + 100; /* ends at the vocabulary: there is a loss to write */
    bad[11].loss = NULL;
    for (size_t i = 0; i < BAD; i++)
        assert_int_equal(hst_op_cross_entropy(s->stream, &bad[i]), -EINVAL);
}

static void rows_refused(struct suite *s, void *memory)
{
    static const size_t bad[][2] = {{1, 0}, {11, 1}, {12, 1}, {0, 12}, {6, 6}, {SIZE_MAX, 2}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct hst_embedding forward = {.tokens = 5,
                                              .vocab = 11,
                                              .width = 4,
                                              .dtype = HST_F32,
                                              .ids = memory,
                                              .weight = memory,
                                              .out = memory,
                                              .first_row = bad[i][0],
                                              .rows = bad[i][1]};
        const struct hst_embedding_backward backward = {
            .tokens = 5,
            .vocab = 11,
            .width = 4,
            .dtype = HST_F32,
            .ids = memory,
            .dout = memory,
            .dweight = memory,
            .work = suite_work(s, hst_embedding_backward_work_bytes(s->dev, 5, 11)),
            .first_row = bad[i][0],
            .rows = bad[i][1]};
        assert_int_equal(hst_op_embedding(s->stream, &forward), -EINVAL);
        assert_int_equal(hst_op_embedding_backward(s->stream, &backward), -EINVAL);
    }
}

/* A block that is none touches nothing; one without tokens needs nothing. */
static void edges_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, HST_VOCAB_BLOCK, HST_F32, LEFT);
    losses_refused(s, t->data);
    rows_refused(s, t->data);
    struct hst_cross_entropy none = good_args(NULL);
    none.tokens = 0;
    assert_int_equal(hst_op_cross_entropy(s->stream, &none), 0);
    none.want_grad = true;
    assert_int_equal(hst_op_cross_entropy(s->stream, &none), 0);
    const struct hst_embedding forward = {
        .vocab = 11, .width = 4, .dtype = HST_F32, .first_row = 3, .rows = 8};
    const struct hst_embedding_backward backward = {
        .vocab = 11, .width = 4, .dtype = HST_F32, .first_row = 3, .rows = 8};
    assert_int_equal(hst_op_embedding(s->stream, &forward), 0);
    assert_int_equal(hst_op_embedding_backward(s->stream, &backward), 0);
    suite_sync(s);
    tensor_read(s, t);
    for (size_t i = 0; i < t->count; i++)
        assert_true(t->values[i] == LEFT);
}

static void what_is_no_block_is_refused_and_no_tokens_are_none(void **state)
{
    (void)state;
    suite_run(edges_case, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_by_blocks_gives_the_bytes_of_the_whole),
        cmocka_unit_test(embedding_by_blocks_gives_the_bytes_of_the_whole),
        cmocka_unit_test(an_id_out_of_range_is_met_in_every_block),
        cmocka_unit_test(what_is_no_block_is_refused_and_no_tokens_are_none),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
