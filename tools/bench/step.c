/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host training against the machine's GEMM rate. Decides what is counted: 6·N·B FLOPs, as if
 * nothing were recomputed (8·N·B are done), over sgemm's rate at this model's shapes measured in
 * the same run.
 */
#include "bench/step.h"

#include "bench/gemm.h"
#include "model/llama.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define WIDTH        512u
#define LAYERS       8u
#define INTERMEDIATE 1376u
#define VOCABULARY   256u
#define SEQUENCE     256u

/* So long do products take beside a step that their rate is as sure as the step's. */
#define ROUNDS_PER_STEP 8u

static const struct llama_config MODEL = {
    .hidden = WIDTH,
    .intermediate = INTERMEDIATE,
    .layers = LAYERS,
    .heads = 8,
    .kv_heads = 8,
    .head_dim = 64,
    .vocab = VOCABULARY,
    .max_positions = SEQUENCE,
    .rms_norm_eps = 1e-5,
    .rope = {.type = ROPE_DEFAULT, .theta = 10000},
};

struct bench {
    const struct bench_step_in *in;
    struct hst_error *error;
    struct llama *model;
    struct hst_engine *engine;
    uint32_t *tokens; /* inputs, then targets */
    double *seconds;  /* [steps] */
    double *rates;    /* [steps × ROUNDS_PER_STEP] */
};

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    llama_init_random(0, param->name, offset, dst, count);
    return 0;
}

static int engine_failed(struct bench *b, int native)
{
    const struct hst_error *told = b->engine ? hst_engine_error(b->engine) : b->error;
    if (told != b->error)
        *b->error = *told;
    return native;
}

static int open_run(struct bench *b)
{
    struct llama_run run = {SEQUENCE, b->in->batch_tokens,
                            llama_grain_tokens(LLAMA_GRAIN_HOST, SEQUENCE, b->in->batch_tokens)};
    int rc = llama_create(&MODEL, &run, &b->model, b->error);
    if (rc)
        return rc;
    const struct hst_config *config =
        hst_config(.store = b->in->store, .place = b->in->place, .threads = b->in->threads,
                   .precision = HST_PRECISION_FP32, .batch_tokens = run.batch_tokens,
                   .grain_tokens = run.grain_tokens, .error = b->error);
    rc = hst_engine_create(config, &b->engine);
    rc = rc ? rc : llama_add_units(b->model, b->engine);
    rc = rc ? rc : hst_engine_seal(b->engine, HST_ORDER_FORWARD);
    rc = rc ? rc : hst_engine_load(b->engine, &(struct hst_reader){read_random, NULL});
    if (rc)
        return engine_failed(b, rc);
    b->tokens = malloc(2 * run.batch_tokens * sizeof *b->tokens);
    b->seconds = calloc(b->in->steps, sizeof *b->seconds);
    b->rates = calloc(b->in->steps * ROUNDS_PER_STEP, sizeof *b->rates);
    if (!b->tokens || !b->seconds || !b->rates)
        return fail(b->error, FAIL_BUDGET, -ENOMEM, "out of memory for the tokens of one step");
    for (uint64_t i = 0; i < 2 * run.batch_tokens; i++)
        b->tokens[i] = (uint32_t)(i * 2654435761u >> 7) % VOCABULARY;
    return 0;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The products of one block and grain: forward, what the backward computes again, and the backward.
 */
#define G (SEQUENCE * 8u) /* tokens of a grain: 2,048 */
static const struct gemm_shape PRODUCTS[] = {
    {G, WIDTH, WIDTH, 8, false, true, false},         /* q, k, v, o, twice */
    {G, INTERMEDIATE, WIDTH, 4, false, true, false},  /* gate, up, twice */
    {G, WIDTH, INTERMEDIATE, 1, false, true, false},  /* down */
    {G, WIDTH, WIDTH, 4, false, false, false},        /* dX of q, k, v, o */
    {G, WIDTH, INTERMEDIATE, 2, false, false, false}, /* dX of gate, up */
    {G, INTERMEDIATE, WIDTH, 1, false, false, false}, /* dX of down */
    {WIDTH, WIDTH, G, 4, true, false, true},          /* dW of q, k, v, o */
    {INTERMEDIATE, WIDTH, G, 2, true, false, true},   /* dW of gate, up */
    {WIDTH, INTERMEDIATE, G, 1, true, false, true},   /* dW of down */
};

static double median(double *values, uint64_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* Steps and rounds of pure products by turns: both see the same machine, whatever else it does. */
static int time_steps(struct bench *b, struct gemm_timer *timer, struct bench_step *result)
{
    uint64_t steps = b->in->steps;
    for (uint64_t s = 0; s <= steps; s++) {
        struct hst_step_stats stats;
        struct hst_step_in in = {.size = sizeof in, .lr = 1e-4};
        double start = seconds_now();
        int rc = llama_step(b->model, b->engine, &in, b->tokens, b->tokens + b->in->batch_tokens,
                            &result->loss, &stats);
        if (rc)
            return engine_failed(b, rc);
        if (s == 0)
            continue;
        b->seconds[s - 1] = seconds_now() - start;
        for (unsigned r = 0; r < ROUNDS_PER_STEP; r++)
            b->rates[(s - 1) * ROUNDS_PER_STEP + r] = gemm_timer_round(timer);
    }
    result->step_s = median(b->seconds, steps);
    result->least_s = b->seconds[0];
    result->most_s = b->seconds[steps - 1];
    result->gemm_flops_per_s = median(b->rates, steps * ROUNDS_PER_STEP);
    return 0;
}

static int time_all(struct bench *b, struct bench_step *result)
{
    struct hst_memory memory;
    int rc = hst_engine_memory(b->engine, &memory);
    if (rc)
        return engine_failed(b, rc);
    struct gemm_timer *timer =
        gemm_timer_create(PRODUCTS, sizeof PRODUCTS / sizeof PRODUCTS[0], memory.threads);
    if (!timer)
        return fail(b->error, FAIL_BUDGET, -ENOMEM,
                    "out of memory or threads for the measurement of products");
    rc = time_steps(b, timer, result);
    gemm_timer_destroy(timer);
    /* The embedding only looks rows up; everything else multiplies. */
    double multiplied = (double)(llama_parameter_count(b->model) - (uint64_t)VOCABULARY * WIDTH);
    result->counted_flops = 6.0 * multiplied * (double)b->in->batch_tokens;
    result->tokens_per_s = (double)b->in->batch_tokens / result->step_s;
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
    free(b.tokens);
    free(b.seconds);
    free(b.rates);
    hst_engine_destroy(&b.engine);
    llama_destroy(&b.model);
    return rc;
}
