/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of each optimizer, from configuration to weights, against its formula in float64. */
#include "toy_client.h"

#include <hoistway/hoistway.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define CLIP  0.5
#define STEPS 12

static char store[] = "hst-optimizers-XXXXXX";

/* One weight in float64; the numbers of a configuration, defaults included. */
struct weight {
    double p, m, v, start, t;
};
struct numbers {
    double beta1, beta2, momentum, eps, weight_decay;
    double lr; /* 0: TOY_LR; below: none */
};
typedef void formula(const struct numbers *n, double decay, double g, struct weight *w);

static double rate(const struct numbers *n)
{
    return n->lr == 0 ? TOY_LR : fmax(n->lr, 0);
}

static void adamw(const struct numbers *n, double decay, double g, struct weight *w)
{
    w->t++;
    w->m = n->beta1 * w->m + (1 - n->beta1) * g;
    w->v = n->beta2 * w->v + (1 - n->beta2) * g * g;
    const double m = w->m / (1 - pow(n->beta1, w->t)), v = w->v / (1 - pow(n->beta2, w->t));
    w->p -= rate(n) * (m / (sqrt(v) + n->eps) + decay * w->p);
}

static void sgd(const struct numbers *n, double decay, double g, struct weight *w)
{
    w->m = n->momentum * w->m + g + decay * w->p;
    w->p -= rate(n) * w->m;
}

static void lion(const struct numbers *n, double decay, double g, struct weight *w)
{
    const double c = n->beta1 * w->m + (1 - n->beta1) * g;
    w->p -= rate(n) * ((c > 0) - (c < 0) + decay * w->p);
    w->m = n->beta2 * w->m + (1 - n->beta2) * g;
}

static void adagrad(const struct numbers *n, double decay, double g, struct weight *w)
{
    g += decay * w->p;
    w->v += g * g;
    w->p -= rate(n) * g / (sqrt(w->v) + n->eps);
}

static const struct optimizer_case {
    struct hst_config config;
    struct numbers numbers;
    formula *formula;
    /* Tensors whose names end so have these, with weight decay in any case. */
    struct {
        const char *ends;
        struct numbers numbers;
    } groups[3];
} CASES[] = {
    {.config = {.optimizer = HST_OPTIMIZER_SGD}, .numbers = {.momentum = 0.9}, .formula = sgd},
    {.config = {.optimizer = HST_OPTIMIZER_SGD, .momentum = HST_NONE, .weight_decay = 0.1},
     .numbers = {.weight_decay = 0.1},
     .formula = sgd},
    {.config = {.optimizer = HST_OPTIMIZER_LION},
     .numbers = {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01},
     .formula = lion},
    {.config = {.optimizer = HST_OPTIMIZER_ADAGRAD, .weight_decay = 0.1},
     .numbers = {.eps = 1e-10, .weight_decay = 0.1},
     .formula = adagrad},
    {.config = {.group = {"*.norm:lr=3x,decay=0.2",
                          "?.w:beta1=0.8,beta2=0.9,eps=1e-3,decay=0;head:lr=0x"}},
     .numbers = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
     .formula = adamw,
     .groups =
         {{".norm",
           {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.2, .lr = 3 * TOY_LR}},
          {".w", {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3}},
          {"embed", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .lr = -1}}}},
    {.config = {.optimizer = HST_OPTIMIZER_SGD, .group = {"[a-c].*:momentum=0,decay=0.1"}},
     .numbers = {.momentum = 0.9},
     .formula = sgd,
     .groups = {{".norm", {.weight_decay = 0.1}}, {".w", {.weight_decay = 0.1}}}},
};
enum { CASES_COUNT = sizeof CASES / sizeof *CASES };

static void must(struct hst_engine *engine, int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, hst_engine_error(engine)->code,
                 hst_engine_error(engine)->message);
}

struct reference {
    size_t count;
    struct weight weights[TOY_ELEMENTS];
    const struct hst_param_desc *params[TOY_ELEMENTS];
    int users[TOY_ELEMENTS]; /* of the weight: 2 where it is tied */
};
static struct reference reference;

static void begin(struct reference *r)
{
    memset(r, 0, sizeof *r);
    for (uint32_t u = 0; u < TOY_UNITS; u++)
        for (uint32_t p = 0; p < toy_units[u].count; p++) {
            const struct hst_param_desc *param = &toy_units[u].params[p];
            for (uint64_t i = 0; i < toy_elements(param) && !param->alias_of; i++) {
                r->users[r->count] = u == 0 ? 2 : 1;
                r->params[r->count] = param;
                const double start = (double)toy_initial(u, i);
                r->weights[r->count++] = (struct weight){.p = start, .start = start};
            }
        }
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static void update(const struct optimizer_case *c, const struct hst_param_desc *param, double g,
                   struct weight *w)
{
    const bool decays = param->flags & HST_PARAM_DECAY;
    for (int i = 0; i < 3 && c->groups[i].ends; i++)
        if (ends_with(param->name, c->groups[i].ends)) {
            c->formula(&c->groups[i].numbers, c->groups[i].numbers.weight_decay, g, w);
            return;
        }
    c->formula(&c->numbers, decays ? c->numbers.weight_decay : 0, g, w);
}

/* A weight's gradient is the weight, as often as it is used. */
static void step(const struct optimizer_case *c, struct reference *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += pow(r->users[i] * r->weights[i].p, 2);
    const double factor = fmin(1, CLIP / (sqrt(sum) + 1e-6));
    for (size_t i = 0; i < r->count; i++)
        update(c, r->params[i], factor * r->users[i] * r->weights[i].p, &r->weights[i]);
}

static void steps_are_those_of_the_formula_in_float64(void **state)
{
    (void)state;
    static struct toy_saved saved;
    for (int c = 0; c < CASES_COUNT; c++) {
        struct hst_config config = CASES[c].config;
        struct hst_engine *engine = NULL;
        struct hst_step_stats stats;
        double worst = 0, way = 0, largest = 0;
        config.size = sizeof config;
        config.store = store;
        config.durability = "none";
        config.place = "states=nvme";
        config.batch_tokens = 10;
        config.micro_batch_tokens = 4;
        config.dram_bytes = 64u << 20;
        config.threads = 2;
        config.clip = CLIP;
        assert_int_equal(hst_engine_create(&config, &engine), 0);
        must(engine, toy_seal_and_load(engine));
        begin(&reference);
        for (int s = 0; s < STEPS; s++) {
            step(&CASES[c], &reference);
            must(engine, toy_step(engine, &stats));
        }
        must(engine, toy_save(engine, &saved));
        hst_engine_destroy(&engine);
        assert_int_equal(saved.used, reference.count * sizeof(float));
        for (size_t i = 0; i < reference.count; i++) {
            float got;
            memcpy(&got, saved.bytes + i * sizeof got, sizeof got);
            const struct weight *w = &reference.weights[i];
            largest = fmax(largest, fabs(w->p));
            worst = fmax(worst, fabs((double)got - w->p));
            way = fmax(way, fabs(w->p - w->start));
        }
        print_message("case %d: off by %.2g, of a way of %.2g\n", c, worst, way);
        /* each step rounds a weight once */
        assert_true(way > 0 && worst < 1e-4 * way + STEPS * 0x1p-24 * largest);
        assert_true(worst < 0.01 * way);
    }
}

static int make_store(void **state)
{
    (void)state;
    return mkdtemp(store) ? 0 : -1;
}

static int remove_store(void **state)
{
    (void)state;
    return rmdir(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_formula_in_float64),
    };
    return cmocka_run_group_tests(tests, make_store, remove_store);
}
