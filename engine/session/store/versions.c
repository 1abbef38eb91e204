/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the executor with the store. What is at home on drives is written there by every update;
 * what is at home in memory is written when a version is made.
 */
#include "session/store/versions.h"

#include "base/clock.h"
#include "base/size_text.h"
#include "ckpt/ckpt.h"
#include "ckpt/version_text.h"
#include "exec/tiles/memory.h"
#include "exec/tiles/tile_stream.h"
#include "session/ranks/ranks.h"
#include "session/store/failure.h"
#include "session/store/kept.h"
#include "session/store/move.h"
#include "session/store/other_run.h"
#include "session/store/shares.h"
#include "session/store/store_ranks.h"
#include "store/room.h"

#include <errno.h>
#include <hoistway/machine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARE_MOST 0.01 /* of the time that versions may take where they take any */

/* ---- which steps ---- */

int versions_configure(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    const char *text = engine->config.durability ? engine->config.durability : "auto";
    char why[400];
    /* a plan may have drives without directories */
    bool drives = engine->config.store || (engine->config.plan && engine->config.nvme_bytes > 0);
    bool store = drives && !engine->config.io_model;
    v->every = strcmp(text, "step") == 0 ? 1 : 0;
    if (strcmp(text, "none") == 0 || (!store && strcmp(text, "auto") == 0))
        return 0;
    if (!store)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "durability %s needs a --store on real drives. Fix: give one", text);
    if (strcmp(text, "auto") != 0 && v->every == 0) {
        static const struct hst_option steps = {
            .name = "durability", .type = HST_OPTION_COUNT, .least = 1, .greatest = 1e9};
        if (hst_option_parse(&steps, text, &v->every, why, sizeof why))
            return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                               "durability is auto, step, none or a number of steps: %s. Fix: "
                               "--durability step",
                               why);
    }
    engine->plan_in.stored = true;
    engine->plan_in.derived_weights = engine->config.precision == HST_PRECISION_FP16;
    return 0;
}

/* True where nothing has to be written for a version but what the update writes anyway. */
static bool all_on_drives(const struct hst_engine *engine)
{
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        const struct unit_placement *home = &engine->placement.units[u];
        bool weights = home->weights.tier != HST_TIER_NVME && !engine->plan_in.derived_weights;
        if (home->tile_count > 0 && !engine->layout.units[u].frozen &&
            (weights || home->nvme_states < home->tile_count))
            return false; /* on whichever rank */
    }
    return true;
}

int versions_check(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    if (!engine->plan_in.stored)
        return engine->config.keep ? kept_refuse(engine, "no version is made that could be kept. "
                                                         "Fix: --store, and another --durability")
                                   : 0;
    if (v->every == 0 && all_on_drives(engine))
        v->every = 1;
    v->cursors = calloc(2 + SCHEDULER_WINDOWS, VERSIONS_CURSOR_BYTES);
    if (!v->cursors)
        return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM, "no memory for the cursor");
    v->last.cursor = v->cursors;
    v->next.cursor = v->cursors + VERSIONS_CURSOR_BYTES;
    for (size_t i = 0; i < SCHEDULER_WINDOWS; i++)
        v->of_step_window[i].cursor = v->cursors + (2 + i) * VERSIONS_CURSOR_BYTES;
    v->last.scale = engine->standing.scale;
    return kept_open(engine);
}

uint64_t versions_last(const struct hst_engine *engine)
{
    const struct versions *v = &engine->versions;
    return v->store && store_version(v->store) != STORE_NO_VERSION ? v->step : HST_NO_VERSION;
}

bool versions_due(const struct hst_engine *engine, uint64_t step)
{
    const struct versions *v = &engine->versions;
    return v->store && v->every > 0 && step > v->step && step % v->every == 0 &&
           !kept_waits(engine, step);
}

unsigned versions_phases(const struct hst_engine *engine, uint64_t step)
{
    if (versions_due(engine, step))
        return (unsigned)PHASE_SAVE | PHASE_COMMIT;
    return !engine->plan_in.stored && engine_is_optimistic(engine) ? PHASE_COMMIT : 0;
}

unsigned versions_phases_simulated(const struct hst_engine *engine)
{
    if (!engine->plan_in.stored)
        return PHASE_COMMIT;
    return engine->versions.every == 1 ? (unsigned)PHASE_SAVE | PHASE_COMMIT : 0;
}

uint64_t versions_interval(double save_s, double step_s)
{
    double steps = ceil(save_s / (SHARE_MOST * step_s));
    return steps < 1 ? 1 : steps > 1e9 ? 1000000000 : (uint64_t)steps;
}

/* It is of seconds, so that two digits at least say something. */
static int decimals(double s)
{
    return s >= 10 ? 0 : s >= 1 ? 1 : s >= 0.1 ? 2 : 4;
}

/* Chosen when a step has shown what it takes: by what the bytes took that a version needs. */
static void choose_interval(struct hst_engine *engine, double step_s)
{
    struct versions *v = &engine->versions;
    double save_s = v->save_s;
    if (engine->comm) { /* the mean of all ranks, of the step before */
        step_s = (double)engine->words[WORD_STEP_NS] / 1e9 / engine->ranks.ranks;
        save_s = (double)engine->words[WORD_SAVE_NS] / 1e9 / engine->ranks.ranks;
    }
    if (!v->store || v->every > 0 || engine->standing.number < v->first_step + 2 || !(step_s > 0))
        return;
    v->every = versions_interval(save_s, step_s);
    report_log(&engine->report, HST_LOG_INFO,
               "I620 a version every %llu steps: what it needs from memory takes %.*f s, a step "
               "%.*f s",
               (unsigned long long)v->every, decimals(save_s), save_s, decimals(step_s), step_s);
}

void versions_cursor(struct hst_engine *engine, bool first, const void *cursor, size_t bytes)
{
    struct version_note *note = first ? &engine->versions.last : &engine->versions.next;
    if (!note->cursor)
        return;
    note->cursor_bytes = (uint32_t)bytes;
    if (bytes > 0)
        memcpy(note->cursor, cursor, bytes);
}

void versions_step_ended(struct hst_engine *engine, double step_s)
{
    struct versions *v = &engine->versions;
    struct version_note *note = &v->last;
    if (!v->cursors)
        return;
    note->step = engine->standing.number;
    note->updates = engine->standing.updates;
    note->scale = engine->standing.scale;
    note->cursor_bytes = v->next.cursor_bytes;
    memcpy(note->cursor, v->next.cursor, note->cursor_bytes);
    choose_interval(engine, step_s);
    kept_end(engine, false);
}

/* ---- what a version says beside the bytes ---- */

/* [length u32][description][client's cursor] */
static void encode_cursor(const struct hst_engine *engine, const struct version_note *note,
                          struct store_cursor *cursor, unsigned char *opaque)
{
    char *settings = (char *)opaque + sizeof(uint32_t);
    version_settings_write(&engine->config, &engine->layout, settings, VERSION_SETTINGS_BYTES);
    uint32_t length = version_math_write(engine->math, settings, VERSION_SETTINGS_BYTES);
    memcpy(opaque, &length, sizeof length);
    memcpy(opaque + sizeof length + length, note->cursor, note->cursor_bytes);
    *cursor = (struct store_cursor){
        .step = note->step,
        .updates = note->updates,
        .loss_scale = note->scale.value,
        .good_steps = note->scale.good_steps,
        .opaque = opaque,
        .opaque_bytes = (uint32_t)(sizeof length + length + note->cursor_bytes),
    };
}

static int decode_cursor(struct hst_engine *engine, const struct store_cursor *cursor)
{
    struct versions *v = &engine->versions;
    struct version_note *note = &v->last;
    char is[VERSION_SETTINGS_BYTES], was[VERSION_SETTINGS_BYTES] = "";
    struct version_text text;
    version_settings_write(&engine->config, &engine->layout, is, sizeof is);
    if (!version_text_split(cursor, &text) || text.settings_bytes >= sizeof was ||
        text.cursor_bytes > VERSIONS_CURSOR_BYTES)
        return report_fail(&engine->report, HST_E_STORE_FORMAT, -EINVAL,
                           "the store's cursor is not this engine's. Fix: resume with the "
                           "version of hoistway that wrote it");
    memcpy(was, text.settings, text.settings_bytes);
    version_math_take(was, v->math, sizeof v->math);
    const unsigned news = version_settings_take_news(was, is);
    int rc = other_run_refuse(engine, was, is);
    if (rc)
        return rc;
    other_run_tell_news(engine, news);
    note->cursor_bytes = text.cursor_bytes;
    memcpy(note->cursor, text.cursor, note->cursor_bytes);
    note->step = cursor->step;
    note->updates = engine->standing.updates = cursor->updates;
    note->scale = engine->standing.scale =
        (struct loss_scale){cursor->loss_scale, cursor->good_steps};
    engine->standing.number = v->step = v->first_step = v->kept_from = cursor->step;
    return 0;
}

/* ---- making one ---- */

static int begin(struct hst_engine *engine, const struct version_note *note)
{
    struct versions *v = &engine->versions;
    struct store_cursor cursor;
    unsigned char opaque[sizeof(uint32_t) + VERSION_SETTINGS_BYTES + VERSIONS_CURSOR_BYTES];
    kept_end(engine, true); /* it was promised before there was a copy to wait for */
    encode_cursor(engine, note, &cursor, opaque);
    v->making = note->step;
    int rc = store_commit_begin(v->store, &cursor);
    return rc ? engine_fail_extents(engine, rc) : 0;
}

/* Without a store all that is on drives is scratch, and what updates have written stands. */
static void settle(struct hst_engine *engine)
{
    if (engine->extents && !engine->versions.store)
        scratch_settle(engine->extents);
}

int versions_revert(struct hst_engine *engine)
{
    int rc = engine->versions.store ? store_revert(engine->versions.store)
             : engine->extents      ? scratch_revert(engine->extents)
                                    : 0;
    return rc ? engine_fail_extents(engine, rc) : 0;
}

int versions_begin(struct hst_engine *engine, uint64_t step_window, bool *made)
{
    *made = !engine->versions.store;
    if (*made) {
        settle(engine);
        return 0;
    }
    return begin(engine, &engine->versions.of_step_window[step_window % SCHEDULER_WINDOWS]);
}

void versions_window_begins(struct hst_engine *engine, uint64_t step_window)
{
    struct versions *v = &engine->versions;
    struct version_note *note = &v->of_step_window[step_window % SCHEDULER_WINDOWS];
    unsigned char *cursor = note->cursor;
    if (!v->cursors)
        return;
    *note = v->last;
    note->cursor = cursor;
    memcpy(cursor, v->last.cursor, v->last.cursor_bytes);
}

int versions_poll(struct hst_engine *engine, bool *made)
{
    struct versions *v = &engine->versions;
    const struct hst_error *error = store_error(v->store);
    *made = false;
    if (error->code)
        return report_fail_as(&engine->report, error);
    if (store_commit_state(v->store) != STORE_COMMIT_PREPARED)
        return 0;
    *made = true;
    return engine->comm ? 0 : versions_committed(engine); /* with others: when all are as far */
}

int versions_committed(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    int rc = store_commit_end(v->store);
    if (rc)
        return engine_fail_extents(engine, rc);
    v->step = v->making;
    kept_begin(engine);
    return 0;
}

/* Between steps, when no step graph carries a vote. */
static int vote(struct hst_engine *engine)
{
    int64_t votes = 1;
    int rc = engine->comm ? ranks_sum(engine, &votes, 1) : 0;
    return rc || !engine->comm ? rc : versions_committed(engine);
}

static int wait_for_one(struct hst_engine *engine)
{
    int rc = engine->extents->ops->progress(engine->extents, UINT64_MAX);
    return rc ? engine_fail_extents(engine, rc) : 0;
}

int versions_now(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    bool made = false;
    if (!v->store || versions_last(engine) == engine->standing.number)
        return 0;
    double start_s = clock_seconds();
    int rc = memory_move(&engine->exec, memory_to_store(versions_last(engine) == HST_NO_VERSION));
    rc = rc ? rc : begin(engine, &v->last);
    while (rc == 0 && !made) {
        rc = versions_poll(engine, &made);
        if (rc == 0 && !made)
            rc = wait_for_one(engine);
    }
    rc = rc ? rc : vote(engine);
    v->save_s = clock_seconds() - start_s;
    return rc;
}

int versions_instead(struct hst_engine *engine)
{
    settle(engine);
    return versions_due(engine, engine->standing.number) ? versions_now(engine) : 0;
}

/* ---- opening ---- */

static int fail_join(struct hst_engine *engine, int native)
{
    store_close(&engine->versions.store); /* nobody else has it */
    return report_fail(&engine->report, HST_E_BUDGET, native,
                       "no memory for the store. Fix: end other programs");
}

/* This is what a store is opened with. */
struct opened_with {
    struct store_peers peers;
    struct store_agreed agreed;
    struct scratch_drive drives[STRIPE_DRIVES_MAX];
    struct store_room rooms[STRIPE_DRIVES_MAX];
};

/* Scratch, where there is any, goes on beside it, in the room that came with it. */
static int join_extents(struct hst_engine *engine, const struct opened_with *with)
{
    struct hst_aio *aio[2 * STRIPE_DRIVES_MAX];
    struct scratch_drive drives[STRIPE_DRIVES_MAX];
    uint32_t count = 0, at;
    bool scratch = false;
    struct extents *store = store_extents(engine->versions.store), *beside;
    engine->extents = store;
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        const struct drive *drive = &engine->drives[d];
        const struct store_room *room = &with->rooms[d];
        drives[d] = (struct scratch_drive){drive->aio, drive->path, room->file, STORE_ROOM_AT};
        scratch = scratch || room->file;
        aio[count++] = drive->store_aio;
        if (drive->aio)
            aio[count++] = drive->aio;
    }
    if (!scratch)
        return 0;
    engine->extents = NULL;
    int rc = scratch_open(drives, engine->drive_count, &engine->placement, &at, &beside);
    if (rc)
        return fail_join(engine, rc);
    rc = route_open(store, beside, aio, count, &engine->extents);
    if (rc == 0)
        return 0;
    beside->ops->close(beside);
    return fail_join(engine, rc);
}

static int join(struct hst_engine *engine, const struct opened_with *with)
{
    int rc = join_extents(engine, with);
    executor_attach(&engine->exec, engine->extents, engine->resident);
    return rc;
}

static void tell_waiting(void *context, const char *directory, const char *name, uint32_t most_s)
{
    struct hst_engine *engine = context;
    report_log(&engine->report, HST_LOG_WARNING,
               "W611 %s/%s is in use by another process: waiting for it, %u s at most (fuser tells "
               "which it is)",
               directory, name, most_s);
}

static struct store_config config_of(struct hst_engine *engine, struct opened_with *with)
{
    *with = (struct opened_with){.peers = store_ranks_peers(engine)};
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        const struct drive *drive = &engine->drives[d];
        with->drives[d] = (struct scratch_drive){drive->store_aio, drive->path, NULL, 0};
        const uint64_t bytes = engine->placement.drive_bytes[d];
        with->rooms[d] = (struct store_room){.aio = drive->aio, .bytes = bytes};
    }
    return (struct store_config){.peers = engine->comm ? &with->peers : NULL,
                                 .replica = ranks_are_replicas(engine) ? engine->ranks.rank : 0,
                                 .agreed = engine->comm ? &with->agreed : NULL,
                                 .drives = with->drives,
                                 .rooms = with->rooms,
                                 .rates = engine->plan_in.drive_rates,
                                 .drive_count = engine->drive_count,
                                 .placement = &engine->placement,
                                 .derived_weights = engine->plan_in.derived_weights,
                                 .waits = tell_waiting,
                                 .waits_context = engine,
                                 .revertible = engine_is_optimistic(engine) || engine->chooses};
}

int versions_create(struct hst_engine *engine)
{
    struct opened_with with;
    struct hst_error error = {0};
    if (!engine->plan_in.stored)
        return 0;
    const struct store_config config = config_of(engine, &with);
    int rc = engine->comm ? store_ranks_none_there(engine) : 0;
    rc = rc || !engine->comm ? rc : store_ranks_ids(engine, &with.agreed);
    if (rc)
        return rc;
    rc = store_create(&config, &engine->versions.store, &error);
    return rc ? report_fail_as(&engine->report, &error) : join(engine, &with);
}

/* Working weights in fp16 are their masters, rounded. */
static int derive_visit(struct executor *exec, void *context, const struct tile_job *jobs,
                        uint32_t count)
{
    (void)context;
    for (uint32_t i = 0; i < count; i++)
        optimizer_derive(&exec->in.kernel, &jobs[i].arrays, jobs[i].range.elements);
    return 0;
}

int versions_derive(struct hst_engine *engine)
{
    return tile_stream(&engine->exec, TILE_READ_STATES | TILE_WRITE_WEIGHTS, derive_visit, NULL);
}

static void tell_found(struct hst_engine *engine, const struct store_found *found)
{
    struct report *r = &engine->report;
    char size[SIZE_TEXT_BYTES];
    if (found->stepped_back)
        store_tell_step_back(engine, found->damaged_step, found->step);
    if (!found->stepped_back && found->superblock_damaged)
        report_log(r, HST_LOG_WARNING,
                   "W614 a superblock of the store is damaged (a power cut in a commit, or the "
                   "drive): going on from the newest version that can be found, every byte of "
                   "which is right");
    if (found->repaired > 0)
        report_log(r, HST_LOG_WARNING,
                   "W614 %u damaged copies of the store's tables were written anew: check the "
                   "drive (dmesg, smartctl -a)",
                   found->repaired);
    if (!found->clean || found->unfinished)
        report_log(r, HST_LOG_INFO,
                   "I621 the last run did not end in order: %s were read and compared%s",
                   size_text(found->verified_bytes, size),
                   found->unfinished ? "; not all ranks have its newest version" : "");
}

/* The engine's own lines first, then the client. */
static int accept(void *context, const struct store_cursor *cursor)
{
    struct hst_engine *engine = context;
    const struct hst_config *c = &engine->config;
    const struct version_note *note = &engine->versions.last;
    int rc = decode_cursor(engine, cursor);
    if (rc || !c->accept || note->step == 0 ||
        c->accept(c->accept_context, note->step, note->cursor, note->cursor_bytes))
        return rc;
    return report_fail(&engine->report, HST_E_STORE_OTHER, -EINVAL,
                       "the version of step %llu is refused by the program that resumes. Fix: the "
                       "options of that run, or another --store",
                       (unsigned long long)note->step);
}

/* While the store is compared, of which a tile has been read. */
static int compared(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct hst_engine *engine = context;
    const struct hst_config *c = &engine->config;
    if (c->progress)
        c->progress(c->progress_context, done_bytes, total_bytes);
    return engine_stopped(engine);
}

/* The files that all ranks find are a store's. -ENOENT: there is none, of one rank none that was
   looked for alone. */
static int find(struct hst_engine *engine)
{
    const struct shares *shares = &engine->shares;
    if (shares->map.fate == SHARE_NONE && shares->error.code && engine->comm)
        return report_fail_as(&engine->report, &shares->error);
    if (shares->map.fate == SHARE_NONE && shares->stray.code)
        return report_fail_as(&engine->report, &shares->stray);
    const int rc = shares_name(engine);
    return rc == -ENOENT && !engine->comm ? 0 : rc;
}

/* Its id is what that of the store before comes to, for so many ranks. */
static int move_store(struct hst_engine *engine, struct store_config *config,
                      struct store_agreed *agreed)
{
    struct share_map *map = &engine->shares.map;
    config->agreed = agreed;
    config->replaces = true;
    int rc = store_ranks_ids(engine, agreed);
    agreed->uuid = store_moved_id(&map->uuid, engine->ranks.ranks);
    if (rc)
        return rc;
    shares_clean(engine, &map->uuid, map->world); /* what a move that was cut off has left */
    rc = ranks_meet(engine);                      /* before any rank makes files of these names */
    rc = rc ? rc : store_move(engine, config, &engine->versions.store);
    if (rc)
        return rc;
    map->fate = SHARE_OWN;
    map->uuid = agreed->uuid;
    shares_clean(engine, &map->uuid, engine->ranks.ranks);
    return 0;
}

/* Errors: as store_open's, recorded but for -ENOENT and -ECANCELED. */
static int open_own(struct hst_engine *engine, struct store_config *config,
                    struct store_agreed *agreed)
{
    struct versions *v = &engine->versions;
    struct hst_error error = {0};
    struct store_found found;
    int rc = engine->comm ? store_ranks_ids(engine, agreed) : 0;
    rc = rc ? rc : store_open(config, &v->store, &found, &error);
    if (rc == -ECANCELED || (rc == -ENOENT && !engine->comm))
        return rc;
    if (rc)
        return engine->report.error.code ? engine->report.error.native
                                         : report_fail_as(&engine->report, &error);
    tell_found(engine, &found);
    shares_clean(engine, &engine->shares.map.uuid, engine->ranks.ranks);
    return 0;
}

int versions_open(struct hst_engine *engine)
{
    struct versions *v = &engine->versions;
    struct opened_with with;
    if (!engine->plan_in.stored)
        return report_fail(
            &engine->report, HST_E_VALUE, -EINVAL,
            "there is no store to resume from: --durability none, or no --store. Fix: the --store "
            "of that run, without --durability none");
    if (kept_is_copy(engine->config.store))
        return report_fail(&engine->report, HST_E_STORE_TAKEN, -EINVAL,
                           "%s is a copy that the store around it keeps, and has one slot of each "
                           "extent. Fix: hoistway ckpt reshard --world 1 --out DIR makes a store "
                           "of it",
                           engine->config.store);
    struct store_config config = config_of(engine, &with);
    config.accept = accept;
    config.accept_context = engine;
    config.progress = compared;
    config.progress_context = engine;
    int rc = find(engine);
    if (rc == 0)
        rc = shares_move(engine) ? move_store(engine, &config, &with.agreed)
                                 : open_own(engine, &config, &with.agreed);
    rc = rc ? rc : join(engine, &with);
    if (rc)
        return rc;
    other_run_tell_math(engine, engine->versions.math);
    double start_s = clock_seconds();
    rc = memory_move(&engine->exec, MEMORY_RESUMED);
    v->save_s = clock_seconds() - start_s;
    return rc || !engine->plan_in.derived_weights ? rc : versions_derive(engine);
}
