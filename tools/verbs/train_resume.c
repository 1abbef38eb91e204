/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run leaves with each version beside the model, and what one that goes on must have too:
 * the steps' learning rates and data are functions of the step and of these lines alone.
 */
#include "cli/message.h"
#include "verbs/train_run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Those of the first kind decide what is trained on; the others may be changed on purpose. */
static const char *const CHANGEABLE[] = {"lr ", "schedule ", "warmup ", "steps ", NULL};

/* Of the model what its tensors' shapes do not say: those are the engine's to compare. */
size_t train_cursor(const struct train *t, char text[TRAIN_CURSOR_BYTES])
{
    const struct train_options *o = t->options;
    const struct llama_config *c = hf_model_config(t->source);
    const struct rope_config *r = &c->rope;
    int n = snprintf(text, TRAIN_CURSOR_BYTES,
                     "model heads %u,%u,%u eps %.15g rope %d,%.15g,%.15g,%.15g,%.15g,%.15g\n",
                     c->heads, c->kv_heads, c->head_dim, c->rms_norm_eps, (int)r->type, r->theta,
                     r->factor, r->low_freq_factor, r->high_freq_factor, r->original_max_positions);
    n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n,
                  "tokens %" PRIu64 "\norder %s\nseed %" PRIu64 "\nseq-len %" PRIu64
                  "\nlr %.15g\nschedule %s\nwarmup %" PRIu64 "\n",
                  data_token_count(t->data), o->order == DATA_SHUFFLED ? "shuffled" : "sequential",
                  o->seed, o->seq_len, o->lr, SCHEDULE_NAMES[o->schedule - SCHEDULE_CONSTANT],
                  o->warmup);
    if (o->schedule != SCHEDULE_CONSTANT) /* which ends with the last step */
        n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n, "steps %" PRIu64 "\n", o->steps);
    return (size_t)n;
}

static bool is_changeable(const char *line)
{
    for (int i = 0; CHANGEABLE[i]; i++)
        if (strncmp(line, CHANGEABLE[i], strlen(CHANGEABLE[i])) == 0)
            return true;
    return false;
}

/* The line that begins with the same word, or null. */
static const char *find_line(const char *text, const char *line)
{
    for (; *text; text += strcspn(text, "\n") + 1)
        if (strncmp(text, line, strcspn(line, " ") + 1) == 0)
            return text;
    return NULL;
}

/* Each line of `was` that is not in `is`: refused, or told where it may change. */
static int compare(const struct train *t, const char *was, const char *is)
{
    for (; *was; was += strcspn(was, "\n") + 1) {
        const char *now = find_line(is, was);
        int length = (int)strcspn(was, "\n");
        int now_length = now ? (int)strcspn(now, "\n") : 0;
        if (now && now_length == length && strncmp(was, now, (size_t)length) == 0)
            continue;
        bool may = is_changeable(was);
        if (!may || !t->options->allow_config_change)
            return fail(t->error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
                        "the store was trained with '%.*s', this run has '%.*s'. Fix: the options "
                        "of that run%s.",
                        length, was, now_length, now ? now : "",
                        may ? ", or --allow-config-change" : ", or another --store");
        cli_warn(CLI_RESUME, "the run goes on with '%.*s' where it had '%.*s'", now_length,
                 now ? now : "", length, was);
    }
    return 0;
}

int train_resume(struct train *t)
{
    char was[TRAIN_CURSOR_BYTES], is[TRAIN_CURSOR_BYTES];
    size_t bytes;
    uint64_t step;
    int native = hst_engine_resume(t->engine, &step, was, sizeof was - 1, &bytes);
    if (native)
        return native;
    was[bytes < sizeof was ? bytes : 0] = '\0'; /* a longer one is not of this program */
    train_cursor(t, is);
    native = step > 0 ? compare(t, was, is) : 0;
    if (native)
        return native;
    t->began = t->done = t->version_step = step;
    if (!t->options->quiet)
        cli_note(CLI_RESUME, "going on after step %" PRIu64 " of %" PRIu64, step,
                 t->options->steps);
    return 0;
}
