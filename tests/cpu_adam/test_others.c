/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of the optimizers that are not Adam's: the distance to float64 (written here from
 * their sources, and PyTorch's own, recorded in golden_others.h), in every format.
 */
#include "problem.h"

#include "golden_others.h"

/* A sign is another one where a mean is as near to 0 as f32 rounds it, which is rare. */
enum { STEPS = 400, LONG_STEPS = 2000, FLIPS = 3 };

/* Steps of one length may all be rounded the same way: STEPS times 2^-25, in those units. */
#define ONE_WAY (sqrt(3.0 * STEPS) / 2)

static const struct hst_cpu_adam_ops *ops;
static uint64_t rng;

/* PyTorch's SGD: dampening 0, no look ahead. */
static void sgd(const struct hst_adam_hyper *h, double g, struct reference *r)
{
    g += h->weight_decay * r->p;
    r->m = h->beta1 * r->m + g;
    r->p -= h->lr * r->m;
}

/* Chen et al. 2023, Alg. 2. */
static void lion(const struct hst_adam_hyper *h, double g, struct reference *r)
{
    const double c = h->beta1 * r->m + (1 - h->beta1) * g;
    r->p -= h->lr * ((c > 0) - (c < 0) + h->weight_decay * r->p);
    r->m = h->beta2 * r->m + (1 - h->beta2) * g;
}

/* PyTorch's Adagrad: lr_decay 0, initial_accumulator_value 0. */
static void adagrad(const struct hst_adam_hyper *h, double g, struct reference *r)
{
    g += h->weight_decay * r->p;
    r->v += g * g;
    r->p -= h->lr * g / (sqrt(r->v) + h->eps);
}

static void in_float64(enum hst_optimizer optimizer, const struct hst_adam_hyper *h, int t,
                       double g, struct reference *r)
{
    (void)t;
    if (optimizer == HST_OPTIMIZER_SGD)
        sgd(h, g, r);
    else if (optimizer == HST_OPTIMIZER_LION)
        lion(h, g, r);
    else
        adagrad(h, g, r);
}

static struct hst_adam_coef coef_at(const struct hst_adam_hyper *hyper, int t, float grad_scale)
{
    struct hst_adam_coef coef;
    assert_int_equal(hst_plain_coef_init(hyper, (uint64_t)t, grad_scale, &coef), 0);
    return coef;
}

static void step(struct problem *p, const struct hst_adam_hyper *hyper, int t, float mean)
{
    const struct hst_adam_coef k = coef_at(hyper, t, 0.37f);
    problem_step(p, hyper, &k, t, mean, in_float64, &rng);
}

static const struct {
    enum hst_optimizer optimizer;
    struct hst_adam_hyper hyper;
} CASES[] = {
    {HST_OPTIMIZER_SGD, {1e-3, 0.9, 0, 1, 0.01}},
    {HST_OPTIMIZER_SGD, {1e-4, 0.99, 0, 1, 0}},
    {HST_OPTIMIZER_SGD, {1e-2, 0, 0, 1, 0.1}},
    {HST_OPTIMIZER_LION, {1e-4, 0.9, 0.99, 1, 0.1}},
    {HST_OPTIMIZER_LION, {1e-3, 0.95, 0.98, 1, 0}},
    {HST_OPTIMIZER_LION, {1e-3, 0, 0, 1, 0.01}},
    {HST_OPTIMIZER_ADAGRAD, {1e-2, 0, 0, 1e-10, 0.01}},
    {HST_OPTIMIZER_ADAGRAD, {1e-3, 0, 0, 1e-2, 0}},
};
enum { CASES_COUNT = sizeof CASES / sizeof *CASES };

/* All updates of a case's optimizer with such moments, and gradients in f32: the n-th; null. */
static const struct hst_update *update_of(enum hst_optimizer optimizer, enum hst_cpu_type moments,
                                          size_t n)
{
    for (size_t u = 0; u < ops->update_count; u++) {
        const struct hst_update_kind *kind = &ops->updates[u].kind;
        if (kind->optimizer == optimizer && kind->moments == moments &&
            kind->grads == HST_CPU_F32 && n-- == 0)
            return &ops->updates[u];
    }
    return NULL;
}

static double off_by(double got, double want)
{
    return fabs(got - want) / fmax(1, fabs(want));
}

static void check_many_steps(const struct hst_update *update, const struct hst_adam_hyper *hyper)
{
    static struct problem p;
    static float got[COUNT];
    double sum = 0, worst_m = 0, worst_v = 0;
    int flips = 0;
    problem_begin(&p, update, &rng);
    for (int t = 1; t <= STEPS; t++)
        step(&p, hyper, t, 0.2f);
    problem_masters(&p, ops, got);
    for (int i = 0; i < COUNT; i++) {
        const double off = ((double)got[i] - p.want[i].p) / fmax(1, fabs(p.want[i].p));
        const bool flipped = update->kind.optimizer == HST_OPTIMIZER_LION && fabs(off) > hyper->lr;
        flips += flipped;
        sum += flipped ? 0 : off * off;
        if (update->bytes.m)
            worst_m = fmax(worst_m, off_by((double)problem_moment(&p, p.m, i), p.want[i].m));
        if (update->bytes.v)
            worst_v = fmax(worst_v, off_by((double)problem_moment(&p, p.v, i), p.want[i].v));
    }
    double units = error_units(sum, COUNT, STEPS);
    printf("%s, lr %g: p %.2f units, m %.1e, v %.1e\n", update->name, hyper->lr, units, worst_m,
           worst_v);
    assert_true(units < (update->kind.optimizer == HST_OPTIMIZER_LION ? ONE_WAY : ERROR_FACTOR));
    assert_true(flips <= FLIPS);
    assert_true(worst_m < 3e-6);
    assert_true(worst_v < 3e-6);
}

static void with_f32_moments_many_steps_stay_close_to_float64(void **state)
{
    const struct hst_update *update;
    (void)state;
    for (int c = 0; c < CASES_COUNT; c++) {
        size_t n = 0;
        for (; (update = update_of(CASES[c].optimizer, HST_CPU_F32, n)); n++)
            check_many_steps(update, &CASES[c].hyper);
        assert_int_equal(n, HST_CPU_TYPES);
    }
}

/* Each step's rounding is random, so over many weights the mean is right. */
static void bf16_moments_are_right_in_the_mean(void **state)
{
    static struct problem p;
    static float got[COUNT];
    const struct hst_adam_hyper hyper = {1e-4, 0.9, 0.99, 1, 0};
    (void)state;
    static const enum hst_optimizer with[] = {HST_OPTIMIZER_SGD, HST_OPTIMIZER_LION};
    for (size_t o = 0; o < sizeof with / sizeof *with; o++) {
        const struct hst_update *update = update_of(with[o], HST_CPU_BF16, 0);
        double error = 0, way = 0, ratio = 0;
        problem_begin(&p, update, &rng);
        for (int t = 1; t <= LONG_STEPS; t++)
            step(&p, &hyper, t, 2.0f);
        problem_masters(&p, ops, got);
        for (int i = 0; i < COUNT; i++) {
            error += pow((double)got[i] - p.want[i].p, 2);
            way += pow((double)p.start[i] - p.want[i].p, 2);
            ratio += (double)problem_moment(&p, p.m, i) / p.want[i].m / COUNT;
        }
        printf("%s: p off by %.2f %% of its way, mean m %.4f of what it should be\n", update->name,
               100 * sqrt(error / way), ratio);
        assert_true(sqrt(error / way) < 0.01);
        assert_true(fabs(ratio - 1) < 0.003);
    }
}

static void golden_values_of_pytorch(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof golden_others / sizeof *golden_others; c++) {
        const struct golden_other *want = &golden_others[c];
        const struct hst_update *update = update_of(want->optimizer, HST_CPU_F32, 0);
        const bool first = update->bytes.m != 0;
        float p[GOLDEN_COUNT], moment[GOLDEN_COUNT] = {0}, g[GOLDEN_COUNT];
        const struct hst_update_arrays arrays = {
            .weights = p, .m = first ? moment : NULL, .v = first ? NULL : moment, .grads = g};
        uint32_t generator = 12345;
        double sum = 0, sum_f32 = 0;
        for (int i = 0; i < GOLDEN_COUNT; i++)
            p[i] = golden_unit(&generator);
        for (int t = 1; t <= GOLDEN_STEPS; t++) {
            const struct hst_adam_coef k = coef_at(&want->hyper, t, 1);
            for (int i = 0; i < GOLDEN_COUNT; i++)
                g[i] = ldexpf(golden_unit(&generator), -(i % 4 * 4));
            assert_int_equal(hst_update_run(update, &k, &arrays, GOLDEN_COUNT), 0);
        }
        for (int i = 0; i < GOLDEN_COUNT; i++) {
            sum += pow((double)p[i] - want->f64.p[i], 2);
            sum_f32 += pow(want->f32.p[i] - want->f64.p[i], 2);
            assert_true(off_by((double)moment[i], want->f64.state[i]) < 1e-6);
            assert_true(off_by((double)moment[i], want->f32.state[i]) < 1e-5);
        }
        double units = error_units(sum, GOLDEN_COUNT, GOLDEN_STEPS);
        printf("%s: %.2f units from PyTorch's float64, its own float32 is %.2f\n", want->name,
               units, error_units(sum_f32, GOLDEN_COUNT, GOLDEN_STEPS));
        assert_true(units < ERROR_FACTOR);
    }
}

/* Its sign would hide it from the weight. */
static void an_infinite_m_of_lion_does_not_stay_hidden(void **state)
{
    (void)state;
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.99, 1, 0};
    const struct hst_adam_coef k = coef_at(&hyper, 1, 1);
    float p = 1, m = INFINITY, g = 0.1f;
    const struct hst_update_arrays arrays = {.weights = &p, .m = &m, .grads = &g};
    assert_int_equal(hst_update_run(update_of(HST_OPTIMIZER_LION, HST_CPU_F32, 0), &k, &arrays, 1),
                     0);
    assert_true(isnan(p));
}

/* With it every step would be 0. */
static void an_infinite_v_of_adagrad_does_not_stay_hidden(void **state)
{
    (void)state;
    const struct hst_adam_hyper hyper = {1e-3, 0, 0, 1e-10, 0};
    const struct hst_adam_coef k = coef_at(&hyper, 1, 1);
    float p = 1, v = INFINITY, g = 0.1f;
    const struct hst_update_arrays arrays = {.weights = &p, .v = &v, .grads = &g};
    assert_int_equal(
        hst_update_run(update_of(HST_OPTIMIZER_ADAGRAD, HST_CPU_F32, 0), &k, &arrays, 1), 0);
    assert_true(isnan(p));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_f32_moments_many_steps_stay_close_to_float64),
        cmocka_unit_test(bf16_moments_are_right_in_the_mean),
        cmocka_unit_test(golden_values_of_pytorch),
        cmocka_unit_test(an_infinite_m_of_lion_does_not_stay_hidden),
        cmocka_unit_test(an_infinite_v_of_adagrad_does_not_stay_hidden),
    };
    ops = hst_cpu_adam_ops(HST_CPU_ISA_C); /* the others are held to it by test_isa.c */
    rng = seed_begin(argc, argv);
    return cmocka_run_group_tests_name("others", tests, NULL, NULL);
}
