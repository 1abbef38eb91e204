/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of more rows than one block: GEMMs and gradients against float64, sums by hand. */
#include "harness.h"
#include "model/layer/linear.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 3, IN = 5, OUT = 2 * WEIGHT_BLOCK_ROWS + 100 };
static const struct linear shape = {OUT, IN};

/* Values that bf16 holds exactly, so that both dtypes have one reference. */
struct operands {
    _Alignas(64) float x[TOKENS * IN];
    _Alignas(64) float w[OUT * IN];
    _Alignas(64) float dy[TOKENS * OUT];
    _Alignas(64) float y[TOKENS * OUT];
    _Alignas(64) float dx[TOKENS * IN];
    _Alignas(64) float sum[TOKENS * IN];
    _Alignas(64) float dw[OUT * IN];
    _Alignas(64) uint16_t x16[TOKENS * IN];
    _Alignas(64) uint16_t w16[OUT * IN];
    _Alignas(64) uint16_t dy16[TOKENS * OUT];
    _Alignas(64) uint16_t y16[TOKENS * OUT];
    _Alignas(64) uint16_t dx16[TOKENS * IN];
};

struct context {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct operands *op;
};

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void fill(float *x, uint16_t *x16, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t sign = seed >> 31, mantissa = seed >> 20 & 0x7f, exponent = 124 + (seed >> 10) % 4;
        x16[i] = (uint16_t)(sign << 15 | exponent << 7 | mantissa);
        x[i] = widen(x16[i]);
    }
}

static int set_up(void **state)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c || harness_device(&c->dev, &c->stream) < 0)
        return -1;
    c->op = aligned_alloc(64, sizeof *c->op);
    if (!c->op)
        return -1;
    memset(c->op, 0xff, sizeof *c->op);
    fill(c->op->x, c->op->x16, TOKENS * IN, 1);
    fill(c->op->w, c->op->w16, OUT * IN, 2);
    fill(c->op->dy, c->op->dy16, TOKENS * OUT, 3);
    *state = c;
    return 0;
}

static int tear_down(void **state)
{
    struct context *c = *state;
    hst_stream_destroy(&c->stream);
    hst_dev_close(&c->dev);
    free(c->op);
    free(c);
    return 0;
}

/* Runs a body twice: first to measure its workspace, then for real with exactly that. */
typedef void body_fn(struct pass *p, struct operands *op);

static void run(struct context *c, enum hst_dtype dtype, body_fn *body)
{
    size_t work_bytes = 0;
    struct pass p = {.device = c->dev, .stream = c->stream, .dtype = dtype, .measure = &work_bytes};
    body(&p, c->op);
    p.measure = NULL;
    p.op_work = (struct hst_work){NULL, work_bytes};
    if (work_bytes)
        p.op_work.data = aligned_alloc(64, (work_bytes + 63) / 64 * 64);
    body(&p, c->op);
    assert_int_equal(p.rc, 0);
    assert_int_equal(hst_stream_sync(c->stream), 0);
    free(p.op_work.data);
}

static double product(const struct operands *op, size_t t, size_t i)
{
    double sum = 0;
    for (size_t r = 0; r < OUT; r++)
        sum += (double)op->dy[t * OUT + r] * (double)op->w[r * IN + i];
    return sum;
}

static void assert_near(double got, double expected, double scale)
{
    if (!(fabs(got - expected) <= scale))
        fail_msg("%.9g, not %.9g", got, expected);
}

static void forward_f32(struct pass *p, struct operands *op)
{
    linear_forward(p, TOKENS, shape, op->w, op->x, op->y);
}

static void forward_bf16(struct pass *p, struct operands *op)
{
    linear_forward(p, TOKENS, shape, op->w16, op->x16, op->y16);
}

static void every_row_of_a_large_weight_is_used_in_the_forward(void **state)
{
    struct context *c = *state;
    run(c, HST_F32, forward_f32);
    run(c, HST_BF16, forward_bf16);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t r = 0; r < OUT; r++) {
            double expected = 0;
            for (size_t i = 0; i < IN; i++)
                expected += (double)c->op->x[t * IN + i] * (double)c->op->w[r * IN + i];
            assert_near(c->op->y[t * OUT + r], expected, 1e-5);
            assert_near(widen(c->op->y16[t * OUT + r]), expected, fabs(expected) / 256 + 1e-5);
        }
}

static void input_f32(struct pass *p, struct operands *op)
{
    assert_int_equal(linear_sum_count(TOKENS, shape, HST_F32), 0);
    linear_input_grad(p, TOKENS, shape, op->w, op->dy, op->dx, NULL);
}

static void input_bf16(struct pass *p, struct operands *op)
{
    assert_int_equal(linear_sum_count(TOKENS, shape, HST_BF16), TOKENS * IN);
    linear_input_grad(p, TOKENS, shape, op->w16, op->dy16, op->dx16, op->sum);
}

static void the_inputs_gradient_adds_all_blocks_and_is_rounded_once(void **state)
{
    struct context *c = *state;
    run(c, HST_F32, input_f32);
    run(c, HST_BF16, input_bf16);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < IN; i++) {
            double expected = product(c->op, t, i);
            float rounded = widen(c->op->dx16[t * IN + i]);
            assert_near(c->op->dx[t * IN + i], expected, 1e-3);
            assert_near(c->op->sum[t * IN + i], expected, 1e-3);
            /* Half a unit in the last place of 8 bits: a second rounding would exceed it. */
            assert_near(rounded, c->op->sum[t * IN + i], fabs((double)rounded) / 256);
        }
}

static void sum_twice(struct pass *p, struct operands *op)
{
    linear_input_grad_sum(p, TOKENS, shape, op->w16, op->dy16, op->sum, false);
    linear_input_grad_sum(p, TOKENS, shape, op->w16, op->dy16, op->sum, true);
}

static void gradients_of_several_weights_add_up(void **state)
{
    struct context *c = *state;
    run(c, HST_BF16, sum_twice);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < IN; i++)
            assert_near(c->op->sum[t * IN + i], 2 * product(c->op, t, i), 2e-3);
}

/*
 * One row of each block counts, with what is added to sums nothing but the value given for the
 * block: 2^24 − 2^24 + 1/2 is 1/2, and 0 in any order in which the half is not added last.
 */
static const float block_values[] = {0.5f, 0x1p24f, -0x1p24f};

static void choose_rows(struct operands *op)
{
    memset(op->dy, 0, sizeof op->dy);
    memset(op->dy16, 0, sizeof op->dy16);
    for (size_t block = 0; block < 3; block++) {
        size_t row = block * WEIGHT_BLOCK_ROWS + 50;
        float values[2] = {1.0f, block_values[block]};
        uint32_t bits[2];
        memcpy(bits, values, sizeof bits);
        for (size_t t = 0; t < TOKENS; t++) {
            op->dy[t * OUT + row] = values[0];
            op->dy16[t * OUT + row] = (uint16_t)(bits[0] >> 16);
        }
        for (size_t i = 0; i < IN; i++) {
            op->w[row * IN + i] = values[1];
            op->w16[row * IN + i] = (uint16_t)(bits[1] >> 16);
        }
    }
}

static void sum_onto(struct pass *p, struct operands *op)
{
    linear_input_grad_sum(p, TOKENS, shape, op->w, op->dy, op->sum, true);
}

static void blocks_are_added_from_the_last_to_the_first(void **state)
{
    struct context *c = *state;
    struct operands *op = aligned_alloc(64, sizeof *op), *all = c->op;
    assert_non_null(op);
    memcpy(op, all, sizeof *op);
    choose_rows(op);
    for (size_t i = 0; i < TOKENS * IN; i++)
        op->sum[i] = 0x1p-23f; /* lost beside the last block's 2^24, which is added first */
    c->op = op;
    run(c, HST_F32, sum_onto);
    for (size_t i = 0; i < TOKENS * IN; i++)
        assert_true(op->sum[i] == 0.5f);
    run(c, HST_F32, input_f32);
    run(c, HST_BF16, input_bf16);
    c->op = all;
    for (size_t i = 0; i < TOKENS * IN; i++) {
        assert_true(op->dx[i] == 0.5f);
        assert_true(widen(op->dx16[i]) == 0.5f);
    }
    free(op);
}

static void weight_f32(struct pass *p, struct operands *op)
{
    linear_weight_grad(p, TOKENS, shape, op->dy, op->x, (struct weight_grad){op->dw, false});
}

static void weight_bf16(struct pass *p, struct operands *op)
{
    linear_weight_grad(p, TOKENS, shape, op->dy16, op->x16, (struct weight_grad){op->dw, false});
}

static void every_row_of_the_weights_gradient_is_added_to(void **state)
{
    struct context *c = *state;
    for (size_t i = 0; i < OUT * IN; i++)
        c->op->dw[i] = 1;
    run(c, HST_F32, weight_f32);
    run(c, HST_BF16, weight_bf16);
    for (size_t r = 0; r < OUT; r++)
        for (size_t i = 0; i < IN; i++) {
            double expected = 1;
            for (size_t t = 0; t < TOKENS; t++)
                expected += 2 * (double)c->op->dy[t * OUT + r] * (double)c->op->x[t * IN + i];
            assert_near(c->op->dw[r * IN + i], expected, 1e-5);
        }
}

static void weight_f32_fresh(struct pass *p, struct operands *op)
{
    linear_weight_grad(p, TOKENS, shape, op->dy, op->x, (struct weight_grad){op->dw, true});
}

static void weight_bf16_fresh(struct pass *p, struct operands *op)
{
    linear_weight_grad(p, TOKENS, shape, op->dy16, op->x16, (struct weight_grad){op->dw, true});
}

/* Written over NaN it is what zeros and it add up to, to the bit. */
static void a_fresh_gradient_is_written(void **state)
{
    struct context *c = *state;
    void (*const formulas[][2])(struct pass *, struct operands *) = {
        {weight_f32, weight_f32_fresh}, {weight_bf16, weight_bf16_fresh}};
    float *added = malloc(sizeof c->op->dw);
    assert_non_null(added);
    for (int d = 0; d < 2; d++) {
        const enum hst_dtype dtype = d ? HST_BF16 : HST_F32;
        memset(c->op->dw, 0, sizeof c->op->dw);
        run(c, dtype, formulas[d][0]);
        memcpy(added, c->op->dw, sizeof c->op->dw);
        memset(c->op->dw, 0xff, OUT * IN * sizeof *c->op->dw);
        run(c, dtype, formulas[d][1]);
        assert_memory_equal(c->op->dw, added, OUT * IN * sizeof *added);
    }
    free(added);
}

/* Two weights, of so many rows each, in w; what goes with them in y, dy and dw. */
static const struct linear half = {WEIGHT_BLOCK_ROWS, IN};
enum { APART = WEIGHT_BLOCK_ROWS * IN + 8, ROWS_APART = TOKENS * WEIGHT_BLOCK_ROWS + 8 };

static void one_by_one(struct pass *p, struct operands *op)
{
    for (size_t i = 0; i < 2; i++) {
        linear_forward(p, TOKENS, half, op->w + i * APART, op->x, op->y + i * ROWS_APART);
        linear_weight_grad(p, TOKENS, half, op->dy + i * ROWS_APART, op->x,
                           (struct weight_grad){op->dw + i * APART, false});
    }
}

static void two_at_once(struct pass *p, struct operands *op)
{
    linear_forward_two(p, TOKENS, half, (const void *[]){op->w, op->w + APART}, op->x,
                       (void *[]){op->y, op->y + ROWS_APART});
    const struct hst_param_view views[] = {{.grad = op->dw}, {.grad = op->dw + APART}};
    linear_weight_grad_two(p, TOKENS, half, (const void *[]){op->dy, op->dy + ROWS_APART}, op->x,
                           views);
}

static void two_weights_at_once_give_what_each_gives(void **state)
{
    struct context *c = *state;
    struct operands *single = aligned_alloc(64, sizeof *single);
    assert_non_null(single);
    memset(c->op->y, 0, sizeof c->op->y);
    for (size_t i = 0; i < OUT * IN; i++)
        c->op->dw[i] = 1;
    memcpy(single, c->op, sizeof *single);
    run(c, HST_F32, two_at_once);
    run(&(struct context){c->dev, c->stream, single}, HST_F32, one_by_one);
    assert_true(c->op->y[ROWS_APART] != 0 && c->op->dw[APART] != 1);
    assert_memory_equal(c->op->y, single->y, sizeof single->y);
    assert_memory_equal(c->op->dw, single->dw, sizeof single->dw);
    free(single);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_a_large_weight_is_used_in_the_forward),
        cmocka_unit_test(the_inputs_gradient_adds_all_blocks_and_is_rounded_once),
        cmocka_unit_test(gradients_of_several_weights_add_up),
        cmocka_unit_test(blocks_are_added_from_the_last_to_the_first),
        cmocka_unit_test(every_row_of_the_weights_gradient_is_added_to),
        cmocka_unit_test(a_fresh_gradient_is_written),
        cmocka_unit_test(two_weights_at_once_give_what_each_gives),
    };
    return cmocka_run_group_tests_name("model/linear", tests, set_up, tear_down);
}
