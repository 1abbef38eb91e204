/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_GRAPH_SHARED_CASE_H
#define HST_TESTS_GRAPH_SHARED_CASE_H
/* Random graphs as several ranks have them, in each stage of ZeRO. */
#include "graph_cases.h"

/** Makes a random graph in which a client makes a forward, on the host or on a device with memory
 * of its own. */
void shared_case(uint64_t seed, struct graph_case *c);
/** Makes of it what one of so many ranks has: the last ones may have a shorter shard of a row, or
 * none; replicas have all of it. */
void cut_rows(const struct graph_case *whole, uint32_t rank, uint32_t ranks, uint64_t *seed,
              struct graph_case *c);

#endif
