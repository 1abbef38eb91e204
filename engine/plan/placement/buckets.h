/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_BUCKETS_H
#define HOISTWAY_ENGINE_PLAN_BUCKETS_H
/*
 * Homes of gradients that ranks keep whole (ZeRO stage 1). They are handed over several units at
 * once, in fewer and larger messages: a bucket. It has a part for each rank, in their order; a part
 * has that rank's shards of the bucket's units, one behind the other. So a bucket is to an exchange
 * what a unit's row is, and the sums of the rank's shards come to lie in its own part. Where ranks
 * hand over a wider type than gradients have, sums have a place of their own behind all parts.
 *
 * Two units of two blocks each, of two ranks:   a0 b0 | a1 b1
 *
 * Pure.
 */
#include "plan/placement/lay_out.h"

/* The most that units of a bucket hand over together, in bytes of their rows; a larger unit is a
 * bucket by itself. Of a small model a quarter, so that the first ones move under the backward. */
#define BUCKET_BYTES ((uint64_t)32 << 20)

/** Puts units into buckets, the last unit first, as a backward comes to them, and takes memory. */
void buckets_place(const struct placement_in *in, struct placement *p);

#endif
