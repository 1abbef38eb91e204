/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which units are exchanged together, and where their gradients are: see buckets.h. */
#include "plan/placement/buckets.h"

#include "base/saturate.h"

#define BUCKETS_LEAST 4u

/* A frozen unit has no gradients, and is in no bucket. */
static uint64_t row_bytes(const struct placement_in *in, uint32_t unit)
{
    return in->layout->units[unit].frozen ? 0 : placement_exchange_bytes(in, unit);
}

static uint64_t shard_of_row(const struct placement_in *in, uint32_t unit)
{
    return in->layout->units[unit].frozen ? 0 : placement_shard_elements(in->layout, unit);
}

static uint64_t most_bytes(const struct placement_in *in)
{
    uint64_t all = 0;
    for (uint32_t u = 0; u < in->layout->unit_count; u++)
        all = sat_add(all, row_bytes(in, u));
    return all / BUCKETS_LEAST < BUCKET_BYTES ? all / BUCKETS_LEAST : BUCKET_BYTES;
}

/* Units (end, …, first]: their shards follow one another. */
static void place_bucket(const struct placement_in *in, uint32_t number, uint32_t first,
                         uint32_t end, struct placement *p)
{
    uint64_t elements = 0;
    for (uint32_t u = first; u > end; u--) {
        p->units[u - 1].bucket = number;
        p->units[u - 1].bucket_first = elements;
        elements = sat_add(elements, shard_of_row(in, u - 1));
    }
    const uint64_t parts = sat_times(elements, in->layout->share.world);
    const uint64_t weight_bytes = optimizer_weight_bytes(in->optimizer);
    const uint64_t sums = p->hand_bytes == weight_bytes ? 0 : sat_times(elements, weight_bytes);
    const uint64_t at = lay_out_take(p, HST_TIER_DRAM, HST_CLASS_GRADS,
                                     sat_add(sat_times(parts, p->hand_bytes), sums));
    for (uint32_t u = first; u > end; u--) {
        p->units[u - 1].bucket_elements = elements;
        p->units[u - 1].grads = (struct address){.tier = HST_TIER_DRAM, .offset = at};
    }
}

void buckets_place(const struct placement_in *in, struct placement *p)
{
    const uint64_t most = most_bytes(in);
    uint32_t number = 0, first = in->layout->unit_count;
    uint64_t bytes = 0;
    for (uint32_t u = in->layout->unit_count; u > 0; u--) {
        const uint64_t more = row_bytes(in, u - 1);
        if (bytes > 0 && sat_add(bytes, more) > most) {
            place_bucket(in, number++, first, u, p);
            first = u;
            bytes = 0;
        }
        bytes = sat_add(bytes, more);
    }
    place_bucket(in, number, first, 0, p);
}
