/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_RESHARD_ROOM_H
#define HOISTWAY_ENGINE_CKPT_RESHARD_ROOM_H
/* Whether the file systems that a new store's directories are on have room for all of it. */
#include "ckpt/ckpt.h"

/* A process writes here: numbers of file systems are its node's. */
struct reshard_places {
    uint32_t node, count; /* 0: it writes nothing */
    dev_t file_systems[STRIPE_DRIVES_MAX];
};

/* This is written, and there. */
struct reshard_room {
    const struct reshard_places *all; /* [processes] */
    uint32_t processes, process;
    uint64_t drive_bytes; /* of each of the directories */
    char *const *paths;   /* of this process, as many as it has places */
};

/** The directories are there. Errors: stat(2)'s (E105). */
int reshard_places_look(char *const *paths, uint32_t count, struct reshard_places *places,
                        struct hst_error *error);
/** Bytes that all processes write to the file system of this one's directory. Pure. */
uint64_t reshard_room_needed(const struct reshard_room *room, uint32_t directory);
/** Errors: -ENOSPC (E301). */
int reshard_room_check(const struct reshard_room *room, struct hst_error *error);

#endif
