/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file ends a run that is asked to end. Where versions are kept it can always go on: from the
 * version that the store holds, or anew where there is none yet. Who starts it again needs one exit
 * code for that, whatever the run was at. A drive that then fails is a failure, and not that code:
 * who starts runs again at each 75 would do so for ever.
 */
#include "cli/stop.h"
#include "base/text.h"
#include "cli/message/activity.h"
#include "cli/message/say.h"
#include "cli/message/voice.h"

#include "verbs/train/run.h"

#include <errno.h>
#include <hoistway/ckpt.h>
#include <inttypes.h>
#include <string.h>

static bool is_asked(const struct train *t)
{
    return t->options->stopped && *t->options->stopped;
}

int train_stopped(const struct train *t)
{
    return (t->stop.together ? t->stop.agreed : is_asked(t)) ? -ECANCELED : 0;
}

/* One rank that left alone would leave the others waiting for it. */
bool train_stop_wish(const struct train *t)
{
    return t->stop.together && is_asked(t);
}

int train_stop_vote(const struct train *t)
{
    return train_stop_wish(t) ? hst_sum_add(t->engine, 1, 1.0) : 0;
}

void train_stop_count(struct train *t, double wishes)
{
    t->stop.agreed = t->stop.agreed || (t->stop.together && wishes > 0);
}

int train_asked_to_stop(void *context)
{
    return train_stopped(context);
}

void train_resumed_bytes(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct train *t = context;
    if (done_bytes < t->resumed_bytes) /* of the second that is counted */
        progress_begin(&t->progress, "resuming: reading into memory");
    t->resumed_bytes = done_bytes;
    progress_bytes(&t->progress, done_bytes, total_bytes);
}

static bool keeps_versions(const struct train_options *o)
{
    const char *durability = o->engine.durability;
    return o->resume || (o->engine.store && (!durability || strcmp(durability, "none") != 0));
}

/* It tells, of an engine that has not loaded, what the files say: another process may read them. */
static int version_held(const struct train *t, uint64_t *step, struct hst_error *error)
{
    *step = t->loaded ? hst_engine_version(t->engine) : HST_NO_VERSION;
    if (*step != HST_NO_VERSION || !train_store(t))
        return 0;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = train_store(t), .step = HST_NO_VERSION};
    struct hst_ckpt *ckpt = NULL;
    struct hst_ckpt_info info;
    int native = hst_ckpt_open(&config, &ckpt, error);
    if (native)
        return native == -ENOENT ? 0 : native;
    hst_ckpt_info(ckpt, &info);
    *step = info.step;
    hst_ckpt_close(&ckpt);
    return 0;
}

#define HELD_BYTES (sizeof((struct hst_error *)NULL)->message + 64)

static void held_words(const struct train *t, char words[HELD_BYTES])
{
    struct hst_error error = {0};
    uint64_t step;
    if (!t->result.resumable)
        snprintf(words, HELD_BYTES, "nothing was committed, so nothing is kept");
    else if (version_held(t, &step, &error))
        snprintf(words, HELD_BYTES, "what the store holds cannot be told (%s)", error.message);
    else if (step == HST_NO_VERSION)
        snprintf(words, HELD_BYTES, "the store holds no version yet: the run begins anew");
    else
        snprintf(words, HELD_BYTES,
                 "the store holds step %" PRIu64 ", and --resume goes on from there", step);
}

const char *train_signal_words(const struct train *t)
{
    return is_asked(t) ? strsignal(*t->options->stopped) : "a signal to another rank";
}

int train_tell_stopped(struct train *t)
{
    *t->error = (struct hst_error){0}; /* of what was cut short */
    progress_begin(&t->progress, "stopping");
    t->result.resumable = keeps_versions(t->options);
    const bool alone = t->part.ranks <= 1; /* else all drain, or none does */
    int failed = t->loaded && (alone || t->stop.agreed) ? hst_engine_drain(t->engine, NULL) : 0;
    progress_end(&t->progress);
    char when[96] = "before its first step", held[HELD_BYTES];
    if (!t->result.resumable || t->loaded)
        snprintf(when, sizeof when, "after %" PRIu64 " of %" PRIu64 " step%s", t->done,
                 t->options->steps, text_s(t->options->steps));
    held_words(t, held);
    if (t->stop.agreed ? !voice_is_other() : voice_tells_end()) {
        activity_interrupt();
        say("%sstopped (%s) %s: %s\n", voice_prefix(), train_signal_words(t), when, held);
    }
    train_warn_skipped(t);
    if (!failed)
        return -ECANCELED;
    t->result.resumable = false;
    return train_engine_failed(t, failed, "finishing the last update");
}
