/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms, updates and the sum of ways against the bytes of cpu_adam and of the interface's tree. The
 * host device has none but the sum: the others are skipped there.
 */
#include "half.h"
#include "triage.h"
#include <hoistway/cpu_adam.h>

enum { WINDOW = 64, WAYS = 3 };

static enum hst_cpu_type cpu_type(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? HST_CPU_BF16 : dtype == HST_F16 ? HST_CPU_F16 : HST_CPU_F32;
}

/* A partial is an f64: two words of the operand. */
static void norm2(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count, samples[TRIAGE_SAMPLES];
    size_t partials = (count + HST_NORM_BLOCK - 1) / HST_NORM_BLOCK;
    struct operand *x = triage_input(t, "x", 1, count, dtype);
    struct operand *partial = triage_output(t, "partial", partials, 2, HST_F32);
    static char block[HST_NORM_BLOCK * 4];
    triage_taken(
        hst_op_norm2(t->stream, &(struct hst_norm2){count, dtype, x->data, partial->data}));
    triage_sync(t);
    size_t sampled = triage_samples(partials, samples);
    for (size_t i = 0; i < sampled; i++) {
        size_t first = samples[i] * HST_NORM_BLOCK;
        size_t here = count - first < HST_NORM_BLOCK ? count - first : HST_NORM_BLOCK;
        double want;
        triage_input_bytes(x, first, here, block);
        hst_cpu_adam_ops(HST_CPU_ISA_C)->norm2[cpu_type(dtype)](block, here, &want);
        triage_read_bytes(t, (double *)partial->data + samples[i], sizeof want);
        triage_check_bytes(partial, samples[i] * 2, 2, t->staging, &want);
    }
    triage_end(t);
}

/* Weight, rest (remainder or master), m, v, gradient; what a dtype has none of is null. */
struct states {
    struct operand *of[5];
};

static struct states make_states(struct triage *t, size_t count, enum hst_dtype dtype,
                                 enum hst_optimizer optimizer)
{
    struct states o = {{triage_input(t, "weight", 1, count, dtype), NULL, NULL, NULL,
                        triage_input(t, "grad", 1, count, dtype)}};
    if (HST_OPTIMIZER_HAS_M(optimizer))
        o.of[2] = triage_input(t, "m", 1, count, HST_F32);
    if (HST_OPTIMIZER_HAS_V(optimizer))
        o.of[3] = triage_positive(t, "v", 1, count);
    if (dtype == HST_BF16) /* sixteen bits of anything */
        o.of[1] = triage_input(t, "remainder", 1, count, HST_BF16);
    if (dtype == HST_F16)
        o.of[1] = triage_input(t, "master", 1, count, HST_F32);
    return o;
}

static void check_window(struct triage *t, const struct states *o, enum hst_optimizer optimizer,
                         const struct hst_adam_coef *k, size_t first, size_t count)
{
    char copies[5][WINDOW * 4];
    enum hst_cpu_type type = cpu_type(o->of[0]->dtype);
    const struct hst_update_kind kind = {optimizer, type, HST_CPU_F32, type};
    const struct hst_update_arrays arrays = {.weights = copies[0],
                                             .master = o->of[1] ? copies[1] : NULL,
                                             .m = o->of[2] ? copies[2] : NULL,
                                             .v = o->of[3] ? copies[3] : NULL,
                                             .grads = copies[4]};
    for (size_t i = 0; i < 5; i++)
        if (o->of[i])
            triage_input_bytes(o->of[i], first, count, copies[i]);
    const struct hst_update *update = hst_update_find(hst_cpu_adam_ops(HST_CPU_ISA_C), kind);
    assert_true(hst_update_run(update, k, &arrays, count) >= 0);
    for (size_t i = 0; i < 5; i++) {
        if (!o->of[i])
            continue;
        size_t element = hst_dtype_bytes(o->of[i]->dtype);
        triage_read_bytes(t, (char *)o->of[i]->data + first * element, count * element);
        triage_check_bytes(o->of[i], first, count, t->staging, copies[i]);
    }
}

static void update(enum triage_size size, enum hst_dtype dtype, enum hst_optimizer optimizer)
{
    static const struct hst_adam_hyper hyper = {3e-4, 0.9, 0.999, 1e-8, 0.1};
    struct triage *t = triage_begin();
    size_t count = triage_shape(size).count, samples[TRIAGE_SAMPLES];
    struct states o = make_states(t, count, dtype, optimizer);
    const bool adamw = optimizer == HST_OPTIMIZER_ADAMW;
    struct hst_adam_coef k;
    assert_int_equal((adamw ? hst_adam_coef_init : hst_plain_coef_init)(&hyper, 3, 0.37f, &k), 0);
    struct hst_optimize args = {.count = count,
                                .dtype = dtype,
                                .optimizer = optimizer,
                                .weight = o.of[0]->data,
                                .remainder = dtype == HST_BF16 ? o.of[1]->data : NULL,
                                .master = dtype == HST_F16 ? o.of[1]->data : NULL,
                                .m = o.of[2] ? o.of[2]->data : NULL,
                                .v = o.of[3] ? o.of[3]->data : NULL,
                                .grad = o.of[4]->data,
                                .grad_scale = k.grad_scale,
                                .beta1_hi = k.beta1_hi,
                                .beta1_lo = k.beta1_lo,
                                .one_minus_beta1 = k.one_minus_beta1,
                                .beta2_hi = k.beta2_hi,
                                .beta2_lo = k.beta2_lo,
                                .one_minus_beta2 = k.one_minus_beta2,
                                .inv_sqrt_bias2 = k.inv_sqrt_bias2,
                                .eps = k.eps,
                                .decay = k.decay,
                                .l2 = k.l2,
                                .step_size = k.step_size};
    triage_taken(hst_op_optimize(t->stream, &args));
    triage_sync(t);
    size_t sampled = triage_samples(count - WINDOW + 1, samples);
    for (size_t i = 0; i < sampled; i++)
        check_window(t, &o, optimizer, &k, samples[i], WINDOW);
    triage_end(t);
}

static void adamw(enum triage_size size, enum hst_dtype dtype)
{
    update(size, dtype, HST_OPTIMIZER_ADAMW);
}

static void sgd(enum triage_size size, enum hst_dtype dtype)
{
    update(size, dtype, HST_OPTIMIZER_SGD);
}

static void lion(enum triage_size size, enum hst_dtype dtype)
{
    update(size, dtype, HST_OPTIMIZER_LION);
}

static void adagrad(enum triage_size size, enum hst_dtype dtype)
{
    update(size, dtype, HST_OPTIMIZER_ADAGRAD);
}

static float rounded(enum hst_dtype dtype, float x)
{
    return dtype == HST_F32 ? x : (float)half_value(dtype, half_round(dtype, x));
}

static float way(const struct operand *of, size_t index)
{
    return (float)triage_value(of, index);
}

/* The tree is (in[0] + in[1]) + in[2]. The inner sum is f32: it is neither a way nor the root. */
static void sum_block(struct operand *const in[WAYS], enum hst_dtype dtype, size_t first,
                      size_t count, void *block)
{
    for (size_t i = 0; i < count; i++) {
        const float pair = way(in[0], first + i) + way(in[1], first + i);
        const float sum = rounded(dtype, pair + way(in[2], first + i));
        const uint16_t half = dtype == HST_F32 ? 0 : half_round(dtype, sum);
        if (dtype == HST_F32)
            memcpy((char *)block + i * 4, &sum, 4);
        else
            memcpy((char *)block + i * 2, &half, 2);
    }
}

/* Blocks of what is written, and their norms. */
static void sum_ways(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    const size_t count = triage_shape(size).count, element = hst_dtype_bytes(dtype);
    const size_t partials = (count + HST_NORM_BLOCK - 1) / HST_NORM_BLOCK;
    size_t samples[TRIAGE_SAMPLES];
    struct operand *in[WAYS] = {triage_input(t, "way 0", 1, count, dtype),
                                triage_input(t, "way 1", 1, count, dtype),
                                triage_input(t, "way 2", 1, count, dtype)};
    struct operand *out = triage_output(t, "out", 1, count, dtype);
    struct operand *partial = triage_output(t, "partial", partials, 2, HST_F32);
    static char block[HST_NORM_BLOCK * 4];
    const void *from[WAYS] = {in[0]->data, in[1]->data, in[2]->data};
    triage_taken(
        hst_op_sum_ways(t->stream, &(struct hst_sum_ways){.tree = {WAYS, 1, dtype, dtype, 0},
                                                          .each = 1,
                                                          .inputs = WAYS,
                                                          .in = from,
                                                          .out = out->data,
                                                          .count = count,
                                                          .partial = partial->data}));
    triage_sync(t);
    const size_t sampled = triage_samples(partials, samples);
    for (size_t i = 0; i < sampled; i++) {
        const size_t first = samples[i] * HST_NORM_BLOCK;
        const size_t here = count - first < HST_NORM_BLOCK ? count - first : HST_NORM_BLOCK;
        double want;
        sum_block(in, dtype, first, here, block);
        hst_cpu_adam_ops(HST_CPU_ISA_C)->norm2[cpu_type(dtype)](block, here, &want);
        triage_read_bytes(t, (char *)out->data + first * element, here * element);
        triage_check_bytes(out, first, here, t->staging, block);
        triage_read_bytes(t, (double *)partial->data + samples[i], sizeof want);
        triage_check_bytes(partial, samples[i] * 2, 2, t->staging, &want);
    }
    triage_end(t);
}

TRIAGE_TESTS(norm2)
TRIAGE_TESTS(adamw)
TRIAGE_TESTS(sgd)
TRIAGE_TESTS(lion)
TRIAGE_TESTS(adagrad)
TRIAGE_TESTS(sum_ways)

struct triage_tests triage_optimizer_tests(void)
{
    static const struct CMUnitTest tests[] = {TRIAGE_LIST(norm2),   TRIAGE_LIST(adamw),
                                              TRIAGE_LIST(sgd),     TRIAGE_LIST(lion),
                                              TRIAGE_LIST(adagrad), TRIAGE_LIST(sum_ways)};
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
