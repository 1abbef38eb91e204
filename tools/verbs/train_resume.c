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

/* What may be changed on purpose: how far a step goes, and on what. */
static const char *const CHANGEABLE[] = {"lr ",     "schedule ", "warmup ", "steps ",
                                         "tokens ", "data ",     NULL};

size_t train_cursor(const struct train *t, char text[TRAIN_CURSOR_BYTES])
{
    const struct train_options *o = t->options;
    int n = (int)train_model_line(hf_model_config(t->source), text);
    n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n, "tokens %" PRIu64 "\n",
                  data_token_count(t->data));
    n += (int)train_data_line(t->data, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n,
                  "order %s\nseed %" PRIu64 "\nseq-len %" PRIu64
                  "\nlr %.15g\nschedule %s\nwarmup %" PRIu64 "\n",
                  o->order == DATA_SHUFFLED ? "shuffled" : "sequential", o->seed, o->seq_len, o->lr,
                  SCHEDULE_NAMES[o->schedule - SCHEDULE_CONSTANT], o->warmup);
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

/* The next line of `was` that is not in `is`, or null; *now: what is there instead, or null. */
static const char *next_change(const char *was, const char *is, const char **now)
{
    for (; *was; was += strcspn(was, "\n") + 1) {
        size_t length = strcspn(was, "\n");
        *now = find_line(is, was);
        if (!*now || strcspn(*now, "\n") != length || strncmp(was, *now, length) != 0)
            return was;
    }
    return NULL;
}

struct change {
    int was_length, now_length;
    const char *was, *now;
};

static struct change change_of(const char *was, const char *now)
{
    return (struct change){(int)strcspn(was, "\n"), now ? (int)strcspn(now, "\n") : 0, was,
                           now ? now : ""};
}

/* The text of a cursor; a longer one is not of this program. */
static void cursor_text(const void *cursor, size_t bytes, char text[TRAIN_CURSOR_BYTES])
{
    bytes = bytes < TRAIN_CURSOR_BYTES ? bytes : 0;
    if (bytes > 0)
        memcpy(text, cursor, bytes);
    text[bytes] = '\0';
}

bool train_accepts(void *context, uint64_t step, const void *cursor, size_t cursor_bytes)
{
    struct train *t = context;
    char text[TRAIN_CURSOR_BYTES], is[TRAIN_CURSOR_BYTES];
    const char *now, *was = text;
    (void)step;
    cursor_text(cursor, cursor_bytes, text);
    train_cursor(t, is);
    for (; (was = next_change(was, is, &now)) != NULL; was += strcspn(was, "\n") + 1) {
        bool may = is_changeable(was);
        if (may && t->options->allow_config_change)
            continue;
        struct change change = change_of(was, now);
        const bool model = strncmp(was, "model ", strlen("model ")) == 0;
        const struct train_line then = {change.was, change.was_length},
                                here = {change.now, change.now_length};
        if (model && train_model_pad_alone(then, here)) {
            train_model_pad_failed(then, here, t->error);
            return false;
        }
        if (train_is_data_line(was)) {
            train_data_failed(then, here, t->options->data, t->error);
            return false;
        }
        const bool data = strncmp(was, "tokens ", strlen("tokens ")) == 0;
        fail(t->error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
             "the store was trained with '%.*s', this run has '%.*s'. Fix: %s%.*s, or %s.",
             change.was_length, change.was, change.now_length, change.now,
             model  ? "the --model of that run"
             : data ? "the --data of that run"
                    : "--",
             model || data ? 0 : change.was_length, change.was,
             may ? "--allow-config-change" : "another --store");
        return false;
    }
    return true;
}

static void tell_changes(const char *was, const char *is)
{
    const char *now;
    for (; (was = next_change(was, is, &now)) != NULL; was += strcspn(was, "\n") + 1) {
        struct change change = change_of(was, now);
        const struct train_line then = {change.was, change.was_length},
                                here = {change.now, change.now_length};
        if (train_is_data_line(was))
            cli_warn(CLI_RESUME, "the run goes on with %s",
                     train_data_order_alone(then, here) ? "its data files in another order"
                                                        : "other data than it had");
        else
            cli_warn(CLI_RESUME, "the run goes on with '%.*s' where it had '%.*s'",
                     change.now_length, change.now, change.was_length, change.was);
    }
}

/* An old copy of the store, or a drive that lost what it had called flushed, looks like a store. */
static void tell_older(const struct train *t)
{
    const uint64_t committed = run_log_committed(t->options->log);
    if (committed > t->began)
        cli_warn(CLI_RESUME,
                 "the log '%.150s' says that step %" PRIu64
                 " was committed, but '%.150s' holds step %" PRIu64
                 ": it is an older copy, or its drive has lost what it had flushed. The run goes "
                 "on from step %" PRIu64 ". Fix: resume from the newer store, if there is one.",
                 t->options->log, committed, t->options->engine.store, t->began, t->began);
}

int train_resume(struct train *t)
{
    char cursor[TRAIN_CURSOR_BYTES], was[TRAIN_CURSOR_BYTES], is[TRAIN_CURSOR_BYTES];
    size_t bytes;
    uint64_t step;
    int native = hst_engine_resume(t->engine, &step, cursor, sizeof cursor, &bytes);
    if (native)
        return native;
    cursor_text(cursor, bytes, was);
    train_cursor(t, is);
    tell_changes(was, is);
    t->began = t->done = t->version_step = step;
    tell_older(t);
    if (!t->options->quiet)
        cli_note(CLI_RESUME, "going on after step %" PRIu64 " of %" PRIu64, step,
                 t->options->steps);
    return 0;
}
