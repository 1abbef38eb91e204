/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between nodes: two hops, so that what leaves a node is added up or spread there first. An
 * exchange adds within groups of ranks of a node, a power of two of them, which are a node of the
 * tree; then ranks of the same place in their groups exchange sums. A gather crosses nodes between
 * ranks of the same local number, each 1/locals of the row, and spreads in shared memory.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <string.h>

enum { CHUNK_ELEMENTS = 1 << 18, ALIGN = 64 };

struct hops {
    const struct comm_op *op;
    bool in_place;          /* the first hop reads m->row; else it takes messages */
    uint32_t groups, group; /* of the world; this rank's */
    uint32_t ranks, place;  /* of a group; this rank's in it */
    struct hst_sum_ways inner, outer;
    const size_t *in_size;        /* [ranks], bytes of an element of a rank's row */
    const size_t *mid_size;       /* [groups], of a group's sum */
    size_t in_widest, mid_widest; /* of any in the world */
    size_t most;                  /* elements of a piece of each shard */
    char *receive;                /* first hop: [ranks][groups][most] */
    char *mid[2], *other[2]; /* sums of this group, of others: [groups][most], by piece mod 2 */
};

/* ---- what a piece is ------------------------------------------------------------------------- */

static size_t count_of(const struct hops *h, size_t k)
{
    const size_t at = k * h->most;
    return at >= h->op->count ? 0 : h->op->count - at < h->most ? h->op->count - at : h->most;
}

/* This is where piece k of the shard that this rank's place has in a group begins, in rank i's
   row. */
static size_t place_in_row(const struct hops *h, uint32_t i, uint32_t group, size_t k)
{
    const size_t shard = group * h->ranks + h->place;
    return (shard * h->op->count + k * h->most) * h->in_size[i];
}

/* Two buffers of config.piece_bytes, one behind the other, are divided. */
static int carve(struct mpi *m, struct hops *h)
{
    const size_t first = h->in_place ? 0 : (size_t)h->ranks * h->groups * h->in_widest;
    const size_t each = first + 4 * h->groups * h->mid_widest;
    h->most = 2 * m->config.piece_bytes / each / ALIGN * ALIGN;
    if (!h->most)
        return mpi_fail(m, -EINVAL, COMM_NOBODY, "pieces of %zu bytes are too small for %u ranks",
                        m->config.piece_bytes, m->info.ranks);
    int rc = mpi_take_rings(m);
    if (rc)
        return rc;
    const size_t sums = h->groups * h->most * h->mid_widest;
    char *at = m->ring[0];
    for (int i = 0; i < 2; i++) {
        h->mid[i] = at;
        h->other[i] = at + sums;
        at += 2 * sums;
    }
    h->receive = at;
    return 0;
}

static int describe(struct mpi *m, const struct comm_op *op, bool in_place, struct hops *h)
{
    const uint32_t each = op->tree.ways / m->info.ranks;
    *h = (struct hops){.op = op, .in_place = in_place, .ranks = m->group};
    h->groups = m->info.ranks / h->ranks;
    h->group = m->info.rank / h->ranks;
    h->place = m->info.rank % h->ranks;
    h->inner = (struct hst_sum_ways){
        .tree = op->tree, .first = h->group * h->ranks * each, .each = each, .inputs = h->ranks};
    h->outer =
        (struct hst_sum_ways){.tree = op->tree, .each = h->ranks * each, .inputs = h->groups};
    const struct hst_sum_ways world = {.tree = op->tree, .each = each, .inputs = m->info.ranks};
    h->in_widest = mpi_sizes(&world, m->size);
    h->in_size = m->size + h->group * h->ranks;
    h->mid_widest = mpi_sizes(&h->outer, m->size + m->info.ranks);
    h->mid_size = m->size + m->info.ranks;
    return carve(m, h);
}

/* ---- the first hop --------------------------------------------------------------------------- */

/* To each rank of the group the pieces of its place in all groups. */
static int receive_inner(struct mpi *m, const struct hops *h, size_t k)
{
    const size_t size = h->in_size[h->place], shard = h->op->count * size;
    struct turn turn = {.request = m->request,
                        .peers = h->ranks,
                        .self = h->place,
                        .first = h->group * h->ranks,
                        .stride = 1,
                        .send = (const char *)h->op->in + k * h->most * size,
                        .send_stride = shard,
                        .receive = h->receive,
                        .receive_stride = h->groups * h->most * h->in_widest,
                        .count = h->groups * count_of(h, k),
                        .size = size,
                        .sizes = h->in_size};
    int rc = mpi_check(m,
                       MPI_Type_create_hvector((int)h->groups, (int)(count_of(h, k) * size),
                                               (MPI_Aint)(h->ranks * shard), MPI_BYTE, &turn.type),
                       "MPI_Type_create_hvector");
    if (rc)
        return rc;
    MPI_Type_commit(&turn.type);
    rc = mpi_turn_begin(m, &turn);
    rc = rc ? rc : mpi_turn_finish(m, &turn);
    MPI_Type_free(&turn.type);
    return rc;
}

/* This is where rank i of the group has piece k for this rank's place in group g. */
static const char *inner_input(const struct mpi *m, const struct hops *h, uint32_t i, uint32_t g,
                               size_t k)
{
    const size_t in_row = place_in_row(h, i, g, k);
    const char *own = h->op->in;
    if (h->in_place)
        return m->row[m->info.local - h->place + i] + in_row;
    if (i == h->place)
        return own + in_row;
    return h->receive + i * h->groups * h->most * h->in_widest + g * count_of(h, k) * h->in_size[i];
}

static struct turn outer_turn(const struct mpi *m, const struct hops *h, size_t k)
{
    const size_t count = count_of(h, k), size = h->mid_size[h->group];
    return (struct turn){.request = m->request + 2ul * m->info.ranks,
                         .type = MPI_DATATYPE_NULL,
                         .peers = h->groups,
                         .self = h->group,
                         .first = h->place,
                         .stride = h->ranks,
                         .send = h->mid[k % 2],
                         .send_stride = count * size,
                         .receive = h->other[k % 2],
                         .receive_stride = count * h->mid_widest,
                         .count = count,
                         .size = size,
                         .sizes = h->mid_size};
}

/* Adds up the group's parts of piece k; the sums of the piece before move meanwhile. */
static int sum_inner(struct mpi *m, const struct hops *h, size_t k)
{
    const size_t count = count_of(h, k), size = h->mid_size[h->group];
    const struct turn before = k ? outer_turn(m, h, k - 1) : (struct turn){0};
    int rc = 0, done;
    for (uint32_t g = 0; !rc && g < h->groups; g++)
        for (size_t at = 0; !rc && at < count; at += CHUNK_ELEMENTS) {
            const size_t n = count - at < CHUNK_ELEMENTS ? count - at : CHUNK_ELEMENTS;
            for (uint32_t i = 0; i < h->ranks; i++)
                m->input[i] = inner_input(m, h, i, g, k) + at * h->in_size[i];
            rc = mpi_sum(m, &h->inner, h->mid[k % 2] + (g * count + at) * size, n);
            if (!rc && k)
                rc = mpi_turn_push(m, &before, &done);
            mpi_beat(m);
        }
    return rc;
}

/* ---- the second hop -------------------------------------------------------------------------- */

static int sum_outer(struct mpi *m, const struct hops *h, size_t k)
{
    const struct turn turn = outer_turn(m, h, k);
    const size_t count = turn.count, out_bytes = hst_dtype_bytes(h->op->tree.root);
    char *out = (char *)h->op->out + k * h->most * out_bytes;
    int rc = 0;
    for (size_t at = 0; !rc && at < count; at += CHUNK_ELEMENTS) {
        const size_t n = count - at < CHUNK_ELEMENTS ? count - at : CHUNK_ELEMENTS;
        for (uint32_t g = 0; g < h->groups; g++)
            m->input[g] = (g == h->group ? turn.send + g * turn.send_stride
                                         : turn.receive + g * turn.receive_stride) +
                          at * h->mid_size[g];
        rc = mpi_sum(m, &h->outer, out + at * out_bytes, n);
        mpi_beat(m);
    }
    return rc;
}

static int finish_outer(struct mpi *m, const struct hops *h, size_t k)
{
    const struct turn turn = outer_turn(m, h, k);
    int rc = mpi_turn_finish(m, &turn);
    return rc ? rc : sum_outer(m, h, k);
}

static void count_exchange(struct mpi *m, const struct hops *h)
{
    const uint64_t shard = h->op->count;
    struct taken bytes = {0};
    for (uint32_t i = 0; i < h->ranks; i++)
        bytes.net += i == h->place ? 0 : h->groups * shard * h->in_size[i];
    bytes.in_place = h->in_place ? bytes.net : 0;
    for (uint32_t g = 0; g < h->groups; g++) {
        const bool here = g * h->ranks / m->info.locals == m->info.node;
        bytes.net += g == h->group ? 0 : shard * h->mid_size[g];
        bytes.between += here ? 0 : shard * h->mid_size[g];
    }
    mpi_count(m, bytes);
}

int mpi_exchange_hops(struct mpi *m, const struct comm_op *op, bool in_place, const struct tag *tag)
{
    struct hops h;
    int rc = describe(m, op, in_place, &h);
    for (size_t k = 0; !rc; k++) {
        const bool any = count_of(&h, k) > 0;
        if (any && !in_place)
            rc = receive_inner(m, &h, k);
        if (any && !rc)
            rc = sum_inner(m, &h, k);
        if (k && !rc)
            rc = finish_outer(m, &h, k - 1);
        if (!any)
            break;
        const struct turn turn = outer_turn(m, &h, k);
        rc = rc ? rc : mpi_turn_begin(m, &turn);
    }
    if (!rc)
        count_exchange(m, &h);
    return rc || !in_place ? rc : mpi_meet(m, tag);
}

/* ---- gather ---------------------------------------------------------------------------------- */

static int cross_nodes(struct mpi *m, const struct comm_op *op)
{
    char *whole = op->out;
    const struct turn turn = {
        .peers = m->info.nodes,
        .self = m->info.node,
        .first = m->info.local,
        .stride = m->info.locals,
        .send = whole + m->info.rank * op->count,
        .receive = whole + m->info.local * op->count,
        .receive_stride = m->info.locals * op->count,
        .count = op->count,
    };
    return op->quant ? mpi_turn_quantised(m, op, turn) : mpi_turn_gather(m, turn);
}

int mpi_gather_hops(struct mpi *m, const struct comm_op *op, const struct tag *tag)
{
    char *whole = op->out;
    int rc = cross_nodes(m, op);
    rc = rc ? rc : mpi_meet(m, tag); /* all of the node have theirs of all nodes */
    if (rc)
        return rc;
    for (uint32_t r = 0; r < m->info.ranks; r++) {
        const uint32_t local = r % m->info.locals;
        if (local != m->info.local)
            memcpy(whole + r * op->count, m->row[local] + r * op->count, op->count);
        mpi_beat(m);
    }
    return mpi_meet(m, tag);
}
