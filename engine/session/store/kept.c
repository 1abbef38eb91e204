/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which versions are copied beside the store (ckpt/keep.h): some of those that are made
 * anyway (--keep), of which a thread makes copies while the run goes on, or the one that a client
 * names. Several ranks make a copy together, between steps, and wait for it.
 */
#include "session/store/kept.h"

#include "base/size_text.h"
#include "ckpt/keep.h"
#include "session/ranks/ranks.h"
#include "session/update_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int kept_refuse(struct hst_engine *engine, const char *why)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "--keep %u: %s", engine->config.keep,
                       why);
}

/* ---- what ranks ask each other ---- */

static int most_of_all(void *context, uint32_t value, uint32_t *most, uint32_t *first)
{
    struct hst_engine *engine = context;
    uint32_t *all = calloc(engine->ranks.ranks, sizeof *all);
    if (!all)
        return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM, "no memory for what ranks say");
    const int rc = ranks_share_all(engine, "a version's copy", &value, all, sizeof value);
    *most = *first = 0;
    for (uint32_t r = 0; r < engine->ranks.ranks && rc == 0; r++)
        if (all[r] > *most) {
            *most = all[r];
            *first = r;
        }
    free(all);
    return rc;
}

static int take_first(void *context, void *bytes, size_t size_bytes)
{
    return ranks_take_first(context, bytes, size_bytes);
}

/* ---- making them ---- */

static int make_keep(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    v->keep_ranks = (struct keep_ranks){engine->ranks.rank, most_of_all, take_first, engine};
    for (uint32_t d = 0; d < engine->drive_count; d++)
        v->keep_paths[d] = engine->drives[d].path;
    struct keep_config config = {.paths = v->keep_paths,
                                 .drives = engine->drive_count,
                                 .count = engine->config.keep,
                                 .fewer = engine->config.keep ? "a smaller --keep"
                                                              : "do without --keep-best",
                                 .ranks = engine->comm ? &v->keep_ranks : NULL,
                                 .replicas = ranks_are_replicas(engine)};
    const int rc = ranks_share_drives(engine, config.sharers);
    if (rc)
        return rc;
    return keep_open(&config, &v->keep)
               ? report_fail(&engine->report, HST_E_BUDGET, -ENOMEM, "no memory for --keep")
               : 0;
}

int kept_open(struct hst_engine *engine)
{
    if (engine->config.keep == 0)
        return engine->config.keep_every == 0
                   ? 0
                   : report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                                 "--keep-every says when to keep a copy, and --keep is not "
                                 "given. Fix: --keep 1");
    if (optimistic_wants_slots(engine))
        return kept_refuse(engine, "an optimistic update needs a version of every step, and none "
                                   "follows while a copy is made. Fix: --update deferred");
    return make_keep(engine);
}

static uint64_t keep_every(const struct hst_engine *engine)
{
    return engine->config.keep_every ? engine->config.keep_every : 1000;
}

/* While a copy is made the version it is of has to stay: none is made behind it. The one that is to
   be copied may itself be on its way still. */
bool kept_waits(const struct hst_engine *engine, uint64_t step)
{
    const struct versions *v = &engine->versions;
    if (engine->config.keep == 0 || engine->comm) /* ranks go on when a copy is there */
        return false;
    const uint64_t next = (v->kept_from / keep_every(engine) + 1) * keep_every(engine);
    const uint64_t copied = (next + v->every - 1) / v->every * v->every;
    return keep_is_copying(v->keep) || (copied >= engine->standing.number && copied < step);
}

static void tell_kept(struct hst_engine *engine, const struct keep_done *done)
{
    char size[SIZE_TEXT_BYTES];
    if (done->error.code)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W623 step %llu was not kept: E%03d %s. The run goes on",
                   (unsigned long long)done->step, done->error.code, done->error.message);
    else
        report_log(&engine->report, HST_LOG_INFO, "I623 step %llu is kept: %s, %s, in %.1f s",
                   (unsigned long long)done->step, size_text(done->bytes, size),
                   done->shared ? "shared with the store" : "copied", done->seconds);
}

void kept_end(struct hst_engine *engine, bool wait)
{
    struct keep_done done;
    if (engine->versions.keep && keep_ended(engine->versions.keep, wait, &done))
        tell_kept(engine, &done);
}

/* Of a version. */
static bool is_to_be_kept(const struct hst_engine *engine, uint64_t step)
{
    const uint64_t every = keep_every(engine);
    return engine->config.keep > 0 && step / every != engine->versions.kept_from / every;
}

/* A version was made. */
void kept_begin(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    if (engine->comm || !is_to_be_kept(engine, v->step))
        return;
    kept_end(engine, true);
    v->kept_from = v->step;
    const int rc = keep_begin(v->keep, v->step, HST_NO_VERSION);
    if (rc)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W623 step %llu was not kept: no thread can be started (%s). The run goes on",
                   (unsigned long long)v->step, strerror(-rc));
}

/* ---- of several ranks ---- */

bool kept_due(const struct hst_engine *engine)
{
    const struct versions *v = &engine->versions;
    const uint64_t step = engine->standing.number;
    return engine->comm && v->store && v->every > 0 && step % v->every == 0 &&
           is_to_be_kept(engine, step);
}

/* All files together are what one process would have copied: rank 0 tells of them. */
static int tell_together(struct hst_engine *engine, struct keep_done *done)
{
    int64_t values[2] = {(int64_t)done->bytes, !done->shared};
    if (done->error.code)
        tell_kept(engine, done);
    if (done->error.code || done->by_other)
        return 0;
    const int rc = ranks_sum(engine, values, 2);
    done->bytes = (uint64_t)values[0];
    done->shared = values[1] == 0;
    if (rc == 0 && ranks_tells(engine))
        tell_kept(engine, done);
    return rc;
}

int kept_follow(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    struct keep_done done;
    if (!engine->comm || !v->store || !is_to_be_kept(engine, v->step))
        return 0;
    v->kept_from = v->step;
    engine->step.is_interrupted = true;
    const int rc = keep_together(v->keep, v->step, HST_NO_VERSION, &done);
    return rc ? rc : tell_together(engine, &done);
}

/* Who has an error ends all: the others wait for that. */
static int instead_together(struct hst_engine *engine, uint64_t instead_of)
{
    struct keep_done done;
    const int rc = keep_together(engine->versions.keep, engine->versions.step, instead_of, &done);
    if (rc)
        return rc;
    if (done.error.code)
        return report_fail_as(&engine->report, &done.error);
    return done.by_other ? ranks_meet(engine) : tell_together(engine, &done);
}

/* ---- the one that a client names ---- */

int kept_instead(struct hst_engine *engine, uint64_t instead_of)
{
    struct versions *v = &engine->versions;
    struct keep_done done;
    if (!v->store || engine->config.keep)
        return report_refuse(&engine->report, "a version is kept beside a store that has some, "
                                              "where --keep does not do so");
    int rc = v->keep ? 0 : make_keep(engine);
    if (rc || engine->comm)
        return rc ? rc : instead_together(engine, instead_of);
    rc = keep_begin(v->keep, v->step, instead_of);
    if (rc)
        return report_fail(&engine->report, HST_E_BUDGET, rc,
                           "no thread can be started to keep step %llu (%s). Fix: end other "
                           "programs",
                           (unsigned long long)v->step, strerror(-rc));
    (void)keep_ended(v->keep, true, &done);
    if (done.error.code)
        return report_fail_as(&engine->report, &done.error);
    tell_kept(engine, &done);
    return 0;
}

void kept_close(struct hst_engine *engine)
{
    if (engine->report.error.code == 0)
        kept_end(engine, true);
    if (engine->versions.keep)
        keep_close(&engine->versions.keep);
}
