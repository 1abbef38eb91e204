/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes of several ranks read and write: rows of weights that come together, of gradients that
 * are exchanged, and visits that have whole rows.
 */
#include "memory_access.h"

/* Of several ranks: buffers in which weights of a row come together, where they do so in one. */
static enum pool pool_of_rows(const struct model *m)
{
    return m->in->device_rows ? POOL_DEVICE_WEIGHTS : POOL_WEIGHTS;
}

/* Of several ranks: where the weights of a row come together. */
static struct cell *gathered_row(struct model *m, struct scheduled at, uint32_t owner)
{
    return m->in->whole_weights ? &m->home_rows[access_slot_of(m, owner)][owner]
                                : &access_unit_rows(m, at, pool_of_rows(m))[owner];
}

struct cell *access_gathered_tile(struct model *m, struct scheduled at, uint32_t owner,
                                  uint32_t tile)
{
    return m->in->whole_weights ? &m->weights[access_slot_of(m, owner)][tile]
                                : &access_unit_buffer(m, at, pool_of_rows(m))[tile];
}

struct cell *access_row_of_visit(struct model *m, struct scheduled at, uint32_t owner)
{
    return access_is_copied(m, m->graph->nodes[at.node].unit)
               ? &access_unit_rows(m, at, POOL_DEVICE_WEIGHTS)[owner]
               : gathered_row(m, at, owner);
}

void access_copy_weights(struct model *m, struct scheduled at, struct accesses *a)
{
    uint32_t unit = m->graph->nodes[at.node].unit;
    const bool whole = access_is_shared(m) && !m->in->device_rows;
    for (uint32_t i = 0; i <= access_unit(m, unit)->alias_count; i++) {
        const uint32_t owner = access_view(m, unit, i);
        const struct graph_unit *u = access_unit(m, owner);
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            access_copies(a,
                          whole ? access_gathered_tile(m, at, owner, t)
                                : access_weights_in_host(m, at, owner, t),
                          &access_unit_buffer(m, at, POOL_DEVICE_WEIGHTS)[t]);
        if (whole && u->row_elements > 0)
            access_copies(a, gathered_row(m, at, owner),
                          &access_unit_rows(m, at, POOL_DEVICE_WEIGHTS)[owner]);
    }
}

/* A row at home that a backward leaves whole is of the step that follows, and where an optimistic
 * update has written. */
static void gather_home_again(struct model *m, struct scheduled at, uint32_t owner,
                              struct accesses *a)
{
    const struct graph_unit *u = access_unit(m, owner);
    const int64_t step = access_weights_age(m, at, owner) + 1;
    const int slot = access_slot_of(m, owner) ^ m->in->optimistic;
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        access_reads(a, &m->weights[slot][t], step);
    access_writes(a, &m->home_rows[slot][owner], ANY_AGE, step);
}

/* The rank's shard, from where it is, is read for all ranks; it comes into the row with theirs. On
 * a device it has been copied there, or is at home. */
static void gather_row(struct model *m, struct scheduled at, uint32_t owner, struct accesses *a)
{
    const struct graph_unit *u = access_unit(m, owner);
    int64_t step = access_weights_age(m, at, owner);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++) {
        struct cell *to = access_gathered_tile(m, at, owner, t);
        const bool copied = m->in->device_rows && !access_is_resident(m, owner);
        struct cell *from = copied ? to : access_weights_in_host(m, at, owner, t);
        access_reads(a, from, step);
        if (to != from)
            access_writes(a, to, ANY_AGE, step);
    }
    if (u->row_elements > 0)
        access_writes(a, gathered_row(m, at, owner), ANY_AGE, step);
}

/* A gather of the forward leaves the rank's part of each row for the backward's. */
void access_gather(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    uint32_t others = m->in->whole_weights ? 0 : access_unit(m, n->unit)->alias_count;
    for (uint32_t i = 0; i <= others; i++) {
        const uint32_t owner = access_view(m, n->unit, i);
        if (m->in->whole_weights && !access_is_late(n))
            gather_home_again(m, at, owner, a);
        else
            gather_row(m, at, owner, a);
        if (m->in->secondary > 0 && n->phases & PHASE_FORWARD && !(n->phases & PHASE_BACKWARD))
            access_writes(a, &m->near[n->unit][owner], ANY_AGE, access_weights_age(m, at, owner));
    }
}

/* All of a row is what the ranks of the node have kept, the rank's own shard as well. */
void access_gather_near(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    for (uint32_t i = 0; i <= access_unit(m, n->unit)->alias_count; i++) {
        const uint32_t owner = access_view(m, n->unit, i);
        const struct graph_unit *u = access_unit(m, owner);
        const int64_t age = access_weights_age(m, at, owner);
        access_reads(a, &m->near[n->unit][owner], age);
        for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
            access_writes(a, access_gathered_tile(m, at, owner, t), ANY_AGE, age);
        if (u->row_elements > 0)
            access_writes(a, gathered_row(m, at, owner), ANY_AGE, age);
    }
}

/* The unit's own gradients at home are of that age. */
static void write_grads(struct model *m, struct scheduled at, uint32_t unit, int64_t age,
                        struct accesses *a)
{
    const struct graph_unit *u = access_unit(m, unit);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        access_writes(a, access_grads_at_home(m, at, unit, t), ANY_AGE, age);
}

/* A unit's row where ranks exchange it. */
static struct cell *row_of_grads(struct model *m, struct scheduled at, uint32_t unit)
{
    if (m->in->device_sums)
        return &access_unit_rows(m, at, POOL_DEVICE_GRADS)[unit];
    return m->in->buckets ? &m->home_grads[unit] : &access_unit_rows(m, at, POOL_GRADS)[unit];
}

/* The sum of the rank's shard is in the device's buffer then: of replicas it stands for one of
 * their tiles. */
static void exchange_on_device(struct model *m, struct scheduled at, uint32_t unit,
                               struct accesses *a)
{
    const struct graph_unit *u = access_unit(m, unit);
    const uint32_t tiles = m->in->replicas && u->tile_count > 0 ? 1 : u->tile_count;
    for (uint32_t t = u->first_tile; t < u->first_tile + tiles; t++)
        access_writes(a, &access_unit_buffer(m, at, POOL_DEVICE_GRADS)[t], ANY_AGE,
                      access_step(m, at));
}

static void exchange_row(struct model *m, struct scheduled at, uint32_t unit, struct accesses *a)
{
    const int64_t step = access_step(m, at);
    if (access_unit(m, unit)->row_elements == 0 || access_unit(m, unit)->frozen)
        return;
    access_reads(a, row_of_grads(m, at, unit), step);
    if (m->in->device_sums && !access_is_resident(m, unit)) {
        exchange_on_device(m, at, unit, a);
        return;
    }
    if (m->in->replicas)
        access_writes(a, &m->home_grads[unit], ANY_AGE, step);
    write_grads(m, at, unit, m->in->replicas ? GARBAGE : step, a);
}

/* A backward has left the whole row, of which the rank gets the sum of its shard; the backwards of
 * a bucket have left all of its rows. */
void access_exchange(struct model *m, struct scheduled at, struct accesses *a)
{
    const uint32_t unit = m->graph->nodes[at.node].unit;
    for (uint32_t i = 0; i < m->in->unit_count; i++)
        if (i == unit ||
            (m->in->buckets && access_unit(m, i)->bucket == access_unit(m, unit)->bucket))
            exchange_row(m, at, i, a);
}

void access_gather_grads(struct model *m, struct scheduled at, struct accesses *a)
{
    const uint32_t unit = m->graph->nodes[at.node].unit;
    access_reads(a, &m->home_grads[unit], access_step(m, at));
    write_grads(m, at, unit, access_step(m, at), a);
}

/* A backward of several ranks leaves a row, on a device in its own memory; in a bucket it begins
 * what sums come to lie in. */
void access_leave_row(struct model *m, struct scheduled at, struct accesses *a)
{
    const struct node *n = &m->graph->nodes[at.node];
    const struct graph_unit *u = access_unit(m, n->unit);
    if (n->kind != NODE_BACKWARD || u->row_elements == 0 || u->frozen)
        return;
    access_writes(a,
                  m->in->apart ? &access_unit_rows(m, at, POOL_DEVICE_GRADS)[n->unit]
                               : row_of_grads(m, at, n->unit),
                  ANY_AGE, access_step(m, at));
    if (m->in->buckets && !m->in->apart)
        write_grads(m, at, n->unit, GARBAGE, a);
}

/* Of replicas it goes to its place in the row, which is not whole then. */
static void copy_sum(struct model *m, struct scheduled at, struct accesses *a)
{
    const uint32_t unit = m->graph->nodes[at.node].unit;
    const struct graph_unit *u = access_unit(m, unit);
    struct cell *sums = access_unit_buffer(m, at, POOL_DEVICE_GRADS);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count && !m->in->replicas; t++)
        access_copies(a, &sums[t], access_grads_at_home(m, at, unit, t));
    if (!m->in->replicas || u->tile_count == 0)
        return;
    access_copies(a, &sums[u->first_tile], &m->home_grads[unit]);
    write_grads(m, at, unit, GARBAGE, a);
}

void access_copy_row_of_grads(struct model *m, struct scheduled at, struct accesses *a)
{
    const uint32_t unit = m->graph->nodes[at.node].unit;
    if (m->in->device_sums) {
        copy_sum(m, at, a);
        return;
    }
    access_copies(a, &access_unit_rows(m, at, POOL_DEVICE_GRADS)[unit], row_of_grads(m, at, unit));
    if (m->in->buckets)
        write_grads(m, at, unit, GARBAGE, a);
}
