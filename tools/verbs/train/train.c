/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway train. Decides the order of things: everything that can be refused is refused before
 * anything is written; then plan, load, train, drain, export, and the last samples. The learning
 * rate and the position in the data are functions of the step, so that a step needs nothing from
 * the one before but the weights.
 */
#include "base/now.h"
#include "base/text.h"
#include "cli/forecast.h"
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "cli/message/table.h"
#include "cli/message/voice.h"
#include "cli/stop.h"
#include "verbs/train/config.h"
#include "verbs/train/run.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_INFINITE 65520.0f /* from here on */

/* ---- versions, steps that were skipped ---- */

/* The last version that was made, where the log does not know it yet. Of two that a step has seen
   made it is the later one. */
static int tell_version(struct train *t, struct hst_error *error)
{
    uint64_t step = t->engine ? hst_engine_version(t->engine) : HST_NO_VERSION;
    if (step == t->version_step || step == HST_NO_VERSION)
        return 0;
    t->version_step = step;
    return run_log_commit(&t->log, step, error);
}

static bool all_skipped(const struct train *t)
{
    return t->skipped > 0 && t->skipped == t->done - t->began;
}

static const char *scale_words(const struct train *t)
{
    return train_precision(t) == HST_PRECISION_FP16 ? " in fp16 at the loss scale they had" : "";
}

/* It is for who sees neither steps nor summary, and where a run has trained nothing. */
void train_warn_skipped(const struct train *t)
{
    const bool f16 = train_precision(t) == HST_PRECISION_FP16;
    char all[64] = "the one step of this run was skipped";
    if (t->skipped != 1)
        snprintf(all, sizeof all, "all %" PRIu64 " steps of this run were skipped", t->skipped);
    if (all_skipped(t))
        cli_warn(CLI_SKIPPED,
                 "%s, and the weights are as they were: gradients were not finite or too large%s. "
                 "Fix: %s.",
                 all, scale_words(t),
                 f16 ? "more steps or a smaller --loss-scale; else --precision bf16"
                     : "look at the weights of --model and at the data; a smaller --lr");
    else if (t->skipped)
        cli_warn(CLI_SKIPPED,
                 "%" PRIu64 " of %" PRIu64
                 " steps %s skipped: gradients were not finite or too large%s",
                 t->skipped, t->done - t->began, t->skipped == 1 ? "was" : "were", scale_words(t));
}

/* ---- plan and load ---- */

static int plan(struct train *t)
{
    const struct train_options *o = t->options;
    progress_begin(&t->progress, "measuring the machine");
    if (train_options_ranks(o) == 1) /* else once they are joined */
        train_rates_find(t, train_is_large(t) ? FORECAST_MEASURED : FORECAST_CACHED);
    int native = train_stopped(t); /* what was measured until then is a part */
    if (native)
        return native;
    progress_begin(&t->progress, "reserving memory");
    double begin_s = now_s();
    native = train_engine_plan(t, HST_PLAN_TO_TRAIN);
    if (native)
        return native;
    t->started_s = now_s() - begin_s;
    if (train_is_large(t)) /* else who has measured them was told */
        forecast_tell_disturbed(&t->rates, NULL);
    rates_text(&t->rates, rates_now_ms(), t->rates_line);
    (void)hst_engine_start_up(t->engine, &t->rates, &t->start_up); /* sealed */
    progress_begin(&t->progress, "reserving room for the export");
    native = train_batch_reserve(t);
    if (native)
        return native;
    const bool exports = o->export_directory && !voice_is_other();
    return exports ? train_export_begin(&t->export, t->error) : 0;
}

/* It counts what is infinite, not a number, or rounds to infinity where weights are f16. */
static uint64_t count_nonfinite(const float *values, size_t count, bool f16)
{
    uint64_t found = 0;
    float limit = f16 ? F16_INFINITE : INFINITY;
    for (size_t i = 0; i < count; i++)
        found += !(fabsf(values[i]) < limit);
    return found;
}

static int read_initial(void *context, const struct hst_param_ref *param, uint64_t offset,
                        float *dst, size_t count)
{
    struct train *t = context;
    int native = train_stopped(t);
    if (native)
        return native;
    t->loaded_elements += count;
    progress_bytes(&t->progress, t->loaded_elements * train_weight_bytes(t),
                   t->result.memory.parameters * train_weight_bytes(t));
    if (t->options->init == TRAIN_INIT_RANDOM) {
        const struct llama_init init = {t->options->seed, param->name, offset};
        llama_init_random(hf_model_config(t->source), &init, dst, count);
        return 0;
    }
    native = hf_model_read(t->source, param->name, offset, dst, count, t->error);
    uint64_t found = native ? 0 : count_nonfinite(dst, count, train_dtype(t) == HST_F16);
    if (found && !t->nonfinite_count)
        snprintf(t->nonfinite_tensor, sizeof t->nonfinite_tensor, "%s", param->name);
    t->nonfinite_count += found;
    return native;
}

static const char *loading_words(const struct train *t)
{
    return t->options->init == TRAIN_INIT_RANDOM ? "initialising the weights"
                                                 : "loading the weights";
}

/* It loads what is asked for with --resume, or the model's weights. */
static int load_or_resume(struct train *t)
{
    char cursor[TRAIN_CURSOR_BYTES];
    struct hst_reader reader = {.read = read_initial, .context = t};
    progress_begin(&t->progress, t->options->resume ? "resuming" : loading_words(t));
    int native = t->options->resume ? train_resume(t) : -ENOENT;
    t->loaded = native == 0;
    if (native == 0 || native == -ENOENT)
        train_tell_plan(t);
    if (native != -ENOENT)
        return native ? train_engine_failed(t, native, "resuming") : 0;
    uint64_t committed = t->options->resume ? run_log_committed(t->options->log) : 0;
    if (committed > 0)
        return fail(t->error, FAIL_STORE_DIR, -ENOENT,
                    "the log '%.150s' says that step %" PRIu64
                    " was committed, but '%.150s' holds no version. Fix: mount the drive of that "
                    "store, or begin anew without --resume.",
                    t->options->log, committed, t->options->engine.store);
    if (t->options->resume)
        train_tell_nothing_there(t);
    progress_begin(&t->progress, loading_words(t));
    if (t->run.halves) { /* the first version says which units it has */
        reader.cursor = cursor;
        reader.cursor_bytes = train_cursor(t, cursor);
    }
    native = hst_engine_load(t->engine, &reader);
    t->loaded = native == 0;
    if (native)
        return train_engine_failed(t, native, "loading the weights");
    bool f16 = train_dtype(t) == HST_F16;
    if (t->nonfinite_count)
        cli_warn(CLI_TENSOR,
                 "%.150s has weights that are infinite%s or not a number (%" PRIu64
                 ", the first in %.100s): the loss cannot be finite. Fix: %s.",
                 t->options->model, f16 ? " (in fp16: beyond 65504)" : "", t->nonfinite_count,
                 t->nonfinite_tensor,
                 f16 ? "--precision bf16, or weights without them" : "use weights without them");
    train_warn_rounded(t);
    return 0;
}

struct run_plans train_plans(const struct train *t)
{
    struct hst_dev_info info = {0};
    hst_dev_info(hst_engine_device(t->engine), &info);
    return (struct run_plans){info.plans, info.plans_s};
}

static int load(struct train *t)
{
    double begin_s = now_s();
    int native = load_or_resume(t);
    t->started_s += now_s() - begin_s;
    return native;
}

static void tell_device(const struct train *t)
{
    struct hst_dev_info info;
    hst_dev_info(hst_engine_device(t->engine), &info);
    if (t->device.gpu)
        cli_note(CLI_DEVICE, "device: %s (%s)%s%s%s%s%s", t->device.name, info.model,
                 info.library_unused[0] ? "; not used: " : "", info.library_unused,
                 info.absent[0] ? "; matrix products by hoistway's own kernels, as " : "",
                 info.absent, info.absent[0] ? " was not found" : "");
    else
        cli_note(CLI_DEVICE, "device: host (%" PRIu32 " thread%s, %s)%s%s",
                 t->result.memory.threads, text_s(t->result.memory.threads),
                 hst_cpu_adam_ops(HST_CPU_ISA_AUTO)->name, t->device.why[0] ? ": " : "",
                 t->device.why);
    if (info.plans)
        cli_note(CLI_DEVICE,
                 "attention by cuDNN: %u plan%s built in %.1f s, none is left to a step",
                 info.plans, text_s(info.plans), info.plans_s);
}

void train_tell_plan(struct train *t)
{
    progress_end(&t->progress);
    if (t->options->quiet || t->told)
        return;
    t->told = true;
    tell_device(t);
    train_ranks_tell(t);
    table_print(&t->result.memory, t->part.locals, stdout);
    table_print_groups(t->result.groups, t->result.group_count, &t->result.frozen, stdout);
    if (t->rates_line[0])
        printf("rates: %s\n", t->rates_line);
    (void)say_flush(stdout); /* the end of the run looks at it again */
}

/* ---- what a step will take ---- */

bool train_is_told(const struct train *t)
{
    return !t->options->quiet || t->options->log;
}

void train_rates_measure(struct train *t, bool anew)
{
    struct hst_config config = t->options->engine;
    config.store = train_store(t);
    config.stopped = train_asked_to_stop;
    config.stopped_context = t;
    forecast_measure(&config, t->device.name, &t->result.memory, anew, &t->rates);
}

static int measure_rates(struct train *t)
{
    const struct hst_rates planned = t->rates;
    const bool ranks = train_options_ranks(t->options) > 1; /* each measures beside the others */
    progress_begin(&t->progress, "measuring the drives");
    if ((ranks || train_is_told(t)) && t->options->steps >= TRAIN_PREDICTED_AFTER)
        train_rates_measure(t, false);
    for (int r = HST_RATE_NET_GATHER; r < HST_RATE_COUNT; r++)
        t->rates.figures[r] = planned.figures[r]; /* measured before the plan */
    train_samples_predict(t, &planned);
    return 0;
}

void train_predict(struct train *t)
{
    struct hst_prediction *p = &t->result.prediction;
    int native = hst_engine_predict(t->engine, &t->rates, p);
    if (native)
        snprintf(p->why, sizeof p->why, "%s", strerror(-native));
}

/* ---- steps ---- */

/* A run is worth more than its log: it goes on without. */
void train_keep_going(struct train *t, int native)
{
    if (!native)
        return;
    cli_warn(CLI_WRITE, "%s The run goes on without a log.", t->error->message);
    t->log_native = native;
    *t->error = (struct hst_error){0};
}

static void note_update(struct train *t, uint64_t number, enum hst_update_time how)
{
    struct train_updates *u = &t->updates;
    if (number > t->began + 1 && how != u->last) {
        u->changes++;
        u->changed = number;
    }
    u->last = how;
    u->optimistic += how == HST_UPDATE_OPTIMISTIC;
}

static void watch_loss(struct train *t, uint64_t number, double loss)
{
    if (!loss_watch_step(&t->loss_watch, number, loss))
        return;
    cli_warn(CLI_LOSS,
             "the loss has been more than %g above that of step %" PRIu64 " (%.4f) for %u steps: "
             "%.4f in step %" PRIu64
             ". Fix: a smaller --lr, a longer --warmup, a look at the data.",
             LOSS_WATCH_NATS, t->loss_watch.first_step, t->loss_watch.first, LOSS_WATCH_STEPS, loss,
             number);
}

static double rate_of(const struct train *t, uint64_t step)
{
    return t->peer.kind == PEER_NONE ? schedule_lr(&t->schedule, step)
                                     : schedule_peer_lr(&t->peer, t->schedule.lr, step);
}

static int train_step(struct train *t, uint64_t number, double begin_s)
{
    char what[32];
    snprintf(what, sizeof what, "step %" PRIu64, number);
    progress_begin(&t->progress, what);
    const struct train_options *o = t->options;
    struct llama_batch batch;
    int native = train_batch_read(t, number, &batch);
    if (native)
        return native;
    char cursor[TRAIN_CURSOR_BYTES];
    const struct hst_step_in in = {.size = sizeof in,
                                   .lr = rate_of(t, number),
                                   .cursor = cursor,
                                   .cursor_bytes = train_cursor(t, cursor)};
    struct hst_step_stats stats;
    const bool scaled = train_precision(t) == HST_PRECISION_FP16;
    double loss = 0;
    native = llama_step_compute(t->model, t->engine, &in, &batch);
    native = native ? native : train_stop_vote(t);
    native = native ? native : llama_step_end(t->model, t->engine, &loss, &stats);
    if (native)
        return train_engine_failed(t, native, "the step");
    train_stop_count(t, stats.sums[1]);
    t->result.first_loss = number == t->began + 1 ? loss : t->result.first_loss;
    t->result.last_loss = loss;
    t->result.seconds = now_s() - begin_s;
    const struct step_report report = {.step = number,
                                       .steps = o->steps,
                                       .began = t->began,
                                       .tokens = t->run.batch_tokens,
                                       .loss = loss,
                                       .lr = in.lr,
                                       .elapsed_s = t->result.seconds,
                                       .bound_s = t->result.prediction.bound_s,
                                       .stats = &stats,
                                       .scaled = scaled,
                                       .skips = scaled || o->engine.skip_nonfinite};
    t->skipped += stats.skipped;
    t->skipped_ever = stats.skipped_steps;
    note_update(t, number, stats.update_time);
    train_left_step(t, stats.hbm_free);
    progress_show(&t->progress, &report);
    watch_loss(t, number, loss);
    train_keep_going(t, tell_version(t, t->error));
    train_keep_going(t, run_log_step(&t->log, &report, t->error));
    train_views_tell(t);
    return 0;
}

/* Samples come with evaluations; of a run that has none behind its last step. Those of the last
 * step wait until the model is there. */
static int look_at(struct train *t, uint64_t step)
{
    const uint64_t before = t->eval.count;
    int native = train_evaluate(t, step);
    const bool due = t->eval.data ? t->eval.count > before : step >= t->options->steps;
    t->samples.wait = due && (step >= t->options->steps || t->eval.ended);
    return native || !due || t->samples.wait ? native : train_sample(t, step);
}

/* This is what no step has taken. */
static double looked_s(const struct train *t)
{
    return t->eval.seconds + t->samples.seconds + t->again.seconds;
}

static int train_steps(struct train *t)
{
    double begin_s = now_s(), first_s = 0;
    train_samples_tell_cost(t);
    t->stop.together = t->part.ranks > 1;
    int native = look_at(t, t->began);
    for (uint64_t number = t->began + 1; !native && number <= t->options->steps; number++) {
        if (t->eval.ended)
            break;
        const double before_s = t->result.seconds;
        native = train_stopped(t);
        native = native ? native : train_step(t, number, begin_s + looked_s(t));
        if (native)
            return native;
        t->done = number;
        first_s = number == t->began + 1 ? t->result.seconds : first_s;
        if (train_is_told(t) && number == t->began + TRAIN_PREDICTED_AFTER)
            train_predict(t);
        train_again_step(t, number, t->result.seconds - before_s);
        native = look_at(t, number);
    }
    if (native)
        return native;
    progress_begin(&t->progress, "finishing the last update");
    struct hst_step_stats drained = {0};
    native = hst_engine_drain(t->engine, &drained);
    if (native)
        return train_engine_failed(t, native, "finishing the last update");
    uint64_t bytes = drained.bytes.nvme_read + drained.bytes.nvme_write + drained.bytes.h2d +
                     drained.bytes.d2h + drained.bytes.net;
    train_keep_going(t, tell_version(t, t->error));
    train_keep_going(t, run_log_drain(&t->log, bytes, t->error));
    /* The first step also warms up caches and queues: it counts only where there is no other. */
    uint64_t steps = t->done - t->began;
    t->result.step_s =
        steps > 1 ? (t->result.seconds - first_s) / (double)(steps - 1) : t->result.seconds;
    struct run_summary summary = {
        .steps = steps,
        .measured_step_s = t->result.step_s,
        .predicted_step_s = t->result.prediction.step_s,
        .bound_by = t->result.prediction.bound_by,
        .plans = train_plans(t),
    };
    train_keep_going(t, run_log_summary(&t->log, &summary, t->error));
    t->stop.together = t->stop.agreed; /* what follows ends all if it ends one */
    return 0;
}

/* ---- export ---- */

static int export_model(struct train *t)
{
    if (!t->options->export_directory)
        return 0;
    const bool kept = train_eval_exports_kept(t);
    train_save *save = kept ? train_eval_save : train_export_save_engine;
    void *from = kept ? (void *)t : (void *)t->engine;
    int native = voice_is_other() ? train_export_follow(&t->export, save, from)
                                  : train_export_write(&t->export, save, from, t->error);
    return native ? train_engine_failed(t, native, "the export") : 0;
}

/* ---- the whole ---- */

static void tell_summary(const struct train *t)
{
    char rate[TEXT_BYTES], tokens[TEXT_BYTES], forecast[FORECAST_TEXT_BYTES];
    const struct train_result *r = &t->result;
    uint64_t steps = t->done - t->began;
    train_export_warn(&t->export);
    double count = (double)steps * (double)t->run.batch_tokens;
    if (t->options->quiet || all_skipped(t))
        train_warn_skipped(t);
    if (t->options->quiet)
        return;
    if (steps == 0)
        printf("trained nothing: the store is at step %" PRIu64 " of %" PRIu64 "\n", t->done,
               t->options->steps);
    else
        printf("trained %" PRIu64 " step%s, %s token%s in %.1f s (%s tok/s), loss %.4f -> %.4f\n",
               steps, text_s(steps), text_count(count, tokens), text_s((uint64_t)count), r->seconds,
               text_count(count / r->seconds, rate), r->first_loss, r->last_loss);
    if (t->skipped && !all_skipped(t))
        printf("skipped %" PRIu64 " of them: gradients were not finite or too large%s\n",
               t->skipped, scale_words(t));
    if (t->skipped_ever > t->skipped)
        printf("skipped %" PRIu64 " of all %" PRIu64 " steps of the store\n", t->skipped_ever,
               t->done);
    if (t->updates.changes)
        printf("update: %" PRIu64 " of %" PRIu64 " step%s optimistic, since step %" PRIu64
               " %s (--update auto)\n",
               t->updates.optimistic, steps, text_s(steps), t->updates.changed,
               t->updates.last == HST_UPDATE_OPTIMISTIC ? "all" : "none");
    train_eval_tell(t);
    train_samples_tell(t);
    if (steps > 0)
        train_left_tell(t);
    if (steps >= TRAIN_PREDICTED_AFTER)
        printf("%s\n", forecast_text(&r->prediction, r->step_s, forecast));
    if (!t->options->export_directory || t->options->passing)
        return;
    printf("exported %s weights", t->export.dtype == HST_F32 ? "fp32" : "the");
    if (t->options->keep_best && t->eval.best.step > 0)
        printf(" of step %" PRIu64 ", the best that was evaluated,", t->eval.best.step);
    printf(" to %s\n", t->options->export_directory);
    train_export_tell_rounded(&t->export);
}

/* It checks what the user asked for beside the model, and did not get. */
static int check_told(struct train *t)
{
    const struct train_options *o = t->options;
    const char *exported = o->export_directory ? "The model was exported to " : "";
    const char *directory = o->export_directory ? o->export_directory : "";
    int native = t->log_native;
    if (native)
        return fail(t->error, FAIL_WRITE, native,
                    "the log '%.150s' ends before the run (%s). %s%.200s", o->log,
                    strerror(-native), exported, directory);
    struct hst_error own = {0};
    native = views_close(&t->views, &own);
    native = native ? native : trace_close(&t->trace, &own);
    if (native)
        return fail(t->error, FAIL_WRITE, native, "%.350s %s%.100s", own.message, exported,
                    directory);
    native = say_flush(stdout);
    if (native)
        return fail(t->error, FAIL_WRITE, native, "stdout cannot be written (%s). %s%.300s",
                    strerror(-native), exported, directory);
    return 0;
}

/* Before ranks end: a launcher ends them all once the first has gone with a status. */
static void close_outputs(struct train *t)
{
    struct hst_error ignored; /* of a run that failed with an error of its own */
    (void)tell_version(t, &ignored);
    (void)views_close(&t->views, &ignored);
    run_log_close(&t->log);
    (void)trace_close(&t->trace, &ignored);
}

static void close_all(struct train *t)
{
    progress_begin(&t->progress, "closing");
    train_export_end(&t->export);
    free(t->batch.inputs);
    hst_engine_destroy(&t->engine);
    train_samples_close(t); /* whose prompts name a file of the data */
    data_close(&t->data);
    train_eval_close(t);
    llama_destroy(&t->model);
    hf_model_close(&t->source);
    progress_end(&t->progress);
}

int train_run(const struct train_options *options, struct train_result *result,
              struct hst_error *error)
{
    static int (*const phases[])(struct train *) = {
        train_inputs_open, train_device_choose, train_inputs_check, plan, measure_rates, load,
        train_log_begin,   train_steps,         export_model};
    struct train t = {
        .options = options,
        .error = error,
        .version_step = HST_NO_VERSION,
    };
    *error = (struct hst_error){0};
    progress_init(&t.progress, options->quiet);
    progress_begin(&t.progress, "opening the model and the data");
    int native = 0;
    for (size_t i = 0; i < sizeof phases / sizeof phases[0] && !native; i++) {
        native = train_stopped(&t);
        native = native ? native : phases[i](&t);
        if (!native && phases[i] == plan && !options->resume) /* else the store may be another's */
            train_tell_plan(&t);
    }
    native = native ? native : train_sample_last(&t);
    progress_end(&t.progress);
    if (native == -ECANCELED && train_stopped(&t)) /* what failed by itself is told as that */
        native = train_tell_stopped(&t);
    if (!native)
        tell_summary(&t);
    if (result)
        *result = t.result;
    native = native ? native : check_told(&t);
    close_outputs(&t);
    native = train_ranks_end(&t, native);
    close_all(&t);
    return native;
}

int verb_train(int argc, char **argv)
{
    struct train_options options;
    struct hst_error error = {0};
    bool help;
    train_options_init(&options);
    options.stopped = stop_catch();
    int native = train_options_parse(&options, argc, argv, &help, &error);
    struct train_result result = {0};
    struct train_ranks ranks = {.launch = {.ranks = 1}};
    options.arguments = argv;
    options.argument_count = argc;
    if (!native && !help)
        native = train_ranks_begin(&ranks, &options, &error);
    if (!native && !help)
        train_config_tell(&options);
    if (!native && !help)
        native = train_run(&options, &result, &error);
    int code = CLI_EXIT_OK;
    if (native == -ECANCELED)
        code = result.resumable ? CLI_EXIT_STOPPED : CLI_EXIT_STOPPED_AT_ONCE;
    else if (native)
        code = cli_fail(&error);
    train_config_close(&options); /* of which an error may have told */
    return code;
}
