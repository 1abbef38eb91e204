/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway plan. What train would do with the same options, up to where it would allocate: the same
 * engine, sealed to be a plan alone, its graph simulated on the machine's rates. Nothing is made,
 * and no drive is touched, unless --probe or --save-rates asks for it.
 */
#include "verbs/plan.h"
#include "cli/forecast.h"
#include "cli/log/output.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/shape.h"
#include "cli/options/store.h"
#include "hf/folder.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct train_options train;
    const char *rates, *save_rates;
    bool probe, json;
};

#define FIELD(f) offsetof(struct options, f)

static const struct hst_option input_table[] = {
    {.name = "model",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(train.model),
     .argument = "DIR|SHAPE",
     .help = "Hugging Face directory (its config.json), or 8B, llama-3-8b"},
    {.name = "rates",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(rates),
     .argument = "FILE",
     .default_text = "this machine's",
     .help = "those of another machine; budgets are then as given"},
    {.name = "probe",
     .group = "input",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(probe),
     .help = "measures all rates anew; writes 64 MiB to each drive"},
};

static const struct hst_option output_table[] = {
    {.name = "save-rates",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(save_rates),
     .argument = "FILE",
     .default_text = "no file",
     .help = "keeps the rates that were planned with, for --rates"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "one JSON object"},
};

static const char *const required[] = {"model", NULL};

static const struct output_kind RATES = {
    .noun = "file of rates", .option = "--save-rates", .begin = "hoistway rates "};

static int parse(struct options *options, int argc, char *const *argv, bool *help,
                 struct hst_error *error)
{
    size_t common_count, engine_count, eval_count;
    const struct hst_option *common = train_options_common(&common_count);
    const struct hst_option *eval = train_eval_options(&eval_count);
    const struct hst_option *engine = hst_engine_options(&engine_count);
    const struct cli_verb verb = {
        .name = "plan",
        .about = "Tells where a model would live within these budgets, how long a step of train "
                 "takes and why.",
        .see = SEE_TABLE,
        .required = required,
        .sets = {{input_table, sizeof input_table / sizeof input_table[0], options},
                 {common, common_count, &options->train},
                 {eval, eval_count, &options->train},
                 {engine, engine_count, &options->train.engine},
                 {output_table, sizeof output_table / sizeof output_table[0], options}},
        .set_count = 5,
        .kin = &train_options_own,
    };
    train_options_init(&options->train);
    int native = cli_parse(&verb, argc, argv, help, error);
    if (native == 0 && *help)
        cli_help(&verb, stdout);
    train_options_complete(&options->train);
    return native;
}

/* ---- the model ---- */

static int unknown_model(const char *name, struct hst_error *error)
{
    char *cache = folder_cache_of(name);
    int native = cli_shape_unknown("--model", name, cache, error);
    free(cache);
    return native;
}

static int describe_model(struct plan *p, struct hst_error *error)
{
    struct train *t = &p->t;
    const struct hst_shape *shape = hst_shape_find(p->model);
    struct llama_config config;
    int native = 0;
    if (shape)
        config = llama_config_of(shape);
    else if (!folder_is_there(p->model))
        return unknown_model(p->model, error);
    else if ((native = hf_model_open(p->model, false, &t->source, error)) == 0)
        config = *hf_model_config(t->source);
    if (native)
        return native;
    if (t->source)
        train_tell_model(t);
    activity_begin("opening the data");
    native = t->options->data ? train_data_open(t, &config) : train_eval_open(t, &config);
    if (!native && !t->options->data)
        native = train_samples_open(t);
    activity_end();
    native = native ? native : train_device_choose(t);
    native = native ? native : llama_create(&config, &t->run, &t->model, error);
    if (native == 0)
        train_tell_micro_batch(t);
    return native;
}

/* ---- rates ---- */

static int read_rates(const char *path, struct hst_rates *rates, struct hst_error *error)
{
    struct input input;
    char *text = NULL;
    int native = input_open_path(path, &input);
    if (native)
        return fail(error, FAIL_VALUE, native,
                    "--rates '%.200s' cannot be read (%s). Fix: name a file that --save-rates "
                    "wrote.",
                    path, input_why(native));
    native = input_read_all(&input, HST_RATES_TEXT_BYTES, &text);
    uint64_t bytes = input.size_bytes;
    input_close(&input);
    if (native == 0)
        native = strlen(text) == bytes ? hst_rates_parse(text, rates) : -EBADMSG;
    free(text);
    if (native)
        return fail(error, FAIL_VALUE, native,
                    "--rates '%.200s' is no file of rates, or damaged (%s). Fix: name a file that "
                    "--save-rates wrote.",
                    path,
                    native == -EFBIG ? "it is too large" : "its text is not as it was written");
    return 0;
}

static int find_rates(struct plan *p, const struct options *o, struct hst_error *error)
{
    struct train *t = &p->t;
    if (o->rates)
        return read_rates(o->rates, &t->rates, error);
    train_rates_find(t, o->probe ? FORECAST_PROBE : FORECAST_KNOWN);
    if (t->rates.note[0])
        cli_warn(CLI_RATES, "%s", t->rates.note);
    return 0;
}

static int save_rates(const struct plan *p, const char *path, struct hst_error *error)
{
    struct hst_rates rates = p->t.rates;
    FILE *file = NULL;
    char *text = malloc(HST_RATES_TEXT_BYTES);
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (rates.figures[r].value <= 0) /* why it is not known is of this machine */
            rates.figures[r].how[0] = '\0';
    int native = text ? 0 : fail(error, FAIL_BUDGET, -ENOMEM, "no memory for the rates");
    int bytes = text ? hst_rates_format(&rates, text, HST_RATES_TEXT_BYTES) : 0;
    native = native ? native : output_open(&RATES, path, &file, error);
    if (native == 0) {
        bool written = bytes > 0 && fwrite(text, (size_t)bytes, 1, file) == 1;
        if (fclose(file) || !written)
            native = output_unwritable(&RATES, path, error);
    }
    free(text);
    return native;
}

/* ---- the plan ---- */

static int check(const struct options *o, struct hst_error *error)
{
    struct store_list list = {.rest = o->rates ? NULL : o->train.engine.store};
    int native = train_options_check(&o->train, error);
    if (!native && o->rates && (o->probe || o->save_rates))
        native = fail(error, FAIL_VALUE, -EINVAL,
                      "--%s is for this machine's rates, --rates gives another's. Fix: leave one "
                      "of them out.",
                      o->probe ? "probe" : "save-rates");
    if (!native)
        native = output_check(&RATES, o->save_rates, error);
    while (!native && store_next(&list))
        native = store_check_local(list.directory, error);
    return native;
}

/* It is no failure that a plan does not fit. */
static int make(struct plan *p, const struct options *o, struct hst_error *error)
{
    struct train *t = &p->t;
    int native = train_engine_plan(t, o->rates ? HST_PLAN_ELSEWHERE : HST_PLAN_HERE);
    p->fits = native == 0;
    if (native && t->result.memory.parameters == 0)
        return native;
    p->precision = train_precision_name(t);
    if (!p->fits) {
        p->refusal = *error;
        *error = (struct hst_error){0};
        return 0;
    }
    native = hst_engine_decision(t->engine, &p->decision);
    native = native ? native : hst_engine_predict(t->engine, &t->rates, &t->result.prediction);
    native = native ? native : hst_engine_start_up(t->engine, &t->rates, &p->start_up);
    return native ? train_engine_failed(t, native, "the prediction") : 0;
}

static int run(const struct options *o, struct plan *p, struct hst_error *error)
{
    int native = check(o, error);
    native = native ? native : describe_model(p, error);
    activity_begin("measuring the machine");
    native = native ? native : find_rates(p, o, error);
    activity_begin("planning");
    native = native ? native : make(p, o, error);
    activity_end();
    return native || !o->save_rates ? native : save_rates(p, o->save_rates, error);
}

int verb_plan(int argc, char **argv)
{
    struct options options = {0};
    struct hst_error error = {0};
    bool help;
    int native = parse(&options, argc, argv, &help, &error);
    if (native || help)
        return native ? cli_fail(&error) : CLI_EXIT_OK;
    struct plan *p = calloc(1, sizeof *p);
    if (!p) {
        fail(&error, FAIL_BUDGET, -ENOMEM, "no memory for a plan");
        return cli_fail(&error);
    }
    p->t.options = &options.train;
    p->t.error = &error;
    p->model = options.train.model;
    native = run(&options, p, &error);
    bool fits = p->fits;
    if (!native)
        (options.json ? plan_print_json : plan_print)(p, stdout);
    hst_engine_destroy(&p->t.engine);
    train_samples_close(&p->t);
    data_close(&p->t.data);
    train_eval_close(&p->t);
    llama_destroy(&p->t.model);
    hf_model_close(&p->t.source);
    free(p);
    return native ? cli_fail(&error) : fits ? CLI_EXIT_OK : CLI_EXIT_NOT_ENOUGH;
}
