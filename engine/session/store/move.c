/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves a store to another number of ranks, to ranks of which each finds others' files, or to such
 * as have large units in slices where it has none, or the other way round: see move.h. Each rank
 * writes its own elements, cut into its own tiles (ckpt/recut.h), to files that have no names yet.
 * They take the place of the old ones once all ranks have voted: docs of store/moved.c.
 */
#include "session/store/move.h"

#include "base/size_text.h"
#include "ckpt/recut.h"
#include "session/ranks/ranks.h"
#include "session/store/left_copies.h"
#include "session/store/shares.h"
#include "store/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 4 }; /* extents on their way: what is read has no place in the plan's table */

struct move {
    struct hst_engine *engine;
    const struct store_config *config;
    struct share_directories *opened; /* [world] of those that are here */
    const struct store_directory **directories;
    struct ckpt_shares shares;
    struct hst_ckpt *ckpt;
    struct recut recut;
    struct hst_error damage; /* the first that this rank has read; code 0: none */
    uint64_t below;          /* see ckpt_shares */
    uint64_t damaged_step;   /* of the newest version */
    struct hst_error error;
};

static int no_memory(struct move *m)
{
    return store_refuse(&m->error, HST_E_BUDGET, -ENOMEM,
                        "no memory for the store's tables. Fix: end other programs");
}

/* ---- the store that is there ---- */

static int take(void *context, uint32_t process, void *memory, size_t bytes)
{
    return ranks_take(context, "a tile of the store", process, memory, bytes);
}

static int open_directories(struct move *m)
{
    const struct shares *shares = &m->engine->shares;
    const uint32_t world = shares->map.world;
    m->opened = calloc(world, sizeof *m->opened);
    m->directories = calloc(world, sizeof *m->directories);
    if (!m->opened || !m->directories)
        return no_memory(m);
    for (uint32_t r = 0; r < world; r++)
        for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
            m->opened[r].list[d].fd = -1;
    for (uint32_t r = 0; r < world; r++) {
        const uint32_t nth = shares_nth(&m->engine->shares, r);
        if (nth == UINT32_MAX)
            continue;
        const int rc = share_directories_open(shares, nth, &m->opened[r], &m->error);
        if (rc)
            return rc;
        m->directories[r] = m->opened[r].list;
    }
    return 0;
}

static int open_version(struct move *m)
{
    const struct hst_engine *engine = m->engine;
    const struct share_map *map = &engine->shares.map;
    m->shares = (struct ckpt_shares){
        .world = map->world,
        .drives = map->drives,
        .processes = engine->ranks.ranks,
        .process = engine->ranks.rank,
        .directories = m->directories,
        .seen = map->seen,
        .hold = true,
        .below = m->below,
        .take = take,
        .context = m->engine,
    };
    int rc = ckpt_open_shares(&m->shares, engine->store, engine->config.io, &m->ckpt, &m->error);
    return rc ? rc : m->config->accept(m->config->accept_context, &m->ckpt->looks[0].about.cursor);
}

/* Files of the node's, in bytes. */
static uint64_t bytes_there(const struct move *m)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < m->shares.world; r++)
        for (uint32_t d = 0; m->directories[r] && d < m->shares.drives; d++)
            bytes += store_bytes_there(m->directories[r][d].path, r, d);
    return bytes;
}

/* It names how large units are, or will be. */
static const char *units_of(const struct hst_engine *engine, bool now)
{
    return (engine->shares.map.slices != 0) == now ? "slices of large units" : "large units whole";
}

/* Where --nvme says how much a node may have, the two are no more than that. */
static int check_budget(struct move *m)
{
    const struct hst_engine *engine = m->engine;
    const uint64_t most = engine->config.nvme_bytes, old = bytes_there(m);
    const uint64_t all = old + engine->placement.nvme_bytes * engine->ranks.locals;
    char is[SIZE_TEXT_BYTES], was[SIZE_TEXT_BYTES], wish[SIZE_TEXT_BYTES];
    if (most == 0 || all <= most)
        return 0;
    if (engine->shares.recut)
        return store_refuse(&m->error, HST_E_DISK_SPACE, -ENOSPC,
                            "the store has %s, and %s beside the %s that it has are needed until "
                            "it is one of %s; --nvme is %s. Fix: a larger --nvme for this start, "
                            "or as much --dram as before",
                            units_of(engine, true), size_text_up(all - old, is),
                            size_text(old, was), units_of(engine, false), size_text(most, wish));
    return store_refuse(&m->error, HST_E_DISK_SPACE, -ENOSPC,
                        "the store is of %u ranks, and %s beside the %s that it has are needed "
                        "until it is one of %u; --nvme is %s. Fix: a larger --nvme for this "
                        "start, or as many ranks as before",
                        m->shares.world, size_text_up(all - old, is), size_text(old, was),
                        engine->ranks.ranks, size_text(most, wish));
}

/* ---- the one that is made ---- */

/* The same elements, whatever units they are of: either may have slices for units. */
static int check_layout(struct move *m)
{
    const struct layout *from = &m->ckpt->layout, *to = &m->engine->layout;
    if (from->elements == to->elements && from->tile_elements == to->tile_elements)
        return 0;
    return store_refuse(&m->error, HST_E_STORE_OTHER, -EINVAL,
                        "the store in %s is of another model, precision or tile size. Fix: resume "
                        "with what it was made with, or give another --store",
                        m->engine->store);
}

static int refuse_write(struct move *m, int rc)
{
    const bool full = rc == -ENOSPC || rc == -EDQUOT;
    return store_refuse(&m->error, full ? HST_E_DISK_SPACE : HST_E_WRITE, rc,
                        "writing a tile of the store for %u ranks in %s failed: %s. Fix: %s",
                        m->engine->ranks.ranks, m->engine->store, strerror(-rc),
                        full ? "free space there" : "check the drive (dmesg, smartctl -a)");
}

static int visit(void *context, struct ckpt_part *part)
{
    struct move *m = context;
    const struct ckpt_extent *extent = &part->extent;
    if (part->error && m->damage.code == 0)
        (void)ckpt_refuse_part(part, &m->damage);
    const int rc = recut_take(&m->recut, extent->kind, extent->range, part->bytes,
                              (extent->entry.flags & STORE_ZERO) != 0);
    return rc ? refuse_write(m, rc) : 0;
}

static int write_tiles(struct move *m, struct store *store)
{
    const struct hst_ckpt_watch watch = {.progress = m->config->progress,
                                         .context = m->config->progress_context};
    const struct ckpt_reading reading = {.share = ranks_share(m->engine),
                                         .layout = &m->engine->layout,
                                         .weights = true,
                                         .states = true,
                                         .depth = DEPTH,
                                         .damaged_come = true,
                                         .visit = visit,
                                         .context = m,
                                         .watch = &watch};
    if (recut_open(&m->recut, &m->engine->layout, &m->ckpt->layout, m->ckpt->optimizer,
                   store_extents(store)))
        return no_memory(m);
    const int rc = ckpt_read(m->ckpt, &reading, &m->error);
    const int late = recut_close(&m->recut);
    return rc == 0 && late ? refuse_write(m, late) : rc;
}

/* The names that the files have yet are on the drives: others' files may get theirs once all have
 * voted, and the old ones are gone then. */
static int sync_names(struct move *m)
{
    int rc = 0;
    for (uint32_t d = 0; d < m->config->drive_count && rc == 0; d++) {
        struct store_directory directory;
        rc = store_directory_open(m->config->drives[d].directory, &directory, &m->error);
        if (rc)
            return rc;
        rc = store_directory_sync(&directory, &m->error);
        const int parent = openat(directory.fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >=
            0) { /* it may be as new as its files; where it is not ours to open, it is not */
            (void)fsync(parent);
            close(parent);
        }
        store_directory_close(&directory);
    }
    return rc;
}

/* All ranks have it, or none: the old store is the one that holds until all have prepared. */
static int commit(struct move *m, struct store *store)
{
    struct extents *extents = store_extents(store);
    int64_t votes = 1;
    int rc = store_commit_begin(store, &m->ckpt->looks[0].about.cursor);
    while (rc == 0 && store_commit_state(store) == STORE_COMMIT_UNDERWAY)
        rc = extents->ops->progress(extents, UINT64_MAX);
    if (rc == 0 && store_commit_state(store) == STORE_COMMIT_PREPARED) {
        rc = sync_names(m);
        rc = rc ? rc : ranks_sum(m->engine, &votes, 1);
    }
    rc = rc ? rc : store_commit_end(store);
    if (rc && store_error(store)->code)
        m->error = *store_error(store);
    return rc;
}

/* What any of them has read as damaged all have: -EBADMSG, with m->error that of the first one. */
static int ask_for_damage(struct move *m)
{
    struct hst_engine *engine = m->engine;
    const uint32_t ranks = engine->ranks.ranks, own = m->damage.code != 0;
    uint32_t *all = calloc(ranks, sizeof *all), first = 0;
    if (!all)
        return no_memory(m);
    int rc = ranks_share_all(engine, "damage", &own, all, sizeof own);
    while (rc == 0 && first < ranks && !all[first])
        first++;
    free(all);
    if (rc || first == ranks)
        return rc;
    rc = ranks_take(engine, "damage", first, &m->damage, sizeof m->damage);
    if (rc)
        return rc;
    m->error = m->damage;
    if (engine->comm)
        snprintf(m->error.message, sizeof m->error.message, "rank %u: %.*s", first,
                 (int)sizeof m->error.message - 20, m->damage.message);
    return -EBADMSG;
}

void store_tell_step_back(struct hst_engine *engine, uint64_t damaged_step, uint64_t step)
{
    if (ranks_tells(engine))
        report_log(&engine->report, HST_LOG_WARNING,
                   "W614 the newest version of the store, of step %llu, is damaged: going on from "
                   "the one before, of step %llu, every byte of which is right",
                   (unsigned long long)damaged_step, (unsigned long long)step);
}

static int make(struct move *m, struct store **store)
{
    int rc = store_create(m->config, store, &m->error);
    rc = rc ? rc : write_tiles(m, *store);
    rc = rc ? rc : ask_for_damage(m);
    if (rc == 0 && m->ckpt->stepped_back && m->below == 0)
        m->damaged_step = m->ckpt->damaged_step;
    if (rc == 0 && (m->below > 0 || m->ckpt->stepped_back))
        store_tell_step_back(m->engine, m->damaged_step, m->ckpt->looks[0].ref.step);
    return rc ? rc : commit(m, *store); /* the old store is gone then */
}

/* From the version before, which is read anew; as damaged as the last one where there is none. */
static int make_of_older(struct move *m, struct store **store)
{
    const struct hst_error error = m->error;
    m->below = m->ckpt->looks[0].ref.version;
    m->damaged_step = m->ckpt->looks[0].ref.step;
    store_close(store);
    store_rooms_close(m->config->rooms, m->config->drive_count); /* the next one opens them again */
    hst_ckpt_close(&m->ckpt);
    m->damage = (struct hst_error){0};
    int rc = open_version(m);
    if (rc && rc != -ECANCELED) {
        m->error = error;
        rc = -EBADMSG;
    }
    return rc ? rc : make(m, store);
}

/* ---- the whole ---- */

static void close_all(struct move *m)
{
    if (m->ckpt)
        hst_ckpt_close(&m->ckpt);
    for (uint32_t r = 0; m->opened && r < m->engine->shares.map.world; r++)
        share_directories_close(&m->opened[r]);
    free(m->opened);
    free(m->directories);
}

static void tell(struct hst_engine *engine)
{
    const uint32_t world = engine->shares.map.world;
    if (engine->shares.recut)
        report_log(&engine->report, HST_LOG_INFO,
                   "I621 the store has %s: it is made one of %s, which this run has room for",
                   units_of(engine, true), units_of(engine, false));
    else
        report_log(&engine->report, HST_LOG_INFO,
                   "I621 the store is of %u rank%s: it is made one of %u", world,
                   world == 1 ? "" : "s", engine->ranks.ranks);
}

int store_move(struct hst_engine *engine, const struct store_config *config, struct store **store)
{
    struct move m = {.engine = engine, .config = config};
    int rc = open_directories(&m);
    rc = rc ? rc : open_version(&m);
    rc = rc ? rc : check_budget(&m);
    rc = rc ? rc : check_layout(&m);
    if (rc == 0 && ranks_tells(engine))
        tell(engine);
    rc = rc ? rc : make(&m, store);
    if (rc == -EBADMSG && m.damage.code) /* else a table is damaged: nothing was opened */
        rc = make_of_older(&m, store);
    if (rc == -EBADMSG) /* all have it: nothing of the new store is left, whoever ends first */
        store_close(store);
    close_all(&m);
    /* whoever still reads the old files has closed them then */
    rc = rc ? rc : ranks_meet(engine);
    engine->shares.recut = engine->shares.recut && rc;
    rc = rc ? rc : left_copies_tell(engine);
    if (rc && rc != -ECANCELED && engine->report.error.code == 0)
        report_fail_as(&engine->report, &m.error);
    return rc;
}
