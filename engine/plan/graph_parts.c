/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the visits of a unit are made of: the nodes that bring its weights, checkpoints and
 * gradients, its update, and those that take them home. plan/graph.c puts them in order.
 */
#include "plan/graph_build.h"

/* Tiles of an update that has weights alone on a drive: enough for all workers, small against a
 * unit. */
#define UPDATE_WEIGHTS_TILES 8u

/* ---- weights in host memory ---- */

enum pool parts_pool(const struct build *b, uint32_t unit, enum pool pool)
{
    return pool_for(b->in->buffers, pool, b->in->units[unit].wide);
}

static uint32_t lend(struct build *b, uint32_t unit, enum pool pool)
{
    return build_lease(b, parts_pool(b, unit, pool));
}

bool parts_is_resident(const struct build *b, uint32_t unit)
{
    return b->in->units[unit].weights == HST_TIER_HBM;
}

bool parts_lease_weights(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool away = u->weights == HST_TIER_NVME && u->tile_count > 0;
    for (uint32_t i = 0; i < u->alias_count; i++)
        away = away || b->in->units[u->alias_of[i]].weights == HST_TIER_NVME;
    return away;
}

static double lease_bytes(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    double bytes = u->weights == HST_TIER_NVME ? (double)u->elements * b->in->weight_bytes : 0;
    for (uint32_t i = 0; i < u->alias_count; i++)
        if (b->in->units[u->alias_of[i]].weights == HST_TIER_NVME)
            bytes += (double)u->alias_bytes[i];
    return bytes;
}

/*
 * While weights are read no tile is, and when the slots run dry nothing is updated and nothing
 * written: a piece is half of what the slots hold.
 */
static uint32_t count_pieces(const struct build *b, double bytes)
{
    double slots = b->graph->buffers[POOL_TILES];
    double piece = slots / 2 * b->in->tile_elements * b->in->weight_bytes;
    return piece > 0 && bytes > piece ? (uint32_t)(bytes / piece) + 1 : 1;
}

void parts_plan_read(struct build *b, uint32_t unit, unsigned parts)
{
    if (!parts_lease_weights(b, unit) || b->units[unit].weights != GRAPH_NONE)
        return;
    double bytes = lease_bytes(b, unit);
    uint32_t pieces = count_pieces(b, bytes);
    b->reading =
        (struct build_reading){.unit = unit, .parts = parts, .bytes = bytes, .pieces = pieces};
}

static void read_piece(struct build *b)
{
    struct build_reading *r = &b->reading;
    struct build_unit *s = &b->units[r->unit];
    if (r->done == 0) {
        s->weights = lend(b, r->unit, POOL_WEIGHTS);
        s->first_read = b->graph->node_count;
        if (s->first_weights == GRAPH_NONE)
            s->first_weights = s->weights;
    }
    double bytes = r->bytes / r->pieces;
    uint32_t node = build_node(b, NODE_READ_WEIGHTS, LANE_READ, r->parts,
                               (struct node){.unit = r->unit,
                                             .tile = r->done,
                                             .tile_count = r->pieces,
                                             .work = bytes,
                                             .dram_bytes = bytes});
    build_use(b, node, s->weights);
    s->last_read = node;
    r->done++;
}

/* The share done / whole of the pieces. */
static void read_share(struct build *b, uint64_t done, uint64_t whole)
{
    while (b->rc == 0 && b->reading.done < b->reading.pieces * done / whole)
        read_piece(b);
}

void parts_read(struct build *b, uint32_t unit, unsigned parts)
{
    if (b->reading.unit != unit || b->reading.done == b->reading.pieces)
        parts_plan_read(b, unit, parts);
    read_share(b, 1, 1);
}

/* The node waits for all pieces of the unit's weights that were read last. */
static void depend_on_read(struct build *b, uint32_t node, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    for (uint32_t i = s->first_read; b->rc == 0 && i <= s->last_read; i++)
        if (b->graph->nodes[i].kind == NODE_READ_WEIGHTS && b->graph->nodes[i].unit == unit)
            build_dep(b, node, i);
}

/* ---- update ---- */

bool parts_is_late(const struct build *b, uint32_t unit)
{
    return b->units[unit].late_first < b->units[unit].late_end;
}

bool parts_is_early(const struct build *b, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    return s->late_end - s->late_first < b->in->units[unit].tile_count;
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

/* `count` tiles from the unit's `first` one on: read, update, write, as far as their homes ask. In
 * its backward a unit's gradients are where that left them, later they are at home. */
static void add_update(struct build *b, uint32_t unit, uint32_t first, uint32_t count,
                       unsigned part)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    const struct build_unit *s = &b->units[unit];
    bool weights = u->weights == HST_TIER_NVME, states = first < u->nvme_states;
    bool late = part != PART_BACKWARD;
    bool grads = late && u->grads == HST_TIER_NVME && !s->keep_grads;
    uint32_t kept_grads = late ? s->kept_grads : s->grads;
    double elements = tile_elements(b, unit, first, count);
    uint32_t slot = states || grads ? build_lease(b, POOL_TILES) : GRAPH_NONE;
    uint32_t read = GRAPH_NONE;
    struct node node = {.unit = unit, .tile = u->first_tile + first, .tile_count = count};
    if (slot != GRAPH_NONE) {
        node.work = node.dram_bytes =
            elements * ((states ? in->state_bytes : 0) + (grads ? in->grad_bytes : 0));
        read = build_node(b, NODE_READ_TILE, LANE_READ, part, node);
        build_use(b, read, slot);
        build_use(b, read, late ? kept_grads : GRAPH_NONE);
    }
    node.work = elements;
    bool device = parts_is_resident(b, unit);
    node.dram_bytes = device ? 0 : elements * bytes_per_update(in);
    uint32_t update = build_node(b, NODE_UPDATE, device ? LANE_COMPUTE : LANE_UPDATE, part, node);
    build_use(b, update, slot);
    build_use(b, update, weights ? s->weights : GRAPH_NONE);
    build_use(b, update, kept_grads);
    build_dep(b, update, read);
    if (!states && !weights)
        return;
    node.work = node.dram_bytes =
        elements * ((states ? in->state_bytes : 0) + (weights ? in->weight_bytes : 0));
    uint32_t write = build_node(b, NODE_WRITE_TILE, LANE_WRITE, part, node);
    build_use(b, write, states ? slot : GRAPH_NONE);
    build_use(b, write, weights ? s->weights : GRAPH_NONE);
    build_dep(b, write, update);
}

struct tiles {
    uint32_t first, end;
};

/*
 * The update of some of a unit's tiles. Those whose states are away, on a drive, come one by one
 * between the others, so that drives and optimizer work all the time and not one after the other.
 * Weights that are read next come in pieces between them, for the same reason.
 */
static void add_tiles(struct build *b, uint32_t unit, struct tiles away, struct tiles home,
                      unsigned part)
{
    const struct graph_unit *u = &b->in->units[unit];
    uint64_t aways = away.end - away.first, homes = home.end - home.first, i = 0, j = 0;
    uint32_t most = u->weights == HST_TIER_NVME ? UPDATE_WEIGHTS_TILES : UPDATE_TILES_MOST;
    if (part != PART_BACKWARD && u->grads == HST_TIER_NVME && !b->units[unit].keep_grads)
        most = 1; /* its gradients come in a slot too */
    while (i + j < aways + homes && b->rc == 0) {
        uint64_t due = i < aways ? i * homes / aways : homes; /* of those at home, by now */
        if (j < due) {
            uint32_t count = due - j < most ? (uint32_t)(due - j) : most;
            add_update(b, unit, home.first + (uint32_t)j, count, part);
            j += count;
        } else {
            add_update(b, unit, away.first + (uint32_t)i++, 1, part);
        }
        read_share(b, i + j, aways + homes);
    }
}

/* The first update among these nodes waits for the unit's weights, and for gradients that were
 * kept; the others begin behind it. */
static void await_unit(struct build *b, uint32_t unit, const uint32_t nodes[2])
{
    uint32_t i = nodes[0];
    while (b->rc == 0 && i < nodes[1] && b->graph->nodes[i].kind != NODE_UPDATE)
        i++;
    if (b->rc || i == nodes[1])
        return;
    if (b->in->units[unit].weights == HST_TIER_NVME)
        depend_on_read(b, i, unit);
    if (b->graph->nodes[nodes[0]].kind == NODE_READ_GRADS)
        build_dep(b, i, nodes[0]);
}

static void early_tiles(struct build *b, uint32_t unit, unsigned part)
{
    const struct build_unit *s = &b->units[unit];
    uint32_t first = b->graph->node_count, end = b->in->units[unit].tile_count;
    add_tiles(b, unit, (struct tiles){0, s->late_first}, (struct tiles){s->late_end, end}, part);
    await_unit(b, unit, (uint32_t[]){first, b->graph->node_count});
}

/* Gradients that were kept for it; all of them are read where something came in between. */
static void take_grads(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    struct build_unit *s = &b->units[unit];
    if (!s->keep_grads)
        return;
    double bytes = (double)u->elements * b->in->grad_bytes;
    s->kept_grads = lend(b, unit, POOL_GRADS);
    uint32_t read = build_node(b, NODE_READ_GRADS, LANE_READ, PART_UPDATE,
                               (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
    build_use(b, read, s->kept_grads);
}

void parts_late_update(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    uint32_t turn = b->in->units[unit].nvme_states;
    s->update[0] = b->graph->node_count;
    take_grads(b, unit);
    add_tiles(b, unit, (struct tiles){s->late_first, turn}, (struct tiles){turn, s->late_end},
              PART_UPDATE);
    await_unit(b, unit, (uint32_t[]){s->update[0], b->graph->node_count});
    if (b->in->optimistic)
        early_tiles(b, unit, PART_REDO);
    s->update[1] = b->graph->node_count;
}

static void early_update(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    s->update[2] = b->graph->node_count;
    early_tiles(b, unit, PART_BACKWARD);
    s->update[3] = b->graph->node_count;
}

/* Tiles of one node: enough for a drive's queue. */
#define SAVE_TILES 16u

/* What is in the device's memory comes by way of a slot. */
static void save_tiles(struct build *b, uint32_t unit, uint32_t first, uint32_t count, double bytes)
{
    struct node node = {.unit = unit,
                        .tile = b->in->units[unit].first_tile + first,
                        .tile_count = count,
                        .work = bytes,
                        .dram_bytes = bytes};
    uint32_t slot = GRAPH_NONE, copy = GRAPH_NONE;
    if (parts_is_resident(b, unit)) {
        slot = build_lease(b, POOL_TILES);
        copy = build_node(b, NODE_COPY_TILE, LANE_D2H, PART_SAVE, node);
        build_use(b, copy, slot);
    }
    uint32_t save = build_node(b, NODE_SAVE_TILES, LANE_WRITE, PART_SAVE, node);
    build_use(b, save, slot);
    build_dep(b, save, copy);
}

void parts_save(struct build *b, uint32_t unit)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    bool weights = u->weights != HST_TIER_NVME && !in->derived_weights;
    uint32_t most = parts_is_resident(b, unit) ? 1 : SAVE_TILES;
    b->units[unit].save[0] = b->graph->node_count;
    for (uint32_t first = 0, count; in->stored && first < u->tile_count; first += count) {
        bool states = first >= u->nvme_states;
        uint32_t left = (states ? u->tile_count : u->nvme_states) - first;
        count = left < most ? left : most;
        if (states || weights)
            save_tiles(b, unit, first, count,
                       tile_elements(b, unit, first, count) *
                           ((states ? in->state_bytes : 0) + (weights ? in->weight_bytes : 0)));
    }
    b->units[unit].save[1] = b->graph->node_count;
}

/* ---- weights in the device's memory ---- */

bool parts_copy_weights(const struct build *b, uint32_t unit)
{
    return b->in->apart && !parts_is_resident(b, unit);
}

bool parts_uses_weights(const struct build *b, struct build_visit visit)
{
    return visit.recompute || !b->in->units[visit.unit].blind_backward;
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

void parts_copy(struct build *b, uint32_t unit, unsigned parts)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_copy_weights(b, unit) || s->device_weights != GRAPH_NONE)
        return;
    s->device_weights = lend(b, unit, POOL_DEVICE_WEIGHTS);
    double bytes = view_bytes(b, unit);
    s->copy = build_node(b, NODE_COPY_WEIGHTS, LANE_H2D, parts,
                         (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
    build_use(b, s->copy, s->device_weights);
    build_use(b, s->copy, s->weights);
    if (s->weights != GRAPH_NONE)
        depend_on_read(b, s->copy, unit);
}

void parts_give_back(struct build *b, uint32_t unit)
{
    b->units[unit].weights = GRAPH_NONE;
}

void parts_give_back_device(struct build *b, uint32_t unit)
{
    b->units[unit].device_weights = b->units[unit].copy = GRAPH_NONE;
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

bool parts_move_acts(const struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    bool away = b->in->apart ? u->acts != HST_TIER_HBM : u->acts == HST_TIER_NVME;
    return away && u->act_bytes > 0 && !u->no_forward;
}

/* Before a forward: where it puts its checkpoints. */
static void lend_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit))
        return;
    if (b->in->apart)
        s->device_acts = build_lease(b, POOL_DEVICE_ACTS);
    else
        s->acts = build_lease(b, POOL_ACTS);
}

/* After a forward: its checkpoints go home, unless their buffer is kept for the backward. */
static void send_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    s->acts_moved = s->forward;
    if (!parts_move_acts(b, unit) || s->keep_acts)
        return;
    if (s->device_acts != GRAPH_NONE) {
        if (b->in->units[unit].acts == HST_TIER_NVME)
            s->acts = build_lease(b, POOL_ACTS);
        move_acts(b, unit, NODE_STORE_ACTS, LANE_D2H, s->device_acts, s->acts, PART_FORWARD);
        s->device_acts = GRAPH_NONE;
    }
    if (s->acts != GRAPH_NONE)
        move_acts(b, unit, NODE_WRITE_ACTS, LANE_WRITE, s->acts, GRAPH_NONE, PART_FORWARD);
    s->acts = GRAPH_NONE;
}

/* Before a backward they come back, the same way. */
void parts_read_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit) || s->keep_acts || b->in->units[unit].acts != HST_TIER_NVME)
        return;
    s->acts = build_lease(b, POOL_ACTS);
    move_acts(b, unit, NODE_READ_ACTS, LANE_READ, s->acts, GRAPH_NONE, PART_BACKWARD);
}

void parts_fetch_acts(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!parts_move_acts(b, unit) || s->keep_acts || !b->in->apart)
        return;
    s->device_acts = build_lease(b, POOL_DEVICE_ACTS);
    move_acts(b, unit, NODE_FETCH_ACTS, LANE_H2D, s->acts, s->device_acts, PART_BACKWARD);
    s->acts = GRAPH_NONE;
}

/* ---- gradients ---- */

static void lend_grads(struct build *b, uint32_t unit)
{
    const struct graph_unit *u = &b->in->units[unit];
    if (b->in->apart && u->grads != HST_TIER_HBM && u->tile_count > 0)
        b->units[unit].device_grads = lend(b, unit, POOL_DEVICE_GRADS);
    else if (u->grads == HST_TIER_NVME && u->tile_count > 0)
        b->units[unit].grads = lend(b, unit, POOL_GRADS);
}

/* The gradients of late tiles wait on the drives, and all that a redo may want. */
static void write_grads(struct build *b, uint32_t unit, uint32_t there)
{
    struct build_unit *s = &b->units[unit];
    bool all = b->in->optimistic;
    uint32_t first = all ? 0 : s->late_first;
    uint32_t count = all ? b->in->units[unit].tile_count : s->late_end - s->late_first;
    if (s->grads == GRAPH_NONE || count == 0 || s->keep_grads)
        return;
    double bytes = tile_elements(b, unit, first, count) * b->in->grad_bytes;
    s->write_grads = build_node(b, NODE_WRITE_GRADS, LANE_WRITE, PART_BACKWARD,
                                (struct node){.unit = unit,
                                              .tile = b->in->units[unit].first_tile + first,
                                              .tile_count = count,
                                              .work = bytes,
                                              .dram_bytes = bytes});
    build_use(b, s->write_grads, s->grads);
    build_dep(b, s->write_grads, there);
}

/* After a backward: the rounded gradients go home and enter the norm. */
static void send_grads(struct build *b, uint32_t unit)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    struct build_unit *s = &b->units[unit];
    double bytes = (double)u->elements * in->grad_bytes;
    uint32_t there = s->backward;
    if (s->device_grads != GRAPH_NONE) {
        if (u->grads == HST_TIER_NVME)
            s->grads = lend(b, unit, POOL_GRADS);
        there = build_node(b, NODE_COPY_GRADS, LANE_D2H, PART_BACKWARD,
                           (struct node){.unit = unit, .work = bytes, .dram_bytes = bytes});
        build_use(b, there, s->device_grads);
        build_use(b, there, s->grads);
        build_dep(b, there, s->backward);
    }
    /* On the device it follows the backward in its stream; what is left is to wait for it. */
    struct node norm = {.unit = unit};
    if (!parts_is_resident(b, unit))
        norm.work = (double)u->elements, norm.dram_bytes = bytes;
    s->norm = build_node(b, NODE_NORM, LANE_UPDATE, PART_BACKWARD, norm);
    build_use(b, s->norm, s->grads);
    build_dep(b, s->norm, there);
    write_grads(b, unit, there);
}

/* ---- visits ---- */

/* What a visit reads: weights in the memory it computes in. */
static void use_weights(struct build *b, uint32_t visit, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    build_use(b, visit, b->in->apart ? s->device_weights : s->weights);
    if (b->in->apart)
        build_dep(b, visit, s->copy);
    else if (s->weights != GRAPH_NONE)
        depend_on_read(b, visit, unit);
}

unsigned parts_of_forward(const struct build *b, uint32_t unit)
{
    return (unsigned)PART_EVAL | (b->in->units[unit].no_forward ? 0u : PART_FORWARD);
}

void parts_forward(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    lend_acts(b, unit);
    s->forward = build_node(b, NODE_FORWARD, LANE_COMPUTE, parts_of_forward(b, unit),
                            (struct node){.unit = unit, .work = b->in->units[unit].forward_flops});
    use_weights(b, s->forward, unit);
    build_use(b, s->forward, b->in->apart ? s->device_acts : s->acts);
    send_acts(b, unit);
    if (!s->keep_weights)
        parts_give_back(b, unit);
    if (!s->keep_device_weights)
        parts_give_back_device(b, unit);
}

/* It reads the checkpoint that was kept, or writes one that no lease is for: those of a segment
 * have places of their own, and its last one is the carry. */
void parts_recompute(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    uint32_t visit =
        build_node(b, NODE_RECOMPUTE, LANE_COMPUTE, PART_BACKWARD,
                   (struct node){.unit = unit, .work = b->in->units[unit].forward_flops});
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
        build_node(b, NODE_BACKWARD, LANE_COMPUTE, PART_BACKWARD,
                   (struct node){.unit = unit, .work = b->in->units[unit].backward_flops});
    if (!b->in->units[unit].blind_backward)
        use_weights(b, s->backward, unit);
    build_use(b, s->backward, b->in->apart ? s->device_acts : s->acts);
    build_use(b, s->backward, b->in->apart ? s->device_grads : s->grads);
    build_dep(b, s->backward, s->acts_moved == s->forward ? GRAPH_NONE : s->acts_moved);
    if (b->in->units[unit].tile_count > 0)
        send_grads(b, unit);
    early_update(b, unit);
    s->last_weights = s->weights;
}
