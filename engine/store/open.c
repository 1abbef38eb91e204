/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a store: which version it goes back to, seen to be whole before anything is written. The
 * numbers R0 to R9 are those of README.md. An open that is cut off anywhere leaves what the next
 * one needs: it writes one superblock, to the place that the newest is not in, and copies of what
 * is good over what is not.
 */
#include "store/room.h"
#include "store/store_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_DEPTH 8u
/* A manifest of other sizes than this run's is read only up to here, to tell what it is of: what a
   file says of itself does not decide what is allocated. */
#define STRANGE_MANIFEST_MAX (64u << 20)

struct opening {
    const struct store_config *config;
    struct store *store;
    struct store_found *found;
    struct hst_error *error;
    unsigned bad_headers[STRIPE_DRIVES_MAX]; /* bit per copy */
    struct store_superblocks superblocks;
    struct store_superblock newest;
    bool trusted;
    struct transfer bad;            /* the first read of an extent that failed */
    const struct store_ref *chosen; /* cur or prev of newest; its manifest is in memory */
    struct store_manifest manifest;
    unsigned copy;         /* that was read */
    uint64_t damaged_step; /* of what is, the latest */
    bool rooms_open;
    bool damaged;      /* bytes of the version at hand are */
    bool none_damaged; /* nor are those of a later one, nor its manifest, on any rank */
    bool behind;       /* some rank has a later version than the chosen one */
};

static int refuse_damaged(const struct opening *o, int native, const char *what)
{
    return store_refuse(o->error, HST_E_STORE_DAMAGED, native,
                        "the store in %s %s: %s. Fix: check the drives (dmesg, smartctl -a); "
                        "start anew in another --store, from an export or a kept copy "
                        "(hoistway ckpt list)",
                        o->store->directories[0].path, what,
                        native == -EBADMSG ? "bytes are not those that were written"
                                           : strerror(-native));
}

static int refuse_extent(const struct opening *o, int native)
{
    struct store *store = o->store;
    const struct transfer *bad = &o->bad;
    struct store_entry entry;
    char name[STORE_NAME_BYTES], what[160];
    if (bad->error == 0)
        return refuse_damaged(o, native, "cannot be compared with its hashes");
    store_entry_get(store->manifest, store_extent_of(store, bad->kind, bad->index), &entry);
    store_file_name(store->number, entry.drive, false, name);
    snprintf(what, sizeof what,
             "has no version that is whole (%s of tile %u, at offset %llu of %s)",
             bad->kind == EXTENT_WEIGHTS ? "weights" : "optimizer states", bad->index,
             (unsigned long long)(bad->bad_bytes > 0 ? bad->bad_offset : entry.offset), name);
    return refuse_damaged(o, native, what);
}

/* ---- R1, R2: files ---- */

static int open_file(struct opening *o, uint32_t d)
{
    struct store *store = o->store;
    char name[STORE_NAME_BYTES], path[STORE_PATH_BYTES];
    store_file_name(store->number, d, false, name);
    store_file_path(&store->directories[d], name, path);
    if (o->config->waits && !store_file_wait(&store->directories[d], name, STORE_QUIET_MS))
        o->config->waits(o->config->waits_context, store->directories[d].path, name,
                         STORE_LOCK_TIMEOUT_MS / 1000);
    int rc = hst_aio_file_open(store->aio[d], path, 0, store_file_bytes(&store->headers[d]),
                               &store->files[d]);
    if (rc == -EBUSY)
        return store_refuse(o->error, HST_E_STORE_BUSY, rc,
                            "%s/%s is in use by another process. Fix: wait for that run to end "
                            "(fuser tells which it is)",
                            store->directories[d].path, name);
    if (rc)
        return store_refuse(o->error, rc == -EFBIG ? HST_E_STORE_DIR : HST_E_READ, rc,
                            "%s/%s cannot be opened: %s. Fix: %s", store->directories[d].path, name,
                            strerror(-rc), rc == -EFBIG ? "ulimit -f unlimited" : "check it");
    return 0;
}

/* The bytes that a dead process wrote and did not sync are on the drive before they are looked at:
   what is seen now is what will be seen. */
static int sync_files(struct opening *o)
{
    struct store *store = o->store;
    own_begin(store);
    for (uint32_t d = 0; d < store->drives; d++)
        own_add(store, d, HST_AIO_SYNC, 0, NULL, 0);
    int rc = own_wait(store);
    rc = rc ? rc : own_result(store);
    if (rc)
        return refuse_damaged(o, rc, "cannot be synced");
    for (uint32_t d = 0; d < store->drives && rc == 0; d++)
        rc = store_directory_sync(&store->directories[d], o->error);
    return rc;
}

static int open_files(struct opening *o)
{
    struct store *store = o->store;
    const struct store_set set = {store->directories, store->drives, store->number,
                                  store->rank,        store->world,  false};
    int rc = store_files_look(&set, store->headers, o->bad_headers, o->error);
    for (uint32_t d = 0; d < store->drives && rc == 0; d++)
        rc = open_file(o, d);
    return rc ? rc : sync_files(o);
}

/* ---- R3, R4: superblocks and manifests ---- */

static int read_superblocks(struct opening *o)
{
    struct store *store = o->store;
    const struct store_header *h = &store->headers[0];
    own_begin(store);
    for (unsigned i = 0; i < 4; i++)
        own_add(store, 0, HST_AIO_READ, store_superblock_at(h, i / 2, i % 2), store->pages[i],
                STORE_PAGE_BYTES);
    int rc = own_wait(store);
    if (rc)
        return refuse_damaged(o, rc, "cannot be read");
    for (unsigned i = 0; i < 4; i++) {
        struct store_flaw *flaw = &o->superblocks.flaw[i / 2][i % 2];
        *flaw = store_superblock_decode(store->pages[i], i / 2, i % 2, h,
                                        &o->superblocks.read[i / 2][i % 2]);
        if (store->own.ops[i].result)
            *flaw = (struct store_flaw){store->own.ops[i].result, "it cannot be read"};
    }
    if (!store_choose_superblock(&o->superblocks, &o->newest, &o->trusted))
        return refuse_damaged(o, -EBADMSG, "has no superblock that is whole");
    return 0;
}

/* Into memory, from the first copy that is good: which of them. Returns 2 where none is. */
static unsigned load_manifest(struct opening *o, const struct store_ref *ref,
                              struct store_manifest *manifest)
{
    struct store *store = o->store;
    unsigned copy = 0;
    for (; copy < 2; copy++) {
        own_begin(store);
        own_add(store, 0, HST_AIO_READ, store_manifest_at(&store->headers[0], ref->slot, copy),
                store->manifest, ref->bytes);
        if (own_wait(store) == 0 && own_result(store) == 0 &&
            store_manifest_decode(store->manifest, ref, store->headers, manifest).error == 0)
            break;
    }
    return copy;
}

static struct store_candidates candidates(struct opening *o)
{
    const struct store_ref *refs[2] = {&o->newest.cur, &o->newest.prev};
    struct store_candidates all = {0};
    for (int i = 0; i < 2; i++) {
        struct store_manifest manifest;
        if (refs[i]->version != STORE_NO_VERSION && load_manifest(o, refs[i], &manifest) < 2)
            all.list[all.count++] =
                (struct store_candidate){refs[i]->version, refs[i]->step, refs[i]->commit_id};
        else if (i == 0)
            all.newest_damaged = true;
    }
    all.damaged_step = o->newest.cur.step;
    return all;
}

/* ---- R5, R6: the version ---- */

static int refuse_model(const struct opening *o)
{
    const struct store *store = o->store;
    return store_refuse(o->error, HST_E_STORE_OTHER, -EINVAL,
                        "the store in %s is of another model, precision or tile size (%u extents "
                        "of %llu blocks; this run has %u extents). Fix: resume with what it was "
                        "made with, or give another --store",
                        store->directories[0].path, store->headers[0].extents,
                        (unsigned long long)store->headers[0].blocks, STORE_KINDS * store->tiles);
}

static uint64_t wanted_bytes(const struct store *store, uint32_t extent)
{
    uint64_t bytes;
    (void)placement_extent(store->placement, (enum extent_kind)(extent / store->tiles),
                           extent % store->tiles, &bytes);
    return bytes;
}

/* Sizes tell of these extents: no others have states without bytes. */
static bool is_frozen(const struct store *store, uint32_t extent)
{
    const struct layout *layout = store->placement->layout;
    return layout->units[layout_tile(layout, extent % store->tiles).unit].frozen;
}

/* The store holds, by its counts, what the placement asks for. */
static bool counts_fit(const struct store *store)
{
    const uint32_t extents = STORE_KINDS * store->tiles;
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < extents; i++)
        blocks += store_blocks_of(wanted_bytes(store, i));
    const struct store_header *h = &store->headers[0];
    return h->extents == extents && h->blocks == blocks;
}

/* And extent by extent. */
static int check_model(const struct opening *o)
{
    const struct store *store = o->store;
    if (!counts_fit(store))
        return refuse_model(o);
    for (uint32_t i = 0; i < store->headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(store->manifest, i, &entry);
        const bool derived =
            entry.kind == EXTENT_WEIGHTS && store->derived_weights && !is_frozen(store, i);
        if (entry.bytes != wanted_bytes(store, i) || derived != (bool)(entry.flags & STORE_DERIVED))
            return refuse_model(o);
    }
    return 0;
}

/* It forgets what only this process knows: what is derived has to be made again. */
static void forget_derived(struct store *store)
{
    for (uint32_t i = 0; i < store->headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(store->manifest, i, &entry);
        if (entry.flags & STORE_DERIVED) {
            entry.flags |= STORE_ZERO;
            entry.version = 0;
            store_entry_put(store->manifest, i, &entry);
        }
    }
}

struct verify {
    struct transfer transfers[VERIFY_DEPTH];
    unsigned char *buffers;
    uint64_t stride;
    uint64_t before_bytes; /* read when it began */
};

static bool has_bytes(const struct store *store, uint32_t extent)
{
    struct store_entry entry;
    store_entry_get(store->manifest, extent, &entry);
    return entry.bytes > 0 && !(entry.flags & STORE_DERIVED);
}

static uint64_t version_bytes(const struct store *store)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < store->headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(store->manifest, i, &entry);
        bytes += has_bytes(store, i) ? entry.bytes : 0;
    }
    return bytes;
}

static int tell(const struct opening *o, const struct verify *v, uint64_t total_bytes)
{
    const struct store_config *config = o->config;
    const uint64_t read = o->store->extents.counters.read_bytes - v->before_bytes;
    if (!config->progress)
        return 0;
    return config->progress(config->progress_context, read < total_bytes ? read : total_bytes,
                            total_bytes)
               ? -ECANCELED
               : 0;
}

static uint64_t largest_extent(const struct store *store)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < store->headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(store->manifest, i, &entry);
        largest = entry.bytes > largest ? entry.bytes : largest;
    }
    return largest;
}

static int verify_all(struct opening *o, struct verify *v)
{
    struct store *store = o->store;
    const uint64_t total_bytes = version_bytes(store);
    int rc = 0;
    for (uint32_t i = 0; i < store->headers[0].extents + VERIFY_DEPTH; i++) {
        struct transfer *transfer = &v->transfers[i % VERIFY_DEPTH];
        const int done = extents_wait(&store->extents, transfer);
        if (done && rc == 0)
            o->bad = *transfer;
        rc = rc ? rc : done;
        rc = rc ? rc : tell(o, v, total_bytes);
        if (rc || i >= store->headers[0].extents)
            continue; /* those in flight still need their buffers */
        const enum extent_kind kind = (enum extent_kind)(i / store->tiles);
        if (has_bytes(store, i))
            rc = extents_read(&store->extents, kind, i % store->tiles,
                              v->buffers + i % VERIFY_DEPTH * v->stride, transfer);
        else
            *transfer = (struct transfer){.active = false};
    }
    return rc;
}

/* Reads every byte of the version in memory and compares. */
static int verify(struct opening *o)
{
    struct store *store = o->store;
    struct verify v = {.stride = largest_extent(store)};
    void *memory;
    if (hst_aio_buffer_alloc(VERIFY_DEPTH * v.stride, &memory))
        return -ENOMEM;
    v.buffers = memory;
    v.before_bytes = store->extents.counters.read_bytes;
    int rc = verify_all(o, &v);
    store_drain(store); /* where one drive broke down, another may still be reading */
    o->found->verified_bytes += store->extents.counters.read_bytes - v.before_bytes;
    hst_aio_buffer_free(memory, VERIFY_DEPTH * v.stride);
    return rc;
}

/* The bytes are damaged; any other error says nothing about them. */
static bool is_damage(int error)
{
    return error == -EBADMSG || error == -EIO;
}

/* Room that a full disk has not is told before all bytes are compared, which takes long. */
static int open_rooms(struct opening *o)
{
    struct store *store = o->store;
    if (o->rooms_open)
        return 0;
    const int rc = store_rooms_open(o->config->rooms, store->directories, store->drives,
                                    store->number, o->config->rates, o->error);
    o->rooms_open = rc == 0;
    return rc;
}

/* True where the run can go on from this candidate, all of whose bytes are right. On success its
 * manifest is in memory. */
static int try_candidate(struct opening *o, const struct store_candidate *x)
{
    o->chosen = x->version == o->newest.cur.version ? &o->newest.cur : &o->newest.prev;
    o->copy = load_manifest(o, o->chosen, &o->manifest);
    if (o->copy == 2)
        return refuse_damaged(o, -EIO, "gives other bytes each time it is read");
    /* who knows what the run was says it better than sizes do */
    int rc =
        o->config->accept ? o->config->accept(o->config->accept_context, &o->manifest.cursor) : 0;
    rc = rc ? rc : check_model(o);
    rc = rc ? rc : open_rooms(o);
    if (rc)
        return rc;
    forget_derived(o->store);
    o->found->clean = !store_must_verify(&o->newest, o->trusted, x->version);
    rc = o->found->clean ? 0 : verify(o);
    o->damaged = is_damage(rc);
    if (rc && rc != -ECANCELED) /* who asked for that knows why */
        refuse_extent(o, rc);
    return rc;
}

/* From a version that is damaged on any rank all step back. */
static int agree_on(struct opening *o, int own)
{
    const struct store_peers *peers = o->config->peers;
    bool any = o->damaged;
    if (!peers || (own && !o->damaged))
        return own;
    int rc = peers->damaged(peers->context, o->damaged, &any);
    if (rc || own || !any)
        return rc ? rc : own;
    o->damaged = true;
    return refuse_damaged(o, -EBADMSG, "has a version that is damaged on another rank");
}

/* One of them has gone on alone. */
static int refuse_apart(const struct opening *o)
{
    return store_refuse(o->error, HST_E_STORE_MIXED, -EBADMSG,
                        "ranks of --zero-stage 0 have files of different steps in %s, and no "
                        "version that all have. Fix: cp the files of the rank that is farthest "
                        "under the others' names (hoistway ckpt list)",
                        o->store->directories[0].path);
}

/* All is whole: some files are older than others. */
static int refuse_moments(const struct opening *o)
{
    return store_refuse(o->error, HST_E_STORE_MIXED, -EBADMSG,
                        "ranks have files of different moments in %s, and no version is in all of "
                        "them. Fix: bring those of one moment together (hoistway ckpt list)",
                        o->store->directories[0].path);
}

static int choose_of(struct opening *o, const struct store_candidates *all, uint32_t ranks)
{
    const struct hst_error before = *o->error;
    const struct store_candidate *x = store_choose_version(all, ranks, STORE_NO_VERSION);
    const uint64_t latest = store_latest_version(all, ranks);
    o->none_damaged = !store_newest_damaged(all, ranks, &o->damaged_step);
    if (!x && ranks > o->store->world)
        return refuse_apart(o);
    if (!x && ranks > 1 && o->none_damaged)
        return refuse_moments(o);
    if (!x)
        return refuse_damaged(o, -EBADMSG,
                              ranks > 1 ? "has no version that all ranks have"
                                        : "has no manifest that is whole");
    for (;;) {
        *o->error = before;
        o->damaged = false;
        o->behind = x->version < latest;
        int rc = agree_on(o, try_candidate(o, x));
        if (o->damaged && o->none_damaged)
            o->damaged_step = x->step;
        o->none_damaged = o->none_damaged && !o->damaged;
        x = store_choose_version(all, ranks, x->version);
        if (rc == 0 || !o->damaged || !x)
            return rc;
    }
}

/* One candidate after another, the latest first. */
static int choose(struct opening *o)
{
    const struct store_candidates own = candidates(o);
    const struct store_peers *peers = o->config->peers;
    if (!peers)
        return choose_of(o, &own, 1);
    struct store_candidates *all = calloc(peers->ranks, sizeof *all);
    if (!all)
        return store_refuse(o->error, HST_E_BUDGET, -ENOMEM,
                            "no memory for what the ranks hold. Fix: end other programs");
    int rc = peers->share(peers->context, &own, all);
    rc = rc ? rc : choose_of(o, all, peers->ranks);
    free(all);
    return rc;
}

/* ---- R7, R9: going on ---- */

static int roll_back(struct opening *o)
{
    struct store *store = o->store;
    struct store_superblock mine = o->newest;
    mine.seq++;
    mine.state = STORE_OPEN;
    mine.incarnation = store->incarnation;
    mine.cur = *o->chosen;
    mine.prev = (struct store_ref){.version = STORE_NO_VERSION};
    if (STORE_LEAVE_OUT == LEAVE_ROLL_BACK) {
        store->superblock = o->newest;
        store->superblock.cur = *o->chosen;
        return 0;
    }
    int rc = commit_superblock(store, &mine);
    if (rc)
        store_refuse(o->error, HST_E_WRITE, rc,
                     "writing a superblock of the store in %s failed: %s. Fix: check the drive "
                     "(dmesg, smartctl -a)",
                     store->directories[0].path, strerror(-rc));
    return rc;
}

/* Copies that are bad, from those that are good. One that cannot be written stays bad. */
static void repair(struct opening *o)
{
    struct store *store = o->store;
    if (o->copy == 1) {
        own_begin(store);
        own_add(store, 0, HST_AIO_WRITE, store_manifest_at(&store->headers[0], o->chosen->slot, 0),
                store->manifest, o->chosen->bytes);
        if (own_wait(store) == 0 && own_result(store) == 0)
            o->found->repaired++;
    }
    for (uint32_t d = 0; d < store->drives; d++) {
        if (!o->bad_headers[d])
            continue;
        const unsigned copy = o->bad_headers[d] >> 1;
        store_header_encode(&store->headers[d], copy, store->pages[0]);
        own_begin(store);
        own_add(store, d, HST_AIO_WRITE, store_header_at(&store->headers[d], copy), store->pages[0],
                STORE_PAGE_BYTES);
        if (own_wait(store) == 0 && own_result(store) == 0)
            o->found->repaired++;
    }
}

static int recover(struct opening *o)
{
    struct store *store = o->store;
    int rc = open_files(o);
    if (rc == 0 && !counts_fit(store) && store->headers[0].manifest_bytes > STRANGE_MANIFEST_MAX)
        rc = refuse_model(o);
    if (rc)
        return rc;
    if (store_allocate(store))
        return store_refuse(o->error, HST_E_BUDGET, -ENOMEM,
                            "no memory for the store's tables. Fix: end other programs");
    rc = read_superblocks(o);
    rc = rc ? rc : choose(o);
    rc = rc ? rc : roll_back(o);
    if (rc)
        return rc;
    repair(o);
    store->published = true;
    store->version = o->chosen->version;
    store_note_committed(store);
    store->cursor = o->manifest.cursor;
    store->written_before_bytes = o->newest.written_bytes;
    store->extents.counters = (struct extent_counters){0};
    o->found->version = o->chosen->version;
    o->found->step = o->chosen->step;
    o->found->stepped_back = !o->none_damaged;
    o->found->damaged_step = o->damaged_step;
    o->found->unfinished = o->behind && o->none_damaged;
    o->found->superblock_damaged = !o->trusted;
    return 0;
}

int store_open(const struct store_config *config, struct store **out, struct store_found *found,
               struct hst_error *error)
{
    struct store *store = store_new(config, error);
    if (!store)
        return error->native;
    *found = (struct store_found){0};
    struct opening o = {.config = config, .store = store, .found = found, .error = error};
    int rc = recover(&o);
    if (rc) {
        store_rooms_undo(config->rooms, store->directories, store->drives, store->number);
        store_free(store);
        return rc;
    }
    *out = store;
    return 0;
}
