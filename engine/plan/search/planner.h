/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_PLANNER_H
#define HOISTWAY_ENGINE_PLAN_PLANNER_H
/*
 * Searches placements for the one whose step is fastest on a machine's rates: each candidate is
 * laid out within the budgets, its graph built and simulated. Pure: values in, values out, the same
 * for the same input to the bit.
 */
#include "plan/graph/simulate.h"
#include "plan/placement/placement.h"

/** This is what is known of the machine. */
struct planner_machine {
    struct sim_rates rates; /* update and norm: the host's */
    uint32_t threads;       /* that update at rates.update */
    double half;            /* of that rate, what half of them reach, rounded up; 0: not known */
    bool streams;           /* a GPU may update what is offloaded: how fast all parts are is
                               known */
    uint32_t tiles;         /* of a graph, at most; 0: PLANNER_TILES */
};

struct planner_in {
    const struct placement_in *placement;
    struct planner_machine machine;
    bool optimistic; /* of the graph: see step_graph */
    unsigned phases; /* of each step window beside those of training */
    unsigned phases_on_drives; /* and these where weights or states are on drives */
};

struct planned {
    double usual_step_s, step_s; /* of the placement that was given, and of the one chosen */
    bool better;                 /* another one was chosen */
    uint32_t simulated;          /* candidates */
    char what[224];              /* how: "what leaves memory: grads, then acts" */
};

/** The largest share of an update that need not wait that is tried for the next forward. A forward
 * is a quarter of the computation; where drives are what a step waits for, and computation is short
 * beside them, half of the update and a bit more can be best. */
#define LATE_EIGHTHS_MOST 6u

/** A gain below this is none: neither simulation nor rates are that exact. Fewer threads for the
 * update cost nothing, so that less will do. */
#define PLANNER_GAIN_LEAST         0.01
#define PLANNER_THREADS_GAIN_LEAST 0.001

/**
 * Replaces *placement, that placement_plan found, where another one is faster by more than
 * PLANNER_GAIN_LEAST. Of those as fast the one with fewest changes from the usual way stays. Tried
 * are all orders in which classes leave memory, on a GPU also with all checkpoints out of its
 * memory and with checkpoints there before units; then parts of the first class, shallower buffer
 * pools, fewer resident units, units that keep their activations before others take that room,
 * checkpoints that are not kept, a share of DRAM that a GPU updates: each from the best so far, and
 * then activations once more. Where an update does not wait for the norm, the share of it that is
 * left to the next forward is chosen first and last, for the homes that were given too. Beside a
 * device with memory of its own the number of threads that update is chosen at the end.
 *
 * Errors, the homes in *placement being untouched: -ENOMEM.
 * Cost: at most some 130 candidates, each laid out some hundred times in O(units) and simulated on
 * a graph of at most planner_machine.tiles.
 */
int planner_improve(const struct planner_in *in, struct placement *placement,
                    struct planned *planned);
#define PLANNER_TILES 2048u

/**
 * Seconds below which no homes bring a step: computation with all activations kept that can be,
 * and the update where it shares its cores. Pure.
 */
double planner_least_s(const struct planner_in *in);
/** True where no other homes can be faster by more than PLANNER_GAIN_LEAST. */
bool planner_is_least(const struct planner_in *in, double step_s);

/**
 * The share of an update's rate that so many threads of all reach, 0 standing for all: on the line
 * between what half of them (rounded up) were measured to reach and what all do. half: see struct
 * planner_machine; 0: as if each did the same share, which is less than it does where memory holds
 * threads back. A measured half that is less than its number, or more than all, is noise: it is
 * taken for its number, or for all.
 */
double planner_update_share(uint32_t update_threads, uint32_t threads, double half);

/** The fewest threads that are tried for an update, in eighths of all, rounded up. */
#define UPDATE_EIGHTHS_LEAST 4u

/** Seconds of a step by when its update is made, on the same homes. */
struct update_steps {
    double deferred_s, optimistic_s;
};

/**
 * Both of them; and how many threads best update, and how much of an optimistic update is best left
 * to the next forward (placement->late_eighths). known: what planner_improve has just told of the
 * same input and placement, which is not looked for again; null: nothing. Errors: -ENOMEM.
 */
int planner_update(const struct planner_in *in, struct placement *placement,
                   const struct planned *known, struct update_steps *steps);

/** Both of them, as threads and the share that is left are chosen. Errors: -ENOMEM. */
int planner_time(const struct planner_in *in, const struct placement *placement,
                 struct update_steps *steps);

/** It tells whether an optimistic update is faster, by more than PLANNER_GAIN_LEAST. */
bool planner_is_optimistic(const struct update_steps *steps);
/** It is of a step without a clip, with the update that is then taken. */
double planner_unclipped_s(const struct update_steps *steps);

#endif
