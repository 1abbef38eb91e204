/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers of a device against cpu_adam, which states the order of every rounding: the same
 * bytes, whatever the numbers. The host device does neither and says so.
 */
#include "suite.h"
#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <stdlib.h>

static const size_t counts[] = {0, 1, 3, 4, 5, 31, 511, 512, 4095, 4096, 4097, 12305, 36869};
enum { COUNTS = sizeof counts / sizeof *counts, STEPS = 12 };

enum kind { ORDINARY, TINY, HUGE_ONES, INFINITE, NOT_A_NUMBER, MIXED, KINDS };

/* Of a device; the last of cpu_adam's is none. */
static const enum hst_optimizer optimizers[] = {HST_OPTIMIZER_ADAMW, HST_OPTIMIZER_SGD,
                                                HST_OPTIMIZER_LION, HST_OPTIMIZER_ADAGRAD};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

struct parameters {
    size_t count;
    enum hst_dtype dtype;
    enum kind kind;
    enum hst_optimizer optimizer;
};

static enum hst_cpu_type cpu_type(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? HST_CPU_BF16 : dtype == HST_F16 ? HST_CPU_F16 : HST_CPU_F32;
}

static bool is_host(const struct suite *s)
{
    return strcmp(hst_dev_name(s->dev), "host") == 0;
}

static uint32_t random_bits(struct suite *s)
{
    return (uint32_t)((suite_random(s) + 1) * 0x1p31);
}

/* An f32's bits: of moderate size, or as the kind says; the rare ones at some 1 in 3,000. */
static uint32_t bits_of_kind(struct suite *s, enum kind kind)
{
    uint32_t bits = random_bits(s), sign = bits & 0x80000000u, low = bits & 0x7fffffu;
    bool rare = random_bits(s) % 3000 == 0;
    if (kind == MIXED)
        return bits_of_kind(s, (enum kind)(random_bits(s) % MIXED));
    if (kind == TINY) /* half of them denormal */
        return sign | (bits & 1u << 24 ? low : low | 0x00800000u);
    if (kind == HUGE_ONES)
        return sign | 0x7f000000u | (low & 0x7effffu);
    if (kind == INFINITE && rare)
        return sign | 0x7f800000u;
    if (kind == NOT_A_NUMBER && rare)
        return sign | 0x7f800001u | low;
    return sign | 0x3e000000u | (bits & 0x1ffffffu);
}

/* The same kind in f16: its exponents of 5 bits end where those of 8 bits do. */
static uint32_t f16_of_kind(uint32_t f32)
{
    uint32_t exponent = f32 >> 23 & 0xff;
    exponent = exponent <= 1 ? exponent : exponent >= 0xfe ? exponent - 0xe0 : exponent - 112;
    return (f32 >> 16 & 0x8000) | exponent << 10 | (f32 >> 13 & 0x3ff);
}

/* The same bytes on the device and, returned, on the host. */
static void *filled(struct suite *s, struct tensor *t, enum kind kind)
{
    size_t element_bytes = hst_dtype_bytes(t->dtype), bytes = t->count * element_bytes;
    char *copy = malloc(bytes + 1);
    assert_non_null(copy);
    for (size_t i = 0; i < t->count; i++) {
        uint32_t bits = bits_of_kind(s, kind);
        bits = t->dtype == HST_BF16 ? bits >> 16 : t->dtype == HST_F16 ? f16_of_kind(bits) : bits;
        memcpy(copy + i * element_bytes, &bits, element_bytes);
    }
    memcpy(s->staging, copy, bytes);
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, bytes), 0);
    suite_sync(s);
    return copy;
}

static void expect_bytes(struct suite *s, const char *what, struct tensor *got, const void *want)
{
    size_t element_bytes = hst_dtype_bytes(got->dtype);
    tensor_read(s, got);
    for (size_t i = 0; i < got->count; i++)
        if (memcmp(s->staging + i * element_bytes, (const char *)want + i * element_bytes,
                   element_bytes) != 0) {
            uint32_t is = 0, should = 0;
            memcpy(&is, s->staging + i * element_bytes, element_bytes);
            memcpy(&should, (const char *)want + i * element_bytes, element_bytes);
            fail_msg("%s[%zu] of %zu is %08x, not %08x", what, i, got->count, is, should);
        }
}

static void norm2_of_kind(struct suite *s, const struct parameters *p)
{
    size_t partials = (p->count + HST_NORM_BLOCK - 1) / HST_NORM_BLOCK;
    struct tensor *x = tensor_empty(s, p->count, p->dtype);
    struct tensor *partial = tensor_empty(s, partials * 2, HST_F32); /* an f64 is two words */
    struct tensor *kept = tensor_filled(s, 1, HST_F32, 3);
    void *copy = filled(s, x, p->kind);
    double *want = malloc((partials + 1) * sizeof *want);
    assert_non_null(want);
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    ops->norm2[cpu_type(p->dtype)](copy, p->count, want);
    struct hst_norm2 args = {p->count, p->dtype, x->data, (double *)partial->data};
    if (is_host(s))
        memset(want, 0xff, partials * sizeof *want); /* untouched */
    assert_int_equal(hst_op_norm2(s->stream, &args), is_host(s) ? -ENOTSUP : 0);
    suite_sync(s);
    expect_bytes(s, "half of a partial", partial, want);
    tensor_read(s, kept);
    free(want);
    free(copy);
}

static void norm2_case(struct suite *s, const void *parameters)
{
    struct parameters p = *(const struct parameters *)parameters;
    for (p.kind = ORDINARY; p.kind < MIXED; p.kind++)
        norm2_of_kind(s, &p);
}

static void norms_have_the_bytes_of_cpu_adam(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        for (enum hst_dtype dtype = HST_F32; dtype <= HST_F16; dtype++)
            suite_run(norm2_case, &(struct parameters){counts[i], dtype, ORDINARY, 0});
}

struct copies { /* what cpu_adam works on */
    void *weight, *grad, *m, *v;
    float *master, *m_scales, *v_scales;
    int16_t *remainder;
};

static void step(struct suite *s, const struct parameters *p, const struct copies *c,
                 struct hst_optimize *args, uint64_t t)
{
    static const struct hst_adam_hyper hyper = {3e-4, 0.9, 0.999, 1e-8, 0.1};
    const bool adamw = p->optimizer == HST_OPTIMIZER_ADAMW;
    struct hst_adam_coef k;
    assert_int_equal(
        (adamw ? hst_adam_coef_init : hst_plain_coef_init)(&hyper, t, 0.37f * (float)t, &k), 0);
    args->grad_scale = k.grad_scale;
    args->beta1_hi = k.beta1_hi;
    args->beta1_lo = k.beta1_lo;
    args->one_minus_beta1 = k.one_minus_beta1;
    args->beta2_hi = k.beta2_hi;
    args->beta2_lo = k.beta2_lo;
    args->one_minus_beta2 = k.one_minus_beta2;
    args->inv_sqrt_bias2 = k.inv_sqrt_bias2;
    args->eps = k.eps;
    args->decay = k.decay;
    args->l2 = k.l2;
    args->step_size = k.step_size;
    assert_int_equal(hst_op_optimize(s->stream, args), is_host(s) ? -ENOTSUP : 0);
    if (is_host(s))
        return;
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    const struct hst_update_kind kind = {.optimizer = p->optimizer,
                                         .weights = cpu_type(p->dtype),
                                         .moments = args->m_scales ? HST_CPU_CODE : HST_CPU_F32,
                                         .grads = cpu_type(p->dtype)};
    const struct hst_update_arrays arrays = {.weights = c->weight,
                                             .master = p->dtype == HST_BF16  ? (void *)c->remainder
                                                       : p->dtype == HST_F16 ? c->master
                                                                             : NULL,
                                             .m = args->m ? c->m : NULL,
                                             .v = args->v ? c->v : NULL,
                                             .grads = c->grad,
                                             .m_scales = c->m_scales,
                                             .v_scales = c->v_scales};
    assert_true(hst_update_run(hst_update_find(ops, kind), &k, &arrays, p->count) >= 0);
}

static void update_of_kind(struct suite *s, const struct parameters *p)
{
    struct tensor *weight = tensor_empty(s, p->count, p->dtype);
    struct tensor *grad = tensor_empty(s, p->count, p->dtype);
    struct tensor *m = tensor_empty(s, p->count, HST_F32), *v = tensor_empty(s, p->count, HST_F32);
    struct tensor *master = tensor_empty(s, p->count, HST_F32);
    struct tensor *remainder = tensor_empty(s, p->count, HST_BF16); /* sixteen bits of anything */
    struct tensor *kept = tensor_filled(s, 1, HST_F32, 3);
    struct copies c = {.weight = filled(s, weight, p->kind),
                       .grad = filled(s, grad, p->kind),
                       .master = filled(s, master, p->kind),
                       .m = filled(s, m, p->kind),
                       .v = filled(s, v, p->kind),
                       .remainder = filled(s, remainder, MIXED)};
    struct hst_optimize args = {.count = p->count,
                                .dtype = p->dtype,
                                .optimizer = p->optimizer,
                                .weight = weight->data,
                                .remainder = p->dtype == HST_BF16 ? remainder->data : NULL,
                                .master = p->dtype == HST_F16 ? master->data : NULL,
                                .m = HST_OPTIMIZER_HAS_M(p->optimizer) ? m->data : NULL,
                                .v = HST_OPTIMIZER_HAS_V(p->optimizer) ? v->data : NULL,
                                .grad = grad->data};
    for (uint64_t t = 1; t <= STEPS; t++)
        step(s, p, &c, &args, t);
    suite_sync(s);
    expect_bytes(s, "weight", weight, c.weight);
    expect_bytes(s, "m", m, c.m);
    expect_bytes(s, "v", v, c.v);
    expect_bytes(s, "remainder", remainder, c.remainder);
    expect_bytes(s, "master", master, c.master);
    expect_bytes(s, "grad", grad, c.grad);
    tensor_read(s, kept);
    free(c.weight);
    free(c.grad);
    free(c.m);
    free(c.v);
    free(c.remainder);
    free(c.master);
}

static void update_case(struct suite *s, const void *parameters)
{
    struct parameters p = *(const struct parameters *)parameters;
    for (p.kind = ORDINARY; p.kind < KINDS; p.kind++)
        update_of_kind(s, &p);
}

static void updates_have_the_bytes_of_cpu_adam(void **state)
{
    (void)state;
    for (size_t o = 0; o < OPTIMIZERS; o++)
        for (size_t i = 0; i < COUNTS; i++)
            for (enum hst_dtype dtype = HST_F32; dtype <= HST_F16; dtype++)
                suite_run(update_case,
                          &(struct parameters){counts[i], dtype, ORDINARY, optimizers[o]});
}

/* Codes, two to a tensor's element, are any bits, and so are the scales that they begin with. */
static void coded_update_of_kind(struct suite *s, const struct parameters *p)
{
    const size_t halves = (p->count + 1) / 2, blocks = (p->count + 255) / 256;
    struct tensor *weight = tensor_empty(s, p->count, HST_BF16);
    struct tensor *grad = tensor_empty(s, p->count, HST_BF16);
    struct tensor *remainder = tensor_empty(s, p->count, HST_BF16);
    struct tensor *m = tensor_empty(s, halves, HST_BF16), *v = tensor_empty(s, halves, HST_BF16);
    struct tensor *m_scales = tensor_empty(s, blocks, HST_F32);
    struct tensor *v_scales = tensor_empty(s, blocks, HST_F32);
    struct tensor *kept = tensor_filled(s, 1, HST_F32, 3);
    struct copies c = {.weight = filled(s, weight, p->kind),
                       .grad = filled(s, grad, p->kind),
                       .m = filled(s, m, MIXED),
                       .v = filled(s, v, MIXED),
                       .m_scales = filled(s, m_scales, p->kind),
                       .v_scales = filled(s, v_scales, p->kind),
                       .remainder = filled(s, remainder, MIXED)};
    struct hst_optimize args = {.count = p->count,
                                .dtype = HST_BF16,
                                .optimizer = HST_OPTIMIZER_ADAMW,
                                .weight = weight->data,
                                .remainder = remainder->data,
                                .m = m->data,
                                .v = v->data,
                                .grad = grad->data,
                                .m_scales = m_scales->data,
                                .v_scales = v_scales->data};
    for (uint64_t t = 1; t <= STEPS; t++)
        step(s, p, &c, &args, t);
    suite_sync(s);
    expect_bytes(s, "weight", weight, c.weight);
    expect_bytes(s, "two codes of m", m, c.m);
    expect_bytes(s, "two codes of v", v, c.v);
    expect_bytes(s, "scale of m", m_scales, c.m_scales);
    expect_bytes(s, "scale of v", v_scales, c.v_scales);
    expect_bytes(s, "remainder", remainder, c.remainder);
    expect_bytes(s, "grad", grad, c.grad);
    tensor_read(s, kept);
    free(c.weight);
    free(c.grad);
    free(c.m);
    free(c.v);
    free(c.m_scales);
    free(c.v_scales);
    free(c.remainder);
}

static void coded_update_case(struct suite *s, const void *parameters)
{
    struct parameters p = *(const struct parameters *)parameters;
    for (p.kind = ORDINARY; p.kind < KINDS; p.kind++)
        coded_update_of_kind(s, &p);
}

static void updates_of_codes_have_the_bytes_of_cpu_adam(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNTS; i++)
        suite_run(coded_update_case,
                  &(struct parameters){counts[i], HST_BF16, ORDINARY, HST_OPTIMIZER_ADAMW});
}

/* Moments that an optimizer has none of, or lacks; one that no device has. The host has none. */
static void expect_refused_by_a_device(struct suite *s, struct hst_optimize args)
{
    assert_int_equal(hst_op_optimize(s->stream, &args), is_host(s) ? -ENOTSUP : -EINVAL);
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    const struct hst_norm2 norm = {8, HST_F32, f, (double *)(f + 64)};
    struct hst_norm2 bad[4] = {norm, norm, norm, norm};
    bad[0].dtype = 0;
    bad[1].x = f + 1;
    bad[2].partial = NULL;
    bad[3].count = SIZE_MAX / 2;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(hst_op_norm2(s->stream, &bad[i]), -EINVAL);
    const struct hst_optimize good = {.count = 8,
                                      .dtype = HST_BF16,
                                      .weight = f,
                                      .remainder = (int16_t *)(f + 64),
                                      .m = f + 128,
                                      .v = f + 192,
                                      .grad = f + 256};
    struct hst_optimize wrong[13], other = good;
    for (size_t i = 0; i < 13; i++)
        wrong[i] = good;
    other.optimizer = HST_OPTIMIZER_ADAM;
    expect_refused_by_a_device(s, other);
    other.optimizer = HST_OPTIMIZER_SGD; /* has no v */
    expect_refused_by_a_device(s, other);
    other.optimizer = HST_OPTIMIZER_ADAMW;
    other.m = NULL;
    expect_refused_by_a_device(s, other);
    other = good;
    other.m_scales = f + 384; /* but no v_scales */
    expect_refused_by_a_device(s, other);
    other.v_scales = f + 448;
    other.optimizer = HST_OPTIMIZER_ADAGRAD; /* codes are AdamW's, */
    other.m = NULL;
    expect_refused_by_a_device(s, other);
    other.optimizer = HST_OPTIMIZER_ADAMW;
    other.m = good.m;
    other.dtype = HST_F32; /* in bf16 */
    other.remainder = NULL;
    expect_refused_by_a_device(s, other);
    wrong[0].dtype = HST_F32; /* has no remainder */
    wrong[1].remainder = NULL;
    wrong[2].remainder = (int16_t *)(f + 65);
    wrong[3].m = f + 129;
    wrong[4].grad = f + 257;
    wrong[5].count = SIZE_MAX / 2;
    wrong[6].weight = NULL;
    wrong[7].master = f + 320; /* bf16 has none, */
    wrong[8].dtype = HST_F16;  /* f16 no remainder, */
    wrong[9].dtype = HST_F16;
    wrong[9].remainder = NULL; /* but a master, */
    wrong[10] = wrong[9];
    wrong[10].master = f + 321; /* which is aligned */
    wrong[11].m_scales = (float *)((char *)f + 2);
    wrong[12].v_scales = (float *)((char *)f + 2);
    for (size_t i = 0; i < 13; i++)
        assert_int_equal(hst_op_optimize(s->stream, &wrong[i]), -EINVAL);
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
        cmocka_unit_test(norms_have_the_bytes_of_cpu_adam),
        cmocka_unit_test(updates_have_the_bytes_of_cpu_adam),
        cmocka_unit_test(updates_of_codes_have_the_bytes_of_cpu_adam),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
