/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a run may be told of its evaluations, and which values contradict. */
#include "base/text.h"
#include "verbs/train/eval.h"
#include "verbs/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define FIELD(f) offsetof(struct train_options, f)

static const struct hst_option table[] = {
    {.name = "eval",
     .group = "evaluation",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(eval),
     .argument = "FILE[,FILE]",
     .default_text = "no evaluation",
     .help = "what to evaluate on, in a format of --data"},
    {.name = "eval-split",
     .group = "evaluation",
     .type = HST_OPTION_REAL,
     .offset = FIELD(eval_split),
     .argument = "X",
     .default_text = "0",
     .least = 0,
     .greatest = 0.99,
     .help = "fraction of --data that is evaluated on, and not trained on"},
    {.name = "eval-every",
     .group = "evaluation",
     .type = HST_OPTION_SHARE,
     .offset = FIELD(eval_every),
     .argument = "N|X%",
     .default_text = "after each pass over the data",
     .least = 1,
     .greatest = TRAIN_MOST_STEPS,
     .help = "steps from one evaluation to the next"},
    {.name = "keep-best",
     .group = "evaluation",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(keep_best),
     .help = "keeps the version of the least loss, which --export writes"},
    {.name = "patience",
     .group = "evaluation",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(patience),
     .argument = "N",
     .default_text = "never",
     .least = 1,
     .greatest = 1e9,
     .help = "ends after so many evaluations without a better one"},
    {.name = "samples",
     .group = "evaluation",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(samples),
     .argument = "N",
     .default_text = "none",
     .least = 1,
     .greatest = TRAIN_MOST_SAMPLES,
     .help = "what the model says to N prompts, at evaluations and the end"},
    {.name = "sample-tokens",
     .group = "evaluation",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(sample_tokens),
     .argument = "N",
     .default_text = "64",
     .least = 1,
     .greatest = TRAIN_MOST_SAMPLES,
     .help = "new tokens of a sample, at most"},
};

const struct hst_option *train_eval_options(size_t *count)
{
    *count = sizeof table / sizeof table[0];
    return table;
}

/* An option that says something of evaluations where there are none. */
static const char *idle_option(const struct train_options *o)
{
    return o->keep_best                                           ? "--keep-best"
           : o->patience                                          ? "--patience"
           : o->eval_every.count > 0 || o->eval_every.percent > 0 ? "--eval-every"
                                                                  : NULL;
}

static int check_keep_best(const struct train_options *o, struct hst_error *error)
{
    const char *durability = o->engine.durability;
    if (durability && strcmp(durability, "none") == 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--keep-best keeps a version of the store, and --durability none makes none. "
                    "Fix: leave one of them out.");
    if (o->engine.keep)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--keep-best and --keep %" PRIu32 " both say which copies of versions are kept "
                    "beside the store. Fix: leave one of them out.",
                    o->engine.keep);
    return 0;
}

int train_eval_check_options(const struct train_options *o, struct hst_error *error)
{
    const bool evaluates = o->eval || o->eval_split > 0;
    const char *idle = evaluates ? NULL : idle_option(o);
    if (o->eval && o->eval_split > 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--eval and --eval-split both say what to evaluate on. Fix: leave one of them "
                    "out.");
    if (idle)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s is for a run that evaluates, and nothing says on what. Fix: --eval FILE, "
                    "or --eval-split 0.05.",
                    idle);
    if (o->sample_tokens && !o->samples)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--sample-tokens is for a run with samples, and there are none. Fix: --samples "
                    "4, or leave it out.");
    if (o->samples && o->quiet && !o->log && !train_options_other(o))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--samples %" PRIu64 " with --quiet are shown nowhere: the log alone has them "
                    "then. Fix: --log FILE, or leave one of them out.",
                    o->samples);
    return o->keep_best ? check_keep_best(o, error) : 0;
}
