/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_RECORD_H
#define HOISTWAY_ENGINE_PLAN_RECORD_H
/*
 * The bytes of one tile's states, its record: `state | pad | state | pad | …` in the order of the
 * optimizer's row. The k-th array starts at k·1,088 modulo 4,096, so that the update's streams do
 * not meet in the same cache sets; the record as a whole is padded to 4 KiB. The same in memory and
 * on the drive. Pure.
 */
#include "optimizer/optimizer.h"

#define RECORD_STAGGER_BYTES 1088u
#define RECORD_PAGE_BYTES    4096u

struct record {
    uint64_t at[OPTIMIZER_STATES_MOST]; /* of each state: bytes from the record's start */
    uint64_t bytes;                     /* of the whole, a multiple of 4,096 */
};

struct record record_layout(const struct optimizer *optimizer, uint64_t elements);

/* It holds the bytes of records of the last sizes that were asked for: units alike have tiles
   alike, and a search lays out thousands of times. [0]: of a whole tile. */
struct record_sizes {
    const struct optimizer *optimizer;
    uint64_t elements[2], bytes[2];
};

struct record_sizes record_sizes_of(const struct optimizer *optimizer, uint64_t elements);
uint64_t record_size(struct record_sizes *sizes, uint64_t elements);
/** Zeroes what lies between the arrays and behind them, which nothing else writes: the bytes of a
 * tile on a drive then depend on its elements alone. */
void record_zero_gaps(void *record, const struct optimizer *optimizer, uint64_t elements);
/** The arrays of a tile of so many elements whose weights and record are here; gradients and index
 * are left to the caller. A null record has no states. */
struct optimizer_arrays record_arrays(const struct optimizer *optimizer, void *weights,
                                      void *record, uint64_t elements);
/** The element whose bytes are at `at` of a record, or of which they are the scale; those between
 * the arrays count as the last one's. */
uint64_t record_element(const struct optimizer *optimizer, uint64_t elements, uint64_t at);

#endif
