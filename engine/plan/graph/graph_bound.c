/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound on a step of a graph. What a window must hold is known from plan/graph_order.c; here is
 * what time that takes at least.
 */
#include "plan/graph/graph_bound.h"

#include "plan/graph/graph_order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Nodes of one lane that come after one anchor and are due for one: a window has all or none. All
 * of them pass through host memory, or none does. */
struct group {
    int32_t span; /* anchors between the two */
    uint32_t lane, next;
    double seconds, dram_s, way_in, way_out; /* of all; the shortest ways */
};

struct bounds {
    const struct graph *graph;
    const struct sim_rates *rates;
    struct graph_order order;
    double *seconds;      /* [nodes] alone */
    double *way_in;       /* [nodes] from the end of the anchor it comes after until it can begin */
    double *way_out;      /* [nodes] from its end until the anchor it must be done for can begin */
    double *anchored_s;   /* [2 anchors + 1] seconds of all anchors before this one, in two step
                           windows */
    struct group *groups; /* [group_count] at most one for each node */
    uint32_t group_count;
    uint32_t *due_first; /* [anchors] the groups that are due for an anchor; GRAPH_NONE: none */
    double *window; /* [anchors][anchors + 1] seconds from one's end to the later ones' begin */
    double *chain;  /* [anchors + 1] */
};

/* ---- nodes ---- */

static int32_t after(const struct bounds *b, uint32_t node)
{
    const struct graph_order *o = &b->order;
    return o->anchor[node] >= 0 ? o->anchor[node] - 1 : o->after[node];
}

static int32_t before(const struct bounds *b, uint32_t node)
{
    const struct graph_order *o = &b->order;
    return o->anchor[node] >= 0 ? o->anchor[node] + 1 : o->before[node];
}

/* What is kept from the step window before need not be read. */
static double node_seconds(const struct graph *graph, const struct sim_rates *rates, uint32_t node)
{
    const struct node *n = &graph->nodes[node];
    bool kept = node_kind_is_retained(n->kind) &&
                graph->reservations[n->reservation[0]].legacy != GRAPH_NONE;
    return kept ? 0 : sim_node_seconds(rates, n);
}

/* A node and one it depends on that lie between the same anchors lengthen each other's ways. */
static void find_ways(struct bounds *b, uint32_t node, uint32_t dep)
{
    int32_t step_windows = dep & DEP_BEFORE ? b->order.anchors : 0;
    uint32_t from = dep & ~DEP_BEFORE;
    const int32_t *anchor = b->order.anchor;
    if (!order_has(b->graph, from))
        return;
    if (anchor[node] < 0 && anchor[from] < 0 && after(b, from) - step_windows == after(b, node))
        b->way_in[node] = fmax(b->way_in[node], b->way_in[from] + b->seconds[from]);
    if (anchor[node] < 0 && anchor[from] < 0 && before(b, from) - step_windows == before(b, node))
        b->way_out[from] = fmax(b->way_out[from], b->way_out[node] + b->seconds[node]);
}

static void measure_nodes(struct bounds *b)
{
    const struct graph *g = b->graph;
    int32_t n = b->order.anchors;
    for (uint32_t i = 0; i < g->node_count; i++) {
        b->seconds[i] = node_seconds(g, b->rates, i);
        if (b->order.anchor[i] >= 0)
            b->anchored_s[b->order.anchor[i] + 1] = b->seconds[i];
    }
    for (int32_t a = 0; a < n; a++)
        b->anchored_s[a + 1] += b->anchored_s[a];
    for (int32_t a = 1; a <= n; a++)
        b->anchored_s[n + a] = b->anchored_s[n] + b->anchored_s[a];
    for (int pass = 0; pass < 2; pass++) { /* a way may begin in the step window before */
        for (uint32_t i = 0; i < g->node_count; i++)
            for (uint32_t d = 0; order_has(g, i) && d < g->nodes[i].dep_count; d++)
                find_ways(b, i, g->deps[g->nodes[i].first_dep + d]);
        for (uint32_t i = g->node_count; i-- > 0;)
            for (uint32_t d = 0; order_has(g, i) && d < g->nodes[i].dep_count; d++)
                find_ways(b, i, g->deps[g->nodes[i].first_dep + d]);
    }
}

/* ---- work, and the seconds it needs ---- */

/* It holds what one resource has to do in a window. */
struct load {
    double seconds;
    double in, out; /* the shortest ways to the first of it and from the last of it */
};

enum { LOAD_DRAM = LANE_COUNT, LOADS };

struct work {
    struct load of[LOADS];
};

static struct work no_work(void)
{
    struct work work;
    for (int i = 0; i < LOADS; i++)
        work.of[i] = (struct load){0, INFINITY, INFINITY};
    return work;
}

/* fmin and fmax are calls, where nothing is a NaN. */
static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static void add_load(struct load *load, double seconds, double in, double out)
{
    load->seconds += seconds;
    load->in = lesser(in, load->in);
    load->out = lesser(out, load->out);
}

static double dram_seconds(const struct sim_rates *rates, const struct node *node)
{
    return rates->dram > 0 ? node->dram_bytes / rates->dram : 0;
}

/* in, out: see struct load, from and to the same anchor for all work of a window. */
static void add_work(struct work *work, uint32_t lane, double seconds, double dram_s, double in,
                     double out)
{
    if (seconds > 0)
        add_load(&work->of[lane], seconds, in, out);
    if (seconds > 0 && dram_s > 0)
        add_load(&work->of[LOAD_DRAM], dram_s, in, out);
}

/* With its ways in and out, which are infinite where there is nothing to do. */
static double in_window(double seconds, double in, double out)
{
    return seconds > 0 ? in + seconds + out : 0;
}

/* Reads and writes one after the other, or both at once where that is faster. */
static double drive_seconds(const struct sim_rates *r, const struct work *work)
{
    double reads = work->of[LANE_READ].seconds, writes = work->of[LANE_WRITE].seconds;
    double both = fmin(reads, writes) / sim_mixed_speed(r) + fabs(reads - writes);
    return fmin(both, reads + writes);
}

static double core_seconds(const struct sim_rates *r, const struct work *work)
{
    double compute = work->of[LANE_COMPUTE].seconds, update = work->of[LANE_UPDATE].seconds;
    return r->shared_cores ? compute + update : fmax(compute, update);
}

/* `end`: what the ways out are counted to. */
static double work_seconds(const struct sim_rates *r, const struct work *work, double end)
{
    const struct load *of = work->of;
    double drives_in = fmin(of[LANE_READ].in, of[LANE_WRITE].in);
    double drives_out = fmin(of[LANE_READ].out, of[LANE_WRITE].out);
    double cores_in = fmin(of[LANE_COMPUTE].in, of[LANE_UPDATE].in);
    double cores_out = fmin(of[LANE_COMPUTE].out, of[LANE_UPDATE].out);
    double longest = fmax(in_window(drive_seconds(r, work), drives_in, end + drives_out),
                          in_window(core_seconds(r, work), cores_in, end + cores_out));
    for (int i = 0; i < LOADS; i++)
        longest = fmax(longest, in_window(of[i].seconds, of[i].in, end + of[i].out));
    return longest;
}

/* ---- windows ---- */

static struct group *group_of(struct bounds *b, uint32_t due, int32_t span, uint32_t lane,
                              bool dram)
{
    uint32_t *at = &b->due_first[due];
    for (; *at != GRAPH_NONE; at = &b->groups[*at].next) {
        struct group *g = &b->groups[*at];
        if (g->span == span && g->lane == lane && (g->dram_s > 0) == dram)
            return g;
    }
    *at = b->group_count++;
    b->groups[*at] = (struct group){
        .span = span, .lane = lane, .next = GRAPH_NONE, .way_in = INFINITY, .way_out = INFINITY};
    return &b->groups[*at];
}

/* It sorts what is due for which anchor; nodes that may outlast a step, or take no time, are in no
 * window. */
static void sort_by_due(struct bounds *b)
{
    int32_t anchors = b->order.anchors;
    if (anchors <= 0)
        return;
    for (uint32_t i = 0; i < (uint32_t)anchors; i++)
        b->due_first[i] = GRAPH_NONE;
    for (uint32_t i = 0; i < b->graph->node_count; i++) {
        const int32_t span = before(b, i) - after(b, i);
        if (!order_has(b->graph, i) || span > anchors || b->seconds[i] <= 0)
            continue;
        uint32_t due = (uint32_t)((before(b, i) % anchors + anchors) % anchors);
        const double dram_s = dram_seconds(b->rates, &b->graph->nodes[i]);
        struct group *g = group_of(b, due, span, b->graph->nodes[i].lane, dram_s > 0);
        g->seconds += b->seconds[i];
        g->dram_s += dram_s;
        g->way_in = lesser(g->way_in, b->way_in[i]);
        g->way_out = lesser(g->way_out, b->way_out[i]);
    }
}

/* Seconds between the end of an anchor and the begin of each of the next ones, as many as a step
 * has. */
static void find_windows(struct bounds *b, int32_t from)
{
    int32_t anchors = b->order.anchors;
    double *window = &b->window[(size_t)from * ((size_t)anchors + 1)];
    const double *anchored_s = b->anchored_s;
    struct work work = no_work();
    for (int32_t to = from + 1; to <= from + anchors; to++) {
        for (uint32_t i = b->due_first[to % anchors]; i != GRAPH_NONE; i = b->groups[i].next) {
            const struct group *g = &b->groups[i];
            const int32_t begin = to - g->span; /* the anchor it comes after */
            if (begin < from)
                continue;
            const double in = anchored_s[begin + 1] - anchored_s[from + 1] + g->way_in;
            add_work(&work, g->lane, g->seconds, g->dram_s, in, g->way_out - anchored_s[to]);
        }
        window[to - from] = work_seconds(b->rates, &work, anchored_s[to]);
    }
}

/* ---- chains ---- */

/* The longest chain of anchors and windows from the end of an anchor to its end a step later. Each
 * place hands what follows it on to all later ones, so that memory is read in its order. */
static double longest_chain(struct bounds *b, uint32_t from)
{
    const uint32_t anchors = (uint32_t)b->order.anchors;
    double *restrict const chain = b->chain; /* behind `by`: when what was handed on lets them
                                                begin */
    for (uint32_t to = 0; to <= anchors; to++)
        chain[to] = 0;
    for (uint32_t by = 0; by <= anchors; by++) {
        const uint32_t at = (from + by) % anchors;
        const double *restrict window = &b->window[(size_t)at * ((size_t)anchors + 1)];
        if (by > 0)
            chain[by] = chain[by] + b->anchored_s[at + 1] - b->anchored_s[at];
        const double ended = chain[by];
        for (uint32_t to = by + 1; to <= anchors; to++) {
            const double begin = ended + window[to - by];
            chain[to] = begin > chain[to] ? begin : chain[to];
        }
    }
    return chain[anchors];
}

static double longest_of_chains(struct bounds *b)
{
    double longest = 0;
    sort_by_due(b);
    for (int32_t i = 0; i < b->order.anchors; i++)
        find_windows(b, i);
    for (uint32_t i = 0; i < (uint32_t)b->order.anchors; i++)
        longest = fmax(longest, longest_chain(b, i));
    return longest;
}

/* ---- the whole ---- */

static void *array(size_t count, size_t size, int *rc)
{
    void *made = calloc(count + 1, size);
    if (!made)
        *rc = -ENOMEM;
    return made;
}

static int bounds_open(struct bounds *b)
{
    int rc = graph_order_find(b->graph, &b->order);
    size_t anchors = (size_t)b->order.anchors;
    if (rc)
        return rc;
    b->due_first = array(anchors, sizeof *b->due_first, &rc);
    b->groups = array(b->graph->node_count, sizeof *b->groups, &rc);
    b->seconds = array(b->graph->node_count, sizeof *b->seconds, &rc);
    b->way_in = array(b->graph->node_count, sizeof *b->way_in, &rc);
    b->way_out = array(b->graph->node_count, sizeof *b->way_out, &rc);
    b->anchored_s = array(2 * anchors + 1, sizeof *b->anchored_s, &rc);
    b->window = array(anchors * (anchors + 1), sizeof *b->window, &rc);
    b->chain = array(anchors + 1, sizeof *b->chain, &rc);
    return rc;
}

static void bounds_close(struct bounds *b)
{
    free(b->chain);
    free(b->window);
    free(b->anchored_s);
    free(b->way_out);
    free(b->way_in);
    free(b->seconds);
    free(b->groups);
    free(b->due_first);
    graph_order_free(&b->order);
}

/* All of a step's. */
static struct work work_of_step(const struct graph *graph, const struct sim_rates *rates,
                                unsigned phases)
{
    struct work step = no_work();
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (order_has(graph, i) || (graph->nodes[i].phases & phases))
            add_work(&step, graph->nodes[i].lane, node_seconds(graph, rates, i),
                     dram_seconds(rates, &graph->nodes[i]), 0, 0);
    return step;
}

double graph_busiest(const struct graph *graph, const struct sim_rates *rates, unsigned phases)
{
    const struct work step = work_of_step(graph, rates, phases);
    return work_seconds(rates, &step, 0);
}

int graph_bound(const struct graph *graph, const struct sim_rates *rates, unsigned phases,
                struct graph_bound *bound)
{
    struct bounds b = {.graph = graph, .rates = rates};
    int rc = bounds_open(&b);
    if (rc == 0) {
        const struct work step = work_of_step(graph, rates, phases);
        measure_nodes(&b);
        *bound = (struct graph_bound){.drives_s = drive_seconds(rates, &step),
                                      .cores_s = core_seconds(rates, &step),
                                      .dram_s = step.of[LOAD_DRAM].seconds,
                                      .busiest_s = work_seconds(rates, &step, 0)};
        for (int l = 0; l < LANE_COUNT; l++)
            bound->lane_s[l] = step.of[l].seconds;
        bound->step_s = fmax(bound->busiest_s, longest_of_chains(&b));
    }
    bounds_close(&b);
    return rc;
}
