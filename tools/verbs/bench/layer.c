/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway bench layer: a layer of a known model and its head, operation by operation. */
#include "verbs/bench/layer.h"

#include "base/text.h"
#include "bench/budget.h"
#include "bench/layer/layer.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/device.h"
#include "cli/options/options.h"
#include "cli/options/shape.h"
#include "cli/options/verb.h"
#include "verbs/doctor/gpu_clock.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEQS_MOST    8u
#define TOKENS       8192u /* a micro-batch on a GPU */
#define HOST_TOKENS  256u  /* what one thread does in seconds */
#define SMOKE_TOKENS 64u
#define CLOCK_MS     5000u

struct layer_options {
    const char *model, *seq, *device;
    uint64_t tokens;
    int precision; /* index into precisions */
    bool smoke, json;
};

static const char *const precisions[] = {"bf16", "fp32", "fp16", NULL};
static const enum hst_dtype dtypes[] = {HST_BF16, HST_F32, HST_F16};

#define FIELD(f) offsetof(struct layer_options, f)

static const struct hst_option layer_table[] = {
    {.name = "model",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(model),
     .argument = "SHAPE",
     .default_text = "8B",
     .help = "a model known by name: 1B, 8B, llama-2-13b"},
    {.name = "tokens",
     .group = "measuring",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(tokens),
     .argument = "N",
     .default_text = "8192; 256 on the host",
     .least = 1,
     .greatest = 1 << 20,
     .help = "tokens that a layer computes at once"},
    {.name = "seq",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(seq),
     .argument = "N[,N...]",
     .default_text = "2048, and all tokens",
     .help = "tokens of a sequence, one measurement each; each divides --tokens"},
    {.name = "precision",
     .group = "measuring",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(precision),
     .argument = "TYPE",
     .default_text = "bf16",
     .choices = precisions,
     .first_choice = 0,
     .help = "weights and activations"},
    {.name = "device",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(device),
     .argument = "DEVICE",
     .default_text = "a GPU, if any",
     .help = "what is measured: host, cuda or cuda:INDEX"},
    {.name = "smoke",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(smoke),
     .help = "a tiny layer, once: tries everything, measures nothing"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "one JSON object per figure and line"},
};

/* It holds what is told, and what is needed for that. */
struct layer_bench {
    const struct layer_options *options;
    struct bench_layer_in in;
    uint64_t seqs[SEQS_MOST];
    struct hst_dev *dev;
    bool gpu;
    char told[96]; /* the heading of what was told last */
};

/* ---- what was asked ---- */

static int no_lengths(const char *text, struct hst_error *error)
{
    return fail(error, FAIL_VALUE, -EINVAL,
                "--seq '%.60s' is no list of 1 to %u whole numbers above 0. Fix: --seq 2048,8192.",
                text, SEQS_MOST);
}

static int read_lengths(struct layer_bench *b, const char *text, struct hst_error *error)
{
    const char *at = text;
    for (b->in.seq_count = 0; b->in.seq_count < SEQS_MOST; at++) {
        char *end;
        errno = 0;
        unsigned long long length = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
        if (length == 0 || errno || (*end != ',' && *end))
            return no_lengths(text, error);
        b->seqs[b->in.seq_count++] = length;
        if (b->in.tokens % length != 0)
            return fail(error, FAIL_VALUE, -EINVAL,
                        "--tokens %" PRIu64 " are no whole sequences of --seq %llu. Fix: --seq and "
                        "--tokens of which each length divides the tokens.",
                        b->in.tokens, length);
        at = end;
        if (!*at)
            return 0;
    }
    return no_lengths(text, error);
}

static int read_options(struct layer_bench *b, struct hst_error *error)
{
    const struct layer_options *o = b->options;
    const struct hst_shape *shape = hst_shape_find(o->model);
    if (!shape)
        return cli_shape_unknown("--model", o->model, NULL, error);
    struct llama_config config = llama_config_of(shape);
    config.rms_norm_eps = 1e-5;
    bool tiny = o->smoke, host = !b->gpu;
    b->in.config = tiny ? bench_layer_tiny(&config) : config;
    b->in.dtype = dtypes[o->precision];
    b->in.smoke = o->smoke;
    b->in.tokens = o->tokens ? o->tokens : tiny ? SMOKE_TOKENS : host ? HOST_TOKENS : TOKENS;
    b->in.seqs = b->seqs;
    if (o->seq)
        return read_lengths(b, o->seq, error);
    /* as far as the tokens go: two lengths, or all of them as one sequence */
    const uint64_t usual = tiny ? 16 : host ? HOST_TOKENS : 2048;
    if (b->in.tokens % usual == 0 && b->in.tokens > usual)
        b->seqs[b->in.seq_count++] = usual;
    b->seqs[b->in.seq_count++] = b->in.tokens;
    return 0;
}

/* ---- what is told ---- */

static void print_json(const struct bench_layer_row *row)
{
    struct json_writer json = {.out = stdout};
    char name[160], length[48] = "";
    if (row->seq)
        snprintf(length, sizeof length, ", sequences of %" PRIu64, row->seq);
    snprintf(name, sizeof name, "%s%s: %s", row->phase, length, row->name ? row->name : "all");
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "layer");
    json_put_text(&json, "case", name);
    json_put_real(&json, "value", row->name ? row->rate : row->seconds);
    json_put_text(&json, "unit", row->unit);
    json_put_real(&json, "ceiling", row->name ? row->ceiling : row->ceiling_s);
    json_put_real(&json, "fraction", row->ceiling_s / row->seconds);
    json_put_text(&json, "ceiling_name", row->ceiling_name);
    json_put_text(&json, "phase", row->phase);
    json_put_known(&json, "seq", (double)row->seq);
    json_put_text(&json, "operation", row->name);
    json_put_whole(&json, "times", row->times);
    json_put_real(&json, "seconds", row->seconds);
    json_put_real(&json, "least_s", row->least_s);
    json_put_real(&json, "most_s", row->most_s);
    json_put_real(&json, "bytes", row->bytes);
    json_put_real(&json, "flops", row->flops);
    json_put_text(&json, "timed_by", "events of the device");
    json_put_end(&json);
    printf("\n");
}

static void print_text(struct layer_bench *b, const struct bench_layer_row *row)
{
    char heading[sizeof b->told], length[48] = "";
    if (row->seq)
        snprintf(length, sizeof length, ", sequences of %" PRIu64, row->seq);
    snprintf(heading, sizeof heading, "%s%s", row->phase, length);
    if (strcmp(heading, b->told) != 0)
        printf("%s\n", heading);
    memcpy(b->told, heading, sizeof heading);
    if (row->name)
        printf("  %-52s %4zu x %9.1f us  %9.1f G%-6s %5.1f %% of %s\n", row->name, row->times,
               1e6 * row->seconds / (double)row->times, 1e-9 * row->rate, row->unit,
               100 * row->ceiling_s / row->seconds, row->ceiling_name);
    else
        printf("  %-52s %4zu   %9.1f us  %9s  %-6s %5.1f %% of %s\n", "all", row->times,
               1e6 * row->seconds, "", "", 100 * row->ceiling_s / row->seconds, row->ceiling_name);
}

static void tell(void *context, const struct bench_layer_row *row)
{
    struct layer_bench *b = context;
    activity_hold();
    if (b->options->json)
        print_json(row);
    else
        print_text(b, row);
    fflush(stdout);
    activity_release();
}

static void print_clock_json(const char *name, bool known, const struct gpu_clock *clock)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "layer");
    json_put_text(&json, "case", name);
    json_put_known(&json, "value", clock->now_hz);
    json_put_text(&json, "unit", "Hz");
    json_put_known(&json, "ceiling", clock->most_hz);
    json_put_known(&json, "fraction", known ? clock->now_hz / clock->most_hz : 0);
    json_put_text(&json, "ceiling_name", "the card's highest clock");
    json_put_text(&json, "note", known ? NULL : "not known");
    json_put_end(&json);
    printf("\n");
}

static void print_budget_json(uint64_t budget_bytes)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "layer");
    json_put_text(&json, "case", "budget of the GPU's memory: the usual --hbm");
    json_put_real(&json, "value", (double)budget_bytes);
    json_put_text(&json, "unit", "B");
    json_put_null(&json, "ceiling");
    json_put_null(&json, "fraction");
    json_put_null(&json, "ceiling_name");
    json_put_end(&json);
    printf("\n");
}

/* It tells what was chosen for the figures that follow. */
static void tell_budget(const struct layer_bench *b)
{
    char size[TEXT_BYTES];
    if (b->options->json && b->gpu)
        print_budget_json(b->in.budget_bytes);
    else if (b->gpu)
        printf("budget of the GPU's memory: %s, the usual --hbm (attention follows it)\n",
               text_size(b->in.budget_bytes, size));
}

/* The host's clock is not asked for: it is no one number. */
static void tell_clock(void *context, bool before)
{
    struct layer_bench *b = context;
    struct gpu_clock clock = {0};
    struct hst_dev_info info;
    const char *name = before ? "SM clock before" : "SM clock after";
    if (!b->gpu)
        return;
    hst_dev_info(b->dev, &info);
    bool known = gpu_clock_read(info.pci, CLOCK_MS, &clock);
    activity_hold();
    if (b->options->json)
        print_clock_json(name, known, &clock);
    else if (known)
        printf("%s: %.0f MHz of %.0f\n", name, 1e-6 * clock.now_hz, 1e-6 * clock.most_hz);
    else
        printf("%s: not known\n", name);
    fflush(stdout);
    activity_release();
}

/* ---- all of it ---- */

static int measure(const struct layer_options *options, struct hst_error *error)
{
    struct device_choice choice;
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    const struct hst_dev_config config = {.size = sizeof config};
    struct layer_bench b = {.options = options,
                            .in = {.tell = tell, .pause = tell_clock, .context = &b}};
    device_choose(options->device, 0, &choice);
    b.gpu = choice.gpu;
    int rc = read_options(&b, error);
    if (rc)
        return rc;
    rc = hst_dev_open(choice.name, &config, &b.dev, &failure);
    if (rc)
        return device_refused(choice.name, rc, &failure, error);
    if (!options->json)
        printf("layer: %s, %" PRIu64 " tokens, %s, device %s%s; seconds by the device's events\n",
               options->model, b.in.tokens, precisions[options->precision], choice.name,
               options->smoke ? ", a tiny layer: these figures measure nothing" : "");
    b.in.budget_bytes = bench_budget_bytes(b.dev);
    tell_budget(&b);
    activity_begin("measuring");
    rc = bench_layer(b.dev, &b.in, error);
    hst_dev_close(&b.dev);
    activity_end();
    return rc;
}

int bench_verb_layer(int argc, char **argv)
{
    struct layer_options options = {.model = "8B"};
    const struct cli_verb verb = {
        .name = "bench layer",
        .about = "times each operation of a model's layer and head, beside what bounds it",
        .sets = {{layer_table, sizeof layer_table / sizeof layer_table[0], &options}},
        .set_count = 1,
    };
    struct hst_error error = {0};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int rc = measure(&options, &error);
    return rc ? cli_fail(&error) : CLI_EXIT_OK;
}
