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
    double p, m, v, start;
};
struct numbers {
    double beta1, beta2, momentum, eps, weight_decay;
};
typedef void formula(const struct numbers *n, double decay, double g, struct weight *w);

static void sgd(const struct numbers *n, double decay, double g, struct weight *w)
{
    w->m = n->momentum * w->m + g + decay * w->p;
    w->p -= TOY_LR * w->m;
}

static void lion(const struct numbers *n, double decay, double g, struct weight *w)
{
    const double c = n->beta1 * w->m + (1 - n->beta1) * g;
    w->p -= TOY_LR * ((c > 0) - (c < 0) + decay * w->p);
    w->m = n->beta2 * w->m + (1 - n->beta2) * g;
}

static void adagrad(const struct numbers *n, double decay, double g, struct weight *w)
{
    g += decay * w->p;
    w->v += g * g;
    w->p -= TOY_LR * g / (sqrt(w->v) + n->eps);
}

static const struct optimizer_case {
    struct hst_config config;
    struct numbers numbers;
    formula *formula;
} CASES[] = {
    {{.optimizer = HST_OPTIMIZER_SGD}, {.momentum = 0.9}, sgd},
    {{.optimizer = HST_OPTIMIZER_SGD, .momentum = HST_NONE, .weight_decay = 0.1},
     {.weight_decay = 0.1},
     sgd},
    {{.optimizer = HST_OPTIMIZER_LION}, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01}, lion},
    {{.optimizer = HST_OPTIMIZER_ADAGRAD, .weight_decay = 0.1},
     {.eps = 1e-10, .weight_decay = 0.1},
     adagrad},
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
    bool decays[TOY_ELEMENTS];
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
                r->decays[r->count] = (param->flags & HST_PARAM_DECAY) != 0;
                const double start = (double)toy_initial(u, i);
                r->weights[r->count++] = (struct weight){.p = start, .start = start};
            }
        }
}

/* A weight's gradient is the weight, as often as it is used. */
static void step(const struct optimizer_case *c, struct reference *r)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += pow(r->users[i] * r->weights[i].p, 2);
    const double factor = fmin(1, CLIP / (sqrt(sum) + 1e-6));
    for (size_t i = 0; i < r->count; i++)
        c->formula(&c->numbers, r->decays[i] ? c->numbers.weight_decay : 0,
                   factor * r->users[i] * r->weights[i].p, &r->weights[i]);
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
