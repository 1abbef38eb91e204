/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ENGINE_MEMORY_MODEL_H
#define TESTS_ENGINE_MEMORY_MODEL_H
/*
 * What bytes are where while a step graph runs, told apart by their age: every tile's weights,
 * states and gradients, every unit's checkpoints, in their homes and in every buffer. A node reads
 * what its kind says, and it must find the bytes of the right step there; nobody may write what
 * another node reads or writes at the same time. The model knows nothing of the graph's
 * dependencies or of the scheduler's rules, so it notices when one is missing. Of several ranks it
 * is one rank's: what others hand over is as old as what all of them read for it.
 */
#include "graph_cases.h"
#include "plan/graph/scheduler.h"

#define MODEL_TILES   48u
#define MODEL_UNITS   8u
#define MODEL_BUFFERS 4u

/* A place for one tile's or one unit's bytes. */
struct cell {
    int64_t age; /* steps behind these bytes; MODEL_GARBAGE */
    int readers, writers;
};

struct model {
    const struct graph_in *in;
    const struct graph *graph;
    struct scheduler *scheduler;
    const char *name;
    uint64_t step_of[SCHEDULER_WINDOWS]; /* steps before a step window: what its visits must see */
    /* What an optimistic update replaces has two slots, which change places when it stands. */
    struct cell weights[2][MODEL_TILES], states[2][MODEL_TILES];
    struct cell grads[MODEL_TILES], acts[MODEL_UNITS];
    struct cell turns[MODEL_TILES]; /* gradients of resident units, where they do not wait */
    struct cell nvme_weights[MODEL_TILES], nvme_states[MODEL_TILES], nvme_grads[MODEL_TILES];
    int64_t committed_weights[MODEL_TILES], committed_states[MODEL_TILES]; /* ages, on drives */
    int slot;
    uint64_t stale; /* step window whose kept weights are not those of the step before it */
    struct cell nvme_acts[MODEL_UNITS];
    /* of units that are recomputed: the carry, and a segment's inner checkpoints, by their place in
       it; the age says of which unit, too */
    struct cell carry, inner[MODEL_UNITS];
    /* in the store: of what is at home in memory */
    struct cell saved_weights[MODEL_TILES], saved_states[MODEL_TILES];
    bool committing;
    /* in buffers: of a tile's buffer the states; its gradients are apart */
    struct cell lent[POOL_COUNT][MODEL_BUFFERS][MODEL_TILES];
    struct cell lent_tile_grads[MODEL_BUFFERS][MODEL_TILES];
    /* and of one that the device updates, weights and gradients */
    struct cell streamed_weights[MODEL_BUFFERS][MODEL_TILES];
    struct cell streamed_grads[MODEL_BUFFERS][MODEL_TILES];
    /* Of several ranks: what others have of a unit's row of weights, in a buffer or at home beside
       the rank's own tiles; in a buffer of gradients the whole row, before it is exchanged. */
    struct cell rows[POOL_COUNT][MODEL_BUFFERS][MODEL_UNITS], home_rows[2][MODEL_UNITS];
    struct cell near[MODEL_UNITS][MODEL_UNITS]; /* what a node keeps of rows, by who reads them */
    /* And of gradients at home, around the rank's own: in a bucket what a backward has left for the
       others; of replicas the rank's shard of the sum, until it has those of all. */
    struct cell home_grads[MODEL_UNITS];
    struct scheduler_holder owner[POOL_COUNT][MODEL_BUFFERS];
    int64_t normed[MODEL_UNITS], clipped; /* the step whose gradients are in the norm */
    int64_t agreed;                       /* the step whose norm is that of all ranks */
    bool prepared;                        /* a version that ranks have not voted for yet */
};

void model_open(struct model *model, const struct graph_case *c, const struct graph *graph,
                struct scheduler *scheduler);
enum verdict { VERDICT_STANDS = 0, VERDICT_CLIPS, VERDICT_SKIPS };
/** On the optimistic update of a step, before the next step window, `next`, is opened. */
void model_verdict(struct model *model, uint64_t next, enum verdict verdict);
/** A step window is opened with so many whole steps before it. */
void model_step_window(struct model *model, uint64_t step_window, uint64_t steps);
/** Gradients that the last step window left to the next one in buffers go to drives. */
void model_save_kept_grads(struct model *model);
/** All buffers are used for something else. */
void model_spoil(struct model *model);
/** The node that was started begins to read and write; it has done so. Both fail the test. */
void model_begin(struct model *model, struct scheduled at);
void model_end(struct model *model, struct scheduled at);

#endif
