/* SPDX-License-Identifier: Apache-2.0 */
#include "session/slices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In a forward from the first rows to the last ones, in a backward the other way round. */
enum slice_turn { TURN_FORWARD = 0, TURN_BACKWARD, TURN_EVAL };

static enum slice_turn turn_of(enum hst_sweep sweep)
{
    return sweep == HST_BACKWARD ? TURN_BACKWARD : sweep == HST_EVAL ? TURN_EVAL : TURN_FORWARD;
}

int slices_open(struct hst_engine *engine)
{
    const struct layout *layout = &engine->layout;
    uint32_t count = layout->units[layout->unit_count - 1].whole + 1;
    engine->described = calloc(count, sizeof *engine->described);
    if (!engine->described)
        return -ENOMEM;
    engine->described_count = count;
    for (uint32_t u = layout->unit_count; u-- > 0;) {
        struct described *d = &engine->described[layout->units[u].whole];
        d->first = u;
        d->count++;
    }
    return 0;
}

void slices_close(struct hst_engine *engine)
{
    free(engine->described);
    engine->described = NULL;
}

uint32_t slices_ready(const struct hst_engine *engine)
{
    uint32_t count = 0;
    for (uint32_t u = 0; u < engine->described_count; u++) {
        const struct described *d = &engine->described[u];
        uint32_t ready = 0;
        for (uint32_t i = 0; i < d->count; i++)
            ready += engine->units[d->first + i].grad_ready;
        count += ready == d->count;
    }
    return count;
}

void slices_begin(struct hst_engine *engine)
{
    for (uint32_t u = 0; u < engine->described_count; u++)
        memset(engine->described[u].turns, 0, sizeof engine->described[u].turns);
}

uint32_t slices_next(const struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    if (unit >= engine->described_count)
        return NO_UNIT;
    const struct described *d = &engine->described[unit];
    bool takes_turns = d->count > 1 && sweep != HST_RECOMPUTE;
    uint32_t turn = takes_turns ? d->turns[turn_of(sweep)] : 0;
    if (turn >= d->count)
        return NO_UNIT;
    return d->first + (sweep == HST_BACKWARD ? d->count - 1 - turn : turn);
}

/* Evaluations follow one another. */
void slices_pass(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep)
{
    struct described *d = &engine->described[unit];
    uint32_t *turn = &d->turns[turn_of(sweep)];
    *turn = sweep == HST_EVAL ? (*turn + 1) % d->count : *turn + 1;
}

uint32_t slices_held(const struct hst_engine *engine, uint32_t unit)
{
    bool held = engine->acquired != NO_UNIT && slices_described(engine, engine->acquired) == unit;
    return held ? engine->acquired : NO_UNIT;
}
