/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the step graph in program order. A sweep is a pipeline: each stage of a unit's visit comes
 * so many units before the visit itself as there are buffers for, so that no lane's next node waits
 * for a computation that has not begun while others could go. Dependencies between places that are
 * not next to each other (an update and the read of what it wrote) are linked at the end, by one
 * rule: an earlier node is of this step window, a later one of the step window before.
 */
#include "plan/graph/graph_build.h"

#include <errno.h>
#include <string.h>

static uint32_t less(uint32_t a, uint32_t b)
{
    return a > b ? a - b : 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- stages ---- */

static unsigned parts_of_read(const struct build *b, uint32_t unit)
{
    bool kept = b->units[unit].retain_weights || b->units[unit].retain_device_weights;
    unsigned phases = parts_of_forward(b, unit) | (kept ? PHASE_BACKWARD : 0u);
    if (b->in->units[unit].weights != HST_TIER_NVME)
        return phases;
    return phases | (parts_is_late(b, unit) ? PHASE_UPDATE : 0u) |
           (b->in->optimistic && !b->in->units[unit].frozen ? PHASE_REDO : 0u);
}

/* While this unit is updated there is a buffer for the next one's weights. */
static bool has_another(const struct build *b, uint32_t unit, uint32_t next)
{
    enum pool pool = parts_pool(b, next, POOL_WEIGHTS);
    uint32_t taken = parts_pool(b, unit, POOL_WEIGHTS) == pool;
    return b->in->buffers[pool] > taken;
}

/* The next unit's weights may be read while this one is updated, unless it reads this one's too. */
static bool may_read_ahead(const struct build *b, uint32_t unit, uint32_t next)
{
    const struct graph_unit *u = &b->in->units[next];
    for (uint32_t i = 0; i < u->alias_count; i++)
        if (u->alias_of[i] == unit)
            return false;
    return has_another(b, unit, next);
}

/* The weights that a forward reads: brought, and updated where that was left to do. */
static void prepare_forward(struct build *b, uint32_t place)
{
    const uint32_t *order = &b->in->forward[place];
    parts_read(b, order[0], parts_of_read(b, order[0]));
    if (place + 1 < b->in->unit_count && may_read_ahead(b, order[0], order[1]))
        parts_plan_read(b, order[1], parts_of_read(b, order[1]));
    parts_late_update(b, order[0]);
    parts_save(b, order[0]);
}

/* Rows come together where the host has them, and go on to a device that computes elsewhere. */
static void copy_forward(struct build *b, uint32_t place)
{
    const uint32_t unit = b->in->forward[place];
    const struct build_unit *s = &b->units[unit];
    const bool kept = s->retain_weights || s->retain_device_weights;
    parts_gather(b, unit, parts_of_forward(b, unit) | (kept ? PHASE_BACKWARD : 0u));
    parts_copy(b, unit,
               parts_of_forward(b, unit) | (s->retain_device_weights ? PHASE_BACKWARD : 0u));
}

static void add_forward(struct build *b, uint32_t place)
{
    parts_forward(b, b->in->forward[place]);
}

/* A recomputed unit's backward goes on with weights that its recompute still has, and those that
 * come while its recompute does without are not that one's to give back. */
static void read_backward(struct build *b, uint32_t place)
{
    const struct build_visit *visit = &b->visits[place];
    struct build_unit *s = &b->units[visit->unit];
    bool reads = kept_reads_here(b, visit[0]);
    if (reads && s->recomputes && !visit->recompute)
        s->hold_weights = true;
    if (reads && !kept_is_near(b, visit[0]))
        parts_read(b, visit->unit, PHASE_BACKWARD);
    if (place + 1 < b->visit_count && !b->in->deferred &&
        has_another(b, visit->unit, visit[1].unit) && kept_reads_here(b, visit[1]) &&
        !kept_is_near(b, visit[1]))
        parts_plan_read(b, visit[1].unit, PHASE_BACKWARD);
}

static void copy_backward(struct build *b, uint32_t place)
{
    struct build_visit visit = b->visits[place];
    if (parts_uses_weights(b, visit)) {
        parts_gather(b, visit.unit, PHASE_BACKWARD);
        parts_copy(b, visit.unit, PHASE_BACKWARD);
    }
    if (b->in->apart && visit.recompute && !b->units[visit.unit].hold_weights)
        parts_give_back(b, visit.unit);
}

/* A row of the backward may come together sooner than it is copied: see ahead_gathers. */
static void gather_backward(struct build *b, uint32_t place)
{
    if (parts_uses_weights(b, b->visits[place]))
        parts_gather(b, b->visits[place].unit, PHASE_BACKWARD);
}

/* Checkpoints that a unit's first visit has brought are there for its second one. */
static bool has_acts(const struct build *b, uint32_t place)
{
    return b->units[b->visits[place].unit].recomputes && !b->visits[place].recompute;
}

static void bring_acts(struct build *b, uint32_t place)
{
    if (!has_acts(b, place))
        parts_read_acts(b, b->visits[place].unit);
}

static void fetch_acts(struct build *b, uint32_t place)
{
    if (!has_acts(b, place))
        parts_fetch_acts(b, b->visits[place].unit);
}

static void add_backward(struct build *b, uint32_t place)
{
    if (b->visits[place].recompute)
        parts_recompute(b, b->visits[place].unit);
    else
        parts_backward(b, b->visits[place].unit);
    parts_regather(b);
}

/* ---- sweeps ---- */

struct stage {
    void (*add)(struct build *b, uint32_t place); /* of the visit in its sweep */
    uint32_t ahead;                               /* visits before the one at hand */
};

struct sweep {
    const struct stage *stages;
    uint32_t count, most, visits; /* stages, the farthest ahead */
};

/* The stages of one place in the sweep: what is needed soonest first, the visit last. */
static void add_place(struct build *b, const struct sweep *sweep, uint32_t place)
{
    const struct stage *stages = sweep->stages;
    uint32_t count = sweep->count, most = sweep->most;
    for (uint32_t n = 0; n <= most + 1; n++)
        for (uint32_t s = 0; s < count; s++) {
            uint32_t at = place + stages[s].ahead; /* counted from `most` */
            bool its_turn = s + 1 < count ? stages[s].ahead == n : n == most + 1;
            if (its_turn && at >= most && at - most < sweep->visits)
                stages[s].add(b, at - most);
        }
}

static void add_sweep(struct build *b, const struct stage *stages, uint32_t count, uint32_t visits)
{
    struct sweep sweep = {stages, count, 0, visits};
    for (uint32_t s = 0; s < count; s++)
        sweep.most = stages[s].ahead > sweep.most ? stages[s].ahead : sweep.most;
    for (uint32_t place = 0; place < visits + sweep.most && b->rc == 0; place++)
        add_place(b, &sweep, place);
}

/* It decides how far ahead: as far as buffers go when a unit's is held until its update is written,
 * but not so far that writes of later units' tiles keep back checkpoints that the next forward's
 * buffer waits for. While one unit is updated the next one's weights are read, which takes a buffer
 * too. */
static void add_forwards(struct build *b, uint32_t copy)
{
    const uint32_t *buffers = b->graph->buffers, depth = ahead_depth(b, POOL_WEIGHTS);
    uint32_t prepare = b->in->apart ? copy + (depth > 2) : less(depth, 2);
    if (!b->reservations)
        prepare = parts_is_joined(b) && copy > 1 ? copy : 1;
    if (b->spills)
        prepare =
            least(prepare, buffers[POOL_ACTS] + (b->in->apart ? buffers[POOL_DEVICE_ACTS] : 0));
    prepare = least(prepare, b->ahead_most);
    const struct stage stages[] = {
        {prepare_forward, prepare}, {copy_forward, least(copy, prepare)}, {add_forward, 0}};
    add_sweep(b, stages, 3, b->in->unit_count);
}

static void add_backwards(struct build *b, uint32_t copy)
{
    const uint32_t *buffers = b->graph->buffers, depth = ahead_depth(b, POOL_WEIGHTS);
    uint32_t fetch = less(buffers[POOL_DEVICE_ACTS], 1);
    uint32_t acts = less(buffers[POOL_ACTS], 1) + (b->in->apart ? fetch : 0);
    uint32_t beside = b->in->apart ? copy : 0; /* copies have buffers of their own */
    uint32_t read = b->in->deferred ? beside + less(depth, 1) : less(depth, 2);
    if (!b->reservations)
        read = parts_is_joined(b) && copy > 1 ? copy : 1;
    read = least(read, b->ahead_most);
    const struct stage stages[] = {{read_backward, read},
                                   {gather_backward, least(ahead_gathers(b, copy), read)},
                                   {copy_backward, least(copy, read)},
                                   {bring_acts, least(acts, read)},
                                   {fetch_acts, least(fetch, read)},
                                   {add_backward, 0}};
    add_sweep(b, stages, 6, b->visit_count);
}

/* A store makes versions; without one an optimistic update that replaces what is on drives has what
 * the last one wrote there settled. */
static bool has_commit(const struct graph_in *in)
{
    bool drives = false;
    for (uint32_t i = 0; i < in->unit_count; i++)
        drives |= in->units[i].weights == HST_TIER_NVME || in->units[i].nvme_states > 0;
    return in->stored || (in->optimistic && drives);
}

/* Behind the forward, where all writes of the update of the step before have begun, whenever it was
 * made, and the next one's have not: the version is complete when those are done. */
static void add_commit(struct build *b)
{
    const struct graph_in *in = b->in;
    if (!has_commit(in))
        return;
    b->commit = build_node(b, NODE_COMMIT, LANE_WRITE, PHASE_COMMIT, (struct node){0});
    for (uint32_t i = 0; i < in->unit_count; i++)
        if (!in->units[i].no_forward)
            build_dep(b, b->commit, b->units[i].forward);
    b->committed = b->commit;
}

/* A rank's version is one when all ranks have theirs. */
static void add_vote(struct build *b)
{
    if (!parts_has_ranks(b) || !b->in->stored)
        return;
    b->committed = build_node(b, NODE_VOTE, LANE_NET, PHASE_COMMIT, (struct node){0});
    build_dep(b, b->committed, b->commit);
}

/* Before all that reads what it reverts. */
static void add_revert(struct build *b)
{
    b->revert = GRAPH_NONE;
    if (b->in->optimistic)
        b->revert = build_node(b, NODE_REVERT, LANE_UPDATE, PHASE_REVERT, (struct node){0});
}

static void add_sweeps(struct build *b)
{
    uint32_t copy = ahead_copies(b);
    b->ahead_most = ahead_most(b);
    for (uint32_t i = 0; i < b->in->unit_count; i++) {
        b->reservations = b->reservations || parts_reserve_weights(b, i);
        b->spills = b->spills || (parts_move_acts(b, i) && b->in->units[i].acts == HST_TIER_NVME);
    }
    add_revert(b);
    add_forwards(b, copy);
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        parts_late_write(b, b->in->forward[i]);
    add_commit(b);
    if (!b->in->deferred) /* updates in the backward wait for it */
        add_vote(b);
    add_backwards(b, copy);
    if (b->in->deferred)
        add_vote(b);
}

/* ---- what is late ---- */

/* It tells how many of `count` more tiles: a share of all so far, evenly. */
static uint32_t choose_late_of(uint32_t count, double share, double *owed)
{
    *owed += count * share;
    uint32_t late = *owed > 0 ? (uint32_t)(*owed + 0.5) : 0;
    late = least(late, count);
    *owed -= late;
    return late;
}

/* It leaves a share of each unit's update, where that need not wait, to the forward that follows:
 * tiles on both sides of where those at home begin, as many of either kind as there are. Nothing is
 * left where gradients do not last: a device's units take turns at one place for them or update
 * from an exchange's buffer, and those that leave memory have no home. In a device's memory an
 * optimistic update has no second slot: all of it is left. */
static void choose_late(struct build *b)
{
    double owed_offloaded = 0, owed_to_home_tier = 0;
    for (uint32_t i = 0; i < b->in->unit_count; i++) {
        const struct graph_unit *u = &b->in->units[i];
        if (u->frozen)
            continue;
        bool resident = parts_is_resident(b, i);
        bool waits = b->in->deferred || (b->in->optimistic && resident);
        bool lasts = b->in->optimistic || (!resident && b->in->units[i].grads != HST_TIER_NVME);
        double share = waits ? 1 : lasts ? b->in->late_share : 0;
        uint32_t offloaded = u->nvme_states, home = u->tile_count - offloaded;
        b->units[i].late_first = offloaded - choose_late_of(offloaded, share, &owed_offloaded);
        b->units[i].late_end = offloaded + choose_late_of(home, share, &owed_to_home_tier);
    }
}

/*
 * Whole rows that are all gathered in the forward keep its visits waiting, while the network was
 * idle in the backward, which is twice as long. So a quarter of them come together behind their
 * updates, among the others by their elements: in the forward they are what is computed while those
 * arrive. Simulated with three quarters of the computation for the network, a step is 3 % shorter
 * than with none of them and 1.4 % shorter than with three eighths. What is frozen stays whole, and
 * so does a row that another unit reads, whose own visits may come later; see may_regather for what
 * an optimistic update leaves out.
 */
#define REGATHERED 0.25

/* Where an update is optimistic a row must be whole again before the clip, at which the slots
 * change places. What is on a device is updated later. */
static bool may_regather(const struct build *b, uint32_t unit)
{
    const bool in_time = b->units[unit].place[1] + PARTS_REGATHER_BEHIND < b->backward_count &&
                         !parts_is_resident(b, unit);
    return parts_regathers(b) && parts_has_row(b, unit) &&
           (in_time || !b->in->optimistic || !parts_has_grads(b, unit));
}

static void choose_regathered_aliases(struct build *b)
{
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        for (uint32_t k = 0; parts_regathers(b) && k < b->in->units[i].alias_count; k++) {
            const uint32_t owner = b->in->units[i].alias_of[k];
            b->units[owner].regathers = !b->in->optimistic || !parts_has_grads(b, owner);
        }
}

static void choose_regathered(struct build *b)
{
    const struct graph_in *in = b->in;
    double owed = 0;
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const uint32_t unit = in->forward[i];
        const double row = parts_has_grads(b, unit) ? (double)in->units[unit].row_elements : 0;
        owed += REGATHERED * row;
        const bool turn = owed >= row; /* at once, where nothing is trained */
        b->units[unit].regathers = turn && may_regather(b, unit);
        owed -= b->units[unit].regathers ? row : 0;
    }
    choose_regathered_aliases(b);
}

/* ---- the whole ---- */

static int check_pools(const struct build *b)
{
    const struct graph_in *in = b->in;
    bool needs[POOL_COUNT] = {false};
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const struct graph_unit *u = &in->units[i];
        bool grads = u->grads == HST_TIER_NVME && parts_has_grads(b, i) && u->tile_count > 0;
        needs[parts_pool(b, i, POOL_GRADS)] |= parts_has_ranks(b) && parts_passes_grads(b, i);
        needs[parts_pool(b, i, POOL_WEIGHTS)] |= parts_reserve_weights(b, i);
        needs[POOL_TILES] |=
            u->nvme_states > 0 || (grads && (parts_is_late(b, i) || in->optimistic)) ||
            (parts_is_resident(b, i) && in->stored && u->tile_count > 0 && !u->frozen);
        needs[parts_pool(b, i, POOL_GRADS)] |= grads;
        needs[POOL_ACTS] |= parts_move_acts(b, i) && u->acts == HST_TIER_NVME;
        if (!in->apart)
            continue;
        needs[parts_pool(b, i, POOL_DEVICE_WEIGHTS)] |= parts_copy_weights(b, i);
        needs[parts_pool(b, i, POOL_DEVICE_GRADS)] |= parts_lends_device_grads(b, i);
        needs[POOL_DEVICE_ACTS] |= parts_move_acts(b, i);
        needs[POOL_DEVICE_TILES] |= u->streamed_tiles > 0;
    }
    for (int p = 0; p < POOL_COUNT; p++)
        if (needs[p] && in->buffers[p] == 0)
            return -ENOSPC;
    return 0;
}

/* Tiles that the device updates by way of its memory come from the host's, and go back there. */
static int check_streamed(const struct graph_in *in)
{
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const struct graph_unit *u = &in->units[i];
        bool home = in->apart && u->weights == HST_TIER_DRAM && u->grads == HST_TIER_DRAM;
        if (u->streamed_tiles > 0 && (!home || u->nvme_states + u->streamed_tiles > u->tile_count))
            return -EINVAL;
    }
    return 0;
}

/* A frozen unit has no states; one that rests is frozen, and comes behind all that has a backward.
   */
static int check_frozen(const struct graph_in *in)
{
    bool rests = false;
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const struct graph_unit *u = &in->units[in->backward[i]];
        if ((u->frozen && (u->nvme_states > 0 || u->streamed_tiles > 0)) ||
            (u->rests && (u->act_bytes > 0 || u->recomputed)) ||
            (u->rests && !u->frozen && u->tile_count > 0) || (rests && !u->rests))
            return -EINVAL;
        rests = u->rests;
    }
    return 0;
}

/* Weights that a unit reads of others are those of this step, and stay so until it is done. */
static int check_aliases(const struct graph_in *in, struct build_unit *units)
{
    for (uint32_t place = 0; place < in->unit_count; place++) {
        units[in->forward[place]].place[0] = place;
        units[in->backward[place]].place[1] = place;
    }
    int rc = check_streamed(in);
    rc = rc ? rc : check_frozen(in);
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const struct graph_unit *u = &in->units[i];
        for (uint32_t a = 0; a < u->alias_count; a++)
            if (units[u->alias_of[a]].place[0] > units[i].place[0] ||
                units[u->alias_of[a]].place[1] < units[i].place[1])
                rc = -EINVAL;
    }
    return rc;
}

/* It is of an early update: where that is optimistic the slots in memory change places at the clip.
 * Else the step ends there, and the next one has other coefficients: the host's own lane does it
 * later anyway. */
static bool ends_before_clip(const struct build *b, const struct node *node)
{
    return b->in->optimistic ? parts_is_updated_by(b, node)
                             : node->kind == NODE_UPDATE && node->lane != LANE_UPDATE;
}

/* Ranks have norms of their shards. */
static uint32_t add_agree(struct build *b)
{
    if (!parts_has_ranks(b))
        return GRAPH_NONE;
    uint32_t agree = build_node(b, NODE_AGREE, LANE_NET, PHASE_BACKWARD, (struct node){0});
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        build_dep(b, agree, b->units[i].norm);
    return agree;
}

static void add_clip(struct build *b)
{
    uint32_t agree = add_agree(b);
    uint32_t clip = build_node(b, NODE_CLIP, LANE_UPDATE, PHASE_BACKWARD, (struct node){0});
    build_dep(b, clip, agree);
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        build_dep(b, clip, b->in->units[i].frozen ? b->units[i].backward : b->units[i].norm);
    b->clip = clip;
    for (uint32_t i = 0; i < b->in->unit_count; i++) {
        const struct build_unit *s = &b->units[i];
        for (uint32_t n = s->save[0]; b->in->optimistic && n < s->save[1]; n++)
            build_dep(b, clip, n);
        if (b->in->optimistic)
            build_dep(b, clip, s->gathered);
        for (uint32_t n = s->update[2]; n < s->update[3]; n++)
            if (ends_before_clip(b, &b->graph->nodes[n]))
                build_dep(b, clip, n);
    }
}

static int open_build(const struct graph_in *in, struct graph *graph, struct build *b)
{
    *b = (struct build){.in = in,
                        .graph = graph,
                        .last_read = GRAPH_NONE,
                        .clip = GRAPH_NONE,
                        .commit = GRAPH_NONE,
                        .committed = GRAPH_NONE,
                        .revert = GRAPH_NONE};
    *graph = (struct graph){.unit_count = in->unit_count};
    for (int p = 0; p < POOL_COUNT; p++)
        graph->buffers[p] = in->buffers[p];
    for (uint32_t i = 0; i < in->unit_count; i++)
        b->backward_count += !in->units[i].rests;
    b->rc = build_open(b);
    if (b->rc == 0)
        b->rc = check_aliases(in, b->units);
    if (b->rc == 0)
        b->rc = visits_list(b);
    if (b->rc == 0) {
        choose_late(b);
        choose_regathered(b);
        b->rc = check_pools(b);
    }
    return b->rc;
}

int graph_build(const struct graph_in *in, struct graph *graph)
{
    struct build b;
    if (open_build(in, graph, &b) == 0) {
        kept_choose(&b);
        visits_choose_held(&b);
        add_sweeps(&b);
        add_clip(&b);
        graph->step_end = b.clip;
        parts_regather_rest(&b);
    }
    if (b.rc == 0) /* all reservations are there */
        kept_hand_over(&b);
    return build_close(&b);
}

/* An early update reads before what it writes, whether or not the backward does. */
static void add_unit(struct build *b, uint32_t unit)
{
    parts_read(b, unit, parts_of_forward(b, unit));
    for (uint32_t i = 0; parts_is_whole(b) && i < b->in->units[unit].alias_count; i++)
        parts_gather(b, b->in->units[unit].alias_of[i], 0);
    parts_gather(b, unit, parts_of_forward(b, unit));
    parts_copy(b, unit, parts_of_forward(b, unit));
    parts_forward(b, unit);
    if (b->in->units[unit].rests)
        return;
    if (!kept_is_near(b, (struct build_visit){.unit = unit}))
        parts_read(b, unit, PHASE_BACKWARD);
    if (parts_uses_weights(b, (struct build_visit){.unit = unit})) {
        parts_gather(b, unit, PHASE_BACKWARD);
        parts_copy(b, unit, PHASE_BACKWARD);
    }
    parts_read_acts(b, unit);
    parts_fetch_acts(b, unit);
    parts_backward(b, unit);
}

int graph_build_unit(const struct graph_in *in, uint32_t unit, struct graph *graph)
{
    struct build b;
    if (open_build(in, graph, &b) == 0)
        add_unit(&b, unit);
    return build_close(&b);
}
