/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes the visits of a unit: the nodes that bring its weights, checkpoints and
 * gradients, and those that take them home. plan/graph.c puts them in order.
 */
#include "plan/graph/graph_build.h"

/* ---- weights in host memory ---- */

uint32_t parts_lend(struct build *b, uint32_t unit, enum pool pool)
{
    return build_reservation(b, parts_pool(b, unit, pool));
}

bool parts_reserve_weights(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool offloaded = u->weights == HST_TIER_NVME &&
                     (parts_is_joined(b) ? parts_has_row(b, unit) : u->tile_count > 0);
    if (parts_gathers(b) && !parts_is_whole(b) && !parts_is_joined(b))
        return parts_has_row(b, unit) || u->alias_count > 0;
    for (uint32_t i = 0; i < u->alias_count; i++)
        offloaded = offloaded || b->in->units[u->alias_of[i]].weights == HST_TIER_NVME;
    return offloaded;
}

/*
 * While weights are read no tile is, and when the slots run dry nothing is updated and nothing
 * written: a piece is half of what the slots hold. No piece is less than an extent.
 */
static uint32_t count_pieces(const struct build *b, uint32_t unit)
{
    struct operands_offloaded offloaded = operands_offloaded(b, unit);
    double slots = b->graph->buffers[POOL_TILES], bytes = (double)offloaded.bytes;
    double piece = slots / 2 * b->in->tile_elements * b->in->weight_bytes;
    uint32_t pieces = piece > 0 && bytes > piece ? (uint32_t)(bytes / piece) + 1 : 1;
    return pieces < offloaded.extents || pieces == 1 ? pieces : offloaded.extents;
}

void parts_plan_read(struct build *b, uint32_t unit, unsigned phases)
{
    if (operands_offloaded(b, unit).extents == 0 || b->units[unit].weights != GRAPH_NONE)
        return;
    b->reading =
        (struct build_reading){.unit = unit, .phases = phases, .pieces = count_pieces(b, unit)};
}

static void lend_weights(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    s->weights = parts_lend(b, unit, POOL_WEIGHTS);
    if (s->first_weights == GRAPH_NONE)
        s->first_weights = s->weights;
}

static void read_piece(struct build *b)
{
    struct build_reading *r = &b->reading;
    struct build_unit *s = &b->units[r->unit];
    if (r->done == 0) {
        lend_weights(b, r->unit);
        s->first_read = b->graph->node_count;
    }
    uint32_t node =
        build_node(b, NODE_READ_WEIGHTS, LANE_READ, r->phases,
                   (struct node){.unit = r->unit, .tile = r->done, .tile_count = r->pieces});
    operands_read_weights(b, r->unit, r->done, r->pieces);
    build_use(b, node, s->weights);
    s->last_read = node;
    if (r->phases & PHASES_TRAIN)
        b->last_read = node;
    r->done++;
}

void parts_read_share(struct build *b, uint64_t done, uint64_t whole)
{
    while (b->rc == 0 && b->reading.done < b->reading.pieces * done / whole)
        read_piece(b);
}

void parts_read(struct build *b, uint32_t unit, unsigned phases)
{
    if (b->reading.unit != unit || b->reading.done == b->reading.pieces)
        parts_plan_read(b, unit, phases);
    parts_read_share(b, 1, 1);
}

void parts_depend_on_read(struct build *b, uint32_t node, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    for (uint32_t i = s->first_read; b->rc == 0 && i <= s->last_read; i++)
        if (b->graph->nodes[i].kind == NODE_READ_WEIGHTS && b->graph->nodes[i].unit == unit)
            build_dep(b, node, i);
}

/* ---- weights in the device's memory ---- */

/* An alias of a row at home is its owner's. */
static void await_gathers(struct build *b, uint32_t node, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    build_dep(b, node, b->units[unit].gather);
    for (uint32_t i = 0; parts_is_whole(b) && i < u->alias_count; i++)
        build_dep(b, node, b->units[u->alias_of[i]].gather);
}

bool parts_uses_weights(const struct build *b, struct build_visit visit)
{
    const struct graph_unit *u = &b->in->units[visit.unit];
    return !u->rests && (visit.recompute || !u->blind_backward);
}

/* Its node keeps what it gathers then: the row is not in its buffer when the backward comes. */
static bool keeps_row(const struct build *b, unsigned phases)
{
    return b->in->secondary > 0 && (phases & PHASE_FORWARD) && !(phases & PHASE_BACKWARD);
}

/* A backward takes what its node has kept of the forward's gather, if there was one. */
static bool gathers_near(const struct build *b, uint32_t unit, unsigned phases)
{
    return phases == PHASE_BACKWARD && b->units[unit].gathered_far != GRAPH_NONE;
}

static void gather_near(struct build *b, uint32_t unit, uint32_t reservation)
{
    struct build_unit *s = &b->units[unit];
    s->gather =
        build_node(b, NODE_GATHER_NEAR, LANE_NET, PHASE_BACKWARD, (struct node){.unit = unit});
    operands_gather_near(b, unit);
    build_use(b, s->gather, reservation);
    build_dep(b, s->gather, s->gathered_far);
}

/* Behind the copy of the rank's shard, which is in its place then; or from its home there. */
static void gather_on_device(struct build *b, uint32_t unit, unsigned phases)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_has_row(b, unit) && b->in->units[unit].alias_count == 0)
        return;
    s->gather = build_node(b, NODE_GATHER, LANE_NET, phases, (struct node){.unit = unit});
    operands_gather(b, unit);
    build_use(b, s->gather, s->device_weights);
    build_dep(b, s->gather, s->copy);
    if (keeps_row(b, phases))
        s->gathered_far = s->gather;
}

static void copy_to_device(struct build *b, uint32_t unit, unsigned phases)
{
    struct build_unit *s = &b->units[unit];
    s->copy = build_node(b, NODE_COPY_WEIGHTS, LANE_H2D, phases, (struct node){.unit = unit});
    operands_copy_weights(b, unit);
    build_use(b, s->copy, s->device_weights);
    build_use(b, s->copy, s->weights);
    if (parts_gathers(b) && !parts_is_joined(b))
        await_gathers(b, s->copy, unit);
    else if (s->weights != GRAPH_NONE)
        parts_depend_on_read(b, s->copy, unit);
}

void parts_copy(struct build *b, uint32_t unit, unsigned phases)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_copy_weights(b, unit) || s->device_weights != GRAPH_NONE)
        return;
    s->device_weights = parts_lend(b, unit, POOL_DEVICE_WEIGHTS);
    if (parts_is_joined(b) && gathers_near(b, unit, phases)) { /* all of it is there */
        gather_near(b, unit, s->device_weights);
        return;
    }
    if (!parts_is_resident(b, unit))
        copy_to_device(b, unit, phases);
    if (parts_is_joined(b))
        gather_on_device(b, unit, phases);
}

/* ---- weights that are gathered ---- */

/* Once a step window, whichever of its visits is the first; of a row that is whole already only
 * after a load, and where an optimistic update is made again. */
static unsigned phases_of_home(const struct build *b, uint32_t unit)
{
    if (!b->units[unit].regathers)
        return (unsigned)PHASE_FORWARD | PHASE_BACKWARD | PHASE_EVAL;
    const bool again = b->in->optimistic && parts_has_grads(b, unit);
    return (unsigned)PHASE_WHOLE | (again ? PHASE_REDO : 0u);
}

static void gather_home(struct build *b, uint32_t unit)
{
    if (!parts_has_row(b, unit))
        return;
    b->units[unit].gather =
        build_node(b, NODE_GATHER, LANE_NET, phases_of_home(b, unit), (struct node){.unit = unit});
    operands_gather(b, unit);
}

static void gather_again(struct build *b, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    if (!s->regathers || !parts_has_grads(b, unit) || s->gathered != GRAPH_NONE)
        return; /* a frozen row stays whole */
    b->units[unit].gathered =
        build_node(b, NODE_GATHER, LANE_NET, PHASE_BACKWARD, (struct node){.unit = unit});
    operands_gather(b, unit);
}

static bool is_updated(const struct build *b, uint32_t unit)
{
    return b->units[unit].update[3] > 0 || !parts_has_grads(b, unit);
}

void parts_regather(struct build *b)
{
    const struct graph_in *in = b->in;
    if (!parts_regathers(b))
        return;
    while (b->updated < in->unit_count && is_updated(b, in->backward[b->updated]))
        b->updated++;
    for (; b->regathered + PARTS_REGATHER_BEHIND < b->updated; b->regathered++)
        gather_again(b, in->backward[b->regathered]);
}

void parts_regather_rest(struct build *b)
{
    for (uint32_t i = 0; parts_regathers(b) && i < b->in->unit_count; i++)
        gather_again(b, b->in->forward[i]);
}

/* Reads bring the rank's shard into the buffer before, if it is not at home in memory. */
void parts_gather(struct build *b, uint32_t unit, unsigned phases)
{
    struct build_unit *s = &b->units[unit];
    bool reads = s->weights != GRAPH_NONE && operands_offloaded(b, unit).extents > 0;
    if (parts_is_whole(b) && s->gather == GRAPH_NONE)
        gather_home(b, unit);
    if (!parts_gathers(b) || parts_is_joined(b) || !parts_reserve_weights(b, unit) ||
        s->gather != GRAPH_NONE || s->device_weights != GRAPH_NONE)
        return;
    if (s->weights == GRAPH_NONE)
        lend_weights(b, unit);
    if (gathers_near(b, unit, phases)) {
        gather_near(b, unit, s->weights);
        if (reads)
            parts_depend_on_read(b, s->gather, unit);
        return;
    }
    s->gather = build_node(b, NODE_GATHER, LANE_NET, phases, (struct node){.unit = unit});
    operands_gather(b, unit);
    build_use(b, s->gather, s->weights);
    if (reads)
        parts_depend_on_read(b, s->gather, unit);
    if (keeps_row(b, phases))
        s->gathered_far = s->gather;
}

void parts_give_back(struct build *b, uint32_t unit)
{
    b->units[unit].weights = GRAPH_NONE;
    if (!parts_is_whole(b) && !parts_is_joined(b))
        b->units[unit].gather = GRAPH_NONE;
}

void parts_give_back_device(struct build *b, uint32_t unit)
{
    b->units[unit].device_weights = b->units[unit].copy = GRAPH_NONE;
    if (parts_is_joined(b))
        b->units[unit].gather = GRAPH_NONE;
}

/* ---- checkpoints ---- */

static void move_acts(struct build *b, uint32_t unit, enum node_kind kind, enum lane lane,
                      uint32_t from, uint32_t to, unsigned step_phase)
{
    struct build_unit *s = &b->units[unit];
    uint32_t node = build_node(b, kind, lane, step_phase, (struct node){.unit = unit});
    operands_acts(b, unit, kind);
    build_use(b, node, from);
    build_use(b, node, to);
    build_dep(b, node, s->acts_moved);
    s->acts_moved = node;
}

bool parts_move_acts(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool offloaded = b->in->apart ? u->acts != HST_TIER_HBM : u->acts == HST_TIER_NVME;
    return offloaded && u->act_bytes > 0 && !u->no_forward;
}

/* Before a forward: where it puts its checkpoints. */
static void lend_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit))
        return;
    if (b->in->apart)
        s->device_acts = build_reservation(b, POOL_DEVICE_ACTS);
    else
        s->acts = build_reservation(b, POOL_ACTS);
}

/* After a forward: its checkpoints go home, unless their buffer is kept for the backward. */
static void send_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    s->acts_moved = s->forward;
    if (!parts_move_acts(b, unit) || s->retain_acts)
        return;
    if (s->device_acts != GRAPH_NONE) {
        if (b->in->units[unit].acts == HST_TIER_NVME)
            s->acts = build_reservation(b, POOL_ACTS);
        move_acts(b, unit, NODE_STORE_ACTS, LANE_D2H, s->device_acts, s->acts, PHASE_FORWARD);
        s->device_acts = GRAPH_NONE;
    }
    if (s->acts != GRAPH_NONE)
        move_acts(b, unit, NODE_WRITE_ACTS, LANE_WRITE, s->acts, GRAPH_NONE, PHASE_FORWARD);
    s->acts = GRAPH_NONE;
}

/* Before a backward they come back, the same way. */
void parts_read_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit) || s->retain_acts || b->in->units[unit].acts != HST_TIER_NVME)
        return;
    s->acts = build_reservation(b, POOL_ACTS);
    move_acts(b, unit, NODE_READ_ACTS, LANE_READ, s->acts, GRAPH_NONE, PHASE_BACKWARD);
}

void parts_fetch_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit) || s->retain_acts || !b->in->apart)
        return;
    s->device_acts = build_reservation(b, POOL_DEVICE_ACTS);
    move_acts(b, unit, NODE_FETCH_ACTS, LANE_H2D, s->acts, s->device_acts, PHASE_BACKWARD);
    s->acts = GRAPH_NONE;
}

/* ---- gradients ---- */

static void lend_grads(struct build *b, uint32_t unit)
{
    if (parts_lends_device_grads(b, unit))
        b->units[unit].device_grads = parts_lend(b, unit, POOL_DEVICE_GRADS);
    else if (parts_passes_grads(b, unit))
        b->units[unit].grads = parts_lend(b, unit, POOL_GRADS);
}

/* Gradients wait on the drives for a late update, or a redo. */
static void write_grads(struct build *b, uint32_t unit, uint32_t there)
{
    struct build_unit *s = &b->units[unit];
    bool wait = b->in->optimistic || parts_is_late(b, unit);
    if (s->grads == GRAPH_NONE || !wait || s->retain_grads)
        return;
    s->write_grads = build_node(b, NODE_WRITE_GRADS, LANE_WRITE, PHASE_BACKWARD,
                                (struct node){.unit = unit,
                                              .tile = b->in->units[unit].first_tile,
                                              .tile_count = b->in->units[unit].tile_count});
    operands_write_grads(b, unit);
    build_use(b, s->write_grads, s->grads);
    build_dep(b, s->write_grads, there);
}

/* From the device to the host, after that node, and with them the partials of their norm, unless
 * that is of a sum with other ranks' gradients. */
static uint32_t copy_grads(struct build *b, uint32_t unit, uint32_t there)
{
    struct build_unit *s = &b->units[unit];
    if (parts_passes_grads(b, unit))
        s->grads = parts_lend(b, unit, POOL_GRADS);
    uint32_t copy =
        build_node(b, NODE_COPY_GRADS, LANE_D2H, PHASE_BACKWARD, (struct node){.unit = unit});
    operands_copy_grads(b, unit);
    build_use(b, copy, s->device_grads);
    build_use(b, copy, s->grads);
    build_dep(b, copy, there);
    return copy;
}

/* All ranks have rounded gradients of the whole row, after that node, and each takes the sum of its
 * shard home. */
static uint32_t exchange_grads(struct build *b, uint32_t unit, uint32_t there)
{
    struct build_unit *s = &b->units[unit];
    uint32_t exchange =
        build_node(b, NODE_EXCHANGE, LANE_NET, PHASE_BACKWARD, (struct node){.unit = unit});
    operands_exchange(b, unit);
    build_use(b, exchange, b->in->device_sums ? s->device_grads : s->grads);
    build_dep(b, exchange, there);
    if (b->in->units[unit].grads != HST_TIER_NVME)
        s->grads = GRAPH_NONE;
    return exchange;
}

/* Replicas have the sums of all shards. */
static uint32_t gather_grads(struct build *b, uint32_t unit, uint32_t exchange)
{
    uint32_t gather =
        build_node(b, NODE_GATHER_GRADS, LANE_NET, PHASE_BACKWARD, (struct node){.unit = unit});
    operands_gather_grads(b, unit);
    build_dep(b, gather, exchange);
    return gather;
}

/* This is where they are when the device is through with them. */
static uint32_t bring_grads(struct build *b, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    const bool leaves = s->device_grads != GRAPH_NONE && !parts_is_resident(b, unit);
    uint32_t there = s->backward;
    if (b->in->device_sums)
        there = exchange_grads(b, unit, there);
    if (leaves)
        there = copy_grads(b, unit, there);
    if (parts_has_ranks(b) && !b->in->device_sums)
        there = exchange_grads(b, unit, there);
    return b->in->replicas ? gather_grads(b, unit, there) : there;
}

/* Rounded gradients, which are there after that node, go home and enter the norm. */
static void take_grads_home(struct build *b, uint32_t unit, uint32_t there)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    s->grads_there = there;
    /* The partials of a device that computes them have come, and are to be waited for; or, of a
       sum of ranks, it computes them now. */
    const bool device = parts_has_ranks(b) && parts_is_resident(b, unit);
    struct node norm = {.unit = unit};
    if (parts_norm_on_host(b, unit))
        norm.work = (double)u->elements, norm.dram_bytes = norm.work * b->in->grad_bytes;
    s->norm = build_node(b, NODE_NORM, device ? LANE_D2H : LANE_UPDATE, PHASE_BACKWARD, norm);
    operands_norm(b, unit);
    build_use(b, s->norm, parts_updates_from_buffer(b, unit) ? s->device_grads : s->grads);
    build_dep(b, s->norm, there);
    write_grads(b, unit, there);
}

static bool is_of_bucket(const struct build *b, uint32_t unit, uint32_t bucket)
{
    return parts_has_grads(b, unit) && b->in->units[unit].bucket == bucket;
}

/* All of a bucket's units wait for the last of their backwards, which end in order, or for the
 * copies behind those: then it is exchanged, and each goes on as others do after their own. */
static void send_bucket(struct build *b, uint32_t unit)
{
    const struct graph_in *in = b->in;
    struct build_unit *s = &b->units[unit];
    const uint32_t bucket = in->units[unit].bucket;
    s->grads_there = s->device_grads == GRAPH_NONE ? s->backward : copy_grads(b, unit, s->backward);
    for (uint32_t i = 0; i < in->unit_count; i++)
        if (is_of_bucket(b, i, bucket) && b->units[i].backward == GRAPH_NONE)
            return;
    uint32_t exchange = exchange_grads(b, unit, s->grads_there);
    for (uint32_t i = 0; in->apart && i < in->unit_count; i++)
        if (i != unit && is_of_bucket(b, i, bucket))
            build_dep(b, exchange, b->units[i].grads_there);
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const uint32_t one = in->backward[i];
        if (!is_of_bucket(b, one, bucket))
            continue;
        take_grads_home(b, one, exchange);
        parts_early_update(b, one);
    }
}

/* After a backward. */
static void send_grads(struct build *b, uint32_t unit)
{
    if (parts_has_grads(b, unit) && b->in->buckets) {
        send_bucket(b, unit);
        return;
    }
    if (parts_has_grads(b, unit))
        take_grads_home(b, unit, bring_grads(b, unit));
    parts_early_update(b, unit);
}

/* ---- visits ---- */

/* A visit reads this: weights in the memory it computes in. */
static void use_weights(struct build *b, uint32_t visit, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    build_use(b, visit, b->in->apart ? s->device_weights : s->weights);
    if (parts_is_joined(b) && s->gather != GRAPH_NONE)
        build_dep(b, visit, s->gather);
    else if (parts_copy_weights(b, unit))
        build_dep(b, visit, s->copy);
    else if (parts_gathers(b))
        await_gathers(b, visit, unit);
    else if (s->weights != GRAPH_NONE)
        parts_depend_on_read(b, visit, unit);
}

unsigned parts_of_forward(const struct build *b, uint32_t unit)
{
    return (unsigned)PHASE_EVAL | (b->in->units[unit].no_forward ? 0u : PHASE_FORWARD);
}

void parts_forward(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    lend_acts(b, unit);
    s->forward = build_node(b, NODE_FORWARD, LANE_COMPUTE, parts_of_forward(b, unit),
                            (struct node){.unit = unit, .work = b->in->units[unit].forward_flops});
    operands_visit(b, unit, true, false);
    use_weights(b, s->forward, unit);
    build_use(b, s->forward, b->in->apart ? s->device_acts : s->acts);
    send_acts(b, unit);
    if (!s->retain_weights)
        parts_give_back(b, unit);
    if (!s->retain_device_weights)
        parts_give_back_device(b, unit);
}

/* It reads the checkpoint that was kept, or writes one that no reservation is for: those of a
 * segment have places of their own, and its last one is the hidden state. */
void parts_recompute(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    uint32_t visit =
        build_node(b, NODE_RECOMPUTE, LANE_COMPUTE, PHASE_BACKWARD,
                   (struct node){.unit = unit, .work = b->in->units[unit].forward_flops});
    operands_visit(b, unit, true, false);
    use_weights(b, visit, unit);
    build_use(b, visit, b->in->apart ? s->device_acts : s->acts);
    build_dep(b, visit, s->acts_moved == s->forward ? GRAPH_NONE : s->acts_moved);
    if (!b->in->apart && !s->hold_weights)
        parts_give_back(b, unit);
    if (!s->hold_device_weights)
        parts_give_back_device(b, unit);
}

void parts_backward(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    lend_grads(b, unit);
    s->backward =
        build_node(b, NODE_BACKWARD, LANE_COMPUTE, PHASE_BACKWARD,
                   (struct node){.unit = unit, .work = b->in->units[unit].backward_flops});
    bool blind = b->in->units[unit].blind_backward;
    operands_visit(b, unit, !blind, !b->in->units[unit].frozen);
    if (!blind)
        use_weights(b, s->backward, unit);
    build_use(b, s->backward, b->in->apart ? s->device_acts : s->acts);
    build_use(b, s->backward, b->in->apart ? s->device_grads : s->grads);
    build_dep(b, s->backward, s->acts_moved == s->forward ? GRAPH_NONE : s->acts_moved);
    send_grads(b, unit);
    s->last_weights = s->weights;
}
