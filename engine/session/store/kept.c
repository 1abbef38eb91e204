/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which versions are copied beside the store (ckpt/keep.h): some of those that are made
 * anyway (--keep), of which a thread makes copies while the run goes on, or the one that a client
 * names.
 */
#include "session/store/kept.h"

#include "base/size_text.h"
#include "ckpt/keep.h"
#include "session/update_time.h"

#include <errno.h>
#include <string.h>

int kept_refuse(struct hst_engine *engine, const char *why)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "--keep %u: %s", engine->config.keep,
                       why);
}

static int make_keep(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    for (uint32_t d = 0; d < engine->drive_count; d++)
        v->keep_paths[d] = engine->drives[d].path;
    const struct keep_config config = {.paths = v->keep_paths,
                                       .drives = engine->drive_count,
                                       .count = engine->config.keep,
                                       .fewer = engine->config.keep ? "a smaller --keep"
                                                                    : "do without --keep-best"};
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
    if (engine->config.keep == 0)
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

/* A version was made. */
void kept_begin(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    const uint64_t every = keep_every(engine);
    if (engine->config.keep == 0 || v->step / every == v->kept_from / every)
        return;
    kept_end(engine, true);
    v->kept_from = v->step;
    const int rc = keep_begin(v->keep, v->step, HST_NO_VERSION);
    if (rc)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W623 step %llu was not kept: no thread can be started (%s). The run goes on",
                   (unsigned long long)v->step, strerror(-rc));
}

int kept_instead(struct hst_engine *engine, uint64_t instead_of)
{
    struct versions *v = &engine->versions;
    struct keep_done done;
    if (!v->store || engine->config.keep)
        return report_refuse(&engine->report, "a version is kept beside a store that has some, "
                                              "where --keep does not do so");
    int rc = v->keep ? 0 : make_keep(engine);
    if (rc)
        return rc;
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
