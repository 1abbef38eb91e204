/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW's and Adam's numbers: the distance to float64 (written here from the papers, and PyTorch's
 * AdamW, recorded in golden_adamw.h), in every format.
 * With β1 and β2 as one f32 each, or with 1 - lr·wd formed in f32, the bounds of problem.h are
 * missed by far.
 */
#include "problem.h"

#include "golden_adamw.h"

enum { STEPS = 400, LONG_STEPS = 2000 };

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

/* Kingma & Ba, Alg. 1, with weight decay in the gradient; Loshchilov & Hutter, Alg. 2: in
 * float64. */
static void adam_in_float64(enum hst_optimizer optimizer, const struct hst_adam_hyper *h, int t,
                            double g, struct reference *r)
{
    if (optimizer == HST_OPTIMIZER_ADAM)
        g += h->weight_decay * r->p;
    r->m = h->beta1 * r->m + (1 - h->beta1) * g;
    r->v = h->beta2 * r->v + (1 - h->beta2) * g * g;
    double m_hat = r->m / (1 - pow(h->beta1, t)), v_hat = r->v / (1 - pow(h->beta2, t));
    double step = h->lr * m_hat / (sqrt(v_hat) + h->eps);
    if (optimizer == HST_OPTIMIZER_ADAMW)
        step += h->lr * h->weight_decay * r->p;
    r->p -= step;
}

/* Gradients around `mean`. */
static void step(struct problem *p, const struct hst_adam_hyper *hyper, int t, float mean)
{
    const struct hst_adam_coef k = coef_at(*hyper, (uint64_t)t, 0.37f);
    problem_step(p, hyper, &k, t, mean, adam_in_float64, &rng);
}

/* Rows of Adam and AdamW with moments of this type and gradients in f32. */
static bool is_of(const struct hst_update *update, enum hst_cpu_type moments)
{
    const struct hst_update_kind *kind = &update->kind;
    return (kind->optimizer == HST_OPTIMIZER_ADAMW || kind->optimizer == HST_OPTIMIZER_ADAM) &&
           kind->moments == moments && kind->grads == HST_CPU_F32;
}

static const struct hst_adam_hyper hypers[] = {
    {1e-3, 0.9, 0.999, 1e-8, 0.01},
    {1e-5, 0.9, 0.999, 1e-8, 0.01},
    {1e-4, 0.9, 0.9999, 1e-8, 0.1},
    {1e-3, 0.0, 0.0, 1e-8, 0.0},
};
enum { HYPERS = sizeof hypers / sizeof hypers[0] };

static void with_f32_moments_many_steps_stay_close_to_float64(void **state)
{
    static struct problem p;
    static float got[COUNT];
    (void)state;

    for (size_t u = 0; u < ops->update_count; u++)
        for (size_t c = 0; c < HYPERS; c++) {
            double sum_p = 0, worst_m = 0, worst_v = 0;
            if (!is_of(&ops->updates[u], HST_CPU_F32))
                continue;
            problem_begin(&p, &ops->updates[u], &rng);
            for (int t = 1; t <= STEPS; t++)
                step(&p, &hypers[c], t, 0.2f);
            problem_masters(&p, ops, got);
            for (int i = 0; i < COUNT; i++) {
                sum_p += pow((double)got[i] - p.want[i].p, 2);
                worst_m = fmax(worst_m, fabs((double)problem_moment(&p, p.m, i) - p.want[i].m));
                worst_v = fmax(worst_v, fabs((double)problem_moment(&p, p.v, i) / p.want[i].v - 1));
            }
            double units = error_units(sum_p, COUNT, STEPS);
            printf("%s, lr %g: p %.2f units, m %.1e, v %.1e\n", p.update->name, hypers[c].lr, units,
                   worst_m, worst_v);
            assert_true(units < ERROR_FACTOR);
            assert_true(worst_m < 3e-7); /* of gradients up to 0.44 */
            assert_true(worst_v < 4e-6);
        }
}

/*
 * A moment in bf16 is off by a random 2^-8 in each step, the later ones counting more: some 0.5 %
 * in m, where steps count for 1/(1-β1) = 10, some 5 % in v, where they do for 1,000. So a weight's
 * way is off by some 2 to 3 %, but no more than by chance: the mean of v over many weights is
 * right. (Rounded to the nearest, v would stop at about half of what it should be.)
 */
static void bf16_moments_are_right_in_the_mean(void **state)
{
    static struct problem p;
    static float got[COUNT];
    (void)state;

    for (size_t u = 0; u < ops->update_count; u++) {
        const struct hst_adam_hyper *hyper = &hypers[0];
        double error = 0, way = 0, m_ratio = 0, v_ratio = 0;
        if (!is_of(&ops->updates[u], HST_CPU_BF16))
            continue;
        problem_begin(&p, &ops->updates[u], &rng);
        for (int t = 1; t <= LONG_STEPS; t++)
            step(&p, hyper, t, 2.0f);
        problem_masters(&p, ops, got);
        for (int i = 0; i < COUNT; i++) {
            error += pow((double)got[i] - p.want[i].p, 2);
            way += pow((double)p.start[i] - p.want[i].p, 2);
            m_ratio += (double)problem_moment(&p, p.m, i) / p.want[i].m / COUNT;
            v_ratio += (double)problem_moment(&p, p.v, i) / p.want[i].v / COUNT;
        }
        double off = sqrt(error / way);
        printf("%s: p off by %.2f %% of its way, mean m %.4f, mean v %.4f of what they should be\n",
               p.update->name, 100 * off, m_ratio, v_ratio);
        assert_true(off < 0.04);
        assert_true(fabs(m_ratio - 1) < 0.003);
        assert_true(fabs(v_ratio - 1) < 0.01);
    }
}

/* Without gradients v shrinks by a thousandth in each step, less than bf16 can tell apart. */
static void bf16_moments_decay(void **state)
{
    static struct problem p;
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    const struct hst_update_kind kind = {.weights = HST_CPU_BF16, .moments = HST_CPU_BF16};
    double ratio = 0;
    (void)state;

    problem_begin(&p, hst_update_find(ops, kind), &rng);
    for (int t = 1; t <= 20; t++)
        step(&p, &hyper, t, 2.0f);
    memset(p.grads, 0, sizeof p.grads);
    for (int t = 21; t <= 1020; t++) {
        const struct hst_adam_coef k = coef_at(hyper, (uint64_t)t, 1);
        const struct hst_update_arrays arrays = problem_arrays(&p);
        assert_int_equal(hst_update_run(p.update, &k, &arrays, COUNT), 0);
    }
    for (int i = 0; i < COUNT; i++)
        ratio += (double)problem_moment(&p, p.v, i) / p.want[i].v / COUNT;
    assert_true(fabs(ratio / pow(hyper.beta2, 1000) - 1) < 0.02);
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
    const struct hst_update_arrays arrays = {
        .weights = &weight, .master = &remainder, .m = m, .v = v, .grads = &grad};
    assert_int_equal(hst_update_run(adamw_bf16, &k, &arrays, 1), 0);
    assert_int_equal(weight, 0x7fc0);
    assert_int_equal(remainder, 0);
}

/* From a v of 0, and from the largest that the header says it reaches. */
static void the_largest_gradients_that_are_taken_leave_v_finite(void **state)
{
    static const double beta2s[] = {0, 0.5, 0.999, 0.9999999, 1 - 0x1p-30};
    const uint16_t most = 0x7f7f; /* 0x1.fep127 */
    const struct hst_grad_scale_in in = {HST_GRAD_NORM_MOST, 1, 0};
    static struct problem p;
    float scale;
    (void)state;

    assert_int_equal(hst_grad_scale(&in, &scale), 0);
    for (size_t u = 0; u < ops->update_count; u++)
        for (size_t b = 0; b < sizeof beta2s / sizeof *beta2s; b++) {
            const struct hst_update *update = &ops->updates[u];
            if (update->kind.grads != HST_CPU_F32 || update->kind.optimizer != HST_OPTIMIZER_ADAMW)
                continue;
            problem_begin(&p, update, &rng);
            for (int i = 0; i < COUNT; i++) {
                p.grads[i] = (float)(i % 3 ? HST_GRAD_NORM_MOST : -HST_GRAD_NORM_MOST);
                if (i % 2) /* of f32 the upper half */
                    memcpy(p.v + (i + 1) * update->bytes.v - 2, &most, 2);
            }
            for (int t = 1; t <= LONG_STEPS; t++) {
                const struct hst_adam_hyper hyper = {1e-3, 0.9, beta2s[b], 1e-8, 0};
                const struct hst_adam_coef k = coef_at(hyper, (uint64_t)t, scale);
                const struct hst_update_arrays arrays = problem_arrays(&p);
                assert_int_equal(hst_update_run(update, &k, &arrays, COUNT), 0);
            }
            for (int i = 0; i < COUNT; i++) {
                assert_true(problem_moment(&p, p.v, i) > 0 &&
                            problem_moment(&p, p.v, i) <= 0x1.fep127f);
                assert_true(fabsf(problem_moment(&p, p.m, i)) <= 0x1.01p64f);
            }
        }
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
        cmocka_unit_test(with_f32_moments_many_steps_stay_close_to_float64),
        cmocka_unit_test(bf16_moments_are_right_in_the_mean),
        cmocka_unit_test(bf16_moments_decay),
        cmocka_unit_test(golden_values_of_pytorch),
        cmocka_unit_test(a_zero_gradient_without_decay_changes_no_weight),
        cmocka_unit_test(a_nan_gradient_poisons_its_own_element_with_the_one_nan),
        cmocka_unit_test(the_largest_gradients_that_are_taken_leave_v_finite),
        cmocka_unit_test(an_infinite_v_does_not_stay_hidden),
    };
    ops = hst_cpu_adam_ops(HST_CPU_ISA_C); /* the others are held to it by test_isa.c */
    adamw_f32 = hst_update_find(ops, (struct hst_update_kind){.weights = HST_CPU_F32});
    adamw_bf16 = hst_update_find(
        ops, (struct hst_update_kind){.weights = HST_CPU_BF16, .grads = HST_CPU_BF16});
    rng = seed_begin(argc, argv);
    return cmocka_run_group_tests_name("adamw", tests, NULL, NULL);
}
