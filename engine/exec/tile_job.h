/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_TILE_JOB_H
#define HOISTWAY_ENGINE_EXEC_TILE_JOB_H
#include "exec/executor.h"

/** One tile, ready to be worked on; what it has nothing of is null. */
struct tile_job {
    uint32_t tile;
    struct tile_range range;
    struct optimizer_arrays arrays; /* [range.elements]; gradients for an update alone */
    unsigned char *record;          /* what holds the states */
    struct optimizer_arrays into;   /* of an update: where it goes, without gradients */
};

#endif
