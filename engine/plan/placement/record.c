/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how one tile's optimizer states lie: see record.h. */
#include "plan/placement/record.h"

#include <string.h>

/* The first byte from `end` on that is k·1,088 modulo 4,096. */
static uint64_t staggered(uint64_t end, unsigned k)
{
    uint64_t wanted = (uint64_t)k * RECORD_STAGGER_BYTES % RECORD_PAGE_BYTES;
    uint64_t at = end / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES + wanted;
    return at >= end ? at : at + RECORD_PAGE_BYTES;
}

struct record record_layout(const struct optimizer *optimizer, uint64_t elements)
{
    struct record record = {0};
    uint64_t end = 0;
    for (uint32_t i = 0; i < optimizer->state_count; i++) {
        record.at[i] = staggered(end, i);
        end = record.at[i] + optimizer_array_bytes(optimizer, i, elements);
    }
    record.bytes = (end + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES * RECORD_PAGE_BYTES;
    return record;
}

struct record_sizes record_sizes_of(const struct optimizer *optimizer, uint64_t elements)
{
    return (struct record_sizes){optimizer, {elements}, {record_layout(optimizer, elements).bytes}};
}

uint64_t record_size(struct record_sizes *sizes, uint64_t elements)
{
    if (elements == sizes->elements[0])
        return sizes->bytes[0];
    if (elements != sizes->elements[1]) {
        sizes->elements[1] = elements;
        sizes->bytes[1] = record_layout(sizes->optimizer, elements).bytes;
    }
    return sizes->bytes[1];
}

void record_zero_gaps(void *record, const struct optimizer *optimizer, uint64_t elements)
{
    const struct record at = record_layout(optimizer, elements);
    for (uint32_t i = 0; i < optimizer->state_count; i++) {
        const uint64_t end = at.at[i] + optimizer_array_bytes(optimizer, i, elements);
        const uint64_t next = i + 1 < optimizer->state_count ? at.at[i + 1] : at.bytes;
        memset((unsigned char *)record + end, 0, next - end);
    }
}

struct optimizer_arrays record_arrays(const struct optimizer *optimizer, void *weights,
                                      void *record, uint64_t elements)
{
    struct optimizer_arrays arrays = {.weights = weights};
    const struct record at = record_layout(optimizer, elements);
    for (uint32_t i = 0; record && i < optimizer->state_count; i++)
        arrays.states[i] = (unsigned char *)record + at.at[i];
    return arrays;
}

uint64_t record_element(const struct optimizer *optimizer, uint64_t elements, uint64_t at)
{
    const struct record record = record_layout(optimizer, elements);
    uint32_t i = optimizer->state_count - 1;
    while (i > 0 && at < record.at[i])
        i--;
    const struct optimizer_state *state = &optimizer->states[i];
    const uint64_t number = (at - record.at[i]) / optimizer_number_bytes(state->number);
    const uint64_t element = number * state->covers;
    return element < elements ? element : elements - 1;
}
