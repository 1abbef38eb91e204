/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MOVES_H
#define HOISTWAY_ENGINE_EXEC_MOVES_H
/* What a node of the step graph moves, extents or copies, and the memory it moves to or from. */
#include "exec/tile_stream.h"

struct move {
    enum extent_kind kind;
    uint32_t index; /* of the extent */
    void *memory;
    bool write;
};

/** A node of the graph, or the one on demand. */
const struct node *moves_node(const struct hst_engine *engine, struct walk_at at);
/** An update, or its read, that comes after the norm of all gradients. */
bool moves_is_late(const struct node *node);
/** How many extents a node of LANE_READ or LANE_WRITE moves. */
uint32_t moves_count(const struct hst_engine *engine, const struct node *node);
/** The i-th of them, for a node that was started. */
struct move moves_at(const struct hst_engine *engine, struct walk_at at, uint32_t i);

/** Extents of a tile that go to the store from memory: its record, its weights, both or none. */
uint32_t moves_save_count(const struct hst_engine *engine, uint32_t tile);
/** The bytes of one of them. */
uint64_t moves_save_bytes(const struct hst_engine *engine, uint32_t tile, uint32_t i);
/** One of them, from where it is at home in DRAM. */
struct move moves_save(const struct hst_engine *engine, uint32_t tile, uint32_t i);

struct copy {
    void *to;
    const void *from;
    uint64_t bytes;
};
/** The copies that a started node of LANE_H2D or LANE_D2H makes. Returns how many. */
uint32_t moves_copies(const struct hst_engine *engine, struct walk_at at,
                      struct copy copies[GATHER_MAX]);

/** A streamed tile in the device's buffer of a started node. */
struct streamed {
    unsigned char *weights, *grads, *record;
};
struct streamed moves_streamed(const struct hst_engine *engine, struct walk_at at);

/** Where the computation of a started node finds a run of its unit's weights, puts its rounded
 * gradients, keeps its checkpoints (null: the unit has none in this order of visits). */
unsigned char *moves_weights(const struct hst_engine *engine, struct walk_at at,
                             const struct gather *gather);
unsigned char *moves_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit);
unsigned char *moves_acts(const struct hst_engine *engine, struct walk_at at, uint32_t unit);
/** The same gradients where the host works on them: at home, or on their way to a drive. */
unsigned char *moves_host_grads(const struct hst_engine *engine, struct walk_at at, uint32_t unit);

/** The partials of a unit's norm: where the device writes them, behind gradients that leave it;
 * where the host adds them. */
double *moves_partials(const struct hst_engine *engine, struct walk_at at, uint32_t unit);
double *moves_host_partials(const struct hst_engine *engine, uint32_t unit);

/** Where the update finds a tile's parts: in its home, or in the buffers of a started node. */
struct tile_job moves_tile(const struct hst_engine *engine, struct walk_at at, uint32_t tile);

#endif
