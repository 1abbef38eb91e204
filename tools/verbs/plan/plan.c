/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway plan. What train would do with the same options, up to where it would allocate: the same
 * engine, sealed to be a plan alone, its graph simulated on the machine's rates. Nothing is made,
 * and no drive is touched, unless --probe or --save-rates asks for it.
 */
#include "verbs/plan/plan.h"
#include "base/text.h"
#include "cli/forecast.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/message/voice.h"
#include "cli/options/shape.h"
#include "cli/options/store.h"
#include "hf/folder.h"
#include "verbs/plan/accounting.h"
#include "verbs/plan/asked.h"
#include "verbs/plan/elsewhere.h"
#include "verbs/plan/page.h"
#include "verbs/plan/paper.h"
#include "verbs/rates_file.h"
#include "verbs/train/config.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    struct llama_config *config = &p->config;
    int native = 0;
    if (shape)
        *config = llama_config_of(shape);
    else if (!folder_is_there(p->model))
        return unknown_model(p->model, error);
    else if ((native = hf_model_open(p->model, false, &t->source, error)) == 0)
        *config = *hf_model_config(t->source);
    if (native)
        return native;
    if (t->source)
        train_tell_model(t);
    activity_begin("opening the data");
    native = t->options->data ? train_data_open(t, config) : train_eval_open(t, config);
    if (!native && !t->options->data)
        native = train_samples_open(t);
    activity_end();
    native = native ? native : train_device_choose(t);
    native = native ? native : llama_create(config, &t->run, &t->model, error);
    if (native == 0)
        train_tell_micro_batch(t);
    return native;
}

/* ---- rates ---- */

static void put_figure(struct hst_rates *rates, enum hst_rate rate, double value)
{
    if (value <= 0)
        return;
    rates->figures[rate] = (struct hst_figure){value, value, value, 1, "as it was given"};
    rates->figure_ms[rate] = 0;
}

/* How many ranks share a node decides what each has of it: rates of other ones are said. */
static void warn_of_net_rates(const struct hst_rates *rates, const struct hst_launch *launch,
                              const char *path)
{
    unsigned ranks, nodes;
    const bool told = rates_file_measured_by(rates, &ranks, &nodes);
    const unsigned locals = launch->locals ? launch->locals : launch->ranks;
    if (told && (ranks + nodes - 1) / nodes != locals)
        cli_warn(CLI_VALUE,
                 "--net-rates '%.150s' was measured by %u rank%s on %u node%s, and is taken for %u "
                 "on each: what a rank has of its node may be another share. Fix: mpirun -n %u … "
                 "hoistway bench comm --save-rates FILE.",
                 path, ranks, text_s(ranks), nodes, text_s(nodes), locals, launch->ranks);
}

/* --net-latency is all of an operation beside its bytes, with whatever messages it has. */
static void put_latency(struct hst_rates *rates, double microseconds)
{
    if (microseconds <= 0)
        return;
    put_figure(rates, HST_RATE_NET_OPERATIONS, 1e6 / microseconds);
    put_figure(rates, HST_RATE_NET_OPERATIONS_BETWEEN, 1e6 / microseconds);
    for (int r = HST_RATE_NET_MESSAGES; r <= HST_RATE_NET_MESSAGES_BETWEEN; r++) {
        rates->figures[r] = (struct hst_figure){.value = 0};
        rates->figure_ms[r] = 0;
    }
}

/* It takes those of a file, then those that were given; what is not known says how to get it. */
static int find_net_rates(struct plan *p, const struct plan_options *o, struct hst_error *error)
{
    struct hst_rates *rates = &p->t.rates, file;
    int native = o->net_rates ? rates_file_read("--net-rates", o->net_rates, &file, error) : 0;
    if (native || !o->train.engine.launch)
        return native;
    if (o->net_rates)
        warn_of_net_rates(&file, o->train.engine.launch, o->net_rates);
    for (int r = HST_RATE_NET_GATHER; o->net_rates && r < HST_RATE_COUNT; r++) {
        rates->figures[r] = file.figures[r];
        rates->figure_ms[r] = file.figure_ms[r];
    }
    put_figure(rates, HST_RATE_NET_GATHER, (double)o->net_node);
    put_figure(rates, HST_RATE_NET_EXCHANGE, (double)o->net_node);
    put_figure(rates, HST_RATE_NET_BETWEEN, (double)o->net_between);
    put_latency(rates, o->net_latency);
    for (int r = HST_RATE_NET_GATHER; r <= HST_RATE_NET_OPERATIONS_BETWEEN; r++)
        if (rates->figures[r].value <= 0)
            snprintf(rates->figures[r].how, sizeof rates->figures[r].how,
                     "%s is in no file. Fix: --net-rates FILE (mpirun … bench comm --save-rates "
                     "FILE), or --net-node, --net-between, --net-latency",
                     hst_rate_name((enum hst_rate)r));
    return 0;
}

static int find_rates(struct plan *p, const struct plan_options *o, struct hst_error *error)
{
    struct train *t = &p->t;
    if (o->elsewhere) {
        const int native = o->rates ? rates_file_read("--rates", o->rates, &t->rates, error) : 0;
        plan_merge_rates(&o->machine_is, &t->rates);
        if (!native)
            forecast_tell_disturbed(&t->rates, o->rates);
        return native;
    }
    train_rates_find(t, o->probe ? FORECAST_PROBE : FORECAST_KNOWN);
    if (t->rates.note[0])
        cli_warn(CLI_RATES, "%s", t->rates.note);
    forecast_tell_disturbed(&t->rates, NULL);
    return 0;
}

/* ---- the plan ---- */

static int check(const struct plan_options *o, struct hst_error *error)
{
    struct store_list list = {.rest = o->elsewhere ? NULL : o->train.engine.store};
    int native = train_options_check(&o->train, error);
    if (!native && o->rates && (o->probe || o->save_rates))
        native = fail(error, FAIL_VALUE, -EINVAL,
                      "--%s is for this machine's rates, --rates gives another's. Fix: leave one "
                      "of them out.",
                      o->probe ? "probe" : "save-rates");
    if (!native && o->accounting != PLAN_ACCOUNTING_OURS &&
        (o->train.engine.freeze[0] || o->train.engine.train_only[0]))
        native = fail(error, FAIL_VALUE, -EINVAL,
                      "--accounting paper counts models of which all trains. Fix: leave it, or "
                      "--freeze and --train-only, out.");
    if (!native)
        native = rates_file_check(o->save_rates, error);
    if (!native && o->html && o->save_rates && strcmp(o->html, o->save_rates) == 0)
        native =
            fail(error, FAIL_VALUE, -EINVAL,
                 "--html and --save-rates name one file, '%.200s'. Fix: two of them.", o->html);
    native = native ? native : plan_page_check(o->html, error);
    while (!native && store_next(&list))
        native = store_check_local(list.directory, error);
    return native;
}

/* It is no failure that a plan does not fit. */
static int make(struct plan *p, const struct plan_options *o, struct hst_error *error)
{
    struct train *t = &p->t;
    int native = train_engine_plan(t, o->elsewhere ? HST_PLAN_ELSEWHERE : HST_PLAN_HERE);
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

static void end_instead(struct plan *p)
{
    struct plan *q = p->instead;
    if (!q)
        return;
    hst_engine_destroy(&q->t.engine);
    llama_destroy(&q->t.model);
    free(q);
    p->instead = NULL;
}

/* Where options make it fit, the answer is of them, too. */
static int make_instead(struct plan *p, const struct plan_options *o, struct hst_error *error)
{
    const struct train_way_out *way = p->t.way_out;
    if (p->fits || !way)
        return 0;
    struct plan *q = malloc(sizeof *q);
    if (!q)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory for a plan");
    *q = *p;
    q->own = *p->t.options;
    q->t.options = &q->own;
    q->t.engine = NULL;
    q->t.model = NULL;
    q->t.aside = true;
    q->refusal = (struct hst_error){0};
    train_take_way_out(way, &q->own, &q->t.run);
    p->instead = q;
    int native = llama_create(&q->config, &q->t.run, &q->t.model, error);
    native = native ? native : make(q, o, error);
    native = native ? native : plan_find_help(q, error);
    if (!native && !q->fits)
        end_instead(p);
    return native;
}

static int run(const struct plan_options *o, struct plan *p, struct hst_error *error)
{
    int native = check(o, error);
    native = native ? native : describe_model(p, error);
    activity_begin("measuring the machine");
    native = native ? native : find_rates(p, o, error);
    native = native ? native : find_net_rates(p, o, error);
    activity_begin("planning");
    native = native ? native : make(p, o, error);
    native = native ? native : plan_find_help(p, error);
    native = native ? native : make_instead(p, o, error);
    activity_end();
    if (!native && o->save_rates)
        native = rates_file_write(o->save_rates, &p->t.rates, error);
    return native ? native : plan_page_write(p, o->html, error);
}

/* ---- one plan, or two ---- */

struct job {
    struct plan_options options;
    struct hst_error error;
    struct plan *plan; /* null: nothing was planned, there was something else to tell */
    char store[STORE_TEXT_BYTES];
};

static int plan_job(struct job *job, int argc, char *const *argv)
{
    struct plan_options *o = &job->options;
    struct plan *p = calloc(1, sizeof *p);
    const char *store_names = o->train.engine.store;
    int native = store_alone(&o->train.engine.store, job->store, &job->error);
    if (!native && !p)
        native = fail(&job->error, FAIL_BUDGET, -ENOMEM, "no memory for a plan");
    if (native || !p) {
        free(p);
        return native;
    }
    train_config_tell(&o->train);
    p->t.options = &o->train;
    p->t.error = &job->error;
    p->model = o->train.model;
    p->machine = &o->machine_is;
    p->store_names = store_names;
    p->arguments = argv;
    p->argument_count = argc;
    p->tokens = o->tokens;
    p->tbw = o->tbw;
    p->accounting = o->accounting;
    p->locals = o->launch.locals ? o->launch.locals : 1;
    job->plan = p;
    return run(o, p, &job->error);
}

static void end_job(struct job *job)
{
    struct plan *p = job->plan;
    if (p) {
        end_instead(p);
        hst_engine_destroy(&p->t.engine);
        train_samples_close(&p->t);
        data_close(&p->t.data);
        train_eval_close(&p->t);
        llama_destroy(&p->t.model);
        hf_model_close(&p->t.source);
        free(p);
    }
    train_config_close(&job->options.train);
    free(job);
}

static struct job *begin_job(void)
{
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        cli_fail(&(struct hst_error){.code = FAIL_BUDGET, .message = "no memory for a plan"});
    return job;
}

/* The command line with --options FILE in place of --compare. Returns how many words it has. */
static int options_of(int argc, char *const *argv, char *file, char **own)
{
    static char option[] = "--options";
    int count = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--compare") == 0)
            i++;
        else if (strncmp(argv[i], "--compare=", strlen("--compare=")) != 0)
            own[count++] = argv[i];
    }
    own[count++] = option;
    own[count++] = file;
    return count;
}

static int check_compare(const struct plan_options *o, struct hst_error *error)
{
    const char *comma = strchr(o->compare, ',');
    if (!comma || comma == o->compare || !comma[1] || strchr(comma + 1, ','))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--compare '%.200s' names not two files. Fix: --compare A.json,B.json, each as "
                    "for --options.",
                    o->compare);
    if (o->train.options_path || o->html || o->save_rates || o->probe || o->paper ||
        o->accounting != PLAN_ACCOUNTING_OURS)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--compare plans twice and writes nothing. Fix: leave --options, --html, "
                    "--save-rates, --probe, --paper and --accounting out.");
    return 0;
}

/* An error says which of two files it is of. The fix stays whole. */
static void name_file(struct hst_error *error, const char *file)
{
    const struct hst_error told = *error;
    const char *fix = strstr(told.message, " Fix: ");
    if (strstr(told.message, file))
        return;
    fail(error, (enum fail_code)told.code, told.native, "%.150s: %.*s", file,
         fix ? (int)(fix - told.message) : (int)sizeof told.message, told.message);
    if (fix)
        fail_fix(error, fix + strlen(" Fix: "));
}

/* Plans one of both. Returns its job, or null where that has failed, which is told. */
static struct job *plan_with(const struct plan_options *both, int argc, char *const *argv,
                             char *file, int *status)
{
    struct job *job = begin_job();
    char **own = calloc((size_t)argc + 3, sizeof *own);
    bool help = false;
    int native = job && own ? 0 : -ENOMEM;
    int count = native ? 0 : options_of(argc, argv, file, own);
    voice_about(file);
    if (!native) {
        struct plan_asked asked = {&job->options, NULL, file, both->json};
        native = plan_parse(&asked, count, own, &help, &job->error);
    }
    native = native ? native : plan_job(job, count, own);
    voice_about(NULL);
    free(own);
    if (native && job) {
        name_file(&job->error, file);
        *status = cli_fail(&job->error);
        end_job(job);
        return NULL;
    }
    return job;
}

static int compare(const struct plan_options *o, int argc, char *const *argv)
{
    char first[4096], second[4096];
    const char *comma = strchr(o->compare, ',');
    snprintf(first, sizeof first, "%.*s", (int)(comma - o->compare), o->compare);
    snprintf(second, sizeof second, "%s", comma + 1);
    int status = CLI_EXIT_USAGE;
    struct job *a = plan_with(o, argc, argv, first, &status);
    struct job *b = a ? plan_with(o, argc, argv, second, &status) : NULL;
    if (b) {
        const char *const names[] = {first, second};
        const struct plan *const plans[] = {a->plan, b->plan};
        if (o->json)
            for (int i = 0; i < 2; i++)
                plan_print_json(plans[i], stdout);
        else
            plan_print_both(names, plans, stdout);
        status = a->plan->fits && b->plan->fits ? CLI_EXIT_OK : CLI_EXIT_NOT_ENOUGH;
        end_job(b);
    }
    if (a)
        end_job(a);
    return status;
}

int verb_plan(int argc, char **argv)
{
    bool help = false;
    struct job *job = begin_job();
    if (!job)
        return CLI_EXIT_USAGE;
    struct plan_options *o = &job->options;
    struct plan_asked asked = {.options = o};
    int native = plan_parse(&asked, argc, argv, &help, &job->error), status = CLI_EXIT_OK;
    if (!native && !help && o->compare) {
        native = check_compare(o, &job->error);
        status = native ? status : compare(o, argc, argv);
    } else if (!native && !help && o->paper) {
        native = plan_paper_print(o->paper, o->json, stdout, &job->error);
    } else if (!native && !help) {
        native = plan_job(job, argc, argv);
        status = !native && !job->plan->fits ? CLI_EXIT_NOT_ENOUGH : CLI_EXIT_OK;
        if (!native)
            (o->json ? plan_print_json : plan_print)(job->plan, stdout);
    }
    status = native ? cli_fail(&job->error) : status;
    end_job(job);
    return status;
}
