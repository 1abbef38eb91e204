/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm and its backward. */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const double eps = 0x1p-17;

struct shape {
    size_t tokens, width;
    enum hst_dtype dtype;
    bool in_place, accumulate;
};

static void forward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    size_t count = p->tokens * p->width;
    struct tensor *x = tensor_random(s, count, p->dtype, 3);
    struct tensor *weight = tensor_random(s, p->width, p->dtype, 2);
    double *want = malloc(count * sizeof *want), *rstd = malloc(p->tokens * sizeof *rstd);
    assert_true(want && rstd);
    ref_rmsnorm(p->tokens, p->width, eps, x->values, weight->values, want, rstd);
    struct tensor *y = p->in_place ? x : tensor_empty(s, count, p->dtype);
    struct tensor *r = tensor_empty(s, p->tokens, HST_F32);
    assert_int_equal(hst_op_rmsnorm(s->stream, &(struct hst_rmsnorm){.tokens = p->tokens,
                                                                     .width = p->width,
                                                                     .dtype = p->dtype,
                                                                     .eps = (float)eps,
                                                                     .x = x->data,
                                                                     .weight = weight->data,
                                                                     .y = y->data,
                                                                     .rstd = r->data}),
                     0);
    suite_sync(s);
    tensor_read(s, y);
    tensor_read(s, r);
    double longer = 1 + (double)p->width / 4096; /* sums of more terms lose more */
    expect_close("y", y, want, 4e-6 * longer);
    for (size_t t = 0; t < p->tokens; t++)
        assert_true(fabs(r->values[t] - rstd[t]) <= 2e-6 * longer * rstd[t]);
    free(want);
    free(rstd);
}

static const size_t sizes[][2] = {{1, 1},    {3, 5},    {7, 16},    {33, 31},
                                  {70, 64},  {65, 129}, {40, 512},  {9, 1032},
                                  {3, 4096}, {2, 4099}, {1, 16388}, {1, 32776}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void every_shape_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES * DTYPES; i++)
        suite_run(forward_case, &(struct shape){sizes[i / DTYPES][0], sizes[i / DTYPES][1],
                                                suite_dtypes[i % DTYPES], false, false});
}

static void the_output_may_be_the_input(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTYPES; i++)
        suite_run(forward_case, &(struct shape){37, 67, suite_dtypes[i], true, false});
}

/* The same rows in one call, in two, and from another alignment: row by row, so the same bytes. */
static void grouping_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    enum { TOKENS = 41, WIDTH = 68 };
    struct tensor *x = tensor_random(s, TOKENS * WIDTH, HST_F32, 1);
    struct tensor *weight = tensor_random(s, WIDTH, HST_F32, 1);
    struct tensor *whole = tensor_empty(s, TOKENS * WIDTH, HST_F32);
    struct tensor *parts = tensor_empty(s, TOKENS * WIDTH + 4, HST_F32);
    struct tensor *rstd = tensor_empty(s, TOKENS, HST_F32);
    struct hst_rmsnorm args = {.tokens = TOKENS,
                               .width = WIDTH,
                               .dtype = HST_F32,
                               .eps = (float)eps,
                               .x = x->data,
                               .weight = weight->data,
                               .y = whole->data,
                               .rstd = rstd->data};
    assert_int_equal(hst_op_rmsnorm(s->stream, &args), 0);
    args.tokens = 11;
    args.y = (float *)parts->data + 4;
    assert_int_equal(hst_op_rmsnorm(s->stream, &args), 0);
    args.tokens = TOKENS - 11;
    args.x = (float *)x->data + (size_t)11 * WIDTH;
    args.y = (float *)parts->data + 4 + (size_t)11 * WIDTH;
    assert_int_equal(hst_op_rmsnorm(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, whole);
    tensor_read(s, parts);
    assert_memory_equal(whole->values, parts->values + 4, TOKENS * WIDTH * sizeof(double));
}

static void grouping_and_alignment_leave_the_bytes_alone(void **state)
{
    (void)state;
    suite_run(grouping_case, NULL);
}

/* ---- with a residual
 * ------------------------------------------------------------------------------------ */

enum alias { APART, SUM_IS_X, SUM_IS_RESIDUAL, Y_IS_X, SUM_IS_RESIDUAL_AND_Y_IS_X, ALIASES };

struct residual_shape {
    size_t tokens, width;
    enum hst_dtype dtype;
    enum alias alias;
};

static struct tensor *tensor_copy(struct suite *s, const struct tensor *from)
{
    struct tensor *t = tensor_empty(s, from->count, from->dtype);
    memcpy(t->values, from->values, t->count * sizeof *t->values);
    tensor_write(s, t);
    return t;
}

static void expect_same(struct suite *s, struct tensor *a, struct tensor *b)
{
    tensor_read(s, a);
    tensor_read(s, b);
    assert_memory_equal(a->values, b->values, a->count * sizeof *a->values);
}

static void residual_case(struct suite *s, const void *parameters)
{
    const struct residual_shape *p = parameters;
    size_t count = p->tokens * p->width;
    struct tensor *x = tensor_random(s, count, p->dtype, 3);
    struct tensor *residual = tensor_random(s, count, p->dtype, 1);
    struct tensor *weight = tensor_random(s, p->width, p->dtype, 2);
    struct tensor *sum = tensor_empty(s, count, p->dtype), *y = tensor_empty(s, count, p->dtype);
    struct tensor *rstd = tensor_empty(s, p->tokens, HST_F32);
    struct tensor *got_rstd = tensor_empty(s, p->tokens, HST_F32);
    struct hst_rmsnorm args = {.tokens = p->tokens,
                               .width = p->width,
                               .dtype = p->dtype,
                               .eps = (float)eps,
                               .x = sum->data,
                               .weight = weight->data,
                               .y = y->data,
                               .rstd = rstd->data};
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){count, p->dtype, x->data,
                                                             residual->data, sum->data}),
                     0);
    assert_int_equal(hst_op_rmsnorm(s->stream, &args), 0);
    bool y_is_x = p->alias == Y_IS_X || p->alias == SUM_IS_RESIDUAL_AND_Y_IS_X;
    bool sum_is_residual = p->alias == SUM_IS_RESIDUAL || p->alias == SUM_IS_RESIDUAL_AND_Y_IS_X;
    struct tensor *kept_x = tensor_copy(s, x), *kept_residual = tensor_copy(s, residual);
    struct tensor *got_y = y_is_x ? x : tensor_empty(s, count, p->dtype);
    struct tensor *got_sum = p->alias == SUM_IS_X ? x
                             : sum_is_residual    ? residual
                                                  : tensor_empty(s, count, p->dtype);
    args.x = x->data;
    args.residual = residual->data;
    args.sum = got_sum->data;
    args.y = got_y->data;
    args.rstd = got_rstd->data;
    assert_int_equal(hst_op_rmsnorm(s->stream, &args), 0);
    suite_sync(s);
    expect_same(s, got_sum, sum);
    expect_same(s, got_y, y);
    expect_same(s, got_rstd, rstd);
    if (got_sum != x && got_y != x)
        expect_same(s, x, kept_x);
    if (got_sum != residual)
        expect_same(s, residual, kept_residual);
}

static void with_a_residual_it_is_the_sum_and_then_the_norm(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES * DTYPES;
         i++) { /* every alias at some sizes, some at every size */
        const size_t *size = sizes[i / DTYPES];
        for (int alias = 0; alias < ALIASES; alias++)
            if (i / DTYPES == SIZES / 2 || i % ALIASES == (size_t)alias)
                suite_run(residual_case,
                          &(struct residual_shape){size[0], size[1], suite_dtypes[i % DTYPES],
                                                   (enum alias)alias});
    }
}

/* ---- backward
 * ------------------------------------------------------------------------------------------- */

struct loss {
    const struct shape *shape;
    double *x, *weight, *dy, *y, *rstd;
};

static double loss_of(void *context)
{
    struct loss *l = context;
    ref_rmsnorm(l->shape->tokens, l->shape->width, eps, l->x, l->weight, l->y, l->rstd);
    return ref_dot(l->y, l->dy, l->shape->tokens * l->shape->width);
}

/* Without dweight dx, which was `before`, comes to the same bits. */
static void check_frozen(struct suite *s, const struct hst_rmsnorm_backward *args,
                         struct tensor *dx, const double *before)
{
    struct hst_rmsnorm_backward frozen = *args;
    double *want = malloc(dx->count * sizeof *want);
    assert_non_null(want);
    memcpy(want, dx->values, dx->count * sizeof *want);
    memcpy(dx->values, before, dx->count * sizeof *want);
    tensor_write(s, dx);
    frozen.dweight = NULL;
    assert_int_equal(hst_op_rmsnorm_backward(s->stream, &frozen), 0);
    suite_sync(s);
    tensor_read(s, dx);
    assert_memory_equal(dx->values, want, dx->count * sizeof *want);
    free(want);
}

static void backward_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    size_t count = p->tokens * p->width;
    struct tensor *x = tensor_random(s, count, p->dtype, 2);
    struct tensor *weight = tensor_random(s, p->width, p->dtype, 2);
    struct tensor *dy = tensor_random(s, count, p->dtype, 1);
    struct tensor *dx = p->in_place ? dy : tensor_random(s, count, p->dtype, 1);
    struct tensor *dweight = tensor_random(s, p->width, HST_F32, 1);
    struct loss l = {
        p, x->values, weight->values, malloc(count * 8), malloc(count * 8), malloc(p->tokens * 8)};
    double *want = malloc(count * 8), *dw = malloc(p->width * 8), *before = malloc(count * 8);
    assert_true(l.dy && l.y && l.rstd && want && dw && before);
    memcpy(before, dx->values, count * 8);
    memcpy(l.dy, dy->values, count * 8);
    for (size_t i = 0; i < count; i++)
        want[i] = ref_slope(loss_of, &l, &x->values[i], 1e-5) + (p->accumulate ? dx->values[i] : 0);
    for (size_t i = 0; i < p->width; i++)
        dw[i] = dweight->values[i] + ref_slope(loss_of, &l, &weight->values[i], 1e-4);
    loss_of(&l);
    struct tensor *rstd = tensor_empty(s, p->tokens, HST_F32);
    memcpy(rstd->values, l.rstd, p->tokens * 8);
    tensor_write(s, rstd);
    struct hst_work work =
        suite_work(s, hst_rmsnorm_backward_work_bytes(s->dev, p->tokens, p->width));
    struct hst_rmsnorm_backward args = {.tokens = p->tokens,
                                        .width = p->width,
                                        .dtype = p->dtype,
                                        .x = x->data,
                                        .weight = weight->data,
                                        .dy = dy->data,
                                        .rstd = rstd->data,
                                        .dx = dx->data,
                                        .dweight = dweight->data,
                                        .accumulate = p->accumulate,
                                        .work = work};
    assert_int_equal(hst_op_rmsnorm_backward(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, dx);
    tensor_read(s, dweight);
    expect_close("dx", dx, want, 2e-5);
    expect_close("dweight", dweight, dw, 2e-6 * (double)p->tokens + 2e-5);
    check_frozen(s, &args, dx, before);
    free(before);
    free(l.dy);
    free(l.y);
    free(l.rstd);
    free(want);
    free(dw);
}

static void the_backward_is_the_slope_of_the_forward(void **state)
{
    (void)state;
    static const size_t small[][2] = {{1, 3},  {3, 5},   {5, 33},   {70, 4},
                                      {2, 64}, {1, 544}, {1, 1032}, {1, 2052}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        for (int form = 0; form < 3 * DTYPES; form++)
            suite_run(backward_case,
                      &(struct shape){small[i][0], small[i][1], suite_dtypes[form % DTYPES],
                                      form / DTYPES == 1, form / DTYPES == 2});
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    const struct hst_rmsnorm good = {.tokens = 2,
                                     .width = 8,
                                     .dtype = HST_F32,
                                     .eps = 1,
                                     .x = f,
                                     .weight = f + 64,
                                     .y = f + 128,
                                     .rstd = f + 256};
    struct hst_rmsnorm bad[15];
    for (size_t i = 0; i < 15; i++)
        bad[i] = good;
    for (size_t i = 8; i < 15; i++) {
        bad[i].residual = f + 320;
        bad[i].sum = f + 384;
    }
    bad[0].width = 0;
    bad[1].dtype = 0;
    bad[2].x = NULL;
    bad[3].weight = f + 1;
    bad[4].y = f + 4; /* overlaps x without being it */
    bad[5].rstd = NULL;
    bad[6].tokens = SIZE_MAX / 8;
    bad[7].y = NULL;
    bad[8].sum = NULL;
    bad[9].residual = NULL;
    bad[10].sum = f + 128; /* y, which is read as the sum is being written */
    bad[11].sum = f + 4;   /* overlaps x without being it */
    bad[12].sum = f + 324; /* overlaps the residual without being it */
    bad[13].sum = f + 385; /* not aligned */
    bad[14].y = f + 320;   /* the residual, which is not for y to overwrite */
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(hst_op_rmsnorm(s->stream, &bad[i]), -EINVAL);
    const struct hst_rmsnorm_backward back = {.tokens = 2,
                                              .width = 8,
                                              .dtype = HST_F32,
                                              .x = f,
                                              .weight = f + 64,
                                              .dy = f + 128,
                                              .rstd = f + 256,
                                              .dx = f + 320,
                                              .dweight = f + 384,
                                              .work = {f + 512, 2048}};
    struct hst_rmsnorm_backward wrong[6];
    for (size_t i = 0; i < 6; i++)
        wrong[i] = back;
    wrong[0].dx = f;       /* x is read again for dweight */
    wrong[1].dx = f + 132; /* overlaps dy without being it */
    wrong[2].work.size_bytes = hst_rmsnorm_backward_work_bytes(s->dev, 2, 8) - 1;
    wrong[3].dweight = (float *)((char *)wrong[3].dweight + 1);
    wrong[4].dx = f + 128;
    wrong[4].accumulate = true; /* dx cannot be dy and another gradient */
    wrong[5].width = 0;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(hst_op_rmsnorm_backward(s->stream, &wrong[i]), -EINVAL);
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
        cmocka_unit_test(every_shape_matches),
        cmocka_unit_test(the_output_may_be_the_input),
        cmocka_unit_test(grouping_and_alignment_leave_the_bytes_alone),
        cmocka_unit_test(with_a_residual_it_is_the_sum_and_then_the_norm),
        cmocka_unit_test(the_backward_is_the_slope_of_the_forward),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
