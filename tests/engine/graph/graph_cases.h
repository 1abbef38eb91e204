/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ENGINE_GRAPH_CASES_H
#define TESTS_ENGINE_GRAPH_CASES_H
/* What step graphs are tested with: a fixed list of models on machines, and small random ones. */
#include "plan/graph/simulate.h"

#define CASES          200u
#define CASE_UNITS_MAX 100u

struct graph_case {
    struct graph_in in;
    struct graph_unit units[CASE_UNITS_MAX];
    uint32_t forward[CASE_UNITS_MAX], backward[CASE_UNITS_MAX];
    struct sim_rates rates;
    char name[192];
    bool small_pools; /* less than 3 weight units, 2 gradient units or 4 tiles, where used */
};

/**
 * Case `number` of the list. Every choice is a draw of splitmix64 seeded with the number: a shape
 * of 1B to 70B, a machine, drives, tokens, precision, clipping, homes, buffers.
 */
void graph_case(uint32_t number, struct graph_case *c);
/** The same with the embedding and the head in slices no larger than a layer, and other buffers in
 * the place of theirs; false where they are hardly larger than a layer. */
bool graph_case_cut(uint32_t number, struct graph_case *c);

/**
 * `count` units like `unit`, which says tiles, homes and FLOPs, of whole tiles of EVEN_TILE
 * elements, in bf16, clipped, backwards in the reverse order. No rates, no buffers.
 */
void even_case(struct graph_case *c, uint32_t count, const struct graph_unit *unit);
/** Units of 4 tiles with everything in one tier, and few buffers of each pool. */
#define ONE_TIER_UNITS 6u
void one_tier_case(struct graph_case *c, enum hst_tier home, bool apart);
#define EVEN_TILE 4096u

/** A few units of a few tiles: any homes, aliases, empty units, orders, and pools of 1 to 4. */
void random_case(uint64_t seed, struct graph_case *c);

/** The size of the units that a pool is for; usual ones of all pools but those of weights and
 * gradients. A pool of another size comes so many behind the usual one. */
enum unit_size size_of_pool(int pool);

/** splitmix64: the next of a sequence of random numbers. */
uint64_t draw(uint64_t *seed);
/** A number below `count`. */
uint32_t pick(uint64_t *seed, uint32_t count);

/** Number of random cases, and the first one: 1 and N where the program is called as `test N`. */
struct seeds {
    uint64_t first, count;
};
struct seeds seeds_of(int argc, char **argv, uint64_t count);
/** Calls a check on the graphs of all random cases of these seeds that can be built; fails where
 * one cannot for another reason than that it contradicts itself. */
void for_random_graphs(struct seeds seeds,
                       void (*check)(const struct graph_case *c, const struct graph *graph));

#endif
