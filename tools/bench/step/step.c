/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host training against the machine's GEMM rate. Decides what is counted: 6·N·B FLOPs, as if
 * nothing were recomputed (8·N·B are done), over sgemm's rate at this model's shapes measured in
 * the same run.
 */
#include "bench/step/step.h"

#include "bench/gemm.h"

#include <errno.h>
#include <stdlib.h>

/* So long do GEMMs take beside a step that their rate is as sure as the step's. */
#define ROUNDS_PER_STEP 8u

struct bench {
    const struct bench_step_in *in;
    struct hst_error *error;
    struct bench_run run;
    double *seconds; /* [steps] */
    double *rates;   /* [steps × ROUNDS_PER_STEP] */
};

static int open_run(struct bench *b)
{
    int rc = bench_run_open(&b->run, &b->in->run, b->error);
    if (rc)
        return rc;
    b->seconds = calloc(b->in->steps, sizeof *b->seconds);
    b->rates = calloc(b->in->steps * ROUNDS_PER_STEP, sizeof *b->rates);
    if (!b->seconds || !b->rates)
        return fail(b->error, FAIL_BUDGET, -ENOMEM, "out of memory for the results");
    return 0;
}

/* The GEMMs of one block and micro-batch: forward, what the backward computes again, and the
 * backward.
 */
#define G (BENCH_SEQUENCE * 8u) /* tokens of a micro-batch: 2,048 */
static const struct gemm_shape PRODUCTS[] = {
    {G, BENCH_WIDTH, BENCH_WIDTH, 8, false, true, false},         /* q, k, v, o, twice */
    {G, BENCH_INTERMEDIATE, BENCH_WIDTH, 4, false, true, false},  /* gate, up, twice */
    {G, BENCH_WIDTH, BENCH_INTERMEDIATE, 1, false, true, false},  /* down */
    {G, BENCH_WIDTH, BENCH_WIDTH, 4, false, false, false},        /* dX of q, k, v, o */
    {G, BENCH_WIDTH, BENCH_INTERMEDIATE, 2, false, false, false}, /* dX of gate, up */
    {G, BENCH_INTERMEDIATE, BENCH_WIDTH, 1, false, false, false}, /* dX of down */
    {BENCH_WIDTH, BENCH_WIDTH, G, 4, true, false, true},          /* dW of q, k, v, o */
    {BENCH_INTERMEDIATE, BENCH_WIDTH, G, 2, true, false, true},   /* dW of gate, up */
    {BENCH_WIDTH, BENCH_INTERMEDIATE, G, 1, true, false, true},   /* dW of down */
};

/* Steps and rounds of pure GEMMs by turns: both see the same machine, whatever else it does. */
static int time_steps(struct bench *b, struct gemm_timer *timer, struct bench_step *result)
{
    uint64_t steps = b->in->steps;
    for (uint64_t s = 0; s <= steps; s++) {
        double seconds;
        int rc = bench_run_step(&b->run, &seconds, &result->loss, b->error);
        if (rc)
            return rc;
        if (s == 0)
            continue;
        b->seconds[s - 1] = seconds;
        for (unsigned r = 0; r < ROUNDS_PER_STEP; r++)
            b->rates[(s - 1) * ROUNDS_PER_STEP + r] = gemm_timer_round(timer);
    }
    result->step_s = bench_median(b->seconds, steps);
    result->least_s = b->seconds[0];
    result->most_s = b->seconds[steps - 1];
    result->gemm_flops_per_s = bench_median(b->rates, steps * ROUNDS_PER_STEP);
    return 0;
}

static int time_all(struct bench *b, struct bench_step *result)
{
    struct hst_memory memory;
    (void)hst_engine_memory(b->run.engine, &memory); /* sealed */
    struct gemm_timer *timer =
        gemm_timer_create(PRODUCTS, sizeof PRODUCTS / sizeof PRODUCTS[0], memory.threads);
    if (!timer)
        return fail(b->error, FAIL_BUDGET, -ENOMEM,
                    "out of memory or threads for the measurement of products");
    int rc = time_steps(b, timer, result);
    gemm_timer_destroy(timer);
    /* The embedding only looks rows up; everything else multiplies. */
    double multiplied =
        (double)(llama_parameter_count(b->run.model) - (uint64_t)BENCH_VOCABULARY * BENCH_WIDTH);
    result->counted_flops = 6.0 * multiplied * (double)b->in->run.batch_tokens;
    result->tokens_per_s = (double)b->in->run.batch_tokens / result->step_s;
    result->fraction = result->counted_flops / result->step_s / result->gemm_flops_per_s;
    result->threads = memory.threads;
    return rc;
}

int bench_step(const struct bench_step_in *in, struct bench_step *result, struct hst_error *error)
{
    struct bench b = {.in = in, .error = error};
    *result = (struct bench_step){0};
    int rc = open_run(&b);
    rc = rc ? rc : time_all(&b, result);
    free(b.seconds);
    free(b.rates);
    bench_run_close(&b.run);
    return rc;
}
