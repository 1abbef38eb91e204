/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_CPU_ADAM_PROBLEM_H
#define HST_TESTS_CPU_ADAM_PROBLEM_H
/*
 * A training problem in some format, and the same in float64.
 *
 * The bounds: each step rounds p once, by at most 2^-25·|p|·2, and roundings are independent, so
 * after T steps the error is near 2^-24·sqrt(T/3)·|p|max, plus what the step itself is off by.
 * ERROR_FACTOR is the room above that.
 */
#include "support.h"

#include <math.h>

enum { COUNT = 1024 };
static const double ERROR_FACTOR = 2.0;

struct reference {
    double p, m, v;
};

/** Step t (1 is the first) of one element, in float64. */
typedef void reference_update(enum hst_optimizer optimizer, const struct hst_adam_hyper *hyper,
                              int t, double g, struct reference *r);

struct problem {
    const struct hst_update *update;
    _Alignas(64) unsigned char weights[COUNT * 4], master[COUNT * 4], m[COUNT * 4], v[COUNT * 4];
    float grads[COUNT], start[COUNT];
    struct reference want[COUNT];
};

struct hst_update_arrays problem_arrays(struct problem *p);
void problem_begin(struct problem *p, const struct hst_update *update, uint64_t *rng);

/** One step of both with these coefficients, by random gradients around `mean`. */
void problem_step(struct problem *p, const struct hst_adam_hyper *hyper,
                  const struct hst_adam_coef *coef, int t, float mean, reference_update *reference,
                  uint64_t *rng);

void problem_masters(const struct problem *p, const struct hst_cpu_adam_ops *ops, float *out);
/** Number i of p->m or p->v. */
float problem_moment(const struct problem *p, const unsigned char *array, int i);

/** Root mean square of the errors, in units of what this file derives for one value of size 1. */
double error_units(double sum_of_squares, int count, int steps);

/** The generator of make_golden.py. */
float golden_unit(uint32_t *generator);

#endif
