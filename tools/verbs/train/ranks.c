/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes a run one of several ranks. All of them have the same command line, read the same
 * files and make the same calls of the engine. Rank 0 alone tells, and writes what is not the
 * store: log, views, export. What would make one rank leave the others' order, an error or a signal
 * outside of steps, ends all of them.
 */
#include "cli/message/message.h"
#include "cli/message/voice.h"
#include "cli/options/launch.h"
#include "cli/stop.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <hoistway/ckpt.h>
#include <hoistway/predict.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a rank is asked for ---- */

static int trace_of_rank(struct train_ranks *ranks, struct train_options *o,
                         struct hst_error *error)
{
    if (!o->trace)
        return 0;
    const int n = snprintf(ranks->trace, sizeof ranks->trace, "%s.rank%" PRIu32, o->trace,
                           ranks->launch.rank);
    if ((size_t)n >= sizeof ranks->trace)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--trace '%.100s...' is longer than a path. Fix: a shorter one.", o->trace);
    o->trace = ranks->trace;
    return 0;
}

static void ways_of_store(const struct hst_launch *launch, const struct hst_store_place *place,
                          struct train_options *o)
{
    if (o->engine.ways)
        return;
    o->engine.ways = hst_store_ways(o->engine.store, place);
    o->store_ways = o->engine.ways > 0;
    if (o->store_ways && !o->quiet && o->engine.ways != launch->ranks)
        cli_note(CLI_RESUME, "--ways %" PRIu32 ", as the store has it", o->engine.ways);
}

static int layers_of_store(const struct hst_store_place *place, struct train_options *o,
                           struct hst_error *error)
{
    char cursor[TRAIN_CURSOR_BYTES];
    size_t bytes;
    if (!hst_store_cursor(o->engine.store, place, cursor, sizeof cursor, &bytes))
        return 0; /* there is nothing to go on from, which others tell */
    const bool halved = train_layers_halved(cursor, bytes < sizeof cursor ? bytes : sizeof cursor);
    if (o->layers != TRAIN_LAYERS_DEFAULT)
        return train_layers_failed(o, halved, error);
    o->layers = halved ? TRAIN_LAYERS_HALVES : TRAIN_LAYERS_WHOLE;
    if (halved && !o->quiet)
        cli_note(CLI_RESUME, "--layers halves, as the store has it");
    return 0;
}

/*
 * A run that goes on has the ways and the units of its store where none are named. Ranks are not
 * joined yet, so it is looked for under all numbers that directories may have. Who finds nothing
 * there has the default, and ranks that differ then are refused.
 */
static int take_of_store(const struct hst_launch *launch, struct train_options *o,
                         struct hst_error *error)
{
    const uint32_t locals = launch->locals ? launch->locals : 1;
    const struct hst_store_place place = {launch->rank, launch->local,
                                          (launch->rank - launch->local) / locals};
    if (!o->resume || !o->engine.store)
        return 0;
    ways_of_store(launch, &place, o);
    return layers_of_store(&place, o, error);
}

int train_ranks_begin(struct train_ranks *ranks, struct train_options *o, struct hst_error *error)
{
    int native = launch_read_joined(&o->launch, &ranks->launch, error);
    if (native)
        return native;
    if (ranks->launch.ranks == 1) {
        native = take_of_store(&ranks->launch, o, error);
        train_options_complete(o);
        /* the words of one that is resumed find other ranks' files, too */
        return native || o->resume ? native : store_alone(&o->engine.store, ranks->store, error);
    }
    o->engine.launch = &ranks->launch;
    voice_of(ranks->launch.rank, o->stopped);
    native = take_of_store(&ranks->launch, o, error);
    if (native)
        return native;
    train_options_complete(o);
    if (voice_is_other()) {
        o->quiet = true;
        o->log = NULL;
        o->views = (struct views_paths){.csv = NULL};
    }
    const struct hst_store_place any = {.rank = 0};
    native = o->engine.store ? hst_store_words(o->engine.store, &any, NULL, 0, error) : 0;
    return native < 0 ? native : trace_of_rank(ranks, o, error);
}

/* ---- ranks are alike ---- */

#define PIECE 190 /* bytes of a text that ranks compare at once */

static int same(struct train *t, const char *what, const char *text, size_t length)
{
    char piece[PIECE + 1];
    int native = 0;
    do {
        const size_t bytes = length < PIECE ? length : PIECE;
        snprintf(piece, sizeof piece, "%.*s", (int)bytes, text);
        native = hst_engine_same(t->engine, what, piece);
        text += bytes;
        length -= bytes;
    } while (!native && length > 0);
    return native;
}

/* The engine compares its options, of which some are each rank's own; and --rank is. */
static const struct hst_option *compared_elsewhere(const char *argument)
{
    static const struct hst_option rank = {.name = "rank", .type = HST_OPTION_TEXT};
    size_t count;
    const struct hst_option *options = hst_engine_options(&count);
    const size_t length = strcspn(argument, "=");
    if (length == strlen("--rank") && strncmp(argument, "--rank", length) == 0)
        return &rank;
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) + 2 == length && strncmp(argument, "--", 2) == 0 &&
            strncmp(argument + 2, options[i].name, length - 2) == 0)
            return &options[i];
    return NULL;
}

/* The next argument from place i on that is compared here, or argument_count. */
static int next_compared(const struct train_options *o, int i)
{
    const struct hst_option *option;
    while (i < o->argument_count && (option = compared_elsewhere(o->arguments[i])) != NULL)
        i += option->type != HST_OPTION_FLAG && !strchr(o->arguments[i], '=') ? 2 : 1;
    return i < o->argument_count ? i : o->argument_count;
}

static int same_arguments(struct train *t)
{
    const struct train_options *o = t->options;
    char what[PIECE];
    int count = 0, native = 0;
    for (int i = next_compared(o, 0); i < o->argument_count; i = next_compared(o, i + 1))
        count++;
    snprintf(what, sizeof what, "%d", count);
    native = same(t, "the number of arguments", what, strlen(what));
    for (int i = next_compared(o, 0); i < o->argument_count && !native;
         i = next_compared(o, i + 1)) {
        const char *before = i > 0 ? o->arguments[i - 1] : "";
        if (o->arguments[i][0] != '-' && strncmp(before, "--", 2) == 0)
            snprintf(what, sizeof what, "argument %d (of %.100s)", i + 1, before);
        else
            snprintf(what, sizeof what, "argument %d", i + 1);
        native = same(t, what, o->arguments[i], strlen(o->arguments[i]));
    }
    return native;
}

/* Model, data and schedule, as a version says them. */
static int same_inputs(struct train *t)
{
    char text[TRAIN_CURSOR_BYTES];
    train_cursor(t, text);
    int native = 0;
    for (const char *line = text; *line && !native; line += strcspn(line, "\n") + 1)
        native = same(t, "what is trained, and on what", line, strcspn(line, "\n"));
    return native;
}

int train_ranks_compare(struct train *t)
{
    if (train_options_ranks(t->options) == 1 || !t->options->arguments)
        return 0;
    int native = same_arguments(t);
    /* who finds no file of a store has the default, for all that the others have read there */
    native = native ? native
                    : hst_engine_same(t->engine, "--layers", t->run.halves ? "halves" : "whole");
    return native ? native : same_inputs(t);
}

int train_ranks_measure(struct train *t)
{
    const struct train_options *o = t->options;
    const bool large = train_is_large(t);
    if (train_options_ranks(o) == 1 || (!large && o->steps < TRAIN_PREDICTED_AFTER))
        return 0;
    if (large)
        train_rates_find(t, FORECAST_PROBE);
    const int native = train_stopped(t); /* what was measured until then is a part */
    return native ? native : hst_engine_net_rates(t->engine, &t->rates);
}

void train_ranks_tell(const struct train *t)
{
    const struct hst_part *p = &t->part;
    if (p->ranks > 1)
        cli_note(CLI_RANKS, "ranks: %" PRIu32 " on %" PRIu32 " node%s (%s), %" PRIu32 " way%s, %s",
                 p->ranks, p->nodes, p->nodes == 1 ? "" : "s", t->options->engine.launch->launcher,
                 p->ways, p->ways == 1 ? "" : "s", p->transport);
}

/* ---- the end of one is the end of all ---- */

#define OTHERS_WAIT_S 5

int train_ranks_end(struct train *t, int native)
{
    const bool all = !native || (native == -ECANCELED && t->stop.agreed);
    if (train_options_ranks(t->options) == 1 || !t->engine)
        return native;
    if (all) {
        const int left = hst_engine_leave(t->engine);
        if (!left)
            return native;
        native = train_engine_failed(t, left, "ending with the other ranks");
    }
    if (voice_is_other() && t->error->code == HST_E_NONFINITE)
        sleep(OTHERS_WAIT_S); /* all know it: rank 0 tells it, and ends this one meanwhile */
    int status = t->result.resumable ? CLI_EXIT_STOPPED : CLI_EXIT_STOPPED_AT_ONCE;
    if (native != -ECANCELED)
        status = cli_fail(t->error);
    train_export_end(&t->export); /* nothing that it has begun is left */
    hst_engine_abort(t->engine, status);
    return native;
}
