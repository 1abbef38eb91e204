/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_FORECAST_H
#define HOISTWAY_TOOLS_BENCH_FORECAST_H
/* This header measures how well steps are predicted, and how near they come to their bound: home
 * tiers × tokens of a step. */
#include "bench/step/run.h"

struct bench_forecast_in {
    uint64_t steps; /* measured in each round, after those that the prediction is made from */
    uint32_t threads;
    const char *store;
};

struct bench_forecast_case {
    const char *place;
    uint64_t batch_tokens;
    double measured_s; /* median of the round's steps */
    double planned_s;  /* before the first one, on probes alone: what hoistway plan says */
    double predicted_s, bound_s;
    char bound_by[16];
};

enum { BENCH_FORECAST_CASES = 12 };

/* Over all cases. */
struct bench_forecast {
    double off_median, off_worst;           /* |predicted / measured - 1| */
    double plan_off_median, plan_off_worst; /* |planned / measured - 1| */
    double bound_median;                    /* bound / measured */
};

/**
 * Runs one case after another, three times over; each probes the machine and plans, warms up,
 * measures the drives, predicts, and only then measures its steps. Of a case's rounds the one with
 * the median ratio of prediction to step counts, and of its plans the one with theirs. Errors:
 * negative errno with *error; also where a step cannot be predicted.
 */
int bench_forecast(const struct bench_forecast_in *in,
                   struct bench_forecast_case cases[BENCH_FORECAST_CASES], struct hst_error *error);

/** Pure. count: 1 to BENCH_FORECAST_CASES. */
struct bench_forecast bench_forecast_judge(const struct bench_forecast_case *cases, size_t count);

#endif
