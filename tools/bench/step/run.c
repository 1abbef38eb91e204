/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's model and its steps, for whoever times them. */
#include "bench/step/run.h"
#include "base/now.h"

#include <errno.h>
#include <stdlib.h>

static const struct llama_config MODEL = {
    .hidden = BENCH_WIDTH,
    .intermediate = BENCH_INTERMEDIATE,
    .layers = BENCH_LAYERS,
    .heads = 8,
    .kv_heads = 8,
    .head_dim = 64,
    .vocab = BENCH_VOCABULARY,
    .max_positions = BENCH_SEQUENCE,
    .rms_norm_eps = 1e-5,
    .rope = {.type = ROPE_DEFAULT, .theta = 10000},
};

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    const struct llama_init init = {0, param->name, offset};
    llama_init_random(&MODEL, &init, dst, count);
    return 0;
}

static int engine_failed(const struct bench_run *run, int native, struct hst_error *error)
{
    if (run->engine && hst_engine_error(run->engine)->code)
        *error = *hst_engine_error(run->engine);
    return native;
}

static int open_engine(struct bench_run *run, const struct bench_run_in *in,
                       struct hst_error *error)
{
    const uint64_t way_tokens = in->batch_tokens / (in->ways ? in->ways : 1);
    struct llama_run sizes = {.seq_len = BENCH_SEQUENCE,
                              .batch_tokens = in->batch_tokens,
                              .micro_batch_tokens = llama_micro_batch_tokens(
                                  LLAMA_MICRO_BATCH_HOST, BENCH_SEQUENCE, way_tokens),
                              .ways = in->ways};
    int rc = llama_create(&MODEL, &sizes, &run->model, error);
    if (rc)
        return rc;
    const struct hst_config *config =
        hst_config(.store = in->store, .place = in->place, .clip = in->clip,
                   .durability = in->durability ? in->durability : "none",
                   .update_time = in->update_time, .device = in->device, .threads = in->threads,
                   .precision = HST_PRECISION_FP32, .batch_tokens = sizes.batch_tokens,
                   .micro_batch_tokens = sizes.micro_batch_tokens, .ways = in->ways, .error = error,
                   .plan = in->plan ? HST_PLAN_HERE : HST_PLAN_TO_TRAIN);
    rc = hst_engine_create(config, &run->engine);
    rc = rc ? rc : llama_add_units(run->model, run->engine);
    rc = rc ? rc : hst_engine_seal(run->engine, HST_ORDER_FORWARD);
    if (rc == 0 && !in->plan)
        rc = hst_engine_load(run->engine, &(struct hst_reader){.read = read_random});
    return rc ? engine_failed(run, rc, error) : 0;
}

int bench_run_open(struct bench_run *run, const struct bench_run_in *in, struct hst_error *error)
{
    *run = (struct bench_run){.batch_tokens = in->batch_tokens};
    int rc = open_engine(run, in, error);
    if (rc == 0) {
        run->tokens = malloc(2 * in->batch_tokens * sizeof *run->tokens);
        rc = run->tokens
                 ? 0
                 : fail(error, FAIL_BUDGET, -ENOMEM, "out of memory for the tokens of one step");
    }
    if (!run->tokens) {
        bench_run_close(run);
        return rc;
    }
    for (uint64_t i = 0; i < 2 * in->batch_tokens; i++)
        run->tokens[i] = (uint32_t)(i * 2654435761u >> 7) % BENCH_VOCABULARY;
    return 0;
}

int bench_run_step(struct bench_run *run, double *seconds, double *loss, struct hst_error *error)
{
    struct hst_step_stats stats;
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-4};
    double start = now_s();
    const struct llama_batch batch = {.inputs = run->tokens,
                                      .targets = run->tokens + run->batch_tokens};
    int rc = llama_step(run->model, run->engine, &in, &batch, loss, &stats);
    *seconds = now_s() - start;
    return rc ? engine_failed(run, rc, error) : 0;
}

void bench_run_close(struct bench_run *run)
{
    free(run->tokens);
    hst_engine_destroy(&run->engine);
    llama_destroy(&run->model);
    *run = (struct bench_run){0};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, uint64_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}
