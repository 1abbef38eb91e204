/* SPDX-License-Identifier: Apache-2.0 */
/* This file tells what went wrong under the executor, with what it was about: a transfer, the way
 * to the extents, the device. */
#include "session/store/failure.h"

#include "base/device_failure.h"
#include "store/store.h"

#include <errno.h>
#include <string.h>

int engine_stopped(const struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    return engine->phase < PHASE_LOADED && c->stopped && c->stopped(c->stopped_context) ? -ECANCELED
                                                                                        : 0;
}

/* It passes on what the store itself says, where it is what failed. */
static int fail_store(struct hst_engine *engine)
{
    const struct hst_error *told =
        engine->versions.store ? store_error(engine->versions.store) : NULL;
    return told && told->code ? report_fail_as(&engine->report, told) : 0;
}

int engine_fail_extents(struct hst_engine *engine, int native)
{
    int rc = fail_store(engine);
    if (rc)
        return rc;
    uint32_t d = 0; /* the drive that refuses even to be asked for nothing */
    while (d + 1 < engine->drive_count &&
           (!engine->drives[d].aio || hst_aio_submit(engine->drives[d].aio, NULL, 0) == 0))
        d++;
    const char *path = engine->drive_count ? engine->drives[d].path : "the device";
    if (native == -ETIMEDOUT)
        return report_fail(&engine->report, HST_E_READ, native,
                           "%s has answered no request for 120 s. Fix: check the drive (dmesg, "
                           "smartctl -a), then start again",
                           path);
    return report_fail(&engine->report, HST_E_READ, native,
                       "the I/O of %s broke down: %s. Fix: check the kernel's messages (dmesg), "
                       "then start again, with --io threads if it happens again",
                       path, strerror(-native));
}

static const char *const KINDS[EXTENT_KIND_COUNT] = {
    [EXTENT_WEIGHTS] = "weights, tile",
    [EXTENT_STATES] = "optimizer states, tile",
    [EXTENT_GRADS] = "gradients, tile",
    [EXTENT_ACTS] = "activation checkpoints, block",
};

/* An extent of the store, whose last version is not touched by that. */
static int fail_stored(struct hst_engine *engine, const struct transfer *transfer)
{
    bool damaged = transfer->error == -EBADMSG;
    int rc = fail_store(engine);
    if (rc)
        return rc;
    struct store_place place;
    store_extent_place(engine->versions.store, transfer->kind, transfer->index, &place);
    return report_fail(&engine->report,
                       damaged           ? HST_E_STORE_DAMAGED
                       : transfer->write ? HST_E_WRITE
                                         : HST_E_READ,
                       transfer->error,
                       "%s %s %u, at offset %llu (%llu bytes) of %s/%s failed: %s. Fix: check the "
                       "drive (dmesg, smartctl -a), then --resume, which reads every byte first",
                       transfer->write ? "writing" : "reading", KINDS[transfer->kind],
                       transfer->index, (unsigned long long)place.offset,
                       (unsigned long long)place.bytes, place.directory, place.file,
                       damaged ? "these are not the bytes that were written"
                               : strerror(-transfer->error));
}

int engine_fail_transfer(struct hst_engine *engine, const struct transfer *transfer)
{
    if (engine->versions.store && transfer->kind <= EXTENT_STATES)
        return fail_stored(engine, transfer);
    uint64_t bytes;
    struct address at =
        placement_extent(&engine->placement, transfer->kind, transfer->index, &bytes);
    if (transfer->error == -ETIMEDOUT &&
        hst_aio_submit(engine->drives[at.drive].aio, NULL, 0) == -ETIMEDOUT)
        return engine_fail_extents(engine, transfer->error); /* not this request alone */
    /* on file systems that copy on write; others had the room from the start */
    bool full = transfer->write && (transfer->error == -ENOSPC || transfer->error == -EDQUOT);
    bool known = transfer->bad_bytes > 0; /* else somewhere in the extent */
    return report_fail(&engine->report,
                       full              ? HST_E_DISK_SPACE
                       : transfer->write ? HST_E_WRITE
                                         : HST_E_READ,
                       transfer->error,
                       "%s of %s %u, at offset %llu (%llu bytes) of the scratch file in %s failed: "
                       "%s. Fix: %s, then start again",
                       transfer->write ? "writing" : "reading", KINDS[transfer->kind],
                       transfer->index,
                       (unsigned long long)(known ? transfer->bad_offset : at.offset),
                       (unsigned long long)(known ? transfer->bad_bytes : bytes),
                       engine->drives[at.drive].path, strerror(-transfer->error),
                       full ? "free space there" : "check the drive (dmesg, smartctl -a)");
}

int engine_fail_device(struct hst_engine *engine, int native, const char *what)
{
    return device_fail(&engine->report, engine->dev, engine->config.device, native, what);
}
