/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file makes the update of a unit: the nodes that bring its tiles to whoever updates them, the
 * update, and those that take them home or to the store.
 */
#include "plan/graph/graph_build.h"

/* Tiles of an update that has weights alone on a drive: enough for all workers, small against a
 * unit. */
#define UPDATE_WEIGHTS_TILES 8u

/* Elements of an update of the host's beside the device's: when it is done the device's lanes are
 * looked at again. */
#define UPDATE_BESIDE_ELEMENTS (2u << 20)

/* An update that waits is one of all ranks, whichever tiles they have. */
bool parts_is_late(const struct build *b, uint32_t unit)
{
    if (parts_is_shared(b) && b->in->deferred)
        return parts_has_grads(b, unit);
    return b->units[unit].late_first < b->units[unit].late_end;
}

bool parts_has_early_tiles(const struct build *b, uint32_t unit)
{
    const struct build_unit *s = &b->units[unit];
    const struct graph_unit *u = &b->in->units[unit];
    return !u->frozen && s->late_end - s->late_first < u->tile_count;
}

/* It is the same on all of several ranks. */
bool parts_is_early(const struct build *b, uint32_t unit)
{
    return parts_is_shared(b) ? !b->in->deferred && parts_has_grads(b, unit)
                              : parts_has_early_tiles(b, unit);
}

static double bytes_per_update(const struct graph_in *in)
{
    return 2 * (in->state_bytes + in->weight_bytes) + in->grad_bytes;
}

double parts_tile_elements(const struct build *b, uint32_t unit, uint32_t first, uint32_t count)
{
    uint64_t start = (uint64_t)first * b->in->tile_elements;
    uint64_t end = start + (uint64_t)count * b->in->tile_elements;
    uint64_t elements = b->in->units[unit].elements;
    return (double)((end < elements ? end : elements) - start);
}

/* No step that is simulated has a redo; only what is read between its tiles has its place there. */
static bool is_left_out(const struct build *b, unsigned step_phase)
{
    return b->in->brief && step_phase == PHASE_REDO;
}

/* The device's update of what ranks have summed waits for them, where no computation waits behind
 * it. */
static enum lane lane_of_update(const struct build *b, uint32_t unit)
{
    if (!parts_is_resident(b, unit))
        return LANE_UPDATE;
    return parts_has_ranks(b) ? LANE_DEVICE_UPDATE : LANE_COMPUTE;
}

/* `count` tiles from the unit's `first` one on: read, update, write, as far as their homes ask. In
 * its backward a unit's gradients are where that left them, later they are at home. */
static void add_update(struct build *b, uint32_t unit, uint32_t first, uint32_t count,
                       unsigned step_phase)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    const struct build_unit *s = &b->units[unit];
    bool weights = u->weights == HST_TIER_NVME, states = first < u->nvme_states;
    if (is_left_out(b, step_phase))
        return;
    bool late = step_phase != PHASE_BACKWARD;
    bool grads = late && u->grads == HST_TIER_NVME && !s->retain_grads;
    uint32_t retained_grads = late                                 ? s->retained_grads
                              : parts_updates_from_buffer(b, unit) ? s->device_grads
                                                                   : s->grads;
    double elements = parts_tile_elements(b, unit, first, count);
    uint32_t slot = states || grads ? build_reservation(b, POOL_TILES) : GRAPH_NONE;
    uint32_t read = GRAPH_NONE;
    struct node node = {.unit = unit, .tile = u->first_tile + first, .tile_count = count};
    const struct operands_tiles tiles = {unit, first, count, weights, states, grads};
    if (slot != GRAPH_NONE) {
        read = build_node(b, NODE_READ_TILE, LANE_READ, step_phase, node);
        operands_read_tile(b, tiles);
        build_use(b, read, slot);
        build_use(b, read, late ? retained_grads : GRAPH_NONE);
    }
    node.work = elements;
    bool device = parts_is_resident(b, unit);
    node.dram_bytes = device ? 0 : elements * bytes_per_update(in);
    uint32_t update = build_node(b, NODE_UPDATE, lane_of_update(b, unit), step_phase, node);
    operands_update(b, tiles);
    build_use(b, update, slot);
    build_use(b, update, weights ? s->weights : GRAPH_NONE);
    build_use(b, update, retained_grads);
    build_dep(b, update, read);
    bool last = s->write_last && step_phase == PHASE_UPDATE && slot == GRAPH_NONE;
    if ((!states && !weights) || last)
        return;
    uint32_t write = build_node(b, NODE_WRITE_TILE, LANE_WRITE, step_phase, node);
    operands_write_tile(b, tiles);
    build_use(b, write, states ? slot : GRAPH_NONE);
    build_use(b, write, weights ? s->weights : GRAPH_NONE);
    build_dep(b, write, update);
}

/* One tile by way of the device: its update must not keep back computations that come later, which
 * have a stream of their own. */
static void add_streamed(struct build *b, uint32_t unit, uint32_t tile, unsigned step_phase)
{
    struct node node = {.unit = unit,
                        .tile = b->in->units[unit].first_tile + tile,
                        .tile_count = 1,
                        .work = parts_tile_elements(b, unit, tile, 1)};
    uint32_t buffer = build_reservation(b, POOL_DEVICE_TILES);
    uint32_t fetch = build_node(b, NODE_FETCH_TILE, LANE_H2D, step_phase, node);
    operands_streamed(b, unit, tile, NODE_FETCH_TILE);
    uint32_t update = build_node(b, NODE_UPDATE, LANE_DEVICE_UPDATE, step_phase, node);
    operands_streamed(b, unit, tile, NODE_UPDATE);
    uint32_t store = build_node(b, NODE_STORE_TILE, LANE_D2H, step_phase, node);
    operands_streamed(b, unit, tile, NODE_STORE_TILE);
    build_use(b, fetch, buffer);
    build_use(b, update, buffer);
    build_use(b, store, buffer);
    build_dep(b, update, fetch);
    build_dep(b, store, update);
}

struct tiles {
    uint32_t first, end;
};

/* Tiles that one node of the host's updates. */
static uint32_t most_at_once(const struct build *b, uint32_t unit, unsigned step_phase)
{
    const struct graph_unit *u = &b->in->units[unit];
    if (step_phase != PHASE_BACKWARD && u->grads == HST_TIER_NVME && !b->units[unit].retain_grads)
        return 1; /* its gradients come in a slot too */
    if (u->weights == HST_TIER_NVME)
        return UPDATE_WEIGHTS_TILES;
    uint32_t beside = UPDATE_BESIDE_ELEMENTS / b->in->tile_elements;
    if (u->streamed_tiles > 0 && beside < UPDATE_TILES_MOST)
        return beside > 0 ? beside : 1;
    return UPDATE_TILES_MOST;
}

/* Takes from tiles at home those that the device updates. */
static struct tiles take_streamed(const struct build *b, uint32_t unit, struct tiles *home)
{
    const struct graph_unit *u = &b->in->units[unit];
    uint32_t turn = u->tile_count - u->streamed_tiles;
    struct tiles streamed = {home->first > turn ? home->first : turn, home->end};
    if (streamed.first >= home->end)
        return (struct tiles){0};
    home->end = streamed.first;
    return streamed;
}

/*
 * The update of some of a unit's tiles. Those whose states are offloaded, on a drive, come one by
 * one between the others, so that drives and optimizer work all the time and not one after the
 * other. Weights that are read next come in pieces between them, for the same reason. Those that
 * the device updates have lanes of their own.
 */
static void add_tiles(struct build *b, uint32_t unit, struct tiles offloaded, struct tiles home,
                      unsigned step_phase)
{
    struct tiles streamed = take_streamed(b, unit, &home);
    uint64_t offloads = offloaded.end - offloaded.first, homes = home.end - home.first, i = 0,
             j = 0;
    uint32_t most = most_at_once(b, unit, step_phase);
    while (i + j < offloads + homes && b->rc == 0) {
        uint64_t due = i < offloads ? i * homes / offloads : homes; /* of those at home, by now */
        if (j < due) {
            uint32_t count = due - j < most ? (uint32_t)(due - j) : most;
            add_update(b, unit, home.first + (uint32_t)j, count, step_phase);
            j += count;
        } else {
            add_update(b, unit, offloaded.first + (uint32_t)i++, 1, step_phase);
        }
        parts_read_share(b, i + j, offloads + homes);
    }
    if (is_left_out(b, step_phase))
        return;
    for (uint32_t tile = streamed.first; tile < streamed.end && b->rc == 0; tile++)
        add_streamed(b, unit, tile, step_phase);
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
        parts_depend_on_read(b, i, unit);
    if (b->graph->nodes[nodes[0]].kind == NODE_READ_GRADS)
        build_dep(b, i, nodes[0]);
}

static void early_tiles(struct build *b, uint32_t unit, unsigned step_phase)
{
    const struct build_unit *s = &b->units[unit];
    uint32_t first = b->graph->node_count, end = b->in->units[unit].tile_count;
    add_tiles(b, unit, (struct tiles){0, s->late_first}, (struct tiles){s->late_end, end},
              step_phase);
    await_unit(b, unit, (uint32_t[]){first, b->graph->node_count});
}

/* Gradients that were kept for it; all of them are read where something came in between. */
static void take_grads(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (!s->retain_grads)
        return;
    s->retained_grads = parts_lend(b, unit, POOL_GRADS);
    uint32_t read =
        build_node(b, NODE_READ_GRADS, LANE_READ, PHASE_UPDATE, (struct node){.unit = unit});
    operands_read_grads(b, unit);
    build_use(b, read, s->retained_grads);
}

void parts_late_update(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    uint32_t turn = b->in->units[unit].nvme_states;
    if (b->in->units[unit].frozen)
        return;
    s->update[0] = b->graph->node_count;
    take_grads(b, unit);
    add_tiles(b, unit, (struct tiles){s->late_first, turn}, (struct tiles){turn, s->late_end},
              PHASE_UPDATE);
    await_unit(b, unit, (uint32_t[]){s->update[0], b->graph->node_count});
    if (b->in->optimistic)
        early_tiles(b, unit, PHASE_REDO);
    s->update[1] = b->graph->node_count;
}

void parts_late_write(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    s->write[0] = b->graph->node_count;
    for (uint32_t i = s->update[0]; s->write_last && b->rc == 0 && i < s->update[1]; i++) {
        struct node node = b->graph->nodes[i];
        if (node.kind != NODE_UPDATE || graph_lends(b->graph, &node, POOL_TILES))
            continue; /* those with a slot were written at once: another tile waits for it */
        node.dep_count = 0;
        uint32_t write = build_node(b, NODE_WRITE_TILE, LANE_WRITE, PHASE_UPDATE, node);
        operands_write_tile(b, (struct operands_tiles){
                                   .unit = unit,
                                   .first = node.tile - b->in->units[unit].first_tile,
                                   .count = node.tile_count,
                                   .weights = true,
                               });
        build_use(b, write, s->first_weights);
        build_dep(b, write, i);
        build_dep(b, write, b->last_read);
    }
    s->write[1] = b->graph->node_count;
}

void parts_early_update(struct build *b, uint32_t unit)
{
    struct build_unit *s = &b->units[unit];
    if (b->in->units[unit].frozen)
        return;
    s->update[2] = b->graph->node_count;
    early_tiles(b, unit, PHASE_BACKWARD);
    s->update[3] = b->graph->node_count;
}

/* Tiles of one node: enough for a drive's queue. */
#define SAVE_TILES 16u

/* Tiles in the device's memory come by way of a slot. */
static void save_tiles(struct build *b, struct operands_tiles tiles)
{
    struct node node = {.unit = tiles.unit,
                        .tile = b->in->units[tiles.unit].first_tile + tiles.first,
                        .tile_count = tiles.count};
    uint32_t slot = GRAPH_NONE, copy = GRAPH_NONE;
    if (parts_is_resident(b, tiles.unit)) {
        slot = build_reservation(b, POOL_TILES);
        copy = build_node(b, NODE_COPY_TILE, LANE_D2H, PHASE_SAVE, node);
        operands_copy_tile(b, tiles);
        build_use(b, copy, slot);
    }
    uint32_t save = build_node(b, NODE_SAVE_TILES, LANE_WRITE, PHASE_SAVE, node);
    operands_save(b, tiles);
    build_use(b, save, slot);
    build_dep(b, save, copy);
}

void parts_save(struct build *b, uint32_t unit)
{
    const struct graph_in *in = b->in;
    const struct graph_unit *u = &in->units[unit];
    bool weights = u->weights != HST_TIER_NVME && !in->derived_weights;
    if (u->frozen) /* the first version has it, and so have all */
        return;
    uint32_t most = parts_is_resident(b, unit) ? 1 : SAVE_TILES;
    b->units[unit].save[0] = b->graph->node_count;
    for (uint32_t first = 0, count; in->stored && first < u->tile_count; first += count) {
        bool states = first >= u->nvme_states;
        uint32_t left = (states ? u->tile_count : u->nvme_states) - first;
        count = left < most ? left : most;
        if (states || weights)
            save_tiles(b, (struct operands_tiles){unit, first, count, weights, states, false});
    }
    b->units[unit].save[1] = b->graph->node_count;
}
