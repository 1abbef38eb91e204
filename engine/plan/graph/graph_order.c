/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order follows from dependencies, and from pools by counting: of more reservations than there are
 * buffers one must have been given back. Which lane does what first is not looked at, but that a
 * lane ends its nodes in order, as the simulator's do. What follows from the step window before,
 * and from the one behind, is found by going through several of them.
 */
#include "plan/graph/graph_order.h"

#include <errno.h>
#include <stdlib.h>

#define PASSES 4 /* step windows until nothing new follows */
/* More than that, and the visits alone are anchors: a bound costs their number times the nodes'. */
#define ANCHORS_MOST 512

#define BACK_BUFFERS 4u /* see back_most */

/* It holds users of a reservation in one lane: those numbered below that are due for an anchor. */
struct hold {
    int32_t due;
    uint32_t below;
};

struct finder {
    const struct graph *graph;
    struct graph_order *order;
    int32_t *end;       /* [reservations] the last anchor that has ended when it is given back */
    int32_t *need;      /* [reservations] the first anchor that begins after it was lent */
    int32_t *asked;     /* [reservations] the need that `hold` last went by */
    uint32_t *place;    /* [reservations] in pool */
    uint32_t *last;     /* [reservations][lanes] its last user there, GRAPH_NONE: it has none */
    struct hold *holds; /* [reservations][lanes] */
    unsigned pool_lanes[POOL_COUNT]; /* those that have users of its reservations, a bit each */
    /* graph.pool, without reservations that a whole step has no use for */
    uint32_t *pool[POOL_COUNT], pool_count[POOL_COUNT];
    int32_t *ends[POOL_COUNT]; /* [buffers] the latest ends of reservations so far, falling */
    bool *held;                /* of the reservations before the one at hand, see back_most */
    bool *fixed;               /* [nodes] is an anchor */
    bool lowered;              /* a pass backward has found something new */
};

static void raise_to(int32_t *value, int32_t least)
{
    if (*value < least)
        *value = least;
}

static void lower_to(struct finder *f, int32_t *value, int32_t most)
{
    if (*value <= most)
        return;
    *value = most;
    f->lowered = true;
}

/* Anchors from a node to one that depends on it: a step window more where that is of the next
   one. */
static int32_t step_windows_of(const struct finder *f, uint32_t dep)
{
    return dep & DEP_BEFORE ? f->order->anchors : 0;
}

/* ---- when nodes can begin ---- */

static int32_t ended(const struct finder *f, uint32_t node)
{
    return f->order->anchor[node] >= 0 ? f->order->anchor[node] : f->order->after[node];
}

static void note_end(struct finder *f, const struct graph_reservation *reservation, int32_t end)
{
    int32_t *ends = f->ends[reservation->pool];
    uint32_t i = f->graph->buffers[reservation->pool];
    if (ends[i - 1] >= end)
        return;
    for (i--; i > 0 && ends[i - 1] < end; i--)
        ends[i] = ends[i - 1];
    ends[i] = end;
}

/* A reservation begins when the one it takes over from ends; or when, of as many earlier ones as
 * there are buffers, the first has ended. One with an heir gives nothing back; the heir does. */
static int32_t lent_after(struct finder *f, uint32_t number)
{
    const struct graph_reservation *reservation = &f->graph->reservations[number];
    int32_t after = reservation->legacy != GRAPH_NONE
                        ? f->end[reservation->legacy] - f->order->anchors
                        : f->ends[reservation->pool][f->graph->buffers[reservation->pool] - 1];
    if (reservation->heir == GRAPH_NONE)
        note_end(f, reservation, f->end[number]);
    return after;
}

static void pass_forward(struct finder *f)
{
    const struct graph *g = f->graph;
    int32_t *after = f->order->after;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const struct node *n = &g->nodes[i];
        if (!order_has(g, i))
            continue;
        for (uint32_t d = n->first_dep; d < n->first_dep + n->dep_count; d++) {
            uint32_t dep = g->deps[d] & ~DEP_BEFORE;
            if (order_has(g, dep))
                raise_to(&after[i], ended(f, dep) - step_windows_of(f, g->deps[d]));
        }
        for (unsigned l = 0; l < NODE_RESERVATIONS && n->reservation[l] != GRAPH_NONE; l++) {
            uint32_t first = g->reservations[n->reservation[l]].first_user;
            raise_to(&after[i], first == i ? lent_after(f, n->reservation[l]) : after[first]);
        }
        for (unsigned l = 0; l < NODE_RESERVATIONS && n->reservation[l] != GRAPH_NONE; l++)
            raise_to(&f->end[n->reservation[l]], ended(f, i));
    }
    for (int p = 0; p < POOL_COUNT; p++)
        for (uint32_t k = 0; k < g->buffers[p]; k++)
            f->ends[p][k] -= f->ends[p][k] > -ORDER_FAR ? f->order->anchors : 0;
}

/* ---- when nodes must be done ---- */

static int32_t due(const struct finder *f, uint32_t node)
{
    return f->order->anchor[node] >= 0 ? f->order->anchor[node] : f->order->before[node];
}

/* A reservation so many places before another one in its pool, maybe in the step window before. */
struct earlier {
    uint32_t reservation;
    bool before;
};

static struct earlier earlier_reservation(const struct finder *f, uint32_t pool, uint32_t place,
                                          uint32_t back)
{
    bool before = back > place;
    uint32_t at = before ? place + f->pool_count[pool] - back : place - back;
    return (struct earlier){f->pool[pool][at], before};
}

/* It has its buffer still when the reservation at `place` is lent, before anchor `need` begins: it
 * ends behind that anchor, or an heir that comes later goes on with the buffer. */
static bool is_held(const struct finder *f, struct earlier e, uint32_t place, int32_t need)
{
    const struct graph_reservation *reservations = f->graph->reservations;
    uint32_t heir = reservations[e.reservation].heir;
    if (heir != GRAPH_NONE && order_has(f->graph, reservations[heir].first_user))
        return !e.before || f->place[heir] >= place;
    return f->end[e.reservation] - (e.before ? f->order->anchors : 0) >= need;
}

/* Reservations that may hold up another one. Those that last over a turn are not far behind it. */
static uint32_t back_most(const struct finder *f, uint32_t pool)
{
    uint32_t most = BACK_BUFFERS * f->graph->buffers[pool], all = f->pool_count[pool] - 1;
    return most < all ? most : all;
}

/* When the reservation at `place` is lent, of those before it that are not held `spare` at most
 * have their buffers. A lane ends its nodes in order: where one is not done, nor are later ones. */
static void hold_in_lane(struct finder *f, uint32_t pool, uint32_t place, uint32_t spare, int lane)
{
    int32_t need = f->need[f->pool[pool][place]];
    uint32_t below[2] = {GRAPH_NONE, GRAPH_NONE}; /* in this step window, in the one before */
    for (uint32_t back = 1; back <= back_most(f, pool); back++) {
        struct earlier e = earlier_reservation(f, pool, place, back);
        size_t at = (size_t)e.reservation * LANE_COUNT + (size_t)lane;
        if (f->last[at] == GRAPH_NONE || f->held[back])
            continue;
        int32_t due = need + (e.before ? f->order->anchors : 0);
        if (spare == 0 && due < f->holds[at].due) {
            f->holds[at] = (struct hold){due, below[e.before]};
            f->lowered = true;
        }
        if (spare == 0)
            continue;
        spare--;
        if (f->last[at] < below[e.before])
            below[e.before] = f->last[at];
    }
}

/* It finds what must be done before a reservation is made: the pool has no other buffers. */
static void hold(struct finder *f, uint32_t number)
{
    const struct graph_reservation *reservation = &f->graph->reservations[number];
    uint32_t pool = reservation->pool, place = f->place[number];
    uint32_t spare = f->graph->buffers[pool] - 1, held = 0;
    if (reservation->legacy != GRAPH_NONE || f->need[number] >= ORDER_FAR)
        return; /* it goes on with a buffer, or nothing waits for it */
    if (f->asked[number] == f->need[number])
        return; /* what it holds only comes earlier: the same need says nothing new */
    f->asked[number] = f->need[number];
    const uint32_t most = back_most(f, pool);
    for (uint32_t back = 1; back <= most && held <= spare; back++) {
        f->held[back] =
            is_held(f, earlier_reservation(f, pool, place, back), place, f->need[number]);
        held += f->held[back];
    }
    for (int lane = 0; held <= spare && lane < LANE_COUNT; lane++)
        if (f->pool_lanes[pool] >> lane & 1)
            hold_in_lane(f, pool, place, spare - held, lane);
}

static void pass_backward(struct finder *f)
{
    const struct graph *g = f->graph;
    for (uint32_t i = g->node_count; i-- > 0;) {
        const struct node *n = &g->nodes[i];
        if (!order_has(g, i))
            continue;
        for (unsigned l = 0; l < NODE_RESERVATIONS && n->reservation[l] != GRAPH_NONE; l++) {
            const struct hold *h = &f->holds[(size_t)n->reservation[l] * LANE_COUNT + n->lane];
            if (i < h->below)
                lower_to(f, &f->order->before[i], h->due);
        }
        for (unsigned l = 0; l < NODE_RESERVATIONS && n->reservation[l] != GRAPH_NONE; l++)
            if (g->reservations[n->reservation[l]].first_user == i) {
                lower_to(f, &f->need[n->reservation[l]], due(f, i));
                hold(f, n->reservation[l]);
            }
        for (uint32_t d = n->first_dep; d < n->first_dep + n->dep_count; d++)
            lower_to(f, &f->order->before[g->deps[d] & ~DEP_BEFORE],
                     due(f, i) + step_windows_of(f, g->deps[d]));
    }
}

static void fill(int32_t *values, uint32_t count, int32_t value)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = value;
}

static void find_order(struct finder *f)
{
    const struct graph *g = f->graph;
    fill(f->order->after, g->node_count, -ORDER_FAR);
    fill(f->order->before, g->node_count, ORDER_FAR);
    fill(f->end, g->reservation_count, -ORDER_FAR);
    fill(f->need, g->reservation_count, ORDER_FAR);
    fill(f->asked, g->reservation_count, ORDER_FAR);
    for (int p = 0; p < POOL_COUNT; p++)
        fill(f->ends[p], g->buffers[p], -ORDER_FAR);
    for (size_t i = 0; i < (size_t)g->reservation_count * LANE_COUNT; i++)
        f->holds[i] = (struct hold){ORDER_FAR, 0};
    for (int pass = 0; pass < PASSES; pass++)
        pass_forward(f);
    f->lowered = true;
    for (int pass = 0; pass < PASSES && f->lowered; pass++) {
        f->lowered = false;
        pass_backward(f);
    }
}

/* ---- anchors ---- */

/* True where the node waits for the last anchor, or does the same for more tiles in its lane. */
static bool follows(const struct graph *g, uint32_t node, uint32_t last)
{
    const struct node *n = &g->nodes[node], *before = &g->nodes[last];
    for (uint32_t d = n->first_dep; d < n->first_dep + n->dep_count; d++)
        if ((g->deps[d] & ~DEP_BEFORE) == last)
            return true;
    return n->kind == before->kind && n->unit == before->unit && n->lane == before->lane &&
           !node_is_visit(n);
}

/* Between two visits that follow each other what must be there, and one after the other, is fixed
 * too. Step windows follow each other, hence twice round. */
static void mark_fixed(struct finder *f)
{
    const struct graph_order *o = f->order;
    uint32_t nodes = f->graph->node_count, last = GRAPH_NONE;
    for (uint64_t i = 0; i < 2 * (uint64_t)nodes; i++) {
        uint32_t node = (uint32_t)(i % nodes);
        bool between = order_has(f->graph, node) && o->before[node] - o->after[node] == 1;
        if (node_is_visit(&f->graph->nodes[node]) ||
            (between && last != GRAPH_NONE && follows(f->graph, node, last))) {
            f->fixed[node] = true;
            last = node;
        }
    }
}

static void fix_visits_alone(struct finder *f)
{
    for (uint32_t i = 0; i < f->graph->node_count; i++)
        f->fixed[i] = node_is_visit(&f->graph->nodes[i]);
}

static void number_anchors(struct finder *f)
{
    f->order->anchors = 0;
    for (uint32_t i = 0; i < f->graph->node_count; i++)
        f->order->anchor[i] = f->fixed[i] ? f->order->anchors++ : -1;
}

/* ---- the whole ---- */

static void *array(size_t count, size_t size, int *rc)
{
    void *made = calloc(count + 1, size);
    if (!made)
        *rc = -ENOMEM;
    return made;
}

static void find_lanes(struct finder *f)
{
    const struct graph *g = f->graph;
    for (size_t i = 0; i < (size_t)g->reservation_count * LANE_COUNT; i++)
        f->last[i] = GRAPH_NONE;
    for (uint32_t i = 0; i < g->node_count; i++)
        for (unsigned l = 0; l < NODE_RESERVATIONS && g->nodes[i].reservation[l] != GRAPH_NONE;
             l++) {
            f->pool_lanes[g->reservations[g->nodes[i].reservation[l]].pool] |= 1u
                                                                               << g->nodes[i].lane;
            if (order_has(g, i))
                f->last[(size_t)g->nodes[i].reservation[l] * LANE_COUNT + g->nodes[i].lane] = i;
        }
}

/* The reservations of a pool, in order, that a whole step borrows: some are a redo's alone. */
static void find_pool(struct finder *f, int pool)
{
    const struct graph *g = f->graph;
    for (uint32_t i = 0; i < g->pool_count[pool]; i++) {
        uint32_t number = g->pool[pool][i];
        if (!order_has(g, g->reservations[number].first_user))
            continue;
        f->place[number] = f->pool_count[pool];
        f->pool[pool][f->pool_count[pool]++] = number;
    }
}

static int finder_open(struct finder *f)
{
    const struct graph *g = f->graph;
    uint32_t most = 0;
    int rc = 0;
    for (int p = 0; p < POOL_COUNT; p++)
        most = g->buffers[p] > most ? g->buffers[p] : most;
    f->held = array((size_t)BACK_BUFFERS * most, sizeof *f->held, &rc);
    f->order->anchor = array(g->node_count, sizeof(int32_t), &rc);
    f->order->after = array(g->node_count, sizeof(int32_t), &rc);
    f->order->before = array(g->node_count, sizeof(int32_t), &rc);
    f->fixed = array(g->node_count, sizeof *f->fixed, &rc);
    f->end = array(g->reservation_count, sizeof *f->end, &rc);
    f->need = array(g->reservation_count, sizeof *f->need, &rc);
    f->asked = array(g->reservation_count, sizeof *f->asked, &rc);
    f->place = array(g->reservation_count, sizeof *f->place, &rc);
    f->last = array((size_t)g->reservation_count * LANE_COUNT, sizeof *f->last, &rc);
    f->holds = array((size_t)g->reservation_count * LANE_COUNT, sizeof *f->holds, &rc);
    for (int p = 0; p < POOL_COUNT; p++) {
        f->ends[p] = array(g->buffers[p], sizeof *f->ends[p], &rc);
        f->pool[p] = array(g->pool_count[p], sizeof(uint32_t), &rc);
        if (rc == 0)
            find_pool(f, p);
    }
    if (rc == 0)
        find_lanes(f);
    return rc;
}

static void finder_close(struct finder *f)
{
    for (int p = 0; p < POOL_COUNT; p++) {
        free(f->ends[p]);
        free(f->pool[p]);
    }
    free(f->held);
    free(f->holds);
    free(f->last);
    free(f->place);
    free(f->asked);
    free(f->need);
    free(f->end);
    free(f->fixed);
}

int graph_order_find(const struct graph *graph, struct graph_order *order)
{
    struct finder f = {.graph = graph, .order = order};
    *order = (struct graph_order){0};
    int rc = finder_open(&f);
    if (rc == 0) {
        fix_visits_alone(&f);
        number_anchors(&f);
        find_order(&f);
        mark_fixed(&f);
        number_anchors(&f);
        if (order->anchors > ANCHORS_MOST)
            fix_visits_alone(&f);
        number_anchors(&f);
        find_order(&f);
    }
    finder_close(&f);
    if (rc)
        graph_order_free(order);
    return rc;
}

void graph_order_free(struct graph_order *order)
{
    free(order->before);
    free(order->after);
    free(order->anchor);
    *order = (struct graph_order){0};
}
