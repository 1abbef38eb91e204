/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MOVES_H
#define HOISTWAY_ENGINE_EXEC_MOVES_H
/* Where in memory a node finds its operands: see plan/graph/operand.h. */
#include "exec/tile_stream.h"

struct move {
    enum extent_kind kind;
    uint32_t index; /* of the extent */
    void *memory;
    bool write;
};

/** A node of the graph, or of the one on demand. */
const struct node *moves_node(const struct hst_engine *engine, struct scheduled at);
/** An update, or its read, that comes after the norm of all gradients. */
bool moves_is_late(const struct node *node);
/** It counts the extents that a node of LANE_READ or LANE_WRITE moves. */
uint32_t moves_count(const struct hst_engine *engine, struct scheduled at);
/** The i-th of them, for a node that was started. */
struct move moves_at(const struct hst_engine *engine, struct scheduled at, uint32_t i);

struct copy {
    void *to;
    const void *from;
    uint64_t bytes;
};
/** The copies that a started node of LANE_H2D or LANE_D2H makes. Returns how many. */
uint32_t moves_copies(const struct hst_engine *engine, struct scheduled at,
                      struct copy copies[OPERANDS_MOST]);

/**
 * Where a started node that works in place has its nth operand of a kind; null: it has none. Of a
 * visit: weights of its unit, then of each alias; rounded gradients; partials; checkpoints.
 */
unsigned char *moves_work(const struct hst_engine *engine, struct scheduled at, unsigned what,
                          uint32_t nth);
/** Where an update finds a tile's parts, and where it puts them. */
struct tile_job moves_tile(const struct hst_engine *engine, struct scheduled at, uint32_t tile);

/** The partials of a unit's norm where the host adds them. */
double *moves_host_partials(const struct hst_engine *engine, uint32_t unit);

#endif
