/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_TILE_STREAM_H
#define HOISTWAY_ENGINE_EXEC_TILE_STREAM_H
/*
 * Every tile once, in order, through a small ring: read what is on NVMe or in HBM, visit in place,
 * write back. Loading and saving are visits of this stream.
 */
#include "session/engine_state.h"

/** One tile, ready to be worked on; pointers that the stream was not asked for are null. */
struct tile_job {
    uint32_t tile;
    struct tile_range range;
    struct hst_update_arrays arrays; /* [range.elements]; gradients for an update alone */
    unsigned char *record;           /* what holds m, v and masters */
    struct hst_update_arrays into;   /* of an update: where it goes, without gradients */
};

/** It returns what DRAM, as home tier, has of a tile; slot 1: its second slot, where it has one. */
unsigned char *tile_at_home_tier(const struct hst_engine *engine, enum extent_kind kind,
                                 uint32_t tile, int slot);

enum tile_access {
    TILE_READ_WEIGHTS = 1u << 0,
    TILE_WRITE_WEIGHTS = 1u << 1,
    TILE_WRITE_STATES = 1u << 2,
    TILE_READ_STATES = 1u << 3,
    TILE_RESIDENT = 1u << 4, /* those of resident units alone */
};

/**
 * Tiles that are at home in DRAM come many at a time, so that a visit can spread them over the
 * workers.
 */
#define TILE_BATCH 64u

typedef int tile_visit(struct hst_engine *engine, void *context, const struct tile_job *jobs,
                       uint32_t count);

/**
 * Returns the first error: of a transfer (sticky in the engine), or what a visit returned. All
 * writes have completed.
 */
int tile_stream(struct hst_engine *engine, unsigned access, tile_visit *visit, void *context);

#endif
