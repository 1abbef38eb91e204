/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention that sees a part of what is before a query: documents packed into a row, padding behind
 * them, windows; and that such a row has what its documents have alone.
 */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    struct ref_attention of;
    size_t longest; /* document; 0: first is null */
    size_t window;
    enum hst_dtype dtype;
};

enum { O, LSE, DQ, DK, DV, RESULTS };
static const char *const names[RESULTS] = {"o", "lse", "dq", "dk", "dv"};

struct operands {
    struct tensor *q, *k, *v, *dout, *result[RESULTS];
    struct hst_attention_backward args;
};

static size_t q_count(const struct ref_attention *a)
{
    return a->batch * a->seq * a->heads * a->head_dim;
}

static size_t kv_count(const struct ref_attention *a)
{
    return a->batch * a->seq * a->kv_heads * a->head_dim;
}

static void make_results(struct suite *s, const struct ref_attention *a, enum hst_dtype dtype,
                         struct tensor *result[RESULTS])
{
    result[O] = tensor_empty(s, q_count(a), dtype);
    result[LSE] = tensor_empty(s, a->batch * a->heads * a->seq, HST_F32);
    result[DQ] = tensor_empty(s, q_count(a), dtype);
    result[DK] = tensor_empty(s, kv_count(a), dtype);
    result[DV] = tensor_empty(s, kv_count(a), dtype);
}

static void point_at(struct hst_attention_backward *b, struct tensor *const result[RESULTS])
{
    b->forward.o = result[O]->data;
    b->forward.lse = result[LSE]->data;
    b->dq = result[DQ]->data;
    b->dk = result[DK]->data;
    b->dv = result[DV]->data;
}

static struct operands make_operands(struct suite *s, const struct shape *p)
{
    const struct ref_attention *a = &p->of;
    struct operands t = {.q = tensor_random(s, q_count(a), p->dtype, 1),
                         .k = tensor_random(s, kv_count(a), p->dtype, 1),
                         .v = tensor_random(s, kv_count(a), p->dtype, 1),
                         .dout = tensor_random(s, q_count(a), p->dtype, 1)};
    make_results(s, a, p->dtype, t.result);
    t.args.forward = (struct hst_attention){.batch = a->batch,
                                            .seq = a->seq,
                                            .heads = a->heads,
                                            .kv_heads = a->kv_heads,
                                            .head_dim = a->head_dim,
                                            .dtype = p->dtype,
                                            .scale = (float)a->scale,
                                            .q = t.q->data,
                                            .k = t.k->data,
                                            .v = t.v->data,
                                            .window = p->window};
    t.args.dout = t.dout->data;
    point_at(&t.args, t.result);
    t.args.forward.work = suite_work(s, hst_attention_work_bytes(s->dev, &t.args.forward));
    return t;
}

static void attend(struct suite *s, const struct hst_attention_backward *args)
{
    assert_int_equal(hst_op_attention(s->stream, &args->forward), 0);
    assert_int_equal(hst_op_attention_backward(s->stream, args), 0);
    suite_sync(s);
}

/* Documents of 1 to `longest` tokens, and the last eighth of each sequence padding: alone, said by
 * its own index or by any greater one. */
static uint32_t *random_documents(struct suite *s, const struct shape *p)
{
    size_t seq = p->of.seq, count = p->of.batch * seq;
    uint32_t *first = malloc(count * sizeof *first);
    assert_non_null(first);
    for (size_t i = 0, left = 0, begin = 0; i < count; i++) {
        size_t t = i % seq;
        if (t == 0 || !left) {
            left = 1 + (size_t)((suite_random(s) + 1) / 2 * (double)p->longest);
            begin = t;
        }
        left--;
        first[i] = (uint32_t)begin;
        if (t >= seq - seq / 8)
            first[i] = t < seq - seq / 16 ? (uint32_t)t : UINT32_MAX;
    }
    return first;
}

/* As test_attention.c has it: what f32 sums lose, and what rounded weights and a rounded o do. */
static double noise_of(const struct suite *s, const struct shape *p, int result)
{
    bool wide = p->dtype == HST_F32;
    double group = (double)p->of.heads / (double)p->of.kv_heads;
    double forward = 4e-7 * (fabs(p->of.scale) * (double)p->of.head_dim + 4);
    if (result == LSE)
        return forward;
    if (result == O)
        return forward + (suite_rounds_weights(s->dev, p->dtype) ? rounding(p->dtype, 0.5) : 0);
    return (wide ? 2e-6 : 1.03 * rounding(p->dtype, 1)) *
           (1 + sqrt(group * (double)p->of.seq) * 0.1);
}

static void narrow_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    uint32_t *first = p->longest ? random_documents(s, p) : NULL;
    if (first)
        t.args.forward.first = tensor_words(s, p->of.batch * p->of.seq, first)->data;
    const struct ref_narrow narrow = {p->of, first, p->window};
    double *want[RESULTS];
    for (int i = 0; i < RESULTS; i++)
        assert_non_null(want[i] = malloc(t.result[i]->count * sizeof(double)));
    ref_narrow(&narrow, t.q->values, t.k->values, t.v->values, want[O], want[LSE]);
    ref_narrow_backward(&narrow, t.q->values, t.k->values, t.v->values, t.dout->values, want[DQ],
                        want[DK], want[DV]);
    attend(s, &t.args);
    for (int i = 0; i < RESULTS; i++) {
        tensor_read(s, t.result[i]);
        expect_close(names[i], t.result[i], want[i], noise_of(s, p, i));
        free(want[i]);
    }
    free(first);
}

/* Documents shorter and longer than tiles, windows below a tile and beyond the sequence, both. */
static void what_a_query_does_not_see_is_not_there(void **state)
{
    (void)state;
    static const struct shape shapes[] = {
        {{2, 5, 2, 2, 8, 0.35}, 3, 0, 0},      {{3, 33, 4, 2, 12, 0.3}, 9, 0, 0},
        {{1, 130, 2, 1, 80, 0.11}, 70, 0, 0},  {{1, 130, 2, 2, 64, 0.125}, 0, 17, 0},
        {{2, 200, 2, 1, 64, 0.125}, 90, 0, 0}, {{1, 300, 2, 2, 128, 0.088}, 150, 40, 0},
        {{1, 150, 2, 1, 96, 0.102}, 20, 0, 0}, {{1, 140, 1, 1, 256, 0.0625}, 60, 50, 0},
        {{1, 70, 1, 1, 16, 0.25}, 30, 500, 0}, {{1, 200, 1, 1, 64, 0.125}, 1, 0, 0},
        {{2, 65, 4, 1, 64, 0.125}, 0, 1, 0},
    };
    for (size_t i = 0; i < DTYPES * sizeof shapes / sizeof *shapes; i++) {
        struct shape p = shapes[i / DTYPES];
        p.dtype = suite_dtypes[i % DTYPES];
        if (suite_tries(i / DTYPES, i % DTYPES))
            suite_run(narrow_case, &p);
    }
}

/* cuDNN serves what is not narrowed, and the plugin's own kernels the rest: they differ by what
 * either may be off. Where one engine serves both, they do not differ. */
static double apart_of(struct suite *s, const struct shape *p, int result)
{
    char math[HST_DEV_MATH_BYTES];
    hst_dev_math(s->dev, math, sizeof math);
    bool two = strstr(math, "attention by cuDNN") && p->dtype != HST_F32;
    return two ? 2 * noise_of(s, p, result) + 2 * rounding(p->dtype, 1) : 0;
}

static void expect_alike(const char *what, size_t i, double got, double want, double apart)
{
    double allowed = apart * (1 + fabs(want));
    if (!(fabs(got - want) <= allowed))
        fail_msg("%s[%zu] is %.9g, otherwise %.9g: allowed %.3g", what, i, got, want, allowed);
}

/* The same bytes, whether all is seen because nothing is said or because that is said. */
static void all_seen_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    struct tensor *again[RESULTS];
    make_results(s, &p->of, p->dtype, again);
    uint32_t *zeros = calloc(p->of.batch * p->of.seq, sizeof *zeros);
    assert_non_null(zeros);
    t.args.forward.window = 0;
    attend(s, &t.args);
    t.args.forward.first = tensor_words(s, p->of.batch * p->of.seq, zeros)->data;
    t.args.forward.window = p->window;
    point_at(&t.args, again);
    attend(s, &t.args);
    for (int i = 0; i < RESULTS; i++) {
        tensor_read(s, t.result[i]);
        tensor_read(s, again[i]);
        for (size_t j = 0; j < again[i]->count; j++)
            expect_alike(names[i], j, again[i]->values[j], t.result[i]->values[j],
                         apart_of(s, p, i));
    }
    free(zeros);
}

static void all_that_is_seen_has_the_bytes_of_no_narrowing(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{{2, 150, 2, 1, 64, 0.125}, 0, 0, 0},
                                          {{1, 150, 1, 1, 96, 0.1}, 0, 150, 0},
                                          {{1, 150, 1, 1, 128, 0.088}, 0, 900, 0},
                                          {{1, 150, 1, 1, 256, 0.0625}, 0, 0, 0},
                                          {{2, 90, 2, 2, 20, 0.2}, 0, 0, 0}};
    for (size_t i = 0; i < DTYPES * sizeof shapes / sizeof *shapes; i++) {
        struct shape p = shapes[i / DTYPES];
        p.dtype = suite_dtypes[i % DTYPES];
        if (suite_tries(i / DTYPES, i % DTYPES))
            suite_run(all_seen_case, &p);
    }
}

/* ---- alone ----------------------------------------------------------------------------------- */

enum { DOCUMENTS = 4 };

struct packed {
    struct shape of; /* batch 1 */
    size_t length[DOCUMENTS];
    bool same_bits;
};

/* Element i of a document's result, in the row's. */
static double of_row(const struct packed *p, const struct operands *t, int result, size_t begin,
                     size_t length, size_t i)
{
    const struct ref_attention *a = &p->of.of;
    size_t width = (result == DK || result == DV ? a->kv_heads : a->heads) * a->head_dim;
    size_t at = result == LSE ? i / length * a->seq + begin + i % length : begin * width + i;
    return t->result[result]->values[at];
}

static void compare_document(struct suite *s, const struct packed *p, const struct operands *t,
                             size_t begin, size_t length)
{
    struct ref_attention one = p->of.of;
    size_t bytes = hst_dtype_bytes(p->of.dtype);
    size_t q = begin * one.heads * one.head_dim * bytes, kv = q / one.heads * one.kv_heads;
    struct tensor *alone[RESULTS];
    struct hst_attention_backward args = t->args;
    one.seq = length;
    make_results(s, &one, p->of.dtype, alone);
    point_at(&args, alone);
    args.forward.seq = length;
    args.forward.first = NULL;
    args.forward.q = (const char *)args.forward.q + q;
    args.forward.k = (const char *)args.forward.k + kv;
    args.forward.v = (const char *)args.forward.v + kv;
    args.dout = (const char *)args.dout + q;
    attend(s, &args);
    for (int r = 0; r < RESULTS; r++) {
        tensor_read(s, alone[r]);
        double apart = apart_of(s, &p->of, r) + (p->same_bits ? 0 : 1e-6);
        for (size_t i = 0; i < alone[r]->count; i++)
            expect_alike(names[r], i, of_row(p, t, r, begin, length, i), alone[r]->values[i],
                         apart);
    }
}

static void packed_case(struct suite *s, const void *parameters)
{
    const struct packed *p = parameters;
    struct operands t = make_operands(s, &p->of);
    uint32_t *first = malloc(p->of.of.seq * sizeof *first);
    size_t begin = 0;
    assert_non_null(first);
    for (size_t d = 0; d < DOCUMENTS; begin += p->length[d++])
        for (size_t i = 0; i < p->length[d]; i++)
            first[begin + i] = (uint32_t)begin;
    assert_int_equal(begin, p->of.of.seq);
    t.args.forward.first = tensor_words(s, p->of.of.seq, first)->data;
    attend(s, &t.args);
    for (int r = 0; r < RESULTS; r++)
        tensor_read(s, t.result[r]);
    begin = 0;
    for (size_t d = 0; d < DOCUMENTS; begin += p->length[d++])
        compare_document(s, p, &t, begin, p->length[d]);
    free(first);
}

static void documents_that_begin_with_a_tile_have_the_bits_that_they_have_alone(void **state)
{
    (void)state;
    static const size_t dims[] = {64, 96, 128, 256, 20};
    for (size_t i = 0; i < DTYPES * sizeof dims / sizeof *dims; i++) {
        struct packed p = {{{1, 384, 2, 1, dims[i / DTYPES], 0.1}, 0, 0, suite_dtypes[i % DTYPES]},
                           {64, 128, 64, 128},
                           true};
        if (suite_tries(i / DTYPES, i % DTYPES))
            suite_run(packed_case, &p);
    }
}

static void documents_that_begin_anywhere_have_what_they_have_alone(void **state)
{
    (void)state;
    suite_run(packed_case,
              &(struct packed){{{1, 250, 2, 1, 32, 0.17}, 0, 0, HST_F32}, {50, 101, 1, 98}, false});
    suite_run(
        packed_case,
        &(struct packed){{{1, 250, 2, 2, 64, 0.125}, 0, 0, HST_F32}, {130, 30, 33, 57}, false});
}

/* ---- wrong arguments ------------------------------------------------------------------------- */

static void expect_untouched(struct suite *s, struct tensor *t)
{
    tensor_read(s, t);
    for (size_t i = 0; i < t->count; i++)
        assert_true(isnan(t->values[i]));
}

static void refusals_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    struct operands t = make_operands(s, p);
    t.args.forward.first = (const uint32_t *)((const char *)t.q->data + 2);
    assert_int_equal(hst_op_attention(s->stream, &t.args.forward), -EINVAL);
    assert_int_equal(hst_op_attention_backward(s->stream, &t.args), -EINVAL);
    struct hst_attention long_one = t.args.forward; /* empty: nothing but its extents is wrong */
    long_one.batch = 0;
    long_one.seq = (size_t)1 << 31;
    assert_int_equal(hst_op_attention(s->stream, &long_one), -EINVAL);
    long_one.first = NULL;
    long_one.window = 1;
    assert_int_equal(hst_op_attention(s->stream, &long_one), -EINVAL);
    long_one.window = 0;
    assert_int_equal(hst_op_attention(s->stream, &long_one), 0);
    for (int i = 0; i < RESULTS; i++)
        expect_untouched(s, t.result[i]);
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, &(struct shape){{1, 5, 2, 2, 8, 0.35}, 0, 0, HST_F32});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_query_does_not_see_is_not_there),
        cmocka_unit_test(all_that_is_seen_has_the_bytes_of_no_narrowing),
        cmocka_unit_test(documents_that_begin_with_a_tile_have_the_bits_that_they_have_alone),
        cmocka_unit_test(documents_that_begin_anywhere_have_what_they_have_alone),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
