/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding, SwiGLU, sums and conversions. */
#include "half.h"
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <stdlib.h>

static double *doubles(size_t count)
{
    double *d = malloc(count * sizeof *d);
    assert_non_null(d);
    return d;
}

/* ---- rope
 * -----------------------------------------------------------------------------------------------
 */

struct rope_shape {
    size_t batch, seq, heads, head_dim;
    enum hst_dtype dtype;
};

static void rope_case(struct suite *s, const void *parameters)
{
    const struct rope_shape *p = parameters;
    size_t tokens = p->batch * p->seq, count = tokens * p->heads * p->head_dim,
           half = p->head_dim / 2;
    struct tensor *x = tensor_random(s, count, p->dtype, 2);
    struct tensor *cosine = tensor_empty(s, p->seq * half, HST_F32);
    struct tensor *sine = tensor_empty(s, p->seq * half, HST_F32);
    for (size_t i = 0; i < p->seq * half; i++) {
        cosine->values[i] = cos((double)i * 0.37);
        sine->values[i] = sin((double)i * 0.37);
    }
    tensor_write(s, cosine);
    tensor_write(s, sine);
    double *want = doubles(count), *before = doubles(count);
    memcpy(want, x->values, count * sizeof *want);
    memcpy(before, x->values, count * sizeof *before);
    ref_rope(tokens, p->seq, p->heads, p->head_dim, want, cosine->values, sine->values);
    struct hst_rope args = {.batch = p->batch,
                            .seq = p->seq,
                            .heads = p->heads,
                            .head_dim = p->head_dim,
                            .dtype = p->dtype,
                            .x = x->data,
                            .cos = cosine->data,
                            .sin = sine->data};
    assert_int_equal(hst_op_rope(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, x);
    expect_close("x", x, want, 4e-7);
    args.inverse = true; /* a rotation's transpose, and so its gradient, is its inverse */
    assert_int_equal(hst_op_rope(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, x);
    expect_close("x rotated back", x, before, p->dtype == HST_F32 ? 1e-6 : rounding(p->dtype, 4));
    free(want);
    free(before);
}

/* Places of packed documents: they begin anew, and are not those of the row above. */
static void places_case(struct suite *s, const void *parameters)
{
    const struct rope_shape *p = parameters;
    size_t tokens = p->batch * p->seq, width = p->heads * p->head_dim, half = p->head_dim / 2;
    struct tensor *x = tensor_random(s, tokens * width, p->dtype, 2);
    struct tensor *cosine = tensor_random(s, p->seq * half, HST_F32, 1);
    struct tensor *sine = tensor_random(s, p->seq * half, HST_F32, 1);
    uint32_t *places = malloc(tokens * sizeof *places);
    double *want = doubles(tokens * width);
    assert_non_null(places);
    for (size_t t = 0; t < tokens; t++)
        places[t] = (uint32_t)(t * 7 % p->seq);
    memcpy(want, x->values, tokens * width * sizeof *want);
    ref_rope_placed(tokens, places, p->heads, p->head_dim, want, cosine->values, sine->values);
    struct hst_rope args = {.batch = p->batch,
                            .seq = p->seq,
                            .heads = p->heads,
                            .head_dim = p->head_dim,
                            .dtype = p->dtype,
                            .x = x->data,
                            .cos = cosine->data,
                            .sin = sine->data,
                            .position = tensor_words(s, tokens, places)->data};
    assert_int_equal(hst_op_rope(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, x);
    expect_close("x", x, want, 4e-7);
    free(places);
    free(want);
}

static void rope_turns_by_the_places_that_are_given(void **state)
{
    (void)state;
    static const struct rope_shape shapes[] = {{3, 33, 2, 64, 0}, {2, 13, 19, 66, 0}};
    for (size_t i = 0; i < DTYPES * sizeof shapes / sizeof *shapes; i++) {
        struct rope_shape p = shapes[i / DTYPES];
        p.dtype = suite_dtypes[i % DTYPES];
        suite_run(places_case, &p);
    }
}

static void rope_matches_and_inverts(void **state)
{
    (void)state;
    static const struct rope_shape shapes[] = {
        {1, 1, 1, 2, 0},  {2, 5, 3, 6, 0},    {1, 7, 2, 32, 0},  {3, 33, 2, 64, 0},
        {1, 9, 5, 80, 0}, {2, 130, 1, 34, 0}, {2, 3, 19, 66, 0}, {1, 2, 17, 528, 0}};
    for (size_t i = 0; i < DTYPES * sizeof shapes / sizeof *shapes; i++) {
        struct rope_shape p = shapes[i / DTYPES];
        p.dtype = suite_dtypes[i % DTYPES];
        suite_run(rope_case, &p);
    }
}

/* ---- swiglu
 * --------------------------------------------------------------------------------------------- */

struct flat {
    size_t count;
    enum hst_dtype dtype;
    int alias;
};

static void swiglu_case(struct suite *s, const void *parameters)
{
    const struct flat *p = parameters;
    struct tensor *gate = tensor_random(s, p->count, p->dtype, 12);
    struct tensor *up = tensor_random(s, p->count, p->dtype, 2);
    struct tensor *out = p->alias == 1   ? gate
                         : p->alias == 2 ? up
                                         : tensor_empty(s, p->count, p->dtype);
    double *want = doubles(p->count);
    ref_swiglu(p->count, gate->values, up->values, want);
    assert_int_equal(hst_op_swiglu(s->stream, &(struct hst_swiglu){p->count, p->dtype, gate->data,
                                                                   up->data, out->data}),
                     0);
    suite_sync(s);
    tensor_read(s, out);
    for (size_t i = 0; i < p->count; i++) /* a product of roundings: the error is relative */
        assert_true(fabs(out->values[i] - want[i]) <=
                    rounding(p->dtype, want[i]) + 4e-7 * fabs(want[i]) + 1e-38);
    free(want);
}

struct swiglu_loss {
    size_t at;
    double *gate, *up, *dout;
};

static double swiglu_loss(void *context)
{
    struct swiglu_loss *l = context;
    double out;
    ref_swiglu(1, l->gate + l->at, l->up + l->at, &out);
    return out * l->dout[l->at];
}

static void swiglu_backward_case(struct suite *s, const void *parameters)
{
    const struct flat *p = parameters;
    struct tensor *gate = tensor_random(s, p->count, p->dtype, 12);
    struct tensor *up = tensor_random(s, p->count, p->dtype, 2);
    struct tensor *dout = tensor_random(s, p->count, p->dtype, 1);
    struct tensor *dgate = p->alias ? gate : tensor_empty(s, p->count, p->dtype);
    struct tensor *dup = p->alias ? up : tensor_empty(s, p->count, p->dtype);
    double *want_gate = doubles(p->count), *want_up = doubles(p->count);
    struct swiglu_loss l = {0, gate->values, up->values, dout->values};
    for (l.at = 0; l.at < p->count; l.at++) {
        want_gate[l.at] = ref_slope(swiglu_loss, &l, &gate->values[l.at], 1e-5);
        want_up[l.at] = ref_slope(swiglu_loss, &l, &up->values[l.at], 1e-4);
    }
    assert_int_equal(
        hst_op_swiglu_backward(
            s->stream, &(struct hst_swiglu_backward){p->count, p->dtype, gate->data, up->data,
                                                     dout->data, dgate->data, dup->data}),
        0);
    suite_sync(s);
    tensor_read(s, dgate);
    tensor_read(s, dup);
    expect_close("dgate", dgate, want_gate, 2e-6);
    expect_close("dup", dup, want_up, 2e-6);
    free(want_gate);
    free(want_up);
}

static const size_t counts[] = {1, 2, 15, 16, 17, 31, 33, 1000, 16384, 16385, 40001};
enum { COUNTS = sizeof counts / sizeof *counts };

static void swiglu_matches_with_and_without_aliases(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        for (int form = 0; form < 3 * DTYPES; form++)
            suite_run(swiglu_case,
                      &(struct flat){counts[i], suite_dtypes[form % DTYPES], form / DTYPES});
}

static void swiglu_backward_is_the_slope_of_the_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        for (int form = 0; form < 2 * DTYPES; form++)
            suite_run(swiglu_backward_case,
                      &(struct flat){counts[i], suite_dtypes[form % DTYPES], form / DTYPES});
}

static void swiglu_far_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    static const double far[] = {-3e38, -200, -104, -90, -0.0, 90, 200, 3e38, INFINITY, NAN};
    enum { FAR = sizeof far / sizeof *far };
    struct tensor *gate = tensor_empty(s, FAR, HST_F32), *up = tensor_filled(s, FAR, HST_F32, 1);
    memcpy(gate->values, far, sizeof far);
    tensor_write(s, gate);
    assert_int_equal(hst_op_swiglu(s->stream, &(struct hst_swiglu){FAR, HST_F32, gate->data,
                                                                   up->data, up->data}),
                     0);
    suite_sync(s);
    tensor_read(s, up);
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(up->values[i]) <= 1e-36);
    assert_true(up->values[4] == 0);
    for (size_t i = 5; i < 9; i++)
        assert_true(up->values[i] == gate->values[i]);
    assert_true(isnan(up->values[9]));
}

static void swiglu_saturates_far_from_zero_and_keeps_nan(void **state)
{
    (void)state;
    suite_run(swiglu_far_case, NULL);
}

/* ---- add, cast
 * ------------------------------------------------------------------------------------------ */

static void add_case(struct suite *s, const void *parameters)
{
    const struct flat *p = parameters;
    struct tensor *a = tensor_random(s, p->count, p->dtype, 3);
    struct tensor *b = tensor_random(s, p->count, p->dtype, 1e-2);
    struct tensor *out = p->alias == 1   ? a
                         : p->alias == 2 ? b
                                         : tensor_empty(s, p->count, p->dtype);
    double *want = doubles(p->count);
    for (size_t i = 0; i < p->count; i++) /* f32 first, as the arithmetic is, then one rounding */
        want[i] = round_to(p->dtype, (float)a->values[i] + (float)b->values[i]);
    assert_int_equal(
        hst_op_add(s->stream, &(struct hst_add){p->count, p->dtype, a->data, b->data, out->data}),
        0);
    suite_sync(s);
    tensor_read(s, out);
    assert_memory_equal(out->values, want, p->count * sizeof *want);
    free(want);
}

static void add_is_exact_to_one_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        for (int form = 0; form < 3 * DTYPES; form++)
            suite_run(add_case,
                      &(struct flat){counts[i], suite_dtypes[form % DTYPES], form / DTYPES});
}

struct cast {
    size_t count;
    enum hst_dtype from, to;
};

static void cast_case(struct suite *s, const void *parameters)
{
    const struct cast *p = parameters;
    struct tensor *from = tensor_random(s, p->count, p->from, 5);
    struct tensor *out = tensor_empty(s, p->count, p->to);
    double *want = doubles(p->count);
    for (size_t i = 0; i < p->count; i++)
        want[i] = round_to(p->to, from->values[i]);
    assert_int_equal(
        hst_op_cast(s->stream, &(struct hst_cast){p->count, p->from, p->to, from->data, out->data}),
        0);
    suite_sync(s);
    tensor_read(s, out);
    assert_memory_equal(out->values, want, p->count * sizeof *want);
    free(want);
}

static void cast_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        for (int pair = 0; pair < DTYPES * DTYPES; pair++)
            suite_run(cast_case, &(struct cast){counts[i], suite_dtypes[pair / DTYPES],
                                                suite_dtypes[pair % DTYPES]});
}

/* Raw bytes on the device. */
static void upload(struct suite *s, struct tensor *t, const void *from, size_t size_bytes)
{
    memcpy(s->staging, from, size_bytes);
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, size_bytes), 0);
    suite_sync(s);
}

/* Casts `count` f32 patterns and compares bits. */
static void expect_cast_to(struct suite *s, enum hst_dtype dtype, size_t count, const void *from,
                           const uint16_t *want)
{
    struct tensor *wide = tensor_empty(s, count, HST_F32), *half = tensor_empty(s, count, dtype);
    upload(s, wide, from, count * 4);
    assert_int_equal(
        hst_op_cast(s->stream, &(struct hst_cast){count, HST_F32, dtype, wide->data, half->data}),
        0);
    suite_sync(s);
    tensor_read(s, half);
    for (size_t i = 0; i < count; i++)
        if (memcmp(s->staging + i * 2, &want[i], 2) != 0) {
            uint32_t bits;
            uint16_t got;
            memcpy(&bits, (const char *)from + i * 4, 4);
            memcpy(&got, s->staging + i * 2, 2);
            fail_msg("%08x became %04x, not %04x", bits, got, want[i]);
        }
}

static void cast_edges_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    static const struct {
        uint32_t from;
        uint16_t bf16, f16;
    } edges[] = {
        {0x3f808000, 0x3f80, 0x3c04}, {0x3f818000, 0x3f82, 0x3c0c}, {0x3f808001, 0x3f81, 0x3c04},
        {0x3f801000, 0x3f80, 0x3c00}, {0x3f803000, 0x3f80, 0x3c02}, {0x7f7fffff, 0x7f80, 0x7c00},
        {0x7f7f7fff, 0x7f7f, 0x7c00}, {0x477fefff, 0x4780, 0x7bff}, {0x477ff000, 0x4780, 0x7c00},
        {0xc7800000, 0xc780, 0xfc00}, {0x7f800000, 0x7f80, 0x7c00}, {0xff800000, 0xff80, 0xfc00},
        {0x80000000, 0x8000, 0x8000}, {0x00000001, 0x0000, 0x0000}, {0x00008000, 0x0000, 0x0000},
        {0x00018000, 0x0002, 0x0000}, {0x807fffff, 0x8080, 0x8000}, {0xb3000000, 0xb300, 0x8000},
        {0xb3000001, 0xb300, 0x8001}, {0x7f800001, 0x7fc0, 0x7e00}, {0xffffffff, 0xffff, 0xffff},
        {0x7fc00000, 0x7fc0, 0x7e00}, {0x7fffffff, 0x7fff, 0x7fff}, {0xff812000, 0xffc1, 0xfe09}};
    enum { EDGES = sizeof edges / sizeof *edges };
    uint32_t from[EDGES];
    uint16_t bf16[EDGES], f16[EDGES];
    for (size_t i = 0; i < EDGES; i++) {
        from[i] = edges[i].from;
        bf16[i] = edges[i].bf16;
        f16[i] = edges[i].f16;
    }
    expect_cast_to(s, HST_BF16, EDGES, from, bf16);
    expect_cast_to(s, HST_F16, EDGES, from, f16);
}

static void cast_handles_ties_infinities_subnormals_and_nan(void **state)
{
    (void)state;
    suite_run(cast_edges_case, NULL);
}

static void boundaries_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    float *from = malloc(F16_BOUNDARIES * sizeof *from);
    uint16_t *want = malloc(F16_BOUNDARIES * sizeof *want);
    assert_true(from && want);
    f16_boundaries(from, want);
    expect_cast_to(s, HST_F16, F16_BOUNDARIES, from, want);
    free(from);
    free(want);
}

static void f16_turns_at_every_middle_and_nowhere_else(void **state)
{
    (void)state;
    suite_run(boundaries_case, NULL);
}

static void patterns_case(struct suite *s, const void *parameters)
{
    enum { PATTERNS = 1 << 16 };
    enum hst_dtype dtype = *(const enum hst_dtype *)parameters;
    static uint16_t patterns[PATTERNS];
    struct tensor *half = tensor_empty(s, PATTERNS, dtype);
    struct tensor *wide = tensor_empty(s, PATTERNS, HST_F32);
    for (unsigned i = 0; i < PATTERNS; i++)
        patterns[i] = (uint16_t)i;
    upload(s, half, patterns, sizeof patterns);
    assert_int_equal(hst_op_cast(s->stream, &(struct hst_cast){PATTERNS, dtype, HST_F32, half->data,
                                                               wide->data}),
                     0);
    suite_sync(s);
    tensor_read(s, wide);
    for (unsigned i = 0; i < PATTERNS; i++) {
        double want = half_value(dtype, (uint16_t)i), got = wide->values[i];
        if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want))
            fail_msg("%04x became %.9g, not %.9g", i, got, want);
    }
}

static void every_pattern_of_16_bits_is_the_number_it_stands_for(void **state)
{
    (void)state;
    suite_run(patterns_case, &suite_dtypes[1]);
    suite_run(patterns_case, &suite_dtypes[2]);
}

/* Sums about the ends of f16: half of its least step, its least step, its largest number. */
static void ends_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    static const struct {
        double a, b, sum;
    } rows[] = {
        {0x1p-24, 0, 0x1p-24},    {0x1p-24, 0x1p-24, 0x1p-23}, {0x1p-14, -0x1p-24, 0x1.ff8p-15},
        {65504, 8, 65504},        {65504, 16, INFINITY},       {65504, 65504, INFINITY},
        {-65504, -16, -INFINITY}, {INFINITY, -65504, INFINITY}};
    enum { ROWS = sizeof rows / sizeof *rows };
    struct tensor *a = tensor_empty(s, ROWS, HST_F16), *b = tensor_empty(s, ROWS, HST_F16);
    struct tensor *out = tensor_empty(s, ROWS, HST_F16);
    for (size_t i = 0; i < ROWS; i++) {
        a->values[i] = rows[i].a;
        b->values[i] = rows[i].b;
    }
    tensor_write(s, a);
    tensor_write(s, b);
    assert_int_equal(
        hst_op_add(s->stream, &(struct hst_add){ROWS, HST_F16, a->data, b->data, out->data}), 0);
    suite_sync(s);
    tensor_read(s, out);
    for (size_t i = 0; i < ROWS; i++)
        assert_true(out->values[i] == rows[i].sum);
    /* 300·σ(300)·300 */
    struct tensor *gate = tensor_filled(s, 3, HST_F16, 300);
    assert_int_equal(hst_op_swiglu(s->stream, &(struct hst_swiglu){3, HST_F16, gate->data,
                                                                   gate->data, gate->data}),
                     0);
    suite_sync(s);
    tensor_read(s, gate);
    assert_true(gate->values[0] == INFINITY && gate->values[2] == INFINITY);
}

static void f16_keeps_subnormals_and_ends_in_infinity(void **state)
{
    (void)state;
    suite_run(ends_case, NULL);
}

/* ---- refusals
 * ------------------------------------------------------------------------------------------- */

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){8, 0, f, f, f}), -EINVAL);
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){8, HST_F32, f, NULL, f}), -EINVAL);
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){8, HST_F32, f, f, f + 4}), -EINVAL);
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){8, HST_F32, f, f, f + 9}), -EINVAL);
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){SIZE_MAX / 2, HST_F32, f, f, f}),
                     -EINVAL);
    assert_int_equal(hst_op_cast(s->stream, &(struct hst_cast){8, HST_F32, HST_BF16, f, f}),
                     -EINVAL);
    assert_int_equal(hst_op_cast(s->stream, &(struct hst_cast){8, HST_F32, 0, f, f + 64}), -EINVAL);
    assert_int_equal(hst_op_swiglu(s->stream, &(struct hst_swiglu){8, HST_F32, NULL, f, f}),
                     -EINVAL);
    assert_int_equal(hst_op_swiglu(s->stream, &(struct hst_swiglu){8, HST_F32, f, f + 64, f + 68}),
                     -EINVAL);
    assert_int_equal(
        hst_op_swiglu_backward(
            s->stream, &(struct hst_swiglu_backward){8, HST_F32, f, f + 64, f + 128, f + 64, f}),
        -EINVAL);
    assert_int_equal(
        hst_op_swiglu_backward(s->stream, &(struct hst_swiglu_backward){8, HST_F32, f, f + 64,
                                                                        f + 128, f + 192, f + 192}),
        -EINVAL);
    struct hst_rope rope = {.batch = 1,
                            .seq = 2,
                            .heads = 1,
                            .head_dim = 4,
                            .dtype = HST_F32,
                            .x = f,
                            .cos = f + 64,
                            .sin = f + 128};
    rope.head_dim = 3;
    assert_int_equal(hst_op_rope(s->stream, &rope), -EINVAL);
    rope.head_dim = 4;
    rope.cos = NULL;
    assert_int_equal(hst_op_rope(s->stream, &rope), -EINVAL);
    rope.cos = f + 64;
    rope.position = (const uint32_t *)((const char *)f + 2);
    assert_int_equal(hst_op_rope(s->stream, &rope), -EINVAL);
    assert_int_equal(hst_op_add(s->stream, &(struct hst_add){0, HST_F32, NULL, NULL, NULL}), 0);
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
        cmocka_unit_test(rope_matches_and_inverts),
        cmocka_unit_test(rope_turns_by_the_places_that_are_given),
        cmocka_unit_test(swiglu_matches_with_and_without_aliases),
        cmocka_unit_test(swiglu_backward_is_the_slope_of_the_forward),
        cmocka_unit_test(swiglu_saturates_far_from_zero_and_keeps_nan),
        cmocka_unit_test(add_is_exact_to_one_rounding),
        cmocka_unit_test(cast_rounds_to_nearest_even),
        cmocka_unit_test(cast_handles_ties_infinities_subnormals_and_nan),
        cmocka_unit_test(f16_turns_at_every_middle_and_nowhere_else),
        cmocka_unit_test(every_pattern_of_16_bits_is_the_number_it_stands_for),
        cmocka_unit_test(f16_keeps_subnormals_and_ends_in_infinity),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
