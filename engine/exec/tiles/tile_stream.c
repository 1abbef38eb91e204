/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when a tile's slot is read, visited and written. Tiles with something outside of
 * DRAM, on NVMe or in HBM, take the slots in turn: while one is visited, those behind it are being
 * read and those before it written. A slot is read again only when its write has completed; the
 * stream never waits for a write that it does not need yet.
 */
#include "exec/tiles/tile_stream.h"

#include "exec/moves.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int tile_stream_open(struct executor *exec)
{
    const struct buffer_pool *slots = &exec->in.placement->slots;
    if (slots->count == 0)
        return 0;
    exec->slots = calloc(slots->count, sizeof *exec->slots);
    if (!exec->slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < slots->count; i++)
        exec->slots[i].buffer = exec->in.host_arena + slots->at + i * slots->bytes;
    return 0;
}

void tile_stream_close(struct executor *exec)
{
    free(exec->slots);
    exec->slots = NULL;
}

#define TILE_READS  ((unsigned)TILE_READ_WEIGHTS | TILE_READ_STATES)
#define TILE_WRITES ((unsigned)TILE_WRITE_WEIGHTS | TILE_WRITE_STATES)

struct stream_state {
    struct executor *exec;
    unsigned access;
    uint32_t next_fetch; /* the first tile that has not been looked at for fetching */
    uint32_t fetched;    /* tiles that were given a slot so far */
    uint32_t visited;    /* of those */
};

static struct address home_tier_of(const struct executor *exec, enum extent_kind kind,
                                   uint32_t tile)
{
    return kind == EXTENT_WEIGHTS ? placement_weights(exec->in.placement, tile)
                                  : placement_states(exec->in.placement, tile);
}

/* Nobody can have states of a frozen tile. */
static bool wants(const struct stream_state *s, enum extent_kind kind, uint32_t tile,
                  unsigned access)
{
    const unsigned of_kind = kind == EXTENT_WEIGHTS ? TILE_READ_WEIGHTS | TILE_WRITE_WEIGHTS
                                                    : TILE_READ_STATES | TILE_WRITE_STATES;
    const struct layout *layout = s->exec->in.layout;
    if ((s->access & of_kind & access) == 0)
        return false;
    return kind == EXTENT_WEIGHTS || !layout->units[layout_tile(layout, tile).unit].frozen;
}

static bool is_offloaded(const struct stream_state *s, enum extent_kind kind, uint32_t tile)
{
    return home_tier_of(s->exec, kind, tile).tier != HST_TIER_DRAM;
}

static bool is_resident(const struct executor *exec, uint32_t tile)
{
    return placement_is_resident(exec->in.placement, layout_tile(exec->in.layout, tile).unit);
}

/* Tiles that it does not visit need none. */
static bool needs_slot(const struct stream_state *s, uint32_t tile)
{
    if ((s->access & TILE_RESIDENT) && !is_resident(s->exec, tile))
        return false;
    for (int kind = 0; kind < SLOT_KINDS; kind++)
        if (is_offloaded(s, (enum extent_kind)kind, tile) &&
            wants(s, (enum extent_kind)kind, tile, TILE_READS | TILE_WRITES))
            return true;
    return false;
}

static struct slot *slot_at(const struct stream_state *s, uint32_t number)
{
    return &s->exec->slots[number % s->exec->in.placement->slots.count];
}

static unsigned char *slot_buffer(const struct executor *exec, const struct slot *slot,
                                  enum extent_kind kind)
{
    return slot->buffer + (kind == EXTENT_STATES ? exec->in.placement->slot_record_at : 0);
}

/* It returns what moves an offloaded tile. */
static struct extents *mover_of(const struct executor *exec, uint32_t tile)
{
    return is_resident(exec, tile) ? exec->resident : exec->extents;
}

static int fail(struct executor *exec, const struct transfer *transfer)
{
    return is_resident(exec, transfer->index)
               ? executor_fail_device(exec, transfer->error, "copying a tile")
               : executor_fail_transfer(exec, transfer);
}

static int wait_for(struct executor *exec, struct transfer *transfer)
{
    if (transfer->active)
        extents_wait(mover_of(exec, transfer->index), transfer);
    return transfer->error ? fail(exec, transfer) : 0;
}

static int progress(struct executor *exec)
{
    int rc = exec->resident ? exec->resident->ops->progress(exec->resident, 0) : 0;
    rc = rc || !exec->extents ? rc : exec->extents->ops->progress(exec->extents, 0);
    return rc ? executor_fail_extents(exec, rc) : 0;
}

/* Waits for both transfers even if the first one failed: nothing may move in a slot that is let
   go. */
static int slot_wait(struct executor *exec, struct slot *slot)
{
    int weights = wait_for(exec, &slot->transfers[EXTENT_WEIGHTS]);
    int states = wait_for(exec, &slot->transfers[EXTENT_STATES]);
    return weights ? weights : states;
}

static bool slot_is_busy(const struct slot *slot)
{
    return slot->transfers[EXTENT_WEIGHTS].active || slot->transfers[EXTENT_STATES].active;
}

static int slot_read(struct stream_state *s, struct slot *slot, uint32_t tile)
{
    struct executor *exec = s->exec;
    for (int k = 0; k < SLOT_KINDS; k++) {
        enum extent_kind kind = (enum extent_kind)k;
        slot->transfers[kind] = (struct transfer){.kind = kind, .index = tile};
        if (!is_offloaded(s, kind, tile) || !wants(s, kind, tile, TILE_READS))
            continue;
        int rc = extents_read(mover_of(exec, tile), kind, tile, slot_buffer(exec, slot, kind),
                              &slot->transfers[kind]);
        if (rc)
            return fail(exec, &slot->transfers[kind]);
    }
    return 0;
}

static int slot_write(struct stream_state *s, struct slot *slot, uint32_t tile)
{
    struct executor *exec = s->exec;
    for (int k = 0; k < SLOT_KINDS; k++) {
        enum extent_kind kind = (enum extent_kind)k;
        if (!is_offloaded(s, kind, tile) || !wants(s, kind, tile, TILE_WRITES))
            continue;
        int rc = extents_write(mover_of(exec, tile), kind, tile, slot_buffer(exec, slot, kind),
                               &slot->transfers[kind]);
        if (rc)
            return fail(exec, &slot->transfers[kind]);
    }
    return 0;
}

/* Gives slots to the tiles that follow, as long as there are slots whose tile is finished. With
   `must` waits for the first such slot: the next tile to visit has none yet. */
static int fetch_ahead(struct stream_state *s, bool must)
{
    struct executor *exec = s->exec;
    while (s->next_fetch < exec->in.layout->tile_count &&
           s->fetched - s->visited < exec->in.placement->slots.count) {
        if (!needs_slot(s, s->next_fetch)) {
            s->next_fetch++;
            continue;
        }
        struct slot *slot = slot_at(s, s->fetched);
        if (!must) {
            int rc = progress(exec);
            if (rc || slot_is_busy(slot))
                return rc;
        }
        int rc = slot_wait(exec, slot);
        if (rc == 0)
            rc = slot_read(s, slot, s->next_fetch);
        if (rc)
            return rc;
        s->next_fetch++;
        s->fetched++;
        must = false;
    }
    return 0;
}

/* One part of a tile is to be worked on here; null where the stream was not asked for it. */
static unsigned char *part_at(const struct stream_state *s, const struct slot *slot,
                              enum extent_kind kind, uint32_t tile)
{
    const struct executor *exec = s->exec;
    struct address home = home_tier_of(exec, kind, tile);
    if (!wants(s, kind, tile, TILE_READS | TILE_WRITES))
        return NULL;
    if (home.tier == HST_TIER_DRAM)
        return moves_home(exec, kind, tile, exec->verdict.slot);
    assert(slot); /* a tile that wants something that is offloaded was given one: needs_slot */
    return slot_buffer(exec, slot, kind);
}

static struct tile_job job_at(const struct stream_state *s, const struct slot *slot, uint32_t tile)
{
    const struct executor *exec = s->exec;
    struct tile_job job = {.tile = tile, .range = layout_tile(exec->in.layout, tile)};
    job.record = part_at(s, slot, EXTENT_STATES, tile);
    job.arrays = record_arrays(exec->in.kernel.optimizer, part_at(s, slot, EXTENT_WEIGHTS, tile),
                               job.record, job.range.elements);
    return job;
}

static int visit_slot(struct stream_state *s, uint32_t tile, tile_visit *visit, void *context)
{
    struct executor *exec = s->exec;
    int rc = s->fetched == s->visited ? fetch_ahead(s, true) : 0;
    struct slot *slot = slot_at(s, s->visited);
    if (rc == 0)
        rc = slot_wait(exec, slot);
    if (rc == 0)
        rc = fetch_ahead(s, false);
    if (rc)
        return rc;
    struct tile_job job = job_at(s, slot, tile);
    rc = visit(exec, context, &job, 1);
    if (rc == 0)
        rc = slot_write(s, slot, tile);
    s->visited++;
    return rc;
}

static int visit_all(struct stream_state *s, tile_visit *visit, void *context)
{
    struct tile_job jobs[TILE_BATCH];
    uint32_t waiting = 0, tiles = s->exec->in.layout->tile_count;
    for (uint32_t tile = 0; tile < tiles; tile++) {
        bool slot = needs_slot(s, tile);
        if (!slot && (s->access & TILE_RESIDENT))
            continue;
        if (!slot)
            jobs[waiting++] = job_at(s, NULL, tile);
        if (waiting > 0 && (slot || waiting == TILE_BATCH || tile + 1 == tiles)) {
            int rc = visit(s->exec, context, jobs, waiting);
            if (rc)
                return rc;
            waiting = 0;
        }
        int rc = executor_stopped(s->exec);
        rc = rc || !slot ? rc : visit_slot(s, tile, visit, context);
        if (rc)
            return rc;
    }
    return 0;
}

/* Also after an error: the slots must not be touched by a transfer when the caller goes on. */
static int drain(struct executor *exec)
{
    int first = 0;
    for (uint32_t i = 0; exec->slots && i < exec->in.placement->slots.count; i++) {
        int rc = slot_wait(exec, &exec->slots[i]);
        first = first ? first : rc;
    }
    return first;
}

/* One rank's updates on the device count as done when they are enqueued, maybe in a stream of the
 * client's. */
static int await_updates(struct executor *exec)
{
    bool any = executor_has_resident(exec) && exec->streams.unit;
    int rc = any ? hst_stream_sync(exec->streams.unit) : 0;
    return rc ? executor_fail_device(exec, rc, "the update") : 0;
}

int tile_stream(struct executor *exec, unsigned access, tile_visit *visit, void *context)
{
    struct stream_state s = {.exec = exec, .access = access};
    int rc = await_updates(exec);
    rc = rc ? rc : visit_all(&s, visit, context);
    int drained = drain(exec);
    return rc ? rc : drained;
}
