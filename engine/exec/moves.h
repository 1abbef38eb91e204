/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MOVES_H
#define HOISTWAY_ENGINE_EXEC_MOVES_H
/* The extents that a node of the step graph moves, and the memory they move to or from. */
#include "exec/tile_stream.h"

struct move {
    enum extent_kind kind;
    uint32_t index; /* of the extent */
    void *memory;
    bool write;
};

/** A node of the graph, or the one on demand. */
const struct node *moves_node(const struct hst_engine *engine, struct walk_at at);
/** How many extents a node of LANE_READ or LANE_WRITE moves. */
uint32_t moves_count(const struct hst_engine *engine, const struct node *node);
/** The i-th of them, for a node that was started. */
struct move moves_at(const struct hst_engine *engine, struct walk_at at, uint32_t i);

/** Where the computation of a started node finds its unit's weights that come from drives, puts its
 * rounded gradients, keeps its checkpoints. */
unsigned char *moves_lease(const struct hst_engine *engine, struct walk_at at);
unsigned char *moves_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit);
unsigned char *moves_acts(const struct hst_engine *engine, struct walk_at at, uint32_t unit);

/** Where the update finds a tile's parts: in its home, or in the buffers of a started node. */
struct tile_job moves_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile);

#endif
