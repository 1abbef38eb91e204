/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_STORE_H
#define HOISTWAY_ENGINE_STORE_STORE_H
/*
 * The store: extents with two slots each, of which one belongs to the last committed version and is
 * never written. A version is committed as a whole; whatever happens then, an open finds the last
 * version whose commit had returned, or the one whose commit was on its way.
 *
 * In order: store_create or store_open; extents_read and extents_write (tier/extent.h) on
 * store_extents; once the last write of a version was begun, store_commit_begin; progress until
 * store_commit_state is STORE_COMMIT_PREPARED; where all ranks are, store_commit_end; close.
 * Between begin and end the gate is closed: store_may_write is false, a write returns -EBUSY. Reads
 * go on. The first commit of a new store gives its files their names: before it there is none.
 *
 * The extents are weights and states of the placement's tiles; other kinds are scratch and refused
 * with -EINVAL. A read takes an extent's newest bytes, committed or not, and fails with -EBADMSG
 * where they are not those that were written. An extent is not to be written while it is being
 * read: what the read is compared with would be the write's hashes.
 *
 * Memory: 32 B per extent and 8 B per MiB block of it, rounded up to align_bytes, twice where it
 * can be reverted; nothing is allocated after the open. Thread-safety: the thread of its aio
 * contexts, which are its own while it is open. After a failed write or commit the store only
 * reads: what was committed before is as it was.
 */
#include "store/choose.h"
#include "store/format.h"
#include "tier/extent.h"

#include <hoistway/hoistway.h>

struct store;

/* The ranks of a store have these in common. */
struct store_agreed {
    struct store_id uuid;        /* of a new store */
    struct store_id incarnation; /* of this open */
};

/* Room for scratch on a drive: room.h. */
struct store_room {
    struct hst_aio *aio; /* of scratch: not the store's */
    uint64_t bytes;      /* that it takes; 0: none */
    /* by store_create and store_open: open, with so many bytes from STORE_ROOM_AT on; the caller's
       to close, before the store */
    struct hst_aio_file *file;
    bool made; /* it was not there before */
};

/* This is what a rank asks the others while a store of several is opened; all of them ask alike.
   Errors of theirs end the open, *error untouched. */
struct store_peers {
    void *context;
    uint32_t ranks;
    /* all[ranks] ← the candidates of each rank */
    int (*share)(void *context, const struct store_candidates *own, struct store_candidates *all);
    /* *any ← the version at hand is damaged on some rank */
    int (*damaged)(void *context, bool own, bool *any);
};

struct store_config {
    const struct store_peers *peers; /* null: the store is of one rank, or a reshard's */
    /* It is one of several that have the same of the model, all of it: so many lie in front of it.
       Its files bear its number in their names, and say what those of one rank do. */
    uint32_t replica;
    const struct scratch_drive *drives; /* [drive_count]; context and directory; borrowed */
    uint32_t drive_count;
    const struct placement *placement; /* of a rank's share; must outlive the store */
    const struct store_agreed *agreed; /* null: drawn, which is for one rank */
    /* the weights follow from the states (fp16): one slot, no bytes in a version. After an open
       they read as -ENODATA until they are written */
    bool derived_weights;
    bool marked;          /* by store_unfinished_begin, of the caller */
    bool replaces; /* another store may have the names that the first commit gives: it loses them */
    bool revertible;      /* store_revert may be called: the bookkeeping is there twice */
    struct store_room *rooms; /* [drive_count]; null: nothing is scratch */
    const double *rates;      /* [drive_count], that its extents are shared out by; null: none */
    uint32_t align_bytes; /* of a file's parts; 0: STORE_ALIGN_MAX. Of store_create only */
    /* store_open calls it: it looks at where training stands before anything is changed; other than
       0 refuses, and is what store_open returns, *error untouched. Null: all is right. */
    int (*accept)(void *context, const struct store_cursor *cursor);
    void *accept_context;
    /* It is called while all bytes are compared; other than 0 ends the open with -ECANCELED; or
     * null */
    int (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
    uint32_t lock_timeout_ms; /* for leftovers of a killed creation; 0: 30 s */
    /* Once a file that another process has was waited for for a second; most_s: how long it is
       waited for yet. Or null */
    void (*waits)(void *context, const char *directory, const char *name, uint32_t most_s);
    void *waits_context;
};

/**
 * Bytes of a new store's file on each drive beside its extents: headers, superblocks, manifests.
 * Cost: O(tiles). Errors: none; a store that is too large is refused when it is made.
 */
void store_fixed_bytes(const struct layout *layout, const struct optimizer *optimizer,
                       uint32_t drives, uint64_t fixed_bytes[STRIPE_DRIVES_MAX]);

/**
 * Lays out a new store in directories of the caller's that hold nothing else; they are made 0700.
 * Every extent reads as zeros. Its version 0 is the first commit; where it is closed before that
 * is prepared, nothing remains.
 *
 * Errors, with *error filled: -EEXIST a committed store, or other files; -EPERM, -ELOOP others can
 * enter or change it; -EBUSY in use; -ENOSPC, -EDQUOT, of room too; -EIO and the system's; -ENOMEM;
 * -EOVERFLOW too large for a file.
 */
int store_create(const struct store_config *config, struct store **store, struct hst_error *error);

/* It holds what an open found. */
struct store_found {
    uint64_t version, step;
    uint64_t damaged_step; /* that of the newest one, where it was stepped back from it */
    bool clean;        /* it was closed in order: its bytes were not read */
    bool stepped_back; /* not to the newest version, which is damaged on some rank */
    bool unfinished;   /* not to the newest version that a rank has: others had not come so far */
    /* one that may have named a later version: torn by a crash in a commit, or by the drive */
    bool superblock_damaged;
    uint32_t repaired; /* copies of metadata that were damaged and have been written anew */
    uint64_t verified_bytes;
};

/**
 * Opens a store and goes back to its last committed version. After anything but an orderly close
 * every byte of it is read and compared first. store_cursor tells where training stands. Room that
 * is not there, or too small, is taken before anything is written.
 *
 * Errors, with *error filled; nothing was changed then, but that one drive's room may have become
 * larger where another's could not: -ENOENT no version was ever committed; -EEXIST that of a
 * reshard which did not end; -EBUSY in use; -EPERM, -ELOOP others can change it; -ENOTSUP another
 * format; -EINVAL files that do not belong together, or of another model; -ENODATA a file was cut;
 * -EBADMSG no version is whole; -ENOSPC, -EDQUOT, -EFBIG there is no place for room; the system's;
 * -ENOMEM.
 */
int store_open(const struct store_config *config, struct store **store, struct store_found *found,
               struct hst_error *error);

/** As a provider of extents. Its close: see store_close. */
struct extents *store_extents(struct store *store);
/** It is the found version's; what it points to is good until the first store_commit_begin. */
const struct store_cursor *store_cursor(const struct store *store);
/** The last committed version; STORE_NO_VERSION before the first. */
uint64_t store_version(const struct store *store);

/** It tells whether this extent may be written now: no commit has been begun and not ended. */
bool store_may_write(const struct store *store, enum extent_kind kind, uint32_t index);

enum store_commit_state {
    STORE_COMMIT_NONE = 0,
    STORE_COMMIT_UNDERWAY, /* progress() takes it on */
    STORE_COMMIT_PREPARED, /* durable here; store_commit_end where it is on all ranks */
};

/**
 * Begins to commit what was written: returns at once. Writes in flight are part of it. The cursor
 * is copied. Costs two syncs of drive 0, one of the others, and twice the bookkeeping's bytes.
 *
 * Errors: -EINVAL a cursor larger than STORE_CURSOR_MAX; -EBUSY a commit is underway; the error of
 * an earlier failure.
 */
int store_commit_begin(struct store *store, const struct store_cursor *cursor);
/** It tells how far the commit is; an error ends it (store_error). */
enum store_commit_state store_commit_state(const struct store *store);
/**
 * The commit has returned: the version is the one that an open will find, the gate opens. The first
 * of a store renames its files and waits for that.
 * Errors: -EINVAL none is prepared; the error of an earlier failure; of the first, the system's.
 */
int store_commit_end(struct store *store);

/**
 * Forgets what was written since the last commit: reads take what was committed, and the next
 * writes go where the forgotten ones went. Derived weights stay as they are.
 * Errors: -EBUSY writes are in flight or a commit is underway; -EINVAL nothing was committed, or
 * the store is not revertible; the error of an earlier failure. Cost: a copy of the bookkeeping.
 */
int store_revert(struct store *store);

/* It says where the newest bytes of an extent are. */
struct store_place {
    const char *directory;
    char file[32];
    uint64_t offset, bytes;
};
void store_extent_place(const struct store *store, enum extent_kind kind, uint32_t index,
                        struct store_place *place);

/** Why the store only reads; code 0: it does not. */
const struct hst_error *store_error(const struct store *store);

/**
 * Waits for what is in flight, marks the store as closed in order, unless it has failed, a read of
 * an extent has, or a commit was not ended, and frees it. Accepts null in *store, sets it to null.
 */
void store_close(struct store **store);

#endif
