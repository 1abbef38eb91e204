/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents at home in the device's memory: a transfer is a copy on a stream, done when the event
 * behind it has passed. One stream keeps their order, so a read never overtakes a write.
 */
#include "tier/extent.h"

#include <errno.h>
#include <stdlib.h>

struct copying {
    struct transfer *transfer;
    struct hst_event *passed;
    uint64_t bytes;
};

struct hbm {
    struct extents extents;
    struct hst_stream *stream;
    unsigned char *arena;
    const struct placement *placement;
    struct copying *ring; /* [depth]; oldest at `first` */
    uint32_t depth, first, count;
};

/* Takes the oldest copy out of the ring. */
static void complete(struct hbm *hbm, int error)
{
    struct copying *oldest = &hbm->ring[hbm->first];
    oldest->transfer->error = error;
    oldest->transfer->active = false;
    uint64_t *moved = oldest->transfer->write ? &hbm->extents.counters.written_bytes
                                              : &hbm->extents.counters.read_bytes;
    *moved += error ? 0 : oldest->bytes;
    hbm->first = (hbm->first + 1) % hbm->depth;
    hbm->count--;
}

static int hbm_progress(struct extents *extents, uint64_t wait_ns)
{
    struct hbm *hbm = (struct hbm *)extents;
    bool taken = false;
    while (hbm->count > 0) {
        struct hst_event *passed = hbm->ring[hbm->first].passed;
        bool wait = wait_ns > 0 && !taken;
        int rc = wait ? hst_event_sync(passed) : hst_event_query(passed);
        if (rc == 0 && !wait)
            return 0;
        complete(hbm, rc < 0 ? rc : 0);
        taken = true;
    }
    return 0;
}

static int move(struct hbm *hbm, enum extent_kind kind, uint32_t index, void *buffer,
                struct transfer *transfer, bool write)
{
    const struct placement *p = hbm->placement;
    uint64_t bytes;
    struct address home = placement_extent(p, kind, index, &bytes);
    unsigned char *at = hbm->arena + home.offset;
    if (hbm->count == hbm->depth) {
        int rc = hbm_progress(&hbm->extents, UINT64_MAX);
        if (rc)
            return rc;
    }
    struct copying *next = &hbm->ring[(hbm->first + hbm->count) % hbm->depth];
    int rc = hst_stream_copy(hbm->stream, write ? (void *)at : buffer, write ? buffer : (void *)at,
                             bytes);
    rc = rc ? rc : hst_event_record(next->passed, hbm->stream);
    if (rc)
        return rc;
    next->transfer = transfer;
    next->bytes = bytes;
    hbm->count++;
    return 0;
}

static int hbm_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                    struct transfer *transfer)
{
    return move((struct hbm *)extents, kind, index, buffer, transfer, false);
}

static int hbm_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                     struct transfer *transfer)
{
    return move((struct hbm *)extents, kind, index, buffer, transfer, true);
}

static void hbm_close(struct extents *extents)
{
    struct hbm *hbm = (struct hbm *)extents;
    while (hbm->count > 0)
        (void)hbm_progress(extents, UINT64_MAX); /* each transfer keeps its own error */
    for (uint32_t i = 0; i < hbm->depth; i++)
        hst_event_destroy(&hbm->ring[i].passed);
    free(hbm->ring);
    free(hbm);
}

static const struct extents_ops HBM_OPS = {
    .read = hbm_read,
    .write = hbm_write,
    .progress = hbm_progress,
    .close = hbm_close,
};

int hbm_open(struct hst_stream *stream, struct hst_dev *dev, unsigned char *arena,
             const struct placement *placement, struct extents **extents)
{
    struct hbm *hbm = calloc(1, sizeof *hbm);
    if (!hbm)
        return -ENOMEM;
    *hbm = (struct hbm){
        .extents.ops = &HBM_OPS,
        .stream = stream,
        .arena = arena,
        .placement = placement,
        .ring = calloc((size_t)placement->slots.count * EXTENT_KIND_COUNT, sizeof *hbm->ring),
    };
    int rc = hbm->ring ? 0 : -ENOMEM;
    while (rc == 0 && hbm->depth < placement->slots.count * EXTENT_KIND_COUNT) {
        rc = hst_event_create(dev, &hbm->ring[hbm->depth].passed);
        hbm->depth += rc == 0;
    }
    if (rc) {
        hbm_close(&hbm->extents);
        return rc;
    }
    *extents = &hbm->extents;
    return 0;
}
