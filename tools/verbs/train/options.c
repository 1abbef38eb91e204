/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what `hoistway train` may be told, beside the engine's own table, and which values
 * contradict.
 */
#include "cli/options/options.h"
#include "base/text.h"
#include "cli/options/path.h"
#include "cli/options/store.h"
#include "verbs/train/config.h"
#include "verbs/train/eval.h"
#include "verbs/train/train.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LR            1e-5
#define DEFAULT_DECAY_PERCENT 10

static_assert(sizeof(enum data_order) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum train_layers) == sizeof(int), "a choice is stored as an int");

static const char *const orders[] = {"shuffled", "sequential", NULL};
static const char *const inits[] = {"random", NULL};
static const char *const formats[] = {"bytes", "tokens", "jsonl", NULL};
static const char *const packs[] = {"on", "off", NULL};
static const char *const longs[] = {"split", "cut", "drop", "refuse", NULL};
static const char *const layers[] = {"whole", "halves", NULL};
static const char *const token_dtypes[] = {"u16", "u32", NULL};
const char *const export_choices[] = {"model", "fp32", "bf16", "fp16", NULL};

#define FIELD(f) offsetof(struct train_options, f)

static const struct hst_option input_table[] = {
    {.name = "model",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(model),
     .argument = "DIR",
     .help = "Hugging Face directory: config.json and safetensors"},
    {.name = "init",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(init),
     .argument = "HOW",
     .default_text = "from safetensors",
     .choices = inits,
     .first_choice = TRAIN_INIT_RANDOM,
     .help = "random weights: config.json alone is enough"},
};

static const struct hst_option output_table[] = {
    {.name = "resume",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(resume),
     .help = "goes on from the store's last version; --steps is the total"},
    {.name = "allow-config-change",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(allow_config_change),
     .help = "resume with another --lr, schedule, --steps or other data"},
    {.name = "export",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(export_directory),
     .argument = "DIR",
     .default_text = "no export",
     .help = "writes the trained model as a Hugging Face directory"},
    {.name = "export-dtype",
     .group = "output",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(export_dtype),
     .argument = "TYPE",
     .default_text = "model",
     .choices = export_choices,
     .first_choice = EXPORT_MODEL,
     .help = EXPORT_DTYPE_HELP},
    {.name = "log",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(log),
     .argument = "FILE",
     .default_text = "no log",
     .help = "one JSON object per line and step; replaces an earlier log"},
    {.name = "trace",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(trace),
     .argument = "FILE",
     .default_text = "no trace",
     .help = "what each lane did when, for ui.perfetto.dev"},
    {.name = "csv",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(views.csv),
     .argument = "FILE",
     .default_text = "none",
     .help = "the log's steps and evaluations as a table, a row each"},
    {.name = "tfevents",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(views.tfevents),
     .argument = "DIR",
     .default_text = "none",
     .help = "the log's steps for TensorBoard"},
    {.name = "html",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(views.html),
     .argument = "FILE",
     .default_text = "none",
     .help = "a page of the run, with its charts, written when it ends"},
    {.name = "print-options",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(print_options),
     .help = "writes the options as a file for --options, and ends"},
    {.name = "quiet",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(quiet),
     .help = "print warnings and errors only"},
};

static const struct hst_option rank_table[] = {
    {.name = "world",
     .group = "ranks",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(launch.world),
     .argument = "N",
     .default_text = "what the launcher says",
     .help = "number of ranks; with --rank"},
    {.name = "rank",
     .group = "ranks",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(launch.rank),
     .argument = "R",
     .default_text = "what the launcher says",
     .help = "which of them this process is, from 0"},
    {.name = "rendezvous",
     .group = "ranks",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(launch.rendezvous),
     .argument = "PLACE",
     .default_text = "what the launcher says",
     .help = "file:DIR or tcp:HOST:PORT, without MPI"},
};

/* These decide where bytes go and how long a step takes, or stand beside that in a command line:
 * plan takes them too. */
static const struct hst_option common_table[] = {
    {.name = "config",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(config),
     .argument = "FILE",
     .default_text = "none",
     .help = "a DeepSpeed configuration; the command line wins over it"},
    {.name = "explain-config",
     .group = "input",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(explain_config),
     .help = "tells what becomes of each key of --config, and ends"},
    {.name = "options",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(options_path),
     .argument = "FILE",
     .default_text = "none",
     .help = "these options by name, as JSON; the command line wins over it"},
    {.name = "data",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(data),
     .argument = "FILE[,FILE]",
     .help = "what to train on: .safetensors, .jsonl, .bin are tokens"},
    {.name = "data-format",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(data_format),
     .argument = "FORMAT",
     .default_text = "by the name",
     .choices = formats,
     .first_choice = DATA_FORMAT_BYTES,
     .help = "of --data"},
    {.name = "token-dtype",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(token_dtype),
     .argument = "TYPE",
     .default_text = "by the file's header",
     .choices = token_dtypes,
     .first_choice = TOKEN_U16,
     .help = "of token files without a header"},
    {.name = "allow-other-tokenizer",
     .group = "input",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(allow_other_tokenizer),
     .help = "token files of another tokenizer than the model's, too"},
    {.name = "pack",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(pack),
     .argument = "on|off",
     .default_text = "on",
     .choices = packs,
     .first_choice = DATA_PACK_ON,
     .help = "documents side by side in a row; off: one a row"},
    {.name = "long",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(longer),
     .argument = "HOW",
     .default_text = "split; of data with a mask: refuse",
     .choices = longs,
     .first_choice = PACK_LONG_SPLIT,
     .help = "documents longer than --seq-len"},
    {.name = "steps",
     .group = "training",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(steps),
     .argument = "N",
     .least = 1,
     .greatest = TRAIN_MOST_STEPS,
     .help = "optimizer steps"},
    {.name = "epochs",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(epochs),
     .argument = "X",
     .least = 1e-9,
     .greatest = 1e6,
     .help = "passes over the data, in whole steps"},
    {.name = "seq-len",
     .group = "training",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(seq_len),
     .argument = "N",
     .default_text = "1024, less where the data or the batch has less",
     .least = 1,
     .greatest = 0x1p31,
     .help = "tokens of a sequence"},
    {.name = "lr",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(lr),
     .argument = "X",
     .default_text = "1e-5",
     .least = 0,
     .greatest = 1,
     .help = "learning rate, the greatest of the schedule"},
    {.name = "schedule",
     .group = "training",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(schedule),
     .argument = "SHAPE",
     .default_text = "constant",
     .choices = SCHEDULE_NAMES,
     .first_choice = SCHEDULE_CONSTANT,
     .help = "rate after the warmup; wsd: stays, then falls in --decay"},
    {.name = "lr-end",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(lr_end),
     .argument = "X",
     .default_text = "0",
     .least = 0,
     .greatest = 1,
     .help = "fraction of --lr that the schedule goes to, behind the last step"},
    {.name = "warmup",
     .group = "training",
     .type = HST_OPTION_SHARE,
     .offset = FIELD(warmup),
     .argument = "N|X%",
     .default_text = "0",
     .least = 0,
     .greatest = TRAIN_MOST_STEPS,
     .help = "steps in which the learning rate rises from 0 to --lr"},
    {.name = "decay",
     .group = "training",
     .type = HST_OPTION_SHARE,
     .offset = FIELD(decay),
     .argument = "N|X%",
     .default_text = "10%",
     .least = 1,
     .greatest = TRAIN_MOST_STEPS,
     .help = "last steps of --schedule wsd, in which the rate falls"},
    {.name = "seed",
     .group = "training",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(seed),
     .argument = "N",
     .default_text = "0",
     .least = 0,
     .greatest = 0x1p52,
     .help = "of the order of the data and of --init random"},
    {.name = "order",
     .group = "training",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(order),
     .argument = "ORDER",
     .default_text = "shuffled",
     .choices = orders,
     .first_choice = DATA_SHUFFLED,
     .help = "of the sequences in each pass over the data"},
    {.name = "device",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(engine.device),
     .argument = "DEVICE",
     .default_text = "a GPU, if any",
     .help = "where to compute: host, cuda or cuda:INDEX"},
    {.name = "layers",
     .group = "placement",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(layers),
     .argument = "whole|halves",
     .default_text = "whole, or as stored",
     .choices = layers,
     .first_choice = TRAIN_LAYERS_WHOLE,
     .help = "halves: attention and MLP apart, to fit"},
};

const struct cli_verb train_options_own = {
    .name = "train",
    .sets = {{input_table, sizeof input_table / sizeof input_table[0], NULL},
             {output_table, sizeof output_table / sizeof output_table[0], NULL},
             {rank_table, sizeof rank_table / sizeof rank_table[0], NULL}},
    .set_count = 3,
};

const struct hst_option *train_options_common(size_t *count)
{
    *count = sizeof common_table / sizeof common_table[0];
    return common_table;
}

static const char *const required[] = {"model", "data", "store", "steps|epochs", NULL};

void train_options_init(struct train_options *options)
{
    *options = (struct train_options){
        .engine = {.size = sizeof options->engine},
        .schedule = SCHEDULE_CONSTANT,
        .lr = DEFAULT_LR,
    };
}

size_t train_options_sets(struct train_options *options, struct cli_set sets[CLI_MAX_SETS])
{
    size_t common_count, engine_count, eval_count;
    const struct hst_option *common = train_options_common(&common_count);
    const struct hst_option *eval = train_eval_options(&eval_count);
    const struct hst_option *engine = hst_engine_options(&engine_count);
    const struct cli_set all[] = {
        {input_table, sizeof input_table / sizeof input_table[0], options},
        {common, common_count, options},
        {eval, eval_count, options},
        {engine, engine_count, &options->engine},
        {rank_table, sizeof rank_table / sizeof rank_table[0], options},
        {output_table, sizeof output_table / sizeof output_table[0], options}};
    static_assert(sizeof all / sizeof all[0] <= CLI_MAX_SETS, "a verb has room for them");
    memcpy(sets, all, sizeof all);
    return sizeof all / sizeof all[0];
}

int train_options_parse(struct train_options *options, int argc, char *const *argv, bool *help,
                        struct hst_error *error)
{
    struct cli_verb verb = {
        .name = "train",
        .about = "Fine-tunes a model whose weights and optimizer states need not fit in memory.",
        .see = SEE_TABLE,
        .required = required,
        .more = train_config_more,
        .more_context = options,
    };
    verb.set_count = train_options_sets(options, verb.sets);
    int native = cli_parse(&verb, argc, argv, help, error);
    if (native == 0 && *help)
        cli_help(&verb, stdout);
    *help = *help || options->explain_config || options->print_options;
    train_options_complete(options);
    return native;
}

/* It holds one thing alone, and names what must not be in it. */
struct holder {
    const char *option, *path, *what;
};

static int check_outside(const struct holder *holder, const char *option, const char *path,
                         struct hst_error *error)
{
    if (!path || !holder->path || !path_is_in(path, holder->path))
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "%s '%.150s' is in %s '%.150s', which holds %s alone. Fix: another path for %s.",
                option, path, holder->option, holder->path, holder->what, option);
}

/* A run writes these beside model and store; those from VIEWS_BEGIN on are made of the log. */
enum { VIEWS_BEGIN = 2, OUTPUTS = 5 };
struct output {
    const char *option, *path;
};

static int check_all_outside(const struct holder *holder, const struct output outputs[],
                             struct hst_error *error)
{
    int native = 0;
    for (size_t i = 0; i < OUTPUTS && !native; i++)
        native = check_outside(holder, outputs[i].option, outputs[i].path, error);
    return native;
}

/*
 * An export takes the place of a whole directory: what else is put there stops it at the end. A
 * store's directory that holds anything else is no store's to a run that begins.
 */
static int check_outputs_apart(const struct train_options *o, const struct output outputs[],
                               struct hst_error *error)
{
    const struct holder export = {"--export", o->export_directory, "the model"};
    int native = check_all_outside(&export, outputs, error);
    for (struct store_list list = {.rest = o->engine.store}; !native && store_next(&list);) {
        const struct holder store = {"--store", list.directory, "its own files"};
        native = check_outside(&export, "--store", list.directory, error);
        native = native ? native : check_outside(&store, "--export", o->export_directory, error);
        native = native ? native : check_all_outside(&store, outputs, error);
    }
    return native;
}

int train_options_check_outputs(const struct train_options *o, struct hst_error *error)
{
    const struct output outputs[OUTPUTS] = {{"--log", o->log},
                                            {"--trace", o->trace},
                                            {"--csv", o->views.csv},
                                            {"--html", o->views.html},
                                            {"--tfevents", o->views.tfevents}};
    for (size_t i = 0; i < OUTPUTS; i++)
        for (size_t j = i + 1; j < OUTPUTS; j++)
            if (outputs[i].path && outputs[j].path &&
                path_is_in(outputs[i].path, outputs[j].path) &&
                path_is_in(outputs[j].path, outputs[i].path))
                return fail(error, FAIL_VALUE, -EINVAL,
                            "%s and %s are one file, '%.200s'. Fix: two files.", outputs[i].option,
                            outputs[j].option, outputs[i].path);
    if (o->resume && !o->log)
        for (size_t i = VIEWS_BEGIN; i < OUTPUTS; i++)
            if (outputs[i].path)
                return fail(error, FAIL_VALUE, -EINVAL,
                            "%s with --resume needs the log, which holds the steps before: "
                            "without it they would be lost. Fix: --log FILE.",
                            outputs[i].option);
    return check_outputs_apart(o, outputs, error);
}

/* ---- length and learning rates ---- */

/* Values that one shape takes and the others would ignore. */
static int check_shape(const struct train_options *o, struct hst_error *error)
{
    const char *name = SCHEDULE_NAMES[o->schedule - SCHEDULE_CONSTANT];
    if (o->lr == 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--lr 0 makes the learning rate of every step 0, and nothing would be trained. "
                    "Fix: --lr %g.",
                    DEFAULT_LR);
    const bool ends = o->lr_end > 0, decays = o->decay.count > 0 || o->decay.percent > 0;
    if (o->from_file && o->from_file->options.scheduler.kind != PEER_NONE && (ends || decays))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s has a scheduler of its own, and --%s is a part of another one. Fix: "
                    "--schedule %s, which then counts in place of it, or leave --%s out.",
                    o->from_file->config.name, ends ? "lr-end" : "decay", ends ? "cosine" : "wsd",
                    ends ? "lr-end" : "decay");
    if (o->schedule == SCHEDULE_CONSTANT && ends)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--lr-end %g is where a schedule ends, and --schedule constant stays at --lr. "
                    "Fix: --schedule cosine, or leave --lr-end out.",
                    o->lr_end);
    if (o->schedule != SCHEDULE_WSD && decays)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--decay is a part of --schedule wsd, and the schedule is %s. Fix: --schedule "
                    "wsd, or leave --decay out.",
                    name);
    return 0;
}

int train_options_schedule(const struct train_options *o, struct schedule *schedule,
                           struct hst_error *error)
{
    static const struct hst_share tenth = {.percent = DEFAULT_DECAY_PERCENT};
    const bool given = o->decay.count > 0 || o->decay.percent > 0;
    const uint64_t warmup = schedule_share(o->warmup, o->steps);
    const uint64_t decay = schedule_share(given ? o->decay : tenth, o->steps);
    const uint64_t rise = warmup > 0 ? warmup - 1 : 0; /* steps below the peak */
    if (warmup > o->steps)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--warmup %" PRIu64 " is longer than the run of %" PRIu64
                    " step%s. Fix: --warmup %" PRIu64 " or less.",
                    warmup, o->steps, text_s(o->steps), o->steps);
    if (o->schedule == SCHEDULE_WSD && rise + decay > o->steps)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "a warmup of %" PRIu64 " and a decay of %" PRIu64
                    " step%s have no room in a run of %" PRIu64 ". Fix: --decay %" PRIu64
                    " or less.",
                    warmup, decay, text_s(decay), o->steps, o->steps - rise);
    *schedule = (struct schedule){
        .shape = o->schedule,
        .lr = o->lr,
        .lr_end = o->lr_end,
        .warmup_steps = warmup,
        .decay_steps = decay,
        .steps = o->steps,
    };
    return 0;
}

/* It checks what can be known of them before the data is. */
static int check_length(const struct train_options *o, struct hst_error *error)
{
    struct schedule schedule;
    int native = o->default_seq_len && o->data ? 0 : train_options_check_batch(o, error);
    if (!native && o->steps > 0 && o->epochs > 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--steps %" PRIu64 " and --epochs %g both say how long the run is. Fix: leave "
                    "one of them out.",
                    o->steps, o->epochs);
    native = native ? native : check_shape(o, error);
    return native || o->steps == 0 ? native : train_options_schedule(o, &schedule, error);
}

/* Other names may be those of plugins. */
static int check_device(const struct train_options *o, struct hst_error *error)
{
    static const char *const devices[] = {"host", "cuda"};
    const char *name = o->engine.device;
    const char *meant = name ? cli_synonym(name, devices, 2) : NULL;
    if (!meant)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "--device '%.60s' is none of host, cuda and cuda:INDEX. Fix: --device %s.", name,
                meant);
}

int train_options_check(const struct train_options *options, struct hst_error *error)
{
    int native = check_length(options, error);
    native = native ? native : check_device(options, error);
    native = native ? native : train_options_check_ranks(options, error);
    native = native ? native : train_eval_check_options(options, error);
    if (native)
        return native;
    if (options->allow_config_change && !options->resume)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--allow-config-change says what a run may go on with, and --resume is not "
                    "given. Fix: --resume, or leave it out.");
    return train_options_check_outputs(options, error);
}
