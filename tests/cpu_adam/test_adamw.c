/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW's numbers: the rounding order that cpu_adam.h documents, bit for bit; the distance to AdamW
 * in float64 (written here from the paper, and PyTorch's, recorded in golden_adamw.h).
 *
 * The bounds: each step rounds p once, by at most 2^-25·|p|·2, and roundings are independent, so
 * after T steps the error is near 2^-24·sqrt(T/3)·|p|max, plus what the step itself is off by.
 * ERROR_FACTOR is the room above that. With β1 and β2 as one f32 each, or with 1 - lr·wd formed in
 * f32, the bounds are missed by far.
 */
#include "support.h"

#include <math.h>

#include "golden_adamw.h"

enum { COUNT = 1024, STEPS = 400 };
static const double ERROR_FACTOR = 2.0;

static const struct hst_cpu_adam_ops *ops;
static const struct hst_update *adamw_f32, *adamw_bf16;
static uint64_t rng;

static struct hst_adam_coef coef_at(struct hst_adam_hyper hyper, uint64_t t, float grad_scale)
{
    struct hst_adam_coef coef;
    assert_int_equal(hst_adam_coef_init(&hyper, t, grad_scale, &coef), 0);
    return coef;
}

static void run_f32(const struct hst_adam_coef *k, float *p, float *m, float *v, const float *g,
                    size_t n)
{
    const struct hst_update_arrays arrays = {.weights = p, .m = m, .v = v, .grads = g};
    assert_int_equal(hst_update_run(adamw_f32, k, &arrays, n), 0);
}

static float one_nan(float x)
{
    return isnan(x) ? float_of(0x7fc00000) : x;
}

/* The five lines of the header, one rounding a line. */
static void literal_update(const struct hst_adam_coef *k, float *p, float *m, float *v, float g)
{
    float g1 = k->grad_scale * g;
    float m1 = k->beta1_lo * *m;
    float m2 = fmaf(k->one_minus_beta1, g1, m1);
    float m3 = fmaf(k->beta1_hi, *m, m2);
    float v1 = k->beta2_lo * *v;
    float v2 = k->one_minus_beta2 * g1;
    float v3 = fmaf(v2, g1, v1);
    float v4 = fmaf(k->beta2_hi, *v, v3);
    float q1 = sqrtf(v4);
    float q2 = fmaf(q1, k->inv_sqrt_bias2, k->eps);
    float p1 = m3 / q2;
    float p2 = fmaf(k->decay, *p, p1);
    float p3 = fmaf(-k->step_size, p2, *p);
    *p = one_nan(p3);
    *m = one_nan(m3);
    *v = one_nan(v4);
}

static void fill_state(float *p, float *m, float *v, float *g, bool special)
{
    for (int i = 0; i < COUNT; i++) {
        p[i] = special ? float_of(random_special(&rng)) : random_unit(&rng);
        m[i] = special ? float_of(random_special(&rng)) : random_unit(&rng) * 1e-3f;
        v[i] = special ? float_of(random_special(&rng)) : fabsf(random_unit(&rng)) * 1e-6f;
        g[i] = special ? float_of(random_special(&rng)) : random_unit(&rng) * 1e-3f;
    }
}

static void fp32_follows_the_documented_rounding_order(void **state)
{
    static float p[COUNT], m[COUNT], v[COUNT], g[COUNT], want_p[COUNT], want_m[COUNT],
        want_v[COUNT];
    (void)state;

    for (int round = 0; round < 50; round++) {
        struct hst_adam_coef k = coef_at((struct hst_adam_hyper){1e-3, 0.9, 0.999, 1e-8, 0.1},
                                         1 + random_below(&rng, 100), random_unit(&rng));
        fill_state(p, m, v, g, round % 2);
        memcpy(want_p, p, sizeof p);
        memcpy(want_m, m, sizeof m);
        memcpy(want_v, v, sizeof v);
        for (int i = 0; i < COUNT; i++)
            literal_update(&k, &want_p[i], &want_m[i], &want_v[i], g[i]);
        run_f32(&k, p, m, v, g, COUNT);
        assert_memory_equal(p, want_p, sizeof p);
        assert_memory_equal(m, want_m, sizeof m);
        assert_memory_equal(v, want_v, sizeof v);
    }
}

static void bf16_is_fp32_on_the_joined_master(void **state)
{
    static float p[COUNT], m[COUNT], v[COUNT], g[COUNT], m16[COUNT], v16[COUNT];
    static uint16_t weight[COUNT], grad[COUNT], want_weight[COUNT];
    static int16_t remainder[COUNT], want_remainder[COUNT];
    (void)state;

    for (int round = 0; round < 50; round++) {
        struct hst_adam_coef k = coef_at((struct hst_adam_hyper){1e-3, 0.9, 0.999, 1e-8, 0.1},
                                         1 + random_below(&rng, 100), 0.5f);
        fill_state(p, m, v, g, round % 2);
        memcpy(m16, m, sizeof m);
        memcpy(v16, v, sizeof v);
        ops->split_f32(p, weight, remainder, COUNT);
        ops->join_f32(weight, remainder, p, COUNT);
        ops->bf16_from_f32(g, grad, COUNT);
        ops->f32_from_bf16(grad, g, COUNT);

        run_f32(&k, p, m, v, g, COUNT);
        ops->split_f32(p, want_weight, want_remainder, COUNT);
        const struct hst_update_arrays arrays = {weight, remainder, m16, v16, grad};
        assert_int_equal(hst_update_run(adamw_bf16, &k, &arrays, COUNT), 0);
        assert_memory_equal(weight, want_weight, sizeof weight);
        assert_memory_equal(remainder, want_remainder, sizeof remainder);
        assert_memory_equal(m16, m, sizeof m);
        assert_memory_equal(v16, v, sizeof v);
    }
}

struct reference {
    double p, m, v;
};

/* Loshchilov & Hutter, Alg. 2, in float64. */
static void reference_update(const struct hst_adam_hyper *h, int t, double g, struct reference *r)
{
    r->m = h->beta1 * r->m + (1 - h->beta1) * g;
    r->v = h->beta2 * r->v + (1 - h->beta2) * g * g;
    double m_hat = r->m / (1 - pow(h->beta1, t)), v_hat = r->v / (1 - pow(h->beta2, t));
    r->p = r->p - h->lr * h->weight_decay * r->p - h->lr * m_hat / (sqrt(v_hat) + h->eps);
}

/* Root mean square of the errors, in units of what the file's comment derives for one value of
 * size 1. */
static double error_units(double sum_of_squares, int count, int steps)
{
    return sqrt(sum_of_squares / count) / (0x1p-24 * sqrt(steps / 3.0));
}

static void many_steps_stay_close_to_float64(void **state)
{
    static const struct hst_adam_hyper hypers[] = {
        {1e-3, 0.9, 0.999, 1e-8, 0.01},
        {1e-5, 0.9, 0.999, 1e-8, 0.01},
        {1e-4, 0.9, 0.9999, 1e-8, 0.1},
        {1e-3, 0.0, 0.0, 1e-8, 0.0},
    };
    static float p[COUNT], m[COUNT], v[COUNT], g[COUNT];
    static struct reference want[COUNT];
    const float grad_scale = 0.37f;
    (void)state;

    for (size_t c = 0; c < sizeof hypers / sizeof hypers[0]; c++) {
        double sum_p = 0, worst_m = 0, worst_v = 0;
        for (int i = 0; i < COUNT; i++) {
            p[i] = random_unit(&rng);
            want[i] = (struct reference){.p = p[i]};
            m[i] = v[i] = 0;
        }
        for (int t = 1; t <= STEPS; t++) {
            struct hst_adam_coef k = coef_at(hypers[c], (uint64_t)t, grad_scale);
            for (int i = 0; i < COUNT; i++) {
                g[i] = random_unit(&rng) + 0.2f;
                reference_update(&hypers[c], t, (double)grad_scale * (double)g[i], &want[i]);
            }
            run_f32(&k, p, m, v, g, COUNT);
        }
        for (int i = 0; i < COUNT; i++) {
            sum_p += pow((double)p[i] - want[i].p, 2);
            worst_m = fmax(worst_m, fabs((double)m[i] - want[i].m));
            worst_v = fmax(worst_v, fabs((double)v[i] / want[i].v - 1));
        }
        double units = error_units(sum_p, COUNT, STEPS);
        printf("lr %g: p %.2f units, m %.1e, v %.1e\n", hypers[c].lr, units, worst_m, worst_v);
        assert_true(units < ERROR_FACTOR);
        assert_true(worst_m < 3e-7); /* of gradients up to 0.44 */
        assert_true(worst_v < 4e-6);
    }
}

/* The generator of make_golden.py. */
static float golden_unit(uint32_t *generator)
{
    *generator = *generator * 1664525u + 1013904223u;
    return (float)(*generator >> 8) * 0x1p-23f - 1.0f;
}

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

static void golden_values_of_pytorch(void **state)
{
    (void)state;

    for (size_t c = 0; c < sizeof golden_cases / sizeof golden_cases[0]; c++) {
        const struct golden *want = &golden_cases[c];
        float p[GOLDEN_COUNT], m[GOLDEN_COUNT] = {0}, v[GOLDEN_COUNT] = {0}, g[GOLDEN_COUNT];
        uint32_t generator = 12345;
        for (int i = 0; i < GOLDEN_COUNT; i++)
            p[i] = golden_unit(&generator);
        for (int t = 1; t <= GOLDEN_STEPS; t++) {
            struct hst_adam_coef k = coef_at(want->hyper, (uint64_t)t, 1.0f);
            for (int i = 0; i < GOLDEN_COUNT; i++)
                g[i] = ldexpf(golden_unit(&generator), -(i % 4 * 4));
            run_f32(&k, p, m, v, g, GOLDEN_COUNT);
        }
        double sum = 0;
        for (int i = 0; i < GOLDEN_COUNT; i++) {
            sum += pow((double)p[i] - want->f64.p[i], 2);
            assert_true(relative((double)m[i], want->f64.m[i]) < 1e-5); /* m cancels */
            assert_true(relative((double)v[i], want->f64.v[i]) < 2e-6);
            /* PyTorch's own float32 is further off than ours. */
            assert_true(fabs((double)p[i] - want->f32.p[i]) < 2e-5);
            assert_true(relative((double)m[i], want->f32.m[i]) < 1e-4);
            assert_true(relative((double)v[i], want->f32.v[i]) < 2e-5);
        }
        double units = error_units(sum, GOLDEN_COUNT, GOLDEN_STEPS);
        printf("%s: %.2f units from PyTorch's float64\n", want->name, units);
        assert_true(units < ERROR_FACTOR);
    }
}

static void a_zero_gradient_without_decay_changes_no_weight(void **state)
{
    struct hst_adam_coef k = coef_at((struct hst_adam_hyper){1e-3, 0.9, 0.999, 1e-8, 0}, 1, 1.0f);
    (void)state;

    for (int i = 0; i < 1000; i++) {
        float start = random_unit(&rng), p = start, m = 0, v = 0, g = 0;
        run_f32(&k, &p, &m, &v, &g, 1);
        assert_true(p == start && m == 0 && v == 0);
    }
}

static void a_nan_gradient_poisons_its_own_element_with_the_one_nan(void **state)
{
    struct hst_adam_coef k = coef_at((struct hst_adam_hyper){1e-3, 0.9, 0.999, 1e-8, 0}, 1, 1.0f);
    float p[] = {1, 1, 1}, m[3] = {0}, v[3] = {0}, g[] = {0.1f, float_of(0xffabcdef), 0.1f};
    uint16_t weight = 0x3f80, grad = 0xffab;
    int16_t remainder = 5;
    (void)state;

    run_f32(&k, p, m, v, g, 3);
    assert_true(p[0] < 1 && p[0] == p[2] && m[0] == m[2] && v[0] == v[2]);
    assert_int_equal(bits_of(p[1]), 0x7fc00000);
    assert_int_equal(bits_of(m[1]), 0x7fc00000);
    assert_int_equal(bits_of(v[1]), 0x7fc00000);

    m[0] = v[0] = 0;
    const struct hst_update_arrays arrays = {&weight, &remainder, m, v, &grad};
    assert_int_equal(hst_update_run(adamw_bf16, &k, &arrays, 1), 0);
    assert_int_equal(weight, 0x7fc0);
    assert_int_equal(remainder, 0);
}

static void an_infinite_v_does_not_stay_hidden(void **state)
{
    struct hst_adam_coef k = coef_at((struct hst_adam_hyper){1e-3, 0.9, 0.999, 1e-8, 0}, 1, 1.0f);
    float p = 1, m = 0, v = float_of(0x7f800000), g = 0.1f;
    (void)state;

    run_f32(&k, &p, &m, &v, &g, 1);
    assert_true(isnan(v) && isnan(p));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_follows_the_documented_rounding_order),
        cmocka_unit_test(bf16_is_fp32_on_the_joined_master),
        cmocka_unit_test(many_steps_stay_close_to_float64),
        cmocka_unit_test(golden_values_of_pytorch),
        cmocka_unit_test(a_zero_gradient_without_decay_changes_no_weight),
        cmocka_unit_test(a_nan_gradient_poisons_its_own_element_with_the_one_nan),
        cmocka_unit_test(an_infinite_v_does_not_stay_hidden),
    };
    ops = hst_cpu_adam_ops(HST_CPU_ISA_C); /* the others are held to it by test_isa.c */
    adamw_f32 = hst_update_find(ops, (struct hst_update_kind){.weights = HST_CPU_F32});
    adamw_bf16 = hst_update_find(
        ops, (struct hst_update_kind){.weights = HST_CPU_BF16, .grads = HST_CPU_BF16});
    rng = seed_begin(argc, argv);
    return cmocka_run_group_tests_name("adamw", tests, NULL, NULL);
}
