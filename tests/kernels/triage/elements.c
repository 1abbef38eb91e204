/* SPDX-License-Identifier: Apache-2.0 */
/* Operations element by element, and copies: windows of 64 elements, at both ends and between. */
#include "triage.h"
#include <math.h>

enum { WINDOW = 64 };

/* Calls check for each sampled window with what the device has there. */
static void each_window(struct triage *t, struct operand *of,
                        void (*check)(struct operand *of, size_t index, double got, void *context),
                        void *context)
{
    size_t window = of->columns < WINDOW ? of->columns : WINDOW, samples[TRIAGE_SAMPLES];
    size_t count = triage_samples(of->columns - window + 1, samples);
    double got[WINDOW];
    for (size_t i = 0; i < count; i++) {
        triage_read(t, of, samples[i], window, got);
        for (size_t k = 0; k < window; k++)
            check(of, samples[i] + k, got[k], context);
    }
}

struct gated {
    struct operand *gate, *up, *dout;
};

/* exp is good to some 2e-7, the quotient and two products to as much; all factors are below 1.2. */
static const double gate_noise = 2e-6;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void check_swiglu(struct operand *of, size_t i, double got, void *context)
{
    struct gated *o = context;
    double g = triage_value(o->gate, i);
    triage_check(of, i, got, g * sigmoid(g) * triage_value(o->up, i), gate_noise);
}

static void swiglu(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    struct gated o = {triage_input(t, "gate", 1, count, dtype),
                      triage_input(t, "up", 1, count, dtype), NULL};
    struct operand *out = triage_output(t, "out", 1, count, dtype);
    triage_taken(hst_op_swiglu(
        t->stream, &(struct hst_swiglu){count, dtype, o.gate->data, o.up->data, out->data}));
    triage_sync(t);
    each_window(t, out, check_swiglu, &o);
    triage_end(t);
}

static void check_dgate(struct operand *of, size_t i, double got, void *context)
{
    struct gated *o = context;
    double g = triage_value(o->gate, i), s = sigmoid(g);
    double want = triage_value(o->dout, i) * triage_value(o->up, i) * s * (1 + g * (1 - s));
    triage_check(of, i, got, want, gate_noise);
}

static void check_dup(struct operand *of, size_t i, double got, void *context)
{
    struct gated *o = context;
    double g = triage_value(o->gate, i);
    triage_check(of, i, got, triage_value(o->dout, i) * g * sigmoid(g), gate_noise);
}

static void swiglu_backward(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    struct gated o = {triage_input(t, "gate", 1, count, dtype),
                      triage_input(t, "up", 1, count, dtype),
                      triage_input(t, "dout", 1, count, dtype)};
    struct operand *dgate = triage_output(t, "dgate", 1, count, dtype);
    struct operand *dup = triage_output(t, "dup", 1, count, dtype);
    triage_taken(hst_op_swiglu_backward(
        t->stream, &(struct hst_swiglu_backward){count, dtype, o.gate->data, o.up->data,
                                                 o.dout->data, dgate->data, dup->data}));
    triage_sync(t);
    each_window(t, dgate, check_dgate, &o);
    each_window(t, dup, check_dup, &o);
    triage_end(t);
}

static void check_add(struct operand *of, size_t i, double got, void *context)
{
    struct operand *const *o = context;
    double want = triage_value(o[0], i) + triage_value(o[1], i);
    triage_check_exact(of, i, got, round_to(of->dtype, want));
}

static void add(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    struct operand *o[2] = {triage_input(t, "a", 1, count, dtype),
                            triage_input(t, "b", 1, count, dtype)};
    struct operand *out = triage_output(t, "out", 1, count, dtype);
    triage_taken(
        hst_op_add(t->stream, &(struct hst_add){count, dtype, o[0]->data, o[1]->data, out->data}));
    triage_sync(t);
    each_window(t, out, check_add, o);
    triage_end(t);
}

static void check_rounded(struct operand *of, size_t i, double got, void *context)
{
    triage_check_exact(of, i, got, round_to(of->dtype, triage_value(context, i)));
}

/* To each of the three. */
static void cast(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    static const char *const names[DTYPES] = {"to f32", "to bf16", "to f16"};
    struct operand *src = triage_input(t, "src", 1, count, dtype), *dst[DTYPES];
    for (size_t i = 0; i < DTYPES; i++) {
        dst[i] = triage_output(t, names[i], 1, count, suite_dtypes[i]);
        triage_taken(hst_op_cast(
            t->stream, &(struct hst_cast){count, dtype, suite_dtypes[i], src->data, dst[i]->data}));
    }
    triage_sync(t);
    for (size_t i = 0; i < DTYPES; i++)
        each_window(t, dst[i], check_rounded, src);
    triage_end(t);
}

TRIAGE_TESTS(swiglu)
TRIAGE_TESTS(swiglu_backward)
TRIAGE_TESTS(add)
TRIAGE_TESTS(cast)

/* ---- copies ---------------------------------------------------------------------------------- */

/* Of bytes, so that the dtype is no matter. */
static void copy(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    struct operand *src = triage_input(t, "src", 1, count, dtype);
    struct operand *dst = triage_output(t, "dst", 1, count, dtype);
    triage_taken(hst_stream_copy(t->stream, dst->data, src->data, count * hst_dtype_bytes(dtype)));
    triage_sync(t);
    each_window(t, dst, check_rounded, src);
    triage_end(t);
}

static void check_zero(struct operand *of, size_t i, double got, void *context)
{
    (void)context;
    triage_check_exact(of, i, got, 0);
}

static void zero(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count;
    struct operand *dst = triage_output(t, "dst", 1, count, dtype);
    triage_taken(hst_stream_zero(t->stream, dst->data, count * hst_dtype_bytes(dtype)));
    triage_sync(t);
    each_window(t, dst, check_zero, NULL);
    triage_end(t);
}

TRIAGE_TEST(copy_small, copy, TRIAGE_SMALL, HST_BF16)
TRIAGE_TEST(copy_real_shape, copy, TRIAGE_REAL, HST_BF16)
TRIAGE_TEST(copy_beyond_2_31, copy, TRIAGE_BEYOND, HST_BF16)
TRIAGE_TEST(zero_small, zero, TRIAGE_SMALL, HST_BF16)
TRIAGE_TEST(zero_real_shape, zero, TRIAGE_REAL, HST_BF16)
TRIAGE_TEST(zero_beyond_2_31, zero, TRIAGE_BEYOND, HST_BF16)

struct triage_tests triage_element_tests(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_small),
        cmocka_unit_test(copy_real_shape),
        cmocka_unit_test(copy_beyond_2_31),
        cmocka_unit_test(zero_small),
        cmocka_unit_test(zero_real_shape),
        cmocka_unit_test(zero_beyond_2_31),
        TRIAGE_LIST(swiglu),
        TRIAGE_LIST(swiglu_backward),
        TRIAGE_LIST(add),
        TRIAGE_LIST(cast),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
