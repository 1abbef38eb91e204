/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version for another number of ranks. Tiles are what is shared out, so none is opened: each new
 * rank's are read where they were, and written by the store's own code, whose first commit makes
 * them a version. One rank after another, rank 0 last: without its file nothing opens the others,
 * and a mark in the directories keeps a run from beginning anew there where this was killed.
 */
#include "ckpt/ckpt.h"

#include "base/size_text.h"
#include "plan/layout/share.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct target {
    struct hst_ckpt *ckpt;
    char *paths[STRIPE_DRIVES_MAX];
    bool made[STRIPE_DRIVES_MAX]; /* the directory, by this call */
    bool marked[STRIPE_DRIVES_MAX];
    uint32_t drives, world;
    struct placement placement;
    struct store_agreed agreed;
    struct scratch_drive drive[STRIPE_DRIVES_MAX];
    uint64_t done_bytes, total_bytes;
    struct hst_error *error;
};

/* Of one rank, while it is written. */
struct writing {
    struct target *target;
    const struct hst_ckpt_watch *watch;
    struct store *store;
    uint32_t next[STORE_KINDS]; /* the rank's tile that comes next */
};

static int no_memory(struct target *t)
{
    return store_refuse(t->error, HST_E_BUDGET, -ENOMEM,
                        "no memory for the new store's tables. Fix: end other programs");
}

/* ---- what the new store is ---- */

/* The store's code asks a placement for sizes, drives and units: no address is used. */
static int plan(struct target *t)
{
    double rates[STRIPE_DRIVES_MAX];
    for (uint32_t d = 0; d < t->drives; d++)
        rates[d] = 1;
    t->placement = (struct placement){.layout = &t->ckpt->layout, .bytes = t->ckpt->bytes};
    t->placement.units = calloc(t->ckpt->layout.unit_count, sizeof *t->placement.units);
    if (!t->placement.units)
        return no_memory(t);
    stripe_init(&t->placement.stripe, rates, t->drives);
    if (t->world > 0 && t->world <= t->ckpt->layout.tile_count && t->world <= CKPT_RANKS_MAX)
        return 0;
    return store_refuse(t->error, HST_E_VALUE, -EINVAL,
                        "a store of %u tiles can not be shared by %u ranks: each needs one. Fix: "
                        "--world 1 to %u",
                        t->ckpt->layout.tile_count, t->world,
                        t->ckpt->layout.tile_count < CKPT_RANKS_MAX ? t->ckpt->layout.tile_count
                                                                    : CKPT_RANKS_MAX);
}

static int make_directory(struct target *t, uint32_t d)
{
    struct store_directory directory = {.fd = -1};
    t->made[d] = mkdir(t->paths[d], 0700) == 0;
    if (!t->made[d] && errno != EEXIST)
        return store_refuse(t->error, HST_E_STORE_DIR, -errno,
                            "the directory %s can not be made: %s. Fix: another --out", t->paths[d],
                            strerror(errno));
    int rc = store_directory_open(t->paths[d], &directory, t->error);
    if (rc)
        return rc;
    /* Files of any rank, and of any other kind: a new store has its directories to itself. */
    rc = store_directory_is_empty(&directory, t->error);
    rc = rc ? rc : store_directory_take(&directory, t->error);
    rc = rc ? rc : store_unfinished_begin(&directory, t->error);
    t->marked[d] = rc == 0;
    store_directory_close(&directory);
    return rc;
}

/* Before anything is written: two slots of every extent. */
static int check_space(const struct target *t)
{
    struct hst_ckpt_info info;
    struct statvfs fs;
    hst_ckpt_info(t->ckpt, &info);
    for (uint32_t d = 0; d < t->drives; d++) {
        const uint64_t needed = 2 * (info.weights_bytes + info.states_bytes) / t->drives;
        char left[SIZE_TEXT_BYTES], need[SIZE_TEXT_BYTES];
        const bool known = statvfs(t->paths[d], &fs) == 0;
        const uint64_t free_bytes = known ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
        if (free_bytes < needed)
            return store_refuse(t->error, HST_E_DISK_SPACE, -ENOSPC,
                                "%s has %s free, and the new store needs %s there. Fix: free space "
                                "there, or another --out",
                                t->paths[d], size_text(free_bytes, left),
                                size_text_up(needed, need));
    }
    return 0;
}

static int open_drives(struct target *t)
{
    struct hst_aio_config config = {.size = sizeof config, .lock_timeout_ms = 1};
    config.backend = t->ckpt->io == HST_IO_URING     ? HST_AIO_URING
                     : t->ckpt->io == HST_IO_THREADS ? HST_AIO_THREADS
                                                     : HST_AIO_AUTO;
    for (uint32_t d = 0; d < t->drives; d++) {
        t->drive[d].directory = t->paths[d];
        const int rc = hst_aio_open(&config, t->paths[d], &t->drive[d].aio, NULL);
        if (rc)
            return store_refuse(
                t->error, rc == -ENOSPC || rc == -EDQUOT ? HST_E_DISK_SPACE : HST_E_STORE_DIR, rc,
                "%s can not be written to: %s. Fix: another --out", t->paths[d], strerror(-rc));
    }
    return 0;
}

/* ---- one rank ---- */

/* The tiles of this rank come by in its order. */
static int visit(void *context, struct ckpt_part *part)
{
    struct writing *w = context;
    struct target *t = w->target;
    const uint32_t index = w->next[part->extent.kind]++;
    if (part->error)
        return ckpt_refuse_part(part, t->error);
    if (part->extent.entry.flags & STORE_ZERO)
        return 0; /* the new one says that too */
    struct extents *extents = store_extents(w->store);
    const int rc = extents_write(extents, part->extent.kind, index, part->bytes, &part->write);
    if (rc)
        *t->error = *store_error(w->store);
    return rc;
}

static int progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct writing *w = context;
    const struct hst_ckpt_watch *watch = w->watch;
    (void)total_bytes; /* of this rank */
    return watch->progress(watch->context, w->target->done_bytes + done_bytes,
                           w->target->total_bytes);
}

static int commit(struct target *t, struct store *store)
{
    struct extents *extents = store_extents(store);
    int rc = store_commit_begin(store, &t->ckpt->looks[0].about.cursor);
    while (rc == 0 && store_commit_state(store) == STORE_COMMIT_UNDERWAY)
        rc = extents->ops->progress(extents, UINT64_MAX);
    rc = rc ? rc : store_commit_end(store);
    if (rc)
        *t->error = *store_error(store);
    return rc;
}

static int write_rank(struct target *t, uint32_t rank, const struct hst_ckpt_watch *watch)
{
    struct writing w = {.target = t, .watch = watch};
    const struct store_config config = {
        .drives = t->drive,
        .drive_count = t->drives,
        .placement = &t->placement,
        .rank = rank,
        .world = t->world,
        .agreed = &t->agreed,
        .marked = true,
        .derived_weights = t->ckpt->derived_weights,
    };
    int rc = store_create(&config, &w.store, t->error);
    if (rc)
        return rc;
    const struct hst_ckpt_watch of_rank = {.progress = progress, .context = &w};
    const struct ckpt_reading reading = {
        .share = {rank, t->world},
        .weights = true,
        .states = true,
        .visit = visit,
        .context = &w,
        .sink = store_extents(w.store),
        .watch = watch && watch->progress ? &of_rank : NULL,
    };
    rc = ckpt_read(t->ckpt, &reading, t->error);
    rc = rc ? rc : commit(t, w.store);
    t->done_bytes += store_extents(w.store)->counters.written_bytes;
    store_close(&w.store); /* without a commit nothing of it remains */
    return rc;
}

/* ---- the whole ---- */

/* Rank 0's file is there, or none of this call's. */
static void unmark(struct target *t, uint32_t d)
{
    struct hst_error ignored;
    struct store_directory directory;
    if (!t->marked[d] || store_directory_open(t->paths[d], &directory, &ignored))
        return;
    store_unfinished_end(&directory);
    store_directory_close(&directory);
}

/* What was made before something failed: ranks from `first` on, directories. */
static void discard(struct target *t, uint32_t first)
{
    char path[4096], name[STORE_NAME_BYTES];
    for (uint32_t d = 0; d < t->drives; d++) {
        for (uint32_t rank = first; rank < t->world; rank++) {
            store_file_name(rank, d, false, name);
            snprintf(path, sizeof path, "%s/%s", t->paths[d], name);
            (void)unlink(path);
        }
        unmark(t, d);
        if (t->made[d])
            (void)rmdir(t->paths[d]);
    }
}

static int prepare(struct target *t)
{
    int rc = plan(t);
    for (uint32_t d = 0; d < t->drives && rc == 0; d++)
        rc = make_directory(t, d);
    rc = rc ? rc : check_space(t);
    rc = rc ? rc : store_draw_id(&t->agreed.uuid, t->error);
    rc = rc ? rc : store_draw_id(&t->agreed.incarnation, t->error);
    return rc ? rc : open_drives(t);
}

static void close_all(struct target *t)
{
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++) {
        hst_aio_close(&t->drive[d].aio);
        free(t->paths[d]);
    }
    free(t->placement.units);
}

int hst_ckpt_reshard(struct hst_ckpt *ckpt, const char *store, uint32_t world,
                     const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    struct target t = {.ckpt = ckpt, .world = world, .error = error};
    struct hst_ckpt_info info;
    hst_ckpt_info(ckpt, &info);
    t.total_bytes = info.weights_bytes + info.states_bytes;
    int rc = ckpt_split(store, t.paths);
    t.drives = rc > 0 ? (uint32_t)rc : 0;
    rc = rc > 0
             ? prepare(&t)
             : store_refuse(error, HST_E_VALUE, rc,
                            "'%.200s' are not 1 to %u directories between commas. Fix: name them "
                            "so",
                            store, STRIPE_DRIVES_MAX);
    uint32_t rank = world; /* those from here on are written */
    for (; rc == 0 && rank > 0; rank--)
        rc = write_rank(&t, rank - 1, watch);
    if (rc)
        discard(&t, rank);
    for (uint32_t d = 0; d < t.drives && rc == 0; d++)
        unmark(&t, d);
    close_all(&t);
    return rc;
}
