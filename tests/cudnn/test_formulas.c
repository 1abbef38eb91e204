/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graphs mean attention: evaluated as they are written, without cuDNN, on the tensors of a call
 * (token-major, grouped heads, cut into runs), they give what a plain float64 attention gives. What
 * remains for a card to show is that cuDNN's kernels do what its graphs say.
 */
#include "cut.h"
#include "fake_cudnn.h"
#include "half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum tensor { Q, K, V, O, DOUT, DQ, DK, DV, TENSORS };

struct problem {
    enum hst_dtype dtype;
    size_t batch, seq, heads, kv_heads, dim;
    double scale;
    uint16_t *bits[TENSORS];
    double *expected[TENSORS], *expected_lse;
    double *terms[TENSORS]; /* the sum of what expected is summed from, each without its sign */
    float *lse;
};

static size_t heads_of(const struct problem *p, enum tensor t)
{
    return t == K || t == V || t == DK || t == DV ? p->kv_heads : p->heads;
}

static size_t count_of(const struct problem *p, enum tensor t)
{
    return p->batch * p->seq * heads_of(p, t) * p->dim;
}

/* Where a token's head begins. */
static size_t place(const struct problem *p, enum tensor t, size_t row, size_t token, size_t head)
{
    return ((row * p->seq + token) * heads_of(p, t) + head) * p->dim;
}

static double dot(const struct problem *p, enum tensor a, size_t ia, enum tensor b, size_t ib)
{
    double sum = 0;
    for (size_t i = 0; i < p->dim; i++)
        sum += half_value(p->dtype, p->bits[a][ia + i]) * half_value(p->dtype, p->bits[b][ib + i]);
    return sum;
}

/* Adds a row of x to what is expected of a row of t. */
static void add_scaled(struct problem *p, enum tensor t, size_t at, double factor,
                       const uint16_t *x)
{
    for (size_t i = 0; i < p->dim; i++) {
        p->expected[t][at + i] += factor * half_value(p->dtype, x[i]);
        p->terms[t][at + i] += fabs(factor * half_value(p->dtype, x[i]));
    }
}

/* One query's row: o and lse; with backward set dq and its part of dk, dv, from the o of memory. */
static void reference_row(struct problem *p, size_t row, size_t head, size_t token, bool backward)
{
    size_t kv = head / (p->heads / p->kv_heads), at = place(p, Q, row, token, head);
    double *score = calloc(p->seq, sizeof *score), sum = 0;
    for (size_t j = 0; j <= token; j++) {
        score[j] = p->scale * dot(p, Q, at, K, place(p, K, row, j, kv));
        sum += exp(score[j]);
    }
    p->expected_lse[(row * p->heads + head) * p->seq + token] = log(sum);
    double centre = backward ? dot(p, DOUT, at, O, at) : 0;
    for (size_t j = 0; j <= token; j++) {
        size_t key = place(p, K, row, j, kv);
        double weight = exp(score[j]) / sum;
        if (!backward) {
            add_scaled(p, O, at, weight, p->bits[V] + key);
            continue;
        }
        double ds = p->scale * weight * (dot(p, DOUT, at, V, key) - centre);
        add_scaled(p, DQ, at, ds, p->bits[K] + key);
        add_scaled(p, DK, key, ds, p->bits[Q] + at);
        add_scaled(p, DV, key, weight, p->bits[DOUT] + at);
    }
    free(score);
}

static void reference(struct problem *p, bool backward)
{
    for (size_t row = 0; row < p->batch; row++)
        for (size_t head = 0; head < p->heads; head++)
            for (size_t token = 0; token < p->seq; token++)
                reference_row(p, row, head, token, backward);
}

static void begin(struct problem *p)
{
    uint32_t random = 1;
    for (int t = 0; t < TENSORS; t++) {
        size_t count = count_of(p, (enum tensor)t);
        p->bits[t] = calloc(count, sizeof(uint16_t));
        p->expected[t] = calloc(count, sizeof(double));
        p->terms[t] = calloc(count, sizeof(double));
        for (size_t i = 0; i < count; i++) {
            random = random * 1664525 + 1013904223;
            /* outputs too: they are to be overwritten */
            p->bits[t][i] = half_round(p->dtype, (random >> 8) * 0x1p-23 - 1);
        }
    }
    p->lse = calloc(p->batch * p->heads * p->seq, sizeof *p->lse);
    p->expected_lse = calloc(p->batch * p->heads * p->seq, sizeof *p->expected_lse);
}

static void end(struct problem *p)
{
    for (int t = 0; t < TENSORS; t++) {
        free(p->bits[t]);
        free(p->expected[t]);
        free(p->terms[t]);
    }
    free(p->lse);
    free(p->expected_lse);
}

/*
 * Outputs are rounded, half an ulp of their value off at most. Where factors are rounded too, each
 * term is off by as much, and once more where heads of a group are.
 */
static void compare(const struct problem *p, enum tensor t)
{
    for (size_t i = 0; i < count_of(p, t); i++) {
        double got = half_value(p->dtype, p->bits[t][i]), expected = p->expected[t][i];
        double half_ulp = p->dtype == HST_BF16 ? 0x1p-8 : 0x1p-11;
        double allowed = half_ulp * fabs(expected) + 1e-5;
        if (fake.rounds)
            allowed += 2.02 * half_ulp * p->terms[t][i];
        if (!(fabs(got - expected) <= allowed))
            fail_msg("tensor %d, element %zu: %g, expected %g", (int)t, i, got, expected);
    }
}

static void check(struct hst_sdpa *sdpa, struct problem *p)
{
    begin(p);
    struct hst_attention_backward args = {.forward = {.batch = p->batch,
                                                      .seq = p->seq,
                                                      .heads = p->heads,
                                                      .kv_heads = p->kv_heads,
                                                      .head_dim = p->dim,
                                                      .dtype = p->dtype,
                                                      .scale = (float)p->scale,
                                                      .q = p->bits[Q],
                                                      .k = p->bits[K],
                                                      .v = p->bits[V],
                                                      .o = p->bits[O],
                                                      .lse = p->lse},
                                          .dout = p->bits[DOUT],
                                          .dq = p->bits[DQ],
                                          .dk = p->bits[DK],
                                          .dv = p->bits[DV]};
    reference(p, false);
    assert_int_equal(hst_sdpa_forward(sdpa, NULL, &args.forward, NULL), 0);
    compare(p, O);
    for (size_t i = 0; i < p->batch * p->heads * p->seq; i++)
        assert_true(fabs((double)p->lse[i] - p->expected_lse[i]) < 1e-5);
    reference(p, true);
    assert_int_equal(hst_sdpa_backward(sdpa, NULL, &args, NULL), 0);
    compare(p, DQ);
    compare(p, DK);
    compare(p, DV);
    end(p);
}

static struct hst_sdpa sdpa;

static int open_evaluating(void **state)
{
    (void)state;
    fake_reset();
    fake.evaluates = true;
    fake_open(&sdpa, 90);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    fake_close(&sdpa);
    return 0;
}

static void check_all(void)
{
    struct problem problems[] = {
        {.batch = 1, .seq = 2, .heads = 1, .kv_heads = 1, .dim = 8, .scale = 1},
        {.batch = 2, .seq = 13, .heads = 3, .kv_heads = 3, .dim = 16, .scale = 0.25},
        {.batch = 3, .seq = 9, .heads = 6, .kv_heads = 2, .dim = 8, .scale = 0.35},
        {.batch = 1, .seq = 17, .heads = 4, .kv_heads = 1, .dim = 24, .scale = -0.2},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (enum hst_dtype dtype = HST_BF16; dtype <= HST_F16; dtype++) {
            problems[i].dtype = dtype;
            check(&sdpa, &problems[i]);
        }
}

static void the_graphs_are_attention(void **state)
{
    (void)state;
    check_all();
}

static void with_their_roundings_they_are_near(void **state)
{
    (void)state;
    fake.rounds = true;
    check_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_graphs_are_attention, open_evaluating, close_device),
        cmocka_unit_test_setup_teardown(with_their_roundings_they_are_near, open_evaluating,
                                        close_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
