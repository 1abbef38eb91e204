/* SPDX-License-Identifier: Apache-2.0 */
/* A tile as its update works on it: the operands of the node, taken apart. */
#include "exec/update/tile.h"

#include "exec/moves.h"

static struct optimizer_arrays arrays_in(const struct executor *exec, struct scheduled at,
                                         const struct tile_job *job, int slot)
{
    return record_arrays(exec->in.kernel.optimizer,
                         moves_part(exec, at, EXTENT_WEIGHTS, job->tile, slot),
                         moves_part(exec, at, EXTENT_STATES, job->tile, slot), job->range.elements);
}

struct tile_job update_tile_job(const struct executor *exec, struct scheduled at, uint32_t tile)
{
    struct tile_job job = {.tile = tile, .range = layout_tile(exec->in.layout, tile)};
    struct moves_slots slots = moves_slots(exec, program_node(exec, at));
    job.record = moves_part(exec, at, EXTENT_STATES, tile, slots.from);
    job.arrays = arrays_in(exec, at, &job, slots.from);
    job.arrays.grads = moves_part(exec, at, EXTENT_GRADS, tile, 0);
    job.arrays.index = layout_first_element(exec->in.layout, job.range);
    job.into = arrays_in(exec, at, &job, slots.into);
    return job;
}
