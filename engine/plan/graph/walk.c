/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which node may run. Four rules, and no others: a lane starts its nodes in order; a node
 * waits for its dependencies; a pool lends its buffers in order; a lease that goes on with the
 * buffer of the period before waits until that one lets go.
 */
#include "plan/graph/walk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum walk_state { STATE_WAITING = 0, STATE_STARTED, STATE_DONE };

static struct walk_period *period_of(const struct walk *walk, uint64_t period)
{
    return (struct walk_period *)&walk->period[period % WALK_PERIODS];
}

/* Periods before the tracked ones are done: walk_may_open saw to that. */
static bool is_tracked(const struct walk *walk, uint64_t period)
{
    return period < walk->opened && period + WALK_PERIODS >= walk->opened;
}

bool walk_is_run(const struct walk *walk, struct walk_at at)
{
    return (walk->graph->nodes[at.node].parts & period_of(walk, at.period)->parts) != 0;
}

/* ---- opening and closing ---- */

int walk_init(struct walk *walk, const struct graph *graph)
{
    *walk = (struct walk){.graph = graph};
    bool complete = true;
    for (int p = 0; p < WALK_PERIODS; p++) {
        walk->period[p].state = calloc((size_t)graph->node_count + 1, 1);
        walk->period[p].leases =
            calloc((size_t)graph->lease_count + 1, sizeof *walk->period[p].leases);
        complete = complete && walk->period[p].state && walk->period[p].leases;
    }
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        uint32_t count = graph->buffers[pool];
        walk->free[pool] = calloc((size_t)count + 1, sizeof(uint32_t));
        walk->loan[pool] = calloc((size_t)count + 1, sizeof(struct walk_loan));
        if (!walk->free[pool] || !walk->loan[pool]) {
            complete = false;
            continue;
        }
        for (uint32_t i = 0; i < count; i++)
            walk->free[pool][i] = count - 1 - i; /* lent in rising order */
        walk->free_count[pool] = count;
    }
    if (complete)
        return 0;
    walk_free(walk);
    return -ENOMEM;
}

void walk_free(struct walk *walk)
{
    for (int p = 0; p < WALK_PERIODS; p++) {
        free(walk->period[p].state);
        free(walk->period[p].leases);
    }
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        free(walk->free[pool]);
        free(walk->loan[pool]);
    }
    *walk = (struct walk){0};
}

bool walk_may_open(const struct walk *walk)
{
    return walk->opened < WALK_PERIODS || period_of(walk, walk->opened)->left == 0;
}

bool walk_is_idle(const struct walk *walk)
{
    for (uint64_t p = 0; p < walk->opened; p++)
        if (is_tracked(walk, p) && period_of(walk, p)->left > 0)
            return false;
    return true;
}

/* ---- leases ---- */

static void give_back(struct walk *walk, uint32_t pool, uint32_t buffer)
{
    walk->free[pool][walk->free_count[pool]++] = buffer;
}

/* The last user of a lease is done. Its buffer goes to its heir, which may not be open yet; or to
 * the pool, where there is none, or it was passed over, or what the buffer holds is not whole. */
static void let_go(struct walk *walk, uint64_t period, uint32_t number)
{
    const struct graph_lease *lease = &walk->graph->leases[number];
    struct walk_lease *l = &period_of(walk, period)->leases[number];
    l->settled = true;
    if (l->kept != GRAPH_NONE) { /* nobody took it over */
        give_back(walk, lease->pool, l->kept);
        l->kept = GRAPH_NONE;
    }
    if (l->buffer == GRAPH_NONE)
        return;
    bool hands_over = lease->heir != GRAPH_NONE && !l->broken;
    if (hands_over && period + 1 == walk->opened)
        return; /* walk_open moves it */
    struct walk_lease *heir = hands_over ? &period_of(walk, period + 1)->leases[lease->heir] : NULL;
    if (heir && heir->users > 0)
        heir->kept = l->buffer;
    else
        give_back(walk, lease->pool, l->buffer);
    l->buffer = GRAPH_NONE;
}

static void user_done(struct walk *walk, struct walk_at at, uint32_t number)
{
    struct walk_lease *l = &period_of(walk, at.period)->leases[number];
    assert(l->users > 0);
    if (--l->users == 0)
        let_go(walk, at.period, number);
}

static void finish(struct walk *walk, struct walk_at at)
{
    struct walk_period *period = period_of(walk, at.period);
    const struct node *node = &walk->graph->nodes[at.node];
    period->state[at.node] = STATE_DONE;
    period->left--;
    for (unsigned i = 0; i < NODE_LEASES; i++)
        if (node->lease[i] != GRAPH_NONE)
            user_done(walk, at, node->lease[i]);
}

/* A node that is not run is done at once: it holds no buffer, and no lane has to come by. Where it
 * was to be run when the period was opened, the leases it would have used are broken. */
static void pass_over(struct walk *walk, uint64_t period, bool broken)
{
    for (uint32_t i = 0; i < walk->graph->node_count; i++) {
        const struct node *node = &walk->graph->nodes[i];
        struct walk_at at = {period, i};
        if (period_of(walk, period)->state[i] != STATE_WAITING || walk_is_run(walk, at))
            continue;
        for (unsigned l = 0; broken && l < NODE_LEASES; l++)
            if (node->lease[l] != GRAPH_NONE)
                period_of(walk, period)->leases[node->lease[l]].broken = true;
        finish(walk, at);
    }
}

void walk_open(struct walk *walk, unsigned parts)
{
    assert(walk_may_open(walk));
    const struct graph *graph = walk->graph;
    uint64_t number = walk->opened;
    struct walk_period *period = period_of(walk, number), *before = period_of(walk, number + 1);
    memset(period->state, STATE_WAITING, graph->node_count);
    period->parts = parts;
    period->left = graph->node_count;
    for (uint32_t i = 0; i < graph->lease_count; i++) {
        const struct graph_lease *lease = &graph->leases[i];
        struct walk_lease *l = &period->leases[i];
        *l = (struct walk_lease){.users = lease->users, .buffer = GRAPH_NONE, .kept = GRAPH_NONE};
        if (number == 0 || lease->legacy == GRAPH_NONE)
            continue;
        struct walk_lease *from = &before->leases[lease->legacy];
        if (from->users == 0) {
            l->kept = from->buffer;
            from->buffer = GRAPH_NONE;
        }
    }
    walk->opened++;
    pass_over(walk, number, false);
}

/* True where the lease that is taken over from is still in use. */
static bool legacy_in_use(const struct walk *walk, uint64_t period, uint32_t number)
{
    uint32_t legacy = walk->graph->leases[number].legacy;
    if (legacy == GRAPH_NONE || period == 0 || !is_tracked(walk, period - 1))
        return false;
    return period_of(walk, period - 1)->leases[legacy].users > 0;
}

/* Moves a place in a pool on to the lease whose turn it is; false where all have had it. */
static bool find_turn(const struct walk *walk, uint32_t pool, struct walk_place *place)
{
    const struct graph *graph = walk->graph;
    for (; place->period < walk->opened; place->period++, place->at = 0)
        for (; place->at < graph->pool_count[pool]; place->at++)
            if (is_tracked(walk, place->period) &&
                !period_of(walk, place->period)->leases[graph->pool[pool][place->at]].settled)
                return true;
    return false;
}

static bool is_turn(const struct walk *walk, uint64_t period, uint32_t number)
{
    uint32_t pool = walk->graph->leases[number].pool;
    struct walk_place place = walk->pool[pool];
    return find_turn(walk, pool, &place) && place.period == period &&
           walk->graph->pool[pool][place.at] == number;
}

static bool lease_can_be_had(const struct walk *walk, uint64_t period, uint32_t number)
{
    const struct graph_lease *lease = &walk->graph->leases[number];
    const struct walk_lease *l = &period_of(walk, period)->leases[number];
    if (l->buffer != GRAPH_NONE)
        return true;
    if (legacy_in_use(walk, period, number) || !is_turn(walk, period, number))
        return false;
    return l->kept != GRAPH_NONE || walk->free_count[lease->pool] > 0;
}

static void borrow(struct walk *walk, uint64_t period, uint32_t number)
{
    const struct graph_lease *lease = &walk->graph->leases[number];
    struct walk_lease *l = &period_of(walk, period)->leases[number];
    if (l->buffer != GRAPH_NONE)
        return;
    l->inherited = l->kept != GRAPH_NONE;
    l->buffer = l->inherited ? l->kept : walk->free[lease->pool][--walk->free_count[lease->pool]];
    l->kept = GRAPH_NONE;
    l->settled = true;
    walk->loan[lease->pool][l->buffer] = (struct walk_loan){period, number};
    (void)find_turn(walk, lease->pool, &walk->pool[lease->pool]); /* is_turn stays cheap */
}

/* ---- nodes ---- */

bool walk_next(struct walk *walk, enum lane lane, struct walk_at *at)
{
    const struct graph *graph = walk->graph;
    struct walk_place *place = &walk->lane[lane];
    for (; place->period < walk->opened; place->period++, place->at = 0)
        for (; place->at < graph->lane_count[lane]; place->at++) {
            *at = (struct walk_at){place->period, graph->lane[lane][place->at]};
            if (is_tracked(walk, at->period) &&
                period_of(walk, at->period)->state[at->node] == STATE_WAITING)
                return true;
        }
    return false;
}

/* A node that is not run in its period may be under way in the one before, and whoever waits for it
 * waits for that one: an evaluation behind a drain must see what the drain updates. Where it is not
 * done, *at is what is waited for. */
static bool is_done(const struct walk *walk, struct walk_at *at)
{
    struct walk_at here = *at;
    for (; is_tracked(walk, here.period); here.period--) {
        uint8_t state = period_of(walk, here.period)->state[here.node];
        *at = here;
        if (state == STATE_STARTED || (state == STATE_WAITING && walk_is_run(walk, here)))
            return false;
        if (walk_is_run(walk, here))
            return true;
    }
    return true;
}

/* A visit waits for each tile of its unit, and is asked after each of them: what was done is not
 * looked at again. */
static bool first_undone_dep(struct walk *walk, struct walk_at at, struct walk_at *on)
{
    const struct graph *graph = walk->graph;
    const struct node *node = &graph->nodes[at.node];
    struct walk_met *met = &walk->met[node->lane];
    if (met->at.period != at.period || met->at.node != at.node)
        *met = (struct walk_met){.at = at};
    for (; met->deps < node->dep_count; met->deps++) {
        uint32_t dep = graph->deps[node->first_dep + met->deps];
        bool before = (dep & DEP_BEFORE) != 0;
        *on = (struct walk_at){at.period - before, dep & ~DEP_BEFORE};
        if (!(before && at.period == 0) && !is_done(walk, on))
            return true;
    }
    return false;
}

bool walk_ready(struct walk *walk, struct walk_at at)
{
    const struct node *node = &walk->graph->nodes[at.node];
    struct walk_at ignored;
    if (first_undone_dep(walk, at, &ignored))
        return false;
    for (unsigned i = 0; i < NODE_LEASES; i++)
        if (node->lease[i] != GRAPH_NONE && !lease_can_be_had(walk, at.period, node->lease[i]))
            return false;
    return true;
}

/* A user of the lease that is not done. */
static bool undone_user(const struct walk *walk, struct walk_loan loan, struct walk_at *on)
{
    const struct graph_lease *lease = &walk->graph->leases[loan.lease];
    const struct walk_period *period = period_of(walk, loan.period);
    for (uint32_t i = lease->last_user + 1; i-- > lease->first_user;) {
        const uint32_t *has = walk->graph->nodes[i].lease;
        *on = (struct walk_at){loan.period, i};
        bool uses = has[0] == loan.lease || has[1] == loan.lease || has[2] == loan.lease;
        if (uses && (period->state[i] == STATE_STARTED ||
                     (period->state[i] == STATE_WAITING && walk_is_run(walk, *on))))
            return true;
    }
    return false;
}

/* It finds the buffer that comes back first in program order, of a pool that is all lent. */
static bool next_to_come_back(const struct walk *walk, uint32_t pool, struct walk_at *on)
{
    struct walk_at first = {UINT64_MAX, 0}, user;
    for (uint32_t i = 0; i < walk->graph->buffers[pool]; i++) {
        struct walk_loan loan = walk->loan[pool][i];
        uint32_t last = walk->graph->leases[loan.lease].last_user;
        bool sooner =
            loan.period < first.period || (loan.period == first.period && last < first.node);
        if (!sooner || !is_tracked(walk, loan.period) || !undone_user(walk, loan, &user))
            continue;
        first = (struct walk_at){loan.period, last};
        *on = user;
    }
    return first.period != UINT64_MAX;
}

static bool lease_waits_for(const struct walk *walk, uint64_t period, uint32_t number,
                            struct walk_at *on)
{
    const struct graph_lease *lease = &walk->graph->leases[number];
    struct walk_place place = walk->pool[lease->pool];
    if (legacy_in_use(walk, period, number))
        return undone_user(walk, (struct walk_loan){period - 1, lease->legacy}, on);
    if (is_turn(walk, period, number))
        return next_to_come_back(walk, lease->pool, on);
    if (!find_turn(walk, lease->pool, &place))
        return false;
    uint32_t other = walk->graph->pool[lease->pool][place.at];
    *on = (struct walk_at){place.period, walk->graph->leases[other].first_user};
    return true;
}

bool walk_waits_for(struct walk *walk, struct walk_at at, struct walk_at *on)
{
    const struct node *node = &walk->graph->nodes[at.node];
    if (first_undone_dep(walk, at, on))
        return true;
    for (unsigned i = 0; i < NODE_LEASES; i++)
        if (node->lease[i] != GRAPH_NONE && !lease_can_be_had(walk, at.period, node->lease[i]))
            return lease_waits_for(walk, at.period, node->lease[i], on);
    return false;
}

void walk_start(struct walk *walk, struct walk_at at)
{
    const struct node *node = &walk->graph->nodes[at.node];
    assert(walk->lane[node->lane].period == at.period &&
           walk->graph->lane[node->lane][walk->lane[node->lane].at] == at.node);
    period_of(walk, at.period)->state[at.node] = STATE_STARTED;
    walk->lane[node->lane].at++;
    for (unsigned i = 0; i < NODE_LEASES; i++)
        if (node->lease[i] != GRAPH_NONE)
            borrow(walk, at.period, node->lease[i]);
}

void walk_done(struct walk *walk, struct walk_at at)
{
    assert(period_of(walk, at.period)->state[at.node] == STATE_STARTED);
    finish(walk, at);
}

void walk_narrow(struct walk *walk, uint64_t period, unsigned parts)
{
    assert(is_tracked(walk, period));
    period_of(walk, period)->parts &= parts;
    pass_over(walk, period, true);
}

void walk_forget(struct walk *walk)
{
    assert(walk_is_idle(walk));
    for (uint64_t p = 0; p < walk->opened; p++)
        for (uint32_t i = 0; is_tracked(walk, p) && i < walk->graph->lease_count; i++) {
            struct walk_lease *l = &period_of(walk, p)->leases[i];
            if (l->buffer == GRAPH_NONE)
                continue;
            give_back(walk, walk->graph->leases[i].pool, l->buffer);
            l->buffer = GRAPH_NONE;
        }
}

uint32_t walk_buffer(const struct walk *walk, struct walk_at at, unsigned i)
{
    uint32_t number = walk->graph->nodes[at.node].lease[i];
    return number == GRAPH_NONE ? GRAPH_NONE : period_of(walk, at.period)->leases[number].buffer;
}

uint32_t walk_pool_buffer(const struct walk *walk, struct walk_at at, enum pool pool)
{
    const struct node *node = &walk->graph->nodes[at.node];
    for (unsigned i = 0; i < NODE_LEASES; i++)
        if (node->lease[i] != GRAPH_NONE && walk->graph->leases[node->lease[i]].pool == pool)
            return walk_buffer(walk, at, i);
    return GRAPH_NONE;
}

uint32_t walk_left_to_heir(const struct walk *walk, uint64_t period, uint32_t lease)
{
    uint32_t heir = walk->graph->leases[lease].heir;
    const struct walk_lease *l = &period_of(walk, period)->leases[lease];
    if (heir == GRAPH_NONE || !is_tracked(walk, period) || l->users > 0)
        return GRAPH_NONE;
    if (l->buffer != GRAPH_NONE || period + 1 == walk->opened)
        return l->buffer;
    const struct walk_lease *h = &period_of(walk, period + 1)->leases[heir];
    return h->inherited ? h->buffer : h->kept;
}

bool walk_was_kept(const struct walk *walk, struct walk_at at)
{
    uint32_t number = walk->graph->nodes[at.node].lease[0];
    return number != GRAPH_NONE && period_of(walk, at.period)->leases[number].inherited;
}
