/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents in two slots. The newest bytes of an extent are in the slot that its entry names; a write
 * goes to the other one, the first time in a version, and is hashed from the very buffer that is
 * submitted. What is committed is therefore never written to.
 */
#include "store/store_state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAP_BATCH 32

/* Hashes are written from where aio puts them. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "hashes would be written swapped");

int store_fail(struct store *store, int native, const char *what)
{
    if (store->error.code)
        return store->error.native;
    const bool full = native == -ENOSPC || native == -EDQUOT;
    const bool first = store->version == STORE_NO_VERSION; /* nothing is there to resume */
    char left[48] = "no version was there yet";
    if (!first)
        snprintf(left, sizeof left, "version %lld is as it was", (long long)store->version);
    if (store->commit != COMMIT_NONE)
        store->commit = COMMIT_FAILED;
    return store_refuse(&store->error, full ? HST_E_DISK_SPACE : HST_E_WRITE, native,
                        "%s of the store in %s failed: %s; %s. Fix: %s, then %s", what,
                        store->directories[0].path, strerror(-native), left,
                        full ? "free space there" : "check the drives (dmesg, smartctl -a)",
                        first ? "start again" : "--resume");
}

/* ---- extents ---- */

uint32_t store_extent_of(const struct store *store, enum extent_kind kind, uint32_t index)
{
    return (uint32_t)kind * store->tiles + index;
}

/* The version that writes belong to. */
static uint64_t building(const struct store *store)
{
    return store->version + 1 +
           (STORE_LEAVE_OUT == LEAVE_GATE && store->commit != COMMIT_NONE ? 1 : 0);
}

static void complete_extent(struct store *store, const struct hst_aio_completion *completion)
{
    struct transfer *transfer = (struct transfer *)(uintptr_t)completion->user;
    transfer->error = completion->error;
    transfer->bad_offset = completion->bad_offset;
    transfer->bad_bytes = completion->bad_bytes;
    transfer->active = false;
    if (!transfer->write) {
        store->doubtful = store->doubtful || completion->error;
        store->extents.counters.read_bytes += completion->bytes;
        return;
    }
    struct store_entry entry;
    const uint32_t extent = store_extent_of(store, transfer->kind, transfer->index);
    store_entry_get(store->manifest, extent, &entry);
    entry.flags &= (uint8_t)~STORE_WRITING;
    store_entry_put(store->manifest, extent, &entry);
    store->writes--;
    store->extents.counters.written_bytes += completion->bytes;
    if (completion->error)
        store_fail(store, completion->error, "writing an extent");
}

/* Returns how many completed, or the backend's error. */
static int reap(struct store *store, uint32_t drive, uint64_t wait_ns)
{
    struct hst_aio_completion completions[REAP_BATCH];
    int n = hst_aio_reap(store->aio[drive], completions, REAP_BATCH, wait_ns > 0, wait_ns);
    for (int i = 0; i < n; i++) {
        if (own_is(&completions[i]))
            own_complete(store, &completions[i]);
        else
            complete_extent(store, &completions[i]);
    }
    return n;
}

static int reap_all(struct store *store)
{
    int done = 0;
    for (uint32_t d = 0; d < store->drives; d++) {
        int n = reap(store, d, 0);
        if (n < 0)
            return n;
        done += n;
    }
    return done;
}

static int store_progress(struct extents *extents, uint64_t wait_ns)
{
    struct store *store = (struct store *)extents;
    bool ready[STRIPE_DRIVES_MAX];
    int n = store->drives == 1 ? reap(store, 0, wait_ns) : reap_all(store);
    if (n == 0 && wait_ns > 0 && store->drives > 1) {
        n = hst_aio_wait_any(store->aio, store->drives, ready, wait_ns);
        n = n < 0 ? n : reap_all(store);
    }
    if (n < 0)
        return store_fail(store, n, "a transfer");
    commit_advance(store);
    return 0;
}

static int submit(struct store *store, uint32_t drive, const struct hst_aio_op *op)
{
    for (;;) { /* back-pressure is waiting */
        int rc = hst_aio_submit(store->aio[drive], op, 1);
        if (rc == 1)
            return 0;
        if (rc < 0 && rc != -EAGAIN)
            return rc;
        rc = store_progress(&store->extents, UINT64_MAX);
        if (rc < 0)
            return rc;
    }
}

/* Waits for the extent's last write, whose bytes a read wants and a write must not overtake. */
static int find(struct store *store, enum extent_kind kind, uint32_t index,
                struct store_entry *entry)
{
    if (kind >= STORE_KINDS || index >= store->tiles)
        return -EINVAL;
    store_entry_get(store->manifest, store_extent_of(store, kind, index), entry);
    while (entry->flags & STORE_WRITING) {
        int rc = store_progress(&store->extents, UINT64_MAX);
        if (rc)
            return rc;
        store_entry_get(store->manifest, store_extent_of(store, kind, index), entry);
    }
    return 0;
}

static struct hst_aio_op operation(struct store *store, const struct store_entry *entry,
                                   void *buffer, struct transfer *transfer)
{
    return (struct hst_aio_op){
        .kind = transfer->write ? HST_AIO_WRITE : HST_AIO_READ,
        .file = store->files[entry->drive],
        .offset = entry->offset + entry->slot * store->headers[entry->drive].slot_bytes,
        .buffer = buffer,
        .bytes = entry->bytes,
        .user = (uint64_t)(uintptr_t)transfer,
        .hashes =
            (uint64_t *)(void *)(store->manifest + store_hashes_at(store->headers[0].extents)) +
            entry->first_block,
    };
}

static int store_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                      struct transfer *transfer)
{
    struct store *store = (struct store *)extents;
    struct store_entry entry;
    int rc = find(store, kind, index, &entry);
    if (rc)
        return rc;
    if ((entry.flags & STORE_ZERO) && (entry.flags & STORE_DERIVED))
        return -ENODATA;
    if (entry.flags & STORE_ZERO) {
        memset(buffer, 0, entry.bytes);
        transfer->active = false;
        return 0;
    }
    const struct hst_aio_op op = operation(store, &entry, buffer, transfer);
    return submit(store, entry.drive, &op);
}

static int store_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                       struct transfer *transfer)
{
    struct store *store = (struct store *)extents;
    struct store_entry entry;
    if (store->error.code)
        return store->error.native;
    if (!store_may_write(store, kind, index))
        return -EBUSY;
    int rc = find(store, kind, index, &entry);
    if (rc)
        return rc;
    if ((entry.flags & STORE_FIXED) && (entry.bytes == 0 || store->version != STORE_NO_VERSION))
        return -EINVAL; /* a committed version has these bytes, and no other slot */
    if (entry.version != building(store) && !store_entry_has_one_slot(&entry))
        entry.slot ^= 1;
    entry.version = building(store);
    entry.flags &= (uint8_t)~STORE_ZERO;
    const struct hst_aio_op op = operation(store, &entry, buffer, transfer);
    rc = submit(store, entry.drive, &op);
    if (rc)
        return store_fail(store, rc, "writing an extent");
    entry.flags |= STORE_WRITING;
    store_entry_put(store->manifest, store_extent_of(store, kind, index), &entry);
    store->writes++;
    return 0;
}

static void close_extents(struct extents *extents)
{
    struct store *store = (struct store *)extents;
    store_close(&store);
}

static int store_descriptors(struct extents *extents, int *fds, uint32_t room)
{
    const struct store *store = (const struct store *)extents;
    return extents_descriptors(store->aio, store->drives, fds, room);
}

static const struct extents_ops STORE_OPS = {
    .read = store_read,
    .write = store_write,
    .progress = store_progress,
    .descriptors = store_descriptors,
    .close = close_extents,
};

/* ---- life ---- */

struct store *store_new(const struct store_config *config, struct hst_error *error)
{
    assert(config->drive_count >= 1 && config->drive_count <= STRIPE_DRIVES_MAX);
    struct store *store = calloc(1, sizeof *store);
    if (!store) {
        store_refuse(error, HST_E_BUDGET, -ENOMEM,
                     "no memory for the store. Fix: end other programs");
        return NULL;
    }
    store->extents.ops = &STORE_OPS;
    store->placement = config->placement;
    store->rank = config->placement->layout->share.rank;
    store->world = config->placement->layout->share.world;
    store->number = store->rank + config->replica;
    store->drives = config->drive_count;
    store->derived_weights = config->derived_weights;
    store->revertible = config->revertible;
    store->replaces = config->replaces;
    store->tiles = config->placement->layout->tile_count;
    store->version = STORE_NO_VERSION;
    for (uint32_t d = 0; d < store->drives; d++) {
        store->aio[d] = config->drives[d].aio;
        store->directories[d] =
            (struct store_directory){.path = config->drives[d].directory, .fd = -1};
    }
    for (uint32_t d = 0; d < store->drives; d++) {
        const struct scratch_drive *drive = &config->drives[d];
        if (store_directory_open(drive->directory, &store->directories[d], error)) {
            store_free(store);
            return NULL;
        }
    }
    if (config->agreed) {
        store->incarnation = config->agreed->incarnation;
    } else if (store_draw_id(&store->incarnation, error)) {
        store_free(store);
        return NULL;
    }
    return store;
}

int store_allocate(struct store *store)
{
    const uint64_t manifest_bytes = store->headers[0].manifest_bytes;
    const uint64_t pages = sizeof store->pages / sizeof store->pages[0];
    void *memory;
    store->buffer_bytes =
        manifest_bytes * (store->revertible ? 2 : 1) + pages * (uint64_t)STORE_PAGE_BYTES;
    int rc = hst_aio_buffer_alloc(store->buffer_bytes, &memory);
    if (rc)
        return rc;
    store->buffer = store->manifest = memory;
    if (store->revertible)
        store->committed = store->buffer + manifest_bytes + pages * (uint64_t)STORE_PAGE_BYTES;
    for (size_t i = 0; i < pages; i++)
        store->pages[i] = store->buffer + manifest_bytes + i * STORE_PAGE_BYTES;
    return 0;
}

void store_note_committed(struct store *store)
{
    if (store->committed)
        memcpy(store->committed, store->manifest, store->headers[0].manifest_bytes);
}

int store_revert(struct store *store)
{
    if (store->error.code)
        return store->error.native;
    if (store->commit != COMMIT_NONE || store->writes > 0)
        return -EBUSY;
    if (!store->committed || store->version == STORE_NO_VERSION)
        return -EINVAL;
    for (uint32_t i = 0; i < store->headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(store->committed, i, &entry);
        if (store_entry_has_one_slot(&entry)) /* what was written is all there is */
            continue;
        store_entry_put(store->manifest, i, &entry);
        const uint64_t at = store_hashes_at(store->headers[0].extents) +
                            (uint64_t)entry.first_block * sizeof(uint64_t);
        memcpy(store->manifest + at, store->committed + at,
               store_blocks_of(entry.bytes) * sizeof(uint64_t));
    }
    return 0;
}

void store_drain(struct store *store)
{
    for (uint32_t d = 0; d < store->drives; d++)
        while (hst_aio_in_flight(store->aio[d]) > 0 && reap(store, d, UINT64_MAX) >= 0)
            ;
}

void store_free(struct store *store)
{
    store_drain(store);
    for (uint32_t d = 0; d < store->drives; d++) {
        hst_aio_file_close(&store->files[d]);
        store_directory_close(&store->directories[d]);
    }
    if (store->buffer)
        hst_aio_buffer_free(store->buffer, store->buffer_bytes);
    free(store);
}

struct extents *store_extents(struct store *store)
{
    return &store->extents;
}

const struct store_cursor *store_cursor(const struct store *store)
{
    return &store->cursor;
}

uint64_t store_version(const struct store *store)
{
    return store->version;
}

const struct hst_error *store_error(const struct store *store)
{
    return &store->error;
}

void store_extent_place(const struct store *store, enum extent_kind kind, uint32_t index,
                        struct store_place *place)
{
    struct store_entry entry;
    store_entry_get(store->manifest, store_extent_of(store, kind, index), &entry);
    place->directory = store->directories[entry.drive].path;
    place->offset = entry.offset + entry.slot * store->headers[entry.drive].slot_bytes;
    place->bytes = entry.bytes;
    store_file_name(store->number, entry.drive, false, place->file);
}

void store_close(struct store **out)
{
    struct store *store = *out;
    if (!store)
        return;
    store_drain(store);
    if (!store->published && store->commit != COMMIT_PREPARED) {
        store_files_remove(store->directories, store->drives, store->number, store->replaces);
    } else if (store->commit == COMMIT_NONE && store->error.code == 0 && !store->doubtful) {
        struct store_superblock closed = store->superblock;
        closed.seq++;
        closed.state = STORE_CLEAN;
        closed.prev = (struct store_ref){.version = STORE_NO_VERSION};
        closed.written_bytes = store->written_before_bytes + store->extents.counters.written_bytes;
        (void)commit_superblock(store, &closed); /* without it the next open reads everything */
    }
    store_free(store);
    *out = NULL;
}
