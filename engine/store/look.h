/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_LOOK_H
#define HOISTWAY_ENGINE_STORE_LOOK_H
/*
 * One rank's files as they are: the version that an open would go on from, by superblocks and
 * manifests alone. Nothing is written. A run may have the store meanwhile: it writes superblocks
 * and manifests to places that do not hold the newest, so what is read is whole, or is read again.
 */
#include "store/choose.h"
#include "store/files.h"

struct look {
    const struct store_directory *directories; /* [drives]; borrowed */
    uint32_t rank, drives;
    bool forming; /* see store_set */
    int fds[STRIPE_DRIVES_MAX]; /* read-only; -1: not open */
    struct store_header headers[STRIPE_DRIVES_MAX];
    bool in_use;             /* by a process that writes */
    uint32_t damaged_copies; /* of headers, superblocks, manifests, that have a good one */
    struct store_superblock newest;
    bool clean; /* closed in order: an open would not read every byte */
    struct store_candidates candidates;
    /* The version that was loaded: */
    struct store_ref ref;
    unsigned char *manifest; /* ref.bytes; null: none */
    struct store_manifest about;
};

/**
 * Opens a rank's files for reading and finds its candidates. With `hold` they are locked, shared,
 * until look_close: no run can begin to write. Fills *look so that look_close may be called after
 * an error, too.
 *
 * Errors, with *error: store_files_look's; -EBUSY with `hold`, in use; -EBADMSG no superblock, or
 * no manifest, is whole; the system's; -ENOMEM.
 */
int look_open(const struct store_directory *directories, uint32_t drives, uint32_t rank, bool hold,
              struct look *look, struct hst_error *error);
/** The same of a set, whatever its world. */
int look_open_set(const struct store_set *set, bool hold, struct look *look,
                  struct hst_error *error);
/** Reads the manifest of a candidate. Errors: as look_open. */
int look_load(struct look *look, const struct store_candidate *wanted, struct hst_error *error);
void look_close(struct look *look);

/** It tells where the bytes of an entry are in its drive's file. */
uint64_t look_offset(const struct look *look, const struct store_entry *entry);
/** The hashes of its blocks. */
uint64_t *look_hashes(const struct look *look, const struct store_entry *entry);

#endif
