/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_VERIFY_TOGETHER_H
#define HOISTWAY_ENGINE_CKPT_VERIFY_TOGETHER_H
/*
 * Several processes verify a store of which each reads its own files: how far all of them are, when
 * they end, and what all of them have found, in the order in which one process would.
 */
#include "ckpt/ckpt.h"

/* A place that is not what was written. */
struct ckpt_place {
    uint32_t tile; /* of the handle's */
    int32_t error;
    uint64_t kind;          /* enum extent_kind */
    uint64_t offset, bytes; /* in its file */
};

struct together {
    const struct hst_ckpt *ckpt;
    const struct hst_ckpt_watch *watch; /* or null */
    uint64_t done_bytes, total_bytes;   /* of this process */
    uint64_t others_done_bytes, others_total_bytes; /* when they last met */
    uint64_t met_bytes;                             /* done_bytes then */
    struct ckpt_place *places;          /* of this process; of all after together_tell */
    uint64_t count, room;
    int lost; /* the error of what joins them, in a meeting; 0: none */
};

void together_open(struct together *together, const struct hst_ckpt *ckpt,
                   const struct hst_ckpt_watch *watch);
void together_close(struct together *together);
/** Before any of them reads. Errors: those of share; -ENOMEM. */
int together_begin(struct together *together);
/** Errors: -ENOMEM, without *error. */
int together_note(struct together *together, const struct ckpt_place *place);
/** A progress of struct hst_ckpt_watch, of this process's reading: all meet now and then. The
 * watch's wish to stop is this process's alone: it ends the others, as one that fails does. */
int together_progress(void *context, uint64_t done_bytes, uint64_t total_bytes);
/** This process has read all, or failed with rc; waits for the others. Errors: rc; -ECANCELED;
 * those of share. */
int together_end(struct together *together, int rc);
/** Gives all places of all processes to each of them. tell: other than 0 ends it. Errors: those of
 * share and take; -ENOMEM. */
int together_tell(struct together *together,
                  int (*tell)(void *context, const struct ckpt_place *place, const char *directory),
                  void *context, struct hst_error *error);

#endif
