/* SPDX-License-Identifier: Apache-2.0 */
/* Appends nodes, reservations and edges to a graph, and puts them in order at the end. */
#include "plan/graph/graph_build.h"

#include "plan/graph/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ---- appending ---- */

static bool make_room(struct build *b, void **array, uint32_t count, uint32_t *room, size_t size)
{
    if (b->rc || count < *room)
        return b->rc == 0;
    uint64_t more = (uint64_t)*room * 2 > 256 ? (uint64_t)*room * 2 : 256;
    void *grown = more < DEP_BEFORE ? realloc(*array, more * size) : NULL;
    if (!grown) {
        b->rc = -ENOMEM;
        return false;
    }
    *array = grown;
    *room = (uint32_t)more;
    return true;
}

/* The nodes' work is what they move, and it passes through host memory. */
static bool moves(enum lane lane)
{
    return lane <= LANE_NET;
}

uint32_t build_node(struct build *b, enum node_kind kind, enum lane lane, unsigned phases,
                    struct node node)
{
    struct graph *g = b->graph;
    if (!make_room(b, (void **)&g->nodes, g->node_count, &g->node_room, sizeof *g->nodes))
        return GRAPH_NONE;
    node.kind = (uint8_t)kind;
    node.lane = (uint8_t)lane;
    node.phases = (uint16_t)phases;
    node.operand_count = 0;
    node.first_operand = g->operand_count;
    if (moves(lane))
        node.work = node.dram_bytes = 0;
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        node.reservation[i] = GRAPH_NONE;
    g->nodes[g->node_count] = node;
    g->lane_count[lane]++;
    return g->node_count++;
}

/* A graph that is simulated alone needs no more than what operands sum up to. */
static bool keep_operand(struct build *b, const struct operand *operand)
{
    struct graph *g = b->graph;
    if (b->in->brief)
        return b->rc == 0;
    if (!make_room(b, (void **)&g->operands, g->operand_count, &g->operand_room,
                   sizeof *g->operands))
        return false;
    g->operands[g->operand_count++] = *operand;
    return true;
}

void build_operand(struct build *b, struct operand operand)
{
    struct graph *g = b->graph;
    if (!keep_operand(b, &operand))
        return;
    struct node *node = &g->nodes[g->node_count - 1];
    assert(node->operand_count < OPERANDS_MOST);
    node->operand_count++;
    if (!moves((enum lane)node->lane))
        return;
    const bool stays = operand.from.space == SPACE_DEVICE && operand.to.space == SPACE_DEVICE;
    if ((stays && node->lane != LANE_NET) || node->kind == NODE_NORM) /* partials are few */
        return;
    node->work += (double)operand.bytes;
    if (!stays) /* ranks' does */
        node->dram_bytes += (double)operand.bytes;
}

uint32_t build_reservation(struct build *b, enum pool pool)
{
    struct graph *g = b->graph;
    if (!make_room(b, (void **)&g->reservations, g->reservation_count, &g->reservation_room,
                   sizeof *g->reservations))
        return GRAPH_NONE;
    g->reservations[g->reservation_count] =
        (struct graph_reservation){.pool = (uint8_t)pool, .heir = GRAPH_NONE, .legacy = GRAPH_NONE};
    g->pool_count[pool]++;
    return g->reservation_count++;
}

void build_use(struct build *b, uint32_t node, uint32_t reservation)
{
    if (b->rc || reservation == GRAPH_NONE)
        return;
    struct node *n = &b->graph->nodes[node];
    unsigned i = 0;
    while (i < NODE_RESERVATIONS && n->reservation[i] != GRAPH_NONE)
        i++;
    assert(i < NODE_RESERVATIONS);
    n->reservation[i] = reservation;
    struct graph_reservation *l = &b->graph->reservations[reservation];
    if (l->users++ == 0)
        l->first_user = node;
    l->last_user = node;
}

/* In the simulator a lane ends its nodes in order: of those run together the last is enough. */
static bool replaces_edge(const struct build *b, uint32_t node, uint32_t dep)
{
    if (!b->in->brief || b->edge_count == 0)
        return false;
    const struct edge *last = &b->edges[b->edge_count - 1];
    const struct node *was = &b->graph->nodes[last->dep % DEP_BEFORE];
    const struct node *is = &b->graph->nodes[dep % DEP_BEFORE];
    return last->node == node && last->dep / DEP_BEFORE == dep / DEP_BEFORE && last->dep < dep &&
           was->lane == is->lane && was->phases == is->phases;
}

static void add_edge(struct build *b, uint32_t node, uint32_t dep)
{
    if (replaces_edge(b, node, dep)) {
        b->edges[b->edge_count - 1].dep = dep;
        return;
    }
    if (!make_room(b, (void **)&b->edges, b->edge_count, &b->edge_room, sizeof *b->edges))
        return;
    b->edges[b->edge_count++] = (struct edge){node, dep};
    b->graph->nodes[node].dep_count++;
}

void build_dep(struct build *b, uint32_t node, uint32_t dep)
{
    if (b->rc || dep == GRAPH_NONE)
        return;
    assert(dep < node);
    add_edge(b, node, dep);
}

/* ---- linking: of this step window where it comes first, else of the step window before ---- */

static void link_to(struct build *b, uint32_t node, uint32_t dep)
{
    if (dep != GRAPH_NONE)
        add_edge(b, node, dep < node ? dep : dep | DEP_BEFORE);
}

/* To all nodes of that kind in the unit's update; NODE_UPDATE: that end one in memory. */
static void link_update(struct build *b, uint32_t node, uint32_t unit, enum node_kind kind)
{
    const uint32_t *update = b->units[unit].update;
    for (int step_phase = 0; step_phase < 4; step_phase += 2)
        for (uint32_t i = update[step_phase]; i < update[step_phase + 1]; i++)
            if (kind == NODE_UPDATE ? parts_is_updated_by(b, &b->graph->nodes[i])
                                    : b->graph->nodes[i].kind == kind)
                link_to(b, node, i);
    const uint32_t *write = b->units[unit].write;
    for (uint32_t i = write[0]; kind == NODE_WRITE_TILE && i < write[1]; i++)
        link_to(b, node, i);
}

/* A node that reads weights comes after the update that wrote them. */
static void link_reader(struct build *b, uint32_t node)
{
    const struct node *n = &b->graph->nodes[node];
    const struct graph_unit *u = &b->in->units[n->unit];
    bool from_drive = n->kind == NODE_READ_WEIGHTS;
    for (uint32_t i = 0; i <= u->alias_count; i++) {
        uint32_t unit = i == 0 ? n->unit : u->alias_of[i - 1];
        bool offloaded = b->in->units[unit].weights == HST_TIER_NVME;
        if (from_drive && offloaded)
            link_update(b, node, unit, NODE_WRITE_TILE);
        else if (!from_drive && (!offloaded || unit == n->unit))
            link_update(b, node, unit, NODE_UPDATE);
    }
}

/* What the step window before has read of a row at home is not written while it reads. */
static void link_readers_before(struct build *b, uint32_t node)
{
    const uint32_t unit = b->graph->nodes[node].unit;
    for (uint32_t i = 0; parts_is_whole(b) && i < b->in->unit_count; i++) {
        const struct graph_unit *u = &b->in->units[i];
        bool reads = i == unit;
        for (uint32_t a = 0; a < u->alias_count; a++)
            reads = reads || u->alias_of[a] == unit;
        if (!reads)
            continue;
        link_to(b, node, b->units[i].forward);
        link_to(b, node, b->units[i].backward);
    }
}

/* A row at home that the backward before has left whole is there when it is. An alias comes before
 * an owner that has no forward of its own. */
static void link_gathered(struct build *b, uint32_t node)
{
    const uint32_t unit = b->graph->nodes[node].unit;
    const struct graph_unit *u = &b->in->units[unit];
    link_to(b, node, b->units[unit].gathered);
    for (uint32_t i = 0; i < u->alias_count; i++)
        link_to(b, node, b->units[u->alias_of[i]].gathered);
}

/* The nodes that a step begins with wait until it is known whether the last one's update stands. */
static void link_verdict(struct build *b, uint32_t node)
{
    if (!b->in->optimistic)
        return;
    link_to(b, node, b->clip);
    link_to(b, node, b->revert);
}

/* Nothing of the update that is reverted is on its way to the drives, nor the version before it. */
static void link_revert(struct build *b, uint32_t node)
{
    link_to(b, node, b->clip);
    link_to(b, node, b->committed);
    for (uint32_t unit = 0; unit < b->in->unit_count; unit++)
        for (uint32_t i = b->units[unit].update[2]; i < b->units[unit].update[3]; i++)
            if (b->graph->nodes[i].kind == NODE_WRITE_TILE)
                link_to(b, node, i);
}

/* A unit's early update begins when a redo of it has been written: the first read and the first
 * update of its nodes, which the others follow. */
static void link_redo(struct build *b, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    bool met[NODE_KIND_COUNT] = {false};
    for (uint32_t i = s->update[2]; b->in->optimistic && i < s->update[3]; i++) {
        enum node_kind kind = (enum node_kind)b->graph->nodes[i].kind;
        if ((kind != NODE_READ_TILE && kind != NODE_UPDATE) || met[kind])
            continue;
        met[kind] = true;
        for (uint32_t w = s->update[0]; w < s->update[1]; w++)
            if (b->graph->nodes[w].kind == NODE_WRITE_TILE)
                link_to(b, i, w);
    }
}

/* A tile is read, updated, written: three nodes in a row. */
static void link_tile(struct build *b, uint32_t node)
{
    const struct graph *g = b->graph;
    const struct node *n = &g->nodes[node];
    if (node + 2 < g->node_count && g->nodes[node + 2].kind == NODE_WRITE_TILE &&
        g->nodes[node + 2].tile == n->tile)
        link_to(b, node, node + 2);
    if (n->phases != PHASE_BACKWARD)
        link_to(b, node, b->units[n->unit].write_grads);
    if (b->in->optimistic)
        link_to(b, node, b->revert);
}

/* A tile in memory is saved, or copied to be, when it has been updated, and updated again when it
 * has been saved. */
static void link_save(struct build *b, uint32_t node)
{
    const struct node *nodes = b->graph->nodes, *n = &nodes[node];
    const uint32_t *update = b->units[n->unit].update;
    for (int step_phase = 0; step_phase < 4; step_phase += 2)
        for (uint32_t i = update[step_phase]; i < update[step_phase + 1]; i++) {
            if (!parts_is_updated_by(b, &nodes[i]) || nodes[i].tile >= n->tile + n->tile_count ||
                n->tile >= nodes[i].tile + nodes[i].tile_count)
                continue;
            link_to(b, node, i);
            link_to(b, i, node);
        }
}

/* An update needs the norm of all gradients to be known, or its step to be over: in the host's lane
 * what is late comes behind the clip anyway. */
static bool waits_for_all(const struct build *b, const struct node *n)
{
    bool late = n->phases != PHASE_BACKWARD;
    return b->in->deferred || (late && (b->in->optimistic || n->lane == LANE_DEVICE_UPDATE));
}

static void link_all(struct build *b)
{
    for (uint32_t i = 0; i < b->graph->node_count && b->rc == 0; i++) {
        const struct node *n = &b->graph->nodes[i];
        switch ((enum node_kind)n->kind) {
        case NODE_READ_WEIGHTS: /* its other pieces begin after the first one */
            if (n->tile == 0) {
                link_reader(b, i);
                link_verdict(b, i);
            }
            break;
        case NODE_GATHER:
        case NODE_GATHER_NEAR:
            link_reader(b, i);
            link_verdict(b, i);
            link_readers_before(b, i);
            break;
        case NODE_COPY_WEIGHTS:
        case NODE_FORWARD:
        case NODE_RECOMPUTE:
        case NODE_BACKWARD:
            link_reader(b, i);
            link_verdict(b, i);
            link_gathered(b, i);
            break;
        case NODE_READ_TILE:
            link_tile(b, i);
            break;
        case NODE_WRITE_GRADS: /* an update that stands has read none of them */
            link_to(b, i, i);
            break;
        case NODE_COPY_TILE:
            link_save(b, i);
            break;
        case NODE_SAVE_TILES:
            if (!parts_is_resident(b, n->unit))
                link_save(b, i);
            link_verdict(b, i);
            link_to(b, i, i);            /* where a step window is cut short nothing else waits for
                                         it */
            link_to(b, i, b->committed); /* after a step that was skipped no update waits for it */
            break;
        case NODE_COMMIT: /* no forward need have waited for the verdict: there may be none */
            link_verdict(b, i);
            link_to(b, i, b->committed);
            break;
        case NODE_FETCH_TILE: /* behind a backward that came after the last update of the tile */
            link_to(b, i, b->units[n->unit].grads_there);
            break;
        case NODE_UPDATE:
            link_to(b, i, waits_for_all(b, n) ? b->clip : b->units[n->unit].norm);
            /* so three steps are lost at most: this one, the one before, and one whose version is
               on its way */
            link_to(b, i, b->committed);
            break;
        case NODE_REVERT:
            link_revert(b, i);
            break;
        default:
            break;
        }
    }
    for (uint32_t unit = 0; unit < b->in->unit_count && b->rc == 0; unit++)
        link_redo(b, unit);
}

/* ---- sorting ---- */

static int sort_edges(struct build *b)
{
    struct graph *g = b->graph;
    uint32_t next = 0;
    g->deps = calloc((size_t)b->edge_count + 1, sizeof *g->deps);
    if (!g->deps)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->node_count; i++) {
        g->nodes[i].first_dep = next;
        next += g->nodes[i].dep_count;
        g->nodes[i].dep_count = 0;
    }
    for (uint32_t i = 0; i < b->edge_count; i++) {
        struct node *node = &g->nodes[b->edges[i].node];
        g->deps[node->first_dep + node->dep_count++] = b->edges[i].dep;
    }
    g->dep_count = b->edge_count;
    return 0;
}

static int sort_lanes(struct graph *g)
{
    uint32_t at[LANE_COUNT] = {0};
    for (int l = 0; l < LANE_COUNT; l++)
        if (!(g->lane[l] = calloc((size_t)g->lane_count[l] + 1, sizeof(uint32_t))))
            return -ENOMEM;
    for (uint32_t i = 0; i < g->node_count; i++)
        g->lane[g->nodes[i].lane][at[g->nodes[i].lane]++] = i;
    return 0;
}

/* Reservations were made just before their first user, so their numbers are in its order. */
static int sort_pools(struct graph *g)
{
    uint32_t at[POOL_COUNT] = {0};
    for (int p = 0; p < POOL_COUNT; p++)
        if (!(g->pool[p] = calloc((size_t)g->pool_count[p] + 1, sizeof(uint32_t))))
            return -ENOMEM;
    for (uint32_t i = 0; i < g->reservation_count; i++)
        g->pool[g->reservations[i].pool][at[g->reservations[i].pool]++] = i;
    return 0;
}

int build_open(struct build *b)
{
    b->units = calloc((size_t)b->in->unit_count + 1, sizeof *b->units);
    b->visits = calloc(2 * (size_t)b->in->unit_count + 1, sizeof *b->visits);
    for (uint32_t i = 0; b->units && i < b->in->unit_count; i++)
        b->units[i] = (struct build_unit){.first_read = GRAPH_NONE,
                                          .gather = GRAPH_NONE,
                                          .gathered_far = GRAPH_NONE,
                                          .gathered = GRAPH_NONE,
                                          .copy = GRAPH_NONE,
                                          .forward = GRAPH_NONE,
                                          .backward = GRAPH_NONE,
                                          .norm = GRAPH_NONE,
                                          .write_grads = GRAPH_NONE,
                                          .grads_there = GRAPH_NONE,
                                          .acts_moved = GRAPH_NONE,
                                          .weights = GRAPH_NONE,
                                          .device_weights = GRAPH_NONE,
                                          .acts = GRAPH_NONE,
                                          .device_acts = GRAPH_NONE,
                                          .grads = GRAPH_NONE,
                                          .retained_grads = GRAPH_NONE,
                                          .device_grads = GRAPH_NONE,
                                          .first_weights = GRAPH_NONE,
                                          .last_weights = GRAPH_NONE};
    return b->units && b->visits ? 0 : -ENOMEM;
}

int build_close(struct build *b)
{
    link_all(b);
    if (b->rc == 0)
        b->rc = sort_edges(b);
    if (b->rc == 0)
        b->rc = sort_lanes(b->graph);
    if (b->rc == 0)
        b->rc = sort_pools(b->graph);
    free(b->edges);
    free(b->units);
    free(b->visits);
    if (b->rc)
        graph_free(b->graph);
    return b->rc;
}

void graph_free(struct graph *graph)
{
    for (int l = 0; l < LANE_COUNT; l++)
        free(graph->lane[l]);
    for (int p = 0; p < POOL_COUNT; p++)
        free(graph->pool[p]);
    free(graph->nodes);
    free(graph->deps);
    free(graph->operands);
    free(graph->reservations);
    *graph = (struct graph){0};
}

bool graph_lends(const struct graph *graph, const struct node *node, enum pool pool)
{
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        if (node->reservation[i] != GRAPH_NONE &&
            graph->reservations[node->reservation[i]].pool == pool)
            return true;
    return false;
}

/* ---- names, and the witness that nothing deadlocks ---- */

const char *lane_name(enum lane lane)
{
    static const char *const names[LANE_COUNT] = {"read", "write",   "h2d",    "d2h",
                                                  "net",  "compute", "update", "gpu update"};
    return (unsigned)lane < LANE_COUNT ? names[lane] : "?";
}

const char *node_kind_name(enum node_kind kind)
{
    static const char *const names[NODE_KIND_COUNT] = {
        "read weights", "read tile",    "read grads", "read acts",    "write tile", "write grads",
        "write acts",   "save tiles",   "commit",     "copy weights", "copy grads", "copy tile",
        "fetch tile",   "store tile",   "store acts", "fetch acts",   "update",     "norm",
        "clip",         "revert",       "forward",    "recompute",    "backward",   "gather",
        "exchange",     "gather grads", "agree",      "vote",         "gather near"};
    return (unsigned)kind < NODE_KIND_COUNT ? names[kind] : "?";
}

int graph_check(const struct graph *graph, uint32_t *node)
{
    struct scheduler scheduler;
    int rc = scheduler_init(&scheduler, graph);
    const unsigned phases[] = {
        PHASE_WHOLE,  PHASES_TRAIN & ~(unsigned)PHASE_UPDATE,   PHASES_TRAIN,
        PHASES_TRAIN, PHASES_TRAIN | PHASE_REVERT | PHASE_REDO, PHASES_TRAIN};
    for (uint64_t step_window = 0; step_window < sizeof phases / sizeof *phases && rc == 0;
         step_window++) {
        scheduler_open(&scheduler, phases[step_window]);
        for (uint32_t i = 0; i < graph->node_count && rc == 0; i++) {
            struct scheduled at = {step_window, i}, next;
            bool is_next = scheduler_next(&scheduler, (enum lane)graph->nodes[i].lane, &next) &&
                           next.step_window == step_window && next.node == i;
            if (!is_next)
                continue; /* of a phase that is not run */
            *node = i;
            rc = scheduler_ready(&scheduler, at) ? 0 : -EDEADLK;
            if (rc == 0) {
                scheduler_start(&scheduler, at);
                scheduler_done(&scheduler, at);
            }
        }
        rc = rc == 0 && !scheduler_is_idle(&scheduler) ? -EDEADLK : rc;
    }
    scheduler_free(&scheduler);
    return rc;
}
