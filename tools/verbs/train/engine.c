/* SPDX-License-Identifier: Apache-2.0 */
/* This file decides where a run computes, and makes its engine: described and sealed, to train or
 * to be a plan alone. */
#include "cli/message/message.h"
#include "cli/options/launch.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The engine refuses it too; here the command line has the words of its own options. */
static int check_state(const struct train *t)
{
    const struct hst_config *c = &t->options->engine;
    const enum hst_precision precision = train_precision(t);
    const char *name = precision == HST_PRECISION_FP32 ? "fp32" : "fp16";
    const char *state = hst_state_name(c->state);
    if (!state || c->state <= HST_STATE_FP32 || precision == HST_PRECISION_BF16)
        return 0;
    if (c->precision == HST_PRECISION_DEFAULT)
        return fail(t->error, FAIL_VALUE, -EINVAL,
                    "--state %s goes with --precision bf16, and without --precision a run on the "
                    "host is in %s. Fix: add --precision bf16.",
                    state, name);
    return fail(t->error, FAIL_VALUE, -EINVAL,
                "--state %s goes with --precision bf16, and --precision %s is given. Fix: "
                "--precision bf16, or leave --state out.",
                state, name);
}

/* Whose pairs are as many as those of the rows that the run is to have. */
static uint64_t document_tokens(const struct train *t)
{
    const struct data_packing *p = data_holds_documents(t->data) ? data_packing(t->data) : NULL;
    return p ? llama_document_tokens(p->pair_count,
                                     (double)p->row_count * (double)t->options->seq_len)
             : 0;
}

uint64_t train_micro_batch(const struct train *t, uint64_t batch_tokens)
{
    const struct train_options *o = t->options;
    uint64_t wish = o->engine.micro_batch_tokens;
    if (wish == 0)
        wish = t->device.gpu ? LLAMA_MICRO_BATCH_GPU : LLAMA_MICRO_BATCH_HOST;
    return llama_micro_batch_tokens(wish, o->seq_len, batch_tokens / train_options_ways(o));
}

/* Which of its node's ranks this is; where the launcher does not say, they are of one node. */
static unsigned local_of(const struct train_options *o)
{
    const struct hst_launch *launch = o->engine.launch;
    if (!launch || launch->ranks <= 1)
        return 0;
    return launch->locals ? launch->local : launch->rank;
}

int train_device_choose(struct train *t)
{
    const struct train_options *o = t->options;
    const uint64_t batch = o->engine.batch_tokens;
    const uint32_t ways = train_options_ways(o);
    /* a budget of a GPU's memory is one for a GPU: that there is none is then an error */
    bool gpu = !o->engine.device && o->engine.hbm_bytes;
    /* a planned GPU has a name */
    device_choose(gpu ? "cuda" : o->engine.device, local_of(o), &t->device);
    const struct hst_launch *launch = o->engine.launch;
    if (launch && launch->meets && strcmp(t->device.name, "host") == 0) {
        const int native = launch_needs_mpi(launch, t->device.why, t->error);
        if (native)
            return native;
    }
    if (t->device.warn) {
        cli_warn(CLI_DEVICE,
                 "going on with the CPU: %s. Fix: hoistway doctor says what to do, --device host "
                 "silences this.",
                 t->device.why);
        t->device.why[0] = '\0'; /* told */
    }
    t->run =
        (struct llama_run){.seq_len = o->seq_len,
                           .batch_tokens = batch,
                           .micro_batch_tokens = train_micro_batch(t, batch),
                           .ways = ways,
                           .ranks = train_options_ranks(o),
                           .halves = o->layers == TRAIN_LAYERS_HALVES,
                           .documents = data_holds_documents(t->data),
                           .document_tokens = document_tokens(t),
                           .evaluates_other = t->eval.data && data_holds_documents(t->eval.data) !=
                                                                  data_holds_documents(t->data)};
    return check_state(t);
}

/* The fastest home tiers follow from measurements where a model's load takes longer than the probes
 * do; of others a plan may have left them. */
#define MEASURED_FROM 1000000000u /* parameters */

bool train_is_large(const struct train *t)
{
    return llama_parameter_count(t->model) >= MEASURED_FROM;
}

void train_rates_find(struct train *t, enum forecast_how how)
{
    struct hst_gemm gemms[HST_GEMMS_MAX];
    struct llama_operations operations;
    struct hst_config config = t->options->engine;
    config.store = train_store(t);
    if (t->engine && train_options_ranks(t->options) > 1)
        config.threads = hst_engine_threads(t->engine);
    else if (config.launch) { /* of a plan: all of the node, which its ranks share */
        config.launch = NULL;
        config.threads = 0;
    }
    config.stopped = train_asked_to_stop;
    config.stopped_context = t;
    llama_operations(t->model, train_dtype(t), &operations);
    const struct forecast_in in = {
        .config = &config,
        .device = t->device.name,
        .gpu = t->device.gpu,
        .gemms = gemms,
        .gemm_count = llama_gemms(t->model, train_dtype(t), gemms),
        .operations = operations.list,
        .operation_count = operations.count,
    };
    forecast_find(&in, how, &t->rates);
}

/* It passes on what the engine says it is; where it says nothing, what the errno means here. */
int train_engine_failed(struct train *t, int native, const char *what)
{
    const struct hst_error *told = t->engine ? hst_engine_error(t->engine) : t->error;
    struct hst_dev_failure device = {.why = HST_DEV_OK};
    if (t->error->code)
        return native;
    if (t->engine)
        hst_dev_failure(hst_engine_device(t->engine), &device);
    if (device.why != HST_DEV_OK && !told->code)
        native = hst_engine_device_failed(t->engine, native, what);
    if (told->code) {
        *t->error = *told;
        return native;
    }
    enum fail_code code = native == -EINVAL                        ? FAIL_VALUE
                          : native == -ENOMEM || native == -ENOSPC ? FAIL_BUDGET
                          : native == -EOVERFLOW                   ? FAIL_NONFINITE
                                                                   : FAIL_READ;
    return fail(t->error, code, native, "%s failed: %s.", what, strerror(-native));
}

/* Notes name paths. */
static void log_warnings(void *context, enum hst_log_level level, const char *line)
{
    if (level == HST_LOG_WARNING)
        cli_engine_log(context, level, line);
}

/* It counts each weight of the model's files once, in the type that they have. */
static uint64_t load_bytes(const struct train *t)
{
    enum hst_dtype dtype = train_dtype(t);
    if (t->options->init == TRAIN_INIT_RANDOM)
        return 0;
    if (t->source)
        (void)hf_model_dtype(t->source, &dtype);
    return llama_parameter_count(t->model) * hst_dtype_bytes(dtype);
}

/* Nothing where there is no plan. */
static void take_groups(struct train *t)
{
    (void)hst_engine_frozen(t->engine, &t->result.frozen);
    uint32_t n = 0;
    while (n < HST_GROUPS_MOST && hst_engine_group(t->engine, n, &t->result.groups[n]) == 0)
        n++;
    t->result.group_count = n;
}

static int make_engine(struct train *t, enum hst_plan plan)
{
    const struct train_options *o = t->options;
    struct hst_config config = o->engine;
    config.size = sizeof config;
    config.batch_tokens = t->run.batch_tokens;
    config.micro_batch_tokens = t->run.micro_batch_tokens;
    config.ways = t->run.ways;
    config.device = t->device.name;
    config.log = t->aside ? NULL : o->passing ? log_warnings : cli_engine_log;
    config.log_context = &t->progress;
    config.error = t->error;
    config.accept = train_accepts;
    config.accept_context = t;
    config.progress = train_resumed_bytes;
    config.progress_context = t;
    config.stopped = train_asked_to_stop;
    config.stopped_context = t;
    config.trace = o->trace ? trace_event : NULL;
    config.trace_context = &t->trace;
    config.plan = plan;
    config.rates = &t->rates;
    config.load_bytes = load_bytes(t);
    config.resumes = o->resume;
    int native = hst_engine_create(&config, &t->engine);
    if (native)
        return train_engine_failed(t, native, "starting the engine");
    native = train_ranks_compare(t);
    if (!native && store_has_words(o->engine.store))
        native = train_inputs_check_store(t);
    if (!native && plan == HST_PLAN_TO_TRAIN)
        native = train_ranks_measure(t);
    native = native ? native : llama_add_units(t->model, t->engine);
    if (!native)
        native = hst_engine_seal(t->engine, HST_ORDER_FORWARD);
    if (!native && plan == HST_PLAN_TO_TRAIN)
        native = hst_engine_part(t->engine, &t->part);
    /* of a plan that does not fit, too */
    int told = hst_engine_memory(t->engine, &t->result.memory);
    take_groups(t);
    native = native ? native : told;
    return native ? train_engine_failed(t, native, "planning") : 0;
}

/* Smaller units come first: they cost no time. Each is tried, both at once where neither does. */
static const struct train_way_out ways_out[] = {
    {"--layers halves", true, false},
    {"--comm mpi", false, true},
    {"--layers halves --comm mpi", true, true},
};
enum { WAYS_OUT = sizeof ways_out / sizeof *ways_out };

void train_take_way_out(const struct train_way_out *way, struct train_options *options,
                        struct llama_run *run)
{
    if (way->halves) {
        options->layers = TRAIN_LAYERS_HALVES;
        run->halves = true;
    }
    if (way->by_mpi)
        options->engine.comm = HST_COMM_MPI;
}

/* It makes a plan beside the one that does not fit, which stays what is told. */
static bool would_fit(const struct train *t, enum hst_plan plan, const struct train_way_out *way)
{
    struct hst_error error = {0};
    struct train *other = malloc(sizeof *other);
    struct train_options options = *t->options;
    if (!other)
        return false;
    *other = *t;
    other->options = &options;
    other->engine = NULL;
    other->model = NULL;
    other->error = &error;
    other->aside = true;
    train_take_way_out(way, &options, &other->run);
    int native = llama_create(llama_model_config(t->model), &other->run, &other->model, &error);
    native = native ? native : make_engine(other, plan);
    hst_engine_destroy(&other->engine);
    llama_destroy(&other->model);
    free(other);
    return native == 0;
}

/* Ranks that train do not try it: each would have to, beside what they do together. */
static bool may_try(const struct train *t, enum hst_plan plan)
{
    const bool alone = train_options_ranks(t->options) == 1 || plan != HST_PLAN_TO_TRAIN;
    return alone && !t->aside && t->error->code == HST_E_BUDGET && t->engine;
}

static bool may_be_halved(const struct train *t)
{
    const bool stored = t->options->resume && t->options->layers != TRAIN_LAYERS_DEFAULT;
    return !stored && !t->run.halves;
}

/* What NCCL gathers into and adds up is in HBM, and by MPI in DRAM. */
static bool may_meet_in_dram(const struct train *t)
{
    const struct hst_memory *m = &t->result.memory;
    return m->comm && strcmp(m->comm, "nccl") == 0 &&
           m->total[HST_TIER_HBM] > m->budget[HST_TIER_HBM];
}

/* Puts it first among what helps. */
static void name_way_out(struct hst_error *error, const struct train_way_out *way)
{
    static const char word[] = "Fix: ", or [] = ", or ";
    char *fix = strstr(error->message, word), rest[sizeof error->message];
    if (!fix || strlen(error->message) + strlen(way->options) + strlen(or) >= sizeof error->message)
        return;
    fix += sizeof word - 1;
    snprintf(rest, sizeof rest, "%s", fix);
    snprintf(fix, sizeof error->message - (size_t)(fix - error->message), "%s%s%s", way->options,
             or, rest);
}

static void find_ways_out(struct train *t, enum hst_plan plan)
{
    const enum hst_plan beside = plan == HST_PLAN_TO_TRAIN ? HST_PLAN_HERE : plan;
    const bool halves = may_be_halved(t), by_mpi = may_meet_in_dram(t);
    bool fits[WAYS_OUT] = {false};
    if (!may_try(t, plan))
        return;
    for (int i = 0; i < WAYS_OUT; i++) {
        const struct train_way_out *way = &ways_out[i];
        const bool both = way->halves && way->by_mpi;
        if ((way->halves && !halves) || (way->by_mpi && !by_mpi) || (both && t->way_out))
            continue;
        fits[i] = would_fit(t, beside, way);
        if (fits[i] && !t->way_out)
            t->way_out = way;
    }
    for (int i = WAYS_OUT - 1; i >= 0; i--)
        if (fits[i])
            name_way_out(t->error, &ways_out[i]);
}

int train_engine_plan(struct train *t, enum hst_plan plan)
{
    const int native = make_engine(t, plan);
    t->way_out = NULL;
    if (native == -ENOSPC)
        find_ways_out(t, plan);
    return native;
}

const char *train_precision_name(const struct train *t)
{
    static const char *const names[] = {[HST_PRECISION_FP32] = "fp32",
                                        [HST_PRECISION_BF16] = "bf16",
                                        [HST_PRECISION_FP16] = "fp16"};
    return names[hst_engine_precision(t->engine)];
}
