/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_GRAPH_BUILD_H
#define HOISTWAY_ENGINE_PLAN_GRAPH_BUILD_H
/*
 * The builder of the step graph works with this: the graph under construction, and where each unit
 * stands in it. graph_build.c appends and links nodes, graph_parts.c makes the parts of a visit of
 * them and graph_updates.c those of an update, operands.c and operands_weights.c say what they
 * move, graph_visits.c lists the visits of the backward, graph_kept.c decides what is kept and
 * graph_ahead.c how far ahead things are brought, graph.c puts the phases in order.
 */
#include "plan/graph/graph.h"

/* A unit while its visits are built; GRAPH_NONE where there is none. */
struct build_unit {
    /* nodes: of the visit at hand, or the last one */
    uint32_t first_read, last_read; /* pieces of its weights are among the nodes between them */
    uint32_t gather, copy, forward, backward, norm, write_grads;
    uint32_t gathered_far; /* its row was gathered for the forward, and is kept by the node */
    uint32_t gathered;    /* its row at home is whole again, for the next step window */
    uint32_t grads_there; /* after it the host has its rounded gradients */
    uint32_t acts_moved;  /* what moved its checkpoints last */
    uint32_t update[4];   /* nodes [0, 1) hold its late update and a redo, [2, 3) its early one */
    uint32_t write[2];    /* nodes [0, 1) write what its late update left: see write_last */
    uint32_t save[2];     /* nodes [0, 1) save what is at home in memory */
    /* reservations of the visit at hand */
    uint32_t weights, device_weights, acts, device_acts, grads, device_grads;
    uint32_t first_weights, last_weights; /* reservations of the step window's first and last
                                             visit */
    uint32_t retained_grads;              /* of its late update, where gradients stay for it */
    /* decided beforehand */
    uint32_t place[2];             /* in the forward, in the backward */
    uint32_t late_first, late_end; /* tiles of it whose update is left to the next step's forward */
    /* from its forward to its first visit in the backward */
    bool retain_weights, retain_device_weights, retain_acts;
    bool retain_grads; /* from its backward to the update under the next forward */
    bool write_last;   /* updated weights, when all that the forward reads has been read */
    bool regathers;    /* its row is whole again before the step ends: see parts_regather */
    /* from its recompute to its backward */
    bool recomputes, hold_weights, hold_device_weights;
};

/* A visit in the backward. */
struct build_visit {
    uint32_t unit;
    bool recompute;
};

/* Weights that are being read, in pieces between other nodes. */
struct build_reading {
    uint32_t unit;
    unsigned phases;
    uint32_t pieces, done;
};

struct edge {
    uint32_t node, dep;
};

struct build {
    const struct graph_in *in;
    struct graph *graph;
    struct build_unit *units;
    struct build_visit *visits; /* of the backward */
    uint32_t visit_count;
    uint32_t backward_count; /* units that have a backward: the first ones of its order */
    struct build_reading reading;
    uint32_t ahead_most; /* how far a stage may come before its unit's visit */
    uint32_t updated, regathered; /* so many of the backward's units: see parts_regather */
    bool reservations;   /* weights of any unit pass through host memory */
    bool spills;         /* checkpoints of any unit go to a drive */
    struct edge *edges;
    uint32_t edge_count, edge_room;
    uint32_t last_read;            /* of weights, in the forward */
    uint32_t clip, commit, revert; /* GRAPH_NONE: there is none */
    uint32_t committed; /* node after which the version is made: the commit, or its vote */
    int rc;                        /* the first error; after it nothing is added */
};

/* ---- graph_build.c ---- */

/** Errors: -ENOMEM. */
int build_open(struct build *build);
/** Links what is left, sorts, and frees all but the graph; frees that too on an error. */
int build_close(struct build *build);

/** A node of that kind; the rest is taken from `node`, but work where operands are its work.
 * Returns its number. */
uint32_t build_node(struct build *build, enum node_kind kind, enum lane lane, unsigned phases,
                    struct node node);
/** An operand of the last node. Those of the drives' and the copies' lanes are its work. */
void build_operand(struct build *build, struct operand operand);
uint32_t build_reservation(struct build *build, enum pool pool);
/** The node borrows the reservation's buffer; a reservation of GRAPH_NONE is none. */
void build_use(struct build *build, uint32_t node, uint32_t reservation);
/** The node waits for `dep`, of this step window; GRAPH_NONE is none. */
void build_dep(struct build *build, uint32_t node, uint32_t dep);

/* ---- operands.c, operands_weights.c: those of the last node, by the homes of its unit ---- */

/** All weights on drives that the unit's computation reads: its own and of others. */
struct operands_offloaded {
    uint32_t extents;
    uint64_t bytes;
};
struct operands_offloaded operands_offloaded(const struct build *build, uint32_t unit);
/** The node moves the piece `piece` of `pieces` of these. */
void operands_read_weights(struct build *build, uint32_t unit, uint32_t piece, uint32_t pieces);
void operands_copy_weights(struct build *build, uint32_t unit);
/** The node puts together rows of all weights that the unit's computation reads. */
void operands_gather(struct build *build, uint32_t unit);
/** The same, of what the ranks of the node have kept of them. */
void operands_gather_near(struct build *build, uint32_t unit);
/** It hands out a unit's rounded gradients and takes in the sum of its shard. */
void operands_exchange(struct build *build, uint32_t unit);
/** The sums of all shards come together at home. */
void operands_gather_grads(struct build *build, uint32_t unit);
/** A visit has these where it computes: weights it reads, own and then others'; checkpoints; in a
 * backward gradients, and partials that a device leaves behind them. */
void operands_visit(struct build *build, uint32_t unit, bool weights, bool grads);
/** Gradients of a unit, rounded: to drives or from there; from the device with their partials. */
void operands_write_grads(struct build *build, uint32_t unit);
void operands_read_grads(struct build *build, uint32_t unit);
void operands_copy_grads(struct build *build, uint32_t unit);
/** These operands are a norm's: gradients where the host works on them, and its partials. */
void operands_norm(struct build *build, uint32_t unit);
void operands_acts(struct build *build, uint32_t unit, enum node_kind kind);

/** A node has these parts (weights, states, gradients) of some tiles of a unit. */
struct operands_tiles {
    uint32_t unit, first, count; /* `first`: counted in the unit */
    bool weights, states, grads;
};
/** The parts that are in a slot or on drives are read, or written. */
void operands_read_tile(struct build *build, struct operands_tiles tiles);
void operands_write_tile(struct build *build, struct operands_tiles tiles);
/** All of the tiles; those parts that are said are in a slot: see operands_read_tile. */
void operands_update(struct build *build, struct operands_tiles slot);
/** These are streamed tiles': all to the device, there, or weights and states back. */
void operands_streamed(struct build *build, uint32_t unit, uint32_t tile, enum node_kind kind);
/** This is what a version has of tiles in memory: to a slot where the device has them; to the
 * store. */
void operands_copy_tile(struct build *build, struct operands_tiles tiles);
void operands_save(struct build *build, struct operands_tiles tiles);

/* ---- graph_kept.c ---- */

/** A backward reads the host's weights: for an update alone where the device has retained its
 * copy. */
bool kept_reads_backward(const struct build *build, struct build_visit visit);
/** The same, but of several ranks it is so of this one, which may have no tile that is
 * updated then. */
bool kept_reads_here(const struct build *build, struct build_visit visit);
/** The visit's node has kept all of it: the rank's shard comes together with the others', and is
 * not read. Beside integers it is, and where devices are joined: an update, this one or the next
 * step's, wants the exact weights in the host's buffer. */
bool kept_is_near(const struct build *build, struct build_visit visit);
/** Decides which buffers keep what they hold from the forward to the backward, and which weights
 * are written when all others have been read. */
void kept_choose(struct build *build);
/** From one step window to the next: gradients that are kept; and weights in host memory: what a
 * backward reads last the next forward and update begin with. What a unit reads of others has
 * changed meanwhile: it comes anew. All reservations are there. */
void kept_hand_over(struct build *build);

/* ---- graph_ahead.c ---- */

/** Units in a row that find a buffer for their weights each, in POOL_WEIGHTS or
 * POOL_DEVICE_WEIGHTS and the pools of other sizes: wherever in a sweep the first of them is. */
uint32_t ahead_depth(const struct build *build, enum pool pool);
/** Visits between that of a copy to the device, or of a gather, and the one it is for. */
uint32_t ahead_copies(const struct build *build);
/** The same of gathers of the backward that are copied on, so many visits ahead. */
uint32_t ahead_gathers(const struct build *build, uint32_t copy);
/** No stage may come further ahead. */
uint32_t ahead_most(const struct build *build);

/* ---- graph_visits.c ---- */

/** Lists the visits of the backward. Errors: -EINVAL, see graph_build. */
int visits_list(struct build *build);
/** Units in the segment that begins the backward at this place in its order: 1 where there is none.
 * They are those whose checkpoint is recomputed, and the one, last here, that keeps it for them. */
uint32_t visits_segment(const struct build *build, uint32_t place);
/** Decides which weights stay in their buffers from a unit's recompute to its backward. */
void visits_choose_held(struct build *build);

/* ---- graph_parts.c: what a visit is made of; each adds what the unit's homes ask for ---- */

/** Its weights, gradients and states are in the device's memory. */
static inline bool parts_is_resident(const struct build *build, uint32_t unit)
{
    return build->in->units[unit].weights == HST_TIER_HBM;
}
/** Its weights come to a buffer in the device's memory: from elsewhere, or from all ranks. */
static inline bool parts_copy_weights(const struct build *build, uint32_t unit)
{
    const struct graph_unit *u = &build->in->units[unit];
    const bool joins = build->in->device_rows && (u->row_elements > 0 || u->alias_count > 0);
    return build->in->apart && (joins || !parts_is_resident(build, unit));
}
/** Weights that pass through host memory; checkpoints that move. */
bool parts_reserve_weights(const struct build *build, uint32_t unit);
/** There are others to exchange gradients with. */
static inline bool parts_has_ranks(const struct build *build)
{
    return build->in->ranks > 1;
}
/** Weights, states and tiles are of several ranks. */
static inline bool parts_is_shared(const struct build *build)
{
    return parts_has_ranks(build) && !build->in->replicas;
}
/** Weights are gathered: they come from several ranks, or are quantised on their way. */
static inline bool parts_gathers(const struct build *build)
{
    return parts_is_shared(build) || build->in->quantised;
}
/** They come together at home, not in a buffer. */
static inline bool parts_is_whole(const struct build *build)
{
    return build->in->whole_weights;
}
/** Or in the device's memory. */
static inline bool parts_is_joined(const struct build *build)
{
    return build->in->device_rows;
}
/** And some are whole again before the step ends, where no update of it waits for the norm or for
 * the next forward: see parts_regather. An optimistic update's are so in the second slot. */
static inline bool parts_regathers(const struct build *build)
{
    const struct graph_in *in = build->in;
    return parts_is_whole(build) && !in->deferred && in->late_share == 0;
}
/** It has parameters of its own, on whichever rank. */
static inline bool parts_has_row(const struct build *build, uint32_t unit)
{
    const struct graph_unit *u = &build->in->units[unit];
    return parts_is_shared(build) ? u->row_elements > 0 : u->tile_count > 0;
}
/** They are trained: it has gradients and states. */
static inline bool parts_has_grads(const struct build *build, uint32_t unit)
{
    return parts_has_row(build, unit) && !build->in->units[unit].frozen;
}
/** They are rounded in a buffer of the device's: to leave it, or to be exchanged. */
static inline bool parts_lends_device_grads(const struct build *build, uint32_t unit)
{
    const struct graph_in *in = build->in;
    return in->apart && (in->device_sums || in->units[unit].grads != HST_TIER_HBM) &&
           parts_has_grads(build, unit);
}
/** The device updates it with the sum that an exchange has left there. */
static inline bool parts_updates_from_buffer(const struct build *build, uint32_t unit)
{
    const struct graph_in *in = build->in;
    return in->device_sums && !in->replicas && !in->deferred && !in->optimistic &&
           parts_is_resident(build, unit);
}
/** Its gradients pass by a buffer of the host's: from a drive or to one, or as a row that ranks
 * exchange. */
static inline bool parts_passes_grads(const struct build *build, uint32_t unit)
{
    const struct graph_unit *u = &build->in->units[unit];
    const bool rows = parts_has_ranks(build) && !build->in->buckets && !build->in->device_sums;
    return (rows || u->grads == HST_TIER_NVME) && parts_has_grads(build, unit);
}
/** The host computes the unit's norm: where it computes all, and of a sum of ranks that comes to
 * it. */
static inline bool parts_norm_on_host(const struct build *build, uint32_t unit)
{
    return !build->in->apart || (parts_has_ranks(build) && !parts_is_resident(build, unit));
}
/** The pool of its weights or gradients. */
static inline enum pool parts_pool(const struct build *build, uint32_t unit, enum pool pool)
{
    return pool_for(build->in->buffers, pool, build->in->units[unit].size);
}
/** The client's computation in a visit of the backward reads the unit's weights. */
bool parts_uses_weights(const struct build *build, struct build_visit visit);
bool parts_move_acts(const struct build *build, uint32_t unit);
/** A buffer of that pool, or of the one of the unit's size. */
uint32_t parts_lend(struct build *build, uint32_t unit, enum pool pool);

/** The unit's weights are the next to be read: an update of another one reads them in pieces
 * between its tiles, and parts_read what is left. */
void parts_plan_read(struct build *build, uint32_t unit, unsigned phases);
void parts_read(struct build *build, uint32_t unit, unsigned phases);
/** The share done / whole of the pieces that are planned is read. */
void parts_read_share(struct build *build, uint64_t done, uint64_t whole);
/** The node waits for all pieces of the unit's weights that were read last. */
void parts_depend_on_read(struct build *build, uint32_t node, uint32_t unit);
/** Of several ranks: the unit's row comes together in a buffer. */
void parts_gather(struct build *build, uint32_t unit, unsigned phases);
void parts_copy(struct build *build, uint32_t unit, unsigned phases);
/** Rows that wait for others' exchanges; what is frozen has none, and counts all the same. */
#define PARTS_REGATHER_BEHIND 2u
/** After a backward: rows at home whose updates are behind them come together again, but for the
 * last few, which are gathered when all is exchanged, in the order in which the next forward reads
 * them. See choose_regathered for those that wait for that forward. */
void parts_regather(struct build *build);
void parts_regather_rest(struct build *build);
/** A visit is through with the unit's weights, in host memory or the device's. */
void parts_give_back(struct build *build, uint32_t unit);
void parts_give_back_device(struct build *build, uint32_t unit);
void parts_read_acts(struct build *build, uint32_t unit);
void parts_fetch_acts(struct build *build, uint32_t unit);
/** The phases of a step window that a unit's forward belongs to. */
unsigned parts_of_forward(const struct build *build, uint32_t unit);
/** The visit, and what it leaves: checkpoints, or gradients and the update that follows at once. */
void parts_forward(struct build *build, uint32_t unit);
void parts_recompute(struct build *build, uint32_t unit);
void parts_backward(struct build *build, uint32_t unit);

/* ---- graph_updates.c: a unit's update, and what of it goes to the store ---- */

/** Any tile is updated under the next forward; right after the backward. */
bool parts_is_late(const struct build *build, uint32_t unit);
bool parts_is_early(const struct build *build, uint32_t unit);
/** And of several ranks on this one. */
bool parts_has_early_tiles(const struct build *build, uint32_t unit);
/** Elements of `count` tiles of a unit from its `first` one on; the last may be short. */
double parts_tile_elements(const struct build *build, uint32_t unit, uint32_t first,
                           uint32_t count);
/** This is what the step before has left, and a redo; what of it is written last; what follows the
 * backward at once. */
void parts_late_update(struct build *build, uint32_t unit);
void parts_late_write(struct build *build, uint32_t unit);
void parts_early_update(struct build *build, uint32_t unit);
/** All that is at home in memory goes to the store. */
void parts_save(struct build *build, uint32_t unit);
/** All that such a node has updated is at home in memory, or in a buffer of the host's, when it
 * is done. */
static inline bool parts_is_updated_by(const struct build *build, const struct node *node)
{
    return node->kind == NODE_STORE_TILE ||
           (node->kind == NODE_UPDATE &&
            (node->lane != LANE_DEVICE_UPDATE || parts_is_resident(build, node->unit)));
}

#endif
