/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_STEP_H
#define HOISTWAY_TOOLS_BENCH_STEP_STEP_H
#include "bench/step/run.h"

struct bench_step_in {
    struct bench_run_in run;
    uint64_t steps; /* measured, after one that warms up */
};

struct bench_step {
    double step_s; /* median */
    double least_s, most_s;
    double tokens_per_s;
    double counted_flops;    /* 6·N·B of one step, N the parameters that take part in GEMMs */
    double gemm_flops_per_s; /* the ceiling: median of rounds between the steps */
    double fraction;         /* counted_flops / step_s / gemm_flops_per_s */
    double loss;             /* of the last step */
    uint32_t threads;
};

/** Steps of the benchmark's model beside pure GEMMs, by turns. */
int bench_step(const struct bench_step_in *in, struct bench_step *result, struct hst_error *error);

#endif
