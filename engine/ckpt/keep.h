/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_KEEP_H
#define HOISTWAY_ENGINE_CKPT_KEEP_H
/*
 * Copies of versions, kept beside the store while it goes on. A copy is a store of its own, in a
 * directory "step-N" of each of the store's: the same files with one of the two slots, the other
 * one a hole. It is made by a thread that shares nothing with the store but its bytes: those of a
 * committed version, which stay as they are as long as no later one is committed. That no commit
 * begins meanwhile is the caller's to see to.
 *
 * A copy that was not finished has another name, and is removed by the next one.
 *
 * Several ranks make a copy together, each of its own files, in one directory or in one of each. A
 * copy is whole where rank 0 has its name: it names it last and takes the name away first, and the
 * others go by what it has. Replicas have a whole version each: each goes by what it has itself.
 */
#include "plan/layout/stripe.h"

#include <hoistway/hoistway.h>

struct keep;

/* This is how ranks make copies together. All of them ask the same, in the same order. */
struct keep_ranks {
    uint32_t rank;
    /* *most ← the greatest of all ranks' values, *first ← the first rank that has it */
    int (*most)(void *context, uint32_t value, uint32_t *most, uint32_t *first);
    /* bytes ← rank 0's */
    int (*take_first)(void *context, void *bytes, size_t size_bytes);
    void *context;
};

struct keep_config {
    const char *const *paths; /* [drives] of the store; must outlive it */
    uint32_t drives;
    /* copies that are kept: the oldest go, and before them those of later steps, which are of a run
       that somebody has gone back from; 0: only what keep_begin is told */
    uint32_t count;
    const char *fewer; /* what needs less room, for messages: "a smaller --keep" */
    const struct keep_ranks *ranks; /* null: one process; must outlive it */
    bool replicas; /* each rank's copy is a whole version */
    uint32_t sharers[STRIPE_DRIVES_MAX]; /* ranks that share what is free on a drive: 1 of one */
};

/* It says how a copy ended. */
struct keep_done {
    uint64_t step, bytes;
    double seconds;
    bool shared; /* the file system shares the bytes with the store: nothing was copied */
    struct hst_error error; /* code 0: it is kept, or another rank tells why it is not */
    bool by_other;          /* another rank could not keep it, and has the error */
};

/** Errors: -ENOMEM. */
int keep_open(const struct keep_config *config, struct keep **keep);
/**
 * Begins to copy the store's last version, that of `step`; one at a time. Free space is looked at
 * first; a copy that is there already is left. The copy of step `instead_of` goes when the new one
 * is there, or before where there is no room for both; HST_NO_VERSION: of none. Errors:
 * pthread_create(3)'s.
 */
int keep_begin(struct keep *keep, uint64_t step, uint64_t instead_of);
/**
 * It does the same of several ranks, and returns when all of them are done. *done is this rank's.
 * Errors: those of the calls of keep_config.ranks.
 */
int keep_together(struct keep *keep, uint64_t step, uint64_t instead_of, struct keep_done *done);
/** True where a copy is being made. */
bool keep_is_copying(const struct keep *keep);
/** Once for each copy that has ended: true, with *done. With `wait`, waits for it. */
bool keep_ended(struct keep *keep, bool wait, struct keep_done *done);
/** Gives up what is being made. Accepts null in *keep, sets it to null. */
void keep_close(struct keep **keep);

#endif
