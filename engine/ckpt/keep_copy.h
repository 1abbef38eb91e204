/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_KEEP_COPY_H
#define HOISTWAY_ENGINE_CKPT_KEEP_COPY_H
/* A copy that is being made, for keep.c and keep_copy.c: its bytes and its tables. */
#include "ckpt/keep.h"
#include "store/look.h"

#include <pthread.h>
#include <stdatomic.h>

#define KEEP_PART_BYTES (UINT64_C(1) << 20)

struct keep {
    struct keep_config config;
    pthread_t thread;
    bool begun; /* and not yet joined */
    atomic_bool finished, stop;
    uint64_t instead_of; /* the step of the copy that goes */
    struct keep_done done;
};

/* It is the thread's, or that of a call of several ranks. */
struct copying {
    struct keep *keep;
    struct store_directory directories[STRIPE_DRIVES_MAX];
    struct look look;
    int to[STRIPE_DRIVES_MAX];     /* the copy's files; -1 */
    bool clone[STRIPE_DRIVES_MAX]; /* the file system may share bytes */
    uint64_t dirty_from[STRIPE_DRIVES_MAX], dirty_bytes[STRIPE_DRIVES_MAX];
    unsigned char *part; /* KEEP_PART_BYTES, where the system copies nothing by itself */
    bool has;            /* the copy is there already: others may make theirs */
    int broken;          /* ranks cannot ask each other any more */
    struct hst_error *error;
};

/** It names, where the drive was full, what needs less room. Returns native, with the error. */
int keep_refuse(struct copying *c, uint32_t d, int native, const char *what);
/** An extent that is zero or derived has none. */
bool keep_has_bytes(const struct store_entry *entry);
/** It copies those of the version, to where they are in the store. Errors: -ECANCELED; the
 * system's. */
int keep_copy_extents(struct copying *c);
/** It copies those of a store that was closed in order with this version. Errors: the system's. */
int keep_write_tables(struct copying *c);

#endif
