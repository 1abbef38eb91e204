/* SPDX-License-Identifier: Apache-2.0 */
/* This file moves what is in RAM from and to where it is; what is resident on a GPU by way of the
 * slots that it is loaded and saved through, one tile while the next one is copied. */
#include "exec/tiles/memory.h"

#include "exec/moves.h"
#include "exec/tiles/tile_stream.h"

enum { MOST_MOVING = 32 };

struct moving {
    enum memory_move move;
    bool to_store;
    bool ended; /* what comes back is told no more */
    uint64_t done_bytes, total_bytes;
};

struct moved {
    struct transfer transfer;
    uint64_t bytes; /* that are not counted yet */
};

static bool keeps(const struct placement *placement, enum extent_kind kind, uint32_t tile)
{
    uint64_t bytes;
    const enum hst_tier tier = placement_extent(placement, kind, tile, &bytes).tier;
    return bytes > 0 && tier != HST_TIER_NVME;
}

static bool is_frozen(const struct layout *layout, uint32_t tile)
{
    return layout->units[layout_tile(layout, tile).unit].frozen;
}

/* Extents of a tile that go to the store from memory: its record, its weights, both or none. */
static uint32_t trained_count(const struct placement *placement, const struct placement_in *in,
                              uint32_t tile)
{
    bool weights = keeps(placement, EXTENT_WEIGHTS, tile) && !in->derived_weights &&
                   !is_frozen(placement->layout, tile);
    return (uint32_t)weights + keeps(placement, EXTENT_STATES, tile);
}

/* A frozen tile is part of all versions once it is of the first. */
static bool leaves_out(const struct executor *exec, const struct moving *moving, uint32_t tile)
{
    return moving->move == MEMORY_TRAINED && is_frozen(exec->in.layout, tile);
}

static uint32_t save_count(const struct executor *exec, const struct moving *moving, uint32_t tile)
{
    const struct placement *p = exec->in.placement;
    if (leaves_out(exec, moving, tile))
        return 0;
    return is_frozen(exec->in.layout, tile) ? keeps(p, EXTENT_WEIGHTS, tile)
                                            : trained_count(p, exec->in.plan_in, tile);
}

static enum extent_kind save_kind(const struct executor *exec, uint32_t tile, uint32_t i)
{
    return i == 0 && keeps(exec->in.placement, EXTENT_STATES, tile) ? EXTENT_STATES
                                                                    : EXTENT_WEIGHTS;
}

static uint64_t save_bytes(const struct executor *exec, uint32_t tile, uint32_t i)
{
    uint64_t bytes;
    (void)placement_extent(exec->in.placement, save_kind(exec, tile, i), tile, &bytes);
    return bytes;
}

static uint64_t bytes_of_all(const struct executor *exec, const struct moving *moving)
{
    uint64_t bytes = 0;
    for (uint32_t tile = 0; tile < exec->in.layout->tile_count; tile++)
        for (uint32_t i = 0; i < save_count(exec, moving, tile); i++)
            bytes += save_bytes(exec, tile, i);
    return bytes;
}

static int begin(struct executor *exec, struct move move, struct moved *moved)
{
    struct transfer *transfer = &moved->transfer;
    int rc = move.write ? extents_write(exec->extents, move.kind, move.index, move.memory, transfer)
                        : extents_read(exec->extents, move.kind, move.index, move.memory, transfer);
    if (rc)
        return executor_fail_transfer(exec, transfer);
    (void)placement_extent(exec->in.placement, move.kind, move.index, &moved->bytes);
    return 0;
}

/* Bytes for the store are part of a step or of a load, which are told of as such. */
static void tell(const struct executor *exec, const struct moving *moving)
{
    const struct hst_config *c = exec->in.config;
    if (!moving->to_store && !moving->ended && c->progress)
        c->progress(c->progress_context, moving->done_bytes, moving->total_bytes);
}

static int wait_for(struct executor *exec, struct moving *moving, struct moved *moved)
{
    const uint64_t bytes = moved->bytes;
    moved->bytes = 0;
    if (extents_wait(exec->extents, &moved->transfer))
        return executor_fail_transfer(exec, &moved->transfer);
    moving->done_bytes += bytes;
    if (bytes > 0)
        tell(exec, moving);
    return 0;
}

/* Also after an error: they use the memory. */
static int wait_for_all(struct executor *exec, struct moving *moving, struct moved *moved,
                        uint32_t count, int rc)
{
    for (uint32_t i = 0; i < count; i++) {
        moving->ended = rc != 0;
        int late = wait_for(exec, moving, &moved[i]);
        rc = rc ? rc : late;
    }
    return rc;
}

static int move_in_place(struct executor *exec, struct moving *moving)
{
    struct moved moved[MOST_MOVING] = {{.bytes = 0}};
    uint32_t turn = 0;
    int rc = 0;
    for (uint32_t tile = 0; tile < exec->in.layout->tile_count && rc == 0; tile++) {
        uint32_t unit = layout_tile(exec->in.layout, tile).unit;
        bool here = !placement_is_resident(exec->in.placement, unit);
        for (uint32_t i = 0; here && i < save_count(exec, moving, tile) && rc == 0; i++) {
            struct moved *at = &moved[turn++ % MOST_MOVING];
            enum extent_kind kind = save_kind(exec, tile, i);
            const struct move move = {kind, tile, moves_home(exec, kind, tile, exec->verdict.slot),
                                      moving->to_store};
            rc = wait_for(exec, moving, at);
            rc = rc ? rc : executor_stopped(exec);
            rc = rc ? rc : begin(exec, move, at);
        }
    }
    /* in the order in which they were begun */
    const uint32_t first = turn % MOST_MOVING;
    rc = wait_for_all(exec, moving, moved + first, MOST_MOVING - first, rc);
    return wait_for_all(exec, moving, moved, first, rc);
}

/* ---- by way of slots ---- */

static int visit(struct executor *exec, void *context, const struct tile_job *job, uint32_t count)
{
    struct moving *moving = context;
    const bool to_store = moving->to_store;
    struct moved moved[2] = {{.bytes = 0}};
    const struct move moves[] = {{EXTENT_STATES, job->tile, job->record, to_store},
                                 {EXTENT_WEIGHTS, job->tile, job->arrays.weights, to_store}};
    int rc = 0;
    (void)count; /* each has a slot, and comes alone */
    for (int i = 0; i < 2 && rc == 0 && !leaves_out(exec, moving, job->tile); i++)
        rc = moves[i].memory ? begin(exec, moves[i], &moved[i]) : 0;
    return wait_for_all(exec, moving, moved, 2, rc);
}

static int move_through_slots(struct executor *exec, struct moving *moving)
{
    const bool to_store = moving->to_store;
    unsigned access = TILE_RESIDENT | (to_store ? TILE_READ_STATES : TILE_WRITE_STATES);
    if (!exec->in.plan_in->derived_weights)
        access |= to_store ? TILE_READ_WEIGHTS : TILE_WRITE_WEIGHTS;
    return tile_stream(exec, access, visit, moving);
}

int memory_move(struct executor *exec, enum memory_move move)
{
    struct moving moving = {.move = move, .to_store = move != MEMORY_RESUMED};
    moving.total_bytes = bytes_of_all(exec, &moving);
    int rc = move_in_place(exec, &moving);
    return rc || !executor_has_resident(exec) ? rc : move_through_slots(exec, &moving);
}
