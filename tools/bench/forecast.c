/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts steps of the benchmark's model, then measures them. */
#include "bench/forecast.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The first one warms up; of the others computation is measured. */
#define STEPS_BEFORE 3u
#define ROUNDS       3u
#define DRIVE_BYTES  ((uint64_t)1 << 30)

static const char *const PLACES[] = {
    "states=dram,weights=dram",
    "states=nvme,weights=dram",
    "states=nvme,weights=nvme",
    "states=nvme,weights=nvme,grads=nvme,acts=nvme",
};
static const uint64_t TOKENS[] = {256, 512, 1024};
#define PLACE_COUNT (sizeof PLACES / sizeof *PLACES)
_Static_assert(PLACE_COUNT *(sizeof TOKENS / sizeof *TOKENS) == BENCH_FORECAST_CASES, "all cases");

/* On the parts that `probe` asks for, and the drive. */
static int predict(const struct bench_forecast_in *in, const struct bench_run *run,
                   struct hst_probe probe, struct hst_prediction *p, struct hst_error *error)
{
    const struct hst_probe_drive drive = {.directory = in->store};
    struct hst_rates rates;
    probe.size = sizeof probe;
    probe.parts |= (unsigned)HST_PROBE_DRIVES | HST_PROBE_BUSY;
    probe.drives = &drive;
    probe.drive_count = 1;
    probe.drive_bytes = DRIVE_BYTES;
    int rc = hst_probe(&probe, &rates);
    rc = rc ? rc : hst_engine_predict(run->engine, &rates, p);
    if (rc)
        return fail(error, FAIL_BUDGET, rc, "the step cannot be predicted");
    if (p->step_s <= 0)
        return fail(error, FAIL_VALUE, -ENODATA, "the step cannot be predicted: %s", p->why);
    return 0;
}

/* It predicts by what is known before the first step. */
static int plan(const struct bench_forecast_in *in, const struct bench_run_in *run_in,
                double *planned_s, struct hst_error *error)
{
    struct hst_gemm gemms[HST_GEMMS_MAX];
    struct llama_operations operations;
    struct hst_prediction p = {0};
    struct bench_run_in planned = *run_in;
    struct bench_run run;
    planned.plan = true;
    int rc = bench_run_open(&run, &planned, error);
    if (rc)
        return rc;
    llama_operations(run.model, HST_F32, &operations);
    const struct hst_probe probe = {
        .parts = HST_PROBE_UPDATE | HST_PROBE_COMPUTE,
        .threads = in->threads,
        .gemms = gemms,
        .gemm_count = llama_gemms(run.model, HST_F32, gemms),
        .operations = operations.list,
        .operation_count = operations.count,
    };
    rc = predict(in, &run, probe, &p, error);
    *planned_s = p.step_s;
    bench_run_close(&run);
    return rc;
}

static int run_steps(struct bench_run *run, double *seconds, uint64_t steps,
                     struct hst_error *error)
{
    int rc = 0;
    for (uint64_t s = 0; s < steps && rc == 0; s++) {
        double loss;
        rc = bench_run_step(run, &seconds[s], &loss, error);
    }
    return rc;
}

static int run_round(const struct bench_forecast_in *in, double *seconds,
                     struct bench_forecast_case *result, struct hst_error *error)
{
    const struct bench_run_in run_in = {.batch_tokens = result->batch_tokens,
                                        .threads = in->threads,
                                        .store = in->store,
                                        .place = result->place};
    double before[STEPS_BEFORE];
    struct bench_run run;
    struct hst_prediction p = {.bound_by = ""};
    int rc = plan(in, &run_in, &result->planned_s, error);
    rc = rc ? rc : bench_run_open(&run, &run_in, error);
    if (rc)
        return rc;
    rc = run_steps(&run, before, STEPS_BEFORE, error);
    rc = rc ? rc : predict(in, &run, (struct hst_probe){0}, &p, error);
    result->predicted_s = p.step_s;
    result->bound_s = p.bound_s;
    snprintf(result->bound_by, sizeof result->bound_by, "%s", p.bound_by);
    rc = rc ? rc : run_steps(&run, seconds, in->steps, error);
    if (rc == 0)
        result->measured_s = bench_median(seconds, in->steps);
    bench_run_close(&run);
    return rc;
}

static int compare_ratios(const void *a, const void *b)
{
    const struct bench_forecast_case *x = a, *y = b;
    double d = x->predicted_s / x->measured_s - y->predicted_s / y->measured_s;
    return (d > 0) - (d < 0);
}

static int compare_plans(const void *a, const void *b)
{
    const struct bench_forecast_case *x = a, *y = b;
    double d = x->planned_s / x->measured_s - y->planned_s / y->measured_s;
    return (d > 0) - (d < 0);
}

/* A machine that others use too is not as fast in one second as in the next: of the rounds of all
 * cases by turns, each case's with its median ratio. */
static void choose_rounds(struct bench_forecast_case (*rounds)[BENCH_FORECAST_CASES],
                          struct bench_forecast_case *cases)
{
    for (size_t c = 0; c < BENCH_FORECAST_CASES; c++) {
        struct bench_forecast_case of[ROUNDS];
        for (size_t r = 0; r < ROUNDS; r++)
            of[r] = rounds[r][c];
        qsort(of, ROUNDS, sizeof *of, compare_ratios);
        cases[c] = of[ROUNDS / 2];
        qsort(of, ROUNDS, sizeof *of, compare_plans);
        double ratio = of[ROUNDS / 2].planned_s / of[ROUNDS / 2].measured_s;
        cases[c].planned_s = ratio * cases[c].measured_s;
    }
}

int bench_forecast(const struct bench_forecast_in *in,
                   struct bench_forecast_case cases[BENCH_FORECAST_CASES], struct hst_error *error)
{
    struct bench_forecast_case rounds[ROUNDS][BENCH_FORECAST_CASES];
    double *seconds = calloc(in->steps, sizeof *seconds);
    int rc = seconds ? 0 : fail(error, FAIL_BUDGET, -ENOMEM, "out of memory for the results");
    for (size_t i = 0; i < ROUNDS * BENCH_FORECAST_CASES && rc == 0; i++) {
        size_t c = i % BENCH_FORECAST_CASES;
        struct bench_forecast_case *round = &rounds[i / BENCH_FORECAST_CASES][c];
        *round = (struct bench_forecast_case){.place = PLACES[c % PLACE_COUNT],
                                              .batch_tokens = TOKENS[c / PLACE_COUNT]};
        rc = run_round(in, seconds, round, error);
    }
    if (rc == 0)
        choose_rounds(rounds, cases);
    free(seconds);
    return rc;
}

struct bench_forecast bench_forecast_judge(const struct bench_forecast_case *cases, size_t count)
{
    double off[BENCH_FORECAST_CASES], plan_off[BENCH_FORECAST_CASES];
    double bound[BENCH_FORECAST_CASES];
    for (size_t c = 0; c < count; c++) {
        off[c] = fabs(cases[c].predicted_s / cases[c].measured_s - 1);
        plan_off[c] = fabs(cases[c].planned_s / cases[c].measured_s - 1);
        bound[c] = cases[c].bound_s / cases[c].measured_s;
    }
    return (struct bench_forecast){.off_median = bench_median(off, count),
                                   .off_worst = off[count - 1], /* sorted */
                                   .plan_off_median = bench_median(plan_off, count),
                                   .plan_off_worst = plan_off[count - 1],
                                   .bound_median = bench_median(bound, count)};
}
