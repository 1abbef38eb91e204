/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_ORDER_H
#define HOISTWAY_TOOLS_DATA_ORDER_H
#include <stdint.h>

/**
 * The place in [0, n) of element k of a seeded permutation of [0, n). A bijection for each (seed,
 * pass), computed without a table; n > 0, k < n. Pure.
 */
uint64_t data_order_permute(uint64_t seed, uint64_t pass, uint64_t n, uint64_t k);
/** 64 bits of a generator that is keyed by seed and stream, for its element k. Pure. */
uint64_t data_order_draw(uint64_t seed, uint64_t stream, uint64_t k);
#endif
