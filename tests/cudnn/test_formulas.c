/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graphs mean attention: evaluated as they are written, by the double's cuDNN
 * (tests/simt/cudnn), on the tensors of a call (token-major, grouped heads, cut into runs), they
 * give what a plain float64 attention gives. What remains for a card to show is that cuDNN's
 * kernels do what its graphs say.
 */
#include "half.h"
#include "sdpa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void hst_fake_cudnn_configure(const char *text); /* of the fake cuDNN */

static bool rounds; /* to 16 bits what the graph says has 16, between operations too */

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
        if (rounds)
            allowed += 2.02 * half_ulp * p->terms[t][i];
        if (!(fabs(got - expected) <= allowed))
            fail_msg("tensor %d, element %zu: %g, expected %g", (int)t, i, got, expected);
    }
}

/* ---- on the device --------------------------------------------------------------------------- */

struct device {
    void *tensors[TENSORS], *lse, *work;
    cudaStream_t stream;
};

static size_t lse_bytes(const struct problem *p)
{
    return p->batch * p->heads * p->seq * sizeof(float);
}

static void upload(const struct problem *p, struct device *d, size_t work_bytes)
{
    assert_int_equal(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), 0);
    for (int t = 0; t < TENSORS; t++) {
        size_t bytes = count_of(p, (enum tensor)t) * sizeof(uint16_t);
        assert_int_equal(cudaMalloc(&d->tensors[t], bytes), 0);
        assert_int_equal(cudaMemcpy(d->tensors[t], p->bits[t], bytes, cudaMemcpyHostToDevice), 0);
    }
    assert_int_equal(cudaMalloc(&d->lse, lse_bytes(p)), 0);
    assert_int_equal(cudaMalloc(&d->work, work_bytes), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0);
}

static void download(const struct problem *p, const struct device *d)
{
    assert_int_equal(cudaStreamSynchronize(d->stream), 0);
    for (int t = 0; t < TENSORS; t++)
        assert_int_equal(cudaMemcpy(p->bits[t], d->tensors[t],
                                    count_of(p, (enum tensor)t) * sizeof(uint16_t),
                                    cudaMemcpyDeviceToHost),
                         0);
    assert_int_equal(cudaMemcpy(p->lse, d->lse, lse_bytes(p), cudaMemcpyDeviceToHost), 0);
}

static void give_back(struct device *d)
{
    for (int t = 0; t < TENSORS; t++)
        cudaFree(d->tensors[t]);
    cudaFree(d->lse);
    cudaFree(d->work);
    cudaStreamDestroy(d->stream);
}

static struct hst_sdpa *sdpa;

static void check(struct problem *p)
{
    struct device d;
    struct hst_attention_backward args = {.forward = {.batch = p->batch,
                                                      .seq = p->seq,
                                                      .heads = p->heads,
                                                      .kv_heads = p->kv_heads,
                                                      .head_dim = p->dim,
                                                      .dtype = p->dtype,
                                                      .scale = (float)p->scale}};
    struct hst_attention *f = &args.forward;
    begin(p);
    assert_int_equal(hst_sdpa_work_bytes(sdpa, f, &f->work.size_bytes, NULL), 0);
    upload(p, &d, f->work.size_bytes);
    f->q = d.tensors[Q], f->k = d.tensors[K], f->v = d.tensors[V], f->o = d.tensors[O];
    f->lse = d.lse, f->work.data = d.work;
    args.dout = d.tensors[DOUT];
    args.dq = d.tensors[DQ], args.dk = d.tensors[DK], args.dv = d.tensors[DV];
    reference(p, false);
    assert_int_equal(hst_sdpa_supports(sdpa, f, false, NULL), 1);
    assert_int_equal(hst_sdpa_forward(sdpa, d.stream, f, NULL), 0);
    download(p, &d);
    compare(p, O);
    for (size_t i = 0; i < p->batch * p->heads * p->seq; i++)
        assert_true(fabs((double)p->lse[i] - p->expected_lse[i]) < 1e-5);
    reference(p, true);
    assert_int_equal(hst_sdpa_supports(sdpa, f, true, NULL), 1);
    assert_int_equal(hst_sdpa_backward(sdpa, d.stream, &args, NULL), 0);
    download(p, &d);
    compare(p, DQ);
    compare(p, DK);
    compare(p, DV);
    end(p);
    give_back(&d);
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
            check(&problems[i]);
        }
}

static void check_with(const char *configuration)
{
    struct hst_dev_failure failure;
    hst_fake_cudnn_configure(configuration);
    if (hst_sdpa_open(&sdpa, &failure))
        fail_msg("%s", failure.text);
    check_all();
    hst_sdpa_close(&sdpa);
}

static void the_graphs_are_attention(void **state)
{
    (void)state;
    rounds = false;
    check_with("exact=1");
}

static void with_their_roundings_they_are_near(void **state)
{
    (void)state;
    rounds = true;
    check_with(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_graphs_are_attention),
        cmocka_unit_test(with_their_roundings_they_are_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
