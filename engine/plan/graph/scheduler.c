/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which node may run. Four rules, and no others: a lane starts its nodes in order; a node
 * waits for its dependencies; a pool lends its buffers in order; a reservation that goes on with
 * the buffer of the step window before waits until that one lets go.
 */
#include "plan/graph/scheduler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct scheduler_window *step_window_of(const struct scheduler *scheduler,
                                               uint64_t step_window)
{
    return (struct scheduler_window *)&scheduler->step_window[step_window % SCHEDULER_WINDOWS];
}

/* Step windows before the tracked ones are done: scheduler_may_open saw to that. */
static bool is_tracked(const struct scheduler *scheduler, uint64_t step_window)
{
    return step_window < scheduler->opened && step_window + SCHEDULER_WINDOWS >= scheduler->opened;
}

/* The first step window that is tracked: what counts from it costs the same after any number. */
static uint64_t first_tracked(const struct scheduler *scheduler)
{
    return scheduler->opened > SCHEDULER_WINDOWS ? scheduler->opened - SCHEDULER_WINDOWS : 0;
}

/* ---- opening and closing ---- */

int scheduler_init(struct scheduler *scheduler, const struct graph *graph)
{
    *scheduler = (struct scheduler){.graph = graph};
    scheduler->phases = calloc((size_t)graph->node_count + 1, sizeof *scheduler->phases);
    bool complete = scheduler->phases != NULL;
    for (uint32_t i = 0; complete && i < graph->node_count; i++)
        scheduler->phases[i] = graph->nodes[i].phases;
    for (int p = 0; p < SCHEDULER_WINDOWS; p++) {
        scheduler->step_window[p].state = calloc((size_t)graph->node_count + 1, 1);
        scheduler->step_window[p].reservations = calloc(
            (size_t)graph->reservation_count + 1, sizeof *scheduler->step_window[p].reservations);
        complete =
            complete && scheduler->step_window[p].state && scheduler->step_window[p].reservations;
    }
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        uint32_t count = graph->buffers[pool];
        scheduler->free[pool] = calloc((size_t)count + 1, sizeof(uint32_t));
        scheduler->holder[pool] = calloc((size_t)count + 1, sizeof(struct scheduler_holder));
        if (!scheduler->free[pool] || !scheduler->holder[pool]) {
            complete = false;
            continue;
        }
        for (uint32_t i = 0; i < count; i++)
            scheduler->free[pool][i] = count - 1 - i; /* lent in rising order */
        scheduler->free_count[pool] = count;
    }
    if (complete)
        return 0;
    scheduler_free(scheduler);
    return -ENOMEM;
}

void scheduler_free(struct scheduler *scheduler)
{
    for (int p = 0; p < SCHEDULER_WINDOWS; p++) {
        free(scheduler->step_window[p].state);
        free(scheduler->step_window[p].reservations);
    }
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        free(scheduler->free[pool]);
        free(scheduler->holder[pool]);
    }
    free(scheduler->phases);
    *scheduler = (struct scheduler){0};
}

bool scheduler_is_idle(const struct scheduler *scheduler)
{
    for (uint64_t p = first_tracked(scheduler); p < scheduler->opened; p++)
        if (step_window_of(scheduler, p)->left > 0)
            return false;
    return true;
}

/* ---- reservations ---- */

/* Field by field: to read the whole at once would wait until stores of its parts have ended. */
static void copy_scheduled(struct scheduled *to, const struct scheduled *from)
{
    to->step_window = from->step_window;
    to->node = from->node;
}

static void give_back(struct scheduler *scheduler, uint32_t pool, uint32_t buffer)
{
    scheduler->free[pool][scheduler->free_count[pool]++] = buffer;
}

/* The last user of a reservation is done. Its buffer goes to its heir, which may not be open yet;
 * or to the pool, where there is none, or it was passed over, or what the buffer holds is not
 * whole. */
static void let_go(struct scheduler *scheduler, uint64_t step_window, uint32_t number)
{
    const struct graph_reservation *reservation = &scheduler->graph->reservations[number];
    struct scheduler_reservation *l = &step_window_of(scheduler, step_window)->reservations[number];
    l->settled = true;
    scheduler->turns[reservation->pool]++;
    if (l->retained != GRAPH_NONE) { /* nobody took it over */
        give_back(scheduler, reservation->pool, l->retained);
        l->retained = GRAPH_NONE;
    }
    if (l->buffer == GRAPH_NONE)
        return;
    bool hands_over = reservation->heir != GRAPH_NONE && !l->broken;
    if (hands_over && step_window + 1 == scheduler->opened)
        return; /* scheduler_open moves it */
    struct scheduler_reservation *heir =
        hands_over ? &step_window_of(scheduler, step_window + 1)->reservations[reservation->heir]
                   : NULL;
    if (heir && heir->users > 0)
        heir->retained = l->buffer;
    else
        give_back(scheduler, reservation->pool, l->buffer);
    l->buffer = GRAPH_NONE;
}

static void user_done(struct scheduler *scheduler, struct scheduled at, uint32_t number)
{
    struct scheduler_reservation *l =
        &step_window_of(scheduler, at.step_window)->reservations[number];
    assert(l->users > 0);
    if (--l->users == 0)
        let_go(scheduler, at.step_window, number);
}

static void finish(struct scheduler *scheduler, struct scheduled at)
{
    struct scheduler_window *step_window = step_window_of(scheduler, at.step_window);
    const struct node *node = &scheduler->graph->nodes[at.node];
    step_window->state[at.node] = STATE_DONE;
    step_window->left--;
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        if (node->reservation[i] != GRAPH_NONE)
            user_done(scheduler, at, node->reservation[i]);
}

/* A node that is not run is done at once: it holds no buffer, and no lane has to come by. Where it
 * was to be run when the step window was opened, the reservations it would have used are broken. */
static void pass_over(struct scheduler *scheduler, uint64_t step_window, bool broken)
{
    for (uint32_t i = 0; i < scheduler->graph->node_count; i++) {
        const struct node *node = &scheduler->graph->nodes[i];
        struct scheduled at = {step_window, i};
        if (step_window_of(scheduler, step_window)->state[i] != STATE_WAITING ||
            scheduler_is_run(scheduler, at))
            continue;
        for (unsigned l = 0; broken && l < NODE_RESERVATIONS; l++)
            if (node->reservation[l] != GRAPH_NONE)
                step_window_of(scheduler, step_window)->reservations[node->reservation[l]].broken =
                    true;
        finish(scheduler, at);
    }
}

void scheduler_open(struct scheduler *scheduler, unsigned phases)
{
    assert(scheduler_may_open(scheduler));
    const struct graph *graph = scheduler->graph;
    uint64_t number = scheduler->opened;
    struct scheduler_window *step_window = step_window_of(scheduler, number),
                            *before = step_window_of(scheduler, number + 1);
    memset(step_window->state, STATE_WAITING, graph->node_count);
    step_window->phases = phases;
    step_window->left = graph->node_count;
    for (uint32_t i = 0; i < graph->reservation_count; i++) {
        const struct graph_reservation *reservation = &graph->reservations[i];
        struct scheduler_reservation *l = &step_window->reservations[i];
        *l = (struct scheduler_reservation){
            .users = reservation->users, .buffer = GRAPH_NONE, .retained = GRAPH_NONE};
        if (number == 0 || reservation->legacy == GRAPH_NONE)
            continue;
        struct scheduler_reservation *from = &before->reservations[reservation->legacy];
        if (from->users == 0) {
            l->retained = from->buffer;
            from->buffer = GRAPH_NONE;
        }
    }
    scheduler->opened++;
    pass_over(scheduler, number, false);
}

/* True where the reservation that is taken over from is still in use. */
static bool legacy_in_use(const struct scheduler *scheduler, uint64_t step_window, uint32_t number)
{
    uint32_t legacy = scheduler->graph->reservations[number].legacy;
    if (legacy == GRAPH_NONE || step_window == 0 || !is_tracked(scheduler, step_window - 1))
        return false;
    return step_window_of(scheduler, step_window - 1)->reservations[legacy].users > 0;
}

/* Moves a place in a pool on to the reservation whose turn it is; false where all have had it. */
static bool find_turn(const struct scheduler *scheduler, uint32_t pool,
                      struct scheduler_place *place)
{
    const struct graph *graph = scheduler->graph;
    for (; place->step_window < scheduler->opened; place->step_window++, place->at = 0)
        for (; place->at < graph->pool_count[pool]; place->at++)
            if (is_tracked(scheduler, place->step_window) &&
                !step_window_of(scheduler, place->step_window)
                     ->reservations[graph->pool[pool][place->at]]
                     .settled)
                return true;
    return false;
}

static bool is_turn(struct scheduler *scheduler, uint64_t step_window, uint32_t number)
{
    const uint32_t pool = scheduler->graph->reservations[number].pool;
    struct scheduler_place *place = &scheduler->pool[pool];
    return find_turn(scheduler, pool, place) && place->step_window == step_window &&
           scheduler->graph->pool[pool][place->at] == number;
}

static bool reservation_can_be_had(struct scheduler *scheduler, uint64_t step_window,
                                   uint32_t number)
{
    const struct graph_reservation *reservation = &scheduler->graph->reservations[number];
    const struct scheduler_reservation *l =
        &step_window_of(scheduler, step_window)->reservations[number];
    if (l->buffer != GRAPH_NONE)
        return true;
    if (legacy_in_use(scheduler, step_window, number) || !is_turn(scheduler, step_window, number))
        return false;
    return l->retained != GRAPH_NONE || scheduler->free_count[reservation->pool] > 0;
}

static void borrow(struct scheduler *scheduler, uint64_t step_window, uint32_t number)
{
    const struct graph_reservation *reservation = &scheduler->graph->reservations[number];
    struct scheduler_reservation *l = &step_window_of(scheduler, step_window)->reservations[number];
    if (l->buffer != GRAPH_NONE)
        return;
    l->inherited = l->retained != GRAPH_NONE;
    l->buffer =
        l->inherited
            ? l->retained
            : scheduler->free[reservation->pool][--scheduler->free_count[reservation->pool]];
    l->retained = GRAPH_NONE;
    l->settled = true;
    scheduler->turns[reservation->pool]++;
    scheduler->holder[reservation->pool][l->buffer] =
        (struct scheduler_holder){step_window, number};
}

/* ---- nodes ---- */

/* A lane's place. */
static struct scheduled next_of(const struct scheduler *scheduler, enum lane lane)
{
    const struct scheduler_place *place = &scheduler->lane[lane];
    return (struct scheduled){place->step_window, scheduler->graph->lane[lane][place->at]};
}

/* Moves a lane's place on to its next node. */
static bool find_next(struct scheduler *scheduler, enum lane lane)
{
    const struct graph *graph = scheduler->graph;
    struct scheduler_place *place = &scheduler->lane[lane];
    for (; place->step_window < scheduler->opened; place->step_window++, place->at = 0)
        for (; place->at < graph->lane_count[lane]; place->at++)
            if (is_tracked(scheduler, place->step_window) &&
                step_window_of(scheduler, place->step_window)
                        ->state[graph->lane[lane][place->at]] == STATE_WAITING)
                return true;
    return false;
}

bool scheduler_next(struct scheduler *scheduler, enum lane lane, struct scheduled *at)
{
    if (!find_next(scheduler, lane))
        return false;
    *at = next_of(scheduler, lane);
    return true;
}

/* A node that is not run in its step window may be under way in the one before, and whoever waits
 * for it waits for that one: an evaluation behind a drain must see what the drain updates. Where it
 * is not done, *at is what is waited for. */
static bool is_done(const struct scheduler *scheduler, struct scheduled *at)
{
    struct scheduled here = *at;
    for (; is_tracked(scheduler, here.step_window); here.step_window--) {
        uint8_t state = step_window_of(scheduler, here.step_window)->state[here.node];
        *at = here;
        if (state == STATE_STARTED || (state == STATE_WAITING && scheduler_is_run(scheduler, here)))
            return false;
        if (scheduler_is_run(scheduler, here))
            return true;
    }
    return true;
}

/* Most of what is asked after is. */
static bool is_run_and_done(const struct scheduler *scheduler, struct scheduled at)
{
    return step_window_of(scheduler, at.step_window)->state[at.node] == STATE_DONE &&
           scheduler_is_run(scheduler, at);
}

/* A visit waits for each tile of its unit, and is asked after each of them: what was done is not
 * looked at again. Of a step window that is not tracked any more all is done, whatever is in its
 * place now. */
static bool first_undone_dep(struct scheduler *scheduler, struct scheduled at, struct scheduled *on)
{
    const struct graph *graph = scheduler->graph;
    const struct node *node = &graph->nodes[at.node];
    struct scheduler_met *met = &scheduler->met[node->lane];
    const bool is_new = met->at.step_window != at.step_window || met->at.node != at.node;
    const uint32_t *deps = graph->deps + node->first_dep;
    uint32_t done = is_new ? 0 : met->deps;
    copy_scheduled(&met->at, &at);
    met->awaited = NULL;
    for (; done < node->dep_count; done++) {
        const uint64_t before = deps[done] / DEP_BEFORE;
        struct scheduled dep = {at.step_window - before, deps[done] % DEP_BEFORE};
        if (is_run_and_done(scheduler, dep) || is_done(scheduler, &dep))
            continue;
        met->awaited = &step_window_of(scheduler, dep.step_window)->state[dep.node];
        copy_scheduled(on, &dep);
        break;
    }
    met->deps = done;
    return met->awaited != NULL;
}

bool scheduler_ready(struct scheduler *scheduler, struct scheduled at)
{
    const struct node *node = &scheduler->graph->nodes[at.node];
    struct scheduler_met *met = &scheduler->met[node->lane];
    struct scheduled ignored;
    met->lacks = false;
    if (first_undone_dep(scheduler, at, &ignored))
        return false;
    for (unsigned i = 0; i < NODE_RESERVATIONS && !met->lacks; i++) {
        const uint32_t number = node->reservation[i];
        if (number == GRAPH_NONE || reservation_can_be_had(scheduler, at.step_window, number))
            continue;
        met->lacks = true;
        met->pool = scheduler->graph->reservations[number].pool;
        met->turns = scheduler->turns[met->pool];
    }
    return !met->lacks;
}

/* A user of the reservation that is not done. */
static bool undone_user(const struct scheduler *scheduler, struct scheduler_holder holder,
                        struct scheduled *on)
{
    const struct graph_reservation *reservation =
        &scheduler->graph->reservations[holder.reservation];
    const struct scheduler_window *step_window = step_window_of(scheduler, holder.step_window);
    for (uint32_t i = reservation->last_user + 1; i-- > reservation->first_user;) {
        const uint32_t *has = scheduler->graph->nodes[i].reservation;
        *on = (struct scheduled){holder.step_window, i};
        bool uses = has[0] == holder.reservation || has[1] == holder.reservation ||
                    has[2] == holder.reservation;
        if (uses && (step_window->state[i] == STATE_STARTED ||
                     (step_window->state[i] == STATE_WAITING && scheduler_is_run(scheduler, *on))))
            return true;
    }
    return false;
}

/* It finds the buffer that comes back first in program order, of a pool that is all lent. */
static bool next_to_come_back(const struct scheduler *scheduler, uint32_t pool,
                              struct scheduled *on)
{
    struct scheduled first = {UINT64_MAX, 0}, user;
    for (uint32_t i = 0; i < scheduler->graph->buffers[pool]; i++) {
        struct scheduler_holder holder = scheduler->holder[pool][i];
        uint32_t last = scheduler->graph->reservations[holder.reservation].last_user;
        bool sooner = holder.step_window < first.step_window ||
                      (holder.step_window == first.step_window && last < first.node);
        if (!sooner || !is_tracked(scheduler, holder.step_window) ||
            !undone_user(scheduler, holder, &user))
            continue;
        first = (struct scheduled){holder.step_window, last};
        *on = user;
    }
    return first.step_window != UINT64_MAX;
}

static bool reservation_waits_for(struct scheduler *scheduler, uint64_t step_window,
                                  uint32_t number, struct scheduled *on)
{
    const struct graph_reservation *reservation = &scheduler->graph->reservations[number];
    struct scheduler_place place = scheduler->pool[reservation->pool];
    if (legacy_in_use(scheduler, step_window, number))
        return undone_user(scheduler,
                           (struct scheduler_holder){step_window - 1, reservation->legacy}, on);
    if (is_turn(scheduler, step_window, number))
        return next_to_come_back(scheduler, reservation->pool, on);
    if (!find_turn(scheduler, reservation->pool, &place))
        return false;
    uint32_t other = scheduler->graph->pool[reservation->pool][place.at];
    *on = (struct scheduled){place.step_window, scheduler->graph->reservations[other].first_user};
    return true;
}

bool scheduler_waits_for(struct scheduler *scheduler, struct scheduled at, struct scheduled *on)
{
    const struct node *node = &scheduler->graph->nodes[at.node];
    if (first_undone_dep(scheduler, at, on))
        return true;
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        if (node->reservation[i] != GRAPH_NONE &&
            !reservation_can_be_had(scheduler, at.step_window, node->reservation[i]))
            return reservation_waits_for(scheduler, at.step_window, node->reservation[i], on);
    return false;
}

void scheduler_start(struct scheduler *scheduler, struct scheduled at)
{
    const struct node *node = &scheduler->graph->nodes[at.node];
    assert(scheduler->lane[node->lane].step_window == at.step_window &&
           scheduler->graph->lane[node->lane][scheduler->lane[node->lane].at] == at.node);
    step_window_of(scheduler, at.step_window)->state[at.node] = STATE_STARTED;
    scheduler->lane[node->lane].at++;
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        if (node->reservation[i] != GRAPH_NONE)
            borrow(scheduler, at.step_window, node->reservation[i]);
}

enum scheduler_turn scheduler_start_next(struct scheduler *scheduler, enum lane lane,
                                         struct scheduled *at)
{
    if (!find_next(scheduler, lane))
        return TURN_NONE;
    const struct scheduled next = next_of(scheduler, lane);
    if (!scheduler_ready(scheduler, next))
        return TURN_HELD;
    scheduler_start(scheduler, next);
    copy_scheduled(at, &next);
    return TURN_STARTED;
}

void scheduler_done(struct scheduler *scheduler, struct scheduled at)
{
    assert(step_window_of(scheduler, at.step_window)->state[at.node] == STATE_STARTED);
    finish(scheduler, at);
}

void scheduler_narrow(struct scheduler *scheduler, uint64_t step_window, unsigned phases)
{
    assert(is_tracked(scheduler, step_window));
    step_window_of(scheduler, step_window)->phases &= phases;
    pass_over(scheduler, step_window, true);
}

void scheduler_lend_next(struct scheduler *scheduler, enum pool pool, uint32_t buffer)
{
    uint32_t *stack = scheduler->free[pool], count = scheduler->free_count[pool], i = 0;
    while (i < count && stack[i] != buffer)
        i++;
    assert(i < count); /* it is free */
    stack[i] = stack[count - 1];
    stack[count - 1] = buffer;
}

void scheduler_forget(struct scheduler *scheduler)
{
    assert(scheduler_is_idle(scheduler));
    for (uint64_t p = first_tracked(scheduler); p < scheduler->opened; p++)
        for (uint32_t i = 0; i < scheduler->graph->reservation_count; i++) {
            struct scheduler_reservation *l = &step_window_of(scheduler, p)->reservations[i];
            if (l->buffer == GRAPH_NONE)
                continue;
            give_back(scheduler, scheduler->graph->reservations[i].pool, l->buffer);
            l->buffer = GRAPH_NONE;
        }
}

uint32_t scheduler_buffer(const struct scheduler *scheduler, struct scheduled at, unsigned i)
{
    uint32_t number = scheduler->graph->nodes[at.node].reservation[i];
    return number == GRAPH_NONE
               ? GRAPH_NONE
               : step_window_of(scheduler, at.step_window)->reservations[number].buffer;
}

uint32_t scheduler_pool_buffer(const struct scheduler *scheduler, struct scheduled at,
                               enum pool pool)
{
    const struct node *node = &scheduler->graph->nodes[at.node];
    for (unsigned i = 0; i < NODE_RESERVATIONS; i++)
        if (node->reservation[i] != GRAPH_NONE &&
            scheduler->graph->reservations[node->reservation[i]].pool == pool)
            return scheduler_buffer(scheduler, at, i);
    return GRAPH_NONE;
}

uint32_t scheduler_left_to_heir(const struct scheduler *scheduler, uint64_t step_window,
                                uint32_t reservation)
{
    uint32_t heir = scheduler->graph->reservations[reservation].heir;
    const struct scheduler_reservation *l =
        &step_window_of(scheduler, step_window)->reservations[reservation];
    if (heir == GRAPH_NONE || !is_tracked(scheduler, step_window) || l->users > 0)
        return GRAPH_NONE;
    if (l->buffer != GRAPH_NONE || step_window + 1 == scheduler->opened)
        return l->buffer;
    const struct scheduler_reservation *h =
        &step_window_of(scheduler, step_window + 1)->reservations[heir];
    return h->inherited ? h->buffer : h->retained;
}

bool scheduler_was_retained(const struct scheduler *scheduler, struct scheduled at)
{
    uint32_t number = scheduler->graph->nodes[at.node].reservation[0];
    return number != GRAPH_NONE &&
           step_window_of(scheduler, at.step_window)->reservations[number].inherited;
}
