/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_ADAM_ARRAYS_H
#define HOISTWAY_TOOLS_BENCH_ADAM_ARRAYS_H
/* The arrays that updates are measured on: where they lie, and what is in them. */
#include "bench/step/team.h"

#include <hoistway/cpu_adam.h>

#define ADAM_STAGGER_BYTES 1088u /* as the engine's tiles */

/** Numbers of elements, one thread's in a range that is shared out in whole blocks of a norm. */
struct adam_part {
    uint64_t first, count;
};
struct adam_part adam_part(uint64_t elements, unsigned thread, unsigned threads);

/** It holds what is laid out in a piece of memory so far. */
struct adam_layout {
    unsigned char *end;
    unsigned arrays;
    unsigned stagger; /* the k-th array begins at k·stagger modulo 4 KiB */
};

/** The next array; null for no bytes. */
void *adam_array(struct adam_layout *layout, uint64_t elements, unsigned element_bytes);
struct hst_update_arrays adam_arrays(struct adam_layout *layout, uint64_t elements,
                                     const struct hst_update *update);

/** Bytes that `arrays` arrays of `element_bytes` together need. */
uint64_t adam_arrays_bytes(uint64_t elements, unsigned element_bytes, unsigned arrays);

/** How many of an update's elements fill half of a core's second-level cache, in whole blocks of a
 * norm: the other half is left to what else lies there. */
uint64_t adam_cached_elements(const struct hst_update *update);
/** Bytes that the arrays of as many elements of any update need, `arrays` at most. */
uint64_t adam_cached_bytes(unsigned arrays);

/** Every thread writes its own part, numbers as they are in training. */
void adam_fill(struct team *team, const struct hst_update *update,
               const struct hst_update_arrays *arrays, uint64_t elements);

#endif
