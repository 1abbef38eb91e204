/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_OPERAND_H
#define HOISTWAY_ENGINE_PLAN_OPERAND_H
/*
 * This is what a node of the step graph moves, or works on. Nodes of the drives' and the copies'
 * lanes move their operands from one end to the other; what they move together is the node's work.
 * Visits, norms and updates find their operands in place: both ends are the same. A commit, a clip
 * and a revert have none. Pure values: the executor adds the address of a buffer or of a home.
 *
 * Three nodes, of tiles of T elements in bf16, as they are read here (w, s, g: bytes per element):
 *
 *   READ_WEIGHTS, piece 1 of 2 of a unit of 6 tiles whose first one is 10
 *     weights  tiles 13 to 15   store -> weights buffer at 3·T·w                           3·T·w
 *   UPDATE of tile 12 of a slice in DRAM, whose states are on a drive and whose gradients came with
 *   them: the slice is a unit as any other, and the tile is its third
 *     weights  tile 12   dram, at home
 *     states   tile 12   tile buffer, behind the weights' place
 *     grads    tile 12   tile buffer, in the weights' place
 *   STORE_ACTS and WRITE_ACTS, the spill of a checkpoint of 6 MiB whose first block is 40
 *     acts     blocks 40, 41   device buffer -> acts buffer                                6 MiB
 *     acts     blocks 40, 41   acts buffer -> scratch                                      6 MiB
 */
#include "plan/placement/placement.h"

/** This is what an operand is part of: as in enum extent_kind, or the partials of a unit's norm. */
#define OPERAND_PARTIALS EXTENT_KIND_COUNT
#define OPERANDS_MOST    (GATHER_MAX + 3u) /* of one node */

enum space {
    SPACE_STORE = 0, /* drives: what becomes part of versions */
    SPACE_SCRATCH,   /* drives: what does not, or nothing does */
    SPACE_DRAM,
    SPACE_DEVICE, /* its own memory, where it has one */
};

/** This is where an operand is: in the buffer of this pool that the node borrows, or at home
 * there. */
struct operand_end {
    uint8_t space; /* enum space */
    uint8_t pool;  /* enum pool (graph.h), or POOL_COUNT: at home */
};

struct operand {
    uint8_t what;                /* enum extent_kind, or OPERAND_PARTIALS */
    struct operand_end from, to; /* the same where the node works on it in place */
    /* Extents: tiles, or blocks of checkpoints. Each but a unit's last is as large as the others.
       Of partials: the unit, 1. */
    uint32_t first, count;
    uint64_t offset; /* bytes from the buffer's start to the first one; there is one buffer at most
                        whose offset is not 0, or both have the same */
    uint64_t bytes;  /* of all of them */
};

/** True of what is on drives. */
static inline bool operand_end_is_offloaded(struct operand_end end)
{
    return end.space == SPACE_STORE || end.space == SPACE_SCRATCH;
}

#endif
