/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how one tile's optimizer states lie: see record.h. */
#include "plan/placement/record.h"

#include <assert.h>
#include <string.h>

struct hst_update_kind record_kind(enum hst_precision precision, enum hst_state state)
{
    enum hst_cpu_type type = precision == HST_PRECISION_BF16   ? HST_CPU_BF16
                             : precision == HST_PRECISION_FP16 ? HST_CPU_F16
                                                               : HST_CPU_F32;
    return (struct hst_update_kind){
        .weights = type,
        .moments = state == HST_STATE_BF16 ? HST_CPU_BF16 : HST_CPU_F32,
        .grads = type,
    };
}

struct hst_update_bytes record_bytes(enum hst_precision precision, enum hst_state state)
{
    const struct hst_update *update =
        hst_update_find(hst_cpu_adam_ops(HST_CPU_ISA_C), record_kind(precision, state));
    assert(update); /* the configuration was checked */
    return update->bytes;
}

/* The first byte from `end` on that is k·1,088 modulo 4,096. */
static uint64_t staggered(uint64_t end, unsigned k)
{
    uint64_t wanted = (uint64_t)k * RECORD_STAGGER_BYTES % RECORD_PAGE_BYTES;
    uint64_t at = end / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES + wanted;
    return at >= end ? at : at + RECORD_PAGE_BYTES;
}

struct record record_layout(struct hst_update_bytes bytes, uint64_t elements)
{
    struct record record = {0};
    uint64_t end = elements * bytes.master;
    unsigned k = bytes.master > 0;
    record.m_at = staggered(end, k++);
    record.v_at = staggered(record.m_at + elements * bytes.m, k);
    end = record.v_at + elements * bytes.v;
    record.bytes = (end + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES;
    return record;
}

void record_zero_gaps(void *record, struct hst_update_bytes bytes, uint64_t elements)
{
    const struct record at = record_layout(bytes, elements);
    const uint64_t starts[] = {at.m_at, at.v_at, at.bytes};
    const uint64_t ends[] = {elements * bytes.master, at.m_at + elements * bytes.m,
                             at.v_at + elements * bytes.v};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        memset((unsigned char *)record + ends[i], 0, starts[i] - ends[i]);
}

uint64_t record_state_bytes(struct hst_update_bytes bytes)
{
    return (uint64_t)bytes.master + bytes.m + bytes.v;
}
