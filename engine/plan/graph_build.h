/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_GRAPH_BUILD_H
#define HOISTWAY_ENGINE_PLAN_GRAPH_BUILD_H
/* What the builder of the step graph works with: the graph under construction, and where each unit
 * stands in it. */
#include "plan/graph.h"

/* A unit while its visits are built; GRAPH_NONE where there is none. */
struct build_unit {
    /* nodes: of the visit at hand, or the last one */
    uint32_t read, copy, forward, backward, norm, write_grads;
    uint32_t acts_moved;               /* what moved its checkpoints last */
    uint32_t update;                   /* the last of its update */
    uint32_t first_update, end_update; /* nodes [first, end) are its update */
    /* leases of the visit at hand */
    uint32_t weights, device_weights, acts, device_acts, grads, device_grads;
    uint32_t first_weights, last_weights; /* leases of the period's first and last visit */
    bool updated;
    bool keep_weights, keep_device_weights, keep_acts; /* from its forward to its backward */
};

struct edge {
    uint32_t node, dep;
};

struct build {
    const struct graph_in *in;
    struct graph *graph;
    unsigned update_part;
    struct build_unit *units;
    struct edge *edges;
    uint32_t edge_count, edge_room;
    uint32_t clip;
    int rc; /* the first error; after it nothing is added */
};

/** Errors: -ENOMEM. */
int build_open(struct build *build);
/** Links what is left, sorts, and frees all but the graph; frees that too on an error. */
int build_close(struct build *build);

/** A node of that kind; the rest is taken from `node`. Returns its number. */
uint32_t build_node(struct build *build, enum node_kind kind, enum lane lane, unsigned parts,
                    struct node node);
uint32_t build_lease(struct build *build, enum pool pool);
/** The node borrows the lease's buffer; a lease of GRAPH_NONE is none. */
void build_use(struct build *build, uint32_t node, uint32_t lease);
/** The node waits for `dep`, of this period; GRAPH_NONE is none. */
void build_dep(struct build *build, uint32_t node, uint32_t dep);

#endif
