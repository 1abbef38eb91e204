/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway bench: measures, prints a figure beside the ceiling measured in the same run. */
#include "bench/forecast.h"
#include "bench/step/step.h"
#include "bench/step/tax.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/options.h"
#include "cli/options/store.h"
#include "cli/options/verb.h"
#include "verbs/bench/adam.h"
#include "verbs/bench/comm.h"
#include "verbs/bench/kernels.h"
#include "verbs/bench/layer.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bench_options {
    struct bench_step_in step;
    bool tax, updates, predict, json;
};

static const struct hst_option bench_table[] = {
    {.name = "steps",
     .group = "measuring",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct bench_options, step.steps),
     .argument = "N",
     .default_text = "5",
     .least = 1,
     .greatest = 1e4,
     .help = "steps measured, after one that warms up"},
    {.name = "batch-tokens",
     .group = "measuring",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct bench_options, step.run.batch_tokens),
     .argument = "N",
     .default_text = "4096",
     .least = 256,
     .greatest = 1e7,
     .help = "tokens of a step, a multiple of 256"},
    {.name = "ways",
     .group = "measuring",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct bench_options, step.run.ways),
     .argument = "W",
     .default_text = "1",
     .least = 1,
     .greatest = 65536,
     .help = "parts of the batch whose gradients are added, each whole sequences"},
    {.name = "threads",
     .group = "measuring",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct bench_options, step.run.threads),
     .argument = "N",
     .default_text = "physical cores",
     .least = 1,
     .greatest = 1024,
     .help = "worker threads"},
    {.name = "device",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct bench_options, step.run.device),
     .argument = "NAME",
     .default_text = "host",
     .help = "what computes, with --tax or --updates"},
    {.name = "store",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct bench_options, step.run.store),
     .argument = "DIR",
     .help = "directory for what --place puts on NVMe"},
    {.name = "place",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct bench_options, step.run.place),
     .argument = "CLASS=TIER[,...]",
     .default_text = "all in DRAM",
     .help = "homes of weights and states"},
    {.name = "tax",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct bench_options, tax),
     .help = "homes on NVMe (--store) against all in DRAM, by turns"},
    {.name = "updates",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct bench_options, updates),
     .help = "optimistic against deferred, homes in --store, by turns"},
    {.name = "predict",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct bench_options, predict),
     .help = "12 runs at home in DRAM and in --store: predicted, measured, bound"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct bench_options, json),
     .help = "one JSON object per case"},
};

static void print_json(const struct bench_step *r)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "step");
    json_put_text(&json, "case", "llama 512x8 seq 256 fp32 recompute");
    json_put_real(&json, "value", r->counted_flops / r->step_s);
    json_put_text(&json, "unit", "FLOP/s (6NB)");
    json_put_real(&json, "ceiling", r->gemm_flops_per_s);
    json_put_real(&json, "fraction", r->fraction);
    json_put_real(&json, "tokens_per_s", r->tokens_per_s);
    json_put_real(&json, "step_s", r->step_s);
    json_put_real(&json, "least_s", r->least_s);
    json_put_real(&json, "most_s", r->most_s);
    json_put_whole(&json, "threads", r->threads);
    json_put_end(&json);
}

static void print_text(const struct bench_step *r)
{
    printf("step: Llama 512 x 8 layers, 256-token sequences, fp32, blocks recomputed, %u threads\n",
           r->threads);
    printf("  step     %8.3f s   (median; least %.3f, most %.3f)\n", r->step_s, r->least_s,
           r->most_s);
    printf("  tokens   %8.0f /s\n", r->tokens_per_s);
    printf("  6NB      %8.1f GFLOP/s\n", r->counted_flops / r->step_s * 1e-9);
    printf("  sgemm    %8.1f GFLOP/s   (ceiling, at the model's shapes, same run)\n",
           r->gemm_flops_per_s * 1e-9);
    printf("  fraction %8.1f %%\n", 100 * r->fraction);
}

static void print_tax_json(const struct bench_tax_case *cases)
{
    for (int c = 0; c < BENCH_TAX_CASES; c++) {
        struct json_writer json = {.out = stdout};
        json_put_object(&json, NULL);
        json_put_text(&json, "bench", "step");
        json_put_text(&json, "case", cases[c].name);
        json_put_real(&json, "value", cases[c].step_s);
        json_put_text(&json, "unit", "s");
        json_put_real(&json, "ceiling", cases[0].step_s);
        json_put_real(&json, "fraction", 1 / cases[c].ratio);
        json_put_real(&json, "ratio", cases[c].ratio);
        json_put_real(&json, "ratio_least", cases[c].ratio_least);
        json_put_real(&json, "ratio_most", cases[c].ratio_most);
        json_put_end(&json);
        putchar('\n');
    }
}

static void print_tax_text(const struct bench_tax_case *cases)
{
    printf("%-26s %9s %9s   (median of the rounds' ratios)\n", "", "step s", "ratio");
    for (int c = 0; c < BENCH_TAX_CASES; c++)
        printf("%-26s %9.3f %9.3f   (%.3f to %.3f)\n", cases[c].name, cases[c].step_s,
               cases[c].ratio, cases[c].ratio_least, cases[c].ratio_most);
}

static int measure_tax(const struct bench_options *o, struct hst_error *error)
{
    const struct bench_step_in *step = &o->step;
    struct bench_tax_case cases[BENCH_TAX_CASES];
    if (!step->run.store || step->run.place)
        return fail(error, FAIL_USAGE, -EINVAL,
                    "--tax and --updates need --store, and set the homes themselves. Fix: --store "
                    "DIR without --place.");
    const struct bench_tax_in in = {.kind = o->updates ? BENCH_TAX_UPDATES : BENCH_TAX_HOMES,
                                    .rounds = step->steps,
                                    .batch_tokens = step->run.batch_tokens,
                                    .threads = step->run.threads,
                                    .device = step->run.device,
                                    .store = step->run.store};
    activity_begin("measuring");
    int rc = bench_tax(&in, cases, error);
    activity_end();
    if (rc)
        return rc;
    if (o->json)
        print_tax_json(cases);
    else
        print_tax_text(cases);
    return 0;
}

static void print_forecast_json(const struct bench_forecast_case *cases)
{
    for (int c = 0; c < BENCH_FORECAST_CASES; c++) {
        const struct bench_forecast_case *of = &cases[c];
        struct json_writer json = {.out = stdout};
        char name[128];
        snprintf(name, sizeof name, "%s,tokens=%" PRIu64, of->place, of->batch_tokens);
        json_put_object(&json, NULL);
        json_put_text(&json, "bench", "step");
        json_put_text(&json, "case", name);
        json_put_real(&json, "value", of->measured_s);
        json_put_text(&json, "unit", "s");
        json_put_real(&json, "ceiling", of->bound_s);
        json_put_real(&json, "fraction", of->bound_s / of->measured_s);
        json_put_real(&json, "planned_s", of->planned_s);
        json_put_real(&json, "planned_of_measured", of->planned_s / of->measured_s);
        json_put_real(&json, "predicted_s", of->predicted_s);
        json_put_real(&json, "predicted_of_measured", of->predicted_s / of->measured_s);
        json_put_text(&json, "bound_by", of->bound_by);
        json_put_end(&json);
        putchar('\n');
    }
}

static void print_forecast_text(const struct bench_forecast_case *cases)
{
    const struct bench_forecast all = bench_forecast_judge(cases, BENCH_FORECAST_CASES);
    printf("homes                                         tokens   step s  planned  of it  "
           "predicted  of it  bound of it  bounded by\n");
    for (int c = 0; c < BENCH_FORECAST_CASES; c++)
        printf("%-45s %6" PRIu64 " %8.3f %8.3f %6.2f %10.3f %6.2f %12.2f  %s\n", cases[c].place,
               cases[c].batch_tokens, cases[c].measured_s, cases[c].planned_s,
               cases[c].planned_s / cases[c].measured_s, cases[c].predicted_s,
               cases[c].predicted_s / cases[c].measured_s, cases[c].bound_s / cases[c].measured_s,
               cases[c].bound_by);
    printf("plans before the first step are off by %.1f %% (median), %.1f %% (worst)\n",
           100 * all.plan_off_median, 100 * all.plan_off_worst);
    printf("predictions are off by %.1f %% (median), %.1f %% (worst); bound / step %.2f (median)\n",
           100 * all.off_median, 100 * all.off_worst, all.bound_median);
}

static int measure_forecast(const struct bench_options *o, struct hst_error *error)
{
    struct bench_forecast_case cases[BENCH_FORECAST_CASES];
    const struct bench_forecast_in in = {o->step.steps, o->step.run.threads, o->step.run.store};
    if (!in.store || o->step.run.place || o->tax || o->updates)
        return fail(error, FAIL_USAGE, -EINVAL,
                    "--predict needs --store, and sets homes and tokens itself. Fix: --predict "
                    "--store DIR without --place and --tax.");
    activity_begin("measuring");
    int rc = bench_forecast(&in, cases, error);
    activity_end();
    if (rc)
        return rc;
    if (o->json)
        print_forecast_json(cases);
    else
        print_forecast_text(cases);
    return 0;
}

static int measure_step(const struct bench_options *o, struct hst_error *error)
{
    struct bench_step result;
    activity_begin("measuring");
    int rc = bench_step(&o->step, &result, error);
    activity_end();
    if (rc)
        return rc;
    if (o->json)
        print_json(&result);
    else
        print_text(&result);
    return 0;
}

static int bench_verb_step(int argc, char **argv)
{
    struct bench_options options = {.step = {.steps = 5, .run.batch_tokens = 4096}};
    const struct cli_verb verb = {
        .name = "bench step",
        .about = "trains a small Llama on the host, in per cent of the machine's sgemm rate",
        .sets = {{bench_table, sizeof bench_table / sizeof bench_table[0], &options}},
        .set_count = 1,
    };
    struct hst_error error = {0};
    char store[STORE_TEXT_BYTES];
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int rc = store_alone(&options.step.run.store, store, &error);
    if (rc == 0 && options.step.run.device && !options.tax && !options.updates)
        rc = fail(
            &error, FAIL_USAGE, -EINVAL,
            "--device goes with --tax or --updates: the others measure the host. Fix: leave it "
            "out");
    if (rc == 0 && options.step.run.ways && (options.tax || options.updates || options.predict))
        rc = fail(&error, FAIL_USAGE, -EINVAL,
                  "--ways goes with steps alone, and not with --tax, --updates and --predict. Fix: "
                  "leave it out");
    if (rc == 0)
        rc = options.predict                  ? measure_forecast(&options, &error)
             : options.tax || options.updates ? measure_tax(&options, &error)
                                              : measure_step(&options, &error);
    return rc ? cli_fail(&error) : CLI_EXIT_OK;
}

/* These can be measured. An option alone, but --help, is taken for the first one's. */
static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} benches[] = {
    {"step", "training steps of a small Llama, in per cent of sgemm; predictions", bench_verb_step},
    {"kernels", "a device's operations and copies, beside their ceilings", bench_verb_kernels},
    {"layer", "a model's layer and head, operation by operation", bench_verb_layer},
    {"adam", "the host's optimizer, in per cent of what the memory allows", bench_verb_adam},
    {"comm", "what moves between ranks, beside MPI's own: mpirun -n 2", bench_verb_comm},
};
#define BENCH_COUNT (sizeof benches / sizeof benches[0])

static void print_help(void)
{
    printf("usage: hoistway bench WHAT [options]\n\n"
           "Measures, and prints each figure beside a ceiling measured in the same run.\n\n");
    for (size_t i = 0; i < BENCH_COUNT; i++)
        printf("  %-10s %s\n", benches[i].name, benches[i].about);
    printf("\n'hoistway bench WHAT --help' lists the options. Drives: 'nvme-bench --help'.\n");
}

int verb_bench(int argc, char **argv)
{
    struct hst_error error = {0};
    for (size_t i = 0; argc > 0 && i < BENCH_COUNT; i++)
        if (strcmp(argv[0], benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        print_help();
        return CLI_EXIT_OK;
    }
    if (argc > 0 && argv[0][0] == '-')
        return benches[0].run(argc, argv);
    fail(&error, FAIL_USAGE, -EINVAL,
         "bench can measure: %s, %s, %s, %s, %s (got '%.60s'). Fix: hoistway bench %s.",
         benches[0].name, benches[1].name, benches[2].name, benches[3].name, benches[4].name,
         argc > 0 ? argv[0] : "", benches[0].name);
    return cli_fail(&error);
}
