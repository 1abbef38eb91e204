/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway ckpt export and reshard: a version as a model directory, or as a store of more or fewer
 * ranks. */
#include "verbs/train/export.h"
#include "base/text.h"
#include "cli/message/message.h"
#include "cli/message/voice.h"
#include "cli/options/path.h"
#include "cli/options/store.h"
#include "verbs/ckpt/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct options {
    struct cli_operands operands; /* the store's directories */
    const char *model, *out;
    enum export_choice export_dtype;
    uint64_t step; /* HST_NO_VERSION: the last version */
    uint32_t world;
    bool quiet;
    char asked[128];
};

static const struct hst_option export_table[] = {
    {.name = "model",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct options, model),
     .argument = "DIR",
     .help = "Hugging Face directory that the run had: config.json, tokenizer"},
    {.name = "version",
     .group = "input",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct options, step),
     .argument = "STEP",
     .default_text = "the last one",
     .least = 0,
     .greatest = 1e12,
     .help = "the version of this step: a kept one, or the last"},
    {.name = "export",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct options, out),
     .argument = "DIR",
     .help = "where the model is written to; replaces an earlier export"},
    {.name = "export-dtype",
     .group = "output",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct options, export_dtype),
     .argument = "TYPE",
     .default_text = "model",
     .choices = export_choices,
     .first_choice = EXPORT_MODEL,
     .help = EXPORT_DTYPE_HELP},
    {.name = "quiet",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct options, quiet),
     .help = "no progress"},
};

static const struct hst_option reshard_table[] = {
    {.name = "world",
     .group = "output",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct options, world),
     .argument = "N",
     .least = 1,
     .greatest = 4096,
     .help = "ranks of the new store"},
    {.name = "version",
     .group = "input",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct options, step),
     .argument = "STEP",
     .default_text = "the last one",
     .least = 0,
     .greatest = 1e12,
     .help = "the version of this step: a kept one, or the last"},
    {.name = "out",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct options, out),
     .argument = "DIR[,DIR]",
     .help = "the new store's directories, empty or to be made"},
    {.name = "quiet",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct options, quiet),
     .help = "no progress"},
};

static const char *const export_required[] = {"model", "export", NULL};
static const char *const reshard_required[] = {"world", "out", NULL};

struct saving {
    struct hst_ckpt *ckpt;
    const struct hst_ckpt_watch *watch;
};

static int save(void *from, bool masters, const struct hst_writer *writer, struct hst_error *error)
{
    const struct saving *s = from;
    return masters ? hst_ckpt_save_masters(s->ckpt, writer, s->watch, error)
                   : hst_ckpt_save(s->ckpt, writer, s->watch, error);
}

static enum hst_dtype dtype_of(enum hst_precision precision)
{
    return precision == HST_PRECISION_FP32   ? HST_F32
           : precision == HST_PRECISION_BF16 ? HST_BF16
                                             : HST_F16;
}

/* It is given back when it is over, or the launcher ends this one. */
static int write_export(struct train_export *x, struct saving *saving, struct hst_error *error)
{
    const struct hst_writer none = {.write = NULL}; /* rank 0 writes what all of them read */
    if (voice_is_other())
        return save(saving, x->dtype != x->working, &none, error);
    int native = train_export_check(x, error);
    native = native ? native : train_export_begin(x, error);
    return native ? native : train_export_write(x, save, saving, error);
}

static int export(const struct options *o, struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct hst_ckpt_info info;
    struct ckpt_model model;
    struct ckpt_progress progress;
    hst_ckpt_info(ckpt, &info);
    int native = ckpt_model_open(o->model, ckpt, &model, error);
    const enum hst_dtype working = dtype_of(info.precision);
    struct train_export x = {
        .directory = o->out,
        .source = model.source,
        .model = model.llama,
        .working = working,
        .dtype = native ? working : export_dtype(o->export_dtype, model.source, working),
        .progress = &progress.progress,
    };
    ckpt_progress_begin(&progress, "reserving room for the export", o->quiet);
    const struct hst_ckpt_watch watch = {.progress = ckpt_progress_stopped, .context = &progress};
    struct saving saving = {ckpt, &watch};
    native = native ? native : write_export(&x, &saving, error);
    progress_end(&progress.progress);
    if (native == 0)
        train_export_warn(&x);
    if (native == 0 && !o->quiet) {
        printf("exported the weights of step %" PRIu64 " to %s\n", info.step, o->out);
        train_export_tell_rounded(&x);
    }
    hst_ckpt_close(&ckpt); /* it names the model's engine */
    ckpt_model_close(&model);
    return native;
}

static int reshard(const struct options *o, struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct hst_ckpt_info info;
    struct ckpt_progress progress;
    hst_ckpt_info(ckpt, &info);
    ckpt_progress_begin(&progress, "resharding", o->quiet);
    const struct hst_ckpt_watch watch = {.progress = ckpt_progress_show, .context = &progress};
    int native = 0;
    for (struct store_list list = {.rest = o->out}; native == 0 && store_next(&list);)
        native = store_check_local(list.directory, error);
    native = native ? native : hst_ckpt_reshard(ckpt, o->out, o->world, &watch, error);
    progress_end(&progress.progress);
    if (native == 0 && !o->quiet)
        printf("step %" PRIu64 " of %" PRIu32 " rank%s is in %s for %" PRIu32 "\n", info.step,
               info.world, text_s(info.world), o->out, o->world);
    hst_ckpt_close(&ckpt);
    return native;
}

/* All ranks must have been asked for this alike; their directories may be each one's own. */
static const char *asked(struct options *o, const char *name)
{
    snprintf(o->asked, sizeof o->asked, "%s --version %" PRIu64 " --world %" PRIu32 " --type %d",
             name, o->step, o->world, (int)o->export_dtype);
    return o->asked;
}

/* They would be in the way of a run that begins there, and of one that lists what is kept. */
static int check_outside(const char *store, const char *out, struct hst_error *error)
{
    for (struct store_list outs = {.rest = out}; store_next(&outs);)
        for (struct store_list list = {.rest = store}; store_next(&list);)
            if (path_is_in(outs.directory, list.directory))
                return fail(error, FAIL_VALUE, -EINVAL,
                            "'%.150s' is in the store '%.150s', which holds its own files alone. "
                            "Fix: another path.",
                            outs.directory, list.directory);
    return 0;
}

/* `work` closes the handle. */
static int work_with(struct options *options, const char *name,
                     int (*work)(const struct options *, struct hst_ckpt *, struct hst_error *))
{
    struct hst_error error = {0};
    struct hst_ckpt *ckpt = NULL;
    struct ckpt_source source = {.ranks = NULL};
    int native = ckpt_source_open(&source, &options->operands, asked(options, name), &error);
    native = native ? native : check_outside(source.store, options->out, &error);
    if (native == 0)
        native = ckpt_source_step(&source, options->step, &ckpt, &error);
    native = native ? native : work(options, ckpt, &error);
    const bool goes_on = ckpt_source_goes_on(&source, native, &error);
    const int code = native ? ckpt_source_fail(&source, goes_on, &error) : CLI_EXIT_OK;
    return ckpt_source_close(&source, goes_on, code);
}

static int run(struct cli_verb *verb, int argc, char **argv, struct options *options,
               int (*work)(const struct options *, struct hst_ckpt *, struct hst_error *))
{
    struct hst_error error = {0};
    bool help;
    options->step = HST_NO_VERSION;
    options->operands.argument = "STORE...";
    verb->operands = &options->operands;
    verb->set_count = 1;
    verb->sets[0].target = options;
    const int native = cli_parse(verb, argc, argv, &help, &error);
    if (native)
        return cli_fail(&error);
    if (!help)
        return work_with(options, verb->name, work);
    cli_help(verb, stdout);
    return CLI_EXIT_OK;
}

int ckpt_verb_export(int argc, char **argv)
{
    struct options options = {0};
    struct cli_verb verb = {
        .name = "ckpt export",
        .about = "Writes a version's weights as a Hugging Face directory: what train --export "
                 "gives\nafter that step.",
        .required = export_required,
        .sets = {{export_table, sizeof export_table / sizeof export_table[0], NULL}},
    };
    return run(&verb, argc, argv, &options, export);
}

int ckpt_verb_reshard(int argc, char **argv)
{
    struct options options = {0};
    struct cli_verb verb = {
        .name = "ckpt reshard",
        .about = "Writes a version as a new store for another number of ranks.",
        .required = reshard_required,
        .sets = {{reshard_table, sizeof reshard_table / sizeof reshard_table[0], NULL}},
    };
    return run(&verb, argc, argv, &options, reshard);
}
