/* SPDX-License-Identifier: Apache-2.0 */
/* What is in RAM moves from and to where it is; what is resident on a GPU by way of the slots that
 * it is loaded and saved through, one tile while the next one is copied. */
#include "exec/memory.h"

#include "exec/moves.h"
#include "exec/tile_stream.h"

enum { MOST_MOVING = 32 };

static int begin(struct hst_engine *engine, struct move move, struct transfer *transfer)
{
    int rc = move.write
                 ? extents_write(engine->extents, move.kind, move.index, move.memory, transfer)
                 : extents_read(engine->extents, move.kind, move.index, move.memory, transfer);
    return rc ? engine_fail_transfer(engine, transfer) : 0;
}

static int wait_for(struct hst_engine *engine, struct transfer *transfer)
{
    return extents_wait(engine->extents, transfer) ? engine_fail_transfer(engine, transfer) : 0;
}

/* Also after an error: they use the memory. */
static int wait_for_all(struct hst_engine *engine, struct transfer *moving, int count, int rc)
{
    for (int i = 0; i < count; i++) {
        int late = wait_for(engine, &moving[i]);
        rc = rc ? rc : late;
    }
    return rc;
}

static int move_in_place(struct hst_engine *engine, bool to_store)
{
    struct transfer moving[MOST_MOVING] = {{0}};
    uint32_t turn = 0;
    int rc = 0;
    for (uint32_t tile = 0; tile < engine->layout.tile_count && rc == 0; tile++) {
        uint32_t unit = layout_tile(&engine->layout, tile).unit;
        bool here = !placement_is_resident(&engine->placement, unit);
        for (uint32_t i = 0; here && i < moves_save_count(engine, tile) && rc == 0; i++) {
            struct transfer *transfer = &moving[turn++ % MOST_MOVING];
            struct move move = moves_save(engine, tile, i);
            move.write = to_store;
            rc = wait_for(engine, transfer);
            rc = rc ? rc : engine_stopped(engine);
            rc = rc ? rc : begin(engine, move, transfer);
        }
    }
    return wait_for_all(engine, moving, MOST_MOVING, rc);
}

/* ---- by way of slots ---- */

static int visit(struct hst_engine *engine, void *context, const struct tile_job *job,
                 uint32_t count)
{
    const bool *to_store = context;
    struct transfer moving[2] = {{0}};
    const struct move moves[] = {{EXTENT_STATES, job->tile, job->record, *to_store},
                                 {EXTENT_WEIGHTS, job->tile, job->arrays.weights, *to_store}};
    int rc = 0;
    (void)count; /* each has a slot, and comes alone */
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = moves[i].memory ? begin(engine, moves[i], &moving[i]) : 0;
    return wait_for_all(engine, moving, 2, rc);
}

static int move_through_slots(struct hst_engine *engine, bool to_store)
{
    unsigned access = TILE_RESIDENT | (to_store ? TILE_READ_STATES : TILE_WRITE_STATES);
    if (!engine->plan_in.derived_weights)
        access |= to_store ? TILE_READ_WEIGHTS : TILE_WRITE_WEIGHTS;
    return tile_stream(engine, access, visit, &to_store);
}

int memory_move(struct hst_engine *engine, bool to_store)
{
    int rc = move_in_place(engine, to_store);
    return rc || !engine_has_resident(engine) ? rc : move_through_slots(engine, to_store);
}
