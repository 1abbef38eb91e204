/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/placement/segments.h"

/* Each so-many-th of the units that may be recomputed and follow one another keeps its checkpoint,
 * the first one on. */
void segments_choose(const struct placement_in *in, uint32_t segment, struct placement *p)
{
    uint32_t place = 0; /* in its segment */
    p->segment = 1;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const bool may = layout_may_recompute(&in->layout->units[u]);
        place = may ? place : 0;
        p->units[u].recomputed = place > 0;
        p->segment = p->units[u].recomputed ? segment : p->segment;
        place = may && place + 1 < segment ? place + 1 : 0;
    }
}
