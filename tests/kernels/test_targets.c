/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of tokens of which nothing is learned; by blocks: test_blocks.c. */
#include "suite.h"
#include <math.h>

struct shape {
    size_t tokens, vocab;
    enum hst_dtype dtype;
};

static void run(struct suite *s, const struct shape *p, const struct tensor *logits,
                const struct tensor *targets, const struct tensor *loss)
{
    struct hst_cross_entropy args = suite_cross_entropy(p->tokens, p->vocab, logits, targets, loss);
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
}

/* What no arithmetic makes a zero of, and a number. */
static void fill_untold(double *row, size_t vocab, size_t t)
{
    static const double values[] = {NAN, INFINITY, -INFINITY, 3};
    for (size_t i = 0; i < vocab; i++)
        row[i] = values[(i + t) % 4];
}

static bool is_plus_zero(double x)
{
    return x == 0 && !signbit(x);
}

/* Every third row has no target; the others are what they are without such rows around them. */
static void untold_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct tensor *logits = tensor_random(s, p->tokens * p->vocab, p->dtype, 8);
    struct tensor *told = tensor_empty(s, logits->count, p->dtype);
    struct tensor *targets = tensor_ids(s, p->tokens, (uint32_t)p->vocab);
    struct tensor *loss = tensor_empty(s, p->tokens, HST_F32);
    struct tensor *told_loss = tensor_empty(s, p->tokens, HST_F32);
    memcpy(told->values, logits->values, logits->count * sizeof *logits->values);
    tensor_write(s, told);
    run(s, p, told, targets, told_loss);
    for (size_t t = 0; t < p->tokens; t += 3) {
        fill_untold(logits->values + t * p->vocab, p->vocab, t);
        memcpy(s->staging, &(uint32_t){HST_NO_TARGET}, 4);
        assert_int_equal(hst_stream_copy(s->stream, (uint32_t *)targets->data + t, s->staging, 4),
                         0);
        suite_sync(s);
    }
    tensor_write(s, logits);
    struct hst_cross_entropy args = suite_cross_entropy(p->tokens, p->vocab, logits, targets, loss);
    args.want_grad = false;
    assert_int_equal(hst_op_cross_entropy(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, loss);
    for (size_t t = 0; t < p->tokens; t += 3)
        assert_true(is_plus_zero(loss->values[t]));
    run(s, p, logits, targets, loss);
    suite_sync(s);
    tensor_read(s, logits);
    tensor_read(s, loss);
    tensor_read(s, told);
    tensor_read(s, told_loss);
    for (size_t i = 0; i < logits->count; i++)
        assert_true(i / p->vocab % 3 ? logits->values[i] == told->values[i]
                                     : is_plus_zero(logits->values[i]));
    for (size_t t = 0; t < p->tokens; t++)
        assert_true(t % 3 ? loss->values[t] == told_loss->values[t]
                          : is_plus_zero(loss->values[t]));
}

/* Rows that begin where memory is aligned and elsewhere, of one block and of several. */
static void a_row_without_a_target_has_no_loss_and_no_gradient(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1}, {7, 5}, {4, 33}, {40, 256}, {5, 4101}, {4, 16411}};
    for (size_t i = 0; i < DTYPES * sizeof sizes / sizeof *sizes; i++) {
        const size_t *size = sizes[i / DTYPES];
        suite_run(untold_case, &(struct shape){size[0], size[1], suite_dtypes[i % DTYPES]});
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_without_a_target_has_no_loss_and_no_gradient),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
