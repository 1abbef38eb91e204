/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_WALK_H
#define HOISTWAY_ENGINE_PLAN_WALK_H
/*
 * A walk through the periods of a step graph: which node of a lane is next, whether it may run,
 * which buffers it got. It keeps no time and moves no bytes; the simulator gives it virtual time,
 * the executor gives it the machine. At most two periods are open at once: one is run, the next is
 * begun as far as its dependencies and buffers go. Pure: values in, values out, but for its own
 * arrays.
 */
#include "plan/graph/graph.h"

enum { WALK_PERIODS = 2 };

/* A node of one period. */
struct walk_at {
    uint64_t period;
    uint32_t node;
};

struct walk_lease {
    uint32_t users;  /* that are not done yet */
    uint32_t buffer; /* GRAPH_NONE: not borrowed */
    uint32_t kept;   /* buffer left to it by the period before, or GRAPH_NONE */
    bool settled;    /* its turn in the pool is over */
    bool inherited;  /* the buffer came from the period before, with its contents */
    bool broken;     /* users were taken from it: nobody takes over what the buffer holds */
};

/* Whose a buffer is. One that was left for the next period's lease still counts as the giver's. */
struct walk_loan {
    uint64_t period;
    uint32_t lease;
};

struct walk_period {
    unsigned parts;
    uint32_t left;             /* nodes not done */
    uint8_t *state;            /* [node_count] of enum walk_state */
    struct walk_lease *leases; /* [lease_count] */
};

/* It says how far a lane or a pool is. */
struct walk_place {
    uint64_t period;
    uint32_t at; /* in graph.lane or graph.pool */
};

/* A lane's next node, and so many of its dependencies that were found done, from the first on. */
struct walk_met {
    struct walk_at at;
    uint32_t deps;
};

struct walk {
    const struct graph *graph;
    uint64_t opened; /* periods opened so far; the last WALK_PERIODS of them are tracked */
    struct walk_period period[WALK_PERIODS];
    struct walk_place lane[LANE_COUNT], pool[POOL_COUNT];
    struct walk_met met[LANE_COUNT];
    uint32_t *free[POOL_COUNT]; /* stacks of idle buffers */
    uint32_t free_count[POOL_COUNT];
    struct walk_loan *loan[POOL_COUNT]; /* [buffers]: of a buffer that is not idle */
};

/** Errors: -ENOMEM. The graph must outlive the walk. */
int walk_init(struct walk *walk, const struct graph *graph);
void walk_free(struct walk *walk);

/** True where the next period may be opened: the last but one is done, node for node. */
bool walk_may_open(const struct walk *walk);
/** Opens the next period with these parts of it. walk_may_open must be true. */
void walk_open(struct walk *walk, unsigned parts);
/** Leaves an opened period no other parts than these. What was started goes on; a buffer whose uses
 * are cut short is not kept for the next period. */
void walk_narrow(struct walk *walk, uint64_t period, unsigned parts);
/** The walk is idle: nothing is retained for the next period; all buffers are free. */
void walk_forget(struct walk *walk);
/**
 * The buffer that holds what a lease left in it for its heir, from its last user's end until the
 * heir's, or GRAPH_NONE.
 */
uint32_t walk_left_to_heir(const struct walk *walk, uint64_t period, uint32_t lease);
/** True where the node belongs to a part of its period that is run. */
bool walk_is_run(const struct walk *walk, struct walk_at at);
/** True where all nodes of all opened periods are done. */
bool walk_is_idle(const struct walk *walk);

/**
 * The lane's next node that has not been started; false where there is none before the next period
 * is opened.
 */
bool walk_next(struct walk *walk, enum lane lane, struct walk_at *at);
/** True where the dependencies of a lane's next node are done and its buffers can be had. */
bool walk_ready(struct walk *walk, struct walk_at at);
/**
 * It tells what a lane's next node waits for: an earlier node that is not done, a dependency or the
 * user of a buffer. False where it waits for nothing. Cost: O(buffers).
 */
bool walk_waits_for(struct walk *walk, struct walk_at at, struct walk_at *on);
/** Starts the lane's next node, which is ready: borrows its buffers. */
void walk_start(struct walk *walk, struct walk_at at);
/** The node is done: its buffers are free where it was their last user. */
void walk_done(struct walk *walk, struct walk_at at);

/** Buffer of the i-th lease of a node that was started; GRAPH_NONE where it has no such lease. */
uint32_t walk_buffer(const struct walk *walk, struct walk_at at, unsigned i);
/** The buffer that a unit's use has in a pool: see walk_buffer. */
uint32_t walk_pool_buffer(const struct walk *walk, struct walk_at at, enum pool pool);
/**
 * True where the node that was started found its lease filled by the period before, so that a read
 * of weights has nothing to do.
 */
bool walk_was_kept(const struct walk *walk, struct walk_at at);

#endif
