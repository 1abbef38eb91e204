/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_STATE_H
#define HOISTWAY_ENGINE_STORE_STATE_H
/* This header says what a store holds, for the files of this folder. */
#include "store/choose.h"
#include "store/files.h"
#include "store/store.h"

/* The store's own transfers, of headers, superblocks and manifests: a few at a time. */
#define OWN_OPS_MAX (2 * STRIPE_DRIVES_MAX)
struct own_op {
    uint32_t drive;
    enum hst_aio_kind kind;
    uint64_t offset, bytes;
    void *buffer;
    int result;
};
struct own {
    struct own_op ops[OWN_OPS_MAX];
    uint32_t count, submitted, done;
};

enum commit_at { /* docs: README.md, "A commit" */
                 COMMIT_NONE = 0,
                 COMMIT_WRITES,     /* C1: until no write is in flight */
                 COMMIT_MANIFEST,   /* C2 */
                 COMMIT_SYNC,       /* C3 */
                 COMMIT_SUPERBLOCK, /* C4 */
                 COMMIT_SUPERBLOCK_SYNC,
                 COMMIT_PREPARED,
                 COMMIT_FAILED,
};

struct store {
    struct extents extents;
    const struct placement *placement;
    uint32_t rank, world, drives, tiles;
    uint32_t number; /* in the names of its files: the rank, but of replicas */
    bool derived_weights, revertible, replaces;
    struct store_directory directories[STRIPE_DRIVES_MAX];
    struct hst_aio *aio[STRIPE_DRIVES_MAX];
    struct hst_aio_file *files[STRIPE_DRIVES_MAX];
    struct store_header headers[STRIPE_DRIVES_MAX];
    bool published;

    unsigned char *buffer; /* all of it in one piece: */
    uint64_t buffer_bytes;
    unsigned char *manifest;  /* of the newest bytes, committed or not; as it is written */
    unsigned char *committed; /* the same of the last version; null: it is not revertible */
    unsigned char *pages[4];  /* superblocks and headers on their way */

    struct store_id incarnation;
    struct store_superblock superblock; /* the newest on the drive */
    struct store_superblock next;       /* of the commit underway */
    struct store_cursor cursor;         /* that was found */
    uint64_t written_before_bytes;      /* before this open */
    uint64_t version;                   /* that is committed */

    bool doubtful;   /* an extent was read that is not what was written, or could not be read */
    uint32_t writes; /* in flight */
    struct own own;
    enum commit_at commit;
    struct hst_error error;
};

/* store.c */
/** Allocates what needs only sizes. Errors: -ENOMEM. */
int store_allocate(struct store *store);
/** The newest bytes are those of the last version: notes what a revert goes back to. */
void store_note_committed(struct store *store);
/** Null with *error filled. */
struct store *store_new(const struct store_config *config, struct hst_error *error);
/** It returns the number of an extent in the manifest. */
uint32_t store_extent_of(const struct store *store, enum extent_kind kind, uint32_t index);
/** Waits for what is in flight; a context that broke down has nothing. */
void store_drain(struct store *store);
void store_free(struct store *store);
/** It does what follows a failure; the first one stays. Returns `native`. */
int store_fail(struct store *store, int native, const char *what);

/* own.c: the store's own transfers */
void own_begin(struct store *store);
void own_add(struct store *store, uint32_t drive, enum hst_aio_kind kind, uint64_t offset,
             void *buffer, uint64_t bytes);
/** Submits what the queues take. Returns whether all are done. Never waits. */
bool own_advance(struct store *store);
/** The first error among the results, or 0. */
int own_result(const struct store *store);
/** Waits for all. Returns the backend's error, or 0; results are in the operations. */
int own_wait(struct store *store);
void own_complete(struct store *store, const struct hst_aio_completion *completion);
bool own_is(const struct hst_aio_completion *completion);

/* commit.c */
/** Takes the commit as far as it goes without waiting. */
void commit_advance(struct store *store);
/** Writes a superblock with the next number and syncs it, waiting. */
int commit_superblock(struct store *store, const struct store_superblock *superblock);

/*
 * Builds of the tests leave out one step of the protocol, to see that the tests find it; nothing
 * else does.
 */
enum { LEAVE_NOTHING = 0, LEAVE_DATA_SYNC, LEAVE_SUPERBLOCK_SYNC, LEAVE_GATE, LEAVE_ROLL_BACK };
#ifndef STORE_LEAVE_OUT
#define STORE_LEAVE_OUT LEAVE_NOTHING
#endif

#endif
