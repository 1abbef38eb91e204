/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define GARBAGE (-1)
#define ANY_AGE (-2)
#define OF_EVAL 1000000 /* checkpoints of an evaluation, which nobody may use */
#define MOST    (4 * MODEL_TILES)

/* What a node does with one cell. */
struct access {
    struct cell *cell;
    int64_t expects; /* of what it finds */
    bool writes;
    int64_t age;             /* what it leaves */
    const struct cell *from; /* or a copy of that */
};

struct accesses {
    struct access of[MOST];
    unsigned count;
};

static void reads(struct accesses *a, struct cell *cell, int64_t expects)
{
    a->of[a->count++] = (struct access){.cell = cell, .expects = expects};
}

static void writes(struct accesses *a, struct cell *cell, int64_t expects, int64_t age)
{
    a->of[a->count++] =
        (struct access){.cell = cell, .expects = expects, .writes = true, .age = age};
}

static void copies(struct accesses *a, struct cell *from, struct cell *to)
{
    reads(a, from, ANY_AGE);
    a->of[a->count++] =
        (struct access){.cell = to, .expects = ANY_AGE, .writes = true, .from = from};
}

/* ---- where things are ---- */

static const struct graph_unit *unit_of(const struct model *m, uint32_t unit)
{
    return &m->in->units[unit];
}

static struct cell *buffer(struct model *m, struct walk_at at, enum pool pool)
{
    uint32_t number = walk_pool_buffer(m->walk, at, pool);
    if (number >= m->graph->buffers[pool])
        fail_msg("%s: a %s of unit %u has no buffer of pool %d", m->name,
                 node_kind_name(m->graph->nodes[at.node].kind), m->graph->nodes[at.node].unit,
                 pool);
    return m->lent[pool][number];
}

/* Of weights or gradients of the node's unit. */
static struct cell *unit_buffer(struct model *m, struct walk_at at, enum pool pool)
{
    bool wide = unit_of(m, m->graph->nodes[at.node].unit)->wide;
    return buffer(m, at, pool_for(m->graph->buffers, pool, wide));
}

/* Units whose tiles a unit reads: itself and those it is an alias of. */
static uint32_t view(const struct model *m, uint32_t unit, uint32_t i)
{
    return i == 0 ? unit : unit_of(m, unit)->alias_of[i - 1];
}

static bool is_resident(const struct model *m, uint32_t unit)
{
    return unit_of(m, unit)->weights == HST_TIER_HBM;
}

/* In the device's memory there is one. */
static int slot_of(const struct model *m, uint32_t unit)
{
    return is_resident(m, unit) ? 0 : m->slot;
}

static struct cell *weights_in_host(struct model *m, struct walk_at at, uint32_t owner,
                                    uint32_t tile)
{
    bool away = unit_of(m, owner)->weights == HST_TIER_NVME;
    return away ? &unit_buffer(m, at, POOL_WEIGHTS)[tile] : &m->weights[slot_of(m, owner)][tile];
}

static bool is_copied(const struct model *m, uint32_t unit)
{
    return m->in->apart && !is_resident(m, unit);
}

static struct cell *grads_at_home(struct model *m, struct walk_at at, uint32_t unit, uint32_t tile)
{
    if (unit_of(m, unit)->grads == HST_TIER_NVME)
        return &unit_buffer(m, at, POOL_GRADS)[tile];
    bool turns = is_resident(m, unit) && !m->in->deferred && !m->in->optimistic;
    return turns ? &m->turns[tile - unit_of(m, unit)->first_tile] : &m->grads[tile];
}

static struct cell *acts_in_host(struct model *m, struct walk_at at, uint32_t unit)
{
    bool away = unit_of(m, unit)->acts == HST_TIER_NVME;
    return away ? &buffer(m, at, POOL_ACTS)[unit] : &m->acts[unit];
}

/* Where the visit itself puts and finds them. */
static struct cell *acts_of_visit(struct model *m, struct walk_at at, uint32_t unit)
{
    if (m->in->apart && unit_of(m, unit)->acts != HST_TIER_HBM)
        return &buffer(m, at, POOL_DEVICE_ACTS)[unit];
    return acts_in_host(m, at, unit);
}

static struct cell *grads_of_visit(struct model *m, struct walk_at at, uint32_t unit, uint32_t tile)
{
    if (m->in->apart && unit_of(m, unit)->grads != HST_TIER_HBM)
        return &unit_buffer(m, at, POOL_DEVICE_GRADS)[tile];
    return grads_at_home(m, at, unit, tile);
}

static bool has_states_away(const struct model *m, uint32_t unit, uint32_t tile)
{
    return tile - unit_of(m, unit)->first_tile < unit_of(m, unit)->nvme_states;
}

/* ---- what nodes do ---- */

static int64_t step_of(const struct model *m, struct walk_at at)
{
    return (int64_t)m->step_of[at.period % WALK_PERIODS];
}

/* Of an update: it is of the step before. */
static bool is_late(const struct node *n)
{
    return n->parts != PART_BACKWARD;
}

static bool brings_grads(const struct model *m, const struct node *n)
{
    const struct graph_unit *u = unit_of(m, n->unit);
    return is_late(n) && u->grads == HST_TIER_NVME &&
           !graph_lends(m->graph, n, pool_for(m->graph->buffers, POOL_GRADS, u->wide));
}

static void read_weights(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t tiles[MODEL_TILES], count = 0;
    if (walk_was_kept(m->walk, at) && m->stale != at.period)
        return;
    for (uint32_t i = 0; i <= unit_of(m, n->unit)->alias_count; i++) {
        const struct graph_unit *u = unit_of(m, view(m, n->unit, i));
        for (uint32_t t = 0; t < u->tile_count && u->weights == HST_TIER_NVME; t++)
            tiles[count++] = u->first_tile + t;
    }
    for (uint32_t i = count * n->tile / n->tile_count; i < count * (n->tile + 1) / n->tile_count;
         i++)
        copies(a, &m->nvme_weights[tiles[i]], &unit_buffer(m, at, POOL_WEIGHTS)[tiles[i]]);
}

static void copy_weights(struct model *m, struct walk_at at, struct accesses *a)
{
    uint32_t unit = m->graph->nodes[at.node].unit;
    for (uint32_t i = 0; i <= unit_of(m, unit)->alias_count; i++) {
        const struct graph_unit *u = unit_of(m, view(m, unit, i));
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            copies(a, weights_in_host(m, at, view(m, unit, i), t),
                   &unit_buffer(m, at, POOL_DEVICE_WEIGHTS)[t]);
    }
}

/* What a visit does with checkpoints that are not kept: an input's age says of which unit it is. */
static void visit_recomputed(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const uint32_t *order = m->in->forward;
    uint32_t place = 0, first;
    while (order[place] != n->unit)
        place++;
    for (first = place; unit_of(m, order[first])->recomputed;)
        first--;
    bool last = place + 1 == m->in->unit_count || !unit_of(m, order[place + 1])->recomputed;
    struct cell *cell = last ? &m->carry : &m->inner[place - first];
    int64_t input = step_of(m, at) * MODEL_UNITS + place;
    if (n->kind == NODE_RECOMPUTE && place > first)
        writes(a, cell, ANY_AGE, input);
    if (n->kind == NODE_RECOMPUTE)
        writes(a, &m->carry, place > first ? input : ANY_AGE, input + 1);
    if (n->kind == NODE_BACKWARD && place > first)
        reads(a, cell, input);
}

static void visit(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *unit = unit_of(m, n->unit);
    bool eval = (m->walk->period[at.period % WALK_PERIODS].parts & PART_EVAL) != 0;
    bool blind = n->kind == NODE_BACKWARD && unit->blind_backward;
    for (uint32_t i = 0; i <= unit->alias_count && !blind; i++) {
        const struct graph_unit *u = unit_of(m, view(m, n->unit, i));
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            reads(a,
                  is_copied(m, n->unit) ? &unit_buffer(m, at, POOL_DEVICE_WEIGHTS)[t]
                                        : weights_in_host(m, at, view(m, n->unit, i), t),
                  step_of(m, at));
    }
    if (unit->act_bytes > 0 && !unit->no_forward && n->kind == NODE_FORWARD)
        writes(a, acts_of_visit(m, at, n->unit), ANY_AGE, step_of(m, at) + (eval ? OF_EVAL : 0));
    if (unit->act_bytes > 0 && !unit->no_forward && n->kind != NODE_FORWARD)
        reads(a, acts_of_visit(m, at, n->unit), step_of(m, at));
    visit_recomputed(m, at, a);
    for (uint32_t t = 0; t < unit->tile_count && n->kind == NODE_BACKWARD; t++)
        writes(a, grads_of_visit(m, at, n->unit, unit->first_tile + t), ANY_AGE, step_of(m, at));
}

static void move_acts(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    struct cell *nvme = &m->nvme_acts[n->unit];
    switch ((enum node_kind)n->kind) {
    case NODE_STORE_ACTS:
        copies(a, &buffer(m, at, POOL_DEVICE_ACTS)[n->unit], acts_in_host(m, at, n->unit));
        break;
    case NODE_WRITE_ACTS:
        copies(a, &buffer(m, at, POOL_ACTS)[n->unit], nvme);
        break;
    case NODE_READ_ACTS:
        copies(a, nvme, &buffer(m, at, POOL_ACTS)[n->unit]);
        break;
    default:
        copies(a, acts_in_host(m, at, n->unit), &buffer(m, at, POOL_DEVICE_ACTS)[n->unit]);
        break;
    }
}

static void move_grads(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *u = unit_of(m, n->unit);
    if (n->kind == NODE_WRITE_GRADS)
        for (uint32_t t = n->tile; t < n->tile + n->tile_count; t++)
            copies(a, &unit_buffer(m, at, POOL_GRADS)[t], &m->nvme_grads[t]);
    else
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            copies(a, &unit_buffer(m, at, POOL_DEVICE_GRADS)[t], grads_at_home(m, at, n->unit, t));
}

static void read_grads(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct graph_unit *u = unit_of(m, m->graph->nodes[at.node].unit);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        if (!walk_was_kept(m->walk, at))
            copies(a, &m->nvme_grads[t], &unit_buffer(m, at, POOL_GRADS)[t]);
}

static void norm(struct model *m, struct walk_at at, struct accesses *a)
{
    uint32_t unit = m->graph->nodes[at.node].unit;
    const struct graph_unit *u = unit_of(m, unit);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        reads(a, grads_at_home(m, at, unit, t), step_of(m, at));
}

static void read_tile(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t slot = walk_pool_buffer(m->walk, at, POOL_TILES);
    if (has_states_away(m, n->unit, n->tile))
        copies(a, &m->nvme_states[n->tile], &buffer(m, at, POOL_TILES)[n->tile]);
    if (brings_grads(m, n))
        copies(a, &m->nvme_grads[n->tile], &m->lent_tile_grads[slot][n->tile]);
}

/* At home in memory: in place, or from one slot into the other. */
static void replaces(struct model *m, struct cell (*slots)[MODEL_TILES], const struct node *n,
                     uint32_t tile, int64_t step, struct accesses *a)
{
    int from = is_late(n) ? !m->slot : m->slot;
    if (!m->in->optimistic || is_resident(m, n->unit)) {
        writes(a, &slots[slot_of(m, n->unit)][tile], step, step + 1);
        return;
    }
    reads(a, &slots[from][tile], step);
    writes(a, &slots[!from][tile], ANY_AGE, step + 1);
}

/* What was written since the last version is forgotten. */
static void revert(struct model *m, struct walk_at at, struct accesses *a)
{
    (void)at;
    for (uint32_t u = 0; u < m->graph->unit_count; u++) {
        const struct graph_unit *unit = unit_of(m, u);
        for (uint32_t t = unit->first_tile; t < unit->first_tile + unit->tile_count; t++) {
            writes(a, &m->nvme_weights[t], ANY_AGE, m->committed_weights[t]);
            writes(a, &m->nvme_states[t], ANY_AGE, m->committed_states[t]);
        }
    }
}

static void update(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    int64_t step = step_of(m, at) - is_late(n);
    for (uint32_t t = n->tile; t < n->tile + n->tile_count; t++) {
        struct cell *grads = brings_grads(m, n)
                                 ? &m->lent_tile_grads[walk_pool_buffer(m->walk, at, POOL_TILES)][t]
                                 : grads_at_home(m, at, n->unit, t);
        if (unit_of(m, n->unit)->weights == HST_TIER_NVME)
            writes(a, &unit_buffer(m, at, POOL_WEIGHTS)[t], step, step + 1);
        else
            replaces(m, m->weights, n, t, step, a);
        if (has_states_away(m, n->unit, t))
            writes(a, &buffer(m, at, POOL_TILES)[t], step, step + 1);
        else
            replaces(m, m->states, n, t, step, a);
        reads(a, grads, step);
    }
}

static void write_tile(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    for (uint32_t t = n->tile; t < n->tile + n->tile_count; t++) {
        if (has_states_away(m, n->unit, t))
            copies(a, &buffer(m, at, POOL_TILES)[t], &m->nvme_states[t]);
        if (unit_of(m, n->unit)->weights == HST_TIER_NVME)
            copies(a, &unit_buffer(m, at, POOL_WEIGHTS)[t], &m->nvme_weights[t]);
    }
}

/* A resident tile, by way of a slot, whose first part holds weights here. */
static void copy_tile(struct model *m, struct walk_at at, struct accesses *a)
{
    uint32_t tile = m->graph->nodes[at.node].tile;
    bool save = m->graph->nodes[at.node].kind == NODE_SAVE_TILES;
    struct cell *states = &buffer(m, at, POOL_TILES)[tile];
    struct cell *weights = &m->lent_tile_grads[walk_pool_buffer(m->walk, at, POOL_TILES)][tile];
    copies(a, save ? states : &m->states[0][tile], save ? &m->saved_states[tile] : states);
    if (!m->in->derived_weights)
        copies(a, save ? weights : &m->weights[0][tile], save ? &m->saved_weights[tile] : weights);
}

static void save_tiles(struct model *m, struct walk_at at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    bool weights = unit_of(m, n->unit)->weights != HST_TIER_NVME && !m->in->derived_weights;
    bool resident = is_resident(m, n->unit);
    if (resident)
        copy_tile(m, at, a);
    for (uint32_t t = n->tile; !resident && t < n->tile + n->tile_count; t++) {
        if (!has_states_away(m, n->unit, t))
            copies(a, &m->states[m->slot][t], &m->saved_states[t]);
        if (weights)
            copies(a, &m->weights[m->slot][t], &m->saved_weights[t]);
    }
}

typedef void access_fn(struct model *m, struct walk_at at, struct accesses *a);

static struct accesses accesses_of(struct model *m, struct walk_at at)
{
    static access_fn *const of[NODE_KIND_COUNT] = {
        [NODE_READ_WEIGHTS] = read_weights,
        [NODE_READ_TILE] = read_tile,
        [NODE_READ_ACTS] = move_acts,
        [NODE_WRITE_TILE] = write_tile,
        [NODE_WRITE_GRADS] = move_grads,
        [NODE_READ_GRADS] = read_grads,
        [NODE_WRITE_ACTS] = move_acts,
        [NODE_SAVE_TILES] = save_tiles,
        [NODE_COPY_WEIGHTS] = copy_weights,
        [NODE_COPY_GRADS] = move_grads,
        [NODE_COPY_TILE] = copy_tile,
        [NODE_STORE_ACTS] = move_acts,
        [NODE_FETCH_ACTS] = move_acts,
        [NODE_UPDATE] = update,
        [NODE_NORM] = norm,
        [NODE_REVERT] = revert,
        [NODE_FORWARD] = visit,
        [NODE_RECOMPUTE] = visit,
        [NODE_BACKWARD] = visit,
    };
    struct accesses a = {.count = 0};
    unsigned kind = m->graph->nodes[at.node].kind;
    if (of[kind])
        of[kind](m, at, &a);
    return a;
}

/* ---- buffers ---- */

static void spoil(struct model *m, uint32_t pool, uint32_t number)
{
    for (uint32_t i = 0; i < MODEL_TILES; i++) {
        struct cell *cells[] = {&m->lent[pool][number][i], &m->lent_tile_grads[number][i]};
        for (int c = 0; c < (pool == POOL_TILES ? 2 : 1); c++) {
            if (cells[c]->readers || cells[c]->writers)
                fail_msg("%s: buffer %u of pool %u is lent while it is used", m->name, number,
                         pool);
            cells[c]->age = GARBAGE;
        }
    }
}

/* A buffer has one lease at a time; only an heir finds in it what was there. */
static void check_owners(struct model *m, struct walk_at at)
{
    const struct node *n = &m->graph->nodes[at.node];
    for (unsigned i = 0; i < NODE_LEASES && n->lease[i] != GRAPH_NONE; i++) {
        const struct graph_lease *lease = &m->graph->leases[n->lease[i]];
        uint32_t number = walk_buffer(m->walk, at, i);
        if (number >= m->graph->buffers[lease->pool])
            fail_msg("%s: node %u has no buffer", m->name, at.node);
        struct walk_loan *owner = &m->owner[lease->pool][number];
        if (owner->period == at.period && owner->lease == n->lease[i])
            continue;
        if (lease->first_user != at.node)
            fail_msg("%s: node %u of period %llu finds its buffer with another lease", m->name,
                     at.node, (unsigned long long)at.period);
        if (owner->period + 1 != at.period || owner->lease != lease->legacy)
            spoil(m, lease->pool, number);
        *owner = (struct walk_loan){at.period, n->lease[i]};
    }
}

/* ---- calls ---- */

void model_save_kept_grads(struct model *m)
{
    uint64_t last = m->walk->opened - 1;
    for (uint32_t i = 0; i < m->graph->node_count; i++) {
        const struct node *n = &m->graph->nodes[i];
        const struct graph_unit *u = unit_of(m, n->unit);
        if (n->kind != NODE_NORM || n->lease[0] == GRAPH_NONE)
            continue;
        uint32_t left = walk_left_to_heir(m->walk, last, n->lease[0]);
        for (uint32_t t = u->first_tile; left != GRAPH_NONE && t < u->first_tile + u->tile_count;
             t++)
            m->nvme_grads[t].age = m->lent[m->graph->leases[n->lease[0]].pool][left][t].age;
    }
}

void model_open(struct model *m, const struct graph_case *c, const struct graph *graph,
                struct walk *walk)
{
    memset(m, 0, sizeof *m);
    m->in = &c->in;
    m->graph = graph;
    m->walk = walk;
    m->name = c->name;
    m->clipped = -1;
    m->stale = UINT64_MAX;
    for (uint32_t i = 0; i < MODEL_UNITS; i++) {
        m->normed[i] = -1;
        m->acts[i].age = m->nvme_acts[i].age = GARBAGE;
    }
    for (uint32_t i = 0; i < MODEL_TILES; i++)
        m->grads[i].age = m->nvme_grads[i].age = GARBAGE;
    model_spoil(m);
    for (uint32_t pool = 0; pool < POOL_COUNT; pool++)
        for (uint32_t i = 0; i < MODEL_BUFFERS; i++) {
            m->owner[pool][i] = (struct walk_loan){UINT64_MAX - 1, GRAPH_NONE};
        }
}

void model_spoil(struct model *m)
{
    for (uint32_t pool = 0; pool < POOL_COUNT; pool++)
        for (uint32_t i = 0; i < MODEL_BUFFERS; i++)
            spoil(m, pool, i);
}

void model_verdict(struct model *m, uint64_t next, enum verdict verdict)
{
    m->slot ^= verdict != VERDICT_SKIPS;
    m->stale = verdict == VERDICT_STANDS ? UINT64_MAX : next;
}

void model_period(struct model *m, uint64_t period, uint64_t steps)
{
    m->step_of[period % WALK_PERIODS] = steps;
}

static void check_norms(struct model *m, struct walk_at at)
{
    const struct node *n = &m->graph->nodes[at.node];
    if (n->kind == NODE_CLIP)
        for (uint32_t i = 0; i < m->in->unit_count; i++)
            if (unit_of(m, i)->tile_count > 0 && m->normed[i] != step_of(m, at))
                fail_msg("%s: the clip factor is wanted before unit %u's norm", m->name, i);
    if (n->kind != NODE_UPDATE)
        return;
    bool all = m->in->deferred || (m->in->optimistic && is_late(n));
    int64_t known = all ? m->clipped : m->normed[n->unit];
    if (known != step_of(m, at) - is_late(n))
        fail_msg("%s: unit %u is updated before its norm", m->name, n->unit);
}

/* ---- versions ---- */

static void check_stored(struct model *m, struct walk_at at, const struct cell *cell, uint32_t tile)
{
    if (cell->age != step_of(m, at) && cell->writers == 0)
        fail_msg("%s: period %llu commits tile %u as it was at step %lld, not %lld", m->name,
                 (unsigned long long)at.period, tile, (long long)cell->age,
                 (long long)step_of(m, at));
}

/* A version has everything of the step before the period, written or being written, and nothing of
 * a later one is written before it is made. */
static void check_version(struct model *m, struct walk_at at)
{
    const struct node *n = &m->graph->nodes[at.node];
    if (m->committing && (n->kind == NODE_WRITE_TILE || n->kind == NODE_SAVE_TILES))
        fail_msg("%s: node %u of period %llu writes while a version is made", m->name, at.node,
                 (unsigned long long)at.period);
    for (uint32_t t = n->tile; m->in->optimistic && n->kind == NODE_WRITE_TILE && !is_late(n) &&
                               t < n->tile + n->tile_count;
         t++)
        if (m->committed_states[t] != step_of(m, at) || m->committed_weights[t] != step_of(m, at))
            fail_msg("%s: tile %u of period %llu is written with no version to go back to", m->name,
                     t, (unsigned long long)at.period);
    if (n->kind != NODE_COMMIT)
        return;
    assert_false(m->committing);
    m->committing = true;
    for (uint32_t u = 0; u < m->graph->unit_count; u++) {
        const struct graph_unit *unit = unit_of(m, u);
        bool away = unit->weights == HST_TIER_NVME;
        for (uint32_t t = unit->first_tile; t < unit->first_tile + unit->tile_count; t++) {
            bool states = has_states_away(m, u, t);
            check_stored(m, at, states ? &m->nvme_states[t] : &m->saved_states[t], t);
            if (away || !m->in->derived_weights)
                check_stored(m, at, away ? &m->nvme_weights[t] : &m->saved_weights[t], t);
        }
    }
}

void model_begin(struct model *m, struct walk_at at)
{
    check_owners(m, at);
    check_norms(m, at);
    check_version(m, at);
    struct accesses a = accesses_of(m, at);
    const struct node *n = &m->graph->nodes[at.node];
    for (unsigned i = 0; i < a.count; i++) {
        struct access *x = &a.of[i];
        if (x->cell->writers || (x->writes && x->cell->readers))
            fail_msg(
                "%s: node %u (%s, unit %u) of period %llu reads or writes what another one does",
                m->name, at.node, node_kind_name(n->kind), n->unit, (unsigned long long)at.period);
        if (x->expects != ANY_AGE && x->cell->age != x->expects)
            fail_msg(
                "%s: node %u (%s, unit %u) of period %llu finds bytes of step %lld, wants %lld",
                m->name, at.node, node_kind_name(n->kind), n->unit, (unsigned long long)at.period,
                (long long)x->cell->age, (long long)x->expects);
        if (x->writes)
            x->cell->writers++;
        else
            x->cell->readers++;
    }
}

void model_end(struct model *m, struct walk_at at)
{
    const struct node *n = &m->graph->nodes[at.node];
    struct accesses a = accesses_of(m, at);
    for (unsigned i = 0; i < a.count; i++) {
        struct access *x = &a.of[i];
        if (x->writes)
            x->cell->age = x->from ? x->from->age : x->age;
        if (x->writes)
            x->cell->writers--;
        else
            x->cell->readers--;
    }
    if (n->kind == NODE_NORM)
        m->normed[n->unit] = step_of(m, at);
    if (n->kind == NODE_CLIP)
        m->clipped = step_of(m, at);
    if (n->kind != NODE_COMMIT)
        return;
    m->committing = false;
    for (uint32_t t = 0; t < MODEL_TILES; t++) {
        m->committed_weights[t] = m->committed_states[t] = step_of(m, at);
    }
}
