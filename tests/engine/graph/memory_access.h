/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ENGINE_MEMORY_ACCESS_H
#define TESTS_ENGINE_MEMORY_ACCESS_H
/* What a node of a step graph does with the cells of memory_model.h. */
#include "memory_model.h"

#define GARBAGE (-1)
#define ANY_AGE (-2)
#define OF_EVAL 1000000 /* checkpoints of an evaluation, which nobody may use */
#define MOST    (4 * MODEL_TILES)

/* What a node does with one cell. */
struct access {
    struct cell *cell;
    int64_t expects; /* of what it finds */
    bool writes;
    int64_t age;             /* what it leaves */
    const struct cell *from; /* or a copy of that */
};

struct accesses {
    struct access of[MOST];
    unsigned count;
};

struct accesses accesses_of(struct model *model, struct scheduled at);

/** The graph is of several ranks; they have shards, not all of all. */
bool access_has_ranks(const struct model *model);
bool access_is_shared(const struct model *model);
const struct graph_unit *access_unit(const struct model *model, uint32_t unit);
bool access_states_away(const struct model *model, uint32_t unit, uint32_t tile);
/** The step that a node works for. */
int64_t access_step(const struct model *model, struct scheduled at);
/** Of an update: it is of the step before. */
bool access_is_late(const struct node *node);

#endif
