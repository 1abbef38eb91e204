/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_TILE_STREAM_H
#define HOISTWAY_ENGINE_EXEC_TILE_STREAM_H
/*
 * Every tile once, in order, through a small ring: read what is on NVMe or in HBM, visit in place,
 * write back. Loading and saving are visits of this stream.
 */
#include "exec/tile_job.h"

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

typedef int tile_visit(struct executor *exec, void *context, const struct tile_job *jobs,
                       uint32_t count);

/** Slots for tiles that are not in DRAM, where there are any. Errors: -ENOMEM. */
int tile_stream_open(struct executor *exec);
void tile_stream_close(struct executor *exec);

/**
 * Returns the first error: of a transfer (sticky), or what a visit returned. All
 * writes have completed.
 */
int tile_stream(struct executor *exec, unsigned access, tile_visit *visit, void *context);

#endif
