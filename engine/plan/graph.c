/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the step graph in program order: for each visit of a unit what it needs, the visit, what
 * it leaves. Dependencies between places that are not next to each other (an update and the read of
 * what it wrote) are linked at the end, by one rule: an earlier node is of this period, a later one
 * of the period before.
 */
#include "plan/graph_build.h"

#include "plan/walk.h"

#include <errno.h>
#include <stdlib.h>

/* Tiles of an update that has weights alone on a drive: enough for all workers, small against a
 * unit. */
#define UPDATE_WEIGHTS_TILES 8u

/* ---- parts of a period: update ---- */

static bool weights_need_lease(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool away = u->weights == HST_TIER_NVME && u->tile_count > 0;
    for (uint32_t i = 0; i < u->alias_count; i++)
        away = away || b->in->units[u->alias_of[i]].weights == HST_TIER_NVME;
    return away;
}

static double bytes_per_update(const struct graph_in *in)
{
    return 2 * (in->state_bytes + in->weight_bytes) + in->grad_bytes;
}

/* Elements of `count` tiles of a unit from its `first` one on; the last may be short. */
static double tile_elements(const struct build *b, uint32_t unit, uint32_t first, uint32_t count)
{
    uint64_t start = (uint64_t)first * b->in->tile_elements;
    uint64_t end = start + (uint64_t)count * b->in->tile_elements;
    uint64_t elements = b->in->units[unit].elements;
    return (double)((end < elements ? end : elements) - start);
}

/* `count` tiles from the unit's `first` one on: read, update, write, as far as their homes ask. */
static void add_update(struct build *b, uint32_t unit, uint32_t first, uint32_t count, bool states)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    bool weights = u->weights == HST_TIER_NVME;
    bool grads = in->deferred && u->grads == HST_TIER_NVME;
    double elements = tile_elements(b, unit, first, count);
    uint32_t slot = states || grads ? build_lease(b, POOL_TILES) : GRAPH_NONE;
    uint32_t read = GRAPH_NONE;
    struct node node = {.unit = unit, .tile = u->first_tile + first, .tile_count = count};
    if (slot != GRAPH_NONE) {
        node.work = node.dram_bytes =
            elements * ((states ? in->state_bytes : 0) + (grads ? in->grad_bytes : 0));
        read = build_node(b, NODE_READ_TILE, LANE_READ, b->update_part, node);
        build_use(b, read, slot);
    }
    node.work = elements;
    node.dram_bytes = elements * bytes_per_update(in);
    uint32_t update = build_node(b, NODE_UPDATE, in->update_on_device ? LANE_COMPUTE : LANE_UPDATE,
                                 b->update_part, node);
    build_use(b, update, slot);
    build_use(b, update, b->units[unit].weights);
    build_use(b, update, in->deferred ? GRAPH_NONE : b->units[unit].grads);
    build_dep(b, update, read);
    build_dep(b, update, b->units[unit].read);
    b->units[unit].update = update;
    if (!states && !weights)
        return;
    node.work = node.dram_bytes =
        elements * ((states ? in->state_bytes : 0) + (weights ? in->weight_bytes : 0));
    uint32_t write = build_node(b, NODE_WRITE_TILE, LANE_WRITE, b->update_part, node);
    build_use(b, write, states ? slot : GRAPH_NONE);
    build_use(b, write, weights ? b->units[unit].weights : GRAPH_NONE);
    build_dep(b, write, update);
}

static void add_updates(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool grads = b->in->deferred && u->grads == HST_TIER_NVME;
    uint32_t most = u->weights == HST_TIER_NVME ? UPDATE_WEIGHTS_TILES : UPDATE_TILES_MOST;
    b->units[unit].first_update = b->graph->node_count;
    for (uint32_t t = 0; t < u->tile_count && b->rc == 0;) {
        bool states = t < u->nvme_states;
        uint32_t left = u->tile_count - t;
        uint32_t count = states || grads ? 1 : left < most ? left : most;
        add_update(b, unit, t, count, states);
        t += count;
    }
    b->units[unit].end_update = b->graph->node_count;
    b->units[unit].updated = true;
}

/* ---- weights ---- */

static double lease_bytes(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    double bytes = u->weights == HST_TIER_NVME ? (double)u->elements * b->in->weight_bytes : 0;
    for (uint32_t i = 0; i < u->alias_count; i++)
        if (b->in->units[u->alias_of[i]].weights == HST_TIER_NVME)
            bytes += (double)u->alias_bytes[i];
    return bytes;
}

/* All bytes that the computation with a unit reads: its own weights and those it is an alias of. */
static double view_bytes(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    double bytes = (double)u->elements * b->in->weight_bytes;
    for (uint32_t i = 0; i < u->alias_count; i++)
        bytes += (double)u->alias_bytes[i];
    return bytes;
}

/* The unit's weights in host memory, where they are not at home there. */
static void add_read(struct build *b, uint32_t unit, unsigned parts)
{
    struct build_unit *s = &b->units[unit];
    if (!weights_need_lease(b, unit) || s->weights != GRAPH_NONE)
        return;
    s->weights = build_lease(b, POOL_WEIGHTS);
    double bytes = lease_bytes(b, unit);
    s->read = build_node(b, NODE_READ_WEIGHTS, LANE_READ, parts,
                         (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
    build_use(b, s->read, s->weights);
    if (s->first_weights == GRAPH_NONE)
        s->first_weights = s->weights;
}

static bool copies_weights(const struct build *b, uint32_t unit)
{
    return b->in->apart && b->in->units[unit].weights != HST_TIER_HBM;
}

/* The unit's weights in the device's memory, where it has its own. */
static void add_copy(struct build *b, uint32_t unit, unsigned parts)
{
    struct build_unit *s = &b->units[unit];
    if (!copies_weights(b, unit) || s->device_weights != GRAPH_NONE)
        return;
    s->device_weights = build_lease(b, POOL_DEVICE_WEIGHTS);
    double bytes = view_bytes(b, unit);
    s->copy = build_node(b, NODE_COPY_WEIGHTS, LANE_H2D, parts,
                         (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
    build_use(b, s->copy, s->device_weights);
    build_use(b, s->copy, s->weights);
    build_dep(b, s->copy, s->read);
}

/* ---- checkpoints ---- */

static void move_acts(struct build *b, uint32_t unit, enum node_kind kind, enum lane lane,
                      uint32_t from, uint32_t to, unsigned part)
{
    struct build_unit *s = &b->units[unit];
    double bytes = (double)b->in->units[unit].act_bytes;
    uint32_t node = build_node(b, kind, lane, part,
                               (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
    build_use(b, node, from);
    build_use(b, node, to);
    build_dep(b, node, s->acts_moved);
    s->acts_moved = node;
}

/* Before a forward: where it puts its checkpoints. */
static void lend_acts(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    if (u->act_bytes == 0)
        return;
    if (b->in->apart && u->acts != HST_TIER_HBM)
        s->device_acts = build_lease(b, POOL_DEVICE_ACTS);
    else if (!b->in->apart && u->acts == HST_TIER_NVME)
        s->acts = build_lease(b, POOL_ACTS);
}

/* After a forward: its checkpoints go home, unless their buffer is kept for the backward. */
static void send_acts(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    bool nvme = u->acts == HST_TIER_NVME;
    s->acts_moved = s->forward;
    if (s->device_acts != GRAPH_NONE && !s->keep_acts) {
        if (nvme)
            s->acts = build_lease(b, POOL_ACTS);
        move_acts(b, unit, NODE_STORE_ACTS, LANE_D2H, s->device_acts, s->acts, PART_FORWARD);
        s->device_acts = GRAPH_NONE;
    }
    if (s->acts != GRAPH_NONE && !s->keep_acts) {
        move_acts(b, unit, NODE_WRITE_ACTS, LANE_WRITE, s->acts, GRAPH_NONE, PART_FORWARD);
        s->acts = GRAPH_NONE;
    }
}

/* Before a backward: its checkpoints come back, the same way. */
static void bring_acts(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    if (u->act_bytes == 0 || s->keep_acts)
        return;
    if (u->acts == HST_TIER_NVME) {
        s->acts = build_lease(b, POOL_ACTS);
        move_acts(b, unit, NODE_READ_ACTS, LANE_READ, s->acts, GRAPH_NONE, PART_BACKWARD);
    }
    if (b->in->apart && u->acts != HST_TIER_HBM) {
        s->device_acts = build_lease(b, POOL_DEVICE_ACTS);
        move_acts(b, unit, NODE_FETCH_ACTS, LANE_H2D, s->acts, s->device_acts, PART_BACKWARD);
        s->acts = GRAPH_NONE;
    }
}

/* ---- gradients ---- */

static void lend_grads(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    if (b->in->apart && u->grads != HST_TIER_HBM && u->tile_count > 0)
        b->units[unit].device_grads = build_lease(b, POOL_DEVICE_GRADS);
    else if (u->grads == HST_TIER_NVME && u->tile_count > 0)
        b->units[unit].grads = build_lease(b, POOL_GRADS);
}

/* After a backward: the rounded gradients go home and enter the norm. */
static void send_grads(struct build *b, uint32_t unit)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    struct build_unit *s = &b->units[unit];
    double bytes = (double)u->elements * in->grad_bytes;
    struct node move = {.unit = unit, .work = bytes, .dram_bytes = bytes};
    uint32_t there = s->backward;
    if (s->device_grads != GRAPH_NONE) {
        if (u->grads == HST_TIER_NVME)
            s->grads = build_lease(b, POOL_GRADS);
        there = build_node(b, NODE_COPY_GRADS, LANE_D2H, PART_BACKWARD, move);
        build_use(b, there, s->device_grads);
        build_use(b, there, s->grads);
        build_dep(b, there, s->backward);
    }
    /* On the device it follows the backward in its stream; what is left is to wait for it. */
    struct node norm = {.unit = unit};
    if (!in->update_on_device)
        norm.work = (double)u->elements, norm.dram_bytes = bytes;
    s->norm = build_node(b, NODE_NORM, LANE_UPDATE, PART_BACKWARD, norm);
    build_use(b, s->norm, s->grads);
    build_dep(b, s->norm, there);
    if (s->grads != GRAPH_NONE && in->deferred) {
        s->write_grads = build_node(b, NODE_WRITE_GRADS, LANE_WRITE, PART_BACKWARD, move);
        build_use(b, s->write_grads, s->grads);
        build_dep(b, s->write_grads, there);
    }
}

/* ---- visits ---- */

static void add_forward(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    unsigned parts = (unsigned)PART_EVAL | (u->no_forward ? 0u : PART_FORWARD);
    unsigned later = s->keep_weights ? PART_BACKWARD : 0u;
    bool update = b->in->deferred && !s->updated;
    add_read(b, unit, parts | later | (update ? PART_UPDATE : 0u));
    if (update)
        add_updates(b, unit);
    add_copy(b, unit, parts | (s->keep_device_weights ? PART_BACKWARD : 0u));
    if (!u->no_forward)
        lend_acts(b, unit);
    s->forward = build_node(b, NODE_FORWARD, LANE_COMPUTE, parts,
                            (struct node){.unit = unit, .work = u->forward_flops});
    build_use(b, s->forward, b->in->apart ? s->device_weights : s->weights);
    build_use(b, s->forward, b->in->apart ? s->device_acts : s->acts);
    build_dep(b, s->forward, b->in->apart ? s->copy : s->read);
    if (!u->no_forward)
        send_acts(b, unit);
    if (!s->keep_weights)
        s->weights = s->read = GRAPH_NONE;
    if (!s->keep_device_weights)
        s->device_weights = s->copy = GRAPH_NONE;
}

static void add_backward(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    add_read(b, unit, PART_BACKWARD);
    add_copy(b, unit, PART_BACKWARD);
    bring_acts(b, unit);
    lend_grads(b, unit);
    s->backward = build_node(b, NODE_BACKWARD, LANE_COMPUTE, PART_BACKWARD,
                             (struct node){.unit = unit, .work = u->backward_flops});
    build_use(b, s->backward, b->in->apart ? s->device_weights : s->weights);
    build_use(b, s->backward, b->in->apart ? s->device_acts : s->acts);
    build_use(b, s->backward, b->in->apart ? s->device_grads : s->grads);
    build_dep(b, s->backward, b->in->apart ? s->copy : s->read);
    build_dep(b, s->backward, s->acts_moved == s->forward ? GRAPH_NONE : s->acts_moved);
    if (u->tile_count > 0)
        send_grads(b, unit);
    if (!b->in->deferred)
        add_updates(b, unit);
    s->last_weights = s->weights;
}

/* ---- the whole ---- */

static bool has_moving_acts(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool moves = b->in->apart ? u->acts != HST_TIER_HBM : u->acts == HST_TIER_NVME;
    return moves && u->act_bytes > 0 && !u->no_forward;
}

/* Units that are used last before the turn from forward to backward and first after it, in mirrored
 * order, are kept over it, as many as there are buffers. */
static void choose_kept(struct build *b)
{
    const struct graph_in *in = b->in;
    const uint32_t *buffers = b->graph->buffers;
    uint32_t weights = 0, copies = 0, acts = 0;
    for (uint32_t i = 0; i < in->unit_count; i++) {
        uint32_t unit = in->backward[i];
        struct build_unit *s = &b->units[unit];
        if (in->forward[in->unit_count - 1 - i] != unit)
            return;
        if (weights_need_lease(b, unit))
            s->keep_weights = !in->apart && weights++ < buffers[POOL_WEIGHTS];
        if (copies_weights(b, unit))
            s->keep_device_weights = copies++ < buffers[POOL_DEVICE_WEIGHTS];
        if (has_moving_acts(b, unit))
            s->keep_acts = acts++ < buffers[in->apart ? POOL_DEVICE_ACTS : POOL_ACTS];
    }
}

/* Over the turn from one period to the next weights in host memory are kept where the update works
 * on them in place. What a unit reads of others has changed meanwhile: it comes anew. */
static void choose_heirs(struct build *b)
{
    const struct graph_in *in = b->in;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < in->unit_count && !in->apart; i++) {
        uint32_t unit = in->forward[i];
        const struct build_unit *s = &b->units[unit];
        if (in->backward[in->unit_count - 1 - i] != unit)
            return;
        if (!weights_need_lease(b, unit))
            continue;
        if (kept++ >= b->graph->buffers[POOL_WEIGHTS])
            return;
        if (in->units[unit].alias_count > 0)
            continue;
        b->graph->leases[s->last_weights].heir = s->first_weights;
        b->graph->leases[s->first_weights].legacy = s->last_weights;
    }
}

static int check_pools(const struct graph_in *in)
{
    bool needs[POOL_COUNT] = {false};
    for (uint32_t i = 0; i < in->unit_count; i++) {
        const struct graph_unit *u = &in->units[i];
        bool grads = u->grads == HST_TIER_NVME && u->tile_count > 0;
        needs[POOL_WEIGHTS] |= u->weights == HST_TIER_NVME && u->tile_count > 0;
        needs[POOL_TILES] |= u->nvme_states > 0 || (grads && in->deferred);
        needs[POOL_GRADS] |= grads;
        needs[POOL_ACTS] |= u->acts == HST_TIER_NVME && u->act_bytes > 0;
        if (!in->apart)
            continue;
        needs[POOL_DEVICE_WEIGHTS] |= u->weights != HST_TIER_HBM;
        needs[POOL_DEVICE_GRADS] |= u->grads != HST_TIER_HBM && u->tile_count > 0;
        needs[POOL_DEVICE_ACTS] |= u->acts != HST_TIER_HBM && u->act_bytes > 0;
    }
    for (int p = 0; p < POOL_COUNT; p++)
        if (needs[p] && in->buffers[p] == 0)
            return -ENOSPC;
    return 0;
}

static void add_clip(struct build *b)
{
    uint32_t clip = build_node(b, NODE_CLIP, LANE_UPDATE, PART_BACKWARD, (struct node){0});
    for (uint32_t i = 0; i < b->in->unit_count; i++)
        build_dep(b, clip, b->units[i].norm);
    b->clip = clip;
}

int graph_build(const struct graph_in *in, struct graph *graph)
{
    struct build b = {
        .in = in, .graph = graph, .update_part = in->deferred ? PART_UPDATE : PART_BACKWARD};
    int rc = check_pools(in);
    if (rc)
        return rc;
    *graph = (struct graph){.unit_count = in->unit_count};
    for (int p = 0; p < POOL_COUNT; p++)
        graph->buffers[p] = in->buffers[p];
    rc = build_open(&b);
    if (rc)
        return rc;
    choose_kept(&b);
    for (uint32_t i = 0; i < in->unit_count && b.rc == 0; i++)
        add_forward(&b, in->forward[i]);
    for (uint32_t i = 0; i < in->unit_count && b.rc == 0; i++)
        add_backward(&b, in->backward[i]);
    add_clip(&b);
    choose_heirs(&b);
    return build_close(&b);
}
