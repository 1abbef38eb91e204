/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the visits of the backward. Where checkpoints were not kept it has forwards as well: of a
 * segment, units j to k in the order of the forward, j alone has kept its checkpoint, and j to k-1
 * are recomputed before the backward of k, each leaving the next one's input. So a segment goes
 * once up and once down, like the step as a whole.
 */
#include "plan/graph/graph_build.h"

#include <errno.h>

static bool is_recomputed(const struct build *b, uint32_t place)
{
    return place < b->backward_count && b->in->units[b->in->backward[place]].recomputed;
}

uint32_t visits_segment(const struct build *b, uint32_t place)
{
    uint32_t end = place;
    while (is_recomputed(b, end))
        end++;
    return end - place + 1;
}

/* Its units follow one another in the forward too, the other way round. */
static bool is_mirrored(const struct build *b, uint32_t place, uint32_t units)
{
    const uint32_t *order = &b->in->backward[place];
    if (place + units > b->backward_count)
        return false; /* nobody keeps a checkpoint to begin with */
    for (uint32_t i = 0; i + 1 < units; i++)
        if (b->units[order[i]].place[0] != b->units[order[i + 1]].place[0] + 1)
            return false;
    return true;
}

int visits_list(struct build *b)
{
    for (uint32_t place = 0, units; place < b->backward_count; place += units) {
        units = visits_segment(b, place);
        if (!is_mirrored(b, place, units))
            return -EINVAL;
        for (uint32_t i = units - 1; i > 0; i--) {
            uint32_t unit = b->in->backward[place + i];
            b->visits[b->visit_count++] = (struct build_visit){unit, true};
            b->units[unit].recomputes = true;
        }
        for (uint32_t i = 0; i < units; i++)
            b->visits[b->visit_count++] = (struct build_visit){b->in->backward[place + i], false};
    }
    return 0;
}

/*
 * The last ones to be recomputed, as many as there are buffers beside that of the segment's
 * last unit: what goes up comes down in the reverse order, so they are the first to be wanted, and
 * those in between never want more buffers than there are. Without that a unit's weights would
 * travel for each of both visits. Where a device has memory of its own its copies are held; what
 * they were copied from is given back at once, because others pass that way.
 */
void visits_choose_held(struct build *b)
{
    const uint32_t *buffers = b->graph->buffers;
    for (uint32_t place = 0, units; place < b->backward_count; place += units) {
        uint32_t nearer[POOL_COUNT] = {0}; /* to the turn, of each pool */
        units = visits_segment(b, place);
        for (uint32_t i = 0; i < units; i++) {
            uint32_t unit = b->in->backward[place + i];
            enum pool host = parts_pool(b, unit, POOL_WEIGHTS);
            enum pool device = parts_pool(b, unit, POOL_DEVICE_WEIGHTS);
            uint32_t before = nearer[host]++, before_device = nearer[device]++;
            if (i == 0 || !parts_uses_weights(b, (struct build_visit){unit, false}))
                continue;
            b->units[unit].hold_weights = !b->in->apart && before < buffers[host];
            b->units[unit].hold_device_weights =
                parts_copy_weights(b, unit) && before_device < buffers[device];
        }
    }
}
