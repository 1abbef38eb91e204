/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_GRAPH_H
#define HOISTWAY_ENGINE_PLAN_GRAPH_H
/*
 * The step graph: every read, write, copy, computation and update of one training step, with the
 * lane it runs on, what it waits for and the buffers it borrows. The same graph is executed
 * (exec/lanes/loop.c) and simulated (simulate.c); scheduler.c is what both share: which node
 * may run now. Pure.
 *
 * A graph describes one step window, and training repeats it. A step window begins with the update
 * that the step before left behind, then comes its forward, then its backward; so the deferred
 * update and the forward that hides it are in one step window. Without clipping the update is phase
 * of the backward, but for a share of it that may be left to the next forward.
 *
 * An optimistic update is part of the backward too, though it should wait for the norm: it is made
 * into a second slot, as if the norm did not clip. Where it does, the next step window begins with
 * a REVERT, and with the same update again (PHASE_REDO) from the slot that was not touched.
 *
 * Nodes are numbered in program order: run one after another in that order, each finds its
 * dependencies done and a buffer free (graph_check shows it). Each lane starts its nodes in this
 * order, and each pool gives out its buffers in this order. That is why nothing can deadlock: the
 * least unfinished node never waits for a later one. How far a lane runs ahead is decided by
 * dependencies and buffers alone; there is no cache, no guess and no priority.
 */
#include "plan/graph/operand.h"

/** A node occupies one of these. Nodes of one lane start in order; lanes run side by side. What the
 * device does (COMPUTE, H2D, D2H) also ends in order; the others' nodes may end in any. */
enum lane {
    LANE_READ = 0, /* drives, from */
    LANE_WRITE,    /* drives, to */
    LANE_H2D,      /* host memory to the device's */
    LANE_D2H,
    LANE_NET,           /* collectives */
    LANE_COMPUTE,       /* the device */
    LANE_UPDATE,        /* the host's optimizer */
    LANE_DEVICE_UPDATE, /* the device's, of streamed tiles and ranks' sums, in its own stream */
    LANE_COUNT
};

enum node_kind {
    NODE_READ_WEIGHTS = 0, /* the unit's tiles on NVMe, into its reservation; aliases' too */
    NODE_READ_TILE,        /* one tile's state record, and its gradients where they are on NVMe */
    NODE_READ_GRADS,       /* a unit's, that mostly stayed in the buffer they came into */
    NODE_READ_ACTS,
    NODE_WRITE_TILE, /* what is on NVMe of tiles: records, weights */
    NODE_WRITE_GRADS,
    NODE_WRITE_ACTS,
    NODE_SAVE_TILES, /* what is at home in memory of tiles goes to the store, for a version of it */
    NODE_COMMIT,     /* the version: all that was written of it is; without a store, what stands */
    NODE_COPY_WEIGHTS, /* to the device */
    NODE_COPY_GRADS,   /* from the device */
    NODE_COPY_TILE,    /* from the device, which has it at home: for a version */
    NODE_FETCH_TILE,   /* to the device, with its gradients: to be updated there */
    NODE_STORE_TILE,   /* from the device: updated */
    NODE_STORE_ACTS,   /* from the device */
    NODE_FETCH_ACTS,   /* to the device */
    NODE_UPDATE,       /* tiles [tile, tile + tile_count) of one unit */
    NODE_NORM,         /* of a unit's rounded gradients */
    NODE_CLIP,         /* all norms are there: the factor */
    NODE_REVERT,       /* what the last step's update wrote to drives is forgotten */
    NODE_FORWARD,      /* the client's, of a unit */
    NODE_RECOMPUTE,    /* a forward again, in the backward: for checkpoints that were not kept */
    NODE_BACKWARD,
    NODE_GATHER,   /* of several ranks: a unit's weights, from the shards of all */
    NODE_EXCHANGE, /* rounded gradients of a unit, or of its bucket: each rank has the sum of its
                      shard then */
    NODE_GATHER_GRADS, /* of replicas: a unit's summed gradients, from the shards of all */
    NODE_AGREE,    /* on the step's norm and sums */
    NODE_VOTE,     /* the version is durable on all ranks */
    NODE_GATHER_NEAR, /* a unit's weights again, from what the ranks of the node have kept */
    NODE_KIND_COUNT
};

/** Buffers that are borrowed: as many as the plan made, each as large as its largest reservation.
 * The embedding and the head may be much larger than a layer, and every second unit smaller than
 * the others. Such units may have buffers of their own: pools of units are so many in a row, by
 * enum unit_size, the usual one first. */
enum pool {
    POOL_WEIGHTS = 0, /* a unit's weights in DRAM, from NVMe */
    POOL_WIDE_WEIGHTS,
    POOL_NARROW_WEIGHTS,
    POOL_GRADS, /* a unit's rounded gradients in DRAM, on their way to NVMe */
    POOL_WIDE_GRADS,
    POOL_NARROW_GRADS,
    POOL_TILES, /* a tile's record, with gradients where those are on NVMe */
    POOL_ACTS,  /* a unit's checkpoints in DRAM, on their way to and from NVMe */
    POOL_DEVICE_WEIGHTS,
    POOL_DEVICE_WIDE_WEIGHTS,
    POOL_DEVICE_NARROW_WEIGHTS,
    POOL_DEVICE_GRADS,
    POOL_DEVICE_WIDE_GRADS,
    POOL_DEVICE_NARROW_GRADS,
    POOL_DEVICE_ACTS,
    POOL_DEVICE_TILES, /* all of a tile whose home is host memory */
    POOL_COUNT
};

/** The pool of a unit's weights or gradients: that of its size, where it has any buffers. */
static inline enum pool pool_for(const uint32_t buffers[POOL_COUNT], enum pool pool,
                                 enum unit_size size)
{
    return buffers[pool + size] > 0 ? (enum pool)(pool + size) : pool;
}

/** True where a read has nothing to do if its buffer came from the step window before. */
static inline bool node_kind_is_retained(unsigned kind)
{
    return kind == NODE_READ_WEIGHTS || kind == NODE_READ_GRADS;
}

/** Phases of a step window, to which nodes belong. A step window is run without one by skipping
 * its nodes: the first step has no update behind it, a drain is an update alone. */
enum step_phase {
    PHASE_UPDATE = 1u << 0,
    PHASE_FORWARD = 1u << 1,
    PHASE_BACKWARD = 1u << 2,
    PHASE_EVAL = 1u << 3,
    PHASE_SAVE = 1u << 4,   /* memory goes to the store */
    PHASE_COMMIT = 1u << 5, /* the last step becomes a version, or what stands */
    /* After a step whose optimistic update was wrong: */
    PHASE_REVERT = 1u << 6,
    PHASE_REDO = 1u << 7, /* unless it has none */
    PHASE_WHOLE = 1u << 8, /* after a load rows at home come together, where backwards do it else */
};
#define PHASES_TRAIN ((unsigned)PHASE_UPDATE | PHASE_FORWARD | PHASE_BACKWARD)

#define GRAPH_NONE  UINT32_MAX
#define NODE_RESERVATIONS 3u
#define DEP_BEFORE  0x80000000u /* in a dependency: of the step window before */
#define ALIASES_MAX 7u
/** Tiles of one UPDATE: enough for all workers. */
#define UPDATE_TILES_MOST 64u

struct node {
    uint8_t kind, lane;
    uint16_t phases; /* any of them makes it run */
    uint8_t operand_count;
    uint32_t unit;
    /* of READ_TILE, UPDATE, WRITE_TILE, WRITE_GRADS; of READ_WEIGHTS: piece `tile` of so many, each
       the same share of the unit's extents */
    uint32_t tile, tile_count;
    uint32_t first_dep, dep_count;
    uint32_t reservation[NODE_RESERVATIONS]; /* GRAPH_NONE where fewer */
    uint32_t first_operand;                  /* in graph.operands */
    /* bytes on the lane, which are those of its operands; FLOPs of COMPUTE; elements of UPDATE */
    double work;
    double dram_bytes;           /* that pass through host memory meanwhile */
};

/** A holder of one buffer: from its first user on, until all users are done. */
struct graph_reservation {
    uint8_t pool;
    uint32_t users; /* nodes */
    uint32_t first_user, last_user;
    uint32_t heir;   /* reservation of the next step window that goes on with the buffer, or
                        GRAPH_NONE */
    uint32_t legacy; /* the reservation of the step window before that it takes over from, or
                        GRAPH_NONE */
};

struct graph {
    struct node *nodes; /* [node_count], in program order */
    uint32_t node_count, node_room;
    uint32_t *deps; /* node numbers, | DEP_BEFORE */
    uint32_t dep_count, dep_room;
    struct operand *operands; /* in the order of their nodes */
    uint32_t operand_count, operand_room;
    struct graph_reservation *reservations; /* numbered by first user */
    uint32_t reservation_count, reservation_room;
    uint32_t *lane[LANE_COUNT]; /* the nodes of a lane, in order */
    uint32_t lane_count[LANE_COUNT];
    uint32_t *pool[POOL_COUNT]; /* the reservations of a pool, in order */
    uint32_t pool_count[POOL_COUNT];
    uint32_t buffers[POOL_COUNT];
    uint32_t unit_count;
    uint32_t step_end; /* the clip: nodes behind it are begun with the step that follows */
};

/* ---- what it is built from ------------------------------------------------------------------- */

struct graph_unit {
    uint32_t first_tile, tile_count;
    uint64_t elements; /* of the rank's shard */
    /* Of several ranks: elements of the row that is put together of all shards, which may be longer
       than the unit's parameters are, and where in it the rank's is. Of replicas that of gradients
       alone. */
    uint64_t row_elements, shard_at;
    uint64_t last_record_pad; /* bytes: padding of its last tile's record, as record_pad */
    uint32_t bucket; /* where there are buckets: the one that its gradients are exchanged in */
    enum hst_tier weights, grads, acts; /* homes */
    uint32_t nvme_states;               /* its first tiles, so many, have their states on NVMe */
    /* Its last tiles, so many, the device updates: weights, gradients and states of these are at
       home in DRAM, and pass by it. */
    uint32_t streamed_tiles;
    uint32_t alias_of[ALIASES_MAX];   /* units whose tiles it reads as well */
    uint32_t alias_tile[ALIASES_MAX]; /* the first of them, counted in that unit */
    uint64_t alias_bytes[ALIASES_MAX];
    uint32_t alias_count;
    uint64_t act_bytes;                   /* checkpoints of a step */
    uint32_t first_act_block;             /* on drives */
    double forward_flops, backward_flops; /* of a step */
    bool frozen; /* no gradients, no states, no update: its weights are read alone */
    bool rests;  /* and no backward, like all units before it */
    bool no_forward;                      /* in training: its backward computes the forward too */
    bool blind_backward;                  /* its backward reads no weights */
    enum unit_size size;                  /* see enum pool */
    /* Its checkpoint is not kept (act_bytes is 0): before its backward those before it in the
       forward are recomputed, from the nearest one on that is not recomputed. */
    bool recomputed;
};

struct graph_in {
    const struct graph_unit *units;
    uint32_t unit_count;
    /* All units in the order of the forward (those without one in training, too: an evaluation
       visits them) and of the backward, those that rest last. */
    const uint32_t *forward, *backward;
    uint32_t tile_elements;
    uint32_t ranks;     /* 0 as 1: nothing is gathered or exchanged */
    bool whole_weights; /* homes of weights have whole rows, gathered there once a step window */
    /* A rank computes with weights as they travel: they are gathered, and so come to lie in a
       buffer, on one rank too. */
    bool quantised;
    bool exact_beside; /* and the rank's exact weights behind them, where drives bring those */
    /* So many ranks of a node keep gathered rows from the forward to the backward; 0: none does. */
    uint32_t secondary;
    bool buckets;       /* those of gradients have, and a bucket is exchanged there at once */
    bool replicas;      /* each rank has all of all: it gathers the sums of gradients, no weights */
    /* On a device that ranks join: rows of weights come together in its memory, which its shard is
       copied to; rows of gradients are exchanged there, and the sum of the shard leaves it. */
    bool device_rows, device_sums;
    double hand_bytes;  /* per element of a row of gradients that a rank hands to the others */
    double weight_bytes, state_bytes, grad_bytes; /* per element */
    /* Bytes: padding of a tile's record; in a tile's buffer from its start to the record, in the
       device's to the gradients and to the record. */
    uint64_t record_pad, slot_record_at, device_tile_grads_at, device_tile_record_at;
    bool deferred;   /* the update waits for the norm of all gradients */
    bool optimistic; /* and not deferred: it should, but does not, and may have to be made again */
    /* It is, where the update does not wait, the share of all tiles whose update is left to the
       next forward, 0 to 1. With the forward's share of the computation drives and optimizer can
       work all the time. */
    double late_share;
    /* The device has memory of its own: weights, gradients and checkpoints whose home is not HBM
       are copied. What is at home there with its states the device updates. */
    bool apart;
    /* There is a store: weights (but those that follow from the states) and states become a version
       of it. */
    bool stored, derived_weights;
    /* To be simulated alone: what changes no step's seconds is left out: operands, a redo, and
       dependencies that follow from others, as the simulator's lanes end their nodes in
       order. */
    bool brief;
    uint32_t buffers[POOL_COUNT];
};

/**
 * Builds the graph. Three things are decided here, all as far as buffers go: how many units ahead
 * of a visit each step on its way comes, what stays in its buffer from one sweep to the next, and
 * which updated weights are written last.
 * Errors: -ENOMEM; -ENOSPC a pool that is needed has no buffer; -EINVAL a unit comes before one
 * whose weights it reads in the forward, or after it in the backward, or is recomputed and the
 * backward does not mirror the forward there, or has streamed tiles whose home is not DRAM.   Cost:
 * O(tiles).
 */
int graph_build(const struct graph_in *in, struct graph *graph);
/**
 * The visits of one unit alone, in program order, as its client may ask for them in an order of its
 * own: in PHASE_FORWARD and PHASE_EVAL the forward, in PHASE_BACKWARD the backward, each with all
 * that comes before and after it. Nothing is kept in a buffer from one to the other. Which tiles of
 * the unit are updated late is what graph_build says. Errors: as there.
 */
int graph_build_unit(const struct graph_in *in, uint32_t unit, struct graph *graph);
void graph_free(struct graph *graph);

/** The first operand of a node. */
static inline const struct operand *graph_operands(const struct graph *graph,
                                                   const struct node *node)
{
    return graph->operands + node->first_operand;
}

/**
 * Runs step windows in program order, one of them with a redo, one node at a time, and finds a node
 * that would wait for itself or a later one. Returns 0, or -EDEADLK with *node set; a built graph
 * passes.
 */
int graph_check(const struct graph *graph, uint32_t *node);

/** True where the client computes with the unit, but for evaluations. */
static inline bool node_is_visit(const struct node *node)
{
    return (node->phases & PHASES_TRAIN) &&
           (node->kind == NODE_FORWARD || node->kind == NODE_RECOMPUTE ||
            node->kind == NODE_BACKWARD);
}

/** True of an update, or of its read, that comes after the norm of all gradients. */
static inline bool node_is_late(const struct node *node)
{
    return (node->phases & ((unsigned)PHASE_UPDATE | PHASE_REDO)) != 0;
}

/** True where the node of the graph borrows a buffer of that pool. */
bool graph_lends(const struct graph *graph, const struct node *node, enum pool pool);

const char *lane_name(enum lane lane);
const char *node_kind_name(enum node_kind kind);

#endif
