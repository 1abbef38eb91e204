/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what of a choice has to be laid out anew, where another one was laid out before: searches
 * change one number at a time, on which few parts depend. */
#include "plan/placement/lay_out_again.h"

#include "base/saturate.h"

#include <assert.h>

enum { POOLS = sizeof((struct lay_out_kept *)0)->device_weights / sizeof(uint32_t) };
static_assert(sizeof((struct placement *)0)->device_weights == POOLS * sizeof(struct buffer_pool),
              "all of them are kept");

static unsigned differences(const struct choice *a, const struct choice *b)
{
    const uint32_t *la = a->leaves, *lb = b->leaves;
    const struct pool_depths *pa = &a->depths, *pb = &b->depths;
    const struct device_depths *da = &a->device_depths, *db = &b->device_depths;
    const bool resident =
        a->resident.first != b->resident.first || a->resident.count != b->resident.count;
    const bool acts = a->acts_offloaded != b->acts_offloaded || la[LEAVE_ACTS] != lb[LEAVE_ACTS];
    const bool depths = pa->slots != pb->slots || pa->reservations != pb->reservations ||
                        pa->grads != pb->grads || pa->acts != pb->acts ||
                        da->reservations != db->reservations || da->grads != db->grads ||
                        da->acts != db->acts;
    return (resident ? BY_RESIDENT : 0u) | (acts ? BY_ACTS : 0u) | (depths ? BY_DEPTHS : 0u) |
           (la[LEAVE_STATES] != lb[LEAVE_STATES] ? BY_STATES : 0u) |
           ((la[LEAVE_STATES] > 0) != (lb[LEAVE_STATES] > 0) ? BY_ANY_STATES : 0u) |
           (la[LEAVE_GRADS] != lb[LEAVE_GRADS] ? BY_GRADS : 0u) |
           (la[LEAVE_WEIGHTS] != lb[LEAVE_WEIGHTS] ? BY_WEIGHTS : 0u) |
           (a->segment != b->segment ? BY_SEGMENT : 0u) | (a->saved != b->saved ? BY_SAVED : 0u) |
           (a->streamed != b->streamed ? BY_STREAMED : 0u);
}

/* Parts take whole pages one behind the other: what one takes is the same wherever it begins, so
 * each begins at 0 here. What they leave for later ones is kept with units, and here by name. */
void lay_out_again(const struct placement_in *in, const struct choice *c, struct lay_out_kept *kept,
                   struct placement *p)
{
    const unsigned changed = kept->any ? differences(c, &kept->choice) : ~0u;
    uint64_t hbm_bytes = 0, dram_bytes = 0;
    if (!kept->any)
        lay_out_begin(in, 0, &kept->begun);
    struct placement now = kept->begun;
    now.resident_units = changed & LAY_OUT_PART[PART_RESIDENT].by ? 0 : kept->resident_units;
    now.segment = kept->segment;
    for (int i = 0; i < LAY_OUT_PARTS; i++) {
        if (changed & LAY_OUT_PART[i].by) {
            now.hbm_bytes = now.dram_bytes = 0;
            LAY_OUT_PART[i].lay(in, c, &now);
            kept->hbm_bytes[i] = now.hbm_bytes;
            kept->dram_bytes[i] = now.dram_bytes;
        }
        hbm_bytes = sat_add(hbm_bytes, kept->hbm_bytes[i]);
        dram_bytes = sat_add(dram_bytes, kept->dram_bytes[i]);
    }
    for (size_t i = 0; i < POOLS; i++) {
        if (changed & LAY_OUT_PART[PART_BUFFERS].by)
            kept->device_weights[i] = now.device_weights[i].count;
        p->device_weights[i].count = kept->device_weights[i];
    }
    kept->choice = *c;
    kept->any = true;
    kept->segment = now.segment;
    p->hbm_bytes = hbm_bytes;
    p->dram_bytes = dram_bytes;
    p->resident_units = kept->resident_units = now.resident_units;
}
