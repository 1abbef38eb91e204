/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each kind of node reads and writes, and of which age.
 */
#include "memory_access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

void access_reads(struct accesses *a, struct cell *cell, int64_t expects)
{
    a->of[a->count++] = (struct access){.cell = cell, .expects = expects};
}

void access_writes(struct accesses *a, struct cell *cell, int64_t expects, int64_t age)
{
    a->of[a->count++] =
        (struct access){.cell = cell, .expects = expects, .writes = true, .age = age};
}

void access_copies(struct accesses *a, struct cell *from, struct cell *to)
{
    access_reads(a, from, ANY_AGE);
    a->of[a->count++] =
        (struct access){.cell = to, .expects = ANY_AGE, .writes = true, .from = from};
}

/* ---- where things are ---- */

bool access_has_ranks(const struct model *m)
{
    return m->in->ranks > 1;
}

bool access_is_shared(const struct model *m)
{
    return access_has_ranks(m) && !m->in->replicas;
}

const struct graph_unit *access_unit(const struct model *m, uint32_t unit)
{
    return &m->in->units[unit];
}

static struct cell *buffer(struct model *m, struct scheduled at, enum pool pool)
{
    uint32_t number = scheduler_pool_buffer(m->scheduler, at, pool);
    if (number >= m->graph->buffers[pool])
        fail_msg("%s: a %s of unit %u has no buffer of pool %d", m->name,
                 node_kind_name(m->graph->nodes[at.node].kind), m->graph->nodes[at.node].unit,
                 pool);
    return m->lent[pool][number];
}

/* Of weights or gradients of the node's unit. */
struct cell *access_unit_buffer(struct model *m, struct scheduled at, enum pool pool)
{
    enum unit_size size = access_unit(m, m->graph->nodes[at.node].unit)->size;
    return buffer(m, at, pool_for(m->graph->buffers, pool, size));
}

/* Of several ranks: rows in the buffer of weights or gradients that the node's unit has. */
struct cell *access_unit_rows(struct model *m, struct scheduled at, enum pool pool)
{
    enum unit_size size = access_unit(m, m->graph->nodes[at.node].unit)->size;
    enum pool of = pool_for(m->graph->buffers, pool, size);
    (void)buffer(m, at, of); /* it has one */
    return m->rows[of][scheduler_pool_buffer(m->scheduler, at, of)];
}

/* Units whose tiles a unit reads: itself and those it is an alias of. */
uint32_t access_view(const struct model *m, uint32_t unit, uint32_t i)
{
    return i == 0 ? unit : access_unit(m, unit)->alias_of[i - 1];
}

bool access_is_resident(const struct model *m, uint32_t unit)
{
    return access_unit(m, unit)->weights == HST_TIER_HBM;
}

/* In the device's memory there is one, and of what is frozen. */
int access_slot_of(const struct model *m, uint32_t unit)
{
    return access_is_resident(m, unit) || access_unit(m, unit)->frozen ? 0 : m->slot;
}

/* Weights that are frozen stay as they were loaded. */
int64_t access_weights_age(const struct model *m, struct scheduled at, uint32_t unit)
{
    return access_unit(m, unit)->frozen ? 0 : access_step(m, at);
}

struct cell *access_weights_in_host(struct model *m, struct scheduled at, uint32_t owner,
                                    uint32_t tile)
{
    bool offloaded = access_unit(m, owner)->weights == HST_TIER_NVME;
    return offloaded ? &access_unit_buffer(m, at, POOL_WEIGHTS)[tile]
                     : &m->weights[access_slot_of(m, owner)][tile];
}

bool access_is_copied(const struct model *m, uint32_t unit)
{
    const struct graph_unit *u = access_unit(m, unit);
    const bool joins = m->in->device_rows && (u->row_elements > 0 || u->alias_count > 0);
    return m->in->apart && (joins || !access_is_resident(m, unit));
}

struct cell *access_grads_at_home(struct model *m, struct scheduled at, uint32_t unit,
                                  uint32_t tile)
{
    if (access_unit(m, unit)->grads == HST_TIER_NVME)
        return &access_unit_buffer(m, at, POOL_GRADS)[tile];
    bool passes = access_is_resident(m, unit) && !m->in->deferred && !m->in->optimistic;
    if (passes && access_is_shared(m)) /* the sum of an exchange */
        return &access_unit_buffer(m, at, POOL_DEVICE_GRADS)[tile];
    return passes && !access_has_ranks(m) ? &m->turns[tile - access_unit(m, unit)->first_tile]
                                          : &m->grads[tile];
}

static struct cell *acts_in_host(struct model *m, struct scheduled at, uint32_t unit)
{
    bool offloaded = access_unit(m, unit)->acts == HST_TIER_NVME;
    return offloaded ? &buffer(m, at, POOL_ACTS)[unit] : &m->acts[unit];
}

/* Where the visit itself puts and finds them. */
static struct cell *acts_of_visit(struct model *m, struct scheduled at, uint32_t unit)
{
    if (m->in->apart && access_unit(m, unit)->acts != HST_TIER_HBM)
        return &buffer(m, at, POOL_DEVICE_ACTS)[unit];
    return acts_in_host(m, at, unit);
}

static struct cell *grads_of_visit(struct model *m, struct scheduled at, uint32_t unit,
                                   uint32_t tile)
{
    if (m->in->apart && access_unit(m, unit)->grads != HST_TIER_HBM)
        return &access_unit_buffer(m, at, POOL_DEVICE_GRADS)[tile];
    return access_grads_at_home(m, at, unit, tile);
}

bool access_states_away(const struct model *m, uint32_t unit, uint32_t tile)
{
    return tile - access_unit(m, unit)->first_tile < access_unit(m, unit)->nvme_states;
}

/* ---- what nodes do ---- */

int64_t access_step(const struct model *m, struct scheduled at)
{
    return (int64_t)m->step_of[at.step_window % SCHEDULER_WINDOWS];
}

bool access_is_late(const struct node *n)
{
    return n->phases != PHASE_BACKWARD;
}

static bool brings_grads(const struct model *m, const struct node *n)
{
    const struct graph_unit *u = access_unit(m, n->unit);
    return access_is_late(n) && u->grads == HST_TIER_NVME &&
           !graph_lends(m->graph, n, pool_for(m->graph->buffers, POOL_GRADS, u->size));
}

static void read_weights(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t tiles[MODEL_TILES], count = 0;
    if (scheduler_was_retained(m->scheduler, at) && m->stale != at.step_window)
        return;
    for (uint32_t i = 0; i <= access_unit(m, n->unit)->alias_count; i++) {
        const struct graph_unit *u = access_unit(m, access_view(m, n->unit, i));
        for (uint32_t t = 0; t < u->tile_count && u->weights == HST_TIER_NVME; t++)
            tiles[count++] = u->first_tile + t;
    }
    for (uint32_t i = count * n->tile / n->tile_count; i < count * (n->tile + 1) / n->tile_count;
         i++)
        access_copies(a, &m->nvme_weights[tiles[i]],
                      &access_unit_buffer(m, at, POOL_WEIGHTS)[tiles[i]]);
}

/* A tile of those that a visit reads, where it computes. */
static struct cell *tile_of_visit(struct model *m, struct scheduled at, uint32_t owner,
                                  uint32_t tile)
{
    if (access_is_copied(m, m->graph->nodes[at.node].unit))
        return &access_unit_buffer(m, at, POOL_DEVICE_WEIGHTS)[tile];
    return access_is_shared(m) ? access_gathered_tile(m, at, owner, tile)
                               : access_weights_in_host(m, at, owner, tile);
}

/* Own weights and those of others; of ranks that share them whole rows. */
static void visit_weights(struct model *m, struct scheduled at, struct accesses *a)
{
    const uint32_t unit = m->graph->nodes[at.node].unit;
    for (uint32_t i = 0; i <= access_unit(m, unit)->alias_count; i++) {
        const uint32_t owner = access_view(m, unit, i);
        const struct graph_unit *u = access_unit(m, owner);
        const int64_t age = access_weights_age(m, at, owner);
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            access_reads(a, tile_of_visit(m, at, owner, t), age);
        if (access_is_shared(m) && u->row_elements > 0)
            access_reads(a, access_row_of_visit(m, at, owner), age);
    }
}

static void visit_grads(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *unit = access_unit(m, n->unit);
    const bool grads = n->kind == NODE_BACKWARD && !unit->frozen;
    for (uint32_t t = 0; t < unit->tile_count && grads; t++)
        access_writes(a, grads_of_visit(m, at, n->unit, unit->first_tile + t), ANY_AGE,
                      access_step(m, at));
}

/* What a visit does with checkpoints that are not kept: an input's age says of which unit it is. */
static void visit_recomputed(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const uint32_t *order = m->in->forward;
    uint32_t place = 0, first;
    while (order[place] != n->unit)
        place++;
    for (first = place; access_unit(m, order[first])->recomputed;)
        first--;
    bool last = place + 1 == m->in->unit_count || !access_unit(m, order[place + 1])->recomputed;
    struct cell *cell = last ? &m->carry : &m->inner[place - first];
    int64_t input = access_step(m, at) * MODEL_UNITS + place;
    if (n->kind == NODE_RECOMPUTE && place > first)
        access_writes(a, cell, ANY_AGE, input);
    if (n->kind == NODE_RECOMPUTE)
        access_writes(a, &m->carry, place > first ? input : ANY_AGE, input + 1);
    if (n->kind == NODE_BACKWARD && place > first)
        access_reads(a, cell, input);
}

static void visit(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *unit = access_unit(m, n->unit);
    bool eval =
        (m->scheduler->step_window[at.step_window % SCHEDULER_WINDOWS].phases & PHASE_EVAL) != 0;
    bool blind = n->kind == NODE_BACKWARD && unit->blind_backward;
    if (!blind)
        visit_weights(m, at, a);
    (access_has_ranks(m) ? access_leave_row : visit_grads)(m, at, a);
    if (unit->act_bytes > 0 && !unit->no_forward && n->kind == NODE_FORWARD)
        access_writes(a, acts_of_visit(m, at, n->unit), ANY_AGE,
                      access_step(m, at) + (eval ? OF_EVAL : 0));
    if (unit->act_bytes > 0 && !unit->no_forward && n->kind != NODE_FORWARD)
        access_reads(a, acts_of_visit(m, at, n->unit), access_step(m, at));
    visit_recomputed(m, at, a);
}

static void move_acts(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    struct cell *nvme = &m->nvme_acts[n->unit];
    switch ((enum node_kind)n->kind) {
    case NODE_STORE_ACTS:
        access_copies(a, &buffer(m, at, POOL_DEVICE_ACTS)[n->unit], acts_in_host(m, at, n->unit));
        break;
    case NODE_WRITE_ACTS:
        access_copies(a, &buffer(m, at, POOL_ACTS)[n->unit], nvme);
        break;
    case NODE_READ_ACTS:
        access_copies(a, nvme, &buffer(m, at, POOL_ACTS)[n->unit]);
        break;
    default:
        access_copies(a, acts_in_host(m, at, n->unit), &buffer(m, at, POOL_DEVICE_ACTS)[n->unit]);
        break;
    }
}

static void move_grads(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *u = access_unit(m, n->unit);
    bool writes = n->kind == NODE_WRITE_GRADS;
    if (!writes && access_has_ranks(m)) {
        access_copy_row_of_grads(m, at, a);
        return;
    }
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        access_copies(a, &access_unit_buffer(m, at, writes ? POOL_GRADS : POOL_DEVICE_GRADS)[t],
                      writes ? &m->nvme_grads[t] : access_grads_at_home(m, at, n->unit, t));
}

static void read_grads(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct graph_unit *u = access_unit(m, m->graph->nodes[at.node].unit);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        if (!scheduler_was_retained(m->scheduler, at))
            access_copies(a, &m->nvme_grads[t], &access_unit_buffer(m, at, POOL_GRADS)[t]);
}

static void norm(struct model *m, struct scheduled at, struct accesses *a)
{
    uint32_t unit = m->graph->nodes[at.node].unit;
    const struct graph_unit *u = access_unit(m, unit);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        access_reads(a, access_grads_at_home(m, at, unit, t), access_step(m, at));
}

static void read_tile(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t slot = scheduler_pool_buffer(m->scheduler, at, POOL_TILES);
    if (access_states_away(m, n->unit, n->tile))
        access_copies(a, &m->nvme_states[n->tile], &buffer(m, at, POOL_TILES)[n->tile]);
    if (brings_grads(m, n))
        access_copies(a, &m->nvme_grads[n->tile], &m->lent_tile_grads[slot][n->tile]);
}

/* At home in memory: in place, or from one slot into the other. */
static void replaces(struct model *m, struct cell (*slots)[MODEL_TILES], const struct node *n,
                     uint32_t tile, int64_t step, struct accesses *a)
{
    int from = access_is_late(n) ? !m->slot : m->slot;
    if (!m->in->optimistic || access_is_resident(m, n->unit)) {
        access_writes(a, &slots[access_slot_of(m, n->unit)][tile], step, step + 1);
        return;
    }
    access_reads(a, &slots[from][tile], step);
    access_writes(a, &slots[!from][tile], ANY_AGE, step + 1);
}

/* What was written since the last version is forgotten. */
static void revert(struct model *m, struct scheduled at, struct accesses *a)
{
    (void)at;
    for (uint32_t u = 0; u < m->graph->unit_count; u++) {
        const struct graph_unit *unit = access_unit(m, u);
        if (unit->frozen) /* it has one slot, which nothing has written to */
            continue;
        for (uint32_t t = unit->first_tile; t < unit->first_tile + unit->tile_count; t++) {
            access_writes(a, &m->nvme_weights[t], ANY_AGE, m->committed_weights[t]);
            access_writes(a, &m->nvme_states[t], ANY_AGE, m->committed_states[t]);
        }
    }
}

/* A tile that the device updates, to its buffer, or from there. */
static void stream_tile(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t number = scheduler_pool_buffer(m->scheduler, at, POOL_DEVICE_TILES), t = n->tile;
    struct cell *states = &buffer(m, at, POOL_DEVICE_TILES)[t];
    struct cell *weights = &m->streamed_weights[number][t];
    bool store = n->kind == NODE_STORE_TILE;
    int slot =
        m->in->optimistic ? (access_is_late(n) ? !m->slot : m->slot) : access_slot_of(m, n->unit);
    slot ^= store && m->in->optimistic;
    access_copies(a, store ? states : &m->states[slot][t], store ? &m->states[slot][t] : states);
    access_copies(a, store ? weights : &m->weights[slot][t],
                  store ? &m->weights[slot][t] : weights);
    if (!store)
        access_copies(a, access_grads_at_home(m, at, n->unit, t), &m->streamed_grads[number][t]);
}

static void update_streamed(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t number = scheduler_pool_buffer(m->scheduler, at, POOL_DEVICE_TILES);
    int64_t step = access_step(m, at) - access_is_late(n);
    access_writes(a, &buffer(m, at, POOL_DEVICE_TILES)[n->tile], step, step + 1);
    access_writes(a, &m->streamed_weights[number][n->tile], step, step + 1);
    access_reads(a, &m->streamed_grads[number][n->tile], step);
}

static void update(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    int64_t step = access_step(m, at) - access_is_late(n);
    if (n->lane == LANE_DEVICE_UPDATE && !access_is_resident(m, n->unit)) {
        update_streamed(m, at, a);
        return;
    }
    for (uint32_t t = n->tile; t < n->tile + n->tile_count; t++) {
        struct cell *grads =
            brings_grads(m, n)
                ? &m->lent_tile_grads[scheduler_pool_buffer(m->scheduler, at, POOL_TILES)][t]
                : access_grads_at_home(m, at, n->unit, t);
        if (access_unit(m, n->unit)->weights == HST_TIER_NVME)
            access_writes(a, &access_unit_buffer(m, at, POOL_WEIGHTS)[t], step, step + 1);
        else
            replaces(m, m->weights, n, t, step, a);
        if (access_states_away(m, n->unit, t))
            access_writes(a, &buffer(m, at, POOL_TILES)[t], step, step + 1);
        else
            replaces(m, m->states, n, t, step, a);
        access_reads(a, grads, step);
    }
}

static void write_tile(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    for (uint32_t t = n->tile; t < n->tile + n->tile_count; t++) {
        if (access_states_away(m, n->unit, t))
            access_copies(a, &buffer(m, at, POOL_TILES)[t], &m->nvme_states[t]);
        if (access_unit(m, n->unit)->weights == HST_TIER_NVME)
            access_copies(a, &access_unit_buffer(m, at, POOL_WEIGHTS)[t], &m->nvme_weights[t]);
    }
}

/* A resident tile, by way of a slot, whose first part holds weights here. */
static void copy_tile(struct model *m, struct scheduled at, struct accesses *a)
{
    uint32_t tile = m->graph->nodes[at.node].tile;
    bool save = m->graph->nodes[at.node].kind == NODE_SAVE_TILES;
    struct cell *states = &buffer(m, at, POOL_TILES)[tile];
    struct cell *weights =
        &m->lent_tile_grads[scheduler_pool_buffer(m->scheduler, at, POOL_TILES)][tile];
    access_copies(a, save ? states : &m->states[0][tile], save ? &m->saved_states[tile] : states);
    if (!m->in->derived_weights)
        access_copies(a, save ? weights : &m->weights[0][tile],
                      save ? &m->saved_weights[tile] : weights);
}

static void save_tiles(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    bool weights = access_unit(m, n->unit)->weights != HST_TIER_NVME && !m->in->derived_weights;
    bool resident = access_is_resident(m, n->unit);
    if (resident)
        copy_tile(m, at, a);
    for (uint32_t t = n->tile; !resident && t < n->tile + n->tile_count; t++) {
        if (!access_states_away(m, n->unit, t))
            access_copies(a, &m->states[m->slot][t], &m->saved_states[t]);
        if (weights)
            access_copies(a, &m->weights[m->slot][t], &m->saved_weights[t]);
    }
}

typedef void access_fn(struct model *m, struct scheduled at, struct accesses *a);

struct accesses accesses_of(struct model *m, struct scheduled at)
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
        [NODE_COPY_WEIGHTS] = access_copy_weights,
        [NODE_COPY_GRADS] = move_grads,
        [NODE_COPY_TILE] = copy_tile,
        [NODE_FETCH_TILE] = stream_tile,
        [NODE_STORE_TILE] = stream_tile,
        [NODE_STORE_ACTS] = move_acts,
        [NODE_FETCH_ACTS] = move_acts,
        [NODE_UPDATE] = update,
        [NODE_NORM] = norm,
        [NODE_REVERT] = revert,
        [NODE_FORWARD] = visit,
        [NODE_RECOMPUTE] = visit,
        [NODE_BACKWARD] = visit,
        [NODE_GATHER] = access_gather,
        [NODE_GATHER_NEAR] = access_gather_near,
        [NODE_EXCHANGE] = access_exchange,
        [NODE_GATHER_GRADS] = access_gather_grads,
    };
    struct accesses a = {.count = 0};
    unsigned kind = m->graph->nodes[at.node].kind;
    if (of[kind])
        of[kind](m, at, &a);
    return a;
}
