/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_CKPT_RANKS_H
#define HOISTWAY_ENGINE_SESSION_STORE_CKPT_RANKS_H
/*
 * Ranks that read a store without training (ckpt_ranks.c), for what opens its versions
 * (ckpt_ranks_open.c): how they agree, and who finds which files.
 */
#include "ckpt/ckpt.h"
#include "session/ranks/ranks.h"
#include "session/store/replicas.h"
#include "session/store/shares.h"

enum { CKPT_NODE_BYTES = 64 };

struct hst_ckpt_ranks {
    struct hst_engine engine; /* as far as ranks and files are an engine's */
    char node[CKPT_NODE_BYTES];
    uint32_t writer; /* the process that the launcher has numbered 0 */
    int (*stopped)(void *context);
    void *stopped_context;
    /* This holds what is under way: who stops waiting may free its own memory. */
    unsigned char *room;
    size_t room_bytes;
    bool agreed;              /* the last error is that of all */
    struct replicas replicas; /* as they were asked for last */
    struct shares copy;       /* the files of the copy that was looked for last */
};

/** It fills in what a handle asks its ranks by. */
void ckpt_ranks_talk(struct hst_ckpt_ranks *ranks, struct ckpt_shares *shares);
/** All ranks call it. context: struct hst_ckpt_ranks. Returns 0 where each had rc 0; else the rc of
 * the first that had not, *error being that one's, with its number where others have none like it.
 * Errors: the transport's; -ENOMEM. */
int ckpt_ranks_agree(void *context, int rc, struct hst_error *error);
/** *error ← why the transport failed, or the engine; what is there stays. Returns rc. */
int ckpt_ranks_failed(const struct hst_ckpt_ranks *ranks, int rc, struct hst_error *error);
/** Returns -ENOMEM. */
int ckpt_ranks_no_memory(struct hst_error *error);

#endif
