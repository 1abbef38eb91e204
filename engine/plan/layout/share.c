/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which rank has which elements of a row: see share.h. */
#include "plan/layout/share.h"

#include "plan/layout/layout.h"

uint64_t shard_elements(uint64_t row_elements, uint32_t world)
{
    const uint64_t blocks = row_elements / LAYOUT_UNIT_ALIGN;
    return (blocks / world + (blocks % world > 0)) * LAYOUT_UNIT_ALIGN;
}

struct shard shard_of(uint64_t row_elements, struct share share)
{
    const uint64_t each = shard_elements(row_elements, share.world);
    uint64_t first;
    if (__builtin_mul_overflow(each, share.rank, &first) || first > row_elements)
        first = row_elements;
    const uint64_t left = row_elements - first;
    return (struct shard){.first = first, .elements = left < each ? left : each};
}
