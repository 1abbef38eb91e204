/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_SATURATE_H
#define HOISTWAY_ENGINE_BASE_SATURATE_H
/* Sums of sizes that come from clients: what overflows stays at the greatest number, which no
 * budget allows. */
#include <stdint.h>

#define PAGE_BYTES 4096u

static inline uint64_t sat_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t sat_times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t sat_round_up(uint64_t bytes, uint64_t multiple)
{
    return bytes > UINT64_MAX - multiple ? UINT64_MAX
                                         : (bytes + multiple - 1) / multiple * multiple;
}

static inline uint64_t sat_page_up(uint64_t bytes)
{
    return sat_round_up(bytes, PAGE_BYTES);
}

#endif
