/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway bench kernels: a device's operations alone, each figure beside its ceiling. */
#include "verbs/bench/kernels.h"

#include "bench/layer/kernels.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/device.h"
#include "cli/options/options.h"
#include "cli/options/verb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct kernels_options {
    const char *device;
    int only; /* one of enum bench_group; 0: all */
    bool smoke, json;
};

static const char *const groups[] = {"copies",   "memory", "matmul", "attention",
                                     "launches", "waits",  NULL};

static const struct hst_option kernels_table[] = {
    {.name = "device",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct kernels_options, device),
     .argument = "DEVICE",
     .default_text = "a GPU, if any",
     .help = "what is measured: host, cuda or cuda:INDEX"},
    {.name = "only",
     .group = "measuring",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct kernels_options, only),
     .argument = "GROUP",
     .default_text = "all",
     .choices = groups,
     .first_choice = 1,
     .help = "one group of figures"},
    {.name = "smoke",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct kernels_options, smoke),
     .help = "tiny shapes, once each: tries everything, measures nothing"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct kernels_options, json),
     .help = "one JSON object per figure and line"},
};

static double fraction_of(const struct bench_figure *figure)
{
    return figure->ceiling > 0 ? figure->value / figure->ceiling : 0;
}

static void put_real(struct json_writer *json, const char *key, double value)
{
    if (value > 0)
        json_put_real(json, key, value);
    else
        json_put_null(json, key);
}

static void print_json(const struct bench_figure *figure)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "kernels");
    json_put_text(&json, "group", figure->group);
    json_put_text(&json, "case", figure->name);
    put_real(&json, "value", figure->value);
    json_put_text(&json, "unit", figure->unit);
    put_real(&json, "ceiling", figure->ceiling);
    json_put_text(&json, "ceiling_name", figure->ceiling_name);
    put_real(&json, "fraction", fraction_of(figure));
    put_real(&json, "least", figure->least);
    put_real(&json, "most", figure->most);
    json_put_text(&json, "note", figure->note);
    json_put_end(&json);
    printf("\n");
    fflush(stdout);
}

/* Rates by default. */
static void print_value(const struct bench_figure *figure)
{
    if (strcmp(figure->unit, "s") == 0)
        printf("%9.1f us", figure->value * 1e6);
    else if (strcmp(figure->unit, "tokens") == 0)
        printf("%9.1f tokens", figure->value);
    else
        printf("%9.1f G%s", figure->value * 1e-9, figure->unit);
}

static void print_text(const struct bench_figure *figure)
{
    if (figure->note) {
        printf("%-9s %-52s %s\n", figure->group, figure->name, figure->note);
        return;
    }
    printf("%-9s %-52s ", figure->group, figure->name);
    print_value(figure);
    if (figure->ceiling > 0)
        printf("  %5.1f %% of %s", 100 * fraction_of(figure), figure->ceiling_name);
    printf("\n");
    fflush(stdout);
}

/* ---- a row at a time, while the next is measured ---- */

static void tell(void *context, const struct bench_figure *figure)
{
    const struct kernels_options *options = context;
    activity_hold();
    if (options->json)
        print_json(figure);
    else
        print_text(figure);
    activity_release();
}

static int measure(struct kernels_options *options, struct hst_error *error)
{
    struct device_choice choice;
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_dev *dev;
    const struct hst_dev_config config = {.size = sizeof config};
    const struct bench_teller teller = {.tell = tell, .context = options, .smoke = options->smoke};
    device_choose(options->device, 0, &choice);
    int rc = hst_dev_open(choice.name, &config, &dev, &failure);
    if (rc)
        return device_refused(choice.name, rc, &failure, error);
    if (!options->json)
        printf("kernels: device %s%s\n", choice.name,
               options->smoke ? ", tiny shapes: these figures measure nothing" : "");
    unsigned all = options->only ? 1u << (options->only - 1) : BENCH_ALL;
    activity_begin("measuring");
    rc = bench_kernels(dev, all, &teller, error);
    hst_dev_close(&dev);
    activity_end();
    return rc;
}

int bench_verb_kernels(int argc, char **argv)
{
    struct kernels_options options = {0};
    const struct cli_verb verb = {
        .name = "bench kernels",
        .about = "times a device's operations at an 8B Llama's shapes, beside their ceilings",
        .sets = {{kernels_table, sizeof kernels_table / sizeof kernels_table[0], &options}},
        .set_count = 1,
    };
    struct hst_error error = {0};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int rc = measure(&options, &error);
    return rc ? cli_fail(&error) : CLI_EXIT_OK;
}
