/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges what nodes find and do: ages of bytes, who uses a cell at the same time, whose a buffer
 * is, what a version holds.
 */
#include "memory_access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- buffers ---- */

static void spoil_cell(struct model *m, struct cell *cell, uint32_t pool, uint32_t number)
{
    if (cell->readers || cell->writers)
        fail_msg("%s: buffer %u of pool %u is lent while it is used", m->name, number, pool);
    cell->age = GARBAGE;
}

static void spoil(struct model *m, uint32_t pool, uint32_t number)
{
    for (uint32_t i = 0; i < MODEL_UNITS; i++)
        spoil_cell(m, &m->rows[pool][number][i], pool, number);
    for (uint32_t i = 0; i < MODEL_TILES; i++) {
        bool slot = pool == POOL_TILES, streamed = pool == POOL_DEVICE_TILES;
        struct cell *cells[] = {&m->lent[pool][number][i],
                                slot ? &m->lent_tile_grads[number][i]
                                     : &m->streamed_weights[number][i],
                                &m->streamed_grads[number][i]};
        for (int c = 0; c < (slot ? 2 : streamed ? 3 : 1); c++)
            spoil_cell(m, cells[c], pool, number);
    }
}

/* A buffer has one reservation at a time; only an heir finds in it what was there. */
static void check_owners(struct model *m, struct scheduled at)
{
    const struct node *n = &m->graph->nodes[at.node];
    for (unsigned i = 0; i < NODE_RESERVATIONS && n->reservation[i] != GRAPH_NONE; i++) {
        const struct graph_reservation *reservation = &m->graph->reservations[n->reservation[i]];
        uint32_t number = scheduler_buffer(m->scheduler, at, i);
        if (number >= m->graph->buffers[reservation->pool])
            fail_msg("%s: node %u has no buffer", m->name, at.node);
        struct scheduler_holder *owner = &m->owner[reservation->pool][number];
        if (owner->step_window == at.step_window && owner->reservation == n->reservation[i])
            continue;
        if (reservation->first_user != at.node)
            fail_msg("%s: node %u of period %llu finds its buffer with another lease", m->name,
                     at.node, (unsigned long long)at.step_window);
        if (owner->step_window + 1 != at.step_window || owner->reservation != reservation->legacy)
            spoil(m, reservation->pool, number);
        *owner = (struct scheduler_holder){at.step_window, n->reservation[i]};
    }
}

/* ---- calls ---- */

void model_save_kept_grads(struct model *m)
{
    uint64_t last = m->scheduler->opened - 1;
    for (uint32_t i = 0; i < m->graph->node_count; i++) {
        const struct node *n = &m->graph->nodes[i];
        const struct graph_unit *u = access_unit(m, n->unit);
        if (n->kind != NODE_NORM || n->reservation[0] == GRAPH_NONE)
            continue;
        uint32_t left = scheduler_left_to_heir(m->scheduler, last, n->reservation[0]);
        for (uint32_t t = u->first_tile; left != GRAPH_NONE && t < u->first_tile + u->tile_count;
             t++)
            m->nvme_grads[t].age =
                m->lent[m->graph->reservations[n->reservation[0]].pool][left][t].age;
    }
}

void model_open(struct model *m, const struct graph_case *c, const struct graph *graph,
                struct scheduler *scheduler)
{
    memset(m, 0, sizeof *m);
    m->in = &c->in;
    m->graph = graph;
    m->scheduler = scheduler;
    m->name = c->name;
    m->clipped = m->agreed = -1;
    m->stale = UINT64_MAX;
    for (uint32_t i = 0; i < MODEL_UNITS; i++) {
        m->normed[i] = -1;
        m->acts[i].age = m->nvme_acts[i].age = GARBAGE;
        m->home_rows[0][i].age = m->home_rows[1][i].age = m->home_grads[i].age = GARBAGE;
        for (uint32_t reader = 0; reader < MODEL_UNITS; reader++)
            m->near[reader][i].age = GARBAGE;
    }
    for (uint32_t i = 0; i < MODEL_TILES; i++)
        m->grads[i].age = m->nvme_grads[i].age = GARBAGE;
    model_spoil(m);
    for (uint32_t pool = 0; pool < POOL_COUNT; pool++)
        for (uint32_t i = 0; i < MODEL_BUFFERS; i++) {
            m->owner[pool][i] = (struct scheduler_holder){UINT64_MAX - 1, GRAPH_NONE};
        }
}

void model_spoil(struct model *m)
{
    for (uint32_t pool = 0; pool < POOL_COUNT; pool++)
        for (uint32_t i = 0; i < MODEL_BUFFERS; i++)
            spoil(m, pool, i);
}

static void spoil_unused(struct model *m, struct cell *cell)
{
    if (cell->readers || cell->writers)
        fail_msg("%s: what an update has written is used while it is judged", m->name);
    cell->age = GARBAGE;
}

/* What an update that does not stand has written in memory, and what was made of it. */
static void spoil_slot(struct model *m, int slot)
{
    for (uint32_t i = 0; i < m->in->unit_count; i++) {
        const struct graph_unit *u = access_unit(m, i);
        if (access_is_resident(m, i) || u->frozen)
            continue;
        spoil_unused(m, &m->home_rows[slot][i]);
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++) {
            spoil_unused(m, &m->weights[slot][t]);
            spoil_unused(m, &m->states[slot][t]);
        }
    }
}

void model_verdict(struct model *m, uint64_t next, enum verdict verdict)
{
    if (verdict != VERDICT_STANDS)
        spoil_slot(m, !m->slot);
    m->slot ^= verdict != VERDICT_SKIPS;
    m->stale = verdict == VERDICT_STANDS ? UINT64_MAX : next;
}

void model_step_window(struct model *m, uint64_t step_window, uint64_t steps)
{
    m->step_of[step_window % SCHEDULER_WINDOWS] = steps;
}

static void check_norms(struct model *m, struct scheduled at)
{
    const struct node *n = &m->graph->nodes[at.node];
    if (n->kind == (access_has_ranks(m) ? NODE_AGREE : NODE_CLIP))
        for (uint32_t i = 0; i < m->in->unit_count; i++)
            if (access_unit(m, i)->tile_count > 0 && !access_unit(m, i)->frozen &&
                m->normed[i] != access_step(m, at))
                fail_msg("%s: the clip factor is wanted before unit %u's norm", m->name, i);
    if (n->kind == NODE_CLIP && access_has_ranks(m) && m->agreed != access_step(m, at))
        fail_msg("%s: the clip factor is wanted before ranks agree on the norm", m->name);
    if (n->kind != NODE_UPDATE)
        return;
    bool all = m->in->deferred || (m->in->optimistic && access_is_late(n));
    int64_t known = all ? m->clipped : m->normed[n->unit];
    if (known != access_step(m, at) - access_is_late(n))
        fail_msg("%s: unit %u is updated before its norm", m->name, n->unit);
    if (n->lane == LANE_DEVICE_UPDATE && access_is_late(n) && m->clipped < access_step(m, at) - 1)
        fail_msg("%s: unit %u is updated before its step is over", m->name, n->unit);
    if (!access_is_late(n) && !m->in->optimistic && m->clipped == access_step(m, at))
        fail_msg("%s: unit %u is updated when its step is over", m->name, n->unit);
}

/* ---- versions ---- */

static void check_stored(struct model *m, struct scheduled at, const struct cell *cell,
                         uint32_t tile)
{
    if (cell->age != access_step(m, at) && cell->writers == 0)
        fail_msg("%s: period %llu commits tile %u as it was at step %lld, not %lld", m->name,
                 (unsigned long long)at.step_window, tile, (long long)cell->age,
                 (long long)access_step(m, at));
}

/* Of several ranks a version stands when all have it. */
static enum node_kind makes_version(const struct model *m)
{
    return access_has_ranks(m) && m->in->stored ? NODE_VOTE : NODE_COMMIT;
}

/* A version has everything of the step before the step window, written or being written, and
 * nothing of a later one is written before it is made. Without a store it has what is on drives. */
static void check_version(struct model *m, struct scheduled at)
{
    const struct node *n = &m->graph->nodes[at.node];
    if (m->committing && (n->kind == NODE_WRITE_TILE || n->kind == NODE_SAVE_TILES))
        fail_msg("%s: node %u of period %llu writes while a version is made", m->name, at.node,
                 (unsigned long long)at.step_window);
    for (uint32_t t = n->tile; m->in->optimistic && n->kind == NODE_WRITE_TILE &&
                               !access_is_late(n) && t < n->tile + n->tile_count;
         t++)
        if (m->committed_states[t] != access_step(m, at) ||
            m->committed_weights[t] != access_step(m, at))
            fail_msg("%s: tile %u of period %llu is written with no version to go back to", m->name,
                     t, (unsigned long long)at.step_window);
    if (n->kind == NODE_VOTE && !m->prepared)
        fail_msg("%s: period %llu votes for a version that is not there", m->name,
                 (unsigned long long)at.step_window);
    if (n->kind != NODE_COMMIT)
        return;
    assert_false(m->committing);
    m->committing = true;
    for (uint32_t u = 0; u < m->graph->unit_count; u++) {
        const struct graph_unit *unit = access_unit(m, u);
        bool offloaded = unit->weights == HST_TIER_NVME;
        if (unit->frozen) /* the first version has it */
            continue;
        for (uint32_t t = unit->first_tile; t < unit->first_tile + unit->tile_count; t++) {
            bool states = access_states_away(m, u, t), memory = m->in->stored;
            if (states || memory)
                check_stored(m, at, states ? &m->nvme_states[t] : &m->saved_states[t], t);
            if (offloaded || (memory && !m->in->derived_weights))
                check_stored(m, at, offloaded ? &m->nvme_weights[t] : &m->saved_weights[t], t);
        }
    }
}

void model_begin(struct model *m, struct scheduled at)
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
                m->name, at.node, node_kind_name(n->kind), n->unit,
                (unsigned long long)at.step_window);
        if (x->expects != ANY_AGE && x->cell->age != x->expects)
            fail_msg(
                "%s: node %u (%s, unit %u) of period %llu finds bytes of step %lld, wants %lld",
                m->name, at.node, node_kind_name(n->kind), n->unit,
                (unsigned long long)at.step_window, (long long)x->cell->age, (long long)x->expects);
        if (x->writes)
            x->cell->writers++;
        else
            x->cell->readers++;
    }
}

void model_end(struct model *m, struct scheduled at)
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
        m->normed[n->unit] = access_step(m, at);
    if (n->kind == NODE_AGREE)
        m->agreed = access_step(m, at);
    if (n->kind == NODE_CLIP)
        m->clipped = access_step(m, at);
    m->prepared = n->kind == NODE_COMMIT || (m->prepared && n->kind != NODE_VOTE);
    if (n->kind != makes_version(m))
        return;
    m->committing = false;
    for (uint32_t t = 0; t < MODEL_TILES; t++) {
        m->committed_weights[t] = m->committed_states[t] = access_step(m, at);
    }
}
