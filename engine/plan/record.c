/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how one tile's optimizer states lie: see record.h. */
#include "plan/record.h"

/* The first byte from `end` on that is k·1,088 modulo 4,096. */
static uint64_t staggered(uint64_t end, unsigned k)
{
    uint64_t wanted = (uint64_t)k * RECORD_STAGGER_BYTES % RECORD_PAGE_BYTES;
    uint64_t at = end / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES + wanted;
    return at >= end ? at : at + RECORD_PAGE_BYTES;
}

struct record record_layout(enum hst_precision precision, uint64_t elements)
{
    struct record record = {0};
    uint64_t end = 0;
    unsigned k = 0;
    if (precision == HST_PRECISION_BF16) {
        end = elements * sizeof(int16_t);
        k++;
    }
    record.m_at = staggered(end, k++);
    record.v_at = staggered(record.m_at + elements * sizeof(float), k);
    end = record.v_at + elements * sizeof(float);
    record.bytes = (end + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES;
    return record;
}

uint64_t record_weight_bytes(enum hst_precision precision)
{
    return precision == HST_PRECISION_BF16 ? 2 : 4;
}

uint64_t record_state_bytes(enum hst_precision precision)
{
    return precision == HST_PRECISION_BF16 ? 10 : 8;
}
