/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which units have buffers of another size than most. Buffers that all take turns at are as
 * large as the largest unit. That wastes memory where the ends of a model are far larger than what
 * is between them, and where large and small units alternate, as the halves of layers do.
 */
#include "plan/placement/unit_sizes.h"

uint64_t unit_sizes_bytes(const struct placement_in *in, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    const uint64_t element_bytes = optimizer_weight_bytes(in->optimizer);
    if (!in->layout->units[unit].borrows)
        return placement_row_elements(in->layout, unit) * element_bytes;
    int n = placement_gather(in->layout, element_bytes, unit, gathers);
    return n > 0 ? gathers[n - 1].reservation_at + gathers[n - 1].bytes : 0;
}

static bool is_clearly_smaller(uint64_t bytes, uint64_t other)
{
    return bytes <= other / 4 * 3;
}

/* A unit of so many bytes before one of so many; neither is the first or the last. */
static bool is_narrow(const struct placement_in *in, uint32_t unit, uint64_t bytes, uint64_t behind)
{
    return is_clearly_smaller(bytes, behind) && !layout_is_slice(in->layout, unit) &&
           !layout_is_slice(in->layout, unit + 1);
}

void unit_sizes_mark(const struct placement_in *in, struct placement *p)
{
    const uint32_t units = in->layout->unit_count, last = units > 0 ? units - 1 : 0;
    uint64_t largest = 0, narrow = 0, before = 0;
    for (uint32_t u = 0; u < units; u++)
        p->units[u].size = UNIT_USUAL;
    for (uint32_t u = 1; u < last; u++) {
        const uint64_t bytes = unit_sizes_bytes(in, u);
        largest = bytes > largest ? bytes : largest;
        if (u > 1 && is_narrow(in, u - 1, before, bytes)) {
            p->units[u - 1].size = UNIT_NARROW;
            narrow = before > narrow ? before : narrow;
        }
        before = bytes;
    }
    for (uint32_t u = 0; last > 1 && u < units; u += last)
        if (unit_sizes_bytes(in, u) > largest)
            p->units[u].size = UNIT_WIDE;
    for (uint32_t u = 1; narrow > 0 && u < units; u++)
        if (p->units[u].size == UNIT_USUAL && p->units[u - 1].size != UNIT_NARROW &&
            !layout_is_slice(in->layout, u) && unit_sizes_bytes(in, u) <= narrow)
            p->units[u].size = UNIT_NARROW;
}

static bool takes_turns(const struct placement *p, bool all, uint32_t unit)
{
    return p->units[unit].size != UNIT_WIDE && (all || !placement_is_resident(p, unit));
}

void unit_sizes_most(const struct placement *p, bool all, uint32_t count, uint32_t most[UNIT_SIZES])
{
    uint32_t held[UNIT_SIZES] = {0}, first = 0, inside = 0;
    for (int s = 0; s < UNIT_SIZES; s++)
        most[s] = 0;
    for (uint32_t u = 0; count > 0 && u < p->layout->unit_count; u++) {
        const enum unit_size size = p->units[u].size;
        if (!takes_turns(p, all, u))
            continue;
        for (; inside == count; first++)
            if (takes_turns(p, all, first)) {
                held[p->units[first].size]--;
                inside--;
            }
        inside++;
        held[size]++;
        most[size] = held[size] > most[size] ? held[size] : most[size];
    }
}
