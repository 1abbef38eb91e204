/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SIMULATE_H
#define HOISTWAY_ENGINE_PLAN_SIMULATE_H
/*
 * Runs a step graph in virtual time, on the scheduler that the executor uses. Pure: the same graph
 * and rates give the same seconds, to the bit.
 *
 * A lane serves the nodes it has started one after another. Work is fluid: each lane has a speed,
 * which changes whenever a lane begins or ends something:
 *   drives    while both directions move, each runs at mixed / (read + write) of its own rate;
 *             where cores that serve them compute or update, at mixed_busy / mixed of that
 *   cores     where computation and update share them and both run, each has half its speed
 *   memory    where all that passes through DRAM is more than it can carry, all of it slows down
 *             in proportion
 */
#include "plan/graph/graph.h"

/**
 * This is what is between ranks: bytes/s of what comes from ranks of the same node, gathered or
 * exchanged, and of what comes from other nodes; the parts of a gather's and an exchange's bytes, 0
 * to 1, that do; seconds of an operation beside its bytes. A rank has one after the other.
 */
struct sim_net {
    double gather, exchange, between;
    double gather_crossing, exchange_crossing;
    double operation_s;
    /* seconds of its messages beside those, whatever they have in them: of a gather, of one among
       the ranks of a node, of an exchange */
    double gather_messages_s, near_messages_s, exchange_messages_s;
    /* of the bytes of gathers and of exchanges, the part that does not travel because others are
       sent in their place: in a node, between nodes */
    double gather_saved, gather_saved_between;
    double exchange_saved, exchange_saved_between;
};

/** A machine. A rate of 0 limits nothing. Bytes/s, FLOPs/s and elements/s, each of a lane alone. */
struct sim_rates {
    double read, write;
    double mixed; /* sum of both directions while both move; 0: read + write */
    double mixed_busy; /* the same while the cores compute; 0: as fast */
    double h2d, d2h;
    struct sim_net net;
    double flops_per_s;
    /* [unit_count], each may be null: a visit of a unit in seconds, where it was measured */
    const double *forward_s, *recompute_s, *backward_s;
    double update, norm;  /* of all cores that do them */
    double device_update; /* by the device, of what its memory holds */
    double dram;          /* all that reads or writes host memory, together */
    bool shared_cores;    /* COMPUTE and UPDATE run on the same ones */
};

/** One node that was served from start_s to end_s. */
typedef void sim_node_fn(void *context, uint64_t step_window, uint32_t node, double start_s,
                         double end_s);

struct sim_in {
    const struct graph *graph;
    struct sim_rates rates;
    unsigned phases;    /* of each step window beside those of training */
    uint32_t step_windows;  /* whole ones, after a first without an update and before a last; 0:
                               6 */
    /* Once it is certain that a steady step takes this long or longer, nothing more is simulated,
       and step_s is infinite; 0: all of it is */
    double limit_s;
    /* step_s is told alone, and nothing more is simulated once a step has ended as the one before
       it did: all others would */
    bool brief;
    sim_node_fn *node; /* called at each node's end; may be null */
    void *context;
};

struct sim {
    double step_s;              /* of a step in the steady state: the mean of the later half */
    double first_s;             /* the first step, which has no update behind it */
    double drain_s;             /* from the end of the last step until nothing is left to do */
    double busy_s[LANE_COUNT];  /* of a steady step */
    double stall_s[LANE_COUNT]; /* of a steady step: the computation waited for that lane */
    uint32_t peak[POOL_COUNT];  /* buffers lent at once */
    enum lane bound_by;         /* the lane that was busy longest */
};

/** Seconds of a node that has the machine to itself. */
double sim_node_seconds(const struct sim_rates *rates, const struct node *node);

/** The speed of both directions of the drives while both move, of each one's own; 0 to 1. */
double sim_mixed_speed(const struct sim_rates *rates);
/** The speed of the drives while the cores compute, of that while they do not; 0 to 1. */
double sim_busy_speed(const struct sim_rates *rates);

/**
 * Errors: -ENOMEM; -EDEADLK a graph that graph_build did not make.
 * Cost: O(nodes · step windows), nothing is allocated per node.
 */
int simulate(const struct sim_in *in, struct sim *sim);

#endif
