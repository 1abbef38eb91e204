/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer's bias: exact to one rounding; its gradient: the sum over tokens. */
#include "half.h"
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <stdlib.h>

struct shape {
    size_t tokens, width;
    enum hst_dtype dtype;
};

static double *doubles(size_t count)
{
    double *d = calloc(count, sizeof *d);
    assert_non_null(d);
    return d;
}

static void bias_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    size_t count = p->tokens * p->width;
    struct tensor *x = tensor_random(s, count, p->dtype, 3);
    struct tensor *bias = tensor_random(s, p->width, p->dtype, 1e-2);
    double *want = doubles(count), *kept = doubles(p->width);
    memcpy(kept, bias->values, p->width * sizeof *kept);
    for (size_t i = 0; i < count; i++) /* f32 first, as the arithmetic is, then one rounding */
        want[i] = round_to(p->dtype, (float)x->values[i] + (float)bias->values[i % p->width]);
    const struct hst_bias args = {p->tokens, p->width, p->dtype, x->data, bias->data};
    assert_int_equal(hst_op_bias(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, x);
    assert_memory_equal(x->values, want, count * sizeof *want);
    tensor_read(s, bias);
    assert_memory_equal(bias->values, kept, p->width * sizeof *kept);
    free(want);
    free(kept);
}

/* Sums of f32 in any order are within tokens roundings of their greatest part. */
static void backward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    size_t count = p->tokens * p->width;
    struct tensor *dy = tensor_random(s, count, p->dtype, 1);
    struct tensor *dbias = tensor_random(s, p->width, HST_F32, 1);
    double *want = doubles(p->width);
    memcpy(want, dbias->values, p->width * sizeof *want);
    for (size_t i = 0; i < count; i++)
        want[i % p->width] += dy->values[i];
    const struct hst_bias_backward args = {
        .tokens = p->tokens,
        .width = p->width,
        .dtype = p->dtype,
        .dy = dy->data,
        .dbias = dbias->data,
        .work = suite_work(s, hst_bias_backward_work_bytes(s->dev, p->tokens, p->width)),
    };
    assert_int_equal(hst_op_bias_backward(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, dbias);
    expect_close("dbias", dbias, want, 1e-6 + 1e-7 * (double)p->tokens);
    free(want);
}

/* Rows of whole vectors and not, fewer and more than a block has; sums of one block and of many. */
static const size_t shapes[][2] = {{1, 1},    {7, 3},    {9, 8},     {63, 33},
                                   {64, 128}, {65, 256}, {70, 264},  {2, 1032},
                                   {300, 48}, {1030, 5}, {2500, 16}, {1, 4097}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void run_all(void (*run)(struct suite *s, const void *parameters))
{
    for (size_t i = 0; i < SHAPES * DTYPES; i++)
        suite_run(run, &(struct shape){shapes[i / DTYPES][0], shapes[i / DTYPES][1],
                                       suite_dtypes[i % DTYPES]});
}

static void every_row_has_it_added_to_one_rounding(void **state)
{
    (void)state;
    run_all(bias_case);
}

static void its_gradient_is_the_sum_over_tokens(void **state)
{
    (void)state;
    run_all(backward_case);
}

/* Longer than the rows of a block need be, on devices that have so many blocks at most. */
static void a_long_sum_is_cut_into_more_rows(void **state)
{
    (void)state;
    suite_run(backward_case, &(struct shape){17000, 8, HST_F32});
}

/* And work that is enough for a whole grain is enough for a shorter one. */
static void no_token_changes_nothing_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    for (size_t tokens = 1; tokens < 70000; tokens += tokens < 300 ? 1 : 97)
        assert_true(hst_bias_backward_work_bytes(s->dev, tokens, 40) >=
                    hst_bias_backward_work_bytes(s->dev, tokens - 1, 40));
    struct tensor *t = tensor_filled(s, 64, HST_F32, 3);
    const struct hst_bias forward = {0, 8, HST_F32, t->data, (float *)t->data + 32};
    const struct hst_bias_backward back = {
        .tokens = 0, .width = 8, .dtype = HST_F32, .dy = t->data, .dbias = (float *)t->data + 32};
    assert_int_equal(hst_op_bias(s->stream, &forward), 0);
    assert_int_equal(hst_op_bias_backward(s->stream, &back), 0);
    expect_everywhere(s, t, 3);
}

static void no_token_changes_nothing(void **state)
{
    (void)state;
    suite_run(no_token_changes_nothing_case, NULL);
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    const struct hst_bias good = {
        .tokens = 2, .width = 8, .dtype = HST_F32, .x = f, .bias = f + 64};
    struct hst_bias bad[7];
    for (size_t i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].width = 0;
    bad[1].dtype = 0;
    bad[2].x = NULL;
    bad[3].bias = f + 65;
    bad[4].bias = f + 8; /* the second row */
    bad[5].tokens = SIZE_MAX / 8;
    bad[6].bias = NULL;
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(hst_op_bias(s->stream, &bad[i]), -EINVAL);
    assert_int_equal(hst_op_bias(NULL, &good), -EINVAL);
    assert_int_equal(hst_op_bias(s->stream, NULL), -EINVAL);
    const struct hst_bias_backward back = {.tokens = 2,
                                           .width = 8,
                                           .dtype = HST_F32,
                                           .dy = f,
                                           .dbias = f + 64,
                                           .work = {f + 512, 2048}};
    struct hst_bias_backward wrong[6];
    for (size_t i = 0; i < 6; i++)
        wrong[i] = back;
    wrong[0].width = 0;
    wrong[1].dtype = 0;
    wrong[2].dy = f + 1;
    wrong[3].dbias = NULL;
    wrong[4].tokens = SIZE_MAX / 8;
    wrong[5].work.size_bytes = hst_bias_backward_work_bytes(s->dev, 2, 8) - 1;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(hst_op_bias_backward(s->stream, &wrong[i]), -EINVAL);
    assert_int_equal(hst_op_bias_backward(NULL, &back), -EINVAL);
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
        cmocka_unit_test(every_row_has_it_added_to_one_rounding),
        cmocka_unit_test(its_gradient_is_the_sum_over_tokens),
        cmocka_unit_test(a_long_sum_is_cut_into_more_rows),
        cmocka_unit_test(no_token_changes_nothing),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
