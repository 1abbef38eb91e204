/* SPDX-License-Identifier: Apache-2.0 */
#include "toy_states.h"

#include "exec/tiles/tile_stream.h"
#include "session/engine_state.h"

#include <string.h>

static void append(struct toy_states *states, const void *array, size_t bytes)
{
    if (bytes > 0)
        memcpy(states->bytes + states->used, array, bytes);
    states->used += bytes;
}

static int visit(struct executor *exec, void *context, const struct tile_job *jobs, uint32_t count)
{
    const struct optimizer *o = exec->in.kernel.optimizer;
    for (uint32_t i = 0; i < count; i++) {
        const struct optimizer_arrays *a = &jobs[i].arrays;
        const size_t n = jobs[i].range.elements;
        append(context, a->weights, n * optimizer_weight_bytes(o));
        for (uint32_t s = 0; s < o->state_count; s++)
            append(context, a->states[s], optimizer_array_bytes(o, s, n));
    }
    return 0;
}

int toy_states(struct hst_engine *engine, struct toy_states *states)
{
    states->used = 0;
    return tile_stream(&engine->exec, TILE_READ_WEIGHTS | TILE_READ_STATES, visit, states);
}
