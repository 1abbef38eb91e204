/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents whose bytes are nobody's after the process. Each drive has a file for them: an unnamed
 * one, or the room that a store keeps (store/room.h). A read has to wait for the extent's last
 * write; the table of writes in flight is what decides that. Each drive has queues of its own: what
 * waits, waits for any of them.
 *
 * An extent has one slot, or two where the placement has made room (placement_second). Of two, one
 * holds the bytes that stand, and writes go to the other one until those are settled or reverted.
 */
#include "tier/extent.h"

#include <errno.h>
#include <stdlib.h>

#define REAP_BATCH 32

struct place {
    bool writing; /* a write of that extent is in flight */
    bool second;  /* the bytes that stand are in its second slot */
    bool fresh;   /* the other slot has newer ones */
};

struct scratch {
    struct extents extents;
    struct hst_aio *aio[STRIPE_DRIVES_MAX];
    struct hst_aio_file *file[STRIPE_DRIVES_MAX]; /* null where the drive has no tiles */
    uint64_t file_at[STRIPE_DRIVES_MAX];          /* where extents begin in it */
    uint32_t drives;
    const struct placement *placement;
    struct place *places; /* [extents], those of each kind behind one another */
    uint32_t first[EXTENT_KIND_COUNT + 1];
};

static struct place *place_of(const struct scratch *scratch, enum extent_kind kind, uint32_t index)
{
    return &scratch->places[scratch->first[kind] + index];
}

static void complete(struct scratch *scratch, const struct hst_aio_completion *completion)
{
    struct transfer *transfer = (struct transfer *)(uintptr_t)completion->user;
    transfer->error = completion->error;
    transfer->bad_offset = completion->bad_offset;
    transfer->bad_bytes = completion->bad_bytes;
    transfer->active = false;
    if (transfer->write) {
        place_of(scratch, transfer->kind, transfer->index)->writing = false;
        scratch->extents.counters.written_bytes += completion->bytes;
    } else {
        scratch->extents.counters.read_bytes += completion->bytes;
    }
}

/* Returns how many completed, or the backend's error. */
static int reap(struct scratch *scratch, uint32_t drive, size_t least, uint64_t wait_ns)
{
    struct hst_aio_completion completions[REAP_BATCH];
    int n = hst_aio_reap(scratch->aio[drive], completions, REAP_BATCH, least, wait_ns);
    for (int i = 0; i < n; i++)
        complete(scratch, &completions[i]);
    return n;
}

static int reap_all(struct scratch *scratch)
{
    int done = 0;
    for (uint32_t d = 0; d < scratch->drives; d++) {
        int n = reap(scratch, d, 0, 0);
        if (n < 0)
            return n;
        done += n;
    }
    return done;
}

static int scratch_progress(struct extents *extents, uint64_t wait_ns)
{
    struct scratch *scratch = (struct scratch *)extents;
    bool ready[STRIPE_DRIVES_MAX];
    if (scratch->drives == 1) {
        int n = reap(scratch, 0, wait_ns > 0 ? 1 : 0, wait_ns);
        return n < 0 ? n : 0;
    }
    int n = reap_all(scratch);
    if (n == 0 && wait_ns > 0) {
        n = hst_aio_wait_any(scratch->aio, scratch->drives, ready, wait_ns);
        n = n < 0 ? n : reap_all(scratch);
    }
    return n < 0 ? n : 0;
}

/* Back-pressure is waiting: a full queue is reaped until it takes the operation. */
static int submit(struct scratch *scratch, uint32_t drive, struct hst_aio_op *op,
                  struct transfer *transfer)
{
    op->file = scratch->file[drive];
    op->user = (uint64_t)(uintptr_t)transfer;
    for (;;) {
        int rc = hst_aio_submit(scratch->aio[drive], op, 1);
        if (rc == 1)
            return 0;
        if (rc < 0 && rc != -EAGAIN)
            return rc;
        rc = reap(scratch, drive, 1, UINT64_MAX);
        if (rc < 0)
            return rc;
    }
}

static int move(struct scratch *scratch, enum extent_kind kind, uint32_t index, void *buffer,
                struct transfer *transfer, bool write)
{
    uint64_t bytes;
    struct address at = placement_extent(scratch->placement, kind, index, &bytes);
    uint64_t distance = placement_second(scratch->placement, kind, index, at.drive);
    struct place *place = place_of(scratch, kind, index);
    while (place->writing) {
        int rc = scratch_progress(&scratch->extents, UINT64_MAX);
        if (rc)
            return rc;
    }
    bool other = write || place->fresh;
    struct hst_aio_op op = {
        .kind = write ? HST_AIO_WRITE : HST_AIO_READ,
        .offset = scratch->file_at[at.drive] + at.offset + (place->second != other ? distance : 0),
        .buffer = buffer,
        .bytes = bytes,
    };
    int rc = submit(scratch, at.drive, &op, transfer);
    if (rc || !write)
        return rc;
    place->writing = true;
    place->fresh = distance > 0;
    return 0;
}

static int scratch_read(struct extents *extents, enum extent_kind kind, uint32_t index,
                        void *buffer, struct transfer *transfer)
{
    return move((struct scratch *)extents, kind, index, buffer, transfer, false);
}

static int scratch_write(struct extents *extents, enum extent_kind kind, uint32_t index,
                         void *buffer, struct transfer *transfer)
{
    return move((struct scratch *)extents, kind, index, buffer, transfer, true);
}

/* ---- two slots ---- */

void scratch_settle(struct extents *extents)
{
    struct scratch *scratch = (struct scratch *)extents;
    for (uint32_t i = 0; i < scratch->first[EXTENT_KIND_COUNT]; i++) {
        scratch->places[i].second ^= scratch->places[i].fresh;
        scratch->places[i].fresh = false;
    }
}

int scratch_revert(struct extents *extents)
{
    struct scratch *scratch = (struct scratch *)extents;
    for (uint32_t i = 0; i < scratch->first[EXTENT_KIND_COUNT]; i++) {
        if (scratch->places[i].fresh && scratch->places[i].writing)
            return -EBUSY;
        scratch->places[i].fresh = false;
    }
    return 0;
}

/* ---- life ---- */

static void scratch_free(struct scratch *scratch)
{
    for (uint32_t d = 0; d < scratch->drives; d++)
        hst_aio_file_close(&scratch->file[d]);
    free(scratch->places);
    free(scratch);
}

static void scratch_close(struct extents *extents)
{
    struct scratch *scratch = (struct scratch *)extents;
    for (uint32_t d = 0; d < scratch->drives; d++)
        while (hst_aio_in_flight(scratch->aio[d]) > 0 && reap(scratch, d, 1, UINT64_MAX) >= 0)
            ;
    scratch_free(scratch);
}

static int scratch_descriptors(struct extents *extents, int *fds, uint32_t room)
{
    const struct scratch *scratch = (const struct scratch *)extents;
    return extents_descriptors(scratch->aio, scratch->drives, fds, room);
}

static const struct extents_ops SCRATCH_OPS = {
    .read = scratch_read,
    .write = scratch_write,
    .progress = scratch_progress,
    .descriptors = scratch_descriptors,
    .close = scratch_close,
};

int scratch_open(const struct scratch_drive *drives, uint32_t count,
                 const struct placement *placement, uint32_t *at, struct extents **extents)
{
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) {
        for (uint32_t d = 0; d < count; d++) {
            struct hst_aio_file *file = drives[d].file;
            hst_aio_file_close(&file);
        }
        return -ENOMEM;
    }
    *scratch =
        (struct scratch){.extents.ops = &SCRATCH_OPS, .placement = placement, .drives = count};
    for (uint32_t d = 0; d < count; d++) {
        scratch->file[d] = drives[d].file;
        scratch->file_at[d] = drives[d].file ? drives[d].file_at : 0;
    }
    for (int kind = 0; kind < EXTENT_KIND_COUNT; kind++)
        scratch->first[kind + 1] =
            scratch->first[kind] + placement_extents(placement, (enum extent_kind)kind);
    scratch->places =
        calloc((size_t)scratch->first[EXTENT_KIND_COUNT] + 1, sizeof *scratch->places);
    int rc = scratch->places ? 0 : -ENOMEM;
    for (uint32_t d = 0; d < count && rc == 0; d++) {
        *at = d;
        scratch->aio[d] = drives[d].aio;
        if (placement->drive_bytes[d] > 0 && !scratch->file[d])
            rc = hst_aio_file_open(drives[d].aio, drives[d].directory, HST_AIO_SCRATCH,
                                   placement->drive_bytes[d], &scratch->file[d]);
    }
    if (rc) {
        scratch_free(scratch);
        return rc;
    }
    *extents = &scratch->extents;
    return 0;
}
