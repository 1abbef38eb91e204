/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_REPLICAS_H
#define HOISTWAY_ENGINE_SESSION_STORE_REPLICAS_H
/*
 * Which replicas several processes find, where each finds some: files that ranks of ZeRO stage 0
 * have left, of one store or of a kept copy of it. What is shared is a set of numbers; the caller
 * shares it.
 */
#include "ckpt/ckpt.h"
#include "session/store/shares.h"

enum { REPLICA_SET_BYTES = CKPT_RANKS_MAX / 8 };

struct replicas {
    struct shares found;                  /* by this process */
    unsigned char own[REPLICA_SET_BYTES]; /* their numbers but 0, a bit each */
    unsigned char *all;                   /* [processes · REPLICA_SET_BYTES]: each one's own */
};

/** Looks for them. store, place: as of shares_list; step: as of hst_ckpt_replicas. The caller then
 * makes `all` of every process's `own`. Errors: -ENOMEM. To be closed after an error, too. */
int replicas_look(struct replicas *replicas, const char *store,
                  const struct hst_store_place *place, uint64_t step, uint32_t processes);
/** Returns how many numbers there are, of which at most `capacity` were written, rising. */
size_t replicas_numbers(const struct replicas *replicas, uint32_t processes, uint32_t *numbers,
                        size_t capacity);
/** seen[processes] ← 1: the process finds this one. */
void replicas_seen(const struct replicas *replicas, uint32_t processes, uint32_t number,
                   unsigned char *seen);
/** The directories of one that this process finds, as of share_directories_open. */
int replicas_open(const struct replicas *replicas, uint32_t number,
                  struct share_directories *directories, struct hst_error *error);
void replicas_close(struct replicas *replicas);

#endif
