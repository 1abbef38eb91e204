/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run leaves this with each version beside the model, and one that goes on must have it too: the
 * steps' learning rates and data are functions of the step and of these lines alone. The line of
 * the schedule says by which formula, so that a store is not gone on with by another one; constant
 * has always been the same.
 */
#include "cli/message/message.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* These may be changed on purpose: how far a step goes, and on what. */
static const char *const CHANGEABLE[] = {"lr ",    "schedule ", "scheduler ",  "warmup ", "lr-end ",
                                         "decay ", "steps ",    "tokens ",     "data ",   "pack ",
                                         "long ",  "rows ",     "eval-split ", NULL};

/* The scheduler of a configuration: all that its rates depend on. */
static size_t peer_lines(const struct schedule_peer *p, double lr, char *text, size_t text_bytes)
{
    return (size_t)snprintf(
        text, text_bytes,
        "lr %.15g\nschedule %s v%d\nscheduler %s %.15g to %.15g, %" PRIu64 " of %" PRIu64 "\n", lr,
        PEER_NAMES[p->kind - PEER_WARMUP], SCHEDULE_VERSION, p->linear ? "linear" : "log",
        p->lr_begin, p->lr_end, p->warmup_steps, p->kind == PEER_WARMUP ? 0 : p->total_steps);
}

/* All that a step's learning rate depends on. */
static size_t schedule_lines(const struct schedule *s, char *text, size_t text_bytes)
{
    const char *name = SCHEDULE_NAMES[s->shape - SCHEDULE_CONSTANT];
    int n = snprintf(text, text_bytes, "lr %.15g\nschedule %s", s->lr, name);
    if (s->shape != SCHEDULE_CONSTANT)
        n += snprintf(text + n, text_bytes - (size_t)n, " v%d", SCHEDULE_VERSION);
    n += snprintf(text + n, text_bytes - (size_t)n, "\nwarmup %" PRIu64 "\n", s->warmup_steps);
    if (s->shape != SCHEDULE_CONSTANT) /* which ends with the last step */
        n += snprintf(text + n, text_bytes - (size_t)n, "lr-end %.15g\nsteps %" PRIu64 "\n",
                      s->lr_end, s->steps);
    if (s->shape == SCHEDULE_WSD)
        n += snprintf(text + n, text_bytes - (size_t)n, "decay %" PRIu64 "\n", s->decay_steps);
    return (size_t)n;
}

size_t train_cursor(const struct train *t, char text[TRAIN_CURSOR_BYTES])
{
    const struct train_options *o = t->options;
    int n = (int)train_model_line(hf_model_config(t->source), text);
    n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n, "tokens %" PRIu64 "\n",
                  data_token_count(t->data));
    n += (int)train_data_line(t->data, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    n += (int)train_packing_lines(t->data, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    n += (int)train_split_line(o->eval_split, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    n += snprintf(text + n, TRAIN_CURSOR_BYTES - (size_t)n,
                  "order %s\nseed %" PRIu64 "\nseq-len %" PRIu64 "\n",
                  o->order == DATA_SHUFFLED ? "shuffled" : "sequential", o->seed, o->seq_len);
    n += (int)train_window_line(hf_model_config(t->source), o->seq_len, text + n,
                                TRAIN_CURSOR_BYTES - (size_t)n);
    n += (int)train_layers_line(o->layers == TRAIN_LAYERS_HALVES, text + n,
                                TRAIN_CURSOR_BYTES - (size_t)n);
    n += (int)train_eval_cursor(t, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    if (t->peer.kind != PEER_NONE)
        return (size_t)n +
               peer_lines(&t->peer, t->schedule.lr, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
    return (size_t)n + schedule_lines(&t->schedule, text + n, TRAIN_CURSOR_BYTES - (size_t)n);
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

static bool is_changeable(const char *line)
{
    for (int i = 0; CHANGEABLE[i]; i++)
        if (starts(line, CHANGEABLE[i]))
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

/* The next line of `was` that is not in `is`, or null; *now: what is there instead, or null. What
 * evaluations have found is no part of what a run has to have, and a window has a rule of its own:
 * keeps_window. */
static const char *next_change(const char *was, const char *is, const char **now)
{
    for (; *was; was += strcspn(was, "\n") + 1) {
        size_t length = strcspn(was, "\n");
        if (starts(was, EVALUATION_WORD) || starts(was, TRAIN_WINDOW_WORD))
            continue;
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

/* It returns where a line of the schedule has its version, or its end: what is typed ends there. */
static int typed_length(const char *line, int length)
{
    if (!starts(line, "schedule "))
        return length;
    const char *space =
        memchr(line + strlen("schedule "), ' ', (size_t)length - strlen("schedule "));
    return space ? (int)(space - line) : length;
}

/* It tells whether a line names a schedule whose rates this program does not compute. */
static bool is_other_formula(const char *line, int length)
{
    char version[16];
    if (!starts(line, "schedule ") || starts(line, "schedule constant\n"))
        return false;
    const int bytes = snprintf(version, sizeof version, " v%d", SCHEDULE_VERSION);
    return length < bytes || memcmp(line + length - bytes, version, (size_t)bytes) != 0;
}

static void refuse_formula(const struct change *change, struct hst_error *error)
{
    fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was begun with '%.*s' of another version of hoistway, whose learning rates are "
         "others: linear and cosine ended at 0. Fix: --allow-config-change goes on with this "
         "version's, or another --store.",
         change->was_length, change->was);
}

/* ---- all that differs, in one line ---- */

struct words {
    char text[160];
    int bytes;
};

__attribute__((format(printf, 2, 3))) static void add(struct words *words, const char *format, ...)
{
    const int room = (int)sizeof words->text - words->bytes;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(words->text + words->bytes, (size_t)room, format, args);
    va_end(args);
    words->bytes += n < room ? n : room - 1;
}

struct changes {
    struct words was, now, fix;
    bool data, share, all_may; /* share: one follows from a percentage of --steps */
};

/* It returns the percentage of the steps that a line of this run was given as; 0: as a number. */
static double percent_of(const struct train *t, const char *line)
{
    const struct train_options *o = t->options;
    return starts(line, "warmup ")  ? o->warmup.percent
           : starts(line, "decay ") ? o->decay.percent
                                    : 0;
}

static void add_typed(const struct change *c, struct words *fix)
{
    add(fix, "%s--%.*s", fix->bytes ? " " : "", typed_length(c->was, c->was_length), c->was);
}

#define PEER_FIX "a --config with that scheduler"

static void add_change(const struct train *t, const struct change *c, struct changes *changes)
{
    const char *comma = changes->was.bytes ? ", " : "";
    const double percent = percent_of(t, c->was);
    add(&changes->was, "%s'%.*s'", comma, c->was_length, c->was);
    add(&changes->now, "%s'%.*s'", comma, c->now_length, c->now);
    if (percent > 0)
        add(&changes->now, " (%g%% of --steps %" PRIu64 ")", percent, t->options->steps);
    changes->share = changes->share || percent > 0;
    changes->all_may = changes->all_may && is_changeable(c->was);
    if (starts(c->was, "tokens "))
        changes->data = true;
    else if (!starts(c->was, "schedule Warmup") && !starts(c->was, "scheduler "))
        add_typed(c, &changes->fix);
    else if (!strstr(changes->fix.text, PEER_FIX)) /* both lines are of it */
        add(&changes->fix, "%s" PEER_FIX, changes->fix.bytes ? " and " : "");
}

/* It tells what is listed beside others. What this run has no line of follows from its schedule,
 * and how many rows there are from what is told. Splits that leave as many tokens are the same: the
 * greater one evaluates on all that the other does. */
static bool is_listed(const struct train *t, const char *was, const char *now)
{
    return now && !train_is_data_line(was) && !train_is_split_line(was) && !starts(was, "rows ") &&
           !(is_changeable(was) && t->options->allow_config_change);
}

/* The steps first: what is a percentage follows from them. They are in a store whose schedule ends
   with them. */
static bool refuse_changes(struct train *t, const char *was, const char *is)
{
    struct changes changes = {.all_may = true};
    const char *now, *steps = NULL;
    for (const char *at = was; (at = next_change(at, is, &now)) != NULL;
         at += strcspn(at, "\n") + 1)
        if (starts(at, "steps ") && is_listed(t, at, now)) {
            struct change change = change_of(at, now);
            steps = at;
            add_change(t, &change, &changes);
        }
    for (const char *at = was; (at = next_change(at, is, &now)) != NULL;
         at += strcspn(at, "\n") + 1)
        if (at != steps && is_listed(t, at, now)) {
            struct change change = change_of(at, now);
            add_change(t, &change, &changes);
        }
    if (changes.was.bytes == 0)
        return true;
    const bool newly_split = t->options->eval_split > 0; /* else that has words of its own */
    fail(t->error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was trained with %s, this run has %s. Fix: %s%s%s%s, or %s.", changes.was.text,
         changes.now.text, changes.share && !steps ? "the --steps of that run, or " : "",
         !changes.data ? ""
         : newly_split ? "the --data of that run, split as it was (--eval-split)"
                       : "the --data of that run",
         changes.data && changes.fix.bytes ? " and " : "", changes.fix.text,
         changes.all_may ? "--allow-config-change" : "another --store");
    return false;
}

/* A version of other rules began the store: it has read the same documents as one row of tokens, or
 * packed them into other rows. */
static bool is_repacked(const char *was, const char *is)
{
    const char *rows = find_line(is, "rows "), *before = find_line(was, "rows ");
    return rows && (!before || strncmp(rows, before, strcspn(rows, "\n") + 1) != 0);
}

static bool refuse_repacked(struct train *t, const char *was, const char *is)
{
    if (!is_repacked(was, is) || t->options->allow_config_change)
        return false;
    fail(t->error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was trained on the documents of --data %.150s by another version of hoistway, "
         "which made other rows of them. Fix: --allow-config-change to go on with this version's, "
         "or another --store.",
         t->options->data);
    return true;
}

/* The line of this word, or none. */
static struct train_line line_of(const char *text, const char *word)
{
    const char *line = find_line(text, word);
    return (struct train_line){line ? line : "", line ? (int)strcspn(line, "\n") : 0};
}

static bool is_same(struct train_line a, struct train_line b)
{
    return a.length == b.length && memcmp(a.line, b.line, (size_t)a.length) == 0;
}

/* A window that sequences do fit into has no line, so that both may be without. Sequences of
 * another length may have one where the others have none, and are told as that. */
static bool keeps_window(struct train *t, const char *was, const char *is)
{
    const struct train_line then = line_of(was, TRAIN_WINDOW_WORD),
                            here = line_of(is, TRAIN_WINDOW_WORD);
    if (is_same(then, here) || !is_same(line_of(was, "seq-len "), line_of(is, "seq-len ")))
        return true;
    train_window_failed(then, here, t->options->seq_len, t->error);
    return false;
}

/* Differences that have words of their own come before what is listed. */
static bool accepts(struct train *t, const char *was, const char *is)
{
    const char *now, *const all = was;
    bool tokens = false; /* data of another length is told as that */
    for (; (was = next_change(was, is, &now)) != NULL; was += strcspn(was, "\n") + 1) {
        if (is_changeable(was) && t->options->allow_config_change)
            continue;
        tokens = tokens || starts(was, "tokens ");
        struct change change = change_of(was, now);
        const struct train_line then = {change.was, change.was_length},
                                here = {change.now, change.now_length};
        if (is_other_formula(was, change.was_length))
            refuse_formula(&change, t->error);
        else if (starts(was, "model ") && train_model_pad_alone(then, here))
            train_model_pad_failed(then, here, t->error);
        else if (starts(was, "model "))
            fail(t->error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
                 "the store was trained with '%.*s', this run has '%.*s'. Fix: the --model of that "
                 "run, or another --store.",
                 change.was_length, change.was, change.now_length, change.now);
        else if (train_is_split_line(was) && tokens)
            train_split_failed(then, here, t->error);
        else if (train_is_data_line(was) && !tokens)
            train_data_failed(then, here, t->options->data, t->error);
        else
            continue;
        return false;
    }
    return keeps_window(t, all, is) && refuse_changes(t, all, is) && !refuse_repacked(t, all, is);
}

bool train_accepts(void *context, uint64_t step, const void *cursor, size_t cursor_bytes)
{
    struct train *t = context;
    char text[TRAIN_CURSOR_BYTES], is[TRAIN_CURSOR_BYTES];
    (void)step;
    cursor_text(cursor, cursor_bytes, text);
    train_cursor(t, is);
    if (!accepts(t, text, is))
        return false;
    train_tell_plan(t);
    progress_begin(&t->progress, "resuming");
    return true;
}

static void tell_changes(const char *was, const char *is)
{
    const char *now;
    if (find_line(is, "rows ") && !find_line(was, "rows "))
        cli_warn(CLI_RESUME,
                 "the run goes on with rows of documents where it had one row of tokens");
    for (; (was = next_change(was, is, &now)) != NULL; was += strcspn(was, "\n") + 1) {
        struct change change = change_of(was, now);
        const struct train_line then = {change.was, change.was_length},
                                here = {change.now, change.now_length};
        if (!now)
            cli_warn(CLI_RESUME, "the run goes on without '%.*s', which it had", change.was_length,
                     change.was);
        else if (train_is_data_line(was))
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

void train_tell_nothing_there(const struct train *t)
{
    if (t->store_made)
        cli_warn(
            CLI_RESUME,
            "nothing was there to resume: '%.250s' did not exist, and a new store is made: the "
            "run begins at step 0",
            t->options->engine.store);
    else
        cli_warn(CLI_RESUME, "the store holds no version yet: the run begins at step 0");
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
    native = train_eval_resume(t, was);
    if (native)
        return native;
    tell_older(t);
    if (!t->options->quiet)
        cli_note(CLI_RESUME, "going on after step %" PRIu64 " of %" PRIu64, step,
                 t->options->steps);
    return 0;
}
