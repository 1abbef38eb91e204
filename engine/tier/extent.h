/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_TIER_EXTENT_H
#define HOISTWAY_ENGINE_TIER_EXTENT_H
/*
 * Extents (plan/placement.h): bytes that live where the host cannot work on them, on a drive or in
 * a GPU's memory. Exec asks for extents, never for files; a provider knows files, slots and hashes.
 * scratch.c has one slot, or two, and leaves nothing behind; a store that commits has two and fills
 * the same table; hbm.c copies.
 *
 * The caller owns a struct transfer until it is done; everything runs on the engine's thread.
 */
#include "plan/placement/placement.h"

#include <hoistway/aio.h>

/* Most that the engine has on the way to one drive at once. */
#define EXTENTS_IN_FLIGHT 64u

struct transfer {
    bool active; /* submitted and not yet completed */
    bool write;
    int error;                      /* 0 or negative errno, once it is no longer active */
    uint64_t bad_offset, bad_bytes; /* then: where, in its drive's file; bytes 0: not known */
    enum extent_kind kind;
    uint32_t index;
};

struct extent_counters {
    uint64_t read_bytes, written_bytes; /* completed */
};

struct extents;
struct extents_ops {
    /* Begin moving one extent, for extents_read and extents_write, which fill *transfer; it must
       stay where it is until it is no longer active. A read waits for the completion of the
       extent's last write. */
    int (*read)(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                struct transfer *transfer);
    int (*write)(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                 struct transfer *transfer);
    /* Takes what has completed; where nothing has and anything is in flight, waits for it for
       wait_ns at most (UINT64_MAX: without end). */
    int (*progress)(struct extents *extents, uint64_t wait_ns);
    /* fds ← [room] of which one polls readable when there is something to take. Returns how many
       there are; -ENOTSUP: it has none, as in simulated time. Null: -ENOTSUP. */
    int (*descriptors)(struct extents *extents, int *fds, uint32_t room);
    void (*close)(struct extents *extents);
};

/** For extents_ops.descriptors: those of these contexts. */
int extents_descriptors(struct hst_aio *const *aio, uint32_t count, int *fds, uint32_t room);

struct extents {
    const struct extents_ops *ops;
    struct extent_counters counters;
};

/**
 * Begin moving one extent between the drive and `buffer`. Returns 0, or the error, which is then
 * the transfer's too.
 */
int extents_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                 struct transfer *transfer);
int extents_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                  struct transfer *transfer);
/** Waits until the transfer is done. Returns its error. */
int extents_wait(struct extents *extents, struct transfer *transfer);

/**
 * HBM provider: tiles in the device's memory at `arena`; copies run on `stream`, at most one per
 * slot and kind at a time. Errors: -ENOMEM, the device's.
 */
int hbm_open(struct hst_stream *stream, struct hst_dev *dev, unsigned char *arena,
             const struct placement *placement, struct extents **extents);

/* One drive of the scratch provider. */
struct scratch_drive {
    struct hst_aio *aio;
    const char *directory;
    struct hst_aio_file *file; /* has the room; null: an unnamed file is made */
    uint64_t file_at;          /* where the room begins in it */
};
/**
 * Scratch provider: one preallocated file on each of the placement's drives, given or unnamed. The
 * aio contexts and the placement must outlive it. Files that are given are its own from then on,
 * closed on failure too. On failure *at is the drive.
 */
int scratch_open(const struct scratch_drive *drives, uint32_t count,
                 const struct placement *placement, uint32_t *at, struct extents **extents);
/**
 * The last bytes that an extent with two slots was written stand from now on: the next write goes
 * to the other slot. Such a write may be in flight. Cost: O(extents), a few bytes of each.
 */
void scratch_settle(struct extents *scratch);
/**
 * It forgets what was written since extents were settled; the next write goes where that one went.
 * Errors: -EBUSY one such write is in flight. Cost: as above.
 */
int scratch_revert(struct extents *scratch);

/**
 * Weights and states with `store`, all else with `scratch`, both of which are closed with *extents.
 * aio: [count] the contexts of both, 2 STRIPE_DRIVES_MAX at most. Errors: -ENOMEM; both are then
 * still the caller's.
 */
int route_open(struct extents *store, struct extents *scratch, struct hst_aio *const *aio,
               uint32_t count, struct extents **extents);

#endif
