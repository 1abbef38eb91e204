/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents in one unnamed file: it is gone with the process, however that ends. One slot per extent,
 * so a read has to wait for the extent's last write; the table of writes in flight is what decides
 * that.
 */
#include "tier/extent.h"

#include <errno.h>
#include <stdlib.h>

#define REAP_BATCH 32

struct scratch {
    struct extents extents;
    struct hst_aio *aio;
    struct hst_aio_file *file;
    const struct placement *placement;
    const struct layout *layout;
    enum hst_precision precision;
    bool *writing[EXTENT_KIND_COUNT]; /* [tile_count]: a write of that extent is in flight */
};

static void complete(struct scratch *scratch, const struct hst_aio_completion *completion)
{
    struct transfer *transfer = (struct transfer *)(uintptr_t)completion->user;
    transfer->error = completion->error;
    transfer->active = false;
    if (transfer->write) {
        scratch->writing[transfer->kind][transfer->tile] = false;
        scratch->extents.counters.written_bytes += completion->bytes;
    } else {
        scratch->extents.counters.read_bytes += completion->bytes;
    }
}

static int scratch_progress(struct extents *extents, bool wait)
{
    struct scratch *scratch = (struct scratch *)extents;
    struct hst_aio_completion completions[REAP_BATCH];
    int n = hst_aio_reap(scratch->aio, completions, REAP_BATCH, wait ? 1 : 0, UINT64_MAX);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++)
        complete(scratch, &completions[i]);
    return 0;
}

static bool scratch_written(struct extents *extents, enum extent_kind kind, uint32_t tile)
{
    const struct scratch *scratch = (const struct scratch *)extents;
    return !scratch->writing[kind][tile];
}

static uint64_t extent_bytes(const struct scratch *scratch, enum extent_kind kind, uint32_t tile)
{
    uint32_t elements = layout_tile(scratch->layout, tile).elements;
    if (kind == EXTENT_WEIGHTS)
        return (uint64_t)elements * record_weight_bytes(scratch->precision);
    return record_layout(scratch->precision, elements).bytes;
}

/* Back-pressure is waiting: a full queue is reaped until it takes the operation. */
static int submit(struct scratch *scratch, struct hst_aio_op *op, struct transfer *transfer)
{
    op->file = scratch->file;
    op->user = (uint64_t)(uintptr_t)transfer;
    for (;;) {
        int rc = hst_aio_submit(scratch->aio, op, 1);
        if (rc == 1)
            return 0;
        if (rc < 0 && rc != -EAGAIN)
            return rc;
        rc = scratch_progress(&scratch->extents, true);
        if (rc)
            return rc;
    }
}

static int move(struct scratch *scratch, enum extent_kind kind, uint32_t tile, void *buffer,
                struct transfer *transfer, bool write)
{
    struct address at = kind == EXTENT_WEIGHTS ? placement_weights(scratch->placement, tile)
                                               : placement_states(scratch->placement, tile);
    while (scratch->writing[kind][tile]) {
        int rc = scratch_progress(&scratch->extents, true);
        if (rc)
            return rc;
    }
    struct hst_aio_op op = {
        .kind = write ? HST_AIO_WRITE : HST_AIO_READ,
        .offset = at.offset,
        .buffer = buffer,
        .bytes = extent_bytes(scratch, kind, tile),
    };
    int rc = submit(scratch, &op, transfer);
    if (rc == 0)
        scratch->writing[kind][tile] = write;
    return rc;
}

static int scratch_read(struct extents *extents, enum extent_kind kind, uint32_t tile, void *buffer,
                        struct transfer *transfer)
{
    return move((struct scratch *)extents, kind, tile, buffer, transfer, false);
}

static int scratch_write(struct extents *extents, enum extent_kind kind, uint32_t tile,
                         void *buffer, struct transfer *transfer)
{
    return move((struct scratch *)extents, kind, tile, buffer, transfer, true);
}

static void scratch_close(struct extents *extents)
{
    struct scratch *scratch = (struct scratch *)extents;
    while (hst_aio_in_flight(scratch->aio) > 0 && scratch_progress(extents, true) == 0)
        ;
    hst_aio_file_close(&scratch->file);
    free(scratch->writing[EXTENT_WEIGHTS]);
    free(scratch->writing[EXTENT_STATES]);
    free(scratch);
}

static const struct extents_ops SCRATCH_OPS = {
    .read = scratch_read,
    .write = scratch_write,
    .written = scratch_written,
    .progress = scratch_progress,
    .close = scratch_close,
};

int scratch_open(struct hst_aio *aio, const char *directory, const struct placement *placement,
                 const struct layout *layout, enum hst_precision precision,
                 struct extents **extents)
{
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return -ENOMEM;
    *scratch = (struct scratch){
        .extents.ops = &SCRATCH_OPS,
        .aio = aio,
        .placement = placement,
        .layout = layout,
        .precision = precision,
    };
    int rc = -ENOMEM;
    for (int kind = 0; kind < EXTENT_KIND_COUNT; kind++) {
        scratch->writing[kind] = calloc((size_t)layout->tile_count + 1, sizeof(bool));
        if (!scratch->writing[kind])
            goto err_free;
    }
    rc = hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, placement->nvme_bytes, &scratch->file);
    if (rc)
        goto err_free;
    *extents = &scratch->extents;
    return 0;

err_free:
    free(scratch->writing[EXTENT_WEIGHTS]);
    free(scratch->writing[EXTENT_STATES]);
    free(scratch);
    return rc;
}
