/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_SHARE_MAP_H
#define HOISTWAY_ENGINE_SESSION_STORE_SHARE_MAP_H
/*
 * Which rank goes on with which files of a store, decided from what each process finds. Pure: the
 * same on all of them.
 */
#include "store/format.h"

/* A rank's first file that a process finds. */
struct share_found {
    struct store_id uuid;
    uint32_t rank, world, drives, tile_elements;
    uint32_t slices;  /* 1: its units may be slices */
    uint32_t forming; /* under the name that it has until its first version is voted for */
};

struct share_map_in {
    uint32_t processes;              /* that train together */
    const uint32_t *nodes;           /* [processes]; as they are numbered, node by node */
    const uint32_t *counts;          /* [processes]: how many files each finds */
    const struct share_found *found; /* [processes · most] */
    uint32_t most;
};

enum share_fate {
    SHARE_NONE = 0, /* no store that can be told from these files */
    SHARE_OWN,      /* it is of as many ranks, and each finds its own with the number that it has in
                       `number` */
    SHARE_MOVE,     /* all files are there, for other ranks than these */
    SHARE_MISSING,  /* some are not */
    SHARE_SEVERAL,  /* two whole stores are found */
};

struct share_map {
    enum share_fate fate;
    struct store_id uuid;
    uint32_t world, drives, tile_elements, slices;
    uint32_t *number;    /* [processes]: SHARE_OWN: to be taken; else as they are */
    unsigned char *seen; /* [processes · world]: 1: this process, as it is numbered in `number`,
                            finds this rank's file */
    uint32_t other;      /* SHARE_MISSING: of a rank whose file no process finds, one finds that of
                            another store; UINT32_MAX: of none */
};

/** Errors: -ENOMEM. */
int share_map(const struct share_map_in *in, struct share_map *map);
void share_map_free(struct share_map *map);
/** The least process that finds a rank's file; UINT32_MAX: none does. */
uint32_t share_map_first(const struct share_map *map, uint32_t processes, uint32_t rank);
/** Writes, for a message, the names of files that no process finds; of the first few. */
void share_map_missing(const struct share_map *map, uint32_t processes, char *text, size_t bytes);
/** The first rank whose file processes of two nodes find; UINT32_MAX: there is none. nodes:
 * [processes]. */
uint32_t share_map_twice(const struct share_map *map, uint32_t processes, const uint32_t *nodes);

#endif
