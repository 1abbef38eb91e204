/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SCHEDULER_H
#define HOISTWAY_ENGINE_PLAN_SCHEDULER_H
/*
 * A scheduler through the step windows of a step graph: which node of a lane is next, whether it
 * may run, which buffers it got. It keeps no time and moves no bytes; the simulator gives it
 * virtual time, the executor gives it the machine. At most two step windows are open at once: one
 * is run, the next is begun as far as its dependencies and buffers go. Pure: values in, values out,
 * but for its own arrays.
 */
#include "plan/graph/graph.h"

enum { SCHEDULER_WINDOWS = 2 };

enum scheduler_state { STATE_WAITING = 0, STATE_STARTED, STATE_DONE };

/* A node of one step window. */
struct scheduled {
    uint64_t step_window;
    uint32_t node;
};

struct scheduler_reservation {
    uint32_t users;    /* that are not done yet */
    uint32_t buffer;   /* GRAPH_NONE: not borrowed */
    uint32_t retained; /* buffer left to it by the step window before, or GRAPH_NONE */
    bool settled;      /* its turn in the pool is over */
    bool inherited;    /* the buffer came from the step window before, with its contents */
    bool broken;       /* users were taken from it: nobody takes over what the buffer holds */
};

/* Whose a buffer is. One that was left for the next step window's reservation still counts as the
   giver's. */
struct scheduler_holder {
    uint64_t step_window;
    uint32_t reservation;
};

struct scheduler_window {
    unsigned phases;
    uint32_t left;                              /* nodes not done */
    uint8_t *state;                             /* [node_count] of enum scheduler_state */
    struct scheduler_reservation *reservations; /* [reservation_count] */
};

/* It says how far a lane or a pool is. */
struct scheduler_place {
    uint64_t step_window;
    uint32_t at; /* in graph.lane or graph.pool */
};

/* A lane's next node, and so many of its dependencies that were found done, from the first on. */
struct scheduler_met {
    struct scheduled at;
    uint32_t deps;
    const uint8_t *awaited; /* the state of the first that was not; null: there is none */
    bool lacks;             /* then: a buffer of this pool could not be had */
    uint32_t pool;
    uint64_t turns; /* of the pool, by then */
};

struct scheduler {
    const struct graph *graph;
    uint16_t *phases; /* [node_count] those of the nodes, side by side: they are asked for often */
    uint64_t opened; /* step windows opened so far; the last SCHEDULER_WINDOWS of them are
                        tracked */
    struct scheduler_window step_window[SCHEDULER_WINDOWS];
    struct scheduler_place lane[LANE_COUNT], pool[POOL_COUNT];
    uint64_t turns[POOL_COUNT]; /* changes of what a pool lends, and to whom */
    struct scheduler_met met[LANE_COUNT];
    uint32_t *free[POOL_COUNT]; /* stacks of idle buffers */
    uint32_t free_count[POOL_COUNT];
    struct scheduler_holder *holder[POOL_COUNT]; /* [buffers]: of a buffer that is not idle */
};

/** Errors: -ENOMEM. The graph must outlive the scheduler. */
int scheduler_init(struct scheduler *scheduler, const struct graph *graph);
void scheduler_free(struct scheduler *scheduler);

/** True where the next step window may be opened: the last but one is done, node for node. */
static inline bool scheduler_may_open(const struct scheduler *scheduler)
{
    return scheduler->opened < SCHEDULER_WINDOWS ||
           scheduler->step_window[scheduler->opened % SCHEDULER_WINDOWS].left == 0;
}
/** Opens the next step window with these phases of it. scheduler_may_open must be true. */
void scheduler_open(struct scheduler *scheduler, unsigned phases);
/** Leaves an opened step window no other phases than these. What was started goes on; a buffer
 * whose uses are cut short is not retained for the next step window. */
void scheduler_narrow(struct scheduler *scheduler, uint64_t step_window, unsigned phases);
/** The scheduler is idle: nothing is retained for the next step window; all buffers are free.
 * Cost: O(reservations), whatever the number of step windows opened. */
void scheduler_forget(struct scheduler *scheduler);
/** A free buffer of a pool is the next that it lends. */
void scheduler_lend_next(struct scheduler *scheduler, enum pool pool, uint32_t buffer);
/**
 * The buffer that holds what a reservation left in it for its heir, from its last user's end until
 * the heir's, or GRAPH_NONE.
 */
uint32_t scheduler_left_to_heir(const struct scheduler *scheduler, uint64_t step_window,
                                uint32_t reservation);
/** True where the node belongs to a phase of its step window that is run. */
static inline bool scheduler_is_run(const struct scheduler *scheduler, struct scheduled at)
{
    const struct scheduler_window *step_window =
        &scheduler->step_window[at.step_window % SCHEDULER_WINDOWS];
    return (scheduler->phases[at.node] & step_window->phases) != 0;
}
/** True where all nodes of all opened step windows are done. Cost: O(1). */
bool scheduler_is_idle(const struct scheduler *scheduler);

/**
 * The lane's next node that has not been started; false where there is none before the next step
 * window is opened.
 */
bool scheduler_next(struct scheduler *scheduler, enum lane lane, struct scheduled *at);
/** True where the lane's next node, that was found not to be ready, is not ready yet: it still
 * waits for what it waited for. To be asked only where no step window was opened since. */
static inline bool scheduler_is_held(const struct scheduler *scheduler, enum lane lane)
{
    const struct scheduler_met *met = &scheduler->met[lane];
    if (met->awaited)
        return *met->awaited != STATE_DONE;
    return met->lacks && met->turns == scheduler->turns[met->pool];
}
/** True where the dependencies of a lane's next node are done and its buffers can be had. */
bool scheduler_ready(struct scheduler *scheduler, struct scheduled at);
/**
 * It tells what a lane's next node waits for: an earlier node that is not done, a dependency or the
 * user of a buffer. False where it waits for nothing. Cost: O(buffers).
 */
bool scheduler_waits_for(struct scheduler *scheduler, struct scheduled at, struct scheduled *on);
/** Starts the lane's next node, which is ready: borrows its buffers. */
void scheduler_start(struct scheduler *scheduler, struct scheduled at);
/** The fate of a lane's next node: there is none before the next step window is opened, it is
 * not ready, or it was started. */
enum scheduler_turn { TURN_NONE = 0, TURN_HELD, TURN_STARTED };
/** Starts the lane's next node where it is ready, all at once: simulations do little else. */
enum scheduler_turn scheduler_start_next(struct scheduler *scheduler, enum lane lane,
                                         struct scheduled *at);
/** The node is done: its buffers are free where it was their last user. */
void scheduler_done(struct scheduler *scheduler, struct scheduled at);

/** Buffer of the i-th reservation of a node that was started; GRAPH_NONE where it has no such
 * reservation. */
uint32_t scheduler_buffer(const struct scheduler *scheduler, struct scheduled at, unsigned i);
/** The buffer that a unit's use has in a pool: see scheduler_buffer. */
uint32_t scheduler_pool_buffer(const struct scheduler *scheduler, struct scheduled at,
                               enum pool pool);
/**
 * True where the node that was started found its reservation filled by the step window before, so
 * that a read of weights has nothing to do.
 */
bool scheduler_was_retained(const struct scheduler *scheduler, struct scheduled at);

#endif
