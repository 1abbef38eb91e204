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
/** The device has it at home. */
bool access_is_resident(const struct model *model, uint32_t unit);
/** Its visits compute with weights in a buffer of the device's. */
bool access_is_copied(const struct model *model, uint32_t unit);
const struct graph_unit *access_unit(const struct model *model, uint32_t unit);
bool access_states_away(const struct model *model, uint32_t unit, uint32_t tile);
/** The step that a node works for. */
int64_t access_step(const struct model *model, struct scheduled at);
/** Of an update: it is of the step before. */
bool access_is_late(const struct node *node);

/* ---- memory_access.c: cells, where they are, and what is done with them ---- */

void access_reads(struct accesses *a, struct cell *cell, int64_t expects);
void access_writes(struct accesses *a, struct cell *cell, int64_t expects, int64_t age);
void access_copies(struct accesses *a, struct cell *from, struct cell *to);
/** Cells of tiles, or of rows, in the buffer of weights or gradients that the node's unit has. */
struct cell *access_unit_buffer(struct model *model, struct scheduled at, enum pool pool);
struct cell *access_unit_rows(struct model *model, struct scheduled at, enum pool pool);
struct cell *access_weights_in_host(struct model *model, struct scheduled at, uint32_t owner,
                                    uint32_t tile);
struct cell *access_grads_at_home(struct model *model, struct scheduled at, uint32_t unit,
                                  uint32_t tile);
/** The i-th unit whose tiles a unit reads: itself, and those it is an alias of. */
uint32_t access_view(const struct model *model, uint32_t unit, uint32_t i);
/** The slot in memory that has the weights of the step at hand. */
int access_slot_of(const struct model *model, uint32_t unit);
int64_t access_weights_age(const struct model *model, struct scheduled at, uint32_t unit);

/* ---- memory_ranks.c: what nodes of several ranks do ---- */

void access_copy_weights(struct model *model, struct scheduled at, struct accesses *a);
void access_gather(struct model *model, struct scheduled at, struct accesses *a);
void access_gather_near(struct model *model, struct scheduled at, struct accesses *a);
void access_exchange(struct model *model, struct scheduled at, struct accesses *a);
void access_gather_grads(struct model *model, struct scheduled at, struct accesses *a);
void access_copy_row_of_grads(struct model *model, struct scheduled at, struct accesses *a);
/** A backward leaves a whole row of gradients. */
void access_leave_row(struct model *model, struct scheduled at, struct accesses *a);
/** Of several ranks: a tile where the weights of its row come together; the others' part of a row
 * where a visit computes. */
struct cell *access_gathered_tile(struct model *model, struct scheduled at, uint32_t owner,
                                  uint32_t tile);
struct cell *access_row_of_visit(struct model *model, struct scheduled at, uint32_t owner);

#endif
