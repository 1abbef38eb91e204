/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SHARE_H
#define HOISTWAY_ENGINE_PLAN_SHARE_H
/*
 * Which part of a unit's row a rank has: its shard (ZeRO stage 3; ZeRO-Infinity §6.1, bandwidth-
 * centric partitioning). A row of B blocks of 4,096 elements is cut into N shards of ceil(B/N)
 * blocks, in order of rank. Every rank therefore has the same part of every unit, and a gather is
 * one all-gather of equal counts. The last shards of a row may be shorter, or empty.
 *
 * The block is what the norm adds up and what no cut divides. Pure.
 */
#include <stdint.h>

struct share {
    uint32_t rank, world; /* rank < world */
};
#define SHARE_ALL ((struct share){0, 1})

/* A part of a row, in elements from the row's start. */
struct shard {
    uint64_t first, elements; /* multiples of 4,096; elements 0: the rank has none of the row */
};

/** Elements of a full shard: world times as many are what a gather needs room for. */
uint64_t shard_elements(uint64_t row_elements, uint32_t world);
/** row_elements: a multiple of 4,096. `first` is at most row_elements. */
struct shard shard_of(uint64_t row_elements, struct share share);

#endif
