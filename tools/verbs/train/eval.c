/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluations of a run. What they find depends on the version and on their data alone, and nothing
 * of it reaches the weights: a run that evaluates trains the bytes of one that does not. The state
 * of --keep-best and --patience is part of the cursor; a cursor is written when its step begins, so
 * that a run which goes on evaluates its version once more where that was due.
 */
#include "base/now.h"
#include "base/text.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "verbs/train/run.h"

#include <errno.h>
#include <hoistway/ckpt.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- on what, and when ---- */

/* This identifies what is evaluated on: the files, and what of them. */
static uint64_t identity_of(const struct data *data, double split)
{
    const uint64_t tokens = data_token_count(data);
    uint64_t share;
    memcpy(&share, &split, sizeof share);
    return data_identity(data).in_order ^ share ^ tokens << 1;
}

int train_eval_open(struct train *t, const struct llama_config *model)
{
    const struct train_options *o = t->options;
    struct train_evaluation *e = &t->eval;
    struct data_config config = train_data_config(t, model);
    if (!o->eval && (o->eval_split <= 0 || !o->data))
        return 0;
    config.files = o->eval ? o->eval : o->data;
    config.option = o->eval ? "--eval" : "--data";
    config.side = DATA_EVALUATED;
    config.split = o->eval ? 0 : o->eval_split;
    config.order = DATA_SEQUENTIAL;
    config.may_shorten = false;
    int native = data_open(&config, &e->data, t->error);
    if (native)
        return native;
    e->identity = identity_of(e->data, config.split);
    e->times = (struct evaluation_times){
        .steps = o->steps,
        .every = schedule_share(o->eval_every, o->steps),
        .sequences = t->data ? data_sequence_count(t->data) : 0,
        .step_sequences = o->engine.batch_tokens / o->seq_len,
    };
    return 0;
}

void train_eval_close(struct train *t)
{
    data_close(&t->eval.data);
}

/* ---- the cursor ---- */

size_t train_eval_cursor(const struct train *t, char *text, size_t bytes)
{
    if (!t->eval.data)
        return 0;
    const struct evaluation_line line = {t->eval.best, t->eval.identity,
                                         evaluation_due(&t->eval.times, t->done + 1)};
    return (size_t)evaluation_write(&line, text, bytes);
}

/* It is so on all of several ranks, whatever a crash has left to one. */
static int kept_by_all(struct train *t, uint64_t step, bool *kept)
{
    int64_t ranks = hst_engine_has_kept(t->engine, step);
    const int native = hst_engine_sum(t->engine, &ranks, 1);
    *kept = ranks == (int64_t)train_options_ranks(t->options);
    return native ? train_engine_failed(t, native, "looking for the best version") : 0;
}

int train_eval_resume(struct train *t, const char *cursor)
{
    struct train_evaluation *e = &t->eval;
    struct evaluation_line line;
    if (!e->data || !evaluation_read(cursor, &line))
        return 0;
    const struct evaluation_best best = line.best;
    e->due = line.due;
    if (best.step == 0)
        return 0;
    e->replaced = best.step;
    bool kept = true, now = false; /* before this version; this one */
    int native = t->options->keep_best ? kept_by_all(t, best.step, &kept) : 0;
    native = native || kept ? native : kept_by_all(t, t->began, &now);
    if (native)
        return native;
    if (line.data != e->identity)
        cli_warn(CLI_EVALUATION,
                 "the run was evaluated on other data before: step %" PRIu64
                 ", its best so far, is not compared with those to come",
                 best.step);
    else if (!kept && !now)
        cli_warn(CLI_EVALUATION,
                 "step %" PRIu64
                 ", the best so far, was not kept: --keep-best is about those to come",
                 best.step);
    else
        e->best = best;
    return 0;
}

/* ---- one evaluation ---- */

static void repeat(uint32_t *ids, uint64_t from, uint64_t to, uint64_t length)
{
    memcpy(ids + to * length, ids + from * length, length * sizeof *ids);
}

/* Rows of a batch, in order. */
struct rows {
    uint64_t first, count;
};

/* The first row comes again in the room that a step has beyond the rows that are there. */
static void fill(const struct train *t, struct rows there, uint64_t room, bool packed)
{
    const uint64_t length = t->options->seq_len;
    const struct data_batch *to = &t->batch;
    for (uint64_t i = there.first + there.count; there.count && i < there.first + room; i++) {
        repeat(to->inputs, there.first, i, length);
        repeat(to->targets, there.first, i, length);
        if (packed)
            repeat(to->first, there.first, i, length);
        if (packed)
            repeat(to->position, there.first, i, length);
    }
}

/* Rows of a batch of `count` that this rank has. */
static struct rows own_rows(const struct train *t, uint64_t count)
{
    const uint64_t length = t->options->seq_len;
    const uint64_t first = t->part.first_token / length, most = t->part.tokens / length;
    const uint64_t left = count > first ? count - first : 0;
    return (struct rows){first, left < most ? left : most};
}

/* One sweep over `count` sequences. Where they may have a mask each rank reads all of them. */
static int sweep(struct train *t, uint64_t first, uint64_t count, struct llama_evaluation *found)
{
    const uint64_t length = t->options->seq_len, room = t->part.tokens / length;
    const bool packed = data_packing(t->eval.data);
    const struct data_batch *to = &t->batch;
    struct rows own = own_rows(t, count);
    struct llama_batch batch = {
        .inputs = to->inputs, .targets = to->targets, .target_count = count * length};
    int native = 0;
    if (packed)
        native = data_read(t->eval.data, first, count, to, t->error);
    else if (own.count)
        native = data_read(t->eval.data, first + own.first, own.count, to, t->error);
    if (native)
        return native;
    if (packed) {
        batch = train_batch_part(t);
        batch.target_count = train_batch_targets(t, count);
    } else {
        own.first = 0; /* it has read its own alone */
    }
    fill(t, own, room, packed);
    native = train_stop_vote(t);
    native =
        native ? native : llama_evaluate(t->model, t->engine, &batch, own.count * length, found);
    return native ? train_engine_failed(t, native, "the evaluation") : 0;
}

/* *loss: the mean over all targets. */
static int sweep_all(struct train *t, double *loss)
{
    const uint64_t sequences = data_sequence_count(t->eval.data);
    const uint64_t most = t->eval.times.step_sequences;
    const uint64_t sequence_bytes = t->options->seq_len * sizeof(uint32_t);
    struct llama_evaluation all = {0}, found = {0};
    int native = 0;
    for (uint64_t first = 0; first < sequences && !native; first += most) {
        const uint64_t left = sequences - first;
        native = train_stopped(t);
        native = native ? native : sweep(t, first, left < most ? left : most, &found);
        all.loss_sum += native ? 0 : found.loss_sum;
        all.target_count += native ? 0 : found.target_count;
        train_stop_count(t, native ? 0 : found.second_sum);
        progress_bytes(&t->progress, first * sequence_bytes, sequences * sequence_bytes);
    }
    t->eval.targets = all.target_count;
    *loss = all.loss_sum / (double)all.target_count;
    return native;
}

static void show(const struct train *t, const struct evaluation_report *report, bool better)
{
    char targets[TEXT_BYTES];
    if (t->options->quiet)
        return;
    activity_interrupt();
    say("evaluated after step %" PRIu64 "/%" PRIu64
        ": loss %.4f, perplexity %.4g, %s target%s in %.1f s%s\n",
        report->step, t->options->steps, report->loss, exp(report->loss),
        text_count((double)report->targets, targets), text_s(report->targets), report->seconds,
        better ? ", the best so far" : "");
}

static int keep(struct train *t, uint64_t before)
{
    progress_begin(&t->progress, "keeping the best version");
    int native = hst_engine_keep(t->engine, before ? before : HST_NO_VERSION);
    return native ? train_engine_failed(t, native, "keeping the best version") : 0;
}

int train_evaluate(struct train *t, uint64_t step)
{
    struct train_evaluation *e = &t->eval;
    const double begin_s = now_s();
    const uint64_t before = e->best.step ? e->best.step : e->replaced;
    char what[48];
    double loss = 0;
    if (!e->data || !(evaluation_due(&e->times, step) || (e->due && step == t->began)))
        return 0;
    snprintf(what, sizeof what, "evaluating after step %" PRIu64, step);
    progress_begin(&t->progress, what);
    int native = sweep_all(t, &loss);
    if (native)
        return native;
    const bool better = evaluation_take(&e->best, step, loss);
    const struct evaluation_report report = {
        .step = step,
        .loss = loss,
        .targets = e->targets,
        .seconds = now_s() - begin_s,
        .best_step = e->best.step,
    };
    e->first = e->count++ ? e->first : loss;
    e->last = loss;
    show(t, &report, better);
    train_keep_going(t, run_log_evaluation(&t->log, &report, t->error));
    if (better && t->options->keep_best)
        native = keep(t, before);
    e->ended =
        t->options->patience && e->best.waited >= t->options->patience && step < t->options->steps;
    e->seconds += now_s() - begin_s;
    return native;
}

/* ---- the best version ---- */

bool train_eval_exports_kept(const struct train *t)
{
    return t->options->keep_best && t->eval.best.step > 0 && t->eval.best.step != t->done;
}

int train_eval_save(void *from, bool masters, const struct hst_writer *writer,
                    struct hst_error *error)
{
    const struct train *t = from;
    (void)error; /* the engine keeps its own */
    return hst_engine_save_kept(t->engine, t->eval.best.step, masters, writer);
}

void train_eval_tell(const struct train *t)
{
    const struct train_evaluation *e = &t->eval;
    if (e->count == 0)
        return;
    printf("evaluated %" PRIu64 " time%s in %.1f s, loss %.4f -> %.4f", e->count, text_s(e->count),
           e->seconds, e->first, e->last);
    if (e->best.step)
        printf(", best %.4f after step %" PRIu64, e->best.loss, e->best.step);
    printf("\n");
    if (e->ended)
        printf("ended after step %" PRIu64 " of %" PRIu64 ": %" PRIu64
               " evaluation%s in a row %s no better (--patience)\n",
               t->done, t->options->steps, e->best.waited, text_s(e->best.waited),
               e->best.waited == 1 ? "was" : "were");
}
