/* SPDX-License-Identifier: Apache-2.0 */
/* The final norm by itself, on one micro-batch, against float64. */
#include "harness.h"
#include "model/layer/blocks.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 40, TOKENS = 7, COUNT = TOKENS * HIDDEN, EPS_INVERSE = 1000 };

static const struct llama model_f32 = {
    .config = {.hidden = HIDDEN, .rms_norm_eps = 1.0 / EPS_INVERSE},
    .run = {.micro_batch_tokens = TOKENS},
    .dtype = HST_F32,
};

/* Multiples of 1/64 below 1: bf16 holds them, so that both dtypes have one reference. */
struct operands {
    float x[COUNT], weight[HIDDEN], dn[COUNT];
    double n[COUNT], dx[COUNT], dweight[HIDDEN];
};

struct context {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct operands op;
};

static float value_of(size_t i, uint32_t seed)
{
    uint32_t hash = ((uint32_t)i + seed) * 2654435761u;
    return (float)((int)(hash >> 25) - 64) / 64.0f;
}

static void add_reference(struct operands *op, size_t token)
{
    size_t first = token * HIDDEN;
    double square = 0, dot = 0;
    for (size_t i = 0; i < HIDDEN; i++) {
        double x = op->x[first + i];
        square += x * x;
        dot += op->dn[first + i] * op->weight[i] * x;
    }
    double rstd = 1 / sqrt(square / HIDDEN + 1.0 / EPS_INVERSE);
    for (size_t i = 0; i < HIDDEN; i++) {
        double x = op->x[first + i], dn = op->dn[first + i];
        op->n[first + i] = x * rstd * op->weight[i];
        op->dx[first + i] = rstd * (dn * op->weight[i] - x * rstd * rstd * dot / HIDDEN);
        op->dweight[i] += dn * x * rstd;
    }
}

static int set_up(void **state)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c || harness_device(&c->dev, &c->stream) < 0)
        return -1;
    for (size_t i = 0; i < COUNT; i++) {
        c->op.x[i] = value_of(i, 1);
        c->op.dn[i] = value_of(i, 1000);
    }
    for (size_t i = 0; i < HIDDEN; i++)
        c->op.weight[i] = value_of(i, 2000);
    for (size_t t = 0; t < TOKENS; t++)
        add_reference(&c->op, t);
    *state = c;
    return 0;
}

static int tear_down(void **state)
{
    struct context *c = *state;
    hst_stream_destroy(&c->stream);
    hst_dev_close(&c->dev);
    free(c);
    return 0;
}

static void *take(size_t bytes)
{
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(data);
    return data;
}

static void convert(struct context *c, enum hst_dtype from, const void *src, enum hst_dtype to,
                    void *dst, size_t count)
{
    struct hst_cast cast = {count, from, to, src, dst};
    assert_int_equal(hst_op_cast(c->stream, &cast), 0);
    assert_int_equal(hst_stream_sync(c->stream), 0);
}

/* `values` in the dtype of the pass, to be freed. */
static void *rounded(struct context *c, enum hst_dtype dtype, const float *values, size_t count)
{
    void *data = take(count * hst_dtype_bytes(dtype));
    convert(c, HST_F32, values, dtype, data, count);
    return data;
}

typedef void body_fn(struct pass *p, const struct norm_work *w, void *x, void *dx);

/* Once to measure its workspace, then with exactly that, and with x and dn as they come out. */
static void run(struct context *c, enum hst_dtype dtype, body_fn *body, float *x, float *dx,
                float *dweight)
{
    struct llama model = model_f32;
    model.dtype = dtype;
    struct hst_param_view param = {.grad = dweight};
    struct pass p = {.model = &model,
                     .device = c->dev,
                     .stream = c->stream,
                     .dtype = dtype,
                     .param = &param,
                     .tokens = TOKENS,
                     .measure = &model.norm_op_bytes};
    struct norm_work work = {0};
    struct work_area area = {0};
    body(&p, &work, NULL, NULL);
    norm_work_carve(&model, &area, &work);
    area = (struct work_area){.base = take(area.size_bytes)};
    norm_work_carve(&model, &area, &work);
    p.measure = NULL;
    p.op_work = work.op;
    void *weight = rounded(c, dtype, c->op.weight, HIDDEN);
    void *carry = rounded(c, dtype, c->op.x, COUNT), *grad = rounded(c, dtype, c->op.dn, COUNT);
    param.data = weight;
    body(&p, &work, carry, grad);
    assert_int_equal(p.rc, 0);
    convert(c, dtype, carry, HST_F32, x, COUNT);
    convert(c, dtype, grad, HST_F32, dx, COUNT);
    free(area.base);
    free(weight);
    free(carry);
    free(grad);
}

static void assert_near(const float *got, const double *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= tolerance * fmax(1.0, fabs(expected[i]))))
            fail_msg("%zu: %.9g, not %.9g", i, (double)got[i], expected[i]);
}

static void forward(struct pass *p, const struct norm_work *w, void *x, void *dx)
{
    (void)dx;
    norm_forward(p, w, x);
}

static void backward(struct pass *p, const struct norm_work *w, void *x, void *dx)
{
    norm_backward(p, w, x, dx);
}

static void the_carry_becomes_the_heads_input(void **state)
{
    struct context *c = *state;
    float n[COUNT], dn[COUNT];
    run(c, HST_F32, forward, n, dn, NULL);
    assert_near(n, c->op.n, COUNT, 1e-6);
    run(c, HST_BF16, forward, n, dn, NULL);
    assert_near(n, c->op.n, COUNT, 0x1p-8);
}

static void check_backward(struct context *c, enum hst_dtype dtype, double tolerance)
{
    float x[COUNT], dx[COUNT], dweight[HIDDEN];
    double twice[HIDDEN];
    for (size_t i = 0; i < HIDDEN; i++) {
        dweight[i] = (float)c->op.dweight[i]; /* of an earlier micro-batch */
        twice[i] = 2 * c->op.dweight[i];
    }
    run(c, dtype, backward, x, dx, dweight);
    assert_memory_equal(x, c->op.x, sizeof x); /* the checkpoint, which is read-only */
    assert_near(dx, c->op.dx, COUNT, tolerance);
    assert_near(dweight, twice, HIDDEN, 1e-5);
}

static void the_backward_is_in_place_and_adds_to_the_weights_gradient(void **state)
{
    check_backward(*state, HST_F32, 1e-6);
    check_backward(*state, HST_BF16, 0x1p-8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_carry_becomes_the_heads_input),
        cmocka_unit_test(the_backward_is_in_place_and_adds_to_the_weights_gradient),
    };
    return cmocka_run_group_tests_name("model/norm", tests, set_up, tear_down);
}
