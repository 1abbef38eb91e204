/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version for another number of ranks. Each new rank's elements are read where they were,
 * compared with their hashes, and cut into the rank's own tiles (recut.h), which the store's own
 * code writes and hashes anew; its first commit makes them a version. One rank is written after
 * another, rank 0 last: without its file nothing opens the others, and a mark in the directories
 * keeps a run from beginning anew there where this was killed.
 */
#include "ckpt/recut.h"
#include "ckpt/reshard_room.h"

#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct target {
    struct hst_ckpt *ckpt;
    char *paths[STRIPE_DRIVES_MAX];
    bool made[STRIPE_DRIVES_MAX]; /* the directory, by this call; of several ranks by any of them */
    bool there[STRIPE_DRIVES_MAX]; /* of several: it was before */
    bool marked[STRIPE_DRIVES_MAX];
    uint32_t drives, world;
    struct layout layout; /* of the rank that is written: the version's units, without names */
    struct placement placement;
    struct store_agreed agreed;
    struct scratch_drive drive[STRIPE_DRIVES_MAX];
    uint64_t done_bytes, total_bytes;
    struct hst_error *error;
};

/* It holds one rank, while that is written. */
struct writing {
    struct target *target;
    const struct hst_ckpt_watch *watch;
    struct recut recut;
    struct hst_error failure; /* of several ranks: why this one has nothing to name; code 0: none */
};

static int no_memory(struct target *t)
{
    return store_refuse(t->error, HST_E_BUDGET, -ENOMEM,
                        "no memory for the new store's tables. Fix: end other programs");
}

/* ---- what the new store is ---- */

static uint64_t largest_row(const struct layout *layout)
{
    uint64_t largest = 0;
    for (uint32_t u = 0; u < layout->unit_count; u++)
        largest = layout->units[u].elements > largest ? layout->units[u].elements : largest;
    return largest;
}

/* More would have nothing of any unit. */
static uint64_t most_ranks(const struct layout *layout)
{
    const uint64_t blocks = largest_row(layout) / LAYOUT_UNIT_ALIGN;
    return blocks < CKPT_RANKS_MAX ? blocks : CKPT_RANKS_MAX;
}

/* The store's code asks a placement for sizes, drives and units: no address is used. */
static int plan(struct target *t)
{
    double rates[STRIPE_DRIVES_MAX];
    for (uint32_t d = 0; d < t->drives; d++)
        rates[d] = 1;
    const size_t units = t->ckpt->layout.unit_count;
    t->placement = (struct placement){.layout = &t->layout, .optimizer = t->ckpt->optimizer};
    t->placement.units = calloc(units, sizeof *t->placement.units);
    t->layout = (struct layout){.unit_count = (uint32_t)units, .slices = t->ckpt->layout.slices};
    t->layout.units = calloc(units, sizeof *t->layout.units);
    if (!t->placement.units || !t->layout.units)
        return no_memory(t);
    for (size_t u = 0; u < units; u++) {
        t->layout.units[u].elements = t->ckpt->layout.units[u].elements;
        t->layout.units[u].frozen = t->ckpt->layout.units[u].frozen;
    }
    stripe_init(&t->placement.stripe, rates, t->drives);
    const uint64_t most = most_ranks(&t->layout);
    if (t->world > 0 && t->world <= most)
        return 0;
    return store_refuse(t->error, HST_E_VALUE, -EINVAL,
                        "a store of this model cannot be shared by %u ranks: its largest unit has "
                        "%llu elements, and a rank's least part is %u. Fix: --world 1 to %llu",
                        t->world, (unsigned long long)largest_row(&t->layout), LAYOUT_UNIT_ALIGN,
                        (unsigned long long)most);
}

/* Several ranks may have one directory, which all of them have found empty. */
static int mark(const struct target *t, const struct store_directory *directory)
{
    const int rc = store_unfinished_begin(directory, t->error);
    if (rc != -EEXIST || !t->ckpt->shares)
        return rc;
    *t->error = (struct hst_error){0};
    return 0;
}

static int make_directory(struct target *t, uint32_t d)
{
    struct store_directory directory = {.fd = -1};
    t->made[d] = mkdir(t->paths[d], 0700) == 0;
    if (!t->made[d] && errno != EEXIST)
        return store_refuse(t->error, HST_E_STORE_DIR, -errno,
                            "the directory %s cannot be made: %s. Fix: another --out", t->paths[d],
                            strerror(errno));
    int rc = store_directory_open(t->paths[d], &directory, t->error);
    if (rc)
        return rc;
    /* Files of any rank, and of any other kind: a new store has its directories to itself. */
    rc = store_directory_is_empty(&directory, t->error);
    store_directory_close(&directory);
    return rc;
}

/* Files of two drives would have one directory, which holds those of one. */
static int check_distinct(const struct target *t)
{
    struct stat of[STRIPE_DRIVES_MAX];
    for (uint32_t d = 0; d < t->drives; d++) {
        if (stat(t->paths[d], &of[d]))
            return store_refuse(t->error, HST_E_STORE_DIR, -errno,
                                "the directory %s cannot be looked at: %s. Fix: another --out",
                                t->paths[d], strerror(errno));
        for (uint32_t o = 0; o < d; o++)
            if (of[o].st_dev == of[d].st_dev && of[o].st_ino == of[d].st_ino)
                return store_refuse(t->error, HST_E_VALUE, -EINVAL,
                                    "'%.150s' and '%.150s' are one directory, and the new store "
                                    "has one for each of %u drives. Fix: name each once",
                                    t->paths[o], t->paths[d], t->drives);
    }
    return 0;
}

/* Both are there. */
static bool lies_in(const char *path, const char *directory, bool above)
{
    char *inner = realpath(path, NULL), *outer = realpath(directory, NULL);
    char *end = outer && above ? strrchr(outer, '/') : NULL;
    if (end)
        *end = '\0';
    const size_t n = outer ? strlen(outer) : 0;
    const bool in =
        inner && outer && strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0');
    free(inner);
    free(outer);
    return in;
}

/* Words have become numbers: what they mean together this process alone can tell. */
static int check_outside(const struct target *t)
{
    const struct hst_ckpt *ckpt = t->ckpt;
    for (uint32_t rank = 0; rank < ckpt->world; rank++) {
        const struct store_directory *of_rank = ckpt->shares->directories[rank];
        for (uint32_t i = 0; of_rank && i < ckpt->drives * t->drives; i++) {
            const char *out = t->paths[i / ckpt->drives], *in = of_rank[i % ckpt->drives].path;
            if (lies_in(out, in, ckpt->kept)) /* a copy lies in the store itself */
                return store_refuse(t->error, HST_E_VALUE, -EINVAL,
                                    "'%.150s' is in the store's directory '%.150s', which holds "
                                    "its own files alone. Fix: another --out",
                                    out, in);
        }
    }
    return 0;
}

static int mark_directory(struct target *t, uint32_t d)
{
    struct store_directory directory = {.fd = -1};
    int rc = store_directory_open(t->paths[d], &directory, t->error);
    if (rc)
        return rc;
    rc = store_directory_take(&directory, t->error);
    rc = rc ? rc : mark(t, &directory);
    t->marked[d] = rc == 0;
    store_directory_close(&directory);
    return rc;
}

/* Before anything is written: two slots of every extent. all: what each process writes to. */
static int check_room(const struct target *t, const struct reshard_places *all)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    struct hst_ckpt_info info;
    hst_ckpt_info(t->ckpt, &info);
    const uint64_t ranks = shares ? t->world : 1; /* that are written by others */
    const struct reshard_room room = {.all = all,
                                      .processes = shares ? shares->processes : 1,
                                      .process = shares ? shares->process : 0,
                                      .drive_bytes = 2 * (info.weights_bytes + info.states_bytes) /
                                                     t->drives / ranks,
                                      .paths = t->paths};
    return reshard_room_check(&room, t->error);
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
                "%s cannot be written to: %s. Fix: another --out", t->paths[d], strerror(-rc));
    }
    return 0;
}

/* ---- one rank ---- */

static int refuse_write(struct target *t, int rc)
{
    const bool full = rc == -ENOSPC || rc == -EDQUOT;
    return store_refuse(
        t->error, full ? HST_E_DISK_SPACE : HST_E_WRITE, rc,
        "writing a tile of the new store in %s failed: %s. Fix: %s", t->paths[0], strerror(-rc),
        full ? "free space there, or another --out" : "check the drive (dmesg, smartctl -a)");
}

/* One process ends at once. One of several reads on: others may wait for what comes behind. */
static int end_or_note(struct writing *w, int rc)
{
    if (!w->target->ckpt->shares)
        return rc;
    w->failure = *w->target->error;
    return 0;
}

/* The tiles that hold elements of this rank come by in its order. */
static int visit(void *context, struct ckpt_part *part)
{
    struct writing *w = context;
    const struct ckpt_extent *extent = &part->extent;
    if (w->failure.code)
        return 0;
    if (part->error)
        return end_or_note(w, ckpt_refuse_part(part, w->target->error));
    const int rc = recut_take(&w->recut, extent->kind, extent->range, part->bytes,
                              (extent->entry.flags & STORE_ZERO) != 0);
    return rc ? end_or_note(w, refuse_write(w->target, rc)) : 0;
}

static int progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct writing *w = context;
    const struct hst_ckpt_watch *watch = w->watch;
    (void)total_bytes; /* of this rank */
    return watch->progress(watch->context, w->target->done_bytes + done_bytes,
                           w->target->total_bytes);
}

static int prepare_commit(struct target *t, struct store *store)
{
    struct extents *extents = store_extents(store);
    int rc = store_commit_begin(store, &t->ckpt->looks[0].about.cursor);
    while (rc == 0 && store_commit_state(store) == STORE_COMMIT_UNDERWAY)
        rc = extents->ops->progress(extents, UINT64_MAX);
    if (rc)
        *t->error = *store_error(store);
    return rc;
}

static int end_commit(struct target *t, struct store *store)
{
    const int rc = store_commit_end(store);
    if (rc)
        *t->error = *store_error(store);
    return rc;
}

static struct ckpt_reading reading_of(const struct target *t, uint32_t rank)
{
    return (struct ckpt_reading){
        .share = {rank, t->world}, .weights = true, .states = true, .damaged_come = true};
}

/* Between the two the store writes from memory of the recut. */
static int write_tiles(struct target *t, struct writing *w, struct ckpt_reading *reading,
                       struct store *store)
{
    const struct hst_ckpt_watch of_rank = {.progress = progress, .context = w};
    int rc = recut_open(&w->recut, &t->layout, &t->ckpt->layout, t->ckpt->optimizer,
                        store_extents(store));
    if (rc)
        return no_memory(t);
    reading->visit = visit;
    reading->context = w;
    reading->watch = w->watch && w->watch->progress ? &of_rank : NULL;
    rc = ckpt_read(t->ckpt, reading, t->error);
    const int late = recut_close(&w->recut);
    return rc == 0 && w->failure.code == 0 && late ? end_or_note(w, refuse_write(t, late)) : rc;
}

static int create(struct target *t, struct share share, struct store **store)
{
    const struct store_config config = {
        .drives = t->drive,
        .drive_count = t->drives,
        .placement = &t->placement,
        .agreed = &t->agreed,
        .marked = true,
        .derived_weights = t->ckpt->derived_weights,
    };
    if (layout_seal(&t->layout, t->ckpt->layout.tile_elements, share))
        return store_refuse(t->error, HST_E_VALUE, -EINVAL,
                            "%u ranks would have more than 2^32 tiles. Fix: a smaller --world",
                            t->world);
    return store_create(&config, store, t->error);
}

static int write_rank(struct target *t, uint32_t rank, const struct hst_ckpt_watch *watch)
{
    struct writing w = {.target = t, .watch = watch};
    struct ckpt_reading reading = reading_of(t, rank);
    struct store *store = NULL;
    int rc = create(t, reading.share, &store);
    if (rc)
        return rc;
    rc = write_tiles(t, &w, &reading, store);
    rc = rc ? rc : prepare_commit(t, store);
    rc = rc ? rc : end_commit(t, store);
    t->done_bytes += ckpt_reading_bytes(t->ckpt, &reading);
    store_close(&store); /* without a commit nothing of it remains */
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

/* It removes what was made before something failed: ranks from `first` on, directories. */
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
    struct reshard_places places = {.node = 0};
    int rc = plan(t);
    for (uint32_t d = 0; d < t->drives && rc == 0; d++)
        rc = make_directory(t, d);
    rc = rc ? rc : check_distinct(t);
    for (uint32_t d = 0; d < t->drives && rc == 0; d++)
        rc = mark_directory(t, d);
    rc = rc ? rc : reshard_places_look(t->paths, t->drives, &places, t->error);
    rc = rc ? rc : check_room(t, &places);
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
    free(t->layout.units);
}

/* One rank after the other. */
static int write_all(struct target *t, const struct hst_ckpt_watch *watch)
{
    int rc = prepare(t);
    uint32_t rank = t->world; /* those from here on are written */
    for (uint32_t r = 0; r < t->world && rc == 0; r++) {
        const struct ckpt_reading reading = reading_of(t, r);
        t->total_bytes += ckpt_reading_bytes(t->ckpt, &reading);
    }
    for (; rc == 0 && rank > 0; rank--)
        rc = write_rank(t, rank - 1, watch);
    if (rc)
        discard(t, rank);
    return rc;
}

/* ---- of several processes, each its own rank ---- */

static int agree(const struct target *t, int rc)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    return shares->agree(shares->context, rc, t->error);
}

static bool writes(const struct target *t)
{
    return t->ckpt->shares->process < t->world;
}

/* Ranks of a node may write to one file system. */
static int check_room_together(struct target *t)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    struct reshard_places own, *all = calloc(shares->processes, sizeof *all);
    memset(&own, 0, sizeof own);
    own.node = shares->node;
    int rc = all ? 0 : no_memory(t);
    if (rc == 0 && writes(t))
        rc = reshard_places_look(t->paths, t->drives, &own, t->error);
    rc = agree(t, rc);
    rc = rc ? rc : shares->share(shares->context, &own, all, sizeof own);
    rc = rc ? rc : check_room(t, all);
    free(all);
    return rc;
}

static int mark_own(struct target *t)
{
    int rc = 0;
    for (uint32_t d = 0; d < t->drives && rc == 0 && writes(t); d++)
        rc = mark_directory(t, d);
    rc = agree(t, rc);
    rc = rc ? rc : check_room_together(t);
    if (rc == 0 && t->ckpt->shares->process == 0) {
        rc = store_draw_id(&t->agreed.uuid, t->error);
        rc = rc ? rc : store_draw_id(&t->agreed.incarnation, t->error);
    }
    return rc == 0 && writes(t) ? open_drives(t) : rc;
}

/* In each step all are through with the one before: directories may be those of several. */
static int prepare_own(struct target *t)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    int rc = plan(t);
    if (rc == 0 && t->world > shares->processes)
        rc = store_refuse(t->error, HST_E_VALUE, -EINVAL,
                          "each of %u ranks writes its own files, and a store for %u is asked for. "
                          "Fix: --world 1 to %u, or start as many ranks",
                          shares->processes, t->world, shares->processes);
    for (uint32_t d = 0; d < t->drives; d++)
        t->there[d] = access(t->paths[d], F_OK) == 0;
    rc = agree(t, rc);
    for (uint32_t d = 0; d < t->drives && rc == 0 && writes(t); d++) {
        rc = make_directory(t, d);
        t->made[d] = !t->there[d];
    }
    if (rc == 0 && writes(t)) {
        rc = check_distinct(t);
        rc = rc ? rc : check_outside(t);
    }
    rc = agree(t, rc);
    return rc ? rc : mark_own(t);
}

static int make_own(struct target *t, struct store **store)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    int rc = agree(t, prepare_own(t));
    rc = rc ? rc : shares->take(shares->context, 0, &t->agreed, sizeof t->agreed);
    if (rc)
        return rc;
    if (writes(t))
        rc = create(t, (struct share){shares->process, t->world}, store);
    return agree(t, rc);
}

/* Who writes nothing reads for the others. What ends the reading itself ends all ranks. */
static int read_own(struct target *t, struct writing *w, struct store *store)
{
    struct ckpt_reading reading = reading_of(t, t->ckpt->shares->process);
    t->total_bytes = ckpt_reading_bytes(t->ckpt, &reading);
    if (store)
        return write_tiles(t, w, &reading, store);
    reading.visit = visit;
    reading.context = w;
    reading.watch = w->watch;
    return ckpt_read(t->ckpt, &reading, t->error);
}

static int write_own(struct target *t, const struct hst_ckpt_watch *watch, struct store *store)
{
    struct writing w = {.target = t, .watch = watch};
    const int rc = read_own(t, &w, store);
    if (rc)
        return rc;
    if (w.failure.code)
        *t->error = w.failure;
    return agree(t, w.failure.code ? w.failure.native : 0);
}

/* Anything but the mark is in it, or it cannot be looked into. */
static bool holds_files(const struct target *t, uint32_t d)
{
    struct hst_error ignored;
    struct store_directory directory;
    if (store_directory_open(t->paths[d], &directory, &ignored) != 0)
        return true;
    DIR *names = store_directory_list(&directory, &ignored);
    bool files = names == NULL;
    for (const struct dirent *e; names && (e = readdir(names)) != NULL;) {
        const bool nothing = store_name_is_nothing(e->d_name);
        files = files || (!nothing && strcmp(e->d_name, STORE_UNFINISHED) != 0);
    }
    if (names)
        closedir(names);
    store_directory_close(&directory);
    return files;
}

/* The last of those that have files in it removes the mark: what another's end has left there is
 * nobody's to begin in. */
static void discard_own(struct target *t)
{
    for (uint32_t d = 0; d < t->drives && writes(t); d++) {
        const bool ends = !holds_files(t, d);
        if (ends)
            unmark(t, d);
        if (ends && t->made[d])
            (void)rmdir(t->paths[d]);
    }
}

/* Files get their names once all are prepared. From then on what one leaves unnamed is marked. */
static int write_together(struct target *t, const struct hst_ckpt_watch *watch)
{
    struct store *store = NULL;
    bool voted = false;
    int rc = make_own(t, &store);
    rc = rc ? rc : write_own(t, watch, store);
    if (rc == 0) {
        rc = agree(t, store ? prepare_commit(t, store) : 0);
        voted = rc == 0;
    }
    if (voted)
        rc = agree(t, store ? end_commit(t, store) : 0);
    if (store)
        store_close(&store);
    if (rc && !voted)
        discard_own(t);
    return rc;
}

static int fill_paths(struct target *t, const char *store)
{
    const struct ckpt_shares *shares = t->ckpt->shares;
    const size_t bytes = 2 * strlen(store) + 64; /* a word has six letters, a number ten */
    char *filled = malloc(bytes);
    if (!filled)
        return no_memory(t);
    int rc = shares->fill(shares->context, store, filled, bytes, t->error);
    rc = rc ? rc : ckpt_split(filled, t->paths);
    free(filled);
    return rc;
}

int hst_ckpt_reshard(struct hst_ckpt *ckpt, const char *store, uint32_t world,
                     const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    struct target t = {.ckpt = ckpt, .world = world, .error = error};
    int rc = ckpt->shares ? fill_paths(&t, store) : ckpt_split(store, t.paths);
    t.drives = rc > 0 ? (uint32_t)rc : 0;
    if (rc > 0)
        rc = ckpt->shares ? write_together(&t, watch) : write_all(&t, watch);
    else if (!error->code)
        rc = store_refuse(error, HST_E_VALUE, rc,
                          "'%.200s' are not 1 to %u directories between commas. Fix: name them so",
                          store, STRIPE_DRIVES_MAX);
    for (uint32_t d = 0; d < t.drives && rc == 0; d++)
        unmark(&t, d);
    close_all(&t);
    return rc;
}
